/* work.c - work inside a box goes through its box-init, over one link that is made again when it
 * breaks
 *
 * The link is cheap (a unix connection) and holds no state the box needs: execs and their journals
 * live in box-init. It breaks when box-init drops us or speaks nonsense; then it is made again,
 * slower each time. */
#include "core/core_internal.h"
#include "core/exec.h"
#include "core/limit.h"
#include "core/output_internal.h"
#include "core/tree_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "loop/loop.h"
#include "checkpoint/checkpoints.h"

enum {
	RECONNECT_MS = 20,
	RECONNECT_MAX_MS = 2000,
	GREETINGS_MAX = 5, /* of a box that starts */
	GREETING_MS = 60 * 1000,
	EVENT_BURST = 2000, /* exec events a box may cause at once, and a second */
	EVENT_RATE = 200,
	COMMAND_MS = 60 * 1000, /* box-init says by then whether a command has started */
};

/* ---- the link ------------------------------------------------------------------------------- */

void box_reconnect(struct box *box)
{
	struct err err = ERR_INIT;

	if (box->link || !box->instance)
		return;
	if (box_connect(box, &err) < 0) {
		if (box->reconnects == 6)
			log_warn("box-init cannot be reached, still trying",
				kv_str("box", box->row.id), kv_err(&err));
		box->reconnects++;
		box_timer_start(box,
			MIN((uint64_t)RECONNECT_MS << MIN(box->reconnects, 8u), RECONNECT_MAX_MS));
	}
}

/* box-init of a VM may see a connection come twice when it is slow (see link.h): a box that starts
 * has done nothing yet, and is told once more who it is. */
static bool greet_again(struct box *box, const struct err *why)
{
	struct err err = ERR_INIT;

	if (why->kind != ERR_UNAVAILABLE || box->remove_wanted || box->restore.problem.kind ||
		!instance_can(box->instance, ENGINE_OWN_KERNEL) ||
		box->reconnects++ >= GREETINGS_MAX || box_connect(box, &err) < 0)
		return false;
	log_info("box-init began anew", kv_str("box", box->row.id), kv_err(why));
	box_timer_start(box, GREETING_MS);
	return true;
}

static void on_link_lost(struct link *link, const struct err *err, void *arg)
{
	struct box *box = arg;

	if (box->wake.link == link) {
		box->wake.link = NULL;
		link_free(link);
		return;
	}
	if (operation_lost_link(box, link)) {
		link_free(link);
		return;
	}
	if (box->link == link)
		box->link = NULL;
	box->link_ready = false;
	link_free(link);
	if (box->state == BOX_CREATING || box->state == BOX_STARTING) {
		/* The connection broke at once: the end of the instance or the failed start tells
		 * why. */
		if (greet_again(box, err))
			return;
		if (box->restore.state && !box->restore.problem.kind)
			box->restore.problem = *err;
		box_kill(box);
		return;
	}
	if (box->state != BOX_RUNNING)
		return;
	if (err->kind == ERR_PROTOCOL)
		log_warn("box-init broke the protocol", kv_str("box", box->row.id), kv_err(err));
	/* A box-init that breaks the protocol will do so again, so it is retried slowly. */
	box_timer_start(box, err->kind == ERR_PROTOCOL ? RECONNECT_MAX_MS : RECONNECT_MS);
}

static const char *const reasons[] = {
	[WIRE_EXIT_RUNNING] = "running",
	[WIRE_EXIT_EXITED] = "exited",
	[WIRE_EXIT_SIGNALED] = "signaled",
	[WIRE_EXIT_TIMEOUT] = "timeout",
};

/* A box may start programs as fast as it likes, but one tree of boxes may not fill the event log as
 * fast. */
bool box_event_allowed(struct box *box)
{
	struct tree *tree = box->tree;
	int64_t now = clock_mono_us();

	if (!tree)
		return true;
	tree->event_tokens += (now - tree->event_refill_us) * EVENT_RATE / 1000000;
	if (tree->event_tokens > EVENT_BURST || !tree->event_refill_us)
		tree->event_tokens = EVENT_BURST;
	tree->event_refill_us = now;
	if (tree->event_tokens <= 0) {
		box->events_dropped++;
		return false;
	}
	tree->event_tokens--;
	return true;
}

static json_t *text_json(const char *text)
{
	return text_is_utf8(text, strlen(text)) ? json_string(text) : json_string("(not text)");
}

static json_t *event_json(struct box *box, enum wire_event event, const struct wire_exec_info *info)
{
	json_t *data =
		json_pack("{s:o,s:I}", "exec", text_json(info->id), "pid", (json_int_t)info->pid);

	if (event == WIRE_EVENT_EXEC_STARTED) {
		json_t *argv = json_array();

		for (size_t i = 0; info->argv[i] && i < 64; i++)
			json_array_append_new(argv, text_json(info->argv[i]));
		json_object_set_new(data, "argv", argv);
	} else {
		json_object_set_new(data, "reason", json_string(reasons[info->reason]));
		json_object_set_new(data, "exit_code",
			json_integer(info->signal ? 128 + (json_int_t)(info->signal & 127)
						  : (json_int_t)(info->code & 255)));
		json_object_set_new(
			data, "cpu_us", json_integer((json_int_t)(info->cpu_us & INT64_MAX)));
		json_object_set_new(
			data, "oom_kills", json_integer((json_int_t)box->limits.oom_kills));
	}
	if (box->events_dropped) {
		json_object_set_new(
			data, "events_dropped", json_integer((json_int_t)box->events_dropped));
		box->events_dropped = 0;
	}
	return data;
}

static void exec_event(struct box *box, enum wire_event event, const struct wire_exec_info *info)
{
	if (box_event_allowed(box))
		yard_event_by(box->yard,
			event == WIRE_EVENT_EXEC_STARTED ? "exec.started" : "exec.exited", box,
			box_exec_who(box, info->id), event_json(box, event, info));
	if (event == WIRE_EVENT_EXEC_EXITED)
		box_forget_exec(box, info->id);
	if (event == WIRE_EVENT_EXEC_EXITED && !strcmp(info->id, "main") && *box->row.command &&
		box->row.remove_on_exit && box->state == BOX_RUNNING)
		box_remove(box, true, NULL, NULL);
}

static void on_link_event(
	struct link *link, enum wire_event event, const struct wire_exec_info *info, void *arg)
{
	(void)link;
	exec_event(arg, event, info);
}

static void on_link_request(struct link *link, const struct wire_request *request, void *arg)
{
	(void)link;
	asks_request(arg, request);
}

/* Reports programs that ended while no daemon ran. An event is written after what it reports, so a
 * program that ended before the last recorded event has its own event already. */
static void on_missed(struct chan *chan, struct wire_reader *reply, void *arg)
{
	struct box *box = arg;
	uint32_t count = wire_get_u32(reply);

	(void)chan;
	for (uint32_t i = 0; i < count && !reply->bad && box->state == BOX_RUNNING; i++) {
		struct wire_exec_info info;
		char ended[CLOCK_RFC3339_MAX];

		wire_get_exec_info(reply, &info);
		clock_rfc3339((int64_t)(info.ended_us & INT64_MAX), ended);
		if (!reply->bad && info.reason != WIRE_EXIT_RUNNING &&
			strcmp(ended, box->yard->last_event_at) > 0)
			exec_event(box, WIRE_EVENT_EXEC_EXITED, &info);
		free((void *)info.argv);
	}
}

static void catch_up(struct box *box)
{
	static const struct chan_ops ops = { .on_reply = on_missed };

	box->catch_up = false;
	chan_open(box->link, WIRE_OP_EXEC_LIST, NULL, &ops, box, NULL);
}

void box_is_up(struct box *box, bool created)
{
	/* With a command, those who wait are answered when it is known to have started. */
	box->command_is_new = created;
	if (box->row.held || !box_run_command(box))
		box_notify(box, NULL);
	/* Recorded after the answer: nobody waits for the log. */
	if (created)
		yard_event(box->yard, "box.created", box, NULL);
	yard_event(box->yard, "box.started", box, NULL);
	box_forget_asker(box);
}

static void on_link_ready(struct link *link, void *arg)
{
	struct box *box = arg;

	(void)link;
	box->link_ready = true;
	if (box->state == BOX_RUNNING)
		box->reconnects = 0;
	if (box->timer && (box->state == BOX_CREATING || box->state == BOX_STARTING))
		loop_timer_stop(box->timer);
	asks_link_ready(box);
	if (box->spare) {
		spare_ready(box);
		return;
	}
	if (box->catch_up)
		catch_up(box);
	if (box->state != BOX_CREATING && box->state != BOX_STARTING)
		return;
	if (box->restore.state)
		restore_greet(box);
	else
		box_came_up(box);
}

static void limit_restored(struct box *box)
{
	const struct limits own = { box->row.cpu_milli, box->row.memory_bytes, box->row.disk_bytes,
		box->row.pids };
	const struct limits limits = tree_bound(box, &own);
	struct err err = ERR_INIT;

	if (box->row.pids && instance_set_limits(box->instance, &limits, &err) < 0)
		log_warn("a box may have more processes than its limit", kv_str("box", box->row.id),
			kv_err(&err));
}

/* Continues a restored box: its programs run, so no command is started. */
static void came_back(struct box *box, bool created)
{
	_cleanup_free_ char *slept_in = xstrdup(box->row.state_id);

	limit_restored(box);
	text_replace(&box->row.state_id, "");
	text_replace(&box->row.asleep_for, "");
	box->row.ended_us = 0;
	if (created)
		box->row.started_us = clock_wall_us();
	box_save(box, STORE_KEPT);
	restore_done(box);
	if (*slept_in)
		checkpoints_discard(box->yard->checkpoints, slept_in, NULL);
	if (created)
		yard_event(box->yard, "box.created", box,
			json_pack("{s:s}", "origin", box->row.origin_box));
	yard_event(box->yard, created ? "box.forked" : "box.resumed", box, NULL);
	operation_came_up(box);
	box_forget_asker(box);
	box_notify(box, NULL);
}

void box_came_up(struct box *box)
{
	bool created = box->state == BOX_CREATING;

	if (!operation_commit(box))
		return;
	box_set_state(box, BOX_RUNNING, INTENT_NONE);
	box->reconnects = 0;
	output_remove(box); /* the output of its previous run */
	limit_arm(box);
	if (box->restore.state) {
		came_back(box, created);
		return;
	}
	box->row.started_us = clock_wall_us();
	box->row.ended_us = 0;
	box->limits.oom_kills = 0;
	box_save(box, STORE_KEPT);
	operation_came_up(box); /* for a rollback to a disk snapshot */
	box_is_up(box, created);
}

const struct link_ops box_link_ops = {
	.on_ready = on_link_ready,
	.on_event = on_link_event,
	.on_request = on_link_request,
	.on_lost = on_link_lost,
};

static int connect_again(void *arg, int *ret, struct err *err)
{
	return instance_connect(arg, ret, err);
}

int link_attach_instance(struct link *link, struct instance *instance, struct err *err)
{
	int fd;

	if (instance_connect(instance, &fd, err) < 0)
		return -1;
	if (instance_can(instance, ENGINE_OWN_KERNEL))
		link_attach_port(link, fd, connect_again, instance);
	else
		link_attach(link, fd);
	return 0;
}

int box_connect(struct box *box, struct err *err)
{
	struct link *link = box->wake.link;

	if (!link)
		link = link_new(box->yard->loop, -1, &box_link_ops, box);
	if (link_attach_instance(link, box->instance, err) < 0) {
		if (link != box->wake.link)
			link_free(link);
		return -1;
	}
	/* Requests that came during the wake go first. */
	box->wake.link = NULL;
	box->link = link;
	return 0;
}

void box_disconnect(struct box *box)
{
	struct link *link = steal_ptr(&box->link);

	box->link_ready = false;
	link_free(link);
}

void box_hang_up(struct box *box, const char *what, const char *hint)
{
	struct err err = ERR_INIT;

	if (!box->link)
		return;
	/* Not ERR_UNAVAILABLE: a client that retries by itself would wake the box, or ask for what
	 * no longer exists. */
	err_set(&err, ERR_STATE, "box '%s' %s meanwhile", box->row.name, what);
	err_hint(&err, "%s", hint);
	link_fail(box->link, &err);
}

void box_fail_channels(struct box *box, const struct err *err)
{
	if (box->link)
		link_fail(box->link, err);
}

/* ---- channels ------------------------------------------------------------------------------- */

int box_chan_open(struct box *box, enum wire_op op, const struct buf *request,
	const struct chan_ops *ops, void *arg, struct chan **ret, struct err *err)
{
	struct link *link;
	struct chan *chan;
	int later = op == WIRE_OP_STATS && box->state == BOX_RUNNING ? 0 : box_touch(box, err);

	if (later < 0)
		return -1;
	link = later ? box_waiting_link(box) : box->link;
	if (!link) {
		err_set(err, ERR_UNAVAILABLE, "box-init of '%s' does not answer", box->row.name);
		return err_hint(err, "try again, or 'box stop' and 'box start'");
	}
	chan = chan_open(link, op, request, ops, arg, err);
	if (!chan)
		return err_wrap(err, "box '%s'", box->row.name);
	/* Statistics do not count as activity of the box. */
	if (op == WIRE_OP_STATS)
		chan_set_background(chan);
	*ret = chan;
	return 0;
}

/* ---- main: the command given with `new`, or the image's ------------------------------------- */

/* Those who wait for something else, such as a stop, are answered by that. */
static void command_known(struct box *box)
{
	if (!box_is_busy(box))
		box_notify(box, NULL);
}

static void on_command_started(struct exec *exec, const struct exec_info *info, void *arg)
{
	struct box *box = arg;

	(void)exec;
	(void)info;
	/* It took too long; those who wait now wait for something else. */
	if (!box->command_timer)
		return;
	loop_timer_free(steal_ptr(&box->command_timer));
	command_known(box);
}

/* A new box whose command cannot start is removed, and the caller gets the reason. The exec ends
 * with the link of the box, before the box does. */
static void on_command_done(
	struct exec *exec, const struct exec_end *end, const struct err *err, void *arg)
{
	struct box *box = arg;

	(void)exec;
	(void)end;
	if (!err || !box->command_timer)
		return;
	loop_timer_free(steal_ptr(&box->command_timer));
	if (err->kind != ERR_UNAVAILABLE)
		yard_event(box->yard, "exec.failed", box,
			json_pack("{s:s,s:o}", "exec", "main", "message", text_json(err->message)));
	if (err->kind != ERR_UNAVAILABLE && box->command_is_new && *box->row.command &&
		box->waiters && !box_is_busy(box)) {
		box_notify_without(box, err);
		box_remove(box, true, NULL, NULL);
	} else {
		command_known(box);
	}
}

/* A late answer finds nobody who waits. */
static void on_command_late(void *arg)
{
	struct box *box = arg;
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "box-init of '%s' did not start its command within %d s",
		box->row.name, COMMAND_MS / 1000);
	on_command_done(NULL, NULL, &err, box);
}

bool box_run_command(struct box *box)
{
	static const struct exec_ops ops = { .on_started = on_command_started,
		.on_done = on_command_done };
	const char *text = *box->row.main ? box->row.main : box->row.command;
	_cleanup_json_ json_t *command = *text ? json_loads(text, 0, NULL) : NULL;
	_cleanup_strv_ char **argv = NULL;
	struct exec *exec;
	struct err err = ERR_INIT;
	size_t i;
	json_t *item;

	json_array_foreach (command, i, item)
		strv_add(&argv, json_string_value(item));
	if (!argv)
		return false;
	if (exec_start(box,
		    &(struct exec_spec){ .id = "main",
			    .argv = (const char *const *)argv,
			    .detach = true,
			    .no_snapshot = true },
		    &ops, box, &exec, &err) == 0) {
		loop_timer_free(box->command_timer);
		box->command_timer = loop_timer_new(box->yard->loop, on_command_late, box);
		loop_timer_start(box->command_timer, COMMAND_MS);
		return true;
	}
	log_warn("the command of a box did not start", kv_str("box", box->row.id), kv_err(&err));
	return false;
}

void box_tell_name(struct box *box)
{
	static const struct chan_ops ops = { 0 };

	if (box->link)
		chan_open(box->link, WIRE_OP_NAME, NULL, &ops, NULL, NULL);
}
