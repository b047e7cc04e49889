/* witness_packet.c - records packets from the wire, one line each
 *
 * Nothing can hide here behind a closed port or an unknown protocol. Neighbour discovery between
 * the kernels of both ends is left out. */
#include "attack/witness_internal.h"
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <stdio.h>

enum {
	ICMP6_MLD_FIRST = 130,
	ICMP6_ND_LAST = 137,
	ICMP6_MLD2 = 143,
	TCP_FLAGS = 13,
	TCP_SYN = 2,
	TCP_ACK = 16
};

char *witness_address(const uint8_t *bytes, bool is_v6, unsigned port, char *out)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(is_v6 ? AF_INET6 : AF_INET, bytes, text, sizeof text);
	if (!port)
		snprintf(out, WITNESS_TEXT, "%s", text);
	else
		snprintf(out, WITNESS_TEXT, is_v6 ? "[%s]:%u" : "%s:%u", text, port);
	return out;
}

static void note(struct record *record, unsigned protocol, const uint8_t *to, bool is_v6,
	const uint8_t *inner, size_t len)
{
	unsigned port = len >= 4 ? (unsigned)(inner[2] << 8 | inner[3]) : 0;
	char text[WITNESS_TEXT];

	if (protocol == IPPROTO_TCP && len > TCP_FLAGS) {
		/* Later packets belong to a connection that was recorded. */
		if ((inner[TCP_FLAGS] & (TCP_SYN | TCP_ACK)) == TCP_SYN)
			record_add(record, "syn %s", witness_address(to, is_v6, port, text));
	} else if (protocol == IPPROTO_UDP && port) {
		record_add(record, "udp %s", witness_address(to, is_v6, port, text));
	} else {
		record_add(record, "ip %u %s", protocol, witness_address(to, is_v6, 0, text));
	}
}

static bool is_neighbour_talk(unsigned protocol, const uint8_t *inner, size_t len)
{
	return protocol == IPPROTO_ICMPV6 && len &&
	       ((inner[0] >= ICMP6_MLD_FIRST && inner[0] <= ICMP6_ND_LAST) ||
		       inner[0] == ICMP6_MLD2);
}

void packet_note(struct record *record, unsigned ethertype, const uint8_t *packet, size_t len)
{
	size_t head = 40;
	unsigned protocol;

	if (ethertype == ETH_P_IP && len >= 20) {
		head = (size_t)(packet[0] & 15) * 4;
		if (head >= 20 && head <= len)
			note(record, packet[9], packet + 16, false, packet + head, len - head);
	} else if (ethertype == ETH_P_IPV6 && len >= 40) {
		protocol = packet[6];
		if (protocol == IPPROTO_HOPOPTS &&
			len >= 48) { /* multicast reports come with one */
			protocol = packet[40];
			head = 40 + 8 * (1u + packet[41]);
		}
		if (head <= len && !is_neighbour_talk(protocol, packet + head, len - head))
			note(record, protocol, packet + 24, true, packet + head, len - head);
	} else if (ethertype != ETH_P_ARP) {
		record_add(record, "frame %04x", ethertype);
	}
}
