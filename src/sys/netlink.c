/* netlink.c - see netlink.h */
#include "sys/netlink.h"
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_MAX = 8192 };

void netlink_batch_done(struct netlink_batch *batch)
{
	buf_done(&batch->bytes);
}

static void pad(struct netlink_batch *batch)
{
	static const uint8_t zeros[NLMSG_ALIGNTO];

	buf_add(&batch->bytes, zeros, NLMSG_ALIGN(batch->bytes.len) - batch->bytes.len);
}

void netlink_begin(
	struct netlink_batch *batch, uint16_t type, uint16_t flags, const void *head, size_t len)
{
	struct nlmsghdr header = { .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags };

	batch->at = batch->bytes.len;
	buf_add(&batch->bytes, &header, sizeof header);
	buf_add(&batch->bytes, head, len);
	pad(batch);
}

static void patch(struct netlink_batch *batch, size_t where, uint32_t len, bool wants_answer)
{
	struct nlmsghdr header;
	uint8_t *at = buf_head(&batch->bytes) + where;

	memcpy(&header, at, sizeof header);
	if (len)
		header.nlmsg_len = len;
	header.nlmsg_flags &= (uint16_t)~NLM_F_ACK;
	if (wants_answer)
		header.nlmsg_flags |= NLM_F_ACK;
	memcpy(at, &header, sizeof header);
}

void netlink_end_quiet(struct netlink_batch *batch)
{
	patch(batch, batch->at, (uint32_t)(batch->bytes.len - batch->at), false);
}

/* This message is the last one now, so the one before need not be answered any more. */
void netlink_end(struct netlink_batch *batch)
{
	if (batch->last != batch->at)
		patch(batch, batch->last, 0, false);
	patch(batch, batch->at, (uint32_t)(batch->bytes.len - batch->at), true);
	batch->last = batch->at;
}

void netlink_attr(struct netlink_batch *batch, uint16_t type, const void *data, size_t len)
{
	struct nlattr header = { .nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = type };

	buf_add(&batch->bytes, &header, sizeof header);
	buf_add(&batch->bytes, data, len);
	pad(batch);
}

void netlink_attr_text(struct netlink_batch *batch, uint16_t type, const char *text)
{
	netlink_attr(batch, type, text, strlen(text) + 1);
}

void netlink_attr_u32(struct netlink_batch *batch, uint16_t type, uint32_t value)
{
	netlink_attr(batch, type, &value, sizeof value);
}

void netlink_attr_be32(struct netlink_batch *batch, uint16_t type, uint32_t value)
{
	netlink_attr_u32(batch, type, htonl(value));
}

void netlink_attr_be64(struct netlink_batch *batch, uint16_t type, uint64_t value)
{
	value = htobe64(value);
	netlink_attr(batch, type, &value, sizeof value);
}

size_t netlink_nest(struct netlink_batch *batch, uint16_t type)
{
	size_t at = batch->bytes.len;

	netlink_attr(batch, type | NLA_F_NESTED, NULL, 0);
	return at;
}

void netlink_unnest(struct netlink_batch *batch, size_t nest)
{
	struct nlattr header;
	uint8_t *at = buf_head(&batch->bytes) + nest;

	memcpy(&header, at, sizeof header);
	header.nla_len = (uint16_t)(batch->bytes.len - nest);
	memcpy(at, &header, sizeof header);
}

/* The errno of the first refusal; 0: everything is done; -1: no answer to that yet. */
static int read_answer(const uint8_t *data, size_t len)
{
	size_t at = 0;
	int ret = -1;

	while (len - at >= sizeof(struct nlmsghdr)) {
		struct nlmsghdr header;
		int code;

		memcpy(&header, data + at, sizeof header);
		if (header.nlmsg_len < sizeof header || header.nlmsg_len > len - at)
			return EBADMSG;
		if (header.nlmsg_type == NLMSG_ERROR &&
			header.nlmsg_len >= NLMSG_LENGTH(sizeof code)) {
			memcpy(&code, data + at + NLMSG_HDRLEN, sizeof code);
			if (code)
				return -code;
			ret = 0;
		}
		at += MIN(NLMSG_ALIGN(header.nlmsg_len), len - at);
	}
	return ret;
}

int netlink_send_by(int fd, const struct netlink_batch *batch, struct err *err)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct iovec part = { buf_head(&batch->bytes), batch->bytes.len };
	struct msghdr message = {
		.msg_name = &kernel, .msg_namelen = sizeof kernel, .msg_iov = &part, .msg_iovlen = 1
	};
	uint8_t answer[ANSWER_MAX];
	int problem = -1;

	if (sendmsg(fd, &message, 0) < 0)
		return err_sys(err, errno, "send to the kernel's network stack");
	while (problem < 0) {
		struct sockaddr_nl from = { 0 };
		socklen_t len = sizeof from;
		ssize_t got =
			recvfrom(fd, answer, sizeof answer, 0, (struct sockaddr *)&from, &len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return err_sys(err, errno, "hear from the kernel's network stack");
		/* In the network namespace of a box, its root could send us messages too. */
		if (from.nl_pid == 0)
			problem = read_answer(answer, (size_t)got);
	}
	return problem ? err_sys(err, problem, "the kernel's network stack refused") : 0;
}

int netlink_send(int protocol, const struct netlink_batch *batch, struct err *err)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol), status;

	if (fd < 0)
		return err_sys(err, errno, "open a netlink socket");
	status = netlink_send_by(fd, batch, err);
	close(fd);
	return status;
}
