/* test_thin.c - which automatic snapshots stay, and that asking often changes nothing */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "core/time/thin.h"

#define MINUTE INT64_C(60000000)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)
#define NOW    (20000 * DAY)

enum { ITEMS_MAX = 50000 };
static struct thin_item items[ITEMS_MAX];
static bool drop[ITEMS_MAX];
static const struct thin_policy no_limits;

/* One each step, the newest at age first; oldest first in the array. */
static size_t make_items(size_t count, int64_t step, int64_t first)
{
	for (size_t i = 0; i < count; i++)
		items[i] = (struct thin_item){ .created_us = NOW - first -
							     (int64_t)(count - 1 - i) * step };
	return count;
}

static size_t remove_dropped(size_t count)
{
	size_t left = 0;

	for (size_t i = 0; i < count; i++)
		if (!drop[i])
			items[left++] = items[i];
	return left;
}

static size_t kept_between(size_t count, int64_t youngest, int64_t oldest)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		kept += !drop[i] && NOW - items[i].created_us >= youngest &&
			NOW - items[i].created_us < oldest;
	return kept;
}

static void test_thin_leaves_the_newest_ten_alone(void **state)
{
	size_t count = make_items(10, 1000, 0);

	(void)state;
	assert_int_equal(thin_choose(items, count, NOW, &no_limits, drop), 0);
	/* at any age */
	make_items(10, 1000, 400 * DAY);
	assert_int_equal(thin_choose(items, count, NOW, &no_limits, drop), 0);
	assert_int_equal(thin_choose(items, 0, NOW, &no_limits, drop), 0);
}

static void test_thin_keeps_fewer_the_older_they_are(void **state)
{
	size_t count = make_items(ITEMS_MAX, MINUTE, 0); /* 34 days of one a minute */

	(void)state;
	thin_choose(items, count, NOW, &no_limits, drop);
	assert_int_equal(kept_between(count, 0, 10 * MINUTE), 10);
	assert_in_range(kept_between(count, 10 * MINUTE, HOUR), 5, 6);
	assert_in_range(kept_between(count, HOUR, DAY), 22, 24);
	assert_in_range(kept_between(count, DAY, 30 * DAY), 28, 30);
	assert_int_equal(kept_between(count, 30 * DAY, 400 * DAY), 0);
}

static void test_thin_drops_nothing_twice(void **state)
{
	size_t count = make_items(ITEMS_MAX, MINUTE, 0);

	(void)state;
	thin_choose(items, count, NOW, &no_limits, drop);
	count = remove_dropped(count);
	assert_int_equal(thin_choose(items, count, NOW, &no_limits, drop), 0);
}

/* A snapshot a minute for three days, thinned at each: as many stay as if thinned once at the
 * end. */
static void test_thin_often_keeps_what_thin_once_keeps(void **state)
{
	size_t count = 0, once;

	(void)state;
	for (int64_t at = NOW - 3 * DAY; at <= NOW; at += MINUTE) {
		items[count++] = (struct thin_item){ .created_us = at };
		thin_choose(items, count, at, &no_limits, drop);
		count = remove_dropped(count);
		assert_true(count < 80);
	}
	once = make_items(3 * 24 * 60 + 1, MINUTE, 0);
	once -= thin_choose(items, once, NOW, &no_limits, drop);
	assert_in_range(count, once, once + 2);
}

static void test_thin_never_drops_what_is_protected(void **state)
{
	const struct thin_policy strict = { .keep_count = 1, .keep_age_us = MINUTE };
	size_t count = make_items(1000, MINUTE, 50 * DAY);

	(void)state;
	for (size_t i = 0; i < count; i += 7)
		items[i].keep = true;
	thin_choose(items, count, NOW, &strict, drop);
	for (size_t i = 0; i < count; i++)
		assert_true(!items[i].keep || !drop[i]);
	/* Those do not count: the newest automatic one is still there. */
	assert_false(drop[999]);
	assert_int_equal(kept_between(count, 0, 400 * DAY), 143 + 1);
}

static void test_thin_keeps_to_count_and_age(void **state)
{
	struct thin_policy policy = { .keep_count = 5 };
	size_t count = make_items(100, MINUTE, 0);

	(void)state;
	assert_int_equal(thin_choose(items, count, NOW, &policy, drop), 95);
	for (size_t i = 95; i < 100; i++)
		assert_false(drop[i]);
	policy = (struct thin_policy){ .keep_age_us = 3 * MINUTE };
	assert_int_equal(thin_choose(items, count, NOW, &policy, drop), 96);
	/* The newest stays at any age. */
	make_items(100, MINUTE, 9 * DAY);
	assert_int_equal(thin_choose(items, count, NOW, &policy, drop), 99);
	assert_false(drop[99]);
}

static void test_thin_takes_any_order_and_a_clock_that_went_back(void **state)
{
	size_t count = make_items(200, MINUTE, -100 * MINUTE), dropped;

	(void)state;
	dropped = thin_choose(items, count, NOW, &no_limits, drop);
	for (size_t i = 0; i < count / 2; i++) {
		struct thin_item other = items[i];

		items[i] = items[count - 1 - i];
		items[count - 1 - i] = other;
	}
	assert_int_equal(thin_choose(items, count, NOW, &no_limits, drop), dropped);
	for (size_t i = 0; i < 10; i++)
		assert_false(drop[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thin_leaves_the_newest_ten_alone),
		cmocka_unit_test(test_thin_keeps_fewer_the_older_they_are),
		cmocka_unit_test(test_thin_drops_nothing_twice),
		cmocka_unit_test(test_thin_often_keeps_what_thin_once_keeps),
		cmocka_unit_test(test_thin_never_drops_what_is_protected),
		cmocka_unit_test(test_thin_keeps_to_count_and_age),
		cmocka_unit_test(test_thin_takes_any_order_and_a_clock_that_went_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
