/* exchange.c - a client on one side, a program or a task in a box on the other; see api_internal.h
 *
 * Bytes from the box are written to the client at once and returned to the box's window when few
 * enough of them wait there: a client that does not read makes the box wait, and the daemon holds
 * at most the window and API_PENDING_MAX. */
#include "api/api_internal.h"

void exchange_settle(struct exchange *x)
{
	if (x->request || x->ws || x->exec || x->task)
		return;
	x->done(x);
}

void exchange_close(struct exchange *x)
{
	exec_close(steal_ptr(&x->exec));
	task_cancel(steal_ptr(&x->task));
}

static void on_gone(struct http_request *request, void *arg)
{
	struct exchange *x = arg;

	(void)request;
	x->request = NULL;
	exchange_close(x);
	exchange_settle(x);
}

static void on_drain(struct http_request *request, void *arg)
{
	(void)request;
	exchange_drained(arg);
}

void exchange_init(struct exchange *x, struct call *call, void (*done)(struct exchange *x))
{
	x->api = call->api;
	x->request = call->request;
	x->done = done;
	http_request_on_gone(call->request, on_gone, x);
	http_reply_on_drain(call->request, API_PENDING_MAX, on_drain, x);
}

/* ---- to the client --------------------------------------------------------------------------- */

void exchange_json(struct exchange *x, int status, json_t *value)
{
	struct http_request *request = steal_ptr(&x->request);

	if (request)
		http_reply_json(request, status, value);
	else
		json_decref(value);
}

void exchange_none(struct exchange *x)
{
	struct http_request *request = steal_ptr(&x->request);

	if (request)
		http_reply(request, 204, NULL, NULL, 0);
}

void exchange_error(struct exchange *x, const struct err *err)
{
	struct http_request *request = steal_ptr(&x->request);

	if (request)
		http_reply_error(request, err);
}

void exchange_end(struct exchange *x)
{
	struct http_request *request = steal_ptr(&x->request);

	if (request)
		http_reply_end(request);
}

void exchange_write(struct exchange *x, const void *data, size_t len)
{
	if (x->request)
		http_reply_write(x->request, data, len);
}

void exchange_passed(struct exchange *x, size_t len)
{
	x->owed += len;
	exchange_drained(x);
}

void exchange_drained(struct exchange *x)
{
	size_t pending = x->request ? http_reply_pending(x->request)
			 : x->ws    ? ws_pending(x->ws)
				    : 0;
	size_t owed = x->owed;

	if (!owed || pending > API_PENDING_MAX)
		return;
	x->owed = 0;
	if (x->exec)
		exec_consumed(x->exec, owed);
	if (x->task)
		task_consumed(x->task, owed);
}
