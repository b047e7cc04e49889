/* self.c - see self.h
 *
 * Askers are hostile, like the whole box: their number is bounded, each may send one packet of
 * bounded size within a few seconds. An asker costs a descriptor and its words; answers of the
 * daemon are kept here one packet at a time, and the daemon sends the next when it was taken.
 *
 * Requests survive connections. A new daemon is sent all that wait, with `again` where an earlier
 * one may have seen them; by the number it knows whether it is already working on them. */
#include "guest/self.h"
#include "guest/conn.h"
#include "guest/watch.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	ASKERS_MAX = 32,
	ASK_MS = 5000,	   /* time for an asker to send its request */
	DAEMON_MS = 10000, /* time to wait for a first daemon */
	/* Time for a daemon to come back, and for an asker to take its answer. Long, because a box
	 * that is frozen for a large capture loses that time. */
	RETURN_MS = 600000,
	TAKE_MS = 600000,
	EXIT_UNAVAILABLE = 69,
	EXIT_FORBIDDEN = 77,
	EXIT_BUSY = 75,
	EXIT_NONSENSE = 64,
};

struct asker {
	struct watch watch;
	struct timer timer;
	uint64_t id;
	const char **words; /* NULL: no request yet */
	uint8_t *bytes;	    /* the memory of words */
	bool sent;
	uint64_t answered;	 /* answers taken */
	struct buf answer;	 /* one that was not taken yet; empty: none */
	bool last;		 /* it is the last one */
	struct channel *channel; /* the answer's channel; NULL: its connection is closed */
	struct asker *next;
};

static struct asker *askers; /* oldest first */
static struct watch listener = WATCH_INIT;
static struct timer accept_timer;
static uint64_t last_id;
static bool held;

static void on_patience(struct timer *timer);
static void on_silence(struct timer *timer);

/* ---- the end of one ------------------------------------------------------------------------- */

static void asker_free(struct asker *asker)
{
	for (struct asker **at = &askers; *at; at = &(*at)->next)
		if (*at == asker) {
			*at = asker->next;
			break;
		}
	timer_disarm(&asker->timer);
	watch_close(&asker->watch);
	buf_done(&asker->answer);
	free(asker->words);
	free(asker->bytes);
	free(asker);
}

/* Frees an asker that hung up or misbehaved. */
static void asker_gone(struct asker *asker)
{
	struct channel *channel = steal_ptr(&asker->channel);
	struct err err = ERR_INIT;

	if (asker->sent && !asker->last)
		conn_request(&(struct wire_request){ .id = asker->id });
	if (channel) {
		err_set(&err, ERR_NOT_FOUND, "whoever asked is gone");
		channel_error(channel, &err);
	}
	asker_free(asker);
}

/* Sends the final packet to an asker that was answered nothing so far: it fits into any socket. */
static void asker_end(struct asker *asker, enum self_kind kind, const struct buf *payload)
{
	struct buf packet = BUF_INIT;

	wire_put_u8(&packet, (uint8_t)kind);
	if (payload)
		buf_add(&packet, buf_head(payload), payload->len);
	(void)!send(asker->watch.fd, buf_head(&packet), packet.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_done(&packet);
	asker->last = true;
	asker_gone(asker);
}

static void asker_refuse(struct asker *asker, uint32_t code, const char *why)
{
	struct buf packet = BUF_INIT, payload = BUF_INIT;

	wire_put_u8(&packet, SELF_ERR);
	buf_addf(&packet, "box: %s\n", why);
	(void)!send(asker->watch.fd, buf_head(&packet), packet.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_done(&packet);
	wire_put_u32(&payload, code);
	asker_end(asker, SELF_DONE, &payload);
	buf_done(&payload);
}

/* ---- requests ------------------------------------------------------------------------------- */

static void asker_send(struct asker *asker)
{
	struct wire_request request = {
		.id = asker->id,
		.again = asker->sent,
		.words = asker->words,
	};

	if (held)
		return;
	if (conn_request(&request)) {
		asker->sent = true;
		if (!asker->answer.len)
			timer_disarm(&asker->timer);
	} else if (!asker->timer.armed) {
		timer_arm(&asker->timer, asker->sent ? RETURN_MS : DAEMON_MS, on_patience);
	}
}

static void send_all(void)
{
	for (struct asker *asker = askers; asker; asker = asker->next)
		if (asker->words)
			asker_send(asker);
}

void self_daemon_came(void)
{
	send_all();
}

void self_daemon_left(void)
{
	for (struct asker *asker = askers; asker; asker = asker->next)
		if (asker->words && !asker->timer.armed)
			timer_arm(&asker->timer, RETURN_MS, on_patience);
}

static void on_patience(struct timer *timer)
{
	struct asker *asker = owner_of(timer, struct asker, timer);

	asker_refuse(asker, EXIT_UNAVAILABLE,
		asker->sent ? "the daemon went away before it answered; whether it did what was "
			      "asked is not known"
			    : "no daemon answers; the box goes on without");
}

static int take_words(struct asker *asker, const uint8_t *data, size_t len, struct err *err)
{
	struct wire_reader in;

	asker->bytes = xcalloc(1, len + 1);
	memcpy(asker->bytes, data, len);
	in = (struct wire_reader){ asker->bytes, asker->bytes + len, false };
	asker->words = wire_get_strv(&in, WIRE_WORDS_MAX);
	if (wire_get_done(&in, err) < 0 || !asker->words[0])
		return err_set(err, ERR_PROTOCOL, "that is no request");
	return 0;
}

/* One packet is allowed; another one, or the end of file, ends the asker. */
static void asker_read(struct asker *asker)
{
	static uint8_t bytes[WIRE_WORDS_BYTES];
	struct iovec piece = { bytes, sizeof bytes };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	ssize_t got = recvmsg(asker->watch.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || asker->words) {
		asker_gone(asker);
		return;
	}
	if (message.msg_flags & MSG_TRUNC) {
		asker_refuse(asker, EXIT_NONSENSE, "the request is too large");
		return;
	}
	timer_disarm(&asker->timer);
	if (take_words(asker, bytes, (size_t)got, NULL) < 0) {
		asker_refuse(asker, EXIT_NONSENSE, "that is no request");
		return;
	}
	asker->id = ++last_id;
	asker_send(asker);
}

static void on_silence(struct timer *timer)
{
	asker_gone(owner_of(timer, struct asker, timer));
}

/* ---- answers -------------------------------------------------------------------------------- */

static void update_watch(struct asker *asker)
{
	watch_set(&asker->watch, EPOLLIN | (asker->answer.len ? EPOLLOUT : 0));
}

static void answer_cancel(struct channel *channel)
{
	((struct asker *)channel->owner)->channel = NULL;
}

static const struct channel_ops answer_ops = { .cancel = answer_cancel };

static void confirm(struct channel *channel)
{
	channel_begin(channel, WIRE_REPLY);
	channel_end(channel);
	channel_close(channel);
}

/* Sends the asker its pending answer, if it takes it; frees the asker after the last. */
static void answer_pass(struct asker *asker)
{
	struct buf *answer = &asker->answer;
	ssize_t put;

	do
		put = send(asker->watch.fd, buf_head(answer), answer->len,
			MSG_NOSIGNAL | MSG_DONTWAIT);
	while (put < 0 && errno == EINTR);
	if (put < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)) {
		if (!asker->timer.armed)
			timer_arm(&asker->timer, TAKE_MS, on_silence);
		update_watch(asker);
		return;
	}
	if (put < 0) {
		asker_gone(asker);
		return;
	}
	timer_disarm(&asker->timer);
	buf_done(answer);
	asker->answered++;
	if (asker->channel)
		confirm(steal_ptr(&asker->channel));
	if (asker->last)
		asker_free(asker);
	else
		update_watch(asker);
}

static void on_asker(struct watch *watch, uint32_t ready)
{
	struct asker *asker = owner_of(watch, struct asker, watch);

	if (ready & (EPOLLIN | EPOLLHUP | EPOLLERR))
		asker_read(asker);
	else if (ready & EPOLLOUT)
		answer_pass(asker);
}

static struct asker *asker_find(uint64_t id)
{
	for (struct asker *asker = askers; asker; asker = asker->next)
		if (asker->words && asker->id == id)
			return asker;
	return NULL;
}

static void put_packet(struct buf *out, const struct wire_answer *answer)
{
	static const enum self_kind kinds[] = {
		[WIRE_ANSWER_OUT] = SELF_OUT,
		[WIRE_ANSWER_ERR] = SELF_ERR,
		[WIRE_ANSWER_DONE] = SELF_DONE,
	};

	wire_put_u8(out, (uint8_t)kinds[answer->kind]);
	if (answer->kind == WIRE_ANSWER_DONE)
		wire_put_u32(out, answer->code);
	else
		buf_add(out, answer->data, answer->len);
}

int self_open_answer(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	struct wire_answer answer;
	struct asker *asker;

	(void)op;
	wire_get_answer(in, &answer);
	if (wire_get_done(in, err) < 0)
		return -1;
	asker = asker_find(answer.id);
	if (!asker)
		return err_set(err, ERR_NOT_FOUND, "whoever asked is gone");
	if (answer.number < asker->answered) {
		confirm(channel);
		return 0;
	}
	if (answer.number > asker->answered || asker->channel)
		return err_set(err, ERR_INVALID, "answers come one after another");
	channel->ops = &answer_ops;
	channel->owner = asker;
	asker->channel = channel;
	/* An answer from a closed connection is already pending. */
	if (!asker->answer.len) {
		put_packet(&asker->answer, &answer);
		asker->last = answer.kind == WIRE_ANSWER_DONE;
		answer_pass(asker);
	}
	return 0;
}

/* ---- after a restore ------------------------------------------------------------------------ */

void self_hold(void)
{
	held = true;
}

void self_release(void)
{
	held = false;
	send_all();
}

static bool asks_for_a_moment(const struct asker *asker)
{
	static const char *const verbs[] = { "fork", "snapshot", "rollback" };

	for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
		if (!strcmp(asker->words[0], verbs[i]))
			return true;
	return false;
}

void self_release_copy(const struct wire_identity *identity)
{
	struct buf payload = BUF_INIT;

	if (identity) {
		wire_put_str(&payload, identity->name);
		wire_put_str(&payload, identity->id);
		wire_put_str(&payload, identity->parent);
		wire_put_u32(&payload, identity->index);
	}
	for (struct asker *asker = askers, *next; asker; asker = next) {
		bool sent = asker->sent;

		next = asker->next;
		/* The daemon knows none of them. */
		asker->sent = false;
		if (!asker->words || !sent)
			continue;
		if (asker->answered || asker->answer.len)
			asker_refuse(asker, EXIT_UNAVAILABLE,
				"this box is a copy, and the rest of the answer went to the "
				"original");
		else if (asks_for_a_moment(asker))
			asker_end(asker, identity ? SELF_CHILD : SELF_RESTORED, &payload);
	}
	buf_done(&payload);
	self_release();
}

/* ---- those who come ------------------------------------------------------------------------- */

static void on_accept_again(struct timer *timer)
{
	(void)timer;
	watch_set(&listener, EPOLLIN);
}

static unsigned count_askers(void)
{
	unsigned count = 0;

	for (struct asker *asker = askers; asker; asker = asker->next)
		count++;
	return count;
}

/* As this user namespace sees it: root of a namespace that the box made is nobody here. */
static bool is_root(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof peer;

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

static void on_accept(struct watch *watch, uint32_t ready)
{
	int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	unsigned count = count_askers();
	struct asker *asker, **at = &askers;

	(void)ready;
	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			watch_set(&listener, 0);
			timer_arm(&accept_timer, 100, on_accept_again);
		}
		return;
	}
	asker = xnew(struct asker);
	watch_open(&asker->watch, fd, on_asker);
	while (*at)
		at = &(*at)->next;
	*at = asker;
	if (!is_root(fd)) {
		asker_refuse(asker, EXIT_FORBIDDEN, "only root may ask for this in the box");
	} else if (count >= ASKERS_MAX) {
		asker_refuse(asker, EXIT_BUSY, "too many ask at once; try again");
	} else {
		timer_arm(&asker->timer, ASK_MS, on_silence);
		update_watch(asker);
	}
}

int self_listen(const char *test_path, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SELF_SOCKET);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_sys(err, errno, "make a socket");
	if (test_path) {
		snprintf(address.sun_path, sizeof address.sun_path, "%s.self", test_path);
		unlink(address.sun_path);
		len = sizeof address;
	} else {
		memcpy(address.sun_path + 1, SELF_SOCKET, strlen(SELF_SOCKET));
	}
	if (bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, ASKERS_MAX) < 0) {
		err_sys(err, errno, "listen for the box");
		close(fd);
		return -1;
	}
	watch_open(&listener, fd, on_accept);
	watch_set(&listener, EPOLLIN);
	return 0;
}
