/* record.c - watch mode: what a box would need, and what would be refused in any case */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"

enum { SEEN_MAX = 2048, CLOSED_MAX = 256 };

void record_free(struct tenant *tenant)
{
	if (!tenant->record)
		return;
	for (struct flow *flow = tenant->flows; flow; flow = flow->next)
		flow->recorded = NULL;
	tally_done(&tenant->record->seen);
	tally_done(&tenant->record->closed);
	free(tenant->record);
	tenant->record = NULL;
}

void record_start(struct tenant *tenant)
{
	record_free(tenant);
	tenant->record = xnew(struct record);
	tenant->record->since = clock_wall_us();
	tally_init(&tenant->record->seen, SEEN_MAX);
	tally_init(&tenant->record->closed, CLOSED_MAX);
}

void record_question(struct tenant *tenant, const char *name)
{
	static const struct address none;

	if (tenant->recording)
		tally_get(&tenant->record->seen, name, &none, 0, "dns")->questions++;
}

struct tally_row *record_connection(struct flow *flow)
{
	struct tenant *tenant = flow->tenant;
	struct tally_row *row;

	if (!tenant->recording)
		return NULL;
	row = tally_get(&tenant->record->seen, flow->name, &flow->aim, flow->port,
		flow->udp ? "udp" : "tcp");
	/* A row stays as long as a flow points at it. */
	tally_enter(&tenant->record->seen, row);
	return row;
}

void record_closed(struct tenant *tenant, const char *name, const struct address *address,
	uint16_t port, const char *protocol)
{
	struct tally_row *row;

	if (!tenant->recording)
		return;
	row = tally_get(&tenant->record->closed, name, address, port, protocol);
	row->refused++;
	if (row != &tenant->record->closed.other && address->family) {
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

json_t *record_json(const struct tenant *tenant)
{
	char since[CLOCK_RFC3339_MAX];

	if (!tenant->record)
		return json_pack("{s:[], s:[]}", "destinations", "private");
	return json_pack("{s:s, s:o, s:o}", "since", clock_rfc3339(tenant->record->since, since),
		"destinations", seen_json(tenant->record), "private",
		tally_json(&tenant->record->closed));
}
