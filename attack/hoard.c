/* hoard.c - more kernel memory and kernel objects than the limit
 *
 * The work is done in a process of its own, which may be killed for it; what it got so far is in
 * shared memory. An attack counts as refused when it did not get what it asked for. Everything
 * is released at the end. */
#include "attack/attacker.h"
#include "attack/hoard.h"
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	HOARD_MS = 3000,
	KEPT_MS = 700,
	FILE_SIZE = 16 << 20,
	PROCESS_S = 20,
};

static char chunk[HOARD_CHUNK];

/* ---- memory: each call takes more and returns the bytes; 0: no more ------------------------- */

static int64_t hoard_pipe(void)
{
	int pair[2];
	int64_t sent = 0;
	ssize_t got;

	if (pipe2(pair, O_NONBLOCK) < 0)
		return 0;
	fcntl(pair[1], F_SETPIPE_SZ, 1 << 20);
	while ((got = write(pair[1], chunk, sizeof chunk)) > 0)
		sent += got;
	return sent;
}

static int64_t hoard_memfd(void)
{
	int fd = memfd_create("hoard", 0);
	int64_t written = 0;
	ssize_t got;

	while (fd >= 0 && written < FILE_SIZE && (got = write(fd, chunk, sizeof chunk)) > 0)
		written += got;
	return written;
}

/* Terabytes of sparse memory. */
static int64_t hoard_sparse(void)
{
	int fd = memfd_create("sparse", 0);

	return fd >= 0 && ftruncate(fd, (off_t)8 << 40) == 0 ? (int64_t)8 << 40 : 0;
}

static int64_t hoard_segment(void)
{
	return shmget(IPC_PRIVATE, (size_t)4 << 40, IPC_CREAT | SHM_NORESERVE | 0600) >= 0
		       ? (int64_t)4 << 40
		       : 0;
}

/* ---- kernel objects: one more each ---------------------------------------------------------- */

static int64_t hoard_inotify(void)
{
	return inotify_init1(0) >= 0;
}

static int64_t hoard_signal(void)
{
	return sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ 0 }) == 0;
}

static int64_t hoard_mqueue(void)
{
	static unsigned number;
	char name[32];
	mqd_t queue;

	snprintf(name, sizeof name, "/hoard-%d-%u", (int)getpid(), number++);
	queue = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
	mq_unlink(name);
	return queue >= 0;
}

/* On a mount made by the box, without a limit, where that is possible. */
static int64_t hoard_terminal(void)
{
	static const char *path;

	if (!path) {
		mkdir("/tmp", 01777);
		mkdir("/tmp/pts", 0755);
		path = mount("devpts", "/tmp/pts", "devpts", 0, "newinstance,ptmxmode=0666") == 0
			       ? "/tmp/pts/ptmx"
			       : "/dev/pts/ptmx";
	}
	return open(path, O_RDWR | O_NOCTTY) >= 0;
}

/* They end with their parent. */
static int64_t hoard_process(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(PROCESS_S);
		pause();
		_exit(0);
	}
	return pid > 0;
}

static const struct {
	const char *name;
	int64_t (*more)(void);
	int shift; /* the unit of the wanted amount */
} hoards[] = {
	{ "ring", hoard_ring, 20 },
	{ "netlink", hoard_netlink, 20 },
	{ "usersock", hoard_usersock, 20 },
	{ "udp", hoard_udp, 20 },
	{ "raw", hoard_raw, 20 },
	{ "tcp", hoard_tcp, 20 },
	{ "returned", hoard_returned, 20 },
	{ "returned-tcp", hoard_returned_tcp, 20 },
	{ "first", hoard_first, 20 },
	{ "unaccepted", hoard_unaccepted, 20 },
	{ "unlisted", hoard_unlisted, 20 },
	{ "elsewhere", hoard_elsewhere, 20 },
	{ "unix", hoard_unix, 20 },
	{ "pipe", hoard_pipe, 20 },
	{ "memfd", hoard_memfd, 20 },
	{ "sparse", hoard_sparse, 40 },
	{ "segment", hoard_segment, 40 },
	{ "inotify", hoard_inotify, 0 },
	{ "signals", hoard_signal, 0 },
	{ "queues", hoard_mqueue, 0 },
	{ "terminals", hoard_terminal, 0 },
	{ "neighbours", hoard_neighbours, 0 },
	{ "processes", hoard_process, 0 },
};

struct shared {
	volatile int64_t got;
	volatile int error;
};

static _Noreturn void work(size_t which, int64_t wanted, int hold_ms, struct shared *shared)
{
	struct rlimit files;
	int64_t since = now_us(), more;
	sigset_t blocked;
	int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	/* This process should be killed, not the one that reports. */
	if (score >= 0 && write(score, "1000", 4) == 4)
		close(score);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGRTMIN + 1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	while (shared->got < wanted && now_us() - since < HOARD_MS * 1000LL) {
		errno = 0;
		more = hoards[which].more();
		if (more <= 0)
			break;
		shared->got += more;
	}
	shared->error = errno;
	/* Holds them while others look. */
	if (hold_ms)
		printf("{\"held\":%lld}\n", (long long)shared->got);
	/* Only what can be kept counts: queues that no cgroup counts are checked five times a
	 * second. */
	if (shared->got >= wanted && hold_ms < KEPT_MS)
		hold_ms = KEPT_MS;
	usleep((useconds_t)hold_ms * 1000);
	_exit(0);
}

void attack_hoard(int argc, char **argv, struct outcome *out)
{
	int64_t since = now_us(), wanted;
	size_t which = 0;
	struct shared *shared = mmap(
		NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0, hold_ms = argc > 2 ? atoi(argv[2]) : 0;
	pid_t pid;

	while (which < sizeof hoards / sizeof *hoards && strcmp(argv[0], hoards[which].name))
		which++;
	if (which == sizeof hoards / sizeof *hoards || shared == MAP_FAILED) {
		outcome_refused(out, 0, "there is no hoard '%s'", argv[0]);
		return;
	}
	wanted = strtoll(argv[1], NULL, 10) << hoards[which].shift;
	pid = fork();
	if (pid == 0)
		work(which, wanted, hold_ms, shared);
	waitpid(pid, &status, 0);
	if (shared->got >= wanted && !WIFSIGNALED(status))
		outcome_through(out, since, "got all of %s", argv[1]);
	else
		outcome_refused(out, since, "%s with %lld of %s",
			WIFSIGNALED(status) ? "killed"
			: shared->error	    ? strerrorname_np(shared->error)
					    : "no more",
			(long long)(shared->got >> hoards[which].shift), argv[1]);
	outcome_detail(out, "%lld", (long long)(shared->got >> hoards[which].shift));
}

/* Searches WORD in all files that a box can read. */
void attack_told(int argc, char **argv, struct outcome *out)
{
	static const char *const files[] = { "/proc/self/mountinfo", "/proc/self/mounts",
		"/proc/self/cgroup", "/proc/1/cgroup", "/proc/cmdline", "/proc/swaps",
		"/proc/self/environ", "/proc/sys/kernel/core_pattern" };
	static char text[TEXT_MAX];
	int64_t since = now_us();

	(void)argc;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		int fd = open(files[i], O_RDONLY | O_CLOEXEC);
		ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

		if (fd >= 0)
			close(fd);
		if (len > 0 && memmem(text, (size_t)len, argv[0], strlen(argv[0]))) {
			outcome_through(out, since, "%s tells it", files[i]);
			return;
		}
	}
	outcome_refused(out, since, "no file tells it");
}
