/* test_fdpass.c - descriptors arrive, no more than there is room for, and none is left open */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "sys/fdpass.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int pair[2];

static int open_pair(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int close_pair(void **state)
{
	(void)state;
	close(pair[0]);
	close(pair[1]);
	return 0;
}

static size_t count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static void fill(int *fds, size_t count, int fd)
{
	for (size_t i = 0; i < count; i++)
		fds[i] = fd;
}

static void test_fdpass_words_and_descriptors_arrive(void **state)
{
	int fds[FDPASS_MAX], got[FDPASS_MAX], null = open("/dev/null", O_RDWR | O_CLOEXEC);
	static const size_t counts[] = { 0, 1, 2, 3, FDPASS_MAX };
	struct stat one, other;
	struct fdpass came;
	char word[8];

	(void)state;
	assert_true(null >= 0 && fstat(null, &one) == 0);
	fill(fds, FDPASS_MAX, null);
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		assert_int_equal(fdpass_send(pair[0], "word", 5, fds, counts[i], 0), 5);
		assert_int_equal(
			fdpass_receive(pair[1], word, sizeof word, got, FDPASS_MAX, 0, &came), 5);
		assert_string_equal(word, "word");
		assert_int_equal(came.count, counts[i]);
		assert_false(came.cut || came.lost);
		for (size_t k = 0; k < came.count; k++) {
			assert_int_equal(fstat(got[k], &other), 0);
			assert_int_equal(one.st_rdev, other.st_rdev);
			assert_int_equal(fcntl(got[k], F_GETFD), FD_CLOEXEC);
		}
		fdpass_close(got, came.count);
	}
	close(null);
}

/* With an odd room the padding of a control message holds one more; nobody would close it. */
static void test_fdpass_no_more_come_than_there_is_room(void **state)
{
	int fds[8], got[8];
	struct fdpass came;
	size_t before;
	char word;

	(void)state;
	fill(fds, 8, pair[0]);
	before = count_open();
	for (size_t room = 0; room < 8; room++) {
		assert_int_equal(fdpass_send(pair[0], "w", 1, fds, 8, 0), 1);
		assert_int_equal(fdpass_receive(pair[1], &word, 1, got, room, 0, &came), 1);
		assert_int_equal(came.count, room);
		assert_true(came.lost);
		fdpass_close(got, came.count);
		assert_int_equal(count_open(), before);
	}
}

static void test_fdpass_tells_what_is_missing(void **state)
{
	struct rlimit few, limit;
	struct fdpass came;
	int got[2];
	char word[2];

	(void)state;
	assert_int_equal(fdpass_send(pair[0], "long", 4, NULL, 0, 0), 4);
	assert_int_equal(fdpass_receive(pair[1], word, sizeof word, got, 2, 0, &came), 2);
	assert_true(came.cut);
	assert_int_equal(came.count, 0);
	assert_int_equal(fdpass_send(pair[0], "w", 1, pair, 2, 0), 1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = (struct rlimit){ 3, limit.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(fdpass_receive(pair[1], word, sizeof word, got, 2, 0, &came), 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_true(came.lost);
	assert_int_equal(came.count, 0);
}

static void test_fdpass_ends_are_not_signals(void **state)
{
	struct fdpass came;
	int got;
	char word;

	(void)state;
	assert_int_equal(fdpass_receive(pair[1], &word, 1, &got, 1, MSG_DONTWAIT, &came), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(came.count, 0);
	shutdown(pair[1], SHUT_RDWR);
	assert_int_equal(fdpass_send(pair[0], "w", 1, pair, 1, 0), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(fdpass_receive(pair[1], &word, 1, &got, 1, 0, &came), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_fdpass_words_and_descriptors_arrive, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(
			test_fdpass_no_more_come_than_there_is_room, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(
			test_fdpass_tells_what_is_missing, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(
			test_fdpass_ends_are_not_signals, open_pair, close_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
