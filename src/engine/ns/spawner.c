/* spawner.c - the small process that clones for the daemon
 *
 * A clone copies the page tables and the descriptors of whoever calls it: with 30 MB in use and two
 * thousand descriptors open that alone takes milliseconds, and the copy holds the daemon's secrets
 * until it executes box-init. So the driver forks a spawner while it is still small. It knows the
 * driver's fixed parts (filters, hidden paths), has no descriptor but its socket, and clones with
 * CLONE_PARENT: the new PID 1 is the daemon's child, as if the daemon had cloned it.
 *
 * One request, one packet, and but for CLOSE one answer:
 *
 *   SPAWN   struct ns_plan, its descriptors (control, cgroup)   the child's pid
 *   STACK   layers (see layers.c)                               an overlay of them
 *   IDMAP   a user and a group                                  a user namespace that maps them
 *                                                               alone
 *   LOCK    mounts                                              copies with locked flags (see
 *                                                               mounts.c)
 *   CLOSE   descriptors
 *
 * What CLOSE brings is kept for a moment: whoever closes a detached mount last waits for the
 * kernel, and that must not be the daemon, who closes its own right after asking; nor a child,
 * which would get copies.
 *
 * The spawner ends when the daemon does. If it is lost, the next request starts another. */
#include "engine/ns/ns_internal.h"
#include "base/log.h"
#include "sys/clone.h"
#include "sys/fdpass.h"
#include "sys/idmap.h"
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

enum { FDS_MAX = LAYERS_FDS_MAX, ANSWER_MS = 5000, KEEP_US = 200 };
_Static_assert((int)FDS_MAX <= (int)FDPASS_MAX, "a packet carries no more");

enum request_kind { REQUEST_SPAWN = 1, REQUEST_STACK, REQUEST_IDMAP, REQUEST_LOCK, REQUEST_CLOSE };

struct request {
	enum request_kind kind;
	union {
		struct {
			bool has_cgroup;
			struct ns_plan plan; /* its descriptors come beside it */
		} spawn;
		struct {
			uint32_t uid;	      /* the box's root */
			struct layers layers; /* as above */
		} stack;
		struct idmap_pair idmap;
	};
};

struct answer {
	pid_t pid; /* -1: see err; 0 where no process was asked for: the fds follow */
	struct err err;
};

static ssize_t send_packet(int socket, const void *data, size_t size, const int *fds, size_t count)
{
	return fdpass_send(socket, data, size, fds, count, 0);
}

/* Returns the number of fds received, FDS_MAX at most; -1: the other side is gone. */
static int receive_packet(int socket, void *data, size_t size, int flags, int *fds)
{
	struct fdpass came;

	if (fdpass_receive(socket, data, size, fds, FDS_MAX, flags, &came) == (ssize_t)size)
		return (int)came.count;
	fdpass_close(fds, came.count);
	return -1;
}

/* ---- in the spawner ------------------------------------------------------------------------- */

/* Where layers are attached; -1: nowhere, and why. */
struct spot {
	int holder;
	struct err trouble;
};

static void close_all(const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

/* The kernel charges what users of a box have (inotify instances, pending signals, message queues,
 * namespaces) also to the user who made its user namespace. If that were root, one box would use up
 * what all boxes and the machine share. */
static void act_as(uint32_t uid)
{
	if (syscall(SYS_setresuid, -1, uid, -1) < 0)
		_exit(1); /* the daemon starts another */
}

/* Before Linux 6.3 clone3 takes CLONE_NEWTIME for something else, unless the fix was backported;
 * and a kernel may have no time namespaces. Both give EINVAL, and both are remembered. */
static pid_t clone_child(struct clone_spec *how, struct ns_plan *plan, struct err *err)
{
	static bool no_time;
	int pidfd = -1;
	pid_t pid = -1;

	if (!no_time) {
		how->namespaces = NS_CLONE_FLAGS | CLONE_NEWTIME;
		pid = clone_process(how, &pidfd, err);
	}
	if (no_time || (pid < 0 && err->errno_value == EINVAL)) {
		how->namespaces = NS_CLONE_FLAGS;
		plan->time_apart = true;
		pid = clone_process(how, &pidfd, err);
		no_time = pid > 0;
	}
	if (pid > 0)
		close(pidfd);
	return pid;
}

static void spawn(const struct ns_engine *engine, int socket, struct request *request,
	const int *fds, int count)
{
	struct ns_plan *plan = &request->spawn.plan;
	bool has_cgroup = request->spawn.has_cgroup;
	struct answer answer = { .pid = -1, .err = ERR_INIT };
	struct clone_spec how = { .sibling = true, .cgroup = -1 };

	/* Fewer fds arrive than were sent when there is no room for them here. */
	if (count < 1 + has_cgroup) {
		err_set(&answer.err, ERR_LIMIT, "the spawner has no file descriptors left");
	} else {
		plan->control = fds[0];
		if (has_cgroup)
			how.cgroup = fds[1];
		act_as(plan->owner);
		answer.pid = clone_child(&how, plan, &answer.err);
		if (answer.pid == 0)
			ns_child(engine, plan);
		act_as(0);
	}
	close_all(fds, count); /* before the daemon waits for the end of the child's copy */
	send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
}

static void answer_fd(int socket, struct answer *answer, int fd)
{
	if (fd >= 0)
		answer->pid = 0;
	send_packet(socket, answer, sizeof *answer, &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
}

/* Layers stay attached until the answer is sent, and are detached before the next request is
 * read. */
static void stack(struct spot *spot, int socket, struct request *request, const int *fds, int count)
{
	struct answer answer = { .pid = -1, .err = spot->trouble };
	struct layers *layers = &request->stack.layers;
	int root = -1;

	memcpy(layers->fds, fds, sizeof(int) * (size_t)count);
	if ((size_t)count < layers->count) {
		err_set(&answer.err, ERR_LIMIT, "the spawner has no file descriptors left");
		layers->count = (size_t)count;
	} else if (spot->holder >= 0) {
		layers_stack_on(spot->holder, layers, request->stack.uid, &root, &answer.err);
	}
	answer_fd(socket, &answer, root);
	layers_take_off(spot->holder, layers);
}

static void idmap(int socket, const struct request *request)
{
	struct answer answer = { .pid = -1, .err = ERR_INIT };
	int userns = -1;

	idmap_new(&request->idmap, &userns, &answer.err);
	answer_fd(socket, &answer, userns);
}

static _Noreturn void lock_and_answer(
	const struct ns_engine *engine, int socket, const int *fds, size_t count)
{
	struct answer answer = { .err = ERR_INIT };
	int locked[INSTANCE_MOUNTS_MAX];

	if (mounts_lock(engine->home, fds, count, locked, &answer.err) < 0)
		answer.pid = -1;
	send_packet(socket, &answer, sizeof answer, locked, answer.pid < 0 ? 0 : count);
	_exit(0);
}

static void lock(const struct ns_engine *engine, int socket, const int *fds, int count)
{
	struct answer answer = { .pid = -1, .err = ERR_INIT };
	struct clone_spec how = { .namespaces = CLONE_NEWNS, .cgroup = -1 };
	struct pollfd poller = { .events = POLLIN };
	enum procfd_status status;
	pid_t pid;
	int code = 0;

	pid = clone_process(&how, &poller.fd, &answer.err);
	if (pid == 0)
		lock_and_answer(engine, socket, fds, (size_t)MIN(count, INSTANCE_MOUNTS_MAX));
	if (pid < 0) {
		answer_fd(socket, &answer, -1);
		return;
	}
	if (poll(&poller, 1, ANSWER_MS / 2) == 0) {
		procfd_kill(poller.fd, SIGKILL, NULL);
		poll(&poller, 1, ANSWER_MS / 2);
	}
	status = procfd_reap(poller.fd, &code);
	close(poller.fd);
	if (status != PROCFD_EXITED || code != 0) {
		err_set(&answer.err, ERR_UNAVAILABLE, "mounts could not be locked");
		answer_fd(socket, &answer, -1);
	}
}

/* Gives the daemon a moment to close its own, unless another request comes. */
static void close_last(int socket, const int *fds, int count)
{
	const struct timespec moment = { .tv_nsec = KEEP_US * 1000 };
	struct pollfd poller = { .fd = socket, .events = POLLIN };

	ppoll(&poller, 1, &moment, NULL);
	close_all(fds, count);
}

static int arrange_spawner(int socket)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_NAME, "box-spawner");
	/* Keeps its capabilities when it acts as another user. */
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
		_exit(1);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (dup2(socket, 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) < 0)
		_exit(1);
	close_range(4, ~0u, 0);
	return 3;
}

static _Noreturn void serve(const struct ns_engine *engine, int inherited)
{
	struct spot spot = { .holder = -1, .trouble = ERR_INIT };
	struct request request;
	int fds[FDS_MAX], count, socket = arrange_spawner(inherited);

	/* If this fails, every stack request is answered with the reason. */
	if (engine->layers == LAYERS_ATTACHED)
		layers_open_holder(engine, &spot.holder, &spot.trouble);
	while ((count = receive_packet(socket, &request, sizeof request, 0, fds)) >= 0) {
		switch (request.kind) {
		case REQUEST_SPAWN:
			spawn(engine, socket, &request, fds, count);
			break;
		case REQUEST_STACK:
			stack(&spot, socket, &request, fds, count);
			close_all(fds, count);
			break;
		case REQUEST_IDMAP:
			idmap(socket, &request);
			break;
		case REQUEST_LOCK:
			lock(engine, socket, fds, count);
			close_all(fds, count);
			break;
		case REQUEST_CLOSE:
			close_last(socket, fds, count);
			break;
		}
	}
	_exit(0);
}

/* ---- in the daemon -------------------------------------------------------------------------- */

int spawner_open(struct ns_engine *engine, struct err *err)
{
	struct spawner *spawner = &engine->spawner;
	struct clone_spec how = { .cgroup = -1 };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	spawner->pid = clone_process(&how, &spawner->pidfd, err);
	if (spawner->pid == 0)
		serve(engine, pair[1]);
	close(pair[1]);
	if (spawner->pid < 0) {
		close(pair[0]);
		return -1;
	}
	spawner->socket = pair[0];
	return 0;
}

void spawner_close(struct spawner *spawner)
{
	struct pollfd poller = { .fd = spawner->pidfd, .events = POLLIN };
	int ignored;

	if (spawner->socket < 0)
		return;
	close(spawner->socket);
	if (poll(&poller, 1, NS_SWEEP_MS) == 0) {
		procfd_kill(spawner->pidfd, SIGKILL, NULL);
		poll(&poller, 1, NS_SWEEP_MS);
	}
	procfd_reap(spawner->pidfd, &ignored);
	close(spawner->pidfd);
	spawner->socket = spawner->pidfd = -1;
}

static int restart(struct ns_engine *engine, struct err *err)
{
	log_warn("the spawner was lost, starting another", kv_int("pid", engine->spawner.pid));
	spawner_close(&engine->spawner);
	return spawner_open(engine, err);
}

static int send_request(struct ns_engine *engine, const struct request *request, const int *fds,
	size_t count, struct err *err)
{
	if (engine->spawner.socket >= 0 &&
		send_packet(engine->spawner.socket, request, sizeof *request, fds, count) >= 0)
		return 0;
	if (restart(engine, err) < 0)
		return err_wrap(err, "spawner");
	if (send_packet(engine->spawner.socket, request, sizeof *request, fds, count) < 0)
		return err_sys(err, errno, "speak to the spawner");
	return 0;
}

/* After a lost answer the spawner is replaced: a late answer would be taken for the next one's. */
static int receive_answer(struct ns_engine *engine, struct answer *ret, int *ret_fds,
	size_t *ret_count, struct err *err)
{
	struct pollfd poller = { .fd = engine->spawner.socket, .events = POLLIN };
	int count = -1;

	if (poll(&poller, 1, ANSWER_MS) > 0)
		count = receive_packet(poller.fd, ret, sizeof *ret, MSG_DONTWAIT, ret_fds);
	if (count < 0) {
		procfd_kill(engine->spawner.pidfd, SIGKILL, NULL);
		spawner_close(&engine->spawner);
		return err_set(err, ERR_UNAVAILABLE, "the spawner gave no answer");
	}
	*ret_count = (size_t)count;
	if (ret->pid < 0) {
		if (err)
			*err = ret->err;
		return -1;
	}
	return 0;
}

int spawner_ask(struct ns_engine *engine, const struct ns_plan *plan, struct err *err)
{
	struct request request = {
		.kind = REQUEST_SPAWN,
		.spawn = { .has_cgroup = plan->cgroup >= 0, .plan = *plan },
	};
	int fds[FDS_MAX];
	size_t count = 0;

	fds[count++] = plan->control;
	if (plan->cgroup >= 0)
		fds[count++] = plan->cgroup;
	return send_request(engine, &request, fds, count, err);
}

int spawner_answer(struct ns_engine *engine, pid_t *ret_pid, struct err *err)
{
	struct answer answer;
	int none[FDS_MAX];
	size_t count;

	if (receive_answer(engine, &answer, none, &count, err) < 0)
		return -1;
	*ret_pid = answer.pid;
	return 0;
}

/* Asks and gets as many fds as are wanted, or none. */
static int ask_for_fds(struct ns_engine *engine, const struct request *request, const int *fds,
	size_t count, int *ret, size_t wanted, struct err *err)
{
	struct answer answer;
	int got[FDS_MAX];
	size_t got_count;

	if (send_request(engine, request, fds, count, err) < 0 ||
		receive_answer(engine, &answer, got, &got_count, err) < 0)
		return -1;
	if (got_count != wanted) {
		for (size_t i = 0; i < got_count; i++)
			close(got[i]);
		return err_set(err, ERR_LIMIT, "%zu of %zu file descriptors came from the spawner",
			got_count, wanted);
	}
	memcpy(ret, got, sizeof(int) * wanted);
	return 0;
}

int spawner_stack(struct ns_engine *engine, const struct layers *layers, uint32_t uid, int *ret,
	struct err *err)
{
	struct request request = {
		.kind = REQUEST_STACK,
		.stack = { .uid = uid, .layers = *layers },
	};

	return ask_for_fds(engine, &request, layers->fds, layers->count, ret, 1, err);
}

int spawner_idmap(
	struct ns_engine *engine, const struct idmap_pair *pair, int *ret, struct err *err)
{
	struct request request = { .kind = REQUEST_IDMAP, .idmap = *pair };

	return ask_for_fds(engine, &request, NULL, 0, ret, 1, err);
}

int spawner_lock(struct ns_engine *engine, int *fds, size_t count, struct err *err)
{
	struct request request = { .kind = REQUEST_LOCK };
	int locked[FDS_MAX];

	if (ask_for_fds(engine, &request, fds, count, locked, count, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		close(fds[i]);
		fds[i] = locked[i];
	}
	return 0;
}

void spawner_dispose(struct ns_engine *engine, const int *fds, size_t count)
{
	struct request request = { .kind = REQUEST_CLOSE };
	int open_fds[FDS_MAX];
	size_t open_count = 0;

	for (size_t i = 0; i < count && open_count < FDS_MAX; i++)
		if (fds[i] >= 0)
			open_fds[open_count++] = fds[i];
	if (!open_count)
		return;
	/* If this fails, the close below does the work, only slower. */
	if (engine->spawner.socket >= 0)
		send_packet(engine->spawner.socket, &request, sizeof request, open_fds, open_count);
	for (size_t i = 0; i < open_count; i++)
		close(open_fds[i]);
}
