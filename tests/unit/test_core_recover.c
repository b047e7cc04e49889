/* test_core_recover.c - the daemon dies, or ends, at every step of every operation
 *
 * A death is made by a copy of the home and of what runs, taken when the step is reached; the next
 * daemon begins with those. A daemon that ends in order closes the yard at that moment. Either way
 * the next one finds every box in a state that lasts: what it was before the operation, or what it
 * would be after it. */
#include "core_operations.h"
#include "base/file.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS_MAX = 128 };

static struct {
	bool in_order; /* the daemon ends, else it dies */
	size_t at;     /* which step */
	bool over;
	struct fake_process *world;
} end;

static void copy_home(void)
{
	char line[512];

	snprintf(line, sizeof line, "cp -a '%s' '%s.copy'", test.home, test.home);
	if (system(line) != 0)
		fail_msg("failed: %s", line);
}

static void on_step(size_t index, void *arg)
{
	(void)arg;
	if (index != end.at || end.over)
		return;
	end.over = true;
	if (!end.in_order) {
		copy_home();
		end.world = fake_world_copy();
	}
	loop_stop(test.loop);
}

/* The next daemon has the copy. */
static void go_on_from_copy(void)
{
	_cleanup_free_ char *copy = xasprintf("%s.copy", test.home);

	fake_world_set(end.world);
	if (tree_remove(AT_FDCWD, test.home, NULL) < 0 || rename(copy, test.home) < 0)
		fail_msg("cannot put the copy of the home in its place");
}

/* False: the operation has fewer steps. */
static bool run(const struct trial_of *operation, size_t at)
{
	struct answer answer = ANSWER_INIT;
	const struct box *before;
	const enum fake_step *trace;
	char context[128];
	unsigned was;

	operation->prepare();
	before = box_find(test.yard, "ada", NULL);
	was = before ? 1u << before->state : OPERATION_GONE;
	fake_tell_nothing();
	end.at = at;
	end.over = false;
	fake_on_step(on_step, NULL);
	operation->begin(&answer);
	wait_until(&answer, &end.over);
	fake_on_step(NULL, NULL);
	if (!end.over) {
		yard_settle_late();
		check_empty(operation->name);
		answer_done(&answer);
		return false;
	}
	fake_trace(&trace);
	snprintf(context, sizeof context, "%s: the daemon %s at step %zu, %s", operation->name,
		end.in_order ? "ends" : "dies", at, fake_step_name(trace[at]));
	test.context = context;
	yard_end();
	if (answer.calls != 1)
		fail_msg("%s: answered %u times", context, answer.calls);
	answer_done(&answer);
	if (!end.in_order)
		go_on_from_copy();
	fake_tell_nothing();
	yard_start();
	yard_settle_late();
	operation_check_any(operation, was, context);
	check_yard(context);
	check_empty(context);
	test.context = NULL;
	return true;
}

static void walk(const struct trial_of *operation)
{
	size_t at = 0;

	while (run(operation, at))
		assert_true(++at < STEPS_MAX);
	assert_true(at > 0);
}

static void walk_dying(void **state)
{
	end.in_order = false;
	walk(*state);
}

static void walk_ending(void **state)
{
	end.in_order = true;
	walk(*state);
}

static int run_all(int argc, char **argv, const char *group, CMUnitTestFunction fn)
{
	struct CMUnitTest tests[OPERATIONS_MAX];
	size_t count = operation_tests(argc, argv, fn, tests);

	return _cmocka_run_group_tests(group, tests, count, yard_group_setup, yard_group_teardown);
}

int main(int argc, char **argv)
{
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	ret = run_all(argc, argv, "the daemon dies", walk_dying);
	return run_all(argc, argv, "the daemon ends", walk_ending) + ret;
}
