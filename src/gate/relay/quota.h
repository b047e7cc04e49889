/* quota.h - how much may pass: a rate, a budget, connections at once; and how much did
 *
 * Pure but for the time it is told. One quota counts for all who share it: a box, or one
 * destination of a rule. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quota {
	/* 0: no limit. They may be changed at any time. */
	uint64_t rate;	      /* bytes a second, both directions together */
	uint64_t budget;      /* bytes, ever */
	uint64_t connections; /* at once */

	uint64_t spent; /* bytes, ever; survives restarts by being set again */
	uint64_t open;	/* connections now */
	/* Private. */
	int64_t credit, filled_at;
};

#define QUOTA_INIT \
	{          \
		0  \
	}

/* How many of want bytes may pass now (a quarter of a second's worth is saved up at most). 0: none
 * now, see quota_wait_ms, or none ever, see quota_is_spent. */
size_t quota_allow(struct quota *quota, size_t want, int64_t now_us);
void quota_spend(struct quota *quota, uint64_t bytes, int64_t now_us);
/* Milliseconds until it is worth asking again; at least 1. */
unsigned quota_wait_ms(const struct quota *quota, int64_t now_us);
bool quota_is_spent(const struct quota *quota);
/* One more connection; false when there are too many. Each true has one quota_leave. */
bool quota_enter(struct quota *quota);
void quota_leave(struct quota *quota);
