/* raw.c - hand-made packets: other protocols, forged senders, whole frames
 *
 * Sending a packet without an error proves nothing: whether it arrived is known outside. An echo
 * that comes back, or an answer to a forged packet, is reported. */
#include "attack/attacker.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RAW_WAIT_MS = 30, PACKET_MAX = 256, FORGED_PORT = 8080 };
#define FORGED_V4 "198.51.100.66"
#define FORGED_V6 "2001:db8:66::66"

static const struct {
	const char *name;
	int number;
} protocols[] = { { "icmp", IPPROTO_ICMP }, { "igmp", IPPROTO_IGMP }, { "ipip", IPPROTO_IPIP },
	{ "dccp", 33 }, { "6in4", IPPROTO_IPV6 }, { "gre", IPPROTO_GRE }, { "esp", IPPROTO_ESP },
	{ "ah", IPPROTO_AH }, { "icmp6", IPPROTO_ICMPV6 }, { "ospf", 89 }, { "l2tp", 115 },
	{ "sctp", IPPROTO_SCTP }, { "udplite", 136 }, { "unknown", 253 } };

uint16_t packet_checksum(const uint8_t *data, size_t len, uint32_t sum)
{
	for (size_t i = 0; i < len; i++)
		sum += (uint32_t)(i % 2 ? data[i] : data[i] << 8);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

/* Writes a valid beginning for the protocol; the rest is "evil". */
static size_t fill_payload(int protocol, uint8_t *out)
{
	static const uint8_t inner[] = { 0x45, 0, 0, 24, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 66,
		10, 0, 0, 1 };
	size_t len = 16;

	memset(out, 0, 64);
	if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) {
		out[0] = protocol == IPPROTO_ICMP ? 8 : 128;
		out[5] = out[7] = 1;
		memcpy(out + 8, "evilevil", 8);
		if (protocol == IPPROTO_ICMP) {
			uint16_t sum = packet_checksum(out, 16, 0);

			out[2] = (uint8_t)(sum >> 8);
			out[3] = (uint8_t)sum;
		}
		return 16;
	}
	if (protocol == IPPROTO_GRE || protocol == IPPROTO_IPIP) {
		size_t at = protocol == IPPROTO_GRE ? 4 : 0;

		if (at)
			out[2] = 8; /* IPv4 inside */
		memcpy(out + at, inner, sizeof inner);
		memcpy(out + at + sizeof inner, "evil", 4);
		return at + sizeof inner + 4;
	}
	out[1] = out[3] = 80; /* ports, where there are any */
	memcpy(out + len, "evil", 4);
	return len + 4;
}

/* True unless it is our own packet, which a raw socket also receives when it loops back. */
static bool is_answer(const uint8_t *packet, ssize_t len, int family, int protocol)
{
	size_t at = family == AF_INET && len > 0 ? (size_t)(packet[0] & 15) * 4 : 0;

	if (len <= 0 || at >= (size_t)len)
		return false;
	if (protocol == IPPROTO_ICMP)
		return packet[at] == 0;
	return protocol == IPPROTO_ICMPV6 && packet[at] == 129;
}

static void wait_for_answer(int fd, int family, int protocol, int64_t since, struct outcome *out)
{
	uint8_t packet[PACKET_MAX];
	struct pollfd one = { .fd = fd, .events = POLLIN };

	while (poll(&one, 1, RAW_WAIT_MS) == 1) {
		ssize_t len = recv(fd, packet, sizeof packet, MSG_DONTWAIT);

		if (len < 0 && errno != EAGAIN) {
			outcome_errno(out, since, errno);
			return;
		}
		if (is_answer(packet, len, family, protocol)) {
			outcome_through(out, since, "echo reply");
			return;
		}
		if (now_us() - since > RAW_WAIT_MS * 2000)
			break;
	}
	outcome_refused(out, since, "sent, nothing came back");
	out->silent = true;
}

static void send_protocol(int protocol, const struct endpoint *to, struct outcome *out)
{
	uint8_t payload[64];
	size_t len = fill_payload(protocol, payload);
	int64_t since = now_us();
	int fd = socket(to->addr.ss_family, SOCK_RAW | SOCK_CLOEXEC, protocol);

	if (fd < 0) {
		outcome_errno(out, since, errno);
		return;
	}
	if (sendto(fd, payload, len, 0, (const struct sockaddr *)&to->addr, to->len) < 0)
		outcome_errno(out, since, errno);
	else
		wait_for_answer(fd, to->addr.ss_family, protocol, since, out);
	close(fd);
}

/* Makes an IPv4 packet with any sender: UDP with four bytes, or a SYN; returns its length. */
static size_t forge(const char *kind, const char *from, const struct in_addr *to, uint8_t *out)
{
	bool tcp = strstr(kind, "tcp") != NULL, options = strstr(kind, "route") != NULL;
	size_t head = options ? 28 : 20, len = head + (tcp ? 20 : 12);
	struct in_addr source;
	uint16_t sum;
	uint32_t pseudo = 0;

	memset(out, 0, PACKET_MAX);
	inet_pton(AF_INET, from, &source);
	out[0] = (uint8_t)(0x40 | head / 4);
	out[3] = (uint8_t)len;
	out[5] = 7;
	out[6] = strstr(kind, "fragment") ? 0x20 : 0; /* more fragments follow; they never do */
	out[8] = 64;
	out[9] = tcp ? IPPROTO_TCP : IPPROTO_UDP;
	memcpy(out + 12, &source, 4);
	memcpy(out + 16, to, 4);
	if (options) { /* loose source route by one hop */
		memcpy(out + 20, "\x83\x07\x04", 3);
		memcpy(out + 23, to, 4);
	}
	sum = packet_checksum(out, head, 0);
	out[10] = (uint8_t)(sum >> 8);
	out[11] = (uint8_t)sum;
	out[head] = 0x30;
	out[head + 2] = FORGED_PORT >> 8;
	out[head + 3] = FORGED_PORT & 0xff;
	if (!tcp) {
		out[head + 5] = 12;
		memcpy(out + head + 8, "evil", 4);
		return len;
	}
	out[head + 7] = 1;
	out[head + 12] = 5 << 4;
	out[head + 13] = 2; /* SYN */
	out[head + 14] = 16;
	for (size_t i = 12; i < 20; i += 2)
		pseudo += (uint32_t)(out[i] << 8 | out[i + 1]);
	sum = packet_checksum(out + head, 20, pseudo + IPPROTO_TCP + 20);
	out[head + 16] = (uint8_t)(sum >> 8);
	out[head + 17] = (uint8_t)sum;
	return len;
}

static size_t forge6(const struct in6_addr *to, uint8_t *out)
{
	static const uint8_t udp[] = { 0x30, 0, FORGED_PORT >> 8, FORGED_PORT & 0xff, 0, 12, 0, 0,
		'e', 'v', 'i', 'l' };
	uint32_t pseudo = IPPROTO_UDP + 12;
	uint16_t sum;

	memset(out, 0, PACKET_MAX);
	out[0] = 0x60;
	out[5] = sizeof udp;
	out[6] = IPPROTO_UDP;
	out[7] = 64;
	inet_pton(AF_INET6, FORGED_V6, out + 8);
	memcpy(out + 24, to, 16);
	memcpy(out + 40, udp, sizeof udp);
	for (size_t i = 8; i < 40; i += 2)
		pseudo += (uint32_t)(out[i] << 8 | out[i + 1]);
	sum = packet_checksum(out + 40, sizeof udp, pseudo);
	out[46] = (uint8_t)(sum >> 8);
	out[47] = (uint8_t)sum;
	return 40 + sizeof udp;
}

static size_t forge_for(const char *kind, const struct endpoint *to, uint8_t *packet)
{
	if (to->addr.ss_family == AF_INET6)
		return forge6(&((const struct sockaddr_in6 *)&to->addr)->sin6_addr, packet);
	return forge(kind, strstr(kind, "loopback") ? "127.0.0.1" : FORGED_V4,
		&((const struct sockaddr_in *)&to->addr)->sin_addr, packet);
}

/* KIND: a protocol's name; udp-forged, tcp-forged, udp-loopback, udp-fragment, udp-route. */
void attack_raw(int argc, char **argv, struct outcome *out)
{
	uint8_t packet[PACKET_MAX];
	struct endpoint to;
	int64_t since = now_us();
	size_t len;
	int fd;

	if (!endpoint_find(argv[1], "0", &to, out))
		return;
	for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
		if (!strcmp(protocols[i].name, argv[0])) {
			send_protocol(protocols[i].number, &to, out);
			return;
		}
	fd = socket(to.addr.ss_family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
	len = forge_for(argv[0], &to, packet);
	if (fd < 0 || sendto(fd, packet, len, 0, (struct sockaddr *)&to.addr, to.len) < 0) {
		outcome_errno(out, since, errno);
	} else {
		usleep(RAW_WAIT_MS / 2 * 1000);
		outcome_refused(out, since, "sent, nothing came back");
		out->silent = true;
	}
	if (fd >= 0)
		close(fd);
}

/* Sends the same packets as frames on an interface, bypassing the routing of the box. */
void attack_frame(int argc, char **argv, struct outcome *out)
{
	struct sockaddr_ll link = { .sll_family = AF_PACKET, .sll_halen = 6 };
	uint8_t packet[PACKET_MAX];
	struct endpoint to;
	int64_t since = now_us();
	size_t len;
	int fd;

	if (!endpoint_find(argv[2], "0", &to, out))
		return;
	link.sll_protocol = htons(to.addr.ss_family == AF_INET ? ETH_P_IP : ETH_P_IPV6);
	link.sll_ifindex = (int)if_nametoindex(argv[0]);
	memset(link.sll_addr, 0xff, 6);
	fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, link.sll_protocol);
	len = forge_for(argv[1], &to, packet);
	if (fd < 0 || sendto(fd, packet, len, 0, (struct sockaddr *)&link, sizeof link) < 0) {
		outcome_errno(out, since, errno);
	} else {
		usleep(RAW_WAIT_MS / 2 * 1000);
		outcome_refused(out, since, "sent, nothing came back");
		out->silent = true;
	}
	if (fd >= 0)
		close(fd);
}
