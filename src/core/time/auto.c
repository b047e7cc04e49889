/* auto.c - see auto.h
 *
 * A box has at most one attempt at a time; programs that come meanwhile wait for it. A full
 * snapshot is tried first, then one of the disk alone. The box may be removed meanwhile, so an
 * attempt keeps its id, not a pointer. */
#include "core/time/auto.h"
#include "core/exec_internal.h"
#include "core/time/timeline.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

enum {
	DETAIL_MAX = 200,
	/* CPU time that box-init uses for being frozen and thawed does not count as work: otherwise
	 * an idle box would be captured again and again. */
	IDLE_CPU_US = 500,
};

/* ---- when ----------------------------------------------------------------------------------- */

int auto_snapshot_parse(const char *text, struct auto_snapshot *ret, struct err *err)
{
	struct auto_snapshot when = { AUTO_OFF, 0 };
	uint64_t ms;

	if (!strcmp(text, "exec")) {
		when.kind = AUTO_EXEC;
	} else if (text_has_prefix(text, "interval=")) {
		if (parse_duration("auto_snapshot interval", text + strlen("interval="),
			    AUTO_INTERVAL_MIN_S * 1000ULL, AUTO_INTERVAL_MAX_S * 1000ULL, &ms,
			    err) < 0)
			return -1;
		when = (struct auto_snapshot){ AUTO_INTERVAL, ms / 1000 };
	} else if (*text && strcmp(text, "off")) {
		err_set(err, ERR_INVALID,
			"auto_snapshot must be off, exec or interval=TIME, not '%.40s'", text);
		return err_hint(err, "interval=5m takes one every five minutes");
	}
	*ret = when;
	return 0;
}

char *auto_snapshot_text(const struct auto_snapshot *when)
{
	if (when->kind == AUTO_INTERVAL)
		return xasprintf("interval=%llu", (unsigned long long)when->interval_s);
	return xstrdup(when->kind == AUTO_EXEC ? "exec" : "off");
}

int box_set_auto_snapshot(struct box *box, const char *text, struct err *err)
{
	_cleanup_free_ char *old = xstrdup(box->row.auto_snapshot), *kept = NULL;
	struct auto_snapshot when;

	if (auto_snapshot_parse(text, &when, err) < 0)
		return -1;
	if (box_is_busy(box))
		return box_refuse_busy(box, err);
	kept = auto_snapshot_text(&when);
	if (!strcmp(kept, old))
		return 0;
	text_replace(&box->row.auto_snapshot, kept);
	if (store_box_update(box->yard->store, &box->row, STORE_SAFE, err) < 0) {
		text_replace(&box->row.auto_snapshot, old);
		return err_wrap(err, "record when '%s' is captured", box->row.name);
	}
	box->automatic.due_us = 0;
	yard_event(box->yard, "box.changed", box, json_pack("{s:s}", "auto_snapshot", kept));
	return 0;
}

/* The text in a row was checked when it was stored. */
static struct auto_snapshot when_of(const struct box *box)
{
	struct auto_snapshot when = { AUTO_OFF, 0 };

	auto_snapshot_parse(box->row.auto_snapshot, &when, NULL);
	return when;
}

/* ---- one attempt ---------------------------------------------------------------------------- */

struct attempt {
	struct yard *yard;
	char box[BOX_ID_LEN + 1];
	const char *cause; /* a literal */
	char *detail;	   /* or NULL */
	bool disk_only;
	struct err err; /* why it is not a full snapshot */
	struct starter *starters;
};

/* A program that waits for an attempt to end. */
struct starter {
	exec_ready ready;
	void *arg;
	struct starter *next;
};

static uint64_t cpu_of(struct box *box)
{
	struct instance_stats stats = { 0 };

	return box->instance && instance_stats(box->instance, &stats, NULL) == 0 ? stats.cpu_us : 0;
}

/* Calls the starters, any of which may remove the box. why: the box cannot be woken; NULL: the
 * programs start. */
static void tell(struct yard *yard, const char *id, struct starter *starter, const struct err *why)
{
	while (starter) {
		struct starter *next = starter->next;
		struct box *box = box_find(yard, id, NULL);
		struct err gone = ERR_INIT;

		if (!box)
			err_set(&gone, ERR_NOT_FOUND,
				"the box was removed before the program began");
		starter->ready(box, box ? why : &gone, starter->arg);
		free(starter);
		starter = next;
	}
}

static void finish(struct attempt *attempt, struct box *box, const struct err *why)
{
	if (box) {
		box->automatic.now = NULL;
		box->automatic.cpu_us = cpu_of(box);
		box->automatic.due_us =
			clock_mono_us() + (int64_t)when_of(box).interval_s * 1000000;
	}
	tell(attempt->yard, attempt->box, attempt->starters, why);
	free(attempt->detail);
	free(attempt);
}

static void on_captured(json_t *result, const struct err *err, void *arg);

static void capture(struct attempt *attempt, struct box *box)
{
	struct snapshot_spec spec = {
		.cause = attempt->cause, .detail = attempt->detail, .disk_only = attempt->disk_only
	};

	box_snapshot(box, &spec, on_captured, attempt);
}

static void on_captured(json_t *result, const struct err *err, void *arg)
{
	struct attempt *attempt = arg;
	struct box *box = box_find(attempt->yard, attempt->box, NULL);

	(void)result;
	if (!err || !box)
		return finish(attempt, box, NULL);
	if (!attempt->disk_only && box->state == BOX_RUNNING) {
		attempt->disk_only = true;
		attempt->err = *err;
		return capture(attempt, box);
	}
	if (!attempt->err.kind)
		attempt->err = *err;
	log_warn("an automatic snapshot failed", kv_str("box", box->row.id),
		kv_str("cause", attempt->cause), kv_err(&attempt->err));
	yard_event(box->yard, "snapshot.failed", box,
		json_pack("{s:s,s:s}", "cause", attempt->cause, "message", attempt->err.message));
	finish(attempt, box, NULL);
}

static struct attempt *attempt_new(struct box *box, const char *cause)
{
	struct attempt *attempt = xnew(struct attempt);

	*attempt = (struct attempt){ .yard = box->yard, .cause = cause, .err = ERR_INIT };
	snprintf(attempt->box, sizeof attempt->box, "%s", box->row.id);
	box->automatic.now = attempt;
	return attempt;
}

/* ---- now and then --------------------------------------------------------------------------- */

static void look_at(struct box *box)
{
	struct auto_snapshot when = when_of(box);
	int64_t now = clock_mono_us();
	int64_t interval_us = (int64_t)when.interval_s * 1000000;

	if (when.kind != AUTO_INTERVAL || box->automatic.now)
		return;
	if (!box->automatic.due_us) {
		box->automatic.due_us = now + interval_us;
		box->automatic.cpu_us = 0; /* all work done so far is worth a snapshot */
		return;
	}
	if (now < box->automatic.due_us)
		return;
	box->automatic.due_us = now + interval_us;
	/* The counter starts from zero with each instance. */
	if (cpu_of(box) < box->automatic.cpu_us)
		box->automatic.cpu_us = 0;
	if (cpu_of(box) > box->automatic.cpu_us + IDLE_CPU_US)
		capture(attempt_new(box, "interval"), box);
}

void auto_look(struct yard *yard)
{
	/* An attempt that ends at once may change the list; skipped boxes are checked a second
	 * later. */
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];

		if (box->state == BOX_RUNNING && box->instance && !box_is_gone(box) &&
			text_has_prefix(box->row.auto_snapshot, "interval="))
			look_at(box);
	}
}

/* ---- before a program ----------------------------------------------------------------------- */

/* Joins argv with spaces; a long text is cut at a whole character. */
static char *words_of(const char *const *argv)
{
	struct buf text = BUF_INIT;
	size_t len;
	char *words;

	for (size_t i = 0; argv && argv[i] && text.len <= DETAIL_MAX; i++)
		buf_addf(&text, "%s%.*s", i ? " " : "", DETAIL_MAX, argv[i]);
	len = MIN(text.len, (size_t)DETAIL_MAX);
	words = xstrndup(buf_str(&text), len);
	while (*words && !text_is_utf8(words, strlen(words)))
		words[strlen(words) - 1] = '\0';
	buf_done(&text);
	return words;
}

/* Keeps the order of arrival. */
static void add_starter(struct attempt *attempt, exec_ready ready, void *arg)
{
	struct starter **last = &attempt->starters;

	while (*last)
		last = &(*last)->next;
	*last = xnew(struct starter);
	**last = (struct starter){ ready, arg, NULL };
}

/* The box is captured awake: what it does from now on is done by the program. */
static void on_awake(struct box *box, const struct err *err, void *arg)
{
	struct attempt *attempt = arg;
	struct err why = ERR_INIT;

	if (err)
		why = *err;
	if (!box || err)
		finish(attempt, box, box ? &why : NULL);
	else
		capture(attempt, box);
}

void box_before_exec(struct box *box, const char *const *argv, exec_ready ready, void *arg)
{
	struct attempt *attempt;
	struct err err = ERR_INIT;

	if (box->automatic.now) {
		add_starter(box->automatic.now, ready, arg);
		return;
	}
	if (when_of(box).kind != AUTO_EXEC || !box_wakes(box)) {
		ready(box, NULL, arg);
		return;
	}
	attempt = attempt_new(box, "exec");
	attempt->detail = words_of(argv);
	add_starter(attempt, ready, arg);
	if (box->state == BOX_RUNNING || box->state == BOX_SUSPENDED)
		on_awake(box, box_touch(box, &err) < 0 ? &err : NULL, attempt);
	else
		box_wake(box, on_awake, attempt);
}
