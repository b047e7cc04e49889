/* processes.c - signals, children, locks, and what a process is: ids, limits, credentials */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- locks ---------------------------------------------------------------------------------- */

static int flocked, posix_locked, ofd_locked, mapped_locked;

static void locks_set_up(struct check *check)
{
	struct flock range = { .l_type = F_WRLCK, .l_start = 100, .l_len = 50 };

	flocked = open("flocked", O_RDWR | O_CREAT, 0644);
	posix_locked = open("posix", O_RDWR | O_CREAT, 0644);
	ofd_locked = open("ofd", O_RDWR | O_CREAT, 0644);
	must(check, flock(flocked, LOCK_EX) == 0, "flock");
	must(check, fcntl(posix_locked, F_SETLK, &range) == 0, "POSIX lock");
	must(check, fcntl(ofd_locked, F_OFD_SETLK, &range) == 0, "OFD lock");
	/* As databases do: locks in a file that is in memory too. Whoever closes any descriptor of
	 * it loses them all. */
	mapped_locked = open("mapped", O_RDWR | O_CREAT, 0644);
	must(check,
		ftruncate(mapped_locked, 4096) == 0 && fcntl(mapped_locked, F_SETLK, &range) == 0 &&
			mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mapped_locked, 0) !=
				MAP_FAILED,
		"lock in a mapped file");
}

/* In a child, which owns none of them. */
static int try_locks(void)
{
	struct flock range = { .l_type = F_WRLCK, .l_start = 120, .l_len = 1 };
	struct flock beside = { .l_type = F_WRLCK, .l_start = 150, .l_len = 1 };
	int fd = open("flocked", O_RDWR), posix = open("posix", O_RDWR), ofd = open("ofd", O_RDWR),
	    mapped = open("mapped", O_RDWR);

	if (fd < 0 || posix < 0 || ofd < 0 || mapped < 0)
		return 1;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 2;
	if (fcntl(posix, F_SETLK, &range) == 0)
		return 3;
	if (fcntl(ofd, F_OFD_SETLK, &range) == 0)
		return 4;
	if (fcntl(posix, F_SETLK, &beside) != 0 || fcntl(ofd, F_OFD_SETLK, &beside) != 0)
		return 5;
	if (fcntl(mapped, F_SETLK, &range) == 0)
		return 6;
	return 0;
}

static void locks_verify(struct check *check)
{
	static const char *const names[] = { "", "open", "flock", "POSIX lock", "OFD lock",
		"what is not locked", "lock in a mapped file" };
	int status = 0;
	pid_t child = child_new();

	if (child == 0)
		_exit(try_locks());
	waitpid(child, &status, 0);
	must(check, WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: not as it was",
		names[WEXITSTATUS(status) % 7]);
}

const struct kind kind_locks = { "locks", locks_set_up, locks_verify };

/* ---- signals: blocked, pending, handled ----------------------------------------------------- */

enum { VALUES = 3 };
static volatile unsigned handled;
static char *alternative;

static void on_term(int number)
{
	char here;

	/* It was asked to run on the other stack. */
	if (number == SIGTERM && &here >= alternative && &here < alternative + 65536)
		handled++;
}

static void signals_set_up(struct check *check)
{
	struct sigaction term = { .sa_handler = on_term, .sa_flags = SA_ONSTACK | SA_RESTART };
	sigset_t mask;

	alternative = malloc(65536);
	must(check,
		sigaltstack(&(stack_t){ .ss_sp = alternative, .ss_size = 65536 }, NULL) == 0 &&
			sigaction(SIGTERM, &term, NULL) == 0,
		"handler");
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&mask);
	sigaddset(&mask, SIGRTMIN + 5);
	sigaddset(&mask, SIGUSR2);
	must(check, sigprocmask(SIG_BLOCK, &mask, NULL) == 0, "block");
	for (int i = 0; i < VALUES; i++)
		must(check, sigqueue(getpid(), SIGRTMIN + 5, (union sigval){ .sival_int = i }) == 0,
			"sigqueue");
	/* To this thread alone, which is another queue. */
	must(check, syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2) == 0, "tgkill");
}

static void signals_verify(struct check *check)
{
	struct timespec none = { 0 };
	struct sigaction action;
	sigset_t mask, wanted;
	siginfo_t info;
	unsigned before = handled;

	must(check,
		sigprocmask(SIG_BLOCK, NULL, &mask) == 0 && sigismember(&mask, SIGUSR2) &&
			sigismember(&mask, SIGRTMIN + 5) && !sigismember(&mask, SIGTERM),
		"mask");
	must(check, sigpending(&mask) == 0 && sigismember(&mask, SIGUSR2),
		"SIGUSR2 is not pending any more");
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGRTMIN + 5);
	must(check,
		sigtimedwait(&wanted, &info, &none) == SIGRTMIN + 5 &&
			info.si_value.sival_int == (int)check->asked && info.si_pid == getpid(),
		"pending signal: value %d, not %u", info.si_value.sival_int, check->asked);
	must(check,
		sigqueue(getpid(), SIGRTMIN + 5,
			(union sigval){ .sival_int = (int)check->asked + VALUES }) == 0,
		"sigqueue");
	must(check, sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN,
		"SIGHUP is ignored");
	raise(SIGHUP);
	raise(SIGTERM);
	must(check, handled == before + 1, "handler on its own stack");
}

const struct kind kind_signals = { "signals", signals_set_up, signals_verify };

/* ---- children: living, stopped, dead -------------------------------------------------------- */

static int question[2], reply[2];
static pid_t living, grandchild, stopped, zombie, leader, follower;

static pid_t zombie_new(int code)
{
	pid_t pid = child_new();

	if (pid == 0)
		_exit(code);
	return pid;
}

/* Answers with its own idea of who it is. */
static void live(void)
{
	pid_t ids[3];
	char byte;

	grandchild = child_new();
	if (grandchild == 0)
		for (;;)
			pause();
	while (read(question[0], &byte, 1) == 1) {
		ids[0] = getpid(), ids[1] = getppid(), ids[2] = grandchild;
		if (write(reply[1], ids, sizeof ids) != sizeof ids)
			_exit(1);
	}
	_exit(0);
}

static pid_t lead(void)
{
	pid_t pid = child_new();

	if (pid == 0) {
		setsid();
		for (;;)
			pause();
	}
	return pid;
}

static void children_set_up(struct check *check)
{
	pid_t ids[3];

	must(check, pipe(question) == 0 && pipe(reply) == 0, "pipe");
	living = child_new();
	if (living == 0)
		live();
	stopped = child_new();
	if (stopped == 0)
		for (;;)
			pause();
	kill(stopped, SIGSTOP);
	must(check, process_state_is(stopped, 'T'), "a stopped child");
	zombie = zombie_new(0);
	must(check, process_state_is(zombie, 'Z'), "a zombie");
	leader = lead();
	for (int tries = 0; getsid(leader) != leader && tries < 2000; tries++)
		usleep(1000);
	follower = child_new();
	if (follower == 0)
		for (;;)
			pause();
	must(check, setpgid(follower, follower) == 0, "setpgid");
	must(check,
		write(question[1], "?", 1) == 1 && read(reply[0], ids, sizeof ids) == sizeof ids,
		"ask");
	grandchild = ids[2];
}

static void children_verify(struct check *check)
{
	struct pollfd wait = { .fd = reply[0], .events = POLLIN };
	pid_t ids[3] = { 0 };
	int status = 0;

	must(check,
		write(question[1], "?", 1) == 1 && poll(&wait, 1, 10000) == 1 &&
			read(reply[0], ids, sizeof ids) == sizeof ids,
		"the child does not answer");
	must(check, ids[0] == living && ids[1] == getpid() && ids[2] == grandchild, "ids: %d %d %d",
		ids[0], ids[1], ids[2]);
	must(check, kill(grandchild, 0) == 0, "the grandchild is gone");
	must(check, getpgid(living) == getpgrp() && getsid(living) == getsid(0),
		"group and session");
	must(check, getsid(leader) == leader && getpgid(leader) == leader, "a session of its own");
	must(check, getpgid(follower) == follower && getsid(follower) == getsid(0),
		"a group of its own");
	must(check, process_state_is(stopped, 'T'), "the stopped child runs");
	kill(stopped, SIGCONT);
	must(check, process_state_is(stopped, 'S'), "the stopped child cannot go on");
	kill(stopped, SIGSTOP);
	must(check, process_state_is(stopped, 'T'), "it does not stop");
	must(check, process_state_is(zombie, 'Z'), "the zombie is gone");
	must(check,
		waitpid(zombie, &status, WNOHANG) == zombie && WIFEXITED(status) &&
			WEXITSTATUS(status) == (int)(check->asked % 100),
		"status of the zombie: %#x", (unsigned)status);
	zombie = zombie_new((int)((check->asked + 1) % 100));
	must(check, process_state_is(zombie, 'Z'), "a new zombie");
}

const struct kind kind_children = { "children", children_set_up, children_verify };

static int pidfd;
static pid_t held;

static void pidfd_set_up(struct check *check)
{
	held = child_new();
	if (held == 0)
		for (;;)
			pause();
	pidfd = (int)syscall(SYS_pidfd_open, held, 0);
	must(check, pidfd >= 0, "pidfd_open");
}

static void pidfd_verify(struct check *check)
{
	struct pollfd wait = { .fd = pidfd, .events = POLLIN };

	must(check, poll(&wait, 1, 0) == 0, "the child is alive, its pidfd says it is not");
	must(check, syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) == 0, "pidfd_send_signal");
}

const struct kind kind_pidfd = { "pidfd", pidfd_set_up, pidfd_verify };

/* ---- what a process is ---------------------------------------------------------------------- */

enum { USER = 1234, GROUP = 2345, EXTRA = 3456 };

static void context_set_up(struct check *check)
{
	struct rlimit files = { .rlim_cur = 777, .rlim_max = 888 }, stack = { 1 << 22, 1 << 23 };

	must(check,
		mkdir("deep", 0755) == 0 && mkdir("deep/er", 0777) == 0 && chdir("deep/er") == 0,
		"chdir");
	must(check, chmod(".", 0777) == 0, "chmod");
	setenv("STATES_CHECK", "a value", 1);
	umask(027);
	must(check, setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_STACK, &stack) == 0,
		"setrlimit");
	must(check, setpriority(PRIO_PROCESS, 0, 7) == 0, "nice");
	must(check, sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }) == 0,
		"SCHED_BATCH");
	must(check, setgroups(1, &(gid_t){ EXTRA }) == 0 && setgid(GROUP) == 0 && setuid(USER) == 0,
		"another user");
	must(check,
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
			prctl(PR_SET_NAME, "its own name") == 0,
		"prctl");
}

static void context_verify(struct check *check)
{
	char text[256], want[256];
	struct rlimit limit;
	gid_t groups[8];
	mode_t mask = umask(0);
	uid_t ruid, euid, suid;
	struct stat info;

	umask(mask);
	snprintf(want, sizeof want, "%s/deep/er", check->dir);
	must(check, getcwd(text, sizeof text) && strcmp(text, want) == 0, "folder: %s", text);
	must(check, getenv("STATES_CHECK") && strcmp(getenv("STATES_CHECK"), "a value") == 0,
		"environment");
	must(check, mask == 027, "umask: %o", mask);
	must(check,
		getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == 777 &&
			limit.rlim_max == 888,
		"limit of files");
	must(check, getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == 1 << 22,
		"limit of the stack");
	must(check, getpriority(PRIO_PROCESS, 0) == 7, "nice: %d", getpriority(PRIO_PROCESS, 0));
	must(check, sched_getscheduler(0) == SCHED_BATCH, "scheduler");
	must(check,
		getresuid(&ruid, &euid, &suid) == 0 && ruid == USER && euid == USER &&
			suid == USER && getegid() == GROUP,
		"user %u", euid);
	must(check, getgroups(8, groups) == 1 && groups[0] == EXTRA, "groups");
	must(check, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1, "no new privileges");
	must(check, prctl(PR_GET_NAME, text) == 0 && strcmp(text, "its own name") == 0, "name: %s",
		text);
	must(check, setuid(0) < 0, "became root");
	errno = 0;
	unlink("mine");
	errno = 0;
	int fd = open("mine", O_WRONLY | O_CREAT | O_EXCL, 0666);
	must(check,
		fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == USER &&
			(info.st_mode & 0777) == 0640,
		"a new file is %u, %o", info.st_uid, info.st_mode & 0777);
	close(fd);
}

const struct kind kind_context = { "context", context_set_up, context_verify };
