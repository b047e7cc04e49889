/* main.c - box-init: PID 1 of every box
 *
 * The driver hands over the listening socket as descriptor 3 and /dev/null as 0, 1 and 2. From then
 * on nothing that a client or the box does may end this process, because the box ends with it: all
 * signals are blocked, children are reaped as SIGCHLD tells, work that may block is done by forked
 * workers, and every table and queue has a bound.
 *
 * `box-init --listen PATH` makes the socket itself and runs as an ordinary process, for tests.
 * Called `box`, the same program is the command by which programs in the box ask the daemon
 * (box.c); called `sftp-server`, or `box-init sftp-server`, it serves files (sftp.c). */
#include "guest/box.h"
#include "guest/conn.h"
#include "guest/connect.h"
#include "guest/control.h"
#include "guest/exec.h"
#include "guest/hosts.h"
#include "guest/modprobe.h"
#include "guest/port.h"
#include "guest/proc.h"
#include "guest/self.h"
#include "guest/sftp.h"
#include "guest/shutdown.h"
#include "guest/trust.h"
#include "guest/vm.h"
#include "guest/watch.h"
#include "guest/worker.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
	LISTEN_FD = 3,
	REAP_MAX = 256, /* per turn; a fork bomb must not keep us from the daemon */
};

static struct watch signals = WATCH_INIT;
static struct timer reap_timer;

static void reap(struct timer *timer)
{
	struct rusage usage;
	int status;
	pid_t pid = 0;

	(void)timer;
	for (int i = 0; i < REAP_MAX; i++) {
		pid = wait4(-1, &status, WNOHANG, &usage);
		if (pid <= 0)
			break;
		/* Neither an exec nor a worker: an orphan of the box that became our child. */
		if (!exec_reaped(pid, status, &usage))
			worker_reaped(pid);
	}
	if (pid > 0)
		timer_arm(&reap_timer, 0, reap);
	shutdown_children(pid >= 0 || errno != ECHILD);
}

static void on_signals(struct watch *watch, uint32_t ready)
{
	struct signalfd_siginfo info[8];

	(void)ready;
	while (read(watch->fd, info, sizeof info) > 0)
		continue;
	reap(NULL);
}

/* By the raw system call: the library reserves two signals and would leave them ignored. */
static void make_default(int number)
{
	static const uint64_t zeros[8]; /* handler SIG_DFL, no flags, empty mask */

	syscall(SYS_rt_sigaction, number, zeros, NULL, sizeof(uint64_t));
}

/* Blocks all signals; only SIGCHLD is read. Dispositions are reset once, so that programs do not
 * inherit what the daemon ignores. */
static int take_signals(struct err *err)
{
	sigset_t all, children;
	int fd;

	for (int number = 1; number < 65; number++)
		make_default(number);
	signal(SIGPIPE, SIG_IGN);
	sigfillset(&all);
	if (getpid() != 1)
		sigdelset(&all, SIGTERM); /* an ordinary process, under test */
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_sys(err, errno, "make a signalfd");
	watch_open(&signals, fd, on_signals);
	watch_set(&signals, EPOLLIN);
	return 0;
}

static void raise_files_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* For tests: a socket of our own, and /dev/null as stdin of the programs. */
static int listen_at(const char *path, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (null >= 0)
		dup2(null, 0);
	if (strlen(path) >= sizeof address.sun_path)
		return err_set(err, ERR_INVALID, "the path of a socket is at most %zu bytes",
			sizeof address.sun_path - 1);
	strcpy(address.sun_path, path);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
		listen(fd, 64) < 0)
		return err_sys(err, errno, "listen at '%s'", path);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return fd;
}

static int setup(int argc, char **argv, struct err *err)
{
	int fd = LISTEN_FD;

	if (argc == 3 && !strcmp(argv[1], "--listen"))
		fd = listen_at(argv[2], err);
	else if (argc != 1)
		return err_set(err, ERR_INVALID, "usage: box-init [--listen PATH]");
	if (fd < 0)
		return -1;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	raise_files_limit();
	if (watch_loop_open(err) < 0 || take_signals(err) < 0 || proc_open(err) < 0)
		return -1;
	if (self_listen(argc == 3 ? argv[2] : NULL, err) < 0)
		return -1;
	return conn_listen(fd, err);
}

static void serve(void)
{
	while (!shutdown_is_done()) {
		watch_loop_turn();
		conn_settle();
	}
}

/* The first process of a machine of its own. */
static int vm_setup(struct err *err)
{
	int link, control;

	if (vm_boot(err) < 0)
		return -1;
	raise_files_limit();
	link = vm_open_port(1, err);
	control = link < 0 ? -1 : vm_open_port(2, err);
	if (control < 0)
		return -1;
	if (watch_loop_open(err) < 0 || take_signals(err) < 0 || proc_open(err) < 0 ||
		self_listen(NULL, err) < 0)
		return -1;
	if (vm_has_root())
		trust_open();
	port_open(link);
	control_open(control);
	return 0;
}

static _Noreturn void vm_main(void)
{
	struct err err = ERR_INIT;

	if (vm_setup(&err) < 0)
		vm_end(&err);
	serve();
	vm_end(NULL);
}

static bool is_sftp(int argc, char **argv)
{
	return (argc > 0 && !strcmp(basename(argv[0]), SFTP_PROGRAM)) ||
	       (argc == 2 && !strcmp(argv[1], SFTP_PROGRAM));
}

int main(int argc, char **argv)
{
	struct err err = ERR_INIT;

	if (argc > 0 && !strcmp(basename(argv[0]), "box"))
		return box_main(argc, argv);
	if (argc > 0 && !strcmp(basename(argv[0]), "modprobe"))
		return modprobe_main(argc, argv);
	if (is_sftp(argc, argv))
		return sftp_main();
	if (argc > 1 && !strcmp(argv[0], CONNECT_PROGRAM))
		return connect_main(argc, argv);
	/* Root in the box has our user id, and could speak to the daemon in our name by ptrace,
	 * /proc/1/mem or pidfd_getfd. Forked children inherit this until they execute a program. */
	prctl(PR_SET_DUMPABLE, 0);
	if (vm_is_here(argc, argv))
		vm_main();
	if (setup(argc, argv, &err) < 0) {
		fprintf(stderr, "box-init: %s\n", err.message);
		return 1;
	}
	if (getpid() == 1) {
		hosts_write_name();
		trust_open();
	}
	serve();
	return 0;
}
