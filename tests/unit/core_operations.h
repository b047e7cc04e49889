/* core_operations.h - the operations of core as a table, for tests that walk through them */
#pragma once
#include "yard_fixture.h"

enum { OPERATIONS_MAX = 48 };

struct trial_of {
	const char *name;
	void (*prepare)(void); /* makes the box "ada" as it is before */
	void (*begin)(struct answer *answer);
	/* What "ada" may be afterwards: bits 1 << enum box_state, and OPERATION_GONE. */
	unsigned worked, failed;
};
#define OPERATION_GONE (1u << BOX_STATE_COUNT)

extern const struct trial_of operations[];
extern const size_t operation_count;

/* A test for each operation, by walk; how many. With the arguments PART and PARTS it is so many
 * of them, for programs that run beside each other. */
size_t operation_tests(
	int argc, char **argv, CMUnitTestFunction walk, struct CMUnitTest ret[OPERATIONS_MAX]);

/* Is the box what it may be after that answer? Fails the test when not. */
void operation_check(
	const struct trial_of *operation, const struct answer *answer, const char *context);
/* The same when nobody knows how far it came; before: what it was, as a bit. */
void operation_check_any(const struct trial_of *operation, unsigned before, const char *context);
