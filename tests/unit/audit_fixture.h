/* audit_fixture.h - a log in a folder of its own, its files to look at and to change, and what
 * verify says of it */
#pragma once
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

static inline int set_up(void **state)
{
	struct fixture *f = xnew(struct fixture);

	f->loop = loop_new();
	strcpy(f->folder, "/tmp/test-audit-XXXXXX");
	*state = f;
	return mkdtemp(f->folder) ? 0 : -1;
}

static inline int tear_down(void **state)
{
	struct fixture *f = *state;

	audit_close(f->audit);
	tree_remove(AT_FDCWD, f->folder, NULL);
	loop_free(f->loop);
	free(f);
	return 0;
}

static inline void open_log(struct fixture *f, uint64_t file_bytes, unsigned files)
{
	struct audit_options options = { .file_bytes = file_bytes, .files = files };
	struct err err = ERR_INIT;

	if (audit_open(f->loop, f->folder, &options, &f->audit, &err) < 0)
		fail_msg("%s", err.message);
}

static inline void close_log(struct fixture *f)
{
	audit_close(f->audit);
	f->audit = NULL;
}

static inline json_t *event(const char *box, const char *verdict, int number)
{
	return json_pack("{s:s,s:s,s:s,s:s,s:i,s:s}", "box", box, "type", "connect", "verdict",
		verdict, "name", "example.com", "port", number, "protocol", "tcp");
}

static inline void add(struct fixture *f, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		audit_add(f->audit,
			event(i % 2 ? "ada" : "bob", i % 3 ? "allowed" : "refused", (int)i));
}

/* Ten lines in one file, or as many files as ten lines need when each has three. */
static inline void ten_lines(struct fixture *f, bool several)
{
	open_log(f, several ? 600 : 0, 16);
	for (int i = 0; i < 10; i++) {
		add(f, 1);
		audit_flush(f->audit, NULL);
	}
	close_log(f);
}

static inline char *path_in(const struct fixture *f, const char *name)
{
	return xasprintf("%s/%s", f->folder, name);
}

/* Not inlined: gcc then takes the text for a pointer to the variable. */
static __attribute__((noinline, unused)) char *read_in(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = path_in(f, name);
	char *text = NULL;

	assert_int_equal(file_read(AT_FDCWD, path, 64 << 20, &text, NULL, NULL), 0);
	return text;
}

static inline void write_in(const struct fixture *f, const char *name, const char *text, size_t len)
{
	_cleanup_free_ char *path = path_in(f, name);

	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, len, 0600, NULL), 0);
}

static inline void remove_in(const struct fixture *f, const char *name)
{
	_cleanup_free_ char *path = path_in(f, name);

	assert_int_equal(unlink(path), 0);
}

static inline json_t *verify(const struct fixture *f)
{
	struct err err = ERR_INIT;
	json_t *result = audit_verify(f->folder, &err);

	if (!result)
		fail_msg("%s", err.message);
	return result;
}

static inline json_int_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static inline void assert_good(const struct fixture *f, json_int_t first, json_int_t last)
{
	_cleanup_json_ json_t *result = verify(f);

	if (!json_is_true(json_object_get(result, "ok")))
		fail_msg("%s", json_string_value(json_object_get(result, "problem")));
	assert_int_equal(number_of(result, "first"), first);
	assert_int_equal(number_of(result, "last"), last);
	assert_int_equal(number_of(result, "lines"), last ? last - first + 1 : 0);
	assert_true(json_is_null(json_object_get(result, "problem")));
}

static inline void assert_bad(
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
static inline char *line_at(char *text, unsigned index, size_t *ret_len)
{
	while (index--)
		text = strchr(text, '\n') + 1;
	*ret_len = (size_t)(strchr(text, '\n') + 1 - text);
	return text;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
