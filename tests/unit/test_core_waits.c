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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		YARD_TEST(test_stop_is_not_answered_by_the_start_of_a_command),
		YARD_TEST(test_new_box_whose_command_never_starts_is_given_up),
		YARD_TEST(test_box_init_that_never_says_hello_is_given_up),
		YARD_TEST(test_box_without_a_link_survives_a_capture),
		YARD_TEST(test_failed_rollback_does_not_end_the_present_for_its_link),
		YARD_TEST(test_rollback_is_answered_though_the_present_does_not_end),
	};
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
