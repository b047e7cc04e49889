/* spawner.c - the small process that clones for the daemon
 *
 * A clone copies the page tables and the descriptors of whoever calls it: with 30 MB in use and two
 * thousand descriptors open that alone takes milliseconds, and the copy holds the daemon's secrets until
 * it executes box-init. So the driver forks a spawner while it is still small. It knows the driver's
 * fixed parts (filters, hidden paths), has no descriptor but its socket, and clones with CLONE_PARENT: the
 * new PID 1 is the daemon's child, as if the daemon had cloned it.
 *
 * One request, one packet. SPAWN carries a struct ns_plan and its descriptors (control, cgroup) and is
 * answered; so is STACK, with an
 * overlay of the layers that it carries (see layers.c); CLOSE carries descriptors only and is not. The spawner ends when the daemon does. If it is
 * lost, the next request starts another. */
#include "engine/ns/ns_internal.h"
#include "base/log.h"
#include "sys/clone.h"
#include "sys/mountfd.h"
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { FDS_MAX = 4, ANSWER_MS = 5000 };

enum request_kind { REQUEST_SPAWN = 1, REQUEST_STACK, REQUEST_CLOSE };

struct request {
	enum request_kind kind;
	bool has_cgroup;
	uint32_t uid;	     /* of STACK: the box's root */
	struct ns_plan plan; /* of SPAWN; its descriptors come beside it */
};

struct answer {
	pid_t pid; /* -1: see err; of a STACK 0, and the overlay comes beside it */
	struct err err;
};

union fd_space {
	char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	struct cmsghdr align;
};

static ssize_t send_packet(int socket, const void *data, size_t size, const int *fds, size_t count)
{
	union fd_space space;
	struct iovec part = { (void *)data, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	if (count) {
		struct cmsghdr *header;

		memset(&space, 0, sizeof space);
		message.msg_control = &space;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL);
}

/* Number of fds received, FDS_MAX at most; -1: the other side is gone. */
static int receive_packet(int socket, void *data, size_t size, int flags, int *fds)
{
	union fd_space space;
	struct iovec part = { data, size };
	struct msghdr message = { .msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &space,
		.msg_controllen = sizeof space };
	struct cmsghdr *header;
	size_t len;
	ssize_t got;

	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)size)
		return -1;
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS)
		return 0;
	len = MIN(header->cmsg_len - CMSG_LEN(0), sizeof(int) * FDS_MAX);
	memcpy(fds, CMSG_DATA(header), len);
	return (int)(len / sizeof(int));
}

/* ---- in the spawner --------------------------------------------------------------------------------- */

/* Before Linux 6.3 clone3 takes CLONE_NEWTIME for something else, unless the fix was carried back; and a
 * kernel may have no time namespaces. Both say EINVAL, and both is remembered. */
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
	struct ns_plan *plan = &request->plan;
	struct answer answer = { .pid = -1, .err = ERR_INIT };
	struct clone_spec how = { .sibling = true, .cgroup = -1 };

	/* Fewer arrive than were sent when there is no room for them here. */
	if (count < 1 + request->has_cgroup) {
		err_set(&answer.err, ERR_LIMIT, "the spawner has no file descriptors left");
	} else {
		plan->control = fds[0];
		if (request->has_cgroup)
			how.cgroup = fds[1];
		answer.pid = clone_child(&how, plan, &answer.err);
		if (answer.pid == 0)
			ns_child(engine, plan);
	}
	for (int i = 0; i < count; i++)
		close(fds[i]); /* before the daemon waits for the end of the child's copy */
	send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
}

/* The layers are off again before the next request is looked at. */
static void stack(
	int holder, const struct err *trouble, int socket, uint32_t uid, const int *fds, int count)
{
	struct answer answer = { .pid = -1, .err = *trouble };
	struct overlay_spec overlay = { .lowers = fds, .uid = uid };
	int root = -1;

	if (count > 1 && holder >= 0) {
		overlay.lower_count = (size_t)count - 1;
		overlay.disk = fds[count - 1];
		if (layers_stack_on(holder, &overlay, &root, &answer.err) == 0)
			answer.pid = 0;
	}
	send_packet(socket, &answer, sizeof answer, &root, root >= 0);
	if (root >= 0)
		close(root);
	if (count > 1)
		layers_take_off(&overlay);
}

static _Noreturn void serve(const struct ns_engine *engine, int socket)
{
	struct err trouble = ERR_INIT;
	struct request request;
	int fds[FDS_MAX], count, null, holder = -1;

	prctl(PR_SET_NAME, "box-spawner");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (dup2(socket, 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) < 0)
		_exit(1);
	close_range(4, ~0u, 0);
	/* Should it fail, whoever asks for a stack is told why. */
	if (engine->layers == LAYERS_ATTACHED)
		layers_open_holder(engine, &holder, &trouble);
	while ((count = receive_packet(3, &request, sizeof request, 0, fds)) >= 0) {
		if (request.kind == REQUEST_SPAWN) {
			spawn(engine, 3, &request, fds, count);
			continue;
		}
		if (request.kind == REQUEST_STACK)
			stack(holder, &trouble, 3, request.uid, fds, count);
		for (int i = 0; i < count; i++)
			close(fds[i]);
	}
	_exit(0);
}

/* ---- in the daemon ------------------------------------------------------------------------------------ */

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

/* After a lost answer the spawner is not trusted with another question: its late answer would be taken
 * for the next one's. */
static int receive_answer(
	struct ns_engine *engine, struct answer *ret, int *ret_fd, struct err *err)
{
	struct pollfd poller = { .fd = engine->spawner.socket, .events = POLLIN };
	int fds[FDS_MAX], count = -1;

	if (poll(&poller, 1, ANSWER_MS) > 0)
		count = receive_packet(poller.fd, ret, sizeof *ret, MSG_DONTWAIT, fds);
	if (count < 0) {
		procfd_kill(engine->spawner.pidfd, SIGKILL, NULL);
		spawner_close(&engine->spawner);
		return err_set(err, ERR_UNAVAILABLE, "the spawner gave no answer");
	}
	*ret_fd = count > 0 ? fds[0] : -1;
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
		.kind = REQUEST_SPAWN, .has_cgroup = plan->cgroup >= 0, .plan = *plan
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
	int none;

	if (receive_answer(engine, &answer, &none, err) < 0)
		return -1;
	*ret_pid = answer.pid;
	return 0;
}

int spawner_stack(
	struct ns_engine *engine, const struct overlay_spec *spec, int *ret, struct err *err)
{
	struct request request = { .kind = REQUEST_STACK, .uid = spec->uid };
	struct answer answer;
	int fds[FDS_MAX], root;

	if (spec->lower_count >= FDS_MAX)
		return err_set(err, ERR_LIMIT, "too many layers: %zu", spec->lower_count);
	memcpy(fds, spec->lowers, sizeof(int) * spec->lower_count);
	fds[spec->lower_count] = spec->disk;
	if (send_request(engine, &request, fds, spec->lower_count + 1, err) < 0 ||
		receive_answer(engine, &answer, &root, err) < 0)
		return -1;
	if (root < 0)
		return err_set(err, ERR_PROTOCOL, "the spawner gave no file system");
	*ret = root;
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
	/* Should it fail, the closing below does the work, only slower. */
	if (engine->spawner.socket >= 0)
		send_packet(engine->spawner.socket, &request, sizeof request, open_fds, open_count);
	for (size_t i = 0; i < open_count; i++)
		close(open_fds[i]);
}
