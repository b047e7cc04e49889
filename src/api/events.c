/* events.c - what happened: a page of it, or a stream that goes on
 *
 * A follower first gets what the store has from its offset on, in pages as its client takes them, and then
 * each event as it happens. One whose client is slow falls back to the store until it has caught up again:
 * what waits in memory is bounded and no event is left out. If the store no longer has what it should get
 * next, a line says how much is lost. */
#include "api/api_internal.h"

enum {
	PAGE = 500,
	LIMIT_DEFAULT = 1000,
	LIMIT_MAX = 1000,	 /* made in one go; an event may have 24 KiB */
	BEHIND_AT = 1024 * 1024, /* bytes waiting, from which on events are left to the store */
};

struct follower {
	struct api *api;
	struct http_request *request;
	struct event_feed *feed;
	struct live live;
	char *box;     /* id, or NULL: all */
	uint64_t next; /* offset of the next event it should get */
	bool behind;
};

static void follower_free(struct follower *follower)
{
	live_remove(&follower->live);
	event_feed_free(follower->feed);
	free(follower->box);
	free(follower);
}

static void follower_end(struct follower *follower, const struct err *err)
{
	struct buf *line = &follower->api->scratch;

	line->len = line->head = 0;
	ndjson_error(line, err);
	http_reply_write(follower->request, buf_head(line), line->len);
	http_reply_end(follower->request);
	follower_free(follower);
}

static void put_event(struct follower *follower, struct buf *out, const json_t *event)
{
	ndjson_add(out, event);
	follower->next = (uint64_t)json_integer_value(json_object_get(event, "offset")) + 1;
}

/* One page from the store. *ret_more: there was a whole one, so there may be another. */
static int put_page(struct follower *follower, bool *ret_more, struct err *err)
{
	_cleanup_json_ json_t *page =
		yard_events_json(follower->api->yard, follower->next, follower->box, PAGE, err);
	struct buf *out = &follower->api->scratch;
	json_t *events = json_object_get(page, "events");
	json_t *event;
	uint64_t oldest;
	size_t i;

	if (!page)
		return -1;
	out->len = out->head = 0;
	oldest = (uint64_t)json_integer_value(json_object_get(page, "oldest"));
	if (follower->next && oldest > follower->next)
		ndjson_gap(out, follower->next, oldest - follower->next);
	json_array_foreach (events, i, event)
		put_event(follower, out, event);
	http_reply_write(follower->request, buf_head(out), out->len);
	*ret_more = json_array_size(events) == PAGE;
	/* Also past the events of other boxes, so that they are not looked at again. */
	follower->next =
		MAX(follower->next, (uint64_t)json_integer_value(json_object_get(page, "next")));
	return 0;
}

/* Goes on until the client has enough for now or the store has no more. The follower may be gone afterwards. */
static void catch_up(struct follower *follower)
{
	struct err err = ERR_INIT;
	bool more = true;

	follower->behind = true;
	while (more && http_reply_pending(follower->request) <= API_PENDING_MAX)
		if (put_page(follower, &more, &err) < 0)
			return follower_end(follower, &err);
	follower->behind = more;
}

static void on_event(json_t *event, void *arg)
{
	struct follower *follower = arg;
	const char *box = json_string_value(json_object_get(event, "box"));
	struct buf *out = &follower->api->scratch;

	if (follower->behind || (follower->box && (!box || strcmp(follower->box, box))))
		return;
	if (http_reply_pending(follower->request) > BEHIND_AT) {
		follower->behind = true;
		return;
	}
	out->len = out->head = 0;
	put_event(follower, out, event);
	http_reply_write(follower->request, buf_head(out), out->len);
}

static void on_drain(struct http_request *request, void *arg)
{
	struct follower *follower = arg;

	(void)request;
	if (follower->behind)
		catch_up(follower);
}

static void on_gone(struct http_request *request, void *arg)
{
	(void)request;
	follower_free(arg);
}

static void on_stop(struct live *live)
{
	struct follower *follower =
		(struct follower *)((char *)live - offsetof(struct follower, live));
	struct err err = ERR_INIT;

	err_set(&err, ERR_UNAVAILABLE, "the daemon stops");
	follower_end(follower, &err);
}

static void follow(struct call *call, uint64_t since, const char *box_id)
{
	struct follower *follower = xnew(struct follower);

	follower->api = call->api;
	follower->request = call->request;
	follower->next = since;
	follower->box = xstrdup(box_id);
	http_request_on_gone(call->request, on_gone, follower);
	http_reply_on_drain(call->request, API_PENDING_MAX, on_drain, follower);
	http_reply_begin(call->request, 200, "application/x-ndjson");
	live_add(call->api, &follower->live, on_stop);
	follower->feed = event_feed_new(call->yard, on_event, follower);
	catch_up(follower);
}

void api_events(struct call *call)
{
	uint64_t since = 0, limit = LIMIT_DEFAULT;
	bool following = false;
	struct err err = ERR_INIT;
	const char *wanted = call_query(call, "box");
	/* A box that is gone is found by its id alone. */
	struct box *box = wanted ? box_find(call->yard, wanted, NULL) : NULL;
	const char *box_id = box ? box_get_id(box) : wanted;
	json_t *page;

	if (input_query_u64(call, "since", 0, INT64_MAX, &since, &err) < 0 ||
		input_query_u64(call, "limit", 1, LIMIT_MAX, &limit, &err) < 0 ||
		input_query_bool(call, "follow", &following, &err) < 0)
		return call_error(call, &err);
	if (following)
		return follow(call, since, box_id);
	page = yard_events_json(call->yard, since, box_id, (unsigned)limit, &err);
	if (!page)
		return call_error(call, &err);
	call_json(call, 200, page);
}
