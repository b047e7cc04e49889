/* test_criu.c - runs of programs that only pretend to be criu: whatever they do is bounded and
 * told */
#include "criu_fixture.h"

/* ---- programs that pretend ------------------------------------------------------------------ */

/* A shell script as criu; its socket is fd 3. */
static struct criu_request pretend(const char *script)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	_cleanup_free_ char *text = xasprintf("#!/bin/sh\n%s\n", script);

	snprintf(test.fake, sizeof test.fake, "%s/fake", test.dir);
	assert_int_equal(file_write_atomic(AT_FDCWD, test.fake, text, strlen(text), 0755, NULL), 0);
	request.program = test.fake;
	request.images = test.images;
	request.pid = getpid();
	return request;
}

static void test_criu_bad_requests_are_refused_before_anything_runs(void **state)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	const char *many[CRIU_STRINGS_MAX + 2];
	struct err err = ERR_INIT;
	struct criu *criu;

	(void)state;
	assert_int_equal(criu_check(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.program = "/bin/true";
	request.pid = 1;
	assert_int_equal(criu_dump(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.images = test.images;
	request.pid = 0;
	assert_int_equal(criu_dump(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.limit_ms = 0;
	assert_int_equal(criu_restore(test.loop, &request, &ops, NULL, &criu, &err), -1);
	request.limit_ms = 1;
	for (size_t i = 0; i <= CRIU_STRINGS_MAX; i++)
		many[i] = "x";
	many[CRIU_STRINGS_MAX + 1] = NULL;
	request.external = many;
	assert_int_equal(criu_restore(test.loop, &request, &ops, NULL, &criu, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	expect_no_children();
}

static void test_criu_missing_program_is_told(void **state)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	struct seen seen = { .act = ACT_NONE };

	(void)state;
	request.program = "/nowhere/criu";
	run(criu_check, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_NOT_FOUND);
	assert_non_null(strstr(seen.err.message, "criu check: execute '/nowhere/criu'"));
	expect_no_children();
}

static int refuse_to_prepare(void *arg, struct err *err)
{
	return err_set(err, ERR_LIMIT, "%s", (const char *)arg);
}

static void test_criu_failed_preparation_is_told(void **state)
{
	struct criu_request request = pretend("exit 0");
	struct seen seen = { .act = ACT_NONE };

	(void)state;
	request.prepare = refuse_to_prepare;
	request.prepare_arg = "no room";
	run(criu_dump, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_LIMIT);
	assert_string_equal(seen.err.message, "capture: no room");
	expect_no_children();
}

static void test_criu_that_dies_is_told_with_what_it_printed(void **state)
{
	struct criu_request request = pretend("echo 'Error (x.c:1): out of luck' >&2; exit 3");
	struct seen seen = { .act = ACT_NONE };

	(void)state;
	run(criu_dump, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_UNAVAILABLE);
	assert_string_equal(seen.err.message, "CRIU ended by itself (code 3) while it was "
					      "capturing the processes; the event capture.failed "
					      "has its log");
	assert_string_equal(seen.log, "Error (x.c:1): out of luck\n");
	request = pretend("kill -9 $$");
	seen = (struct seen){ .act = ACT_NONE };
	run(criu_restore, &request, &seen);
	assert_string_equal(seen.err.message, "CRIU ended by itself (signal 9) while it was "
					      "restoring the processes; the daemon's log has "
					      "what it said");
	expect_no_children();
}

static void test_criu_nonsense_ends_it(void **state)
{
	static const struct {
		start_fn start;
		const char *script;
	} rows[] = {
		{ criu_dump, "printf '\\377\\377' >&3; sleep 60" },
		/* an answer to something else */
		{ criu_dump, "printf '\\010\\012\\020\\001\\122\\004\\010\\004\\020\\002' >&3; "
			     "sleep 60" },
		/* two events at once */
		{ criu_dump, "e='\\010\\006\\020\\001\\052\\012\\012\\010pre-dump'; printf $e >&3; "
			     "printf $e >&3; sleep 60" },
		/* two answers */
		{ criu_dump, "printf '\\010\\001\\020\\001' >&3; printf '\\010\\001\\020\\001' "
			     ">&3; sleep 60" },
		/* an event of a check */
		{ criu_check,
			"printf '\\010\\006\\020\\001\\052\\012\\012\\010pre-dump' >&3; sleep 60" },
		/* what the process says before the exec, too late */
		{ criu_check, "printf '\\000' >&3; sleep 60" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct criu_request request = pretend(rows[i].script);
		struct seen seen = { .at = CRIU_PRE_DUMP, .act = ACT_WAIT };

		run(rows[i].start, &request, &seen);
		assert_int_equal(seen.err.kind, ERR_PROTOCOL);
		expect_no_children();
	}
}

/* A child that has a child, whose pid is returned. */
static pid_t start_stranger(pid_t *ret_child)
{
	pid_t inner = 0;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	*ret_child = fork();
	if (*ret_child == 0) {
		inner = fork();
		if (inner > 0 && write(ends[1], &inner, sizeof inner) < 0)
			_exit(1);
		close(ends[1]);
		for (;;)
			pause();
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &inner, sizeof inner), sizeof inner);
	close(ends[0]);
	return inner;
}

/* What criu claims to have restored is killed when something fails: only a child of ours may be
 * one. */
static void test_criu_cannot_name_a_stranger_as_restored(void **state)
{
	pid_t child, stranger = start_stranger(&child);
	struct seen seen = { .act = ACT_NONE };
	struct criu_request request;
	char script[512];

	(void)state;
	snprintf(script, sizeof script,
		"p=%d; o() { printf '\\\\%%03o' $1; }\n"
		"printf \"\\\\010\\\\002\\\\020\\\\001\\\\042\\\\005\\\\010$(o $((p & 127 | 128)))"
		"$(o $((p >> 7 & 127 | 128)))$(o $((p >> 14 & 127 | 128)))$(o $((p >> 21)))\" >&3",
		(int)stranger);
	request = pretend(script);
	run(criu_restore, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_PROTOCOL);
	assert_non_null(strstr(seen.err.message, "not a child of ours"));
	assert_int_equal(kill(stranger, 0), 0);
	kill(stranger, SIGKILL);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	expect_no_children();
}

static void test_criu_over_its_time_is_killed_with_all_it_started(void **state)
{
	struct criu_request request = pretend("sleep 61 & sleep 62");
	struct seen seen = { .act = ACT_NONE };
	int64_t before = clock_mono_us();

	(void)state;
	request.limit_ms = 100;
	run(criu_dump, &request, &seen);
	assert_int_equal(seen.err.kind, ERR_TIMEOUT);
	assert_non_null(strstr(seen.err.message, "not done after 100 ms"));
	assert_true(clock_mono_us() - before < 2000000);
	expect_no_children();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CRIU_TEST(test_criu_bad_requests_are_refused_before_anything_runs),
		CRIU_TEST(test_criu_missing_program_is_told),
		CRIU_TEST(test_criu_failed_preparation_is_told),
		CRIU_TEST(test_criu_that_dies_is_told_with_what_it_printed),
		CRIU_TEST(test_criu_nonsense_ends_it),
		CRIU_TEST(test_criu_cannot_name_a_stranger_as_restored),
		CRIU_TEST(test_criu_over_its_time_is_killed_with_all_it_started),
	};

	return run_criu_tests("test_criu", tests, ARRAY_LEN(tests));
}
