/* descriptors.c - descriptors of every kind keep their flags, whom they send signals to, and which
 *
 * Each kind is opened twice: plainly, and with everything set that can be: not to block, to be
 * closed by an exec, to signal (O_ASYNC) a process, a thread or a group. What fcntl says of it is
 * compared. */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

enum {
	FDS_MAX = 256,
	SIGNAL = 40,	 /* a real-time signal that nobody else uses */
	LARGE = 0100000, /* O_LARGEFILE as the kernel has it */
};

struct seen {
	int flags, fd_flags, signal, lease, seals, pipe_size;
	struct f_owner_ex owner;
};

static struct opened {
	char name[40];
	int fd;
	struct seen was;
} all[FDS_MAX];
static int count;

static struct seen look(int fd)
{
	struct seen seen = { .flags = fcntl(fd, F_GETFL),
		.fd_flags = fcntl(fd, F_GETFD),
		.signal = fcntl(fd, F_GETSIG),
		.lease = fcntl(fd, F_GETLEASE),
		.seals = fcntl(fd, F_GET_SEALS),
		.pipe_size = fcntl(fd, F_GETPIPE_SZ) };

	if (fcntl(fd, F_GETOWN_EX, &seen.owner) < 0)
		seen.owner = (struct f_owner_ex){ 0 };
	/* That a file never had a name is not known of a restored one: it is removed, as others
	 * are. */
	/* Nor by which call a terminal was opened: open() alone says that files may be large, which
	 * means nothing there. */
	seen.flags &= ~LARGE;
	if ((seen.flags & O_TMPFILE) == O_TMPFILE)
		seen.flags &= ~O_TMPFILE;
	errno = 0;
	return seen;
}

static void keep(struct check *check, const char *name, int fd)
{
	struct opened *one = &all[count];

	if (!must(check, fd >= 0 && count < FDS_MAX, "%s", name))
		return;
	snprintf(one->name, sizeof one->name, "%s", name);
	one->fd = fd;
	count++;
}

/* A function that opens one, and what may be set on it afterwards. */
static int file_plain(void)
{
	return open("file", O_RDWR | O_CREAT, 0644);
}
static int file_read_only(void)
{
	return open("file", O_RDONLY | O_CREAT | O_NOFOLLOW, 0644);
}
static int file_append(void)
{
	return open("file", O_WRONLY | O_CREAT | O_APPEND, 0644);
}
static int file_sync(void)
{
	return open("file", O_WRONLY | O_CREAT | O_SYNC | O_NOATIME, 0644);
}
static int file_dsync(void)
{
	return open("file", O_RDWR | O_CREAT | O_DSYNC | O_LARGEFILE, 0644);
}
static int file_path(void)
{
	return open("file", O_PATH);
}
static int file_unnamed(void)
{
	int fd = open(".", O_RDWR | O_TMPFILE, 0600);

	/* An overlay has none before Linux 6.10. */
	return fd < 0 && errno == EOPNOTSUPP ? open("/dev/shm", O_RDWR | O_TMPFILE, 0600) : fd;
}
static int file_removed(void)
{
	int fd = open("removed", O_RDWR | O_CREAT | O_APPEND, 0600);

	unlink("removed");
	return fd;
}
static int folder(void)
{
	return open(".", O_RDONLY | O_DIRECTORY);
}
static int link_path(void)
{
	unlink("link");
	return symlink("file", "link") < 0 ? -1 : open("link", O_PATH | O_NOFOLLOW);
}
static int proc_file(void)
{
	return open("/proc/self/status", O_RDONLY);
}
static int shm_file(void)
{
	return open("/dev/shm/states-checks", O_RDWR | O_CREAT, 0600);
}
static int memory(void)
{
	return memfd_create("plain", MFD_ALLOW_SEALING);
}
static int memory_sealed(void)
{
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	return ftruncate(fd, 4096) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0
		       ? -1
		       : fd;
}
static int pipe_end(int which, int flags)
{
	int fds[2];

	return pipe2(fds, flags) < 0 ? -1 : fds[which]; /* the other end stays open too */
}
static int pipe_read(void)
{
	return pipe_end(0, 0);
}
static int pipe_write(void)
{
	int fd = pipe_end(1, 0);

	return fcntl(fd, F_SETPIPE_SZ, 16384) < 0 ? -1 : fd;
}
static int pipe_packets(void)
{
	return pipe_end(1, O_DIRECT);
}
static int fifo(int flags)
{
	if (mkfifo("flags.fifo", 0600) < 0 && errno != EEXIST)
		return -1;
	return open("flags.fifo", flags);
}
static int fifo_both(void)
{
	return fifo(O_RDWR);
}
static int fifo_read(void)
{
	return fifo(O_RDONLY | O_NONBLOCK);
}
static int fifo_write(void)
{
	return fifo(O_WRONLY | O_NONBLOCK);
}
static int pair(int type)
{
	int fds[2];

	return socketpair(AF_UNIX, type, 0, fds) < 0 ? -1 : fds[0];
}
static int unix_stream(void)
{
	return pair(SOCK_STREAM);
}
static int unix_dgram(void)
{
	return pair(SOCK_DGRAM);
}
static int unix_packets(void)
{
	return pair(SOCK_SEQPACKET);
}
static int unix_unbound(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}
static int unix_listening(void)
{
	struct sockaddr_un at = { AF_UNIX, "" };
	static int number;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(at.sun_path, sizeof at.sun_path, "listening%d", number++);
	unlink(at.sun_path);
	return bind(fd, (void *)&at, sizeof at) < 0 || listen(fd, 4) < 0 ? -1 : fd;
}
static int bound(int family, int type, bool listening)
{
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(family, type, 0);
	const void *address = family == AF_INET ? (void *)&at : (void *)&at6;

	if (bind(fd, address, family == AF_INET ? sizeof at : sizeof at6) < 0 ||
		(listening && listen(fd, 4) < 0))
		return -1;
	return fd;
}
static int tcp_listening(void)
{
	return bound(AF_INET, SOCK_STREAM, true);
}
static int tcp6_listening(void)
{
	return bound(AF_INET6, SOCK_STREAM, true);
}
static int tcp_fresh(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}
static int tcp_connected(void)
{
	int server = tcp_listening(), fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at;
	socklen_t len = sizeof at;

	if (getsockname(server, (void *)&at, &len) < 0 || connect(fd, (void *)&at, len) < 0 ||
		accept(server, NULL, NULL) < 0)
		return -1;
	return fd;
}
static int tcp_accepted(void)
{
	int server = tcp_listening(), fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at;
	socklen_t len = sizeof at;

	if (getsockname(server, (void *)&at, &len) < 0 || connect(fd, (void *)&at, len) < 0)
		return -1;
	return accept(server, NULL, NULL);
}
static int udp(void)
{
	return bound(AF_INET, SOCK_DGRAM, false);
}
static int udp6(void)
{
	return bound(AF_INET6, SOCK_DGRAM, false);
}
static int netlink(void)
{
	return socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
}
static int counter(void)
{
	return eventfd(0, 0);
}
static int timer(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0);
}
static int signals(void)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	return signalfd(-1, &mask, 0);
}
static int poller(void)
{
	return epoll_create1(0);
}
static int watcher(void)
{
	return inotify_init1(0);
}
static int process(void)
{
	return (int)syscall(SYS_pidfd_open, getpid(), 0);
}
static int device(void)
{
	return open("/dev/null", O_RDWR);
}
static int random_device(void)
{
	return open("/dev/urandom", O_RDONLY);
}
static int terminal(int which)
{
	int fds[2];

	return openpty(&fds[0], &fds[1], NULL, NULL, NULL) < 0 ? -1 : fds[which];
}
static int master(void)
{
	return terminal(0);
}
static int slave(void)
{
	return terminal(1);
}
/* Of a terminal with a session: xterm, tmux, and everybody who calls forkpty. */
static int session_master(void)
{
	int fd;
	pid_t pid = forkpty(&fd, NULL, NULL, NULL);

	if (pid == 0)
		for (;;)
			pause();
	return pid < 0 ? -1 : fd;
}

enum { ASYNC = 1, BLOCKS = 2, LEASE = 4 };
static const struct {
	const char *name;
	int (*open)(void);
	int may; /* signal; never block or not by choice; lease */
} kinds[] = {
	{ "file", file_plain, 0 },
	{ "file read only", file_read_only, 0 },
	{ "file append", file_append, 0 },
	{ "file sync", file_sync, 0 },
	{ "file dsync", file_dsync, 0 },
	{ "path", file_path, BLOCKS },
	{ "unnamed file", file_unnamed, 0 },
	{ "removed file", file_removed, 0 },
	{ "folder", folder, 0 },
	{ "link", link_path, BLOCKS },
	{ "proc", proc_file, 0 },
	{ "shm", shm_file, 0 },
	{ "memfd", memory, 0 },
	{ "memfd sealed", memory_sealed, 0 },
	{ "pipe read", pipe_read, ASYNC },
	{ "pipe write", pipe_write, ASYNC },
	{ "pipe packets", pipe_packets, ASYNC },
	{ "fifo both", fifo_both, ASYNC },
	{ "fifo read", fifo_read, ASYNC },
	{ "fifo write", fifo_write, ASYNC },
	{ "unix stream", unix_stream, ASYNC },
	{ "unix dgram", unix_dgram, ASYNC },
	{ "unix packets", unix_packets, ASYNC },
	{ "unix unbound", unix_unbound, ASYNC },
	{ "unix listening", unix_listening, ASYNC },
	{ "tcp listening", tcp_listening, ASYNC },
	{ "tcp6 listening", tcp6_listening, ASYNC },
	{ "tcp fresh", tcp_fresh, ASYNC },
	{ "tcp connected", tcp_connected, ASYNC },
	{ "tcp accepted", tcp_accepted, ASYNC },
	{ "udp", udp, ASYNC },
	{ "udp6", udp6, ASYNC },
	{ "netlink", netlink, ASYNC },
	{ "eventfd", counter, 0 },
	{ "timerfd", timer, 0 },
	{ "signalfd", signals, 0 },
	{ "epoll", poller, 0 },
	{ "inotify", watcher, ASYNC },
	{ "pidfd", process, 0 },
	{ "null", device, 0 },
	{ "urandom", random_device, 0 },
	{ "master", master, ASYNC },
	{ "slave", slave, ASYNC },
	{ "session master", session_master, ASYNC },
};

/* Every other one is a group's, a thread's or a process's to be told. */
static bool set_all(int fd, int may)
{
	static int turn;
	const struct f_owner_ex owners[] = { { F_OWNER_PID, getpid() }, { F_OWNER_TID, gettid() },
		{ F_OWNER_PGRP, getpgrp() } };
	struct f_owner_ex owner = owners[turn++ % 3];

	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return false;
	if (may & BLOCKS) /* O_PATH: nothing else can be set */
		return true;
	return fcntl(fd, F_SETFL,
		       fcntl(fd, F_GETFL) | O_NONBLOCK | O_APPEND | (may & ASYNC ? O_ASYNC : 0)) ==
		       0 &&
	       fcntl(fd, F_SETSIG, SIGNAL) == 0 && fcntl(fd, F_SETOWN_EX, &owner) == 0;
}

static volatile sig_atomic_t told;
static void on_signal(int signal)
{
	(void)signal;
	told++;
}

static int talk[2]; /* what is written to one end is told for the other */

static void descriptors_set_up(struct check *check)
{
	char name[64];
	int lease;

	setpgid(0, 0); /* signals to the group are nobody else's */
	signal(SIGNAL, on_signal);
	signal(SIGIO, on_signal);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		keep(check, kinds[i].name, kinds[i].open());
		snprintf(name, sizeof name, "%s, all set", kinds[i].name);
		keep(check, name, kinds[i].open());
		must(check, count && set_all(all[count - 1].fd, kinds[i].may), "set %s", name);
	}
	lease = open("leased", O_RDWR | O_CREAT, 0600);
	must(check, fcntl(lease, F_SETLEASE, F_WRLCK) == 0, "lease");
	keep(check, "lease", lease);
	must(check, pipe(talk) == 0 && set_all(talk[0], ASYNC), "pipe");
	for (int i = 0; i < count; i++)
		all[i].was = look(all[i].fd);
}

static void compare(struct check *check, const struct opened *one)
{
	struct seen now = look(one->fd), was = one->was;

	must(check, now.flags == was.flags, "%s: flags %#o, were %#o", one->name, now.flags,
		was.flags);
	must(check, now.fd_flags == was.fd_flags, "%s: flags of the descriptor %d, were %d",
		one->name, now.fd_flags, was.fd_flags);
	must(check, now.signal == was.signal, "%s: signal %d, was %d", one->name, now.signal,
		was.signal);
	must(check, now.owner.type == was.owner.type && now.owner.pid == was.owner.pid,
		"%s: owner %d of kind %d, was %d of kind %d", one->name, now.owner.pid,
		now.owner.type, was.owner.pid, was.owner.type);
	must(check, now.lease == was.lease, "%s: lease %d, was %d", one->name, now.lease,
		was.lease);
	must(check, now.seals == was.seals, "%s: seals %#x, were %#x", one->name, now.seals,
		was.seals);
	must(check, now.pipe_size == was.pipe_size, "%s: size %d, was %d", one->name, now.pipe_size,
		was.pipe_size);
}

static void descriptors_verify(struct check *check)
{
	sig_atomic_t before = told;
	char byte;

	for (int i = 0; i < count; i++)
		compare(check, &all[i]);
	must(check, write(talk[1], "x", 1) == 1, "write");
	for (int tries = 0; told == before && tries < 1000; tries++)
		usleep(2000);
	errno = 0;
	must(check, told > before, "no signal for what was written");
	must(check, read(talk[0], &byte, 1) == 1, "read");
}

const struct kind kind_descriptors = { "descriptors", descriptors_set_up, descriptors_verify };
