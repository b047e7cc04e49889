/* download.c - see download.h
 *
 * The file gets its name when it is complete (outfile.c). A stream that broke in the daemon ends
 * too early for HTTP, so a truncated archive is never taken for a complete one. */
#include "cli/download.h"
#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/outfile.h"
#include "cli/progress.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>

enum { BAR_DELAY_MS = 500 };

struct sink {
	struct progress bar;
	const char *path; /* of the file being written */
	int fd;
	struct outfile file;  /* none when it is stdout */
	uint64_t done, total; /* total 0: not known */
};

/* The file is made when the answer is good, so that an error leaves none. */
static int on_head(int64_t length, void *arg, struct err *err)
{
	struct sink *sink = arg;

	sink->total = length > 0 ? (uint64_t)length : 0;
	if (sink->fd >= 0)
		return 0;
	if (outfile_create_at(sink->path, &sink->file, err) < 0)
		return -1;
	sink->fd = sink->file.fd;
	return 0;
}

static int on_data(const void *data, size_t len, void *arg, struct err *err)
{
	struct sink *sink = arg;

	if (fd_write_all(sink->fd, data, len, err) < 0) {
		if (err->errno_value == EPIPE && sink->fd == STDOUT_FILENO)
			exit(128 + SIGPIPE); /* reached only where SIGPIPE is ignored */
		return err_wrap(err, "'%s'", sink->path);
	}
	sink->done += len;
	progress_bytes(&sink->bar, sink->done, sink->total);
	return 0;
}

static int run(struct cli *cli, struct sink *sink, const char *what, const char *path,
	bool with_bar, struct err *err)
{
	struct client_request request = {
		.method = "GET",
		.path = path,
		.head = on_head,
		.data = on_data,
		.arg = sink,
	};
	int result;

	progress_init(&sink->bar, what, with_bar && !cli->quiet, BAR_DELAY_MS);
	result = client_do(cli->client, &request, NULL, err);
	progress_done(&sink->bar);
	return result;
}

static int run_into_file(struct cli *cli, struct sink *sink, const char *what, const char *path,
	const char *target, struct err *err)
{
	mode_t mask = umask(0);

	umask(mask);
	sink->path = target;
	sink->fd = -1;
	if (run(cli, sink, what, path, true, err) < 0) {
		outfile_drop(&sink->file);
		return -1;
	}
	return outfile_finish(&sink->file, 0666 & ~mask, false, err);
}

int download(struct cli *cli, const char *what, const char *path, const char *target,
	uint64_t *ret_bytes, struct err *err)
{
	struct sink sink = { .path = "stdout", .fd = STDOUT_FILENO, .file = OUTFILE_INIT };
	bool to_stdout = !strcmp(target, "-");
	int result;

	if (to_stdout && isatty(STDOUT_FILENO)) {
		err_set(err, ERR_INVALID, "an archive is not written to a terminal");
		return err_hint(err, "send it into a pipe, or name a file");
	}
	fflush(stdout);
	result = to_stdout ? run(cli, &sink, what, path, !isatty(STDOUT_FILENO), err)
			   : run_into_file(cli, &sink, what, path, target, err);
	if (result == 0 && ret_bytes)
		*ret_bytes = sink.done;
	return result;
}
