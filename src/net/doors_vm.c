/* doors_vm.c - see doors.h: a namespace for a box with a kernel of its own, at the end of a tap
 *
 * The daemon makes it by itself: it enters a new namespace for as long as the furnishing takes,
 * which is quicker than a process for it. */
#include "net/doors.h"
#include "net/doors_internal.h"
#include "sys/netns.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const uint8_t doors_vm_mac_near[6] = { 0x52, 0x54, 0, 0, 0, 1 };
const uint8_t doors_vm_mac_box[6] = { 0x52, 0x54, 0, 0, 0, 2 };

/* IPv4 settings of a new namespace are copies of the host's, whatever they are. What a packet from
 * the tap could make use of is set as the doors need it, before the tap is there: it begins with
 * those of "default". A setting that this kernel does not know has no effect either. */
static const struct {
	const char *name, *value;
} settings[] = {
	{ "ipv4/ip_forward", "0" },
	/* also for what is forged to come from us; our own 127.0.0.1 */
	{ "ipv4/conf/all/accept_local", "0" },
	{ "ipv4/conf/default/accept_local", "0" },
	{ "ipv4/conf/all/route_localnet", "0" },
	{ "ipv4/conf/default/route_localnet", "0" },
	/* the rules compare sources; every address is ours to answer for */
	{ "ipv4/conf/all/rp_filter", "0" },
	{ "ipv4/conf/default/rp_filter", "0" },
	{ "ipv4/conf/all/arp_ignore", "0" },
	{ "ipv4/conf/default/arp_ignore", "0" },
	{ "ipv4/conf/all/arp_filter", "0" },
	{ "ipv4/conf/default/arp_filter", "0" },
	{ "ipv4/conf/all/arp_accept", "0" },
	{ "ipv4/conf/default/arp_accept", "0" },
	/* a box must not write into the host's log */
	{ "ipv4/conf/all/log_martians", "0" },
	{ "ipv4/conf/default/log_martians", "0" },
	{ "ipv4/conf/all/accept_redirects", "0" },
	{ "ipv4/conf/default/accept_redirects", "0" },
	{ "ipv4/conf/all/accept_source_route", "0" },
	{ "ipv6/conf/all/accept_ra", "0" },
	{ "ipv6/conf/default/accept_ra", "0" },
	{ "ipv6/conf/all/accept_redirects", "0" },
	{ "ipv6/conf/default/accept_redirects", "0" },
	/* The kernel sends six errors and then one a second to a neighbour, fifty at once to all:
	 * a refusal would often be silence. The rules have a limit. */
	{ "ipv4/icmp_ratelimit", "0" },
	{ "ipv6/icmp/ratelimit", "0" },
	{ "ipv4/icmp_msgs_per_sec", "10000" },
	{ "ipv4/icmp_msgs_burst", "1000" },
	/* fragments wait in the host's memory */
	{ "ipv4/ipfrag_low_thresh", "196608" },
	{ "ipv4/ipfrag_high_thresh", "262144" },
	{ "ipv6/ip6frag_low_thresh", "196608" },
	{ "ipv6/ip6frag_high_thresh", "262144" },
	{ "netfilter/nf_conntrack_frag6_low_thresh", "196608" },
	{ "netfilter/nf_conntrack_frag6_high_thresh", "262144" },
};

static int set(int net, const char *name, const char *value, struct err *err)
{
	int fd = openat(net, name, O_WRONLY | O_CLOEXEC);
	ssize_t written = fd < 0 ? -1 : write(fd, value, strlen(value));
	int why = errno;

	if (fd >= 0)
		close(fd);
	if (fd < 0 && why == ENOENT)
		return 0;
	return written < 0 ? err_sys(err, why, "set %s in the box's network", name) : 0;
}

static int set_all(struct err *err)
{
	int net = open("/proc/sys/net", O_PATH | O_DIRECTORY | O_CLOEXEC), status = 0;

	if (net < 0)
		return err_sys(err, errno, "open /proc/sys/net");
	for (size_t i = 0; i < ARRAY_LEN(settings) && status == 0; i++)
		status = set(net, settings[i].name, settings[i].value, err);
	close(net);
	return status;
}

static int open_tap(int *ret, struct err *err)
{
	struct ifreq wanted = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int size = DOORS_VM_HEADER, index = DOORS_ETH;
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0) {
		err_sys(err, errno, "open /dev/net/tun");
		if (err->errno_value == ENOENT || err->errno_value == ENODEV ||
			err->errno_value == ENXIO) {
			err_set(err, ERR_UNSUPPORTED, "the kernel has no taps (/dev/net/tun)");
			err_hint(err, "modprobe tun");
		}
		return -1;
	}
	memcpy(wanted.ifr_name, "eth0", sizeof "eth0");
	if (ioctl(fd, TUNSETIFINDEX, &index) < 0 || ioctl(fd, TUNSETIFF, &wanted) < 0 ||
		ioctl(fd, TUNSETVNETHDRSZ, &size) < 0) {
		err_sys(err, errno, "make a tap in the box's network");
		close(fd);
		return -1;
	}
	*ret = fd;
	return 0;
}

struct furnishing {
	const struct doors_plan *plan;
	int tap;
};

static int furnish(void *arg, struct err *err)
{
	struct furnishing *furnishing = arg;
	const struct doors_plan *plan = furnishing->plan;

	if (set_all(err) < 0 || open_tap(&furnishing->tap, err) < 0)
		return -1;
	if (netlink_send(NETLINK_ROUTE, &plan->vm_links, err) < 0)
		return err_wrap(err, "make the box's network");
	if (netlink_send(NETLINK_NETFILTER, &plan->rules[DOORS_RULES_VM], err) < 0)
		return err_wrap(err, "set the rules of the box's network");
	return 0;
}

int doors_make_vm(const struct doors_plan *plan, int *ret_netns, int *ret_tap, struct err *err)
{
	struct furnishing furnishing = { .plan = plan, .tap = -1 };

	if (netns_make(furnish, &furnishing, ret_netns, err) < 0) {
		if (furnishing.tap >= 0)
			close(furnishing.tap);
		return -1;
	}
	*ret_tap = furnishing.tap;
	return 0;
}
