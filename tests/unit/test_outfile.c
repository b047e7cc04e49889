/* test_outfile.c - a file out of a box: whole or not at all, under its own name, through no link */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/file.h"
#include "cli/outfile.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static char place[64];

static int setup(void **state)
{
	umask(022);
	strcpy(place, "/tmp/test-outfile-XXXXXX");
	assert_non_null(mkdtemp(place));
	assert_int_equal(chdir(place), 0);
	assert_int_equal(mkdir("real", 0755), 0);
	return 0;
}

static int teardown(void **state)
{
	if (chdir("/") == 0)
		tree_remove(AT_FDCWD, place, NULL);
	return 0;
}

static void write_text(const char *path, const char *text, mode_t mode)
{
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), mode, NULL), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void assert_text(const char *path, const char *expected)
{
	_cleanup_free_ char *text = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &text, NULL, NULL), 0);
	assert_string_equal(text, expected);
}

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

static int put(const char *path, const char *text, mode_t mode, struct err *err)
{
	struct outfile file = OUTFILE_INIT;

	if (outfile_create_at(path, &file, err) < 0)
		return -1;
	if (fd_write_all(file.fd, text, strlen(text), err) < 0) {
		outfile_drop(&file);
		return -1;
	}
	return outfile_finish(&file, mode, false, err);
}

static void test_outfile_appears_when_it_is_whole(void **state)
{
	struct outfile file = OUTFILE_INIT;
	struct err err = ERR_INIT;
	struct stat st;

	write_text("real/f", "old", 0640);
	assert_int_equal(outfile_create_at("real/f", &file, &err), 0);
	assert_int_equal(fd_write_all(file.fd, "new", 3, &err), 0);
	assert_text("real/f", "old");
	outfile_drop(&file);
	assert_text("real/f", "old");
	assert_int_equal(entries("real"), 1);
	assert_int_equal(put("real/f", "new", 0777, &err), 0);
	assert_text("real/f", "new");
	assert_int_equal(stat("real/f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640); /* as a file that is written over */
	assert_int_equal(put("real/g", "new", 06755, &err), 0);
	assert_int_equal(stat("real/g", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(entries("real"), 2);
}

static void test_outfile_follows_no_link(void **state)
{
	static const char *const paths[] = { "file-link", "dir-link/new", "dangling", "real/up/new",
		"real/../dir-link/new" };
	char absolute[128];
	struct err err = ERR_INIT;
	int fd;

	write_text("victim", "safe", 0644);
	assert_int_equal(symlink("victim", "file-link"), 0);
	assert_int_equal(symlink("real", "dir-link"), 0);
	assert_int_equal(symlink("not-there", "dangling"), 0);
	assert_int_equal(symlink("..", "real/up"), 0);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		err = (struct err)ERR_INIT;
		assert_int_equal(put(paths[i], "evil", 0644, &err), -1);
		assert_int_equal(err.kind, ERR_FORBIDDEN);
		assert_true(err.hint[0]);
	}
	snprintf(absolute, sizeof absolute, "%s/dir-link/new", place);
	assert_int_equal(put(absolute, "evil", 0644, &err), -1);
	assert_int_equal(outdir_open("dir-link", O_RDONLY, &fd, &err), -1);
	assert_int_equal(outdir_open("real/up/", O_RDONLY, &fd, &err), -1);
	assert_text("victim", "safe");
	assert_int_equal(access("real/new", F_OK), -1);
	assert_int_equal(access("not-there", F_OK), -1);
	assert_int_equal(put("real/./../real/fine", "x", 0644, &err), 0);
}

static void test_outfile_goes_through_links_of_the_machine(void **state)
{
	struct err err = ERR_INIT;
	struct stat st;
	int fd;

	/* /bin leads to usr/bin where that is how the machine is laid out. */
	if (lstat("/bin", &st) < 0 || !S_ISLNK(st.st_mode)) {
		print_message("skipped: /bin is no link here\n");
		skip();
	}
	assert_int_equal(outdir_open("/bin", O_RDONLY, &fd, &err), 0);
	close(fd);
}

static void test_outfile_writes_to_pipes_and_devices_as_they_are(void **state)
{
	struct err err = ERR_INIT;
	struct stat st;

	assert_int_equal(put("/dev/null", "x", 0644, &err), 0);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	assert_int_equal(put("/dev/stderr", "", 0644, &err), 0);
	assert_int_equal(lstat("/dev/stderr", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(put("/dev/full", "x", 0644, &err), -1);
}

static void test_outfile_is_gone_after_a_signal(void **state)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		pid_t child = fork();
		int status;

		if (child == 0) {
			struct outfile file = OUTFILE_INIT;

			if (outfile_create_at("real/f", &file, NULL) < 0)
				_exit(9);
			raise(signals[i]);
			_exit(8);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
		assert_int_equal(entries("real"), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_outfile_appears_when_it_is_whole, setup, teardown),
		cmocka_unit_test_setup_teardown(test_outfile_follows_no_link, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_outfile_goes_through_links_of_the_machine, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_outfile_writes_to_pipes_and_devices_as_they_are, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_outfile_is_gone_after_a_signal, setup, teardown),
	};

	/* Ignored under nohup, or in the background; what is ignored stays so. */
	signal(SIGHUP, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
