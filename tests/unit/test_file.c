/* test_file.c - whole small files, folders made and removed */
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static char base[] = "/tmp/test-file-XXXXXX";
static int dir;

static int set_up(void **state)
{
	(void)state;
	if (!mkdtemp(base))
		return -1;
	dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(dir);
	return tree_remove(AT_FDCWD, base, NULL);
}

static void test_file_is_read_whole_or_not_at_all(void **state)
{
	struct err err = ERR_INIT;
	char *text = NULL;
	size_t len = 99;

	(void)state;
	assert_int_equal(file_write_atomic(dir, "a", "ab\0cd", 5, 0600, NULL), 0);
	assert_int_equal(file_read(dir, "a", 5, &text, &len, NULL), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(text, "ab\0cd\0", 6);
	free(text);
	text = NULL;
	assert_int_equal(file_read(dir, "a", 4, &text, &len, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	assert_null(text);
	assert_int_equal(file_read(dir, "none", 4, &text, NULL, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(file_read(dir, ".", 4, &text, NULL, &err), -1);
}

static void test_file_empty_and_endless(void **state)
{
	char *text = NULL;
	size_t len = 99;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(file_write_atomic(dir, "e", "", 0, 0600, NULL), 0);
	assert_int_equal(file_read(dir, "e", 0, &text, &len, NULL), 0);
	assert_int_equal(len, 0);
	assert_string_equal(text, "");
	free(text);
	assert_int_equal(file_read(AT_FDCWD, "/dev/zero", 100000, &text, &len, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	assert_int_equal(file_read(AT_FDCWD, "/proc/self/status", 100000, &text, &len, NULL), 0);
	assert_true(len > 100); /* a file whose size says 0 */
	free(text);
}

static void test_file_write_replaces_in_one_step(void **state)
{
	struct stat st;
	char *text = NULL;

	(void)state;
	assert_int_equal(file_write_atomic(dir, "w", "old", 3, 0644, NULL), 0);
	assert_int_equal(file_write_atomic(dir, "w", "new!", 4, 0600, NULL), 0);
	assert_int_equal(file_read(dir, "w", 10, &text, NULL, NULL), 0);
	assert_string_equal(text, "new!");
	free(text);
	assert_int_equal(fstatat(dir, "w", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(faccessat(dir, "w.tmp", F_OK, 0), -1);
	/* A link of that name is replaced, not written through. */
	assert_int_equal(symlinkat("w", dir, "link"), 0);
	assert_int_equal(file_write_atomic(dir, "link", "x", 1, 0600, NULL), 0);
	assert_int_equal(fstatat(dir, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(fstatat(dir, "w", &st, 0), 0);
	assert_int_equal(st.st_size, 4);
	assert_int_equal(file_write_atomic(dir, "no/such", "x", 1, 0600, NULL), -1);
}

static void test_file_poke_does_not_create(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(file_poke(dir, "p", "1", &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(file_poke(AT_FDCWD, "/dev/null", "1", NULL), 0);
	assert_int_equal(file_poke(AT_FDCWD, "/dev/full", "1", &err), -1);
	assert_int_equal(err.errno_value, ENOSPC);
}

static void test_dir_make_all(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/x/y/z", base),
			    *through = xasprintf("%s/a/b", base);
	struct stat st;

	(void)state;
	assert_int_equal(dir_make_all(path, 0700, NULL), 0);
	assert_int_equal(dir_make_all(path, 0700, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(file_write_atomic(dir, "a", "", 0, 0600, NULL), 0);
	assert_int_equal(dir_make_all(through, 0700, NULL), -1);
}

static void test_tree_remove_takes_all_and_follows_nothing(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(file_write_atomic(dir, "keep", "k", 1, 0600, NULL), 0);
	assert_int_equal(mkdirat(dir, "t", 0700), 0);
	assert_int_equal(mkdirat(dir, "t/sub", 0000), 0);
	assert_int_equal(symlinkat("../keep", dir, "t/file"), 0);
	assert_int_equal(symlinkat("..", dir, "t/up"), 0);
	assert_int_equal(symlinkat("nowhere", dir, "t/dead"), 0);
	assert_int_equal(mkfifoat(dir, "t/fifo", 0600), 0);
	for (int i = 0; i < 300; i++) {
		char name[32];

		snprintf(name, sizeof name, "t/f%d", i);
		assert_int_equal(file_write_atomic(dir, name, "", 0, 0400, NULL), 0);
	}
	assert_int_equal(tree_remove(dir, "t", NULL), 0);
	assert_int_equal(fstatat(dir, "t", &st, AT_SYMLINK_NOFOLLOW), -1);
	assert_int_equal(fstatat(dir, "keep", &st, 0), 0);
	assert_int_equal(tree_remove(dir, "t", NULL), 0); /* not there is fine */
	assert_int_equal(tree_remove(dir, "keep", NULL), 0);
	/* The name itself may be a link. */
	assert_int_equal(mkdirat(dir, "real", 0700), 0);
	assert_int_equal(symlinkat("real", dir, "alias"), 0);
	assert_int_equal(tree_remove(dir, "alias", NULL), 0);
	assert_int_equal(fstatat(dir, "real", &st, 0), 0);
	assert_int_equal(tree_remove(dir, "real", NULL), 0);
}

/* Whoever is inside a box can nest folders as deep as the disk takes; removing its disk must still
 * work. */
static void test_tree_remove_goes_deeper_than_fds_last(void **state)
{
	struct rlimit before, few;
	int at = dup(dir);

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	for (int i = 0; i < 3000; i++) {
		int next;

		assert_int_equal(mkdirat(at, "d", 0700), 0);
		next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(at);
		at = next;
	}
	close(at);
	few = (struct rlimit){ 256, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(tree_remove(dir, "d", NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(faccessat(dir, "d", F_OK, 0), -1);
}

static void test_fd_write_all_and_nonblocking(void **state)
{
	int ends[2];
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(fd_set_nonblocking(ends[1], NULL), 0);
	assert_int_equal(fd_write_all(ends[1], "abc", 3, NULL), 0);
	while (fd_write_all(ends[1], base, sizeof base, &err) == 0)
		;
	assert_int_equal(err.errno_value, EAGAIN);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(fd_set_nonblocking(-1, &err), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file_is_read_whole_or_not_at_all),
		cmocka_unit_test(test_file_empty_and_endless),
		cmocka_unit_test(test_file_write_replaces_in_one_step),
		cmocka_unit_test(test_file_poke_does_not_create),
		cmocka_unit_test(test_dir_make_all),
		cmocka_unit_test(test_tree_remove_takes_all_and_follows_nothing),
		cmocka_unit_test(test_tree_remove_goes_deeper_than_fds_last),
		cmocka_unit_test(test_fd_write_all_and_nonblocking),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
