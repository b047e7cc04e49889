/* test_sha256.c - the sums of FIPS 180-2 and RFC 4231, in each form */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/sha256.h"
#include <string.h>

#define ABC	"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void test_sha256_known_sums_in_each_form(void **state)
{
	char hex[SHA256_HEX + 1], digest[DIGEST_SIZE];
	uint8_t sum[SHA256_SIZE];

	(void)state;
	sha256_hex("abc", 3, hex);
	assert_string_equal(hex, ABC);
	sha256_hex("", 0, hex);
	assert_string_equal(hex, NOTHING);
	sha256_of("abc", 3, sum);
	assert_memory_equal(sum, "\xba\x78\x16\xbf", 4);
	digest_of("abc", 3, digest);
	assert_string_equal(digest, "sha256:" ABC);
	assert_string_equal(digest_hex(digest), ABC);
}

static void test_sha256_bit_by_bit_is_the_same(void **state)
{
	struct sha256 *sha = sha256_new();
	char digest[DIGEST_SIZE], hex[SHA256_HEX + 1];

	(void)state;
	sha256_add(sha, "a", 1);
	sha256_hex("something else between", 22, hex);
	sha256_add(sha, "bc", 2);
	sha256_end(sha, digest);
	assert_string_equal(digest, "sha256:" ABC);
	sha256_free(sha256_new());
	sha256_free(NULL);
}

/* Test case 1 of RFC 4231: its key is padded with zeros, as HMAC does itself. */
static void test_sha256_signs_with_a_key(void **state)
{
	uint8_t key[SHA256_SIZE] = { 0 };
	char mac[SHA256_HEX + 1], other[SHA256_HEX + 1];

	(void)state;
	memset(key, 0x0b, 20);
	sha256_sign(key, "Hi There", 8, mac);
	assert_string_equal(
		mac, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	key[31] = 1;
	sha256_sign(key, "Hi There", 8, other);
	assert_string_not_equal(mac, other);
}

static void test_sha256_equal_compares_all(void **state)
{
	(void)state;
	assert_true(sha256_equal(ABC, ABC, SHA256_HEX));
	assert_false(sha256_equal(ABC, NOTHING, SHA256_HEX));
	assert_false(sha256_equal("abc", "abd", 3));
	assert_true(sha256_equal("abc", "abd", 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sha256_known_sums_in_each_form),
		cmocka_unit_test(test_sha256_bit_by_bit_is_the_same),
		cmocka_unit_test(test_sha256_signs_with_a_key),
		cmocka_unit_test(test_sha256_equal_compares_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
