/* backend.c - connections into boxes
 *
 * A connection belongs to one exchange at a time. After a complete response it is kept at its
 * target, the newest on top, for five seconds or as long as the box says (Keep-Alive: timeout=N,
 * less one second). While idle it is watched, and checked once more before it is used: an
 * unexpected byte, or its end, closes it. So what a box sends without a request never becomes
 * the response to another one.
 *
 * Connecting tries two addresses, see box_port_connect. A timer checks idle and connecting ones
 * once a second. */
#include "ingress/ingress_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "loop/loop.h"
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PARTS_MAX = 4, BUFFER_KEPT = 16 * 1024, USED_MS = 100, WAKE_MS = 60 * 1000 };

struct backend {
	struct ingress *ingress;
	struct target *target;
	struct backend *prev, *next;	       /* list of all backends */
	struct backend *idle_prev, *idle_next; /* list of idle ones of its target */
	const struct backend_ops *ops;
	void *owner; /* NULL while idle */
	int fd;
	struct loop_fd *watch;
	unsigned watched;
	bool second, connecting, reused, waiting;
	bool waking;	    /* connecting, and the box must wake first: there is no socket yet */
	struct err problem; /* why the box did not wake */
	/* of ingress_box_woken: the last round that handled it, or in which it was made */
	unsigned round;
	int64_t used_ms;
	bool paused, ended, shut, shut_done;
	bool broken; /* it accepts no more bytes */
	struct buf out;
	struct answer answer;
	int64_t since; /* when it became idle or began to connect */
	unsigned patience;
};

static int64_t now_ms(void)
{
	return clock_mono_us() / 1000;
}

/* ---- targets -------------------------------------------------------------------------------- */

static struct target **target_slot(struct ingress *ingress, const char *box, uint16_t port)
{
	uint32_t hash = 2166136261u ^ port;
	struct target **slot;

	for (const char *p = box; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	slot = &ingress->targets[hash % INGRESS_BUCKETS];
	while (*slot && ((*slot)->port != port || strcmp((*slot)->box, box)))
		slot = &(*slot)->next;
	return slot;
}

static struct target *target_get(struct ingress *ingress, const char *box, uint16_t port)
{
	struct target **slot = target_slot(ingress, box, port);

	if (!*slot) {
		*slot = xnew(struct target);
		strncpy((*slot)->box, box, sizeof(*slot)->box - 1);
		(*slot)->port = port;
	}
	return *slot;
}

static void target_check(struct ingress *ingress, struct target *target)
{
	struct target **slot;

	if (target->idle_count || target->busy_count)
		return;
	slot = target_slot(ingress, target->box, target->port);
	*slot = target->next;
	free(target);
}

static void idle_remove(struct backend *backend)
{
	struct target *target = backend->target;

	if (backend->idle_prev)
		backend->idle_prev->idle_next = backend->idle_next;
	else
		target->idle = backend->idle_next;
	if (backend->idle_next)
		backend->idle_next->idle_prev = backend->idle_prev;
	backend->idle_prev = backend->idle_next = NULL;
	backend->waiting = false;
	target->idle_count--;
	backend->ingress->idle_count--;
}

/* ---- watching ------------------------------------------------------------------------------- */

static void update_watch(struct backend *backend)
{
	unsigned want = 0;

	if (!backend->connecting && !backend->paused && !backend->ended)
		want |= LOOP_READ;
	if (backend->connecting || backend->out.len)
		want |= LOOP_WRITE;
	if (!backend->watch)
		return;
	if (want != backend->watched)
		loop_fd_set(backend->watch, want);
	backend->watched = want;
}

void backends_tick(struct ingress *ingress)
{
	if (ingress->ticking)
		return;
	ingress->ticking = true;
	loop_timer_start(ingress->tick, ingress->limits.tick);
}

static void shut_if_due(struct backend *backend)
{
	if (!backend->shut || backend->shut_done || backend->out.len || backend->connecting)
		return;
	backend->shut_done = true;
	shutdown(backend->fd, SHUT_WR);
}

/* A failed send is not reported here: the read side will report it, after the last bytes of the
 * box. */
static void send_out(struct backend *backend)
{
	while (backend->out.len && !backend->connecting) {
		ssize_t sent = send(backend->fd, buf_head(&backend->out), backend->out.len,
			MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN)
			break;
		backend->broken |= sent < 0;
		buf_eat(&backend->out, sent < 0 ? backend->out.len : (size_t)sent);
	}
	if (!backend->out.len && backend->out.cap > BUFFER_KEPT)
		buf_done(&backend->out);
	shut_if_due(backend);
}

static void end(struct backend *backend, int failed)
{
	backend->ended = true;
	update_watch(backend);
	if (!backend->owner)
		return backend_close(backend);
	backend->ops->on_end(backend, failed, backend->owner);
}

static int connect_by(struct backend *backend, bool second, struct err *err);

static void on_connecting(struct backend *backend)
{
	int why = 0;

	getsockopt(backend->fd, SOL_SOCKET, SO_ERROR, &why, &(socklen_t){ sizeof why });
	if (why && !backend->second && connect_by(backend, true, NULL) == 0)
		return;
	if (why)
		return end(backend, why);
	backend->connecting = false;
	update_watch(backend);
	backend->ops->on_connected(backend, backend->owner);
}

static void on_ready(void *arg, unsigned ready)
{
	struct backend *backend = arg;
	char *scratch = backend->ingress->scratch;
	ssize_t got;

	if (backend->connecting)
		return on_connecting(backend);
	if (ready & LOOP_WRITE) {
		send_out(backend);
		update_watch(backend);
		if (!backend->out.len && backend->owner)
			backend->ops->on_drain(backend, backend->owner);
		return; /* it may be freed; the loop will report the readable socket again */
	}
	if (!backend->owner)
		return backend_close(backend); /* nobody asked for these bytes */
	backend_used(backend, false);
	got = recv(backend->fd, scratch, backends_share(backend->ingress), MSG_DONTWAIT);
	if (got > 0)
		return backend->ops->on_data(backend, scratch, (size_t)got, backend->owner);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	end(backend, got < 0 ? errno : 0);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Also replaces a connection to 127.0.0.1 that was refused. */
static int connect_by(struct backend *backend, bool second, struct err *err)
{
	struct ingress *ingress = backend->ingress;
	int fd = -1;

	if (ingress->ops.connect(backend->target->box, backend->target->port, second, &fd, err,
		    ingress->arg) < 0)
		return -1;
	if (fd >= 0 && fd_is_scarce(fd)) {
		close(fd);
		return err_set(err, ERR_LIMIT, "too many connections are open");
	}
	loop_fd_free(steal_ptr(&backend->watch));
	if (backend->fd >= 0)
		close(backend->fd);
	backend->fd = fd;
	backend->second = second;
	backend->connecting = true;
	backend->waking = fd < 0;
	if (fd < 0)
		return 0;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	backend->watched = LOOP_WRITE;
	backend->watch = loop_fd_new(ingress->loop, fd, LOOP_WRITE, on_ready, backend);
	return 0;
}

static struct backend *next_waking(struct ingress *ingress, const char *box)
{
	struct backend *backend = ingress->backends;

	while (backend && (!backend->waking || backend->round == ingress->round ||
				  strcmp(backend->target->box, box)))
		backend = backend->next;
	return backend;
}

/* Owners close failed backends and may start other exchanges then: so the list is walked from
 * its start each time. Backends added meanwhile do not belong to this round. */
void ingress_box_woken(struct ingress *ingress, const char *box, const struct err *err)
{
	struct backend *backend;

	for (backend = ingress->backends, ingress->round++; backend; backend = backend->next)
		backend->round = ingress->round - 1;
	while ((backend = next_waking(ingress, box))) {
		backend->round = ingress->round;
		backend->since = now_ms();
		if (err)
			backend->problem = *err;
		if (!err && (connect_by(backend, false, &backend->problem) == 0 ||
				    connect_by(backend, true, &backend->problem) == 0)) {
			err_clear(&backend->problem);
			continue;
		}
		backend->waking = false;
		end(backend, ECONNREFUSED);
	}
}

const struct err *backend_problem(const struct backend *backend)
{
	return backend->problem.kind ? &backend->problem : NULL;
}

static void list(struct ingress *ingress, struct backend *backend)
{
	backend->next = ingress->backends;
	if (backend->next)
		backend->next->prev = backend;
	ingress->backends = backend;
	ingress->backend_count++;
}

/* True if the box has closed the connection or sent something since the last event. */
static bool is_stale(const struct backend *backend)
{
	char byte;

	return recv(backend->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static struct backend *take_idle(struct target *target)
{
	struct backend *backend;

	while ((backend = target->idle)) {
		idle_remove(backend);
		target->busy_count++;
		backend->reused = true;
		if (!is_stale(backend))
			return backend;
		target->busy_count++; /* keeps the target alive */
		backend_close(backend);
		target->busy_count--;
	}
	return NULL;
}

int backend_open(struct ingress *ingress, const char *box, uint16_t port, bool fresh,
	const struct backend_ops *ops, void *owner, struct backend **ret, struct err *err)
{
	struct target *target = target_get(ingress, box, port);
	struct backend *backend = fresh ? NULL : take_idle(target);

	if (!backend) {
		if (target->busy_count >= INGRESS_BUSY_PER_PORT)
			return err_set(err, ERR_LIMIT, "too many requests to this port at once");
		backend = xnew(struct backend);
		backend->ingress = ingress;
		backend->target = target;
		backend->fd = -1;
		backend->round = ingress->round;
		target->busy_count++;
		list(ingress, backend);
		if (connect_by(backend, false, err) < 0) {
			if (!err->errno_value || connect_by(backend, true, NULL) < 0) {
				backend_close(backend);
				return -1;
			}
			err_clear(err);
		}
		backend->since = now_ms();
		backends_tick(ingress);
	}
	backend->ops = ops;
	backend->owner = owner;
	*ret = backend;
	return 0;
}

/* ---- use ------------------------------------------------------------------------------------ */

bool backend_is_reused(const struct backend *backend)
{
	return backend->reused;
}

bool backend_is_connected(const struct backend *backend)
{
	return !backend->connecting;
}

struct answer *backend_answer(struct backend *backend)
{
	return &backend->answer;
}

bool backend_is_broken(const struct backend *backend)
{
	return backend->broken;
}

size_t backend_pending(const struct backend *backend)
{
	return backend->out.len;
}

/* An idle connection may lead into a box that was suspended meanwhile. */
void backend_used(struct backend *backend, bool anew)
{
	struct ingress *ingress = backend->ingress;
	int64_t now = now_ms();

	if (!ingress->ops.used || (!anew && now - backend->used_ms < USED_MS))
		return;
	backend->used_ms = now;
	ingress->ops.used(backend->target->box, ingress->arg);
}

void backend_write(struct backend *backend, const struct iovec *parts, unsigned count)
{
	struct iovec copy[PARTS_MAX];
	struct msghdr message = { .msg_iov = copy, .msg_iovlen = count };
	ssize_t sent = 0;

	assert(count <= PARTS_MAX && !backend->shut);
	backend_used(backend, false);
	memcpy(copy, parts, count * sizeof *parts);
	if (!backend->out.len && !backend->connecting) {
		do
			sent = sendmsg(backend->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (sent < 0 && errno == EINTR);
		if (sent < 0 && errno != EAGAIN) {
			backend->broken = true; /* see send_out */
			return;
		}
		sent = MAX(sent, 0);
	}
	for (unsigned i = 0; i < count; i++) {
		size_t skip = MIN((size_t)sent, parts[i].iov_len);

		buf_add(&backend->out, (const char *)parts[i].iov_base + skip,
			parts[i].iov_len - skip);
		sent -= (ssize_t)skip;
	}
	update_watch(backend);
}

void backend_shut(struct backend *backend)
{
	backend->shut = true;
	shut_if_due(backend);
}

void backend_pause(struct backend *backend, bool paused)
{
	backend->paused = paused;
	update_watch(backend);
}

/* ---- keeping and closing -------------------------------------------------------------------- */

void backend_keep(struct backend *backend, unsigned wait_ms)
{
	struct ingress *ingress = backend->ingress;
	struct target *target = backend->target;

	if (backend->out.len || backend->ended || backend->broken || backend->shut ||
		backend->connecting || target->idle_count >= INGRESS_IDLE_PER_PORT ||
		ingress->idle_count >= INGRESS_IDLE_MAX)
		return backend_close(backend);
	backend->ops = NULL;
	backend->owner = NULL;
	backend->waiting = true;
	backend->since = now_ms();
	backend->patience = wait_ms ? MIN(wait_ms, ingress->limits.idle) : ingress->limits.idle;
	backend->paused = false;
	update_watch(backend);
	target->busy_count--;
	target->idle_count++;
	ingress->idle_count++;
	backend->idle_next = target->idle;
	if (target->idle)
		target->idle->idle_prev = backend;
	target->idle = backend;
	backends_tick(ingress);
}

void backend_close(struct backend *backend)
{
	struct ingress *ingress;

	if (!backend)
		return;
	ingress = backend->ingress;
	if (backend->waiting)
		idle_remove(backend);
	else
		backend->target->busy_count--;
	target_check(ingress, backend->target);
	if (backend->prev)
		backend->prev->next = backend->next;
	else
		ingress->backends = backend->next;
	if (backend->next)
		backend->next->prev = backend->prev;
	ingress->backend_count--;
	loop_fd_free(backend->watch);
	if (backend->fd >= 0)
		close(backend->fd);
	buf_done(&backend->out);
	answer_done(&backend->answer);
	free(backend);
}

static void on_tick(void *arg)
{
	struct ingress *ingress = arg;
	int64_t now = now_ms();
	bool any = false;

	for (struct backend *backend = ingress->backends, *next; backend; backend = next) {
		next = backend->next;
		if (backend->waiting && now - backend->since >= backend->patience) {
			backend_close(backend);
		} else if (backend->connecting && !backend->ended &&
			   now - backend->since >= (backend->waking ? (unsigned)WAKE_MS
								    : ingress->limits.connect)) {
			end(backend, ETIMEDOUT); /* its owner closes it, and no other one */
		} else {
			any |= backend->waiting || backend->connecting;
		}
	}
	exchanges_check(ingress);
	ingress->ticking = false;
	if (any || ingress->exchanges)
		backends_tick(ingress);
}

size_t backends_share(const struct ingress *ingress)
{
	size_t share = INGRESS_READ_ALL / MAX(ingress->backend_count, 1u);

	return MAX(MIN(share, INGRESS_READ_SIZE), INGRESS_READ_MIN);
}

void ingress_set_limits(struct ingress *ingress, const struct ingress_limits *limits)
{
	ingress->limits = *limits;
}

void backends_open(struct ingress *ingress)
{
	ingress->tick = loop_timer_new(ingress->loop, on_tick, ingress);
}

/* Exchanges ended with their servers: only idle backends are left. */
void backends_close(struct ingress *ingress)
{
	for (struct backend *backend = ingress->backends, *next; backend; backend = next) {
		next = backend->next;
		backend_close(backend);
	}
	loop_timer_free(ingress->tick);
}
