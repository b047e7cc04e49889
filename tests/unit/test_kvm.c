/* test_kvm.c - the trial of hardware virtualisation, and the frequency of the processor's clock */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/vm/kvm.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* Whatever the machine can: within its time, and with a reason. */
static void test_trial_is_bounded_and_gives_a_reason(void **state)
{
	struct kvm_verdict verdict = { 0 };
	int64_t from = clock_mono_us();

	(void)state;
	kvm_probe(&verdict);
	assert_true(clock_mono_us() - from < INT64_C(7) * 1000 * 1000);
	assert_true(strlen(verdict.reason) > 10);
	if (access("/dev/kvm", R_OK | W_OK) < 0)
		assert_false(verdict.usable);
	print_message("%s: %s (%.1f ms)\n", verdict.usable ? "usable" : "unusable", verdict.reason,
		(double)(clock_mono_us() - from) / 1000);
}

static void test_verdict_holds_for_this_boot_only(void **state)
{
	char run[] = "/tmp/box-kvm-XXXXXX";
	_cleanup_free_ char *path = NULL, *text = NULL, *boot = NULL;
	struct kvm_verdict first, again;

	(void)state;
	assert_non_null(mkdtemp(run));
	path = xasprintf("%s/kvm", run);
	kvm_verdict_get(run, &first);
	assert_int_equal(
		file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL, NULL), 0);
	boot[strcspn(boot, "\n")] = '\0';
	/* It is believed when it is of this boot ... */
	text = xasprintf("%s usable as it was written\n", boot);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, NULL), 0);
	kvm_verdict_get(run, &again);
	assert_true(again.usable);
	assert_string_equal(again.reason, "as it was written");
	assert_false(again.proven);
	/* ... also what was learnt later ... */
	kvm_verdict_put(run, &(struct kvm_verdict){ true, true, "it boots" });
	kvm_verdict_get(run, &again);
	assert_true(again.usable && again.proven);
	kvm_verdict_put(run, &(struct kvm_verdict){ false, false, "no kernel boots with it" });
	kvm_verdict_get(run, &again);
	assert_false(again.usable || again.proven);
	assert_string_equal(again.reason, "no kernel boots with it");
	/* ... and tried anew when it is of another, or no verdict at all. */
	assert_int_equal(file_write_atomic(AT_FDCWD, path, "other usable x\n", 15, 0600, NULL), 0);
	kvm_verdict_get(run, &again);
	assert_int_equal(again.usable, first.usable);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, "", 0, 0600, NULL), 0);
	kvm_verdict_get(run, &again);
	assert_int_equal(again.usable, first.usable);
	tree_remove(AT_FDCWD, run, NULL);
}

static void test_tsc_is_measured_steadily(void **state)
{
	uint64_t one = kvm_tsc_khz(), other = kvm_tsc_khz();

	(void)state;
	if (!one) {
		print_message("SKIPPED: no constant clock in this processor\n");
		skip();
	}
	assert_in_range(one, 200 * 1000, 20 * 1000 * 1000);
	/* The guest's kernel bears one in a thousand. */
	assert_true(one > other ? one - other <= one / 1000 : other - one <= one / 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trial_is_bounded_and_gives_a_reason),
		cmocka_unit_test(test_verdict_holds_for_this_boot_only),
		cmocka_unit_test(test_tsc_is_measured_steadily),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
