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
	size_t fds;	     /* open before the yard was */
	const char *context; /* what is being tried, for messages; or NULL */
} test;

int yard_group_setup(void **state);
int yard_group_teardown(void **state);
int yard_setup(void **state);	 /* a home, and the yard is open */
int yard_teardown(void **state); /* all boxes are removed, and nothing may be left */
#define YARD_TEST(fn) cmocka_unit_test_setup_teardown(fn, yard_setup, yard_teardown)
/* For main: true: this process was the gate, *ret is its exit code. */
bool yard_is_gate(int argc, char **argv, int *ret);

void yard_start(void); /* opens the yard of the home: what an earlier one left is recovered */
void yard_end(void);   /* closes it; boxes run on */

/* ---- waiting -------------------------------------------------------------------------------- */

void yard_run(unsigned ms);  /* the loop, for so long */
void yard_skip(uint64_t ms); /* the clock jumps; timers that are due by then fire */
/* Until no helper works, nothing is under way and nobody has to be waited for. Fails the test
 * after some seconds. */
void yard_settle(void);
void yard_settle_late(void); /* the same; time limits may act */

/* What a verb answered. */
struct answer {
	unsigned calls;
	bool no_box; /* done was called without one */
	struct err err;
	json_t *result; /* of verbs that have one */
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
void wait_for_answer(struct answer *answer); /* not for all to settle; time limits may act */
void wait_until(struct answer *answer, const bool *over); /* or over, whichever comes first */
/* As wait_for; fails the test unless it worked. */
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

/* ---- promises that hold whenever all is settled --------------------------------------------- */

/* Every box is in a state that lasts and is what its row says, what runs is what boxes have, and
 * there are no disks, states, snapshots or rows of nobody, and no one waits. context: of whom it
 * is said when it is not so. */
void check_yard(const char *context);
/* Removes all boxes and images with processes; afterwards nothing may be left but the home. */
void check_empty(const char *context);
size_t count_fds(void);
