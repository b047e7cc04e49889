/* shared_epoll.c - an epoll that processes share after a fork, as of a server that saves itself in
 * a child
 *
 * The epoll belongs to the first process and to its child; what it watches is partly here, partly
 * there, and partly under another number than it was added with. Whatever happens to a file is
 * told, with what it was registered with, and each can be registered anew by who has it. */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	HERE,	    /* in both */
	LATER,	    /* opened here after the fork */
	CLOSED,	    /* closed here, open in the child */
	REUSED,	    /* another file, under the number of the one that is closed here */
	CHILDS,	    /* opened and added by the child */
	RENUMBERED, /* added under a number that is closed everywhere; a FIFO of the disk */
	BOTH,	    /* one file, twice: under two numbers */
	BOTH_AGAIN,
	WATCHED
};

static int poller,
	told[WATCHED]; /* what is written to, so that something happens; -1: the child's */
static int to_child, from_child;

static void watch(struct check *check, int fd, uint64_t name)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0x1000 + name };

	must(check, epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl of %d",
		(int)name);
}

/* The child adds a file of its own, holds what the parent closes, and does as it is told: 'w':
 * something happens to its file, 'r': it is taken back; 'c': it reads what it holds, 'm': that is
 * registered anew. */
static void child_run(int held, int commands, int answers)
{
	struct check ignored = { 0 };
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0x1000 + CLOSED };
	int own = eventfd(0, EFD_NONBLOCK);
	uint64_t value;
	char command, answer;

	watch(&ignored, own, CHILDS);
	answer = ignored.why[0] ? 'n' : 'y';
	while (write(answers, &answer, 1) == 1 && read(commands, &command, 1) == 1) {
		answer = 'y';
		if (command == 'w' && eventfd_write(own, 1) < 0)
			answer = 'n';
		if (command == 'r' && read(own, &value, sizeof value) != sizeof value)
			answer = 'n';
		if (command == 'c' && read(held, &value, 1) != 1)
			answer = 'n';
		if (command == 'm' && epoll_ctl(poller, EPOLL_CTL_MOD, held, &event) < 0)
			answer = 'n';
	}
	_exit(0);
}

static bool child_does(char command)
{
	char answer = 'n';

	return write(to_child, &command, 1) == 1 && read(from_child, &answer, 1) == 1 &&
	       answer == 'y';
}

static void child_begin(struct check *check, int held)
{
	int down[2], up[2];
	char answer = 'n';

	must(check, pipe(down) == 0 && pipe(up) == 0, "pipe");
	if (child_new() == 0) {
		close(down[1]);
		close(up[0]);
		child_run(held, down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	to_child = down[1];
	from_child = up[0];
	must(check, read(from_child, &answer, 1) == 1 && answer == 'y', "the child began");
}

static void add_renumbered(struct check *check)
{
	int fd, other;

	unlink("fifo");
	must(check, mkfifo("fifo", 0600) == 0, "mkfifo");
	fd = open("fifo", O_RDWR | O_NONBLOCK);
	watch(check, fd, RENUMBERED);
	other = dup(fd);
	close(fd);
	told[RENUMBERED] = other;
}

static void shared_set_up(struct check *check)
{
	int closed[2], again;

	poller = epoll_create1(0);
	told[HERE] = eventfd(0, EFD_NONBLOCK);
	watch(check, told[HERE], HERE);
	must(check, pipe(closed) == 0, "pipe");
	watch(check, closed[0], CLOSED);
	told[CLOSED] = closed[1];
	child_begin(check, closed[0]);
	told[CHILDS] = -1;
	close(closed[0]);
	told[REUSED] = eventfd(0, EFD_NONBLOCK);
	must(check, told[REUSED] == closed[0], "the number of the closed one is taken again");
	watch(check, told[REUSED], REUSED);
	told[LATER] = eventfd(0, EFD_NONBLOCK);
	watch(check, told[LATER], LATER);
	add_renumbered(check);
	told[BOTH] = eventfd(0, EFD_NONBLOCK);
	again = dup(told[BOTH]);
	watch(check, told[BOTH], BOTH);
	watch(check, again, BOTH_AGAIN);
	told[BOTH_AGAIN] = again;
}

/* Makes something happen to it, or takes that back. */
static void happen(struct check *check, int which, bool on)
{
	uint64_t value = 1;

	if (which == CHILDS)
		must(check, child_does(on ? 'w' : 'r'), "the child's file");
	else if (on)
		must(check, write(told[which], &value, which == CLOSED ? 1 : 8) > 0, "write %d",
			which);
	else if (which == CLOSED)
		must(check, child_does('c'), "the child reads");
	else
		must(check, read(told[which], &value, 8) == 8, "read %d", which);
}

static void told_are(struct check *check, int which)
{
	struct epoll_event events[2 * WATCHED];
	int count = epoll_wait(poller, events, 2 * WATCHED, 5000);
	bool twice = which == BOTH || which == BOTH_AGAIN;

	must(check, count == (twice ? 2 : 1), "%d is told %d times", which, count);
	for (int i = 0; i < count; i++) {
		int name = (int)(events[i].data.u64 - 0x1000);

		must(check, name == which || (twice && (name == BOTH || name == BOTH_AGAIN)),
			"%d is told for %d", name, which);
	}
}

static void shared_verify(struct check *check)
{
	struct epoll_event event = { .events = EPOLLIN };

	for (int which = 0; which < WATCHED; which++) {
		happen(check, which, true);
		told_are(check, which);
		happen(check, which, false);
	}
	must(check, epoll_wait(poller, &event, 1, 0) == 0, "nothing more is told");
	must(check, child_does('m'), "the child registers anew what it holds");
	event = (struct epoll_event){ .events = EPOLLIN, .data.u64 = 0x1000 + REUSED };
	must(check, epoll_ctl(poller, EPOLL_CTL_MOD, told[REUSED], &event) == 0,
		"it is registered anew under its number");
	event.data.u64 = 0x1000 + LATER;
	must(check,
		epoll_ctl(poller, EPOLL_CTL_DEL, told[LATER], NULL) == 0 &&
			epoll_ctl(poller, EPOLL_CTL_ADD, told[LATER], &event) == 0,
		"it is removed and added");
}

const struct kind kind_shared_epoll = { "shared_epoll", shared_set_up, shared_verify };

/* ---- lent to a process before it ------------------------------------------------------------ */

enum { LENT = 50 };
static int lent, bell, bells[LENT];

static bool pass(int socket, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec byte = { "x", 1 };
	struct msghdr message = { .msg_iov = &byte,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	return sendmsg(socket, &message, 0) == 1;
}

static int receive(int socket)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char text;
	struct iovec byte = { &text, 1 };
	struct msghdr message = { .msg_iov = &byte,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control };
	int fd = -1;

	if (recvmsg(socket, &message, 0) == 1 && message.msg_controllen >= sizeof control.head)
		memcpy(&fd, CMSG_DATA(&control.head), sizeof fd);
	return fd;
}

/* The child makes an epoll and 50 files for it, and gives the epoll to its parent, which has a
 * lower number. */
static void lent_set_up(struct check *check)
{
	int pair[2], up[2];

	must(check, socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pipe(up) == 0, "socketpair");
	if (child_new() == 0) {
		struct check ignored = { 0 };
		char which;

		close(up[1]);
		poller = epoll_create1(0);
		for (int i = 0; i < LENT; i++)
			watch(&ignored, bells[i] = eventfd(0, EFD_NONBLOCK), (uint64_t)i);
		if (ignored.why[0] || !pass(pair[1], poller))
			_exit(1);
		while (read(up[0], &which, 1) == 1)
			eventfd_write(bells[(unsigned char)which % LENT], 1);
		_exit(0);
	}
	close(up[0]);
	close(pair[1]);
	bell = up[1];
	lent = receive(pair[0]);
	must(check, lent >= 0, "the epoll arrives");
	close(pair[0]);
}

static void lent_verify(struct check *check)
{
	unsigned char which = (unsigned char)(check->asked % LENT);
	uint64_t last = 0x1000u + which;

	must(check, write(bell, &which, 1) == 1, "write");
	for (int tries = 0; tries < 500; tries++) {
		struct epoll_event events[LENT];
		int count = epoll_wait(lent, events, LENT, 10);

		for (int i = 0; i < count; i++)
			if (events[i].data.u64 == last)
				return;
		usleep(10000);
	}
	must(check, false, "%lx is not told", (unsigned long)last);
}

const struct kind kind_lent_epoll = { "lent_epoll", lent_set_up, lent_verify };

/* ---- on its way ----------------------------------------------------------------------------- */

static int way[2], counters[3];

/* Eventfds all look alike but to kcmp: of those in flight one is open here too, one is nowhere
 * else. */
static void flight_set_up(struct check *check)
{
	must(check, socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0, "socketpair");
	for (int i = 0; i < 3; i++) {
		counters[i] = eventfd(0, EFD_NONBLOCK);
		must(check, counters[i] >= 0 && pass(way[0], counters[i]), "pass");
	}
	close(counters[1]);
	counters[1] = -1;
}

static void flight_verify(struct check *check)
{
	uint64_t value;

	for (int i = 0; i < 3; i++) {
		int fd = receive(way[1]);

		must(check, fd >= 0 && eventfd_write(fd, 7) == 0, "what was on its way arrives");
		if (counters[i] >= 0)
			must(check, read(counters[i], &value, 8) == 8 && value == 7,
				"what arrives is what was sent (%d)", i);
		else
			must(check, read(fd, &value, 8) == 8 && value == 7, "it works");
		must(check, pass(way[0], fd), "pass");
		close(fd);
	}
}

const struct kind kind_in_flight = { "in_flight", flight_set_up, flight_verify };
