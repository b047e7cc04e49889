/* test_strikes.c - wrong credentials are counted for each peer, bounded, and forgotten with time */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "auth/strikes.h"
#include <stdio.h>
#include <string.h>

static const int64_t second = 1000000;

/* How many until it is too many. */
static unsigned fill(struct strikes *strikes, const char *peer, int64_t now)
{
	unsigned count = 0;

	while (count < 1000 && !strikes_add(strikes, peer, now))
		count++;
	return count;
}

static void test_strikes_are_each_peers_own_and_run_out(void **state)
{
	struct strikes strikes = { 0 };

	(void)state;
	assert_int_equal(fill(&strikes, "10.0.0.1", 0), STRIKES_MAX);
	assert_true(strikes_add(&strikes, "10.0.0.1", 0));
	assert_false(strikes_add(&strikes, "10.0.0.2", 0));
	assert_int_equal(fill(&strikes, "10.0.0.1", 3 * second), 3 * STRIKES_PER_SECOND);
	assert_int_equal(fill(&strikes, "10.0.0.1", 1000 * second), STRIKES_MAX);
}

static void test_strikes_of_a_v6_host_are_those_of_its_network(void **state)
{
	struct strikes strikes = { 0 };

	(void)state;
	assert_int_equal(fill(&strikes, "2001:db8::1", 0), STRIKES_MAX);
	assert_true(strikes_add(&strikes, "2001:db8::ffff:1", 0));
	assert_false(strikes_add(&strikes, "2001:db8:0:1::1", 0));
}

/* A crowd of peers costs no memory, and does not help one that has many already. */
static void test_strikes_table_is_bounded(void **state)
{
	struct strikes strikes = { 0 };

	(void)state;
	fill(&strikes, "10.0.0.1", 0);
	for (unsigned i = 0; i < 4 * STRIKES_PEERS; i++) {
		char peer[32];

		snprintf(peer, sizeof peer, "172.16.%u.%u", i / 256, i % 256);
		assert_false(strikes_add(&strikes, peer, 0));
	}
	assert_true(strikes_add(&strikes, "10.0.0.1", 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strikes_are_each_peers_own_and_run_out),
		cmocka_unit_test(test_strikes_of_a_v6_host_are_those_of_its_network),
		cmocka_unit_test(test_strikes_table_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
