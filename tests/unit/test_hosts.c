/* test_hosts.c - the name of a box in its /etc/hosts */
#include "guest/hosts.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define LOCAL "127.0.0.1\tlocalhost\n"

static void expect(const char *hosts, const char *old, const char *name, const char *wanted)
{
	char *got = hosts_with_name(hosts, old, name);

	assert_string_equal(got, wanted);
	free(got);
}

static void test_hosts_get_the_name(void **state)
{
	(void)state;
	expect(LOCAL, "", "ada", LOCAL "127.0.1.1\tada\n");
	expect(LOCAL "10.0.0.1 else", "", "ada", LOCAL "10.0.0.1 else\n127.0.1.1\tada\n");
	expect("", "", "ada", LOCAL "::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tada\n");
}

static void test_hosts_with_the_name_stay(void **state)
{
	(void)state;
	expect(LOCAL "127.0.1.1\tada\n", "ada", "ada", LOCAL "127.0.1.1\tada\n");
	expect("10.0.0.1 x ada # mine", "ada", "ada", "10.0.0.1 x ada # mine");
	expect(LOCAL "# ada\n", "ada", "ada", LOCAL "# ada\n127.0.1.1\tada\n");
}

static void test_hosts_line_of_the_old_name_is_replaced(void **state)
{
	(void)state;
	expect(LOCAL "127.0.1.1\tada\n10.0.0.1 x\n", "ada", "bob",
		LOCAL "127.0.1.1\tbob\n10.0.0.1 x\n");
	expect(LOCAL "127.0.1.1\tada", "ada", "bob", LOCAL "127.0.1.1\tbob\n");
	expect("127.0.1.1\tada\n127.0.1.1\tada\n", "ada", "bob", "127.0.1.1\tbob\n");
	expect("127.0.1.1\tada\n10.0.0.1 bob\n", "ada", "bob", "10.0.0.1 bob\n");
}

static void test_hosts_lines_of_others_stay(void **state)
{
	(void)state;
	expect("127.0.1.1\tada ada.lan\n127.0.1.1 ada\n10.0.0.1\tada\n127.0.1.1\tadam\n", "ada",
		"bob",
		"127.0.1.1\tada ada.lan\n127.0.1.1 ada\n10.0.0.1\tada\n127.0.1.1\tadam\n"
		"127.0.1.1\tbob\n");
	expect("\n\n127.0.1.1\t\n", "", "bob", "\n\n127.0.1.1\t\n127.0.1.1\tbob\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts_get_the_name),
		cmocka_unit_test(test_hosts_with_the_name_stay),
		cmocka_unit_test(test_hosts_line_of_the_old_name_is_replaced),
		cmocka_unit_test(test_hosts_lines_of_others_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
