/* doors_refused.c - packets that a namespace's rules refused, as NFLOG tells them */
#include "base/file.h"
#include "net/doors_internal.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	COPIED = 64, /* bytes of each packet: both heads */
	RECEIVED = 16384,
};

static void write_config(struct netlink_batch *batch)
{
	struct nfgenmsg head = {
		.nfgen_family = AF_UNSPEC, .version = NFNETLINK_V0, .res_id = htons(DOORS_GROUP)
	};
	struct nfulnl_msg_config_cmd command = { .command = NFULNL_CFG_CMD_BIND };
	struct nfulnl_msg_config_mode mode = { .copy_range = htonl(COPIED),
		.copy_mode = NFULNL_COPY_PACKET };
	uint16_t type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG;

	netlink_begin(batch, type, 0, &head, sizeof head);
	netlink_attr(batch, NFULA_CFG_CMD, &command, sizeof command);
	netlink_end(batch);
	netlink_begin(batch, type, 0, &head, sizeof head);
	netlink_attr(batch, NFULA_CFG_MODE, &mode, sizeof mode);
	netlink_attr_be32(batch, NFULA_CFG_QTHRESH, 1);
	netlink_end(batch);
}

int doors_refused_open(int *ret, struct err *err)
{
	struct netlink_batch batch = NETLINK_BATCH_INIT;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER), status;

	if (fd < 0)
		return err_sys(err, errno, "open a netlink socket");
	write_config(&batch);
	status = netlink_send_by(fd, &batch, err);
	netlink_batch_done(&batch);
	if (status < 0) {
		close(fd);
		return err_wrap(err, "NFLOG");
	}
	/* Only now: the answers above were waited for. */
	if (fd_set_nonblocking(fd, err) < 0) {
		close(fd);
		return -1;
	}
	*ret = fd;
	return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void read_ports(const uint8_t *data, size_t len, struct doors_refused *ret)
{
	switch (ret->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_UDPLITE:
	case IPPROTO_DCCP:
		if (len < 4)
			return;
		ret->from.port = get16(data);
		ret->to.port = get16(data + 2);
		return;
	default:
		return;
	}
}

/* The first bytes of a packet that the box wrote, so anything. IPv6 extension headers are not
 * skipped. */
static bool read_packet(const uint8_t *data, size_t len, struct doors_refused *ret)
{
	size_t head;

	memset(ret, 0, sizeof *ret);
	if (len >= 20 && data[0] >> 4 == 4) {
		head = (size_t)(data[0] & 15) * 4;
		ret->protocol = data[9];
		ret->from.address = address_v4(data + 12);
		ret->to.address = address_v4(data + 16);
	} else if (len >= 40 && data[0] >> 4 == 6) {
		head = 40;
		ret->protocol = data[6];
		ret->from.address = address_v6(data + 8);
		ret->to.address = address_v6(data + 24);
	} else {
		return false;
	}
	if (head >= 20 && head < len)
		read_ports(data + head, len - head, ret);
	return true;
}

/* One message of the kernel's; its payload attribute holds the packet. */
static bool read_message(const uint8_t *data, size_t len, struct doors_refused *ret)
{
	size_t at = NLMSG_HDRLEN + sizeof(struct nfgenmsg);

	while (at + NLA_HDRLEN <= len) {
		struct nlattr attr;

		memcpy(&attr, data + at, sizeof attr);
		if (attr.nla_len < NLA_HDRLEN || attr.nla_len > len - at)
			return false;
		if ((attr.nla_type & NLA_TYPE_MASK) == NFULA_PAYLOAD)
			return read_packet(data + at + NLA_HDRLEN, attr.nla_len - NLA_HDRLEN, ret);
		at += NLA_ALIGN(attr.nla_len);
	}
	return false;
}

static size_t read_datagram(const uint8_t *data, size_t len, struct doors_refused *ret, size_t max)
{
	size_t at = 0, count = 0;

	while (count < max && len - at >= NLMSG_HDRLEN) {
		struct nlmsghdr header;

		memcpy(&header, data + at, sizeof header);
		if (header.nlmsg_len < NLMSG_HDRLEN || header.nlmsg_len > len - at)
			break;
		if (header.nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) &&
			read_message(data + at, header.nlmsg_len, &ret[count]))
			count++;
		at += MIN(NLMSG_ALIGN(header.nlmsg_len), len - at);
	}
	return count;
}

size_t doors_refused_read(int fd, struct doors_refused *ret, size_t max, uint64_t *lost)
{
	uint8_t data[RECEIVED];
	size_t count = 0;

	/* Root of a nested box can send anything here, as fast as it likes. */
	for (size_t i = 0; i < max && count < max; i++) {
		ssize_t got = recv(fd, data, sizeof data, MSG_DONTWAIT);

		if (got < 0 && lost && errno == ENOBUFS)
			++*lost;
		else if (got < 0 && errno != EINTR && errno != ENOBUFS)
			break;
		if (got > 0)
			count += read_datagram(data, (size_t)got, ret + count, max - count);
	}
	return count;
}
