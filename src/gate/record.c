/* record.c - watch mode: what a box would need, and what would be refused in any case */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"

enum { SEEN_MAX = 2048, CLOSED_MAX = 256 };

void record_free(struct guest *guest)
{
	if (!guest->record)
		return;
	for (struct flow *flow = guest->flows; flow; flow = flow->next)
		flow->recorded = NULL;
	tally_done(&guest->record->seen);
	tally_done(&guest->record->closed);
	free(guest->record);
	guest->record = NULL;
}

void record_start(struct guest *guest)
{
	record_free(guest);
	guest->record = xnew(struct record);
	guest->record->since = clock_wall_us();
	tally_init(&guest->record->seen, SEEN_MAX);
	tally_init(&guest->record->closed, CLOSED_MAX);
}

void record_question(struct guest *guest, const char *name)
{
	static const struct address none;

	if (guest->recording)
		tally_get(&guest->record->seen, name, &none, 0, "dns")->questions++;
}

struct tally_row *record_connection(struct flow *flow)
{
	struct guest *guest = flow->guest;
	struct tally_row *row;

	if (!guest->recording)
		return NULL;
	row = tally_get(&guest->record->seen, flow->name, &flow->aim, flow->port,
		flow->udp ? "udp" : "tcp");
	/* A row stays as long as a flow points at it. */
	tally_enter(&guest->record->seen, row);
	return row;
}

void record_closed(struct guest *guest, const char *name, const struct address *address,
	uint16_t port, const char *protocol)
{
	struct tally_row *row;

	if (!guest->recording)
		return;
	row = tally_get(&guest->record->closed, name, address, port, protocol);
	row->refused++;
	if (row != &guest->record->closed.other && address->family) {
		row->address = *address;
		row->reason = policy_addr_special(address);
	}
}

/* Queries were counted by name; here they are added to the rows of connected destinations, and
 * names that were only resolved get rows of their own. */
static json_t *seen_json(const struct record *record)
{
	json_t *rows = tally_json(&record->seen), *row;
	_cleanup_json_ json_t *asked = json_object(), *connected = json_object();
	size_t i;

	json_array_foreach (rows, i, row) {
		json_t *name = json_object_get(row, "name");
		bool is_question =
			!strcmp(json_string_value(json_object_get(row, "protocol")), "dns");

		if (name)
			json_object_set(is_question ? asked : connected, json_string_value(name),
				json_object_get(row, "questions"));
	}
	for (i = json_array_size(rows); i--;) {
		const char *name;

		row = json_array_get(rows, i);
		name = json_string_value(json_object_get(row, "name"));
		if (!name)
			continue;
		if (strcmp(json_string_value(json_object_get(row, "protocol")), "dns")) {
			if (json_object_get(asked, name))
				json_object_set(row, "questions", json_object_get(asked, name));
		} else if (json_object_get(connected, name)) {
			json_array_remove(rows, i);
		}
	}
	return rows;
}

json_t *record_json(const struct guest *guest)
{
	char since[CLOCK_RFC3339_MAX];

	if (!guest->record)
		return json_pack("{s:[], s:[]}", "destinations", "private");
	return json_pack("{s:s, s:o, s:o}", "since", clock_rfc3339(guest->record->since, since),
		"destinations", seen_json(guest->record), "private",
		tally_json(&guest->record->closed));
}
