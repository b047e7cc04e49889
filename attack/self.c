/* self.c - changes the box's own network first: addresses, routes, devices, rules, socket
 * options
 *
 * Root in a box may or may not be allowed to make these changes; both is fine. What counts is
 * whether it can then reach anything that it could not reach before. */
#include "attack/attacker.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FOREIGN_V4 "203.0.113.77"
#define FOREIGN_V6 "2001:db8:66::77"

/* ---- a minimal netlink client --------------------------------------------------------------- */

struct message {
	uint8_t bytes[1024];
	size_t len;
	struct nlmsghdr *head;
};

static void begin(struct message *m, uint16_t type, uint16_t flags, const void *head, size_t len)
{
	m->len = NLMSG_ALIGN(m->len);
	m->head = (struct nlmsghdr *)(m->bytes + m->len);
	*m->head = (struct nlmsghdr){ .nlmsg_type = type,
		.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags),
		.nlmsg_len = (uint32_t)NLMSG_LENGTH(len) };
	memcpy(NLMSG_DATA(m->head), head, len);
	m->len += NLMSG_LENGTH(len);
}

static struct rtattr *attr(struct message *m, unsigned short type, const void *data, size_t len)
{
	struct rtattr *one;

	m->len = NLMSG_ALIGN(m->len);
	one = (struct rtattr *)(m->bytes + m->len);
	one->rta_type = type;
	one->rta_len = (unsigned short)RTA_LENGTH(len);
	if (len)
		memcpy(RTA_DATA(one), data, len);
	m->len += RTA_LENGTH(len);
	m->head->nlmsg_len = (uint32_t)((m->bytes + m->len) - (uint8_t *)m->head);
	return one;
}

static void close_nest(struct message *m, struct rtattr *nest)
{
	nest->rta_len = (unsigned short)(m->bytes + m->len - (uint8_t *)nest);
}

/* Returns the errno of the first refusal; 0: done. */
static int deliver(int protocol, const struct message *m)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol), error = 0;
	uint8_t answer[4096];
	struct timeval patience = { .tv_usec = 200000 };

	if (fd < 0)
		return errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (send(fd, m->bytes, m->len, 0) < 0)
		error = errno;
	else if (recv(fd, answer, sizeof answer, 0) >= (ssize_t)sizeof(struct nlmsghdr)) {
		const struct nlmsghdr *head = (const struct nlmsghdr *)answer;

		if (head->nlmsg_type == NLMSG_ERROR)
			error = -((const struct nlmsgerr *)NLMSG_DATA(head))->error;
	} else {
		error = errno;
	}
	close(fd);
	return error;
}

int self_new_link(const char *kind, const char *name)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
	struct message m = { .len = 0 };
	int below = (int)if_nametoindex("eth0");
	struct rtattr *nest;

	begin(&m, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &info, sizeof info);
	attr(&m, IFLA_IFNAME, name, strlen(name) + 1);
	if (strcmp(kind, "veth"))
		attr(&m, IFLA_LINK, &below, sizeof below);
	nest = attr(&m, IFLA_LINKINFO, NULL, 0);
	attr(&m, IFLA_INFO_KIND, kind, strlen(kind));
	close_nest(&m, nest);
	return deliver(NETLINK_ROUTE, &m);
}

/* Removes the whole rule set of the namespace. */
static int flush_rules(void)
{
	struct nfgenmsg any = { .nfgen_family = AF_UNSPEC },
			batch = { .res_id = htons(NFNL_SUBSYS_NFTABLES) };
	struct message m = { .len = 0 };

	begin(&m, NFNL_MSG_BATCH_BEGIN, 0, &batch, sizeof batch);
	begin(&m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE, NLM_F_ACK, &any, sizeof any);
	begin(&m, NFNL_MSG_BATCH_END, 0, &batch, sizeof batch);
	return deliver(NETLINK_NETFILTER, &m);
}

static int change_route(const char *to, uint16_t type, uint16_t flags, uint8_t kind)
{
	struct rtmsg head = { .rtm_family = AF_INET,
		.rtm_dst_len = to ? 32 : 0,
		.rtm_table = to ? RT_TABLE_MAIN : RT_TABLE_LOCAL,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_LINK,
		.rtm_type = kind };
	struct message m = { .len = 0 };
	int link = (int)if_nametoindex(to ? "eth0" : "lo");
	struct in_addr address;

	begin(&m, type, (uint16_t)(flags | NLM_F_ACK), &head, sizeof head);
	if (to && inet_pton(AF_INET, to, &address) == 1)
		attr(&m, RTA_DST, &address, sizeof address);
	attr(&m, RTA_OIF, &link, sizeof link);
	return deliver(NETLINK_ROUTE, &m);
}

/* ---- the changes ---------------------------------------------------------------------------- */

static int by_ioctl(unsigned long request, struct ifreq *ifr)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int error = fd < 0 || ioctl(fd, request, ifr) < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return error;
}

static int change_address(int *fd, const char *to)
{
	struct ifreq ifr = { .ifr_name = "eth0" };
	struct sockaddr_in *own = (struct sockaddr_in *)&ifr.ifr_addr;

	own->sin_family = AF_INET;
	inet_pton(AF_INET, FOREIGN_V4, &own->sin_addr);
	return by_ioctl(SIOCSIFADDR, &ifr);
}

static int change_mac(int *fd, const char *to)
{
	struct ifreq ifr = { .ifr_name = "eth0" };

	ifr.ifr_hwaddr.sa_family = 1;
	memcpy(ifr.ifr_hwaddr.sa_data, "\x02\x66\x66\x66\x66\x66", 6);
	return by_ioctl(SIOCSIFHWADDR, &ifr);
}

static int change_promiscuous(int *fd, const char *to)
{
	struct ifreq ifr = { .ifr_name = "eth0", .ifr_flags = IFF_UP | IFF_PROMISC };

	return by_ioctl(SIOCSIFFLAGS, &ifr);
}

static int change_loopback_down(int *fd, const char *to)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = 0 };

	return by_ioctl(SIOCSIFFLAGS, &ifr);
}

static int add_route(int *fd, const char *to)
{
	return change_route(to, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, RTN_UNICAST);
}

static int drop_local_route(int *fd, const char *to)
{
	return change_route(NULL, RTM_DELROUTE, 0, RTN_LOCAL);
}

static int make_tun(int *fd, const char *to)
{
	struct ifreq ifr = { .ifr_name = "tun66", .ifr_flags = IFF_TAP | IFF_NO_PI };
	int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	return tun < 0 || ioctl(tun, TUNSETIFF, &ifr) < 0 ? errno
							  /* stays open, so that the device stays */
							  : 0;
}

static int make_veth(int *fd, const char *to)
{
	return self_new_link("veth", "veth66");
}

static int make_macvlan(int *fd, const char *to)
{
	return self_new_link("macvlan", "mac66");
}

static int make_ipvlan(int *fd, const char *to)
{
	return self_new_link("ipvlan", "ipv66");
}

static int drop_rules(int *fd, const char *to)
{
	return flush_rules();
}

static int drop_rules_and_route(int *fd, const char *to)
{
	int error = flush_rules();

	return error ? error : add_route(fd, to);
}

static int set_mark(int *fd, const char *to)
{
	return setsockopt(*fd, SOL_SOCKET, SO_MARK, &(int){ 1 }, sizeof(int)) < 0 ? errno : 0;
}

/* Sets the mark that the rules of a box use for packets redirected to a door. */
static int set_door_mark(int *fd, const char *to)
{
	return setsockopt(*fd, SOL_SOCKET, SO_MARK, &(int){ 98 }, sizeof(int)) < 0 ? errno : 0;
}

static int set_device(int *fd, const char *to)
{
	return setsockopt(*fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5) < 0 ? errno : 0;
}

static int bind_foreign(int *fd, const char *to)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	bool is_v6 = strchr(to, ':') != NULL;

	inet_pton(AF_INET, FOREIGN_V4, &v4.sin_addr);
	inet_pton(AF_INET6, FOREIGN_V6, &v6.sin6_addr);
	if (is_v6)
		setsockopt(*fd, SOL_IPV6, IPV6_TRANSPARENT, &(int){ 1 }, sizeof(int));
	else
		setsockopt(*fd, SOL_IP, IP_TRANSPARENT, &(int){ 1 }, sizeof(int));
	setsockopt(*fd, SOL_IP, IP_FREEBIND, &(int){ 1 }, sizeof(int));
	return bind(*fd, is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4,
		       is_v6 ? sizeof v6 : sizeof v4) < 0
		       ? errno
		       : 0;
}

static int new_namespace(int *fd, const char *to)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return errno;
	close(*fd); /* it belongs to the old one */
	*fd = socket(strchr(to, ':') ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return 0;
}

static int join_init(int *fd, const char *to)
{
	int net = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);

	if (net < 0 || setns(net, CLONE_NEWNET) < 0)
		return errno;
	close(*fd);
	*fd = socket(strchr(to, ':') ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return 0;
}

static const struct {
	const char *name;
	int (*change)(int *fd, const char *to); /* errno, 0: done */
} changes[] = {
	{ "address", change_address },
	{ "mac", change_mac },
	{ "promiscuous", change_promiscuous },
	{ "loopback-down", change_loopback_down },
	{ "route", add_route },
	{ "no-local-route", drop_local_route },
	{ "tun", make_tun },
	{ "veth", make_veth },
	{ "macvlan", make_macvlan },
	{ "ipvlan", make_ipvlan },
	{ "no-rules", drop_rules },
	{ "no-rules-route", drop_rules_and_route },
	{ "mark", set_mark },
	{ "door-mark", set_door_mark },
	{ "device", set_device },
	{ "foreign-source", bind_foreign },
	{ "new-namespace", new_namespace },
	{ "init-namespace", join_init },
};

static void try_connect(int fd, const struct endpoint *to, struct outcome *out)
{
	int64_t since = now_us();
	struct timeval patience = { .tv_usec = ANSWER_MS * 1000 };

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	if (connect(fd, (const struct sockaddr *)&to->addr, to->len) < 0)
		outcome_errno(out, since, errno == EINPROGRESS ? ETIMEDOUT : errno);
	else
		exchange(fd, "evil\n", 5, out);
}

void attack_change(int argc, char **argv, struct outcome *out)
{
	struct endpoint to;
	int fd;

	if (!endpoint_find(argv[1], argv[2], &to, out))
		return;
	fd = socket(to.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
		if (!strcmp(changes[i].name, argv[0])) {
			int error = changes[i].change(&fd, argv[1]);

			outcome_detail(
				out, "%s: %s", argv[0], error ? strerrorname_np(error) : "done");
			try_connect(fd, &to, out);
			close(fd);
			return;
		}
	close(fd);
	outcome_through(out, 0, "no such change: %s", argv[0]);
}
