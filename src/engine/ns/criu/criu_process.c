/* criu_process.c - starts and ends the process that becomes criu
 *
 * It gets a socket, a minimal environment and none of our file descriptors except those to be
 * inherited. It leads its own session, so that its group is what it started: when a restore is
 * killed before we know the pid of the new PID 1, which is our child, that is still found and
 * ended. A failure before the exec is sent over the same socket, as a packet that starts with a
 * zero byte, which no protobuf message does.
 *
 * A dump is not tied to our life by a signal: a kill at a bad moment could end a process of the
 * box. When the socket closes it fails at its next event, and undoes its work. A restore without us
 * is killed: it has nothing to undo, and would wait for ever for the end of what it made, which is
 * not its child. */
#include "engine/ns/criu/criu_internal.h"
#include "sys/clone.h"
#include "sys/mountfd.h"
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FD_SOCK = 3, FD_FREE = 64 };

struct failure {
	char zero;
	struct err err;
};

/* ---- the child ------------------------------------------------------------------------------ */

/* stdin is empty, output goes to output, the socket is FD_SOCK; all others that are not inherited
 * are closed by the exec. */
static int arrange_fds(
	const struct criu_request *request, int *sock, int *program, int output, struct err *err)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* Move it away first: any of them may have one of the numbers below. */
	int moved = fcntl(*sock, F_DUPFD_CLOEXEC, FD_FREE);
	int printed = fcntl(output, F_DUPFD_CLOEXEC, FD_FREE);

	*program = fcntl(*program, F_DUPFD_CLOEXEC, FD_FREE);
	if (null < 0 || moved < 0 || printed < 0 || *program < 0)
		return err_sys(err, errno, "arrange file descriptors");
	*sock = moved;
	for (size_t i = 0; i < request->inherit_count; i++)
		if (request->inherit[i].fd <= FD_SOCK)
			return err_set(err, ERR_INVALID,
				"fd %d cannot be inherited: the first is %d",
				request->inherit[i].fd, FD_SOCK + 1);
	if (dup2(null, 0) < 0 || dup2(printed, 1) < 0 || dup2(printed, 2) < 0 ||
		dup2(moved, FD_SOCK) < 0)
		return err_sys(err, errno, "dup2");
	if (close_range(FD_SOCK + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return err_sys(err, errno, "close_range");
	for (size_t i = 0; i < request->inherit_count; i++)
		if (fcntl(request->inherit[i].fd, F_SETFD, 0) < 0)
			return err_sys(err, errno, "inherit fd %d", request->inherit[i].fd);
	return 0;
}

static int attach(int mount, const char *path, struct err *err)
{
	int target = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (target < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (mount_attach(mount, target, err) < 0)
		return err_wrap(err, "mount on '%s'", path);
	close(target);
	return 0;
}

/* Mounts what is at path, with everything below it, again on top as it was. */
static int keep(const char *path, int tree, struct err *err)
{
	int status;

	if (tree < 0)
		return err_sys(err, errno, "open_tree '%s'", path);
	status = attach(tree, path, err);
	close(tree);
	return status;
}

/* A box chooses the names of its files, and may put a symlink in place of a folder. However CRIU
 * reaches the machine's own files that way, it must not change them. It needs /proc and the cgroups
 * in /sys. */
static int protect_machine(struct err *err)
{
	const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
	struct mount_attr closed = { .attr_set = MOUNT_ATTR_RDONLY };
	int proc = open_tree(AT_FDCWD, "/proc", flags), sys = open_tree(AT_FDCWD, "/sys", flags);

	if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &closed, sizeof closed) < 0)
		return err_sys(err, errno, "make the machine's files read-only for criu");
	return keep("/proc", proc, err) < 0 ? -1 : keep("/sys", sys, err);
}

/* Copied while its mount is still in our namespace. */
static int cover_scratch(int scratch, struct err *err)
{
	int run = -1, tmp = -1;

	if (mount_clone(scratch, "", &run, err) < 0 || mount_clone(scratch, "", &tmp, err) < 0)
		return -1;
	if (unshare(CLONE_NEWNS) < 0)
		return err_sys(err, errno, "unshare the mounts");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(err, errno, "make mounts private");
	if (protect_machine(err) < 0)
		return -1;
	if (attach(run, "/run", err) < 0)
		return -1;
	return attach(tmp, "/tmp", err);
}

/* The program is opened before /run and /tmp are covered: it may be there. */
static int prepare(const struct criu_request *request, int *ret_program, struct err *err)
{
	*ret_program = open(request->program, O_PATH | O_CLOEXEC);
	if (*ret_program < 0)
		return err_sys(err, errno, "execute '%s'", request->program);
	if (request->scratch >= 0 && cover_scratch(request->scratch, err) < 0)
		return -1;
	return request->prepare ? request->prepare(request->prepare_arg, err) : 0;
}

/* The caller may already be dead, and then no signal comes; but the other end of the socket is
 * closed. */
static int die_with_caller(int sock)
{
	struct pollfd p = { .fd = sock };

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -1;
	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) ? -1 : 0;
}

static _Noreturn void run(
	const struct criu_request *request, bool dies_with_us, int sock, int output)
{
	/* A configuration file of the machine could change anything. */
	char *const argv[] = { "criu", "--no-default-config", "swrk", "3", NULL };
	char owner[32], *envp[4] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin" };
	size_t count = 1;
	struct failure failure = { 0 };
	int program;

	if (request->time_passes)
		envp[count++] = "BOX_TIME_PASSES=1";
	snprintf(owner, sizeof owner, "BOX_OWNER=%u", request->owner);
	if (request->owner)
		envp[count++] = owner;
	if (dies_with_us && die_with_caller(sock) < 0)
		_exit(127);
	setsid();
	/* A restore reads the images as root of the box; the directory keeps others out. */
	umask(022);
	if (prepare(request, &program, &failure.err) == 0 &&
		arrange_fds(request, &sock, &program, output, &failure.err) == 0) {
		clone_reset_signals();
		if (request->scratch >= 0)
			syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
		else
			execve(request->program, argv, envp);
		err_sys(&failure.err, errno, "execute '%s'", request->program);
	}
	send(sock, &failure, sizeof failure, MSG_NOSIGNAL);
	_exit(127);
}

/* ---- the caller ----------------------------------------------------------------------------- */

int criu_process_start(const struct criu_request *request, bool dies_with_us,
	struct criu_process *ret, struct err *err)
{
	struct clone_spec spec = { .cgroup = request->cgroup };
	_cleanup_close_ int output = memfd_create("criu", MFD_CLOEXEC);
	_cleanup_close_ int ours = -1, theirs = -1;
	int pair[2], pidfd = -1;
	pid_t pid;

	if (output < 0)
		return err_sys(err, errno, "memfd_create");
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair for criu");
	ours = pair[0];
	theirs = pair[1];
	/* Only our end: CRIU expects its own end to block. */
	if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(err, errno, "fcntl");
	pid = clone_process(&spec, &pidfd, err);
	if (pid == 0) {
		close(ours);
		run(request, dies_with_us, theirs, output);
	}
	if (pid < 0)
		return err_wrap(err, "start criu");
	*ret = (struct criu_process){ pid, pidfd, steal_fd(&ours), steal_fd(&output) };
	return 0;
}

bool criu_process_failed(const void *message, size_t len, struct err *ret)
{
	struct failure failure;

	if (len != sizeof failure || *(const char *)message != '\0')
		return false;
	memcpy(&failure, message, sizeof failure);
	if (failure.err.kind <= ERR_NONE || failure.err.kind >= ERR_KIND_COUNT)
		return false;
	failure.err.message[sizeof failure.err.message - 1] = '\0';
	failure.err.hint[sizeof failure.err.hint - 1] = '\0';
	*ret = failure.err;
	return true;
}

/* Until it is reaped its process group id is not reused. */
void criu_process_kill(const struct criu_process *process)
{
	procfd_kill(process->pidfd, SIGKILL, NULL);
	kill(-process->pid, SIGKILL);
}

bool criu_process_reap(struct criu_process *process, bool *ret_by_signal, int *ret_value)
{
	enum procfd_status status = procfd_reap(process->pidfd, ret_value);

	*ret_by_signal = status == PROCFD_SIGNALED;
	return status != PROCFD_RUNNING;
}

/* A group keeps its number while it has members. */
bool criu_process_reap_group(const struct criu_process *process)
{
	siginfo_t info = { 0 };

	do {
		info.si_pid = 0;
		if (waitid(P_PGID, (id_t)process->pid, &info, WEXITED | WNOHANG) < 0)
			return errno != EINTR;
	} while (info.si_pid);
	return false;
}

void criu_process_close(struct criu_process *process)
{
	close(process->pidfd);
	close(process->sock);
	close(process->output);
}
