/* test_parts.c - the daemon's table: started in order, ended in reverse, wherever a start fails */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/log.h"
#include "daemon/parts.h"
#include <stdio.h>
#include <string.h>

/* What happened, a word each. */
struct story {
	char text[256];
	int fails_at; /* -1: nowhere */
	void (*waiting)(void *arg);
	void *waiting_arg;
	bool stopped;
};

static void note(struct story *story, const char *verb, int which)
{
	size_t len = strlen(story->text);

	snprintf(
		story->text + len, sizeof story->text - len, "%s%s%d", len ? " " : "", verb, which);
}

static int start(struct story *story, int which, struct err *err)
{
	if (story->fails_at == which)
		return err_set(err, ERR_SYSTEM, "part %d does not start", which);
	note(story, "+", which);
	return 0;
}

#define PART(n)                                         \
	static int start##n(void *arg, struct err *err) \
	{                                               \
		return start(arg, n, err);              \
	}                                               \
	static void close##n(void *arg)                 \
	{                                               \
		note(arg, "-", n);                      \
	}
PART(0)
PART(1)
PART(2)

static void attach0(void *arg, struct http_server *server)
{
	(void)server;
	note(arg, "a", 0);
}

static void attach1(void *arg, struct http_server *server)
{
	(void)server;
	note(arg, "a", 1);
}

static void stop_at_once(void *arg, void (*done)(void *done_arg), void *done_arg)
{
	note(arg, "s", 1);
	done(done_arg);
}

static void stop_later(void *arg, void (*done)(void *done_arg), void *done_arg)
{
	struct story *story = arg;

	note(story, "s", 2);
	story->waiting = done;
	story->waiting_arg = done_arg;
}

static void on_stopped(void *arg)
{
	((struct story *)arg)->stopped = true;
}

static const char *listens(void *arg)
{
	(void)arg;
	return "127.0.0.1";
}

static const struct part table[] = {
	{ .name = "zero", .start = start0, .close = close0, .attach = attach0 },
	{ .name = "one",
		.start = start1,
		.close = close1,
		.attach = attach1,
		.stop = stop_at_once },
	{ .name = "check", .listens = listens },
	{ .name = "two", .start = start2, .close = close2, .stop = stop_later },
};

static struct parts parts_of(struct story *story)
{
	return (struct parts){ .table = table, .count = ARRAY_LEN(table), .arg = story };
}

static void test_parts_start_in_order_and_close_in_reverse(void **state)
{
	struct story story = { .fails_at = -1 };
	struct parts parts = parts_of(&story);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(parts_start(&parts, &err), 0);
	parts_attach(&parts, NULL);
	parts_close(&parts);
	assert_string_equal(story.text, "+0 +1 +2 a0 a1 -2 -1 -0");
	parts_close(&parts); /* once only */
	assert_string_equal(story.text, "+0 +1 +2 a0 a1 -2 -1 -0");
}

static void test_parts_unwind_from_wherever_one_fails(void **state)
{
	static const char *const want[] = { "", "+0 -0", "+0 +1 -1 -0" };

	(void)state;
	for (int at = 0; at < (int)ARRAY_LEN(want); at++) {
		struct story story = { .fails_at = at };
		struct parts parts = parts_of(&story);
		struct err err = ERR_INIT;

		assert_int_equal(parts_start(&parts, &err), -1);
		assert_non_null(strstr(err.message, "does not start"));
		assert_string_equal(story.text, want[at]);
	}
}

static void test_parts_wait_for_the_last_door(void **state)
{
	struct story story = { .fails_at = -1 };
	struct parts parts = parts_of(&story);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(parts_start(&parts, &err), 0);
	parts_stop(&parts, on_stopped);
	assert_string_equal(story.text, "+0 +1 +2 s2 s1");
	assert_false(story.stopped);
	story.waiting(story.waiting_arg);
	assert_true(story.stopped);
	parts_close(&parts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts_start_in_order_and_close_in_reverse),
		cmocka_unit_test(test_parts_unwind_from_wherever_one_fails),
		cmocka_unit_test(test_parts_wait_for_the_last_door),
	};

	log_open(2, LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
