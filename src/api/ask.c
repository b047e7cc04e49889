/* ask.c - one question to box-init, one JSON answer */
#include "api/api_internal.h"

struct asking {
	struct exchange x;
	ask_fn render;
	json_t *extra;
};

static void asking_done(struct exchange *x)
{
	struct asking *asking = (struct asking *)x;

	json_decref(asking->extra);
	free(asking);
}

static void on_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct asking *asking = arg;
	struct http_request *request;
	struct err err = ERR_INIT;
	json_t *answer;

	(void)chan;
	if (!asking->render) {
		request = steal_ptr(&asking->x.request);
		if (request)
			http_reply(request, 204, NULL, NULL, 0);
		return;
	}
	answer = asking->render(reply, asking->extra, &err);
	if (answer)
		exchange_json(&asking->x, 200, answer);
	else
		exchange_error(&asking->x, &err);
	/* CLOSE follows and settles. */
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	struct asking *asking = arg;

	(void)chan;
	asking->x.chan = NULL;
	exchange_error(&asking->x, err);
	exchange_settle(&asking->x);
}

static void on_closed(struct chan *chan, void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_PROTOCOL, "box-init gave no answer");
	on_error(chan, &err, arg);
}

void ask(struct call *call, enum wire_op op, struct buf *request, ask_fn render, json_t *extra)
{
	static const struct chan_ops ops = {
		.on_reply = on_reply, .on_error = on_error, .on_closed = on_closed
	};
	struct asking *asking;
	struct box *box = call_box_awake(call);
	struct err err = ERR_INIT;

	if (!box) {
		json_decref(extra);
		buf_done(request);
		return;
	}
	asking = xnew(struct asking);
	asking->render = render;
	asking->extra = extra;
	exchange_init(&asking->x, call, asking_done);
	if (box_chan_open(box, op, request, &ops, asking, &asking->x.chan, &err) < 0)
		exchange_error(&asking->x, &err);
	buf_done(request);
	exchange_settle(&asking->x);
}
