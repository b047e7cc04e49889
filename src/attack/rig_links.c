/* rig_links.c - see rig_links.h
 *
 * In the world a route of type local for everything makes every address a local one. The route
 * is in the table of local addresses, because the kernel also looks there for the sender's
 * address. The links to the site are in the same table: the longer prefix wins. */
#include "attack/rig_links.h"
#include "attack/rig.h"
#include "base/alloc.h"
#include "base/file.h"
#include "sys/netlink.h"
#include "sys/netns.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>

struct address {
	const char *link, *text;
	unsigned bits;
};

static const struct address site_addresses[] = {
	{ "out0", RIG_HOST_V4, 30 },
	{ "out0", RIG_HOST_V6, 64 },
	{ "lan0", RIG_LAN_V4, 30 },
	{ "lan0", RIG_LAN_V6, 64 },
};
static const struct address world_addresses[] = {
	{ "up0", "192.0.2.1", 30 },
	{ "up0", "2001:db8:77::1", 64 },
	{ "up0", "fe80::1", 64 },
	{ "lan1", "10.77.0.1", 30 },
	{ "lan1", "fd77::1", 64 },
};
/* Added to the route for everything, in the world's table of local addresses. */
static const struct address world_ways[] = {
	{ "up0", "192.0.2.0", 30 },
	{ "up0", "2001:db8:77::", 64 },
	{ "lan1", "10.77.0.0", 30 },
	{ "lan1", "fd77::", 64 },
};

static size_t parse(const char *text, uint8_t *bytes, uint8_t *ret_family)
{
	*ret_family = strchr(text, ':') ? AF_INET6 : AF_INET;
	inet_pton(*ret_family, text, bytes);
	return *ret_family == AF_INET6 ? 16 : 4;
}

static void add_veth(
	struct netlink_batch *batch, const char *name, const char *peer, int peer_netns)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC };
	size_t link, data, other;

	netlink_begin(batch, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &info, sizeof info);
	netlink_attr_text(batch, IFLA_IFNAME, name);
	link = netlink_nest(batch, IFLA_LINKINFO);
	netlink_attr_text(batch, IFLA_INFO_KIND, "veth");
	data = netlink_nest(batch, IFLA_INFO_DATA);
	other = netlink_nest(batch, VETH_INFO_PEER);
	buf_add(&batch->bytes, &info, sizeof info);
	netlink_attr_text(batch, IFLA_IFNAME, peer);
	netlink_attr_u32(batch, IFLA_NET_NS_FD, (uint32_t)peer_netns);
	netlink_unnest(batch, other);
	netlink_unnest(batch, data);
	netlink_unnest(batch, link);
	netlink_end(batch);
}

static void add_up(struct netlink_batch *batch, const char *name)
{
	struct ifinfomsg info = { .ifi_family = AF_UNSPEC,
		.ifi_index = (int)if_nametoindex(name),
		.ifi_flags = IFF_UP,
		.ifi_change = IFF_UP };

	netlink_begin(batch, RTM_NEWLINK, 0, &info, sizeof info);
	netlink_end(batch);
}

static void add_address(struct netlink_batch *batch, const struct address *address)
{
	struct ifaddrmsg head = { .ifa_prefixlen = (uint8_t)address->bits,
		.ifa_index = if_nametoindex(address->link) };
	uint8_t bytes[16];
	size_t len = parse(address->text, bytes, &head.ifa_family);

	head.ifa_flags = head.ifa_family == AF_INET6 ? IFA_F_NODAD : 0;
	netlink_begin(batch, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_attr(batch, IFA_LOCAL, bytes, len);
	netlink_attr(batch, IFA_ADDRESS, bytes, len);
	netlink_end(batch);
}

struct way {
	const char *to; /* NULL: everything of the family */
	unsigned bits;
	const char *by; /* gateway; NULL: none */
	const char *link;
	uint8_t family, table, type, scope;
};

static void add_route(struct netlink_batch *batch, const struct way *way)
{
	struct rtmsg head = { .rtm_family = way->family,
		.rtm_dst_len = (uint8_t)way->bits,
		.rtm_table = way->table,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = way->scope,
		.rtm_type = way->type };
	uint8_t bytes[16];
	size_t len;

	netlink_begin(batch, RTM_NEWROUTE, NLM_F_CREATE, &head, sizeof head);
	if (way->to) {
		len = parse(way->to, bytes, &head.rtm_family);
		netlink_attr(batch, RTA_DST, bytes, len);
	}
	if (way->by) {
		len = parse(way->by, bytes, &head.rtm_family);
		netlink_attr(batch, RTA_GATEWAY, bytes, len);
	}
	netlink_attr_u32(batch, RTA_OIF, if_nametoindex(way->link));
	netlink_end(batch);
}

static int deliver(struct netlink_batch *batch, struct err *err)
{
	int status = netlink_send(NETLINK_ROUTE, batch, err);

	netlink_batch_done(batch);
	*batch = (struct netlink_batch)NETLINK_BATCH_INIT;
	return status;
}

static int furnish_world(void *arg, struct err *err)
{
	struct netlink_batch batch = NETLINK_BATCH_INIT;

	add_up(&batch, "lo");
	add_up(&batch, "up0");
	add_up(&batch, "lan1");
	for (size_t i = 0; i < ARRAY_LEN(world_addresses); i++)
		add_address(&batch, &world_addresses[i]);
	for (size_t i = 0; i < ARRAY_LEN(world_ways); i++)
		add_route(&batch,
			&(struct way){ .to = world_ways[i].text,
				.bits = world_ways[i].bits,
				.link = world_ways[i].link,
				.table = RT_TABLE_LOCAL,
				.type = RTN_UNICAST,
				.family = strchr(world_ways[i].text, ':') ? AF_INET6 : AF_INET,
				.scope = RT_SCOPE_LINK });
	add_route(&batch, &(struct way){ .link = "lo",
				  .family = AF_INET,
				  .table = RT_TABLE_LOCAL,
				  .type = RTN_LOCAL,
				  .scope = RT_SCOPE_HOST });
	add_route(&batch, &(struct way){ .link = "lo",
				  .family = AF_INET6,
				  .table = RT_TABLE_LOCAL,
				  .type = RTN_LOCAL });
	return deliver(&batch, err);
}

static int furnish_site(struct err *err)
{
	struct netlink_batch batch = NETLINK_BATCH_INIT;

	add_up(&batch, "lo");
	add_up(&batch, "out0");
	add_up(&batch, "lan0");
	for (size_t i = 0; i < ARRAY_LEN(site_addresses); i++)
		add_address(&batch, &site_addresses[i]);
	add_route(&batch, &(struct way){ .by = "192.0.2.1",
				  .link = "out0",
				  .family = AF_INET,
				  .table = RT_TABLE_MAIN,
				  .type = RTN_UNICAST });
	add_route(&batch, &(struct way){ .by = "2001:db8:77::1",
				  .link = "out0",
				  .family = AF_INET6,
				  .table = RT_TABLE_MAIN,
				  .type = RTN_UNICAST });
	return deliver(&batch, err);
}

static int new_namespace(int *ret, struct err *err)
{
	if (unshare(CLONE_NEWNET) < 0)
		return err_sys(err, errno, "make a network namespace");
	/* Makes link-local addresses usable at once; where this cannot be set, IPv6 starts a
	 * second later. */
	file_poke(AT_FDCWD, "/proc/sys/net/ipv6/conf/default/accept_dad", "0", NULL);
	*ret = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open the network namespace") : 0;
}

/* Sends one datagram of each family, so that both ends know each other's link address before the
 * first check. */
static void say_hello(void)
{
	const struct sockaddr_in v4 = {
		.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xcb007101)
	};
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
	_cleanup_close_ int fd4 = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	_cleanup_close_ int fd6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
	if (sendto(fd4, "", 1, 0, (const struct sockaddr *)&v4, sizeof v4) < 0 ||
		sendto(fd6, "", 1, 0, (const struct sockaddr *)&v6, sizeof v6) < 0)
		return; /* then the first attack resolves them */
}

int rig_links_make(int *ret_world, struct err *err)
{
	struct netlink_batch batch = NETLINK_BATCH_INIT;
	_cleanup_close_ int world = -1, site = -1;

	if (new_namespace(&world, err) < 0 || new_namespace(&site, err) < 0)
		return -1;
	add_veth(&batch, "out0", "up0", world);
	add_veth(&batch, "lan0", "lan1", world);
	if (deliver(&batch, err) < 0)
		return err_wrap(err, "connect two network namespaces");
	/* The other end must be up first: an address on a link without a carrier is not used. */
	if (netns_call(world, furnish_world, NULL, err) < 0)
		return err_wrap(err, "furnish the world");
	if (furnish_site(err) < 0)
		return err_wrap(err, "furnish the site");
	say_hello();
	*ret_world = steal_fd(&world);
	return 0;
}
