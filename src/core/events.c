/* events.c - what happened, in order, with offsets; kept in the store and handed to those who
 * follow */
#include "core/core_internal.h"
#include "core/tree.h"
#include "base/clock.h"
#include "base/log.h"
#include "loop/loop.h"

static void settle(void *arg)
{
	store_settle(arg);
}

void events_close(struct yard *yard)
{
	loop_undefer(yard->loop, settle, yard->store);
}

void yard_event(struct yard *yard, const char *type, struct box *box, json_t *data)
{
	yard_event_by(yard, type, box, NULL, data);
}

void yard_event_by(
	struct yard *yard, const char *type, struct box *box, const char *who, json_t *data)
{
	_cleanup_json_ json_t *owned = data;
	_cleanup_json_ json_t *event = NULL;
	int64_t now = clock_wall_us();
	uint64_t offset = 0;
	char when[CLOCK_RFC3339_MAX];
	struct err err = ERR_INIT;
	bool first = !store_is_gathering(yard->store);
	struct event_row row = { .type = type, .data = data, .at_us = now };

	if (box) {
		row.box_id = box->row.id;
		row.box_name = box->row.name;
		row.tree = box_get_tree(box);
	}
	row.owner = box ? box->row.owner : yard_get_owner(yard);
	if (!who)
		who = !yard->asker && box && *box->asked_by ? box->asked_by : yard_get_who(yard);
	row.who = who;
	if (store_event_add(yard->store, &row, &offset, &err) < 0) {
		log_error("cannot record an event", kv_str("type", type), kv_err(&err));
		return;
	}
	if (first)
		loop_defer(yard->loop, settle, yard->store);
	log_debug("event", kv_str("type", type), kv_str("box", box ? box->row.id : ""),
		kv_str("who", row.who));
	if (!yard->feeds)
		return;
	event = json_pack("{s:I,s:s,s:s,s:s?,s:s?,s:s,s:s,s:O?}", "offset", (json_int_t)offset,
		"at", clock_rfc3339(now, when), "type", type, "box", row.box_id, "box_name",
		row.box_name, "owner", row.owner, "who", row.who, "data", owned);
	yard->feeding++;
	for (struct event_feed *feed = yard->feeds; feed; feed = feed->next)
		if (!feed->dead)
			feed->fn(event, feed->arg);
	if (--yard->feeding)
		return;
	for (struct event_feed **at = &yard->feeds; *at;) {
		struct event_feed *feed = *at;

		if (feed->dead) {
			*at = feed->next;
			free(feed);
		} else {
			at = &feed->next;
		}
	}
}

json_t *yard_events_json(struct yard *yard, uint64_t since, const char *box_id, const char *owner,
	unsigned limit, struct err *err)
{
	const struct event_filter filter = { .box_id = box_id, .owner = owner };
	json_t *events = store_event_list(yard->store, since, &filter, limit, err);
	uint64_t oldest = 0, next = 0, missing = 0;

	if (!events)
		return NULL;
	if (store_event_range(yard->store, &oldest, &next, err) < 0 ||
		store_event_missing(yard->store, since, &missing, err) < 0) {
		json_decref(events);
		return NULL;
	}
	/* A full page: continue after its last event, not at the end. */
	if (json_array_size(events) == limit) {
		json_t *last = json_array_get(events, limit - 1);

		next = (uint64_t)json_integer_value(json_object_get(last, "offset")) + 1;
	}
	return json_pack("{s:o,s:I,s:I,s:I}", "events", events, "next", (json_int_t)next, "oldest",
		(json_int_t)oldest, "missing", (json_int_t)missing);
}

struct event_feed *event_feed_new(struct yard *yard, event_fn fn, void *arg)
{
	struct event_feed *feed = xnew(struct event_feed);

	feed->yard = yard;
	feed->fn = fn;
	feed->arg = arg;
	feed->next = yard->feeds;
	yard->feeds = feed;
	return feed;
}

void event_feed_free(struct event_feed *feed)
{
	if (!feed)
		return;
	if (feed->yard->feeding) {
		feed->dead = true;
		return;
	}
	for (struct event_feed **at = &feed->yard->feeds; *at; at = &(*at)->next)
		if (*at == feed) {
			*at = feed->next;
			break;
		}
	free(feed);
}
