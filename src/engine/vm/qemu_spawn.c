/* qemu_spawn.c - starts a QEMU process, and finds it again in a later daemon */
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "engine/vm/qemu_internal.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { BACKLOG = 8, END_MS = 3000 };

/* ---- sockets -------------------------------------------------------------------------------- */

/* Uses the folder's fd: the path may be longer than a socket address. */
static void address_of(int dir, const char *name, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	snprintf(ret->sun_path, sizeof ret->sun_path, "/proc/self/fd/%d/%s", dir, name);
}

/* The library's socket keeps message boundaries. */
static int type_of(const char *name)
{
	return strcmp(name, QEMU_SOCKET_RAM) == 0 ? SOCK_SEQPACKET : SOCK_STREAM;
}

static int listen_at(int dir, const char *name, int *ret, struct err *err)
{
	_cleanup_close_ int fd = socket(AF_UNIX, type_of(name) | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;

	address_of(dir, name, &address);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
		listen(fd, BACKLOG) < 0)
		return err_sys(err, errno, "make the socket '%s' of QEMU", name);
	*ret = steal_fd(&fd);
	return 0;
}

int qemu_connect(const char *dir, const char *name, int *ret, struct err *err)
{
	_cleanup_close_ int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct sockaddr_un address;

	if (at < 0)
		return err_sys(err, errno, "open '%s'", dir);
	fd = socket(AF_UNIX, type_of(name) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	address_of(at, name, &address);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return err_sys(err, errno, "connect to '%s' of QEMU", name);
	*ret = steal_fd(&fd);
	return 0;
}

void qemu_remove_dir(const char *dir)
{
	struct err err = ERR_INIT;

	if (tree_remove(AT_FDCWD, dir, &err) < 0)
		log_warn("the folder of a QEMU stays", kv_err(&err));
}

/* ---- starting -------------------------------------------------------------------------------- */

static void plan_done(struct qemu_plan *plan)
{
	strv_free(plan->argv);
	strv_free(plan->envp);
	free(plan->prefix);
	for (int i = QEMU_FD_QMP; i <= QEMU_FD_RAM; i++)
		if (plan->fds[i] >= 0)
			close(plan->fds[i]);
	if (plan->output >= 0)
		close(plan->output);
	if (plan->report >= 0)
		close(plan->report);
}

/* /opt/qemu of /opt/qemu/bin/qemu-system-x86_64. */
static char *prefix_of(const char *program)
{
	char *prefix = xstrdup(program), *slash;

	for (int i = 0; i < 2; i++)
		if ((slash = strrchr(prefix, '/')))
			*slash = '\0';
	if (!*prefix || strcmp(prefix, "/usr") == 0 || strncmp(prefix, "/usr/", 5) == 0) {
		free(prefix);
		return NULL;
	}
	return prefix;
}

static int make_sockets(const struct qemu_spec *spec, struct qemu_plan *plan, struct err *err)
{
	_cleanup_close_ int dir = -1;

	if (mkdir(spec->dir, 0700) < 0)
		return err_sys(err, errno, "make '%s'", spec->dir);
	dir = open(spec->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, errno, "open '%s'", spec->dir);
	if (listen_at(dir, QEMU_SOCKET_QMP, &plan->fds[QEMU_FD_QMP], err) < 0 ||
		listen_at(dir, QEMU_SOCKET_LINK, &plan->fds[QEMU_FD_LINK], err) < 0 ||
		listen_at(dir, QEMU_SOCKET_CONTROL, &plan->fds[QEMU_FD_CONTROL], err) < 0)
		return -1;
	return spec->preload ? listen_at(dir, QEMU_SOCKET_RAM, &plan->fds[QEMU_FD_RAM], err) : 0;
}

static int make_pipes(struct qemu *qemu, struct qemu_plan *plan, struct err *err)
{
	int report[2], output[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) < 0)
		return err_sys(err, errno, "socketpair for QEMU");
	qemu->report = report[0];
	plan->report = report[1];
	/* Output of QEMU that nobody reads is dropped, and does not block it. */
	if (pipe2(output, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(err, errno, "pipe for QEMU");
	qemu->output = output[0];
	plan->output = output[1];
	return 0;
}

static void make_plan(const struct qemu_spec *spec, struct qemu_plan *plan)
{
	_cleanup_free_ char *ram = xasprintf("BOX_RAM_FD=%d", QEMU_FD_RAM);

	plan->argv = qemu_argv(spec);
	if (spec->preload) {
		strv_add(&plan->envp, "LD_PRELOAD=" QEMU_IN_PRELOAD);
		strv_add(&plan->envp, ram);
	} else {
		plan->envp = xnew(char *);
	}
	plan->prefix = prefix_of(spec->machine->program);
	plan->fds[QEMU_FD_TAP] = spec->tap;
	plan->fds[QEMU_FD_IMAGE] = spec->image;
	plan->fds[QEMU_FD_DISK] = spec->disk;
}

/* Connects while the listening socket is also ours: a QEMU that ends at once would close its
 * own. */
static int start(struct qemu *qemu, struct qemu_plan *plan, int *ret_monitor, struct err *err)
{
	const struct qemu_spec *spec = plan->spec;
	struct clone_spec how = {
		.namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
			      (spec->netns < 0 ? CLONE_NEWNET : 0),
		.cgroup = spec->cgroup,
	};
	pid_t pid;

	if (make_sockets(spec, plan, err) < 0 || make_pipes(qemu, plan, err) < 0 ||
		qemu_connect(spec->dir, QEMU_SOCKET_QMP, ret_monitor, err) < 0)
		return -1;
	pid = clone_process(&how, &qemu->pidfd, err);
	if (pid == 0)
		qemu_child(plan);
	if (pid < 0)
		return -1;
	qemu->mark.pid = pid;
	return procstat_start_time(pid, &qemu->mark.start_time, err);
}

void qemu_wait_end(struct qemu *qemu)
{
	struct pollfd p = { .fd = qemu->pidfd, .events = POLLIN };
	int ignored;

	if (qemu->pidfd < 0)
		return;
	procfd_kill(qemu->pidfd, SIGKILL, NULL);
	poll(&p, 1, END_MS);
	procfd_reap(qemu->pidfd, &ignored);
}

int qemu_spawn(struct loop *loop, const struct qemu_spec *spec, const struct qemu_ops *ops,
	void *arg, struct qemu **ret, struct err *err)
{
	struct qemu *qemu = qemu_new(loop, spec->dir, ops, arg);
	struct qemu_plan plan = { .spec = spec, .output = -1, .report = -1 };
	_cleanup_close_ int monitor = -1;
	int status;

	memset(plan.fds, 0xff, sizeof plan.fds);
	make_plan(spec, &plan);
	qemu->prefix = plan.prefix ? xstrdup(plan.prefix) : NULL;
	status = start(qemu, &plan, &monitor, err);
	plan_done(&plan);
	if (status < 0) {
		qemu_wait_end(qemu);
		qemu_remove_dir(spec->dir);
		qemu_free(qemu);
		return err_wrap(err, "start QEMU");
	}
	qemu_watch(qemu, steal_fd(&monitor));
	*ret = qemu;
	return 0;
}

int qemu_adopt(struct loop *loop, const char *dir, const struct qemu_mark *mark,
	const struct qemu_ops *ops, void *arg, struct qemu **ret, struct err *err)
{
	struct qemu *qemu = qemu_new(loop, dir, ops, arg);
	uint64_t start_time = 0;
	int monitor;

	qemu->mark = *mark;
	if (procfd_open(mark->pid, &qemu->pidfd, err) == 0 &&
		procstat_start_time(mark->pid, &start_time, err) == 0) {
		if (start_time != mark->start_time)
			err_set(err, ERR_NOT_FOUND, "QEMU %d has ended", (int)mark->pid);
		else if (qemu_connect(dir, QEMU_SOCKET_QMP, &monitor, err) == 0) {
			qemu_watch(qemu, monitor);
			*ret = qemu;
			return 0;
		}
	}
	qemu_free(qemu);
	return err_wrap(err, "find the QEMU of '%s'", dir);
}

/* Packages keep the build time, so the same package installed twice has the same key. The
 * command line is part of it: a state fits no other. */
char *qemu_key(const struct qemu_machine *machine, struct err *err)
{
	struct qemu_spec spec = { .machine = machine, .netns = -1, .image = -1, .disk = -1 };
	_cleanup_strv_ char **argv = qemu_argv(&spec);
	struct buf buf = BUF_INIT;
	char sum[SHA256_HEX + 1];
	struct stat st;

	if (stat(machine->program, &st) < 0) {
		err_sys(err, errno, "look at '%s'", machine->program);
		err_hint(err, "install qemu-system-x86");
		return NULL;
	}
	buf_addf(&buf, "%lld %lld.%ld", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
		st.st_mtim.tv_nsec);
	for (size_t i = 0; argv[i]; i++)
		buf_add(&buf, argv[i], strlen(argv[i]) + 1);
	sha256_hex(buf_head(&buf), buf.len, sum);
	buf_done(&buf);
	return xasprintf("%s-%.16s", machine->kvm ? "kvm" : "tcg", sum);
}
