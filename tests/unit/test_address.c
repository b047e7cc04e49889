/* test_address.c - addresses as text and as values; which are special is one table for all forms */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/address.h"
#include "base/alloc.h"
#include "base/special.h"
#include "net/synthetic.h"
#include "policy/policy.h"
#include <stdio.h>

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
		{ "fe80::1", "link-local" }, { "198.18.0.1", "synthetic" },
		{ "fd62:6f78:7961:7264::1", "synthetic" } };
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

static void test_address_ranges_hold_what_is_in_them(void **state)
{
	struct address_range wide = { .bits = 12 }, narrow = { .bits = 24 };
	struct address address;

	(void)state;
	assert_true(address_parse("172.16.0.0", &wide.base));
	assert_true(address_parse("172.31.255.0", &narrow.base));
	assert_true(address_range_covers(&wide, &narrow));
	assert_false(address_range_covers(&narrow, &wide));
	assert_true(address_parse("172.32.0.0", &address));
	assert_false(address_range_has(&wide, &address));
	assert_true(address_parse("::ffff:172.16.0.1", &address));
	assert_false(address_range_has(&wide, &address)); /* another family, as it is */
}

/* The namespace of a box, the gate and the synthetic addresses all rely on these. */
static void test_address_ranges_of_a_kind_are_in_the_table(void **state)
{
	static const unsigned families[] = { 4, 6 };
	static const enum special_kind kinds[] = { SPECIAL_LOOPBACK, SPECIAL_SYNTHETIC,
		SPECIAL_PRIVATE, SPECIAL_LINK_LOCAL, SPECIAL_MULTICAST };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(families); i++) {
		struct address synthetic = synthetic_numbered(families[i], 131071);

		assert_true(address_is_synthetic(&synthetic));
		for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
			const struct address_range *range = special_range_of(kinds[k], families[i]);

			assert_int_equal(range->base.family, families[i]);
			assert_int_equal(special_kind_of(&range->base), kinds[k]);
		}
	}
	/* Each row has a base that is its own: no bits behind the prefix. */
	for (size_t i = 0; i < special_range_count; i++) {
		char text[ADDRESS_TEXT_MAX], with_bits[ADDRESS_TEXT_MAX + 8];
		const struct address_range *range = &special_ranges[i].range;
		struct address_range again;

		snprintf(with_bits, sizeof with_bits, "%s/%u", address_format(&range->base, text),
			range->bits);
		assert_int_equal(policy_cidr_parse(with_bits, &again, NULL), 0);
		assert_non_null(special_kind_name(special_ranges[i].kind));
	}
}

static void test_address_hosts_of_this_machine(void **state)
{
	(void)state;
	assert_true(host_is_loopback("localhost"));
	assert_true(host_is_loopback("127.8.9.10"));
	assert_true(host_is_loopback("::1"));
	assert_false(host_is_loopback("127.example.com"));
	assert_false(host_is_loopback("128.0.0.1"));
	assert_false(host_is_loopback("::ffff:127.0.0.1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_address_text_and_back),
		cmocka_unit_test(test_address_what_is_none_is_refused),
		cmocka_unit_test(test_address_special_in_all_clothes),
		cmocka_unit_test(test_address_ranges_hold_what_is_in_them),
		cmocka_unit_test(test_address_ranges_of_a_kind_are_in_the_table),
		cmocka_unit_test(test_address_hosts_of_this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
