/* udp.c - DNS queries over UDP: read and answered in batches
 *
 * The kernel reports the address and interface each packet came by, and the same control message
 * makes the answer leave by them: a client that asked 198.18.0.1 accepts no answer from another
 * address. */
#include "gate/dns/server_internal.h"
#include <errno.h>
#include <netinet/in.h>

struct dns_batch {
	struct mmsghdr in[DNS_BATCH], out[DNS_BATCH];
	struct iovec in_bytes[DNS_BATCH], out_bytes[DNS_BATCH];
	struct sockaddr_storage from[DNS_BATCH];
	uint8_t control[DNS_BATCH][DNS_CONTROL_MAX] __attribute__((aligned(8)));
	uint8_t packets[DNS_BATCH][DNS_PACKET_MAX];
	uint8_t replies[DNS_BATCH][DNS_REPLY_MAX];
};

struct dns_batch *dns_batch_new(void)
{
	return xnew(struct dns_batch);
}

int dns_udp_prepare(int fd, struct err *err)
{
	struct sockaddr_storage own = { 0 };
	socklen_t len = sizeof own;
	int on = 1;

	if (getsockname(fd, (struct sockaddr *)&own, &len) < 0)
		return err_sys(err, errno, "DNS socket");
	if (setsockopt(fd, own.ss_family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP,
		    own.ss_family == AF_INET6 ? IPV6_RECVPKTINFO : IP_PKTINFO, &on, sizeof on) < 0)
		return err_sys(err, errno, "ask for the addresses of DNS packets");
	return 0;
}

static int receive(struct dns_batch *batch, int fd, unsigned most)
{
	for (unsigned i = 0; i < most; i++) {
		batch->in_bytes[i] = (struct iovec){ batch->packets[i], DNS_PACKET_MAX };
		batch->in[i].msg_hdr = (struct msghdr){ .msg_name = &batch->from[i],
			.msg_namelen = sizeof batch->from[i],
			.msg_iov = &batch->in_bytes[i],
			.msg_iovlen = 1,
			.msg_control = batch->control[i],
			.msg_controllen = DNS_CONTROL_MAX };
	}
	return recvmmsg(fd, batch->in, most, MSG_DONTWAIT, NULL);
}

/* What cannot be sent at once is lost: the client asks again, as after any lost packet. A failed
 * one (port closed, host unreachable) must not delay the others. */
static void send_all(struct dns_batch *batch, int fd, unsigned count)
{
	unsigned at = 0;

	while (at < count) {
		int sent = sendmmsg(fd, batch->out + at, count - at, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0 && errno == EAGAIN)
			return;
		at += sent > 0 ? (unsigned)sent : 1;
	}
}

void dns_udp_ready(void *arg, unsigned ready)
{
	struct dns_door *door = arg;
	struct dns_box *box = door->box;
	struct dns_batch *batch = box->server->batch;
	unsigned most = dns_box_allowance(box, DNS_BATCH), replies = 0;
	int got;

	(void)ready;
	if (!most)
		return;
	got = receive(batch, door->fd, most);
	if (got <= 0)
		return;
	dns_box_spend(box, (unsigned)got);
	for (int i = 0; i < got; i++) {
		struct msghdr *from = &batch->in[i].msg_hdr;
		struct dns_origin origin = { .fd = door->fd, .from = from };
		size_t len;

		if (from->msg_flags & (MSG_TRUNC | MSG_CTRUNC))
			continue;
		len = dns_box_answer(
			box, &origin, batch->packets[i], batch->in[i].msg_len, batch->replies[i]);
		if (!len)
			continue;
		batch->out_bytes[replies] = (struct iovec){ batch->replies[i], len };
		batch->out[replies].msg_hdr = *from;
		batch->out[replies].msg_hdr.msg_iov = &batch->out_bytes[replies];
		batch->out[replies].msg_hdr.msg_flags = 0;
		replies++;
	}
	send_all(batch, door->fd, replies);
}

void dns_udp_send(const struct dns_pending *pending, const uint8_t *reply, size_t len)
{
	struct iovec bytes = { (void *)reply, len };
	struct msghdr header = { .msg_name = (void *)&pending->to,
		.msg_namelen = pending->to_len,
		.msg_iov = &bytes,
		.msg_iovlen = 1,
		.msg_control = (void *)pending->control,
		.msg_controllen = pending->control_len };

	/* If it cannot be sent, it is lost like any packet. */
	(void)!sendmsg(pending->fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}
