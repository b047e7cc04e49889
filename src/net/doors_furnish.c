/* doors_furnish.c - see doors.h: interfaces, addresses, routes and rules of a box's namespace,
 * written once and sent by the first process in it */
#include "base/alloc.h"
#include "net/doors_internal.h"
#include "net/synthetic.h"
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Kinds of devices that eth0 can be, best first. Any will do: nothing is ever sent by it. */
static const char *const kinds[] = { "dummy", "ifb", "bridge" };

struct address doors_resolver(unsigned family)
{
	return synthetic_numbered(family, 1);
}

struct address doors_box(unsigned family)
{
	return synthetic_numbered(family, 2);
}

static void add_link(struct netlink_batch *batch, const char *kind)
{
	struct ifinfomsg head = { .ifi_family = AF_UNSPEC, .ifi_index = DOORS_ETH };
	size_t nest;

	netlink_begin(batch, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_attr_text(batch, IFLA_IFNAME, "eth0");
	nest = netlink_nest(batch, IFLA_LINKINFO);
	netlink_attr(batch, IFLA_INFO_KIND, kind, strlen(kind));
	netlink_unnest(batch, nest);
	netlink_end(batch);
}

/* No address of the link's own: there is nobody on it. Before it is raised. */
static void keep_link_quiet(struct netlink_batch *batch)
{
	struct ifinfomsg head = { .ifi_family = AF_UNSPEC, .ifi_index = DOORS_ETH };
	uint8_t mode = IN6_ADDR_GEN_MODE_NONE;
	size_t spec, family;

	netlink_begin(batch, RTM_NEWLINK, 0, &head, sizeof head);
	spec = netlink_nest(batch, IFLA_AF_SPEC);
	family = netlink_nest(batch, AF_INET6);
	netlink_attr(batch, IFLA_INET6_ADDR_GEN_MODE, &mode, 1);
	netlink_unnest(batch, family);
	netlink_unnest(batch, spec);
	netlink_end(batch);
}

static void raise_link(struct netlink_batch *batch, int index)
{
	struct ifinfomsg head = { .ifi_family = AF_UNSPEC,
		.ifi_index = index,
		.ifi_flags = IFF_UP,
		.ifi_change = IFF_UP };

	netlink_begin(batch, RTM_NEWLINK, 0, &head, sizeof head);
	netlink_end(batch);
}

static void add_address(struct netlink_batch *batch, struct address address)
{
	unsigned family = address.family;
	size_t len = family == 4 ? 4 : 16;
	struct ifaddrmsg head = { .ifa_family = family == 4 ? AF_INET : AF_INET6,
		.ifa_prefixlen = (uint8_t)(len * 8),
		.ifa_flags = family == 4 ? 0 : IFA_F_NODAD,
		.ifa_index = DOORS_ETH };

	netlink_begin(batch, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_attr(batch, IFA_LOCAL, address.bytes, len);
	netlink_attr(batch, IFA_ADDRESS, address.bytes, len);
	netlink_end(batch);
}

/* To everything: of type local by lo, which is the one that counts; and by eth0, where programs
 * look for it. */
static void add_route(struct netlink_batch *batch, struct address source, bool local)
{
	unsigned family = source.family;
	struct rtmsg head = { .rtm_family = family == 4 ? AF_INET : AF_INET6,
		.rtm_table = local ? RT_TABLE_LOCAL : RT_TABLE_MAIN,
		.rtm_protocol = RTPROT_BOOT,
		.rtm_scope = local ? RT_SCOPE_HOST : RT_SCOPE_LINK,
		.rtm_type = local ? RTN_LOCAL : RTN_UNICAST };

	netlink_begin(batch, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_attr_u32(batch, RTA_OIF, local ? DOORS_LO : DOORS_ETH);
	netlink_attr(batch, RTA_PREFSRC, source.bytes, family == 4 ? 4 : 16);
	netlink_end(batch);
}

static void write_links(struct netlink_batch *batch, const char *kind, bool has_v6)
{
	raise_link(batch, DOORS_LO);
	add_link(batch, kind);
	if (has_v6)
		keep_link_quiet(batch);
	raise_link(batch, DOORS_ETH);
	for (unsigned family = 4; family <= (has_v6 ? 6 : 4); family += 2) {
		add_address(batch, doors_box(family));
		add_route(batch, doors_box(family), true);
		add_route(batch, doors_box(family), false);
	}
}

/* ---- of a box with a kernel of its own ------------------------------------------------------ */

/* Frames that the box does not take wait in the host's memory, up to 64 KiB each. */
enum { FRAMES_WAITING = 128 };

static void set_up_tap(struct netlink_batch *batch)
{
	struct ifinfomsg head = { .ifi_family = AF_UNSPEC, .ifi_index = DOORS_ETH };

	netlink_begin(batch, RTM_NEWLINK, 0, &head, sizeof head);
	netlink_attr(batch, IFLA_ADDRESS, doors_vm_mac_near, sizeof doors_vm_mac_near);
	netlink_attr_u32(batch, IFLA_TXQLEN, FRAMES_WAITING);
	netlink_end(batch);
}

/* The one address that does not lead to us. It stands in the table where "everything is local"
 * stands, for that table is asked first. */
static void add_route_to_box(struct netlink_batch *batch, unsigned family)
{
	struct address box = doors_box(family), source = doors_resolver(family);
	size_t len = family == 4 ? 4 : 16;
	struct rtmsg head = { .rtm_family = family == 4 ? AF_INET : AF_INET6,
		.rtm_dst_len = (uint8_t)(len * 8),
		.rtm_table = RT_TABLE_LOCAL,
		.rtm_protocol = RTPROT_BOOT,
		.rtm_scope = RT_SCOPE_LINK,
		.rtm_type = RTN_UNICAST };

	netlink_begin(batch, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_attr(batch, RTA_DST, box.bytes, len);
	netlink_attr_u32(batch, RTA_OIF, DOORS_ETH);
	netlink_attr(batch, RTA_PREFSRC, source.bytes, len);
	netlink_end(batch);
}

/* Where the box is on the cable is known, so nobody asks it. All namespaces share one table of
 * neighbours with a limit (1024); permanent ones do not count there. */
static void add_neighbour(struct netlink_batch *batch, unsigned family)
{
	struct address box = doors_box(family);
	struct ndmsg head = { .ndm_family = family == 4 ? AF_INET : AF_INET6,
		.ndm_ifindex = DOORS_ETH,
		.ndm_state = NUD_PERMANENT };

	netlink_begin(batch, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, &head, sizeof head);
	netlink_attr(batch, NDA_DST, box.bytes, family == 4 ? 4 : 16);
	netlink_attr(batch, NDA_LLADDR, doors_vm_mac_box, sizeof doors_vm_mac_box);
	netlink_end(batch);
}

/* The tap is there already. */
static void write_vm_links(struct netlink_batch *batch, bool has_v6)
{
	raise_link(batch, DOORS_LO);
	set_up_tap(batch);
	if (has_v6)
		keep_link_quiet(batch);
	raise_link(batch, DOORS_ETH);
	for (unsigned family = 4; family <= (has_v6 ? 6 : 4); family += 2) {
		add_address(batch, doors_resolver(family));
		add_route(batch, doors_resolver(family), true);
		add_route_to_box(batch, family);
		add_neighbour(batch, family);
	}
}

/* ---- plans ---------------------------------------------------------------------------------- */

static void plan_write(struct doors_plan *plan, const char *kind, bool has_v6)
{
	write_links(&plan->links, kind, has_v6);
	write_vm_links(&plan->vm_links, has_v6);
	for (unsigned i = 0; i < DOORS_RULES_COUNT; i++)
		doors_rules_write(&plan->rules[i], i);
}

void doors_plan_free(struct doors_plan *plan)
{
	if (!plan)
		return;
	netlink_batch_done(&plan->links);
	netlink_batch_done(&plan->vm_links);
	for (unsigned i = 0; i < DOORS_RULES_COUNT; i++)
		netlink_batch_done(&plan->rules[i]);
	free(plan);
}

int doors_furnish(const struct doors_plan *plan, bool nested, struct err *err)
{
	if (netlink_send(NETLINK_ROUTE, &plan->links, err) < 0)
		return err_wrap(err, "make the box's network");
	if (netlink_send(NETLINK_NETFILTER,
		    &plan->rules[nested ? DOORS_RULES_NESTED : DOORS_RULES_PLAIN], err) < 0)
		return err_wrap(err, "set the rules of the box's network");
	return 0;
}

/* Whether a plan works, in a process and a namespace made to find out. */
static int try_plan(const struct doors_plan *plan, struct err *err)
{
	struct err why = ERR_INIT;
	int pair[2];
	ssize_t got;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, errno, "socketpair");
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWNET) < 0)
			err_sys(&why, errno, "unshare the network");
		else
			(void)doors_furnish(plan, true, &why);
		_exit(send(pair[1], &why, sizeof why, MSG_NOSIGNAL) < 0);
	}
	close(pair[1]);
	got = pid < 0 ? -1 : recv(pair[0], &why, sizeof why, 0);
	close(pair[0]);
	if (pid > 0)
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	if (got != (ssize_t)sizeof why)
		return err_set(err, ERR_SYSTEM, "cannot try out the network of boxes");
	if (why.kind == ERR_NONE)
		return 0;
	*err = why;
	return -1;
}

int doors_prepare(struct doors_plan **ret, struct err *err)
{
	for (int has_v6 = 1; has_v6 >= 0; has_v6--)
		for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
			struct doors_plan *plan = xnew(struct doors_plan);

			plan_write(plan, kinds[i], has_v6);
			if (try_plan(plan, err) == 0) {
				err_clear(err);
				*ret = plan;
				return 0;
			}
			doors_plan_free(plan);
		}
	return err_hint(err, "the kernel needs nf_tables with tproxy, reject, log and limit");
}
