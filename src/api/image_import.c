/* image_import.c - makes an image from an archive in a request's body
 *
 *   client -> http -> left -> pipe -> the helper that unpacks
 *
 * What the pipe does not take stays in left (one read's worth) and the client is paused meanwhile.
 * The helper may fail early, and then its error is the answer at once, while the client is still
 * sending; or it has seen the end of the archive, and the padding after it is dropped. A client
 * that disconnects in the middle must not look like the end of the archive: the job is cancelled
 * first, and the pipe closed after. */
#include "api/api_internal.h"
#include "base/text.h"
#include "image/image.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>

enum { PIPE_BYTES = 1024 * 1024 };

struct import {
	struct job job;
	int pipe; /* -1: closed, further bytes are dropped */
	struct loop_fd *watch;
	struct buf left;
	bool ended; /* the whole body has come */
};

static void close_pipe(struct import *import)
{
	loop_fd_free(steal_ptr(&import->watch));
	if (import->pipe >= 0)
		close(steal_fd(&import->pipe));
	buf_done(&import->left);
}

static void import_done(struct job *job)
{
	struct import *import = (struct import *)job;

	close_pipe(import);
	free(import);
}

/* Returns how much the pipe took. When nobody reads any more it is closed, and everything counts as
 * taken. */
static size_t put(struct import *import, const uint8_t *data, size_t len)
{
	size_t taken = 0;

	while (taken < len) {
		ssize_t n = write(import->pipe, data + taken, len - taken);

		if (n > 0) {
			taken += (size_t)n;
		} else if (errno == EAGAIN) {
			return taken;
		} else if (errno != EINTR) {
			close_pipe(import);
			return len;
		}
	}
	return taken;
}

static void on_writable(void *arg, unsigned ready)
{
	struct import *import = arg;

	(void)ready;
	buf_eat(&import->left, put(import, buf_head(&import->left), import->left.len));
	if (import->left.len)
		return;
	if (import->watch)
		loop_fd_set(import->watch, 0);
	if (import->ended)
		close_pipe(import);
	else
		http_request_body_resume(import->job.request);
}

static void on_body_data(struct http_request *request, const void *data, size_t len, void *arg)
{
	struct import *import = arg;
	size_t taken = 0;

	if (import->pipe < 0)
		return;
	if (!import->left.len)
		taken = put(import, data, len);
	if (taken == len)
		return;
	buf_add(&import->left, (const uint8_t *)data + taken, len - taken);
	loop_fd_set(import->watch, LOOP_WRITE);
	http_request_body_pause(request);
}

static void on_body_end(struct http_request *request, void *arg)
{
	struct import *import = arg;

	(void)request;
	import->ended = true;
	if (!import->left.len)
		close_pipe(import);
}

/* ---- beginning ------------------------------------------------------------------------------ */

static int read_spec(struct call *call, struct image_import_spec *ret, struct err *err)
{
	const char *length = http_request_header(call->request, "Content-Length");

	ret->name = call_query(call, "name");
	if (ret->name && image_name_check(ret->name, err) < 0)
		return -1;
	ret->fallback = call_query(call, "fallback");
	if (ret->fallback && image_name_check(ret->fallback, err) < 0)
		return -1;
	/* Only for the progress: an invalid value counts as none. */
	if (length && parse_u64("Content-Length", length, 0, INT64_MAX, &ret->size, NULL) < 0)
		ret->size = 0;
	return input_query_u64(call, "size", 0, INT64_MAX, &ret->size, err);
}

/* The helper reads blocking; our end must not block. */
static int open_pipe(int *ret_read, int *ret_write, struct err *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe for an import");
	if (fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0) {
		err_sys(err, errno, "pipe for an import");
		close(ends[0]);
		close(ends[1]);
		return -1;
	}
	/* works with the default size too, slower */
	(void)fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES);
	*ret_read = ends[0];
	*ret_write = ends[1];
	return 0;
}

void api_image_import(struct call *call)
{
	struct image_import_spec spec = { .input = -1 };
	struct err err = ERR_INIT;
	struct import *import;
	int started, pipe = -1;

	if (read_spec(call, &spec, &err) < 0 || open_pipe(&spec.input, &pipe, &err) < 0)
		return call_error(call, &err);
	import = xnew(struct import);
	import->pipe = pipe;
	import->watch = loop_fd_new(yard_get_loop(call->yard), pipe, 0, on_writable, import);
	job_init(&import->job, call, "image.imported", false, import_done);
	started = image_import_start(
		yard_get_images(call->yard), &spec, &job_ops, &import->job, &import->job.run, &err);
	if (started < 0)
		close(spec.input);
	if (job_started(&import->job, started, &err))
		http_request_stream_body(call->request, on_body_data, on_body_end, import);
}
