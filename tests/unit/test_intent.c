/* test_intent.c - intents have names and one recovery each, and the documentation says the same */
#include "core/intent.h"
#include "base/alloc.h"
#include "base/file.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_names_go_there_and_back(void **state)
{
	(void)state;
	for (unsigned i = 0; i < INTENT_COUNT; i++)
		assert_int_equal(intent_from_name(intent_name(i)), i);
	assert_int_equal(intent_from_name("of a newer version"), INTENT_STOP);
}

static void test_every_intent_says_what_becomes_of_a_box(void **state)
{
	(void)state;
	for (unsigned i = 0; i < INTENT_COUNT; i++) {
		const struct recovery *recovery = intent_recovery(i);

		assert_true(recovery->always ||
			    (recovery->runs && recovery->ended && recovery->restarted));
	}
}

static void test_the_documentation_has_the_table(void **state)
{
	_cleanup_free_ char *text = NULL;
	struct buf table = BUF_INIT;

	(void)state;
	intent_table(&table);
	assert_int_equal(
		file_read(AT_FDCWD, getenv("BOX_LIFECYCLE_PAGE"), 1 << 20, &text, NULL, NULL), 0);
	if (!strstr(text, buf_str(&table)))
		fail_msg("docs/lifecycle.md must have this table:\n%s", buf_str(&table));
	buf_done(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_go_there_and_back),
		cmocka_unit_test(test_every_intent_says_what_becomes_of_a_box),
		cmocka_unit_test(test_the_documentation_has_the_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
