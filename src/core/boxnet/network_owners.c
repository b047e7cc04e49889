/* network_owners.c - audit lines of connections, with the process in the box that made them
 *
 * The sockets of most boxes are in the host's kernel, where the process is found at once
 * (socket_owner.h). A box with a kernel of its own is asked, and its line waits for the answer, for
 * at most PATIENCE_MS. The process is marked then: root in that box may have said anything. */
#include "audit/audit_shares.h"
#include "base/clock.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/socket_owner.h"
#include "core/core_internal.h"
#include "core/tree.h"
#include "loop/loop.h"

enum {
	PIDS_MAX = 512,
	LOOKS_A_SECOND = 100, /* process lookups per second, for all boxes together */
	PATIENCE_MS = 250,    /* for the answer of a box */
	QUESTIONS_MAX = 256,  /* open at once, for all boxes together */
};

/* A line that waits for the answer of a box. */
struct question {
	struct question *next;
	struct owners *owners;
	char *tree;
	json_t *line; /* NULL: written already, without a process */
	struct loop_timer *timer;
};

struct owners {
	struct yard *yard;
	struct question *questions;
	unsigned open;
	int64_t looks_since_us;
	unsigned looks;
};

struct owners *owners_new(struct yard *yard)
{
	struct owners *owners = xnew(struct owners);

	owners->yard = yard;
	return owners;
}

void owners_free(struct owners *owners)
{
	socket_owner_close();
	free(owners);
}

/* A process lookup may take some milliseconds: a box that connects all the time must not keep the
 * daemon busy. */
static bool may_look(struct owners *owners)
{
	int64_t now = clock_mono_us();

	if (now - owners->looks_since_us > 1000000) {
		owners->looks_since_us = now;
		owners->looks = 0;
	}
	return owners->looks++ < LOOKS_A_SECOND;
}

/* ---- boxes that share our kernel ------------------------------------------------------------ */

static void look_up(struct box *box, json_t *line)
{
	static pid_t pids[PIDS_MAX];
	size_t count = instance_pids(box->instance, pids, PIDS_MAX);
	json_t *process = socket_owner_of_event(box->net->netns, line, pids, count);

	if (process)
		json_object_set_new(line, "process", process);
}

/* ---- boxes with a kernel of their own ------------------------------------------------------- */

static void write_line(struct question *question)
{
	json_t *line = steal_ptr(&question->line);

	if (line)
		audit_shares_add(question->owners->yard->audit_shares, question->tree, line);
}

static void on_patience_over(void *arg)
{
	write_line(arg);
}

static void question_free(struct question *question)
{
	struct question **slot = &question->owners->questions;

	while (*slot != question)
		slot = &(*slot)->next;
	*slot = question->next;
	question->owners->open--;
	loop_timer_free(question->timer);
	json_decref(question->line);
	free(question->tree);
	free(question);
}

static json_t *process_json(const struct instance_owner *owner)
{
	char command[SOCKET_OWNER_COMMAND_MAX + 1];

	socket_owner_line(
		owner->command, strnlen(owner->command, SOCKET_OWNER_COMMAND_MAX), command);
	return json_pack("{s:I,s:I,s:s,s:s}", "pid", (json_int_t)owner->pid, "uid",
		(json_int_t)owner->uid, "command", command, "told_by", "box");
}

static void on_owner(const struct instance_owner *owner, const struct err *err, void *arg)
{
	struct question *question = arg;

	if (!err && owner && owner->pid && question->line)
		json_object_set_new(question->line, "process", process_json(owner));
	write_line(question);
	question_free(question);
}

/* Takes line when it returns true; false: the box cannot be asked. */
static bool ask_box(struct owners *owners, struct box *box, json_t *line)
{
	struct doors_endpoint from, to;
	struct instance_flow flow = { 0 };
	struct question *question;

	if (owners->open >= QUESTIONS_MAX ||
		!socket_owner_read_event(line, &flow.protocol, &from, &to))
		return false;
	flow.from = from.address;
	flow.from_port = from.port;
	flow.to = to.address;
	flow.to_port = to.port;
	question = xnew(struct question);
	question->owners = owners;
	question->tree = xstrdup(box_get_tree(box));
	question->line = json_incref(line);
	question->timer = loop_timer_new(owners->yard->loop, on_patience_over, question);
	question->next = owners->questions;
	owners->questions = question;
	owners->open++;
	if (instance_ask_owner(box->instance, &flow, on_owner, question, NULL) < 0) {
		question_free(question);
		return false;
	}
	json_decref(line);
	loop_timer_start(question->timer, PATIENCE_MS);
	return true;
}

void owners_settle(struct owners *owners)
{
	for (struct question *question = owners ? owners->questions : NULL; question;
		question = question->next)
		write_line(question);
}

void owners_tell(struct owners *owners, struct box *box, json_t *line)
{
	if (json_get_text(line, "from")[0] && box->instance && box->net->netns >= 0 &&
		may_look(owners)) {
		if (!instance_can(box->instance, ENGINE_OWN_KERNEL))
			look_up(box, line);
		else if (ask_box(owners, box, line))
			return;
	}
	audit_shares_add(owners->yard->audit_shares, box_get_tree(box), line);
}
