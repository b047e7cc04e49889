/* core_operations.c - see core_operations.h */
#include "core_operations.h"
#include "core/boxnet/network.h"
#include <stdlib.h>

enum {
	RUNS = 1 << BOX_RUNNING,
	SUSPENDED = 1 << BOX_SUSPENDED,
	HIBERNATED = 1 << BOX_HIBERNATED,
	STOPPED = 1 << BOX_STOPPED,
	GONE = OPERATION_GONE,
};

/* ---- before --------------------------------------------------------------------------------- */

static void nothing(void)
{
}

static void running(void)
{
	make_box("ada");
}

static void suspended(void)
{
	struct err err = ERR_INIT;

	running();
	assert_int_equal(box_suspend(box_named("ada"), "request", &err), 0);
}

static void hibernated(void)
{
	running();
	hibernate("ada");
}

static void stopped(void)
{
	struct answer answer = ANSWER_INIT;

	running();
	box_stop(box_named("ada"), 0, on_box, &answer);
	wait_ok(&answer);
}

static void with_snapshot(void)
{
	running();
	take_snapshot("ada", "one");
}

static void hibernated_with_snapshot(void)
{
	with_snapshot();
	hibernate("ada");
}

static void fork_named(const char *name)
{
	_cleanup_json_ json_t *names = json_pack("[s]", name);
	struct answer answer = ANSWER_INIT;

	box_fork(box_named("ada"), &(struct fork_spec){ .names = names }, on_json, &answer);
	wait_ok(&answer);
	answer_done(&answer);
}

static void forked(void)
{
	running();
	fork_named("eve");
}

/* There is a time line, a port, and another fork that change hands. */
static void forked_twice(void)
{
	with_snapshot();
	assert_int_equal(box_port_set(box_named("ada"), 8080, NULL, -1, NULL), 0);
	fork_named("eve");
	fork_named("zoe");
	take_snapshot("eve", "two");
}

static void forked_and_hibernated(void)
{
	forked();
	hibernate("ada");
}

static void golden(void)
{
	struct answer answer = ANSWER_INIT;

	make_box("bob");
	box_save_full(box_named("bob"), "warm", on_json, &answer);
	wait_ok(&answer);
	answer_done(&answer);
}

/* ---- verbs ---------------------------------------------------------------------------------- */

static void create(struct answer *answer)
{
	_cleanup_json_ json_t *command = json_pack("[s]", "make");
	const struct box_spec spec = { .name = "ada", .driver = "fake", .command = command };

	box_create(test.yard, &spec, on_box, answer);
}

static void create_golden(struct answer *answer)
{
	const struct box_spec spec = { .name = "ada", .driver = "fake", .image = "warm" };

	box_create(test.yard, &spec, on_box, answer);
}

static void start(struct answer *answer)
{
	box_start(box_named("ada"), on_box, answer);
}

static void stop(struct answer *answer)
{
	box_stop(box_named("ada"), 10000, on_box, answer);
}

static void stop_at_once(struct answer *answer)
{
	box_stop(box_named("ada"), 0, on_box, answer);
}

static void remove_box(struct answer *answer)
{
	box_remove(box_named("ada"), true, on_box, answer);
}

static void remove_keeping(struct answer *answer)
{
	box_remove_keeping(box_named("ada"), true, on_box, answer);
}

static void pause_at_limit(struct answer *answer)
{
	struct box *box = box_named("ada");

	box_limit_hit_as(box, "limit.disk", json_object(), ON_LIMIT_PAUSE);
	on_box(box, NULL, answer);
}

static void stop_at_limit(struct answer *answer)
{
	struct box *box = box_named("ada");

	box_wait(box, on_box, answer);
	box_limit_hit_as(box, "limit.disk", json_object(), ON_LIMIT_STOP);
}

static void suspend(struct answer *answer)
{
	struct box *box = box_named("ada");
	struct err err = ERR_INIT;

	on_box(box, box_suspend(box, "request", &err) < 0 ? &err : NULL, answer);
}

static void resume(struct answer *answer)
{
	struct box *box = box_named("ada");
	struct err err = ERR_INIT;

	on_box(box, box_resume(box, &err) < 0 ? &err : NULL, answer);
}

static void hibernate_box(struct answer *answer)
{
	box_hibernate(box_named("ada"), "request", on_box, answer);
}

static void hibernate_tried(struct answer *answer)
{
	fake_states_unusual = true;
	hibernate_box(answer);
}

static void wake(struct answer *answer)
{
	box_wake(box_named("ada"), on_box, answer);
}

/* Of a box that has just begun to wake: what is asked for follows the wake. */
static void stop_waking(struct answer *answer)
{
	box_wake(box_named("ada"), NULL, NULL);
	stop(answer);
}

static void hibernate_waking(struct answer *answer)
{
	box_wake(box_named("ada"), NULL, NULL);
	hibernate_box(answer);
}

static void snapshot(struct answer *answer)
{
	const struct snapshot_spec spec = { .cause = "request", .wait_safe = true };

	box_snapshot(box_named("ada"), &spec, on_json, answer);
}

static void snapshot_disk(struct answer *answer)
{
	const struct snapshot_spec spec = { .cause = "request", .disk_only = true };

	box_snapshot(box_named("ada"), &spec, on_json, answer);
}

static void rollback(struct answer *answer)
{
	const struct rollback_spec spec = { .snapshot = "one" };

	box_rollback(box_named("ada"), &spec, on_json, answer);
}

/* There is no room for both: the present is ended first. */
static void rollback_alone(struct answer *answer)
{
	struct snapshot *one = snapshot_find(box_named("ada"), "one", NULL);

	one->row.plain_bytes = INT64_MAX / 2;
	rollback(answer);
}

static void rollback_disk_only(struct answer *answer)
{
	const struct rollback_spec spec = { .snapshot = "one", .disk_only = true };

	box_rollback(box_named("ada"), &spec, on_json, answer);
}

static void fork_two(struct answer *answer)
{
	box_fork(box_named("ada"), &(struct fork_spec){ .count = 2 }, on_json, answer);
}

static void fork_one(struct answer *answer)
{
	box_fork(box_named("ada"), &(struct fork_spec){ .count = 1 }, on_json, answer);
}

static void fork_snapshot(struct answer *answer)
{
	const struct fork_spec spec = { .snapshot = "one", .count = 1 };

	box_fork(box_named("ada"), &spec, on_json, answer);
}

static void promote(struct answer *answer)
{
	box_promote(box_named("eve"), &(struct promote_spec){ 0 }, on_json, answer);
}

/* Both boxes are busy: each turn is waited for. */
static void promote_busy(struct answer *answer)
{
	const struct snapshot_spec spec = { .cause = "request" };

	box_snapshot(box_named("eve"), &spec, NULL, NULL);
	box_snapshot(box_named("ada"), &spec, NULL, NULL);
	promote(answer);
}

static void save_golden(struct answer *answer)
{
	box_save_full(box_named("ada"), "warm", on_json, answer);
}

/* ---- the table ------------------------------------------------------------------------------ */

const struct trial_of operations[] = {
	{ "create", nothing, create, RUNS, GONE },
	{ "start", stopped, start, RUNS, STOPPED },
	{ "stop", running, stop, STOPPED, STOPPED },
	{ "stop at once", running, stop_at_once, STOPPED, STOPPED },
	{ "stop of a suspended box", suspended, stop, STOPPED, SUSPENDED },
	{ "remove", running, remove_box, GONE, GONE },
	{ "remove, its workspace kept", running, remove_keeping, GONE, STOPPED },
	{ "pause at a limit", running, pause_at_limit, SUSPENDED | RUNS, RUNS },
	{ "stop at a limit", running, stop_at_limit, STOPPED, STOPPED },
	{ "suspend", running, suspend, SUSPENDED, RUNS },
	{ "resume", suspended, resume, RUNS, SUSPENDED },
	{ "hibernate", running, hibernate_box, HIBERNATED, RUNS },
	{ "hibernate of a suspended box", suspended, hibernate_box, HIBERNATED, SUSPENDED },
	{ "hibernate that is tried first", running, hibernate_tried, HIBERNATED, RUNS },
	/* Once its programs ran, its state is no longer that of its disk. */
	{ "wake", hibernated, wake, RUNS, HIBERNATED | STOPPED },
	{ "stop of a waking box", hibernated, stop_waking, STOPPED, RUNS | HIBERNATED | STOPPED },
	{ "hibernate of a waking box", hibernated, hibernate_waking, HIBERNATED,
		RUNS | HIBERNATED | STOPPED },
	{ "snapshot", running, snapshot, RUNS, RUNS },
	{ "snapshot of the disk", running, snapshot_disk, RUNS, RUNS },
	{ "rollback", with_snapshot, rollback, RUNS, RUNS },
	{ "rollback without room for both", with_snapshot, rollback_alone, RUNS, RUNS | STOPPED },
	{ "rollback of the disk", with_snapshot, rollback_disk_only, RUNS, RUNS },
	{ "rollback of a hibernated box", hibernated_with_snapshot, rollback, RUNS, HIBERNATED },
	{ "fork", running, fork_two, RUNS, RUNS },
	{ "fork of a snapshot", with_snapshot, fork_snapshot, RUNS, RUNS },
	{ "fork of a hibernated box", hibernated, fork_one, HIBERNATED, HIBERNATED },
	{ "promote", forked, promote, RUNS, RUNS },
	{ "promote instead of a hibernated box", forked_and_hibernated, promote, RUNS, HIBERNATED },
	{ "promote one of two forks", forked_twice, promote, RUNS, RUNS },
	{ "promote of a busy fork", forked, promote_busy, RUNS, RUNS },
	{ "save with processes", running, save_golden, RUNS, RUNS },
	{ "create with processes", golden, create_golden, RUNS, GONE },
};
const size_t operation_count = ARRAY_LEN(operations);
_Static_assert(ARRAY_LEN(operations) <= OPERATIONS_MAX, "there is room for all");

size_t operation_tests(
	int argc, char **argv, CMUnitTestFunction walk, struct CMUnitTest ret[OPERATIONS_MAX])
{
	size_t part = argc == 3 ? (size_t)atoi(argv[1]) : 0;
	size_t parts = argc == 3 ? (size_t)atoi(argv[2]) : 1, count = 0;

	for (size_t i = 0; i < operation_count; i++)
		if (i % parts == part)
			ret[count++] = (struct CMUnitTest){ operations[i].name, walk, yard_setup,
				yard_teardown, (void *)&operations[i] };
	return count;
}

static void check(unsigned allowed, const char *context, const char *after)
{
	const struct box *box = box_find(test.yard, "ada", NULL);
	unsigned found = box ? 1u << box->state : OPERATION_GONE;

	if (!(found & allowed))
		fail_msg("%s: it is %s after: %s", context,
			box ? box_state_name(box->state) : "gone", after);
}

void operation_check(
	const struct trial_of *operation, const struct answer *answer, const char *context)
{
	check(answer->err.kind ? operation->failed : operation->worked, context,
		answer->err.kind ? answer->err.message : "ok");
}

void operation_check_any(const struct trial_of *operation, unsigned before, const char *context)
{
	check(operation->worked | operation->failed | before, context, "that");
}
