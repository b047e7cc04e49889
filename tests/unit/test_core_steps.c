/* test_core_steps.c - every step of every operation fails, or never answers
 *
 * Each operation runs once with nothing told to fail: its trace is the list of its steps. Then it
 * runs again for each of them, with that step failing, and once more with it never answering, when
 * a time limit has to act. Where that ends in a kill, it runs once more with nothing that is
 * killed ending. Whatever happens, everybody who waits gets one answer, boxes are in states that
 * last, and nothing is left over (check_yard). */
#include "core_operations.h"
#include <stdio.h>

enum { STEPS_MAX = 128 };

/* One way to run an operation. */
struct way {
	enum fake_step step;
	unsigned nth; /* time that it is reached */
	enum fake_how how;
	bool stuck; /* and nothing that is killed ends, before the answer is there */
};

struct steps {
	enum fake_step list[STEPS_MAX];
	size_t count;
};

static bool has_kill(const struct steps *steps)
{
	for (size_t i = 0; i < steps->count; i++)
		if (steps->list[i] == FAKE_KILL)
			return true;
	return false;
}

static void begin(const struct trial_of *operation, const struct way *way, struct answer *answer)
{
	fake_tell_nothing();
	if (way->how != FAKE_OK)
		fake_tell(way->step, way->nth, way->how);
	if (way->stuck)
		fake_tell(FAKE_KILL, 0, FAKE_NEVER);
	operation->begin(answer);
}

/* Everything can be killed again. */
static void wait_stuck(struct answer *answer)
{
	wait_for_answer(answer);
	fake_tell_nothing();
	wait_for(answer, true);
}

static void run(const struct trial_of *operation, const struct way *way, struct steps *ret)
{
	struct answer answer = ANSWER_INIT;
	const enum fake_step *trace;
	const struct box *before;
	char context[128];
	unsigned was;

	snprintf(context, sizeof context, "%s: %s %u %s%s", operation->name,
		fake_step_name(way->step), way->nth, fake_how_name(way->how),
		way->stuck ? ", nothing ends" : "");
	test.context = context;
	operation->prepare();
	before = box_find(test.yard, "ada", NULL);
	was = before ? 1u << before->state : OPERATION_GONE;
	begin(operation, way, &answer);
	if (way->stuck)
		wait_stuck(&answer);
	else
		wait_for(&answer, way->how != FAKE_OK);
	ret->count = MIN(fake_trace(&trace), (size_t)STEPS_MAX);
	memcpy(ret->list, trace, ret->count * sizeof *trace);
	fake_tell_nothing();
	/* What was given up as too late may still have come to its end. */
	if (way->stuck)
		operation_check_any(operation, was, context);
	else
		operation_check(operation, &answer, context);
	if (way->how == FAKE_OK && answer.err.kind)
		fail_msg("%s: %s", context, answer.err.message);
	check_yard(context);
	check_empty(context);
	answer_done(&answer);
	test.context = NULL;
}

static void walk(void **state)
{
	const struct trial_of *operation = *state;
	unsigned reached[FAKE_STEP_COUNT] = { 0 };
	struct way way = { .how = FAKE_OK };
	struct steps steps, then;

	run(operation, &way, &steps);
	assert_in_range(steps.count, 1, STEPS_MAX - 1);
	for (size_t i = 0; i < steps.count; i++) {
		way.step = steps.list[i];
		way.nth = ++reached[way.step];
		for (way.how = FAKE_FAIL; way.how < FAKE_HOW_COUNT; way.how++)
			run(operation, &way, &then);
		way.how = FAKE_FAIL;
		way.stuck = true;
		if (has_kill(&then))
			run(operation, &way, &then);
		way.stuck = false;
	}
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[OPERATIONS_MAX];
	size_t count = operation_tests(argc, argv, walk, tests);
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return _cmocka_run_group_tests(
		"steps", tests, count, yard_group_setup, yard_group_teardown);
}
