/* test_gate_life.c - changes under way: policies, budgets, the watch; and the end of the gate */
#include "gate_fixture.h"
#include "sys/fdpass.h"

/* ---- change --------------------------------------------------------------------------------- */

static void test_gate_cuts_what_a_new_policy_forbids(void **state)
{
	char data[16];
	json_t *event;
	int cut, kept;

	(void)state;
	server_new(SERVER, 7000);
	server_new(SERVER, 7100);
	add_box("{\"allow\":[\"good.test:7000,7100\"]}");
	cut = box_dial("good.test", 7000);
	kept = box_dial("good.test", 7100);
	box_write(cut, "\1", 1);
	box_write(kept, "\1", 1);
	assert_int_equal(box_read(cut, data, sizeof data), 1);
	assert_int_equal(box_read(kept, data, sizeof data), 1);
	change_policy("{\"allow\":[\"good.test:7100\"]}", 2);
	assert_reset(cut);
	WAIT_FOR(find_event("policy", NULL, NULL) && find_event("close", NULL, NULL));
	event = find_event("policy", NULL, NULL);
	assert_int_equal(number_of(event, "version"), 2);
	assert_int_equal(number_of(event, "cut"), 1);
	assert_string_equal(text_of(find_event("close", NULL, NULL), "end"), "cut");
	box_write(kept, "\1", 1);
	assert_int_equal(box_read(kept, data, sizeof data), 1);
	assert_reset(box_dial("good.test", 7000));
	/* Cut and dropped in one breath. */
	change_policy("{}", 3);
	gate_drop(gate, "b1");
	WAIT_FOR(count_events("close") == 2);
	assert_int_equal(downs, 0);
	close(kept);
}

static void test_gate_cuts_when_the_address_becomes_the_hosts(void **state)
{
	static const char *const ranges[] = { SERVER, NULL };
	struct gate_settings now = settings;
	char data[16];
	int fd;

	(void)state;
	server_new(SERVER, 7000);
	add_box(POLICY_PLAIN);
	fd = box_dial("good.test", 7000);
	box_write(fd, "\1", 1);
	assert_int_equal(box_read(fd, data, sizeof data), 1);
	now.host_ranges = ranges;
	gate_set(gate, &now);
	assert_reset(fd);
	assert_reset(box_dial("good.test", 7000));
	WAIT_FOR(find_event("connect", "verdict", "refused"));
	assert_non_null(strstr(
		text_of(find_event("connect", "verdict", "refused"), "reason"), "this host"));
}

static void test_gate_holds_budgets_over_restarts(void **state)
{
	struct server *server = server_new(SERVER, 7000);
	static char block[200000]; /* of NULs: no text of any protocol */
	_cleanup_json_ json_t *spent = NULL;
	json_t *limit;
	int fd;

	(void)state;
	server->echo = false;
	add_box("{\"allow\":[{\"name\":\"good.test\",\"ports\":7000,\"bytes\":100000}],\"limits\":{"
		"\"on_limit\":\"pause\",\"bytes\":\"1G\"}}");
	fd = box_dial("good.test", 7000);
	box_write(fd, block, sizeof block);
	WAIT_FOR(find_event("close", NULL, NULL));
	assert_string_equal(text_of(find_event("close", NULL, NULL), "end"), "budget");
	assert_true(server->received <= 100000);
	close(fd);
	WAIT_FOR(json_array_size(limits) == 1);
	limit = json_array_get(limits, 0);
	assert_string_equal(text_of(limit, "limit"), "bytes");
	assert_string_equal(text_of(limit, "scope"), "rule");
	assert_string_equal(text_of(limit, "on_limit"), "pause");
	assert_string_equal(text_of(limit, "name"), "good.test");
	assert_reset(box_dial("good.test", 7000));
	WAIT_FOR(meters && number_of(json_object_get(meters, "spent"), "box") >= 100000);
	spent = json_deep_copy(json_object_get(meters, "spent"));
	gate_drop(gate, "b1");
	add_box_with("{\"allow\":[{\"name\":\"good.test\",\"ports\":7000,\"bytes\":100000}]}",
		saved_names, spent, false);
	json_array_clear(events);
	assert_reset(box_dial("good.test", 7000));
	WAIT_FOR(find_event("connect", "verdict", "refused"));
	assert_int_equal(server->accepted, 1);
}

static void test_gate_bounds_connections(void **state)
{
	char data[16];
	int first, second;

	(void)state;
	server_new(SERVER, 7000);
	add_box("{\"allow\":[\"good.test:7000\"],\"limits\":{\"connections\":1}}");
	first = box_dial("good.test", 7000);
	box_write(first, "\1", 1);
	assert_int_equal(box_read(first, data, sizeof data), 1);
	assert_reset(box_dial("good.test", 7000));
	WAIT_FOR(json_array_size(limits) == 1);
	assert_string_equal(text_of(json_array_get(limits, 0), "limit"), "connections");
	close(first);
	WAIT_FOR(find_event("close", NULL, NULL));
	second = box_dial("good.test", 7000);
	box_write(second, "\1", 1);
	assert_int_equal(box_read(second, data, sizeof data), 1);
	close(second);
}

static void test_gate_keeps_addresses_of_names(void **state)
{
	char before[ADDRESS_TEXT_MAX], other[ADDRESS_TEXT_MAX], after[ADDRESS_TEXT_MAX];

	(void)state;
	add_box(POLICY_PLAIN);
	ask("x.wild.test", other);
	ask("good.test", before);
	gate_drop(gate, "b1");
	WAIT_FOR(saved_names);
	add_box_with(POLICY_PLAIN, saved_names, NULL, false);
	assert_int_equal(ask("good.test", after), DNS_NOERROR);
	assert_string_equal(before, after);
	assert_string_not_equal(before, other);
}

static json_t *names_answer;

static void on_names_answer(void *arg, json_t *saved, const struct err *err)
{
	(void)arg;
	assert_null(err);
	json_decref(names_answer);
	names_answer = json_incref(saved);
}

/* A capture asks: what was answered before is in it, however lately. */
static void test_gate_tells_names_when_asked(void **state)
{
	char address[ADDRESS_TEXT_MAX];
	json_t *names;

	(void)state;
	add_box(POLICY_PLAIN);
	for (int i = 0; i < 3; i++) {
		char name[32];

		snprintf(name, sizeof name, "x%d.wild.test", i);
		ask(name, address);
		names_answer = NULL;
		gate_names(gate, "b1", on_names_answer, NULL);
		WAIT_FOR(names_answer);
		names = json_object_get(names_answer, "names");
		assert_int_equal(json_array_size(names), i + 1);
		assert_string_equal(
			json_string_value(json_array_get(json_array_get(names, (size_t)i), 0)),
			name);
		json_decref(names_answer);
	}
}

/* No address goes out that is not reserved; the gate asks in time, so no question fails. */
static void test_gate_reserves_addresses_before_it_uses_them(void **state)
{
	char address[ADDRESS_TEXT_MAX];

	(void)state;
	box_reserved = 1027;
	reserves = 0;
	add_box(POLICY_PLAIN);
	for (int i = 0; i < 5; i++) {
		char name[32];

		snprintf(name, sizeof name, "x%d.wild.test", i);
		assert_int_equal(ask(name, address), DNS_NOERROR);
	}
	WAIT_FOR(reserves == 1);
	assert_int_equal(box_reserved, 1027 + 2048);
	gate_drop(gate, "b1");
	box_reserved = 4096;
}

/* Once for each time it is told that the box sleeps; what it sends itself is no news. */
static void test_gate_tells_of_data_for_a_box_that_sleeps(void **state)
{
	char data[16];
	int fd;

	(void)state;
	server_new(SERVER, 7000);
	add_box(POLICY_PLAIN);
	fd = box_dial("good.test", 7000);
	traffic_own = traffic_peers = 0;
	for (unsigned i = 1; i <= 3; i++) {
		gate_asleep(gate, "b1", GATE_TELL_OWN | GATE_TELL_PEERS);
		for (int k = 0; k < 3; k++) {
			box_write(fd, "\1\n", 2);
			assert_true(box_read(fd, data, sizeof data) > 0);
		}
		WAIT_FOR(traffic_own == i);
	}
	gate_asleep(gate, "b1", 0);
	box_write(fd, "\1\n", 2);
	assert_true(box_read(fd, data, sizeof data) > 0);
	assert_int_equal(traffic_own, 3);
	assert_int_equal(traffic_peers, 0);
	close(fd);
}

static void test_gate_dropped_box_is_cut_and_told(void **state)
{
	char data[16];
	int fd;

	(void)state;
	server_new(SERVER, 7000);
	add_box(POLICY_PLAIN);
	fd = box_dial("good.test", 7000);
	box_write(fd, "ab\n", 3);
	assert_int_equal(box_read(fd, data, sizeof data), 3);
	gate_drop(gate, "b1");
	assert_true(box_read(fd, data, sizeof data) <= 0);
	WAIT_FOR(find_event("close", NULL, NULL));
	assert_int_equal(number_of(find_event("close", NULL, NULL), "bytes_out"), 3);
	WAIT_FOR(meters && number_of(meters, "bytes_out") == 3);
	close(fd);
	assert_reset(box_connect("198.18.1.0", 7000, SOCK_STREAM));
}

/* ---- questions ------------------------------------------------------------------------------ */

static json_t *answer;
static struct err answer_err;

static void on_answer(void *arg, json_t *value, const struct err *err)
{
	(void)arg;
	answer_err = err ? *err : (struct err)ERR_INIT;
	answer = value ? json_incref(value) : json_null();
}

static void test_gate_lists_connections(void **state)
{
	char data[16];
	json_t *row;
	int fd;

	(void)state;
	server_new(SERVER, 7000);
	add_box(POLICY_PLAIN);
	fd = box_dial("good.test", 7000);
	box_write(fd, "ab\n", 3);
	assert_int_equal(box_read(fd, data, sizeof data), 3);
	gate_connections(gate, "b1", on_answer, NULL);
	WAIT_FOR(answer);
	assert_int_equal(json_array_size(answer), 1);
	row = json_array_get(answer, 0);
	assert_string_equal(text_of(row, "name"), "good.test");
	assert_string_equal(text_of(row, "address"), SERVER);
	assert_int_equal(number_of(row, "bytes_in"), 3);
	json_decref(answer);
	answer = NULL;
	gate_connections(gate, "none", on_answer, NULL);
	WAIT_FOR(answer);
	assert_int_equal(answer_err.kind, ERR_NOT_FOUND);
	answer = NULL;
	close(fd);
}

static void test_gate_records_what_a_box_needs(void **state)
{
	char data[16], address[ADDRESS_TEXT_MAX];
	json_t *row;
	int fd;

	(void)state;
	server_new(SERVER, 7000);
	add_box("{\"preset\":\"none\",\"deny\":[\"denied.test\"]}");
	assert_int_equal(ask("anything.test", address), DNS_NXDOMAIN);
	gate_record(gate, "b1", true);
	fd = box_dial("anything.test", 7000);
	box_write(fd, "ab\n", 3);
	assert_int_equal(box_read(fd, data, sizeof data), 3);
	assert_reset(box_dial("private.test", 7000));
	assert_int_equal(ask("denied.test", address), DNS_NXDOMAIN);
	gate_recorded(gate, "b1", on_answer, NULL);
	WAIT_FOR(answer);
	row = json_array_get(json_object_get(answer, "destinations"), 0);
	if (strcmp(text_of(row, "name"), "anything.test"))
		row = json_array_get(json_object_get(answer, "destinations"), 1);
	assert_string_equal(text_of(row, "name"), "anything.test");
	assert_int_equal(number_of(row, "port"), 7000);
	assert_int_equal(number_of(row, "connections"), 1);
	assert_int_equal(number_of(row, "questions"), 1);
	assert_int_equal(number_of(row, "bytes_out"), 3);
	row = json_array_get(json_object_get(answer, "private"), 0);
	assert_string_equal(text_of(row, "name"), "private.test");
	assert_string_equal(text_of(row, "address"), "10.0.0.1");
	json_decref(answer);
	answer = NULL;
	/* When the watch is over the policy holds again. */
	gate_record(gate, "b1", false);
	assert_reset(fd);
	assert_int_equal(ask("anything.test", address), DNS_NXDOMAIN);
}

static void test_gate_box_cannot_flood_the_log(void **state)
{
	char address[ADDRESS_TEXT_MAX], name[64];
	json_int_t dropped = 0;
	size_t written;

	(void)state;
	add_box("{\"allow\":[\"good.test:7000\"]}");
	ask("good.test", address);
	for (int i = 0; i < 3000; i++) {
		int fd = box_connect(address, (uint16_t)(8000 + i % 1000), SOCK_STREAM);

		close(fd);
		if (i % 50 == 0)
			run_for(1);
	}
	run_for(1500);
	written = json_array_size(events);
	for (size_t i = 0; i < written; i++)
		dropped += number_of(json_array_get(events, i), "dropped");
	assert_true(written < 2000);
	assert_true(written >= 1000);
	assert_true(dropped > 500);
	/* And it serves as before. */
	snprintf(name, sizeof name, "good.test");
	assert_int_equal(ask(name, address), DNS_NOERROR);
}

/* ---- the process ---------------------------------------------------------------------------- */

static void read_status(pid_t pid, char *text, size_t size)
{
	char path[64];
	ssize_t len;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = read(fd, text, size - 1);
	text[MAX(len, 0)] = '\0';
	close(fd);
}

static void test_gate_has_no_privileges(void **state)
{
	char status[4096], address[ADDRESS_TEXT_MAX];

	(void)state;
	add_box(POLICY_PLAIN);
	ask("good.test", address);
	read_status(gate_get_pid(gate), status, sizeof status);
	assert_non_null(strstr(status, "Uid:\t65534\t65534\t65534\t65534\n"));
	assert_non_null(strstr(status, "Gid:\t65534\t65534\t65534\t65534\n"));
	assert_non_null(strstr(status, "Groups:\t \n"));
	assert_non_null(strstr(status, "CapPrm:\t0000000000000000\n"));
	assert_non_null(strstr(status, "CapEff:\t0000000000000000\n"));
	assert_non_null(strstr(status, "CapBnd:\t0000000000000000\n"));
	assert_non_null(strstr(status, "NoNewPrivs:\t1\n"));
	assert_non_null(strstr(status, "Seccomp:\t2\n"));
}

static void test_gate_killed_is_told(void **state)
{
	struct err err = ERR_INIT;
	int doors[DOOR_COUNT], fd;
	char data[16];
	_cleanup_json_ json_t *policy = json_object();

	(void)state;
	server_new(SERVER, 7000);
	add_box(POLICY_PLAIN);
	fd = box_dial("good.test", 7000);
	box_write(fd, "\1", 1);
	assert_int_equal(box_read(fd, data, sizeof data), 1);
	gate_connections(gate, "b1", on_answer, NULL);
	kill(gate_get_pid(gate), SIGSTOP);
	kill(gate_get_pid(gate), SIGKILL);
	WAIT_FOR(downs == 1);
	/* Closed: nobody is behind the doors any more. */
	assert_true(box_read(fd, data, sizeof data) <= 0);
	close(fd);
	assert_reset(box_connect("198.18.1.0", 7000, SOCK_STREAM));
	WAIT_FOR(answer);
	answer = NULL;
	assert_int_equal(doors_open(netns, doors, &err), 0);
	assert_int_equal(
		gate_add(gate, &(struct gate_box){ .id = "b2", .name = "b", .policy = policy },
			doors, &err),
		-1);
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	run_for(20);
	assert_int_equal(downs, 1);
}

static const char *const nonsense[] = {
	"",
	"X",
	"T",
	"T{",
	"T[]",
	"T{}",
	"F",
	"T{\"do\":\"event\"}",
	"T{\"do\":\"unknown\",\"box\":\"b1.1\"}",
	"T{\"do\":\"event\",\"box\":\"b1.1\",\"event\":{}}",
	"T{\"do\":\"event\",\"box\":\"b1.1\",\"event\":{\"type\":\"dns\",\"extra\":1}}",
	"T{\"do\":\"event\",\"box\":\"b1.1\",\"event\":{\"type\":\"dns\",\"port\":-1}}",
	"T{\"do\":\"event\",\"box\":\"b1.1\",\"event\":{\"type\":\"dns\",\"port\":70000}}",
	"T{\"do\":\"event\",\"box\":\"b1.1\",\"event\":{\"type\":\"dns\",\"address\":\"nowhere\"}}",
	"T{\"do\":\"event\",\"box\":\"b1.1\",\"event\":{\"type\":\"far too long for a type\"}}",
	"T{\"do\":\"meters\",\"box\":\"b1.1\",\"meters\":{\"bytes_out\":1}}",
	"T{\"do\":\"names\",\"box\":\"b1.1\",\"saved\":{}}",
	"T{\"do\":\"dial_box\",\"box\":\"b1.1\",\"name\":\"../x\",\"port\":1,\"ticket\":1}",
	"T{\"do\":\"dial_box\",\"box\":\"b1.1\",\"name\":\"x\",\"port\":1}",
	"T{\"do\":\"open_udp\",\"box\":\"b1.1\",\"aim\":1,\"client\":2,\"ticket\":3}",
	"T{\"do\":\"answer\",\"request\":99,\"value\":[]}",
	"T{\"do\":\"event\",\"box\":1,\"event\":{\"type\":\"dns\"}}",
};
static size_t nonsense_at;

static int speak_nonsense(void)
{
	const char *text = nonsense[nonsense_at];

	(void)!send(3, text, strlen(text), MSG_NOSIGNAL);
	pause();
	return 0;
}

static int send_fd_and_wait(void)
{
	int fd = 0;

	(void)!fdpass_send(3, "F", 1, &fd, 1, 0);
	pause();
	return 0;
}

static void test_gate_nonsense_ends_it(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (nonsense_at = 0; nonsense_at <= ARRAY_LEN(nonsense); nonsense_at++) {
		gate_close(gate);
		downs = 0;
		assert_int_equal(gate_open_as(loop, &settings, &gate_ops, NULL,
					 nonsense_at < ARRAY_LEN(nonsense) ? speak_nonsense
									   : send_fd_and_wait,
					 &gate, &err),
			0);
		WAIT_FOR(downs == 1);
		assert_int_equal(json_array_size(events), 0);
	}
}

static void test_gate_refuses_a_bad_policy_here(void **state)
{
	_cleanup_json_ json_t *policy = json_pack("{s:s}", "preset", "everything");
	struct err err = ERR_INIT;
	int doors[DOOR_COUNT];

	(void)state;
	assert_int_equal(doors_open(netns, doors, &err), 0);
	assert_int_equal(
		gate_add(gate, &(struct gate_box){ .id = "b1", .name = "ada", .policy = policy },
			doors, &err),
		-1);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_int_equal(doors[DOOR_TCP], -1);
}

static void test_gate_large_texts_pass(void **state)
{
	struct buf text = BUF_INIT;
	char address[ADDRESS_TEXT_MAX];

	(void)state;
	buf_add_str(&text, "{\"allow\":[\"good.test:7000\"");
	for (int i = 0; i < 1500; i++)
		buf_addf(
			&text, ",\"a-rather-long-name-number-%d.of.some.long.domain.test:443\"", i);
	buf_add_str(&text, "]}");
	assert_true(text.len > 2 * CHANNEL_TEXT_MAX);
	add_box(buf_str(&text));
	assert_int_equal(ask("a-rather-long-name-number-1499.of.some.long.domain.test", address),
		DNS_NOERROR);
	for (int i = 0; i < 900; i++) {
		char name[80];

		snprintf(name, sizeof name, "a-rather-long-name-number-%d.of.some.long.domain.test",
			i);
		assert_int_equal(ask(name, address), DNS_NOERROR);
	}
	gate_drop(gate, "b1");
	WAIT_FOR(saved_names && json_array_size(json_object_get(saved_names, "names")) == 901);
	buf_done(&text);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		GATE_TEST(test_gate_cuts_what_a_new_policy_forbids),
		GATE_TEST(test_gate_cuts_when_the_address_becomes_the_hosts),
		GATE_TEST(test_gate_holds_budgets_over_restarts),
		GATE_TEST(test_gate_bounds_connections),
		GATE_TEST(test_gate_keeps_addresses_of_names),
		GATE_TEST(test_gate_tells_names_when_asked),
		GATE_TEST(test_gate_tells_of_data_for_a_box_that_sleeps),
		GATE_TEST(test_gate_reserves_addresses_before_it_uses_them),
		GATE_TEST(test_gate_dropped_box_is_cut_and_told),
		GATE_TEST(test_gate_lists_connections),
		GATE_TEST(test_gate_records_what_a_box_needs),
		GATE_TEST(test_gate_box_cannot_flood_the_log),
		GATE_TEST(test_gate_has_no_privileges),
		GATE_TEST(test_gate_killed_is_told),
		GATE_TEST(test_gate_nonsense_ends_it),
		GATE_TEST(test_gate_refuses_a_bad_policy_here),
		GATE_TEST(test_gate_large_texts_pass),
	};

	return run_gate_tests(argc, argv, tests);
}
