/* port_listen.c - ports on the host's loopback that lead into boxes
 *
 * A listener exists as long as its box and the daemon do, whether the box runs or not: a connection
 * to a stopped box is accepted and closed. Every program of this machine may connect; that is what
 * was asked for. A port that another program has when the daemon starts is retried until it is
 * free. */
#include "base/file.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/port_internal.h"
#include "loop/loop.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum {
	BACKLOG = 128,
	ACCEPT_AT_ONCE = 16,
	CONNECTIONS_MAX = 512,
	ACCEPT_PAUSE_MS = 200,
	LISTEN_AGAIN_MS = 3000,
};

struct port_listener {
	struct yard *yard;
	struct port_listener *next; /* of the same box */
	char box[BOX_ID_LEN + 1];
	uint16_t port, host_port;
	int fd; /* -1: see problem */
	struct loop_fd *watch;
	struct loop_timer *again;
	struct port_pipe *pipes[CONNECTIONS_MAX];
	unsigned count;
	char *problem;
};

static int open_box(bool second, int *ret_fd, struct err *err, void *arg)
{
	struct port_listener *listener = arg;
	struct box *box = box_find(listener->yard, listener->box, err);

	return box ? box_port_connect(box, listener->port, second, ret_fd, err) : -1;
}

static void on_used(void *arg)
{
	struct port_listener *listener = arg;
	struct box *box = box_find(listener->yard, listener->box, NULL);

	if (box)
		box_is_used(box);
}

static void on_gone(struct port_pipe *pipe, void *arg)
{
	struct port_listener *listener = arg;

	for (unsigned i = 0; i < listener->count; i++)
		if (listener->pipes[i] == pipe) {
			listener->pipes[i] = listener->pipes[--listener->count];
			return;
		}
}

static void on_accept(void *arg, unsigned ready)
{
	struct port_listener *listener = arg;

	(void)ready;
	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct port_pipe *pipe;

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
				      errno == ENOMEM)) {
			loop_fd_set(listener->watch, 0); /* it stays readable: do not spin */
			loop_timer_start(listener->again, ACCEPT_PAUSE_MS);
		}
		if (fd < 0)
			return;
		if (listener->count == CONNECTIONS_MAX || fd_is_scarce(fd)) {
			close(fd);
			continue;
		}
		pipe = port_pipe_new(listener->yard->loop, fd, open_box, on_gone, listener);
		if (!pipe)
			continue;
		port_pipe_on_used(pipe, on_used);
		listener->pipes[listener->count++] = pipe;
	}
}

static void on_again(void *arg);

static struct port_listener *listener_alloc(struct box *box, uint16_t port, uint16_t host_port)
{
	struct port_listener *listener = xnew(struct port_listener);

	listener->yard = box->yard;
	strncpy(listener->box, box->row.id, sizeof listener->box - 1);
	listener->port = port;
	listener->host_port = host_port;
	listener->fd = -1;
	listener->again = loop_timer_new(box->yard->loop, on_again, listener);
	return listener;
}

static int listen_on(uint16_t *port, struct err *err)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_port = htons(*port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	_cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(err, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0) {
		if (errno != EADDRINUSE)
			return err_sys(err, errno, "listen on port %u", *port);
		err_set(err, ERR_EXISTS, "port %u of this machine is taken", *port);
		return err_hint(err, "choose another port, or omit --host-port");
	}
	if (getsockname(fd, (struct sockaddr *)&address, &(socklen_t){ sizeof address }) < 0)
		return err_sys(err, errno, "getsockname");
	*port = ntohs(address.sin_port);
	return steal_fd(&fd);
}

static void begin(struct port_listener *listener, int fd)
{
	listener->fd = fd;
	listener->watch = loop_fd_new(listener->yard->loop, fd, LOOP_READ, on_accept, listener);
}

static void on_again(void *arg)
{
	struct port_listener *listener = arg;
	struct err err = ERR_INIT;
	int fd;

	if (listener->fd >= 0) {
		loop_fd_set(listener->watch, LOOP_READ);
		return;
	}
	fd = listen_on(&listener->host_port, &err);
	if (fd < 0) {
		loop_timer_start(listener->again, LISTEN_AGAIN_MS);
		return;
	}
	log_info("a port of a box has its listener again", kv_str("box", listener->box),
		kv_int("port", listener->port));
	free(steal_ptr(&listener->problem));
	begin(listener, fd);
}

int port_listener_new(struct box *box, uint16_t port, uint16_t host_port,
	struct port_listener **ret, struct err *err)
{
	int fd = listen_on(&host_port, err);
	struct port_listener *listener;

	if (fd < 0)
		return -1;
	listener = listener_alloc(box, port, host_port);
	begin(listener, fd);
	*ret = listener;
	return 0;
}

void port_listener_free(struct port_listener *listener)
{
	if (!listener)
		return;
	while (listener->count)
		port_pipe_free(listener->pipes[--listener->count]);
	loop_fd_free(listener->watch);
	loop_timer_free(listener->again);
	if (listener->fd >= 0)
		close(listener->fd);
	free(listener->problem);
	free(listener);
}

uint16_t port_listener_get_host_port(const struct port_listener *listener)
{
	return listener->host_port;
}

/* ---- those of a box ------------------------------------------------------------------------- */

static struct port_listener **slot_of(struct box *box, uint16_t port)
{
	struct port_listener **slot = &box->net->listeners;

	while (*slot && (*slot)->port != port)
		slot = &(*slot)->next;
	return slot;
}

static const struct port_listener *listener_of(const struct box *box, uint16_t port)
{
	const struct port_listener *listener = box->net ? box->net->listeners : NULL;

	while (listener && listener->port != port)
		listener = listener->next;
	return listener;
}

void port_listener_adopt(struct box *box, struct port_listener *listener)
{
	port_listener_drop(box, listener->port);
	listener->next = box->net->listeners;
	box->net->listeners = listener;
}

void port_listener_drop(struct box *box, uint16_t port)
{
	struct port_listener **slot = slot_of(box, port), *listener = *slot;

	if (!listener)
		return;
	*slot = listener->next;
	port_listener_free(listener);
}

void port_listeners_drop(struct box *box)
{
	while (box->net && box->net->listeners)
		port_listener_drop(box, box->net->listeners->port);
}

/* From the last one down: ended pipes are removed from the list on the way. */
void port_listeners_woken(struct box *box, bool awake)
{
	struct port_listener *listener = box->net ? box->net->listeners : NULL;

	for (; listener; listener = listener->next)
		for (unsigned i = listener->count; i-- > 0;)
			if (i < listener->count)
				port_pipe_retry(listener->pipes[i], awake);
}

void port_listener_restore(struct box *box, uint16_t port, uint16_t host_port)
{
	struct port_listener *listener = NULL;
	struct err err = ERR_INIT;

	if (listener_of(box, port))
		return;
	if (port_listener_new(box, port, host_port, &listener, &err) < 0) {
		log_warn("a port of a box has no listener", kv_str("box", box->row.id),
			kv_int("port", port), kv_err(&err));
		listener = listener_alloc(box, port, host_port);
		listener->problem = xstrdup(err.message);
		loop_timer_start(listener->again, LISTEN_AGAIN_MS);
	}
	port_listener_adopt(box, listener);
}

const char *port_listener_problem(const struct box *box, uint16_t port)
{
	const struct port_listener *listener = listener_of(box, port);

	return listener ? listener->problem : NULL;
}

int port_listener_host_port(const struct box *box, uint16_t port)
{
	const struct port_listener *listener = listener_of(box, port);

	return listener && listener->fd >= 0 ? listener->host_port : -1;
}
