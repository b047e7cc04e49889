/* network.c - the network of one box: made, stored, attached to its instance, released
 *
 * A network belongs to a box for its whole life. While the box runs it is attached: sockets in the
 * box's namespace are opened and handed to the gate together with the policy. Before that, and
 * without it, the box can reach nothing. */
#include "core/core_internal.h"
#include "core/boxnet/meters.h"
#include "core/boxnet/network_internal.h"
#include "core/tree.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "gate/gate.h"
#include <errno.h>
#include <unistd.h>

/* ---- making and storing --------------------------------------------------------------------- */

static struct network *make(void)
{
	struct network *net = xnew(struct network);

	net->netns = -1;
	net->version = 1;
	net->changed_us = clock_wall_us();
	net->ports = json_array();
	net->meters = meters_new();
	net->reserved = NAMES_RESERVED;
	return net;
}

void network_discard(struct network *net)
{
	if (!net)
		return;
	if (net->netns >= 0)
		close(net->netns);
	policy_free(net->policy);
	strv_free(net->package_hosts);
	json_decref(net->names);
	json_decref(net->spent);
	json_decref(net->spent_below);
	json_decref(net->ports);
	meters_free(net->meters);
	free(net);
}
DEFINE_CLEANUP(network_discard, struct network)

int network_new(struct yard *yard, const struct box_spec *spec, const char *image,
	struct network **ret, struct err *err)
{
	_cleanup_(network_discardp) struct network *net = make();

	if (policy_for_new(yard, spec->policy, &net->policy, err) < 0)
		return -1;
	net->package_hosts = package_hosts_of(yard, image);
	*ret = steal_ptr(&net);
	return 0;
}

int network_fork(const struct box *parent, json_t *policy, struct network **ret, struct err *err)
{
	_cleanup_(network_discardp) struct network *net = make();
	const struct network *old = parent->net;
	_cleanup_free_ char *text = policy_text(old->policy);

	if (policy ? policy_for_new(parent->yard, policy, &net->policy, err) < 0
		   : policy_parse(text, strlen(text), &net->policy, NULL, err) < 0)
		return -1;
	net->package_hosts = strv_copy((const char *const *)old->package_hosts);
	/* Names of the capture that the fork is restored from come later, see network_names_attach;
	 * a copy of the disk alone knows no more than these. */
	net->names = json_deep_copy(old->names);
	net->given = net->reserved = old->reserved;
	/* A fork inherits what was spent: forking must not refill a budget. */
	net->spent = json_deep_copy(old->spent);
	*ret = steal_ptr(&net);
	return 0;
}

static json_t *kept_json(const char *text)
{
	return *text ? json_parse(text, strlen(text), NULL) : NULL;
}

static void load_hosts(struct network *net, const char *text)
{
	_cleanup_json_ json_t *hosts = kept_json(text);
	json_t *host;
	size_t i;

	json_array_foreach (hosts, i, host)
		if (json_is_string(host))
			strv_add(&net->package_hosts, json_string_value(host));
}

int network_load(struct box *box, struct err *err)
{
	struct network_row row = { 0 };
	struct network *net = make();
	json_t *ports;

	box->net = net;
	if (store_network_get(box->yard->store, box->row.id, &row, err) < 0) {
		if (err->kind != ERR_NOT_FOUND)
			return -1;
		/* The box is from before boxes had networks: it stays closed. */
		err_clear(err);
		net->policy = policy_new();
		return network_store(box, STORE_KEPT, err);
	}
	net->version = row.version;
	net->changed_us = row.changed_us;
	net->recording = row.recording;
	net->recording_since_us = clock_mono_us();
	load_hosts(net, row.package_hosts);
	network_names_load(net, row.names);
	net->spent = kept_json(row.spent);
	ports = kept_json(row.ports);
	if (json_is_array(ports)) {
		json_decref(net->ports);
		net->ports = ports;
	} else {
		json_decref(ports);
	}
	meters_load(net->meters, row.meters);
	if (policy_parse(row.policy, strlen(row.policy), &net->policy, NULL, err) < 0) {
		/* Everything is denied, rather than nothing checked. */
		log_error("the policy of a box cannot be read: everything is denied",
			kv_str("box", box->row.id), kv_err(err));
		err_clear(err);
		net->policy = policy_new();
	}
	network_row_done(&row);
	return 0;
}

static char *json_text_or(const json_t *value, const char *otherwise)
{
	return value ? json_text(value) : xstrdup(otherwise);
}

static char *hosts_text(char **hosts)
{
	_cleanup_json_ json_t *list = json_array();

	for (size_t i = 0; hosts && hosts[i]; i++)
		json_array_append_new(list, json_string(hosts[i]));
	return json_text(list);
}

int network_store_as(struct yard *yard, const char *id, struct network *net, enum store_grade grade,
	struct err *err)
{
	struct network_row row = {
		.box = xstrdup(id),
		.policy = policy_text(net->policy),
		.version = net->version,
		.changed_us = net->changed_us,
		.package_hosts = hosts_text(net->package_hosts),
		.names = network_names_text(net),
		.spent = json_text_or(net->spent, ""),
		.ports = json_text(net->ports),
		.meters = meters_save(net->meters),
		.recording = net->recording,
	};
	int status = store_network_put(yard->store, &row, grade, err);

	network_row_done(&row);
	if (status == 0)
		net->names_changed = net->spent_changed = false;
	return status;
}

int network_store(struct box *box, enum store_grade grade, struct err *err)
{
	return network_store_as(box->yard, box->row.id, box->net, grade, err);
}

/* Parts that could not be stored, or are NULL, count as changed the next time too. */
static void update(struct box *box, const char *names, const char *spent, const char *meters)
{
	struct network *net = box->net;
	struct err err = ERR_INIT;

	if (store_network_update(box->yard->store, box->row.id, names, spent, meters, &err) < 0) {
		log_warn("cannot save the network meters of a box", kv_str("box", box->row.id),
			kv_err(&err));
		return;
	}
	net->names_changed = net->names_changed && !names;
	net->spent_changed = net->spent_changed && !spent;
}

void network_keep(struct box *box)
{
	struct network *net = box->net;
	_cleanup_free_ char *names = NULL, *spent = NULL, *meters = NULL;

	if (!net ||
		(!net->names_changed && !net->spent_changed && !meters_have_changed(net->meters)))
		return;
	names = net->names_changed ? network_names_text(net) : NULL;
	spent = json_text_or(net->spent, "");
	meters = meters_save(net->meters);
	update(box, names, spent, meters);
}

int network_keep_names(struct box *box, struct err *err)
{
	_cleanup_free_ char *names = network_names_text(box->net);

	if (store_network_update(box->yard->store, box->row.id, names, NULL, NULL, err) < 0)
		return -1;
	box->net->names_changed = false;
	return 0;
}

static bool has_budget(const struct policy *policy)
{
	for (size_t i = 0; i < policy->count; i++)
		if (policy->rules[i].limits.bytes)
			return true;
	return policy->limits.bytes > 0;
}

void network_keep_soon(struct box *box)
{
	struct network *net = box->net;
	_cleanup_free_ char *names = NULL, *spent = NULL;

	if (!net)
		return;
	names = net->names_changed ? network_names_text(net) : NULL;
	spent = net->spent_changed && has_budget(net->policy) ? json_text_or(net->spent, "") : NULL;
	if (names || spent)
		update(box, names, spent, NULL);
}

/* The budget of the rule that the gate names; 0: none. */
static uint64_t budget_of(const struct policy *policy, const char *rule)
{
	for (size_t i = 0; i < policy->count; i++) {
		_cleanup_free_ char *text =
			policy->rules[i].limits.bytes ? gate_rule_text(&policy->rules[i]) : NULL;

		if (text && !strcmp(text, rule))
			return policy->rules[i].limits.bytes;
	}
	return 0;
}

static void raise_to(json_t *object, const char *key, json_int_t least)
{
	if (json_integer_value(json_object_get(object, key)) < least)
		json_object_set_new(object, key, json_integer(least));
}

/* The entry for a rule and destination, added when missing. Borrowed. */
static json_t *spent_of(json_t *list, const char *rule, const char *destination)
{
	json_t *item;
	size_t i;

	json_array_foreach (list, i, item)
		if (!strcmp(json_get_text(item, "rule"), rule) &&
			!strcmp(json_get_text(item, "destination"), destination))
			return item;
	item = json_pack("{s:s,s:s,s:i}", "rule", rule, "destination", destination, "bytes", 0);
	json_array_append_new(list, item);
	return item;
}

void network_spent_all(struct box *box, json_t *data)
{
	struct network *net = box->net;
	const char *rule = json_get_text(data, "rule");
	uint64_t bytes = *rule ? budget_of(net->policy, rule) : net->policy->limits.bytes;
	json_t *spent;

	if (!bytes)
		return;
	spent = net->spent ? json_deep_copy(net->spent)
			   : json_pack("{s:i,s:[]}", "box", 0, "rules");
	if (*rule)
		raise_to(spent_of(json_object_get(spent, "rules"), rule,
				 json_get_text(data, "name")),
			"bytes", (json_int_t)bytes);
	else
		raise_to(spent, "box", (json_int_t)bytes);
	json_decref(net->spent);
	net->spent = spent;
	net->spent_changed = true;
	network_spent_told(box);
	network_keep_soon(box);
}

static void raise_all(json_t **spent, json_t *least)
{
	json_t *all, *item;
	size_t i;

	if (!least)
		return;
	all = *spent ? json_deep_copy(*spent) : json_pack("{s:i,s:[]}", "box", 0, "rules");
	raise_to(all, "box", json_integer_value(json_object_get(least, "box")));
	json_array_foreach (json_object_get(least, "rules"), i, item)
		raise_to(spent_of(json_object_get(all, "rules"), json_get_text(item, "rule"),
				 json_get_text(item, "destination")),
			"bytes", json_integer_value(json_object_get(item, "bytes")));
	json_decref(*spent);
	*spent = all;
}

void network_spent_told(struct box *box)
{
	struct box *at = box, *origin;

	/* Each origin is one generation older, so this ends. */
	for (; at->row.generation > 0; at = origin) {
		origin = *at->row.origin_box ? box_find(box->yard, at->row.origin_box, NULL) : NULL;
		if (!origin || !origin->net || origin->row.generation >= at->row.generation)
			return;
		raise_all(&origin->net->spent_below, box->net->spent);
	}
}

void network_promoted(const struct box *parent, struct box *child)
{
	raise_all(&child->net->spent_below, parent->net->spent_below);
}

void network_spend_fork(const struct box *parent, struct network *net)
{
	raise_all(&net->spent, parent->net->spent_below);
}

void network_free(struct box *box)
{
	if (!box->net)
		return;
	ports_box_removed(box);
	network_detach(box);
	network_discard(steal_ptr(&box->net));
}

/* ---- attaching ------------------------------------------------------------------------------ */

/* How deep the box sleeps, for the gate. A box paused at a limit must not be woken. */
static unsigned asleep(const struct box *box)
{
	if (box->state != BOX_SUSPENDED || box_is_paused(box))
		return 0;
	return GATE_TELL_PEERS | (strcmp(box->row.asleep_for, "idle") ? 0 : GATE_TELL_OWN);
}

void network_asleep(struct box *box)
{
	if (box->net && box->net->served)
		gate_asleep(yard_gate(box->yard), box->row.id, asleep(box));
}

static struct gate_box describe(const struct box *box, json_t *policy)
{
	const struct network *net = box->net;

	return (struct gate_box){
		.id = box->row.id,
		.name = box->row.name,
		.tree = box_get_tree(box),
		.policy = policy,
		.version = net->version,
		.package_hosts = (const char *const *)net->package_hosts,
		.names = net->names,
		.given = net->given,
		.reserved = net->reserved,
		.spent = net->spent,
		.recording = net->recording,
		.asleep = asleep(box),
	};
}

/* A box started by a version before boxes had networks has a namespace in which no packet reaches
 * our sockets. Port 1 has no listener but is ours; this checks whether it can be reached at all. */
static int check_furniture(const struct network *net, struct err *err)
{
	int fd = -1;

	if (doors_connect(net->netns, DOORS_OUTSIDE, 1, &fd, err) == 0)
		close(fd);
	else if (err->errno_value == ENETUNREACH || err->errno_value == EHOSTUNREACH) {
		err_set(err, ERR_STATE,
			"the box was started without a network, or has taken its own apart");
		return err_hint(err, "stop it and start it again");
	}
	err_clear(err);
	return 0;
}

static int attach(struct box *box, struct err *err)
{
	struct network *net = box->net;
	struct gate *gate = yard_gate(box->yard);
	_cleanup_json_ json_t *policy = policy_json(net->policy);
	struct gate_box described;
	int doors[DOOR_COUNT];

	if (!gate)
		return err_set(err, ERR_UNAVAILABLE, "the network gate does not run");
	if (net->netns < 0 && instance_netns(box->instance, &net->netns, err) < 0)
		return -1;
	if (net->adopted && !instance_can(box->instance, ENGINE_OWN_KERNEL) &&
		check_furniture(net, err) < 0)
		return -1;
	if (network_has_aims(net) && network_set_aims(net, err) < 0)
		return -1;
	if (network_names_attach(box, err) < 0)
		return -1;
	described = describe(box, policy);
	if (doors_open(net->netns, doors, err) < 0)
		return -1;
	if (gate_add(gate, &described, doors, err) < 0)
		return -1;
	net->served = true;
	return 0;
}

int network_attach(struct box *box, struct err *err)
{
	struct network *net = box->net;

	if (net->served)
		return 0;
	err_clear(&net->problem);
	if (attach(box, err) == 0)
		return 0;
	err_wrap(err, "network of box '%s'", box->row.name);
	net->problem = *err;
	return -1;
}

void network_lost(struct box *box)
{
	struct network *net = box->net;

	if (!net->served && !net->leaving)
		return;
	net->served = net->leaving = false;
	meters_settle(net->meters);
	network_names_lost(net);
}

void network_left(struct box *box)
{
	box->net->leaving = false;
	network_names_left(box->net);
	meters_settle(box->net->meters);
	network_keep(box);
}

void network_detach(struct box *box)
{
	struct network *net = box->net;

	if (!net)
		return;
	net->waited_for = net->adopted = false;
	inlets_lose(net);
	if (net->served) {
		net->served = false;
		net->leaving = yard_gate(box->yard) != NULL;
		if (net->leaving)
			gate_drop(yard_gate(box->yard), box->row.id);
		network_keep(box);
	}
	if (net->netns >= 0)
		close(net->netns);
	net->netns = -1;
}

int network_apply_policy(struct box *box, struct err *err)
{
	struct network *net = box->net;
	_cleanup_json_ json_t *policy = NULL;
	struct gate_box described;

	if (!net->served)
		return 0;
	policy = policy_json(net->policy);
	described = describe(box, policy);
	/* The gate first: it decides about whatever the namespace lets through meanwhile. */
	if (gate_set_policy(yard_gate(box->yard), &described, err) < 0)
		return -1;
	return network_set_aims(net, err);
}

void network_adopt(struct box *box)
{
	box->net->adopted = true;
	network_names_lost(box->net);
}

void network_renamed(struct box *box)
{
	if (box->net && box->net->served)
		gate_rename(yard_gate(box->yard), box->row.id, box->row.name);
}

/* ---- figures -------------------------------------------------------------------------------- */

static json_t *limits_json(const struct policy *policy)
{
	return json_pack("{s:I,s:I,s:I,s:s}", "rate", (json_int_t)policy->limits.rate,
		"connections", (json_int_t)policy->limits.connections, "bytes",
		(json_int_t)policy->limits.bytes, "on_limit",
		policy_on_limit_name(policy->on_limit));
}

json_t *box_net_json(struct box *box)
{
	json_t *ret = meters_json(box->net->meters);

	json_object_set_new(ret, "box", json_string(box->row.id));
	json_object_set_new(ret, "name", json_string(box->row.name));
	json_object_set_new(ret, "limits", limits_json(box->net->policy));
	/* NULL unless the box runs without a network. */
	json_object_set_new(ret, "problem",
		box->instance && box->net->problem.kind ? json_string(box->net->problem.message)
							: json_null());
	return ret;
}

void box_connections(
	struct box *box, void (*done)(void *arg, json_t *list, const struct err *err), void *arg)
{
	_cleanup_json_ json_t *none = json_array();

	if (!box->net->served) {
		done(arg, none, NULL);
		return;
	}
	gate_connections(yard_gate(box->yard), box->row.id, done, arg);
}
