/* doors_refuse.c - how the gate tells a box that a datagram is refused
 *
 * A datagram that came through a door was already accepted, so the kernel reports nothing more
 * about it. The ICMP error it would have sent is written here: addresses and ports of the datagram
 * are enough for the kernel of the box to find the socket. */
#include "net/doors.h"
#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

enum { HOPS = 64 };

static uint32_t sum_up(const void *data, size_t len, uint32_t sum)
{
	const uint8_t *bytes = data;

	/* The analyzer loses sight of structs that are assigned whole. */
	for (size_t i = 0; i + 1 < len; i += 2)
		/* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
		sum += (uint32_t)(bytes[i] << 8 | bytes[i + 1]);
	return sum;
}

static uint16_t fold(uint32_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

static struct udphdr datagram_head(
	const struct doors_endpoint *aim, const struct doors_endpoint *client)
{
	return (struct udphdr){ .uh_sport = htons(client->port),
		.uh_dport = htons(aim->port),
		.uh_ulen = htons(sizeof(struct udphdr)) };
}

static struct iphdr head_v4(const struct doors_endpoint *from, const struct doors_endpoint *to,
	uint8_t protocol, size_t len)
{
	struct iphdr head = { .version = 4,
		.ihl = 5,
		.ttl = HOPS,
		.protocol = protocol,
		.tot_len = htons((uint16_t)len) };

	memcpy(&head.saddr, from->address.bytes, 4);
	memcpy(&head.daddr, to->address.bytes, 4);
	head.check = fold(sum_up(&head, sizeof head, 0));
	return head;
}

static void refuse_v4(
	int raw, const struct doors_endpoint *aim, const struct doors_endpoint *client)
{
	struct {
		struct iphdr outer;
		struct icmphdr icmp;
		struct iphdr inner;
		struct udphdr udp;
	} packet = { .icmp = { .type = ICMP_DEST_UNREACH, .code = ICMP_PKT_FILTERED } };
	struct sockaddr_in to = { .sin_family = AF_INET };

	packet.inner = head_v4(client, aim, IPPROTO_UDP, sizeof packet.inner + sizeof packet.udp);
	packet.udp = datagram_head(aim, client);
	packet.icmp.checksum = fold(sum_up(&packet.icmp, sizeof packet - sizeof packet.outer, 0));
	packet.outer = head_v4(aim, client, IPPROTO_ICMP, sizeof packet);
	memcpy(&to.sin_addr, client->address.bytes, 4);
	(void)sendto(raw, &packet, sizeof packet, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

static struct ip6_hdr head_v6(const struct doors_endpoint *from, const struct doors_endpoint *to,
	uint8_t protocol, size_t len)
{
	struct ip6_hdr head = { 0 };

	head.ip6_vfc = 6 << 4;
	head.ip6_plen = htons((uint16_t)len);
	head.ip6_nxt = protocol;
	head.ip6_hlim = HOPS;
	memcpy(&head.ip6_src, from->address.bytes, 16);
	memcpy(&head.ip6_dst, to->address.bytes, 16);
	return head;
}

static void refuse_v6(
	int raw, const struct doors_endpoint *aim, const struct doors_endpoint *client)
{
	struct {
		struct ip6_hdr outer;
		struct icmp6_hdr icmp;
		struct ip6_hdr inner;
		struct udphdr udp;
	} packet = { .icmp = { .icmp6_type = ICMP6_DST_UNREACH,
			     .icmp6_code = ICMP6_DST_UNREACH_ADMIN } };
	struct sockaddr_in6 to = { .sin6_family = AF_INET6 };
	size_t len = sizeof packet - sizeof packet.outer;
	uint32_t sum;

	packet.inner = head_v6(client, aim, IPPROTO_UDP, sizeof packet.udp);
	packet.udp = datagram_head(aim, client);
	packet.outer = head_v6(aim, client, IPPROTO_ICMPV6, len);
	/* The checksum is over a head that is never sent. */
	sum = sum_up(&packet.outer.ip6_src, 32, (uint32_t)len + IPPROTO_ICMPV6);
	packet.icmp.icmp6_cksum = fold(sum_up(&packet.icmp, len, sum));
	memcpy(&to.sin6_addr, client->address.bytes, 16);
	(void)sendto(raw, &packet, sizeof packet, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

void doors_refuse_udp(
	int raw, const struct doors_endpoint *aim, const struct doors_endpoint *client)
{
	if (raw < 0 || aim->address.family != client->address.family)
		return;
	if (aim->address.family == 4)
		refuse_v4(raw, aim, client);
	else
		refuse_v6(raw, aim, client);
}
