/* test_core_steps.c - every step of every operation fails, or never answers
 *
 * Each operation runs once with nothing told to fail: its trace is the list of its steps. Then it
 * runs again for each of them, with that step failing, and once more with it never answering, when
 * a time limit has to act. Whatever happens, everybody who waits gets one answer, boxes are in
 * states that last, and nothing is left over (check_yard). */
#include "core_operations.h"
#include <stdio.h>

enum { STEPS_MAX = 128 };

/* Of the steps of one run; how FAKE_OK: nothing is told. */
static size_t run(const struct operation *operation, enum fake_step step, unsigned nth,
	enum fake_how how, enum fake_step *ret)
{
	struct answer answer = ANSWER_INIT;
	const enum fake_step *trace;
	char context[128];
	size_t count;

	snprintf(context, sizeof context, "%s: %s %u %s", operation->name, fake_step_name(step),
		nth, fake_how_name(how));
	operation->prepare();
	fake_tell_nothing();
	if (how != FAKE_OK)
		fake_tell(step, nth, how);
	operation->begin(&answer);
	test.context = context;
	wait_for(&answer, how != FAKE_OK);
	count = MIN(fake_trace(&trace), (size_t)STEPS_MAX);
	memcpy(ret, trace, count * sizeof *trace);
	fake_tell_nothing();
	operation_check(operation, &answer, context);
	if (how == FAKE_OK && answer.err.kind)
		fail_msg("%s: %s", context, answer.err.message);
	check_yard(context);
	check_empty(context);
	answer_done(&answer);
	test.context = NULL;
	return count;
}

static void walk(void **state)
{
	const struct operation *operation = *state;
	enum fake_step steps[STEPS_MAX], other[STEPS_MAX];
	unsigned reached[FAKE_STEP_COUNT] = { 0 };
	size_t count;

	count = run(operation, 0, 0, FAKE_OK, steps);
	assert_in_range(count, 1, STEPS_MAX - 1);
	for (size_t i = 0; i < count; i++) {
		unsigned nth = ++reached[steps[i]];

		for (enum fake_how how = FAKE_FAIL; how < FAKE_HOW_COUNT; how++)
			run(operation, steps[i], nth, how, other);
	}
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[OPERATIONS_MAX];
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	for (size_t i = 0; i < operation_count; i++)
		tests[i] = (struct CMUnitTest){ operations[i].name, walk, yard_setup, yard_teardown,
			(void *)&operations[i] };
	return _cmocka_run_group_tests(
		"steps", tests, operation_count, yard_group_setup, yard_group_teardown);
}
