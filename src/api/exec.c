/* exec.c - POST exec: a program's output as lines of JSON, until it ends
 *
 * Nothing is answered before box-init has started the program, so that one that cannot start is a
 * plain error. A client that goes away only stops listening. Where the request carried input for
 * the program, the channel stays open without the client until the program ends: the rest of the
 * input goes in through it. */
#include "api/api_internal.h"
#include "core/auto.h"

struct exec_run {
	struct exchange x;
	bool detach;
	bool has_input;
	bool over; /* its exit was told */
	struct exec_body body;
	json_t *json; /* what body borrows from */
	struct exec_time time;
};

/* What the program was described by is of no use once it has been asked for. */
static void release(struct exec_run *run)
{
	exec_body_done(&run->body);
	json_decref(steal_ptr(&run->json));
}

static void run_done(struct exchange *x)
{
	struct exec_run *run = (struct exec_run *)x;

	exec_time_stop(&run->time);
	release(run);
	free(run);
}

static struct buf *scratch(struct exec_run *run)
{
	run->x.api->scratch.len = run->x.api->scratch.head = 0;
	return &run->x.api->scratch;
}

static void send_line(struct exec_run *run, const struct buf *line)
{
	exchange_write(&run->x, buf_head(line), line->len);
}

/* ---- from the box --------------------------------------------------------------------------- */

static void on_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct exec_run *run = arg;
	struct wire_exec_info info;
	struct err err = ERR_INIT;

	(void)chan;
	wire_get_exec_info(reply, &info);
	if (wire_get_done(reply, &err) < 0) {
		exchange_error(&run->x, &err);
	} else if (run->detach) {
		exchange_json(&run->x, 201, exec_json(&info));
	} else if (run->x.request) {
		struct buf *line = scratch(run);

		http_reply_header(run->x.request, "Box-Exec", info.id);
		http_reply_begin(run->x.request, 200, "application/x-ndjson");
		ndjson_start(line, exec_json(&info));
		send_line(run, line);
	}
	free((void *)info.argv);
	run->x.hold = false;
	exchange_flush(&run->x);
}

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct exec_run *run = arg;

	(void)chan;
	if (run->x.request) {
		struct buf *line = scratch(run);

		ndjson_output(line, stream, offset, data, len);
		send_line(run, line);
	}
	exchange_passed(&run->x, len);
}

static void on_gap(struct chan *chan, uint64_t offset, uint64_t lost, void *arg)
{
	struct exec_run *run = arg;
	struct buf *line = scratch(run);

	(void)chan;
	ndjson_gap(line, offset, lost);
	send_line(run, line);
}

static void on_exited(struct chan *chan, const struct wire_exit *exit, void *arg)
{
	struct exec_run *run = arg;
	struct buf *line = scratch(run);

	(void)chan;
	ndjson_exit(line, exit);
	send_line(run, line);
	run->over = true;
	exec_time_stop(&run->time);
	exchange_end(&run->x); /* CLOSE follows and settles */
}

static void on_writable(struct chan *chan, void *arg)
{
	(void)chan;
	exchange_flush(arg);
}

static void tell_error(struct exec_run *run, const struct err *err)
{
	bool begun = !run->x.hold && !run->detach;

	if (begun && run->x.request) {
		struct buf *line = scratch(run);

		ndjson_error(line, err);
		send_line(run, line);
		exchange_end(&run->x);
	} else {
		exchange_error(&run->x, err);
	}
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	struct exec_run *run = arg;

	(void)chan;
	run->x.chan = NULL;
	tell_error(run, err);
	exchange_settle(&run->x);
}

static void on_closed(struct chan *chan, void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_PROTOCOL, "box-init ended the program's channel without its exit");
	on_error(chan, &err, arg);
}

static const struct chan_ops run_ops = {
	.on_reply = on_reply,
	.on_data = on_data,
	.on_gap = on_gap,
	.on_exit = on_exited,
	.on_writable = on_writable,
	.on_error = on_error,
	.on_closed = on_closed,
};

/* ---- from the client ------------------------------------------------------------------------ */

/* Nobody listens any more. */
static void leave(struct exec_run *run)
{
	run->x.request = NULL;
	exec_time_stop(&run->time);
	if (!run->has_input || run->over)
		exchange_close_chan(&run->x);
	else
		exchange_drained(&run->x); /* its output goes nowhere from now on */
	exchange_settle(&run->x);
}

static void on_gone(struct http_request *request, void *arg)
{
	(void)request;
	leave(arg);
}

static void on_time_over(const struct err *err, void *arg)
{
	struct exec_run *run = arg;

	tell_error(run, err);
	leave(run);
}

/* The box is ready for it. A client that has gone meanwhile only does not hear of it. */
static void start(struct box *box, const struct err *why, void *arg)
{
	struct exec_run *run = arg;
	struct err err = ERR_INIT;
	char id[33];

	run->x.pending = false;
	if (why)
		err = *why;
	if (!why &&
		box_exec_start(box, &run->body.spec, id, &run_ops, run, &run->x.chan, &err) == 0) {
		if (!run->x.request && !run->has_input)
			exchange_close_chan(&run->x);
		if (run->x.request && !run->detach)
			exec_time_start(
				&run->time, run->x.api->yard, box, run->body.spec.timeout_ms);
	} else {
		exchange_error(&run->x, &err);
	}
	release(run);
	exchange_settle(&run->x);
}

void api_exec(struct call *call)
{
	struct exec_body body;
	struct err err = ERR_INIT;
	struct exec_run *run;
	struct box *box = call_box(call);

	if (!box)
		return;
	if (exec_body_read(call->body, &body, &err) < 0) {
		exec_body_done(&body);
		return call_error(call, &err);
	}
	run = xnew(struct exec_run);
	exchange_init(&run->x, call, run_done);
	http_request_on_gone(call->request, on_gone, run);
	run->body = body;
	run->json = json_incref(call->body);
	run->detach = body.detach;
	run->has_input = body.has_input;
	run->time = (struct exec_time){ .on_over = on_time_over, .arg = run };
	run->x.hold = true; /* until the program is there */
	if (body.has_input) {
		exchange_send(&run->x, body.input, body.input_len);
		exchange_send_eof(&run->x);
	}
	run->body.spec.stdin_open = body.has_input;
	run->body.spec.attach = !body.detach || body.has_input;
	run->x.pending = true;
	box_before_exec(box, run->body.spec.argv, start, run);
}
