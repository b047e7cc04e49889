/* test_relay_flow.c - how a relay moves bytes: whole, bounded, at their rate, within their
 * budget */
#include "relay_scene.h"
#include <sys/ioctl.h>

enum { BULK = 8 * 1024 * 1024 };

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 31 + i / 4093);
}

/* Sends as much as goes now, from offset on; returns how much. */
static size_t push(int fd, size_t offset, size_t max)
{
	static uint8_t chunk[64 * 1024];
	size_t sent = 0;

	while (sent < max) {
		size_t want = MIN(sizeof chunk, max - sent);
		ssize_t n;

		for (size_t i = 0; i < want; i++)
			chunk[i] = pattern(offset + sent + i);
		n = send(fd, chunk, want, MSG_NOSIGNAL);
		if (n <= 0)
			break;
		sent += (size_t)n;
	}
	return sent;
}

/* Reads and verifies what is there now; returns how much. */
static size_t pull(int fd, size_t offset, size_t max)
{
	static uint8_t chunk[64 * 1024];
	size_t got = 0;

	while (got < max) {
		ssize_t n = recv(fd, chunk, MIN(sizeof chunk, max - got), 0);

		if (n <= 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			if (chunk[i] != pattern(offset + got + (size_t)i))
				fail_msg("byte %zu is not what was sent", offset + got + (size_t)i);
		got += (size_t)n;
	}
	return got;
}

static void carry(int from, int to, size_t size)
{
	size_t sent = 0, got = 0;
	int64_t end = 0;

	while (got < size) {
		sent += push(from, sent, size - sent);
		run_for(0);
		got += pull(to, got, size - got);
		if (!end)
			end = clock_mono_us() + 20000000;
		assert_true(clock_mono_us() < end);
	}
}

/* ---- whole and bounded ---------------------------------------------------------------------- */

static void test_bytes_arrive_whole_both_ways(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();

	(void)state;
	carry(client, server, BULK);
	carry(server, client, BULK);
	expect_done(client, server);
	assert_int_equal(scene.report.bytes_out, BULK);
	assert_int_equal(scene.report.bytes_in, BULK);
}

static void test_both_ways_at_once_do_not_block_each_other(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();
	size_t out = 0, in = 0, out_got = 0, in_got = 0;
	int64_t end = clock_mono_us() + 20000000;

	(void)state;
	while ((out_got < BULK || in_got < BULK) && clock_mono_us() < end) {
		out += push(client, out, BULK - out);
		in += push(server, in, BULK - in);
		run_for(0);
		out_got += pull(server, out_got, BULK - out_got);
		in_got += pull(client, in_got, BULK - in_got);
	}
	assert_int_equal(out_got, BULK);
	assert_int_equal(in_got, BULK);
	expect_done(client, server);
}

/* Sends until nothing more goes. */
static size_t fill(int from)
{
	size_t sent = 0;

	for (int quiet = 0; quiet < 20; quiet++) {
		size_t n = push(from, sent, SIZE_MAX - sent);

		sent += n;
		if (n)
			quiet = 0;
		run_for(1);
	}
	return sent;
}

static void limit_buffers(int fd)
{
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ 65536 }, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ 65536 }, sizeof(int));
}

static void test_slow_reader_slows_the_sender_and_costs_nothing(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();
	size_t sent, got = 0;
	int64_t used;
	int inside;

	(void)state;
	limit_buffers(client);
	limit_buffers(server);
	limit_buffers(scene.relay->client.fd);
	limit_buffers(scene.relay->server.fd);
	sent = fill(server);
	assert_true(sent < 2 * 1024 * 1024); /* four socket buffers and a pipe */
	assert_non_null(scene.relay->in.pipe);
	assert_int_equal(ioctl(scene.relay->in.pipe->out, FIONREAD, &inside), 0);
	assert_int_equal(inside, scene.relay->in.in_pipe);
	used = cpu_us();
	run_for(300);
	assert_true(cpu_us() - used < 15000); /* nobody is woken for a full peer */
	say(client, "the other way is free");
	hear(server, "the other way is free");
	while (got < sent) {
		size_t n = pull(client, got, sent - got);

		got += n;
		run_for(n ? 0 : 1);
	}
	assert_null(scene.relay->in.pipe); /* nothing inside, nothing lent */
	expect_done(client, server);
}

static void test_end_waits_for_what_is_inside(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();
	size_t sent, got = 0;

	(void)state;
	sent = fill(server);
	close(server);
	run_for(20);
	while (got < sent) {
		size_t n = pull(client, got, sent - got);

		got += n;
		run_for(n ? 0 : 1);
	}
	assert_int_equal(hear_end(client), 0);
	close(client);
	expect_ended(RELAY_END_DONE);
	assert_int_equal(scene.report.bytes_in, sent);
}

static void test_reset_is_noticed_behind_a_full_peer(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();

	(void)state;
	fill(client);
	reset(client);
	expect_ended(RELAY_END_RESET); /* though the server never reads */
	assert_int_equal(scene.relay == NULL, 1);
	close(server);
}

static void test_idle_relays_keep_no_pipes(void **state)
{
	enum { MANY = 200 };
	int clients[MANY], servers[MANY];
	struct relay *relays[MANY];
	unsigned before = count_fds();

	(void)state;
	for (int i = 0; i < MANY; i++) {
		clients[i] = scene_start(RELAY_BLIND);
		servers[i] = scene_server();
		relays[i] = scene.relay;
		say(clients[i], "ping");
		hear(servers[i], "ping");
	}
	assert_true(count_fds() <= before + 4 * MANY + 2); /* four sockets each, one pipe for all */
	for (int i = 0; i < MANY; i++) {
		relay_free(relays[i]);
		close(clients[i]);
		close(servers[i]);
	}
	scene.relay = NULL;
}

static void test_without_descriptors_bytes_are_copied(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();
	struct relay_pipe *idle;
	struct rlimit before, few;

	(void)state;
	run_for(5);
	idle = relay_hub_lend(scene.hub); /* what there is, is in use */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = (rlim_t)server + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	carry(client, server, BULK);
	carry(server, client, BULK);
	assert_int_equal(scene.hub->pipe_count, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	relay_hub_return(scene.hub, idle, true);
	expect_done(client, server);
	assert_int_equal(scene.report.bytes_out, BULK);
}

/* ---- budgets -------------------------------------------------------------------------------- */

static void test_budget_is_exact(void **state)
{
	enum { BUDGET = 1000003 };
	int client = scene_start(RELAY_BLIND), server = scene_server();
	size_t sent = 0, got = 0;

	(void)state;
	scene.quota.budget = BUDGET;
	while (!scene.ended) {
		sent += push(client, sent, 2000000 - sent);
		run_for(1);
		got += pull(server, got, BUDGET - got);
	}
	got += pull(server, got, BUDGET - got);
	expect_ended(RELAY_END_BUDGET);
	assert_int_equal(scene.quota.spent, BUDGET);
	assert_int_equal(scene.report.bytes_out, BUDGET);
	assert_int_equal(got, BUDGET);
	assert_int_equal(hear_end(server), ECONNRESET);
	close(client);
	close(server);
}

static void test_budget_that_is_just_enough_ends_in_order(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();

	(void)state;
	scene.quota.budget = 12;
	say(client, "question");
	hear(server, "question");
	say(server, "yes!");
	hear(client, "yes!");
	assert_true(quota_is_spent(&scene.quota));
	expect_done(client, server);
}

static void test_spent_budget_passes_nothing(void **state)
{
	int client = scene_start(RELAY_BLIND), server = scene_server();

	(void)state;
	scene.quota.budget = scene.quota.spent = 5;
	say(client, "x");
	expect_ended(RELAY_END_BUDGET);
	assert_int_equal(hear_end(server), ECONNRESET);
	assert_int_equal(scene.report.bytes_out, 0);
	close(client);
	close(server);
}

/* ---- rates ---------------------------------------------------------------------------------- */

static void test_rate_is_held_without_spinning(void **state)
{
	enum { RATE = 4 * 1024 * 1024 };
	int client = scene_start(RELAY_BLIND), server = scene_server();
	size_t sent = 0, got = 0, start = 0;
	int64_t began = clock_mono_us(), measured = 0, now, used = 0;
	double rate;

	(void)state;
	scene.quota.rate = RATE;
	do {
		sent += push(client, sent, SIZE_MAX - sent);
		run_for(5);
		got += pull(server, got, SIZE_MAX);
		now = clock_mono_us();
		if (!measured && now - began > 400000) { /* what was saved up is gone */
			measured = now;
			start = got;
		}
	} while (!measured || now - measured < 1000000);
	rate = (double)(got - start) * 1e6 / (double)(now - measured);
	if (rate < RATE * 0.9 || rate > RATE * 1.1)
		fail_msg("%.0f bytes a second instead of %d", rate, RATE);
	/* While it waits for credit, nothing turns. */
	scene.quota.rate = 100;
	run_for(20);
	used = cpu_us();
	run_for(300);
	assert_true(cpu_us() - used < 15000);
	relay_cut(scene.relay, "enough");
	expect_ended(RELAY_END_CUT);
	close(client);
	close(server);
}

static void test_shared_rate_is_shared_fairly(void **state)
{
	enum { FLOWS = 10, RATE = 8 * 1024 * 1024 };
	int clients[FLOWS], servers[FLOWS];
	struct relay *relays[FLOWS];
	size_t sent[FLOWS] = { 0 }, got[FLOWS] = { 0 };
	double sum = 0, squares = 0;
	int64_t end;

	(void)state;
	scene.quota.rate = RATE;
	for (int i = 0; i < FLOWS; i++) {
		clients[i] = scene_start(RELAY_BLIND);
		servers[i] = scene_server();
		relays[i] = scene.relay;
	}
	end = clock_mono_us() + 1500000;
	while (clock_mono_us() < end) {
		for (int i = 0; i < FLOWS; i++)
			sent[i] += push(clients[i], sent[i], 1024 * 1024);
		run_for(5);
		for (int i = 0; i < FLOWS; i++)
			got[i] += pull(servers[i], got[i], SIZE_MAX);
	}
	for (int i = 0; i < FLOWS; i++) {
		sum += (double)got[i];
		squares += (double)got[i] * (double)got[i];
		relay_free(relays[i]);
		close(clients[i]);
		close(servers[i]);
	}
	scene.relay = NULL;
	assert_true(sum > RATE);		 /* in a second and a half */
	if (sum * sum / (FLOWS * squares) < 0.9) /* Jain's index; 1 is perfectly fair */
		fail_msg("index %.3f", sum * sum / (FLOWS * squares));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_bytes_arrive_whole_both_ways),
		TEST(test_both_ways_at_once_do_not_block_each_other),
		TEST(test_slow_reader_slows_the_sender_and_costs_nothing),
		TEST(test_end_waits_for_what_is_inside),
		TEST(test_reset_is_noticed_behind_a_full_peer),
		TEST(test_idle_relays_keep_no_pipes),
		TEST(test_without_descriptors_bytes_are_copied),
		TEST(test_budget_is_exact),
		TEST(test_budget_that_is_just_enough_ends_in_order),
		TEST(test_spent_budget_passes_nothing),
		TEST(test_rate_is_held_without_spinning),
		TEST(test_shared_rate_is_shared_fairly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
