/* flow.h - bytes out of a helper process, as fast as the reader takes them
 *
 * The helper writes into a pipe and waits while it is full; the daemon reads when it likes. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct flow;
struct loop;

struct flow_ops {
	/* Runs in the helper: writes everything to out (blocking) and returns 0, or -1 with err. */
	int (*run)(int out, void *arg, struct err *err);
	/* Both are called in the daemon, from the loop. on_readable: there are bytes, call
	 * flow_read. */
	void (*on_readable)(struct flow *flow, void *arg);
	/* Called once, after the last byte was read: err is NULL if run returned 0. The flow may be
	 * freed now or later. */
	void (*on_done)(struct flow *flow, const struct err *err, void *arg);
};

/* run sees arg as it is at this moment. keep is as for helper_start (one fewer). */
int flow_start(struct loop *loop, const struct flow_ops *ops, void *arg, const int *keep,
	size_t keep_count, struct flow **ret, struct err *err);
/* Reads up to len bytes; 0: none right now. */
size_t flow_read(struct flow *flow, void *data, size_t len);
/* on_readable is not called while the flow is paused. */
void flow_pause(struct flow *flow, bool paused);
/* Kills the helper without waiting for it: on_done follows from the loop, on_readable does not.
 * False: the helper has ended already and nothing follows. */
bool flow_cancel(struct flow *flow);
void flow_free(struct flow *flow); /* kills the helper; accepts NULL; calls nothing afterwards */
