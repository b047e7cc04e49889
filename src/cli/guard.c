/* guard.c - see guard.h */
#include "cli/guard.h"
#include "base/alloc.h"
#include "base/text.h"
#include "client/client.h"
#include "client/given.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	TRIES = 60, /* a box that was being made when its maker died does not exist yet */
	TRY_US = 500 * 1000,
};

enum subject { NOTHING, BOX, RUN };

struct word {
	enum subject subject;
	char name[64];
};

/* ---- the guard's process -------------------------------------------------------------------- */

static int remove_box(struct client *client, const char *box)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s?force=true", box);
	struct err err = ERR_INIT;

	return client_call(client, "DELETE", path, NULL, NULL, &err);
}

/* Returns whether there was one. More may come while a fork of several is in progress. */
static bool remove_run(struct client *client, const char *id)
{
	_cleanup_free_ char *path = client_path("/v1/boxes?label=%s=%s", GUARD_LABEL, id);
	_cleanup_json_ json_t *answer = NULL;
	struct err err = ERR_INIT;
	bool any = false;
	json_t *box;
	size_t i;

	if (client_get(client, path, &answer, &err) < 0)
		return false;
	json_array_foreach (json_object_get(answer, "boxes"), i, box)
		if (json_is_true(json_object_get(box, "remove_on_exit")))
			any = remove_box(client, json_string_value(json_object_get(box, "id"))) ==
				      0 ||
			      any;
	return any;
}

static void remove_all(const char *target, const struct word *word)
{
	for (int i = 0; i < TRIES; i++) {
		struct client *client = client_new(target);
		bool done = word->subject == BOX && remove_box(client, word->name) == 0;

		if (word->subject == RUN && remove_run(client, word->name))
			i = MAX(i, TRIES - 4); /* only a few more looks for late ones */
		client_free(client);
		if (done)
			return;
		usleep(TRY_US);
	}
}

/* other may be -1. */
static void close_all_but(int one, int other)
{
	unsigned first = (unsigned)(other < 0 ? one : MIN(one, other));
	unsigned last = (unsigned)MAX(one, other);

	if (first > 3)
		close_range(3, first - 1, 0);
	if (last > first + 1)
		close_range(first + 1, last - 1, 0);
	close_range(last + 1, ~0U, 0);
}

static _Noreturn void watch(int pipe, const char *target)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct word word = { NOTHING, "" }, next;
	ssize_t got;

	setsid();
	prctl(PR_SET_NAME, "box-guard");
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	client_interrupted = false;
	/* Whoever reads our output would wait for us. */
	for (int fd = 0; fd < 3; fd++)
		dup2(null >= 0 ? null : pipe, fd);
	close_all_but(pipe, given_fd(target));
	do {
		got = read(pipe, &next, sizeof next);
		if (got == sizeof next)
			word = next;
	} while (got == sizeof next || (got < 0 && errno == EINTR));
	word.name[sizeof word.name - 1] = '\0';
	if (word.subject != NOTHING)
		remove_all(target, &word);
	_exit(0);
}

/* ---- the client's end ----------------------------------------------------------------------- */

int guard_start(struct guard *guard, const char *target, struct err *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	fflush(NULL);
	guard->pid = fork();
	if (guard->pid == 0) {
		close(ends[1]);
		watch(ends[0], target);
	}
	close(ends[0]);
	if (guard->pid < 0) {
		close(ends[1]);
		return err_sys(err, errno, "start a process");
	}
	guard->pipe = ends[1];
	return 0;
}

static void tell(struct guard *guard, enum subject subject, const char *name)
{
	struct word word = { .subject = subject };

	if (guard->pipe < 0)
		return;
	memcpy(word.name, name, strnlen(name, sizeof word.name - 1));
	while (write(guard->pipe, &word, sizeof word) < 0 && errno == EINTR)
		;
	guard->idle = subject == NOTHING;
}

void guard_tell_box(struct guard *guard, const char *name)
{
	tell(guard, BOX, name);
}

void guard_tell_run(struct guard *guard, const char *id)
{
	tell(guard, RUN, id);
}

int guard_start_run(struct guard *guard, const char *target, json_t *body, struct err *err)
{
	json_t *labels = json_object_get(body, "labels");
	char id[GUARD_RUN_LEN + 1];

	if (guard_start(guard, target, err) < 0)
		return -1;
	random_id(id, sizeof id - 1);
	guard_tell_run(guard, id);
	if (!labels) {
		labels = json_object();
		json_object_set_new(body, "labels", labels);
	}
	json_object_set_new(labels, GUARD_LABEL, json_string(id));
	return 0;
}

void guard_tell_nothing(struct guard *guard)
{
	tell(guard, NOTHING, "");
}

void guard_leave(struct guard *guard)
{
	cleanup_closep(&guard->pipe);
	guard->pipe = -1;
}

void guard_end(struct guard *guard)
{
	if (guard->pipe < 0)
		return;
	guard_leave(guard);
	if (!guard->idle)
		return;
	while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		;
}
