/* test_gate.c - a box before the gate: what it may reach, and what is refused and written down */
#include "gate_fixture.h"
#include "base/text.h"

/* ---- names and connections ------------------------------------------------------------------ */

static void test_gate_leads_to_an_allowed_name(void **state)
{
	struct server *server = server_new(SERVER, 7000);
	char data[16] = "";
	json_t *event, *row;
	int fd;

	(void)state;
	add_box(POLICY_PLAIN);
	fd = box_dial("good.test", 7000);
	box_write(fd, "hell\n", 5);
	assert_int_equal(box_read(fd, data, sizeof data), 5);
	assert_string_equal(data, "hell\n");
	assert_int_equal(server->accepted, 1);
	WAIT_FOR(find_event("connect", "verdict", "allowed"));
	event = find_event("connect", "verdict", "allowed");
	assert_string_equal(text_of(event, "name"), "good.test");
	assert_string_equal(text_of(event, "address"), SERVER);
	assert_string_equal(text_of(event, "protocol"), "tcp");
	assert_int_equal(number_of(event, "port"), 7000);
	assert_true(text_has_prefix(text_of(event, "rule"), "good.test"));
	assert_true(text_has_prefix(text_of(event, "place"), "allow"));
	assert_true(text_has_prefix(text_of(event, "from"), DOORS_BOX_V4 ":"));
	close(fd);
	WAIT_FOR(find_event("close", NULL, NULL));
	event = find_event("close", NULL, NULL);
	assert_string_equal(text_of(event, "end"), "done");
	assert_int_equal(number_of(event, "bytes_out"), 5);
	assert_int_equal(number_of(event, "bytes_in"), 5);
	assert_string_equal(text_of(find_event("dns", "verdict", "allowed"), "name"), "good.test");
	WAIT_FOR(meters && number_of(meters, "bytes_in") == 5 &&
		 number_of(meters, "connections_now") == 0);
	assert_int_equal(number_of(meters, "connections"), 1);
	row = json_array_get(json_object_get(meters, "destinations"), 0);
	assert_string_equal(text_of(row, "name"), "good.test");
	assert_int_equal(number_of(row, "bytes_out"), 5);
}

static void test_gate_denied_names_do_not_exist(void **state)
{
	char address[ADDRESS_TEXT_MAX];
	json_t *event;

	(void)state;
	add_box(POLICY_PLAIN);
	assert_int_equal(ask("evil.test", address), DNS_NXDOMAIN);
	assert_int_equal(ask("wild.test", address), DNS_NXDOMAIN);
	assert_int_equal(ask("evilwild.test", address), DNS_NXDOMAIN);
	assert_int_equal(ask("a.b.wild.test", address), DNS_NOERROR);
	WAIT_FOR(count_events("dns") == 4);
	event = find_event("dns", "name", "evil.test");
	assert_string_equal(text_of(event, "verdict"), "refused");
	assert_string_equal(text_of(event, "qtype"), "A");
	assert_string_equal(text_of(event, "reason"), "no rule allows it");
	/* The same again is counted, not written. */
	assert_int_equal(ask("evil.test", address), DNS_NXDOMAIN);
	run_for(50);
	assert_int_equal(count_events("dns"), 4);
	assert_int_equal(resolver_questions, 0);
}

static void test_gate_resets_what_no_rule_allows(void **state)
{
	struct server *server = server_new(SERVER, 7001);

	(void)state;
	add_box(POLICY_PLAIN);
	assert_reset(box_dial("good.test", 7001));
	WAIT_FOR(find_event("connect", "verdict", "refused"));
	assert_int_equal(number_of(find_event("connect", "verdict", "refused"), "port"), 7001);
	/* An address that stands for no name, and the resolver's own. */
	assert_reset(box_connect("198.18.99.99", 7000, SOCK_STREAM));
	WAIT_FOR(find_event("connect", "address", "198.18.99.99"));
	assert_reset(box_connect(DOORS_RESOLVER_V4, 1, SOCK_STREAM));
	assert_int_equal(server->accepted, 0);
	assert_int_equal(resolver_questions, 0);
}

static void test_gate_names_do_not_lead_into_private_ranges(void **state)
{
	json_t *event;

	(void)state;
	add_box(POLICY_PLAIN);
	assert_reset(box_dial("private.test", 7000));
	WAIT_FOR(find_event("connect", "verdict", "refused"));
	event = find_event("connect", "verdict", "refused");
	assert_string_equal(text_of(event, "name"), "private.test");
	assert_non_null(strstr(text_of(event, "reason"), "private"));
	assert_true(resolver_questions > 0);
}

static void test_gate_tells_what_the_namespace_refused(void **state)
{
	(void)state;
	add_box(POLICY_PLAIN);
	assert_reset(box_connect("192.0.2.77", 80, SOCK_STREAM));
	WAIT_FOR(find_event("packet", "address", "192.0.2.77"));
	assert_string_equal(text_of(find_event("packet", NULL, NULL), "protocol"), "tcp");
}

/* ---- what is seen inside -------------------------------------------------------------------- */

/* A ClientHello for name; NULL: without one. Returns its length. */
static size_t make_hello(const char *name, uint8_t *out)
{
	size_t name_len = name ? strlen(name) : 0, ext = name ? 9 + name_len : 0,
	       body = 2 + 32 + 1 + 4 + 2 + 2 + ext, at = 0;

	memset(out, 0, 9 + body);
	out[at++] = 22;
	out[at++] = 3;
	out[at++] = 1;
	out[at++] = (uint8_t)((body + 4) >> 8);
	out[at++] = (uint8_t)(body + 4);
	out[at++] = 1;
	at++;
	out[at++] = (uint8_t)(body >> 8);
	out[at++] = (uint8_t)body;
	out[at++] = 3;
	out[at++] = 3;
	at += 32;
	at++; /* no session */
	out[at++] = 0;
	out[at++] = 2;
	out[at++] = 0x13;
	out[at++] = 1;
	out[at++] = 1;
	at++; /* no compression */
	out[at++] = (uint8_t)(ext >> 8);
	out[at++] = (uint8_t)ext;
	if (!name)
		return at;
	at += 2;
	out[at++] = (uint8_t)((name_len + 5) >> 8);
	out[at++] = (uint8_t)(name_len + 5);
	out[at++] = (uint8_t)((name_len + 3) >> 8);
	out[at++] = (uint8_t)(name_len + 3);
	at++;
	out[at++] = (uint8_t)(name_len >> 8);
	out[at++] = (uint8_t)name_len;
	memcpy(out + at, name, name_len);
	return at + name_len;
}

static void test_gate_compares_sni_with_the_name(void **state)
{
	struct server *server = server_new(SERVER, 443);
	uint8_t hello[512];
	char back[512];
	size_t len;
	int fd;

	(void)state;
	add_box(POLICY_PLAIN);
	fd = box_dial("good.test", 443);
	box_write(fd, hello, make_hello("evil.test", hello));
	assert_reset(fd);
	WAIT_FOR(find_event("connect", "verdict", "refused"));
	assert_non_null(strstr(
		text_of(find_event("connect", "verdict", "refused"), "reason"), "evil.test"));
	fd = box_dial("good.test", 443);
	box_write(fd, hello, make_hello(NULL, hello));
	assert_reset(fd);
	fd = box_dial("good.test", 443);
	box_write(fd, "SSH-2.0-OpenSSH_9\r\n", 19);
	assert_reset(fd);
	WAIT_FOR(count_events("connect") == 3);
	assert_int_equal(server->accepted, 0);
	assert_int_equal(resolver_questions, 0);
	fd = box_dial("good.test", 443);
	len = make_hello("good.test", hello);
	box_write(fd, hello, len);
	assert_int_equal(box_read(fd, back, sizeof back), len);
	assert_memory_equal(back, hello, len);
	close(fd);
}

static void test_gate_asks_for_each_request(void **state)
{
	static const char good[] = "GET /v1/list HTTP/1.1\r\nHost: api.test\r\n\r\n";
	static const char bad[] =
		"POST /v1/list HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\n\r\n";
	static const char other[] = "GET /v1/list HTTP/1.1\r\nHost: evil.test\r\n\r\n";
	struct server *server = server_new(SERVER, 80);
	char back[512];
	json_t *event;
	int fd;

	(void)state;
	add_box("{\"allow\":[{\"name\":\"api.test\",\"ports\":80,\"methods\":[\"GET\"],\"paths\":["
		"\"/v1/\"]}]}");
	fd = box_dial("api.test", 80);
	box_write(fd, good, strlen(good));
	assert_true(box_read(fd, back, sizeof back) > 0);
	assert_int_equal(server->received, strlen(good));
	box_write(fd, bad, strlen(bad));
	assert_reset(fd);
	assert_int_equal(server->received, strlen(good));
	WAIT_FOR(find_event("close", "end", "refused"));
	event = find_event("http", NULL, NULL);
	assert_string_equal(text_of(event, "method"), "POST");
	assert_string_equal(text_of(event, "path"), "/v1/list");
	fd = box_dial("api.test", 80);
	box_write(fd, other, strlen(other));
	assert_reset(fd);
	WAIT_FOR(find_event("http", "host", "evil.test"));
	assert_int_equal(server->accepted, 1);
}

/* ---- addresses, datagrams, other boxes ------------------------------------------------------ */

static void test_gate_leads_to_ranges_that_rules_name(void **state)
{
	struct address_range range = { .bits = 24 };
	struct err err = ERR_INIT;
	char data[16];
	int fd;

	(void)state;
	server_new(SERVER, 7000);
	assert_true(address_parse("203.0.113.0", &range.base));
	assert_int_equal(doors_set_aims(netns, &range, 1, true, &err), 0);
	add_box("{\"allow\":[\"203.0.113.0/28:7000\"]}");
	fd = box_connect(SERVER, 7000, SOCK_STREAM);
	box_write(fd, "direct", 6);
	assert_int_equal(box_read(fd, data, sizeof data), 6);
	WAIT_FOR(find_event("connect", "address", SERVER));
	close(fd);
	assert_reset(box_connect("203.0.113.77", 7000, SOCK_STREAM));
	WAIT_FOR(find_event("connect", "address", "203.0.113.77"));
	assert_int_equal(doors_set_aims(netns, NULL, 0, true, &err), 0);
}

static void test_gate_carries_datagrams(void **state)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(7002) }, from;
	int server = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), fd;
	char address[ADDRESS_TEXT_MAX], data[64] = "";
	socklen_t len = sizeof from;

	(void)state;
	inet_pton(AF_INET, SERVER, &own.sin_addr);
	assert_int_equal(bind(server, (struct sockaddr *)&own, sizeof own), 0);
	add_box("{\"allow\":[\"good.test:7002/udp\"]}");
	assert_int_equal(ask("good.test", address), DNS_NOERROR);
	fd = box_connect(address, 7002, SOCK_DGRAM);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(send(fd, "ping", 4, 0), 4);
		WAIT_FOR(recvfrom(server, data, sizeof data, MSG_DONTWAIT, (struct sockaddr *)&from,
				 &len) == 4);
		assert_int_equal(sendto(server, "pong!", 5, 0, (struct sockaddr *)&from, len), 5);
		assert_int_equal(box_read(fd, data, sizeof data), 5);
	}
	WAIT_FOR(find_event("connect", "protocol", "udp"));
	assert_string_equal(
		text_of(find_event("connect", "protocol", "udp"), "verdict"), "allowed");
	close(fd);
	fd = box_connect(address, 7003, SOCK_DGRAM);
	assert_int_equal(send(fd, "no", 2, 0), 2);
	WAIT_FOR(find_event("connect", "verdict", "refused"));
	close(fd);
	close(server);
}

static void test_gate_asks_the_daemon_for_other_boxes(void **state)
{
	char address[ADDRESS_TEXT_MAX], data[16];
	int fd;

	(void)state;
	server_new(SERVER, 7000);
	add_box("{\"boxes\":[\"friend:7000\",\"stranger:7000\"]}");
	assert_int_equal(ask("other.box", address), DNS_NXDOMAIN);
	fd = box_dial("friend.box", 7000);
	box_write(fd, "h\n", 2);
	assert_int_equal(box_read(fd, data, sizeof data), 2);
	assert_string_equal(dialled_name, "friend");
	close(fd);
	assert_reset(box_dial("stranger.box", 7000));
	WAIT_FOR(find_event("connect", "verdict", "refused"));
	assert_non_null(strstr(text_of(find_event("connect", "verdict", "refused"), "reason"),
		"does not name this box"));
	assert_int_equal(dials, 2);
	assert_int_equal(resolver_questions, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		GATE_TEST(test_gate_leads_to_an_allowed_name),
		GATE_TEST(test_gate_denied_names_do_not_exist),
		GATE_TEST(test_gate_resets_what_no_rule_allows),
		GATE_TEST(test_gate_names_do_not_lead_into_private_ranges),
		GATE_TEST(test_gate_tells_what_the_namespace_refused),
		GATE_TEST(test_gate_compares_sni_with_the_name),
		GATE_TEST(test_gate_asks_for_each_request),
		GATE_TEST(test_gate_leads_to_ranges_that_rules_name),
		GATE_TEST(test_gate_carries_datagrams),
		GATE_TEST(test_gate_asks_the_daemon_for_other_boxes),
	};

	return run_gate_tests(argc, argv, tests);
}
