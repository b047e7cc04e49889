/* fuzz_sftp.c - arbitrary bytes as an SFTP session
 *
 * The server does what it is asked, with real files: while it runs, this process is in a folder of
 * its own by chroot(2), and comes back by a descriptor of the real root. Where that is not allowed
 * nothing is tried, aloud. Files stay small by a limit.
 *
 * Promised for any bytes: the answers are whole packets within their bound, one for each request
 * that was served, with its number; what needs more bytes stays as it is. */
#include "guest/sftp_internal.h"
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __asan_on_error(void);

enum { ROUNDS = 256 }; /* after so many sessions what they left is removed */

static char folder[] = "/dev/shm/fuzz-sftp-XXXXXX";
static int root = -1, cwd = -1, jail = -1;

/* ---- in and out ------------------------------------------------------------------------------ */

static void leave(void)
{
	if (fchdir(root) < 0 || chroot(".") < 0 || fchdir(cwd) < 0)
		_exit(1);
}

/* Out first: else the input that found something could not be written where it belongs. */
void __asan_on_error(void)
{
	if (jail >= 0)
		leave();
}

static void promise(bool kept)
{
	if (!kept) {
		leave();
		abort();
	}
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	if (at->level)
		remove(path);
	return 0;
}

/* From outside, by its path. */
static void empty_jail(void)
{
	nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void remove_jail(void)
{
	empty_jail();
	rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const struct rlimit small = { 1 << 20, 1 << 20 };

	(void)argc;
	(void)argv;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!mkdtemp(folder) || chdir(folder) < 0 || chroot(".") < 0) {
		fprintf(stderr, "fuzz_sftp: needs chroot; nothing is tried\n");
		return 0;
	}
	jail = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	leave();
	atexit(remove_jail);
	setrlimit(RLIMIT_FSIZE, &small);
	return 0;
}

static void make_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd >= 0 && write(fd, text, strlen(text)) > 0)
		close(fd);
}

static void enter(void)
{
	if (fchdir(jail) < 0 || chroot(".") < 0)
		_exit(1);
	signal(SIGXFSZ, SIG_IGN); /* the fuzzer's own handler takes a full file for the end */
	mkdir("etc", 0777);
	mkdir("d", 0777);
	make_file("etc/passwd", "root:x:0:0:root:/d:/bin/sh\nada:x:1:1::/d:\n");
	make_file("etc/group", "root:x:0:\nada:x:1:\n");
	make_file("f", "content");
	(void)!symlink("d", "l");
}

/* ---- what is promised ------------------------------------------------------------------------ */

static void check_answers(const struct buf *out, uint32_t id)
{
	struct sftp_request answer = { .at = buf_head(out), .end = buf_head(out) + out->len };
	uint32_t len = sftp_get_u32(&answer);
	uint8_t type = sftp_get_u8(&answer);

	promise(!answer.bad && len == out->len - 4 && len <= SFTP_PACKET_MAX);
	promise(type == SFTP_VERSION || type == SFTP_EXTENDED_REPLY ||
		(type >= SFTP_STATUS && type <= SFTP_ATTRS));
	promise(type == SFTP_VERSION || sftp_get_u32(&answer) == id);
}

static void serve(const uint8_t *data, size_t size)
{
	struct sftp *sftp = sftp_new();
	struct buf in = BUF_INIT, out = BUF_INIT;
	int got = 1;

	buf_add(&in, "\0\0\0\5\1\0\0\0\3", 9);
	buf_add(&in, data, size);
	while (got > 0) {
		size_t before = in.len;
		struct sftp_request request = { .at = buf_head(&in) + 5,
			.end = buf_head(&in) + in.len };
		uint32_t id = in.len >= 9 ? sftp_get_u32(&request) : 0;

		got = sftp_serve(sftp, &in, &out, NULL);
		if (got > 0) {
			promise(in.len < before);
			check_answers(&out, id);
		} else {
			promise(in.len == before && !out.len);
		}
		buf_eat(&out, out.len);
	}
	buf_done(&in);
	buf_done(&out);
	sftp_free(sftp);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned runs;

	if (jail < 0)
		return 0;
	if (++runs % ROUNDS == 0)
		empty_jail();
	enter();
	serve(data, size);
	leave();
	return 0;
}
