/* flow.h - bytes out of a helper process, as fast as somebody takes them
 *
 * The helper writes into a pipe and waits when it is full; the daemon reads when it likes. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct flow;
struct loop;

struct flow_ops {
	/* In the helper: writes everything to out (blocking) and returns 0, or -1 with err. */
	int (*run)(int out, void *arg, struct err *err);
	/* In the daemon, both from the loop. Bytes are there: call flow_read. */
	void (*on_readable)(struct flow *flow, void *arg);
	/* Once, after the last byte was read: err NULL if run returned 0. Free the flow now or
	 * later. */
	void (*on_done)(struct flow *flow, const struct err *err, void *arg);
};

/* arg is seen by run as it is now. keep as for helper_start (one fewer). */
int flow_start(struct loop *loop, const struct flow_ops *ops, void *arg, const int *keep,
	size_t keep_count, struct flow **ret, struct err *err);
/* Up to len bytes; 0: none now. */
size_t flow_read(struct flow *flow, void *data, size_t len);
/* While paused on_readable is not called. */
void flow_pause(struct flow *flow, bool paused);
/* Kills the helper and does not wait for it: on_done follows from the loop, on_readable does not.
 * False: the helper is gone already and nothing follows. */
bool flow_cancel(struct flow *flow);
void flow_free(struct flow *flow); /* ends the helper; accepts NULL; no callback afterwards */
