/* flow.c - a connection or datagram flow of a box, from the policy check to its last log line
 *
 *   flow_admit   the policy by name or address, limits           refused: one line, RST
 *   (tcp.c and udp.c: what is seen, where it leads)              flow_may for each address
 *   flow_connected                                               a line "connect", allowed
 *   flow_end                                                     a line "close" with figures; or
 *                                                                "connect", refused, when it never
 *                                                                led anywhere */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"
#include "gate/relay/udp.h"
#include <stdio.h>

static const char *protocol_of(const struct flow *flow)
{
	return flow->udp ? "udp" : "tcp";
}

static char *endpoint_text(const struct doors_endpoint *endpoint, char out[64])
{
	char address[ADDRESS_TEXT_MAX];

	snprintf(out, 64, endpoint->address.family == 6 ? "[%s]:%u" : "%s:%u",
		address_format(&endpoint->address, address), endpoint->port);
	return out;
}

/* ---- log lines ------------------------------------------------------------------------------ */

static json_t *line(const struct flow *flow, const char *type, const char *verdict)
{
	char text[64];
	json_t *event = json_pack("{s:s, s:s, s:i, s:s, s:s}", "type", type, "verdict", verdict,
		"port", (int)flow->port, "protocol", protocol_of(flow), "from",
		endpoint_text(&flow->from, text));
	const struct doors_endpoint to = { flow->aim, flow->port };
	/* A synthetic address is not logged when the name is known. */
	const struct address *address =
		flow->address.family || *flow->name ? &flow->address : &flow->aim;

	/* Needed for finding the socket. */
	json_object_set_new(event, "to", json_string(endpoint_text(&to, text)));
	if (*flow->name)
		json_object_set_new(event, "name", json_string(flow->name));
	if (address->family)
		json_object_set_new(event, "address", json_string(address_format(address, text)));
	if (flow->rule)
		json_object_set_new(event, "rule", json_string(flow->rule));
	if (flow->place)
		json_object_set_new(event, "place", json_string(flow->place));
	return event;
}

static void tell_refused(struct flow *flow)
{
	struct tenant *tenant = flow->tenant;
	struct tally_row *row = tally_get(
		&tenant->destinations, flow->name, &flow->aim, flow->port, protocol_of(flow));
	char key[EVENT_KEY_MAX], aim[ADDRESS_TEXT_MAX];
	json_t *event;

	row->refused++;
	tenant->refused++;
	tenant->changed = true;
	/* Refused datagrams are often repeated, because their sender may not notice the refusal. */
	snprintf(key, sizeof key, "udp %s %u %s", address_format(&flow->aim, aim), flow->port,
		flow->reason);
	if (flow->udp && event_is_repeated(tenant, key))
		return;
	event = line(flow, "connect", "refused");
	json_object_set_new(event, "reason", event_text(flow->reason));
	if (flow->udp)
		event_send_first(tenant, key, event);
	else
		event_send(tenant, event);
}

static void set_rule(struct flow *flow, const struct policy_rule *rule)
{
	free(flow->rule);
	free(flow->place);
	flow->rule = rule ? gate_rule_text(rule) : NULL;
	flow->place = rule ? policy_rule_place(rule) : NULL;
}

void flow_refuse(struct flow *flow, const char *reason)
{
	snprintf(flow->reason, sizeof flow->reason, "%s", reason);
}

/* ---- policy --------------------------------------------------------------------------------- */

struct policy_flow flow_question(const struct flow *flow)
{
	const struct address *address = *flow->name ? &flow->address : &flow->aim;
	struct policy_flow question = { .kind = flow->udp ? POLICY_FLOW_UDP : POLICY_FLOW_TCP,
		.name = flow->name,
		.port = flow->port };

	question.addr = *address;
	return question;
}

bool flow_may(struct flow *flow, const struct address *address)
{
	struct tenant *tenant = flow->tenant;
	struct policy_flow question = flow_question(flow);
	struct policy_verdict verdict;
	char reason[EVENT_TEXT_MAX] = "";
	const char *special = *flow->name ? policy_addr_special(address) : NULL;

	question.addr = *address;
	verdict = policy_match(tenant->matcher, &question);
	if (!verdict.allowed)
		event_reason(&verdict, "", reason);
	else if (special && !names_may_be_private(tenant, flow->name))
		snprintf(reason, sizeof reason, "the name leads to an address that is closed: %s",
			special);
	else if (verdict.needs_http && flow->check != RELAY_HTTP)
		snprintf(reason, sizeof reason, "only plain HTTP may go there");
	else
		return true;
	flow_refuse(flow, reason);
	record_closed(tenant, flow->name, address, flow->port, protocol_of(flow));
	return false;
}

/* ---- start ---------------------------------------------------------------------------------- */

static bool find_name(struct flow *flow)
{
	const char *name;
	size_t len;

	if (!address_is_synthetic(&flow->aim))
		return true;
	name = synthetic_name(flow->tenant->names, &flow->aim);
	if (!name)
		return false;
	snprintf(flow->name, sizeof flow->name, "%s", name);
	len = strlen(name);
	flow->is_box = len > 4 && !strcmp(name + len - 4, ".box");
	return true;
}

/* One tree gets at most half of what the others leave free. */
static bool process_has_room(const struct tenant *tenant)
{
	const struct process *process = tenant->process;
	size_t apart = FDS_APART + process->fds_max / 8 +
		       process->tenants.count * (DOOR_COUNT + 1) +
		       (process->flow_count - tenant->tree->flow_count) * FLOW_FDS;

	return process->fds_max > apart &&
	       (tenant->tree->flow_count + 1) * FLOW_FDS <= (process->fds_max - apart) / 2;
}

static bool enter(struct flow *flow, const struct policy_rule *rule)
{
	struct tenant *tenant = flow->tenant;
	char address[ADDRESS_TEXT_MAX];
	struct allotment *allotment;
	const char *reason = NULL;

	if (!process_has_room(tenant) || tenant->tree->new_count >= FLOWS_NEW_MAX)
		return flow_refuse(flow, "too many connections are on their way"), false;
	allotment = allot_take(
		tenant, rule, *flow->name ? flow->name : address_format(&flow->aim, address));
	if (!allotment)
		return flow_refuse(flow, "too many destinations with budgets"), false;
	if (quota_is_spent(&tenant->quota)) {
		tenant_limit_reached(tenant, LIMIT_BYTES, NULL);
		reason = "the budget of the box is spent";
	} else if (quota_is_spent(&allotment->quota)) {
		tenant_limit_reached(tenant, LIMIT_BYTES, allotment);
		reason = "the budget of this destination is spent";
	} else if (tenant->tree->flow_count >= tenant->quota.connections ||
		   !quota_enter(&tenant->quota)) {
		tenant_limit_reached(tenant, LIMIT_CONNECTIONS, NULL);
		reason = "the box has too many connections";
	} else if (!quota_enter(&allotment->quota)) {
		quota_leave(&tenant->quota);
		tenant_limit_reached(tenant, LIMIT_CONNECTIONS, allotment);
		reason = "too many connections to this destination";
	}
	if (reason) {
		allot_release(tenant, allotment);
		return flow_refuse(flow, reason), false;
	}
	flow->allotment = allotment;
	return true;
}

static void begin(struct flow *flow)
{
	struct tenant *tenant = flow->tenant;

	flow->held = synthetic_hold(tenant->names, &flow->aim);
	flow->destination = tally_get(
		&tenant->destinations, flow->name, &flow->aim, flow->port, protocol_of(flow));
	tally_enter(&tenant->destinations, flow->destination);
	flow->recorded = record_connection(flow);
	flow->since_us = clock_mono_us();
	flow->since_wall = clock_wall_us();
	tenant->connections++;
	tenant->changed = true;
	tenant->flow_count++;
	tenant->tree->flow_count++;
	tenant->tree->new_count++;
	tenant->process->flow_count++;
	flow->next = tenant->flows;
	flow->at = &tenant->flows;
	if (flow->next)
		flow->next->at = &flow->next;
	tenant->flows = flow;
}

static void flow_free(struct flow *flow)
{
	free(flow->rule);
	free(flow->place);
	free(flow->host);
	free(flow->method);
	free(flow->path);
	free(flow);
}

/* Named flows on 443 must be TLS, on 80 HTTP; on other ports they are checked if they are either. A
 * dialled address has no name to compare with. */
static enum relay_check check_of(const struct flow *flow, bool needs_http)
{
	if (needs_http)
		return RELAY_HTTP;
	if (!*flow->name)
		return RELAY_BLIND;
	return flow->port == 443 ? RELAY_TLS : flow->port == 80 ? RELAY_HTTP : RELAY_FREE;
}

static bool is_admitted(struct flow *flow)
{
	static const struct address none;
	struct policy_verdict verdict;
	struct policy_flow question;
	char reason[EVENT_TEXT_MAX];

	if (!find_name(flow))
		return flow_refuse(flow, "the address stands for no name"), false;
	question = flow_question(flow);
	verdict = policy_match(flow->tenant->matcher, &question);
	set_rule(flow, verdict.rule);
	if (!verdict.allowed) {
		flow_refuse(flow, event_reason(&verdict, "", reason));
		record_closed(flow->tenant, flow->name, *flow->name ? &none : &flow->aim,
			flow->port, protocol_of(flow));
		return false;
	}
	if (flow->udp && (flow->is_box || verdict.needs_http))
		return flow_refuse(flow, flow->is_box ? "boxes reach each other by TCP alone"
						      : "only plain HTTP may go there"),
		       false;
	flow->check = check_of(flow, verdict.needs_http);
	return enter(flow, verdict.rule);
}

struct flow *flow_admit(struct tenant *tenant, bool udp, const struct doors_endpoint *aim,
	const struct doors_endpoint *from)
{
	struct flow *flow = xnew(struct flow);

	flow->tenant = tenant;
	flow->udp = udp;
	flow->aim = aim->address;
	flow->port = aim->port;
	flow->from = *from;
	if (!is_admitted(flow)) {
		tell_refused(flow);
		flow_free(flow);
		return NULL;
	}
	begin(flow);
	return flow;
}

void flow_connected(struct flow *flow, const struct address *address)
{
	static const struct address none;

	flow->address = address ? *address : none;
	flow->reason[0] = '\0'; /* set by addresses that were skipped */
	if (*flow->name && flow->address.family)
		flow->destination->address = flow->address;
	if (flow->told)
		return;
	flow->told = true;
	flow->tenant->tree->new_count--;
	event_send(flow->tenant, line(flow, "connect", "allowed"));
}

/* ---- end ------------------------------------------------------------------------------------ */

void flow_count(struct flow *flow, uint64_t out, uint64_t in)
{
	struct tenant *tenant = flow->tenant;
	uint64_t more_out = out - flow->counted_out, more_in = in - flow->counted_in;

	if (!more_out && !more_in)
		return;
	tenant->changed = true;
	tenant->bytes_out += more_out;
	tenant->bytes_in += more_in;
	flow->destination->bytes_out += more_out;
	flow->destination->bytes_in += more_in;
	flow->destination->last_us = clock_wall_us();
	if (flow->recorded) {
		flow->recorded->bytes_out += more_out;
		flow->recorded->bytes_in += more_in;
	}
	flow->counted_out = out;
	flow->counted_in = in;
}

void flow_figures(struct flow *flow)
{
	uint64_t out = 0, in = 0;

	if (flow->relay)
		relay_figures(flow->relay, &out, &in);
	else if (flow->udp_relay)
		udp_relay_figures(flow->udp_relay, &out, &in);
	flow_count(flow, out, in);
}

/* Called for every few bytes of all boxes: returns at once while no box sleeps. */
void flow_moved(struct flow *flow, bool out)
{
	struct process *process = flow->tenant->process;
	size_t len = strlen(flow->name);

	if (!process->asleep)
		return;
	if (!out) {
		tenant_data_came(flow->tenant, GATE_TELL_OWN);
		return;
	}
	for (struct named *node = flow->is_box ? process->tenants.oldest : NULL; node;
		node = node->newer) {
		struct tenant *other = (struct tenant *)node;

		if (other->asleep && strlen(other->name) == len - strlen(".box") &&
			!strncmp(other->name, flow->name, strlen(other->name)))
			tenant_data_came(other, GATE_TELL_PEERS);
	}
}

static void tell_end(struct flow *flow, const struct relay_report *report)
{
	bool refused = *flow->reason || report->end == RELAY_END_REFUSED;
	json_t *event;

	if (!*flow->reason)
		flow_refuse(flow, report->why);
	if (!flow->told && refused) {
		tell_refused(flow);
		return;
	}
	if (!flow->told)
		event_send(flow->tenant, line(flow, "connect", "allowed"));
	event = line(flow, "close", refused ? "refused" : "allowed");
	json_object_set_new(event, "bytes_out", json_integer((json_int_t)flow->counted_out));
	json_object_set_new(event, "bytes_in", json_integer((json_int_t)flow->counted_in));
	json_object_set_new(
		event, "duration_ms", json_integer((clock_mono_us() - flow->since_us) / 1000));
	json_object_set_new(event, "end",
		json_string(relay_end_name(refused ? RELAY_END_REFUSED : report->end)));
	if (*flow->reason)
		json_object_set_new(event, "reason", event_text(flow->reason));
	if (refused)
		flow->tenant->refused++;
	event_send(flow->tenant, event);
}

static void stop_waiting(struct flow *flow)
{
	if (!flow->ticket)
		return;
	flow->ticket = 0;
	*flow->at_waiting = flow->next_waiting;
	if (flow->next_waiting)
		flow->next_waiting->at_waiting = flow->at_waiting;
}

void flow_end(struct flow *flow, const struct relay_report *report)
{
	struct tenant *tenant = flow->tenant;

	flow_count(flow, report->bytes_out, report->bytes_in);
	if (report->end == RELAY_END_BUDGET)
		tenant_limit_reached(tenant, LIMIT_BYTES,
			quota_is_spent(&tenant->quota) ? NULL : flow->allotment);
	tell_end(flow, report);
	stop_waiting(flow);
	udp_pending_free(flow);
	quota_leave(&tenant->quota);
	quota_leave(&flow->allotment->quota);
	allot_release(tenant, flow->allotment);
	tally_leave(&tenant->destinations, flow->destination);
	if (flow->recorded)
		tally_leave(&tenant->record->seen, flow->recorded);
	if (flow->held)
		synthetic_release(tenant->names, &flow->aim);
	tenant->changed = true;
	tenant->flow_count--;
	tenant->tree->flow_count--;
	tenant->tree->new_count -= !flow->told;
	tenant->process->flow_count--;
	*flow->at = flow->next;
	if (flow->next)
		flow->next->at = flow->at;
	flow_free(flow);
}

void flow_cut(struct flow *flow, const char *why)
{
	if (flow->udp)
		udp_cut(flow, why);
	else
		relay_cut(flow->relay, why);
}

void flow_break(struct flow *flow, const char *why)
{
	struct relay_report report = { .end = RELAY_END_CUT };
	struct udp_relay *udp_relay = flow->udp_relay;
	struct relay *relay = flow->relay;

	flow_figures(flow);
	report.bytes_out = flow->counted_out;
	report.bytes_in = flow->counted_in;
	snprintf(report.why, sizeof report.why, "%s", why);
	if (relay)
		relay_free(relay);
	if (udp_relay)
		udp_relay_free(udp_relay);
	flow_end(flow, &report);
}

json_t *flow_json(struct flow *flow)
{
	char text[64], since[CLOCK_RFC3339_MAX];
	const struct address *address =
		flow->address.family || *flow->name ? &flow->address : &flow->aim;
	json_t *value;

	flow_figures(flow);
	value = json_pack("{s:i, s:s, s:s, s:I, s:I, s:s}", "port", (int)flow->port, "protocol",
		protocol_of(flow), "from", endpoint_text(&flow->from, text), "bytes_out",
		(json_int_t)flow->counted_out, "bytes_in", (json_int_t)flow->counted_in, "since",
		clock_rfc3339(flow->since_wall, since));
	if (*flow->name)
		json_object_set_new(value, "name", json_string(flow->name));
	if (address->family)
		json_object_set_new(value, "address", json_string(address_format(address, text)));
	if (flow->rule)
		json_object_set_new(value, "rule", json_string(flow->rule));
	return value;
}

/* ---- requests to the daemon ----------------------------------------------------------------- */

void flow_wait(struct flow *flow)
{
	struct process *process = flow->tenant->process;

	flow->ticket = ++process->ticket;
	flow->next_waiting = process->waiting;
	flow->at_waiting = &process->waiting;
	if (flow->next_waiting)
		flow->next_waiting->at_waiting = &flow->next_waiting;
	process->waiting = flow;
}

void flow_answered(struct process *process, uint64_t ticket, int fd, const struct err *err)
{
	struct flow *flow = process->waiting;

	while (flow && flow->ticket != ticket)
		flow = flow->next_waiting;
	if (!flow) { /* it has ended meanwhile */
		if (fd >= 0)
			close(fd);
		return;
	}
	stop_waiting(flow);
	if (flow->udp)
		udp_answered(flow, fd, err);
	else
		tcp_answered(flow, fd, err);
}
