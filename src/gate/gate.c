/* gate.c - the daemon's end: starts the process, sends it orders, passes its reports on
 *
 * The gate reads what boxes send, so it may be under their control: each of its messages is checked
 * completely before it is used (reports.c), and a single malformed one ends the gate. Reports about
 * unknown boxes are ignored; a dropped box is known until the gate confirms it, so that its last
 * figures are not lost. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "gate/gate_internal.h"
#include "loop/loop.h"
#include "net/resolv_conf.h"
#include "sys/clone.h"
#include "sys/procfd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

enum {
	CLOSE_MS = 1000,
	MESSAGES_MAX = 200000, /* per second: what a thousand boxes can cause */
};

/* ---- the end -------------------------------------------------------------------------------- */

static void fail_requests(struct gate *gate)
{
	while (gate->requests) {
		struct request *request = gate->requests;

		gate->requests = request->next;
		request->done(request->arg, NULL, &gate->why);
		free(request);
	}
}

static void tell_down(void *arg)
{
	struct gate *gate = arg;

	fail_requests(gate);
	gate->ops->down(gate->arg, &gate->why);
}

void gate_go_down(struct gate *gate, const struct err *err)
{
	if (gate->is_down)
		return;
	gate->is_down = true;
	gate->why = *err;
	channel_stop(gate->channel);
	loop_fd_set(gate->exit_watch, 0);
	procfd_kill(gate->pidfd, SIGKILL, NULL);
	if (!gate->is_closing)
		loop_defer(gate->loop, tell_down, gate);
}

static void on_exit_of_process(void *arg, unsigned ready)
{
	struct gate *gate = arg;
	struct err err = ERR_INIT;

	(void)ready;
	err_set(&err, ERR_UNAVAILABLE, "the gate has ended");
	gate_go_down(gate, &err);
}

static void on_channel_ended(void *arg, const struct err *err)
{
	struct err why = *err;

	err_wrap(&why, "gate");
	gate_go_down(arg, &why);
}

/* ---- reports -------------------------------------------------------------------------------- */

static struct doors_endpoint endpoint_of(json_t *value)
{
	struct doors_endpoint endpoint = { 0 };

	address_parse(json_string_value(json_object_get(value, "address")), &endpoint.address);
	endpoint.port = (uint16_t)json_integer_value(json_object_get(value, "port"));
	return endpoint;
}

static void on_event(struct gate *gate, struct member *member, json_t *message)
{
	json_t *event = json_object_get(message, "event");
	char at[CLOCK_RFC3339_MAX];

	json_object_set_new(event, "at", json_string(clock_rfc3339(clock_wall_us(), at)));
	json_object_set_new(event, "box", json_string(member->id));
	gate->ops->event(gate->arg, member->id, event);
}

static void on_meters(struct gate *gate, struct member *member, json_t *message)
{
	gate->ops->meters(gate->arg, member->id, json_object_get(message, "meters"));
}

static void on_limit(struct gate *gate, struct member *member, json_t *message)
{
	if (!member->dropped)
		gate->ops->limit(gate->arg, member->id, json_object_get(message, "data"));
}

static void on_names(struct gate *gate, struct member *member, json_t *message)
{
	gate->ops->names(gate->arg, member->id, json_object_get(message, "saved"));
}

static uint64_t ticket_of(json_t *message)
{
	return (uint64_t)json_integer_value(json_object_get(message, "ticket"));
}

static void on_reserve(struct gate *gate, struct member *member, json_t *message)
{
	(void)message;
	if (!member->dropped)
		gate->ops->reserve(gate->arg, member->id);
}

static void on_traffic(struct gate *gate, struct member *member, json_t *message)
{
	if (!member->dropped)
		gate->ops->traffic(gate->arg, member->id,
			json_integer_value(json_object_get(message, "peer")) != 0);
}

static void on_dial_box(struct gate *gate, struct member *member, json_t *message)
{
	if (!member->dropped)
		gate->ops->dial_box(gate->arg, member->id,
			json_string_value(json_object_get(message, "name")),
			(uint16_t)json_integer_value(json_object_get(message, "port")),
			ticket_of(message));
}

static void on_open_udp(struct gate *gate, struct member *member, json_t *message)
{
	struct doors_endpoint aim = endpoint_of(json_object_get(message, "aim"));
	struct doors_endpoint client = endpoint_of(json_object_get(message, "client"));

	if (!member->dropped)
		gate->ops->open_udp(gate->arg, member->id, &aim, &client, ticket_of(message));
}

static void member_free(struct gate *gate, struct member *member)
{
	name_table_remove(&gate->members, &member->node);
	*member->at = member->next;
	if (member->next)
		member->next->at = member->at;
	free(member->key);
	free(member->id);
	free(member);
}

static void on_dropped(struct gate *gate, struct member *member, json_t *message)
{
	_cleanup_free_ char *id = NULL;

	(void)message;
	if (!member->dropped)
		return;
	id = steal_ptr(&member->id);
	member_free(gate, member);
	if (gate->ops->left)
		gate->ops->left(gate->arg, id);
}

/* At the end only reports that are stored are accepted. */
static const struct report {
	const char *name;
	void (*fn)(struct gate *gate, struct member *member, json_t *message);
	bool at_end;
} reports[] = {
	{ "event", on_event, true },
	{ "meters", on_meters, true },
	{ "names", on_names, true },
	{ "reserve", on_reserve, false },
	{ "traffic", on_traffic, false },
	{ "dropped", on_dropped, true },
	{ "limit", on_limit, false },
	{ "dial_box", on_dial_box, false },
	{ "open_udp", on_open_udp, false },
};

static int take_answer(struct gate *gate, json_t *message, struct err *err)
{
	uint64_t number = (uint64_t)json_integer_value(json_object_get(message, "request"));

	for (struct request **at = &gate->requests; *at; at = &(*at)->next) {
		struct request *request = *at;

		if (request->number != number)
			continue;
		*at = request->next;
		request->done(request->arg, json_object_get(message, "value"), NULL);
		free(request);
		return 0;
	}
	return err_set(err, ERR_PROTOCOL, "an answer without a request");
}

static bool is_flooded(struct gate *gate)
{
	int64_t now = clock_mono_us();

	if (now - gate->window > 1000000) {
		gate->window = now;
		gate->came = 0;
	}
	return ++gate->came > MESSAGES_MAX;
}

static int take_message(struct gate *gate, json_t *message, struct err *err)
{
	const char *what, *key;
	struct named *member;

	if (is_flooded(gate))
		return err_set(err, ERR_PROTOCOL, "too many messages");
	if (report_check(message, err) < 0)
		return -1;
	what = json_string_value(json_object_get(message, "do"));
	key = json_string_value(json_object_get(message, "box"));
	if (!strcmp(what, "answer"))
		return take_answer(gate, message, err);
	member = key ? name_table_find(&gate->members, key, 0) : NULL;
	for (size_t i = 0; member && i < ARRAY_LEN(reports); i++)
		if (!strcmp(reports[i].name, what) && (reports[i].at_end || !gate->is_closing)) {
			reports[i].fn(gate, (struct member *)member, message);
			return 0;
		}
	return 0;
}

static void on_message(void *arg, json_t *message, int *fds, size_t count)
{
	struct gate *gate = arg;
	struct err err = ERR_INIT;

	(void)fds;
	(void)count;
	if (take_message(gate, message, &err) == 0)
		return;
	err_wrap(&err, "malformed message from the gate");
	gate_go_down(gate, &err);
}

/* ---- starting ------------------------------------------------------------------------------- */

/* Between clone and exec: system calls only. */
static _Noreturn void become_gate(int sock, int (*run)(void))
{
	static char *const argv[] = { (char *)"box", (char *)"gate", NULL }, *const nothing[] = {
		NULL
	};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		_exit(126);
	if (sock == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup2(sock, 3) < 0)
		_exit(126);
	close_range(4, ~0U, 0);
	clone_reset_signals();
	if (run)
		_exit(run());
	execve("/proc/self/exe", argv, nothing);
	_exit(127);
}

static int start_process(struct gate *gate, int (*run)(void), struct err *err)
{
	static const struct channel_ops channel_ops = { .message = on_message,
		.ended = on_channel_ended };
	const struct clone_spec how = { .cgroup = -1 };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return err_sys(err, errno, "socketpair for the gate");
	gate->pid = clone_process(&how, &gate->pidfd, err);
	if (gate->pid == 0)
		become_gate(pair[1], run);
	close(pair[1]);
	if (gate->pid < 0) {
		close(pair[0]);
		return err_wrap(err, "start the gate");
	}
	gate->channel = channel_new(gate->loop, pair[0], 0, &channel_ops, gate);
	gate->exit_watch =
		loop_fd_new(gate->loop, gate->pidfd, LOOP_READ, on_exit_of_process, gate);
	return 0;
}

/* ---- life ----------------------------------------------------------------------------------- */

int gate_open_as(struct loop *loop, const struct gate_settings *settings,
	const struct gate_ops *ops, void *arg, int (*run)(void), struct gate **ret, struct err *err)
{
	struct gate *gate;

	if (gate_check_settings(settings, err) < 0)
		return -1;
	gate = xnew(struct gate);
	*gate = (struct gate){ .loop = loop, .ops = ops, .arg = arg, .pidfd = -1 };
	if (start_process(gate, run, err) < 0) {
		free(gate);
		return -1;
	}
	name_table_init(&gate->members);
	gate_send_settings(gate, settings);
	*ret = gate;
	return 0;
}

int gate_open(struct loop *loop, const struct gate_settings *settings, const struct gate_ops *ops,
	void *arg, struct gate **ret, struct err *err)
{
	return gate_open_as(loop, settings, ops, arg, NULL, ret, err);
}

pid_t gate_get_pid(const struct gate *gate)
{
	return gate->pid;
}

void gate_close(struct gate *gate)
{
	struct pollfd ended;
	int code;

	if (!gate)
		return;
	gate->is_closing = true;
	loop_undefer(gate->loop, tell_down, gate);
	if (!gate->is_down) {
		channel_send(gate->channel, json_pack("{s:s}", "do", "end"), NULL, 0);
		channel_drain(gate->channel, true, CLOSE_MS);
		err_set(&gate->why, ERR_CANCELLED, "the gate was closed");
	}
	fail_requests(gate);
	channel_free(gate->channel);
	procfd_kill(gate->pidfd, SIGKILL, NULL);
	ended = (struct pollfd){ .fd = gate->pidfd, .events = POLLIN };
	while (poll(&ended, 1, -1) < 0 && errno == EINTR)
		;
	procfd_reap(gate->pidfd, &code);
	loop_fd_free(gate->exit_watch);
	close(gate->pidfd);
	while (gate->first)
		member_free(gate, gate->first);
	name_table_done(&gate->members);
	free(gate);
}
