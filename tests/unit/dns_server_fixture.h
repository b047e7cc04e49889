/* dns_server_fixture.h - the resolver of a box with a server above it, and a client that asks it */
#pragma once
#include "dns_fixture.h"
#include "base/text.h"
#include "gate/dns/server.h"
#include "net/synthetic.h"

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

/* ---- the box -------------------------------------------------------------------------------- */

static struct dns_server *server;
static struct dns_box *box;
static struct upstream *upstream;
static struct above *above;
static struct synthetic *map;
static uint16_t port;
static unsigned decided, logged, limited;
static struct dns_event last;
static char last_name[DNS_TEXT_MAX];

static inline enum dns_verdict decide(void *arg, const char *name, uint16_t type)
{
	static const struct {
		const char *name;
		enum dns_verdict verdict;
	} names[] = {
		{ "syn.test", DNS_SYNTHETIC },
		{ "one.test", DNS_UPSTREAM },
		{ "two.test", DNS_UPSTREAM },
		{ "none.test", DNS_UPSTREAM },
		{ "empty.test", DNS_UPSTREAM },
		{ "rebind.test", DNS_UPSTREAM },
		{ "inside.test", DNS_UPSTREAM_PRIVATE },
		{ "secret.test", DNS_DENY_REFUSED },
	};

	(void)type;
	assert_ptr_equal(arg, &port);
	decided++;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i].name))
			return names[i].verdict;
	return DNS_DENY_NXDOMAIN;
}

static inline void note(void *arg, const struct dns_event *event)
{
	assert_ptr_equal(arg, &port);
	if (event->verdict == DNS_LIMITED) {
		limited++;
		return;
	}
	logged++;
	last = *event;
	snprintf(last_name, sizeof last_name, "%s", event->name);
	last.name = last_name;
	assert_true(event->took_us >= 0);
}

static const struct dns_server_ops ops = { .decide = decide, .log = note };

static inline void start(const struct dns_box_options *wish)
{
	struct dns_box_options options = *wish;
	struct upstream_server server_above;
	struct err err = ERR_INIT;
	int udp, tcp;

	above = above_new(ABOVE_HONEST);
	server_above = server_at(above->port);
	upstream = upstream_new(loop, &(struct upstream_options){ .servers = &server_above,
					      .server_count = 1,
					      .timeout_ms = 300,
					      .attempts = 1 });
	server = dns_server_new(loop, &(struct dns_server_options){ .ops = &ops,
					      .upstream = upstream,
					      .pending_max = 8,
					      .conns_max = 3,
					      .idle_ms = 400 });
	map = synthetic_new(0);
	port = 0;
	loopback_pair(&udp, &tcp, &port);
	options.udp = &udp;
	options.tcp = &tcp;
	options.udp_count = options.tcp_count = 1;
	options.arg = &port;
	options.synthetic = map;
	assert_int_equal(dns_server_add(server, &options, &box, &err), 0);
}

static inline int setup(void **state)
{
	(void)state;
	loop = loop_new();
	decided = logged = limited = 0;
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	dns_server_free(server);
	upstream_free(upstream);
	above_free(above);
	synthetic_free(map);
	loop_free(loop);
	return 0;
}

/* ---- the client ----------------------------------------------------------------------------- */

struct answer {
	size_t len;
	unsigned id, rcode, answers, additional;
	bool truncated;
	uint8_t bytes[DNS_TCP_MAX];
};

static unsigned arrived;

static inline void on_arrival(void *arg, unsigned ready)
{
	(void)ready;
	(void)arg;
	arrived = 1;
	loop_stop(loop);
}

/* Runs the loop until fd has something to read; false after ms. */
static inline bool wait_for(int fd, unsigned ms)
{
	struct loop_fd *watch = loop_fd_new(loop, fd, LOOP_READ, on_arrival, NULL);

	arrived = 0;
	run_for(ms);
	loop_fd_free(watch);
	return arrived;
}

static inline size_t make_query(
	uint8_t *out, uint16_t id, const char *name, uint16_t type, unsigned edns)
{
	struct dns_question question = { .type = type };
	size_t len;

	assert_true(dns_name_parse(name, &question.name));
	len = dns_question_build(&question, out);
	out[0] = id >> 8;
	out[1] = id & 0xff;
	if (edns) {
		out[len - 8] = edns >> 8;
		out[len - 7] = edns & 0xff;
		return len;
	}
	out[11] = 0;
	return len - 11;
}

static inline void read_head(struct answer *answer)
{
	const uint8_t *at = answer->bytes;

	assert_true(answer->len >= DNS_HEADER);
	assert_true(at[2] & 0x80);
	answer->id = at[0] << 8 | at[1];
	answer->rcode = at[3] & 15;
	answer->truncated = at[2] & 2;
	answer->answers = at[6] << 8 | at[7];
	answer->additional = at[10] << 8 | at[11];
}

static inline bool exchange(
	int fd, const void *message, size_t len, unsigned ms, struct answer *ret)
{
	ssize_t got;

	assert_int_equal(send(fd, message, len, 0), len);
	if (!wait_for(fd, ms))
		return false;
	got = recv(fd, ret->bytes, sizeof ret->bytes, 0);
	assert_true(got > 0);
	ret->len = (size_t)got;
	read_head(ret);
	return true;
}

static inline void ask(const char *name, uint16_t type, struct answer *ret)
{
	uint8_t message[DNS_QUERY_MAX];
	size_t len = make_query(message, 77, name, type, 1232);
	int fd = connect_to(port, SOCK_DGRAM);

	assert_true(exchange(fd, message, len, 2000, ret));
	assert_int_equal(ret->id, 77);
	assert_int_equal(ret->additional, 1);
	close(fd);
}

/* The data of the first record; replies point at their question, so it stands at a known place. */
static inline struct address address_of(const struct answer *answer)
{
	size_t at = DNS_HEADER;

	assert_true(answer->answers > 0);
	while (answer->bytes[at])
		at += 1 + answer->bytes[at];
	at += 1 + 4 + 12;
	return answer->bytes[at - 1] == 4 ? address_v4(answer->bytes + at)
					  : address_v6(answer->bytes + at);
}

static inline size_t make_frame(uint8_t *out, uint16_t id, const char *name)
{
	size_t len = make_query(out + 2, id, name, DNS_TYPE_A, 0);

	out[0] = len >> 8;
	out[1] = len & 0xff;
	return 2 + len;
}
