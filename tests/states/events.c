/* events.c - what programs wait by: epoll, eventfd, signalfd, inotify */
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
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* ---- epoll ---------------------------------------------------------------------------------- */

enum { MANY = 200, ONCE = 7 };
static int poller, outer, members[MANY];

static void epoll_set_up(struct check *check)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0xfeed };

	poller = epoll_create1(EPOLL_CLOEXEC);
	outer = epoll_create1(0);
	for (int i = 0; i < MANY; i++) {
		members[i] = eventfd(0, EFD_NONBLOCK);
		event.events = EPOLLIN | (i % 3 == 0 ? EPOLLET : 0);
		if (i == ONCE)
			event.events = EPOLLIN | EPOLLONESHOT;
		event.data.u64 = 0xabcd00000000u + (unsigned)i;
		must(check, epoll_ctl(poller, EPOLL_CTL_ADD, members[i], &event) == 0, "epoll_ctl");
	}
	event = (struct epoll_event){ .events = EPOLLIN, .data.u64 = 0xfeed };
	must(check, epoll_ctl(outer, EPOLL_CTL_ADD, poller, &event) == 0, "epoll in an epoll");
}

/* Exactly the members that were written to are told, with what they were registered with. */
static void told_must_be(struct check *check, const bool expected[MANY])
{
	struct epoll_event told[MANY];
	bool seen[MANY] = { 0 };
	int count = epoll_wait(poller, told, MANY, 5000);

	must(check, count > 0, "epoll_wait: %d", count);
	for (int i = 0; i < count; i++) {
		uint64_t member = told[i].data.u64 - 0xabcd00000000u;

		if (must(check, member < MANY && told[i].events == EPOLLIN, "strange event %lx",
			    (unsigned long)told[i].data.u64))
			seen[member] = true;
	}
	for (int i = 0; i < MANY; i++)
		must(check, seen[i] == expected[i], "member %d is %stold", i,
			seen[i] ? "" : "not ");
}

static void epoll_verify(struct check *check)
{
	struct epoll_event event;
	bool expected[MANY] = { 0 };
	uint64_t value;

	/* A restored edge-triggered member may be told once too often: that is allowed by
	 * epoll(7). */
	while (epoll_wait(poller, &event, 1, 0) == 1)
		;
	for (int i = (int)(check->asked % 10); i < MANY; i += 10) {
		must(check, eventfd_write(members[i], 1) == 0, "eventfd_write");
		expected[i] = i != ONCE;
	}
	must(check, epoll_wait(outer, &event, 1, 5000) == 1 && event.data.u64 == 0xfeed,
		"epoll in an epoll");
	if (check->asked == 7)
		expected[ONCE] = true; /* the first and last time */
	told_must_be(check, expected);
	for (int i = 0; i < MANY; i++)
		(void)!read(members[i], &value, sizeof value);
	errno = 0;
}

const struct kind kind_epoll = { "epoll", epoll_set_up, epoll_verify };

/* ---- eventfd -------------------------------------------------------------------------------- */

static int counter, semaphore;

static void eventfd_set_up(struct check *check)
{
	counter = eventfd(12345, EFD_NONBLOCK);
	semaphore = eventfd(1000, EFD_SEMAPHORE | EFD_NONBLOCK);
	must(check, counter >= 0 && semaphore >= 0, "eventfd");
}

static void eventfd_verify(struct check *check)
{
	uint64_t value = 0;

	must(check, read(counter, &value, sizeof value) == 8 && value == 12345 + check->asked,
		"counter is %lu", (unsigned long)value);
	must(check, read(counter, &value, sizeof value) < 0 && errno == EAGAIN,
		"it blocks, or has more");
	errno = 0;
	must(check, eventfd_write(counter, 12345 + check->asked + 1) == 0, "eventfd_write");
	value = 0;
	(void)!read(semaphore, &value, sizeof value);
	must(check, value == 1, "the semaphore gave %lu", (unsigned long)value);
}

const struct kind kind_eventfd = { "eventfd", eventfd_set_up, eventfd_verify };

/* ---- signalfd ------------------------------------------------------------------------------- */

static int signals;

static void signalfd_set_up(struct check *check)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGRTMIN + 3);
	sigaddset(&mask, SIGUSR1);
	must(check, sigprocmask(SIG_BLOCK, &mask, NULL) == 0, "sigprocmask");
	signals = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	must(check,
		signals >= 0 &&
			sigqueue(getpid(), SIGRTMIN + 3, (union sigval){ .sival_int = 100 }) == 0,
		"signalfd");
}

static void signalfd_verify(struct check *check)
{
	struct signalfd_siginfo info;

	must(check,
		read(signals, &info, sizeof info) == sizeof info &&
			(int)info.ssi_signo == SIGRTMIN + 3 &&
			info.ssi_int == 100 + (int)check->asked && (pid_t)info.ssi_pid == getpid(),
		"the signal that was waiting");
	must(check,
		raise(SIGUSR1) == 0 && read(signals, &info, sizeof info) == sizeof info &&
			info.ssi_signo == SIGUSR1,
		"a new signal");
	must(check, read(signals, &info, sizeof info) < 0 && errno == EAGAIN,
		"more signals than sent");
	errno = 0;
	must(check,
		sigqueue(getpid(), SIGRTMIN + 3,
			(union sigval){ .sival_int = 101 + (int)check->asked }) == 0,
		"sigqueue");
}

const struct kind kind_signalfd = { "signalfd", signalfd_set_up, signalfd_verify };

/* ---- inotify -------------------------------------------------------------------------------- */

static int watcher, watch_here, watch_root, watch_file;
static char root_file[64];

static void inotify_set_up(struct check *check)
{
	const char *home = access("/root", W_OK) == 0 ? "/root" : "/tmp";
	int file = open("watched", O_CREAT | O_WRONLY, 0644);

	errno = 0;
	snprintf(root_file, sizeof root_file, "%s/states-checks-inotify", home);
	unlink(root_file);
	watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	watch_here = inotify_add_watch(watcher, ".", IN_CREATE | IN_DELETE | IN_MOVED_TO);
	watch_root = inotify_add_watch(watcher, home, IN_CREATE);
	watch_file = inotify_add_watch(watcher, "watched", IN_MODIFY);
	errno = 0;
	must(check, file >= 0 && watch_here > 0 && watch_root > 0 && watch_file > 0, "inotify");
	close(file);
}

/* Waits for this event; others may come before it: of kept files of a capture, of events that were
 * told before. */
static bool event_comes(int watch, uint32_t mask, const char *name)
{
	union {
		struct inotify_event event;
		char room[4096];
	} all;
	struct pollfd wait = { .fd = watcher, .events = POLLIN };

	while (poll(&wait, 1, 5000) == 1) {
		ssize_t got = read(watcher, &all, sizeof all);

		for (char *at = all.room; at < all.room + got;) {
			struct inotify_event *event = (void *)at;

			if (event->wd == watch && (event->mask & mask) &&
				(!name || strcmp(event->name, name) == 0))
				return true;
			at += sizeof *event + event->len;
		}
	}
	return false;
}

static void file_touch(struct check *check, const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_APPEND, 0644);

	must(check, fd >= 0 && write(fd, "x", 1) == 1, "write %s", path);
	close(fd);
}

static void inotify_verify(struct check *check)
{
	file_touch(check, "new");
	must(check, event_comes(watch_here, IN_CREATE, "new"), "no event for a new file here");
	unlink("new");
	must(check, event_comes(watch_here, IN_DELETE, "new"), "no event for a removed file");
	file_touch(check, root_file);
	must(check, event_comes(watch_root, IN_CREATE, strrchr(root_file, '/') + 1),
		"no event for a new file in the home folder");
	unlink(root_file);
	file_touch(check, "watched");
	must(check, event_comes(watch_file, IN_MODIFY, NULL), "no event for a changed file");
}

const struct kind kind_inotify = { "inotify", inotify_set_up, inotify_verify };
