/* net.c - the network of a box, measured in network namespaces of its own
 *
 * No packet may leave the machine, and the running daemon must not be disturbed. So a separate
 * process moves into the two namespaces that `box attack` uses, starts a daemon, a server in the
 * "world" and boxes there, and measures what it is asked for, one figure at a time, over a
 * socket pair. It ends when the pair is closed, for whatever reason, and removes everything.
 *
 * The network of a box is also made by hand, with the functions that the daemon uses: a
 * namespace, its devices and rules, our sockets in it, and the sockets sent to the gate's end of
 * a socket. */
#include "bench/bench_internal.h"
#include "base/alloc.h"
#include "bench/net_internal.h"
#include "net/doors.h"
#include "sys/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum {
	/* the kernel removes a namespace in the background: the next measurement must not pay
	 * for it */
	SETTLE_US = 20000,
	LOAD_MS = 500,
	WEB_CONNS = 32,
	ASKING_BOXES = 100,
};

/* ---- a network made by hand ----------------------------------------------------------------- */

struct steps {
	double netns, setup, teardown;
};

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Sends them as the gate gets them: one message with a few words. What arrives at pair[1] stays
 * there until that is closed. */
static int hand_over(const int pair[2], const int doors[DOOR_COUNT], struct err *err)
{
	char words[512] = "{";
	int fds[DOOR_COUNT];
	size_t count = 0;

	for (int i = 0; i < DOOR_COUNT; i++)
		if (doors[i] >= 0)
			fds[count++] = doors[i];
	return fdpass_send(pair[0], words, sizeof words, fds, count, 0) < 0
		       ? err_sys(err, errno, "hand sockets over")
		       : 0;
}

static int open_netns(int *ret, struct err *err)
{
	*ret = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open the network namespace") : 0;
}

/* Runs in the new namespace: sets it up. */
static int furnish(const struct net_rig *rig, struct steps *steps, int *ret_netns, struct err *err)
{
	double start = now_ms();

	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(err, errno, "make a network namespace");
	steps->netns = now_ms() - start;
	start = now_ms();
	if (doors_furnish(rig->plan, false, err) < 0)
		return -1;
	steps->setup = now_ms() - start;
	return open_netns(ret_netns, err);
}

static int make_network(const struct net_rig *rig, struct steps *ret, struct err *err)
{
	_cleanup_close_ int home = -1, netns = -1;
	int doors[DOOR_COUNT], pair[2], status;
	double start;

	if (open_netns(&home, err) < 0)
		return -1;
	status = furnish(rig, ret, &netns, err);
	if (setns(home, CLONE_NEWNET) < 0)
		abort(); /* everything that follows would happen in the wrong namespace */
	if (status < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	start = now_ms();
	status = doors_open(netns, doors, err);
	if (status == 0)
		status = hand_over(pair, doors, err);
	ret->setup += now_ms() - start;
	/* Closes both ends first, so that our close is the last one of every socket: the most
	 * expensive case. */
	close(pair[0]);
	close(pair[1]);
	start = now_ms();
	doors_close(doors);
	close(steal_fd(&netns));
	ret->teardown = now_ms() - start;
	usleep(SETTLE_US);
	return status;
}

static int measure_network(
	struct net_rig *rig, enum bench_net_what what, double *ret, struct err *err)
{
	struct steps steps = { 0 };

	if (make_network(rig, &steps, err) < 0)
		return -1;
	*ret = what == NET_NETNS ? steps.netns : what == NET_SETUP ? steps.setup : steps.teardown;
	return 0;
}

static int measure_create(struct net_rig *rig, double *ret, struct err *err)
{
	char name[32];
	double start;

	snprintf(name, sizeof name, "new-%u", rig->made++);
	start = now_ms();
	if (net_rig_add_box(rig, name, err) < 0)
		return -1;
	*ret = now_ms() - start;
	if (net_rig_remove_box(rig, name, err) < 0)
		return -1;
	usleep(SETTLE_US);
	return 0;
}

static int add_idle_box(struct net_rig *rig, struct err *err)
{
	char name[32];

	snprintf(name, sizeof name, "idle-%u", rig->made++);
	return net_rig_add_box(rig, name, err);
}

/* ---- measured by programs ------------------------------------------------------------------- */

static const struct {
	const char *what;
	enum net_place place;
	const char *amount, *flows;
	bool fresh;
} loads[NET_WHAT_COUNT] = {
	[NET_FIRST] = { "connect", PLACE_BOX, "10", "1", true },
	[NET_FIRST_DIRECT] = { "connect", PLACE_DIRECT, "10", "1", true },
	[NET_CONNECT] = { "connect", PLACE_BOX, "20", "1", false },
	[NET_CONNECT_DIRECT] = { "connect", PLACE_DIRECT, "20", "1", false },
	[NET_PING] = { "ping", PLACE_BOX, "500", "1", false },
	[NET_PING_DIRECT] = { "ping", PLACE_DIRECT, "500", "1", false },
	[NET_SEND] = { "send", PLACE_BOX, "400", "1", false },
	[NET_SEND_DIRECT] = { "send", PLACE_DIRECT, "400", "1", false },
	[NET_SEND_LOOPBACK] = { "send", PLACE_LOOPBACK, "400", "1", false },
	[NET_RECEIVE] = { "receive", PLACE_BOX, "400", "1", false },
	[NET_RECEIVE_DIRECT] = { "receive", PLACE_DIRECT, "400", "1", false },
	[NET_RECEIVE_LOOPBACK] = { "receive", PLACE_LOOPBACK, "400", "1", false },
	[NET_FLOWS] = { "receive", PLACE_BOX, "1000", "100", false },
	[NET_FLOWS_DIRECT] = { "receive", PLACE_DIRECT, "1000", "100", false },
};

static int measure(
	struct net_rig *rig, enum bench_net_what what, struct net_figures *ret, struct err *err)
{
	switch (what) {
	case NET_NETNS:
	case NET_SETUP:
	case NET_TEARDOWN:
		return measure_network(rig, what, &ret->first, err);
	case NET_CREATE:
		return measure_create(rig, &ret->first, err);
	case NET_ADD_BOX:
		return add_idle_box(rig, err);
	case NET_INGRESS:
	case NET_INGRESS_DIRECT:
		return net_load_requests(
			rig, what == NET_INGRESS_DIRECT, WEB_CONNS, LOAD_MS, ret, err);
	case NET_REQUEST:
	case NET_REQUEST_DIRECT:
		return net_load_requests(rig, what == NET_REQUEST_DIRECT, 1, LOAD_MS, ret, err);
	case NET_ANSWERS:
		return net_load_questions(rig, ASKING_BOXES, LOAD_MS, ret, err);
	default:
		return net_rig_load(rig, loads[what].place, loads[what].what, loads[what].fresh,
			loads[what].amount, loads[what].flows, ret, err);
	}
}

/* ---- the process ---------------------------------------------------------------------------- */

struct answer {
	int status;
	struct net_figures figures;
	struct err err;
};

struct bench_net {
	pid_t pid;
	int fd;
};

static void send_answer(int fd, struct answer *answer)
{
	if (send(fd, answer, sizeof *answer, MSG_NOSIGNAL) < 0)
		answer->status = -1; /* the other end has closed: the next read will report it */
}

static void __attribute__((noreturn)) serve(int fd)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct answer answer = { 0 };
	struct net_rig rig = { 0 };
	struct err err = ERR_INIT;
	enum bench_net_what what;

	/* The parent process decides when to stop, and we clean up. */
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		signal(numbers[i], SIG_IGN);
	answer.status = net_rig_open(&rig, &answer.err);
	send_answer(fd, &answer);
	while (answer.status == 0 && recv(fd, &what, sizeof what, 0) == (ssize_t)sizeof what) {
		struct answer each = { 0 };

		each.status = measure(&rig, what, &each.figures, &each.err);
		send_answer(fd, &each);
	}
	if (net_rig_close(&rig, &err) < 0)
		fprintf(stderr, "box: %s\n", err.message);
	_exit(0);
}

static int receive(struct bench_net *net, struct answer *ret, struct err *err)
{
	ssize_t got;

	while ((got = recv(net->fd, ret, sizeof *ret, 0)) < 0 && errno == EINTR)
		;
	if (got != (ssize_t)sizeof *ret)
		return err_set(
			err, ERR_UNAVAILABLE, "the process that measures the network has ended");
	if (ret->status < 0)
		*err = ret->err;
	return ret->status;
}

int bench_net_open(struct bench_net **ret, struct err *err)
{
	struct bench_net *net;
	struct answer answer;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	net = xnew(struct bench_net);
	net->fd = pair[0];
	fflush(NULL);
	net->pid = fork();
	if (net->pid == 0) {
		close(pair[0]);
		setsid();
		serve(pair[1]);
	}
	close(pair[1]);
	if (net->pid < 0) {
		err_sys(err, errno, "fork");
		close(net->fd);
		free(net);
		return -1;
	}
	if (receive(net, &answer, err) < 0) {
		bench_net_close(net);
		return -1;
	}
	*ret = net;
	return 0;
}

void bench_net_close(struct bench_net *net)
{
	if (!net)
		return;
	close(net->fd);
	while (waitpid(net->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(net);
}

int bench_net_run(struct bench_net *net, enum bench_net_what what, double *ret, double *ret_second,
	struct err *err)
{
	struct answer answer;

	if (send(net->fd, &what, sizeof what, MSG_NOSIGNAL) < 0)
		return err_sys(err, errno, "ask the process that measures the network");
	if (receive(net, &answer, err) < 0)
		return -1;
	*ret = answer.figures.first;
	*ret_second = answer.figures.second;
	return 0;
}
