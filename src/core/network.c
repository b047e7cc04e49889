/* network.c - the network of one box: made, kept, attached to its instance, let go
 *
 * A network belongs to a box for all its life. While the box runs it is attached: the sockets in the box's namespace are opened
 * and handed to the gate together with the policy. From the box's side nothing leads anywhere before that, or without it. */
#include "core/core_internal.h"
#include "core/meters.h"
#include "core/network_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "gate/gate.h"
#include <unistd.h>

/* ---- made and kept ------------------------------------------------------------------------------- */

static struct network *make(void)
{
	struct network *net = xnew(struct network);

	net->netns = -1;
	net->version = 1;
	net->changed_us = clock_wall_us();
	net->ports = json_array();
	net->meters = meters_new();
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
		/* From before boxes had networks: as closed as it was. */
		err_clear(err);
		net->policy = policy_new();
		return 0;
	}
	net->version = row.version;
	net->changed_us = row.changed_us;
	net->recording = row.recording;
	load_hosts(net, row.package_hosts);
	net->names = kept_json(row.names);
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
		/* Closed, rather than not at all. */
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
		.names = json_text_or(net->names, ""),
		.spent = json_text_or(net->spent, ""),
		.ports = json_text(net->ports),
		.meters = meters_save(net->meters),
		.recording = net->recording,
	};
	int status = store_network_put(yard->store, &row, grade, err);

	network_row_done(&row);
	if (status == 0)
		net->names_changed = false;
	return status;
}

int network_store(struct box *box, enum store_grade grade, struct err *err)
{
	return network_store_as(box->yard, box->row.id, box->net, grade, err);
}

void network_keep(struct box *box)
{
	struct network *net = box->net;
	_cleanup_free_ char *names = NULL, *spent = NULL, *meters = NULL;
	struct err err = ERR_INIT;

	if (!net || (!net->names_changed && !meters_have_changed(net->meters)))
		return;
	names = net->names_changed ? json_text_or(net->names, "") : NULL;
	spent = json_text_or(net->spent, "");
	meters = meters_save(net->meters);
	net->names_changed = false;
	if (store_network_update(box->yard->store, box->row.id, names, spent, meters, &err) < 0)
		log_warn("the figures of a box's network are not kept", kv_str("box", box->row.id),
			kv_err(&err));
}

void network_free(struct box *box)
{
	if (!box->net)
		return;
	ports_box_removed(box);
	network_detach(box);
	network_discard(steal_ptr(&box->net));
}

/* ---- what leads to the gate ---------------------------------------------------------------------------- */

/* Everything public: what the ranges that are always closed leave over. */
static const struct {
	const char *base;
	uint8_t bits;
} public_ranges[] = {
	{ "1.0.0.0", 8 },
	{ "2.0.0.0", 7 },
	{ "4.0.0.0", 6 },
	{ "8.0.0.0", 7 },
	{ "11.0.0.0", 8 },
	{ "12.0.0.0", 6 },
	{ "16.0.0.0", 4 },
	{ "32.0.0.0", 3 },
	{ "64.0.0.0", 3 },
	{ "96.0.0.0", 6 },
	{ "100.0.0.0", 10 },
	{ "100.128.0.0", 9 },
	{ "101.0.0.0", 8 },
	{ "102.0.0.0", 7 },
	{ "104.0.0.0", 5 },
	{ "112.0.0.0", 5 },
	{ "120.0.0.0", 6 },
	{ "124.0.0.0", 7 },
	{ "126.0.0.0", 8 },
	{ "128.0.0.0", 3 },
	{ "160.0.0.0", 5 },
	{ "168.0.0.0", 8 },
	{ "169.0.0.0", 9 },
	{ "169.128.0.0", 10 },
	{ "169.192.0.0", 11 },
	{ "169.224.0.0", 12 },
	{ "169.240.0.0", 13 },
	{ "169.248.0.0", 14 },
	{ "169.252.0.0", 15 },
	{ "169.255.0.0", 16 },
	{ "170.0.0.0", 7 },
	{ "172.0.0.0", 12 },
	{ "172.32.0.0", 11 },
	{ "172.64.0.0", 10 },
	{ "172.128.0.0", 9 },
	{ "173.0.0.0", 8 },
	{ "174.0.0.0", 7 },
	{ "176.0.0.0", 4 },
	{ "192.0.1.0", 24 },
	{ "192.0.2.0", 23 },
	{ "192.0.4.0", 22 },
	{ "192.0.8.0", 21 },
	{ "192.0.16.0", 20 },
	{ "192.0.32.0", 19 },
	{ "192.0.64.0", 18 },
	{ "192.0.128.0", 17 },
	{ "192.1.0.0", 16 },
	{ "192.2.0.0", 15 },
	{ "192.4.0.0", 14 },
	{ "192.8.0.0", 13 },
	{ "192.16.0.0", 12 },
	{ "192.32.0.0", 11 },
	{ "192.64.0.0", 10 },
	{ "192.128.0.0", 11 },
	{ "192.160.0.0", 13 },
	{ "192.169.0.0", 16 },
	{ "192.170.0.0", 15 },
	{ "192.172.0.0", 14 },
	{ "192.176.0.0", 12 },
	{ "192.192.0.0", 10 },
	{ "193.0.0.0", 8 },
	{ "194.0.0.0", 7 },
	{ "196.0.0.0", 7 },
	{ "198.0.0.0", 12 },
	{ "198.16.0.0", 15 },
	{ "198.20.0.0", 14 },
	{ "198.24.0.0", 13 },
	{ "198.32.0.0", 11 },
	{ "198.64.0.0", 10 },
	{ "198.128.0.0", 9 },
	{ "199.0.0.0", 8 },
	{ "200.0.0.0", 5 },
	{ "208.0.0.0", 4 },
	{ "2000::", 3 },
};

static void add_range(struct doors_range **list, size_t *count, const struct policy_cidr *cidr)
{
	struct doors_range *range;

	xgrow(*list, *count + 1);
	range = &(*list)[(*count)++];
	*range = (struct doors_range){ .bits = cidr->bits };
	range->base.family = cidr->base.family;
	memcpy(range->base.bytes, cidr->base.bytes, sizeof range->base.bytes);
}

static bool sees_everything(const struct network *net)
{
	return net->policy->preset == POLICY_OPEN || net->recording;
}

static bool carries_udp(const struct network *net)
{
	for (size_t i = 0; i < net->policy->count; i++)
		if (!net->policy->rules[i].deny && net->policy->rules[i].protocols & POLICY_UDP)
			return true;
	return sees_everything(net);
}

/* Real addresses whose connections the gate has to see: all that some rule allows. */
static int set_aims(struct network *net, struct err *err)
{
	struct doors_range *ranges = NULL;
	size_t count = 0;
	int status;

	for (size_t i = 0; i < net->policy->count; i++)
		if (net->policy->rules[i].target == POLICY_CIDR && !net->policy->rules[i].deny)
			add_range(&ranges, &count, &net->policy->rules[i].cidr);
	for (size_t i = 0; sees_everything(net) && i < ARRAY_LEN(public_ranges); i++) {
		struct policy_cidr cidr = { .bits = public_ranges[i].bits };

		if (policy_addr_parse(public_ranges[i].base, &cidr.base, NULL) == 0)
			add_range(&ranges, &count, &cidr);
	}
	status = doors_set_aims(net->netns, ranges, count, carries_udp(net), err);
	free(ranges);
	return status;
}

/* Whether there is anything to set beside what a new namespace has. */
static bool has_aims(const struct network *net)
{
	for (size_t i = 0; i < net->policy->count; i++)
		if (net->policy->rules[i].target == POLICY_CIDR && !net->policy->rules[i].deny)
			return true;
	return carries_udp(net);
}

/* ---- attached ------------------------------------------------------------------------------------ */

static struct gate_box describe(const struct box *box, json_t *policy)
{
	const struct network *net = box->net;

	return (struct gate_box){
		.id = box->row.id,
		.name = box->row.name,
		.policy = policy,
		.version = net->version,
		.package_hosts = (const char *const *)net->package_hosts,
		.names = net->names,
		.spent = net->spent,
		.recording = net->recording,
	};
}

static int attach(struct box *box, struct err *err)
{
	struct network *net = box->net;
	struct gate *gate = yard_gate(box->yard);
	_cleanup_json_ json_t *policy = policy_json(net->policy);
	struct gate_box described = describe(box, policy);
	int doors[DOOR_COUNT];

	if (!gate)
		return err_set(err, ERR_UNAVAILABLE, "the network gate does not run");
	if (net->netns < 0 && instance_netns(box->instance, &net->netns, err) < 0)
		return -1;
	if (has_aims(net) && set_aims(net, err) < 0)
		return -1;
	if (doors_open(net->netns, doors, err) < 0)
		return -1;
	if (gate_add(gate, &described, doors, err) < 0)
		return -1;
	net->served = true;
	return 0;
}

int network_attach(struct box *box, struct err *err)
{
	if (box->net->served)
		return 0;
	if (attach(box, err) < 0)
		return err_wrap(err, "network of box '%s'", box->row.name);
	return 0;
}

void network_lost(struct box *box)
{
	struct network *net = box->net;

	if (!net->served)
		return;
	net->served = false;
	meters_settle(net->meters);
}

void network_detach(struct box *box)
{
	struct network *net = box->net;

	if (!net)
		return;
	if (net->served) {
		if (yard_gate(box->yard))
			gate_drop(yard_gate(box->yard), box->row.id);
		network_lost(box);
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
	/* The gate first: what the namespace lets through meanwhile is decided there. */
	if (gate_set_policy(yard_gate(box->yard), &described, err) < 0)
		return -1;
	return set_aims(net, err);
}

void network_renamed(struct box *box)
{
	if (box->net && box->net->served)
		gate_rename(yard_gate(box->yard), box->row.id, box->row.name);
}

/* ---- figures ------------------------------------------------------------------------------------- */

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
