/* spawner.c - the small process that clones for the daemon
 *
 * A clone copies the page tables and the descriptors of whoever calls it: with 30 MB in use and two
 * thousand descriptors open that alone takes milliseconds, and the copy holds the daemon's secrets until
 * it executes box-init. So the driver forks a spawner while it is still small. It knows the driver's
 * fixed parts (filters, hidden paths), has no descriptor but its socket, and clones with CLONE_PARENT: the
 * new PID 1 is the daemon's child, as if the daemon had cloned it.
 *
 * One request, one packet. SPAWN carries a struct ns_plan and its descriptors (control, cgroup) and is
 * answered; CLOSE carries descriptors only and is not. The spawner ends when the daemon does. If it is
 * lost, the next request starts another. */
#include "engine/ns/ns_internal.h"
#include "base/log.h"
#include "sys/clone.h"
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

enum request_kind { REQUEST_SPAWN = 1, REQUEST_CLOSE };

struct request {
	enum request_kind kind;
	bool has_cgroup;
	struct ns_plan plan; /* its descriptors come beside it */
};

struct answer {
	pid_t pid; /* -1: see err */
	struct err err;
};

union fd_space {
	char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
	struct cmsghdr align;
};

/* ---- in the spawner --------------------------------------------------------------------------------- */

/* Number of fds received; -1: the daemon is gone. */
static int receive(int socket, struct request *ret, int *fds)
{
	union fd_space space;
	struct iovec part = { ret, sizeof *ret };
	struct msghdr message = { .msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &space,
		.msg_controllen = sizeof space };
	struct cmsghdr *header;
	size_t len;
	ssize_t got;

	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof *ret)
		return -1;
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS)
		return 0;
	len = MIN(header->cmsg_len - CMSG_LEN(0), sizeof(int) * FDS_MAX);
	memcpy(fds, CMSG_DATA(header), len);
	return (int)(len / sizeof(int));
}

static void spawn(
	const struct ns_engine *engine, int socket, struct request *request, const int *fds)
{
	struct ns_plan *plan = &request->plan;
	struct answer answer = { .pid = -1, .err = ERR_INIT };
	struct clone_spec how = { .namespaces = NS_CLONE_FLAGS, .sibling = true, .cgroup = -1 };
	int pidfd = -1;

	plan->control = fds[0];
	if (request->has_cgroup)
		how.cgroup = fds[1];
	answer.pid = clone_process(&how, &pidfd, &answer.err);
	if (answer.pid == 0)
		ns_child(engine, plan);
	if (pidfd >= 0)
		close(pidfd);
	close(plan->control); /* before the daemon waits for the end of the child's copy */
	send(socket, &answer, sizeof answer, MSG_NOSIGNAL);
	if (request->has_cgroup)
		close(how.cgroup);
}

static _Noreturn void serve(const struct ns_engine *engine, int socket)
{
	struct request request;
	int fds[FDS_MAX], count, null;

	prctl(PR_SET_NAME, "box-spawner");
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (dup2(socket, 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) < 0)
		_exit(1);
	close_range(4, ~0u, 0);
	while ((count = receive(3, &request, fds)) >= 0) {
		if (request.kind == REQUEST_SPAWN) {
			spawn(engine, 3, &request, fds);
			continue;
		}
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

static ssize_t send_request(
	struct ns_engine *engine, const struct request *request, const int *fds, size_t count)
{
	union fd_space space;
	struct iovec part = { (void *)request, sizeof *request };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct cmsghdr *header;

	memset(&space, 0, sizeof space);
	message.msg_control = &space;
	message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
	header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int) * count);
	memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
	return sendmsg(engine->spawner.socket, &message, MSG_NOSIGNAL);
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
	if (engine->spawner.socket >= 0 && send_request(engine, &request, fds, count) >= 0)
		return 0;
	if (restart(engine, err) < 0)
		return err_wrap(err, "spawner");
	if (send_request(engine, &request, fds, count) < 0)
		return err_sys(err, errno, "speak to the spawner");
	return 0;
}

/* After a lost answer the spawner is not trusted with another question: its late answer would be taken
 * for the next one's. */
int spawner_answer(struct ns_engine *engine, pid_t *ret_pid, struct err *err)
{
	struct pollfd poller = { .fd = engine->spawner.socket, .events = POLLIN };
	struct answer answer;

	if (poll(&poller, 1, ANSWER_MS) <= 0 || recv(engine->spawner.socket, &answer, sizeof answer,
							MSG_DONTWAIT) != (ssize_t)sizeof answer) {
		procfd_kill(engine->spawner.pidfd, SIGKILL, NULL);
		spawner_close(&engine->spawner);
		return err_set(err, ERR_UNAVAILABLE, "the spawner gave no answer");
	}
	if (answer.pid < 0) {
		if (err)
			*err = answer.err;
		return -1;
	}
	*ret_pid = answer.pid;
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
		send_request(engine, &request, open_fds, open_count);
	for (size_t i = 0; i < open_count; i++)
		close(open_fds[i]);
}
