/* test_udp_relay.c - datagrams carried on: whole, within their limits, until silence */
#include "relay_fixture.h"
#include "gate/relay/quota.h"
#include "gate/relay/udp.h"

static struct udp_relay *relay;
static struct quota quota;
static struct relay_report report;
static unsigned ended, before_fds;
static int client, server; /* the far ends */

static void on_ended(void *arg, const struct relay_report *told)
{
	(void)arg;
	ended++;
	report = *told;
	relay = NULL;
}

/* Two sockets on loopback, each connected to the other. */
static void make_pair(int *near, int *far)
{
	uint16_t near_port = 0, far_port = 0;
	struct upstream_server to;

	*near = loopback_socket(SOCK_DGRAM, &near_port);
	*far = loopback_socket(SOCK_DGRAM, &far_port);
	to = server_at(far_port);
	assert_int_equal(connect(*near, (struct sockaddr *)&to.address, to.len), 0);
	to = server_at(near_port);
	assert_int_equal(connect(*far, (struct sockaddr *)&to.address, to.len), 0);
}

static int setup(void **state)
{
	struct udp_relay_options options = {
		.idle_ms = 200, .quotas = { &quota }, .ended = on_ended
	};

	(void)state;
	before_fds = count_fds();
	loop = loop_new();
	ended = 0;
	quota = (struct quota)QUOTA_INIT;
	options.loop = loop;
	make_pair(&options.client, &client);
	make_pair(&options.server, &server);
	relay = udp_relay_new(&options);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	udp_relay_free(relay);
	relay = NULL;
	if (client >= 0)
		close(client);
	if (server >= 0)
		close(server);
	loop_free(loop);
	assert_int_equal(count_fds(), before_fds);
	return 0;
}

/* The next datagram is text, and nothing but text. */
static void hear_datagram(int fd, const char *text)
{
	char got[64] = "";
	int64_t end = 0;
	ssize_t n;

	while ((n = recv(fd, got, sizeof got - 1, 0)) < 0 && errno == EAGAIN)
		still_waiting(&end, "a datagram");
	assert_int_equal(n, strlen(text));
	assert_string_equal(got, text);
}

static void test_datagrams_pass_both_ways(void **state)
{
	uint64_t out, in;

	(void)state;
	udp_relay_send(relay, "early", 5);
	say(client, "one");
	say(client, "two");
	hear_datagram(server, "early");
	hear_datagram(server, "one");
	hear_datagram(server, "two");
	say(server, "answer");
	hear_datagram(client, "answer");
	assert_int_equal(send(client, "", 0, 0), 0); /* an empty one is one, too */
	hear_datagram(server, "");
	udp_relay_figures(relay, &out, &in);
	assert_int_equal(out, 11);
	assert_int_equal(in, 6);
	assert_int_equal(quota.spent, 17);
}

static void test_largest_datagram_passes_whole(void **state)
{
	uint8_t *sent = xcalloc(1, UDP_DATAGRAM_MAX), *got = xcalloc(1, UDP_DATAGRAM_MAX + 1);
	int64_t end = 0;
	ssize_t n;

	(void)state;
	memset(sent, 'x', UDP_DATAGRAM_MAX);
	assert_int_equal(send(client, sent, UDP_DATAGRAM_MAX, 0), UDP_DATAGRAM_MAX);
	while ((n = recv(server, got, UDP_DATAGRAM_MAX + 1, 0)) < 0)
		still_waiting(&end, "a large datagram");
	assert_int_equal(n, UDP_DATAGRAM_MAX);
	assert_memory_equal(sent, got, UDP_DATAGRAM_MAX);
	free(sent);
	free(got);
}

static void test_silence_is_the_end(void **state)
{
	int64_t began = clock_mono_us();

	(void)state;
	run_for(120);
	say(client, "still here");
	hear_datagram(server, "still here");
	run_until(&ended, 1);
	assert_int_equal(report.end, RELAY_END_DONE);
	assert_int_equal(report.bytes_out, 10);
	assert_true(clock_mono_us() - began >= 300000);
	assert_true(report.duration_us >= 300000);
}

static void test_budget_is_never_passed(void **state)
{
	(void)state;
	quota.budget = 10;
	say(client, "1234");
	say(client, "5678");
	say(client, "9abc"); /* would be two too many */
	hear_datagram(server, "1234");
	hear_datagram(server, "5678");
	run_until(&ended, 1);
	assert_int_equal(report.end, RELAY_END_BUDGET);
	assert_int_equal(report.bytes_out, 8);
	assert_int_equal(quota.spent, 8);
	hear_nothing(server, 5);
}

static void test_rate_drops_and_does_not_queue(void **state)
{
	char datagram[1000] = "";
	unsigned got = 0;
	int64_t end;

	(void)state;
	quota.rate = 100000; /* a hundred a second */
	end = clock_mono_us() + 1000000;
	while (clock_mono_us() < end) {
		for (int i = 0; i < 10; i++)
			(void)!send(client, datagram, sizeof datagram, 0);
		run_for(2);
		while (recv(server, datagram, sizeof datagram, 0) > 0)
			got++;
	}
	assert_in_range(got, 90, 140); /* with the quarter of a second saved up before */
	run_for(50);
	assert_int_equal(recv(server, datagram, sizeof datagram, 0), -1);
	assert_int_equal(ended, 0);
}

static void test_server_that_refuses_may_come_back(void **state)
{
	struct sockaddr_in at;
	socklen_t len = sizeof at;
	struct sockaddr_in peer;
	int64_t used;

	(void)state;
	assert_int_equal(getsockname(server, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(getpeername(server, (struct sockaddr *)&peer, &len), 0);
	close(server);
	server = -1;
	say(client, "anybody?");
	run_for(5);
	used = cpu_us();
	run_for(50);
	assert_true(cpu_us() - used < 10000); /* an error is taken once */
	assert_int_equal(ended, 0);
	server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(server, (struct sockaddr *)&at, len), 0);
	assert_int_equal(connect(server, (struct sockaddr *)&peer, len), 0);
	say(client, "now?");
	hear_datagram(server, "now?");
}

static void test_client_that_is_gone_ends_it(void **state)
{
	(void)state;
	close(client);
	client = -1;
	say(server, "answer");
	run_until(&ended, 1);
	assert_int_equal(report.end, RELAY_END_RESET);
}

static void test_cut_ends_from_the_loop(void **state)
{
	(void)state;
	udp_relay_cut(relay, "the policy changed");
	assert_int_equal(ended, 0);
	run_until(&ended, 1);
	assert_int_equal(report.end, RELAY_END_CUT);
	assert_string_equal(report.why, "the policy changed");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_datagrams_pass_both_ways),
		TEST(test_largest_datagram_passes_whole),
		TEST(test_silence_is_the_end),
		TEST(test_budget_is_never_passed),
		TEST(test_rate_drops_and_does_not_queue),
		TEST(test_server_that_refuses_may_come_back),
		TEST(test_client_that_is_gone_ends_it),
		TEST(test_cut_ends_from_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
