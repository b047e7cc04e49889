/* test_address.c - addresses as text and as values; which are special is one table for all forms */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/address.h"
#include "base/alloc.h"
#include "policy/policy.h"

static void test_address_text_and_back(void **state)
{
	static const char *const texts[] = { "192.0.2.1", "0.0.0.0", "255.255.255.255", "::", "::1",
		"2001:db8::1", "::ffff:10.0.0.1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" };
	char text[ADDRESS_TEXT_MAX];
	struct address address, again;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		assert_true(address_parse(texts[i], &address));
		assert_string_equal(address_format(&address, text), texts[i]);
		again = address.family == 4 ? address_v4(address.bytes) : address_v6(address.bytes);
		assert_true(address_equal(&address, &again));
	}
	assert_string_equal(address_format(&(struct address){ 0 }, text), "none");
}

static void test_address_what_is_none_is_refused(void **state)
{
	static const char *const texts[] = { "", "1", "10.1", "010.0.0.1", "0x7f.0.0.1",
		"1.2.3.4.5", "1.2.3.256", "1.2.3.4 ", "1.2.3.4:80", "1.2.3.4/8", "fe80::1%lo",
		"[::1]", ":::", "1::2::3", "localhost" };
	struct address address = { .family = 9 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (address_parse(texts[i], &address))
			fail_msg("'%s' counts as an address", texts[i]);
	assert_int_equal(address.family, 9);
}

static void test_address_special_in_all_clothes(void **state)
{
	static const struct {
		const char *text, *what;
	} rows[] = { { "127.0.0.1", "loopback" }, { "::ffff:127.0.0.1", "loopback" },
		{ "64:ff9b::7f00:1", "loopback" }, { "2002:7f00:1::", "loopback" },
		{ "10.1.2.3", "private" }, { "::10.1.2.3", "private" }, { "fd00::1", "private" },
		{ "169.254.169.254", "metadata" }, { "169.254.0.1", "link-local" },
		{ "fe80::1", "link-local" }, { "198.18.0.1", "synthetic" } };
	struct address address = { 0 };

	(void)state;
	assert_string_equal(policy_addr_special(&address), "none");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_true(address_parse(rows[i].text, &address));
		assert_string_equal(policy_addr_special(&address), rows[i].what);
	}
	assert_true(address_parse("8.8.8.8", &address));
	assert_null(policy_addr_special(&address));
	assert_true(address_parse("2002:808:808::", &address));
	assert_null(policy_addr_special(&address));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_text_and_back),
		cmocka_unit_test(test_address_what_is_none_is_refused),
		cmocka_unit_test(test_address_special_in_all_clothes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
