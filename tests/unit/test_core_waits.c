/* test_core_waits.c - who waits for a box gets his own answer, in time, and nobody else's */
#include "yard_fixture.h"

static void test_stop_is_not_answered_by_the_start_of_a_command(void **state)
{
	_cleanup_json_ json_t *command = json_pack("[s]", "make");
	const struct box_spec spec = { .name = "ada", .driver = "fake", .command = command };
	struct answer created = ANSWER_INIT, stopped = ANSWER_INIT;

	(void)state;
	box_create(test.yard, &spec, on_box, &created);
	while (!box_is_here("ada") || box_named("ada")->state != BOX_RUNNING)
		yard_run(0);
	assert_int_equal(created.calls, 0); /* box-init has not said yet whether it started */
	fake_tell(FAKE_LIST, 1, FAKE_NEVER);
	box_stop(box_named("ada"), 1000, on_box, &stopped);
	yard_run(5);
	assert_int_equal(stopped.calls, 0);
	wait_for(&stopped, true);
	assert_false(stopped.err.kind);
	assert_state("ada", BOX_STOPPED);
	assert_int_equal(created.calls, 1);
}

static void test_new_box_whose_command_never_starts_is_given_up(void **state)
{
	_cleanup_json_ json_t *command = json_pack("[s]", "make");
	const struct box_spec spec = { .name = "ada", .driver = "fake", .command = command };
	struct answer answer = ANSWER_INIT;

	(void)state;
	fake_tell(FAKE_EXEC, 1, FAKE_NEVER);
	box_create(test.yard, &spec, on_box, &answer);
	wait_for(&answer, true);
	assert_int_equal(answer.err.kind, ERR_TIMEOUT);
	assert_false(box_is_here("ada"));
}

static void test_box_init_that_never_says_hello_is_given_up(void **state)
{
	const struct box_spec spec = { .name = "ada", .driver = "fake" };
	struct answer answer = ANSWER_INIT;

	(void)state;
	fake_tell(FAKE_HELLO, 1, FAKE_NEVER);
	box_create(test.yard, &spec, on_box, &answer);
	wait_for(&answer, true);
	assert_int_equal(answer.err.kind, ERR_TIMEOUT);
	assert_non_null(strstr(answer.err.message, "box-init of 'ada' does not answer"));
	assert_false(box_is_here("ada"));
}

/* The timer that was to reconnect it ended it instead. */
static void test_box_without_a_link_survives_a_capture(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_CONNECT, 0, FAKE_FAIL);
	fake_init_hang_up(process_of(box_named("ada")));
	yard_run(5);
	fake_tell(FAKE_REST, 1, FAKE_NEVER);
	box_hibernate(box_named("ada"), "request", on_box, &answer);
	for (int i = 0; i < 10; i++)
		yard_skip(1000);
	assert_state("ada", BOX_HIBERNATING);
	assert_non_null(process_of(box_named("ada")));
	fake_tell_nothing();
	wait_for(&answer, true);
	assert_int_equal(answer.err.kind, ERR_TIMEOUT);
	assert_state("ada", BOX_RUNNING);
	check_yard("it runs on");
}

/* The target was up and had the network; the present gets it back, however that goes. */
static void test_failed_rollback_does_not_end_the_present_for_its_link(void **state)
{
	const struct rollback_spec spec = { .snapshot = "one" };
	struct answer answer = ANSWER_INIT;
	pid_t pid;

	(void)state;
	make_box("ada");
	take_snapshot("ada", "one");
	pid = process_of(box_named("ada"))->mark.pid;
	fake_tell(FAKE_TOLD, 1, FAKE_FAIL);
	fake_tell(FAKE_CONNECT, 2, FAKE_FAIL);
	box_rollback(box_named("ada"), &spec, on_json, &answer);
	wait_for(&answer, true);
	assert_int_equal(answer.err.kind, ERR_SYSTEM);
	assert_state("ada", BOX_RUNNING);
	assert_int_equal(process_of(box_named("ada"))->mark.pid, pid);
	check_yard("as it was");
}

static void test_rollback_is_answered_though_the_present_does_not_end(void **state)
{
	const struct rollback_spec spec = { .snapshot = "one" };
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	take_snapshot("ada", "one");
	fake_tell(FAKE_KILL, 0, FAKE_NEVER);
	box_rollback(box_named("ada"), &spec, on_json, &answer);
	wait_for(&answer, true);
	assert_false(answer.err.kind);
	answer_done(&answer);
	fake_tell_nothing();
	check_yard("rolled back");
}

/* ---- what cannot be killed ------------------------------------------------------------------ */

static void told_late(struct answer *answer, const char *context)
{
	wait_for_answer(answer);
	if (answer->err.kind != ERR_TIMEOUT)
		fail_msg("%s: %s", context, answer->err.message);
	answer_done(answer);
}

/* And once it can be, it ends as it was to. */
static void ends_now(const char *context)
{
	fake_tell_nothing();
	yard_settle_late();
	check_yard(context);
}

static void test_stop_of_what_does_not_end_is_answered(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_KILL, 0, FAKE_NEVER);
	box_stop(box_named("ada"), 0, on_box, &answer);
	told_late(&answer, "stop");
	assert_state("ada", BOX_STOPPING);
	box_stop(box_named("ada"), 0, on_box, &answer);
	told_late(&answer, "stop again");
	ends_now("stopped");
	assert_state("ada", BOX_STOPPED);
}

static void test_kill_that_fails_is_tried_again(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_KILL, 1, FAKE_FAIL);
	fake_tell(FAKE_KILL, 2, FAKE_NEVER);
	box_stop(box_named("ada"), 0, on_box, &answer);
	wait_for(&answer, true);
	assert_false(answer.err.kind);
	assert_state("ada", BOX_STOPPED);
}

static void test_start_that_fails_and_does_not_end_is_answered(void **state)
{
	const struct box_spec spec = { .name = "ada", .driver = "fake" };
	struct answer answer = ANSWER_INIT, removed = ANSWER_INIT;

	(void)state;
	fake_tell(FAKE_HELLO, 1, FAKE_FAIL);
	fake_tell(FAKE_KILL, 0, FAKE_NEVER);
	box_create(test.yard, &spec, on_box, &answer);
	told_late(&answer, "create");
	assert_state("ada", BOX_CREATING);
	box_remove(box_named("ada"), true, on_box, &removed);
	told_late(&removed, "remove");
	ends_now("removed");
	assert_false(box_is_here("ada"));
}

static void test_hibernation_of_what_does_not_end_is_answered(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_KILL, 0, FAKE_FAIL);
	box_hibernate(box_named("ada"), "request", on_box, &answer);
	told_late(&answer, "hibernate");
	assert_state("ada", BOX_HIBERNATING);
	ends_now("hibernated");
	assert_state("ada", BOX_HIBERNATED);
}

static void test_removal_does_not_wait_for_what_does_not_end(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_KILL, 0, FAKE_NEVER);
	box_remove(box_named("ada"), true, on_box, &answer);
	assert_int_equal(answer.calls, 1);
	assert_false(answer.err.kind);
	for (int i = 0; i < 60; i++)
		yard_skip(1000);
	assert_int_equal(fake_count(), 1);
	ends_now("removed");
	assert_int_equal(fake_count(), 0);
}

/* The timer of an instance that is gone must not be that of the next one. */
static void test_box_started_right_after_a_failed_start_is_not_killed(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	box_stop(box_named("ada"), 0, on_box, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	fake_tell(FAKE_HELLO, 1, FAKE_FAIL);
	box_start(box_named("ada"), on_box, &answer);
	wait_err(&answer, ERR_SYSTEM);
	answer_done(&answer);
	fake_tell(FAKE_READY, 1, FAKE_NEVER);
	box_start(box_named("ada"), on_box, &answer);
	for (int i = 0; i < 100; i++)
		yard_skip(1000);
	assert_state("ada", BOX_STARTING);
	assert_int_equal(answer.calls, 0);
	wait_for(&answer, true); /* the driver's own limit */
	assert_int_equal(answer.err.kind, ERR_TIMEOUT);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		YARD_TEST(test_stop_is_not_answered_by_the_start_of_a_command),
		YARD_TEST(test_new_box_whose_command_never_starts_is_given_up),
		YARD_TEST(test_box_init_that_never_says_hello_is_given_up),
		YARD_TEST(test_box_without_a_link_survives_a_capture),
		YARD_TEST(test_failed_rollback_does_not_end_the_present_for_its_link),
		YARD_TEST(test_rollback_is_answered_though_the_present_does_not_end),
		YARD_TEST(test_stop_of_what_does_not_end_is_answered),
		YARD_TEST(test_kill_that_fails_is_tried_again),
		YARD_TEST(test_start_that_fails_and_does_not_end_is_answered),
		YARD_TEST(test_hibernation_of_what_does_not_end_is_answered),
		YARD_TEST(test_removal_does_not_wait_for_what_does_not_end),
		YARD_TEST(test_box_started_right_after_a_failed_start_is_not_killed),
	};
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
