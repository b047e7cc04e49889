/* threads.c - threads that work together, and threads that wait for something */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- eight of them: a counter under a lock, ping and pong, storage of their own ------------- */

enum { THREADS = 8 };
struct worker {
	pthread_t thread;
	volatile pid_t tid;
	volatile unsigned rounds, wrong;
};
static struct worker workers[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned turn, inside;
static uint64_t total;
static __thread uint64_t own;

/* Each in turn: a mutex that does not exclude or a wake-up that is lost is seen at once. */
static void *work(void *arg)
{
	struct worker *worker = arg;
	unsigned number = (unsigned)(worker - workers);
	sigset_t mask;
	char name[16], got[16];

	sigemptyset(&mask);
	sigaddset(&mask, SIGRTMIN + 6 + (int)number % 4);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	snprintf(name, sizeof name, "worker %u", number);
	prctl(PR_SET_NAME, name);
	worker->tid = gettid();
	own = number * 1000003u;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (turn != number)
			pthread_cond_wait(&changed, &lock);
		worker->wrong += inside++ != 0;
		total++;
		own++;
		worker->rounds++;
		worker->wrong +=
			own != number * 1000003u + worker->rounds || gettid() != worker->tid;
		if (worker->rounds % 64 == 0) {
			pthread_sigmask(SIG_BLOCK, NULL, &mask);
			worker->wrong += !sigismember(&mask, SIGRTMIN + 6 + (int)number % 4);
			prctl(PR_GET_NAME, got);
			worker->wrong += strcmp(name, got) != 0;
		}
		inside--;
		turn = (number + 1) % THREADS;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
		usleep(2000);
	}
	return NULL;
}

static void threads_set_up(struct check *check)
{
	for (int i = 0; i < THREADS; i++)
		must(check, pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0,
			"thread");
	for (int i = 0; i < THREADS; i++)
		must(check, moves_on(&workers[i].rounds, 0, 5000), "thread %d does not start", i);
}

static void threads_verify(struct check *check)
{
	uint64_t sum = 0;

	for (int i = 0; i < THREADS; i++)
		must(check, moves_on(&workers[i].rounds, workers[i].rounds, 10000),
			"thread %d stands still", i);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < THREADS; i++) {
		sum += workers[i].rounds;
		must(check, workers[i].wrong == 0, "thread %d: %u times wrong", i,
			workers[i].wrong);
	}
	must(check, sum == total && inside == 0, "rounds are lost");
	pthread_mutex_unlock(&lock);
}

const struct kind kind_threads = { "threads", threads_set_up, threads_verify };

/* ---- blocked: each in another system call, which must go on as if nothing had been ---------- */

enum { WAITERS = 7 };
static volatile unsigned woken[WAITERS], failed[WAITERS], interrupted;
static int pipe_ends[2], polled[2], accepting, epolled, epoll_fd, lock_file, holder_pipe[2];
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static unsigned gate_number;
static struct sockaddr_un door = { .sun_family = AF_UNIX, .sun_path = "door" };

static bool wait_read(void)
{
	char byte;

	return read(pipe_ends[0], &byte, 1) == 1;
}

/* poll and epoll_wait are ended with EINTR by a capture (and epoll_wait by any stop, signal(7)):
 * the kernel does not let anybody restart them. Programs know how to go on; it must not happen to
 * the others. */
static bool wait_poll(void)
{
	struct pollfd wait = { .fd = polled[0], .events = POLLIN };
	char byte;
	int got;

	while ((got = poll(&wait, 1, -1)) < 0 && errno == EINTR)
		interrupted++;
	return got == 1 && read(polled[0], &byte, 1) == 1;
}

static bool wait_accept(void)
{
	int fd = accept(accepting, NULL, NULL);

	return fd >= 0 && close(fd) == 0;
}

static bool wait_condition(void)
{
	static unsigned seen;

	pthread_mutex_lock(&gate);
	while (gate_number == seen)
		pthread_cond_wait(&opened, &gate);
	seen++;
	pthread_mutex_unlock(&gate);
	return true;
}

static bool wait_epoll(void)
{
	struct epoll_event event;
	uint64_t value;
	int got;

	while ((got = epoll_wait(epoll_fd, &event, 1, -1)) < 0 && errno == EINTR)
		interrupted++;
	return got == 1 && read(epolled, &value, sizeof value) == 8;
}

static bool wait_flock(void)
{
	int fd = open("lock", O_RDWR);
	bool good = fd >= 0 && flock(fd, LOCK_EX) == 0;

	close(fd);
	return good;
}

static bool wait_long_poll(void)
{
	uint64_t since = now_ms();
	int got = poll(NULL, 0, 400);

	if (got < 0 && errno == EINTR)
		return interrupted++, true;
	return got == 0 && now_ms() - since >= 399;
}

static bool (*const waits[WAITERS])(void) = { wait_read, wait_poll, wait_accept, wait_condition,
	wait_epoll, wait_flock, wait_long_poll };
static const char *const wait_names[WAITERS] = { "read", "poll", "accept", "futex", "epoll_wait",
	"flock", "poll with a limit" };

static void *wait_again_and_again(void *arg)
{
	size_t i = (size_t)(uintptr_t)arg;

	for (;;) {
		if (!waits[i]())
			failed[i]++;
		woken[i]++;
		while (i == 5 && atomic_load((_Atomic unsigned *)&woken[5]) % 2 == 1)
			usleep(1000); /* until the lock is taken again */
	}
	return NULL;
}

static void blocked_set_up(struct check *check)
{
	struct epoll_event event = { .events = EPOLLIN };
	pthread_t thread;

	must(check, pipe(pipe_ends) == 0 && pipe(polled) == 0 && pipe(holder_pipe) == 0, "pipe");
	accepting = socket(AF_UNIX, SOCK_STREAM, 0);
	must(check, bind(accepting, (void *)&door, sizeof door) == 0 && listen(accepting, 4) == 0,
		"listen");
	epoll_fd = epoll_create1(0);
	epolled = eventfd(0, 0);
	must(check, epoll_ctl(epoll_fd, EPOLL_CTL_ADD, epolled, &event) == 0, "epoll");
	lock_file = open("lock", O_RDWR | O_CREAT, 0644);
	must(check, flock(lock_file, LOCK_EX) == 0, "flock");
	for (size_t i = 0; i < WAITERS; i++)
		must(check,
			pthread_create(&thread, NULL, wait_again_and_again, (void *)(uintptr_t)i) ==
				0,
			"thread");
}

static void blocked_verify(struct check *check)
{
	unsigned before[WAITERS];
	int client = socket(AF_UNIX, SOCK_STREAM, 0);

	for (int i = 0; i < WAITERS; i++) {
		must(check, failed[i] == 0, "%s failed %u times", wait_names[i], failed[i]);
		if (i < 5)
			must(check, woken[i] == check->asked, "%s came back by itself",
				wait_names[i]);
		before[i] = woken[i];
	}
	must(check, write(pipe_ends[1], "x", 1) == 1 && write(polled[1], "x", 1) == 1, "write");
	must(check, connect(client, (void *)&door, sizeof door) == 0, "connect");
	close(client);
	pthread_mutex_lock(&gate);
	gate_number++;
	pthread_cond_signal(&opened);
	pthread_mutex_unlock(&gate);
	must(check, eventfd_write(epolled, 1) == 0, "eventfd_write");
	must(check, before[5] % 2 == 0, "flock came back by itself");
	must(check, flock(lock_file, LOCK_UN) == 0, "unlock");
	for (int i = 0; i < WAITERS; i++)
		must(check, moves_on(&woken[i], before[i], 10000), "%s does not wake",
			wait_names[i]);
	must(check, flock(lock_file, LOCK_EX) == 0, "lock again");
	atomic_fetch_add((_Atomic unsigned *)&woken[5], 1);
	snprintf(check->detail, sizeof check->detail,
		"poll and epoll_wait were interrupted %u times", interrupted);
}

const struct kind kind_blocked = { "blocked", blocked_set_up, blocked_verify };
