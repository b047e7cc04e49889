/* test_buf.c - bytes in at the tail, out at the head; and the arrays of strings beside it */
#include "base/buf.h"
#include "base/strv.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_buf_keeps_order_through_growth_and_eating(void **state)
{
	struct buf buf = BUF_INIT;
	uint8_t next_in = 0, next_out = 0;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		for (int i = 0; i < round % 97; i++) {
			uint8_t byte = next_in++;

			buf_add(&buf, &byte, 1);
		}
		for (size_t i = MIN(buf.len, (size_t)(round % 89)); i > 0; i--) {
			assert_int_equal(*buf_head(&buf), next_out++);
			buf_eat(&buf, 1);
		}
	}
	while (buf.len) {
		assert_int_equal(*buf_head(&buf), next_out++);
		buf_eat(&buf, 1);
	}
	assert_int_equal(next_in, next_out);
	buf_done(&buf);
}

static void test_buf_reuses_its_room(void **state)
{
	struct buf buf = BUF_INIT;
	char block[1000] = { 0 };
	size_t cap;

	(void)state;
	buf_add(&buf, block, sizeof block);
	buf_add(&buf, block, sizeof block);
	cap = buf.cap;
	for (int i = 0; i < 10000; i++) {
		buf_eat(&buf, sizeof block);
		buf_add(&buf, block, sizeof block);
	}
	assert_int_equal(buf.len, 2 * sizeof block);
	assert_true(buf.cap <= 2 * cap);
	buf_eat(&buf, buf.len);
	assert_int_equal(buf.head, 0);
	buf_done(&buf);
}

static void test_buf_room_can_be_larger_than_what_grew(void **state)
{
	struct buf buf = BUF_INIT;

	(void)state;
	memcpy(buf_room(&buf, 100), "abc", 3);
	buf_grew(&buf, 3);
	buf_add(&buf, NULL, 0);
	buf_add_str(&buf, "");
	buf_addf(&buf, "%s-%d", "d", 7);
	buf_addf(&buf, "%s", "");
	assert_string_equal(buf_str(&buf), "abcd-7");
	assert_int_equal(buf.len, 6);
	buf_done(&buf);
	assert_null(buf.data);
	buf_done(&buf);
}

static void test_buf_str_of_nothing_is_empty(void **state)
{
	struct buf buf = BUF_INIT;

	(void)state;
	assert_string_equal(buf_str(&buf), "");
	buf_add_str(&buf, "abc");
	buf_eat(&buf, 2);
	assert_string_equal(buf_str(&buf), "c");
	assert_int_equal(buf.len, 1);
	buf_done(&buf);
}

static void test_buf_takes_text_larger_than_any_guess(void **state)
{
	struct buf buf = BUF_INIT;
	_cleanup_free_ char *text = xcalloc(1, 100001);

	(void)state;
	memset(text, 'y', 100000);
	buf_addf(&buf, "<%s>", text);
	assert_int_equal(buf.len, 100002);
	assert_int_equal(buf_head(&buf)[100001], '>');
	buf_done(&buf);
}

static void test_strv(void **state)
{
	_cleanup_strv_ char **strv = NULL, **copy = NULL;

	(void)state;
	assert_int_equal(strv_len(NULL), 0);
	assert_false(strv_has(NULL, "a"));
	strv_add(&strv, "a");
	strv_add(&strv, "");
	copy = strv_copy((const char *const *)strv);
	strv_add(&strv, "c");
	assert_int_equal(strv_len((const char *const *)strv), 3);
	assert_int_equal(strv_len((const char *const *)copy), 2);
	assert_true(strv_has((const char *const *)copy, ""));
	assert_false(strv_has((const char *const *)copy, "c"));
	strv_free(NULL);
}

static void test_steal_empties_the_local(void **state)
{
	char *text = xstrdup("x"), *taken = steal_ptr(&text);
	int fd = 5;

	(void)state;
	assert_null(text);
	assert_string_equal(taken, "x");
	assert_int_equal(steal_fd(&fd), 5);
	assert_int_equal(fd, -1);
	assert_null(xstrdup(NULL));
	free(taken);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buf_keeps_order_through_growth_and_eating),
		cmocka_unit_test(test_buf_reuses_its_room),
		cmocka_unit_test(test_buf_room_can_be_larger_than_what_grew),
		cmocka_unit_test(test_buf_str_of_nothing_is_empty),
		cmocka_unit_test(test_buf_takes_text_larger_than_any_guess),
		cmocka_unit_test(test_strv),
		cmocka_unit_test(test_steal_empties_the_local),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
