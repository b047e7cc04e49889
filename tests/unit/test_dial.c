/* test_dial.c - connecting to names: dead addresses, refusals, time, and proxies of all sorts */
#include "relay_fixture.h"
#include "gate/relay/dial.h"

static struct names names;
static struct dial_proxy proxy;
static struct dial_settings settings;
static unsigned told, asked, before_fds;
static int dialled;
static struct address dialled_address;
static struct err told_err;
static const char *refused; /* the address that may() refuses; "*": all */

static bool on_may(void *arg, const struct address *address)
{
	char text[ADDRESS_TEXT_MAX];

	(void)arg;
	asked++;
	address_format(address, text);
	return !refused || (strcmp(refused, "*") != 0 && strcmp(refused, text) != 0);
}

static void on_done(void *arg, int fd, const struct address *address, const struct err *err)
{
	(void)arg;
	told++;
	dialled = fd;
	dialled_address = *address;
	told_err = err ? *err : (struct err)ERR_INIT;
	assert_true((fd >= 0) == !err);
}

static const struct dial_ops ops = { .may = on_may, .done = on_done };

static int setup(void **state)
{
	(void)state;
	before_fds = count_fds();
	loop = loop_new();
	names_open(&names);
	settings = (struct dial_settings){
		.loop = loop, .upstream = names.upstream, .timeout_ms = 1000, .next_ms = 50
	};
	told = asked = 0;
	dialled = -1;
	refused = NULL;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (dialled >= 0)
		close(dialled);
	names_close(&names);
	dial_proxy_done(&proxy);
	loop_free(loop);
	assert_int_equal(count_fds(), before_fds);
	return 0;
}

static struct dial *start(const char *name, uint16_t port)
{
	struct dial_target target = { .name = name, .port = port, .allow_private = true };

	return dial_start(&settings, &target, &ops, NULL);
}

static void dial(const char *name, uint16_t port)
{
	start(name, port);
	assert_int_equal(told, 0); /* never from within */
	run_until(&told, 1);
	run_for(5);
	assert_int_equal(told, 1);
}

static void assert_failed(enum err_kind kind)
{
	if (told_err.kind != kind)
		print_error("%s\n", told_err.message);
	assert_int_equal(dialled, -1);
	assert_int_equal(told_err.kind, kind);
}

static void assert_reached(const char *text)
{
	char got[ADDRESS_TEXT_MAX];

	if (dialled < 0)
		fail_msg("%s", told_err.message);
	assert_string_equal(address_format(&dialled_address, got), text);
}

static uint16_t free_port(void)
{
	uint16_t port;

	close(listen_on("127.0.0.1", 0, 1, &port));
	return port;
}

/* ---- directly ------------------------------------------------------------------------------- */

static void test_name_is_resolved_and_connected(void **state)
{
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);
	int server;

	(void)state;
	dial("good.test", port);
	assert_reached("127.0.0.1");
	assert_int_equal(asked, 1);
	server = accept_from(listener);
	say(server, "hello");
	hear(dialled, "hello");
	close(server);
	close(listener);
}

static void test_address_is_connected_without_a_question(void **state)
{
	struct dial_target target = { .name = "" };
	int listener = listen_on("127.0.0.1", 0, 8, &target.port);

	(void)state;
	assert_true(address_parse("127.0.0.1", &target.address));
	dial_start(&settings, &target, &ops, NULL);
	run_until(&told, 1);
	assert_reached("127.0.0.1");
	assert_int_equal(asked, 1);
	assert_int_equal(names.count, 0);
	close(listener);
}

static void test_refused_addresses_are_not_touched(void **state)
{
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);

	(void)state;
	refused = "*";
	dial("many.test", port);
	assert_failed(ERR_FORBIDDEN);
	assert_int_equal(asked, 3);
	assert_int_equal(accept(listener, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	close(listener);
}

static void test_private_answers_need_permission(void **state)
{
	struct dial_target target = { .name = "good.test", .port = 9 };

	(void)state;
	dial_start(&settings, &target, &ops, NULL);
	run_until(&told, 1);
	assert_failed(ERR_FORBIDDEN);
	assert_int_equal(asked, 0);
}

static void test_closed_ports_lead_to_the_next_address_at_once(void **state)
{
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);
	int64_t began = clock_mono_us();

	(void)state;
	settings.next_ms = 2000;
	dial("many.test", port);
	assert_reached("127.0.0.1");
	assert_int_equal(asked, 3);
	assert_true(clock_mono_us() - began < 500000);
	close(listener);
}

/* A listener whose queue is full answers nothing: as dead as a host that is gone. */
static void open_dead(uint16_t port, int fds[4])
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	uint16_t got;

	inet_pton(AF_INET, "127.0.0.2", &to.sin_addr);
	fds[0] = listen_on("127.0.0.2", port, 0, &got);
	for (int i = 1; i < 4; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)!connect(fds[i], (struct sockaddr *)&to, sizeof to);
	}
}

static void close_dead(int fds[4])
{
	for (int i = 0; i < 4; i++)
		close(fds[i]);
}

static void test_dead_first_address_costs_one_step(void **state)
{
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port), dead[4];
	int64_t took = -clock_mono_us();

	(void)state;
	open_dead(port, dead);
	dial("first-dead.test", port);
	took += clock_mono_us();
	assert_reached("127.0.0.1");
	assert_true(took >= 50000 && took < 500000);
	close_dead(dead);
	close(listener);
}

static void test_dead_addresses_end_in_time(void **state)
{
	int64_t took = -clock_mono_us();
	uint16_t port = free_port();
	int dead[4];

	(void)state;
	settings.timeout_ms = 200;
	open_dead(port, dead);
	dial("dead.test", port);
	took += clock_mono_us();
	assert_failed(ERR_TIMEOUT);
	assert_true(took >= 200000 && took < 1000000);
	close_dead(dead);
}

static void test_families_take_turns(void **state)
{
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);

	(void)state;
	dial("both.test", port); /* nothing listens on ::1 */
	assert_reached("127.0.0.1");
	assert_int_equal(asked, 2);
	close(listener);
}

static void test_names_that_are_not_there(void **state)
{
	(void)state;
	dial("nowhere.test", 9);
	assert_failed(ERR_NOT_FOUND);
	told = 0;
	dial("empty.test", 9);
	assert_failed(ERR_NOT_FOUND);
	told = 0;
	dial("bad\r\nname", 9);
	assert_failed(ERR_INVALID);
	told = 0;
	dial("", 9);
	assert_failed(ERR_INVALID);
}

static void test_silent_resolver_fails(void **state)
{
	(void)state;
	names.silent = true;
	settings.timeout_ms = 2000;
	dial("good.test", 9);
	assert_failed(ERR_UNAVAILABLE);
}

static void test_refused_connection_says_so(void **state)
{
	(void)state;
	dial("good.test", free_port());
	assert_failed(ERR_UNAVAILABLE);
	assert_int_equal(told_err.errno_value, ECONNREFUSED);
}

static void test_cancelled_dial_says_nothing(void **state)
{
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);

	(void)state;
	dial_cancel(start("good.test", port));
	for (int ms = 0; ms < 3; ms++) {
		struct dial *dial = start("good.test", port);

		run_for((uint64_t)ms);
		if (!told)
			dial_cancel(dial);
		else
			close(dialled);
		dialled = -1;
		told = 0;
	}
	dial_cancel(NULL);
	run_for(20);
	assert_int_equal(told, 0);
	close(listener);
}

static void test_no_descriptors_left_is_an_error(void **state)
{
	struct rlimit before, few;
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);

	(void)state;
	/* The question needs a socket, too: let it be answered before. */
	dial("good.test", port);
	close(dialled);
	told = 0;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = (rlim_t)listener + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	dial("good.test", port);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_failed(ERR_LIMIT);
	close(listener);
}

/* ---- by a proxy ----------------------------------------------------------------------------- */

static void use_proxy(const char *url, const char *exempt)
{
	struct err err = ERR_INIT;

	dial_proxy_done(&proxy);
	if (dial_proxy_parse(url, exempt, &proxy, &err) < 0)
		fail_msg("%s", err.message);
	settings.proxy = &proxy;
}

/* A proxy on loopback that gets one request. Returns its socket. */
static int proxy_get(int listener, const char *request)
{
	int fd = accept_from(listener);

	hear(fd, request);
	return fd;
}

static int proxy_open(const char *host, const char *user)
{
	char url[128];
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);

	snprintf(url, sizeof url, "http://%s%s:%u", user, host, port);
	use_proxy(url, NULL);
	return listener;
}

static void test_proxy_gets_the_name_and_gives_all_bytes(void **state)
{
	int listener = proxy_open("proxy.test", "user:p%40ss@"), fd;

	(void)state;
	start("world.test", 443);
	fd = proxy_get(listener, "CONNECT world.test:443 HTTP/1.1\r\nHost: world.test:443\r\n"
				 "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n");
	say(fd, "HTTP/1.1 200 Connection established\r\nVia: ");
	run_for(5);
	assert_int_equal(told, 0);
	say(fd, "x\r\n\r\nSSH-2.0-first\r\n"); /* a server that speaks first */
	run_until(&told, 1);
	assert_true(dialled >= 0);
	assert_int_equal(dialled_address.family, 0);
	assert_int_equal(asked, 0);
	hear(dialled, "SSH-2.0-first\r\n");
	say(dialled, "SSH-2.0-second\r\n");
	hear(fd, "SSH-2.0-second\r\n");
	close(fd);
	close(listener);
}

static void test_proxy_by_address_for_an_address(void **state)
{
	int listener = proxy_open("127.0.0.1", ""), fd;
	struct dial_target target = { .name = "", .port = 5432 };

	(void)state;
	assert_true(address_parse("2001:db8::7", &target.address));
	dial_start(&settings, &target, &ops, NULL);
	fd = proxy_get(listener,
		"CONNECT [2001:db8::7]:5432 HTTP/1.1\r\nHost: [2001:db8::7]:5432\r\n\r\n");
	say(fd, "HTTP/1.0 200\r\n\r\n");
	run_until(&told, 1);
	assert_true(dialled >= 0);
	assert_int_equal(asked, 1); /* it is known, so it is asked for */
	assert_int_equal(names.count, 0);
	close(fd);
	close(listener);
}

static void test_proxy_is_not_asked_for_what_is_refused(void **state)
{
	int listener = proxy_open("127.0.0.1", "");
	struct dial_target target = { .name = "", .port = 80 };

	(void)state;
	refused = "*";
	assert_true(address_parse("203.0.113.1", &target.address));
	dial_start(&settings, &target, &ops, NULL);
	run_until(&told, 1);
	assert_failed(ERR_FORBIDDEN);
	assert_int_equal(accept(listener, NULL, NULL), -1);
	close(listener);
}

static void test_proxy_answers_that_are_no_success(void **state)
{
	static const struct {
		const char *answer;
		enum err_kind kind;
	} rows[] = {
		{ "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", ERR_UNAUTHORIZED },
		{ "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", ERR_FORBIDDEN },
		{ "HTTP/1.1 502 Bad Gateway\r\n\r\n", ERR_UNAVAILABLE },
		{ "HTTP/1.1 504 Gateway Timeout\r\n\r\n", ERR_TIMEOUT },
		{ "HTTP/1.1 2000 OK\r\n\r\n", ERR_PROTOCOL },
		{ "HTTP/2 200\r\n\r\n", ERR_PROTOCOL },
		{ "SSH-2.0-OpenSSH\r\n\r\n", ERR_PROTOCOL },
		{ "\r\n\r\n", ERR_PROTOCOL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int listener = proxy_open("127.0.0.1", ""), fd;

		told = 0;
		start("world.test", 443);
		fd = accept_from(listener);
		say(fd, rows[i].answer);
		run_until(&told, 1);
		assert_failed(rows[i].kind);
		close(fd);
		close(listener);
	}
}

static void test_hostile_proxies_are_bounded(void **state)
{
	int listener = proxy_open("127.0.0.1", ""), fd;
	char line[1024];

	(void)state;
	start("world.test", 443);
	fd = accept_from(listener);
	memset(line, 'a', sizeof line);
	say(fd, "HTTP/1.1 200 OK\r\n");
	for (int i = 0; i < 20 && !told; i++) {
		say_bytes(fd, line, sizeof line);
		run_for(1);
	}
	assert_failed(ERR_PROTOCOL);
	close(fd);

	told = 0; /* hangs up in the middle */
	start("world.test", 443);
	fd = accept_from(listener);
	say(fd, "HTTP/1.1 2");
	close(fd);
	run_until(&told, 1);
	assert_failed(ERR_UNAVAILABLE);

	told = 0; /* says nothing */
	settings.timeout_ms = 100;
	start("world.test", 443);
	fd = accept_from(listener);
	run_until(&told, 1);
	assert_failed(ERR_TIMEOUT);
	close(fd);
	close(listener);
}

static void test_exempt_names_go_directly(void **state)
{
	uint16_t port;
	int listener = listen_on("127.0.0.1", 0, 8, &port);

	(void)state;
	use_proxy("http://127.0.0.1:1", "other.test, good.test");
	dial("good.test", port);
	assert_reached("127.0.0.1");
	close(listener);
}

static void test_no_proxy_forms(void **state)
{
	static const struct {
		const char *exempt, *name, *address;
		bool is_exempt;
	} rows[] = {
		{ "example.com", "example.com", NULL, true },
		{ "example.com", "EXAMPLE.com", NULL, true },
		{ "example.com", "a.example.com", NULL, true },
		{ "example.com", "evilexample.com", NULL, false },
		{ ".example.com", "a.example.com", NULL, true },
		{ ".example.com", "example.com", NULL, false },
		{ "*.example.com", "a.example.com", NULL, true },
		{ "a,b , example.com", "example.com", NULL, true },
		{ "*", "anything.test", NULL, true },
		{ "", "anything.test", NULL, false },
		{ "10.0.0.0/8", "", "10.1.2.3", true },
		{ "10.0.0.0/8", "", "11.1.2.3", false },
		{ "10.1.2.3", "", "10.1.2.3", true },
		{ "2001:db8::/33", "", "2001:db8:7fff::1", true },
		{ "2001:db8::/33", "", "2001:db8:8000::1", false },
		{ "10.0.0.0/99", "", "10.0.0.0", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct address address = { 0 };

		use_proxy("http://proxy.test:3128", rows[i].exempt);
		if (rows[i].address)
			assert_true(address_parse(rows[i].address, &address));
		if (dial_proxy_is_exempt(&proxy, rows[i].name, &address) != rows[i].is_exempt)
			fail_msg("row %zu", i);
	}
	use_proxy(NULL, "x");
	assert_true(dial_proxy_is_exempt(&proxy, "anything.test", NULL));
	assert_true(dial_proxy_is_exempt(NULL, "anything.test", NULL));
}

static void test_proxy_urls(void **state)
{
	static const struct {
		const char *url, *host, *authorization;
		unsigned port; /* 0: refused, with kind */
		enum err_kind kind;
	} rows[] = {
		{ "http://proxy.corp:3128", "proxy.corp", NULL, 3128, 0 },
		{ "HTTP://proxy.corp:3128/", "proxy.corp", NULL, 3128, 0 },
		{ "proxy.corp:3128", "proxy.corp", NULL, 3128, 0 },
		{ "http://proxy.corp", "proxy.corp", NULL, 80, 0 },
		{ "http://[2001:db8::1]:8080", "2001:db8::1", NULL, 8080, 0 },
		{ "http://10.0.0.1:8080", "10.0.0.1", NULL, 8080, 0 },
		{ "http://u@h:1", "h", "Basic dTo=", 1, 0 },
		{ "http://u:p@h:1", "h", "Basic dTpw", 1, 0 },
		{ "http://u:p%zz@h:1", NULL, NULL, 0, ERR_INVALID },
		{ "https://proxy.corp:3128", NULL, NULL, 0, ERR_UNSUPPORTED },
		{ "socks5://proxy.corp:3128", NULL, NULL, 0, ERR_UNSUPPORTED },
		{ "ftp://proxy.corp:3128", NULL, NULL, 0, ERR_INVALID },
		{ "http://:3128", NULL, NULL, 0, ERR_INVALID },
		{ "http://h:0", NULL, NULL, 0, ERR_INVALID },
		{ "http://h:65536", NULL, NULL, 0, ERR_INVALID },
		{ "http://h:1/path", NULL, NULL, 0, ERR_INVALID },
		{ "http://a b:1", NULL, NULL, 0, ERR_INVALID },
		{ "http://[::1:1", NULL, NULL, 0, ERR_INVALID },
		{ "http://[name]:1", NULL, NULL, 0, ERR_INVALID },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct dial_proxy parsed = { 0 };
		struct err err = ERR_INIT;
		int result = dial_proxy_parse(rows[i].url, NULL, &parsed, &err);

		if ((result == 0) != (rows[i].port != 0) || err.kind != rows[i].kind)
			fail_msg("%s: %s", rows[i].url, err.message);
		if (result < 0)
			continue;
		assert_string_equal(parsed.host, rows[i].host);
		assert_int_equal(parsed.port, rows[i].port);
		assert_int_equal(!parsed.authorization, !rows[i].authorization);
		if (parsed.authorization)
			assert_string_equal(parsed.authorization, rows[i].authorization);
		dial_proxy_done(&parsed);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_name_is_resolved_and_connected),
		TEST(test_address_is_connected_without_a_question),
		TEST(test_refused_addresses_are_not_touched),
		TEST(test_private_answers_need_permission),
		TEST(test_closed_ports_lead_to_the_next_address_at_once),
		TEST(test_dead_first_address_costs_one_step),
		TEST(test_dead_addresses_end_in_time),
		TEST(test_families_take_turns),
		TEST(test_names_that_are_not_there),
		TEST(test_silent_resolver_fails),
		TEST(test_refused_connection_says_so),
		TEST(test_cancelled_dial_says_nothing),
		TEST(test_no_descriptors_left_is_an_error),
		TEST(test_proxy_gets_the_name_and_gives_all_bytes),
		TEST(test_proxy_by_address_for_an_address),
		TEST(test_proxy_is_not_asked_for_what_is_refused),
		TEST(test_proxy_answers_that_are_no_success),
		TEST(test_hostile_proxies_are_bounded),
		TEST(test_exempt_names_go_directly),
		TEST(test_no_proxy_forms),
		TEST(test_proxy_urls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
