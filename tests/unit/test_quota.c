/* test_quota.c - a rate, a budget, connections at once */
#include "base/alloc.h"
#include "gate/relay/quota.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { SECOND = 1000000 };

static const int64_t START = 1000LL * SECOND;

/* Takes what it may for so long, in pieces of want; returns how much that was. */
static uint64_t take(struct quota *quota, size_t want, int64_t from, int64_t us)
{
	uint64_t taken = 0;

	for (int64_t now = from; now < from + us;) {
		size_t got = quota_allow(quota, want, now);

		assert_true(got <= want);
		quota_spend(quota, got, now);
		taken += got;
		if (!got)
			now += quota_wait_ms(quota, now) * 1000LL;
	}
	return taken;
}

static void test_no_limit_allows_all(void **state)
{
	struct quota quota = QUOTA_INIT;

	assert_int_equal(quota_allow(&quota, SIZE_MAX, START), SIZE_MAX);
	quota_spend(&quota, 5, START);
	assert_int_equal(quota.spent, 5);
	assert_false(quota_is_spent(&quota));
	assert_int_equal(quota_wait_ms(&quota, START), 1);
	quota_spend(&quota, UINT64_MAX, START);
	assert_int_equal(quota.spent, UINT64_MAX);
}

static void test_rate_holds_at_any_size_of_step(void **state)
{
	static const uint64_t rates[] = { 1, 3, 1000, 12345, 1000000, 125000000, 10000000000 };
	static const size_t wants[] = { 1, 100, 1500, 65536, 262144 };

	for (size_t i = 0; i < ARRAY_LEN(rates); i++)
		for (size_t j = 0; j < ARRAY_LEN(wants); j++) {
			struct quota quota = { .rate = rates[i] };
			/* enough time for ten bytes, not so much that it takes a million steps */
			int64_t us = rates[i] > 10000 ? SECOND / 4 : 20 * SECOND;
			uint64_t taken, saved = MAX(rates[i] / 4, 1u);
			double exact = (double)rates[i] * (double)us / SECOND;

			if (rates[i] / 4 / wants[j] > 1000000)
				continue;
			taken = take(&quota, wants[j], START, us);
			if (taken > exact + saved || taken < 0.95 * exact)
				fail_msg("rate %lu by %zu: %lu, exact is %.0f", rates[i], wants[j],
					taken, exact);
		}
}

static void test_only_a_quarter_second_is_saved(void **state)
{
	struct quota quota = { .rate = 1000000 };

	assert_int_equal(quota_allow(&quota, SIZE_MAX, START), 250000);
	quota_spend(&quota, 250000, START);
	assert_int_equal(quota_allow(&quota, 1, START), 0);
	assert_int_equal(quota_allow(&quota, SIZE_MAX, START + 100000), 100000);
	assert_int_equal(quota_allow(&quota, SIZE_MAX, START + 3600LL * SECOND), 250000);
}

static void test_crumbs_are_not_given(void **state)
{
	struct quota quota = { .rate = 64000 }; /* a crumb is less than 1000 */

	quota_spend(&quota, 16000, START);
	assert_int_equal(quota_allow(&quota, 5000, START + 15000), 0);
	assert_int_equal(quota_wait_ms(&quota, START + 15000), 1);
	assert_int_equal(quota_allow(&quota, 5000, START + 16000), 1024);
	assert_int_equal(quota_allow(&quota, 500, START + 10000), 500); /* all that was wanted */
	assert_in_range(quota_wait_ms(&quota, START), 15, 17);
}

static void test_who_spends_more_waits_longer(void **state)
{
	struct quota quota = { .rate = 1000000 };
	unsigned wait;

	quota_spend(&quota, 1250000, START); /* a second too much */
	assert_int_equal(quota_allow(&quota, 1, START + SECOND - 10), 0);
	wait = quota_wait_ms(&quota, START);
	assert_in_range(wait, 1000, 1050);
	assert_true(quota_allow(&quota, 10000, START + wait * 1000LL) > 0);
	/* no overflow, and it is never free */
	quota_spend(&quota, UINT64_MAX, START);
	assert_int_equal(quota_allow(&quota, 1, START + 3600LL * SECOND), 0);
	assert_true(quota_wait_ms(&quota, START) > 1000);
}

static void test_time_that_goes_back_gives_nothing(void **state)
{
	struct quota quota = { .rate = 1000000 };

	quota_spend(&quota, 250000, START);
	assert_int_equal(quota_allow(&quota, 1000, START - SECOND), 0);
	quota_spend(&quota, 0, START - SECOND);
	assert_int_equal(quota_allow(&quota, 1000, START), 0);
	assert_int_equal(quota_allow(&quota, 100000, INT64_MAX), 100000);
}

static void test_limits_may_change(void **state)
{
	struct quota quota = { .rate = 1000000 };

	assert_int_equal(quota_allow(&quota, SIZE_MAX, START), 250000);
	quota.rate = 1000;
	assert_int_equal(quota_allow(&quota, SIZE_MAX, START), 250);
	quota.rate = UINT64_MAX;
	assert_true(quota_allow(&quota, 1 << 30, START) == 1 << 30);
	quota.rate = 0;
	assert_int_equal(quota_allow(&quota, SIZE_MAX, START), SIZE_MAX);
	quota.budget = 10;
	assert_int_equal(quota_allow(&quota, SIZE_MAX, START), 10);
}

static void test_budget_is_for_ever(void **state)
{
	struct quota quota = { .budget = 1000 };

	assert_int_equal(quota_allow(&quota, 5000, START), 1000);
	quota_spend(&quota, 999, START);
	assert_int_equal(quota_allow(&quota, 5000, START), 1);
	assert_false(quota_is_spent(&quota));
	quota_spend(&quota, 10, START); /* more came than was asked for */
	assert_true(quota_is_spent(&quota));
	assert_int_equal(quota_allow(&quota, 5000, START + 3600LL * SECOND), 0);
	assert_true(quota_wait_ms(&quota, START) >= 1);
	quota = (struct quota){ .budget = 1000, .spent = 1009 }; /* after a restart */
	assert_true(quota_is_spent(&quota));
	quota.budget = 2000;
	assert_int_equal(quota_allow(&quota, 5000, START), 991);
	/* the last bytes of a budget are no crumbs */
	quota = (struct quota){ .budget = 3, .rate = 1000000 };
	assert_int_equal(quota_allow(&quota, 5000, START), 3);
}

static void test_connections_are_counted(void **state)
{
	struct quota quota = { .connections = 2 };

	assert_true(quota_enter(&quota));
	assert_true(quota_enter(&quota));
	assert_false(quota_enter(&quota));
	assert_int_equal(quota.open, 2);
	quota_leave(&quota);
	assert_true(quota_enter(&quota));
	quota.connections = 1; /* nobody is thrown out */
	assert_false(quota_enter(&quota));
	quota_leave(&quota);
	assert_false(quota_enter(&quota));
	quota.connections = 0;
	assert_true(quota_enter(&quota));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_limit_allows_all),
		cmocka_unit_test(test_rate_holds_at_any_size_of_step),
		cmocka_unit_test(test_only_a_quarter_second_is_saved),
		cmocka_unit_test(test_crumbs_are_not_given),
		cmocka_unit_test(test_who_spends_more_waits_longer),
		cmocka_unit_test(test_time_that_goes_back_gives_nothing),
		cmocka_unit_test(test_limits_may_change),
		cmocka_unit_test(test_budget_is_for_ever),
		cmocka_unit_test(test_connections_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
