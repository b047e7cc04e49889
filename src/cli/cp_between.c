/* cp_between.c - copies from one box into another
 *
 * A child process reads from one box into a pipe, and we write what comes out of it to the other:
 * two requests at the same time, each on its own connection, and nothing on this machine's disk.
 * The end of the pipe means the end of the file only when the child succeeded; otherwise its error
 * is ours, and the upload is cancelled. */
#include "cli/cp_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "cli/retar.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

struct stream {
	struct copy *copy;
	pid_t child;
	int data, why; /* pipes from the child: bytes, and its struct err if it failed */
	struct err problem;
	struct retar *retar; /* for a folder */
};

static int write_pipe(const void *data, size_t len, void *arg, struct err *err)
{
	return fd_write_all(*(int *)arg, data, len, err);
}

_Noreturn static void run_child(struct cli *cli, const char *path, int data, int why)
{
	struct client_request request = {
		.method = "GET", .path = path, .data = write_pipe, .arg = &data
	};
	struct client *client = client_new(cli->target);
	struct err err = ERR_INIT;

	if (client_do(client, &request, NULL, &err) == 0)
		_exit(0);
	if (write(why, &err, sizeof err) < 0)
		_exit(2);
	_exit(1);
}

static int stream_open(struct stream *stream, const char *path, struct err *err)
{
	int data[2], why[2];

	if (pipe2(data, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe");
	if (pipe2(why, O_CLOEXEC) < 0) {
		err_sys(err, errno, "pipe");
		close(data[0]);
		close(data[1]);
		return -1;
	}
	stream->child = fork();
	if (stream->child == 0) {
		close(data[0]);
		close(why[0]);
		run_child(stream->copy->cli, path, data[1], why[1]);
	}
	close(data[1]);
	close(why[1]);
	stream->data = data[0];
	stream->why = why[0];
	return stream->child < 0 ? err_sys(err, errno, "fork") : 0;
}

/* Waits for the child; -1 if it failed, with the reason in stream->problem. */
static int reap(struct stream *stream)
{
	int status = 0;

	if (stream->child <= 0)
		return stream->problem.kind ? -1 : 0;
	while (waitpid(stream->child, &status, 0) < 0 && errno == EINTR)
		continue;
	stream->child = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (read(stream->why, &stream->problem, sizeof stream->problem) != sizeof stream->problem)
		err_set(&stream->problem, ERR_SYSTEM, "reading from the box was interrupted");
	return -1;
}

static void stream_close(struct stream *stream)
{
	/* A child that still writes gets SIGPIPE. */
	close(stream->data);
	reap(stream);
	close(stream->why);
}

static int64_t read_pipe(void *buf, size_t len, void *arg, struct err *err)
{
	struct stream *stream = arg;
	ssize_t got;

	do
		got = read(stream->data, buf, len);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_sys(err, errno, "read");
	if (got == 0 && reap(stream) < 0) {
		*err = stream->problem;
		return -1;
	}
	if (!stream->retar)
		copy_count(stream->copy, (size_t)got);
	return got;
}

static int64_t read_tar(void *buf, size_t len, void *arg, struct err *err)
{
	struct stream *stream = arg;
	int64_t got = retar_read(stream->retar, buf, len, err);

	if (got > 0)
		copy_count(stream->copy, (size_t)got);
	return got;
}

static int run(struct stream *stream, const char *source, const struct client_request *request,
	struct err *err)
{
	int result;

	if (stream_open(stream, source, err) < 0)
		return -1;
	result = client_do(stream->copy->cli->client, request, NULL, err);
	/* The child's error is the cause, even if the upload failed first. */
	if (result < 0 && stream->problem.kind)
		*err = stream->problem;
	stream_close(stream);
	return result;
}

static int send_file(struct copy *copy, const struct place *from, const struct place *to,
	const char *path, struct err *err)
{
	_cleanup_free_ char *source =
		client_path("/v1/boxes/%s/files?path=%s", from->box, from->path);
	_cleanup_free_ char *target = NULL;
	struct stream stream = { .copy = copy };
	struct client_request request = {
		.method = "PUT",
		.body_type = "application/octet-stream",
		.read = read_pipe,
		.read_size = -1,
		.arg = &stream,
	};
	char mode[8];

	snprintf(mode, sizeof mode, "%04o", copy->mode & 07777);
	target = client_path("/v1/boxes/%s/files?path=%s&mode=%s", to->box, path, mode);
	request.path = target;
	return run(&stream, source, &request, err);
}

static int send_folder(struct copy *copy, const struct place *from, const struct place *to,
	const char *type, struct err *err)
{
	_cleanup_free_ char *below = place_join(from->path, ""), *folder = NULL;
	_cleanup_free_ char *source = client_path("/v1/boxes/%s/archive?path=%s", from->box, below);
	_cleanup_free_ char *target = NULL;
	struct stream stream = { .copy = copy };
	struct retar_spec spec = {
		.read = read_pipe, .arg = &stream, .preserve = copy_preserves(copy)
	};
	struct client_request request = {
		.method = "PUT",
		.body_type = "application/x-tar",
		.read = read_tar,
		.read_size = -1,
		.arg = &stream,
	};
	int result;

	if (copy_target_in_box(from, to, type, &spec.top, &folder, err) < 0)
		return -1;
	target = client_path("/v1/boxes/%s/archive?path=%s", to->box, folder);
	request.path = target;
	copy->total = 0;
	stream.retar = retar_new(&spec);
	result = run(&stream, source, &request, err);
	retar_free(stream.retar);
	return result;
}

int copy_between(struct copy *copy, const struct place *from, const struct place *to, bool several,
	struct err *err)
{
	_cleanup_free_ char *into = NULL;
	char from_type[16], to_type[16];

	if (copy_box_type(copy, to, to_type, sizeof to_type, err) < 0 ||
		copy_box_type(copy, from, from_type, sizeof from_type, err) < 0)
		return -1;
	if (!*from_type)
		return err_set(err, ERR_NOT_FOUND, "no '%s' in box '%s'", from->path, from->box);
	if (strcmp(from_type, "file") && strcmp(from_type, "dir"))
		return err_set(err, ERR_INVALID, "'%s:%s' is a %s, neither file nor folder",
			from->box, from->path, from_type);
	if (copy_check_target_in_box(to, to_type, !strcmp(from_type, "dir"), several, err) < 0)
		return -1;
	if (!strcmp(from_type, "dir"))
		return send_folder(copy, from, to, to_type, err);
	if (!strcmp(to_type, "dir"))
		into = place_join(to->path, place_name(from));
	return send_file(copy, from, to, into ? into : to->path, err);
}
