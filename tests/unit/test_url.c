/* test_url.c - targets taken apart */
#include "http/url.h"
#include "base/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static int split(const char *text, char *store, size_t size, struct url *url, struct err *err)
{
	assert_true(strlen(text) < size);
	strcpy(store, text);
	return url_split(store, url, err);
}

static void test_url_decodes_path_and_query(void **state)
{
	char store[256];
	struct url url = URL_INIT;

	(void)state;
	assert_int_equal(
		split("/v1/a%20b+c?x=1&bare&y=a%26b+c&&=v&x=2&z=", store, sizeof store, &url, NULL),
		0);
	assert_string_equal(url.path, "/v1/a b+c");
	assert_string_equal(url_query(&url, "x"), "1");
	assert_string_equal(url_query(&url, "bare"), "");
	assert_string_equal(url_query(&url, "y"), "a&b c");
	assert_string_equal(url_query(&url, "z"), "");
	assert_string_equal(url_query(&url, ""), "v");
	assert_null(url_query(&url, "w"));
	assert_int_equal(url.count, 6);
	assert_string_equal(url.pairs[4].value, "2");
	url_done(&url);
}

static void test_url_without_query_has_none(void **state)
{
	char store[64];
	struct url url = URL_INIT;

	(void)state;
	assert_int_equal(split("/", store, sizeof store, &url, NULL), 0);
	assert_string_equal(url.path, "/");
	assert_int_equal(url.count, 0);
	url_done(&url);
	assert_int_equal(split("/?", store, sizeof store, &url, NULL), 0);
	assert_int_equal(url.count, 0);
	url_done(&url);
}

static void test_url_refuses_nonsense(void **state)
{
	static const char *const bad[] = { "", "a", "*", "http://a/", "/%", "/%4", "/%zz", "/%00",
		"/a?b=%00", "/a?%0=1", "/a b", "/a#b", "/\x80", "/a?b=\x7f", "/a?b=\x01",
		"/?a=%f" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char store[64];
		struct url url = URL_INIT;
		struct err err = ERR_INIT;

		assert_int_equal(split(bad[i], store, sizeof store, &url, &err), -1);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_null(url.pairs);
	}
}

static void test_url_bounds_pairs(void **state)
{
	char store[512] = "/?";
	struct url url = URL_INIT;

	(void)state;
	for (int i = 0; i < URL_PAIRS_MAX; i++)
		strcat(store, "a=b&");
	assert_int_equal(url_split(store, &url, NULL), 0);
	assert_int_equal(url.count, URL_PAIRS_MAX);
	url_done(&url);
	strcpy(store, "/?");
	for (int i = 0; i < URL_PAIRS_MAX + 1; i++)
		strcat(store, "a=b&");
	assert_int_equal(url_split(store, &url, NULL), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_url_decodes_path_and_query),
		cmocka_unit_test(test_url_without_query_has_none),
		cmocka_unit_test(test_url_refuses_nonsense),
		cmocka_unit_test(test_url_bounds_pairs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
