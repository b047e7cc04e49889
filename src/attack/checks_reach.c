/* checks_reach.c - addresses, ranges, hosts, protocols, packets: everything that is addressed by
 * a place instead of a name
 *
 * Checks are rows. The audit log would mention an address of two rows of a group once, so each
 * row has its own. */
#include "attack/suite.h"
#include "base/alloc.h"

/* The policy of most groups: some names, a range, and none of what is attacked. */
#define STRICT                                                                             \
	"{\"version\":1,\"preset\":\"none\",\"allow\":[\"allowed.test:80,443,8080,8443\"," \
	"\"198.51.100.0/24:8080\",{\"cidr\":\"198.51.100.0/"                               \
	"24\",\"ports\":9000,\"protocol\":\"udp\"}]}"
#define OPEN "{\"version\":1,\"preset\":\"open\"}"
#define RANGES \
	"{\"version\":1,\"preset\":\"none\",\"allow\":[\"10.0.0.0/8\",\"0.0.0.0/0\",\"::/0\"]}"

#define ALLOWED_HTTP "203.0.113.10:80 [2001:db8::10]:80"

#define TCP(label, address, port)                                           \
	{                                                                   \
		.name = "tcp-" label, .words = { "connect", address, port } \
	}
#define UDP(label, address, port)                                            \
	{                                                                    \
		.name = "udp-" label, .words = { "datagram", address, port } \
	}
/* Never leaves the box: its own loopback, or the kernel refuses to send it. */
#define INSIDE(label, how, address, port)                                                        \
	{                                                                                        \
		.name = label, .flags = CHECK_NO_LOG | CHECK_NO_PROOF | CHECK_SILENT, .words = { \
			how,                                                                     \
			address,                                                                 \
			port                                                                     \
		}                                                                                \
	}

#define GET_ALLOWED "GET /works HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n"

static const struct check addresses[] = {
	{ .name = "allowed-http",
		.flags = CHECK_WORKS,
		.words = { "send", "allowed.test", "80", "1", GET_ALLOWED },
		.may = ALLOWED_HTTP },
	{ .name = "allowed-http-v6",
		.flags = CHECK_WORKS,
		.words = { "send", "6:allowed.test", "80", "1", GET_ALLOWED },
		.may = ALLOWED_HTTP,
		.log = "allowed.test" },
	{ .name = "allowed-range-tcp",
		.flags = CHECK_WORKS,
		.words = { "connect", "198.51.100.7", "8080" },
		.may = "198.51.100.7:8080",
		.never = "nothing" },
	{ .name = "allowed-range-udp",
		.flags = CHECK_WORKS,
		.words = { "datagram", "198.51.100.7", "9000" },
		.may = "198.51.100.7:9000",
		.never = "nothing" },
	TCP("range-other-port", "198.51.100.8", "22"),
	UDP("range-other-port", "198.51.100.9", "53000"),
	TCP("public", "203.0.113.66", "80"),
	TCP("public-tls", "203.0.113.67", "443"),
	TCP("public-ssh", "203.0.113.68", "22"),
	TCP("of-an-allowed-name", "203.0.113.10", "80"),
	UDP("public", "203.0.113.69", "9000"),
	TCP("private-10", "10.0.0.1", "80"),
	UDP("private-10", "10.0.0.2", "9000"),
	TCP("private-172", "172.16.0.1", "443"),
	UDP("private-172", "172.16.0.2", "9000"),
	TCP("private-192", "192.168.1.1", "80"),
	UDP("private-192", "192.168.1.2", "9000"),
	TCP("cgnat", "100.64.0.1", "8080"),
	TCP("metadata", "169.254.169.254", "80"),
	UDP("metadata", "169.254.169.254", "9000"),
	TCP("metadata-alibaba", "100.100.100.200", "80"),
	TCP("metadata-oracle", "192.0.0.192", "80"),
	TCP("metadata-azure", "168.63.129.16", "80"),
	TCP("link-local", "169.254.1.1", "22"),
	TCP("reserved", "240.0.0.1", "80"),
	TCP("benchmark-unassigned", "198.18.77.77", "80"),
	TCP("benchmark-upper", "198.19.255.254", "443"),
	UDP("benchmark-unassigned", "198.18.77.78", "9000"),
	TCP("door", "198.18.0.1", "1"),
	INSIDE("tcp-broadcast", "connect", "255.255.255.255", "80"),
	INSIDE("udp-broadcast", "datagram", "255.255.255.255", "9000"),
	INSIDE("udp-multicast", "datagram", "224.0.0.251", "9000"),
	INSIDE("udp-multicast-v6", "datagram", "ff02::1%eth0", "9000"),
	TCP("v6-public", "2001:db8::1", "80"),
	UDP("v6-public", "2001:db8::2", "9000"),
	TCP("v6-of-an-allowed-name", "2001:db8::10", "80"),
	TCP("v6-private", "fd00::1", "443"),
	UDP("v6-private", "fd00::2", "9000"),
	TCP("v6-metadata", "fd00:ec2::254", "80"),
	{ .name = "tcp-v6-mapped-private",
		.words = { "connect", "::ffff:10.0.0.3", "80" },
		.log = "10.0.0.3" },
	TCP("v6-compatible", "::10.0.0.4", "80"),
	TCP("v6-nat64", "64:ff9b::a00:5", "80"),
	TCP("v6-6to4", "2002:a00:6::1", "80"),
	TCP("v6-teredo", "2001:0:4136::1", "80"),
	TCP("v6-synthetic-unassigned", "fd62:6f78:7961:7264::7777", "80"),
	INSIDE("tcp-v6-link-local", "connect", "fe80::1%eth0", "80"),
};

/* The widest policy possible: what is closed by default stays closed. */
static const struct check open_addresses[] = {
	{ .name = "allowed-address",
		.flags = CHECK_WORKS,
		.words = { "connect", "203.0.113.40", "8080" },
		.may = "203.0.113.40:8080",
		.never = "nothing" },
	{ .name = "allowed-address-v6",
		.flags = CHECK_WORKS,
		.words = { "connect", "2001:db8::40", "8080" },
		.may = "[2001:db8::40]:8080",
		.never = "nothing" },
	{ .name = "allowed-udp",
		.flags = CHECK_WORKS,
		.words = { "datagram", "203.0.113.41", "9000" },
		.may = "203.0.113.41:9000",
		.never = "nothing" },
	{ .name = "allowed-name",
		.flags = CHECK_WORKS,
		.words = { "connect", "anybody.test", "8080" },
		.may = "203.0.113.66:8080 [2001:db8::66]:8080",
		.never = "nothing" },
	TCP("private-10", "10.0.0.1", "80"),
	UDP("private-10", "10.0.0.2", "9000"),
	TCP("private-172", "172.31.255.1", "80"),
	TCP("private-192", "192.168.1.1", "80"),
	TCP("cgnat", "100.64.0.1", "8080"),
	TCP("metadata", "169.254.169.254", "80"),
	UDP("metadata", "169.254.169.253", "9000"),
	TCP("metadata-azure", "168.63.129.16", "80"),
	TCP("metadata-oracle", "192.0.0.192", "80"),
	TCP("link-local", "169.254.1.1", "22"),
	TCP("reserved", "240.0.0.1", "80"),
	TCP("benchmark", "198.18.77.77", "80"),
	TCP("door", "198.18.0.1", "1"),
	TCP("host", RIG_HOST_V4, "7777"),
	UDP("host", RIG_HOST_V4, "7777"),
	TCP("host-lan", RIG_LAN_V4, "7777"),
	TCP("host-v6", RIG_HOST_V6, "7777"),
	TCP("host-lan-v6", RIG_LAN_V6, "7777"),
	TCP("v6-private", "fd00::1", "443"),
	TCP("v6-metadata", "fd00:ec2::254", "80"),
	{ .name = "tcp-v6-mapped-private",
		.words = { "connect", "::ffff:10.0.0.3", "80" },
		.log = "10.0.0.3" },
	TCP("v6-nat64-private", "64:ff9b::a00:5", "80"),
	TCP("v6-nat64-host", "64:ff9b::c000:202", "7777"),
	TCP("v6-6to4-private", "2002:a00:6::1", "80"),
	TCP("v6-teredo", "2001:0:4136::1", "80"),
	TCP("v6-site-local", "fec0::1", "80"),
	TCP("name-of-private", "private.test", "80"),
	TCP("name-of-metadata", "metadata.test", "80"),
	TCP("name-of-host", "host.test", "7777"),
};

/* A policy that names a private range, in which the host has an address. */
static const struct check ranges[] = {
	{ .name = "allowed-private",
		.flags = CHECK_WORKS,
		.words = { "connect", "10.1.2.3", "8080" },
		.may = "10.1.2.3:8080",
		.never = "nothing" },
	{ .name = "allowed-public",
		.flags = CHECK_WORKS,
		.words = { "connect", "203.0.113.40", "8080" },
		.may = "203.0.113.40:8080",
		.never = "nothing" },
	TCP("host-in-range", RIG_LAN_V4, "7777"),
	{ .name = "tcp-host-in-range-api",
		.flags = CHECK_NO_PROOF,
		.words = { "connect", RIG_LAN_V4, "30001" } },
	UDP("host-in-range", RIG_LAN_V4, "7777"),
	TCP("private-not-named", "192.168.1.1", "80"),
	TCP("cgnat-not-named", "100.64.0.1", "80"),
	TCP("metadata-in-wide-range", "169.254.169.254", "80"),
	TCP("loopback-in-wide-range-mapped", "64:ff9b::7f00:1", "7777"),
	TCP("v6-private-in-wide-range", "fd00::1", "80"),
	TCP("host-in-wide-range", RIG_HOST_V4, "7777"),
	TCP("host-v6-in-wide-range", RIG_HOST_V6, "7777"),
};

static const struct check host[] = {
	TCP("host", RIG_HOST_V4, "7777"),
	{ .name = "tcp-host-api",
		.flags = CHECK_NO_PROOF,
		.words = { "connect", RIG_HOST_V4, "30001" } },
	UDP("host", RIG_HOST_V4, "7777"),
	TCP("host-database", RIG_HOST_V4, "5432"),
	TCP("host-lan", RIG_LAN_V4, "7777"),
	TCP("host-v6", RIG_HOST_V6, "7777"),
	UDP("host-v6", RIG_HOST_V6, "7777"),
	TCP("host-lan-v6", RIG_LAN_V6, "7777"),
	TCP("gateway-of-the-host", "192.0.2.1", "80"),
	INSIDE("loopback-api", "connect", "127.0.0.1", "30001"),
	INSIDE("loopback-service", "connect", "127.0.0.1", "7777"),
	INSIDE("loopback-other", "connect", "127.1.2.3", "7777"),
	INSIDE("loopback-udp", "datagram", "127.0.0.1", "7777"),
	INSIDE("loopback-v6", "connect", "::1", "7777"),
	INSIDE("loopback-mapped", "connect", "::ffff:127.0.0.1", "7777"),
	INSIDE("unspecified", "connect", "0.0.0.0", "7777"),
	INSIDE("unspecified-v6", "connect", "::", "7777"),
	INSIDE("abstract-socket", "unix", RIG_UNIX, NULL),
	{ .name = "name-localhost",
		.words = { "ask", "-", "udp", "A", "localhost" },
		.log = "localhost",
		.flags = CHECK_EITHER | CHECK_NO_LOG },
	{ .name = "name-of-host",
		.words = { "connect", "host.test", "7777" },
		.flags = CHECK_NO_PROOF },
};

#define RAW(kind, address)                                                              \
	{                                                                               \
		.name = kind, .flags = CHECK_SILENT, .words = { "raw", kind, address }, \
		.log = address                                                          \
	}
#define RAW6(kind, address)                                                                   \
	{                                                                                     \
		.name = kind "-v6", .flags = CHECK_SILENT, .words = { "raw", kind, address }, \
		.log = address                                                                \
	}

static const struct check protocols[] = {
	RAW("icmp", "203.0.113.101"),
	RAW("igmp", "203.0.113.102"),
	RAW("ipip", "203.0.113.103"),
	RAW("dccp", "203.0.113.104"),
	RAW("6in4", "203.0.113.105"),
	RAW("gre", "203.0.113.106"),
	RAW("esp", "203.0.113.107"),
	RAW("ah", "203.0.113.108"),
	RAW("ospf", "203.0.113.109"),
	RAW("l2tp", "203.0.113.110"),
	RAW("sctp", "203.0.113.111"),
	RAW("udplite", "203.0.113.112"),
	RAW("unknown", "203.0.113.113"),
	RAW6("icmp6", "2001:db8::101"),
	RAW6("ipip", "2001:db8::102"),
	RAW6("gre", "2001:db8::103"),
	RAW6("sctp", "2001:db8::104"),
	RAW6("esp", "2001:db8::105"),
	{ .name = "icmp-to-a-range",
		.flags = CHECK_SILENT,
		.words = { "raw", "icmp", "198.51.100.77" },
		.log = "198.51.100.77" },
	{ .name = "icmp-to-private",
		.flags = CHECK_SILENT,
		.words = { "raw", "icmp", "10.0.0.101" },
		.log = "10.0.0.101" },
	{ .name = "gre-to-a-range",
		.flags = CHECK_SILENT,
		.words = { "raw", "gre", "198.51.100.78" },
		.log = "198.51.100.78" },
	{ .name = "sctp-to-a-name",
		.flags = CHECK_SILENT,
		.words = { "raw", "sctp", "allowed.test" },
		.log = "sctp" },
};

static const struct check forging[] = {
	RAW("udp-forged", "203.0.113.121"),
	RAW("tcp-forged", "203.0.113.122"),
	RAW("udp-loopback", "203.0.113.123"),
	/* A fragment without the rest of its packet is dropped before any rule sees it. */
	{ .name = "udp-fragment",
		.flags = CHECK_SILENT | CHECK_NO_LOG,
		.words = { "raw", "udp-fragment", "203.0.113.124" } },
	{ .name = "source-route",
		.flags = CHECK_SILENT | CHECK_NO_LOG,
		.words = { "raw", "udp-route", "203.0.113.125" } },
	{ .name = "udp-forged-to-private",
		.flags = CHECK_SILENT,
		.words = { "raw", "udp-forged", "10.0.0.121" },
		.log = "10.0.0.121" },
	{ .name = "udp-forged-to-host",
		.flags = CHECK_SILENT,
		.words = { "raw", "udp-forged", RIG_HOST_V4 },
		.log = RIG_HOST_V4 },
	/* A valid packet first: a box with its own kernel would look for its router from an
	 * address that the router does not answer, and never send the forged one. */
	RAW6("icmp6", "2001:db8::120"),
	RAW6("udp-forged", "2001:db8::121"),
	{ .name = "frame-eth0",
		.flags = CHECK_SILENT | CHECK_NO_LOG | CHECK_NO_PROOF,
		.words = { "frame", "eth0", "udp-forged", "203.0.113.126" } },
	{ .name = "frame-lo",
		.flags = CHECK_SILENT | CHECK_NO_LOG | CHECK_NO_PROOF,
		.words = { "frame", "lo", "udp-forged", "203.0.113.127" } },
	{ .name = "frame-eth0-v6",
		.flags = CHECK_SILENT | CHECK_NO_LOG | CHECK_NO_PROOF,
		.words = { "frame", "eth0", "udp-forged", "2001:db8::126" } },
};

/* The change itself may succeed or be refused; nothing may be reached with it. When its own
 * rules are removed, or its devices are down, a box gets no refusals and its attempts are not
 * logged. */
#define CHANGE(what, address)                                                  \
	{                                                                      \
		.name = what, .flags = CHECK_SILENT | CHECK_NO_LOG, .words = { \
			"change",                                              \
			what,                                                  \
			address,                                               \
			"80"                                                   \
		}                                                              \
	}

static const struct check own[] = {
	{ .name = "mark",
		.words = { "change", "mark", "203.0.113.131", "80" },
		.flags = CHECK_NO_LOG },
	CHANGE("door-mark", "203.0.113.148"),
	CHANGE("device", "203.0.113.132"),
	CHANGE("foreign-source", "203.0.113.133"),
	{ .name = "foreign-source-v6",
		.flags = CHECK_SILENT | CHECK_NO_LOG,
		.words = { "change", "foreign-source", "2001:db8::133", "80" } },
	CHANGE("new-namespace", "203.0.113.134"),
	CHANGE("init-namespace", "203.0.113.135"),
	CHANGE("promiscuous", "203.0.113.136"),
	CHANGE("tun", "203.0.113.137"),
	CHANGE("veth", "203.0.113.138"),
	CHANGE("macvlan", "203.0.113.139"),
	CHANGE("ipvlan", "203.0.113.140"),
	CHANGE("route", "203.0.113.141"),
	CHANGE("mac", "203.0.113.142"),
	CHANGE("address", "203.0.113.143"),
	{ .name = "still-works",
		.flags = CHECK_EITHER | CHECK_NO_LOG,
		.words = { "send", "allowed.test", "80", "1", GET_ALLOWED },
		.may = ALLOWED_HTTP },
	CHANGE("no-rules", "203.0.113.144"),
	{ .name = "no-rules-private",
		.flags = CHECK_SILENT | CHECK_NO_LOG,
		.words = { "change", "no-rules", "10.0.0.144", "80" } },
	{ .name = "no-rules-host",
		.flags = CHECK_SILENT | CHECK_NO_LOG,
		.words = { "change", "no-rules", RIG_HOST_V4, "7777" } },
	CHANGE("no-rules-route", "203.0.113.145"),
	CHANGE("no-local-route", "203.0.113.146"),
	CHANGE("loopback-down", "203.0.113.147"),
};

/* Only a box with its own kernel has a cable; eth0 of the others leads nowhere. */
#define CABLE(what)                                                            \
	{                                                                      \
		.name = what, .flags = CHECK_SILENT | CHECK_NO_LOG, .words = { \
			"cable",                                               \
			what,                                                  \
			"2000"                                                 \
		}                                                              \
	}

static const struct check cable[] = {
	CABLE("arp"),
	CABLE("neighbours"),
	CABLE("routers"),
	CABLE("vlan"),
	CABLE("fragments"),
	CABLE("broken"),
	CABLE("protocols"),
	{ .name = "still-works",
		.flags = CHECK_WORKS,
		.words = { "send", "allowed.test", "80", "1", GET_ALLOWED },
		.may = ALLOWED_HTTP,
		.never = "nothing" },
};

static const struct check quic[] = {
	{ .name = "to-an-allowed-name", .words = { "datagram", "allowed.test", "443" } },
	{ .name = "to-an-allowed-name-v6",
		.words = { "datagram", "6:allowed.test", "443" },
		.log = "allowed.test" },
	{ .name = "to-an-allowed-name-80", .words = { "datagram", "allowed.test", "80" } },
	UDP("public", "203.0.113.151", "443"),
	UDP("public-v6", "2001:db8::151", "443"),
	UDP("range", "198.51.100.151", "443"),
};

#define ROWS(list) .checks = (list), .count = ARRAY_LEN(list)

const struct group reach_groups[] = {
	{ "addresses", "addresses of the world, public, private and special", STRICT,
		"allowed.test", ROWS(addresses) },
	{ "open", "the same under the widest policy", OPEN,
		"anybody.test private.test metadata.test host.test", ROWS(open_addresses) },
	{ "ranges", "addresses in an allowed range that stay closed", RANGES, "", ROWS(ranges) },
	{ "host", "the host's addresses, services, loopback and local sockets", STRICT, "",
		ROWS(host) },
	{ "protocols", "everything that is neither TCP nor UDP", STRICT, "allowed.test",
		ROWS(protocols) },
	{ "forging", "packets with forged senders, fragments, frames", STRICT, "", ROWS(forging) },
	{ "cable", "floods of frames: neighbours, routers, tags, fragments, noise", STRICT,
		"allowed.test", ROWS(cable), .no_proof = true },
	{ "quic", "UDP where the policy has TCP", STRICT, "", ROWS(quic) },
	{ "own", "changes of the box's own addresses, routes, devices, rules and namespaces",
		STRICT, "allowed.test", ROWS(own), .no_proof = true },
	{ .name = NULL },
};
