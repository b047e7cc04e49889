/* thin.h - which automatic snapshots of a time line are let go; pure
 *
 * The newest ten stay as they are. Older ones get thinner with age: one in ten minutes for an hour,
 * one an hour for a day, one a day for thirty days, none after that. The policy may allow fewer. Of
 * each stretch of time its oldest stays, so that asking often and asking seldom end with the same
 * ones. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thin_item {
	int64_t created_us;
	/* never dropped: has a name, the box stands on it, somebody uses it. Not counted either */
	bool keep;
};

struct thin_policy {
	unsigned keep_count; /* at most so many automatic ones; 0: no such limit */
	int64_t keep_age_us; /* none older, but the newest stays at any age; 0: no such limit */
};

/* Writes drop[i] for each item, in any order, and gives how many are true. */
size_t thin_choose(const struct thin_item *items, size_t count, int64_t now_us,
	const struct thin_policy *policy, bool *drop);
