/* process.c - main of `box gate`: drops privileges, runs a loop, handles messages of the daemon
 *
 * It ends when the daemon's end of the socket closes. The daemon is trusted: its messages are not
 * checked. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "gate/gate_internal.h"
#include "loop/loop.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { DAEMON_FD = 3, TICK_MS = 1000, END_MS = 500, QUESTIONS_MAX = 2048 };

/* ---- settings ------------------------------------------------------------------------------- */

static struct upstream_server read_server(json_t *value)
{
	struct upstream_server server = { 0 };
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&server.address;
	struct sockaddr_in *four = (struct sockaddr_in *)&server.address;
	const char *address = json_string_value(json_object_get(value, "address"));
	uint16_t port = htons((uint16_t)json_integer_value(json_object_get(value, "port")));

	if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = port;
		server.len = sizeof *four;
	} else if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = port;
		six->sin6_scope_id = (uint32_t)json_integer_value(json_object_get(value, "scope"));
		server.len = sizeof *six;
	}
	return server;
}

static void set_servers(struct process *process, json_t *list)
{
	struct upstream_server servers[RESOLV_SERVERS_MAX];
	size_t count = 0, i;
	json_t *item;

	json_array_foreach (list, i, item)
		if (count < RESOLV_SERVERS_MAX)
			servers[count++] = read_server(item);
	upstream_set_servers(process->upstream, servers, count);
}

static void set_proxy(struct process *process, json_t *message)
{
	struct dial_proxy proxy = { 0 };
	struct err err = ERR_INIT;

	if (dial_proxy_parse(json_string_value(json_object_get(message, "proxy")),
		    json_string_value(json_object_get(message, "no_proxy")), &proxy, &err) < 0)
		log_warn("the proxy is not used", kv_err(&err));
	dial_proxy_done(&process->proxy);
	process->proxy = proxy;
}

static void set_host_ranges(struct process *process, json_t *list)
{
	char **ranges = NULL;
	json_t *item;
	size_t i;

	json_array_foreach (list, i, item)
		strv_add(&ranges, json_string_value(item));
	strv_free(process->host_ranges);
	process->host_ranges = ranges;
}

/* fn may end the tenant. */
static void each_tenant(struct process *process, void (*fn)(struct tenant *tenant))
{
	for (struct named *node = process->tenants.oldest, *next; node; node = next) {
		next = node->newer;
		fn((struct tenant *)node);
	}
}

static void on_settings(struct process *process, json_t *message)
{
	set_servers(process, json_object_get(message, "servers"));
	set_proxy(process, message);
	set_host_ranges(process, json_object_get(message, "host_ranges"));
	each_tenant(process, tenant_recompile);
}

/* ---- boxes ---------------------------------------------------------------------------------- */

static void on_drop(struct tenant *tenant, json_t *message)
{
	(void)message;
	tenant_free(tenant, "the box has stopped");
}

static void on_policy(struct tenant *tenant, json_t *message)
{
	struct err err = ERR_INIT;

	if (tenant_set_policy(tenant, message, &err) == 0)
		return;
	log_error("a box is closed: its policy cannot be read", kv_str("box", tenant->key),
		kv_err(&err));
	tenant_free(tenant, "its policy cannot be read");
}

static void on_rename(struct tenant *tenant, json_t *message)
{
	tenant_rename(tenant, json_string_value(json_object_get(message, "name")));
}

static void on_record(struct tenant *tenant, json_t *message)
{
	tenant_set_recording(tenant, json_is_true(json_object_get(message, "on")));
}

static void answer(struct process *process, json_t *message, json_t *value)
{
	json_t *reply = json_pack("{s:s, s:O, s:o}", "do", "answer", "request",
		json_object_get(message, "request"), "value", value);

	channel_send(process->channel, reply, NULL, 0);
}

static void on_recorded(struct tenant *tenant, json_t *message)
{
	for (struct flow *flow = tenant->flows; flow; flow = flow->next)
		flow_figures(flow);
	answer(tenant->process, message, record_json(tenant));
}

static void on_connections(struct tenant *tenant, json_t *message)
{
	json_t *list = json_array();

	for (struct flow *flow = tenant->flows; flow && json_array_size(list) < 1000;
		flow = flow->next)
		json_array_append_new(list, flow_json(flow));
	answer(tenant->process, message, list);
}

static void on_names(struct tenant *tenant, json_t *message)
{
	answer(tenant->process, message, synthetic_save(tenant->names));
}

static void on_reserve(struct tenant *tenant, json_t *message)
{
	tenant_reserve(tenant, (uint64_t)json_integer_value(json_object_get(message, "reserved")));
}

static void on_asleep(struct tenant *tenant, json_t *message)
{
	tenant_set_asleep(tenant, (unsigned)json_integer_value(json_object_get(message, "what")));
}

static const struct {
	const char *name;
	void (*fn)(struct tenant *tenant, json_t *message);
} box_messages[] = {
	{ "drop", on_drop },
	{ "policy", on_policy },
	{ "rename", on_rename },
	{ "record", on_record },
	{ "recorded", on_recorded },
	{ "connections", on_connections },
	{ "names", on_names },
	{ "reserve", on_reserve },
	{ "asleep", on_asleep },
};

/* ---- messages ------------------------------------------------------------------------------- */

static void on_add(struct process *process, json_t *message, int *fds, size_t count)
{
	struct err err = ERR_INIT;

	if (tenant_add(process, message, fds, count, &err) < 0)
		log_error("a box is not served",
			kv_str("box", json_string_value(json_object_get(message, "box"))),
			kv_err(&err));
}

static void on_dialled_message(struct process *process, json_t *message, int *fds, size_t count)
{
	const char *text = json_string_value(json_object_get(message, "error")),
		   *kind = json_string_value(json_object_get(message, "kind"));
	struct err err = ERR_INIT;

	err_set(&err, kind ? err_kind_from_code(kind) : ERR_UNAVAILABLE, "%s",
		text ? text : "no socket for it");
	flow_answered(process, (uint64_t)json_integer_value(json_object_get(message, "ticket")),
		count ? steal_fd(&fds[0]) : -1, &err);
}

static void drop_for_end(struct tenant *tenant)
{
	tenant_free(tenant, "the gate was closed");
}

static void on_end(struct process *process)
{
	each_tenant(process, drop_for_end);
	channel_drain(process->channel, false, END_MS);
	loop_stop(process->loop);
}

static void on_message(void *arg, json_t *message, int *fds, size_t count)
{
	struct process *process = arg;
	const char *what = json_string_value(json_object_get(message, "do")),
		   *key = json_string_value(json_object_get(message, "box"));
	struct tenant *tenant = tenant_find(process, key);

	if (!what)
		return;
	if (!strcmp(what, "settings"))
		on_settings(process, message);
	else if (!strcmp(what, "add"))
		on_add(process, message, fds, count);
	else if (!strcmp(what, "dialled"))
		on_dialled_message(process, message, fds, count);
	else if (!strcmp(what, "end"))
		on_end(process);
	for (size_t i = 0; tenant && i < ARRAY_LEN(box_messages); i++)
		if (!strcmp(box_messages[i].name, what)) {
			box_messages[i].fn(tenant, message);
			return;
		}
	if (tenant || !key)
		return;
	/* The box could not be served. */
	if (!strcmp(what, "drop"))
		channel_send(process->channel, json_pack("{s:s, s:s}", "do", "dropped", "box", key),
			NULL, 0);
	else if (json_object_get(message, "request"))
		answer(process, message, json_null());
}

static void on_ended(void *arg, const struct err *err)
{
	struct process *process = arg;

	if (err->kind != ERR_UNAVAILABLE) {
		log_error("the gate ends", kv_err(err));
		process->exit_code = 1;
	}
	loop_stop(process->loop);
}

static void tick_one(struct tenant *tenant)
{
	tenant_tick(tenant, clock_mono_us());
}

static void on_second(void *arg)
{
	struct process *process = arg;

	loop_timer_start(process->second, TICK_MS);
	each_tenant(process, tick_one);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void start(struct process *process)
{
	static const struct channel_ops channel_ops = { .message = on_message, .ended = on_ended };
	struct rlimit files = { .rlim_cur = 1024 };

	getrlimit(RLIMIT_NOFILE, &files);
	process->fds_max = (size_t)MIN(files.rlim_cur, (rlim_t)1 << 20);
	process->loop = loop_new();
	process->upstream = upstream_new(process->loop,
		&(struct upstream_options){ .questions_max = (unsigned)MIN((size_t)QUESTIONS_MAX,
						    process->fds_max / 16 + 16),
			/* A flow has two requests and more descriptors than that. */
			.asks_max = (unsigned)process->fds_max });
	process->dns = dns_server_new(process->loop,
		&(struct dns_server_options){ .ops = &names_ops, .upstream = process->upstream });
	process->hub = relay_hub_new(process->loop);
	process->dial = (struct dial_settings){
		.loop = process->loop, .upstream = process->upstream, .proxy = &process->proxy
	};
	name_table_init(&process->tenants);
	name_table_init(&process->trees);
	set_host_ranges(process, NULL);
	process->channel =
		channel_new(process->loop, DAEMON_FD, CHANNEL_FDS_MAX, &channel_ops, process);
	process->second = loop_timer_new(process->loop, on_second, process);
	loop_timer_start(process->second, TICK_MS);
}

static void finish(struct process *process)
{
	channel_stop(process->channel);
	each_tenant(process, drop_for_end);
	loop_timer_free(process->second);
	channel_free(process->channel);
	relay_hub_free(process->hub);
	dns_server_free(process->dns);
	upstream_free(process->upstream);
	dial_proxy_done(&process->proxy);
	strv_free(process->host_ranges);
	name_table_done(&process->tenants);
	name_table_done(&process->trees);
	loop_free(process->loop);
}

int gate_main(void)
{
	static const int ignored[] = { SIGPIPE, SIGINT, SIGTERM,
		SIGHUP }; /* it ends when the daemon does */
	struct process process = { 0 };
	struct err err = ERR_INIT;

	prctl(PR_SET_NAME, "box-gate");
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		signal(ignored[i], SIG_IGN);
	if (fcntl(DAEMON_FD, F_SETFD, FD_CLOEXEC) < 0) {
		fprintf(stderr, "box gate is started by the daemon\n");
		return 64;
	}
	if (privileges_drop(&err) < 0) {
		log_error(
			"the gate cannot give up its privileges and does not serve", kv_err(&err));
		return 1;
	}
	start(&process);
	loop_run(process.loop);
	finish(&process);
	return process.exit_code;
}
