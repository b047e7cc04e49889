/* test_dns_upstream.c - asking above: servers that are dead, lie, cut off or lead into private
 * ranges */
#include "dns_fixture.h"

static unsigned told;
static struct upstream_result seen[16];
static struct upstream *upstream;
static struct above *first, *second;

static void on_result(void *arg, const struct upstream_result *result)
{
	(void)arg;
	seen[told++ % ARRAY_LEN(seen)] = *result;
}

/* An upstream with one or two servers above and short timeouts. */
static void start(enum above_mode mode, int second_mode)
{
	struct upstream_server servers[2];
	size_t count = 1;

	first = above_new(mode);
	servers[0] = server_at(first->port);
	if (second_mode >= 0) {
		second = above_new((enum above_mode)second_mode);
		servers[count++] = server_at(second->port);
	}
	upstream = upstream_new(loop, &(struct upstream_options){ .servers = servers,
					      .server_count = count,
					      .timeout_ms = 50,
					      .attempts = 2,
					      .questions_max = 8,
					      .asks_max = 32,
					      .cache_max = 4 });
}

static int setup(void **state)
{
	(void)state;
	loop = loop_new();
	told = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	upstream_free(upstream);
	if (first)
		above_free(first);
	if (second)
		above_free(second);
	upstream = NULL;
	first = second = NULL;
	loop_free(loop);
	return 0;
}

static struct upstream_ask *begin(const char *name, uint16_t type, unsigned flags)
{
	struct upstream_ask *ask = NULL;
	struct err err = ERR_INIT;

	if (upstream_ask(upstream, name, type, flags, on_result, NULL, &ask, &err) < 0)
		fail_msg("%s", err.message);
	return ask;
}

static const struct upstream_result *resolve(const char *name, uint16_t type, unsigned flags)
{
	unsigned before = told;

	begin(name, type, flags);
	assert_int_equal(told, before); /* never from within */
	run_until(&told, before + 1);
	assert_int_equal(told, before + 1);
	return &seen[before % ARRAY_LEN(seen)];
}

static void assert_address(const struct upstream_result *result, const char *text)
{
	char buf[ADDRESS_TEXT_MAX];

	assert_int_equal(result->status, UPSTREAM_FOUND);
	assert_string_equal(address_format(&result->addresses[0], buf), text);
}

static void test_names_are_resolved(void **state)
{
	const struct upstream_result *result;

	(void)state;
	start(ABOVE_HONEST, -1);
	result = resolve("One.Test.", DNS_TYPE_A, 0);
	assert_address(result, "203.0.113.1");
	assert_int_equal(result->count, 1);
	assert_int_equal(result->ttl, 300);
	assert_address(resolve("one.test", DNS_TYPE_AAAA, 0), "2001:db8::1");
	assert_int_equal(resolve("two.test", DNS_TYPE_A, 0)->count, 2);
	assert_int_equal(resolve("two.test", DNS_TYPE_AAAA, 0)->status, UPSTREAM_EMPTY);
	assert_int_equal(resolve("none.test", DNS_TYPE_A, 0)->status, UPSTREAM_NO_NAME);
}

static void test_answers_are_kept_and_the_oldest_go(void **state)
{
	struct upstream_result result;

	(void)state;
	start(ABOVE_HONEST, -1);
	resolve("one.test", DNS_TYPE_A, 0);
	resolve("one.test", DNS_TYPE_A, 0);
	resolve("none.test", DNS_TYPE_A, 0);
	resolve("none.test", DNS_TYPE_A, 0);
	assert_int_equal(first->udp_count, 2);
	assert_true(upstream_recall(upstream, "one.test", DNS_TYPE_A, 0, &result));
	assert_address(&result, "203.0.113.1");
	assert_false(upstream_recall(upstream, "one.test", DNS_TYPE_AAAA, 0, &result));
	assert_true(upstream_recall(upstream, "none.test", DNS_TYPE_A, 0, &result));
	assert_int_equal(result.status, UPSTREAM_NO_NAME);
	assert_true(result.ttl <= 60);
	resolve("x1.test", DNS_TYPE_A, 0);
	resolve("x2.test", DNS_TYPE_A, 0);
	resolve("x3.test", DNS_TYPE_A, 0); /* four are kept */
	assert_false(upstream_recall(upstream, "one.test", DNS_TYPE_A, 0, &result));
}

static void test_ttls_are_clamped(void **state)
{
	(void)state;
	start(ABOVE_HONEST, -1);
	first->ttl = 0;
	assert_int_equal(resolve("one.test", DNS_TYPE_A, 0)->ttl, 5);
	first->ttl = 10000000;
	assert_int_equal(resolve("two.test", DNS_TYPE_A, 0)->ttl, 3600);
}

static void test_equal_questions_become_one(void **state)
{
	(void)state;
	start(ABOVE_HONEST, -1);
	for (int i = 0; i < 5; i++)
		begin(i % 2 ? "ONE.test" : "one.test", DNS_TYPE_A, 0);
	run_until(&told, 5);
	assert_int_equal(first->udp_count, 1);
	for (int i = 0; i < 5; i++)
		assert_address(&seen[i], "203.0.113.1");
}

static void test_rebinding_is_refused_unless_allowed(void **state)
{
	const struct upstream_result *result;

	(void)state;
	start(ABOVE_HONEST, -1);
	result = resolve("rebind.test", DNS_TYPE_A, 0);
	assert_int_equal(result->status, UPSTREAM_PRIVATE);
	assert_int_equal(result->count, 0);
	/* from what is kept, each asker is judged anew */
	assert_address(resolve("rebind.test", DNS_TYPE_A, UPSTREAM_ALLOW_PRIVATE), "10.0.0.1");
	assert_int_equal(resolve("rebind.test", DNS_TYPE_A, 0)->status, UPSTREAM_PRIVATE);
	assert_int_equal(first->udp_count, 1);
	assert_int_equal(resolve("rebind.test", DNS_TYPE_AAAA, 0)->status, UPSTREAM_PRIVATE);
	result = resolve("mixed.test", DNS_TYPE_A, 0);
	assert_address(result, "203.0.113.1");
	assert_int_equal(result->count, 1);
	assert_int_equal(result->private_count, 1);
}

static void test_wrong_ids_are_ignored(void **state)
{
	(void)state;
	start(ABOVE_WRONG_ID, -1);
	assert_address(resolve("one.test", DNS_TYPE_A, 0), "203.0.113.1");
	assert_int_equal(first->udp_count, 1);
	assert_int_equal(first->tcp_count, 0);
}

static void test_flood_of_guesses_leads_to_tcp(void **state)
{
	(void)state;
	start(ABOVE_FLOOD, -1);
	assert_address(resolve("one.test", DNS_TYPE_A, 0), "203.0.113.1");
	assert_int_equal(first->tcp_count, 1);
}

static void test_answers_to_other_questions_are_not_believed(void **state)
{
	struct upstream_result result;

	(void)state;
	start(ABOVE_WRONG_NAME, -1);
	assert_int_equal(resolve("one.test", DNS_TYPE_A, 0)->status, UPSTREAM_FAILED);
	assert_false(upstream_recall(upstream, "one.test", DNS_TYPE_A, 0, &result));
	assert_false(upstream_recall(upstream, "nne.test", DNS_TYPE_A, 0, &result));
}

static void test_answers_without_case_are_asked_again_by_tcp(void **state)
{
	(void)state;
	start(ABOVE_LOWER_CASE, -1);
	/* 40 letters: all lower-case by chance once in 10^12 runs */
	assert_int_equal(
		resolve("abcdefghijklmnopqrst.abcdefghijklmnopqrst.test", DNS_TYPE_A, 0)->status,
		UPSTREAM_NO_NAME);
	assert_int_equal(first->udp_count, 1);
	assert_int_equal(first->tcp_count, 1);
}

static void test_truncated_answers_are_fetched_by_tcp(void **state)
{
	(void)state;
	start(ABOVE_TRUNCATED, -1);
	assert_address(resolve("one.test", DNS_TYPE_A, 0), "203.0.113.1");
	assert_int_equal(first->tcp_count, 1);
}

static void test_server_that_hangs_up_is_left_for_the_next(void **state)
{
	(void)state;
	start(ABOVE_TCP_CLOSES, ABOVE_HONEST);
	assert_address(resolve("one.test", DNS_TYPE_A, 0), "203.0.113.1");
	assert_int_equal(second->udp_count, 1);
}

static void test_failing_servers_are_asked_less(void **state)
{
	static const enum above_mode modes[] = { ABOVE_SILENT, ABOVE_SERVFAIL, ABOVE_GARBAGE };

	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		if (i)
			setup(state);
		start(modes[i], ABOVE_HONEST);
		assert_address(resolve("one.test", DNS_TYPE_A, 0), "203.0.113.1");
		assert_address(resolve("two.test", DNS_TYPE_A, 0), "203.0.113.1");
		resolve("none.test", DNS_TYPE_A, 0);
		assert_int_equal(first->udp_count, 1); /* once burnt */
		assert_int_equal(second->udp_count, 3);
		/* when the other fails too, it is tried all the same */
		first->mode = ABOVE_HONEST;
		second->mode = ABOVE_SERVFAIL;
		assert_int_equal(resolve("empty.test", DNS_TYPE_A, 0)->status, UPSTREAM_EMPTY);
		assert_int_equal(first->udp_count, 2);
		if (i + 1 < ARRAY_LEN(modes))
			teardown(state);
	}
}

static void test_dead_port_is_noticed_at_once(void **state)
{
	struct upstream_server servers[2];
	uint16_t port = 0;
	int64_t before;

	(void)state;
	close(loopback_socket(SOCK_DGRAM, &port)); /* nobody there */
	first = above_new(ABOVE_HONEST);
	servers[0] = server_at(port);
	servers[1] = server_at(first->port);
	upstream = upstream_new(
		loop, &(struct upstream_options){ .servers = servers, .server_count = 2 });
	before = clock_mono_us();
	assert_address(resolve("one.test", DNS_TYPE_A, 0), "203.0.113.1");
	assert_true(clock_mono_us() - before < 1000000); /* not the two seconds of a timeout */
}

static void test_all_dead_fails_after_its_tries(void **state)
{
	(void)state;
	start(ABOVE_SILENT, ABOVE_SILENT);
	assert_int_equal(resolve("one.test", DNS_TYPE_A, 0)->status, UPSTREAM_FAILED);
	assert_int_equal(first->udp_count + second->udp_count, 4);
	first->mode = ABOVE_HONEST; /* a failure is not kept */
	assert_address(resolve("one.test", DNS_TYPE_A, 0), "203.0.113.1");
}

static void test_no_server_fails(void **state)
{
	(void)state;
	upstream = upstream_new(loop, &(struct upstream_options){ 0 });
	assert_int_equal(resolve("one.test", DNS_TYPE_A, 0)->status, UPSTREAM_FAILED);
}

static void test_cancelled_asks_are_not_told(void **state)
{
	struct upstream_ask *asks[3];

	(void)state;
	start(ABOVE_HONEST, -1);
	for (int i = 0; i < 3; i++)
		asks[i] = begin("one.test", DNS_TYPE_A, 0);
	upstream_cancel(asks[0]);
	upstream_cancel(asks[2]);
	run_until(&told, 1);
	run_for(20);
	assert_int_equal(told, 1);
	upstream_cancel(begin("one.test", DNS_TYPE_A, 0)); /* kept, about to be told */
	upstream_cancel(begin("two.test", DNS_TYPE_A, 0)); /* in flight */
	run_for(100);
	assert_int_equal(told, 1);
	begin("one.test", DNS_TYPE_A, 0);
	begin("two.test", DNS_TYPE_A, 0); /* left to teardown */
}

static void test_what_is_in_flight_is_bounded(void **state)
{
	struct upstream_ask *ask;
	struct err err = ERR_INIT;
	char name[32];

	(void)state;
	start(ABOVE_SILENT, -1);
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof name, "n%d.test", i);
		begin(name, DNS_TYPE_A, 0);
	}
	assert_int_equal(
		upstream_ask(upstream, "n8.test", DNS_TYPE_A, 0, on_result, NULL, &ask, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	for (int i = 0; i < 24; i++)
		begin("n1.test", DNS_TYPE_A, 0);
	assert_int_equal(
		upstream_ask(upstream, "n1.test", DNS_TYPE_A, 0, on_result, NULL, &ask, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_int_equal(
		upstream_ask(upstream, "a..b", DNS_TYPE_A, 0, on_result, NULL, &ask, &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	run_until(&told, 32);
}

static unsigned failed;

static void on_given_up(void *arg, const struct upstream_result *result)
{
	(void)arg;
	failed += result->status == UPSTREAM_FAILED;
}

static void test_who_asks_most_gives_way(void **state)
{
	struct upstream_share greedy = { 0 }, modest = { 0 };
	struct upstream_ask *asks[8], *ask;
	struct err err = ERR_INIT;
	char name[32];

	(void)state;
	failed = 0;
	start(ABOVE_SILENT, -1);
	for (int i = 0; i < 8; i++) {
		snprintf(name, sizeof name, "n%d.test", i);
		assert_int_equal(upstream_ask_as(upstream, &greedy, name, DNS_TYPE_A, 0,
					 on_given_up, NULL, &asks[i], &err),
			0);
	}
	assert_int_equal(greedy.questions, 8);
	/* Not for itself, and not for somebody who cannot be counted. */
	assert_int_equal(upstream_ask_as(upstream, &greedy, "n8.test", DNS_TYPE_A, 0, on_given_up,
				 NULL, &ask, &err),
		-1);
	assert_int_equal(
		upstream_ask(upstream, "n8.test", DNS_TYPE_A, 0, on_result, NULL, &ask, &err), -1);
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "m%d.test", i);
		assert_int_equal(upstream_ask_as(upstream, &modest, name, DNS_TYPE_A, 0, on_result,
					 NULL, &ask, &err),
			0);
	}
	assert_int_equal(greedy.questions, 4);
	assert_int_equal(modest.questions, 4);
	assert_int_equal(upstream_ask_as(upstream, &modest, "m4.test", DNS_TYPE_A, 0, on_result,
				 NULL, &ask, &err),
		-1);
	assert_int_equal(failed, 0); /* from the loop only */
	/* Who goes is not counted any more, also when somebody else waits for the same. */
	assert_int_equal(upstream_ask_as(upstream, &modest, "n7.test", DNS_TYPE_A, 0, on_result,
				 NULL, &ask, &err),
		0);
	for (int i = 4; i < 8; i++)
		upstream_cancel(asks[i]);
	assert_int_equal(greedy.questions, 0);
	assert_int_equal(modest.questions, 5);
	run_until(&told, 5);
	assert_int_equal(failed, 4);
	assert_int_equal(modest.questions, 0);
}

static void test_new_servers_take_over(void **state)
{
	struct upstream_server server;

	(void)state;
	start(ABOVE_SILENT, -1);
	second = above_new(ABOVE_HONEST);
	server = server_at(second->port);
	begin("one.test", DNS_TYPE_A, 0);
	run_for(5);
	upstream_set_servers(upstream, &server, 1);
	run_until(&told, 1);
	assert_address(&seen[0], "203.0.113.1");
}

static void test_servers_come_from_resolv_conf(void **state)
{
	static const char text[] = "nameserver 192.0.2.1\nnameserver 2001:db8::1\n"
				   "nameserver fe80::1%lo\nnameserver fe80::1%nosuch0\n";
	struct upstream_server servers[RESOLV_SERVERS_MAX];
	struct resolv_conf conf;

	(void)state;
	resolv_conf_parse(text, sizeof text - 1, &conf);
	assert_int_equal(conf.server_count, 4);
	assert_int_equal(upstream_servers_from_conf(&conf, servers), 3);
	assert_int_equal(((struct sockaddr_in *)&servers[0].address)->sin_port, htons(53));
	assert_int_equal(servers[1].address.ss_family, AF_INET6);
	assert_int_equal(((struct sockaddr_in6 *)&servers[2].address)->sin6_scope_id, 1);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_names_are_resolved),
		TEST(test_answers_are_kept_and_the_oldest_go),
		TEST(test_ttls_are_clamped),
		TEST(test_equal_questions_become_one),
		TEST(test_rebinding_is_refused_unless_allowed),
		TEST(test_wrong_ids_are_ignored),
		TEST(test_flood_of_guesses_leads_to_tcp),
		TEST(test_answers_to_other_questions_are_not_believed),
		TEST(test_answers_without_case_are_asked_again_by_tcp),
		TEST(test_truncated_answers_are_fetched_by_tcp),
		TEST(test_server_that_hangs_up_is_left_for_the_next),
		TEST(test_failing_servers_are_asked_less),
		TEST(test_dead_port_is_noticed_at_once),
		TEST(test_all_dead_fails_after_its_tries),
		TEST(test_no_server_fails),
		TEST(test_cancelled_asks_are_not_told),
		TEST(test_what_is_in_flight_is_bounded),
		TEST(test_who_asks_most_gives_way),
		TEST(test_new_servers_take_over),
		TEST(test_servers_come_from_resolv_conf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
