/* flow.c - bytes out of a helper process, as fast as the reader takes them
 *
 * A flow is a helper and a pipe. The bounded pipe gives the backpressure: a reader that pauses
 * blocks the helper's write(). The error, if any, comes as one message through the helper's own
 * socket. A flow has ended when both have happened, in either order: the pipe was read to its end
 * and the helper is gone. The helper has its own pid namespace, so once it is gone nobody holds the
 * other end of the pipe, whatever it had started. */
#include "helper/flow.h"
#include "base/alloc.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

enum { PIPE_BYTES = 256 * 1024 };

struct flow {
	const struct flow_ops *ops;
	void *arg;
	int out; /* the helper's end; the daemon keeps it open only until the helper has started */
	int in;
	struct helper *helper; /* NULL: gone */
	struct loop_fd *watch;
	bool ended; /* the pipe was read to its end */
	struct err err;
};

static_assert(sizeof(struct err) <= HELPER_MESSAGE_MAX, "an error is one message");

/* ---- in the helper -------------------------------------------------------------------------- */

static int run(int sock, void *arg)
{
	struct flow *flow = arg;
	struct err err = ERR_INIT;

	if (flow->ops->run(flow->out, flow->arg, &err) == 0)
		return 0;
	if (!err.kind)
		err_set(&err, ERR_SYSTEM, "a helper failed and did not say why");
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 1;
}

/* ---- in the daemon -------------------------------------------------------------------------- */

static void settle(struct flow *flow)
{
	if (!flow->ended || flow->helper)
		return;
	flow->ops->on_done(flow, flow->err.kind ? &flow->err : NULL, flow->arg);
}

/* A helper reads what strangers wrote, so its message is treated as bytes, not as a struct. */
static void on_message(const void *message, size_t len, void *arg)
{
	struct flow *flow = arg;
	struct err err;

	if (len != sizeof err)
		return;
	memcpy(&err, message, sizeof err);
	if ((int)err.kind <= ERR_NONE || (int)err.kind >= ERR_KIND_COUNT)
		err.kind = ERR_SYSTEM;
	err.message[sizeof err.message - 1] = '\0';
	err.hint[sizeof err.hint - 1] = '\0';
	flow->err = err;
}

static void on_exit_of_helper(int code, void *arg)
{
	struct flow *flow = arg;

	flow->helper = NULL;
	if (code != 0 && !flow->err.kind)
		err_set(&flow->err, ERR_SYSTEM,
			code < 0 ? "a helper process was killed" : "a helper process failed");
	settle(flow);
}

/* Ready means bytes or the end of the pipe. The end is checked here, before on_readable, because
 * that may free the flow. Neither may be there: the bytes may have been read since. */
static void on_ready(void *arg, unsigned ready)
{
	struct flow *flow = arg;
	struct pollfd p = { .fd = flow->in, .events = POLLIN };

	(void)ready;
	if (poll(&p, 1, 0) <= 0)
		return;
	if (p.revents & POLLIN) {
		flow->ops->on_readable(flow, flow->arg);
		return;
	}
	flow->ended = true;
	loop_fd_set(flow->watch, 0);
	settle(flow);
}

static const struct helper_ops helper_ops = {
	.run = run,
	.on_message = on_message,
	.on_exit = on_exit_of_helper,
};

static int open_pipe(struct flow *flow, struct err *err)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "pipe for a helper");
	flow->in = ends[0];
	flow->out = ends[1];
	/* The flag is set on this end only: the helper's writes must block. */
	if (fcntl(flow->in, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(err, errno, "pipe for a helper");
	/* A larger pipe saves wake-ups; the default size works too. */
	(void)fcntl(flow->in, F_SETPIPE_SZ, PIPE_BYTES);
	return 0;
}

int flow_start(struct loop *loop, const struct flow_ops *ops, void *arg, const int *keep,
	size_t keep_count, struct flow **ret, struct err *err)
{
	int kept[HELPER_KEEP_MAX];
	struct flow *flow = xnew(struct flow);

	assert(keep_count < HELPER_KEEP_MAX);
	*flow = (struct flow){ .ops = ops, .arg = arg, .in = -1, .out = -1 };
	if (open_pipe(flow, err) < 0) {
		flow_free(flow);
		return -1;
	}
	if (keep_count)
		memcpy(kept, keep, keep_count * sizeof *keep);
	kept[keep_count] = flow->out;
	if (helper_start(loop, &helper_ops, flow, kept, keep_count + 1, &flow->helper, err) < 0) {
		flow_free(flow);
		return -1;
	}
	close(steal_fd(&flow->out));
	flow->watch = loop_fd_new(loop, flow->in, LOOP_READ, on_ready, flow);
	*ret = flow;
	return 0;
}

size_t flow_read(struct flow *flow, void *data, size_t len)
{
	ssize_t got;

	do
		got = read(flow->in, data, len);
	while (got < 0 && errno == EINTR);
	return got > 0 ? (size_t)got : 0;
}

void flow_pause(struct flow *flow, bool paused)
{
	if (!flow->ended)
		loop_fd_set(flow->watch, paused ? 0 : LOOP_READ);
}

bool flow_cancel(struct flow *flow)
{
	if (!flow->helper)
		return false;
	flow->ended = true;
	loop_fd_set(flow->watch, 0);
	helper_kill(flow->helper);
	return true;
}

void flow_free(struct flow *flow)
{
	if (!flow)
		return;
	helper_free(flow->helper);
	loop_fd_free(flow->watch);
	if (flow->in >= 0)
		close(flow->in);
	if (flow->out >= 0)
		close(flow->out);
	free(flow);
}
