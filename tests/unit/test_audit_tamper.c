/* test_audit_tamper.c - the audit log: whatever is done to its files is found, by verify and by the
 * next start */
#include "audit_fixture.h"

/* ---- tampering ------------------------------------------------------------------------------ */

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

/* The log goes on, and its first line from since on tells what was found; verify points at notes
 * such lines. */
static void assert_told(struct fixture *f, const char *reason, uint64_t since, unsigned notes)
{
	_cleanup_json_ json_t *lines = NULL, *result = NULL;
	const char *told;
	uint64_t next;

	open_log(f, 0, 0);
	lines = audit_read(f->audit, since, NULL, 10, &next, NULL);
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
	lines = audit_read(f->audit, 0, NULL, 100, &next, NULL);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
