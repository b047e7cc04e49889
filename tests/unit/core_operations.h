/* core_operations.h - the operations of core as a table, for tests that run all of them */
#pragma once
#include "yard_fixture.h"

enum { OPERATIONS_MAX = 48 };

struct trial_of {
	const char *name;
	void (*prepare)(void); /* makes the box "ada" as it must be before the operation */
	void (*begin)(struct answer *answer);
	/* Allowed states of "ada" afterwards: bits 1 << enum box_state, and OPERATION_GONE. */
	unsigned worked, failed;
};
#define OPERATION_GONE (1u << BOX_STATE_COUNT)

extern const struct trial_of operations[];
extern const size_t operation_count;

/* Makes one test per operation, run by walk; returns how many. The arguments PART and PARTS
 * select a part of them, for programs that run in parallel. */
size_t operation_tests(
	int argc, char **argv, CMUnitTestFunction walk, struct CMUnitTest ret[OPERATIONS_MAX]);

/* Fails the test unless the box is in an allowed state after that answer. */
void operation_check(
	const struct trial_of *operation, const struct answer *answer, const char *context);
/* The same when it is not known how far the operation got; before: the state before it, as a
 * bit. */
void operation_check_any(const struct trial_of *operation, unsigned before, const char *context);
