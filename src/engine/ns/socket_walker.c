/* socket_walker.c - the process that asks the sockets of boxes what they hold, and counts
 * neighbours
 *
 * The daemon does not do it itself: closing the last copy of a socket may block for as long as a
 * box likes (SO_LINGER), and a box with very many descriptors takes a second. One request is one
 * packet; answers come in the order of the requests. When one does not come, the walker is killed,
 * and the box that it was busy with is answered as if it held too much.
 *
 * After a long walk the box has some time without one, so that no box takes more than a part of a
 * processor. The walker ends when the daemon does. */
#include "engine/ns/neighbours.h"
#include "engine/ns/ns_internal.h"
#include "engine/ns/sockets.h"
#include "base/clock.h"
#include "base/log.h"
#include "loop/loop.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum {
	PATIENCE_US = 5 * 1000 * 1000,
	REST = 8,      /* times the duration of the walk */
	KEPT_MS = 100, /* until kept networks are emptied again */
};

struct question {
	uint64_t serial;
	unsigned neighbours; /* 0: a request about sockets */
	size_t count;
	pid_t pids[WALK_PIDS_MAX];
};

struct answer {
	uint64_t serial;
	int64_t took_us;
	bool of_neighbours;
	unsigned neighbours;
	struct held held;
};

struct walker {
	walker_fn fn;
	int socket, pidfd;
	struct loop_fd *watch;
	uint64_t serial;
	struct question question; /* the last one */
};

/* ---- the process ---------------------------------------------------------------------------- */

static ssize_t receive(struct question *ret)
{
	struct pollfd poller = { .fd = 3, .events = POLLIN };

	if (neighbours_has_kept() && poll(&poller, 1, KEPT_MS) == 0)
		neighbours_finish();
	return recv(3, ret, sizeof *ret, 0);
}

static _Noreturn void serve(int inherited)
{
	static struct question question;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_NAME, "box-walker");
	for (int i = 0; i < 3; i++)
		dup2(null, i);
	if (dup2(inherited, 3) < 0)
		_exit(1);
	close_range(4, ~0u, 0);
	while (receive(&question) > 0) {
		int64_t since = clock_mono_us();
		struct answer answer = { .serial = question.serial,
			.of_neighbours = question.neighbours > 0 };

		if (question.neighbours)
			answer.neighbours =
				neighbours_walk(question.pids, question.count, question.neighbours);
		else
			answer.held = socket_walk(question.pids, question.count);
		answer.took_us = clock_mono_us() - since;
		if (send(3, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}

/* ---- in the daemon -------------------------------------------------------------------------- */

static struct ns_instance *find(struct ns_engine *engine, uint64_t serial)
{
	struct ns_instance *instance = engine->first;

	while (instance && instance->walk.asked != serial)
		instance = instance->next;
	return instance;
}

static void stop(struct walker *walker)
{
	struct pollfd poller = { .fd = walker->pidfd, .events = POLLIN };
	int ignored;

	loop_fd_free(walker->watch);
	walker->watch = NULL;
	if (walker->socket >= 0)
		close(walker->socket);
	if (walker->pidfd >= 0) {
		procfd_kill(walker->pidfd, SIGKILL, NULL);
		poll(&poller, 1, NS_SWEEP_MS);
		procfd_reap(walker->pidfd, &ignored);
		close(walker->pidfd);
	}
	walker->socket = walker->pidfd = -1;
}

/* Kills the walker; its requests stay unanswered. */
static void lose(struct ns_engine *engine)
{
	stop(engine->walker);
	for (struct ns_instance *one = engine->first; one; one = one->next)
		one->walk.asked = 0;
}

static void on_answer(void *arg, unsigned ready)
{
	struct ns_engine *engine = arg;
	struct ns_instance *instance;
	struct answer answer;
	ssize_t got = recv(engine->walker->socket, &answer, sizeof answer, MSG_DONTWAIT);

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got != (ssize_t)sizeof answer) {
		log_warn("the process that reads sockets was lost; the next check starts another");
		lose(engine);
		return;
	}
	instance = find(engine, answer.serial);
	if (!instance)
		return;
	instance->walk.asked = 0;
	instance->walk.not_before = clock_mono_us() + REST * answer.took_us;
	engine->walker->fn(
		engine, instance, answer.held, answer.of_neighbours ? &answer.neighbours : NULL);
}

static int start(struct ns_engine *engine, struct err *err)
{
	struct walker *walker = engine->walker;
	struct clone_spec how = { .cgroup = -1 };
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	pid = clone_process(&how, &walker->pidfd, err);
	if (pid == 0)
		serve(pair[1]);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return -1;
	}
	walker->socket = pair[0];
	walker->watch = loop_fd_new(engine->loop, pair[0], LOOP_READ, on_answer, engine);
	return 0;
}

/* Answers come in order, so the walker is busy with the oldest request. */
static bool keeps_waiting(struct ns_engine *engine, struct ns_instance *instance)
{
	for (struct ns_instance *one = engine->first; one; one = one->next)
		if (one->walk.asked && one->walk.asked < instance->walk.asked)
			return false;
	return true;
}

static void end_wait(struct ns_engine *engine, struct ns_instance *instance)
{
	bool guilty = keeps_waiting(engine, instance);

	log_warn("sockets of a box could not be checked", kv_str("box", instance->id));
	lose(engine);
	if (guilty)
		engine->walker->fn(
			engine, instance, (struct held){ .uncounted = HELD_TOO_MUCH }, NULL);
}

static void send_question(
	struct ns_engine *engine, struct ns_instance *instance, unsigned neighbours)
{
	struct walker *walker = engine->walker;
	struct question *question = &walker->question;
	size_t size;

	question->serial = ++walker->serial;
	question->neighbours = neighbours;
	question->count =
		cgroup_pids_below(engine->cgroups, instance->group, question->pids, WALK_PIDS_MAX);
	if (question->count > WALK_PIDS_MAX) {
		walker->fn(engine, instance, (struct held){ .uncounted = HELD_TOO_MUCH }, NULL);
		return;
	}
	size = offsetof(struct question, pids) + question->count * sizeof *question->pids;
	if (send(walker->socket, question, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		if (errno != EAGAIN) /* else there are enough requests for now */
			lose(engine);
		return;
	}
	instance->walk.asked = question->serial;
	instance->walk.asked_at = clock_mono_us();
}

void walker_ask(struct ns_engine *engine, struct ns_instance *instance, unsigned neighbours)
{
	struct err err = ERR_INIT;
	int64_t now = clock_mono_us();

	if (instance->walk.asked) {
		if (now - instance->walk.asked_at > PATIENCE_US)
			end_wait(engine, instance);
		return;
	}
	if (now < instance->walk.not_before)
		return;
	if (engine->walker->socket < 0 && start(engine, &err) < 0)
		log_warn("sockets of boxes cannot be checked", kv_err(&err));
	else
		send_question(engine, instance, neighbours);
}

void walker_open(struct ns_engine *engine, walker_fn fn)
{
	struct err err = ERR_INIT;

	engine->walker = xnew(struct walker);
	engine->walker->fn = fn;
	engine->walker->socket = engine->walker->pidfd = -1;
	/* Started now, while the daemon is small. */
	if (start(engine, &err) < 0)
		log_warn("sockets of boxes cannot be checked", kv_err(&err));
}

void walker_close(struct ns_engine *engine)
{
	if (!engine->walker)
		return;
	stop(engine->walker);
	free(engine->walker);
	engine->walker = NULL;
}
