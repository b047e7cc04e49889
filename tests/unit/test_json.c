/* test_json.c - JSON from outside is read strictly */
#include "base/json.h"
#include "base/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static json_t *parse(const char *text)
{
	return json_parse(text, strlen(text), NULL);
}

static void test_json_refuses_what_is_not_json(void **state)
{
	static const char *const bad[] = { "", " ", "{", "}", "{]", "{\"a\":}", "{\"a\":1,}",
		"[1,]", "{'a':1}", "{a:1}", "{\"a\":1}x", "{\"a\":1}{}", "nul", "{\"a\":01}",
		"{\"a\":+1}", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":1,\"a\":2}",
		"{\"a\":\"\\x41\"}", "{\"a\":\"\n\"}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\\u0000\"}",
		"{\"\\u0000\":1}", "{\"a\":\"\xff\"}", "{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":99999999999999999999}", "{\"a\":1e999}", "\xef\xbb\xbf{}", "/* */ {}", "1",
		"\"x\"", "null" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err err = ERR_INIT;

		assert_null(json_parse(bad[i], strlen(bad[i]), &err));
		assert_int_equal(err.kind, ERR_INVALID);
		assert_true(err.message[0]);
	}
	assert_null(json_parse("{}\0", 3, NULL));
}

static void test_json_bounds_nesting(void **state)
{
	_cleanup_free_ char *deep = xcalloc(1, 200001);

	(void)state;
	memset(deep, '[', 100000);
	memset(deep + 100000, ']', 100000);
	assert_null(parse(deep));
}

static void test_json_read_fills_what_is_there(void **state)
{
	_cleanup_json_ json_t *value =
		parse("{\"name\":\"ada\",\"n\":7,\"on\":true,\"argv\":[\"a\",\"b\"],"
		      "\"env\":{\"K\":\"V\"},\"more\":{\"x\":1},\"absent\":null}");
	const char *name = NULL, *absent = "default", *other = "default";
	json_int_t n = 0;
	bool on = false;
	json_t *argv = NULL, *env = NULL, *more = NULL;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &name, true },
		{ "n", JSON_WANT_INT, &n, false },
		{ "on", JSON_WANT_BOOL, &on, false },
		{ "argv", JSON_WANT_STRINGS, &argv, false },
		{ "env", JSON_WANT_MAP, &env, false },
		{ "more", JSON_WANT_OBJECT, &more, false },
		{ "absent", JSON_WANT_STRING, &absent, false },
		{ "other", JSON_WANT_STRING, &other, false },
	};

	(void)state;
	assert_non_null(value);
	assert_int_equal(json_read(value, keys, ARRAY_LEN(keys), NULL), 0);
	assert_string_equal(name, "ada");
	assert_int_equal(n, 7);
	assert_true(on);
	assert_int_equal(json_array_size(argv), 2);
	assert_string_equal(json_string_value(json_object_get(env, "K")), "V");
	assert_int_equal(json_object_size(more), 1);
	assert_string_equal(absent, "default");
	assert_string_equal(other, "default");
}

static void test_json_read_names_the_key_that_is_wrong(void **state)
{
	static const struct {
		const char *text;
		const char *message;
	} rows[] = {
		{ "{\"name\":1}", "'name' must be a string" },
		{ "{\"name\":\"a\",\"n\":-1}", "'n' must be a whole number, zero or more" },
		{ "{\"name\":\"a\",\"n\":1.5}", "'n' must be a whole number, zero or more" },
		{ "{\"name\":\"a\",\"n\":\"1\"}", "'n' must be a whole number, zero or more" },
		{ "{\"name\":\"a\",\"on\":0}", "'on' must be true or false" },
		{ "{\"name\":\"a\",\"argv\":\"x\"}", "'argv' must be a list of strings" },
		{ "{\"name\":\"a\",\"argv\":[\"x\",1]}", "'argv' must be a list of strings" },
		{ "{\"name\":\"a\",\"env\":{\"K\":1}}", "'env' must be an object of strings" },
		{ "{\"name\":\"a\",\"env\":[]}", "'env' must be an object of strings" },
		{ "{\"name\":\"a\",\"more\":[]}", "'more' must be an object" },
		{ "{\"name\":\"a\",\"nmae\":1}", "unknown key 'nmae'" },
		{ "{}", "'name' is missing" },
		{ "{\"name\":null}", "'name' is missing" },
		{ "[]", "expected a JSON object" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		_cleanup_json_ json_t *value = parse(rows[i].text);
		struct err err = ERR_INIT;
		const char *name;
		json_int_t n;
		bool on;
		json_t *some;
		const struct json_key keys[] = {
			{ "name", JSON_WANT_STRING, &name, true },
			{ "n", JSON_WANT_INT, &n, false },
			{ "on", JSON_WANT_BOOL, &on, false },
			{ "argv", JSON_WANT_STRINGS, &some, false },
			{ "env", JSON_WANT_MAP, &some, false },
			{ "more", JSON_WANT_OBJECT, &some, false },
		};

		assert_non_null(value);
		assert_int_equal(json_read(value, keys, ARRAY_LEN(keys), &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_string_equal(err.message, rows[i].message);
	}
}

static void test_json_text_is_one_line(void **state)
{
	_cleanup_json_ json_t *value = parse("{ \"a\" : [ 1, 2 ],\n \"b\" : \"x\\ny\" }");
	_cleanup_free_ char *text = json_text(value);

	(void)state;
	assert_string_equal(text, "{\"a\":[1,2],\"b\":\"x\\ny\"}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json_refuses_what_is_not_json),
		cmocka_unit_test(test_json_bounds_nesting),
		cmocka_unit_test(test_json_read_fills_what_is_there),
		cmocka_unit_test(test_json_read_names_the_key_that_is_wrong),
		cmocka_unit_test(test_json_text_is_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
