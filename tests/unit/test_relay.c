/* test_relay.c - what a relay lets through: TLS, HTTP, anything; and how it begins and ends */
#include "base/clock.h"
#include "relay_scene.h"

static size_t hello_to(const char *name, uint8_t out[512])
{
	return tls_hello_make(name, out);
}

/* ---- TLS ------------------------------------------------------------------------------------ */

static void test_tls_with_the_right_name_passes(void **state)
{
	uint8_t hello[512], got[512];
	size_t len = hello_to("good.test", hello);
	int client = scene_start(RELAY_TLS), server;
	char text[ADDRESS_TEXT_MAX];

	(void)state;
	run_for(20);
	assert_int_equal(accept(scene.listener, NULL, NULL), -1); /* nothing before the hello */
	for (size_t i = 0; i < len; i += 40) {			  /* in pieces */
		say_bytes(client, hello + i, MIN((size_t)40, len - i));
		run_for(1);
	}
	server = scene_server();
	hear_bytes(server, got, len);
	assert_memory_equal(got, hello, len);
	assert_string_equal(scene.last, "sni good.test");
	assert_int_equal(scene.seen, 1);
	say(server, "answer");
	hear(client, "answer");
	say(client, "more, which nobody looks at");
	hear(server, "more, which nobody looks at");
	assert_int_equal(scene.dialled, 1);
	assert_string_equal(address_format(&scene.address, text), "127.0.0.1");
	expect_done(client, server);
	assert_int_equal(scene.report.bytes_out, len + 27);
	assert_int_equal(scene.report.bytes_in, 6);
	assert_int_equal(scene.report.address.family, 4);
	assert_string_equal(scene.report.why, "");
}

static void test_tls_refusals(void **state)
{
	uint8_t hello[512];
	int client;

	(void)state;
	client = scene_start(RELAY_TLS);
	say_bytes(client, hello, hello_to("evil.test", hello));
	expect_refused(client, RELAY_END_REFUSED);
	assert_string_equal(scene.last, "sni evil.test");

	scene.ended = 0;
	client = scene_start(RELAY_TLS);
	say_bytes(client, hello, hello_to(NULL, hello));
	expect_refused(client, RELAY_END_REFUSED);
	assert_string_equal(scene.last, "sni ");

	scene.ended = scene.seen = 0;
	client = scene_start(RELAY_TLS);
	say(client, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n");
	expect_refused(client, RELAY_END_REFUSED);
	assert_string_equal(scene.report.why, "not TLS");

	scene.ended = 0;
	client = scene_start(RELAY_TLS);
	hello_to("good.test", hello);
	hello[9] = 9; /* a version that is none */
	hello[6] = 1; /* and a length beyond its bounds */
	say_bytes(client, hello, 100);
	shutdown(client, SHUT_WR);
	expect_refused(client, RELAY_END_REFUSED);
	assert_int_equal(scene.seen, 0);
}

static void test_first_bytes_have_a_deadline(void **state)
{
	uint8_t hello[512];
	int client = scene_start(RELAY_TLS);
	int64_t began = clock_mono_us();

	(void)state;
	hello_to("good.test", hello);
	for (int i = 0; i < 10 && !scene.ended; i++) { /* trickling does not help */
		say_bytes(client, hello + i, 1);
		run_for(50);
	}
	expect_refused(client, RELAY_END_TIMEOUT);
	assert_true(clock_mono_us() - began < 2000000);

	scene.ended = 0;
	client = scene_start(RELAY_HTTP);
	say(client, "GET / HTTP/1.1\r\n");
	expect_refused(client, RELAY_END_TIMEOUT);
}

static void test_client_that_goes_early_is_noticed(void **state)
{
	int client = scene_start(RELAY_TLS);

	(void)state;
	close(client);
	expect_ended(RELAY_END_REFUSED);
	scene.ended = 0;
	client = scene_start(RELAY_TLS);
	reset(client);
	expect_ended(RELAY_END_RESET);
	assert_int_equal(scene.seen, 0);
}

/* ---- HTTP ----------------------------------------------------------------------------------- */

static const char first_request[] = "GET /a HTTP/1.1\r\nHost: good.test\r\n\r\n";
static const char second_request[] =
	"POST /b HTTP/1.1\r\nHost: good.test\r\nContent-Length: 5\r\n\r\nhello";

static void test_http_requests_are_each_looked_at(void **state)
{
	int client = scene_start(RELAY_HTTP), server;

	(void)state;
	run_for(20);
	assert_int_equal(accept(scene.listener, NULL, NULL), -1);
	say(client, "GET /a HTTP/1.1\r\nHost: go");
	run_for(5);
	assert_int_equal(scene.seen, 0);
	say(client, "od.test\r\n\r\n");
	server = scene_server();
	hear(server, first_request);
	assert_string_equal(scene.last, "GET good.test /a");
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	hear(client, "HTTP/1.1 204 No Content\r\n\r\n");
	say(client, second_request);
	hear(server, second_request);
	assert_string_equal(scene.last, "POST good.test /b");
	assert_int_equal(scene.seen, 2);
	expect_done(client, server);
}

static void test_http_pipelined_requests_pass_together(void **state)
{
	int client = scene_start(RELAY_HTTP), server;

	(void)state;
	say(client, first_request);
	say(client, second_request);
	say(client, first_request);
	server = scene_server();
	hear(server, first_request);
	hear(server, second_request);
	hear(server, first_request);
	assert_int_equal(scene.seen, 3);
	expect_done(client, server);
}

static void test_http_refusals(void **state)
{
	static const char *const rows[] = {
		"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"GET /secret HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"CONNECT good.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 1\r\n"
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"\x16\x03\x01 and so on\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int client = scene_start(RELAY_HTTP);

		scene.ended = 0;
		say(client, rows[i]);
		expect_refused(client, RELAY_END_REFUSED);
		assert_true(*scene.report.why);
	}
}

static void test_http_second_request_can_be_refused(void **state)
{
	int client = scene_start(RELAY_HTTP), server;

	(void)state;
	say(client, first_request);
	server = scene_server();
	hear(server, first_request);
	say(server, "HTTP/1.1 204 No Content\r\n\r\n");
	hear(client, "HTTP/1.1 204 No Content\r\n\r\n");
	say(client, "GET /secret HTTP/1.1\r\nHost: good.test\r\n\r\n");
	expect_ended(RELAY_END_REFUSED);
	assert_int_equal(hear_end(client), ECONNRESET);
	assert_int_equal(hear_end(server), ECONNRESET); /* and not a byte of it */
	close(client);
	close(server);
}

static void test_http_bodies_are_whole(void **state)
{
	enum { SIZE = 3000000 };
	char *sent = xcalloc(1, SIZE), *got = xcalloc(1, SIZE), head[128];
	int client = scene_start(RELAY_HTTP), server;

	(void)state;
	for (size_t i = 0; i < SIZE; i++)
		sent[i] = (char)(i * 31 + i / 1000);
	snprintf(head, sizeof head,
		"PUT /x HTTP/1.1\r\nHost: good.test\r\nContent-Length: %d\r\n\r\n", SIZE);
	say(client, head);
	server = scene_server();
	hear(server, head);
	for (size_t i = 0; i < SIZE; i += 100000) {
		say_bytes(client, sent + i, 100000);
		hear_bytes(server, got + i, 100000);
	}
	assert_memory_equal(sent, got, SIZE);
	say(client, first_request); /* and the next request is seen */
	hear(server, first_request);
	assert_int_equal(scene.seen, 2);
	free(sent);
	free(got);
	expect_done(client, server);
}

static void test_http_upgrade_waits_for_the_server(void **state)
{
	static const char upgrade[] =
		"GET /chat HTTP/1.1\r\nHost: good.test\r\nUpgrade: websocket\r\n"
		"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
	static const char answer[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
				     "Connection: Upgrade\r\n\r\n";
	int client = scene_start(RELAY_HTTP), server;

	(void)state;
	say(client, upgrade);
	server = scene_server();
	hear(server, upgrade);
	say(client, "early frame");
	hear_nothing(server, 20);
	say(server, answer);
	hear(client, answer);
	hear(server, "early frame");
	say(client, "late frame\0GET /secret");
	hear(server, "late frame");
	say(server, "frame");
	hear(client, "frame");
	expect_done(client, server);
}

/* ---- anything ------------------------------------------------------------------------------- */

static void test_server_may_speak_first(void **state)
{
	int client = scene_start(RELAY_FREE), server = scene_server();

	(void)state;
	say(server, "SSH-2.0-server\r\n");
	hear(client, "SSH-2.0-server\r\n");
	run_for(250); /* longer than first bytes may take */
	say(client, "SSH-2.0-client\r\n");
	hear(server, "SSH-2.0-client\r\n");
	assert_int_equal(scene.seen, 0);
	expect_done(client, server);
}

static void test_free_checks_tls_and_http_all_the_same(void **state)
{
	uint8_t hello[512];
	int client = scene_start(RELAY_FREE), server = scene_server();

	(void)state;
	say_bytes(client, hello, hello_to("evil.test", hello));
	expect_ended(RELAY_END_REFUSED);
	assert_int_equal(hear_end(client), ECONNRESET);
	assert_int_equal(hear_end(server), ECONNRESET);
	close(client);
	close(server);

	scene.ended = 0;
	client = scene_start(RELAY_FREE);
	server = scene_server();
	say(client, "G");
	hear_nothing(server, 10);
	say(client, "ET / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
	expect_ended(RELAY_END_REFUSED);
	assert_int_equal(hear_end(server), ECONNRESET);
	close(client);
	close(server);

	scene.ended = 0;
	client = scene_start(RELAY_FREE);
	server = scene_server();
	say(client, first_request);
	hear(server, first_request);
	assert_string_equal(scene.last, "GET good.test /a");
	expect_done(client, server);
}

/* A pause lets a few letters through, not the request they belong to. */
static void test_a_pause_hides_no_request(void **state)
{
	static const char *const parts[][3] = {
		{ "GET ", "/ HTTP/1.1\r\nHost: ", "evil.test\r\n\r\n" },
		{ "G", "ET / HTTP/1.1\r\nHost: evil", ".test\r\n\r\n" },
		{ "\r\n", "POST", " /x HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 0\r\n\r\n" }
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		int client = scene_start(RELAY_FREE), server = scene_server();

		scene.ended = 0;
		say(client, parts[i][0]);
		hear(server, parts[i][0]);
		say(client, parts[i][1]);
		run_for(50);
		say(client, parts[i][2]);
		expect_ended(RELAY_END_REFUSED);
		assert_int_equal(hear_end(client), ECONNRESET);
		close(client);
		close(server);
	}
}

/* The first short word waits for what may follow it; the next do not wait as long again, and still
 * hide nothing. */
static void test_a_talk_in_short_words_is_not_slow(void **state)
{
	int client = scene_start(RELAY_FREE), server = scene_server();
	int64_t since = clock_mono_us();

	(void)state;
	for (int i = 0; i < 20; i++) {
		say(client, "x");
		hear(server, "x");
	}
	assert_true(clock_mono_us() - since < 20 * 150 * 1000 / 2);
	expect_done(client, server);

	scene.ended = 0;
	client = scene_start(RELAY_FREE);
	server = scene_server();
	for (const char *letter = "GET"; *letter; letter++) {
		const char word[] = { *letter, '\0' };

		say(client, word);
		hear(server, word);
	}
	say(client, " / HTTP/1.1\r\nHost: evil.test\r\n\r\n");
	expect_ended(RELAY_END_REFUSED);
	assert_int_equal(hear_end(client), ECONNRESET);
	close(client);
	close(server);
}

static void test_what_comes_after_a_pause_comes_once(void **state)
{
	int client = scene_start(RELAY_FREE), server = scene_server();

	(void)state;
	say(client, "GET ");
	hear(server, "GET ");
	say(client, "/a HTTP/1.1\r\nHost: good.test\r\n\r\n");
	hear(server, "/a HTTP/1.1\r\nHost: good.test\r\n\r\n");
	assert_string_equal(scene.last, "GET good.test /a");
	expect_done(client, server);

	/* And what is no request in the end. */
	scene.ended = 0;
	client = scene_start(RELAY_FREE);
	server = scene_server();
	say(client, "get ");
	hear(server, "get ");
	say(client, "key\r\n");
	hear(server, "key\r\n");
	expect_done(client, server);
}

/* What stands before a hello does not hide it, nor does a pause in it: the server never gets all of
 * it. */
static void test_nothing_before_it_hides_a_hello(void **state)
{
	static const char *const before[] = { "x", "\1", "\x16", "EHLO me\r\nSTARTTLS\r\n",
		"\x16\x03\x01" };
	uint8_t hello[512];
	size_t len = hello_to("evil.test", hello);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(before); i++)
		for (size_t cut = 0; cut < 12; cut += 3) {
			int client = scene_start(RELAY_FREE), server = scene_server();

			/* What begins like a hello and is none is refused at once. */
			if (before[i][0] == '\x16' && cut)
				cut = 12;
			scene.ended = 0;
			say(client, before[i]);
			if (before[i][0] != '\x16')
				hear(server, before[i]);
			if (cut && cut < 12) {
				say_bytes(client, hello, cut);
				run_for(200);
			}
			say_bytes(client, hello + (cut < 12 ? cut : 0), len - (cut < 12 ? cut : 0));
			expect_ended(RELAY_END_REFUSED);
			close(client);
			close(server);
		}
}

static void test_a_hello_that_follows_is_asked_for_and_passes(void **state)
{
	int client = scene_start(RELAY_FREE), server = scene_server();
	uint8_t hello[512], heard[512];
	size_t len = hello_to("good.test", hello), got = 0;

	(void)state;
	say(client, "STARTTLS\r\n");
	hear(server, "STARTTLS\r\n");
	say(server, "220\r\n");
	hear(client, "220\r\n");
	say_bytes(client, hello, 3);
	run_for(200);
	say_bytes(client, hello + 3, len - 3);
	for (int i = 0; i < 100 && got < len; i++) {
		ssize_t n;

		run_for(10);
		n = recv(server, heard + got, sizeof heard - got, MSG_DONTWAIT);
		got += n > 0 ? (size_t)n : 0;
	}
	assert_int_equal(got, len);
	assert_memory_equal(heard, hello, len);
	assert_int_equal(scene.seen, 1);
	say(client, "more");
	hear(server, "more");
	expect_done(client, server);
}

static void test_free_does_not_wait_for_ever(void **state)
{
	int client = scene_start(RELAY_FREE), server = scene_server();

	(void)state;
	say(client, "\x16\x03");
	hear_nothing(server, 10);
	expect_ended(RELAY_END_TIMEOUT);
	assert_int_equal(hear_end(server), ECONNRESET);
	close(client);
	close(server);
}

static void test_free_passes_a_short_word_and_its_end(void **state)
{
	int client = scene_start(RELAY_FREE), server = scene_server();

	(void)state;
	say(client, "G");
	shutdown(client, SHUT_WR);
	hear(server, "G");
	say(server, "answer");
	hear(client, "answer");
	expect_done(client, server);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void test_unreachable_servers_reset_the_client(void **state)
{
	int client;

	(void)state;
	scene.refuse_addresses = true;
	client = scene_start(RELAY_BLIND);
	expect_refused(client, RELAY_END_UNREACHED);
	scene.refuse_addresses = false;
	scene.ended = 0;
	client = scene_start_at(RELAY_BLIND, "nowhere.test", false);
	expect_refused(client, RELAY_END_UNREACHED);
	assert_non_null(strstr(scene.report.why, "nowhere.test"));
	assert_int_equal(scene.dialled, 0);
}

static void test_given_servers(void **state)
{
	struct err err = ERR_INIT;
	int client = scene_start_at(RELAY_BLIND, NULL, true), server;

	(void)state;
	relay_connect(scene.relay, connect_to(scene.port, SOCK_STREAM), NULL);
	assert_int_equal(scene.dialled, 0); /* never from within */
	server = scene_server();
	say(client, "ping");
	hear(server, "ping");
	assert_int_equal(scene.dialled, 1);
	expect_done(client, server);

	scene.ended = 0;
	client = scene_start_at(RELAY_BLIND, NULL, true);
	err_set(&err, ERR_NOT_FOUND, "no such box");
	relay_connect(scene.relay, -1, &err);
	assert_int_equal(scene.ended, 0);
	expect_refused(client, RELAY_END_UNREACHED);
	assert_string_equal(scene.report.why, "no such box");

	scene.ended = 0; /* nobody listens there */
	close(scene.listener);
	client = scene_start_at(RELAY_BLIND, NULL, true);
	relay_connect(scene.relay, connect_to(scene.port, SOCK_STREAM), NULL);
	expect_ended(RELAY_END_UNREACHED);
	assert_int_equal(hear_end(client), ECONNRESET);
	close(client);
	scene.listener = listen_on("127.0.0.1", 0, 1, &scene.port);
}

static void test_given_server_waits_for_the_hello(void **state)
{
	uint8_t hello[512], got[512];
	size_t len = hello_to("good.test", hello);
	int client = scene_start_at(RELAY_TLS, NULL, true), server;

	(void)state;
	relay_connect(scene.relay, connect_to(scene.port, SOCK_STREAM), NULL);
	server = scene_server();
	hear_nothing(server, 10);
	say_bytes(client, hello, len);
	hear_bytes(server, got, len);
	expect_done(client, server);
}

static void test_cut_resets_both(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();
	uint64_t out, in;

	(void)state;
	say(client, "ping");
	hear(server, "ping");
	relay_figures(scene.relay, &out, &in);
	assert_int_equal(out, 4);
	assert_int_equal(in, 0);
	relay_cut(scene.relay, "the policy changed");
	assert_int_equal(scene.ended, 0); /* never from within */
	expect_ended(RELAY_END_CUT);
	assert_string_equal(scene.report.why, "the policy changed");
	assert_int_equal(hear_end(client), ECONNRESET);
	assert_int_equal(hear_end(server), ECONNRESET);
	close(client);
	close(server);
}

static void test_cut_while_it_is_looked_at_or_dialled(void **state)
{
	uint8_t hello[512];
	int client = scene_start(RELAY_TLS);

	(void)state;
	scene.cut_when_seen = true;
	say_bytes(client, hello, hello_to("good.test", hello));
	expect_refused(client, RELAY_END_CUT);
	scene.cut_when_seen = false;
	scene.ended = 0;
	client = scene_start(RELAY_BLIND);
	relay_cut(scene.relay, "at once");
	expect_refused(client, RELAY_END_CUT);
}

static void test_resets_are_passed_on(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();

	(void)state;
	say(client, "ping");
	hear(server, "ping");
	reset(server);
	expect_ended(RELAY_END_RESET);
	assert_int_equal(hear_end(client), ECONNRESET);
	assert_non_null(strstr(scene.report.why, "server"));
	close(client);

	scene.ended = 0;
	client = scene_start(RELAY_BLIND);
	server = scene_server();
	say(client, "ping");
	hear(server, "ping");
	reset(client);
	expect_ended(RELAY_END_RESET);
	assert_int_equal(hear_end(server), ECONNRESET);
	assert_non_null(strstr(scene.report.why, "client"));
	close(server);
}

static void test_half_closed_connections_live_on(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();

	(void)state;
	say(client, "request");
	shutdown(client, SHUT_WR);
	hear(server, "request");
	assert_int_equal(hear_end(server), 0);
	for (int i = 0; i < 5; i++) { /* longer than silence may be, but not silent */
		run_for(100);
		say(server, "line");
		hear(client, "line");
	}
	close(server);
	assert_int_equal(hear_end(client), 0);
	expect_ended(RELAY_END_DONE);
	assert_int_equal(scene.report.bytes_out, 7);
	assert_int_equal(scene.report.bytes_in, 20);
	close(client);

	scene.ended = 0; /* the other way round */
	client = scene_start(RELAY_BLIND);
	server = scene_server();
	shutdown(server, SHUT_WR);
	assert_int_equal(hear_end(client), 0);
	say(client, "still here");
	hear(server, "still here");
	close(client);
	assert_int_equal(hear_end(server), 0);
	expect_ended(RELAY_END_DONE);
	close(server);
}

static void test_silence_after_one_end_is_bounded(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();
	int64_t began = clock_mono_us();

	(void)state;
	shutdown(client, SHUT_WR);
	assert_int_equal(hear_end(server), 0);
	expect_ended(RELAY_END_TIMEOUT);
	assert_true(clock_mono_us() - began >= 300000);
	assert_int_equal(hear_end(client), ECONNRESET);
	close(client);
	close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_tls_with_the_right_name_passes),
		TEST(test_tls_refusals),
		TEST(test_first_bytes_have_a_deadline),
		TEST(test_client_that_goes_early_is_noticed),
		TEST(test_http_requests_are_each_looked_at),
		TEST(test_http_pipelined_requests_pass_together),
		TEST(test_http_refusals),
		TEST(test_http_second_request_can_be_refused),
		TEST(test_http_bodies_are_whole),
		TEST(test_http_upgrade_waits_for_the_server),
		TEST(test_server_may_speak_first),
		TEST(test_free_checks_tls_and_http_all_the_same),
		TEST(test_a_pause_hides_no_request),
		TEST(test_a_talk_in_short_words_is_not_slow),
		TEST(test_what_comes_after_a_pause_comes_once),
		TEST(test_nothing_before_it_hides_a_hello),
		TEST(test_a_hello_that_follows_is_asked_for_and_passes),
		TEST(test_free_does_not_wait_for_ever),
		TEST(test_free_passes_a_short_word_and_its_end),
		TEST(test_unreachable_servers_reset_the_client),
		TEST(test_given_servers),
		TEST(test_given_server_waits_for_the_hello),
		TEST(test_cut_resets_both),
		TEST(test_cut_while_it_is_looked_at_or_dialled),
		TEST(test_resets_are_passed_on),
		TEST(test_half_closed_connections_live_on),
		TEST(test_silence_after_one_end_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
