/* yard_fixture.h - a whole yard upon the fake driver: a home of its own, a real store, pool (plain
 * folders), states, loop and gate
 *
 * Each test has a home on a tmpfs in a mount namespace of the test program's own, with one image,
 * "debian". Making namespaces needs root.
 *
 * The clock can be moved on (yard_skip), so that time limits of minutes take milliseconds. */
#pragma once
#include "engine_fake.h"
#include "core/core_internal.h"
#include "core/time/timeline.h"
#include "loop/loop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

extern struct yard_fixture {
	char home[96], run[96];
	struct conf conf;
	struct loop *loop;
	struct yard *yard;
	size_t fds;	     /* open descriptors before the yard was opened */
	const char *context; /* what is being tested, for messages; or NULL */
} test;

int yard_group_setup(void **state);
int yard_group_teardown(void **state);
int yard_setup(void **state);	 /* makes a home and opens the yard */
int yard_teardown(void **state); /* removes all boxes; fails if anything is left */
#define YARD_TEST(fn) cmocka_unit_test_setup_teardown(fn, yard_setup, yard_teardown)
/* For main. True: this process is the gate, and *ret its exit code. */
bool yard_is_gate(int argc, char **argv, int *ret);

void yard_start(void); /* opens the yard of the home, and recovers what an earlier one left */
void yard_end(void);   /* closes it; boxes keep running */

/* ---- waiting -------------------------------------------------------------------------------- */

void yard_run(unsigned ms);  /* runs the loop for that long */
void yard_skip(uint64_t ms); /* moves the clock; timers that are due by then fire */
/* Until no helper works, nothing is under way and nobody has to be waited for. Fails the test
 * after some seconds. */
void yard_settle(void);
void yard_settle_late(void); /* the same, but time limits may expire */

/* The answer of a verb. */
struct answer {
	unsigned calls;
	bool no_box; /* done was called without a box */
	struct err err;
	json_t *result; /* of verbs that return one */
};
#define ANSWER_INIT             \
	{                       \
		.err = ERR_INIT \
	}
void on_box(struct box *box, const struct err *err, void *answer);
void on_json(json_t *result, const struct err *err, void *answer);
void answer_done(struct answer *answer);
/* Runs the loop until it is there; then until all is settled. skip: when nothing moves any more,
 * time is moved on, up to ten minutes. */
void wait_for(struct answer *answer, bool skip);
/* without waiting for all to settle; time limits may expire */
void wait_for_answer(struct answer *answer);
/* until the answer, or until over is true */
void wait_until(struct answer *answer, const bool *over);
/* As wait_for; fails the test if the answer is an error. */
void wait_ok(struct answer *answer);
void wait_err(struct answer *answer, enum err_kind kind);

/* ---- shorthands ----------------------------------------------------------------------------- */

struct box *box_named(const char *name); /* fails the test when there is none */
bool box_is_here(const char *name);
struct box *make_box(const char *name); /* created, and runs */
void take_snapshot(const char *box, const char *name);
void hibernate(const char *box);
void assert_state(const char *box, enum box_state state);
struct fake_process *process_of(const struct box *box); /* NULL: it does not run */

/* ---- conditions that hold whenever all is settled ------------------------------------------- */

/* Checks that every box is in a stable state that matches its row, that what runs belongs to
 * boxes, that there are no orphaned disks, states, snapshots or rows, and that nobody waits.
 * context: for the message. */
void check_yard(const char *context);
/* Removes all boxes and golden images; fails if anything but the home is left. */
void check_empty(const char *context);
size_t count_fds(void);
