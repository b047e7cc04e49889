/* exec_ws.c - a program over WebSocket: started here (exec) or running already (attach)
 *
 * The client's binary messages are stdin and the server's are output, behind one byte that says
 * which. Text messages are JSON. The order on the server's side is start, output and gaps, exit;
 * then the connection is closed. It may end from any side at any time: the client leaving only
 * detaches it. */
#include "api/api_internal.h"
#include "core/auto.h"

enum { MESSAGE_MAX = API_BODY_MAX, CELLS_MAX = 10000 };
enum { CLOSE_NORMAL = 1000, CLOSE_GOING_AWAY = 1001 };

struct session {
	struct exchange x;
	struct live live;
	char box[API_PARAM_MAX]; /* id */
	bool awaiting;		 /* that message */
	bool input;		 /* the client's bytes go to the program */
	bool closing;		 /* ws_close was called; nothing more is sent */
	struct exec_body body;	 /* of a program that is started here */
	json_t *json;		 /* what body borrows from */
	uint32_t signal;	 /* asked for before the program was there; 0: none */
	struct exec_time time;
};

/* What the program was described by is of no use once it has been asked for. */
static void release(struct session *session)
{
	exec_body_done(&session->body);
	json_decref(steal_ptr(&session->json));
}

static void session_done(struct exchange *x)
{
	struct session *session = (struct session *)x;

	live_remove(&session->live);
	exec_time_stop(&session->time);
	release(session);
	free(session);
}

/* ---- to the client -------------------------------------------------------------------------- */

static struct buf *scratch(struct session *session)
{
	session->x.api->scratch.len = session->x.api->scratch.head = 0;
	return &session->x.api->scratch;
}

static void send_text(struct session *session, const struct buf *line)
{
	if (session->x.ws && !session->closing)
		ws_send(session->x.ws, false, buf_head(line),
			line->len - 1); /* without its newline */
}

static void close_ws(struct session *session, uint16_t code, const char *reason)
{
	if (session->x.ws && !session->closing) {
		session->closing = true;
		ws_resume(session->x.ws); /* its own close has to be read */
		ws_close(session->x.ws, code, reason);
	}
}

static void fail(struct session *session, const struct err *err)
{
	struct buf *line;

	if (!session->x.ws || session->closing)
		return;
	line = scratch(session);
	ndjson_error(line, err);
	send_text(session, line);
	close_ws(session, CLOSE_NORMAL, "error");
}

static void on_stop(struct live *live)
{
	struct session *session = (struct session *)((char *)live - offsetof(struct session, live));

	close_ws(session, CLOSE_GOING_AWAY, "the daemon stops");
}

/* ---- from the box --------------------------------------------------------------------------- */

static void on_reply(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct session *session = arg;
	struct wire_exec_info info;
	struct err err = ERR_INIT;

	(void)chan;
	wire_get_exec_info(reply, &info);
	if (wire_get_done(reply, &err) < 0) {
		fail(session, &err);
	} else {
		struct buf *line = scratch(session);

		ndjson_start(line, exec_json(&info));
		send_text(session, line);
	}
	free((void *)info.argv);
	session->x.hold = false;
	exchange_flush(&session->x);
}

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	struct session *session = arg;

	(void)chan;
	(void)offset;
	if (session->x.ws && !session->closing)
		ws_send_tagged(session->x.ws, stream == WIRE_STREAM_STDERR ? 2 : 1, data, len);
	exchange_passed(&session->x, len);
}

static void on_gap(struct chan *chan, uint64_t offset, uint64_t lost, void *arg)
{
	struct session *session = arg;
	struct buf *line = scratch(session);

	(void)chan;
	ndjson_gap(line, offset, lost);
	send_text(session, line);
}

static void on_exited(struct chan *chan, const struct wire_exit *exit, void *arg)
{
	struct session *session = arg;
	struct buf *line = scratch(session);

	(void)chan;
	exec_time_stop(&session->time);
	ndjson_exit(line, exit);
	send_text(session, line);
	close_ws(session, CLOSE_NORMAL, "exit");
}

static void on_writable(struct chan *chan, void *arg)
{
	(void)chan;
	exchange_flush(arg);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	struct session *session = arg;

	(void)chan;
	session->x.chan = NULL;
	fail(session, err);
	exchange_settle(&session->x);
}

static void on_closed(struct chan *chan, void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_PROTOCOL, "box-init ended the program's channel without its exit");
	on_error(chan, &err, arg); /* says nothing when the exit was told */
}

static const struct chan_ops session_ops = {
	.on_reply = on_reply,
	.on_data = on_data,
	.on_gap = on_gap,
	.on_exit = on_exited,
	.on_writable = on_writable,
	.on_error = on_error,
	.on_closed = on_closed,
};

/* Somebody speaks to the program: a box that was suspended meanwhile goes on. */
static void touch(struct session *session)
{
	struct box *box = box_find(session->x.api->yard, session->box, NULL);

	if (box && session->x.chan)
		box_is_used(box);
}

/* ---- from the client ------------------------------------------------------------------------ */

/* The program waits in its box; whoever comes back to it attaches. */
static void on_time_over(const struct err *err, void *arg)
{
	struct session *session = arg;

	fail(session, err);
}

/* The box is ready for it. A client that has gone meanwhile only does not hear of it. */
static void begin(struct box *box, const struct err *why, void *arg)
{
	struct session *session = arg;
	struct err err = ERR_INIT;
	char id[33];

	session->x.pending = false;
	if (why)
		err = *why;
	if (why || box_exec_start(box, &session->body.spec, id, &session_ops, session,
			   &session->x.chan, &err) < 0)
		fail(session, &err);
	else if (session->signal)
		chan_signal(session->x.chan, session->signal);
	if (session->x.chan)
		exec_time_start(
			&session->time, session->x.api->yard, box, session->body.spec.timeout_ms);
	release(session);
	if (!session->x.ws)
		exchange_close_chan(&session->x);
	exchange_settle(&session->x);
}

static int start(struct session *session, json_t *message, struct err *err)
{
	struct box *box = box_find(session->x.api->yard, session->box, err);
	struct exec_body *body = &session->body;

	if (!box || exec_body_read(message, body, err) < 0)
		return -1;
	session->json = json_incref(message);
	if (body->detach)
		return err_set(err, ERR_INVALID, "'detach' is for POST");
	if (body->has_input) {
		exchange_send(&session->x, body->input, body->input_len);
		exchange_send_eof(&session->x);
	}
	body->spec.stdin_open = true;
	body->spec.attach = true;
	session->x.pending = true;
	box_before_exec(box, body->spec.argv, begin, session);
	return 0;
}

static int resize(struct session *session, json_int_t rows, json_int_t cols, struct err *err)
{
	if (rows < 1 || cols < 1 || rows > CELLS_MAX || cols > CELLS_MAX)
		return err_set(
			err, ERR_INVALID, "'rows' and 'cols' must be from 1 to %d", CELLS_MAX);
	if (session->x.chan && session->input)
		chan_resize(session->x.chan, (uint16_t)rows, (uint16_t)cols);
	session->body.spec.rows = (uint16_t)rows; /* for one that is yet to start */
	session->body.spec.cols = (uint16_t)cols;
	return 0;
}

static int signal_named(struct session *session, json_t *value, struct err *err)
{
	uint32_t number;
	char text[24];

	snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
	if (!json_is_string(value) && !json_is_integer(value))
		return err_set(err, ERR_INVALID, "'signal' must be a name or a number");
	if (input_signal(json_is_string(value) ? json_string_value(value) : text, &number, err) < 0)
		return -1;
	touch(session);
	if (session->x.chan && session->input)
		chan_signal(session->x.chan, number);
	else if (session->x.pending)
		session->signal = number;
	return 0;
}

static int control(struct session *session, json_t *message, struct err *err)
{
	_cleanup_json_ json_t *signal = json_incref(json_object_get(message, "signal"));
	const char *type = NULL;
	json_int_t rows = 0, cols = 0;
	const struct json_key keys[] = {
		{ "type", JSON_WANT_STRING, &type, true },
		{ "rows", JSON_WANT_INT, &rows, false },
		{ "cols", JSON_WANT_INT, &cols, false },
	};

	json_object_del(message, "signal");
	if (json_read(message, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (type && !strcmp(type, "resize"))
		return resize(session, rows, cols, err);
	if (type && !strcmp(type, "signal"))
		return signal_named(session, signal, err);
	if (!type || strcmp(type, "eof"))
		return err_set(err, ERR_INVALID, "unknown message type '%.40s'", type ? type : "");
	if (session->input)
		exchange_send_eof(&session->x);
	return 0;
}

static void on_text(struct session *session, const char *data, size_t len)
{
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *message = json_parse(data, len, &err);

	if (message && !json_is_object(message))
		err_set(&err, ERR_INVALID, "a text message must be a JSON object");
	if (!err.kind) {
		bool first = session->awaiting;

		session->awaiting = false;
		if (first)
			start(session, message, &err);
		else
			control(session, message, &err);
	}
	if (err.kind)
		fail(session, &err);
}

static void on_message(struct websocket *ws, bool binary, const void *data, size_t len, void *arg)
{
	struct session *session = arg;
	struct err err = ERR_INIT;

	(void)ws;
	if (session->closing)
		return;
	if (!binary)
		return on_text(session, data, len);
	if (session->awaiting) {
		err_set(&err, ERR_INVALID,
			"the first message must be the description of the program");
		return fail(session, &err);
	}
	touch(session);
	if (session->input && len)
		exchange_send(&session->x, data, len);
}

static void on_drain(struct websocket *ws, void *arg)
{
	(void)ws;
	exchange_drained(arg);
}

static void on_close(struct websocket *ws, void *arg)
{
	struct session *session = arg;

	(void)ws;
	session->x.ws = NULL;
	exchange_close_chan(&session->x); /* the program runs on */
	exchange_settle(&session->x);
}

static const struct websocket_ops ws_ops = {
	.on_message = on_message, .on_drain = on_drain, .on_close = on_close
};

/* NULL when the request was not a WebSocket handshake; it has been answered then. */
static struct session *session_accept(struct call *call)
{
	struct session *session = xnew(struct session);

	session->x.api = call->api;
	session->x.done = session_done;
	session->x.reading = true;
	session->x.hold = true; /* until the program is there */
	session->input = true;
	session->time = (struct exec_time){ .on_over = on_time_over, .arg = session };
	session->x.ws = ws_accept(call->request, MESSAGE_MAX, &ws_ops, session);
	if (!session->x.ws) {
		free(session);
		return NULL;
	}
	live_add(call->api, &session->live, on_stop);
	return session;
}

void api_exec_ws(struct call *call)
{
	struct box *box = call_box(call);
	struct session *session;
	struct err err = ERR_INIT;

	if (!box)
		return;
	/* Before the handshake: after it, there would be no status to tell. */
	if (box_check_there(box, &err) < 0)
		return call_error(call, &err);
	session = session_accept(call);
	if (!session)
		return;
	session->awaiting = true;
	snprintf(session->box, sizeof session->box, "%s", box_get_id(box));
}

/* The attach is opened after the handshake, because only then is there anyone to hand the output
 * to; a failure comes as an error message. */
void api_exec_attach(struct call *call)
{
	struct wire_attach_spec spec = {
		.id = call->params[1], .follow = true, .lossless = true, .input = true
	};
	struct box *box = call_box(call);
	struct session *session;
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (!box || !call_exec_id(call))
		return;
	if (box_check_there(box, &err) < 0)
		return call_error(call, &err);
	if (input_query_offset(call, &spec.offset, &err) < 0 ||
		input_query_bool(call, "stdin", &spec.input, &err) < 0)
		return call_error(call, &err);
	session = session_accept(call);
	if (!session)
		return;
	session->input = spec.input;
	snprintf(session->box, sizeof session->box, "%s", box_get_id(box));
	wire_put_attach_spec(&request, &spec);
	if (box_chan_open(box, WIRE_OP_EXEC_ATTACH, &request, &session_ops, session,
		    &session->x.chan, &err) < 0)
		fail(session, &err);
	else if (!spec.input)
		chan_set_background(session->x.chan);
	buf_done(&request);
}
