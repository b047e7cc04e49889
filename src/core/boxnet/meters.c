/* meters.c - see meters.h */
#include "core/boxnet/meters.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

enum { MINUTES = 60, HOURS = 168, DESTINATIONS = 1024 };

/* What is counted; the first four are in the history too. */
static const char *const counted[] = { "bytes_out", "bytes_in", "connections", "refused",
	"questions" };
enum { HISTORIC = 4 };

struct slot {
	int64_t at; /* seconds since 1970; 0: empty */
	json_int_t figures[HISTORIC];
};

struct meters {
	json_t *before; /* of earlier instances, with "destinations" */
	json_t *now;	/* of this instance, as last reported */
	struct slot minutes[MINUTES], hours[HOURS];
	bool changed;
};

struct meters *meters_new(void)
{
	struct meters *meters = xnew(struct meters);

	meters->before = json_object();
	meters->now = json_object();
	return meters;
}

void meters_free(struct meters *meters)
{
	if (!meters)
		return;
	json_decref(meters->before);
	json_decref(meters->now);
	free(meters);
}

json_int_t meters_figure(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

json_t *meters_now(const struct meters *meters)
{
	return meters->now;
}

/* Adds the values of more to those of to, key by key. */
static void add_up(json_t *to, const json_t *more, const char *key)
{
	json_object_set_new(
		to, key, json_integer(meters_figure(to, key) + meters_figure(more, key)));
}

/* ---- history -------------------------------------------------------------------------------- */

static void count_in(struct slot *slots, unsigned count, int64_t width, const json_int_t *more)
{
	int64_t at = clock_wall_us() / 1000000 / width * width;
	struct slot *slot = &slots[at / width % count];

	if (slot->at != at)
		*slot = (struct slot){ .at = at };
	for (unsigned i = 0; i < HISTORIC; i++)
		slot->figures[i] += more[i];
}

void meters_told(struct meters *meters, json_t *told)
{
	json_int_t more[HISTORIC];

	for (unsigned i = 0; i < HISTORIC; i++)
		more[i] = MAX(
			meters_figure(told, counted[i]) - meters_figure(meters->now, counted[i]),
			0);
	count_in(meters->minutes, MINUTES, 60, more);
	count_in(meters->hours, HOURS, 3600, more);
	json_decref(meters->now);
	meters->now = json_incref(told);
	meters->changed = true;
}

/* ---- destinations --------------------------------------------------------------------------- */

static char *destination_key(const json_t *destination)
{
	const char *name = json_string_value(json_object_get(destination, "name"));
	const char *address = json_string_value(json_object_get(destination, "address"));
	const char *protocol = json_string_value(json_object_get(destination, "protocol"));

	return xasprintf("%s|%s|%lld|%s", name ? name : "",
		name && *name ? ""
		: address     ? address
			      : "",
		(long long)meters_figure(destination, "port"), protocol ? protocol : "");
}

static void merge_into(json_t *by_key, json_t *list)
{
	json_t *destination;
	size_t i;

	json_array_foreach (list, i, destination) {
		_cleanup_free_ char *key = destination_key(destination);
		json_t *there = json_object_get(by_key, key), *last;

		if (!there) {
			if (json_object_size(by_key) < DESTINATIONS)
				json_object_set_new(by_key, key, json_deep_copy(destination));
			continue;
		}
		for (unsigned k = 0; k < ARRAY_LEN(counted); k++)
			if (json_object_get(destination, counted[k]))
				add_up(there, destination, counted[k]);
		last = json_object_get(destination, "last_at");
		if (last)
			json_object_set(there, "last_at", last);
		json_object_set(
			there, "connections_now", json_object_get(destination, "connections_now"));
	}
}

static int compare_destinations(const void *a, const void *b)
{
	const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
	json_int_t left = meters_figure(x, "bytes_out") + meters_figure(x, "bytes_in");
	json_int_t right = meters_figure(y, "bytes_out") + meters_figure(y, "bytes_in");

	if (left != right)
		return left < right ? 1 : -1;
	left = meters_figure(x, "connections") + meters_figure(x, "refused");
	right = meters_figure(y, "connections") + meters_figure(y, "refused");
	return left < right ? 1 : left > right ? -1 : 0;
}

static json_t *all_destinations(const struct meters *meters)
{
	_cleanup_json_ json_t *by_key = json_object();
	json_t *ret = json_array(), *value, **sorted;
	size_t count = 0;
	const char *key;

	merge_into(by_key, json_object_get(meters->before, "destinations"));
	merge_into(by_key, json_object_get(meters->now, "destinations"));
	sorted = xnewn(json_t *, json_object_size(by_key) + 1);
	json_object_foreach (by_key, key, value)
		sorted[count++] = value;
	qsort(sorted, count, sizeof *sorted, compare_destinations);
	for (size_t i = 0; i < count; i++)
		json_array_append(ret, sorted[i]);
	free(sorted);
	return ret;
}

/* ---- the whole ------------------------------------------------------------------------------ */

json_t *meters_totals_json(const struct meters *meters)
{
	json_t *ret = json_object();

	for (unsigned i = 0; i < ARRAY_LEN(counted); i++)
		json_object_set_new(ret, counted[i],
			json_integer(meters_figure(meters->before, counted[i]) +
				     meters_figure(meters->now, counted[i])));
	json_object_set_new(ret, "connections_now",
		json_integer(meters_figure(meters->now, "connections_now")));
	return ret;
}

void meters_settle(struct meters *meters)
{
	json_t *settled = meters_totals_json(meters), *list = all_destinations(meters),
	       *destination;
	size_t i;

	json_array_foreach (list, i, destination)
		json_object_set_new(destination, "connections_now", json_integer(0));
	json_object_del(settled, "connections_now");
	json_object_set_new(settled, "destinations", list);
	json_decref(meters->before);
	json_decref(meters->now);
	meters->before = settled;
	meters->now = json_object();
	meters->changed = true;
}

static int compare_slots(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

/* The slots that are not older than the ring is long. */
static json_t *slots_json(const struct slot *slots, unsigned count, int64_t width)
{
	struct slot *sorted = xmemdup(slots, count * sizeof *slots);
	int64_t oldest = clock_wall_us() / 1000000 - width * count;
	json_t *ret = json_array();
	char text[32];

	qsort(sorted, count, sizeof *sorted, compare_slots);
	for (unsigned i = 0; i < count; i++) {
		json_t *slot;

		if (sorted[i].at <= oldest)
			continue;
		slot = json_object();
		json_object_set_new(
			slot, "at", json_string(clock_rfc3339(sorted[i].at * 1000000, text)));
		for (unsigned k = 0; k < HISTORIC; k++)
			json_object_set_new(slot, counted[k], json_integer(sorted[i].figures[k]));
		json_array_append_new(ret, slot);
	}
	free(sorted);
	return ret;
}

json_t *meters_json(const struct meters *meters)
{
	json_t *ret = meters_totals_json(meters);

	json_object_set_new(ret, "destinations", all_destinations(meters));
	json_object_set_new(ret, "minutes", slots_json(meters->minutes, MINUTES, 60));
	json_object_set_new(ret, "hours", slots_json(meters->hours, HOURS, 3600));
	return ret;
}

/* ---- storing -------------------------------------------------------------------------------- */

bool meters_have_changed(const struct meters *meters)
{
	return meters->changed;
}

static json_t *pack_slots(const struct slot *slots, unsigned count)
{
	json_t *ret = json_array();

	for (unsigned i = 0; i < count; i++)
		if (slots[i].at)
			json_array_append_new(
				ret, json_pack("[I,I,I,I,I]", (json_int_t)slots[i].at,
					     slots[i].figures[0], slots[i].figures[1],
					     slots[i].figures[2], slots[i].figures[3]));
	return ret;
}

static void unpack_slots(struct slot *slots, unsigned count, int64_t width, const json_t *list)
{
	size_t i;
	json_t *row;

	json_array_foreach (list, i, row) {
		int64_t at = json_integer_value(json_array_get(row, 0));
		struct slot *slot;

		if (at <= 0 || at % width)
			continue;
		slot = &slots[at / width % count];
		slot->at = at;
		for (unsigned k = 0; k < HISTORIC; k++)
			slot->figures[k] = json_integer_value(json_array_get(row, k + 1));
	}
}

char *meters_save(struct meters *meters)
{
	_cleanup_json_ json_t *all = meters_totals_json(meters);

	json_object_set_new(all, "destinations", all_destinations(meters));
	json_object_set_new(all, "minutes", pack_slots(meters->minutes, MINUTES));
	json_object_set_new(all, "hours", pack_slots(meters->hours, HOURS));
	json_object_del(all, "connections_now");
	meters->changed = false;
	return json_text(all);
}

void meters_load(struct meters *meters, const char *saved)
{
	json_t *all = *saved ? json_parse(saved, strlen(saved), NULL) : NULL;

	if (!json_is_object(all)) {
		json_decref(all);
		return;
	}
	unpack_slots(meters->minutes, MINUTES, 60, json_object_get(all, "minutes"));
	unpack_slots(meters->hours, HOURS, 3600, json_object_get(all, "hours"));
	json_object_del(all, "minutes");
	json_object_del(all, "hours");
	json_decref(meters->before);
	meters->before = all;
}
