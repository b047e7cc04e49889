/* orders.c - messages from the daemon to the gate: settings, boxes and their policies, requests */
#include "base/alloc.h"
#include "base/log.h"
#include "gate/gate_internal.h"
#include "loop/loop.h"
#include "net/resolv_conf.h"
#include <arpa/inet.h>
#include <sys/socket.h>

enum { HOST_RANGES_MAX = POLICY_HOSTS_MAX - 2 /* the synthetic ranges are added */ };

/* ---- settings ------------------------------------------------------------------------------- */

static json_t *strings(const char *const *list)
{
	json_t *array = json_array();

	for (size_t i = 0; list && list[i]; i++)
		json_array_append_new(array, json_string(list[i]));
	return array;
}

/* Interfaces are looked up here, because the gate may not. */
static json_t *servers_json(const char *text)
{
	struct upstream_server servers[RESOLV_SERVERS_MAX];
	struct resolv_conf conf;
	json_t *array = json_array();
	size_t count;

	resolv_conf_parse(text ? text : "", text ? strlen(text) : 0, &conf);
	count = upstream_servers_from_conf(&conf, servers);
	for (size_t i = 0; i < count; i++) {
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&servers[i].address;
		const struct sockaddr_in *four = (const struct sockaddr_in *)&servers[i].address;
		char address[INET6_ADDRSTRLEN];
		bool is_six = six->sin6_family == AF_INET6;

		inet_ntop(six->sin6_family,
			is_six ? (const void *)&six->sin6_addr : &four->sin_addr, address,
			sizeof address);
		json_array_append_new(
			array, json_pack("{s:s, s:i, s:i}", "address", address, "port",
				       (int)ntohs(is_six ? six->sin6_port : four->sin_port),
				       "scope", is_six ? (int)six->sin6_scope_id : 0));
	}
	return array;
}

int gate_check_settings(const struct gate_settings *settings, struct err *err)
{
	size_t count = 0;

	for (; settings->host_ranges && settings->host_ranges[count]; count++) {
		struct address_range cidr;

		if (policy_cidr_parse(settings->host_ranges[count], &cidr, err) < 0)
			return err_wrap(err, "range of the host");
	}
	if (count > HOST_RANGES_MAX)
		return err_set(
			err, ERR_TOO_LARGE, "more than %d ranges of the host", HOST_RANGES_MAX);
	return 0;
}

/* An unusable proxy is reported and left out: names may be reachable without it. */
static bool proxy_is_usable(const struct gate_settings *settings)
{
	struct dial_proxy proxy = { 0 };
	struct err err = ERR_INIT;

	if (dial_proxy_parse(settings->proxy, settings->no_proxy, &proxy, &err) < 0) {
		log_warn("the proxy of the environment is not used", kv_err(&err));
		return false;
	}
	dial_proxy_done(&proxy);
	return true;
}

void gate_send_settings(struct gate *gate, const struct gate_settings *settings)
{
	json_t *message = json_pack("{s:s, s:o, s:o}", "do", "settings", "servers",
		servers_json(settings->resolv_conf), "host_ranges", strings(settings->host_ranges));

	if (proxy_is_usable(settings)) {
		json_object_set_new(
			message, "proxy", json_string(settings->proxy ? settings->proxy : ""));
		json_object_set_new(message, "no_proxy",
			json_string(settings->no_proxy ? settings->no_proxy : ""));
	}
	channel_send(gate->channel, message, NULL, 0);
}

void gate_set(struct gate *gate, const struct gate_settings *settings)
{
	struct err err = ERR_INIT;

	/* Rather no network than with addresses of the host reachable. */
	if (gate_check_settings(settings, &err) < 0)
		gate_go_down(gate, &err);
	else
		gate_send_settings(gate, settings);
}

/* ---- boxes ---------------------------------------------------------------------------------- */

static struct member *find(struct gate *gate, const char *id)
{
	for (struct member *member = gate->first; member; member = member->next)
		if (!member->dropped && !strcmp(member->id, id))
			return member;
	return NULL;
}

static struct member *member_new(struct gate *gate, const char *id)
{
	struct member *member = xnew(struct member);

	member->id = xstrdup(id);
	member->key = xasprintf("%s.%llu", id, (unsigned long long)++gate->serial);
	member->next = gate->first;
	member->at = &gate->first;
	if (member->next)
		member->next->at = &member->next;
	gate->first = member;
	name_table_add(&gate->members, &member->node, member->key, 0);
	return member;
}

static int check_policy(json_t *policy, struct err *err)
{
	_cleanup_free_ char *text = json_text(policy);
	_cleanup_(policy_freep) struct policy *parsed = NULL;

	return policy_parse(text, strlen(text), &parsed, NULL, err);
}

static json_t *to_box(const struct member *member, const char *what)
{
	return json_pack("{s:s, s:s}", "do", what, "box", member->key);
}

static void put_policy(json_t *message, const struct gate_box *box)
{
	json_object_set_new(message, "name", json_string(box->name));
	json_object_set(message, "policy", box->policy);
	json_object_set_new(message, "version", json_integer((json_int_t)box->version));
	json_object_set_new(message, "package_hosts", strings(box->package_hosts));
}

int gate_add(struct gate *gate, const struct gate_box *box, int doors[DOOR_COUNT], struct err *err)
{
	json_t *message, *numbers = json_array();
	int fds[DOOR_COUNT];
	size_t count = 0;

	for (int i = 0; i < DOOR_COUNT; i++) {
		if (doors[i] < 0)
			continue;
		json_array_append_new(numbers, json_integer(i));
		fds[count++] = doors[i];
		doors[i] = -1;
	}
	if (gate->is_down)
		err_set(err, ERR_UNAVAILABLE, "the gate has ended");
	else if (find(gate, box->id))
		err_set(err, ERR_EXISTS, "box '%s' is served already", box->id);
	if (gate->is_down || find(gate, box->id) || check_policy(box->policy, err) < 0) {
		for (size_t i = 0; i < count; i++)
			close(fds[i]);
		json_decref(numbers);
		return -1;
	}
	message = to_box(member_new(gate, box->id), "add");
	put_policy(message, box);
	json_object_set_new(message, "doors", numbers);
	json_object_set_new(message, "recording", json_boolean(box->recording));
	if (box->tree)
		json_object_set_new(message, "tree", json_string(box->tree));
	if (box->names)
		json_object_set(message, "names", box->names);
	if (box->asleep)
		json_object_set_new(message, "asleep", json_integer(box->asleep));
	json_object_set_new(message, "given", json_integer((json_int_t)box->given));
	json_object_set_new(message, "reserved", json_integer((json_int_t)box->reserved));
	if (box->spent)
		json_object_set(message, "spent", box->spent);
	channel_send(gate->channel, message, fds, count);
	return 0;
}

void gate_drop(struct gate *gate, const char *id)
{
	struct member *member = find(gate, id);

	if (!member)
		return;
	member->dropped = true;
	channel_send(gate->channel, to_box(member, "drop"), NULL, 0);
}

int gate_set_policy(struct gate *gate, const struct gate_box *box, struct err *err)
{
	struct member *member = find(gate, box->id);
	json_t *message;

	if (gate->is_down)
		return err_set(err, ERR_UNAVAILABLE, "the gate has ended");
	if (!member)
		return err_set(err, ERR_NOT_FOUND, "box '%s' is not served", box->id);
	if (check_policy(box->policy, err) < 0)
		return -1;
	message = to_box(member, "policy");
	put_policy(message, box);
	channel_send(gate->channel, message, NULL, 0);
	return 0;
}

void gate_rename(struct gate *gate, const char *id, const char *name)
{
	struct member *member = find(gate, id);
	json_t *message;

	if (!member)
		return;
	message = to_box(member, "rename");
	json_object_set_new(message, "name", json_string(name));
	channel_send(gate->channel, message, NULL, 0);
}

void gate_asleep(struct gate *gate, const char *id, unsigned what)
{
	struct member *member = find(gate, id);
	json_t *message;

	if (!member)
		return;
	message = to_box(member, "asleep");
	json_object_set_new(message, "what", json_integer(what));
	channel_send(gate->channel, message, NULL, 0);
}

void gate_record(struct gate *gate, const char *id, bool on)
{
	struct member *member = find(gate, id);
	json_t *message;

	if (!member)
		return;
	message = to_box(member, "record");
	json_object_set_new(message, "on", json_boolean(on));
	channel_send(gate->channel, message, NULL, 0);
}

void gate_reserve(struct gate *gate, const char *id, uint64_t reserved)
{
	struct member *member = find(gate, id);
	json_t *message;

	if (!member)
		return;
	message = to_box(member, "reserve");
	json_object_set_new(message, "reserved", json_integer((json_int_t)reserved));
	channel_send(gate->channel, message, NULL, 0);
}

/* ---- requests ------------------------------------------------------------------------------- */

struct refusal {
	struct err err;
	void (*done)(void *arg, json_t *value, const struct err *err);
	void *arg;
};

static void tell_refusal(void *arg)
{
	struct refusal *refusal = arg;

	refusal->done(refusal->arg, NULL, &refusal->err);
	free(refusal);
}

static void ask(struct gate *gate, const char *what, const char *id,
	void (*done)(void *arg, json_t *value, const struct err *err), void *arg)
{
	struct member *member = find(gate, id);
	struct request *request;
	json_t *message;

	if (!member || gate->is_down) {
		struct refusal *refusal = xnew(struct refusal);

		*refusal = (struct refusal){ .done = done, .arg = arg };
		if (gate->is_down)
			err_set(&refusal->err, ERR_UNAVAILABLE, "the gate has ended");
		else
			err_set(&refusal->err, ERR_NOT_FOUND, "box '%s' is not served", id);
		loop_defer(gate->loop, tell_refusal, refusal);
		return;
	}
	request = xnew(struct request);
	*request = (struct request){
		.next = gate->requests, .number = ++gate->number, .done = done, .arg = arg
	};
	gate->requests = request;
	message = to_box(member, what);
	json_object_set_new(message, "request", json_integer((json_int_t)request->number));
	channel_send(gate->channel, message, NULL, 0);
}

void gate_recorded(struct gate *gate, const char *id,
	void (*done)(void *arg, json_t *seen, const struct err *err), void *arg)
{
	ask(gate, "recorded", id, done, arg);
}

void gate_connections(struct gate *gate, const char *id,
	void (*done)(void *arg, json_t *list, const struct err *err), void *arg)
{
	ask(gate, "connections", id, done, arg);
}

void gate_names(struct gate *gate, const char *id,
	void (*done)(void *arg, json_t *saved, const struct err *err), void *arg)
{
	ask(gate, "names", id, done, arg);
}

void gate_dialled(struct gate *gate, uint64_t ticket, int fd, const struct err *err)
{
	json_t *message = json_pack("{s:s, s:I}", "do", "dialled", "ticket", (json_int_t)ticket);

	if (err && fd < 0) {
		json_object_set_new(message, "error", json_string(err->message));
		json_object_set_new(message, "kind", json_string(err_kind_code(err->kind)));
	}
	channel_send(gate->channel, message, &fd, fd >= 0);
}
