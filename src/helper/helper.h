/* helper.h - runs slow work in a process of its own, so that the loop never waits for it
 *
 * A helper is a copy of the daemon at this moment: it sees what arg points at, and only its
 * messages come back. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct helper;
struct loop;

enum {
	HELPER_MESSAGE_MAX = 2048,
	HELPER_KEEP_MAX = 24,
};

struct helper_ops {
	/* Runs in the helper; what it returns is the exit code. Messages go to sock, one send()
	 * each. */
	int (*run)(int sock, void *arg);
	/* Called in the daemon with one message of at most HELPER_MESSAGE_MAX bytes. May be
	 * NULL. */
	void (*on_message)(const void *message, size_t len, void *arg);
	/* Called in the daemon when the helper and everything it started has ended and all its
	 * messages were delivered; the helper has been freed. code is the exit code, -1 when it was
	 * killed. */
	void (*on_exit)(int code, void *arg);
	/* The helper starts no programs and mounts nothing: it gets no namespaces, which saves a
	 * millisecond. */
	bool light;
};

/* keep lists fds the helper keeps at their numbers besides its socket, none below 3; all others are
 * closed in it. keep may be NULL when keep_count is 0. */
int helper_start(struct loop *loop, const struct helper_ops *ops, void *arg, const int *keep,
	size_t keep_count, struct helper **ret, struct err *err);
/* Sends a message to the helper's socket, where run() may wait for it; false when the helper has
 * ended. */
bool helper_send(struct helper *helper, const void *message, size_t len);
bool helper_wait(
	struct helper *helper, int limit_ms); /* blocks until the helper has ended; calls nothing */
void helper_kill(struct helper *helper);      /* on_exit follows from the loop */
void helper_free(struct helper *helper);      /* kills it and waits; calls nothing; accepts NULL */
