/* thin.h - which automatic snapshots of a time line are deleted; a pure function
 *
 * The newest ten stay. Of older ones one per ten minutes stays for an hour, one per hour for a day,
 * one per day for thirty days, none after that. The policy may allow fewer. Of each interval the
 * oldest stays, so that the result does not depend on how often this runs. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thin_item {
	int64_t created_us;
	/* Never dropped and not counted: it has a name, is the position of the box, or is in
	 * use. */
	bool keep;
};

struct thin_policy {
	unsigned keep_count; /* at most so many automatic ones; 0: no such limit */
	int64_t keep_age_us; /* none older, but the newest stays at any age; 0: no such limit */
};

/* Writes drop[i] for each item, which may be in any order, and returns how many are true. */
size_t thin_choose(const struct thin_item *items, size_t count, int64_t now_us,
	const struct thin_policy *policy, bool *drop);
