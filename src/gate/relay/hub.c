/* hub.c - shared by all relays of a process: pipes, and the queue of relays that wait for their
 * rate
 *
 * A pipe is needed only while bytes are in transit, so a few serve thousands of connections;
 * only a peer that does not read keeps one. When too many are in use, or descriptors become
 * scarce, none is lent and bytes are copied: slower, but no connection is lost.
 *
 * Relays that have used up their rate wait in a queue, and one timer serves all. A relay that
 * moves something goes behind those that did not, so connections that share a rate take turns. */
#include "gate/relay/relay_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include <fcntl.h>
#include <signal.h>

enum {
	PIPES_MAX = 1024, /* lent and idle */
	PIPES_IDLE = 16,
	PIPE_SIZE = RELAY_CHUNK,
};

/* ---- pipes ---------------------------------------------------------------------------------- */

static void pipe_close(struct relay_hub *hub, struct relay_pipe *pipe)
{
	close(pipe->in);
	close(pipe->out);
	free(pipe);
	hub->pipe_count--;
}

static struct relay_pipe *pipe_open(struct relay_hub *hub)
{
	struct relay_pipe *pipe;
	int ends[2];

	if (hub->pipe_count >= PIPES_MAX || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return NULL;
	pipe = xnew(struct relay_pipe);
	pipe->out = ends[0];
	pipe->in = ends[1];
	hub->pipe_count++;
	if (fd_is_scarce(ends[1])) {
		pipe_close(hub, pipe);
		return NULL;
	}
	/* Without privileges the sum of all sizes is limited; a small pipe works too, only
	 * slower. */
	fcntl(pipe->in, F_SETPIPE_SZ, PIPE_SIZE);
	return pipe;
}

struct relay_pipe *relay_hub_lend(struct relay_hub *hub)
{
	struct relay_pipe *pipe = hub->idle;

	if (!pipe)
		return pipe_open(hub);
	hub->idle = pipe->next;
	hub->idle_count--;
	return pipe;
}

void relay_hub_return(struct relay_hub *hub, struct relay_pipe *pipe, bool is_empty)
{
	if (!is_empty || hub->idle_count >= PIPES_IDLE) {
		pipe_close(hub, pipe);
		return;
	}
	pipe->next = hub->idle;
	hub->idle = pipe;
	hub->idle_count++;
}

/* ---- the queue ------------------------------------------------------------------------------ */

static void queue_push(struct relay_queue *queue, struct relay *relay)
{
	relay->queue = queue;
	relay->next = NULL;
	relay->prev = queue->last;
	*(queue->last ? &queue->last->next : &queue->first) = relay;
	queue->last = relay;
	queue->count++;
}

static void queue_remove(struct relay *relay)
{
	struct relay_queue *queue = relay->queue;

	*(relay->prev ? &relay->prev->next : &queue->first) = relay->next;
	*(relay->next ? &relay->next->prev : &queue->last) = relay->prev;
	queue->count--;
	relay->queue = NULL;
}

static void ring_by(struct relay_hub *hub, int64_t at, unsigned ms)
{
	if (at >= hub->wake_at)
		return;
	hub->wake_at = at;
	loop_timer_start(hub->timer, ms);
}

void relay_hub_wait(struct relay *relay, unsigned ms, bool served)
{
	struct relay_hub *hub = relay->hub;

	if (!relay->queue)
		queue_push(hub->turning && served ? &hub->served : &hub->waiting, relay);
	ring_by(hub, clock_mono_us() + (int64_t)ms * 1000, ms);
}

void relay_hub_forget(struct relay *relay)
{
	if (relay->queue)
		queue_remove(relay);
}

static void on_ring(void *arg)
{
	struct relay_hub *hub = arg;
	int64_t now = clock_mono_us();

	hub->wake_at = INT64_MAX;
	hub->turning = true;
	for (size_t left = hub->waiting.count; left && hub->waiting.first; left--) {
		struct relay *relay = hub->waiting.first;

		queue_remove(relay);
		relay_resume(relay, now);
	}
	hub->turning = false;
	while (hub->served.first) {
		struct relay *relay = hub->served.first;

		queue_remove(relay);
		queue_push(&hub->waiting, relay);
	}
}

/* ---- the contract --------------------------------------------------------------------------- */

struct relay_hub *relay_hub_new(struct loop *loop)
{
	struct relay_hub *hub = xnew(struct relay_hub);

	signal(SIGPIPE,
		SIG_IGN); /* splice() into a broken socket raises it, and has no flag against it */
	hub->loop = loop;
	hub->timer = loop_timer_new(loop, on_ring, hub);
	hub->wake_at = INT64_MAX;
	relay_hub_set_times(hub, RELAY_FIRST_MS, RELAY_HALF_MS);
	return hub;
}

void relay_hub_free(struct relay_hub *hub)
{
	if (!hub)
		return;
	for (struct relay_pipe *pipe = hub->idle, *next; pipe; pipe = next) {
		next = pipe->next;
		pipe_close(hub, pipe);
	}
	loop_timer_free(hub->timer);
	free(hub);
}

void relay_hub_set_times(struct relay_hub *hub, unsigned first_ms, unsigned half_ms)
{
	hub->first_ms = first_ms;
	hub->half_ms = half_ms;
}

/* ---- quotas --------------------------------------------------------------------------------- */

size_t relay_quotas_allow(struct quota *const quotas[RELAY_QUOTAS], size_t want, int64_t now_us,
	unsigned *ret_wait_ms)
{
	*ret_wait_ms = 0;
	for (size_t i = 0; i < RELAY_QUOTAS; i++)
		if (quotas[i] && quota_is_spent(quotas[i]))
			return 0;
	for (size_t i = 0; i < RELAY_QUOTAS; i++) {
		size_t allowed;

		if (!quotas[i])
			continue;
		if (quotas[i]->rate)
			want = MIN(want, (size_t)RELAY_RATED);
		allowed = quota_allow(quotas[i], want, now_us);
		if (!allowed)
			*ret_wait_ms = MAX(*ret_wait_ms, quota_wait_ms(quotas[i], now_us));
		else
			want = MIN(want, allowed);
	}
	return *ret_wait_ms ? 0 : want;
}

void relay_quotas_spend(struct quota *const quotas[RELAY_QUOTAS], uint64_t bytes, int64_t now_us)
{
	for (size_t i = 0; i < RELAY_QUOTAS; i++)
		if (quotas[i])
			quota_spend(quotas[i], bytes, now_us);
}
