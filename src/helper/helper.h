/* helper.h - slow work in a process of its own, never in the loop
 *
 * A helper is a copy of the daemon at this moment: it sees what arg points at, and nothing it
 * changes comes back but messages. */
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
	/* In the daemon: one message, at most HELPER_MESSAGE_MAX bytes. May be NULL. */
	void (*on_message)(const void *message, size_t len, void *arg);
	/* In the daemon: the helper and everything it started is gone, its messages are all
	 * delivered; it has been freed. code is the exit code, -1 when it was killed. */
	void (*on_exit)(int code, void *arg);
	/* Starts no programs and mounts nothing: no namespaces of its own, which saves a
	 * millisecond. */
	bool light;
};

/* keep: fds the helper keeps besides its socket, at their numbers, none below 3; all others are
 * closed in it. May be NULL when keep_count is 0. */
int helper_start(struct loop *loop, const struct helper_ops *ops, void *arg, const int *keep,
	size_t keep_count, struct helper **ret, struct err *err);
/* A message to the helper's socket, where run() may wait for it; false when it has gone. */
bool helper_send(struct helper *helper, const void *message, size_t len);
bool helper_wait(
	struct helper *helper, int limit_ms); /* blocks until it has ended; calls nothing */
void helper_kill(struct helper *helper);      /* on_exit follows from the loop */
void helper_free(struct helper *helper);      /* kills, waits, calls nothing; accepts NULL */
