/* relay_scene.h - a client, a relay and a server on loopback, and what the relay said to its
 * owner */
#pragma once
#include "relay_fixture.h"
#include "gate/relay/relay_internal.h"

struct scene {
	struct names names;
	struct relay_hub *hub;
	struct dial_settings dial;
	int door, listener; /* where clients come to, where servers are */
	uint16_t door_port, port;
	struct quota quota;
	struct relay *relay;

	unsigned ended, dialled, seen;
	struct relay_report report;
	struct address address;
	char last[512]; /* what was seen last: "sni good.test", "GET good.test /path" */
	bool refuse_addresses, cut_when_seen;
	unsigned fds;
};

static struct scene scene;

static inline bool scene_seen(void *arg, const struct relay_seen *seen)
{
	(void)arg;
	scene.seen++;
	if (seen->kind == RELAY_SEEN_REQUEST)
		snprintf(scene.last, sizeof scene.last, "%s %s %s", seen->method, seen->name,
			seen->path);
	else
		snprintf(scene.last, sizeof scene.last, "sni %s", seen->name);
	if (scene.cut_when_seen)
		relay_cut(scene.relay, "cut while looking");
	return !strcmp(seen->name, "good.test") && !(seen->path && strstr(seen->path, "secret"));
}

static inline bool scene_may(void *arg, const struct address *address)
{
	(void)arg;
	(void)address;
	return !scene.refuse_addresses;
}

static inline void scene_dialled(void *arg, const struct address *address)
{
	(void)arg;
	scene.dialled++;
	scene.address = *address;
}

static inline void scene_ended(void *arg, const struct relay_report *report)
{
	(void)arg;
	scene.ended++;
	scene.report = *report;
	scene.relay = NULL;
}

static const struct relay_ops scene_ops = {
	.seen = scene_seen, .may = scene_may, .dialled = scene_dialled, .ended = scene_ended
};

static int scene_setup(void **state)
{
	(void)state;
	scene = (struct scene){ .fds = count_fds() };
	loop = loop_new();
	names_open(&scene.names);
	scene.hub = relay_hub_new(loop);
	relay_hub_set_times(scene.hub, 200, 300);
	scene.dial = (struct dial_settings){
		.loop = loop, .upstream = scene.names.upstream, .timeout_ms = 1000
	};
	scene.door = listen_on("127.0.0.1", 0, 64, &scene.door_port);
	scene.listener = listen_on("127.0.0.1", 0, 64, &scene.port);
	return 0;
}

/* Whatever happened: nothing is left open. */
static int scene_teardown(void **state)
{
	(void)state;
	relay_free(scene.relay);
	relay_hub_free(scene.hub);
	names_close(&scene.names);
	close(scene.door);
	close(scene.listener);
	loop_free(loop);
	assert_int_equal(count_fds(), scene.fds);
	return 0;
}

/* A relay with a server given later (check BLIND) or dialled; returns the client's end. */
static inline int scene_start_at(enum relay_check check, const char *name, bool given)
{
	struct dial_target target = { .name = name, .port = scene.port, .allow_private = true };
	int client = connect_to(scene.door_port, SOCK_STREAM);

	scene.relay = relay_new(&(struct relay_options){ .hub = scene.hub,
		.client = accept_from(scene.door),
		.check = check,
		.dial = &scene.dial,
		.target = given ? NULL : &target,
		.quotas = { &scene.quota },
		.ops = &scene_ops });
	return client;
}

static inline int scene_start(enum relay_check check)
{
	return scene_start_at(check, "good.test", false);
}

static inline int scene_server(void)
{
	return accept_from(scene.listener);
}

static inline void expect_ended(enum relay_end end)
{
	run_until(&scene.ended, 1);
	if (scene.report.end != end)
		print_error(
			"ended as %s: %s\n", relay_end_name(scene.report.end), scene.report.why);
	assert_int_equal(scene.report.end, end);
}

/* The client was cut off, and no server ever heard of it. */
static inline void expect_refused(int client, enum relay_end end)
{
	expect_ended(end);
	assert_int_equal(hear_end(client), ECONNRESET);
	assert_int_equal(accept(scene.listener, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(scene.report.bytes_out, 0);
	close(client);
}

/* Both sides in order. */
static inline void expect_done(int client, int server)
{
	shutdown(client, SHUT_WR);
	assert_int_equal(hear_end(server), 0);
	close(server);
	assert_int_equal(hear_end(client), 0);
	close(client);
	expect_ended(RELAY_END_DONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
