/* cli.c - the rows that start a program: the command line as people use it, and the baseline
 *
 * /proc/self/exe is started like any other program, so process start and dynamic linking count.
 * A stream is 64 MiB; the daemon's memory is read every few milliseconds meanwhile. */
#include "bench/bench_internal.h"
#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { STREAM_MIB = 64, LIMIT_MS = 60000 };

#define SELF "/proc/self/exe"

static char work_dir[64]; /* folder of the files that are copied; "" until needed */

static int run_program(const char *const *argv, struct bench_times *ret, struct err *err)
{
	struct bench_program program = { .argv = argv, .mount_ns = -1 };

	return bench_program_run(&program, LIMIT_MS, ret, err);
}

int bench_floor_exec(struct bench_boxes *boxes, double *ret, struct err *err)
{
	struct bench_times times;

	(void)boxes;
	if (run_program((const char *[]){ "/bin/echo", "hi", NULL }, &times, err) < 0)
		return -1;
	*ret = times.first_byte;
	return 0;
}

int bench_exec_cli(struct bench_boxes *boxes, double *ret, struct err *err)
{
	struct bench_times times;
	const char *box;

	if (bench_boxes_resident(boxes, &box, err) < 0)
		return -1;
	if (run_program((const char *[]){ SELF, "exec", box, "--", "echo", "hi", NULL }, &times,
		    err) < 0)
		return -1;
	if (strcmp(times.head, "hi\n") != 0)
		return err_set(
			err, ERR_PROTOCOL, "box exec printed '%s' instead of 'hi'", times.head);
	*ret = times.exit;
	return 0;
}

/* --- streams --- */

struct rss_watch {
	struct bench_boxes *boxes;
	struct bench_row *row; /* NULL: not recorded */
};

static void note_rss(void *arg)
{
	struct rss_watch *watch = arg;
	double rss;

	if (watch->row && bench_boxes_daemon_rss(watch->boxes, &rss, NULL) == 0)
		bench_row_add(watch->row, rss);
}

static int run_stream(struct bench_boxes *boxes, struct bench_row *rss, const char *const *argv,
	struct bench_times *ret, struct err *err)
{
	struct rss_watch watch = { boxes, rss };
	struct bench_program program = {
		.argv = argv,
		.mount_ns = -1,
		.on_tick = note_rss,
		.arg = &watch,
	};

	return bench_program_run(&program, LIMIT_MS, ret, err);
}

/* Makes a folder with a 64 MiB file, in memory where possible: the copy is to be measured, not
 * our disk. Random bytes, so that nothing can profit from zeros. */
static int need_work(struct err *err)
{
	_cleanup_close_ int fd = -1;
	char path[96], block[64 * 1024];

	if (work_dir[0])
		return 0;
	snprintf(work_dir, sizeof work_dir, "%s/box-bench-XXXXXX",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(work_dir)) {
		work_dir[0] = '\0';
		return err_sys(err, errno, "make a folder for the copies");
	}
	snprintf(path, sizeof path, "%s/file", work_dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "make '%s'", path);
	random_bytes(block, sizeof block);
	for (size_t left = (size_t)STREAM_MIB << 20; left > 0; left -= sizeof block)
		if (fd_write_all(fd, block, sizeof block, err) < 0)
			return err_wrap(err, "fill '%s'", path);
	return 0;
}

int bench_stdout_stream(
	struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err)
{
	struct bench_times times;
	const char *box;

	if (bench_boxes_resident(boxes, &box, err) < 0)
		return -1;
	if (run_stream(boxes, rss,
		    (const char *[]){
			    SELF, "exec", box, "--", "head", "-c", "64M", "/dev/zero", NULL },
		    &times, err) < 0)
		return -1;
	if (times.bytes != (size_t)STREAM_MIB << 20)
		return err_set(err, ERR_PROTOCOL, "%zu of %zu bytes came back", times.bytes,
			(size_t)STREAM_MIB << 20);
	*ret = STREAM_MIB / (times.end_of_file / 1000.0);
	return 0;
}

int bench_cp_in(struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err)
{
	struct bench_times times;
	const char *box;
	_cleanup_free_ char *from = NULL, *to = NULL;

	if (bench_boxes_resident(boxes, &box, err) < 0 || need_work(err) < 0)
		return -1;
	from = xasprintf("%s/file", work_dir);
	to = xasprintf("%s:/root/bench-in", box);
	if (run_stream(boxes, rss, (const char *[]){ SELF, "cp", from, to, NULL }, &times, err) < 0)
		return -1;
	*ret = STREAM_MIB / (times.exit / 1000.0);
	return 0;
}

/* Makes the file to fetch inside the box, once: this row does not depend on cp_in. */
static int need_file_inside(const char *box, struct err *err)
{
	static bool made;
	struct bench_times times;

	if (made)
		return 0;
	if (run_program((const char *[]){ SELF, "exec", box, "--", "sh", "-c",
				"head -c 64M /dev/urandom >/root/bench-out", NULL },
		    &times, err) < 0)
		return -1;
	made = true;
	return 0;
}

int bench_cp_out(struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err)
{
	struct bench_times times;
	const char *box;
	struct stat info;
	_cleanup_free_ char *from = NULL, *to = NULL;

	if (bench_boxes_resident(boxes, &box, err) < 0 || need_work(err) < 0 ||
		need_file_inside(box, err) < 0)
		return -1;
	from = xasprintf("%s:/root/bench-out", box);
	to = xasprintf("%s/out", work_dir);
	if (run_stream(boxes, rss, (const char *[]){ SELF, "cp", from, to, NULL }, &times, err) < 0)
		return -1;
	if (stat(to, &info) < 0 || info.st_size != (off_t)STREAM_MIB << 20)
		return err_set(err, ERR_PROTOCOL, "box cp brought a file of another size");
	unlink(to);
	*ret = STREAM_MIB / (times.exit / 1000.0);
	return 0;
}

void bench_cli_done(void)
{
	if (work_dir[0])
		tree_remove(AT_FDCWD, work_dir, NULL);
	work_dir[0] = '\0';
}
