/* test_dns_server.c - the server seen from a box's sockets: verdicts, hostile packets, TCP, limits,
 * speed */
#include "dns_fixture.h"
#include "base/text.h"
#include "gate/dns/server.h"
#include "net/synthetic.h"
#include <sys/wait.h>
#include <time.h>

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

static enum dns_verdict decide(void *arg, const char *name, uint16_t type)
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

static void note(void *arg, const struct dns_event *event)
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

static void start(const struct dns_box_options *wish)
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

static int setup(void **state)
{
	(void)state;
	loop = loop_new();
	decided = logged = limited = 0;
	return 0;
}

static int teardown(void **state)
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

static void on_arrival(void *arg, unsigned ready)
{
	(void)ready;
	(void)arg;
	arrived = 1;
	loop_stop(loop);
}

/* Runs the loop until fd has something to read; false after ms. */
static bool wait_for(int fd, unsigned ms)
{
	struct loop_fd *watch = loop_fd_new(loop, fd, LOOP_READ, on_arrival, NULL);

	arrived = 0;
	run_for(ms);
	loop_fd_free(watch);
	return arrived;
}

static size_t make_query(uint8_t *out, uint16_t id, const char *name, uint16_t type, unsigned edns)
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

static void read_head(struct answer *answer)
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

static bool exchange(int fd, const void *message, size_t len, unsigned ms, struct answer *ret)
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

static void ask(const char *name, uint16_t type, struct answer *ret)
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
static struct address address_of(const struct answer *answer)
{
	size_t at = DNS_HEADER;

	assert_true(answer->answers > 0);
	while (answer->bytes[at])
		at += 1 + answer->bytes[at];
	at += 1 + 4 + 12;
	return answer->bytes[at - 1] == 4 ? address_v4(answer->bytes + at)
					  : address_v6(answer->bytes + at);
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static struct answer answer;

static void test_synthetic_names_get_an_address_of_their_own(void **state)
{
	struct address address;

	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	ask("syn.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NOERROR);
	address = address_of(&answer);
	assert_string_equal(synthetic_name(map, &address), "syn.test");
	assert_int_equal(last.verdict, DNS_SYNTHETIC);
	assert_string_equal(last.name, "syn.test");
	assert_int_equal(last.addresses, 1);
	ask("Syn.TEST.", DNS_TYPE_AAAA, &answer);
	address = address_of(&answer);
	assert_int_equal(address.family, 6);
	assert_string_equal(synthetic_name(map, &address), "syn.test");
	assert_int_equal(above->udp_count, 0); /* nobody above hears of it */
	assert_int_equal(synthetic_count(map), 1);
}

static void test_other_types_are_empty(void **state)
{
	static const uint16_t types[] = { DNS_TYPE_AAAA, DNS_TYPE_HTTPS, DNS_TYPE_SVCB,
		DNS_TYPE_ANY, DNS_TYPE_CNAME, 12, 15, 16, 33, 4711 };

	(void)state;
	start(&(struct dns_box_options){ .ipv6 = false });
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		for (int j = 0; j < 2; j++) {
			ask(j ? "syn.test" : "one.test", types[i], &answer);
			assert_int_equal(answer.rcode, DNS_NOERROR);
			assert_int_equal(answer.answers, 0);
		}
	assert_int_equal(above->udp_count, 0);
}

static void test_denied_names_are_never_asked_above(void **state)
{
	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	ask("evilone.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NXDOMAIN);
	assert_int_equal(last.verdict, DNS_DENY_NXDOMAIN);
	ask("secret.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_REFUSED);
	ask("data-to-smuggle-out.one.test", DNS_TYPE_AAAA, &answer);
	assert_int_equal(answer.rcode, DNS_NXDOMAIN);
	assert_int_equal(above->udp_count + above->tcp_count, 0);
	assert_int_equal(synthetic_count(map), 0);
	assert_int_equal(logged, 3);
}

static void test_upstream_names_get_real_addresses(void **state)
{
	struct address address;
	char text[ADDRESS_TEXT_MAX];

	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	for (int i = 0; i < 2; i++) { /* asked, then kept */
		ask("two.test", DNS_TYPE_A, &answer);
		assert_int_equal(answer.answers, 2);
		address = address_of(&answer);
		assert_string_equal(address_format(&address, text), "203.0.113.1");
	}
	assert_int_equal(above->udp_count, 1);
	ask("one.test", DNS_TYPE_AAAA, &answer);
	address = address_of(&answer);
	assert_string_equal(address_format(&address, text), "2001:db8::1");
	ask("none.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NXDOMAIN);
	ask("empty.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_NOERROR);
	assert_int_equal(answer.answers, 0);
	above->mode = ABOVE_SILENT;
	ask("one.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_SERVFAIL);
	assert_int_equal(logged, 6);
}

static void test_rebinding_is_refused(void **state)
{
	(void)state;
	start(&(struct dns_box_options){ .ipv6 = true });
	ask("rebind.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.rcode, DNS_REFUSED);
	assert_int_equal(answer.answers, 0);
	assert_int_equal(last.private_refused, 1);
	ask("rebind.test", DNS_TYPE_AAAA, &answer);
	assert_int_equal(answer.rcode, DNS_REFUSED);
}

static void test_waiting_questions_are_bounded(void **state)
{
	uint8_t message[DNS_QUERY_MAX];
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	above->mode = ABOVE_SILENT;
	fd = connect_to(port, SOCK_DGRAM);
	for (unsigned i = 0; i < 12; i++) {
		size_t len = make_query(message, i, "one.test", DNS_TYPE_A, 0);

		assert_int_equal(send(fd, message, len, 0), len);
	}
	run_for(50);
	assert_int_equal(logged, 4); /* eight wait, four were told at once */
	run_until(&logged, 12);
	close(fd);
}

/* ---- hostile packets ------------------------------------------------------------------------ */

static void test_hostile_packets_are_refused_and_the_server_lives(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		int rcode; /* -1: no answer */
	} packets[] = {
#define PACKET(bytes, rcode) { bytes, sizeof(bytes) - 1, rcode }
		PACKET("x", -1),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0", -1),
		PACKET("\0\1\x81\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", -1),
		PACKET("\0\1\1\0\0\0\0\0\0\0\0\0", DNS_FORMERR),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", DNS_FORMERR),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\1a\xc0\x0c\0\1\0\1", DNS_FORMERR),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0", DNS_FORMERR),
		PACKET("\0\1\x28\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\1", DNS_NOTIMP),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0\3", DNS_REFUSED),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\3a.b\0\0\1\0\1", DNS_REFUSED),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\3a\0b\0\0\1\0\1", DNS_REFUSED),
		PACKET("\0\1\1\0\0\1\0\0\0\0\0\0\0\0\2\0\1", DNS_REFUSED),
	};
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_DGRAM);
	for (size_t i = 0; i < ARRAY_LEN(packets); i++) {
		bool answered = exchange(fd, packets[i].bytes, packets[i].len,
			packets[i].rcode < 0 ? 20 : 2000, &answer);

		assert_int_equal(answered, packets[i].rcode >= 0);
		if (answered)
			assert_int_equal(answer.rcode, packets[i].rcode);
	}
	assert_int_equal(decided, 0); /* the policy sees host names only */
	close(fd);
	ask("syn.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.answers, 1);
}

static void test_random_and_oversized_packets_do_no_harm(void **state)
{
	uint8_t noise[4096];
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 100000 });
	fd = connect_to(port, SOCK_DGRAM);
	for (int i = 0; i < 2000; i++) {
		size_t len;

		random_bytes(noise, sizeof noise);
		len = i % 10 == 0 ? sizeof noise : noise[0];
		noise[2] &= 0x01; /* a plain question, else it is dropped early */
		memcpy(noise + 4, "\0\1\0\0\0\0\0\0", 8);
		(void)!send(fd, noise, len, 0);
		if (i % 50 == 0)
			run_for(1);
	}
	close(fd); /* answers meet a closed port */
	run_for(20);
	ask("syn.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.answers, 1);
}

static void test_edns_of_odd_sizes_is_answered(void **state)
{
	static const unsigned sizes[] = { 1, 511, 512, 513, 1232, 4096, 65535 };
	uint8_t message[DNS_QUERY_MAX];
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_DGRAM);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t len = make_query(message, 5, "syn.test", DNS_TYPE_A, sizes[i]);

		assert_true(exchange(fd, message, len, 2000, &answer));
		assert_int_equal(answer.answers, 1);
		assert_int_equal(answer.additional, 1);
	}
	close(fd);
}

/* ---- TCP ------------------------------------------------------------------------------------ */

static size_t make_frame(uint8_t *out, uint16_t id, const char *name)
{
	size_t len = make_query(out + 2, id, name, DNS_TYPE_A, 0);

	out[0] = len >> 8;
	out[1] = len & 0xff;
	return 2 + len;
}

/* Exactly len bytes; false when the connection ended before. */
static bool read_exactly(int fd, uint8_t *out, size_t len)
{
	while (len) {
		ssize_t got = recv(fd, out, len, 0);

		if (got < 0 && errno == EAGAIN) {
			assert_true(wait_for(fd, 2000));
			continue;
		}
		if (got <= 0)
			return false;
		out += got;
		len -= (size_t)got;
	}
	return true;
}

static bool read_frame(int fd, struct answer *ret)
{
	uint8_t head[2];

	if (!read_exactly(fd, head, 2))
		return false;
	ret->len = (size_t)(head[0] << 8 | head[1]);
	if (!read_exactly(fd, ret->bytes, ret->len))
		return false;
	read_head(ret);
	return true;
}

static void test_tcp_takes_fragments(void **state)
{
	uint8_t frame[2 + DNS_QUERY_MAX];
	size_t len;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_STREAM);
	len = make_frame(frame, 9, "syn.test");
	for (size_t i = 0; i < len; i++) {
		run_for(1);
		assert_int_equal(send(fd, frame + i, 1, MSG_NOSIGNAL), 1);
	}
	assert_true(read_frame(fd, &answer));
	assert_int_equal(answer.id, 9);
	assert_int_equal(answer.answers, 1);
	assert_true(last.tcp);
	close(fd);
}

static void test_tcp_takes_many_questions_at_once(void **state)
{
	uint8_t frames[200 * 64];
	bool seen[200] = { false };
	size_t len = 0;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_STREAM);
	for (unsigned i = 0; i < 200; i++) /* some known at once, some asked above */
		len += make_frame(frames + len, i, i % 50 == 7 ? "one.test" : "syn.test");
	run_for(2);
	assert_int_equal(send(fd, frames, len, MSG_NOSIGNAL), len);
	shutdown(fd, SHUT_WR);
	for (unsigned i = 0; i < 200; i++) {
		assert_true(read_frame(fd, &answer));
		assert_true(answer.id < 200 && !seen[answer.id]);
		assert_int_equal(answer.answers, 1);
		seen[answer.id] = true;
	}
	assert_false(read_frame(fd, &answer)); /* closed, since we said that no more comes */
	close(fd);
}

static void test_tcp_client_that_leaves_early_does_no_harm(void **state)
{
	uint8_t frame[2 + DNS_QUERY_MAX];
	size_t len = make_frame(frame, 1, "one.test");

	(void)state;
	start(&(struct dns_box_options){ 0 });
	for (int i = 0; i < 6; i++) {
		int fd = connect_to(port, SOCK_STREAM);

		run_for(2);
		(void)!send(fd, frame, len - (i % 2), MSG_NOSIGNAL);
		if (i >= 4)
			run_for(1); /* its question is on its way */
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
			sizeof(struct linger));
		close(fd);
	}
	run_for(20);
	ask("one.test", DNS_TYPE_A, &answer);
	assert_int_equal(answer.answers, 1);
}

static void test_tcp_connections_are_bounded_and_end_when_idle(void **state)
{
	uint8_t byte;
	int fds[5];

	(void)state;
	start(&(struct dns_box_options){ 0 });
	for (int i = 0; i < 5; i++) {
		fds[i] = connect_to(port, SOCK_STREAM);
		run_for(5);
	}
	for (int i = 0; i < 5; i++)
		assert_int_equal(
			recv(fds[i], &byte, 1, 0) < 0 ? errno : 0, i < 3 ? EAGAIN : ECONNRESET);
	for (int i = 0; i < 50; i++) { /* bytes that trickle in do not keep one open */
		(void)!send(fds[0], "\0", 1, MSG_NOSIGNAL);
		run_for(10);
	}
	for (int i = 0; i < 3; i++)
		assert_false(read_exactly(fds[i], &byte, 1));
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	ask("syn.test", DNS_TYPE_A, &answer);
}

static void test_tcp_refuses_long_questions(void **state)
{
	uint8_t byte;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	fd = connect_to(port, SOCK_STREAM);
	run_for(2);
	assert_int_equal(send(fd, "\xff\xff\0\1", 4, MSG_NOSIGNAL), 4);
	assert_true(wait_for(fd, 300)); /* before the idle timer */
	assert_false(read_exactly(fd, &byte, 1));
	close(fd);
}

static void test_tcp_client_that_does_not_read_is_held_up(void **state)
{
	uint8_t frame[2 + DNS_QUERY_MAX];
	size_t len = make_frame(frame, 1, "syn.test");
	unsigned sent = 0;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 1000000 });
	fd = connect_to(port, SOCK_STREAM);
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int));
	run_for(2);
	for (int i = 0; i < 200000; i++) {
		if (send(fd, frame, len, MSG_NOSIGNAL) == (ssize_t)len)
			sent++;
		if (i % 1000 == 0)
			run_for(1);
	}
	assert_true(sent > 100 && logged < sent); /* it stopped reading */
	run_for(500);				  /* and gives up */
	assert_true(send(fd, frame, len, MSG_NOSIGNAL) < 0 && errno != EAGAIN);
	close(fd);
}

/* ---- limits and ends ------------------------------------------------------------------------ */

static void test_rate_is_kept_and_the_rest_waits(void **state)
{
	uint8_t message[DNS_QUERY_MAX];
	size_t len = make_query(message, 1, "syn.test", DNS_TYPE_A, 0);
	int64_t begin = clock_mono_us();
	double most;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 200, .burst = 20 });
	fd = connect_to(port, SOCK_DGRAM);
	for (int i = 0; i < 60; i++)
		assert_int_equal(send(fd, message, len, 0), len);
	run_for(5);
	assert_in_range(logged, 20, 25);
	assert_true(limited >= 1);
	while (logged < 60) {
		run_for(5);
		most = 21 + 200 * (double)(clock_mono_us() - begin) / 1e6;
		assert_true(logged <= most);
		assert_true(clock_mono_us() - begin < 3000000);
	}
	close(fd);
}

static void test_rate_of_boxes_together(void **state)
{
	struct dns_rate together = { 0 };
	struct dns_box_options options = { .rate = 200,
		.burst = 20,
		.together = &together,
		.udp_count = 1,
		.tcp_count = 1,
		.arg = &port };
	struct dns_box *second;
	uint8_t message[DNS_QUERY_MAX];
	size_t len = make_query(message, 1, "syn.test", DNS_TYPE_A, 0);
	uint16_t other_port = 0;
	struct err err = ERR_INIT;
	int64_t begin;
	int fds[2], udp, tcp;

	(void)state;
	start(&(struct dns_box_options){ .rate = 200, .burst = 20, .together = &together });
	loopback_pair(&udp, &tcp, &other_port);
	options.udp = &udp;
	options.tcp = &tcp;
	options.synthetic = map;
	assert_int_equal(dns_server_add(server, &options, &second, &err), 0);
	begin = clock_mono_us();
	fds[0] = connect_to(port, SOCK_DGRAM);
	fds[1] = connect_to(other_port, SOCK_DGRAM);
	for (int i = 0; i < 60; i++)
		assert_int_equal(send(fds[i % 2], message, len, 0), len);
	/* Both are heard in the end, neither adds anything to what they have. */
	while (logged < 60) {
		run_for(5);
		assert_true(logged <= 21 + 200 * (double)(clock_mono_us() - begin) / 1e6);
		assert_true(clock_mono_us() - begin < 3000000);
	}
	dns_box_free(box);
	box = second;
	close(fds[0]);
	close(fds[1]);
}

static void test_rate_counts_tcp_too(void **state)
{
	uint8_t frames[40 * 64];
	size_t len = 0;
	int fd;

	(void)state;
	start(&(struct dns_box_options){ .rate = 200, .burst = 10 });
	fd = connect_to(port, SOCK_STREAM);
	for (unsigned i = 0; i < 40; i++)
		len += make_frame(frames + len, i, "syn.test");
	run_for(2);
	assert_int_equal(send(fd, frames, len, MSG_NOSIGNAL), len);
	run_for(10);
	assert_in_range(logged, 10, 14);
	for (unsigned i = 0; i < 40; i++)
		assert_true(read_frame(fd, &answer));
	close(fd);
}

static void test_box_that_goes_takes_its_questions_along(void **state)
{
	uint8_t message[2 + DNS_QUERY_MAX];
	size_t len;
	int udp, tcp;

	(void)state;
	start(&(struct dns_box_options){ 0 });
	above->mode = ABOVE_SILENT;
	udp = connect_to(port, SOCK_DGRAM);
	tcp = connect_to(port, SOCK_STREAM);
	run_for(2);
	len = make_query(message, 1, "one.test", DNS_TYPE_A, 0);
	assert_int_equal(send(udp, message, len, 0), len);
	len = make_frame(message, 1, "two.test");
	assert_int_equal(send(tcp, message, len, 0), len);
	run_for(20);
	assert_int_equal(decided, 2);
	dns_box_free(box);
	run_for(400);
	assert_int_equal(logged, 0);
	close(udp);
	close(tcp);
}

/* ---- figures -------------------------------------------------------------------------------- */

enum { LOAD_MS = 700, LOAD_WINDOW = 64 };

/* The client of the load test, in a process of its own: a window of questions always on their
 * way. */
static void load_client(uint16_t to)
{
	struct mmsghdr messages[LOAD_WINDOW] = { 0 };
	struct iovec bytes[LOAD_WINDOW];
	uint8_t message[DNS_QUERY_MAX], in[LOAD_WINDOW][DNS_REPLY_MAX];
	size_t len = make_query(message, 1, "syn.test", DNS_TYPE_A, 1232);
	struct upstream_server server_here = server_at(to);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	unsigned free_slots = LOAD_WINDOW;
	int64_t end = clock_mono_us() + LOAD_MS * 1000;
	uint64_t count = 0;
	struct timeval patience = { 0, 100000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (connect(fd, (struct sockaddr *)&server_here.address, server_here.len) < 0)
		_exit(1);
	while (clock_mono_us() < end) {
		int got;

		for (unsigned i = 0; i < free_slots; i++) {
			bytes[i] = (struct iovec){ message, len };
			messages[i].msg_hdr =
				(struct msghdr){ .msg_iov = &bytes[i], .msg_iovlen = 1 };
		}
		(void)!sendmmsg(fd, messages, free_slots, 0);
		for (unsigned i = 0; i < LOAD_WINDOW; i++) {
			bytes[i] = (struct iovec){ in[i], DNS_REPLY_MAX };
			messages[i].msg_hdr =
				(struct msghdr){ .msg_iov = &bytes[i], .msg_iovlen = 1 };
		}
		got = recvmmsg(fd, messages, LOAD_WINDOW, MSG_WAITFORONE, NULL);
		free_slots = got > 0 ? (unsigned)got : LOAD_WINDOW; /* lost: send them again */
		count += got > 0 ? (unsigned)got : 0;
	}
	_exit(count > 0 ? 0 : 1);
}

static int64_t cpu_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

static void test_figure_answers_a_second(void **state)
{
	int64_t cpu, begin;
	int status;
	pid_t child;

	(void)state;
	start(&(struct dns_box_options){ .rate = 1000000 });
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		load_client(port);
	begin = clock_mono_us();
	cpu = cpu_us();
	run_for(LOAD_MS);
	cpu = cpu_us() - cpu;
	begin = clock_mono_us() - begin;
	print_message("answers by UDP: %.0f/s while the client has its share, %.0f/s of CPU time\n",
		logged * 1e6 / (double)begin, logged * 1e6 / (double)(cpu ? cpu : 1));
	run_for(200);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(logged > 100);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_synthetic_names_get_an_address_of_their_own),
		TEST(test_other_types_are_empty),
		TEST(test_denied_names_are_never_asked_above),
		TEST(test_upstream_names_get_real_addresses),
		TEST(test_rebinding_is_refused),
		TEST(test_waiting_questions_are_bounded),
		TEST(test_hostile_packets_are_refused_and_the_server_lives),
		TEST(test_random_and_oversized_packets_do_no_harm),
		TEST(test_edns_of_odd_sizes_is_answered),
		TEST(test_tcp_takes_fragments),
		TEST(test_tcp_takes_many_questions_at_once),
		TEST(test_tcp_client_that_leaves_early_does_no_harm),
		TEST(test_tcp_connections_are_bounded_and_end_when_idle),
		TEST(test_tcp_refuses_long_questions),
		TEST(test_tcp_client_that_does_not_read_is_held_up),
		TEST(test_rate_is_kept_and_the_rest_waits),
		TEST(test_rate_of_boxes_together),
		TEST(test_rate_counts_tcp_too),
		TEST(test_box_that_goes_takes_its_questions_along),
		TEST(test_figure_answers_a_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
