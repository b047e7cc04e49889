/* message.c - the pipe between the daemon and the process of an SSH connection; see message.h */
#include "ssh/message.h"
#include "base/alloc.h"
#include "loop/loop.h"
#include "sys/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BATCH = 16 }; /* packets a turn of the loop */

struct packet {
	struct packet *next;
	size_t len;
	int fds[SSHM_MESSAGE_FDS];
	size_t fd_count;
	char bytes[];
};

struct sshm_pipe {
	struct loop *loop;
	int fd;
	const struct sshm_pipe_ops *ops;
	void *arg;
	struct loop_fd *watch;
	struct packet *first, **last;
	size_t queued;
	struct buf out; /* the message being written */
	bool broken;
	struct err why;
	char *room;
};

static void tell_end(void *arg)
{
	struct sshm_pipe *pipe = arg;

	pipe->ops->ended(pipe->arg, &pipe->why);
}

static void fail(struct sshm_pipe *pipe, const struct err *err)
{
	if (pipe->broken)
		return;
	pipe->broken = true;
	pipe->why = *err;
	loop_fd_set(pipe->watch, 0);
	loop_defer(pipe->loop, tell_end, pipe);
}

static void drop_first(struct sshm_pipe *pipe)
{
	struct packet *packet = pipe->first;

	pipe->first = packet->next;
	if (!pipe->first)
		pipe->last = &pipe->first;
	pipe->queued -= packet->len;
	fdpass_close(packet->fds, packet->fd_count);
	free(packet);
}

/* 1: sent; 0: not now; -1: never. */
static int send_now(
	struct sshm_pipe *pipe, const void *bytes, size_t len, const int *fds, size_t count)
{
	struct err err = ERR_INIT;

	if (fdpass_send(pipe->fd, bytes, len, fds, count, MSG_DONTWAIT) >= 0)
		return 1;
	if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)
		return 0;
	err_set(&err, ERR_UNAVAILABLE, "the other side has gone");
	fail(pipe, &err);
	return -1;
}

static void flush(struct sshm_pipe *pipe)
{
	int sent = 1;

	while (pipe->first && sent > 0) {
		sent = send_now(pipe, pipe->first->bytes, pipe->first->len, pipe->first->fds,
			pipe->first->fd_count);
		if (sent > 0)
			drop_first(pipe);
	}
	if (!pipe->broken)
		loop_fd_set(pipe->watch, LOOP_READ | (pipe->first ? LOOP_WRITE : 0));
}

/* False: nothing more to read now. */
static bool read_one(struct sshm_pipe *pipe)
{
	int fds[SSHM_MESSAGE_FDS];
	struct fdpass passed;
	struct err err = ERR_INIT;
	struct wire_reader in;
	ssize_t got = fdpass_receive(pipe->fd, pipe->room, SSHM_MESSAGE_MAX, fds, SSHM_MESSAGE_FDS,
		MSG_DONTWAIT, &passed);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		err_set(&err, ERR_UNAVAILABLE, "the other side has gone");
		fail(pipe, &err);
		return false;
	}
	if (passed.cut || passed.lost) {
		fdpass_close(fds, passed.count);
		err_set(&err, ERR_PROTOCOL, "a message is too large");
		fail(pipe, &err);
		return false;
	}
	in = (struct wire_reader){ (const uint8_t *)pipe->room, (const uint8_t *)pipe->room + got,
		false };
	if (pipe->ops->message(pipe->arg, (enum sshm_kind)wire_get_u8(&in), &in, fds, passed.count,
		    &err) < 0) {
		fail(pipe, &err);
		return false;
	}
	return !pipe->broken;
}

static void on_ready(void *arg, unsigned ready)
{
	struct sshm_pipe *pipe = arg;

	if (ready & LOOP_WRITE) {
		flush(pipe);
		return;
	}
	for (unsigned i = 0; i < BATCH && read_one(pipe); i++)
		;
}

struct sshm_pipe *sshm_pipe_new(
	struct loop *loop, int fd, const struct sshm_pipe_ops *ops, void *arg)
{
	struct sshm_pipe *pipe = xnew(struct sshm_pipe);

	pipe->loop = loop;
	pipe->fd = fd;
	pipe->ops = ops;
	pipe->arg = arg;
	pipe->last = &pipe->first;
	pipe->room = xcalloc(1, SSHM_MESSAGE_MAX);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	pipe->watch = loop_fd_new(loop, fd, LOOP_READ, on_ready, pipe);
	return pipe;
}

void sshm_pipe_free(struct sshm_pipe *pipe)
{
	if (!pipe)
		return;
	loop_undefer(pipe->loop, tell_end, pipe);
	loop_fd_free(pipe->watch);
	while (pipe->first)
		drop_first(pipe);
	buf_done(&pipe->out);
	close(pipe->fd);
	free(pipe->room);
	free(pipe);
}

struct buf *sshm_pipe_begin(struct sshm_pipe *pipe, enum sshm_kind kind)
{
	pipe->out.len = pipe->out.head = 0;
	wire_put_u8(&pipe->out, (uint8_t)kind);
	return &pipe->out;
}

/* Copies of the descriptors; fewer when the process has no more: the message is malformed then, and
 * the other side ends the connection. */
static struct packet *packet_new(const struct buf *bytes, const int *fds, size_t count)
{
	struct packet *packet = xcalloc(1, sizeof *packet + bytes->len);

	packet->len = bytes->len;
	memcpy(packet->bytes, buf_head(bytes), bytes->len);
	for (size_t i = 0; i < count; i++) {
		int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);

		if (copy >= 0)
			packet->fds[packet->fd_count++] = copy;
	}
	return packet;
}

void sshm_pipe_send(struct sshm_pipe *pipe, const int *fds, size_t count)
{
	struct err err = ERR_INIT;
	struct packet *packet;

	if (pipe->broken)
		return;
	if (!pipe->first && send_now(pipe, buf_head(&pipe->out), pipe->out.len, fds, count) != 0)
		return;
	if (pipe->queued + pipe->out.len > SSHM_QUEUE_MAX) {
		err_set(&err, ERR_LIMIT, "the other side does not read");
		fail(pipe, &err);
		return;
	}
	packet = packet_new(&pipe->out, fds, count);
	*pipe->last = packet;
	pipe->last = &packet->next;
	pipe->queued += packet->len;
	loop_fd_set(pipe->watch, LOOP_READ | LOOP_WRITE);
}

size_t sshm_pipe_queued(const struct sshm_pipe *pipe)
{
	return pipe->queued;
}

int sshm_pipe_wait(struct sshm_pipe *pipe, int ms)
{
	struct pollfd ready = { .fd = pipe->fd, .events = POLLIN };

	if (pipe->broken)
		return -1;
	if (pipe->first)
		ready.events |= POLLOUT;
	if (poll(&ready, 1, ms) <= 0)
		return -1;
	if (ready.revents & POLLOUT)
		flush(pipe);
	if (ready.revents & ~POLLOUT)
		read_one(pipe);
	return pipe->broken ? -1 : 0;
}

void sshm_put_blob(struct buf *out, const void *data, size_t len)
{
	wire_put_u32(out, (uint32_t)len);
	wire_put_bytes(out, data, len);
}

const uint8_t *sshm_get_blob(struct wire_reader *in, size_t max, size_t *ret_len)
{
	uint32_t len = wire_get_u32(in);
	const uint8_t *at = in->at;

	*ret_len = 0;
	if (in->bad || len > max || (size_t)(in->end - in->at) < len) {
		in->bad = true;
		return (const uint8_t *)"";
	}
	in->at += len;
	*ret_len = len;
	return at;
}
