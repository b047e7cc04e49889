/* message.c - JSON with fds over a SEQPACKET socket
 *
 * The first byte of a packet is 'T' (the text follows) or 'F' (the text is in the first fd, a
 * sealed memfd). Neither side blocks: what cannot be sent at once is queued. Only a few packets
 * are read at a time, so that the loop can serve others. */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"
#include "loop/loop.h"
#include "sys/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { BATCH = 32, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

struct packet {
	struct packet *next;
	char *bytes;
	size_t len, size; /* size: with what is in the memfd */
	int fds[CHANNEL_FDS_MAX + 1];
	size_t fd_count;
};

struct channel {
	struct loop *loop;
	int fd;
	size_t fds_max;
	const struct channel_ops *ops;
	void *arg;
	struct loop_fd *watch;
	struct packet *first, **last;
	size_t queued;
	bool stopped, broken;
	struct err why;
	char room[CHANNEL_TEXT_MAX + 1];
};

static void close_all(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void tell_end(void *arg)
{
	struct channel *channel = arg;

	if (channel->stopped)
		return;
	channel_stop(channel);
	channel->ops->ended(channel->arg, &channel->why);
}

static void fail(struct channel *channel, const struct err *err)
{
	if (channel->broken || channel->stopped)
		return;
	channel->broken = true;
	channel->why = *err;
	loop_fd_set(channel->watch, 0);
	loop_defer(channel->loop, tell_end, channel);
}

static void drop_first(struct channel *channel)
{
	struct packet *packet = channel->first;

	channel->first = packet->next;
	if (!channel->first)
		channel->last = &channel->first;
	channel->queued -= packet->size;
	close_all(packet->fds, packet->fd_count);
	free(packet->bytes);
	free(packet);
}

void channel_stop(struct channel *channel)
{
	if (channel->stopped)
		return;
	channel->stopped = true;
	loop_fd_set(channel->watch, 0);
	while (channel->first)
		drop_first(channel);
}

/* ---- sending -------------------------------------------------------------------------------- */

static int seal_text(const char *text, size_t len, int *ret, struct err *err)
{
	_cleanup_close_ int fd = memfd_create("message", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_sys(err, errno, "memfd_create");
	for (size_t done = 0; done < len;) {
		ssize_t wrote = write(fd, text + done, len - done);

		if (wrote < 0)
			return err_sys(err, errno, "write a long message");
		done += (size_t)wrote;
	}
	if (fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0)
		return err_sys(err, errno, "seal a long message");
	*ret = steal_fd(&fd);
	return 0;
}

static int fill(struct packet *packet, const char *text, size_t len, struct err *err)
{
	bool large = len >= CHANNEL_TEXT_MAX;

	if (len > CHANNEL_BLOB_MAX)
		return err_set(err, ERR_TOO_LARGE, "a message of %zu bytes", len);
	packet->size = len + sizeof *packet;
	packet->len = large ? 1 : len + 1;
	packet->bytes = xcalloc(1, packet->len);
	packet->bytes[0] = large ? 'F' : 'T';
	if (!large) {
		memcpy(packet->bytes + 1, text, len);
		return 0;
	}
	if (seal_text(text, len, &packet->fds[0], err) < 0)
		return -1;
	packet->fd_count = 1;
	return 0;
}

/* 1: sent; 0: the socket is full; -1: it failed. */
static int send_packet(struct channel *channel, const struct packet *packet, struct err *err)
{
	if (fdpass_send(channel->fd, packet->bytes, packet->len, packet->fds, packet->fd_count,
		    MSG_DONTWAIT) >= 0)
		return 1;
	if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)
		return 0;
	return err_sys(err, errno, "send a message");
}

static void flush(struct channel *channel)
{
	struct err err = ERR_INIT;
	int sent = 1;

	while (channel->first && (sent = send_packet(channel, channel->first, &err)) > 0)
		drop_first(channel);
	if (sent < 0)
		fail(channel, &err);
	else if (!channel->broken)
		loop_fd_set(channel->watch, channel->first ? LOOP_READ | LOOP_WRITE : LOOP_READ);
}

void channel_send(struct channel *channel, json_t *message, const int *fds, size_t count)
{
	_cleanup_free_ char *text = json_text(message);
	struct packet *packet = xnew(struct packet);
	struct err err = ERR_INIT;

	json_decref(message);
	assert(count <= CHANNEL_FDS_MAX);
	if (fill(packet, text, strlen(text), &err) == 0 &&
		channel->queued + packet->size > CHANNEL_QUEUE_MAX)
		err_set(&err, ERR_LIMIT, "too many messages wait for the other side");
	if (count)
		memcpy(packet->fds + packet->fd_count, fds, sizeof(int) * count);
	packet->fd_count += count;
	channel->queued += packet->size;
	*channel->last = packet;
	channel->last = &packet->next;
	if (err.kind)
		fail(channel, &err);
	if (channel->broken || channel->stopped) {
		while (channel->first)
			drop_first(channel);
		return;
	}
	if (channel->first == packet)
		flush(channel);
}

size_t channel_queued(const struct channel *channel)
{
	return channel->queued;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static int read_sealed(int fd, char **ret, size_t *ret_len, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);

	/* Only a memfd has seals: reading from it never blocks, and it cannot change meanwhile. */
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &stat) < 0 || stat.st_size <= 0 ||
		stat.st_size > CHANNEL_BLOB_MAX)
		return err_set(err, ERR_PROTOCOL, "a malformed long message");
	text = xcalloc(1, (size_t)stat.st_size);
	for (off_t done = 0; done < stat.st_size;) {
		ssize_t got = pread(fd, text + done, (size_t)(stat.st_size - done), done);

		if (got <= 0)
			return err_set(err, ERR_PROTOCOL, "cannot read a long message");
		done += got;
	}
	*ret_len = (size_t)stat.st_size;
	*ret = steal_ptr(&text);
	return 0;
}

static json_t *decode(struct channel *channel, size_t len, int *fds, size_t *count, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t text_len;
	json_t *message;
	int memfd;

	if (channel->room[0] == 'T') {
		message = json_parse(channel->room + 1, len - 1, err);
	} else if (channel->room[0] == 'F' && len == 1 && *count) {
		memfd = fds[0];
		memmove(fds, fds + 1, sizeof(int) * --*count);
		message = read_sealed(memfd, &text, &text_len, err) < 0
				  ? NULL
				  : json_parse(text, text_len, err);
		close(memfd);
	} else {
		err_set(err, ERR_PROTOCOL, "a packet that is not a message");
		return NULL;
	}
	if (message && *count > channel->fds_max) {
		json_decref(message);
		message = NULL;
		err_set(err, ERR_PROTOCOL, "a message with fds");
	}
	return message;
}

/* Receives one packet. False: there is none, or there will be no more. */
static bool receive(struct channel *channel)
{
	_cleanup_json_ json_t *message = NULL;
	int fds[CHANNEL_FDS_MAX + 1];
	struct err err = ERR_INIT;
	struct fdpass came;
	ssize_t got = fdpass_receive(channel->fd, channel->room, sizeof channel->room, fds,
		ARRAY_LEN(fds), MSG_DONTWAIT, &came);

	if (got < 0 && errno == EAGAIN)
		return false;
	if (got <= 0) {
		err_set(&err, ERR_UNAVAILABLE, "the other side has ended");
		fail(channel, &err);
		return false;
	}
	if (came.cut)
		err_set(&err, ERR_PROTOCOL, "a packet that is too long");
	else
		message = decode(channel, (size_t)got, fds, &came.count, &err);
	if (message)
		channel->ops->message(channel->arg, message, fds, came.count);
	else
		fail(channel, &err);
	fdpass_close(fds, came.count);
	return !channel->broken && !channel->stopped;
}

static void on_ready(void *arg, unsigned ready)
{
	struct channel *channel = arg;

	if (ready & LOOP_WRITE)
		flush(channel);
	/* A large packet is enough for one turn. */
	for (int i = 0;
		(ready & LOOP_READ) && i < BATCH && receive(channel) && channel->room[0] != 'F';
		i++)
		;
}

void channel_drain(struct channel *channel, bool until_ended, unsigned ms)
{
	int64_t end = clock_mono_us() + (int64_t)ms * 1000, left;

	while (!channel->stopped && !channel->broken && (until_ended || channel->first) &&
		(left = end - clock_mono_us()) > 0) {
		struct pollfd ready = { .fd = channel->fd,
			.events = channel->first ? POLLIN | POLLOUT : POLLIN };

		if (poll(&ready, 1, (int)(left / 1000) + 1) <= 0)
			continue;
		if (channel->first)
			flush(channel);
		if (ready.revents & (POLLIN | POLLHUP))
			receive(channel);
	}
}

/* ---- making --------------------------------------------------------------------------------- */

struct channel *channel_new(
	struct loop *loop, int fd, size_t fds_max, const struct channel_ops *ops, void *arg)
{
	struct channel *channel = xnew(struct channel);

	channel->loop = loop;
	channel->fd = fd;
	channel->fds_max = fds_max;
	channel->ops = ops;
	channel->arg = arg;
	channel->last = &channel->first;
	channel->watch = loop_fd_new(loop, fd, LOOP_READ, on_ready, channel);
	return channel;
}

void channel_free(struct channel *channel)
{
	if (!channel)
		return;
	channel_stop(channel);
	loop_undefer(channel->loop, tell_end, channel);
	loop_fd_free(channel->watch);
	close(channel->fd);
	free(channel);
}
