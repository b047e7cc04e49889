/* pool.c - the pool all disks are in: show, grow, verify */
#include "api/api_internal.h"
#include "pool/pool.h"

enum { GROW_MIN = 1024 * 1024 };

void api_pool_show(struct call *call)
{
	call_json(call, 200, pool_json(yard_get_pool(call->yard)));
}

/* ---- growing -------------------------------------------------------------------------------- */

/* It continues when its client disconnects; only the answer is dropped. */
struct growth {
	struct api *api;
	struct http_request *request;
};

static void growth_gone(struct http_request *request, void *arg)
{
	struct growth *growth = arg;

	(void)request;
	growth->request = NULL;
}

static void growth_done(const struct err *err, void *arg)
{
	struct growth *growth = arg;
	struct yard *yard = growth->api->yard;
	_cleanup_json_ json_t *pool = err ? NULL : pool_json(yard_get_pool(yard));

	if (pool)
		yard_event(yard, "pool.grown", NULL,
			json_pack("{s:O}", "total_bytes", json_object_get(pool, "total_bytes")));
	if (growth->request && err)
		http_reply_error(growth->request, err);
	else if (growth->request)
		http_reply_json(growth->request, 200, json_incref(pool));
	free(growth);
}

void api_pool_grow(struct call *call)
{
	_cleanup_json_ json_t *value = input_take(call->body, "bytes");
	struct err err = ERR_INIT;
	struct growth *growth;
	uint64_t bytes = 0;

	if (input_size("bytes", value, GROW_MIN, &bytes, &err) < 0 ||
		json_read(call->body, NULL, 0, &err) < 0)
		return call_error(call, &err);
	growth = xnew(struct growth);
	*growth = (struct growth){ call->api, call->request };
	http_request_on_gone(call->request, growth_gone, growth);
	pool_grow(yard_get_pool(call->yard), bytes, growth_done, growth);
}

/* ---- verifying ------------------------------------------------------------------------------ */

/* Ends with its client: nobody else would see the result. */
struct scrub {
	struct api *api;
	struct http_request *request;
};

static void send_line(struct scrub *scrub, json_t *value)
{
	struct buf *line = &scrub->api->scratch;

	line->len = line->head = 0;
	ndjson_add(line, value);
	http_reply_write(scrub->request, buf_head(line), line->len);
	json_decref(value);
}

static void scrub_progress(uint64_t done, uint64_t total, uint64_t errors, void *arg)
{
	struct scrub *scrub = arg;

	if (http_reply_pending(scrub->request) > API_PENDING_MAX)
		return;
	send_line(scrub,
		json_pack("{s:s,s:o,s:o,s:o}", "type", "progress", "done", json_from_u64(done),
			"total", json_from_u64(total), "errors", json_from_u64(errors)));
}

static void scrub_done(uint64_t errors, const struct err *err, void *arg)
{
	struct scrub *scrub = arg;
	struct buf *line = &scrub->api->scratch;

	if (err) {
		line->len = line->head = 0;
		ndjson_error(line, err);
		http_reply_write(scrub->request, buf_head(line), line->len);
	} else {
		send_line(scrub,
			json_pack("{s:s,s:o}", "type", "done", "errors", json_from_u64(errors)));
	}
	http_reply_end(scrub->request);
	free(scrub);
}

static void scrub_gone(struct http_request *request, void *arg)
{
	struct scrub *scrub = arg;

	(void)request;
	pool_scrub_cancel(yard_get_pool(scrub->api->yard));
	free(scrub);
}

void api_pool_scrub(struct call *call)
{
	static const struct pool_scrub_ops ops = { .on_progress = scrub_progress,
		.on_done = scrub_done };
	struct err err = ERR_INIT;
	struct scrub *scrub;

	if (json_read(call->body, NULL, 0, &err) < 0)
		return call_error(call, &err);
	scrub = xnew(struct scrub);
	*scrub = (struct scrub){ call->api, call->request };
	if (pool_scrub_start(yard_get_pool(call->yard), &ops, scrub, &err) < 0) {
		free(scrub);
		return call_error(call, &err);
	}
	http_request_on_gone(call->request, scrub_gone, scrub);
	http_reply_begin(call->request, 200, "application/x-ndjson");
}
