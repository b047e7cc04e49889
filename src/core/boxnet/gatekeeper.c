/* gatekeeper.c - starts the gate, takes its reports and serves its requests; the host's own network
 *
 * There is one gate for all boxes. When it dies it is started again, and every running box is
 * handed to the new one with fresh sockets; in between their connections are refused. What it
 * reports about a box goes into the audit log, the box's meters and its stored names. The gate has
 * no privileges, so it asks the daemon for some sockets: one into another box, or one that speaks
 * to a box in the name of a peer. */
#include "core/core_internal.h"
#include "core/boxnet/meters.h"
#include "core/boxnet/network_internal.h"
#include "core/tree.h"
#include "audit/audit.h"
#include "audit/audit_shares.h"
#include "base/clock.h"
#include "base/log.h"
#include "gate/gate.h"
#include "loop/loop.h"
#include "net/host_watch.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	SSH_PORT = 22,
	AGAIN_FIRST_MS = 50, /* before the gate is restarted; doubled each time up to the next */
	AGAIN_MOST_MS = 5000,
	/* after so long a life the delay starts from the first again */
	STEADY_US = 10 * 1000 * 1000,
	KEEP_MS = 1000,	     /* interval for storing names and budgets */
	KEEP_ALL_TIMES = 10, /* and all figures every so many intervals */
	DIALS_MAX = 1024,    /* waiting for boxes that are waking */
};

/* A connection from a box to another that is still waking. */
struct dial {
	struct dial *next;
	char from[BOX_ID_LEN + 1];
	char to[BOX_ID_LEN + 1];
	char *name;
	uint16_t port;
	uint64_t ticket;
};

struct networks {
	struct yard *yard;
	struct dial *dials;
	unsigned dial_count;
	struct host_watch *host;
	struct gate *gate; /* NULL while there is none */
	struct gate *dead; /* to be closed outside its own callback */
	int64_t gate_since_us;
	unsigned again_ms;
	struct loop_timer *again, *keep;
	unsigned kept;	    /* intervals since all figures were stored */
	struct err problem; /* why there is no gate */
	struct owners *owners;
	box_login_fn login; /* NULL: none; see yard_set_box_login */
	void *login_arg;
};

static void open_gate(struct networks *networks);

struct audit *yard_get_audit(struct yard *yard)
{
	return yard->audit;
}

/* Whether the asker may see a tree. All boxes of a tree have one owner; without boxes the owner is
 * unknown. */
static bool may_see_tree(const struct yard *yard, const char *tree)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i]->tree && !strcmp(box_get_tree(yard->boxes[i]), tree))
			return yard_may_see_box(yard, yard->boxes[i]);
	return yard_may_see(yard, OWNER_LOCAL);
}

struct audit *yard_find_audit(struct yard *yard, const char *log, struct err *err)
{
	if (!yard->audit) {
		err_set(err, ERR_UNAVAILABLE, "there is no audit log");
		return NULL;
	}
	if (!log || !*log)
		return yard->audit;
	if (!may_see_tree(yard, log)) {
		err_set(err, ERR_NOT_FOUND, "'%.40s' has no audit log of its own", log);
		return NULL;
	}
	return audit_shares_log(yard->audit_shares, log, err);
}

json_t *yard_audit_logs(struct yard *yard)
{
	json_t *list = yard->audit_shares ? audit_shares_list(yard->audit_shares) : json_array();

	for (size_t i = json_array_size(list); i-- > 0;)
		if (!may_see_tree(yard, json_string_value(json_array_get(list, i))))
			json_array_remove(list, i);
	return list;
}

static struct box *box_by_id(struct yard *yard, const char *id)
{
	for (size_t i = 0; i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.id, id))
			return yard->boxes[i];
	return NULL;
}

/* ---- reports of the gate -------------------------------------------------------------------- */

static void on_event(void *arg, const char *id, json_t *event)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);
	const char *type = json_get_text(event, "type");
	json_t *line;

	if (!box)
		return;
	line = json_deep_copy(event);
	json_object_set_new(line, "box", json_string(id));
	json_object_set_new(line, "box_name", json_string(box->row.name));
	json_object_set_new(line, "owner", json_string(box->row.owner));
	json_object_set_new(line, "who", json_sprintf("box %s", box->row.name));
	if (!strcmp(type, "connect") || !strcmp(type, "packet"))
		owners_tell(networks->owners, box, line);
	else
		audit_shares_add(networks->yard->audit_shares, box_get_tree(box), line);
}

/* Called before the meters take the new figures. */
static void note_traffic(struct box *box, const json_t *told)
{
	json_t *before = meters_now(box->net->meters), *destination;
	json_int_t in = meters_figure(told, "bytes_in") - meters_figure(before, "bytes_in");
	json_int_t out = meters_figure(told, "bytes_out") - meters_figure(before, "bytes_out");
	size_t i;

	if (in || out || meters_figure(told, "connections") != meters_figure(before, "connections"))
		idle_network(box, in > 0);
	/* Traffic to another box is not counted in the sums. */
	json_array_foreach (
		in || out ? json_object_get(told, "destinations") : NULL, i, destination) {
		const char *name = json_get_text(destination, "name");
		size_t len = strlen(name);
		char label[64];
		struct box *other;

		if (len < 5 || len >= sizeof label || strcmp(name + len - 4, ".box") ||
			!meters_figure(destination, "connections_now"))
			continue;
		snprintf(label, sizeof label, "%.*s", (int)len - 4, name);
		other = box_lookup(box->yard, label);
		if (other && other != box)
			idle_network(other, true);
	}
}

static void on_meters(void *arg, const char *id, json_t *told)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);
	json_t *spent = json_object_get(told, "spent");

	if (!box || !box->net)
		return;
	note_traffic(box, told);
	meters_told(box->net->meters, told);
	if (spent) {
		json_decref(box->net->spent);
		box->net->spent = json_incref(spent);
		box->net->spent_changed = true;
		network_spent_told(box);
	}
}

static void on_names(void *arg, const char *id, json_t *saved)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);

	if (!box || !box->net)
		return;
	json_decref(box->net->names);
	box->net->names = json_incref(saved);
	box->net->names_changed = true;
}

static void on_reserve(void *arg, const char *id)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);

	if (box && box->net && box->net->served)
		network_names_reserve(box);
}

/* Data has come for a sleeping box. Data from another box always wakes it; data on connections it
 * made itself wakes it only if it fell asleep when idle. */
static void on_traffic(void *arg, const char *id, bool from_peer)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);

	if (!box || box->state != BOX_SUSPENDED)
		return;
	if (from_peer)
		box_is_used(box);
	else
		idle_network(box, true);
}

static void on_limit(void *arg, const char *id, json_t *data)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);
	enum on_limit what = ON_LIMIT_NOTIFY;
	json_t *line;

	if (!box)
		return;
	/* Reaching the rate limit is no reason to stop a box. */
	if (strcmp(json_get_text(data, "limit"), "rate"))
		on_limit_from_name(json_get_text(data, "on_limit"), &what, NULL);
	line = json_deep_copy(data);
	json_object_set_new(line, "type", json_string("limit"));
	json_object_set_new(line, "box", json_string(id));
	json_object_set_new(line, "box_name", json_string(box->row.name));
	json_object_set_new(line, "owner", json_string(box->row.owner));
	json_object_set_new(line, "who", json_sprintf("box %s", box->row.name));
	audit_shares_add(networks->yard->audit_shares, box_get_tree(box), line);
	if (box->net && !strcmp(json_get_text(data, "limit"), "bytes"))
		network_spent_all(box, data);
	box_limit_hit_as(box, "limit.network", json_deep_copy(data), what);
}

static void go_on_without(struct box *box)
{
	if (!box->net->waited_for || box->yard->closing)
		return;
	box->net->waited_for = false;
	box_open_up(box);
}

static void on_left(void *arg, const char *id)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);

	if (!box || !box->net || !box->net->leaving)
		return;
	network_left(box);
	go_on_without(box);
}

/* ---- requests of the gate ------------------------------------------------------------------- */

/* Whether the rules of box let name in; ports are checked by the rules of the caller. */
bool network_names_peer(const struct box *box, const char *name)
{
	_cleanup_free_ char *full = xasprintf("%s.box", name);
	const struct policy *policy = box->net->policy;

	for (size_t i = 0; i < policy->count; i++)
		if (policy->rules[i].target == POLICY_BOX && !policy->rules[i].deny &&
			!strcmp(policy->rules[i].name, full))
			return true;
	return false;
}

/* *ret is -1 while the other box, returned in *ret_to, wakes. */
/* Within one kernel the answer of a port is there at once. A box with a kernel of its own answers
 * later: its port 22 is its own. */
static bool is_refused(int fd)
{
	int why = 0;

	getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &(socklen_t){ sizeof why });
	return why == ECONNREFUSED;
}

/* Nothing in the box serves SSH: a front door does, if there is one. */
static int log_in(struct box *from, struct box *to, int *ret, struct err *err)
{
	const struct networks *networks = to->yard->networks;

	close(*ret);
	*ret = -1;
	if (!networks->login)
		return err_set(err, ERR_UNAVAILABLE, "nothing listens on port %d of box '%s'",
			SSH_PORT, to->row.name);
	return networks->login(from, to, ret, networks->login_arg, err);
}

void yard_set_box_login(struct yard *yard, box_login_fn fn, void *arg)
{
	if (!yard->networks)
		return;
	yard->networks->login = fn;
	yard->networks->login_arg = arg;
}

static int reach_box(struct yard *yard, const char *from_id, const char *name, uint16_t port,
	int *ret, struct box **ret_to, struct err *err)
{
	int later;

	struct box *from = box_by_id(yard, from_id), *to = NULL;

	for (size_t i = 0; i < yard->box_count; i++)
		if (!box_is_gone(yard->boxes[i]) && !strcmp(yard->boxes[i]->row.name, name))
			to = yard->boxes[i];
	/* A missing box and one that does not let the caller in give the same answer. A policy
	 * names only boxes of its own owner. */
	if (!from || !to || !to->net || strcmp(to->row.owner, from->row.owner) ||
		!network_names_peer(to, from->row.name))
		return err_set(err, ERR_FORBIDDEN,
			"box '%s' does not exist or its policy does not name this one", name);
	later = box_touch(to, err);
	*ret = -1;
	*ret_to = to;
	if (later)
		return later < 0 ? -1 : 0;
	if (to->net->netns < 0)
		return err_set(err, ERR_STATE, "box '%s' has no network", name);
	if (doors_connect(to->net->netns, DOORS_OUTSIDE, port, ret, err) < 0)
		return -1;
	return port == SSH_PORT && is_refused(*ret) ? log_in(from, to, ret, err) : 0;
}

static void dial_free(struct dial *dial)
{
	free(dial->name);
	free(dial);
}

static void forget_dials(struct networks *networks)
{
	for (struct dial *dial = steal_ptr(&networks->dials), *next; dial; dial = next) {
		next = dial->next;
		dial_free(dial);
	}
	networks->dial_count = 0;
}

static int keep_dial(struct networks *networks, const char *from, const struct box *to,
	const char *name, uint16_t port, uint64_t ticket, struct err *err)
{
	struct dial *dial;

	if (networks->dial_count == DIALS_MAX)
		return err_set(err, ERR_LIMIT, "too many connections wait for boxes to wake");
	dial = xnew(struct dial);
	snprintf(dial->from, sizeof dial->from, "%s", from);
	snprintf(dial->to, sizeof dial->to, "%s", to->row.id);
	dial->name = xstrdup(name);
	dial->port = port;
	dial->ticket = ticket;
	dial->next = networks->dials;
	networks->dials = dial;
	networks->dial_count++;
	return 0;
}

static void dial_box(struct networks *networks, const char *from, const char *name, uint16_t port,
	uint64_t ticket)
{
	struct err err = ERR_INIT;
	struct box *to = NULL;
	int fd = -1;

	if (reach_box(networks->yard, from, name, port, &fd, &to, &err) == 0 && fd < 0 &&
		keep_dial(networks, from, to, name, port, ticket, &err) == 0)
		return;
	gate_dialled(networks->gate, ticket, fd, fd < 0 ? &err : NULL);
}

void networks_box_woken(struct box *box, const struct err *err)
{
	struct networks *networks = box->yard->networks;
	struct dial *due = NULL;

	if (!networks)
		return;
	for (struct dial **slot = &networks->dials, *dial; (dial = *slot);) {
		if (strcmp(dial->to, box->row.id)) {
			slot = &dial->next;
			continue;
		}
		*slot = dial->next;
		networks->dial_count--;
		dial->next = due;
		due = dial;
	}
	for (struct dial *next; due; due = next) {
		next = due->next;
		if (networks->gate && err)
			gate_dialled(networks->gate, due->ticket, -1, err);
		else if (networks->gate)
			dial_box(networks, due->from, due->name, due->port, due->ticket);
		dial_free(due);
	}
}

static void on_dial_box(void *arg, const char *id, const char *name, uint16_t port, uint64_t ticket)
{
	struct networks *networks = arg;
	_cleanup_free_ char *label = xstrdup(name);
	size_t len = strlen(label);

	if (len > 4 && !strcmp(label + len - 4, ".box"))
		label[len - 4] = '\0';
	dial_box(networks, id, label, port, ticket);
}

static void on_open_udp(void *arg, const char *id, const struct doors_endpoint *aim,
	const struct doors_endpoint *client, uint64_t ticket)
{
	struct networks *networks = arg;
	struct box *box = box_by_id(networks->yard, id);
	struct err err = ERR_INIT;
	int fd = -1;

	if (!box || !box->net || box->net->netns < 0)
		err_set(&err, ERR_STATE, "the box has ended");
	else
		(void)doors_open_udp(box->net->netns, aim, client, &fd, &err);
	gate_dialled(networks->gate, ticket, fd, fd < 0 ? &err : NULL);
}

/* ---- start and end -------------------------------------------------------------------------- */

static void close_dead(void *arg)
{
	struct networks *networks = arg;

	gate_close(steal_ptr(&networks->dead));
}

static void try_again(struct networks *networks)
{
	if (clock_mono_us() - networks->gate_since_us > STEADY_US)
		networks->again_ms = 0;
	networks->again_ms =
		MIN(MAX(networks->again_ms * 2, (unsigned)AGAIN_FIRST_MS), (unsigned)AGAIN_MOST_MS);
	loop_timer_start(networks->again, networks->again_ms);
}

static void on_down(void *arg, const struct err *err)
{
	struct networks *networks = arg;
	struct yard *yard = networks->yard;
	struct err why = ERR_INIT;
	bool together;

	log_error(
		"the network gate has ended; boxes have no network until it is back", kv_err(err));
	networks->problem = *err;
	networks->dead = steal_ptr(&networks->gate);
	forget_dials(networks);
	loop_defer(yard->loop, close_dead, networks);
	together = store_begin(yard->store, NULL) == 0;
	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i]->net)
			network_lost(yard->boxes[i]);
	if (together && store_commit(yard->store, STORE_KEPT, &why) < 0)
		log_warn("cannot save the network meters", kv_err(&why));
	for (size_t i = 0; i < yard->box_count; i++)
		if (yard->boxes[i]->net)
			go_on_without(yard->boxes[i]);
	audit_add(yard->audit, json_pack("{s:s,s:s,s:s,s:s}", "type", "gate", "state", "ended",
				       "reason", err->message, "who", "daemon"));
	yard_event(yard, "gate.ended", NULL, json_pack("{s:s}", "reason", err->message));
	try_again(networks);
}

static const struct gate_ops gate_ops = {
	.event = on_event,
	.meters = on_meters,
	.limit = on_limit,
	.names = on_names,
	.reserve = on_reserve,
	.traffic = on_traffic,
	.dial_box = on_dial_box,
	.open_udp = on_open_udp,
	.left = on_left,
	.down = on_down,
};

/* The lower-case name wins, as in curl; both are common. */
static const char *variable(const char *lower, const char *upper)
{
	const char *value = getenv(lower);

	return value && *value ? value : getenv(upper);
}

static struct gate_settings settings(const struct networks *networks)
{
	return (struct gate_settings){
		.resolv_conf = host_watch_resolv_conf(networks->host),
		.proxy = variable("https_proxy", "HTTPS_PROXY"),
		.no_proxy = variable("no_proxy", "NO_PROXY"),
		.host_ranges = host_watch_addresses(networks->host),
	};
}

/* A starting box may have been attached to the previous gate. */
static bool is_up(const struct box *box)
{
	return box->instance && box->net &&
	       (box->net->netns >= 0 || box->state == BOX_RUNNING || box->state == BOX_SUSPENDED);
}

/* Failures are retried now and then, and logged when they are new. */
static void attach_all(struct yard *yard)
{
	for (size_t i = 0; i < yard->box_count; i++) {
		struct box *box = yard->boxes[i];
		struct err err = ERR_INIT, before;

		if (!is_up(box) || box->net->served)
			continue;
		before = box->net->problem;
		if (network_attach(box, &err) < 0 && strcmp(err.message, before.message))
			log_error("a box has no network", kv_str("box", box->row.id), kv_err(&err));
	}
}

static void open_gate(struct networks *networks)
{
	struct gate_settings now = settings(networks);
	struct yard *yard = networks->yard;

	networks->gate_since_us = clock_mono_us();
	err_clear(&networks->problem);
	if (gate_open(yard->loop, &now, &gate_ops, networks, &networks->gate, &networks->problem) <
		0) {
		log_error("the network gate does not start", kv_err(&networks->problem));
		try_again(networks);
		return;
	}
	attach_all(yard);
	audit_add(yard->audit,
		json_pack("{s:s,s:s,s:s}", "type", "gate", "state", "started", "who", "daemon"));
}

static void on_again(void *arg)
{
	struct networks *networks = arg;

	if (!networks->gate && !networks->yard->closing)
		open_gate(networks);
}

static void on_host_changed(void *arg)
{
	struct networks *networks = arg;
	struct gate_settings now = settings(networks);

	if (networks->gate)
		gate_set(networks->gate, &now);
}

static void on_keep(void *arg)
{
	struct networks *networks = arg;

	struct yard *yard = networks->yard;
	bool all = ++networks->kept >= KEEP_ALL_TIMES;
	bool together = store_begin(yard->store, NULL) == 0;
	struct err err = ERR_INIT;

	for (size_t i = 0; i < yard->box_count; i++)
		(all ? network_keep : network_keep_soon)(yard->boxes[i]);
	for (size_t i = 0; i < yard->box_count; i++)
		policy_record_check(yard->boxes[i]);
	if (together && store_commit(yard->store, STORE_KEPT, &err) < 0) {
		log_warn("cannot save the network meters", kv_err(&err));
		for (size_t i = 0; i < yard->box_count; i++)
			if (yard->boxes[i]->net)
				yard->boxes[i]->net->names_changed =
					yard->boxes[i]->net->spent_changed = true;
	}
	if (all && networks->gate)
		attach_all(yard);
	if (all)
		networks->kept = 0;
	loop_timer_start(networks->keep, KEEP_MS);
}

/* The file may be repaired while the daemon runs; until then boxes need a policy of their own. */
static void check_default(struct yard *yard)
{
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *policy = yard_default_policy(yard, &err);

	if (!policy)
		log_error("boxes without a policy of their own cannot be made", kv_err(&err));
}

int networks_open(struct yard *yard, struct err *err)
{
	struct networks *networks = xnew(struct networks);
	_cleanup_free_ char *folder = xasprintf("%s/audit", yard->conf->home);

	yard->networks = networks;
	networks->yard = yard;
	if (audit_open(yard->loop, folder, NULL, &yard->audit, err) < 0)
		return err_wrap(err, "audit log");
	yard->audit_shares = audit_shares_new(yard->loop, yard->audit);
	networks->owners = owners_new(yard);
	networks->host =
		host_watch_new(yard->loop, yard->conf->resolv_conf, on_host_changed, networks);
	networks->again = loop_timer_new(yard->loop, on_again, networks);
	networks->keep = loop_timer_new(yard->loop, on_keep, networks);
	loop_timer_start(networks->keep, KEEP_MS);
	check_default(yard);
	open_gate(networks);
	return 0;
}

void networks_stop(struct yard *yard)
{
	if (!yard->networks)
		return;
	gate_close(steal_ptr(&yard->networks->gate));
	owners_settle(yard->networks->owners);
}

void networks_close(struct yard *yard)
{
	struct networks *networks = yard->networks;

	if (!networks)
		return;
	owners_free(networks->owners);
	loop_undefer(yard->loop, close_dead, networks);
	gate_close(networks->dead);
	gate_close(steal_ptr(&networks->gate));
	forget_dials(networks);
	host_watch_free(networks->host);
	loop_timer_free(networks->again);
	loop_timer_free(networks->keep);
	audit_shares_free(yard->audit_shares);
	yard->audit_shares = NULL;
	audit_close(yard->audit);
	yard->audit = NULL;
	yard->networks = NULL;
	free(networks);
}

struct gate *yard_gate(struct yard *yard)
{
	return yard->networks ? yard->networks->gate : NULL;
}

char *yard_box_resolv_conf(struct yard *yard)
{
	return host_watch_box_resolv_conf(yard->networks->host);
}

json_t *networks_json(struct yard *yard)
{
	const struct networks *networks = yard->networks;
	const char *trouble = audit_trouble(yard->audit);
	json_t *json = json_object();

	json_object_set_new(json, "gate_pid",
		networks->gate ? json_integer(gate_get_pid(networks->gate)) : json_null());
	json_object_set_new(json, "problem",
		networks->gate ? (trouble ? json_string(trouble) : json_null())
			       : json_string(networks->problem.message));
	json_object_set_new(json, "audit", audit_json(yard->audit));
	return json;
}

const char *const *networks_host_ranges(struct yard *yard)
{
	return host_watch_addresses(yard->networks->host);
}
