/* test_qmp.c - QEMU's monitor from the side of whoever answers: rightly, late, wrongly */
#include "base/alloc.h"
#include "engine/vm/qmp.h"
#include "loop/loop.h"
#include "sys/fdpass.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <cmocka.h>

#define GREETING "{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7}}, \"capabilities\": []}}\r\n"

static struct {
	struct loop *loop;
	struct qmp *qmp;
	int peer; /* QEMU's end */
	bool ready, lost, timed_out;
	struct err why;
	char events[256];
	char answers[512]; /* in the order they came */
	bool free_in_event;
} test;

static void on_ready(struct qmp *qmp, void *arg)
{
	(void)qmp;
	(void)arg;
	test.ready = true;
	loop_stop(test.loop);
}

static void on_event(struct qmp *qmp, const char *name, json_t *data, void *arg)
{
	(void)arg;
	assert_true(json_is_object(data));
	strncat(test.events, name, sizeof test.events - strlen(test.events) - 2);
	strcat(test.events, " ");
	if (test.free_in_event) {
		qmp_free(qmp);
		test.qmp = NULL;
	}
	loop_stop(test.loop);
}

static void on_lost(struct qmp *qmp, const struct err *err, void *arg)
{
	(void)qmp;
	(void)arg;
	test.lost = true;
	test.why = *err;
	loop_stop(test.loop);
}

static void on_late(void *arg)
{
	(void)arg;
	test.timed_out = true;
	loop_stop(test.loop);
}

static void turn(uint64_t ms)
{
	struct loop_timer *timer = loop_timer_new(test.loop, on_late, NULL);

	test.timed_out = false;
	loop_timer_start(timer, ms);
	loop_run(test.loop);
	loop_timer_free(timer);
}

/* As long as something happens. */
static void settle(void)
{
	do
		turn(50);
	while (!test.timed_out);
}

static void tell(const char *text)
{
	assert_int_equal(send(test.peer, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	settle();
}

/* What came, with a descriptor beside it or not. */
static const char *hear(int *ret_fd)
{
	static char text[4096];
	struct fdpass came = { 0 };
	ssize_t n;

	settle();
	n = fdpass_receive(test.peer, text, sizeof text - 1, ret_fd, 1, MSG_DONTWAIT, &came);
	text[n > 0 ? n : 0] = '\0';
	if (!came.count)
		*ret_fd = -1;
	return text;
}

static void expect_heard(const char *part)
{
	int fd;
	const char *text = hear(&fd);

	if (!strstr(text, part))
		fail_msg("'%s' is not in '%s'", part, text);
	assert_int_equal(fd, -1);
}

static void expect_nothing_heard(void)
{
	int fd;

	assert_string_equal(hear(&fd), "");
}

static void on_answer(json_t *result, const struct err *err, void *arg)
{
	size_t len = strlen(test.answers);

	assert_true(!result != !err);
	snprintf(test.answers + len, sizeof test.answers - len, "%s:%s ", (const char *)arg,
		err ? err->message : json_string_value(result));
	loop_stop(test.loop);
}

static int setup(void **state)
{
	static const struct qmp_ops ops = { on_ready, on_event, on_lost };
	int pair[2];

	(void)state;
	memset(&test, 0, sizeof test);
	test.loop = loop_new();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	test.peer = pair[1];
	test.qmp = qmp_new(test.loop, pair[0], &ops, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	qmp_free(test.qmp);
	close(test.peer);
	loop_free(test.loop);
	return 0;
}

static void greet(void)
{
	expect_nothing_heard(); /* nothing before the greeting */
	tell(GREETING);
	expect_heard("{\"execute\":\"qmp_capabilities\",\"id\":1}\n");
	assert_false(test.ready);
	tell("{\"return\": {}, \"id\": 1}\r\n");
	assert_true(test.ready);
}

static void expect_lost(const char *line, const char *why)
{
	tell(line);
	assert_true(test.lost);
	assert_int_equal(test.why.kind, ERR_PROTOCOL);
	if (!strstr(test.why.message, why))
		fail_msg("'%s' is not in '%s'", why, test.why.message);
}

/* ---- promises ------------------------------------------------------------------------------- */

static void test_commands_go_one_at_a_time(void **state)
{
	(void)state;
	qmp_call(test.qmp, "early", NULL, -1, on_answer, "e");
	greet();
	expect_heard("\"early\"");
	qmp_call(test.qmp, "one", json_pack("{s:i}", "a", 1), -1, on_answer, "1");
	qmp_call(test.qmp, "two", NULL, -1, on_answer, "2");
	expect_nothing_heard();
	tell("{\"return\": \"x\", \"id\": 2}\n");
	expect_heard("{\"execute\":\"one\",\"arguments\":{\"a\":1},\"id\":3}\n");
	tell("{\"id\": 3, \"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n");
	expect_heard("\"two\"");
	tell("{\"return\": \"y\", \"id\": 4}\n");
	assert_string_equal(test.answers, "e:x 1:no 2:y ");
}

static void test_descriptor_goes_beside_its_command(void **state)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), came;

	(void)state;
	greet();
	qmp_call(test.qmp, "first", NULL, -1, NULL, NULL);
	qmp_call(test.qmp, "getfd", NULL, fd, NULL, NULL);
	close(fd); /* the caller need not keep it */
	expect_heard("first");
	tell("{\"return\": {}, \"id\": 2}\n");
	assert_non_null(strstr(hear(&came), "getfd"));
	assert_true(came >= 0);
	close(came);
}

static void test_row_of_commands_stops_at_the_first_failure(void **state)
{
	const struct qmp_step steps[] = {
		{ "a", NULL, -1 },
		{ "b", json_pack("{s:s}", "x", "y"), -1 },
		{ "c", json_object(), -1 },
	};

	(void)state;
	greet();
	qmp_run(test.qmp, steps, ARRAY_LEN(steps), on_answer, "run");
	expect_heard("\"a\"");
	tell("{\"return\": {}, \"id\": 2}\n");
	expect_heard("\"b\"");
	tell("{\"error\": {\"desc\": \"broken\"}, \"id\": 3}\n");
	expect_nothing_heard();
	assert_string_equal(test.answers, "run:b: broken ");
}

static void test_events_come_in_any_piece(void **state)
{
	(void)state;
	tell(GREETING);
	tell("{\"event\": \"EARLY\"}\n"); /* before anybody is ready for it */
	tell("{\"return\": {}, \"id\": 1}\n{\"event\": \"STO");
	tell("P\", \"timestamp\": {}}\n{\"event\": \"RESUME\", \"data\": {\"a\": []}}\n");
	assert_string_equal(test.events, "STOP RESUME ");
}

static void test_event_may_free_it(void **state)
{
	(void)state;
	greet();
	test.free_in_event = true;
	tell("{\"event\": \"A\"}\n{\"event\": \"B\"}\n");
	assert_string_equal(test.events, "A ");
}

static void test_lost_monitor_fails_what_waits_and_what_comes(void **state)
{
	(void)state;
	greet();
	qmp_call(test.qmp, "one", NULL, -1, on_answer, "1");
	qmp_call(test.qmp, "two", NULL, -1, on_answer, "2");
	shutdown(test.peer, SHUT_RDWR);
	settle();
	assert_true(test.lost);
	assert_int_equal(test.why.kind, ERR_UNAVAILABLE);
	qmp_call(test.qmp, "three", NULL, -1, on_answer, "3");
	assert_null(strstr(test.answers, "3:"));
	settle();
	assert_string_equal(test.answers, "1:QEMU closed its monitor 2:QEMU closed its monitor "
					  "3:QEMU's monitor is gone ");
}

static void test_too_many_commands_are_refused(void **state)
{
	(void)state;
	greet();
	for (int i = 0; i < QMP_QUEUE_MAX; i++)
		qmp_call(test.qmp, "x", NULL, -1, NULL, NULL);
	qmp_call(test.qmp, "y", NULL, -1, on_answer, "over");
	settle();
	assert_string_equal(test.answers, "over:QEMU's monitor has too much to do ");
	assert_false(test.lost);
}

static void test_late_answer_is_nobodys(void **state)
{
	(void)state;
	greet();
	qmp_set_limit(test.qmp, 60);
	qmp_call(test.qmp, "slow", NULL, -1, on_answer, "slow");
	qmp_call(test.qmp, "never-sent", NULL, -1, on_answer, "next");
	expect_heard("slow");
	turn(200);
	settle();
	assert_string_equal(
		test.answers, "slow:QEMU did not answer in time next:QEMU did not answer in time ");
	qmp_set_limit(test.qmp, 10000);
	qmp_call(test.qmp, "after", NULL, -1, on_answer, "after");
	expect_nothing_heard(); /* QEMU would not look at it before it has answered */
	tell("{\"return\": {}, \"id\": 2}\n");
	expect_heard("\"after\"");
	tell("{\"return\": \"well\", \"id\": 4}\n");
	assert_non_null(strstr(test.answers, "after:well"));
	assert_false(test.lost);
}

static void test_nonsense_ends_the_connection(void **state)
{
	(void)state;
	greet();
	expect_lost("hello\n", "JSON");
}

static void test_second_greeting_ends_it(void **state)
{
	(void)state;
	greet();
	expect_lost(GREETING, "greeted twice");
}

static void test_answer_nobody_asked_for_ends_it(void **state)
{
	(void)state;
	greet();
	qmp_call(test.qmp, "one", NULL, -1, on_answer, "1");
	expect_lost("{\"return\": {}, \"id\": 77}\n", "unexpected answer");
	assert_string_equal(test.answers, "1:QEMU sent an unexpected answer ");
}

static void test_answer_before_the_question_ends_it(void **state)
{
	(void)state;
	expect_lost("{\"return\": {}, \"id\": 1}\n", "unexpected answer");
}

static void test_deep_nesting_ends_it(void **state)
{
	(void)state;
	greet();
	expect_lost("{\"event\": \"X\", \"data\": {\"a\": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}}\n",
		"levels deep");
}

static void test_endless_line_ends_it(void **state)
{
	static char piece[8192];

	(void)state;
	greet();
	memset(piece, 'x', sizeof piece);
	for (size_t sent = 0; sent <= QMP_LINE_MAX + 2 * sizeof piece && !test.lost;
		sent += sizeof piece) {
		send(test.peer, piece, sizeof piece, MSG_NOSIGNAL);
		turn(20);
	}
	assert_true(test.lost);
	assert_int_equal(test.why.kind, ERR_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define row(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		row(test_commands_go_one_at_a_time),
		row(test_descriptor_goes_beside_its_command),
		row(test_row_of_commands_stops_at_the_first_failure),
		row(test_events_come_in_any_piece),
		row(test_event_may_free_it),
		row(test_lost_monitor_fails_what_waits_and_what_comes),
		row(test_too_many_commands_are_refused),
		row(test_late_answer_is_nobodys),
		row(test_nonsense_ends_the_connection),
		row(test_second_greeting_ends_it),
		row(test_answer_nobody_asked_for_ends_it),
		row(test_answer_before_the_question_ends_it),
		row(test_deep_nesting_ends_it),
		row(test_endless_line_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
