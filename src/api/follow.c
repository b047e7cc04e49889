/* follow.c - a client that follows a log of numbered entries
 *
 * It first gets the kept entries from its number on, in pages as it reads them, and then each new
 * entry. A slow client falls back to kept entries until it has caught up: memory is bounded and no
 * entry is left out. Between two pages the loop gets its turn. If the next entry is no longer kept,
 * a line says how many are lost (the page function writes it). */
#include "api/api_internal.h"
#include "loop/loop.h"

enum {
	BEHIND_AT = 1024 * 1024
}; /* bytes waiting, above which entries are read from the log later */

struct follow {
	struct api *api;
	struct http_request *request;
	const struct follow_ops *ops;
	void *arg;
	struct loop_timer *timer; /* continues catching up */
	struct live live;
	uint64_t next; /* number of the next entry to send */
	bool behind;
};

static void follow_free(struct follow *follow)
{
	live_remove(&follow->live);
	loop_timer_free(follow->timer);
	follow->ops->ended(follow->arg);
	free(follow);
}

static void end(struct follow *follow, const struct err *err)
{
	struct buf *line = &follow->api->scratch;

	line->len = line->head = 0;
	ndjson_error(line, err);
	http_reply_write(follow->request, buf_head(line), line->len);
	http_reply_end(follow->request);
	follow_free(follow);
}

/* Sends a page; the rest when the client has read it, or after others had their turn. May free the
 * follow. */
static void catch_up(struct follow *follow)
{
	struct buf *out = &follow->api->scratch;
	struct err err = ERR_INIT;
	bool more = false;

	out->len = out->head = 0;
	if (follow->ops->page(follow->arg, &follow->next, out, &more, &err) < 0)
		return end(follow, &err);
	http_reply_write(follow->request, buf_head(out), out->len);
	follow->behind = more;
	if (more && http_reply_pending(follow->request) <= API_PENDING_MAX)
		loop_timer_start(follow->timer, 0);
}

static void on_timer(void *arg)
{
	catch_up(arg);
}

static void on_drain(struct http_request *request, void *arg)
{
	struct follow *follow = arg;

	(void)request;
	if (follow->behind)
		catch_up(follow);
}

static void on_gone(struct http_request *request, void *arg)
{
	(void)request;
	follow_free(arg);
}

static void on_stop(struct live *live)
{
	struct follow *follow = (struct follow *)((char *)live - offsetof(struct follow, live));
	struct err err = ERR_INIT;

	err_set(&err, ERR_UNAVAILABLE, "the daemon stops");
	end(follow, &err);
}

struct follow *follow_new(
	struct call *call, uint64_t since, const struct follow_ops *ops, void *arg)
{
	struct follow *follow = xnew(struct follow);

	follow->api = call->api;
	follow->request = call->request;
	follow->ops = ops;
	follow->arg = arg;
	follow->next = since;
	follow->behind = true;
	follow->timer = loop_timer_new(yard_get_loop(call->yard), on_timer, follow);
	http_request_on_gone(call->request, on_gone, follow);
	http_reply_on_drain(call->request, API_PENDING_MAX, on_drain, follow);
	http_reply_begin(call->request, 200, "application/x-ndjson");
	live_add(call->api, &follow->live, on_stop);
	loop_timer_start(follow->timer, 0);
	return follow;
}

void follow_entry(struct follow *follow, uint64_t number, const json_t *entry, bool wanted)
{
	struct buf *out = &follow->api->scratch;

	if (follow->behind || number < follow->next)
		return;
	if (http_reply_pending(follow->request) > BEHIND_AT) {
		follow->behind = true;
		return;
	}
	follow->next = number + 1;
	if (!wanted)
		return;
	out->len = out->head = 0;
	ndjson_add(out, entry);
	http_reply_write(follow->request, buf_head(out), out->len);
}
