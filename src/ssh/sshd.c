/* sshd.c - listens for SSH connections and starts a process for each
 *
 * At most OUTSIDE_MAX connections are there without a login: those beyond wait in the kernel's
 * queue. Of them OUTSIDE_PEER_MAX are from one address of another machine: those beyond are
 * closed. */
#include "ssh/sshd.h"
#include "ssh/connection/connection.h"
#include "ssh/control.h"
#include "ssh/hostkey.h"
#include "ssh/sshd_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/special.h"
#include "conf/conf.h"
#include "core/boxnet/network.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	BACKLOG = 256,
	ACCEPT_AT_ONCE = 16,
	ACCEPT_PAUSE_MS = 100,
	PEERS_MAX = 2048,
	OUTSIDE_MAX = 128,
	OUTSIDE_PEER_MAX = 64,
	PIPE_BUFFER = 2 * SSHM_MESSAGE_MAX,
	LINE_MS = 1000, /* for a local client to name a box */
};

/* ---- connections ---------------------------------------------------------------------------- */

static void peer_unlink(struct peer *peer)
{
	struct sshd *sshd = peer->sshd;

	if (peer->prev)
		peer->prev->next = peer->next;
	else
		sshd->peers = peer->next;
	if (peer->next)
		peer->next->prev = peer->prev;
	sshd->peer_count--;
	sshd->outside_count -= !peer->in;
}

static void early_unlink(struct peer *peer)
{
	if (peer->prev)
		peer->prev->next = peer->next;
	else
		peer->sshd->early = peer->next;
	if (peer->next)
		peer->next->prev = peer->prev;
	peer->prev = peer->next = NULL;
}

static void finish_stop(struct sshd *sshd)
{
	void (*stopped)(void *arg) = sshd->stopped;

	if (!sshd->stopping || sshd->peers || !stopped)
		return;
	sshd->stopped = NULL;
	loop_timer_stop(sshd->stop_timer);
	stopped(sshd->stopped_arg);
}

static void listen_again(void *arg)
{
	struct sshd *sshd = arg;

	if (sshd->stopping)
		return;
	if (sshd->tcp.watch)
		loop_fd_set(sshd->tcp.watch, LOOP_READ);
	if (sshd->local.watch)
		loop_fd_set(sshd->local.watch, LOOP_READ);
}

void sshd_peer_in(struct peer *peer)
{
	peer->sshd->outside_count--;
	loop_timer_stop(peer->login_timer);
	listen_again(peer->sshd);
}

void sshd_peer_gone(struct peer *peer)
{
	struct sshd *sshd = peer->sshd;

	peer_unlink(peer);
	peer_done(peer);
	free(peer);
	listen_again(sshd);
	finish_stop(sshd);
}

static unsigned count_outside(const struct sshd *sshd, const char *address)
{
	unsigned count = 0;

	for (const struct peer *peer = sshd->peers; peer; peer = peer->next)
		count += !peer->in && !strcmp(peer->address, address);
	return count;
}

/* ---- the process ---------------------------------------------------------------------------- */

/* Between clone and exec: system calls only. 3 is the client's socket, 4 ours. */
static _Noreturn void become_connection(int client, int pipe)
{
	static char *const argv[] = { (char *)"box", (char *)"ssh-connection", NULL },
			   *const nothing[] = { NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		_exit(126);
	client = fcntl(client, F_DUPFD_CLOEXEC, 5);
	pipe = fcntl(pipe, F_DUPFD_CLOEXEC, 5);
	if (client < 0 || pipe < 0 || dup2(client, 3) < 0 || dup2(pipe, 4) < 0)
		_exit(126);
	close_range(5, ~0U, 0);
	clone_reset_signals();
	execve("/proc/self/exe", argv, nothing);
	_exit(127);
}

static int start_process(struct peer *peer, int client, struct err *err)
{
	const struct clone_spec how = { .cgroup = -1 };
	int pair[2], pidfd = -1;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_sys(err, errno, "socketpair for an SSH connection");
	for (unsigned i = 0; i < 2; i++) /* a message fits whole */
		setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &(int){ PIPE_BUFFER }, sizeof(int));
	pid = clone_process(&how, &pidfd, err);
	if (pid == 0)
		become_connection(client, pair[1]);
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_wrap(err, "start the process of an SSH connection");
	}
	peer_start(peer, pair[0], pidfd);
	return 0;
}

static void name_peer(struct peer *peer, const struct sockaddr_storage *from, int fd)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;

	if (from->ss_family == AF_INET) {
		inet_ntop(AF_INET, &v4->sin_addr, peer->address, sizeof peer->address);
		peer->port = ntohs(v4->sin_port);
	} else if (from->ss_family == AF_INET6) {
		bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);

		inet_ntop(mapped ? AF_INET : AF_INET6, v6->sin6_addr.s6_addr + (mapped ? 12 : 0),
			peer->address, sizeof peer->address);
		peer->port = ntohs(v6->sin6_port);
	}
	if (peer->local) {
		struct ucred cred = { .uid = (uid_t)-1 };

		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &(socklen_t){ sizeof cred });
		peer->uid = cred.uid;
	}
}

/* Takes the peer; fd stays the caller's. */
static int serve(struct peer *peer, int fd, struct err *err)
{
	struct sshd *sshd = peer->sshd;

	peer->next = sshd->peers;
	if (peer->next)
		peer->next->prev = peer;
	sshd->peers = peer;
	sshd->peer_count++;
	sshd->outside_count++;
	if (start_process(peer, fd, err) == 0)
		return 0;
	peer_unlink(peer);
	free(peer);
	return -1;
}

/* ---- local clients: the line before SSH ----------------------------------------------------- */

static void early_done(struct peer *peer)
{
	loop_fd_free(peer->early_watch);
	loop_timer_free(peer->login_timer);
	peer->early_watch = NULL;
	peer->login_timer = NULL;
}

/* The line was read, or there is none: the rest is SSH. */
static void early_serve(struct peer *peer)
{
	struct err err = ERR_INIT;
	int fd = peer->early_fd;

	early_done(peer);
	early_unlink(peer);
	peer->early_fd = -1;
	if (serve(peer, fd, &err) < 0)
		log_error("an SSH connection was closed", kv_err(&err));
	close(fd);
}

static void early_drop(struct peer *peer)
{
	early_done(peer);
	early_unlink(peer);
	close(peer->early_fd);
	free(peer);
}

/* Looks without taking: what is behind the line belongs to SSH. */
static void on_early(void *arg, unsigned ready)
{
	struct peer *peer = arg;
	char data[PROXY_LINE_MAX];
	ssize_t got = recv(peer->early_fd, data, sizeof data, MSG_PEEK | MSG_DONTWAIT);
	struct err err = ERR_INIT;
	bool none = false;
	int line;

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	line = got > 0 ? proxy_read_line(data, (size_t)got, peer->named, &none, &err) : -1;
	if (line < 0 || (line > 0 && recv(peer->early_fd, data, (size_t)line, 0) != line))
		early_drop(peer);
	else if (line > 0 || none)
		early_serve(peer);
	/* else the end of the line is still to come */
}

/* A client may wait for our greeting before it says anything. */
static void on_early_late(void *arg)
{
	struct peer *peer = arg;

	*peer->named = '\0';
	early_serve(peer);
}

static void wait_for_line(struct peer *peer, int fd)
{
	struct sshd *sshd = peer->sshd;

	peer->early_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (peer->early_fd < 0) {
		free(peer);
		return;
	}
	peer->next = sshd->early;
	if (peer->next)
		peer->next->prev = peer;
	sshd->early = peer;
	peer->early_watch = loop_fd_new(sshd->loop, peer->early_fd, LOOP_READ, on_early, peer);
	peer->login_timer = loop_timer_new(sshd->loop, on_early_late, peer);
	loop_timer_start(peer->login_timer, LINE_MS);
}

/* Programs of this machine may log in many times at once: they wait for their turn. */
static bool is_far(const struct peer *peer)
{
	return !peer->local && !host_is_loopback(peer->address);
}

static void take(struct sshd_listener *listener, int fd, const struct sockaddr_storage *from)
{
	struct sshd *sshd = listener->sshd;
	struct peer *peer = xnew(struct peer);
	struct err err = ERR_INIT;

	peer->sshd = sshd;
	peer->local = listener->local;
	name_peer(peer, from, fd);
	if (is_far(peer) && count_outside(sshd, peer->address) >= OUTSIDE_PEER_MAX) {
		free(peer);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
	if (peer->local)
		wait_for_line(peer, fd);
	else if (serve(peer, fd, &err) < 0)
		log_error("an SSH connection was closed", kv_err(&err));
}

/* A box logs in to another: its network is its credential. */
static int take_box(struct box *from, struct box *to, int *ret_fd, void *arg, struct err *err)
{
	struct sshd *sshd = arg;
	struct peer *peer;
	int pair[2], done;

	if (sshd->stopping || sshd->outside_count >= OUTSIDE_MAX || sshd->peer_count >= PEERS_MAX)
		return err_set(err, ERR_LIMIT, "too many SSH connections");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	fcntl(pair[1], F_SETFL, O_NONBLOCK);
	peer = xnew(struct peer);
	peer->sshd = sshd;
	peer->local = peer->from_box = true;
	snprintf(peer->named, sizeof peer->named, "%s", box_get_name(to));
	auth_by_box(from, to, &peer->principal);
	done = serve(peer, pair[0], err);
	close(pair[0]);
	if (done < 0)
		close(pair[1]);
	else
		*ret_fd = pair[1];
	return done;
}

static void pause_listening(struct sshd *sshd, bool retry)
{
	if (sshd->tcp.watch)
		loop_fd_set(sshd->tcp.watch, 0);
	if (sshd->local.watch)
		loop_fd_set(sshd->local.watch, 0);
	if (retry)
		loop_timer_start(sshd->again, ACCEPT_PAUSE_MS);
}

static void on_accept(void *arg, unsigned ready)
{
	struct sshd_listener *listener = arg;
	struct sshd *sshd = listener->sshd;

	(void)ready;
	for (unsigned i = 0; i < ACCEPT_AT_ONCE; i++) {
		struct sockaddr_storage from = { 0 };
		int fd;

		if (sshd->outside_count >= OUTSIDE_MAX || sshd->peer_count >= PEERS_MAX) {
			pause_listening(sshd, false);
			return;
		}
		fd = accept4(listener->fd, (struct sockaddr *)&from, &(socklen_t){ sizeof from },
			SOCK_CLOEXEC);
		if (fd < 0 &&
			(errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
			pause_listening(sshd, true);
		if (fd < 0)
			return;
		if (!fd_is_scarce(fd))
			take(listener, fd, &from);
		close(fd);
	}
}

/* ---- listening ------------------------------------------------------------------------------ */

static int listen_tcp(const char *address, uint16_t port, uint16_t *ret_port, struct err *err)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
	struct sockaddr *to = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t len = is_v4 ? sizeof v4 : sizeof v6;
	_cleanup_close_ int fd = -1;

	if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
		return err_set(err, ERR_INVALID, "ssh_listen: '%s' is no address", address);
	fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(err, errno, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, to, len) < 0 || listen(fd, BACKLOG) < 0) {
		if (errno != EADDRINUSE)
			return err_sys(err, errno, "listen on %s port %u for SSH", address, port);
		err_set(err, ERR_EXISTS, "port %u of %s, for SSH, is taken", port, address);
		return err_hint(err, "set ssh_listen to another port, or to off");
	}
	if (getsockname(fd, to, &len) < 0)
		return err_sys(err, errno, "getsockname");
	*ret_port = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
	return steal_fd(&fd);
}

/* The group may not exist on this machine; then only root can use the socket. */
static int listen_local(const struct conf *conf, struct err *err)
{
	const char *path = conf->ssh_socket;
	struct group *group = conf->group && *conf->group ? getgrnam(conf->group) : NULL;
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(err, errno, "socket");
	if (strlen(path) >= sizeof to.sun_path)
		return err_set(err, ERR_INVALID, "the path '%s' is too long for a socket", path);
	snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
	unlink(path);
	if (bind(fd, (struct sockaddr *)&to, sizeof to) < 0 ||
		chmod(path, group ? 0660 : 0600) < 0 ||
		(group && chown(path, (uid_t)-1, group->gr_gid) < 0) || listen(fd, BACKLOG) < 0)
		return err_sys(err, errno, "listen on '%s'", path);
	return steal_fd(&fd);
}

static void listener_start(struct sshd *sshd, struct sshd_listener *listener, int fd, bool local)
{
	*listener = (struct sshd_listener){ .sshd = sshd, .fd = fd, .local = local };
	listener->watch = loop_fd_new(sshd->loop, fd, LOOP_READ, on_accept, listener);
}

static void listener_stop(struct sshd_listener *listener)
{
	loop_fd_free(listener->watch);
	if (listener->watch)
		close(listener->fd);
	listener->watch = NULL;
}

static int start_listening(struct sshd *sshd, struct err *err)
{
	const struct conf *conf = yard_get_conf(sshd->yard);
	uint16_t port = 0;
	int fd;

	if (!ssh_library_version()) {
		log_warn("this program was built without libssh: nobody can log in by SSH");
		return 0;
	}
	fd = listen_local(conf, err);
	if (fd < 0)
		return -1;
	listener_start(sshd, &sshd->local, fd, true);
	if (!conf->ssh_listen)
		return 0;
	fd = listen_tcp(conf->ssh_listen, conf->ssh_port, &port, err);
	if (fd < 0)
		return -1;
	listener_start(sshd, &sshd->tcp, fd, false);
	sshd->port = port;
	snprintf(sshd->listens, sizeof sshd->listens, "ssh://%s port %u", conf->ssh_listen, port);
	return 0;
}

/* For GET /v1/info. */
static void tell_info(struct sshd *sshd)
{
	yard_set_ssh_info(
		sshd->yard, hostkeys_info_json(sshd->hostkeys,
				    sshd->port ? yard_get_conf(sshd->yard)->ssh_listen : NULL,
				    sshd->port, ssh_library_version()));
}

void sshd_reload(struct sshd *sshd)
{
	struct err err = ERR_INIT;

	if (hostkeys_reload(sshd->hostkeys, &err) < 0)
		log_error("the SSH host keys cannot be read, the old ones stay", kv_err(&err));
	else
		tell_info(sshd);
}

/* ---- life ----------------------------------------------------------------------------------- */

int sshd_open(struct yard *yard, struct auth *auth, struct sshd **ret, struct err *err)
{
	struct sshd *sshd = xnew(struct sshd);

	sshd->yard = yard;
	sshd->auth = auth;
	sshd->loop = yard_get_loop(yard);
	sshd->again = loop_timer_new(sshd->loop, listen_again, sshd);
	sshd->controls = controls_new(sshd->loop, auth, NULL);
	if (hostkeys_open(yard_get_conf(yard)->home, &sshd->hostkeys, err) < 0 ||
		start_listening(sshd, err) < 0) {
		sshd_close(sshd);
		return -1;
	}
	tell_info(sshd);
	yard_set_box_login(yard, take_box, sshd);
	*ret = sshd;
	return 0;
}

const char *sshd_listens(const struct sshd *sshd)
{
	return *sshd->listens ? sshd->listens : NULL;
}

static void on_stop_late(void *arg)
{
	struct sshd *sshd = arg;

	for (struct peer *peer = sshd->peers; peer; peer = peer->next)
		procfd_kill(peer->pidfd, SIGKILL, NULL);
}

void sshd_stop(struct sshd *sshd, uint64_t grace_ms, void (*done)(void *arg), void *arg)
{
	sshd->stopping = true;
	sshd->stopped = done;
	sshd->stopped_arg = arg;
	listener_stop(&sshd->tcp);
	listener_stop(&sshd->local);
	sshd->stop_timer = loop_timer_new(sshd->loop, on_stop_late, sshd);
	loop_timer_start(sshd->stop_timer, grace_ms);
	for (struct peer *peer = sshd->peers, *next; peer; peer = next) {
		next = peer->next;
		peer_end(peer, "the daemon is shutting down; programs run on");
	}
	finish_stop(sshd);
}

void sshd_close(struct sshd *sshd)
{
	if (!sshd)
		return;
	yard_set_box_login(sshd->yard, NULL, NULL);
	for (struct peer *peer = sshd->early, *next; peer; peer = next) {
		next = peer->next;
		early_drop(peer);
	}
	listener_stop(&sshd->tcp);
	listener_stop(&sshd->local);
	sshd->stopped = NULL;
	for (struct peer *peer = sshd->peers, *next; peer; peer = next) {
		next = peer->next;
		peer_end(peer, NULL);
		peer_unlink(peer);
		peer_done(peer);
		free(peer);
	}
	controls_free(sshd->controls);
	lingers_free(sshd);
	loop_timer_free(sshd->stop_timer);
	loop_timer_free(sshd->again);
	hostkeys_close(sshd->hostkeys);
	free(sshd);
}
