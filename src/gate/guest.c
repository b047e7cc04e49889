/* guest.c - a box as the gate knows it: its policy, its doors, its figures
 *
 * A policy is replaced in one step: the new one is compiled, replaces the old, and every live
 * flow is checked again. Any failure with a policy ends the service of the box: without a policy
 * there is no network. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "gate/gate_internal.h"
#include "loop/loop.h"

enum {
	DESTINATIONS_MAX = 1024,
	SECOND_US = 1000 * 1000,
	NAMES_US = 2 * SECOND_US, /* from the first new name to its report; longer for long lists */
	NAMES_PER_SECOND = 256,
	ROWS_PER_SECOND = 256,
	QUEUED_MAX = 16 * 1024 * 1024,
	QUESTIONS_RATE = 1000,
	RESERVED_LEAST = 1024, /* with fewer left, more are requested */
};

static const char *const limit_names[] = {
	[LIMIT_BYTES] = "bytes",
	[LIMIT_CONNECTIONS] = "connections",
	[LIMIT_RATE] = "rate",
};
static_assert(ARRAY_LEN(limit_names) == LIMIT_KIND_COUNT, "every limit has a name");

struct guest *guest_find(struct process *process, const char *key)
{
	return key ? (struct guest *)name_table_find(&process->guests, key, 0) : NULL;
}

json_t *guest_message(const struct guest *guest, const char *what)
{
	return json_pack("{s:s, s:s}", "do", what, "box", guest->key);
}

static void tell(struct guest *guest, const char *what, const char *key, json_t *value)
{
	json_t *message = guest_message(guest, what);

	if (key)
		json_object_set_new(message, key, value);
	channel_send(guest->process->channel, message, NULL, 0);
}

/* ---- policy --------------------------------------------------------------------------------- */

static int read_policy(json_t *message, struct policy **ret, struct err *err)
{
	_cleanup_free_ char *text = json_text(json_object_get(message, "policy"));

	return policy_parse(text, strlen(text), ret, NULL, err);
}

static char **read_strings(json_t *array)
{
	char **list = NULL;
	json_t *item;
	size_t i;

	json_array_foreach (array, i, item)
		strv_add(&list, json_string_value(item));
	return list;
}

static int compile(struct guest *guest, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = policy_copy(guest->policy);
	const struct policy_world world = { .package_hosts =
						    (const char *const *)guest->package_hosts,
		.host_ranges = (const char *const *)guest->process->host_ranges };
	struct policy_matcher *matcher;

	/* Everything public is allowed after the policy's own rules: what it denies stays
	 * denied. */
	if (guest->recording)
		policy->preset = POLICY_OPEN;
	if (policy_compile(policy, &world, &matcher, err) < 0)
		return -1;
	policy_matcher_free(guest->matcher);
	guest->matcher = matcher;
	guest->quota.rate = policy->limits.rate;
	tree_set_rate(guest->process, guest->tree);
	guest->quota.budget = policy->limits.bytes;
	guest->quota.connections = policy->limits.connections
					   ? MIN(policy->limits.connections, (uint64_t)FLOWS_MAX)
					   : FLOWS_MAX;
	return 0;
}

/* True when the flow may stay; its limits become those of the rule that allows it now. */
static bool is_still_allowed(struct flow *flow)
{
	struct policy_flow question = flow_question(flow);
	struct policy_verdict verdict = policy_match(flow->guest->matcher, &question);

	if (!verdict.allowed || (verdict.needs_http && flow->check != RELAY_HTTP))
		return false;
	if (flow->address.family && *flow->name && policy_addr_special(&flow->address) &&
		!names_may_be_private(flow->guest, flow->name))
		return false;
	if (flow->method) {
		question.kind = POLICY_FLOW_HTTP;
		question.seen = flow->host;
		question.method = flow->method;
		question.path = flow->path;
		verdict = policy_match(flow->guest->matcher, &question);
		if (!verdict.allowed)
			return false;
	}
	free(flow->rule);
	free(flow->place);
	flow->rule = gate_rule_text(verdict.rule);
	flow->place = policy_rule_place(verdict.rule);
	allot_limits(flow->allotment, &verdict.rule->limits);
	return true;
}

static unsigned cut_forbidden(struct guest *guest)
{
	unsigned cut = 0;

	for (struct flow *flow = guest->flows, *next; flow; flow = next) {
		next = flow->next;
		if (is_still_allowed(flow))
			continue;
		flow_cut(flow, "the policy was changed");
		cut++;
	}
	return cut;
}

/* Whether the policy names that box: the other half of the daemon's check when boxes connect. */
static bool knows(const struct guest *guest, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < guest->policy->count; i++) {
		const struct policy_rule *rule = &guest->policy->rules[i];

		if (rule->target == POLICY_BOX && !rule->deny && !strncmp(rule->name, name, len) &&
			!strcmp(rule->name + len, ".box"))
			return true;
	}
	return false;
}

static bool leads_to(const struct flow *flow, const char *name)
{
	size_t len = strlen(name);

	return flow->is_box && !strncmp(flow->name, name, len) && !strcmp(flow->name + len, ".box");
}

/* Closes connections of other boxes into this one that it no longer allows. It was called name
 * when they began. */
static unsigned cut_strangers(struct guest *guest, const char *name)
{
	bool is_renamed = strcmp(name, guest->name) != 0;
	unsigned cut = 0;

	for (struct named *node = guest->process->guests.oldest; node; node = node->newer) {
		struct guest *other = (struct guest *)node;
		bool is_welcome = !is_renamed && knows(guest, other->name);

		for (struct flow *flow = other->flows; flow && !is_welcome; flow = flow->next)
			if (leads_to(flow, name)) {
				flow_cut(flow, is_renamed ? "the other box has a new name"
							  : "the other box's policy was changed");
				cut++;
			}
	}
	return cut;
}

static void set_policy(struct guest *guest, struct policy *policy, json_t *message)
{
	policy_free(guest->policy);
	guest->policy = policy;
	strv_free(guest->package_hosts);
	guest->package_hosts = read_strings(json_object_get(message, "package_hosts"));
	guest->version = (uint64_t)json_integer_value(json_object_get(message, "version"));
	free(guest->name);
	guest->name = xstrdup(json_string_value(json_object_get(message, "name")));
}

int guest_set_policy(struct guest *guest, json_t *message, struct err *err)
{
	struct policy *policy;

	if (read_policy(message, &policy, err) < 0)
		return -1;
	set_policy(guest, policy, message);
	if (compile(guest, err) < 0)
		return -1;
	tell(guest, "event", "event",
		json_pack("{s:s, s:I, s:i}", "type", "policy", "version",
			(json_int_t)guest->version, "cut",
			(int)(cut_forbidden(guest) + cut_strangers(guest, guest->name))));
	return 0;
}

void guest_rename(struct guest *guest, const char *name)
{
	_cleanup_free_ char *old = steal_ptr(&guest->name);

	guest->name = xstrdup(name);
	if (!strcmp(old, name))
		return;
	cut_strangers(guest, old);
	/* The boxes it is connected to know it by its old name. */
	for (struct named *node = guest->process->guests.oldest; node; node = node->newer) {
		struct guest *other = (struct guest *)node;

		for (struct flow *flow = guest->flows; flow; flow = flow->next)
			if (leads_to(flow, other->name) && !knows(other, name))
				flow_cut(flow, "the other box's policy does not name this one");
	}
}

void guest_recompile(struct guest *guest)
{
	struct err err = ERR_INIT;

	if (compile(guest, &err) == 0) {
		cut_forbidden(guest);
		return;
	}
	log_error("a box is closed: its policy cannot be made ready", kv_str("box", guest->key),
		kv_err(&err));
	guest_free(guest, "its policy cannot be made ready");
}

void guest_set_recording(struct guest *guest, bool on)
{
	if (guest->recording == on)
		return;
	if (on)
		record_start(guest);
	guest->recording = on;
	guest_recompile(guest);
}

/* ---- doors ---------------------------------------------------------------------------------- */

static const struct {
	enum door door;
	loop_fd_fn fn;
} door_fns[] = { { DOOR_TCP, tcp_ready }, { DOOR_UDP, udp_ready },
	{ DOOR_REFUSED, refused_ready } };

static void on_pause_over(void *arg)
{
	struct guest *guest = arg;

	for (size_t i = 0; i < ARRAY_LEN(door_fns); i++)
		if (guest->watches[door_fns[i].door])
			loop_fd_set(guest->watches[door_fns[i].door], LOOP_READ);
}

void guest_pause_door(struct guest *guest, enum door door, unsigned ms)
{
	loop_fd_set(guest->watches[door], 0);
	loop_timer_start(guest->pause, ms);
}

static int take_doors(struct guest *guest, json_t *numbers, int *fds, size_t count, struct err *err)
{
	if (json_array_size(numbers) != count)
		return err_set(err, ERR_LIMIT, "the gate has no file descriptors left");
	for (size_t i = 0; i < count; i++) {
		json_int_t door = json_integer_value(json_array_get(numbers, i));

		assert(door >= 0 && door < DOOR_COUNT);
		guest->doors[door] = steal_fd(&fds[i]);
	}
	return 0;
}

static size_t gather(const struct guest *guest, enum door first, enum door second, int out[2])
{
	size_t count = 0;

	if (guest->doors[first] >= 0)
		out[count++] = guest->doors[first];
	if (guest->doors[second] >= 0)
		out[count++] = guest->doors[second];
	return count;
}

static int open_doors(struct guest *guest, struct err *err)
{
	static const enum door resolvers[] = { DOOR_DNS_UDP4, DOOR_DNS_UDP6, DOOR_DNS_TCP4,
		DOOR_DNS_TCP6 };
	int udp[2], tcp[2];
	struct dns_box_options options = { .udp = udp,
		.tcp = tcp,
		.arg = guest,
		.synthetic = guest->names,
		.ipv6 = true,
		.rate = QUESTIONS_RATE,
		.together = &guest->tree->questions };

	options.udp_count = gather(guest, DOOR_DNS_UDP4, DOOR_DNS_UDP6, udp);
	options.tcp_count = gather(guest, DOOR_DNS_TCP4, DOOR_DNS_TCP6, tcp);
	if (dns_server_add(guest->process->dns, &options, &guest->dns, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(resolvers); i++)
		guest->doors[resolvers[i]] = -1; /* owned by the resolver now */
	guest->pause = loop_timer_new(guest->process->loop, on_pause_over, guest);
	for (size_t i = 0; i < ARRAY_LEN(door_fns); i++) {
		enum door door = door_fns[i].door;

		if (guest->doors[door] >= 0)
			guest->watches[door] = loop_fd_new(guest->process->loop, guest->doors[door],
				LOOP_READ, door_fns[i].fn, guest);
	}
	return 0;
}

static void close_doors(struct guest *guest)
{
	dns_box_free(guest->dns);
	for (int i = 0; i < DOOR_COUNT; i++) {
		loop_fd_free(guest->watches[i]);
		if (guest->doors[i] >= 0)
			close(guest->doors[i]);
	}
	loop_timer_free(guest->pause);
}

/* ---- adding and removing -------------------------------------------------------------------- */

static struct guest *guest_new(struct process *process, const char *key, const char *tree)
{
	struct guest *guest = xnew(struct guest);

	guest->process = process;
	guest->key = xstrdup(key);
	guest->dial = process->dial;
	guest->tree = tree_join(process, tree ? tree : key);
	guest->dial.share = &guest->tree->share;
	for (int i = 0; i < DOOR_COUNT; i++)
		guest->doors[i] = -1;
	name_table_init(&guest->allotments);
	name_table_init(&guest->repeats);
	tally_init(&guest->destinations, DESTINATIONS_MAX);
	name_table_add(&process->guests, &guest->node, guest->key, 0);
	return guest;
}

static void load_names(struct guest *guest, json_t *message)
{
	json_t *saved = json_object_get(message, "names");
	struct err err = ERR_INIT;

	/* Nothing was stored for a box that never asked for a name. */
	if (!json_object_size(saved) || synthetic_load(saved, NAMES_MAX, &guest->names, &err) < 0)
		guest->names = synthetic_new(NAMES_MAX);
	if (err.kind)
		log_warn("the addresses of names of a box start again", kv_str("box", guest->key),
			kv_err(&err));
	synthetic_skip(
		guest->names, (uint64_t)json_integer_value(json_object_get(message, "given")));
	guest->names_told = synthetic_version(guest->names);
	guest_reserve(guest, (uint64_t)json_integer_value(json_object_get(message, "reserved")));
}

void guest_reserve(struct guest *guest, uint64_t reserved)
{
	guest->reserve_asked = false;
	guest->reserved = reserved;
	synthetic_reserve(guest->names, reserved);
}

void guest_check_reserved(struct guest *guest)
{
	if (guest->reserve_asked ||
		synthetic_given(guest->names) + RESERVED_LEAST < guest->reserved)
		return;
	guest->reserve_asked = true;
	tell(guest, "reserve", NULL, NULL);
}

int guest_add(struct process *process, json_t *message, int *fds, size_t count, struct err *err)
{
	struct guest *guest = guest_new(process, json_string_value(json_object_get(message, "box")),
		json_string_value(json_object_get(message, "tree")));
	struct policy *policy;

	guest->recording = json_is_true(json_object_get(message, "recording"));
	if (guest->recording)
		record_start(guest);
	guest_set_asleep(guest, (unsigned)json_integer_value(json_object_get(message, "asleep")));
	load_names(guest, message);
	allot_load(guest, json_object_get(message, "spent"));
	if (read_policy(message, &policy, err) < 0)
		goto fail;
	set_policy(guest, policy, message);
	if (compile(guest, err) < 0 ||
		take_doors(guest, json_object_get(message, "doors"), fds, count, err) < 0 ||
		open_doors(guest, err) < 0)
		goto fail;
	return 0;
fail:
	guest_free(guest, "it could not be served");
	return -1;
}

void guest_set_asleep(struct guest *guest, unsigned what)
{
	guest->process->asleep += !!what - !!guest->asleep;
	guest->asleep = what;
}

void guest_data_came(struct guest *guest, enum gate_asleep how)
{
	if (!(guest->asleep & how))
		return;
	guest_set_asleep(guest, guest->asleep & ~(unsigned)how);
	tell(guest, "traffic", "peer", json_integer(how == GATE_TELL_PEERS));
}

static json_t *meters_json(const struct guest *guest)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "bytes_out",
		(json_int_t)guest->bytes_out, "bytes_in", (json_int_t)guest->bytes_in,
		"connections", (json_int_t)guest->connections, "connections_now",
		(json_int_t)guest->flow_count, "refused", (json_int_t)guest->refused, "questions",
		(json_int_t)guest->questions, "destinations", tally_json(&guest->destinations),
		"spent", allot_save(guest));
}

static void tell_names(struct guest *guest)
{
	guest->names_due = 0;
	guest->names_told = synthetic_version(guest->names);
	tell(guest, "names", "saved", synthetic_save(guest->names));
}

void guest_free(struct guest *guest, const char *why)
{
	while (guest->flows)
		flow_break(guest->flows, why);
	guest_set_asleep(guest, 0);
	event_forget_all(guest);
	if (guest->changed)
		tell(guest, "meters", "meters", meters_json(guest));
	if (guest->names_told != synthetic_version(guest->names))
		tell_names(guest);
	tell(guest, "dropped", NULL, NULL);
	close_doors(guest);
	synthetic_free(guest->names);
	record_free(guest);
	tally_done(&guest->destinations);
	allot_free_all(guest);
	policy_free(guest->policy);
	policy_matcher_free(guest->matcher);
	strv_free(guest->package_hosts);
	name_table_remove(&guest->process->guests, &guest->node);
	tree_leave(guest->process, guest->tree);
	free(guest->key);
	free(guest->name);
	free(guest);
}

/* ---- every second --------------------------------------------------------------------------- */

static void look_at_names(struct guest *guest, int64_t now)
{
	if (guest->names_told == synthetic_version(guest->names))
		return;
	if (!guest->names_due)
		guest->names_due =
			now + NAMES_US +
			(int64_t)synthetic_count(guest->names) * SECOND_US / NAMES_PER_SECOND;
	else if (now >= guest->names_due)
		tell_names(guest);
}

void guest_tick(struct guest *guest, int64_t now)
{
	for (struct flow *flow = guest->flows, *next; flow; flow = next) {
		next = flow->next;
		flow_figures(flow);
		if (flow->udp)
			udp_tick(flow, now);
	}
	allot_tick(guest);
	event_tick(guest, now);
	if (channel_queued(guest->process->channel) > QUEUED_MAX)
		return; /* the daemon is busy: figures can wait, they are totals */
	look_at_names(guest, now);
	if (!guest->changed || now < guest->meters_due)
		return;
	guest->changed = false;
	guest->meters_due = now + SECOND_US / 2 +
			    (int64_t)(guest->destinations.rows.count + guest->allotments.count) *
				    SECOND_US / ROWS_PER_SECOND;
	tell(guest, "meters", "meters", meters_json(guest));
}

void guest_limit_reached(
	struct guest *guest, enum limit_kind kind, const struct allotment *allotment)
{
	int64_t now = clock_mono_us(), *told = &guest->limit_told[kind][allotment != NULL];
	/* The built-in limit of every box is not part of its policy, so it is not reported. */
	bool own = allotment || kind != LIMIT_CONNECTIONS || guest->policy->limits.connections;
	json_t *data;

	if (*told && now - *told < SECOND_US)
		return;
	*told = now;
	data = json_pack("{s:s, s:s, s:s}", "limit", limit_names[kind], "scope",
		allotment ? "rule" : "box", "on_limit",
		policy_on_limit_name(own ? guest->policy->on_limit : POLICY_NOTIFY));
	if (allotment) {
		json_object_set_new(data, "rule", json_string(allotment->rule));
		json_object_set_new(data, "name", json_string(allotment->destination));
	}
	tell(guest, "limit", "data", data);
}
