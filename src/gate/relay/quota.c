/* quota.c - see quota.h
 *
 * The rate is a token bucket. Its content is counted in millionths of a byte: that is one
 * microsecond at one byte a second, so nothing is lost by rounding. It may become negative:
 * after more than was allowed (a datagram is not cut in two) the wait is longer.
 *
 * Tiny amounts are not given out: otherwise each of a hundred connections that share a rate
 * would move a few bytes at a time, and the machine would do nothing else. */
#include "gate/relay/quota.h"
#include "base/alloc.h"
#include <assert.h>

enum {
	BYTE = 1000000,	   /* one byte in units of the bucket */
	SAVED_US = 250000, /* the bucket's size, in time */
	GRAIN_SHARE = 64,  /* of a second's worth: the smallest amount that is given out */
	GRAIN_MAX = 16 * 1024,
	SPENT_WAIT_MS = 1000, /* the budget may be raised meanwhile */
};

static const uint64_t RATE_MAX = INT64_MAX / SAVED_US / 2;

static uint64_t rate_of(const struct quota *quota)
{
	return MIN(quota->rate, RATE_MAX);
}

static int64_t bucket_size(const struct quota *quota)
{
	return (int64_t)MAX(rate_of(quota) * SAVED_US, (uint64_t)BYTE);
}

static uint64_t grain(const struct quota *quota)
{
	uint64_t share = rate_of(quota) / GRAIN_SHARE;

	return MIN(MAX(share, 1u), (uint64_t)GRAIN_MAX);
}

/* What the bucket holds now. */
static int64_t credit_at(const struct quota *quota, int64_t now_us)
{
	int64_t passed = now_us > quota->filled_at ? now_us - quota->filled_at : 0;
	int64_t size = bucket_size(quota), credit;

	if (__builtin_mul_overflow(passed, (int64_t)rate_of(quota), &credit) ||
		__builtin_add_overflow(credit, quota->credit, &credit))
		return size;
	return MIN(credit, size);
}

static uint64_t budget_left(const struct quota *quota)
{
	if (!quota->budget)
		return UINT64_MAX;
	return quota->spent < quota->budget ? quota->budget - quota->spent : 0;
}

size_t quota_allow(struct quota *quota, size_t want, int64_t now_us)
{
	size_t most = MIN((uint64_t)want, budget_left(quota));
	int64_t credit;
	uint64_t room;

	if (!quota->rate || !most)
		return most;
	credit = credit_at(quota, now_us);
	room = credit > 0 ? (uint64_t)credit / BYTE : 0;
	if (room < most && room < grain(quota))
		return 0;
	return MIN(most, room);
}

void quota_spend(struct quota *quota, uint64_t bytes, int64_t now_us)
{
	int64_t price, credit;

	if (__builtin_add_overflow(quota->spent, bytes, &quota->spent))
		quota->spent = UINT64_MAX;
	if (!quota->rate)
		return;
	credit = credit_at(quota, now_us);
	if (__builtin_mul_overflow(bytes, (int64_t)BYTE, &price) ||
		__builtin_sub_overflow(credit, price, &credit))
		credit = INT64_MIN;
	quota->credit = credit;
	quota->filled_at = MAX(quota->filled_at, now_us);
}

unsigned quota_wait_ms(const struct quota *quota, int64_t now_us)
{
	int64_t credit, want;
	uint64_t missing, us;

	if (quota_is_spent(quota))
		return SPENT_WAIT_MS;
	if (!quota->rate)
		return 1;
	credit = credit_at(quota, now_us);
	want = (int64_t)(grain(quota) * BYTE);
	if (credit >= want)
		return 1;
	missing = (uint64_t)want - (uint64_t)credit;
	us = missing / rate_of(quota) + 1;
	return (unsigned)MIN(us / 1000 + 1, (uint64_t)UINT32_MAX);
}

bool quota_is_spent(const struct quota *quota)
{
	return !budget_left(quota);
}

bool quota_enter(struct quota *quota)
{
	if (quota->connections && quota->open >= quota->connections)
		return false;
	quota->open++;
	return true;
}

void quota_leave(struct quota *quota)
{
	assert(quota->open);
	quota->open--;
}
