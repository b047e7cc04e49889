/* ask.c - requests from inside a box, and their answers; see ask.h
 *
 * An ask outlives the link, because every capture breaks that: box-init sends it again, with the
 * same number, and answers go out where they stopped. Answers go one piece at a time; the next is
 * sent when box-init says that the program inside took it.
 *
 * box-init is as hostile as its box: asks are counted, and what it says about them is only ever a
 * number and words. */
#include "core/ask.h"
#include "core/core_internal.h"
#include "base/strv.h"
#include "loop/loop.h"

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

struct ask {
	struct box *box;
	uint64_t id;	 /* box-init's */
	uint64_t serial; /* ours, for those who come back later */
	char **words;
	uint64_t number;      /* of the next answer */
	struct piece *pieces; /* answers that are not given yet */
	struct chan *answer;  /* the first of them is under way */
	bool over;	      /* the last piece is in the list */
	bool served;	      /* the door has it */
	void *data;	      /* the door's */
	struct ask *next;
};

struct asks {
	struct ask *first;
	unsigned count;
	uint64_t seen;	/* the highest number of a request */
	unsigned links; /* connections to its box-init this daemon had */
	struct loop_timer *retry;
};

static uint64_t last_serial;

static struct asks *asks_of(struct box *box)
{
	if (!box->asks)
		box->asks = xnew(struct asks);
	return box->asks;
}

static struct ask *first_of(const struct box *box)
{
	return box->asks ? box->asks->first : NULL;
}

/* ---- the end of an ask ---------------------------------------------------------------------- */

static void piece_free(struct piece *piece)
{
	free(piece->data);
	free(piece);
}

static void ask_free(struct ask *ask, enum ask_end end)
{
	struct asks *asks = ask->box->asks;
	const struct ask_door *door = &ask->box->yard->ask_door;

	for (struct ask **at = &asks->first; *at; at = &(*at)->next)
		if (*at == ask) {
			*at = ask->next;
			asks->count--;
			break;
		}
	if (ask->answer)
		chan_close(ask->answer);
	if (ask->served)
		door->ops->gone(ask, end, door->arg);
	while (ask->pieces) {
		struct piece *piece = ask->pieces;

		ask->pieces = piece->next;
		piece_free(piece);
	}
	strv_free(ask->words);
	free(ask);
}

void asks_forget(struct box *box)
{
	while (first_of(box))
		ask_free(first_of(box), ASK_OVER);
}

void asks_start_anew(struct box *box)
{
	asks_forget(box);
	asks_of(box)->seen = 0;
}

void asks_free(struct box *box)
{
	if (!box->asks)
		return;
	asks_forget(box);
	loop_timer_free(box->asks->retry);
	free(box->asks);
	box->asks = NULL;
}

void asks_serve(struct yard *yard, const struct ask_ops *ops, void *arg)
{
	for (size_t i = 0; !ops && i < yard->box_count; i++)
		asks_forget(yard->boxes[i]);
	yard->ask_door = (struct ask_door){ .ops = ops, .arg = arg };
}

/* ---- answers -------------------------------------------------------------------------------- */

static void ask_pump(struct ask *ask);

static void on_answer_closed(struct chan *chan, void *arg)
{
	struct ask *ask = arg;
	const struct ask_door *door = &ask->box->yard->ask_door;
	struct piece *piece = ask->pieces;

	(void)chan;
	ask->answer = NULL;
	ask->number++;
	ask->pieces = piece->next;
	if (piece->relayed)
		door->ops->relayed(ask, piece->len, door->arg);
	piece_free(piece);
	if (!ask->pieces && ask->over)
		ask_free(ask, ASK_OVER);
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
		ask_free(ask, ASK_CANCELLED);
}

static void on_retry(void *arg)
{
	asks_pump(arg);
}

static void ask_pump(struct ask *ask)
{
	static const struct chan_ops ops = { .on_closed = on_answer_closed,
		.on_error = on_answer_error };
	struct box *box = ask->box;
	const struct piece *piece = ask->pieces;
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (!piece || ask->answer || !box->link || !box->link_ready || box->telling)
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
	if (!box->asks->retry)
		box->asks->retry = loop_timer_new(box->yard->loop, on_retry, box);
	loop_timer_start(box->asks->retry, RETRY_MS);
}

void asks_pump(struct box *box)
{
	for (struct ask *ask = first_of(box); ask; ask = ask->next)
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

void ask_event(struct ask *ask, const char *type, json_t *data)
{
	if (box_event_allowed(ask->box))
		yard_event(ask->box->yard, type, ask->box, data);
	else
		json_decref(data);
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct ask *find_by_id(struct box *box, uint64_t id)
{
	for (struct ask *ask = first_of(box); ask; ask = ask->next)
		if (ask->id == id)
			return ask;
	return NULL;
}

static struct ask *ask_new(struct box *box, const struct wire_request *request)
{
	struct ask *ask = xnew(struct ask), **at = &box->asks->first;

	ask->box = box;
	ask->id = request->id;
	ask->serial = ++last_serial;
	ask->words = strv_copy(request->words);
	while (*at)
		at = &(*at)->next;
	*at = ask;
	box->asks->count++;
	return ask;
}

static int check_room(const struct box *box, struct err *err)
{
	if (box->asks->count > ASKS_MAX)
		return err_set(err, ERR_LIMIT,
			"this box has %d requests open already, the most allowed", ASKS_MAX);
	if (!box->yard->ask_door.ops)
		return err_set(
			err, ERR_UNAVAILABLE, "the daemon takes no requests from boxes right now");
	return 0;
}

/* The box asks for itself, whoever the yard works for otherwise. */
static void serve(struct ask *ask, bool again)
{
	struct yard *yard = ask->box->yard;
	const struct asker *before;
	struct asker asker;

	asker_of_box(&asker, ask->box);
	before = yard_set_asker(yard, &asker);
	ask->served = true;
	yard->ask_door.ops->begin(ask, again, yard->ask_door.arg);
	yard_set_asker(yard, before);
}

void asks_request(struct box *box, const struct wire_request *request)
{
	struct asks *asks = asks_of(box);
	struct ask *ask = find_by_id(box, request->id);
	bool new_to_us = asks->links > 1 && request->id > asks->seen;
	struct err err = ERR_INIT;

	/* A box that does not know yet who it is speaks of another's requests; it asks again when
	 * it does. */
	if (box->telling || box->spare)
		return;
	if (!request->words[0]) {
		if (ask)
			ask_free(ask, ASK_CANCELLED);
		return;
	}
	/* At work on it already; or box-init counts wrong, which is its box's misfortune. */
	if (ask || asks->count >= ASKS_HELD_MAX)
		return;
	ask = ask_new(box, request);
	asks->seen = MAX(asks->seen, request->id);
	if (check_room(box, &err) < 0)
		ask_fail(ask, &err);
	else
		serve(ask, request->again && !new_to_us);
}

void asks_link_ready(struct box *box)
{
	asks_of(box)->links++;
	asks_pump(box);
}

/* ---- what the door sees --------------------------------------------------------------------- */

struct box *ask_get_box(const struct ask *ask)
{
	return ask->box;
}

char **ask_get_words(const struct ask *ask)
{
	return ask->words;
}

void ask_set_data(struct ask *ask, void *data)
{
	ask->data = data;
}

void *ask_get_data(const struct ask *ask)
{
	return ask->data;
}

uint64_t ask_get_serial(const struct ask *ask)
{
	return ask->serial;
}

struct ask *ask_find(struct yard *yard, uint64_t serial)
{
	for (size_t i = 0; i < yard->box_count; i++)
		for (struct ask *ask = first_of(yard->boxes[i]); ask; ask = ask->next)
			if (ask->serial == serial && !box_is_gone(ask->box))
				return ask;
	return NULL;
}
