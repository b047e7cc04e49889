/* exec_ws.c - a program over WebSocket: started here (exec) or already running (attach)
 *
 * The client's binary messages are stdin and the server's are output, after one byte that says
 * which. Text messages are JSON. The server sends start, then output and gaps, then exit, and
 * closes the connection. Either side may close it at any time: a client that leaves only
 * detaches. */
#include "api/api_internal.h"

enum { MESSAGE_MAX = API_BODY_MAX, CELLS_MAX = 10000 };
enum { CLOSE_NORMAL = 1000, CLOSE_GOING_AWAY = 1001 };

struct session {
	struct exchange x;
	struct live live;
	char box[API_PARAM_MAX]; /* id */
	struct principal principal;
	bool awaiting; /* for the client's description of the program */
	bool input;    /* the client's bytes go to the program */
	bool closing;  /* ws_close was called; nothing more is sent */
};

static void session_done(struct exchange *x)
{
	struct session *session = (struct session *)x;

	live_remove(&session->live);
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
		ws_resume(session->x.ws); /* to read the client's close */
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

static void on_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	struct session *session = arg;
	struct buf *line = scratch(session);

	(void)exec;
	ndjson_start(line, exec_json(info));
	send_text(session, line);
}

static void on_output(struct exec *exec, enum exec_stream stream, uint64_t offset, uint64_t time_us,
	const void *data, size_t len, void *arg)
{
	struct session *session = arg;

	(void)exec;
	(void)offset;
	(void)time_us;
	if (session->x.ws && !session->closing)
		ws_send_tagged(session->x.ws, stream == EXEC_STDERR ? 2 : 1, data, len);
	exchange_passed(&session->x, len);
}

static void on_gap(struct exec *exec, uint64_t offset, uint64_t lost, void *arg)
{
	struct session *session = arg;
	struct buf *line = scratch(session);

	(void)exec;
	ndjson_gap(line, offset, lost);
	send_text(session, line);
}

static void on_writable(struct exec *exec, void *arg)
{
	struct session *session = arg;

	(void)exec;
	if (session->x.ws)
		ws_resume(session->x.ws);
}

static void on_done(struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	struct session *session = arg;

	(void)exec;
	session->x.exec = NULL;
	if (end) {
		struct buf *line = scratch(session);

		ndjson_exit(line, end);
		send_text(session, line);
		close_ws(session, CLOSE_NORMAL, "exit");
	} else {
		fail(session, err);
	}
	exchange_settle(&session->x);
}

static const struct exec_ops session_ops = {
	.on_started = on_started,
	.on_output = on_output,
	.on_gap = on_gap,
	.on_writable = on_writable,
	.on_done = on_done,
};

/* ---- from the client ------------------------------------------------------------------------ */

static void write_input(struct session *session, const void *data, size_t len)
{
	if (session->x.exec && session->input && len && !exec_write(session->x.exec, data, len))
		ws_pause(session->x.ws);
}

static int start_program(struct session *session, json_t *message, struct err *err)
{
	struct box *box = box_find(session->x.api->yard, session->box, err);
	struct exec_body body = { 0 };
	int done = -1;

	if (!box || exec_body_read(message, &body, err) < 0)
		goto out;
	if (body.spec.detach) {
		err_set(err, ERR_INVALID, "'detach' works with POST only");
		goto out;
	}
	body.spec.input = true;
	done = exec_start(box, &body.spec, &session_ops, session, &session->x.exec, err);
	if (done == 0 && body.has_input) {
		write_input(session, body.input, body.input_len);
		exec_write_end(session->x.exec);
	}
out:
	exec_body_done(&body);
	return done;
}

/* Works in the name of the principal that opened the connection; the session may be freed
 * meanwhile. */
static int start(struct session *session, json_t *message, struct err *err)
{
	struct auth *auth = session->x.api->auth;
	const struct principal principal = session->principal;
	const struct asker *before = auth_enter(auth, &principal);
	int done = start_program(session, message, err);

	auth_leave(auth, before);
	return done;
}

static int resize(struct session *session, json_int_t rows, json_int_t cols, struct err *err)
{
	if (rows < 1 || cols < 1 || rows > CELLS_MAX || cols > CELLS_MAX)
		return err_set(
			err, ERR_INVALID, "'rows' and 'cols' must be from 1 to %d", CELLS_MAX);
	if (session->x.exec && session->input)
		exec_resize(session->x.exec, (uint16_t)rows, (uint16_t)cols);
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
	if (session->x.exec && session->input)
		exec_signal(session->x.exec, number);
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
	if (session->x.exec && session->input)
		exec_write_end(session->x.exec);
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
	write_input(session, data, len);
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
	exchange_close(&session->x); /* the program runs on */
	exchange_settle(&session->x);
}

static const struct websocket_ops ws_ops = {
	.on_message = on_message, .on_drain = on_drain, .on_close = on_close
};

/* NULL when the request was not a WebSocket handshake; it has been answered. */
static struct session *session_accept(struct call *call)
{
	struct session *session = xnew(struct session);

	session->x.api = call->api;
	session->principal = *call->principal;
	session->x.done = session_done;
	session->input = true;
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
	/* Before the handshake: after it there is no HTTP status to send. */
	if (box_check_there(box, &err) < 0)
		return call_error(call, &err);
	session = session_accept(call);
	if (!session)
		return;
	session->awaiting = true;
	snprintf(session->box, sizeof session->box, "%s", box_get_id(box));
}

/* The attach is opened after the handshake, because only then is there a connection for the output;
 * a failure comes as an error message. */
void api_exec_attach(struct call *call)
{
	struct exec_attach_spec spec = {
		.id = call->params[1], .follow = true, .lossless = true, .input = true
	};
	struct box *box = call_box(call);
	struct session *session;
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
	if (exec_attach(box, &spec, &session_ops, session, &session->x.exec, &err) < 0)
		fail(session, &err);
}
