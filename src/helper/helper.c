/* helper.c - slow work in a process of its own
 *
 * The helper is a clone of the daemon that is PID 1 of a new pid namespace and has a mount
 * namespace of its own. That gives three things at once: killing it kills everything it started,
 * however deep (mmdebstrap, apt, dpkg, maintainer scripts); its exit is seen only after all of them
 * are gone; and no mount made for the work is ever visible to, or left on, the host. PDEATHSIG ties
 * it to the daemon, so a kill -9 of the daemon ends the work too. It talks to the daemon through a
 * SEQPACKET socket, one message each send(). */
#include "helper/helper.h"
#include "base/alloc.h"
#include "loop/loop.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct helper {
	const struct helper_ops *ops;
	void *arg;
	int pidfd;
	int sock;
	struct loop_fd *exit_watch;
	struct loop_fd *message_watch;
};

/* kept is sorted. */
static void close_all_but(const int *kept, size_t count)
{
	unsigned from = 3;

	for (size_t i = 0; i < count; i++) {
		if ((unsigned)kept[i] > from)
			close_range(from, (unsigned)kept[i] - 1, 0);
		from = (unsigned)kept[i] + 1;
	}
	close_range(from, ~0U, 0);
}

static int compare_fds(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* The daemon may have died before PDEATHSIG was set; then the other end of the socket is closed. */
static bool daemon_is_gone(int sock)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

/* Mounts a /proc of the new pid namespace: programs look themselves up there. */
static int set_apart(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static _Noreturn void helper_main(
	const struct helper_ops *ops, void *arg, int sock, int *kept, size_t count)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "box-helper");
	if (null < 0 || dup2(null, STDIN_FILENO) < 0)
		_exit(126);
	qsort(kept, count, sizeof *kept, compare_fds);
	close_all_but(kept, count);
	setsid();
	clone_reset_signals();
	signal(SIGPIPE, SIG_IGN);
	if (daemon_is_gone(sock))
		_exit(126);
	if (!ops->light && set_apart() < 0)
		_exit(125);
	_exit(ops->run(sock, arg));
}

static void deliver(struct helper *helper)
{
	char message[HELPER_MESSAGE_MAX];
	ssize_t len;

	while ((len = recv(helper->sock, message, sizeof message, MSG_DONTWAIT)) > 0)
		if (helper->ops->on_message)
			helper->ops->on_message(message, (size_t)len, helper->arg);
	if (len == 0) /* the helper closed its end; now only its exit matters */
		loop_fd_set(helper->message_watch, 0);
}

static void on_readable(void *arg, unsigned ready)
{
	(void)ready;
	deliver(arg);
}

static void release(struct helper *helper)
{
	loop_fd_free(helper->exit_watch);
	loop_fd_free(helper->message_watch);
	if (helper->pidfd >= 0)
		close(helper->pidfd);
	if (helper->sock >= 0)
		close(helper->sock);
	free(helper);
}

static void on_ended(void *arg, unsigned ready)
{
	struct helper *helper = arg;
	const struct helper_ops *ops = helper->ops;
	void *user = helper->arg;
	int value = 0;
	enum procfd_status status;

	(void)ready;
	status = procfd_reap(helper->pidfd, &value);
	if (status == PROCFD_RUNNING)
		return;
	deliver(helper);
	release(helper);
	ops->on_exit(status == PROCFD_EXITED ? value : -1, user);
}

int helper_start(struct loop *loop, const struct helper_ops *ops, void *arg, const int *keep,
	size_t keep_count, struct helper **ret, struct err *err)
{
	struct clone_spec spec = { .namespaces = ops->light ? 0 : CLONE_NEWPID | CLONE_NEWNS,
		.cgroup = -1 };
	int kept[HELPER_KEEP_MAX + 1];
	struct helper *helper;
	int pair[2], pidfd;
	pid_t pid;

	assert(keep_count <= HELPER_KEEP_MAX);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair for a helper");
	pid = clone_process(&spec, &pidfd, err);
	if (pid == 0) {
		close(pair[0]);
		if (keep_count)
			memcpy(kept, keep, keep_count * sizeof *keep);
		kept[keep_count] = pair[1];
		helper_main(ops, arg, pair[1], kept, keep_count + 1);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_wrap(err, "start a helper process");
	}
	helper = xnew(struct helper);
	*helper = (struct helper){ .ops = ops, .arg = arg, .pidfd = pidfd, .sock = pair[0] };
	helper->exit_watch = loop_fd_new(loop, pidfd, LOOP_READ, on_ended, helper);
	helper->message_watch = loop_fd_new(loop, helper->sock, LOOP_READ, on_readable, helper);
	*ret = helper;
	return 0;
}

bool helper_send(struct helper *helper, const void *message, size_t len)
{
	return send(helper->sock, message, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
}

void helper_kill(struct helper *helper)
{
	procfd_kill(helper->pidfd, SIGKILL, NULL);
}

bool helper_wait(struct helper *helper, int limit_ms)
{
	struct pollfd p = { .fd = helper->pidfd, .events = POLLIN };

	return poll(&p, 1, limit_ms) > 0;
}

void helper_free(struct helper *helper)
{
	struct pollfd p;
	int value;

	if (!helper)
		return;
	helper_kill(helper);
	p = (struct pollfd){ .fd = helper->pidfd, .events = POLLIN };
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	procfd_reap(helper->pidfd, &value);
	release(helper);
}
