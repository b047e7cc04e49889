/* conn.c - one connection: bytes in, exchanges one after the other, bytes out
 *
 *   HEAD ──> BODY ──> WAIT ──> HEAD …          keep-alive
 *     │        │        └────> SOCKET          ws_accept, http_tunnel_accept
 *     └────────┴─────────────> FLUSH ──> LINGER ──> gone
 *
 * A pipelined request stays in `in` unparsed until the answer before it is complete. Reading stops
 * (and the client is held back by its full socket) while a body's reader has paused, while nobody
 * has asked for the body yet, and while too many bytes of answers wait.
 *
 * The client's end of file is not the end of the connection: after a whole request it may be a
 * half-close, and the answer is still wanted. Then, and whenever we neither read nor write, the
 * hang-up watch tells of a peer that is really gone. Over TCP a full close cannot be told from a
 * half-close before a packet bounces; keep-alive probes make sure that one does.
 *
 * After a last answer that the client may not have read yet, we only shut down our sending side and
 * throw away what still comes: closing with unread bytes would make the kernel reset the connection
 * and take the answer back out of the client's hands. */
#include "http/http_internal.h"
#include "base/clock.h"
#include "loop/loop.h"
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { ADVANCE_ROUNDS = 8 };

int64_t http_now_ms(void)
{
	return clock_mono_us() / 1000;
}

static void conn_enter(struct http_conn *conn)
{
	conn->depth++;
	server_enter(conn->server);
}

static void conn_free(struct http_conn *conn)
{
	assert(!conn->request && !conn->ws && !conn->tunnel);
	http_parse_done(&conn->parse);
	buf_done(&conn->in);
	buf_done(&conn->out);
	if (conn->who)
		conn->free_who(conn->who);
	free(conn);
}

static void conn_leave(struct http_conn *conn)
{
	struct http_server *server = conn->server;

	conn->depth--;
	if (conn->dead && !conn->depth && !conn->scheduled)
		conn_free(conn);
	server_leave(server);
}

void conn_end(struct http_conn *conn)
{
	if (conn->dead)
		return;
	conn->dead = true;
	conn_enter(conn);
	loop_fd_free(conn->watch);
	conn->watch = NULL;
	if (conn->ssl)
		tls_free(conn->ssl);
	conn->ssl = NULL;
	close(conn->fd);
	conn->fd = -1;
	server_remove_conn(conn->server, conn);
	if (conn->request)
		request_gone(conn->request);
	if (conn->ws)
		ws_gone(conn->ws);
	if (conn->tunnel)
		tunnel_gone(conn->tunnel);
	conn_leave(conn);
}

/* ---- what to wait for ----------------------------------------------------------------------- */

static bool may_parse(const struct http_conn *conn)
{
	if (conn->dead || conn->broken)
		return false;
	switch (conn->stage) {
	case CONN_HEAD:
		return conn->out.len <= HTTP_OUT_MAX;
	case CONN_BODY:
		return !conn->request || !http_head_has_body(&conn->parse.head) ||
		       request_wants_body(conn->request);
	case CONN_SOCKET:
		return conn->ws ? ws_wants_read(conn->ws) : tunnel_wants_read(conn->tunnel);
	case CONN_WAIT:
	case CONN_FLUSH:
	case CONN_LINGER:
		break;
	}
	return false;
}

static bool wants_read(const struct http_conn *conn)
{
	if (conn->eof)
		return false;
	if (conn->stage == CONN_WAIT)
		return conn->in.len < HTTP_PIPELINE_MAX;
	return conn->stage == CONN_LINGER || may_parse(conn);
}

void conn_update_watch(struct http_conn *conn)
{
	unsigned want = 0;

	if (conn->dead)
		return;
	if (wants_read(conn) && !conn->stalled)
		want |= LOOP_READ;
	if (conn->blocked || conn->stalled)
		want |= LOOP_WRITE;
	if (conn->more && (want & LOOP_READ))
		conn_schedule(conn);
	if (!want)
		want = LOOP_HANGUP;
	if (want != conn->watched)
		loop_fd_set(conn->watch, want);
	conn->watched = want;
}

static bool tell_drain(struct http_conn *conn)
{
	if (conn->dead || conn->broken)
		return false;
	if (conn->ws)
		return ws_tell_drain(conn->ws);
	if (conn->tunnel)
		return tunnel_tell_drain(conn->tunnel);
	return conn->request && reply_tell_drain(conn->request);
}

/* ---- exchanges ------------------------------------------------------------------------------ */

static void next_request(struct http_conn *conn)
{
	conn->stage = CONN_HEAD;
	conn->head_since = http_now_ms();
}

void conn_answered(struct http_conn *conn)
{
	if (!conn->keep)
		conn->stage = CONN_FLUSH;
	else if (conn->stage == CONN_WAIT)
		next_request(conn);
	if (conn->depth)
		return;
	if (conn->stage != CONN_HEAD || conn->in.len || conn->eof || conn->server->stopping)
		conn_schedule(conn);
	else
		conn_update_watch(conn);
}

void conn_refuse(struct http_conn *conn, int status, const struct err *why)
{
	struct http_request *request = conn->request;

	if (request && request->begun) {
		conn->broken = true;
	} else if (!request && conn->stage == CONN_BODY) {
		/* it has its answer already; a second one would be taken for the answer to another
		 * request */
		conn->stage = CONN_FLUSH;
	} else {
		conn->keep = false;
		reply_put_error(conn, status, why);
		conn->stage = CONN_FLUSH;
	}
	if (request)
		request_gone(request);
}

static void begin_request(struct http_conn *conn)
{
	struct http_request *request = request_new(conn);
	struct err err = ERR_INIT;

	conn->fresh = false;
	conn->thrown = 0;
	conn->stage = CONN_BODY;
	conn->request = request;
	if (fronts_take(conn->server, request)) {
		/* a front took the request, with its target as it was sent */
	} else if (url_split(conn->parse.head.target, &request->url, &err) < 0) {
		conn->stage = CONN_HEAD;
		conn->request = NULL;
		request_free(request);
		return conn_refuse(conn, 400, &err);
	} else {
		conn->server->handler(request, conn->server->arg);
	}
	if (conn->request)
		request_check_body(conn->request);
}

static void take_body(struct http_conn *conn, const char *data, size_t len)
{
	if (conn->request)
		return request_take_body(conn->request, data, len);
	conn->thrown += len;
	if (conn->thrown > HTTP_UNWANTED_MAX)
		conn->stage = CONN_FLUSH;
}

static void end_body(struct http_conn *conn)
{
	if (!conn->request)
		return next_request(conn);
	conn->stage = CONN_WAIT;
	conn->request->body_ended = true;
	request_check_body(conn->request);
}

/* Parses as far as the requests need it and returns how far that was. */
static size_t parse(struct http_conn *conn, const char *data, size_t len)
{
	struct http_piece piece;
	size_t used = 0;

	while (may_parse(conn)) {
		if (conn->ws)
			return used + ws_take(conn->ws, data + used, len - used);
		if (conn->tunnel)
			return used + tunnel_take(conn->tunnel, data + used, len - used);
		used += http_parse_next(&conn->parse, data + used, len - used, &piece);
		switch (piece.kind) {
		case HTTP_PIECE_MORE:
			return used;
		case HTTP_PIECE_HEAD:
			begin_request(conn);
			break;
		case HTTP_PIECE_BODY:
			take_body(conn, piece.data, piece.len);
			break;
		case HTTP_PIECE_END:
			end_body(conn);
			break;
		case HTTP_PIECE_BAD:
			conn_refuse(conn, piece.status, &piece.why);
			break;
		}
	}
	return used;
}

/* ---- going on ------------------------------------------------------------------------------- */

/* The client sends no more, and everything it sent was parsed as far as possible. */
static void settle_eof(struct http_conn *conn)
{
	if (!may_parse(conn)) {
		conn->broken |= conn->stage == CONN_LINGER;
		return;
	}
	if (conn->tunnel)
		tunnel_tell_eof(conn->tunnel); /* the other direction may continue */
	else if (conn->request || conn->ws)
		conn->broken = true; /* ended in the middle of a body, or without a closing frame */
	else
		conn->stage = CONN_FLUSH;
}

static bool is_between_requests(const struct http_conn *conn)
{
	return conn->parse.state == HTTP_PARSE_HEAD && !http_parse_in_head(&conn->parse) &&
	       !conn->in.len;
}

static void shut(struct http_conn *conn)
{
	if (conn->ssl)
		tls_shut(conn);
	shutdown(conn->fd, SHUT_WR);
}

static bool is_tcp(enum http_transport transport)
{
	return transport == HTTP_TRANSPORT_TCP || transport == HTTP_TRANSPORT_TLS;
}

static void begin_linger(struct http_conn *conn)
{
	/* A body without a length ends with the connection: only a reset tells the client that it
	 * was cut. */
	if (conn->cut && is_tcp(conn->transport) && !conn->parse.head.minor)
		setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
			sizeof(struct linger));
	if (conn->cut || conn->eof || is_between_requests(conn)) {
		conn->broken = true;
		return;
	}
	shut(conn);
	buf_done(&conn->in);
	conn->stage = CONN_LINGER;
	conn->thrown = 0;
	conn->out_since = http_now_ms();
}

static void settle(struct http_conn *conn)
{
	if (conn->dead)
		return;
	if (conn->ws && ws_is_over(conn->ws)) {
		conn->stage = CONN_FLUSH;
		ws_gone(conn->ws);
	}
	if (conn->eof && !conn->broken)
		settle_eof(conn);
	if (conn->tunnel && tunnel_wants_shut(conn->tunnel))
		shut(conn);
	if (conn->tunnel && tunnel_is_over(conn->tunnel))
		conn->broken = true;
	if (conn->server->stopping && conn->stage == CONN_HEAD && is_between_requests(conn))
		conn->stage = CONN_FLUSH;
	if (conn->stage == CONN_FLUSH && !conn->out.len && !conn->broken)
		begin_linger(conn);
	if (conn->broken)
		return conn_end(conn);
	if (!conn->in.len && conn->in.cap > HTTP_BUFFER_KEPT)
		buf_done(&conn->in);
	conn_update_watch(conn);
}

static void take_input(struct http_conn *conn, const char *data, size_t len)
{
	size_t used;

	conn->in_since = http_now_ms();
	if (conn->stage == CONN_HEAD && is_between_requests(conn))
		conn->head_since = conn->in_since;
	if (conn->stage == CONN_LINGER) {
		conn->thrown += len;
		conn->broken |= conn->thrown > HTTP_LINGER_MAX;
		return;
	}
	used = conn->in.len ? 0 : parse(conn, data, len);
	if (conn->stage != CONN_FLUSH && !conn->dead)
		buf_add(&conn->in, data + used, len - used);
}

/* Data that was read may have to wait in memory for its receiver, so with many connections less is
 * read at once. */
static size_t read_size(const struct http_server *server)
{
	size_t share = HTTP_READ_ALL / MAX(http_server_get_connections(server), 1u);

	return MAX(MIN(share, HTTP_READ_SIZE), HTTP_READ_MIN);
}

static void on_readable(struct http_conn *conn)
{
	size_t most = read_size(conn->server);
	ssize_t got = conn->ssl ? tls_read(conn, conn->server->scratch, most)
				: read(conn->fd, conn->server->scratch, most);

	if (got > 0)
		take_input(conn, conn->server->scratch, (size_t)got);
	else if (got == 0)
		conn->eof = true;
	else if (errno != EAGAIN && errno != EINTR)
		conn->broken = true;
}

/* Between conn_enter and conn_leave. */
static void advance(struct http_conn *conn)
{
	bool told = true;

	if (conn->more && wants_read(conn))
		on_readable(conn);
	for (int round = 0; told && round < ADVANCE_ROUNDS; round++) {
		if (conn->request && !conn->broken)
			request_check_body(conn->request);
		/* Called also without input: an empty body ends without a byte. */
		buf_eat(&conn->in,
			parse(conn, conn->in.len ? (const char *)buf_head(&conn->in) : "",
				conn->in.len));
		conn_flush(conn);
		told = tell_drain(conn);
	}
	if (told)
		conn_schedule(conn); /* others first */
	settle(conn);
}

void conn_advance(struct http_conn *conn)
{
	conn_enter(conn);
	advance(conn);
	conn_leave(conn);
}

void conn_schedule(struct http_conn *conn)
{
	struct http_server *server = conn->server;

	if (conn->scheduled || conn->dead)
		return;
	conn->scheduled = true;
	conn->work_next = server->work;
	server->work = conn;
	server_schedule(server);
}

void conn_run_scheduled(struct http_conn *conn)
{
	conn->scheduled = false;
	if (!conn->dead)
		conn_advance(conn);
	else if (!conn->depth)
		conn_free(conn);
}

/* ---- events --------------------------------------------------------------------------------- */

static void on_ready(void *arg, unsigned ready)
{
	struct http_conn *conn = arg;

	conn_enter(conn);
	if (ready & LOOP_HANGUP)
		conn->broken = true;
	if (ready & LOOP_WRITE)
		conn->blocked = false;
	if (ready & LOOP_READ || (ready & LOOP_WRITE && conn->stalled))
		on_readable(conn);
	advance(conn);
	conn_leave(conn);
}

static void refuse_late(struct http_conn *conn, const char *what)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "%s", what);
	conn_enter(conn);
	conn_refuse(conn, 408, &err);
	advance(conn);
	conn_leave(conn);
}

void conn_tick(struct http_conn *conn, int64_t now)
{
	const struct http_limits *limits = &conn->server->limits;

	if (conn->out.len && now - conn->out_since > limits->write)
		return conn_end(conn);
	switch (conn->stage) {
	case CONN_HEAD:
		if (http_parse_in_head(&conn->parse) && now - conn->head_since > limits->head)
			refuse_late(conn, "the request's head took too long");
		else if (now - conn->head_since > (conn->fresh ? limits->head : limits->idle) &&
			 !conn->out.len)
			conn_end(conn);
		break;
	case CONN_BODY:
		if (!may_parse(conn) || now - conn->in_since <= limits->body)
			break;
		if (conn->request)
			refuse_late(conn, "the request's body took too long");
		else
			conn_end(conn);
		break;
	case CONN_SOCKET:
		if (conn->ws)
			ws_tick(conn->ws, now);
		break;
	case CONN_LINGER:
		if (now - conn->out_since > limits->linger)
			conn_end(conn);
		break;
	case CONN_WAIT:
	case CONN_FLUSH:
		break;
	}
}

/* ---- new ------------------------------------------------------------------------------------ */

static void set_tcp_options(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 15 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 15 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 4 },
	};

	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			sizeof options[i].value);
}

struct http_conn *conn_new(
	struct http_server *server, int fd, enum http_transport transport, struct http_tls *tls)
{
	struct http_conn *conn = xnew(struct http_conn);
	struct ucred peer = { .uid = (uid_t)-1 };

	conn->server = server;
	conn->fd = fd;
	conn->transport = transport;
	conn->fresh = true;
	conn->head_since = conn->in_since = http_now_ms();
	if (tls)
		conn->ssl = tls_accept(tls, fd);
	if (is_tcp(transport))
		set_tcp_options(fd);
	else if (transport == HTTP_TRANSPORT_UNIX)
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){ sizeof peer });
	conn->uid = peer.uid;
	conn->watched = LOOP_READ;
	conn->watch = loop_fd_new(server->loop, fd, LOOP_READ, on_ready, conn);
	server_add_conn(server, conn);
	return conn;
}
