/* identity.c - a box made from a state learns who it is before anybody else speaks to it */
#include "core/core_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "loop/loop.h"

enum { TELL_MS = 60000 }; /* box-init itself gives up before */

struct telling {
	struct box *box;
	struct chan *chan;
	struct loop_timer *timer;
	box_done done;
	void *arg;
};

bool box_can_be_told(const struct box *box)
{
	return box->link && link_version(box->link) >= WIRE_VERSION_INSIDE;
}

static void telling_free(struct telling *telling)
{
	if (telling->chan)
		chan_close(telling->chan);
	loop_timer_free(telling->timer);
	free(telling);
}

void identity_drop(struct box *box)
{
	if (box->telling)
		telling_free(steal_ptr(&box->telling));
}

static void telling_over(struct telling *telling, const struct err *why)
{
	struct box *box = telling->box;
	box_done done = telling->done;
	void *arg = telling->arg;
	struct err err = why ? *why : (struct err)ERR_INIT;

	box->telling = NULL;
	telling_free(telling);
	if (why)
		err_wrap(&err, "tell '%s' who it is", box->row.name);
	else
		asks_pump(box);
	if (done)
		done(box, why ? &err : NULL, arg);
}

static void on_told(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct telling *telling = arg;
	struct box *box = telling->box;
	struct wire_told told;
	struct err err = ERR_INIT;

	(void)chan;
	wire_get_told(reply, &told);
	if (wire_get_done(reply, &err) < 0) {
		telling_over(telling, &err);
		return;
	}
	if (told.failed)
		yard_event(box->yard, "box.hooks_failed", box,
			json_pack("{s:I,s:I,s:o}", "ran", (json_int_t)told.ran, "failed",
				(json_int_t)told.failed, "first",
				text_is_utf8(told.failure, strlen(told.failure))
					? json_string(told.failure)
					: json_string("(not text)")));
	telling_over(telling, NULL);
}

static void on_tell_error(struct chan *chan, const struct err *err, void *arg)
{
	struct telling *telling = arg;

	(void)chan;
	telling->chan = NULL;
	telling_over(telling, err);
}

static void on_tell_closed(struct chan *chan, void *arg)
{
	struct telling *telling = arg;
	struct err err = ERR_INIT;

	(void)chan;
	telling->chan = NULL;
	err_set(&err, ERR_PROTOCOL, "box-init did not say whether it knows");
	telling_over(telling, &err);
}

static void on_tell_late(void *arg)
{
	struct telling *telling = arg;
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "its box-init did not answer within %d s", TELL_MS / 1000);
	telling_over(telling, &err);
}

static int tell(struct box *box, enum wire_op op, const struct buf *request, bool forget,
	box_done done, void *arg, struct err *err)
{
	static const struct chan_ops ops = {
		.on_reply = on_told, .on_error = on_tell_error, .on_closed = on_tell_closed
	};
	struct telling *telling;

	identity_drop(box);
	telling = xnew(struct telling);
	telling->box = box;
	telling->done = done;
	telling->arg = arg;
	telling->chan = chan_open(box->link, op, request, &ops, telling, err);
	if (!telling->chan) {
		free(telling);
		return err_wrap(err, "tell '%s' who it is", box->row.name);
	}
	telling->timer = loop_timer_new(box->yard->loop, on_tell_late, telling);
	loop_timer_start(telling->timer, TELL_MS);
	box->telling = telling;
	if (forget)
		asks_start_anew(box);
	return 0;
}

int box_tell_identity(struct box *child, const char *parent_name, unsigned index, box_done done,
	void *arg, struct err *err)
{
	struct wire_identity identity = {
		.name = child->row.name,
		.id = child->row.id,
		.parent = parent_name,
		.index = index,
	};
	struct buf request = BUF_INIT;
	int ret;

	if (!box_can_be_told(child)) {
		err_set(err, ERR_UNSUPPORTED,
			"box '%s' was started by an older version, which does not support forks",
			child->row.name);
		return err_hint(err, "'box stop' and 'box start' the box it was forked from");
	}
	random_bytes(identity.seed, sizeof identity.seed);
	wire_put_identity(&request, &identity);
	ret = tell(child, WIRE_OP_IDENTITY, &request, true, done, arg, err);
	buf_done(&request);
	return ret;
}

int box_tell_restored(
	struct box *box, enum wire_restored kind, box_done done, void *arg, struct err *err)
{
	uint8_t seed[WIRE_SEED];
	struct buf request = BUF_INIT;
	int ret;

	if (!box_can_be_told(box)) {
		if (done)
			done(box, NULL, arg);
		return 0;
	}
	random_bytes(seed, sizeof seed);
	wire_put_u8(&request, (uint8_t)kind);
	wire_put_bytes(&request, seed, sizeof seed);
	ret = tell(
		box, WIRE_OP_RESTORED, &request, kind == WIRE_RESTORED_ROLLED_BACK, done, arg, err);
	buf_done(&request);
	return ret;
}
