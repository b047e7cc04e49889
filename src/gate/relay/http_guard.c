/* http_guard.c - see http_guard.h
 *
 *   HEAD -- it is whole, read and allowed --> LENGTH, a body -----------------> HEAD
 *                                         --> SIZE <-> DATA, the last chunk --> HEAD
 *                                         --> ANSWER, not 101 ----------------> HEAD
 *                                             ANSWER, 101 --------------------> OPEN
 *
 * A head is gathered in held only when it comes in pieces. Bodies pass as they come: each byte of a
 * chunk's framing is checked before it goes on. Of the many things chunks may carry (extensions,
 * trailers, spaces, leading zeros without end) none is allowed: no client needs them, and servers
 * disagree about each. */
#include "gate/relay/http_guard_internal.h"
#include <ctype.h>

enum {
	CHUNK_DIGITS_MAX = 8, /* 4 GiB; some clients write all eight */
	STATUS_LEN = 12,      /* "HTTP/1.1 101" */
	KEEP_MAX = 4096,      /* of a buffer that is not needed now */
};

enum state {
	HEAD,
	LENGTH,	 /* a body of left bytes */
	SIZE,	 /* digits of a chunk's size */
	SIZE_LF, /* behind the CR */
	DATA,	 /* left bytes of a chunk */
	DATA_CR,
	DATA_LF,
	LAST_CR, /* of the empty line behind the last chunk */
	LAST_LF,
	ANSWER,
	OPEN,
	CUT,
};

struct answer {
	char status[STATUS_LEN];
	size_t status_len;
	bool has_status; /* its first line is complete */
	size_t line;	 /* bytes of this line */
	size_t len;	 /* of all heads */
};

struct http_guard {
	const struct http_guard_ops *ops;
	void *arg;
	enum state state;
	const char *why;      /* CUT */
	struct buf held;      /* HEAD: the part received so far; ANSWER: what follows */
	size_t line;	      /* HEAD: bytes of the incomplete line */
	bool is_cr;	      /* HEAD: the last byte was CR */
	bool offers_h2;	      /* in the request whose answer is pending */
	bool is_later;	      /* not the first request */
	unsigned digits;      /* SIZE */
	uint64_t left;	      /* LENGTH, SIZE, DATA */
	struct answer answer; /* ANSWER */
};

struct input {
	const uint8_t *at;
	size_t len;
};

struct http_guard *http_guard_new(const struct http_guard_ops *ops, void *arg)
{
	struct http_guard *guard = xnew(struct http_guard);

	guard->ops = ops;
	guard->arg = arg;
	return guard;
}

void http_guard_free(struct http_guard *guard)
{
	if (!guard)
		return;
	buf_done(&guard->held);
	free(guard);
}

static const char *cut(struct http_guard *guard, const char *why)
{
	guard->state = CUT;
	guard->why = why;
	buf_done(&guard->held);
	return why;
}

static void pass(struct input *input, size_t len, struct buf *out)
{
	buf_add(out, input->at, len);
	input->at += len;
	input->len -= len;
}

/* ---- heads ---------------------------------------------------------------------------------- */

/* How much of the input belongs to the head. Stops after its empty line (*ret_whole), else all
 * of it was scanned. */
static const char *measure(
	struct http_guard *guard, const struct input *input, size_t *ret_len, bool *ret_whole)
{
	size_t room = HTTP_GUARD_HEAD_MAX - guard->held.len, at = 0;

	*ret_whole = false;
	while (at < input->len && at <= room && !*ret_whole) {
		const uint8_t *from = input->at + at;
		const uint8_t *lf = memchr(from, '\n', MIN(input->len, room) - at);
		size_t len = lf ? (size_t)(lf - from) : MIN(input->len, room) - at;
		bool is_cr = len ? from[len - 1] == '\r' : guard->is_cr;

		if (!lf && input->len > room)
			return "head too long";
		if (lf && !is_cr)
			return "smuggling: LF without CR";
		*ret_whole = lf && guard->line + len == 1;
		guard->line = lf ? 0 : guard->line + len;
		guard->is_cr = !lf && is_cr;
		at += len + (lf != NULL);
	}
	*ret_len = at;
	return NULL;
}

static void begin_body(struct http_guard *guard, const struct http_head *head)
{
	guard->left = head->length;
	guard->digits = 0;
	guard->state = head->request.upgrade ? ANSWER
		       : head->is_chunked    ? SIZE
		       : head->length	     ? LENGTH
					     : HEAD;
}

static const char *judge(struct http_guard *guard, const uint8_t *text, size_t len)
{
	struct http_head head;
	const char *why = http_head_read((const char *)text, len, &head);

	if (why)
		return why;
	if (head.request.upgrade && guard->is_later)
		why = "upgrade on a connection that was used before";
	else if (!guard->ops->allow(guard->arg, &head.request))
		why = "request refused";
	guard->is_later = true;
	guard->offers_h2 = head.offers_h2;
	begin_body(guard, &head);
	http_head_done(&head);
	return why;
}

static const char *take_head(struct http_guard *guard, struct input *input, struct buf *out)
{
	struct buf *held = &guard->held;
	bool is_whole;
	size_t len;
	const char *why = measure(guard, input, &len, &is_whole);

	if (why)
		return why;
	if (is_whole && !held->len) { /* the common case: no copy */
		why = judge(guard, input->at, len);
		if (!why)
			pass(input, len, out);
		return why;
	}
	pass(input, len, held);
	if (!is_whole)
		return NULL;
	why = judge(guard, buf_head(held), held->len);
	if (why)
		return why;
	buf_add(out, buf_head(held), held->len);
	buf_eat(held, held->len);
	if (held->cap > KEEP_MAX)
		buf_done(held);
	return NULL;
}

/* ---- bodies --------------------------------------------------------------------------------- */

static void ate(struct http_guard *guard, uint64_t len)
{
	guard->left -= len;
	if (!guard->left)
		guard->state = guard->state == LENGTH ? HEAD : DATA_CR;
}

static void take_plain(struct http_guard *guard, struct input *input, struct buf *out)
{
	size_t len = MIN((uint64_t)input->len, guard->left);

	pass(input, len, out);
	ate(guard, len);
}

static const char *take_digit(struct http_guard *guard, uint8_t c)
{
	if (c == '\r' && guard->digits) {
		guard->state = SIZE_LF;
		return NULL;
	}
	if (c == ';')
		return "smuggling: chunk extension";
	if (!isxdigit(c))
		return "smuggling: bad chunk size";
	if (guard->digits++ == CHUNK_DIGITS_MAX)
		return "smuggling: chunk size too long";
	guard->left = guard->left << 4 | (unsigned)(isdigit(c) ? c - '0' : (c | 32) - 'a' + 10);
	return NULL;
}

/* Bytes that are fixed by the syntax. */
static const struct {
	uint8_t byte;
	enum state next;
	const char *why;
} framing[] = {
	[SIZE_LF] = { '\n', DATA, "smuggling: CR without LF in a chunk's size" },
	[DATA_CR] = { '\r', DATA_LF, "smuggling: chunk longer than its size" },
	[DATA_LF] = { '\n', SIZE, "smuggling: CR without LF behind a chunk" },
	[LAST_CR] = { '\r', LAST_LF, "smuggling: trailer" },
	[LAST_LF] = { '\n', HEAD, "smuggling: CR without LF behind the last chunk" },
};

static const char *take_framing(struct http_guard *guard, struct input *input, struct buf *out)
{
	enum state state = guard->state;
	const char *why = NULL;

	if (state == SIZE)
		why = take_digit(guard, input->at[0]);
	else if (input->at[0] != framing[state].byte)
		why = framing[state].why;
	else
		guard->state = framing[state].next;
	if (why)
		return why;
	if (state == SIZE_LF) {
		guard->digits = 0;
		if (!guard->left)
			guard->state = LAST_CR;
	}
	pass(input, 1, out);
	return NULL;
}

/* ---- the client ----------------------------------------------------------------------------- */

static const char *hold(struct http_guard *guard, struct input *input)
{
	if (input->len > HTTP_GUARD_HEAD_MAX - guard->held.len)
		return "too much behind an upgrade that is not answered yet";
	pass(input, input->len, &guard->held);
	return NULL;
}

const char *http_guard_client(
	struct http_guard *guard, const uint8_t *data, size_t len, struct buf *out)
{
	struct input input = { data, len };
	const char *why = NULL;

	while (input.len && !why) {
		switch (guard->state) {
		case HEAD:
			why = take_head(guard, &input, out);
			break;
		case LENGTH:
		case DATA:
			take_plain(guard, &input, out);
			break;
		case ANSWER:
			why = hold(guard, &input);
			break;
		case OPEN:
			pass(&input, input.len, out);
			break;
		case CUT:
			return guard->why;
		default:
			why = take_framing(guard, &input, out);
		}
	}
	return why ? cut(guard, why) : guard->why;
}

bool http_guard_wants(const struct http_guard *guard)
{
	return guard->state != ANSWER && guard->state != CUT;
}

bool http_guard_is_open(const struct http_guard *guard)
{
	return guard->state == OPEN;
}

uint64_t http_guard_plain(const struct http_guard *guard)
{
	return guard->state == LENGTH || guard->state == DATA ? guard->left : 0;
}

void http_guard_skip(struct http_guard *guard, uint64_t len)
{
	assert(len <= http_guard_plain(guard));
	if (len)
		ate(guard, len);
}

/* ---- the server ----------------------------------------------------------------------------- */

static bool is_status(const char *line, size_t len)
{
	return len == STATUS_LEN && !memcmp(line, "HTTP/1.", 7) && isdigit((uint8_t)line[7]) &&
	       line[8] == ' ' && isdigit((uint8_t)line[9]) && isdigit((uint8_t)line[10]) &&
	       isdigit((uint8_t)line[11]);
}

/* Handles one byte of an answer's head. True: the head is complete. It goes to the client in any
 * case, so CR is ignored. */
static bool answer_byte(struct answer *answer, char c)
{
	bool is_empty = !answer->line;

	answer->len++;
	if (c == '\r')
		return false;
	answer->line = c == '\n' ? 0 : answer->line + 1;
	if (answer->has_status)
		return c == '\n' && is_empty;
	if (c == '\n')
		answer->has_status = true;
	else if (answer->status_len < STATUS_LEN)
		answer->status[answer->status_len++] = c;
	return false;
}

/* Handles a complete head of an answer. Interim ones decide nothing. */
static const char *take_answer(struct http_guard *guard, struct buf *out)
{
	struct answer *answer = &guard->answer;
	bool is_switch = !memcmp(answer->status + 9, "101", 3);
	struct buf held = guard->held;
	const char *why = NULL;

	answer->has_status = false;
	answer->status_len = 0;
	if (answer->status[9] == '1' && !is_switch)
		return NULL;
	if (is_switch && guard->offers_h2)
		return "upgrade to HTTP/2";
	guard->held = (struct buf)BUF_INIT;
	guard->state = is_switch ? OPEN : HEAD;
	if (is_switch)
		buf_add(out, buf_head(&held), held.len);
	else
		why = http_guard_client(guard, buf_head(&held), held.len, out);
	buf_done(&held);
	return why;
}

const char *http_guard_server(
	struct http_guard *guard, const uint8_t *data, size_t len, struct buf *out)
{
	struct answer *answer = &guard->answer;
	const char *why = NULL;

	for (size_t i = 0; i < len && guard->state == ANSWER && !why; i++) {
		bool is_whole = answer_byte(answer, (char)data[i]);

		if (answer->has_status && !is_status(answer->status, answer->status_len))
			why = "the answer to an upgrade is not HTTP";
		else if (answer->len > HTTP_GUARD_HEAD_MAX)
			why = "the answer to an upgrade is too long";
		else if (is_whole)
			why = take_answer(guard, out);
	}
	return why ? cut(guard, why) : guard->why;
}

bool http_guard_watches_server(const struct http_guard *guard)
{
	return guard->state == ANSWER;
}
