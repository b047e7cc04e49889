/* exec.c - POST exec: a program's output as lines of JSON, until it ends
 *
 * The answer begins when the program has started, so a program that cannot start gets an ordinary
 * error answer. When the client disconnects the program runs on, and still gets the input of the
 * request. */
#include "api/api_internal.h"

struct exec_run {
	struct exchange x;
	bool detach;
	bool begun; /* lines have been written */
};

static void run_done(struct exchange *x)
{
	free((struct exec_run *)x);
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

static void on_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	struct exec_run *run = arg;
	struct buf *line = scratch(run);

	(void)exec;
	if (run->detach)
		return exchange_json(&run->x, 201, exec_json(info));
	run->begun = true;
	http_reply_header(run->x.request, "Box-Exec", info->id);
	http_reply_begin(run->x.request, 200, "application/x-ndjson");
	ndjson_start(line, exec_json(info));
	send_line(run, line);
}

static void on_output(struct exec *exec, enum exec_stream stream, uint64_t offset, uint64_t time_us,
	const void *data, size_t len, void *arg)
{
	struct exec_run *run = arg;
	struct buf *line = scratch(run);

	(void)exec;
	(void)time_us;
	ndjson_output(line, stream, offset, data, len);
	send_line(run, line);
	exchange_passed(&run->x, len);
}

static void on_gap(struct exec *exec, uint64_t offset, uint64_t lost, void *arg)
{
	struct exec_run *run = arg;
	struct buf *line = scratch(run);

	(void)exec;
	ndjson_gap(line, offset, lost);
	send_line(run, line);
}

static void on_done(struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	struct exec_run *run = arg;
	struct buf *line = scratch(run);

	(void)exec;
	run->x.exec = NULL;
	if (end)
		ndjson_exit(line, end);
	else if (err && run->begun)
		ndjson_error(line, err);
	else if (err)
		exchange_error(&run->x, err);
	if (line->len)
		send_line(run, line);
	exchange_end(&run->x);
	exchange_settle(&run->x);
}

void api_exec(struct call *call)
{
	static const struct exec_ops ops = {
		.on_started = on_started,
		.on_output = on_output,
		.on_gap = on_gap,
		.on_done = on_done,
	};
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
	run->detach = body.spec.detach;
	body.spec.input = body.has_input;
	if (exec_start(box, &body.spec, &ops, run, &run->x.exec, &err) < 0) {
		exchange_error(&run->x, &err);
	} else if (body.has_input) {
		exec_write(run->x.exec, body.input, body.input_len);
		exec_write_end(run->x.exec);
	}
	exec_body_done(&body);
	exchange_settle(&run->x);
}
