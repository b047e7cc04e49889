/* test_core_exec.c - what exec.h, task.h and files.h promise to every front door
 *
 * The fake box-init answers each request and closes its channel: a program that is attached to ends
 * "without its exit", which is an error like any other. */
#include "yard_fixture.h"
#include "core/time/auto.h"
#include "core/exec.h"
#include "core/files.h"

static const char *const words[] = { "make", "all", NULL };
static const struct exec_spec detached = { .argv = words, .detach = true };

static unsigned started;

static void on_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	(void)exec;
	(void)arg;
	assert_string_equal(info->argv[1], "all");
	assert_int_equal(info->reason, EXEC_RUNNING);
	started++;
}

static void on_done(struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	(void)exec;
	(void)end;
	on_json(NULL, err, arg);
}

static const struct exec_ops ops = { .on_started = on_started, .on_done = on_done };

static void on_task(const struct err *err, void *arg)
{
	on_json(NULL, err, arg);
}

static bool was_reached(enum fake_step step, enum fake_step before)
{
	const enum fake_step *steps;
	size_t count = fake_trace(&steps);

	for (size_t i = 0; i < count && steps[i] != before; i++)
		if (steps[i] == step)
			return true;
	return false;
}

static struct exec *start(const struct exec_spec *spec, struct answer *answer)
{
	struct exec *exec = NULL;
	struct err err = ERR_INIT;

	started = 0;
	if (exec_start(box_named("ada"), spec, &ops, answer, &exec, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(answer->calls + started, 0); /* nothing from inside the call */
	return exec;
}

static void make_captured_box(void)
{
	struct err err = ERR_INIT;

	make_box("ada");
	assert_int_equal(box_set_auto_snapshot(box_named("ada"), "exec", &err), 0);
	fake_tell_nothing();
}

/* ---- programs ------------------------------------------------------------------------------- */

static void test_exec_detached_is_over_when_it_is_there(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	start(&detached, &answer);
	wait_ok(&answer);
	assert_int_equal(started, 1);
	assert_int_equal(answer.calls, 1);
}

static void test_exec_tells_a_channel_that_ends_without_its_exit(void **state)
{
	const struct exec_spec spec = { .argv = words };
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_box("ada");
	start(&spec, &answer);
	wait_err(&answer, ERR_PROTOCOL);
	assert_int_equal(started, 1);
}

static void on_server(struct exec *exec, const struct exec_info *info, void *arg)
{
	(void)exec;
	(void)arg;
	assert_string_equal(info->argv[0], "sftp-server");
	assert_null(info->argv[1]);
	started++;
}

static void test_exec_builtin_is_asked_for_without_a_program(void **state)
{
	static const struct exec_ops server = { .on_started = on_server, .on_done = on_done };
	const struct exec_spec spec = { .builtin = EXEC_SFTP, .input = true, .user = "ada" };
	struct answer answer = ANSWER_INIT;
	struct err err = ERR_INIT;
	struct exec *exec;

	(void)state;
	make_captured_box();
	started = 0;
	assert_int_equal(exec_start(box_named("ada"), &spec, &server, &answer, &exec, &err), 0);
	wait_err(&answer, ERR_PROTOCOL); /* as all programs of the fake that are attached to */
	assert_int_equal(started, 1);
	assert_true(was_reached(FAKE_CAPTURE, FAKE_EXEC));
}

static void test_exec_spec_is_checked_before_anything_happens(void **state)
{
	static const char *const none[] = { NULL };
	const struct exec_spec bad[] = {
		{ .argv = none },
		{ .builtin = EXEC_SFTP },
		{ .builtin = EXEC_SFTP, .input = true, .tty = true },
		{ .builtin = EXEC_SFTP, .input = true, .detach = true },
		{ .argv = words, .cwd = "here" },
		{ .argv = words, .cwd = "/a/../b" },
		{ .argv = words, .user = "-u" },
		{ .argv = words, .rows = 60000 },
		{ .argv = words, .timeout_ms = UINT64_MAX },
	};
	struct answer answer = ANSWER_INIT;
	struct exec *exec;

	(void)state;
	make_captured_box();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_INIT;

		assert_int_equal(
			exec_start(box_named("ada"), &bad[i], &ops, &answer, &exec, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
	}
	assert_false(was_reached(FAKE_CAPTURE, FAKE_STEP_COUNT));
}

static void test_exec_of_a_stopped_box_is_refused(void **state)
{
	struct answer answer = ANSWER_INIT;
	struct err err = ERR_INIT;
	struct exec *exec;

	(void)state;
	make_captured_box();
	box_stop(box_named("ada"), 0, on_box, &answer);
	wait_ok(&answer);
	assert_int_equal(exec_start(box_named("ada"), &detached, &ops, &answer, &exec, &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
}

/* ---- the snapshot before -------------------------------------------------------------------- */

static void expect_snapshot_first(void)
{
	struct answer answer = ANSWER_INIT;

	fake_tell_nothing();
	start(&detached, &answer);
	wait_ok(&answer);
	assert_true(was_reached(FAKE_CAPTURE, FAKE_EXEC));
	assert_true(was_reached(FAKE_EXEC, FAKE_STEP_COUNT));
}

static void test_exec_takes_the_snapshot_first_whatever_the_box_does(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	make_captured_box();
	expect_snapshot_first();
	assert_int_equal(box_suspend(box_named("ada"), "idle", &err), 0);
	expect_snapshot_first();
	hibernate("ada");
	expect_snapshot_first();
}

static void test_exec_starts_though_its_snapshot_fails(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_captured_box();
	fake_tell(FAKE_CAPTURE, 0, FAKE_FAIL);
	start(&detached, &answer);
	wait_ok(&answer);
	assert_int_equal(started, 1);
}

static void test_exec_without_a_snapshot_takes_none(void **state)
{
	const struct exec_spec spec = { .argv = words, .detach = true, .no_snapshot = true };
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_captured_box();
	start(&spec, &answer);
	wait_ok(&answer);
	assert_false(was_reached(FAKE_CAPTURE, FAKE_STEP_COUNT));
}

static void test_exec_let_go_of_meanwhile_starts_without_a_word(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_captured_box();
	exec_close(start(&detached, &answer));
	yard_settle();
	assert_true(was_reached(FAKE_EXEC, FAKE_STEP_COUNT));
	assert_int_equal(answer.calls + started, 0);
}

static void test_exec_hears_that_its_box_was_removed_meanwhile(void **state)
{
	struct answer answer = ANSWER_INIT, removed = ANSWER_INIT;

	(void)state;
	make_captured_box();
	fake_tell(FAKE_CAPTURE, 1, FAKE_NEVER);
	start(&detached, &answer);
	box_remove(box_named("ada"), true, on_box, &removed);
	wait_for(&removed, true);
	wait_for(&answer, true);
	assert_int_equal(answer.calls, 1);
	assert_true(answer.err.kind);
	assert_int_equal(started, 0);
}

static void test_exec_hears_once_that_its_box_cannot_be_woken(void **state)
{
	struct answer answer = ANSWER_INIT;

	(void)state;
	make_captured_box();
	hibernate("ada");
	fake_tell(FAKE_START, 0, FAKE_FAIL);
	start(&detached, &answer);
	wait_for(&answer, true);
	assert_int_equal(answer.calls, 1);
	assert_true(answer.err.kind);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static void no_exec(const struct exec_info *info, void *arg)
{
	(void)arg;
	fail_msg("there is no program '%s'", info->id);
}

static void test_task_answers_once_and_not_when_given_up(void **state)
{
	static const struct exec_list_ops list = { .on_exec = no_exec, .on_done = on_task };
	struct answer answer = ANSWER_INIT, never = ANSWER_INIT;
	struct err err = ERR_INIT;
	struct task *task;

	(void)state;
	make_box("ada");
	assert_int_equal(exec_list(box_named("ada"), &list, &never, &task, &err), 0);
	task_cancel(task);
	assert_int_equal(exec_list(box_named("ada"), &list, &answer, &task, &err), 0);
	assert_int_equal(answer.calls, 0);
	wait_ok(&answer);
	assert_int_equal(answer.calls, 1);
	assert_int_equal(never.calls, 0);
}

static void test_file_paths_are_checked_and_errors_told_once(void **state)
{
	static const struct file_ops files = { .on_done = on_task };
	static const char *const bad[] = { NULL, "", "here", "/a/../b" };
	struct answer answer = ANSWER_INIT;
	struct task *task;
	struct err err = ERR_INIT;

	(void)state;
	make_box("ada");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		const struct file_spec spec = { .verb = FILE_RENAME, .path = "/a", .to = bad[i] };
		const struct file_spec stat = { .verb = FILE_STAT, .path = bad[i] };
		struct box *box = box_named("ada");

		assert_int_equal(file_start(box, &spec, &files, &answer, &task, &err), -1);
		assert_int_equal(file_start(box, &stat, &files, &answer, &task, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
	}
	assert_int_equal(file_start(box_named("ada"),
				 &(struct file_spec){ .verb = FILE_REMOVE, .path = "/a" }, &files,
				 &answer, &task, &err),
		0);
	wait_for(&answer, false);
	assert_int_equal(answer.calls, 1);
	assert_true(answer.err.kind); /* the fake box has no files */
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		YARD_TEST(test_exec_detached_is_over_when_it_is_there),
		YARD_TEST(test_exec_tells_a_channel_that_ends_without_its_exit),
		YARD_TEST(test_exec_builtin_is_asked_for_without_a_program),
		YARD_TEST(test_exec_spec_is_checked_before_anything_happens),
		YARD_TEST(test_exec_of_a_stopped_box_is_refused),
		YARD_TEST(test_exec_takes_the_snapshot_first_whatever_the_box_does),
		YARD_TEST(test_exec_starts_though_its_snapshot_fails),
		YARD_TEST(test_exec_without_a_snapshot_takes_none),
		YARD_TEST(test_exec_let_go_of_meanwhile_starts_without_a_word),
		YARD_TEST(test_exec_hears_that_its_box_was_removed_meanwhile),
		YARD_TEST(test_exec_hears_once_that_its_box_cannot_be_woken),
		YARD_TEST(test_task_answers_once_and_not_when_given_up),
		YARD_TEST(test_file_paths_are_checked_and_errors_told_once),
	};
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
