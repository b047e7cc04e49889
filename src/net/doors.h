/* doors.h - the network of a box: a namespace with nothing that leads out, and our sockets in it
 *
 * No device of a box's network namespace leads anywhere. Every address of the world is "local" in
 * it (a route of type local for everything), so that a packet for 192.0.2.7 loops back at once and,
 * if it is for a synthetic address, for a range the policy names, or for port 53, is handed by
 * TPROXY to a socket of ours with its destination kept. The rest is refused by the namespace's own
 * rules with RST or ICMP, and reported. These rules are comfort, not the wall: root of a nested box
 * may change them and reaches nothing by it, for only our sockets lead anywhere, and the gate
 * decides on each connection by itself. With the daemon dead the sockets are gone and everything is
 * refused.
 *
 *   eth0  198.18.0.2/32, PREFIX::2/128   the box, the same in every box
 *   lo    everything else; 198.18.0.1 and PREFIX::1 are ours: port 53 the resolver, port 1 where
 *         TPROXY leads to
 *   (PREFIX is fd62:6f78:7961:7264:, see synthetic_numbered)
 *
 * A box with a kernel of its own is not in the namespace but at the other end of a tap, which is
 * eth0 here:
 *
 *   eth0  198.18.0.1/32, PREFIX::1/128, DOORS_VM_MAC_NEAR; 198.18.0.2 and PREFIX::2 are behind it
 *   lo    everything else, as above
 *   in the box: eth0 with DOORS_VM_MAC, 198.18.0.2/32, PREFIX::2/128 without duplicate address
 *         detection, default routes by our two addresses (onlink)
 *
 * Its packets meet the same rules and the same sockets. What does not come from its own address is
 * dropped; nothing is forwarded, and no other device is there. */
#pragma once
#include "base/address.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOORS_BOX_V4	  "198.18.0.2"
#define DOORS_RESOLVER_V4 "198.18.0.1"
#define DOORS_RESOLVER_V6 "fd62:6f78:7961:7264::1"
#define DOORS_RESOLV_CONF "nameserver " DOORS_RESOLVER_V4 "\nnameserver " DOORS_RESOLVER_V6 "\n"
#define DOORS_VM_MAC_NEAR "52:54:00:00:00:01"
#define DOORS_VM_MAC	  "52:54:00:00:00:02"
enum { DOORS_VM_HEADER = 12 }; /* bytes of struct virtio_net_hdr before each frame of a tap */
enum { DOORS_PORT = 1, DOORS_DNS_PORT = 53 };

/* The sockets that the gate gets of each box. All are non-blocking. */
enum door {
	/* Listens, both families (v4 as ::ffff:a.b.c.d). getsockname() of an accepted connection is
	 * its original destination. */
	DOOR_TCP,
	/* Both families; the first datagram of each flow, with IPV6_RECVORIGDSTADDR or
	 * IP_RECVORIGDSTADDR (mapped) as control data. */
	DOOR_UDP,
	/* Bound to the resolver's address; questions to any server end here. For dns_server_add. */
	DOOR_DNS_UDP4,
	DOOR_DNS_UDP6,
	DOOR_DNS_TCP4,
	DOOR_DNS_TCP6,
	DOOR_RAW4, /* for answering a refused datagram, see doors_refuse_udp */
	DOOR_RAW6,
	/* Netlink: headers of packets that the namespace's rules refused (NFLOG); read with
	 * doors_refused_read. */
	DOOR_REFUSED,
	DOOR_COUNT
};

/* Sets up interfaces, addresses, routes and rules; called in the process that becomes a box, in its
 * new, empty network namespace. Allocates nothing; doors_prepare made everything ready. */
struct doors_plan;
int doors_prepare(struct doors_plan **ret, struct err *err);
void doors_plan_free(struct doors_plan *plan);
/* nested: the box may make its own networks (for containers), which the rules leave alone. */
int doors_furnish(const struct doors_plan *plan, bool nested, struct err *err);

/* In the daemon: a new namespace for a box with a kernel of its own. *ret_tap (non-blocking) is the
 * other end of its eth0: frames with a header of DOORS_VM_HEADER bytes; the device is there as long
 * as somebody has it open, and is never to be lowered. ERR_UNSUPPORTED when the machine has no
 * taps. Takes about a millisecond. */
int doors_make_vm(const struct doors_plan *plan, int *ret_netns, int *ret_tap, struct err *err);

/* Holds back everything that sockets of the box send, or stops that; ours are not affected. Called
 * in the namespace. *ret_fd is yours, also on failure (-1: none): closing it may block for
 * milliseconds, so another process should do it. */
int doors_hold(bool hold, int *ret_fd, struct err *err);

/* Called in the daemon: opens the sockets in the namespace behind netns. */
int doors_open(int netns, int ret[DOOR_COUNT], struct err *err);
void doors_close(int doors[DOOR_COUNT]); /* those that are not -1 */

/* Sets what the gate sees besides TCP to synthetic addresses, because the policy has rules for it:
 * real addresses in ranges, and UDP at all. Replaces the previous setting at once; initially
 * neither. A refusal of the kernel is only logged: the box may have caused it, and the gate decides
 * in any case. */
int doors_set_aims(
	int netns, const struct address_range *ranges, size_t count, bool udp, struct err *err);

struct doors_endpoint {
	struct address address;
	uint16_t port;
};
/* A UDP socket in the namespace, bound to the address that the box talks to, connected to the box's
 * own socket. */
int doors_open_udp(int netns, const struct doors_endpoint *aim, const struct doors_endpoint *client,
	int *ret, struct err *err);
/* A TCP socket in the namespace, connecting (non-blocking) to a port of the box: by its loopback
 * (v6: ::1), or by DOORS_BOX_V4 as another box sees it. The latter alone reaches a box with a
 * kernel of its own. */
enum doors_side { DOORS_LOOPBACK, DOORS_LOOPBACK_V6, DOORS_OUTSIDE };
int doors_connect(int netns, enum doors_side side, uint16_t port, int *ret, struct err *err);
/* A TCP socket in the namespace that listens (non-blocking) on a port of the box's loopback; port
 * 0: any free one. Fails with ERR_EXISTS when a program of the box has it. No box with a kernel of
 * its own reaches it. */
int doors_listen(int netns, bool v6, uint16_t port, int *ret, struct err *err);

/* Tells a box that a datagram from client to aim is refused (ICMP, administratively prohibited), in
 * the name of aim. Uses the raw door of their family; needs no privilege. */
void doors_refuse_udp(
	int raw, const struct doors_endpoint *aim, const struct doors_endpoint *client);

/* A refused packet. */
struct doors_refused {
	uint8_t protocol;		/* IPPROTO_* */
	struct doors_endpoint from, to; /* port 0: none */
};
/* Reads up to max of them; returns how many, 0 when there are none now. lost (may be NULL) is
 * increased by the number of unreported ones. */
size_t doors_refused_read(int fd, struct doors_refused *ret, size_t max, uint64_t *lost);
