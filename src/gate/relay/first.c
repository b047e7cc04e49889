/* first.c - examines the client's first bytes, and HTTP requests
 *
 *   check    first bytes are                     otherwise
 *   TLS      a hello, whose name is checked      refused
 *   HTTP     a request; each is checked          refused
 *   FREE     either of them, checked likewise    passed on; a hello is searched in its first
 *                                                SCAN_MAX bytes
 *
 * Bytes that may still become one of them are held back until it is known, but with a deadline:
 * a client that sends the beginning of a hello and waits is disconnected, not let through. Where
 * any protocol is allowed, a few letters are passed on if nothing follows them for UNDECIDED_MS:
 * they may belong to another protocol, whose client waits for an answer. They are remembered: if
 * they turn out to be the beginning of a request or a hello, the rest is held back until it was
 * checked, so a pause gains nothing. Letters that follow such ones wait for UNDECIDED_AGAIN_MS
 * only: otherwise a dialogue of short words would take 150 ms per word.
 *
 * Many protocols begin in plain text and continue with TLS (PostgreSQL, SMTP, LDAP), and a byte
 * before a hello must not hide it. So bytes that began as neither are searched for a hello. */
#include "gate/relay/relay_internal.h"
#include "gate/relay/tls_hello.h"

#define H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum {
	UNDECIDED_MS = 150,
	UNDECIDED_AGAIN_MS = 5,
	TLS_HANDSHAKE = 22, /* first byte of a hello */
	HELLO_BEGIN = 11,   /* bytes that identify it: record, message, version */
	HELLO_TINY =
		6, /* the same when its first record is so small that the rest is in the next */
	SCAN_MAX = 64 * 1024,
};

static void refuse(struct relay *relay, const char *why)
{
	relay_end(relay, RELAY_END_REFUSED, why);
}

/* Whether the owner allows it; the relay may have been closed meanwhile. */
static bool is_allowed(struct relay *relay, const struct relay_seen *seen)
{
	return relay->ops->seen(relay->arg, seen) && !relay->ending;
}

/* ---- HTTP ----------------------------------------------------------------------------------- */

static bool allow_request(void *arg, const struct http_guard_request *request)
{
	struct relay_seen seen = { .kind = RELAY_SEEN_REQUEST,
		.name = request->host,
		.method = request->method,
		.path = request->path };

	return is_allowed(arg, &seen);
}

static const struct http_guard_ops guard_ops = { .allow = allow_request };

static void drop_guard(struct relay *relay)
{
	http_guard_free(relay->guard);
	relay->guard = NULL;
	relay->look = LOOK_NOT;
}

static void watch_requests(struct relay *relay, const uint8_t *data, size_t len)
{
	const char *why = http_guard_client(relay->guard, data, len, &relay->out.held);

	if (why) {
		refuse(relay, why);
		return;
	}
	if (relay->out.held.len) {
		size_t given = MIN(relay->first_given, relay->out.held.len);

		buf_eat(&relay->out.held, given);
		relay->first_given -= given;
		relay->first_by = 0;
		relay_want_server(relay);
	}
	if (http_guard_is_open(relay->guard))
		drop_guard(relay);
}

static void begin_http(struct relay *relay)
{
	relay->look = LOOK_HTTP;
	relay->guard = http_guard_new(&guard_ops, relay);
}

/* ---- TLS, or anything ----------------------------------------------------------------------- */

/* Passes on the rest of the first len bytes; they stay remembered. */
static void give(struct relay *relay, size_t len)
{
	if (len <= relay->first_given)
		return;
	buf_add(&relay->out.held, buf_head(&relay->first) + relay->first_given,
		len - relay->first_given);
	relay->first_given = len;
	relay_want_server(relay);
}

/* The first bytes are neither TLS nor HTTP. */
static void let_go(struct relay *relay, size_t len)
{
	give(relay, len);
	buf_eat(&relay->first, len);
	relay->first_given -= len;
}

static void pass(struct relay *relay)
{
	let_go(relay, relay->first.len);
	buf_done(&relay->first);
	relay->look = LOOK_NOT;
	relay->first_by = 0;
	relay_want_server(relay);
}

static void meet_hello(struct relay *relay, const struct tls_hello *hello, bool named)
{
	struct relay_seen seen = { .kind = named ? RELAY_SEEN_SNI : RELAY_SEEN_NO_SNI,
		.name = named ? hello->name : "",
		.ech = hello->has_ech };

	if (is_allowed(relay, &seen))
		pass(relay);
	else
		refuse(relay, named ? "TLS for another name" : "TLS without a name");
}

/* How many bytes identify a hello here, and whether the available ones match. */
static size_t hello_begin(const uint8_t *data, size_t len, bool *ret_fits)
{
	static const struct {
		uint8_t least, most;
	} bytes[HELLO_BEGIN] = { { TLS_HANDSHAKE, TLS_HANDSHAKE }, { 3, 3 }, { 0, 4 }, { 0, 255 },
		{ 0, 255 }, { 1, 1 }, { 0, 0 }, { 0, 255 }, { 0, 255 }, { 3, 3 }, { 0, 4 } };
	bool tiny = len >= 5 && !data[3] && data[4] < HELLO_TINY;
	size_t need = tiny ? HELLO_TINY : HELLO_BEGIN;

	*ret_fits = true;
	for (size_t i = 0; i < MIN(len, need) && *ret_fits; i++)
		*ret_fits = data[i] >= bytes[i].least && data[i] <= bytes[i].most;
	return need;
}

static bool begins_hello(const struct relay *relay)
{
	bool fits;
	size_t need = hello_begin(buf_head(&relay->first), relay->first.len, &fits);

	return fits && relay->first.len >= need;
}

static void skip_to_hello(struct relay *relay)
{
	const uint8_t *data = buf_head(&relay->first);
	size_t at = 0;
	bool fits = false;

	for (; at < relay->first.len; at++) {
		hello_begin(data + at, relay->first.len - at, &fits);
		if (fits)
			break;
	}
	let_go(relay, at);
}

static void scan(struct relay *relay)
{
	struct tls_hello hello = { 0 };

	for (skip_to_hello(relay); relay->first.len && begins_hello(relay); skip_to_hello(relay)) {
		enum tls_hello_result result =
			tls_hello_parse(buf_head(&relay->first), relay->first.len, &hello);

		if (result == TLS_HELLO_MORE) {
			/* A hello has its own deadline; before, a few bytes that might begin one
			 * were waited for. */
			relay->first_by = relay->in_hello ? relay->first_by : 0;
			relay->in_hello = true;
			return;
		}
		if (result == TLS_HELLO_NAMED || result == TLS_HELLO_UNNAMED) {
			meet_hello(relay, &hello, result == TLS_HELLO_NAMED);
			return;
		}
		let_go(relay, 1);
		relay->in_hello = false;
	}
	relay->first_by = 0;
	if (relay->first_seen >= SCAN_MAX)
		pass(relay);
}

static void meet_other(struct relay *relay)
{
	const uint8_t *data = buf_head(&relay->first);
	enum http_guess guess;

	if (relay->check == RELAY_TLS) {
		refuse(relay, "not TLS");
		return;
	}
	/* HTTP/2 without TLS (gRPC): nothing more can be checked. Where only HTTP/1 is allowed
	 * the guard refuses it. */
	if (relay->first.len >= strlen(H2_PREFACE) && !memcmp(data, H2_PREFACE, strlen(H2_PREFACE)))
		guess = HTTP_GUESS_NO;
	else
		guess = http_guess(data, relay->first.len);
	if (guess == HTTP_GUESS_NO) {
		relay->scans = true;
		scan(relay);
	}
	if (guess == HTTP_GUESS_YES) {
		struct buf first = relay->first;

		relay->first = (struct buf)BUF_INIT;
		relay->first_by = 0; /* a head has its own deadline */
		begin_http(relay);
		watch_requests(relay, buf_head(&first), first.len);
		buf_done(&first);
	}
}

static void judge_first(struct relay *relay)
{
	struct tls_hello hello = { 0 };
	enum tls_hello_result result;

	if (relay->scans) {
		scan(relay);
		return;
	}
	result = tls_hello_parse(buf_head(&relay->first), relay->first.len, &hello);
	switch (result) {
	case TLS_HELLO_NAMED:
	case TLS_HELLO_UNNAMED:
		meet_hello(relay, &hello, result == TLS_HELLO_NAMED);
		break;
	case TLS_HELLO_BROKEN:
		refuse(relay, "broken TLS hello");
		break;
	case TLS_HELLO_OTHER:
		meet_other(relay);
		break;
	case TLS_HELLO_MORE:
		break;
	}
}

/* ---- called by the flows -------------------------------------------------------------------- */

void relay_first_begin(struct relay *relay)
{
	if (relay->check == RELAY_BLIND || relay->check == RELAY_FREE)
		relay_want_server(relay);
	else
		relay_start_first(relay, relay->hub->first_ms);
	if (relay->check == RELAY_HTTP)
		begin_http(relay);
	else if (relay->check != RELAY_BLIND)
		relay->look = LOOK_FIRST;
}

/* Whether bytes are held back that are passed on if nothing follows them. */
static bool is_undecided(const struct relay *relay)
{
	if (relay->check != RELAY_FREE || relay->look != LOOK_FIRST || !relay->first.len)
		return false;
	return relay->scans ? !begins_hello(relay) : buf_head(&relay->first)[0] != TLS_HANDSHAKE;
}

static unsigned undecided_ms(const struct relay *relay)
{
	return relay->first_given ? UNDECIDED_AGAIN_MS : UNDECIDED_MS;
}

/* Whether anything is held back. */
static bool waits(const struct relay *relay)
{
	if (relay->look == LOOK_FIRST)
		return relay->first.len > relay->first_given;
	return relay->look == LOOK_HTTP && !relay->out.held.len;
}

void relay_first_client(struct relay *relay, const uint8_t *data, size_t len)
{
	if (relay->look == LOOK_HTTP) {
		watch_requests(relay, data, len);
		return;
	}
	buf_add(&relay->first, data, len);
	relay->first_seen += len;
	judge_first(relay);
	if (!relay->ending && waits(relay) && !relay->first_by)
		relay_start_first(
			relay, is_undecided(relay) ? undecided_ms(relay) : relay->hub->first_ms);
}

void relay_first_late(struct relay *relay)
{
	if (is_undecided(relay)) {
		relay->first_by = 0;
		give(relay, relay->first.len);
		if (relay->server.connected)
			relay_flow_move(relay, &relay->out);
	} else {
		relay_end(relay, RELAY_END_TIMEOUT, "the first bytes did not come in time");
	}
}

void relay_first_ended(struct relay *relay)
{
	/* An incomplete hello or request has no effect, so it may be passed on where any
	 * protocol is allowed. Where only TLS or HTTP are, nothing was dialled yet. */
	if (relay->look == LOOK_FIRST && relay->check == RELAY_FREE)
		pass(relay);
	else if (relay->look != LOOK_NOT && !relay->wants_server)
		refuse(relay, relay->check == RELAY_TLS ? "ended without a TLS hello"
							: "ended without a request");
}

void relay_first_server(struct relay *relay, const uint8_t *data, size_t len)
{
	const char *why = http_guard_server(relay->guard, data, len, &relay->out.held);

	if (why)
		refuse(relay, why);
	else if (http_guard_is_open(relay->guard))
		drop_guard(relay);
}
