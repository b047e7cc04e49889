/* test_audit_load.c - the audit log in trouble and under load
 *
 * Needs root for the full disk: a tiny tmpfs in a mount namespace of its own. */
#include "audit_fixture.h"

/* ---- trouble and load ----------------------------------------------------------------------- */

static void test_full_disk_loses_only_what_has_no_room(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *ballast = path_in(f, "ballast");
	_cleanup_json_ json_t *now = NULL, *lines = NULL, *result = NULL;
	struct err err = ERR_INIT;
	uint64_t next, lost;
	json_int_t made;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", f->folder, "tmpfs", 0, "size=512k") < 0) {
		print_message("    needs root: skipped\n");
		skip();
	}
	open_log(f, 100000, 2);
	add(f, 200);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	{
		_cleanup_free_ char *zeros = xcalloc(1, 65536);
		int fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		while (write(fd, zeros, 65536) > 0)
			;
		close(fd);
	}
	assert_null(audit_trouble(f->audit));
	add(f, 10000);
	assert_int_equal(audit_flush(f->audit, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_non_null(strstr(audit_trouble(f->audit), "No space left"));
	now = audit_json(f->audit);
	lost = (uint64_t)number_of(now, "lost");
	made = number_of(now, "next") - 1;
	assert_int_equal((uint64_t)made + lost, 10200);
	assert_true(lost > 0);
	result = verify(f); /* what is there is whole */
	assert_true(json_is_true(json_object_get(result, "ok")));

	assert_int_equal(unlink(ballast), 0);
	mount("none", f->folder, "tmpfs", MS_REMOUNT, "size=8m");
	assert_int_equal(audit_flush(f->audit, &err), 0);
	assert_null(audit_trouble(f->audit));
	lines = audit_read(f->audit, (uint64_t)made + 1, NULL, 10, &next, NULL);
	assert_int_equal(json_array_size(lines), 1);
	assert_int_equal(number_of(json_array_get(lines, 0), "lost"), lost);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(lines, 0), "type")), "audit");
	add(f, 1);
	close_log(f);
	assert_good(f, 1, made + 2);
	umount2(f->folder, MNT_DETACH);
}

/* The descriptor by which the log holds one of its files. */
static int fd_of(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *want = path_in(f, name);
	char path[64], target[256];

	for (int fd = 3; fd < 64; fd++) {
		ssize_t len;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		len = readlink(path, target, sizeof target - 1);
		target[MAX(len, 0)] = '\0';
		if (!strcmp(target, want))
			return fd;
	}
	return -1;
}

/* Lines are there, the mark is not: nothing waits, and it is tried again all the same. */
static void test_mark_that_was_not_written_is_tried_again(void **state)
{
	struct fixture *f = *state;
	int full = open("/dev/full", O_RDWR | O_CLOEXEC), head, kept;

	open_log(f, 0, 0);
	head = fd_of(f, "head");
	assert_true(head >= 0 && full >= 0);
	kept = fcntl(head, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(dup3(full, head, O_CLOEXEC), head);
	add(f, 5);
	assert_int_equal(audit_flush(f->audit, NULL), -1);
	assert_non_null(audit_trouble(f->audit));
	assert_int_equal(dup3(kept, head, O_CLOEXEC), head);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	assert_null(audit_trouble(f->audit));
	close(full);
	close(kept);
	close_log(f);
	assert_good(f, 1, 5);
}

/* A writer that is killed at any moment, verified all the while and afterwards, with files begun
 * and removed. */
static void test_verify_while_writing(void **state)
{
	struct fixture *f = *state;
	int64_t start = clock_mono_us();
	unsigned rounds = 0;
	pid_t writer = fork();

	assert_true(writer >= 0);
	if (!writer) {
		open_log(f, 300000, 3);
		for (;;) {
			add(f, 50);
			audit_flush(f->audit, NULL);
		}
	}
	while (clock_mono_us() - start < 1500000) {
		struct err err = ERR_INIT;
		_cleanup_json_ json_t *result = audit_verify(f->folder, &err);

		if (!result && err.kind == ERR_NOT_FOUND)
			continue; /* not begun yet */
		if (!result)
			fail_msg("%s", err.message);
		if (!rounds && !json_is_true(json_object_get(result, "ok")))
			continue; /* just begun */
		if (!json_is_true(json_object_get(result, "ok")))
			fail_msg("round %u: %s:%lld %s", rounds,
				json_string_value(json_object_get(result, "file")),
				number_of(result, "line"),
				json_string_value(json_object_get(result, "problem")));
		rounds++;
	}
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	print_message("    %u times\n", rounds);
	assert_true(rounds > 10);
	{
		_cleanup_json_ json_t *result = verify(f);

		assert_true(json_is_true(json_object_get(result, "ok")));
		assert_true(number_of(result, "first") > 1);
	}
	open_log(f, 300000, 3);
	close_log(f);
	{
		_cleanup_json_ json_t *result = verify(f);

		assert_true(json_is_true(json_object_get(result, "ok")));
	}
}

static void test_figures(void **state)
{
	struct fixture *f = *state;
	enum { LINES = 200000 };
	_cleanup_json_ json_t *result = NULL;
	json_t **events = xnewn(json_t *, LINES);
	int64_t start, took;

	for (int i = 0; i < LINES; i++)
		events[i] = json_pack(
			"{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:{s:i,s:i,s:s}}", "at",
			"2026-01-02T03:04:05.678Z", "box", "k3v9abcdef", "box_name", "ada", "type",
			"connect", "verdict", "allowed", "name", "registry.example.com", "address",
			"192.0.2.7", "port", i % 65536, "protocol", "tcp", "rule",
			"registry.example.com", "from", "198.18.0.2:40000", "process", "pid", 12,
			"uid", 0, "command", "npm install");
	open_log(f, 0, 0);
	start = clock_mono_us();
	for (int i = 0; i < LINES; i++)
		audit_add(f->audit, events[i]);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	took = clock_mono_us() - start;
	free(events);
	close_log(f);
	print_message("    written: %.0f lines/s\n", LINES * 1e6 / (double)took);
	start = clock_mono_us();
	result = verify(f);
	took = clock_mono_us() - start;
	assert_true(json_is_true(json_object_get(result, "ok")));
	print_message("    verified: %.0f lines/s, %.0f MB/s\n", LINES * 1e6 / (double)took,
		(double)number_of(result, "bytes") / (double)took);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_mark_that_was_not_written_is_tried_again),
		TEST(test_full_disk_loses_only_what_has_no_room),
		TEST(test_verify_while_writing),
		TEST(test_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
