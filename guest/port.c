/* port.c - see port.h
 *
 * Edge-triggered: a port without a host side is "hung up" and would be ready for ever. */
#include "guest/port.h"
#include "guest/conn_internal.h"
#include <errno.h>

enum { DROP_MAX = 1024 * 1024, DROP_BYTES = 16 * 1024 };

static struct watch port = WATCH_INIT;
static struct conn *current; /* NULL: none */
static struct timer again;
static bool serving, connected;

/* Discards bytes of an earlier connection. Later ones are found by the hello. */
static void drop_old(void)
{
	static uint8_t bytes[DROP_BYTES];

	for (size_t dropped = 0; dropped < DROP_MAX;) {
		ssize_t got = read(port.fd, bytes, sizeof bytes);

		if (got <= 0)
			return;
		dropped += (size_t)got;
	}
}

static void end_current(const char *why)
{
	if (current)
		conn_kill(current, why);
}

static void on_port(struct watch *watch, uint32_t ready)
{
	(void)watch;
	if (ready & EPOLLHUP) {
		connected = false;
		end_current("the other side is gone");
		return;
	}
	connected = true;
	if (current)
		conn_ready(current, EPOLLIN | (ready & EPOLLOUT));
}

static void on_again(struct timer *timer)
{
	(void)timer;
	if (current)
		conn_ready(current, EPOLLIN);
}

void port_conn_gone(struct conn *conn)
{
	if (conn == current)
		current = NULL;
}

void port_settle(void)
{
	if (port.fd < 0)
		return;
	if (serving && connected && !current) {
		drop_old();
		current = conn_start_port(port.fd);
		timer_arm(&again, 0, on_again);
	}
	if (current && current->more && !conn_is_paused(current) && !again.armed)
		timer_arm(&again, 0, on_again);
}

void port_serve(bool serve)
{
	end_current("it belongs to what this box was before");
	serving = serve;
}

void port_open(int fd)
{
	watch_open(&port, fd, on_port);
	watch_set(&port, EPOLLIN | EPOLLOUT | EPOLLET);
}
