/* capture.c - the state of a box as it is now, written down
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

struct capturing {
	struct box *box;
	const struct box_capture_ops *ops;
	void *arg;
	char *state, *disk_place, *disk; /* as in the spec */
	int dir;			 /* folder of the state; -1 */
	struct helper *helper;
	struct capture *capture;
	struct box_capture_result result;
	struct err err;
	int64_t frozen_at;
	bool at_rest; /* the box is frozen, and the driver waits for us */
	bool told;    /* the helper has reported */
	bool copied;  /* the helper has succeeded */
	bool frozen;  /* frozen by this file, not by the driver */
	bool to_end, was_frozen, stay_frozen, disk_apart;
	bool given;			/* on_taken was called: the disk belongs to the caller */
	struct question *question;	/* a request to the gate without an answer yet; or NULL */
	bool taken_waits, finish_waits; /* for the gate's answer */
};

/* A request to the gate: which names have addresses? The capture may end before the answer
 * comes. */
struct question {
	struct capturing *capturing; /* NULL: nobody waits any more */
	struct loop_timer *patience;
};

enum { GATE_PATIENCE_MS = 1000 };

/* ---- in the helper -------------------------------------------------------------------------- */

static int copy(const struct capturing *capturing, struct err *err)
{
	struct box *box = capturing->box;

	if (capturing->disk &&
		pool_disk_copy(box->yard->pool, BOX_DISKS, box->row.id, capturing->disk_place,
			capturing->disk, NULL,
			capturing->disk_apart ? POOL_BUDGET_OWN : POOL_BUDGET_SAME, err) < 0)
		return err_wrap(err, "copy the disk");
	return capturing->state ? instance_capture_rest(box->instance, capturing->dir, err) : 0;
}

static int run(int sock, void *arg)
{
	struct err err = ERR_INIT;
	char go;

	if (recv(sock, &go, 1, 0) != 1)
		return 1; /* cancelled */
	/* Reports by a message, which is faster than the end of the process. */
	(void)copy(arg, &err);
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return err.kind != ERR_NONE;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void thaw(struct capturing *capturing)
{
	struct box *box = capturing->box;
	struct err err = ERR_INIT;

	if (!capturing->frozen)
		return;
	capturing->frozen = false;
	if (box->instance && (capturing->err.kind || !capturing->stay_frozen) &&
		box->state != BOX_SUSPENDED && instance_freeze(box->instance, false, &err) < 0)
		log_error("a box stays frozen", kv_str("box", box->row.id), kv_err(&err));
	capturing->result.paused_us = (uint64_t)(clock_mono_us() - capturing->frozen_at);
}

/* Applies a suspend or resume that was asked for during the capture; the capture itself left the
 * box as it was before. */
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

static void discard(struct capturing *capturing)
{
	struct yard *yard = capturing->box->yard;

	if (capturing->state)
		checkpoints_discard(yard->checkpoints, capturing->state, NULL);
	if (capturing->disk && !capturing->given)
		pool_disk_discard(yard->pool, capturing->disk_place, capturing->disk, NULL);
}

static void question_forget(struct question *question)
{
	if (!question)
		return;
	loop_timer_free(steal_ptr(&question->patience));
	question->capturing->question = NULL;
	question->capturing = NULL;
}

static void finish(struct capturing *capturing)
{
	struct box *box = capturing->box;
	const struct box_capture_ops *ops = capturing->ops;
	struct box_capture_result result;
	struct err err = capturing->err;
	bool was_frozen = capturing->was_frozen;
	void *arg = capturing->arg;

	thaw(capturing);
	if (capturing->question && !err.kind) {
		capturing->finish_waits = true;
		return;
	}
	question_forget(capturing->question);
	result = capturing->result;
	capture_free(capturing->capture);
	helper_free(capturing->helper);
	if (err.kind)
		discard(capturing);
	if (capturing->dir >= 0)
		close(capturing->dir);
	free(capturing->state);
	free(capturing->disk_place);
	free(capturing->disk);
	free(capturing);
	box->capturing = NULL;
	settle_freezer(box, was_frozen);
	ops->on_done(box, &result, err.kind ? &err : NULL, arg);
}

void box_capture_cancel(struct box *box, const struct err *why)
{
	struct capturing *capturing = box->capturing;

	if (!capturing)
		return;
	if (!capturing->err.kind)
		capturing->err = *why;
	capturing->result.cancelled = true;
	finish(capturing);
}

void box_capture_hint(struct err *err, const char *fmt, ...)
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

/* A fork may be launched from the state at once, although the last steps of the capture can still
 * fail. */
static void tell_taken(struct capturing *capturing)
{
	if (capturing->err.kind || !capturing->ops->on_taken)
		return;
	if (capturing->question) {
		capturing->taken_waits = true;
		return;
	}
	capturing->given = true;
	capturing->ops->on_taken(capturing->box, &capturing->result, capturing->arg);
}

static void on_copied(struct capturing *capturing)
{
	capturing->copied = true;
	if (capturing->disk && !capturing->err.kind)
		budget_disk_copied(capturing->box);
	if (!capturing->capture) {
		thaw(capturing);
		tell_taken(capturing);
		finish(capturing);
	} else if (capturing->at_rest) {
		capturing->at_rest = false;
		capture_go_on(capturing->capture, capturing->err.kind ? &capturing->err : NULL);
	}
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct capturing *capturing = arg;

	if (len != sizeof capturing->err || capturing->copied)
		return;
	if (!capturing->err.kind)
		memcpy(&capturing->err, message, len);
	capturing->told = true;
	/* With a driver's capture more steps follow; without one, wait for the end of the
	 * helper. */
	if (capturing->capture)
		on_copied(capturing);
}

static void on_exit_copy(int code, void *arg)
{
	struct capturing *capturing = arg;

	capturing->helper = NULL;
	if (!capturing->told && !capturing->err.kind)
		err_set(&capturing->err, ERR_SYSTEM, "the helper that copies ended with code %d",
			code);
	if (!capturing->copied)
		on_copied(capturing);
}

static void go(struct capturing *capturing)
{
	if (!capturing->helper || !helper_send(capturing->helper, "g", 1))
		err_set(&capturing->err, ERR_SYSTEM, "the helper that copies has gone");
}

/* ---- names ---------------------------------------------------------------------------------- */

/* Stores the names with the processes, see network_names.c. Without the gate's answer the file says
 * which addresses may be in use. */
static void keep_names(struct capturing *capturing, json_t *exact)
{
	_cleanup_json_ json_t *names = network_names_json(capturing->box->net, exact);
	_cleanup_free_ char *text = json_text(names);
	int fd;

	if (capturing->err.kind)
		return;
	fd = openat(
		capturing->dir, CAPTURE_NAMES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		err_sys(&capturing->err, errno, "make '%s'", CAPTURE_NAMES_FILE);
	else
		(void)fd_write_all(fd, text, strlen(text), &capturing->err);
	if (fd >= 0)
		close(fd);
	if (capturing->err.kind)
		err_wrap(&capturing->err, "keep the addresses of names");
}

static void go_on(struct capturing *capturing)
{
	if (capturing->taken_waits)
		tell_taken(capturing);
	if (capturing->finish_waits)
		finish(capturing);
}

static void on_names(void *arg, json_t *saved, const struct err *err)
{
	struct question *question = arg;
	struct capturing *capturing = question->capturing;

	if (capturing) {
		question_forget(question);
		keep_names(capturing, err || json_is_null(saved) ? NULL : saved);
		go_on(capturing);
	}
	free(question); /* exactly one answer comes */
}

/* Goes on without the gate's answer; a late answer is ignored. */
static void on_patience_over(void *arg)
{
	struct question *question = arg;
	struct capturing *capturing = question->capturing;

	log_warn("the gate does not say which names a box knows",
		kv_str("box", capturing->box->row.id));
	question_forget(question);
	keep_names(capturing, NULL);
	go_on(capturing);
}

/* The box is frozen, so the gate knows every address that the box was given. */
static void ask_names(struct capturing *capturing)
{
	struct box *box = capturing->box;
	struct question *question;

	if (!box->net)
		return;
	if (!box->net->served) {
		keep_names(capturing, NULL);
		return;
	}
	question = xnew(struct question);
	question->capturing = capturing;
	question->patience = loop_timer_new(box->yard->loop, on_patience_over, question);
	loop_timer_start(question->patience, GATE_PATIENCE_MS);
	capturing->question = question;
	gate_names(yard_gate(box->yard), box->row.id, on_names, question);
}

/* ---- reports of the driver ------------------------------------------------------------------ */

static void on_rest(struct capture *capture, void *arg)
{
	struct capturing *capturing = arg;

	capturing->at_rest = true;
	ask_names(capturing);
	go(capturing);
	if (capturing->err.kind) {
		capturing->at_rest = false;
		capture_go_on(capture, &capturing->err);
	}
}

static void on_taken(struct capture *capture, const struct capture_result *result, void *arg)
{
	struct capturing *capturing = arg;

	(void)capture;
	capturing->result.paused_us = result->paused_us;
	capturing->result.processes = result->processes;
	tell_taken(capturing);
}

/* Stores the log of CRIU with the failure. */
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
	struct capturing *capturing = arg;

	(void)capture;
	capturing->result.paused_us = result->paused_us;
	if (err && !capturing->err.kind) {
		capturing->err = *err;
		keep_log(capturing->box, result->log, &capturing->err);
	}
	finish(capturing);
}

/* ---- the start ------------------------------------------------------------------------------ */

/* The memory of the box, and some more for the description. The page cache is not captured: those
 * files are on the disk. */
uint64_t box_capture_need(struct box *box)
{
	struct instance_stats stats = { 0 };

	instance_stats(box->instance, &stats, NULL);
	return stats.memory_held_bytes + (8u << 20);
}

/* Paths inside the box of volumes and folders of the host; yours. */
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

static int start_capture(struct capturing *capturing, struct err *err)
{
	static const struct capture_ops ops = {
		.on_rest = on_rest, .on_taken = on_taken, .on_done = on_done
	};
	_cleanup_strv_ char **targets = mount_targets(capturing->box);
	_cleanup_close_ int shared = -1;
	struct capture_spec spec = { .dir = capturing->dir,
		.frozen = capturing->was_frozen,
		.stay_frozen = capturing->stay_frozen,
		.to_end = capturing->to_end,
		.targets = (const char *const *)targets,
		.shared = -1 };

	if (instance_can(capturing->box->instance, ENGINE_OWN_KERNEL)) {
		if (checkpoints_open_shared(
			    capturing->box->yard->checkpoints, capturing->state, &shared, err) < 0)
			return -1;
		spec.shared = shared;
	}
	return instance_capture(
		capturing->box->instance, &spec, &ops, capturing, &capturing->capture, err);
}

static int start_copy_alone(struct capturing *capturing, struct err *err)
{
	struct box *box = capturing->box;

	if (box->instance && !capturing->was_frozen) {
		capturing->frozen_at = clock_mono_us();
		if (instance_freeze(box->instance, true, err) < 0)
			return -1;
		capturing->frozen = true;
	}
	go(capturing);
	if (capturing->err.kind && err)
		*err = capturing->err;
	return capturing->err.kind ? -1 : 0;
}

static int start(struct capturing *capturing, const struct box_capture_spec *spec, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run, .on_message = on_message, .on_exit = on_exit_copy, .light = true
	};
	struct box *box = capturing->box;
	struct yard *yard = box->yard;

	if (spec->state && !box->instance)
		return err_set(err, ERR_STATE, "box '%s' is %s, not running", box->row.name,
			box_state_name(box->state));
	if (spec->state && box_is_paused(box) && box->limits.holds &&
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
				   spec->quick && !instance_can(box->instance, ENGINE_OWN_KERNEL),
				   &capturing->dir, err) < 0)
		return -1;
	/* Before the helper is started, because the driver may refuse the capture. */
	if (helper_start(yard->loop, &ops, capturing, &capturing->dir, capturing->dir >= 0 ? 1 : 0,
		    &capturing->helper, err) < 0)
		return -1;
	return spec->state ? start_capture(capturing, err) : start_copy_alone(capturing, err);
}

void box_capture(struct box *box, const struct box_capture_spec *spec,
	const struct box_capture_ops *ops, void *arg)
{
	struct capturing *capturing = xnew(struct capturing);

	*capturing = (struct capturing){ .box = box,
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
	box->capturing = capturing;
	if (start(capturing, spec, &capturing->err) < 0) {
		err_wrap(&capturing->err, "box '%s'", box->row.name);
		finish(capturing);
	}
}
