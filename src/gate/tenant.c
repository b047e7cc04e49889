/* tenant.c - a box as the gate knows it: its policy, its doors, its figures
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

struct tenant *tenant_find(struct process *process, const char *key)
{
	return key ? (struct tenant *)name_table_find(&process->tenants, key, 0) : NULL;
}

json_t *tenant_message(const struct tenant *tenant, const char *what)
{
	return json_pack("{s:s, s:s}", "do", what, "box", tenant->key);
}

static void tell(struct tenant *tenant, const char *what, const char *key, json_t *value)
{
	json_t *message = tenant_message(tenant, what);

	if (key)
		json_object_set_new(message, key, value);
	channel_send(tenant->process->channel, message, NULL, 0);
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

static int compile(struct tenant *tenant, struct err *err)
{
	_cleanup_(policy_freep) struct policy *policy = policy_copy(tenant->policy);
	const struct policy_world world = { .package_hosts =
						    (const char *const *)tenant->package_hosts,
		.host_ranges = (const char *const *)tenant->process->host_ranges };
	struct policy_matcher *matcher;

	/* Everything public is allowed after the policy's own rules: what it denies stays
	 * denied. */
	if (tenant->recording)
		policy->preset = POLICY_OPEN;
	if (policy_compile(policy, &world, &matcher, err) < 0)
		return -1;
	policy_matcher_free(tenant->matcher);
	tenant->matcher = matcher;
	tenant->quota.rate = policy->limits.rate;
	tree_set_rate(tenant->process, tenant->tree);
	tenant->quota.budget = policy->limits.bytes;
	tenant->quota.connections = policy->limits.connections
					    ? MIN(policy->limits.connections, (uint64_t)FLOWS_MAX)
					    : FLOWS_MAX;
	return 0;
}

/* True when the flow may stay; its limits become those of the rule that allows it now. */
static bool is_still_allowed(struct flow *flow)
{
	struct policy_flow question = flow_question(flow);
	struct policy_verdict verdict = policy_match(flow->tenant->matcher, &question);

	if (!verdict.allowed || (verdict.needs_http && flow->check != RELAY_HTTP))
		return false;
	if (flow->address.family && *flow->name && policy_addr_special(&flow->address) &&
		!names_may_be_private(flow->tenant, flow->name))
		return false;
	if (flow->method) {
		question.kind = POLICY_FLOW_HTTP;
		question.seen = flow->host;
		question.method = flow->method;
		question.path = flow->path;
		verdict = policy_match(flow->tenant->matcher, &question);
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

static unsigned cut_forbidden(struct tenant *tenant)
{
	unsigned cut = 0;

	for (struct flow *flow = tenant->flows, *next; flow; flow = next) {
		next = flow->next;
		if (is_still_allowed(flow))
			continue;
		flow_cut(flow, "the policy was changed");
		cut++;
	}
	return cut;
}

/* Whether the policy names that box: the other half of the daemon's check when boxes connect. */
static bool knows(const struct tenant *tenant, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < tenant->policy->count; i++) {
		const struct policy_rule *rule = &tenant->policy->rules[i];

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
static unsigned cut_strangers(struct tenant *tenant, const char *name)
{
	bool is_renamed = strcmp(name, tenant->name) != 0;
	unsigned cut = 0;

	for (struct named *node = tenant->process->tenants.oldest; node; node = node->newer) {
		struct tenant *other = (struct tenant *)node;
		bool is_welcome = !is_renamed && knows(tenant, other->name);

		for (struct flow *flow = other->flows; flow && !is_welcome; flow = flow->next)
			if (leads_to(flow, name)) {
				flow_cut(flow, is_renamed ? "the other box has a new name"
							  : "the other box's policy was changed");
				cut++;
			}
	}
	return cut;
}

static void set_policy(struct tenant *tenant, struct policy *policy, json_t *message)
{
	policy_free(tenant->policy);
	tenant->policy = policy;
	strv_free(tenant->package_hosts);
	tenant->package_hosts = read_strings(json_object_get(message, "package_hosts"));
	tenant->version = (uint64_t)json_integer_value(json_object_get(message, "version"));
	free(tenant->name);
	tenant->name = xstrdup(json_string_value(json_object_get(message, "name")));
}

int tenant_set_policy(struct tenant *tenant, json_t *message, struct err *err)
{
	struct policy *policy;

	if (read_policy(message, &policy, err) < 0)
		return -1;
	set_policy(tenant, policy, message);
	if (compile(tenant, err) < 0)
		return -1;
	tell(tenant, "event", "event",
		json_pack("{s:s, s:I, s:i}", "type", "policy", "version",
			(json_int_t)tenant->version, "cut",
			(int)(cut_forbidden(tenant) + cut_strangers(tenant, tenant->name))));
	return 0;
}

void tenant_rename(struct tenant *tenant, const char *name)
{
	_cleanup_free_ char *old = steal_ptr(&tenant->name);

	tenant->name = xstrdup(name);
	if (!strcmp(old, name))
		return;
	cut_strangers(tenant, old);
	/* The boxes it is connected to know it by its old name. */
	for (struct named *node = tenant->process->tenants.oldest; node; node = node->newer) {
		struct tenant *other = (struct tenant *)node;

		for (struct flow *flow = tenant->flows; flow; flow = flow->next)
			if (leads_to(flow, other->name) && !knows(other, name))
				flow_cut(flow, "the other box's policy does not name this one");
	}
}

void tenant_recompile(struct tenant *tenant)
{
	struct err err = ERR_INIT;

	if (compile(tenant, &err) == 0) {
		cut_forbidden(tenant);
		return;
	}
	log_error("a box is closed: its policy cannot be made ready", kv_str("box", tenant->key),
		kv_err(&err));
	tenant_free(tenant, "its policy cannot be made ready");
}

void tenant_set_recording(struct tenant *tenant, bool on)
{
	if (tenant->recording == on)
		return;
	if (on)
		record_start(tenant);
	tenant->recording = on;
	tenant_recompile(tenant);
}

/* ---- doors ---------------------------------------------------------------------------------- */

static const struct {
	enum door door;
	loop_fd_fn fn;
} door_fns[] = { { DOOR_TCP, tcp_ready }, { DOOR_UDP, udp_ready },
	{ DOOR_REFUSED, refused_ready } };

static void on_pause_over(void *arg)
{
	struct tenant *tenant = arg;

	for (size_t i = 0; i < ARRAY_LEN(door_fns); i++)
		if (tenant->watches[door_fns[i].door])
			loop_fd_set(tenant->watches[door_fns[i].door], LOOP_READ);
}

void tenant_pause_door(struct tenant *tenant, enum door door, unsigned ms)
{
	loop_fd_set(tenant->watches[door], 0);
	loop_timer_start(tenant->pause, ms);
}

static int take_doors(
	struct tenant *tenant, json_t *numbers, int *fds, size_t count, struct err *err)
{
	if (json_array_size(numbers) != count)
		return err_set(err, ERR_LIMIT, "the gate has no file descriptors left");
	for (size_t i = 0; i < count; i++) {
		json_int_t door = json_integer_value(json_array_get(numbers, i));

		assert(door >= 0 && door < DOOR_COUNT);
		tenant->doors[door] = steal_fd(&fds[i]);
	}
	return 0;
}

static size_t gather(const struct tenant *tenant, enum door first, enum door second, int out[2])
{
	size_t count = 0;

	if (tenant->doors[first] >= 0)
		out[count++] = tenant->doors[first];
	if (tenant->doors[second] >= 0)
		out[count++] = tenant->doors[second];
	return count;
}

static int open_doors(struct tenant *tenant, struct err *err)
{
	static const enum door resolvers[] = { DOOR_DNS_UDP4, DOOR_DNS_UDP6, DOOR_DNS_TCP4,
		DOOR_DNS_TCP6 };
	int udp[2], tcp[2];
	struct dns_box_options options = { .udp = udp,
		.tcp = tcp,
		.arg = tenant,
		.synthetic = tenant->names,
		.ipv6 = true,
		.rate = QUESTIONS_RATE,
		.together = &tenant->tree->questions };

	options.udp_count = gather(tenant, DOOR_DNS_UDP4, DOOR_DNS_UDP6, udp);
	options.tcp_count = gather(tenant, DOOR_DNS_TCP4, DOOR_DNS_TCP6, tcp);
	if (dns_server_add(tenant->process->dns, &options, &tenant->dns, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(resolvers); i++)
		tenant->doors[resolvers[i]] = -1; /* owned by the resolver now */
	tenant->pause = loop_timer_new(tenant->process->loop, on_pause_over, tenant);
	for (size_t i = 0; i < ARRAY_LEN(door_fns); i++) {
		enum door door = door_fns[i].door;

		if (tenant->doors[door] >= 0)
			tenant->watches[door] = loop_fd_new(tenant->process->loop,
				tenant->doors[door], LOOP_READ, door_fns[i].fn, tenant);
	}
	return 0;
}

static void close_doors(struct tenant *tenant)
{
	dns_box_free(tenant->dns);
	for (int i = 0; i < DOOR_COUNT; i++) {
		loop_fd_free(tenant->watches[i]);
		if (tenant->doors[i] >= 0)
			close(tenant->doors[i]);
	}
	loop_timer_free(tenant->pause);
}

/* ---- adding and removing -------------------------------------------------------------------- */

static struct tenant *tenant_new(struct process *process, const char *key, const char *tree)
{
	struct tenant *tenant = xnew(struct tenant);

	tenant->process = process;
	tenant->key = xstrdup(key);
	tenant->dial = process->dial;
	tenant->tree = tree_join(process, tree ? tree : key);
	tenant->dial.share = &tenant->tree->share;
	for (int i = 0; i < DOOR_COUNT; i++)
		tenant->doors[i] = -1;
	name_table_init(&tenant->allotments);
	name_table_init(&tenant->repeats);
	tally_init(&tenant->destinations, DESTINATIONS_MAX);
	name_table_add(&process->tenants, &tenant->node, tenant->key, 0);
	return tenant;
}

static void load_names(struct tenant *tenant, json_t *message)
{
	json_t *saved = json_object_get(message, "names");
	struct err err = ERR_INIT;

	/* Nothing was stored for a box that never asked for a name. */
	if (!json_object_size(saved) || synthetic_load(saved, NAMES_MAX, &tenant->names, &err) < 0)
		tenant->names = synthetic_new(NAMES_MAX);
	if (err.kind)
		log_warn("the addresses of names of a box start again", kv_str("box", tenant->key),
			kv_err(&err));
	synthetic_skip(
		tenant->names, (uint64_t)json_integer_value(json_object_get(message, "given")));
	tenant->names_told = synthetic_version(tenant->names);
	tenant_reserve(tenant, (uint64_t)json_integer_value(json_object_get(message, "reserved")));
}

void tenant_reserve(struct tenant *tenant, uint64_t reserved)
{
	tenant->reserve_asked = false;
	tenant->reserved = reserved;
	synthetic_reserve(tenant->names, reserved);
}

void tenant_check_reserved(struct tenant *tenant)
{
	if (tenant->reserve_asked ||
		synthetic_given(tenant->names) + RESERVED_LEAST < tenant->reserved)
		return;
	tenant->reserve_asked = true;
	tell(tenant, "reserve", NULL, NULL);
}

int tenant_add(struct process *process, json_t *message, int *fds, size_t count, struct err *err)
{
	struct tenant *tenant =
		tenant_new(process, json_string_value(json_object_get(message, "box")),
			json_string_value(json_object_get(message, "tree")));
	struct policy *policy;

	tenant->recording = json_is_true(json_object_get(message, "recording"));
	if (tenant->recording)
		record_start(tenant);
	tenant_set_asleep(tenant, (unsigned)json_integer_value(json_object_get(message, "asleep")));
	load_names(tenant, message);
	allot_load(tenant, json_object_get(message, "spent"));
	if (read_policy(message, &policy, err) < 0)
		goto fail;
	set_policy(tenant, policy, message);
	if (compile(tenant, err) < 0 ||
		take_doors(tenant, json_object_get(message, "doors"), fds, count, err) < 0 ||
		open_doors(tenant, err) < 0)
		goto fail;
	return 0;
fail:
	tenant_free(tenant, "it could not be served");
	return -1;
}

void tenant_set_asleep(struct tenant *tenant, unsigned what)
{
	tenant->process->asleep += !!what - !!tenant->asleep;
	tenant->asleep = what;
}

void tenant_data_came(struct tenant *tenant, enum gate_asleep how)
{
	if (!(tenant->asleep & how))
		return;
	tenant_set_asleep(tenant, tenant->asleep & ~(unsigned)how);
	tell(tenant, "traffic", "peer", json_integer(how == GATE_TELL_PEERS));
}

static json_t *meters_json(const struct tenant *tenant)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "bytes_out",
		(json_int_t)tenant->bytes_out, "bytes_in", (json_int_t)tenant->bytes_in,
		"connections", (json_int_t)tenant->connections, "connections_now",
		(json_int_t)tenant->flow_count, "refused", (json_int_t)tenant->refused, "questions",
		(json_int_t)tenant->questions, "destinations", tally_json(&tenant->destinations),
		"spent", allot_save(tenant));
}

static void tell_names(struct tenant *tenant)
{
	tenant->names_due = 0;
	tenant->names_told = synthetic_version(tenant->names);
	tell(tenant, "names", "saved", synthetic_save(tenant->names));
}

void tenant_free(struct tenant *tenant, const char *why)
{
	while (tenant->flows)
		flow_break(tenant->flows, why);
	tenant_set_asleep(tenant, 0);
	event_forget_all(tenant);
	if (tenant->changed)
		tell(tenant, "meters", "meters", meters_json(tenant));
	if (tenant->names_told != synthetic_version(tenant->names))
		tell_names(tenant);
	tell(tenant, "dropped", NULL, NULL);
	close_doors(tenant);
	synthetic_free(tenant->names);
	record_free(tenant);
	tally_done(&tenant->destinations);
	allot_free_all(tenant);
	policy_free(tenant->policy);
	policy_matcher_free(tenant->matcher);
	strv_free(tenant->package_hosts);
	name_table_remove(&tenant->process->tenants, &tenant->node);
	tree_leave(tenant->process, tenant->tree);
	free(tenant->key);
	free(tenant->name);
	free(tenant);
}

/* ---- every second --------------------------------------------------------------------------- */

static void look_at_names(struct tenant *tenant, int64_t now)
{
	if (tenant->names_told == synthetic_version(tenant->names))
		return;
	if (!tenant->names_due)
		tenant->names_due =
			now + NAMES_US +
			(int64_t)synthetic_count(tenant->names) * SECOND_US / NAMES_PER_SECOND;
	else if (now >= tenant->names_due)
		tell_names(tenant);
}

void tenant_tick(struct tenant *tenant, int64_t now)
{
	for (struct flow *flow = tenant->flows, *next; flow; flow = next) {
		next = flow->next;
		flow_figures(flow);
		if (flow->udp)
			udp_tick(flow, now);
	}
	allot_tick(tenant);
	event_tick(tenant, now);
	if (channel_queued(tenant->process->channel) > QUEUED_MAX)
		return; /* the daemon is busy: figures can wait, they are totals */
	look_at_names(tenant, now);
	if (!tenant->changed || now < tenant->meters_due)
		return;
	tenant->changed = false;
	tenant->meters_due = now + SECOND_US / 2 +
			     (int64_t)(tenant->destinations.rows.count + tenant->allotments.count) *
				     SECOND_US / ROWS_PER_SECOND;
	tell(tenant, "meters", "meters", meters_json(tenant));
}

void tenant_limit_reached(
	struct tenant *tenant, enum limit_kind kind, const struct allotment *allotment)
{
	int64_t now = clock_mono_us(), *told = &tenant->limit_told[kind][allotment != NULL];
	/* The built-in limit of every box is not part of its policy, so it is not reported. */
	bool own = allotment || kind != LIMIT_CONNECTIONS || tenant->policy->limits.connections;
	json_t *data;

	if (*told && now - *told < SECOND_US)
		return;
	*told = now;
	data = json_pack("{s:s, s:s, s:s}", "limit", limit_names[kind], "scope",
		allotment ? "rule" : "box", "on_limit",
		policy_on_limit_name(own ? tenant->policy->on_limit : POLICY_NOTIFY));
	if (allotment) {
		json_object_set_new(data, "rule", json_string(allotment->rule));
		json_object_set_new(data, "name", json_string(allotment->destination));
	}
	tell(tenant, "limit", "data", data);
}
