/* test_core_verbs.c - the verbs over a box, upon a driver that does what it is told
 *
 * Each test ends with check_empty: whatever happened, nothing is left of it. */
#include "yard_fixture.h"

/* ---- create, start, stop, remove ------------------------------------------------------------ */

static void test_box_that_is_created_runs_and_is_removed(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	check_yard("created");
	assert_int_equal(fake_count(), 1);
	box_remove(box_named("ada"), false, on_box, &answer);
	wait_err(&answer, ERR_STATE);
	answer_done(&answer);
	box_remove(box_named("ada"), true, on_box, &answer);
	wait_ok(&answer);
	assert_true(answer.no_box);
	assert_false(box_is_here("ada"));
	assert_int_equal(fake_count(), 0);
}

static void test_create_that_fails_leaves_nothing(void **state)
{
	const struct box_spec spec = { .name = "ada", .driver = "fake" };
	struct answer answer = ANSWER_INIT;

	(void)state;
	fake_tell(FAKE_READY, 1, FAKE_FAIL);
	box_create(test.yard, &spec, on_box, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_true(answer.no_box);
	assert_false(box_is_here("ada"));
	check_yard("failed");
}

static void test_driver_that_is_not_there_is_refused(void **state)
{
	const struct box_spec spec = { .name = "ada", .driver = "ns" };
	struct answer answer = ANSWER_INIT;

	(void)state;
	box_create(test.yard, &spec, on_box, &answer);
	wait_err(&answer, ERR_INVALID);
}

static void test_command_of_a_new_box_is_started(void **state)
{
	json_t *command = json_pack("[s]", "make");
	const struct box_spec spec = { .name = "ada", .driver = "fake", .command = command };
	struct answer answer = ANSWER_INIT;

	(void)state;
	box_create(test.yard, &spec, on_box, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	check_yard("with a command");
	box_remove(box_named("ada"), true, on_box, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	fake_tell(FAKE_EXEC, 1, FAKE_FAIL);
	box_create(test.yard, &spec, on_box, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_false(box_is_here("ada"));
	json_decref(command);
}

static void stop(const char *box, uint64_t grace_ms)
{
	struct answer answer = ANSWER_INIT;

	box_stop(box_named(box), grace_ms, on_box, &answer);
	wait_ok(&answer);
	assert_state(box, BOX_STOPPED);
}

static void test_box_is_stopped_and_started_again(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	stop("ada", 10000);
	assert_string_equal(box_named("ada")->row.end_reason, "stopped");
	check_yard("stopped");
	stop("ada", 10000);
	box_start(box_named("ada"), on_box, &answer);
	wait_ok(&answer);
	assert_state("ada", BOX_RUNNING);
	stop("ada", 0);
}

static void test_box_that_does_not_shut_down_is_killed_after_its_grace(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_SHUTDOWN, 1, FAKE_NEVER);
	box_stop(box_named("ada"), 10000, on_box, &answer);
	wait_for(&answer, true);
	assert_false(answer.err.kind);
	assert_state("ada", BOX_STOPPED);
}

static void test_start_that_fails_leaves_the_box_stopped_with_the_reason(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	stop("ada", 0);
	fake_tell(FAKE_START, 1, FAKE_FAIL);
	box_start(box_named("ada"), on_box, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_state("ada", BOX_STOPPED);
	assert_string_equal(box_named("ada")->row.end_reason, "failed");
	check_yard("not started");
}

static void test_box_that_ends_by_itself_is_stopped(void **state)
{
	(void)state;
	make_box("ada");
	fake_end(process_of(box_named("ada")), INSTANCE_END_MEMORY);
	yard_run(5);
	yard_settle();
	assert_state("ada", BOX_STOPPED);
	assert_string_equal(box_named("ada")->row.end_reason, "memory");
}

static void test_box_that_is_removed_while_it_starts_is_gone(void **state)
{
	const struct box_spec spec = { .name = "ada", .driver = "fake" };
	struct answer created = ANSWER_INIT, removed = ANSWER_INIT;

	(void)state;
	box_create(test.yard, &spec, on_box, &created);
	box_remove(box_named("ada"), true, on_box, &removed);
	wait_ok(&removed);
	assert_int_equal(created.calls, 1);
	assert_true(created.err.kind);
	assert_false(box_is_here("ada"));
}

/* ---- suspend, hibernate, wake --------------------------------------------------------------- */

static void test_box_is_suspended_and_resumed(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	make_box("ada");
	assert_int_equal(box_suspend(box_named("ada"), "request", &err), 0);
	check_yard("suspended");
	assert_state("ada", BOX_SUSPENDED);
	fake_tell(FAKE_THAW, 1, FAKE_FAIL);
	assert_int_equal(box_resume(box_named("ada"), &err), -1);
	assert_state("ada", BOX_SUSPENDED);
	check_yard("not resumed");
	assert_int_equal(box_resume(box_named("ada"), &err), 0);
	assert_state("ada", BOX_RUNNING);
	fake_tell(FAKE_FREEZE, 1, FAKE_NEVER);
	err_clear(&err);
	assert_int_equal(box_suspend(box_named("ada"), "request", &err), -1);
	assert_int_equal(err.kind, ERR_TIMEOUT);
	assert_state("ada", BOX_RUNNING);
}

static void wake(const char *box)
{
	struct answer answer = ANSWER_INIT;

	box_wake(box_named(box), on_box, &answer);
	wait_ok(&answer);
	assert_state(box, BOX_RUNNING);
}

static void test_box_is_hibernated_and_wakes(void **state)
{
	(void)state;
	make_box("ada");
	hibernate("ada");
	check_yard("hibernated");
	assert_int_equal(fake_count(), 0);
	wake("ada");
	check_yard("awake");
	hibernate("ada");
	stop("ada", 0);
	check_yard("its processes were given up");
}

static void test_suspended_box_that_cannot_be_hibernated_stays_suspended(void **state)
{
	struct answer answer = ANSWER_INIT;
	struct err err = ERR_INIT;

	(void)state;
	make_box("ada");
	assert_int_equal(box_suspend(box_named("ada"), "request", &err), 0);
	fake_tell(FAKE_DONE, 1, FAKE_FAIL);
	box_hibernate(box_named("ada"), "request", on_box, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_state("ada", BOX_SUSPENDED);
	check_yard("not hibernated");
}

static void test_wake_that_fails_leaves_the_box_hibernated(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	hibernate("ada");
	fake_tell(FAKE_MARKED, 1, FAKE_FAIL);
	box_wake(box_named("ada"), on_box, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_state("ada", BOX_HIBERNATED);
	check_yard("not awake");
	wake("ada");
}

/* Memory of before must never go on upon a disk that has changed since. */
static void test_wake_that_fails_after_its_programs_ran_gives_the_state_up(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	hibernate("ada");
	fake_tell(FAKE_READY, 1, FAKE_FAIL);
	box_wake(box_named("ada"), on_box, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_state("ada", BOX_STOPPED);
	check_yard("stopped");
}

/* ---- snapshot, rollback --------------------------------------------------------------------- */

static void test_snapshot_that_fails_is_not_there(void **state)
{
	const struct snapshot_spec spec = { .name = "one", .cause = "request" };
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_COPY, 1, FAKE_FAIL);
	box_snapshot(box_named("ada"), &spec, on_json, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_int_equal(test.yard->snapshot_count, 0);
	check_yard("no snapshot");
	answer_done(&answer);
	take_snapshot("ada", "one");
	assert_int_equal(test.yard->snapshot_count, 1);
	check_yard("a snapshot");
}

static void roll_back(const char *box, const struct rollback_spec *spec)
{
	struct answer answer = ANSWER_INIT;

	box_rollback(box_named(box), spec, on_json, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	assert_state(box, BOX_RUNNING);
}

static void test_box_goes_back_and_what_it_was_is_kept(void **state)
{
	(void)state;
	make_box("ada");
	take_snapshot("ada", "one");
	roll_back("ada", &(struct rollback_spec){ .snapshot = "one" });
	assert_int_equal(test.yard->snapshot_count, 2);
	check_yard("rolled back");
	roll_back("ada", &(struct rollback_spec){ .snapshot = "one", .forget = true });
	assert_int_equal(test.yard->snapshot_count, 2);
	roll_back("ada", &(struct rollback_spec){ .snapshot = "one", .disk_only = true });
	check_yard("rolled back to the disk");
}

static void test_hibernated_box_goes_back_and_runs(void **state)
{
	(void)state;
	make_box("ada");
	take_snapshot("ada", "one");
	hibernate("ada");
	roll_back("ada", &(struct rollback_spec){ .snapshot = "one" });
	check_yard("rolled back");
}

static void test_rollback_that_fails_leaves_the_box_as_it_was(void **state)
{
	const struct rollback_spec spec = { .snapshot = "one" };
	struct answer answer = ANSWER_INIT;
	pid_t pid;

	(void)state;
	make_box("ada");
	take_snapshot("ada", "one");
	pid = process_of(box_named("ada"))->mark.pid;
	fake_tell(FAKE_TOLD, 1, FAKE_FAIL);
	box_rollback(box_named("ada"), &spec, on_json, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_state("ada", BOX_RUNNING);
	assert_int_equal(process_of(box_named("ada"))->mark.pid, pid);
	check_yard("not rolled back");
}

/* ---- fork, promote, golden ------------------------------------------------------------------ */

static void test_fork_makes_all_children(void **state)
{
	const struct fork_spec spec = { .count = 6 };
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	box_fork(box_named("ada"), &spec, on_json, &answer);
	wait_ok(&answer);
	assert_int_equal(json_array_size(json_object_get(answer.result, "children")), 6);
	assert_int_equal(json_array_size(json_object_get(answer.result, "failed")), 0);
	assert_int_equal(fake_count(), 7);
	check_yard("forked");
	answer_done(&answer);
}

static void test_children_that_fail_are_named_and_the_others_run(void **state)
{
	const struct fork_spec spec = { .count = 6 };
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_MARKED, 2, FAKE_FAIL);
	fake_tell(FAKE_TOLD, 3, FAKE_FAIL);
	box_fork(box_named("ada"), &spec, on_json, &answer);
	wait_ok(&answer);
	assert_int_equal(json_array_size(json_object_get(answer.result, "children")), 4);
	assert_int_equal(json_array_size(json_object_get(answer.result, "failed")), 2);
	assert_int_equal(fake_count(), 5);
	check_yard("forked");
	answer_done(&answer);
}

static void test_fork_that_cannot_be_captured_makes_no_child(void **state)
{
	const struct fork_spec spec = { .count = 3 };
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	fake_tell(FAKE_REST, 1, FAKE_FAIL);
	box_fork(box_named("ada"), &spec, on_json, &answer);
	wait_err(&answer, ERR_SYSTEM);
	assert_int_equal(test.yard->box_count, 1);
	check_yard("not forked");
	answer_done(&answer);
}

static void test_fork_takes_the_place_of_its_parent(void **state)
{
	json_t *names = json_pack("[s]", "eve");
	const struct fork_spec fork = { .names = names };
	const struct promote_spec promote = { 0 };
	struct answer answer = ANSWER_INIT;
	_cleanup_free_ char *id = NULL;

	(void)state;
	make_box("ada");
	take_snapshot("ada", "one");
	box_fork(box_named("ada"), &fork, on_json, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	id = xstrdup(box_named("eve")->row.id);
	box_promote(box_named("eve"), &promote, on_json, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	assert_false(box_is_here("eve"));
	assert_string_equal(box_named("ada")->row.id, id);
	assert_int_equal(test.yard->snapshot_count, 2);
	check_yard("promoted");
	json_decref(names);
}

static void test_box_of_an_image_with_processes_is_restored(void **state)
{
	const struct box_spec spec = { .name = "eve", .driver = "fake", .image = "warm" };
	struct answer answer = ANSWER_INIT;
	const enum fake_step *trace;
	bool restored = false;

	(void)state;
	make_box("ada");
	box_save_full(box_named("ada"), "warm", on_json, &answer);
	wait_ok(&answer);
	answer_done(&answer);
	check_yard("saved");
	fake_tell_nothing();
	box_create(test.yard, &spec, on_box, &answer);
	wait_ok(&answer);
	for (size_t i = 0, count = fake_trace(&trace); i < count; i++)
		restored = restored || trace[i] == FAKE_MARKED;
	assert_true(restored);
	check_yard("made of it");
}

/* ---- the next daemon ------------------------------------------------------------------------ */

static void test_boxes_run_on_when_the_daemon_ends_and_are_found_again(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	make_box("ada");
	make_box("bob");
	make_box("eve");
	make_box("ivy");
	assert_int_equal(box_suspend(box_named("bob"), "request", &err), 0);
	hibernate("eve");
	stop("ivy", 0);
	yard_end();
	assert_int_equal(fake_count(), 2);
	yard_start();
	yard_run(20);
	yard_settle();
	assert_state("ada", BOX_RUNNING);
	assert_state("bob", BOX_SUSPENDED);
	assert_state("eve", BOX_HIBERNATED);
	assert_state("ivy", BOX_STOPPED);
	check_yard("found again");
}

static void test_box_that_ended_while_no_daemon_watched_is_stopped(void **state)
{
	(void)state;
	make_box("ada");
	yard_end();
	fake_world_set(NULL);
	yard_start();
	assert_state("ada", BOX_STOPPED);
	assert_string_equal(box_named("ada")->row.end_reason, "lost");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		YARD_TEST(test_box_that_is_created_runs_and_is_removed),
		YARD_TEST(test_create_that_fails_leaves_nothing),
		YARD_TEST(test_driver_that_is_not_there_is_refused),
		YARD_TEST(test_command_of_a_new_box_is_started),
		YARD_TEST(test_box_is_stopped_and_started_again),
		YARD_TEST(test_box_that_does_not_shut_down_is_killed_after_its_grace),
		YARD_TEST(test_start_that_fails_leaves_the_box_stopped_with_the_reason),
		YARD_TEST(test_box_that_ends_by_itself_is_stopped),
		YARD_TEST(test_box_that_is_removed_while_it_starts_is_gone),
		YARD_TEST(test_box_is_suspended_and_resumed),
		YARD_TEST(test_box_is_hibernated_and_wakes),
		YARD_TEST(test_suspended_box_that_cannot_be_hibernated_stays_suspended),
		YARD_TEST(test_wake_that_fails_leaves_the_box_hibernated),
		YARD_TEST(test_wake_that_fails_after_its_programs_ran_gives_the_state_up),
		YARD_TEST(test_snapshot_that_fails_is_not_there),
		YARD_TEST(test_box_goes_back_and_what_it_was_is_kept),
		YARD_TEST(test_hibernated_box_goes_back_and_runs),
		YARD_TEST(test_rollback_that_fails_leaves_the_box_as_it_was),
		YARD_TEST(test_fork_makes_all_children),
		YARD_TEST(test_children_that_fail_are_named_and_the_others_run),
		YARD_TEST(test_fork_that_cannot_be_captured_makes_no_child),
		YARD_TEST(test_fork_takes_the_place_of_its_parent),
		YARD_TEST(test_box_of_an_image_with_processes_is_restored),
		YARD_TEST(test_boxes_run_on_when_the_daemon_ends_and_are_found_again),
		YARD_TEST(test_box_that_ended_while_no_daemon_watched_is_stopped),
	};
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
