/* test_audit.c - the audit log: how its lines and files are written, and how they are read */
#include "audit_fixture.h"

/* ---- writing -------------------------------------------------------------------------------- */

static void test_lines_are_chained(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *line = NULL;

	ten_lines(f, false);
	assert_good(f, 1, 10);
	text = read_in(f, FIRST);
	line = json_parse(text, strcspn(text, "\n"), NULL);
	assert_int_equal(number_of(line, "seq"), 1);
	assert_string_equal(json_string_value(json_object_get(line, "prev")),
		"0000000000000000000000000000000000000000000000000000000000000000");
	assert_non_null(json_object_get(line, "at"));
	assert_string_equal(json_string_value(json_object_get(line, "name")), "example.com");
}

static void test_log_goes_on_after_restart(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *result = NULL;

	ten_lines(f, false);
	ten_lines(f, true);
	open_log(f, 0, 0);
	add(f, 5);
	close_log(f);
	assert_good(f, 1, 25);
	result = verify(f);
	assert_int_equal(json_array_size(json_object_get(result, "notes")), 0);
}

static void test_events_cannot_set_their_place(void **state)
{
	struct fixture *f = *state;

	open_log(f, 0, 0);
	audit_add(f->audit, json_pack("{s:i,s:s,s:s}", "seq", 99, "prev", "x", "type", "dns"));
	audit_add(f->audit, json_object());
	audit_add(f->audit, json_pack("{s:s}", "name", "a\nb\"}\x7f"));
	close_log(f);
	assert_good(f, 1, 3);
}

static void test_long_events_are_cut(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *name = xcalloc(1, AUDIT_LINE_MAX + 1);
	_cleanup_json_ json_t *lines = NULL;
	json_t *line;
	uint64_t next;

	memset(name, 'x', AUDIT_LINE_MAX);
	open_log(f, 0, 0);
	audit_add(f->audit, json_pack("{s:s,s:s,s:s}", "type", "dns", "box", "ada", "name", name));
	lines = audit_read(f->audit, 0, NULL, 10, &next, NULL);
	line = json_array_get(lines, 0);
	assert_true(json_is_true(json_object_get(line, "cut")));
	assert_string_equal(json_string_value(json_object_get(line, "box")), "ada");
	assert_null(json_object_get(line, "name"));
	close_log(f);
	assert_good(f, 1, 1);
}

/* A policy of half a megabyte fits, wherever it lies among the others. */
static void test_long_lines_are_found(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = xcalloc(1, 512 * 1024 + 1);
	_cleanup_json_ json_t *long_one = NULL;
	uint64_t next = 0, seen = 0;

	memset(text, 'y', 512 * 1024);
	long_one = json_pack("{s:s,s:s}", "type", "policy", "text", text);
	open_log(f, 4 << 20, 16);
	for (int i = 0; i < 20; i++) {
		add(f, 300);
		audit_add(f->audit, json_incref(long_one));
	}
	audit_flush(f->audit, NULL);
	for (uint64_t since = 0; since < audit_get_next(f->audit); since = next) {
		_cleanup_json_ json_t *lines = audit_read(f->audit, since, NULL, 100, &next, NULL);

		assert_true(next > since);
		seen += json_array_size(lines);
	}
	assert_int_equal(seen, 20 * 301);
	for (uint64_t since = 1; since < audit_get_next(f->audit); since += 43) {
		_cleanup_json_ json_t *lines = audit_read(f->audit, since, NULL, 1, &next, NULL);

		assert_int_equal(number_of(json_array_get(lines, 0), "seq"), since);
	}
	close_log(f);
	assert_good(f, 1, 20 * 301);
}

static void on_time(void *arg)
{
	loop_stop(arg);
}

static void test_lines_are_written_within_their_time(void **state)
{
	struct fixture *f = *state;
	struct loop_timer *timer = loop_timer_new(f->loop, on_time, f->loop);

	open_log(f, 0, 0);
	add(f, 1);
	assert_good(f, 0, 0);
	loop_timer_start(timer, 120);
	loop_run(f->loop);
	loop_timer_free(timer);
	assert_good(f, 1, 1);
}

static void test_old_files_go(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *now = NULL, *lines = NULL, *result = NULL;
	json_int_t oldest;
	uint64_t next;

	open_log(f, 4096, 3);
	for (int i = 0; i < 200; i++) {
		add(f, 1);
		audit_flush(f->audit, NULL);
	}
	now = audit_json(f->audit);
	oldest = number_of(now, "oldest");
	assert_int_equal(number_of(now, "files"), 3);
	assert_int_equal(number_of(now, "next"), 201);
	assert_true(oldest > 100);
	assert_true(number_of(now, "bytes") < 4 * 4096);
	lines = audit_read(f->audit, 1, NULL, 1, &next, NULL);
	assert_int_equal(number_of(json_array_get(lines, 0), "seq"), oldest);
	assert_good(f, oldest, 200);
	close_log(f);
	open_log(f, 4096, 2); /* fewer are kept from now on */
	close_log(f);
	result = verify(f);
	assert_true(json_is_true(json_object_get(result, "ok")));
	assert_true(number_of(result, "first") > oldest);
}

/* Killed between moving tail and removing the file. */
static void test_removal_cut_short_is_finished(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL, *second = NULL, *mark = NULL;
	_cleanup_free_ char *path = path_in(f, FIRST);

	ten_lines(f, true);
	text = read_in(f, "audit-000002.jsonl");
	second = xstrndup(strstr(text, "\"prev\":\"") + 8, 64);
	mark = xasprintf("%020d %s\n", atoi(text + 7) - 1, second);
	write_in(f, "tail", mark, strlen(mark));
	assert_good(f, atoi(text + 7), 10);
	open_log(f, 600, 16);
	close_log(f);
	assert_int_equal(access(path, F_OK), -1);
	assert_good(f, atoi(text + 7), 10);
}

static void test_torn_line_is_cut_off(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *lines = NULL, *result = NULL;
	uint64_t next;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	{
		_cleanup_free_ char *torn = xasprintf("%s{\"seq\":11,\"prev\":\"abc", text);

		write_in(f, FIRST, torn, strlen(torn));
	}
	assert_good(f, 1, 10); /* as while the daemon writes */
	open_log(f, 0, 0);
	lines = audit_read(f->audit, 11, NULL, 10, &next, NULL);
	assert_int_equal(json_array_size(lines), 1);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(lines, 0), "type")), "audit");
	assert_int_equal(number_of(json_array_get(lines, 0), "bytes"), 21);
	close_log(f);
	assert_good(f, 1, 11);
	result = verify(f);
	assert_int_equal(
		json_integer_value(json_array_get(json_object_get(result, "notes"), 0)), 11);
}

/* Killed after the lines and before the mark. */
static void test_head_behind_lines_is_no_fault(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *head = NULL;

	ten_lines(f, false);
	head = read_in(f, "head");
	ten_lines(f, false);
	write_in(f, "head", head, strlen(head));
	assert_good(f, 1, 20);
	open_log(f, 0, 0);
	close_log(f);
	assert_good(f, 1, 20);
}

/* ---- readers -------------------------------------------------------------------------------- */

static void test_read_pages_and_filters(void **state)
{
	struct fixture *f = *state;
	uint64_t next = 0;
	unsigned seen = 0;

	open_log(f, 20000, 16);
	add(f, 1000);
	for (uint64_t since = 0; since <= 1000; since = next) {
		_cleanup_json_ json_t *lines = audit_read(f->audit, since, NULL, 7, &next, NULL);

		for (size_t i = 0; i < json_array_size(lines); i++)
			assert_int_equal(number_of(json_array_get(lines, i), "seq"), ++seen);
	}
	assert_int_equal(seen, 1000);
	for (uint64_t since = 1; since <= 1000; since += 37) {
		_cleanup_json_ json_t *lines = audit_read(f->audit, since, NULL, 1, &next, NULL);

		assert_int_equal(number_of(json_array_get(lines, 0), "seq"), since);
	}
	{
		_cleanup_json_ json_t *lines = audit_read(f->audit, 0,
			&(struct audit_filter){ .box = "ada", .verdict = "refused" }, 5000, &next,
			NULL);

		assert_int_equal(json_array_size(lines), 167);
		assert_int_equal(next, 1001);
	}
	{
		_cleanup_json_ json_t *lines = audit_read(
			f->audit, 0, &(struct audit_filter){ .box = "nobody" }, 10, &next, NULL);

		assert_int_equal(json_array_size(lines), 0);
	}
	assert_int_equal(audit_recent(f->audit, NULL, 10), 991);
	assert_int_equal(audit_recent(f->audit, NULL, 0), 1001);
	assert_int_equal(audit_recent(f->audit, NULL, 5000), 1);
	assert_int_equal(audit_recent(f->audit, &(struct audit_filter){ .box = "ada" }, 10), 982);
	assert_int_equal(audit_recent(f->audit, &(struct audit_filter){ .box = "nobody" }, 10), 1);
	audit_add(f->audit, json_pack("{s:s,s:s}", "box", "id1", "box_name", "eve"));
	assert_int_equal(audit_recent(f->audit, &(struct audit_filter){ .box = "eve" }, 1), 1001);
	assert_int_equal(audit_recent(f->audit, &(struct audit_filter){ .box = "id1" }, 1), 1001);
}

/* 40 MB of lines and a filter that fits none of them: each call does a part, and the parts come to
 * an end. */
static void test_read_is_bounded(void **state)
{
	struct fixture *f = *state;
	uint64_t next = 0;
	unsigned calls = 0;
	int64_t longest = 0;

	open_log(f, 0, 0);
	add(f, 200000);
	for (uint64_t since = 0; since <= 200000; since = next, calls++) {
		int64_t start = clock_mono_us();
		_cleanup_json_ json_t *lines = audit_read(f->audit, since,
			&(struct audit_filter){ .box = "nobody" }, 10, &next, NULL);

		longest = MAX(longest, clock_mono_us() - start);
		assert_int_equal(json_array_size(lines), 0);
		assert_true(next > since);
	}
	print_message("    %u calls, longest %.1f ms\n", calls, (double)longest / 1000);
	assert_in_range(calls, 5, 20);
}

struct heard {
	uint64_t next;
	unsigned count, stop_at;
	struct audit_feed *feed;
};

static void on_line(void *arg, json_t *line)
{
	struct heard *heard = arg;

	assert_int_equal(number_of(line, "seq"), heard->next);
	assert_non_null(json_object_get(line, "prev"));
	assert_non_null(json_object_get(line, "at"));
	heard->next++;
	if (++heard->count == heard->stop_at) {
		audit_feed_free(heard->feed);
		heard->feed = NULL;
	}
}

static void test_followers_get_each_line_once(void **state)
{
	struct fixture *f = *state;
	struct heard one = { .next = 6 }, two = { .next = 6, .stop_at = 3 };

	open_log(f, 0, 0);
	add(f, 5);
	one.feed = audit_feed_new(f->audit, on_line, &one);
	two.feed = audit_feed_new(f->audit, on_line, &two);
	add(f, 1000);
	audit_flush(f->audit, NULL);
	assert_int_equal(one.count, 1000);
	assert_int_equal(two.count, 3);
	audit_feed_free(one.feed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_lines_are_chained),
		TEST(test_log_goes_on_after_restart),
		TEST(test_events_cannot_set_their_place),
		TEST(test_long_events_are_cut),
		TEST(test_long_lines_are_found),
		TEST(test_lines_are_written_within_their_time),
		TEST(test_old_files_go),
		TEST(test_removal_cut_short_is_finished),
		TEST(test_torn_line_is_cut_off),
		TEST(test_head_behind_lines_is_no_fault),
		TEST(test_read_pages_and_filters),
		TEST(test_read_is_bounded),
		TEST(test_followers_get_each_line_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
