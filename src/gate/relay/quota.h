/* quota.h - limits and counters: a rate, a budget, simultaneous connections
 *
 * Pure: the caller passes the time. One quota counts for all that share it: a box, or one
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

	uint64_t spent; /* bytes, ever; set again after a restart */
	uint64_t open;	/* connections now */
	/* Private. */
	int64_t credit, filled_at;
};

#define QUOTA_INIT \
	{          \
		0  \
	}

/* How many of want bytes may pass now (at most a quarter of a second's worth is saved up). 0:
 * none now, see quota_wait_ms, or none ever, see quota_is_spent. */
size_t quota_allow(struct quota *quota, size_t want, int64_t now_us);
void quota_spend(struct quota *quota, uint64_t bytes, int64_t now_us);
/* Milliseconds until asking again makes sense; at least 1. */
unsigned quota_wait_ms(const struct quota *quota, int64_t now_us);
bool quota_is_spent(const struct quota *quota);
/* Counts one more connection; false when there are too many. Each true needs one quota_leave. */
bool quota_enter(struct quota *quota);
void quota_leave(struct quota *quota);
