/* inside.c - requests from inside a box, and their answers; see inside.h
 *
 * A request is an `ask`. It outlives the link, because every capture breaks that: box-init sends it
 * again, with the same number, and answers go out where they stopped. Answers go one piece at a
 * time; the next is sent when box-init says that the program inside took it, and the window of a
 * program whose output is passed on is given back then.
 *
 * box-init is as hostile as its box: asks are counted, and what it says about them is only ever a
 * number and words. */
#include "core/inside_internal.h"
#include "base/strv.h"
#include "base/text.h"
#include "loop/loop.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

enum {
	ASKS_MAX = 16,	    /* at work at once */
	ASKS_HELD_MAX = 64, /* with those that are only told they are too many */
	RETRY_MS = 50,
};

/* Bytes on their way to whoever asked. */
struct piece {
	enum wire_answer_kind kind;
	uint32_t code;
	uint8_t *data;
	size_t len;
	bool relayed; /* comes from a program, and counts in its window */
	struct piece *next;
};

static uint64_t last_serial;

struct inside *box_inside(struct box *box)
{
	if (!box->inside)
		box->inside = xnew(struct inside);
	return box->inside;
}

/* ---- the end of an ask ---------------------------------------------------------------------- */

static void piece_free(struct piece *piece)
{
	free(piece->data);
	free(piece);
}

static void ask_free(struct ask *ask)
{
	struct inside *inside = ask->box->inside;

	for (struct ask **at = &inside->asks; *at; at = &(*at)->next)
		if (*at == ask) {
			*at = ask->next;
			inside->count--;
			break;
		}
	if (ask->answer)
		chan_close(ask->answer);
	exec_close(ask->exec);
	while (ask->pieces) {
		struct piece *piece = ask->pieces;

		ask->pieces = piece->next;
		piece_free(piece);
	}
	strv_free(ask->words);
	free(ask);
}

/* Whoever asked is gone: a program in a child that runs for him is ended, as by a closed
 * terminal. */
static void ask_cancel(struct ask *ask)
{
	if (ask->exec)
		exec_signal(ask->exec, SIGTERM);
	ask_free(ask);
}

void inside_forget(struct box *box)
{
	while (box->inside && box->inside->asks)
		ask_free(box->inside->asks);
}

void inside_free(struct box *box)
{
	if (!box->inside)
		return;
	identity_drop(box);
	inside_forget(box);
	loop_timer_free(box->inside->retry);
	free(box->inside);
	box->inside = NULL;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void ask_pump(struct ask *ask);

static void on_answer_closed(struct chan *chan, void *arg)
{
	struct ask *ask = arg;
	struct piece *piece = ask->pieces;

	(void)chan;
	ask->answer = NULL;
	ask->number++;
	ask->pieces = piece->next;
	if (piece->relayed && ask->exec)
		exec_consumed(ask->exec, piece->len);
	piece_free(piece);
	if (!ask->pieces && ask->over)
		ask_free(ask);
	else
		ask_pump(ask);
}

static void on_answer_error(struct chan *chan, const struct err *err, void *arg)
{
	struct ask *ask = arg;

	(void)chan;
	ask->answer = NULL;
	/* Without a link it waits for the next one. */
	if (err->kind != ERR_UNAVAILABLE)
		ask_cancel(ask);
}

static void on_retry(void *arg)
{
	inside_pump(arg);
}

static void ask_pump(struct ask *ask)
{
	static const struct chan_ops ops = { .on_closed = on_answer_closed,
		.on_error = on_answer_error };
	struct box *box = ask->box;
	const struct piece *piece = ask->pieces;
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (!piece || ask->answer || !box->link || !box->link_ready || box->inside->telling)
		return;
	wire_put_answer(&request, &(struct wire_answer){ .id = ask->id,
					  .number = ask->number,
					  .kind = piece->kind,
					  .code = piece->code,
					  .data = piece->data,
					  .len = (uint32_t)piece->len });
	ask->answer = chan_open(box->link, WIRE_OP_ANSWER, &request, &ops, ask, &err);
	buf_done(&request);
	if (ask->answer || err.kind != ERR_LIMIT)
		return;
	/* Its box-init is slow to read; nobody tells when that changes. */
	if (!box->inside->retry)
		box->inside->retry = loop_timer_new(box->yard->loop, on_retry, box);
	loop_timer_start(box->inside->retry, RETRY_MS);
}

void inside_pump(struct box *box)
{
	for (struct ask *ask = box->inside ? box->inside->asks : NULL; ask; ask = ask->next)
		ask_pump(ask);
}

static void add_piece(struct ask *ask, enum wire_answer_kind kind, uint32_t code, const void *data,
	size_t len, bool relayed)
{
	struct piece *piece = xnew(struct piece), **at = &ask->pieces;

	*piece = (struct piece){ .kind = kind,
		.code = code,
		.data = len ? xmemdup(data, len) : NULL,
		.len = len,
		.relayed = relayed };
	while (*at)
		at = &(*at)->next;
	*at = piece;
}

static void add_bytes(
	struct ask *ask, enum wire_answer_kind kind, const void *data, size_t len, bool relayed)
{
	const uint8_t *bytes = data;

	if (ask->over)
		return;
	while (len) {
		size_t part = MIN(len, (size_t)WIRE_ANSWER_MAX);

		add_piece(ask, kind, 0, bytes, part, relayed);
		bytes += part;
		len -= part;
	}
	ask_pump(ask);
}

void ask_out(struct ask *ask, const void *data, size_t len)
{
	add_bytes(ask, WIRE_ANSWER_OUT, data, len, false);
}

void ask_relay(struct ask *ask, enum exec_stream stream, const void *data, size_t len)
{
	add_bytes(ask, stream == EXEC_STDERR ? WIRE_ANSWER_ERR : WIRE_ANSWER_OUT, data, len, true);
}

void ask_outf(struct ask *ask, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		text = NULL;
	va_end(args);
	if (text)
		ask_out(ask, text, strlen(text));
}

void ask_json(struct ask *ask, const json_t *value)
{
	_cleanup_free_ char *text = json_dumps(value, JSON_INDENT(2));

	if (text)
		ask_outf(ask, "%s\n", text);
}

void ask_done(struct ask *ask, int code)
{
	if (ask->over)
		return;
	add_piece(ask, WIRE_ANSWER_DONE, (uint32_t)(code & 255), NULL, 0, false);
	ask->over = true;
	ask_pump(ask);
}

void ask_fail(struct ask *ask, const struct err *err)
{
	_cleanup_free_ char *text = xasprintf("box: %s%s%s%s\n", err->message,
		*err->hint ? " (" : "", err->hint, *err->hint ? ")" : "");

	add_bytes(ask, WIRE_ANSWER_ERR, text, strlen(text), false);
	ask_done(ask, err_kind_exit_code(err->kind));
}

/* A box does not name itself, and has few of the commands there are outside. */
static void advise(const struct box *box, struct err *err)
{
	static const char *const own[] = { "timeline", "snapshot" };
	_cleanup_free_ char *hint = xstrdup(err->hint);

	if (!strstr(hint, "'box ") || strstr(hint, "from outside"))
		return;
	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		_cleanup_free_ char *named = xasprintf("'box %s %s'", own[i], box->row.name);

		if (text_has_prefix(hint, named)) {
			err_hint(err, "'box %s'%s", own[i], hint + strlen(named));
			return;
		}
	}
	if (err->kind == ERR_EXISTS)
		err_hint(err, "choose another name");
	else
		err_hint(err, "from outside: %s", hint);
}

void ask_fail_outer(struct ask *ask, const struct err *err)
{
	struct err told = *err;

	advise(ask->box, &told);
	ask_fail(ask, &told);
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct ask *ask_find(struct box *box, uint64_t id)
{
	for (struct ask *ask = box->inside->asks; ask; ask = ask->next)
		if (ask->id == id)
			return ask;
	return NULL;
}

static struct ask *ask_new(struct box *box, const struct wire_request *request)
{
	struct ask *ask = xnew(struct ask), **at = &box->inside->asks;

	ask->box = box;
	ask->id = request->id;
	ask->serial = ++last_serial;
	ask->words = strv_copy(request->words);
	while (*at)
		at = &(*at)->next;
	*at = ask;
	box->inside->count++;
	return ask;
}

void inside_request(struct box *box, const struct wire_request *request)
{
	struct inside *inside = box_inside(box);
	struct ask *ask = ask_find(box, request->id);
	bool new_to_us = inside->links > 1 && request->id > inside->seen;
	struct yard *yard = box->yard;
	const struct asker *before;
	struct err err = ERR_INIT;
	struct asker asker;

	/* A box that does not know yet who it is speaks of another's requests; it asks again when
	 * it does. */
	if (inside->telling || box->spare)
		return;
	if (!request->words[0]) {
		if (ask)
			ask_cancel(ask);
		return;
	}
	/* At work on it already; or box-init counts wrong, which is its box's misfortune. */
	if (ask || inside->count >= ASKS_HELD_MAX)
		return;
	ask = ask_new(box, request);
	inside->seen = MAX(inside->seen, request->id);
	if (inside->count > ASKS_MAX) {
		err_set(&err, ERR_LIMIT, "this box asks for %d things already", ASKS_MAX);
		ask_fail(ask, &err);
		return;
	}
	asker_of_box(&asker, box);
	before = yard_set_asker(yard, &asker);
	inside_do(ask, request->again && !new_to_us);
	yard_set_asker(yard, before);
}

void inside_link_ready(struct box *box)
{
	box_inside(box)->links++;
	inside_pump(box);
}

/* ---- errands -------------------------------------------------------------------------------- */

struct errand *errand_new(struct ask *ask)
{
	struct errand *errand = xnew(struct errand);

	errand->yard = ask->box->yard;
	snprintf(errand->box, sizeof errand->box, "%s", ask->box->row.id);
	errand->serial = ask->serial;
	return errand;
}

struct ask *errand_find(const struct errand *errand)
{
	struct box *box = box_find(errand->yard, errand->box, NULL);

	for (struct ask *ask = box && box->inside ? box->inside->asks : NULL; ask; ask = ask->next)
		if (ask->serial == errand->serial)
			return ask;
	return NULL;
}
