/* qemu_move.c - moves a waiting QEMU into the cgroups of its box
 *
 * The kernel waits for all forks on the machine to finish before it moves a process with
 * threads, so a helper does it, while the state is loaded. */
#include "engine/vm/qemu_internal.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include "sys/cgroup.h"
#include <sys/socket.h>

struct move {
	struct qemu_verb *verb;
	struct helper *helper;
	struct cgroup_join join;
	pid_t pid;
	struct err err;
};

static int run_move(int sock, void *arg)
{
	struct move *move = arg;
	struct err err = ERR_INIT;

	if (cgroup_move(&move->join, move->pid, &err) == 0)
		return 0;
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 1;
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct move *move = arg;

	if (len == sizeof move->err)
		memcpy(&move->err, message, len);
}

static void move_end(struct move *move, bool failed)
{
	struct qemu_verb *verb = move->verb;
	struct err err = move->err;

	cgroup_join_done(&move->join);
	free(move);
	verb->move = NULL;
	if (failed && !err.kind)
		err_set(&err, ERR_SYSTEM, "QEMU could not be moved into the groups of its box");
	qemu_verb_finish(verb, failed ? &err : NULL);
}

static void on_helper_exit(int code, void *arg)
{
	move_end(arg, code != 0);
}

static void on_refused(void *arg)
{
	move_end(arg, true);
}

void qemu_move_cancel(struct move *move)
{
	if (!move)
		return;
	loop_undefer(move->verb->qemu->loop, on_refused, move);
	helper_free(move->helper);
	cgroup_join_done(&move->join);
	free(move);
}

void qemu_move(
	struct qemu *qemu, struct cgroup_tree *tree, const char *group, qemu_done done, void *arg)
{
	static const struct helper_ops ops = {
		.run = run_move,
		.on_message = on_message,
		.on_exit = on_helper_exit,
		.light = true,
	};
	struct move *move = xnew(struct move);

	move->verb = qemu_verb_new(qemu, arg);
	move->verb->done = done;
	move->verb->move = move;
	move->pid = qemu->mark.pid;
	if (cgroup_move_open(tree, group, &move->join, &move->err) < 0 ||
		helper_start(qemu->loop, &ops, move, move->join.fds, move->join.count,
			&move->helper, &move->err) < 0)
		loop_defer(qemu->loop, on_refused, move);
}
