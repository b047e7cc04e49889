/* vm_net.c - the network of a box in a VM: the same addresses in every box
 *
 *     lo    up
 *     eth0  198.18.0.2/32, default by 198.18.0.1; PREFIX::2/128, default by PREFIX::1
 *
 * At the other end are the doors (net/doors.h), which answer for every address. */
#include "guest/vm.h"
#include "base/alloc.h"
#include "base/file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#define PREFIX "fd62:6f78:7961:7264::"

enum { ANSWER_MAX = 4096 };

struct message {
	struct nlmsghdr head;
	union {
		struct ifinfomsg link;
		struct ifaddrmsg address;
		struct rtmsg route;
		uint8_t room[512];
	};
};

static void add(struct message *message, unsigned short type, const void *data, size_t len)
{
	struct rtattr *attr =
		(struct rtattr *)((uint8_t *)message + NLMSG_ALIGN(message->head.nlmsg_len));

	attr->rta_type = type;
	attr->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(attr), data, len);
	message->head.nlmsg_len = NLMSG_ALIGN(message->head.nlmsg_len) + RTA_SPACE(len);
}

static int ask(int fd, struct message *message, const char *what, struct err *err)
{
	uint8_t answer[ANSWER_MAX];
	const struct nlmsghdr *head = (const struct nlmsghdr *)answer;
	const struct nlmsgerr *told = (const struct nlmsgerr *)(head + 1);
	ssize_t got;

	message->head.nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	if (send(fd, message, message->head.nlmsg_len, 0) < 0)
		return err_sys(err, errno, "%s", what);
	got = recv(fd, answer, sizeof answer, 0);
	if (got < (ssize_t)(sizeof *head + sizeof *told) || head->nlmsg_type != NLMSG_ERROR)
		return err_set(err, ERR_SYSTEM, "%s: the kernel does not answer", what);
	if (told->error && told->error != -EEXIST)
		return err_sys(err, -told->error, "%s", what);
	return 0;
}

static int raise_device(int fd, unsigned index, struct err *err)
{
	struct message message = {
		.head = { .nlmsg_len = NLMSG_LENGTH(sizeof message.link),
			.nlmsg_type = RTM_NEWLINK },
		.link = { .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP },
	};

	return ask(fd, &message, "raise a network device", err);
}

static size_t parse_address(const char *text, uint8_t family, uint8_t ret[16])
{
	inet_pton(family, text, ret);
	return family == AF_INET ? 4 : 16;
}

static int add_address(int fd, unsigned index, uint8_t family, const char *text, struct err *err)
{
	struct message message = {
		.head = { .nlmsg_len = NLMSG_LENGTH(sizeof message.address),
			.nlmsg_type = RTM_NEWADDR,
			.nlmsg_flags = NLM_F_CREATE },
		.address = { .ifa_family = family,
			.ifa_prefixlen = family == AF_INET ? 32 : 128,
			.ifa_flags = family == AF_INET ? 0 : IFA_F_NODAD,
			.ifa_index = index },
	};
	uint8_t bytes[16];
	size_t len = parse_address(text, family, bytes);

	add(&message, IFA_LOCAL, bytes, len);
	add(&message, IFA_ADDRESS, bytes, len);
	return ask(fd, &message, "give eth0 its address", err);
}

static int add_default(int fd, unsigned index, uint8_t family, const char *text, struct err *err)
{
	struct message message = {
		.head = { .nlmsg_len = NLMSG_LENGTH(sizeof message.route),
			.nlmsg_type = RTM_NEWROUTE,
			.nlmsg_flags = NLM_F_CREATE },
		.route = { .rtm_family = family,
			.rtm_table = RT_TABLE_MAIN,
			.rtm_protocol = RTPROT_STATIC,
			.rtm_scope = RT_SCOPE_UNIVERSE,
			.rtm_type = RTN_UNICAST,
			.rtm_flags = RTNH_F_ONLINK },
	};
	uint8_t bytes[16];
	size_t len = parse_address(text, family, bytes);
	uint32_t device = index;

	add(&message, RTA_GATEWAY, bytes, len);
	add(&message, RTA_OIF, &device, sizeof device);
	return ask(fd, &message, "route everything by eth0", err);
}

/* There are no router advertisements here, and all addresses are unique. */
static void quiet_ipv6(void)
{
	static const char *const settings[][2] = {
		{ "/proc/sys/net/ipv6/conf/eth0/accept_ra", "0" },
		{ "/proc/sys/net/ipv6/conf/eth0/accept_dad", "0" },
		{ "/proc/sys/net/ipv6/conf/eth0/router_solicitations", "0" },
		{ "/proc/sys/net/ipv6/conf/eth0/addr_gen_mode", "1" },
	};

	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		file_poke(AT_FDCWD, settings[i][0], settings[i][1], NULL);
}

int vm_net_open(struct err *err)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	unsigned lo = if_nametoindex("lo"), eth0 = if_nametoindex("eth0");

	if (fd < 0)
		return err_sys(err, errno, "speak to the kernel's network");
	if (lo && raise_device(fd, lo, err) < 0)
		return -1;
	if (!eth0)
		return 0;
	quiet_ipv6();
	if (raise_device(fd, eth0, err) < 0 ||
		add_address(fd, eth0, AF_INET, "198.18.0.2", err) < 0 ||
		add_default(fd, eth0, AF_INET, "198.18.0.1", err) < 0 ||
		add_address(fd, eth0, AF_INET6, PREFIX "2", err) < 0 ||
		add_default(fd, eth0, AF_INET6, PREFIX "1", err) < 0)
		return -1;
	return 0;
}
