/* refused.c - logs packets that the rules inside the namespace refused
 *
 * The kernel reports them faster than anybody needs: they are read in batches with pauses between,
 * and what does not fit the socket's buffer meanwhile is lost and counted. */
#include "base/alloc.h"
#include "gate/gate_internal.h"
#include <netinet/in.h>
#include <stdio.h>

enum { BATCH = 64, PAUSE_MS = 100 };

static const char *protocol_text(uint8_t protocol, char out[16])
{
	static const struct {
		uint8_t number;
		const char *text;
	} known[] = { { IPPROTO_TCP, "tcp" }, { IPPROTO_UDP, "udp" }, { IPPROTO_ICMP, "icmp" },
		{ IPPROTO_ICMPV6, "icmp6" }, { IPPROTO_GRE, "gre" }, { IPPROTO_SCTP, "sctp" },
		{ IPPROTO_IPV6, "6in4" }, { IPPROTO_IPIP, "ipip" }, { IPPROTO_ESP, "esp" },
		{ IPPROTO_AH, "ah" }, { IPPROTO_UDPLITE, "udplite" }, { IPPROTO_DCCP, "dccp" },
		{ IPPROTO_IGMP, "igmp" } };

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (known[i].number == protocol)
			return known[i].text;
	snprintf(out, 16, "%u", protocol);
	return out;
}

static void tell(struct tenant *tenant, const struct doors_refused *packet)
{
	char key[EVENT_KEY_MAX], protocol[16], from[ADDRESS_TEXT_MAX], to[ADDRESS_TEXT_MAX],
		whole_from[EVENT_TEXT_MAX];
	const char *text = protocol_text(packet->protocol, protocol), *closed;
	json_t *event;

	tenant->refused++;
	tenant->changed = true;
	address_format(&packet->from.address, from);
	address_format(&packet->to.address, to);
	closed = policy_addr_special(&packet->to.address);
	record_closed(tenant, "", &packet->to.address, packet->to.port,
		packet->protocol == IPPROTO_UDP	  ? "udp"
		: packet->protocol == IPPROTO_TCP ? "tcp"
						  : "other");
	/* The box's own port differs with each try, so it is not part of the key. */
	snprintf(key, sizeof key, "packet %s %s %s %u", text, from, to, packet->to.port);
	if (event_is_repeated(tenant, key))
		return;
	snprintf(whole_from, sizeof whole_from,
		packet->from.address.family == 6 ? "[%s]:%u" : "%s:%u", from, packet->from.port);
	event = json_pack("{s:s, s:s, s:s, s:s}", "type", "packet", "verdict", "refused",
		"protocol", text, "from", whole_from);
	if (packet->to.address.family)
		json_object_set_new(event, "address", json_string(to));
	if (packet->to.port)
		json_object_set_new(event, "port", json_integer(packet->to.port));
	json_object_set_new(event, "reason",
		json_sprintf("no rule leads to this address%s%s", closed ? ": " : "",
			closed ? closed : ""));
	event_send_first(tenant, key, event);
}

void refused_ready(void *arg, unsigned ready)
{
	struct tenant *tenant = arg;
	struct doors_refused packets[BATCH];
	uint64_t lost = 0;
	size_t count = doors_refused_read(tenant->doors[DOOR_REFUSED], packets, BATCH, &lost);

	(void)ready;
	for (size_t i = 0; i < count; i++)
		tell(tenant, &packets[i]);
	tenant->events_dropped += lost;
	tenant->refused += lost;
	if (count == BATCH || lost || !count)
		tenant_pause_door(tenant, DOOR_REFUSED, PAUSE_MS);
}
