/* port_pipe.c - bytes between a client on the host and a port in a box, both ways
 *
 * What one side does not take yet is kept, and the other side is not read until it is gone: at most
 * one read's worth per direction. Each direction ends by itself, by shutdown; the pipe ends when
 * both have, or when one side breaks. A side that is neither read nor written is watched for that
 * too, and probed by keepalive. */
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/boxnet/port_internal.h"
#include "loop/loop.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { READ_SIZE = 128 * 1024, USED_US = 100 * 1000 };

struct end {
	struct port_pipe *pipe;
	int fd;
	struct loop_fd *watch;
	unsigned watched;
	struct buf out; /* not taken yet */
	bool eof;	/* it sends no more */
	bool shut;	/* shut down for writing */
};

struct port_pipe {
	struct loop *loop;
	struct end client, box;
	bool connecting, second;
	bool waking; /* the box's end is opened later */
	void (*used)(void *arg);
	void (*connected)(void *arg);
	int64_t used_us;
	port_open_fn open;
	port_gone_fn gone;
	void *arg;
};

static struct end *other(struct end *end)
{
	return end == &end->pipe->client ? &end->pipe->box : &end->pipe->client;
}

static void end_update(struct end *end)
{
	unsigned want = 0;
	bool connecting = end->pipe->connecting;

	if (end == &end->pipe->box && connecting)
		want = LOOP_WRITE;
	else if (!connecting) {
		if (!end->eof && !other(end)->out.len)
			want |= LOOP_READ;
		if (end->out.len)
			want |= LOOP_WRITE;
	}
	/* Before our shutdown, a hang-up is a reset. What a box sent before its own is still
	 * read. */
	if (!want && !end->shut && (end->eof || end == &end->pipe->client))
		want = LOOP_HANGUP;
	if (want != end->watched && end->watch)
		loop_fd_set(end->watch, want);
	end->watched = want;
}

static void finish(struct port_pipe *pipe)
{
	port_gone_fn gone = pipe->gone;
	void *arg = pipe->arg;

	gone(pipe, arg);
	port_pipe_free(pipe);
}

/* False: the connection broke. */
static bool end_send(struct end *end)
{
	while (end->out.len) {
		ssize_t sent = send(
			end->fd, buf_head(&end->out), end->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return errno == EAGAIN;
		buf_eat(&end->out, (size_t)sent);
	}
	buf_done(&end->out);
	if (other(end)->eof && !end->shut) {
		end->shut = true;
		shutdown(end->fd, SHUT_WR);
	}
	return true;
}

static void tell_used(struct port_pipe *pipe)
{
	int64_t now = pipe->used ? clock_mono_us() : 0;

	if (!pipe->used || now - pipe->used_us < USED_US)
		return;
	pipe->used_us = now;
	pipe->used(pipe->arg);
}

/* False: the connection broke. */
static bool end_read(struct end *end)
{
	static char scratch[READ_SIZE]; /* one thread runs the loop */
	ssize_t got = recv(end->fd, scratch, sizeof scratch, MSG_DONTWAIT);

	if (got < 0)
		return errno == EAGAIN || errno == EINTR;
	end->eof = got == 0;
	tell_used(end->pipe);
	buf_add(&other(end)->out, scratch, (size_t)got);
	return end_send(other(end));
}

static int open_box(struct port_pipe *pipe, bool second);

static void on_connecting(struct port_pipe *pipe)
{
	int why = 0;

	getsockopt(pipe->box.fd, SOL_SOCKET, SO_ERROR, &why, &(socklen_t){ sizeof why });
	if (why && !pipe->second && open_box(pipe, true) == 0)
		return;
	if (why)
		return finish(pipe);
	pipe->connecting = false;
	end_update(&pipe->box);
	end_update(&pipe->client);
	if (pipe->connected)
		pipe->connected(pipe->arg);
}

static void on_ready(void *arg, unsigned ready)
{
	struct end *end = arg;
	struct port_pipe *pipe = end->pipe;

	if (ready & LOOP_HANGUP)
		return finish(pipe);
	if (pipe->connecting)
		return on_connecting(pipe);
	if ((ready & LOOP_WRITE && !end_send(end)) || (ready & LOOP_READ && !end_read(end)) ||
		(pipe->client.shut && pipe->box.shut))
		return finish(pipe);
	end_update(&pipe->client);
	end_update(&pipe->box);
}

static void end_init(struct port_pipe *pipe, struct end *end, int fd, unsigned ready)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	end->pipe = pipe;
	end->fd = fd;
	end->watched = ready;
	end->watch = loop_fd_new(pipe->loop, fd, ready, on_ready, end);
}

static void end_done(struct end *end)
{
	loop_fd_free(end->watch);
	if (end->fd >= 0)
		close(end->fd);
	buf_done(&end->out);
	end->watch = NULL;
	end->fd = -1;
}

/* The second try replaces the first, which was refused. */
static int open_box(struct port_pipe *pipe, bool second)
{
	struct err err = ERR_INIT;
	int fd;

	if (pipe->open(second, &fd, &err, pipe->arg) < 0)
		return -1;
	end_done(&pipe->box);
	pipe->box.pipe = pipe;
	pipe->waking = fd < 0;
	if (fd >= 0)
		end_init(pipe, &pipe->box, fd, LOOP_WRITE);
	pipe->second = second;
	pipe->connecting = true;
	return 0;
}

struct port_pipe *port_pipe_new(
	struct loop *loop, int client, port_open_fn open, port_gone_fn gone, void *arg)
{
	struct port_pipe *pipe = xnew(struct port_pipe);

	pipe->loop = loop;
	pipe->open = open;
	pipe->gone = gone;
	pipe->arg = arg;
	pipe->box.fd = -1;
	setsockopt(client, SOL_SOCKET, SO_KEEPALIVE, &(int){ 1 }, sizeof(int));
	setsockopt(client, IPPROTO_TCP, TCP_KEEPIDLE, &(int){ 30 }, sizeof(int));
	setsockopt(client, IPPROTO_TCP, TCP_KEEPINTVL, &(int){ 15 }, sizeof(int));
	setsockopt(client, IPPROTO_TCP, TCP_KEEPCNT, &(int){ 4 }, sizeof(int));
	end_init(pipe, &pipe->client, client, LOOP_HANGUP);
	if (open_box(pipe, false) < 0 && open_box(pipe, true) < 0) {
		port_pipe_free(pipe);
		return NULL;
	}
	return pipe;
}

void port_pipe_on_used(struct port_pipe *pipe, void (*used)(void *arg))
{
	pipe->used = used;
}

void port_pipe_on_connected(struct port_pipe *pipe, void (*connected)(void *arg))
{
	pipe->connected = connected;
}

void port_pipe_retry(struct port_pipe *pipe, bool awake)
{
	if (!pipe->waking || (awake && (open_box(pipe, false) == 0 || open_box(pipe, true) == 0)))
		return;
	finish(pipe);
}

void port_pipe_free(struct port_pipe *pipe)
{
	end_done(&pipe->client);
	end_done(&pipe->box);
	free(pipe);
}
