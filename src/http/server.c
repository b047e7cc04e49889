/* server.c - listeners, the list of connections, their time limits
 *
 * Connections have no timers: while there are any, one tick a second checks all of them. That costs
 * nothing per request, and a limit takes effect at most a second late. */
#include "http/http_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { BACKLOG = 1024, ACCEPT_AT_ONCE = 64, ACCEPT_PAUSE_MS = 200 };
enum { STALE_TRIES = 25, STALE_US = 20 * 1000 };

struct http_listener {
	struct http_server *server;
	struct http_listener *next;
	int fd;
	enum http_transport transport;
	struct http_tls *tls;
	struct loop_fd *watch;
	struct loop_timer *again; /* runs while out of fds */
	bool out_of_fds;	  /* and it was logged */
	char *path;		  /* of a unix socket: removed at the end, if it is still ours */
	dev_t dev;
	ino_t ino;
};

static const struct http_limits default_limits = {
	.head = 30000,
	.body = 60000,
	.idle = 60000,
	.write = 120000,
	.linger = 2000,
	.ping = 30000,
	.silence = 90000,
	.tick = 1000,
};

/* ---- life ----------------------------------------------------------------------------------- */

static void server_destroy(struct http_server *server)
{
	loop_timer_free(server->tick);
	loop_timer_free(server->grace);
	free(server->scratch);
	free(server);
}

void server_enter(struct http_server *server)
{
	server->depth++;
}

void server_leave(struct http_server *server)
{
	if (--server->depth == 0 && server->freed)
		server_destroy(server);
}

/* Between server_enter and server_leave, like end_all. */
static void run_work(struct http_server *server)
{
	struct http_conn *conn = server->work;

	server->work_pending = false;
	server->work = NULL;
	while (conn) {
		struct http_conn *next = conn->work_next;

		conn_run_scheduled(conn);
		conn = next;
	}
}

static void run_scheduled(void *arg)
{
	struct http_server *server = arg;

	server_enter(server);
	run_work(server);
	server_leave(server);
}

void server_schedule(struct http_server *server)
{
	if (server->work_pending)
		return;
	server->work_pending = true;
	loop_defer(server->loop, run_scheduled, server);
}

static void on_tick(void *arg)
{
	struct http_server *server = arg;
	int64_t now = http_now_ms();

	server_enter(server);
	for (struct http_conn *conn = server->conns, *next; conn && !server->freed; conn = next) {
		next = conn->next;
		conn_tick(conn, now);
	}
	server->ticking = server->conns != NULL;
	if (server->ticking)
		loop_timer_start(server->tick, server->limits.tick);
	server_leave(server);
}

struct http_server *http_server_new(struct loop *loop, http_handler handler, void *arg)
{
	struct http_server *server = xnew(struct http_server);

	server->loop = loop;
	server->handler = handler;
	server->arg = arg;
	server->limits = default_limits;
	server->scratch = xcalloc(1, HTTP_READ_SIZE);
	server->tick = loop_timer_new(loop, on_tick, server);
	return server;
}

void http_server_set_limits(struct http_server *server, const struct http_limits *limits)
{
	server->limits = *limits;
}

unsigned http_server_get_connections(const struct http_server *server)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < HTTP_TRANSPORT_COUNT; i++)
		sum += server->count[i];
	return sum;
}

void server_add_conn(struct http_server *server, struct http_conn *conn)
{
	conn->next = server->conns;
	if (conn->next)
		conn->next->prev = conn;
	server->conns = conn;
	server->count[conn->transport]++;
	if (!server->ticking) {
		server->ticking = true;
		loop_timer_start(server->tick, server->limits.tick);
	}
}

/* ---- the end -------------------------------------------------------------------------------- */

static void on_stopped(void *arg)
{
	struct http_server *server = arg;
	void (*stopped)(void *) = server->stopped;

	server->stopped = NULL;
	if (stopped)
		stopped(server->stopped_arg);
}

/* When nothing is left to wait for, `stopped` is called soon, from the loop. */
static void check_stopped(struct http_server *server)
{
	if (server->stopping && !server->conns && server->grace)
		loop_timer_start(server->grace, 0);
}

void server_remove_conn(struct http_server *server, struct http_conn *conn)
{
	if (conn->prev)
		conn->prev->next = conn->next;
	else
		server->conns = conn->next;
	if (conn->next)
		conn->next->prev = conn->prev;
	server->count[conn->transport]--;
	check_stopped(server);
}

static void end_all(struct http_server *server)
{
	while (server->conns)
		conn_end(server->conns);
}

static void on_grace(void *arg)
{
	struct http_server *server = arg;

	server_enter(server);
	end_all(server);
	on_stopped(server);
	server_leave(server);
}

static void close_listeners(struct http_server *server)
{
	while (server->listeners) {
		struct http_listener *listener = server->listeners;
		struct stat now;

		server->listeners = listener->next;
		loop_fd_free(listener->watch);
		loop_timer_free(listener->again);
		if (listener->path && lstat(listener->path, &now) == 0 &&
			now.st_dev == listener->dev && now.st_ino == listener->ino)
			unlink(listener->path);
		close(listener->fd);
		free(listener->path);
		free(listener);
	}
}

void http_server_stop(
	struct http_server *server, uint64_t grace_ms, void (*done)(void *arg), void *arg)
{
	if (server->stopping)
		return;
	server->stopping = true;
	server->stopped = done;
	server->stopped_arg = arg;
	server->grace = loop_timer_new(server->loop, on_grace, server);
	loop_timer_start(server->grace, grace_ms);
	close_listeners(server);
	for (struct http_conn *conn = server->conns; conn; conn = conn->next)
		conn_schedule(conn); /* idle connections end by themselves */
	check_stopped(server);
}

void http_server_free(struct http_server *server)
{
	if (!server || server->freed)
		return;
	server_enter(server);
	server->stopping = true;
	server->stopped = NULL;
	close_listeners(server);
	loop_timer_stop(server->tick);
	end_all(server);
	if (server->work_pending) {
		loop_undefer(server->loop, run_scheduled, server);
		run_work(server); /* all connections are dead: only their memory is freed */
	}
	if (server->grace)
		loop_timer_stop(server->grace);
	server->freed = true;
	server_leave(server);
}

/* ---- connections by another front door ------------------------------------------------------ */

int http_server_add(
	struct http_server *server, int fd, void *who, void (*free_who)(void *who), struct err *err)
{
	struct http_conn *conn;

	if (server->stopping || server->count[HTTP_TRANSPORT_INNER] >= HTTP_CONNECTIONS_MAX ||
		fd_is_scarce(fd)) {
		close(fd);
		free_who(who);
		return server->stopping ? err_set(err, ERR_UNAVAILABLE, "the daemon is stopping")
					: err_set(err, ERR_LIMIT, "too many connections");
	}
	conn = conn_new(server, fd, HTTP_TRANSPORT_INNER, NULL);
	conn->who = who;
	conn->free_who = free_who;
	return 0;
}

/* ---- listening ------------------------------------------------------------------------------ */

static void on_accept_again(void *arg)
{
	struct http_listener *listener = arg;

	loop_fd_set(listener->watch, LOOP_READ);
}

/* Any user of this machine may connect by TCP, before a token is checked. The last eighth of our
 * fds is not for them, so that the unix socket and the boxes keep working. */
static bool is_refused(const struct http_listener *listener, int fd)
{
	if (listener->server->count[listener->transport] >= HTTP_CONNECTIONS_MAX)
		return true;
	return listener->transport != HTTP_TRANSPORT_UNIX && fd_is_scarce(fd);
}

static void wait_for_fds(struct http_listener *listener)
{
	if (!listener->out_of_fds)
		log_warn("cannot accept a connection, waiting", kv_str("error", strerror(errno)));
	listener->out_of_fds = true;
	loop_fd_set(listener->watch, 0); /* the listener stays readable: stop watching it for now */
	loop_timer_start(listener->again, ACCEPT_PAUSE_MS);
}

static void on_accept(void *arg, unsigned ready)
{
	struct http_listener *listener = arg;
	struct http_server *server = listener->server;

	(void)ready;
	for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 &&
			(errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
			return wait_for_fds(listener);
		if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
			continue;
		if (fd < 0)
			return;
		listener->out_of_fds = false;
		if (is_refused(listener, fd))
			close(fd);
		else
			conn_new(server, fd, listener->transport, listener->tls);
	}
}

static struct http_listener *add_listener(
	struct http_server *server, int fd, enum http_transport transport)
{
	struct http_listener *listener = xnew(struct http_listener);

	listener->server = server;
	listener->fd = fd;
	listener->transport = transport;
	listener->watch = loop_fd_new(server->loop, fd, LOOP_READ, on_accept, listener);
	listener->again = loop_timer_new(server->loop, on_accept_again, listener);
	listener->next = server->listeners;
	server->listeners = listener;
	return listener;
}

static bool somebody_listens(const struct sockaddr_un *address)
{
	_cleanup_close_ int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return probe >= 0 &&
	       (connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 ||
		       errno == EAGAIN);
}

/* A socket file without a listener was left by a daemon that was killed. A process which that
 * daemon had just started may hold the socket for a moment longer. */
static int remove_stale(const struct sockaddr_un *address, struct err *err)
{
	struct stat st;

	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "look at '%s'", address->sun_path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(
			err, ERR_EXISTS, "'%s' exists and is not a socket", address->sun_path);
	for (int tries = 0; somebody_listens(address); tries++) {
		if (tries == STALE_TRIES)
			return err_set(err, ERR_EXISTS, "another program listens on '%s'",
				address->sun_path);
		usleep(STALE_US);
	}
	if (unlink(address->sun_path) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove '%s'", address->sun_path);
	return 0;
}

static int bind_unix(int fd, const struct sockaddr_un *address)
{
	mode_t old = umask(0177); /* nobody can connect before group and mode are set */
	int ret = bind(fd, (const struct sockaddr *)address, sizeof *address);
	int saved = errno;

	umask(old);
	errno = saved;
	return ret;
}

int http_server_listen_unix(
	struct http_server *server, const char *path, gid_t group, mode_t mode, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	struct http_listener *listener;
	struct stat st;

	if (!*path || strlen(path) >= sizeof address.sun_path)
		return err_set(err, ERR_INVALID, "socket path '%s' must have 1 to %zu bytes", path,
			sizeof address.sun_path - 1);
	strcpy(address.sun_path, path);
	if (remove_stale(&address, err) < 0)
		return -1;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(err, errno, "socket");
	if (bind_unix(fd, &address) < 0)
		return err_sys(err, errno, "bind to '%s'", address.sun_path);
	if (lstat(address.sun_path, &st) < 0 || chown(address.sun_path, (uid_t)-1, group) < 0 ||
		chmod(address.sun_path, mode) < 0 || listen(fd, BACKLOG) < 0) {
		err_sys(err, errno, "listen on '%s'", address.sun_path);
		unlink(address.sun_path);
		return -1;
	}
	listener = add_listener(server, steal_fd(&fd), HTTP_TRANSPORT_UNIX);
	listener->path = xstrdup(path);
	listener->dev = st.st_dev;
	listener->ino = st.st_ino;
	return 0;
}

static int tcp_address(
	const char *text, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof *ret);
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		*ret_len = sizeof *v4;
		return 0;
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		*ret_len = sizeof *v6;
		return 0;
	}
	return -1;
}

static int open_tcp(const char *address, uint16_t port, int *ret, struct err *err)
{
	struct sockaddr_storage storage;
	socklen_t len;
	_cleanup_close_ int fd = -1;

	if (tcp_address(address, port, &storage, &len) < 0)
		return err_set(err, ERR_INVALID, "'%s' is not an IPv4 or IPv6 address", address);
	fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(err, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (storage.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){ 1 }, sizeof(int));
	if (bind(fd, (struct sockaddr *)&storage, len) < 0 || listen(fd, BACKLOG) < 0) {
		int why = errno;

		err_sys(err, why, "listen on %s port %u", address, port);
		if (why == EADDRINUSE)
			err_hint(err,
				"another program uses this port; BOX_LISTEN=ADDRESS:PORT chooses "
				"another, port 0 any that is free");
		return -1;
	}
	*ret = steal_fd(&fd);
	return 0;
}

int http_server_probe_tcp(const char *address, uint16_t port, struct err *err)
{
	_cleanup_close_ int fd = -1;

	return open_tcp(address, port, &fd, err);
}

static int listen_tcp(struct http_server *server, const char *address, uint16_t port,
	struct http_tls *tls, uint16_t *ret_port, struct err *err)
{
	struct sockaddr_storage storage = { 0 };
	socklen_t len = sizeof storage;
	_cleanup_close_ int fd = -1;

	if (open_tcp(address, port, &fd, err) < 0)
		return -1;
	if (getsockname(fd, (struct sockaddr *)&storage, &len) < 0)
		return err_sys(err, errno, "getsockname");
	if (ret_port)
		*ret_port = ntohs(storage.ss_family == AF_INET
					  ? ((struct sockaddr_in *)&storage)->sin_port
					  : ((struct sockaddr_in6 *)&storage)->sin6_port);
	add_listener(server, steal_fd(&fd), tls ? HTTP_TRANSPORT_TLS : HTTP_TRANSPORT_TCP)->tls =
		tls;
	return 0;
}

int http_server_listen_tcp(struct http_server *server, const char *address, uint16_t port,
	uint16_t *ret_port, struct err *err)
{
	return listen_tcp(server, address, port, NULL, ret_port, err);
}

int http_server_listen_tls(struct http_server *server, const char *address, uint16_t port,
	struct http_tls *tls, uint16_t *ret_port, struct err *err)
{
	return listen_tcp(server, address, port, tls, ret_port, err);
}
