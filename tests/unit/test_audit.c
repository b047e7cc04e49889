/* test_audit.c - the audit log: its chain, its files, its readers, and that tampering is found
 *
 * Needs root for the full disk: a tiny tmpfs in a mount namespace of its own. */
#include "audit/audit.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct fixture {
	struct loop *loop;
	char folder[64];
	struct audit *audit;
};

static int set_up(void **state)
{
	struct fixture *f = xnew(struct fixture);

	f->loop = loop_new();
	strcpy(f->folder, "/tmp/test-audit-XXXXXX");
	*state = f;
	return mkdtemp(f->folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	audit_close(f->audit);
	tree_remove(AT_FDCWD, f->folder, NULL);
	loop_free(f->loop);
	free(f);
	return 0;
}

static void open_log(struct fixture *f, uint64_t file_bytes, unsigned files)
{
	struct audit_options options = { .file_bytes = file_bytes, .files = files };
	struct err err = ERR_INIT;

	if (audit_open(f->loop, f->folder, &options, &f->audit, &err) < 0)
		fail_msg("%s", err.message);
}

static void close_log(struct fixture *f)
{
	audit_close(f->audit);
	f->audit = NULL;
}

static json_t *event(const char *box, const char *verdict, int number)
{
	return json_pack("{s:s,s:s,s:s,s:s,s:i,s:s}", "box", box, "type", "connect", "verdict",
		verdict, "name", "example.com", "port", number, "protocol", "tcp");
}

static void add(struct fixture *f, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		audit_add(f->audit,
			event(i % 2 ? "ada" : "bob", i % 3 ? "allowed" : "refused", (int)i));
}

/* Ten lines in one file, or as many files as ten lines need when each has three. */
static void ten_lines(struct fixture *f, bool several)
{
	open_log(f, several ? 600 : 0, 16);
	for (int i = 0; i < 10; i++) {
		add(f, 1);
		audit_flush(f->audit, NULL);
	}
	close_log(f);
}

static char *path_in(const struct fixture *f, const char *name)
{
	return xasprintf("%s/%s", f->folder, name);
}

static char *read_in(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = path_in(f, name);
	char *text = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 64 << 20, &text, NULL, NULL), 0);
	return text;
}

static void write_in(const struct fixture *f, const char *name, const char *text, size_t len)
{
	_cleanup_free_ char *path = path_in(f, name);

	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, len, 0600, NULL), 0);
}

static void remove_in(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = path_in(f, name);

	assert_int_equal(unlink(path), 0);
}

static json_t *verify(const struct fixture *f)
{
	struct err err = ERR_INIT;
	json_t *result = audit_verify(f->folder, &err);

	if (!result)
		fail_msg("%s", err.message);
	return result;
}

static json_int_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void assert_good(const struct fixture *f, json_int_t first, json_int_t last)
{
	_cleanup_json_ json_t *result = verify(f);

	if (!json_is_true(json_object_get(result, "ok")))
		fail_msg("%s", json_string_value(json_object_get(result, "problem")));
	assert_int_equal(number_of(result, "first"), first);
	assert_int_equal(number_of(result, "last"), last);
	assert_int_equal(number_of(result, "lines"), last ? last - first + 1 : 0);
	assert_true(json_is_null(json_object_get(result, "problem")));
}

static void assert_bad(
	const struct fixture *f, const char *file, json_int_t line, const char *problem)
{
	_cleanup_json_ json_t *result = verify(f);
	const char *told = json_string_value(json_object_get(result, "problem"));

	assert_true(json_is_false(json_object_get(result, "ok")));
	if (!told || !strstr(told, problem))
		fail_msg("'%s' instead of '%s'", told, problem);
	assert_string_equal(json_string_value(json_object_get(result, "file")), file);
	assert_int_equal(number_of(result, "line"), line);
}

#define FIRST "audit-000001.jsonl"

/* The index-th line of text, and its length with the newline. */
static char *line_at(char *text, unsigned index, size_t *ret_len)
{
	while (index--)
		text = strchr(text, '\n') + 1;
	*ret_len = (size_t)(strchr(text, '\n') + 1 - text);
	return text;
}

/* ---- writing ------------------------------------------------------------------------------------- */

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
	lines = audit_read(f->audit, 0, NULL, NULL, 10, &next, NULL);
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
		_cleanup_json_ json_t *lines =
			audit_read(f->audit, since, NULL, NULL, 100, &next, NULL);

		assert_true(next > since);
		seen += json_array_size(lines);
	}
	assert_int_equal(seen, 20 * 301);
	for (uint64_t since = 1; since < audit_get_next(f->audit); since += 43) {
		_cleanup_json_ json_t *lines =
			audit_read(f->audit, since, NULL, NULL, 1, &next, NULL);

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
	lines = audit_read(f->audit, 1, NULL, NULL, 1, &next, NULL);
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
	lines = audit_read(f->audit, 11, NULL, NULL, 10, &next, NULL);
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

/* ---- tampering ----------------------------------------------------------------------------------- */

static void test_verify_finds_changed_byte(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	size_t len;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	for (unsigned i = 0; i < 10; i++) {
		char *line = line_at(text, i, &len), *name = strstr(line, "example.com");

		name[0] = 'X';
		write_in(f, FIRST, text, strlen(text));
		assert_bad(f, FIRST, i + 1, i == 9 ? "head knows" : "was changed");
		name[0] = 'e';
	}
	write_in(f, FIRST, text, strlen(text));
	assert_good(f, 1, 10);
}

/* Every single byte of a log, changed in one bit. */
static void test_verify_finds_every_changed_bit(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	size_t len;

	open_log(f, 0, 0);
	add(f, 3);
	close_log(f);
	text = read_in(f, FIRST);
	len = strlen(text);
	for (size_t i = 0; i < len; i++) {
		_cleanup_json_ json_t *result = NULL;

		text[i] ^= (char)(1 << (i % 7));
		write_in(f, FIRST, text, len);
		result = verify(f);
		if (!json_is_false(json_object_get(result, "ok")))
			fail_msg("byte %zu", i);
		text[i] ^= (char)(1 << (i % 7));
	}
}

static void test_verify_finds_removed_line(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	char *line;
	size_t len;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	line = line_at(text, 4, &len);
	memmove(line, line + len, strlen(line + len) + 1);
	write_in(f, FIRST, text, strlen(text));
	assert_bad(f, FIRST, 5, "number 5 should be here, not 6");
}

static void test_verify_finds_swapped_lines(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL, *copy = NULL;
	char *one, *two;
	size_t one_len, two_len;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	copy = xstrdup(text);
	one = line_at(copy, 2, &one_len);
	two = line_at(copy, 3, &two_len);
	memcpy(text + (one - copy), two, two_len);
	memcpy(text + (one - copy) + two_len, one, one_len);
	write_in(f, FIRST, text, strlen(text));
	assert_bad(f, FIRST, 3, "number 3 should be here, not 4");
}

static void test_verify_finds_inserted_line(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL, *more = NULL;
	char *line;
	size_t len;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	line = line_at(text, 6, &len);
	more = xasprintf("%.*s%.*s%s", (int)(line - text), text, (int)len, line, line);
	write_in(f, FIRST, more, strlen(more));
	assert_bad(f, FIRST, 8, "number 8 should be here, not 7");
}

static void test_verify_finds_truncated_file(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL, *second = NULL;
	size_t len;

	ten_lines(f, true);
	text = read_in(f, FIRST);
	write_in(f, FIRST, text, strlen(text) - 10); /* in the middle of the log, half a line */
	assert_bad(f, FIRST, 3, "has no end");
	line_at(text, 0, &len);
	write_in(f, FIRST, text, len); /* whole lines */
	assert_bad(f, "audit-000002.jsonl", 1, "lines were removed");
	write_in(f, FIRST, text, 0);
	assert_bad(f, "audit-000002.jsonl", 1, "lines were removed");
}

static void test_verify_finds_removed_newest_lines(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	char *line;
	size_t len;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	line = line_at(text, 9, &len);
	write_in(f, FIRST, text, (size_t)(line - text));
	assert_bad(f, FIRST, 10, "head is at number 10, the last line is number 9");
	write_in(f, FIRST, text, (size_t)(line - text) + 20); /* half of the last one */
	assert_bad(f, FIRST, 10, "newest lines are missing");
	remove_in(f, FIRST);
	assert_bad(f, "head", 0, "newest lines are missing");
}

static void test_verify_finds_removed_files(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *first = NULL, *second = NULL;

	ten_lines(f, true);
	first = read_in(f, FIRST);
	second = read_in(f, "audit-000002.jsonl");
	remove_in(f, "audit-000002.jsonl");
	assert_bad(f, "audit-000002.jsonl", 0, "file is missing");
	write_in(f, "audit-000002.jsonl", second, strlen(second));
	remove_in(f, FIRST);
	assert_bad(f, "audit-000002.jsonl", 1, "number 1 should be here");
	write_in(f, FIRST, first, strlen(first));
	assert_good(f, 1, 10);
	remove_in(f, "audit-000004.jsonl");
	assert_bad(f, "audit-000003.jsonl", 4, "newest lines are missing");
}

static void test_verify_finds_wrong_marks(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *head = NULL;

	ten_lines(f, false);
	head = read_in(f, "head");
	write_in(f, "head", "nonsense", 8);
	assert_bad(f, "head", 1, "does not hold");
	remove_in(f, "head");
	assert_bad(f, "head", 0, "missing");
	write_in(f, "head", head, strlen(head));
	remove_in(f, "tail");
	assert_bad(f, "tail", 0, "missing");
}

static void test_verify_of_no_log_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;

	assert_null(audit_verify(f->folder, &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	err_clear(&err);
	assert_null(audit_verify("/nonexistent", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
}

/* The log goes on, and its first line from since on tells what was found; verify points at notes such lines. */
static void assert_told(struct fixture *f, const char *reason, uint64_t since, unsigned notes)
{
	_cleanup_json_ json_t *lines = NULL, *result = NULL;
	const char *told;
	uint64_t next;

	open_log(f, 0, 0);
	lines = audit_read(f->audit, since, NULL, NULL, 10, &next, NULL);
	told = json_string_value(json_object_get(json_array_get(lines, 0), "reason"));
	if (!told || !strstr(told, reason))
		fail_msg("'%s' instead of '%s'", told, reason);
	add(f, 1);
	close_log(f);
	result = verify(f);
	assert_int_equal(json_array_size(json_object_get(result, "notes")), notes);
}

static void test_start_tells_of_removed_newest_lines(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	char *line;
	size_t len;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	line = line_at(text, 7, &len);
	write_in(f, FIRST, text, (size_t)(line - text));
	assert_told(f, "newest lines are missing", 8, 1);
	assert_good(f, 1, 9);
}

static void test_start_tells_of_removed_folder(void **state)
{
	struct fixture *f = *state;

	ten_lines(f, false);
	remove_in(f, FIRST);
	assert_told(f, "all lines are missing", 0, 1);
	assert_good(f, 11, 12);
}

static void test_start_tells_of_removed_oldest_file(void **state)
{
	struct fixture *f = *state;

	ten_lines(f, true);
	remove_in(f, FIRST);
	assert_told(f, "oldest lines are missing", 11, 1);
}

static void test_start_tells_of_an_unreadable_end(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *text = NULL;
	size_t len;

	ten_lines(f, false);
	text = read_in(f, FIRST);
	memset(line_at(text, 9, &len), '#', 10);
	write_in(f, FIRST, text, strlen(text));
	assert_told(f, "cannot be read", 11, 0);
	assert_bad(f, FIRST, 10, "not a line of the log");
}

/* A daemon whose newest file was taken away does not write into nothing. */
static void test_removed_newest_file_is_replaced(void **state)
{
	struct fixture *f = *state;
	_cleanup_json_ json_t *lines = NULL;
	uint64_t next;

	open_log(f, 0, 0);
	add(f, 5);
	audit_flush(f->audit, NULL);
	remove_in(f, FIRST);
	add(f, 5);
	audit_flush(f->audit, NULL);
	lines = audit_read(f->audit, 0, NULL, NULL, 100, &next, NULL);
	assert_int_equal(json_array_size(lines), 5);
	assert_int_equal(next, 11);
	close_log(f);
	assert_bad(f, "audit-000002.jsonl", 1, "number 1 should be here, not 6");
}

/* With the folder, and the marks in it. */
static void test_removed_folder_is_made_again(void **state)
{
	struct fixture *f = *state;

	open_log(f, 0, 0);
	add(f, 5);
	audit_flush(f->audit, NULL);
	assert_int_equal(tree_remove(AT_FDCWD, f->folder, NULL), 0);
	add(f, 5);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	assert_null(audit_trouble(f->audit));
	close_log(f);
	assert_bad(f, "audit-000002.jsonl", 1, "number 1 should be here, not 6");
	open_log(f, 0, 0);
	assert_int_equal(audit_get_next(f->audit), 12); /* and a line about what is missing */
}

/* And where it cannot be made, that is told, and lines wait. */
static void test_folder_that_cannot_be_made_is_trouble(void **state)
{
	struct fixture *f = *state;
	int fd;

	open_log(f, 0, 0);
	add(f, 5);
	audit_flush(f->audit, NULL);
	assert_int_equal(tree_remove(AT_FDCWD, f->folder, NULL), 0);
	fd = open(f->folder, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	add(f, 5);
	assert_int_equal(audit_flush(f->audit, NULL), -1);
	assert_non_null(audit_trouble(f->audit));
	assert_int_equal(unlink(f->folder), 0);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	assert_null(audit_trouble(f->audit));
	assert_int_equal(audit_get_next(f->audit), 11);
}

/* ---- readers ------------------------------------------------------------------------------------- */

static void test_read_pages_and_filters(void **state)
{
	struct fixture *f = *state;
	uint64_t next = 0;
	unsigned seen = 0;

	open_log(f, 20000, 16);
	add(f, 1000);
	for (uint64_t since = 0; since <= 1000; since = next) {
		_cleanup_json_ json_t *lines =
			audit_read(f->audit, since, NULL, NULL, 7, &next, NULL);

		for (size_t i = 0; i < json_array_size(lines); i++)
			assert_int_equal(number_of(json_array_get(lines, i), "seq"), ++seen);
	}
	assert_int_equal(seen, 1000);
	for (uint64_t since = 1; since <= 1000; since += 37) {
		_cleanup_json_ json_t *lines =
			audit_read(f->audit, since, NULL, NULL, 1, &next, NULL);

		assert_int_equal(number_of(json_array_get(lines, 0), "seq"), since);
	}
	{
		_cleanup_json_ json_t *lines =
			audit_read(f->audit, 0, "ada", "refused", 5000, &next, NULL);

		assert_int_equal(json_array_size(lines), 167);
		assert_int_equal(next, 1001);
	}
	{
		_cleanup_json_ json_t *lines =
			audit_read(f->audit, 0, "nobody", NULL, 10, &next, NULL);

		assert_int_equal(json_array_size(lines), 0);
	}
	assert_int_equal(audit_recent(f->audit, NULL, NULL, 10), 991);
	assert_int_equal(audit_recent(f->audit, NULL, NULL, 0), 1001);
	assert_int_equal(audit_recent(f->audit, NULL, NULL, 5000), 1);
	assert_int_equal(audit_recent(f->audit, "ada", NULL, 10), 982);
	assert_int_equal(audit_recent(f->audit, "nobody", NULL, 10), 1);
	audit_add(f->audit, json_pack("{s:s,s:s}", "box", "id1", "box_name", "eve"));
	assert_int_equal(audit_recent(f->audit, "eve", NULL, 1), 1001);
	assert_int_equal(audit_recent(f->audit, "id1", NULL, 1), 1001);
}

/* 40 MB of lines and a filter that fits none of them: each call does a part, and the parts come to an end. */
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
		_cleanup_json_ json_t *lines =
			audit_read(f->audit, since, "nobody", NULL, 10, &next, NULL);

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

/* ---- trouble and load ---------------------------------------------------------------------------- */

static void test_full_disk_loses_only_what_has_no_room(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ char *ballast = path_in(f, "ballast");
	_cleanup_json_ json_t *now = NULL, *lines = NULL, *result = NULL;
	struct err err = ERR_INIT;
	uint64_t next, lost;
	json_int_t made;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", f->folder, "tmpfs", 0, "size=512k") < 0) {
		print_message("    needs root: skipped\n");
		skip();
	}
	open_log(f, 100000, 2);
	add(f, 200);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	{
		_cleanup_free_ char *zeros = xcalloc(1, 65536);
		int fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		while (write(fd, zeros, 65536) > 0)
			;
		close(fd);
	}
	assert_null(audit_trouble(f->audit));
	add(f, 10000);
	assert_int_equal(audit_flush(f->audit, &err), -1);
	assert_int_equal(err.kind, ERR_LIMIT);
	assert_non_null(strstr(audit_trouble(f->audit), "No space left"));
	now = audit_json(f->audit);
	lost = (uint64_t)number_of(now, "lost");
	made = number_of(now, "next") - 1;
	assert_int_equal((uint64_t)made + lost, 10200);
	assert_true(lost > 0);
	result = verify(f); /* what is there is whole */
	assert_true(json_is_true(json_object_get(result, "ok")));

	assert_int_equal(unlink(ballast), 0);
	mount("none", f->folder, "tmpfs", MS_REMOUNT, "size=8m");
	assert_int_equal(audit_flush(f->audit, &err), 0);
	assert_null(audit_trouble(f->audit));
	lines = audit_read(f->audit, (uint64_t)made + 1, NULL, NULL, 10, &next, NULL);
	assert_int_equal(json_array_size(lines), 1);
	assert_int_equal(number_of(json_array_get(lines, 0), "lost"), lost);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(lines, 0), "type")), "audit");
	add(f, 1);
	close_log(f);
	assert_good(f, 1, made + 2);
	umount2(f->folder, MNT_DETACH);
}

/* The descriptor by which the log holds one of its files. */
static int fd_of(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *want = path_in(f, name);
	char path[64], target[256];

	for (int fd = 3; fd < 64; fd++) {
		ssize_t len;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		len = readlink(path, target, sizeof target - 1);
		target[MAX(len, 0)] = '\0';
		if (!strcmp(target, want))
			return fd;
	}
	return -1;
}

/* Lines are there, the mark is not: nothing waits, and it is tried again all the same. */
static void test_mark_that_was_not_written_is_tried_again(void **state)
{
	struct fixture *f = *state;
	int full = open("/dev/full", O_RDWR | O_CLOEXEC), head, kept;

	open_log(f, 0, 0);
	head = fd_of(f, "head");
	assert_true(head >= 0 && full >= 0);
	kept = fcntl(head, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(dup3(full, head, O_CLOEXEC), head);
	add(f, 5);
	assert_int_equal(audit_flush(f->audit, NULL), -1);
	assert_non_null(audit_trouble(f->audit));
	assert_int_equal(dup3(kept, head, O_CLOEXEC), head);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	assert_null(audit_trouble(f->audit));
	close(full);
	close(kept);
	close_log(f);
	assert_good(f, 1, 5);
}

/* A writer that is killed at any moment, verified all the while and afterwards, with files begun and removed. */
static void test_verify_while_writing(void **state)
{
	struct fixture *f = *state;
	int64_t start = clock_mono_us();
	unsigned rounds = 0;
	pid_t writer = fork();

	assert_true(writer >= 0);
	if (!writer) {
		open_log(f, 300000, 3);
		for (;;) {
			add(f, 50);
			audit_flush(f->audit, NULL);
		}
	}
	while (clock_mono_us() - start < 1500000) {
		struct err err = ERR_INIT;
		_cleanup_json_ json_t *result = audit_verify(f->folder, &err);

		if (!result && err.kind == ERR_NOT_FOUND)
			continue; /* not begun yet */
		if (!result)
			fail_msg("%s", err.message);
		if (!json_is_true(json_object_get(result, "ok")))
			fail_msg("round %u: %s:%lld %s", rounds,
				json_string_value(json_object_get(result, "file")),
				number_of(result, "line"),
				json_string_value(json_object_get(result, "problem")));
		rounds++;
	}
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	print_message("    %u times\n", rounds);
	assert_true(rounds > 10);
	{
		_cleanup_json_ json_t *result = verify(f);

		assert_true(json_is_true(json_object_get(result, "ok")));
		assert_true(number_of(result, "first") > 1);
	}
	open_log(f, 300000, 3);
	close_log(f);
	{
		_cleanup_json_ json_t *result = verify(f);

		assert_true(json_is_true(json_object_get(result, "ok")));
	}
}

static void test_figures(void **state)
{
	struct fixture *f = *state;
	enum { LINES = 200000 };
	_cleanup_json_ json_t *result = NULL;
	json_t **events = xnewn(json_t *, LINES);
	int64_t start, took;

	for (int i = 0; i < LINES; i++)
		events[i] = json_pack(
			"{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:{s:i,s:i,s:s}}", "at",
			"2026-01-02T03:04:05.678Z", "box", "k3v9abcdef", "box_name", "ada", "type",
			"connect", "verdict", "allowed", "name", "registry.example.com", "address",
			"192.0.2.7", "port", i % 65536, "protocol", "tcp", "rule",
			"registry.example.com", "from", "198.18.0.2:40000", "process", "pid", 12,
			"uid", 0, "command", "npm install");
	open_log(f, 0, 0);
	start = clock_mono_us();
	for (int i = 0; i < LINES; i++)
		audit_add(f->audit, events[i]);
	assert_int_equal(audit_flush(f->audit, NULL), 0);
	took = clock_mono_us() - start;
	free(events);
	close_log(f);
	print_message("    written: %.0f lines/s\n", LINES * 1e6 / (double)took);
	start = clock_mono_us();
	result = verify(f);
	took = clock_mono_us() - start;
	assert_true(json_is_true(json_object_get(result, "ok")));
	print_message("    verified: %.0f lines/s, %.0f MB/s\n", LINES * 1e6 / (double)took,
		(double)number_of(result, "bytes") / (double)took);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

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
		TEST(test_verify_finds_changed_byte),
		TEST(test_verify_finds_every_changed_bit),
		TEST(test_verify_finds_removed_line),
		TEST(test_verify_finds_swapped_lines),
		TEST(test_verify_finds_inserted_line),
		TEST(test_verify_finds_truncated_file),
		TEST(test_verify_finds_removed_newest_lines),
		TEST(test_verify_finds_removed_files),
		TEST(test_verify_finds_wrong_marks),
		TEST(test_verify_of_no_log_is_an_error),
		TEST(test_start_tells_of_removed_newest_lines),
		TEST(test_start_tells_of_removed_folder),
		TEST(test_start_tells_of_removed_oldest_file),
		TEST(test_start_tells_of_an_unreadable_end),
		TEST(test_removed_newest_file_is_replaced),
		TEST(test_removed_folder_is_made_again),
		TEST(test_folder_that_cannot_be_made_is_trouble),
		TEST(test_mark_that_was_not_written_is_tried_again),
		TEST(test_read_pages_and_filters),
		TEST(test_read_is_bounded),
		TEST(test_followers_get_each_line_once),
		TEST(test_full_disk_loses_only_what_has_no_room),
		TEST(test_verify_while_writing),
		TEST(test_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
