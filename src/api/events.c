/* events.c - what happened: a page of it, or a stream that goes on (follow.c) */
#include "api/api_internal.h"

enum {
	PAGE = 500,
	LIMIT_DEFAULT = 1000,
	LIMIT_MAX = 1000, /* made in one go; an event may have 24 KiB */
	TAIL_MAX = 100000,
};

struct follower {
	struct yard *yard;
	struct follow *follow;
	struct event_feed *feed;
	char *box;   /* id, or NULL: all */
	char *owner; /* only this owner's; NULL: all */
	bool gap_told;
};

static int put_page(void *arg, uint64_t *next, struct buf *out, bool *ret_more, struct err *err)
{
	struct follower *follower = arg;
	_cleanup_json_ json_t *page =
		yard_events_json(follower->yard, *next, follower->box, follower->owner, PAGE, err);
	json_t *events = json_object_get(page, "events"), *event;
	uint64_t missing;
	size_t i;

	if (!page)
		return -1;
	missing = (uint64_t)json_integer_value(json_object_get(page, "missing"));
	if (*next && missing && !follower->gap_told)
		ndjson_gap(out, *next, missing);
	follower->gap_told = true;
	json_array_foreach (events, i, event) {
		ndjson_add(out, event);
		*next = (uint64_t)json_integer_value(json_object_get(event, "offset")) + 1;
	}
	*ret_more = json_array_size(events) == PAGE;
	/* Also skips the events of other boxes, so that they are not read again. */
	*next = MAX(*next, (uint64_t)json_integer_value(json_object_get(page, "next")));
	return 0;
}

static void on_ended(void *arg)
{
	struct follower *follower = arg;

	event_feed_free(follower->feed);
	free(follower->box);
	free(follower->owner);
	free(follower);
}

static const struct follow_ops follow_ops = { .page = put_page, .ended = on_ended };

static void on_event(json_t *event, void *arg)
{
	struct follower *follower = arg;
	const char *box = json_string_value(json_object_get(event, "box"));
	const char *owner = json_string_value(json_object_get(event, "owner"));
	bool wanted = (!follower->box || (box && !strcmp(follower->box, box))) &&
		      (!follower->owner || (owner && !strcmp(follower->owner, owner)));

	follow_entry(follower->follow,
		(uint64_t)json_integer_value(json_object_get(event, "offset")), event, wanted);
}

static void follow(struct call *call, uint64_t since, const char *box_id)
{
	struct follower *follower = xnew(struct follower);

	follower->yard = call->yard;
	follower->box = xstrdup(box_id);
	follower->owner = xstrdup(yard_only_owner(call->yard));
	follower->feed = event_feed_new(call->yard, on_event, follower);
	follower->follow = follow_new(call, since, &follow_ops, follower);
}

/* Checks that a removed box has left events. */
static int check_known(struct call *call, const char *id, struct err *err)
{
	uint64_t count = 0, first;

	const struct event_filter filter = { .box_id = id, .owner = yard_only_owner(call->yard) };

	if (store_event_tail(yard_get_store(call->yard), &filter, 1, &count, &first, err) < 0)
		return -1;
	if (count)
		return 0;
	err_set(err, ERR_NOT_FOUND, "no box '%.80s', and no event of one", id);
	return err_hint(err, "a box that was removed is found by its id");
}

static int skip_to_tail(struct call *call, const char *box_id, uint64_t *since, struct err *err)
{
	struct store *store = yard_get_store(call->yard);
	const struct event_filter filter = { .box_id = box_id,
		.owner = yard_only_owner(call->yard) };
	uint64_t tail, count, first, oldest, next;

	if (input_query_u64(call, "tail", 0, TAIL_MAX, &tail, err) < 0 ||
		store_event_tail(store, &filter, tail, &count, &first, err) < 0 ||
		store_event_range(store, &oldest, &next, err) < 0)
		return -1;
	*since = MAX(*since, count ? first : next);
	return 0;
}

void api_events(struct call *call)
{
	uint64_t since = 0, limit = LIMIT_DEFAULT;
	bool following = false;
	struct err err = ERR_INIT;
	const char *wanted = call_query(call, "box");
	/* A removed box is found only by its id. */
	struct box *box = wanted ? box_find(call->yard, wanted, NULL) : NULL;
	const char *box_id = box ? box_get_id(box) : wanted;
	json_t *page;

	if (input_query_u64(call, "since", 0, INT64_MAX, &since, &err) < 0 ||
		input_query_u64(call, "limit", 1, LIMIT_MAX, &limit, &err) < 0 ||
		input_query_bool(call, "follow", &following, &err) < 0 ||
		(wanted && !box && check_known(call, wanted, &err) < 0) ||
		(call_query(call, "tail") && skip_to_tail(call, box_id, &since, &err) < 0))
		return call_error(call, &err);
	if (following)
		return follow(call, since, box_id);
	page = yard_events_json(
		call->yard, since, box_id, yard_only_owner(call->yard), (unsigned)limit, &err);
	if (!page)
		return call_error(call, &err);
	call_json(call, 200, page);
}
