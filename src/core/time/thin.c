/* thin.c - see thin.h
 *
 * Stretches are those of the calendar (created_us divided by their length), not counted from now:
 * an hour's oldest is also the oldest of its ten minutes, and a day's oldest that of its hour. So
 * what a later, coarser look wants to keep has survived the finer ones before it. */
#include "core/time/thin.h"
#include "base/alloc.h"

enum { NEWEST = 10 };
#define MINUTE_US INT64_C(60000000)
#define HOUR_US	  (60 * MINUTE_US)
#define DAY_US	  (24 * HOUR_US)

static const struct {
	int64_t until_us; /* up to this age */
	int64_t step_us;
} tiers[] = {
	{ HOUR_US, 10 * MINUTE_US },
	{ DAY_US, HOUR_US },
	{ 30 * DAY_US, DAY_US },
};

struct place {
	int64_t created_us;
	size_t at; /* index in the caller's array */
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->created_us != y->created_us)
		return x->created_us < y->created_us ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* The interval for an item of that age; 0: none is kept. */
static int64_t step_at(int64_t age_us)
{
	for (size_t i = 0; i < ARRAY_LEN(tiers); i++)
		if (age_us < tiers[i].until_us)
			return tiers[i].step_us;
	return 0;
}

/* Whether an item may stay, with *last the one kept before it (NULL: none). */
static bool has_room(const struct place *place, const struct place *last, int64_t now_us)
{
	int64_t step = step_at(now_us - place->created_us);

	return step && (!last || last->created_us / step != place->created_us / step);
}

/* places are sorted, oldest first. */
static void thin_sorted(const struct place *places, size_t count, int64_t now_us,
	const struct thin_policy *policy, bool *drop)
{
	const struct place *last = NULL;
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		const struct place *place = &places[i];
		bool newest = i + 1 == count;
		bool too_old = policy->keep_age_us && !newest &&
			       now_us - place->created_us > policy->keep_age_us;

		drop[place->at] = too_old || (count - i > NEWEST && !has_room(place, last, now_us));
		if (drop[place->at])
			continue;
		last = place;
		kept++;
	}
	for (size_t i = 0; i < count && policy->keep_count && kept > policy->keep_count; i++)
		if (!drop[places[i].at]) {
			drop[places[i].at] = true;
			kept--;
		}
}

size_t thin_choose(const struct thin_item *items, size_t count, int64_t now_us,
	const struct thin_policy *policy, bool *drop)
{
	_cleanup_free_ struct place *places = xnewn(struct place, count + 1);
	size_t automatic = 0, dropped = 0;

	for (size_t i = 0; i < count; i++) {
		drop[i] = false;
		if (!items[i].keep)
			places[automatic++] = (struct place){ items[i].created_us, i };
	}
	qsort(places, automatic, sizeof *places, compare_places);
	thin_sorted(places, automatic, now_us, policy, drop);
	for (size_t i = 0; i < count; i++)
		dropped += drop[i];
	return dropped;
}
