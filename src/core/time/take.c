/* take.c - the state of a box as it is now, written down
 *
 *   helper started, it waits ─► driver captures ─► everything stands still ─► helper: disk, memory
 *   file systems
 *                                                                                    │
 *                        on_done ◄─ driver has finished ◄─ on_taken ◄─ the box goes on ◄┘
 *
 * The helper is there before the box stands still, so that the pause holds only what must be in it.
 * A box that does not run, or whose disk alone is wanted, has no capture: it is frozen while its
 * disk is copied. */
#include "core/core_internal.h"
#include "core/inside.h"
#include "core/boxnet/network_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "gate/gate.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

struct taking {
	struct box *box;
	const struct take_ops *ops;
	void *arg;
	char *state, *disk_place, *disk; /* as in the spec */
	int dir;			 /* of the state; -1 */
	struct helper *helper;
	struct capture *capture;
	struct take_result result;
	struct err err;
	int64_t frozen_at;
	bool at_rest; /* the driver waits for us */
	bool told;    /* the helper has answered */
	bool copied;  /* the helper has done its part */
	bool frozen;  /* by us */
	bool to_end, was_frozen, stay_frozen, disk_apart;
	bool given;			/* the caller knows that it is there: the disk is his */
	struct question *question;	/* to the gate, not answered yet; or NULL */
	bool taken_waits, finish_waits; /* for its answer */
};

/* Which names have addresses? The taking may end before the gate answers. */
struct question {
	struct taking *taking; /* NULL: nobody waits any more */
	struct loop_timer *patience;
};

enum { GATE_PATIENCE_MS = 1000 };

/* ---- in the helper -------------------------------------------------------------------------- */

static int copy(const struct taking *taking, struct err *err)
{
	struct box *box = taking->box;

	if (taking->disk &&
		pool_disk_copy(box->yard->pool, BOX_DISKS, box->row.id, taking->disk_place,
			taking->disk, NULL, taking->disk_apart ? POOL_BUDGET_OWN : POOL_BUDGET_SAME,
			err) < 0)
		return err_wrap(err, "copy the disk");
	return taking->state ? instance_capture_rest(box->instance, taking->dir, err) : 0;
}

static int run(int sock, void *arg)
{
	struct err err = ERR_INIT;
	char go;

	if (recv(sock, &go, 1, 0) != 1)
		return 1; /* given up */
	/* By a message, which is quicker than its end. */
	(void)copy(arg, &err);
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return err.kind != ERR_NONE;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void thaw(struct taking *taking)
{
	struct box *box = taking->box;
	struct err err = ERR_INIT;

	if (!taking->frozen)
		return;
	taking->frozen = false;
	if (box->instance && (taking->err.kind || !taking->stay_frozen) &&
		box->state != BOX_SUSPENDED && instance_freeze(box->instance, false, &err) < 0)
		log_error("a box stays frozen", kv_str("box", box->row.id), kv_err(&err));
	taking->result.paused_us = (uint64_t)(clock_mono_us() - taking->frozen_at);
}

/* Somebody may have asked for it to go on, or to stand still, while it was taken; it was left as it
 * was found. */
static void settle_freezer(struct box *box, bool was_frozen)
{
	bool frozen = box->state == BOX_SUSPENDED;
	struct err err = ERR_INIT;

	if (box->instance && (frozen ? !was_frozen : box->state == BOX_RUNNING) &&
		(frozen && box_is_paused(box) ? instance_pause(box->instance, &err)
					      : instance_freeze(box->instance, frozen, &err)) < 0 &&
		err.kind != ERR_STATE) {
		log_error(frozen ? "a box cannot be suspended and runs on" : "a box stays frozen",
			kv_str("box", box->row.id), kv_err(&err));
		if (frozen) {
			box_set_state(box, BOX_RUNNING, INTENT_NONE);
			box_save(box, STORE_KEPT);
		}
	}
}

static void discard(struct taking *taking)
{
	struct yard *yard = taking->box->yard;

	if (taking->state)
		checkpoints_discard(yard->checkpoints, taking->state, NULL);
	if (taking->disk && !taking->given)
		pool_disk_discard(yard->pool, taking->disk_place, taking->disk, NULL);
}

static void question_forget(struct question *question)
{
	if (!question)
		return;
	loop_timer_free(steal_ptr(&question->patience));
	question->taking->question = NULL;
	question->taking = NULL;
}

static void finish(struct taking *taking)
{
	struct box *box = taking->box;
	const struct take_ops *ops = taking->ops;
	struct take_result result;
	struct err err = taking->err;
	bool was_frozen = taking->was_frozen;
	void *arg = taking->arg;

	thaw(taking);
	if (taking->question && !err.kind) {
		taking->finish_waits = true;
		return;
	}
	question_forget(taking->question);
	result = taking->result;
	capture_free(taking->capture);
	helper_free(taking->helper);
	if (err.kind)
		discard(taking);
	if (taking->dir >= 0)
		close(taking->dir);
	free(taking->state);
	free(taking->disk_place);
	free(taking->disk);
	free(taking);
	box->taking = NULL;
	settle_freezer(box, was_frozen);
	ops->on_done(box, &result, err.kind ? &err : NULL, arg);
}

void take_cancel(struct box *box, const struct err *why)
{
	struct taking *taking = box->taking;

	if (!taking)
		return;
	if (!taking->err.kind)
		taking->err = *why;
	taking->result.cancelled = true;
	finish(taking);
}

void take_hint_instead(struct err *err, const char *fmt, ...)
{
	const char *last = strrchr(err->hint, ';');
	_cleanup_free_ char *kept = NULL;
	char instead[256];
	va_list args;

	if (!strstr(err->hint, "--disk-only"))
		return;
	va_start(args, fmt);
	vsnprintf(instead, sizeof instead, fmt, args);
	va_end(args);
	kept = xstrndup(err->hint, last ? (size_t)(last - err->hint) : 0);
	err_hint(err, "%s%s%s", kept, *kept ? "; " : "", instead);
}

/* ---- the helper's answer -------------------------------------------------------------------- */

/* A child may be launched from it at once, though the capture can still fail in its last steps. */
static void tell_taken(struct taking *taking)
{
	if (taking->err.kind || !taking->ops->on_taken)
		return;
	if (taking->question) {
		taking->taken_waits = true;
		return;
	}
	taking->given = true;
	taking->ops->on_taken(taking->box, &taking->result, taking->arg);
}

static void on_copied(struct taking *taking)
{
	taking->copied = true;
	if (!taking->capture) {
		thaw(taking);
		tell_taken(taking);
		finish(taking);
	} else if (taking->at_rest) {
		taking->at_rest = false;
		capture_go_on(taking->capture, taking->err.kind ? &taking->err : NULL);
	}
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct taking *taking = arg;

	if (len != sizeof taking->err || taking->copied)
		return;
	if (!taking->err.kind)
		memcpy(&taking->err, message, len);
	taking->told = true;
	/* With a capture there is more to come; without one its end is waited for. */
	if (taking->capture)
		on_copied(taking);
}

static void on_exit_copy(int code, void *arg)
{
	struct taking *taking = arg;

	taking->helper = NULL;
	if (!taking->told && !taking->err.kind)
		err_set(&taking->err, ERR_SYSTEM, "the helper that copies ended with code %d",
			code);
	if (!taking->copied)
		on_copied(taking);
}

static void go(struct taking *taking)
{
	if (!taking->helper || !helper_send(taking->helper, "g", 1))
		err_set(&taking->err, ERR_SYSTEM, "the helper that copies has gone");
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Beside the processes, see network_names.c. Without the gate's answer it says which addresses may
 * be in use. */
static void keep_names(struct taking *taking, json_t *exact)
{
	_cleanup_json_ json_t *names = network_names_json(taking->box->net, exact);
	_cleanup_free_ char *text = json_text(names);
	int fd;

	if (taking->err.kind)
		return;
	fd = openat(taking->dir, TAKE_NAMES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		err_sys(&taking->err, errno, "make '%s'", TAKE_NAMES_FILE);
	else
		(void)fd_write_all(fd, text, strlen(text), &taking->err);
	if (fd >= 0)
		close(fd);
	if (taking->err.kind)
		err_wrap(&taking->err, "keep the addresses of names");
}

static void go_on(struct taking *taking)
{
	if (taking->taken_waits)
		tell_taken(taking);
	if (taking->finish_waits)
		finish(taking);
}

static void on_names(void *arg, json_t *saved, const struct err *err)
{
	struct question *question = arg;
	struct taking *taking = question->taking;

	if (taking) {
		question_forget(question);
		keep_names(taking, err || json_is_null(saved) ? NULL : saved);
		go_on(taking);
	}
	free(question); /* answered once */
}

/* A gate that does not answer is asked no further; its answer finds nobody. */
static void on_patience_over(void *arg)
{
	struct question *question = arg;
	struct taking *taking = question->taking;

	log_warn("the gate does not say which names a box knows",
		kv_str("box", taking->box->row.id));
	question_forget(question);
	keep_names(taking, NULL);
	go_on(taking);
}

/* The box stands still: what it was answered, the gate knows. */
static void ask_names(struct taking *taking)
{
	struct box *box = taking->box;
	struct question *question;

	if (!box->net)
		return;
	if (!box->net->served) {
		keep_names(taking, NULL);
		return;
	}
	question = xnew(struct question);
	question->taking = taking;
	question->patience = loop_timer_new(box->yard->loop, on_patience_over, question);
	loop_timer_start(question->patience, GATE_PATIENCE_MS);
	taking->question = question;
	gate_names(yard_gate(box->yard), box->row.id, on_names, question);
}

/* ---- the driver's words --------------------------------------------------------------------- */

static void on_rest(struct capture *capture, void *arg)
{
	struct taking *taking = arg;

	taking->at_rest = true;
	ask_names(taking);
	go(taking);
	if (taking->err.kind) {
		taking->at_rest = false;
		capture_go_on(capture, &taking->err);
	}
}

static void on_taken(struct capture *capture, const struct capture_result *result, void *arg)
{
	struct taking *taking = arg;

	(void)capture;
	taking->result.paused_us = result->paused_us;
	taking->result.processes = result->processes;
	tell_taken(taking);
}

/* What the tool said is kept with the failure. */
static void keep_log(struct box *box, const char *log, struct err *err)
{
	yard_event(box->yard, "capture.failed", box,
		json_pack("{s:s,s:s}", "message", err->message, "log",
			text_is_utf8(log, strlen(log)) ? log : ""));
	if (*log && !*err->hint)
		err_hint(err, "a snapshot of the disk alone is possible: --disk-only");
}

static void on_done(struct capture *capture, const struct capture_result *result,
	const struct err *err, void *arg)
{
	struct taking *taking = arg;

	(void)capture;
	taking->result.paused_us = result->paused_us;
	if (err && !taking->err.kind) {
		taking->err = *err;
		keep_log(taking->box, result->log, &taking->err);
	}
	finish(taking);
}

/* ---- the start ------------------------------------------------------------------------------ */

/* Memory of the box, and some more for what describes it. Copies of files are not captured: they
 * are on the disk. */
uint64_t box_capture_need(struct box *box)
{
	struct instance_stats stats = { 0 };

	instance_stats(box->instance, &stats, NULL);
	return stats.memory_held_bytes + (8u << 20);
}

/* Where volumes and folders of the host are seen; yours. */
static char **mount_targets(const struct box *box)
{
	char **targets = strv_copy(NULL);
	const char *const lists[] = { box->row.volumes, box->row.mounts };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		_cleanup_json_ json_t *list = json_loads(lists[i], 0, NULL);
		json_t *item;
		size_t j;

		json_array_foreach (list, j, item)
			strv_add(&targets, json_get_text(item, "path"));
	}
	return targets;
}

static int start_capture(struct taking *taking, struct err *err)
{
	static const struct capture_ops ops = {
		.on_rest = on_rest, .on_taken = on_taken, .on_done = on_done
	};
	_cleanup_strv_ char **targets = mount_targets(taking->box);
	struct capture_spec spec = { .dir = taking->dir,
		.frozen = taking->was_frozen,
		.stay_frozen = taking->stay_frozen,
		.to_end = taking->to_end,
		.targets = (const char *const *)targets };

	return instance_capture(taking->box->instance, &spec, &ops, taking, &taking->capture, err);
}

static int start_copy_alone(struct taking *taking, struct err *err)
{
	struct box *box = taking->box;

	if (box->instance && !taking->was_frozen) {
		taking->frozen_at = clock_mono_us();
		if (instance_freeze(box->instance, true, err) < 0)
			return -1;
		taking->frozen = true;
	}
	go(taking);
	if (taking->err.kind && err)
		*err = taking->err;
	return taking->err.kind ? -1 : 0;
}

static int start(struct taking *taking, const struct take_spec *spec, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run, .on_message = on_message, .on_exit = on_exit_copy, .light = true
	};
	struct box *box = taking->box;
	struct yard *yard = box->yard;

	if (spec->state && !box->instance)
		return err_set(err, ERR_STATE, "box '%s' is %s, not running", box->row.name,
			box_state_name(box->state));
	if (spec->state && box_is_paused(box) && box->holds &&
		instance_memory_full(box->instance)) {
		err_set(err, ERR_LIMIT,
			"box '%s' waits for memory at its limit, and what waits there cannot be "
			"captured",
			box->row.name);
		return err_hint(err, "'box set %s --memory SIZE' first; its disk can be taken now",
			box->row.name);
	}
	if (spec->state && box->link && !box_can_be_told(box)) {
		err_set(err, ERR_UNSUPPORTED,
			"box '%s' was started by an older version, which cannot be captured with "
			"its processes",
			box->row.name);
		return err_hint(err, "'box stop %s' and 'box start %s'; its disk can be taken now",
			box->row.name, box->row.name);
	}
	if (spec->disk && pool_check_room(yard->pool, 0, err) < 0)
		return -1;
	if (spec->state && checkpoints_make(yard->checkpoints, spec->state, box_capture_need(box),
				   spec->quick, &taking->dir, err) < 0)
		return -1;
	/* The driver's look at the box may refuse: before the helper is made. */
	if (helper_start(yard->loop, &ops, taking, &taking->dir, taking->dir >= 0 ? 1 : 0,
		    &taking->helper, err) < 0)
		return -1;
	return spec->state ? start_capture(taking, err) : start_copy_alone(taking, err);
}

void box_take(struct box *box, const struct take_spec *spec, const struct take_ops *ops, void *arg)
{
	struct taking *taking = xnew(struct taking);

	*taking = (struct taking){ .box = box,
		.ops = ops,
		.arg = arg,
		.state = xstrdup(spec->state),
		.disk_place = xstrdup(spec->disk_place),
		.disk = xstrdup(spec->disk),
		.to_end = spec->to_end,
		.was_frozen = spec->frozen || box->state == BOX_SUSPENDED,
		.stay_frozen = spec->stay_frozen,
		.disk_apart = spec->disk_apart,
		.dir = -1 };
	box->taking = taking;
	if (start(taking, spec, &taking->err) < 0) {
		err_wrap(&taking->err, "box '%s'", box->row.name);
		finish(taking);
	}
}
