/* test_core_meanwhile.c - something else happens at every step of every operation
 *
 * While an operation is at a step its box is removed, is stopped, or ends by itself. Both who asked
 * for the operation and who asked for the other thing get one answer, and nothing is left over. */
#include "core_operations.h"
#include <stdio.h>

enum { STEPS_MAX = 128 };

static struct {
	const struct event *event;
	size_t at;
	bool over;
	struct answer answer;
} other;

/* ---- what happens --------------------------------------------------------------------------- */

static void removed(struct box *box)
{
	box_remove(box, true, on_box, &other.answer);
}

static void stopped(struct box *box)
{
	box_stop(box, 10000, on_box, &other.answer);
}

static void ends(struct box *box)
{
	struct fake_process *process = process_of(box);

	if (process)
		fake_end(process, INSTANCE_END_KILLED);
	on_box(box, NULL, &other.answer);
}

static const struct event {
	const char *name;
	void (*happen)(struct box *box);
} events[] = {
	{ "removed", removed },
	{ "stopped", stopped },
	{ "ended", ends },
};

/* From the loop, as everything that is asked for. */
static void happen(void *arg)
{
	struct box *box = box_find(test.yard, "ada", NULL);

	(void)arg;
	if (box)
		other.event->happen(box);
	else
		on_box(NULL, NULL, &other.answer);
}

static void on_step(size_t index, void *arg)
{
	(void)arg;
	if (index != other.at || other.over)
		return;
	other.over = true;
	loop_defer(test.loop, happen, NULL);
}

/* ---- the walk ------------------------------------------------------------------------------- */

/* False: the operation has fewer steps. */
static bool run(const struct trial_of *operation, const struct event *event, size_t at)
{
	struct answer answer = ANSWER_INIT;
	const enum fake_step *trace;
	char context[128];

	operation->prepare();
	fake_tell_nothing();
	other.event = event;
	other.at = at;
	other.over = false;
	other.answer = (struct answer)ANSWER_INIT;
	fake_on_step(on_step, NULL);
	snprintf(context, sizeof context, "%s: %s at step %zu", operation->name, event->name, at);
	test.context = context;
	operation->begin(&answer);
	wait_for(&answer, true);
	fake_on_step(NULL, NULL);
	if (other.over) {
		fake_trace(&trace);
		snprintf(context, sizeof context, "%s: %s at step %zu, %s", operation->name,
			event->name, at, fake_step_name(trace[at]));
		wait_for(&other.answer, true);
	}
	if (answer.calls != 1)
		fail_msg("%s: answered %u times", context, answer.calls);
	check_yard(context);
	check_empty(context);
	answer_done(&answer);
	answer_done(&other.answer);
	test.context = NULL;
	return other.over;
}

static void walk(void **state)
{
	const struct trial_of *operation = *state;

	for (size_t i = 0; i < ARRAY_LEN(events); i++) {
		size_t at = 0;

		while (run(operation, &events[i], at))
			assert_true(++at < STEPS_MAX);
		assert_true(at > 0);
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
		"meanwhile", tests, count, yard_group_setup, yard_group_teardown);
}
