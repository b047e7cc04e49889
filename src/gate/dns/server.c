/* server.c - boxes, their sockets and their rate; see server.h
 *
 * udp.c and tcp.c carry messages, answer.c makes the answers. */
#include "base/clock.h"
#include "loop/loop.h"
#include "gate/dns/server_internal.h"

/* ---- rate ----------------------------------------------------------------------------------- */

static void watch_doors(struct dns_box *box, unsigned ready)
{
	for (size_t i = 0; i < box->udp_count; i++)
		loop_fd_set(box->udp[i].watch, ready);
	for (size_t i = 0; i < box->tcp_count; i++)
		loop_fd_set(box->tcp[i].watch, ready);
}

static void on_pause_over(void *arg)
{
	struct dns_box *box = arg;

	box->paused = false;
	watch_doors(box, LOOP_READ);
	dns_conns_resume(box);
}

void dns_box_pause(struct dns_box *box, unsigned ms)
{
	if (box->paused)
		return;
	box->paused = true;
	watch_doors(box, 0);
	loop_timer_start(box->pause, ms);
}

static void log_limited(struct dns_box *box)
{
	const struct dns_server_ops *ops = box->server->options.ops;

	if (ops->log)
		ops->log(box->options.arg,
			&(struct dns_event){ .name = "", .verdict = DNS_LIMITED, .rcode = -1 });
}

unsigned dns_box_allowance(struct dns_box *box, unsigned wanted)
{
	struct dns_rate *rate = box->rate;
	int64_t now = clock_mono_us();

	rate->saved_us = MIN(box->full_us, rate->saved_us + now - rate->filled_at);
	rate->filled_at = now;
	if (rate->saved_us >= box->cost_us)
		return MIN((int64_t)wanted, rate->saved_us / box->cost_us);
	/* Until an eighth of the bucket is full again, to avoid a wake-up for each query. */
	if (!box->paused)
		log_limited(box);
	dns_box_pause(box, MAX(1, (MAX(box->cost_us, box->full_us / 8) - rate->saved_us) / 1000));
	return 0;
}

void dns_box_spend(struct dns_box *box, unsigned questions)
{
	box->rate->saved_us -= questions * box->cost_us;
}

/* ---- boxes ---------------------------------------------------------------------------------- */

static void open_door(struct dns_door *door, struct dns_box *box, int fd, loop_fd_fn fn)
{
	*door = (struct dns_door){ .box = box, .fd = fd };
	door->watch = loop_fd_new(box->server->loop, fd, LOOP_READ, fn, door);
}

static void close_door(struct dns_door *door)
{
	loop_fd_free(door->watch);
	close(door->fd);
}

static void link_box(struct dns_box *box, struct dns_server *server)
{
	box->next = server->boxes;
	box->at = &server->boxes;
	if (box->next)
		box->next->at = &box->next;
	server->boxes = box;
}

int dns_server_add(struct dns_server *server, const struct dns_box_options *options,
	struct dns_box **ret, struct err *err)
{
	struct dns_box *box;

	if (options->udp_count > DNS_BOX_SOCKETS_MAX || options->tcp_count > DNS_BOX_SOCKETS_MAX)
		return err_set(err, ERR_INVALID, "more than %d sockets", DNS_BOX_SOCKETS_MAX);
	for (size_t i = 0; i < options->udp_count; i++)
		if (dns_udp_prepare(options->udp[i], err) < 0)
			return -1;
	box = xnew(struct dns_box);
	box->server = server;
	box->options = *options;
	if (!box->options.rate)
		box->options.rate = 1000;
	box->options.rate = MIN(box->options.rate, 1000000);
	if (!box->options.burst)
		box->options.burst = box->options.rate;
	box->cost_us = 1000000 / box->options.rate;
	box->full_us = box->cost_us * box->options.burst;
	box->rate = options->together ? options->together : &box->own;
	/* The bucket starts full. */
	if (!box->rate->filled_at)
		*box->rate = (struct dns_rate){ box->full_us, clock_mono_us() };
	box->pause = loop_timer_new(server->loop, on_pause_over, box);
	for (; box->udp_count < options->udp_count; box->udp_count++)
		open_door(&box->udp[box->udp_count], box, options->udp[box->udp_count],
			dns_udp_ready);
	for (; box->tcp_count < options->tcp_count; box->tcp_count++)
		open_door(&box->tcp[box->tcp_count], box, options->tcp[box->tcp_count],
			dns_tcp_ready);
	box->options.udp = box->options.tcp = NULL; /* the caller's arrays */
	link_box(box, server);
	*ret = box;
	return 0;
}

void dns_box_free(struct dns_box *box)
{
	if (!box)
		return;
	while (box->conns)
		dns_conn_free(box->conns);
	while (box->pendings)
		dns_pending_cancel(box->pendings);
	for (size_t i = 0; i < box->udp_count; i++)
		close_door(&box->udp[i]);
	for (size_t i = 0; i < box->tcp_count; i++)
		close_door(&box->tcp[i]);
	loop_timer_free(box->pause);
	*box->at = box->next;
	if (box->next)
		box->next->at = box->at;
	free(box);
}

/* ---- the server ----------------------------------------------------------------------------- */

struct dns_server *dns_server_new(struct loop *loop, const struct dns_server_options *options)
{
	struct dns_server *server = xnew(struct dns_server);
	struct dns_server_options *own = &server->options;

	server->loop = loop;
	*own = *options;
	own->ttl = own->ttl ? own->ttl : 60;
	own->pending_max = own->pending_max ? own->pending_max : 64;
	own->conns_max = own->conns_max ? own->conns_max : 16;
	own->idle_ms = own->idle_ms ? own->idle_ms : 10000;
	server->batch = dns_batch_new();
	return server;
}

void dns_server_free(struct dns_server *server)
{
	if (!server)
		return;
	for (struct dns_box *box = server->boxes, *next; box; box = next) {
		next = box->next;
		dns_box_free(box);
	}
	free(server->batch);
	free(server);
}
