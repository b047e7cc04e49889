/* gate_fixture.h - a box's network namespace, an "internet" on the loopback of another, and a gate
 * between them
 *
 * The test process lives in a namespace of its own that has nothing but lo, where 203.0.113.0/24 is
 * local: servers and a resolver are there. The box is a second namespace, furnished as real ones
 * are. Nothing leads out of either. */
#pragma once
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "gate/gate_internal.h"
#include "loop/loop.h"
#include "gate/dns/message.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define SERVER "203.0.113.10"

static struct loop *loop;
static struct gate *gate;
static int home = -1, netns = -1;
static json_t *events, *meters, *limits, *saved_names;
static unsigned downs, dials;
static struct err down_err;
static char dialled_name[64];

/* ---- waiting -------------------------------------------------------------------------------- */

static inline void stop_loop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static inline void run_for(uint64_t ms)
{
	struct loop_timer *timer = loop_timer_new(loop, stop_loop, NULL);

	loop_timer_start(timer, ms);
	loop_run(loop);
	loop_timer_free(timer);
}

/* Until the condition holds; fails after four seconds. */
#define WAIT_FOR(condition)                                               \
	do {                                                              \
		int64_t end_ = clock_mono_us() + 4000000;                 \
		bool holds_;                                              \
		while (!(holds_ = (condition)) && clock_mono_us() < end_) \
			run_for(1);                                       \
		assert_true(holds_);                                      \
	} while (0)

/* ---- what the gate tells -------------------------------------------------------------------- */

static inline void on_event(void *arg, const char *box, json_t *event)
{
	(void)arg;
	assert_string_equal(json_string_value(json_object_get(event, "box")), box);
	json_array_append(events, event);
}

static inline void on_meters(void *arg, const char *box, json_t *value)
{
	(void)arg;
	(void)box;
	json_decref(meters);
	meters = json_incref(value);
}

static inline void on_limit(void *arg, const char *box, json_t *data)
{
	(void)arg;
	(void)box;
	json_array_append(limits, data);
}

static inline void on_names(void *arg, const char *box, json_t *saved)
{
	(void)arg;
	(void)box;
	json_decref(saved_names);
	saved_names = json_incref(saved);
}

static inline int connect_now(const char *address, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
	assert_true(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS);
	return fd;
}

/* The box "friend" is a server of ours; others refuse. */
static inline void on_dial_box(
	void *arg, const char *box, const char *name, uint16_t port, uint64_t ticket)
{
	struct err err = ERR_INIT;

	(void)arg;
	(void)box;
	dials++;
	snprintf(dialled_name, sizeof dialled_name, "%s", name);
	if (!strcmp(name, "friend")) {
		gate_dialled(gate, ticket, connect_now(SERVER, port), NULL);
		return;
	}
	err_set(&err, ERR_FORBIDDEN, "its policy does not name this box");
	gate_dialled(gate, ticket, -1, &err);
}

static inline void on_open_udp(void *arg, const char *box, const struct doors_endpoint *aim,
	const struct doors_endpoint *client, uint64_t ticket)
{
	struct err err = ERR_INIT;
	int fd = -1;

	(void)arg;
	(void)box;
	doors_open_udp(netns, aim, client, &fd, &err);
	gate_dialled(gate, ticket, fd, &err);
}

static inline void on_down(void *arg, const struct err *err)
{
	(void)arg;
	downs++;
	down_err = *err;
}

static unsigned reserves;
static uint64_t box_reserved = 4096;

static inline void on_reserve(void *arg, const char *box)
{
	(void)arg;
	reserves++;
	gate_reserve(gate, box, box_reserved += 2048);
}

static unsigned traffic_own, traffic_peers;

static inline void on_traffic(void *arg, const char *box, bool from_peer)
{
	(void)arg;
	(void)box;
	(*(from_peer ? &traffic_peers : &traffic_own))++;
}

static const struct gate_ops gate_ops = { .event = on_event,
	.meters = on_meters,
	.limit = on_limit,
	.names = on_names,
	.reserve = on_reserve,
	.traffic = on_traffic,
	.dial_box = on_dial_box,
	.open_udp = on_open_udp,
	.down = on_down };

/* The last event of that type whose key is value (NULL: any); borrowed, or NULL. */
static inline json_t *find_event(const char *type, const char *key, const char *value)
{
	for (size_t i = json_array_size(events); i--;) {
		json_t *event = json_array_get(events, i),
		       *found = key ? json_object_get(event, key) : NULL;

		if (strcmp(json_string_value(json_object_get(event, "type")), type))
			continue;
		if (!key || (found && !strcmp(json_string_value(found), value)))
			return event;
	}
	return NULL;
}

static inline unsigned count_events(const char *type)
{
	unsigned count = 0;

	for (size_t i = 0; i < json_array_size(events); i++)
		count += !strcmp(
			json_string_value(json_object_get(json_array_get(events, i), "type")),
			type);
	return count;
}

static inline const char *text_of(json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static inline json_int_t number_of(json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* ---- the internet --------------------------------------------------------------------------- */

static struct server {
	struct server *next;
	int listener, conn;
	struct loop_fd *watch, *conn_watch;
	unsigned accepted;
	size_t received;
	char first[8192]; /* what came first */
	bool echo;
} * servers; /* until the end of a test */

static inline void server_hang_up(struct server *server)
{
	loop_fd_free(server->conn_watch);
	server->conn_watch = NULL;
	if (server->conn >= 0)
		close(server->conn);
	server->conn = -1;
}

static inline void server_on_data(void *arg, unsigned ready)
{
	struct server *server = arg;
	char data[65536];
	ssize_t len = recv(server->conn, data, sizeof data, MSG_DONTWAIT);

	(void)ready;
	if (len <= 0) {
		server_hang_up(server);
		return;
	}
	if (server->received < sizeof server->first)
		memcpy(server->first + server->received, data,
			MIN((size_t)len, sizeof server->first - server->received));
	server->received += (size_t)len;
	if (server->echo)
		(void)!send(server->conn, data, (size_t)len, MSG_NOSIGNAL);
}

static inline void server_on_accept(void *arg, unsigned ready)
{
	struct server *server = arg;
	int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)ready;
	if (fd < 0)
		return;
	server_hang_up(server);
	server->conn = fd;
	server->accepted++;
	server->conn_watch = loop_fd_new(loop, fd, LOOP_READ, server_on_data, server);
}

static inline struct server *server_new(const char *address, uint16_t port)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct server *server = xnew(struct server);

	assert_int_equal(inet_pton(AF_INET, address, &own.sin_addr), 1);
	server->conn = -1;
	server->echo = true;
	server->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	assert_int_equal(bind(server->listener, (struct sockaddr *)&own, sizeof own), 0);
	assert_int_equal(listen(server->listener, 64), 0);
	server->watch = loop_fd_new(loop, server->listener, LOOP_READ, server_on_accept, server);
	server->next = servers;
	servers = server;
	return server;
}

static inline void servers_free(void)
{
	while (servers) {
		struct server *server = servers;

		servers = server->next;
		server_hang_up(server);
		loop_fd_free(server->watch);
		close(server->listener);
		free(server);
	}
}

/* The host's resolver, on 127.0.0.1:53: names that begin with "private" lead to 10.0.0.1, others to
 * SERVER. */
static int resolver = -1;
static struct loop_fd *resolver_watch;
static unsigned resolver_questions;

static inline void resolver_on_question(void *arg, unsigned ready)
{
	uint8_t message[1500], out[DNS_REPLY_MAX];
	struct sockaddr_in from;
	socklen_t from_len = sizeof from;
	ssize_t len =
		recvfrom(resolver, message, sizeof message, 0, (struct sockaddr *)&from, &from_len);
	struct address address;
	struct dns_query query;
	struct dns_reply reply = { .rcode = DNS_NOERROR, .ttl = 60, .addresses = &address };
	size_t reply_len;

	(void)arg;
	(void)ready;
	if (len < 0)
		return;
	resolver_questions++;
	assert_int_equal(dns_query_parse(message, (size_t)len, &query), DNS_NOERROR);
	address_parse(strncmp(query.text, "private", 7) ? SERVER : "10.0.0.1", &address);
	reply.count = query.type == DNS_TYPE_A;
	reply_len = dns_reply_build(&query, &reply, DNS_REPLY_MAX, out);
	(void)!sendto(resolver, out, reply_len, 0, (struct sockaddr *)&from, from_len);
}

static inline void resolver_open(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET,
		.sin_port = htons(53),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	resolver = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(resolver, (struct sockaddr *)&own, sizeof own), 0);
	resolver_watch = loop_fd_new(loop, resolver, LOOP_READ, resolver_on_question, NULL);
}

/* ---- the box -------------------------------------------------------------------------------- */

static inline int box_socket(int type)
{
	int fd;

	assert_int_equal(setns(netns, CLONE_NEWNET), 0);
	fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	assert_true(fd >= 0);
	return fd;
}

static inline int box_connect(const char *address, uint16_t port, int type)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = box_socket(type);

	assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
		assert_true(errno == EINPROGRESS || errno == ECONNREFUSED || errno == ECONNRESET);
	return fd;
}

/* Bytes that came, waiting for them: 0 for an end, -1 for a reset. */
static inline ssize_t box_read(int fd, char *data, size_t size)
{
	int64_t end = clock_mono_us() + 4000000;
	ssize_t len;

	while ((len = recv(fd, data, size, MSG_DONTWAIT)) < 0 &&
		(errno == EAGAIN || errno == ENOTCONN) && clock_mono_us() < end)
		run_for(1);
	return len;
}

static inline void box_write(int fd, const void *data, size_t len)
{
	int64_t end = clock_mono_us() + 4000000;

	for (size_t done = 0; done < len && clock_mono_us() < end;) {
		ssize_t sent = send(
			fd, (const char *)data + done, len - done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN && errno != ENOTCONN)
			return;
		done += sent > 0 ? (size_t)sent : 0;
		if (sent < 0)
			run_for(1);
	}
}

static inline void assert_reset(int fd)
{
	char byte;

	assert_int_equal(box_read(fd, &byte, 1), -1);
	assert_true(errno == ECONNRESET || errno == ECONNREFUSED);
	close(fd);
}

/* Asks the box's resolver. Returns the rcode; address (16 bytes or more) is filled in for an
 * answer, else "". */
static inline int ask(const char *name, char *address)
{
	struct dns_question question = { .type = DNS_TYPE_A };
	struct dns_result result = { 0 };
	uint8_t message[1500];
	int fd = box_connect(DOORS_RESOLVER_V4, 53, SOCK_DGRAM);
	size_t len;
	ssize_t got;

	assert_true(dns_name_parse(name, &question.name));
	len = dns_question_build(&question, message);
	assert_int_equal(send(fd, message, len, 0), len);
	got = box_read(fd, (char *)message, sizeof message);
	assert_true(got > 0);
	assert_int_equal(dns_result_parse(message, (size_t)got, &question, &result), DNS_MATCH);
	address[0] = '\0';
	if (result.count)
		address_format(&result.addresses[0], address);
	close(fd);
	return result.rcode;
}

/* A connection to a name, as programs make it. */
static inline int box_dial(const char *name, uint16_t port)
{
	char address[ADDRESS_TEXT_MAX];

	assert_int_equal(ask(name, address), DNS_NOERROR);
	assert_true(!strncmp(address, "198.18.", 7));
	return box_connect(address, port, SOCK_STREAM);
}

#define POLICY_PLAIN                                                                             \
	"{\"preset\":\"none\",\"allow\":[\"good.test:7000\",\"good.test:443\",\"private.test\"," \
	"\"*.wild.test:7000\"]}"

/* ---- the gate ------------------------------------------------------------------------------- */

static const struct gate_settings settings = { .resolv_conf = "nameserver 127.0.0.1\n" };

static inline void add_box_with(const char *policy, json_t *names, json_t *spent, bool recording)
{
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *document = json_parse(policy, strlen(policy), &err);
	const struct gate_box box = { .id = "b1",
		.name = "ada",
		.policy = document,
		.version = 1,
		.names = names,
		.reserved = box_reserved,
		.spent = spent,
		.recording = recording };
	int doors[DOOR_COUNT];

	assert_non_null(document);
	/* A gate that has just been told to drop a box still holds its doors for a moment. */
	WAIT_FOR(doors_open(netns, doors, &err) == 0);
	if (gate_add(gate, &box, doors, &err) < 0)
		fail_msg("%s", err.message);
}

static inline void add_box(const char *policy)
{
	add_box_with(policy, NULL, NULL, false);
}

static inline void change_policy(const char *policy, uint64_t version)
{
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *document = json_parse(policy, strlen(policy), &err);
	const struct gate_box box = {
		.id = "b1", .name = "ada", .policy = document, .version = version
	};

	assert_int_equal(gate_set_policy(gate, &box, &err), 0);
}

/* Two namespaces for the whole program; false when this machine cannot. */
static inline bool world_open(void)
{
	struct doors_plan *plan = NULL;
	struct err err = ERR_INIT;

	if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0)
		return false;
	if (system("ip link set lo up && ip route add local 203.0.113.0/24 dev lo") != 0)
		return false;
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (doors_prepare(&plan, &err) < 0 || unshare(CLONE_NEWNET) < 0 ||
		doors_furnish(plan, false, &err) < 0) {
		fprintf(stderr, "no network for boxes: %s\n", err.message);
		return false;
	}
	netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	doors_plan_free(plan);
	return home >= 0 && netns >= 0 && setns(home, CLONE_NEWNET) == 0;
}

static inline int setup(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	loop = loop_new();
	events = json_array();
	limits = json_array();
	meters = saved_names = NULL;
	downs = dials = resolver_questions = 0;
	resolver_open();
	assert_int_equal(gate_open(loop, &settings, &gate_ops, NULL, &gate, &err), 0);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	gate_close(gate);
	servers_free();
	loop_fd_free(resolver_watch);
	close(resolver);
	json_decref(events);
	json_decref(limits);
	json_decref(meters);
	json_decref(saved_names);
	loop_free(loop);
	return 0;
}

#define GATE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* This program is also the gate that it starts. */
#define run_gate_tests(argc, argv, tests)                                                  \
	(argc == 2 && !strcmp(argv[1], "gate") ? be_the_gate()                             \
		: world_open()		       ? cmocka_run_group_tests(tests, NULL, NULL) \
					       : skip_gate_tests())

static inline int be_the_gate(void)
{
	_exit(gate_main());
}

static inline int skip_gate_tests(void)
{
	fprintf(stderr, "SKIP: needs root and network namespaces\n");
	return 77;
}
