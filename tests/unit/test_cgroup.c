/* test_cgroup.c - which hierarchies are found in /proc/self/mountinfo */
#include "sys/cgroup.h"
#include "base/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define BIT(controller) (1u << (controller))

static const char pure_v2[] = "22 27 0:21 / /proc rw,relatime shared:14 - proc proc rw\n"
			      "31 23 0:28 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime "
			      "shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

static const char hybrid[] =
	"31 23 0:28 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n"
	"32 31 0:29 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate\n"
	"33 31 0:30 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd\n"
	"34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct\n"
	"35 31 0:32 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n"
	"36 31 0:33 / /sys/fs/cgroup/pids rw shared:15 master:2 - cgroup cgroup rw,pids\n"
	"37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";

static const char pure_v1[] = "34 31 0:31 / /cgroup\\040one/cpu rw - cgroup cgroup rw,cpu\n"
			      "35 31 0:32 / /cgroup\\040one/cpuset rw - cgroup cgroup rw,cpuset\n"
			      "36 31 0:33 / /cgroup\\040one/memory rw - cgroup cgroup rw,memory";

static void test_cgroup_layout_of_pure_v2(void **state)
{
	struct cgroup_layout layout;

	(void)state;
	cgroup_layout_parse(pure_v2, &layout);
	assert_string_equal(layout.v2, "/sys/fs/cgroup");
	assert_null(layout.v1[CGROUP_MEMORY]);
	assert_string_equal(cgroup_layout_name(&layout), "v2");
	assert_false(cgroup_layout_has(&layout, CGROUP_MEMORY));
	layout.v2_controllers =
		cgroup_controllers_parse("cpuset cpu io memory hugetlb pids rdma misc\n");
	assert_int_equal(
		layout.v2_controllers, BIT(CGROUP_CPU) | BIT(CGROUP_MEMORY) | BIT(CGROUP_PIDS));
	assert_true(cgroup_layout_has(&layout, CGROUP_MEMORY));
	cgroup_layout_done(&layout);
}

static void test_cgroup_layout_of_hybrid(void **state)
{
	struct cgroup_layout layout;

	(void)state;
	cgroup_layout_parse(hybrid, &layout);
	assert_string_equal(layout.v2, "/sys/fs/cgroup/unified");
	assert_string_equal(layout.v1[CGROUP_CPU], "/sys/fs/cgroup/cpu,cpuacct");
	assert_string_equal(layout.v1[CGROUP_CPUACCT], "/sys/fs/cgroup/cpu,cpuacct");
	assert_string_equal(layout.v1[CGROUP_MEMORY], "/sys/fs/cgroup/memory");
	assert_string_equal(layout.v1[CGROUP_PIDS], "/sys/fs/cgroup/pids");
	assert_string_equal(layout.v1[CGROUP_FREEZER], "/sys/fs/cgroup/freezer");
	assert_string_equal(cgroup_layout_name(&layout), "v1+v2");
	cgroup_layout_done(&layout);
}

static void test_cgroup_layout_of_pure_v1_with_spaces_and_no_last_newline(void **state)
{
	struct cgroup_layout layout;

	(void)state;
	cgroup_layout_parse(pure_v1, &layout);
	assert_null(layout.v2);
	assert_string_equal(layout.v1[CGROUP_CPU], "/cgroup one/cpu");
	assert_string_equal(layout.v1[CGROUP_MEMORY], "/cgroup one/memory");
	assert_null(layout.v1[CGROUP_PIDS]);
	assert_string_equal(cgroup_layout_name(&layout), "v1");
	cgroup_layout_done(&layout);
}

static void test_cgroup_layout_survives_odd_lines(void **state)
{
	static const char *const odd[] = { "", "\n\n", " - ", "1 2 3 - cgroup2", "a - cgroup\n",
		"1 2 0:3 / \\04 rw - cgroup2 x y", "1 2 0:3 / /x rw - cgroup c" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		struct cgroup_layout layout;

		cgroup_layout_parse(odd[i], &layout);
		assert_null(layout.v1[CGROUP_MEMORY]);
		cgroup_layout_done(&layout);
	}
}

static void test_cgroup_first_mount_wins(void **state)
{
	struct cgroup_layout layout;

	(void)state;
	cgroup_layout_parse(
		"1 2 0:3 / /one rw - cgroup2 c rw\n4 5 0:3 / /two rw - cgroup2 c rw\n", &layout);
	assert_string_equal(layout.v2, "/one");
	cgroup_layout_done(&layout);
}

static void test_cgroup_controllers_are_whole_words(void **state)
{
	(void)state;
	assert_int_equal(cgroup_controllers_parse(""), 0);
	assert_int_equal(cgroup_controllers_parse("cpuset mem pidsx\n"), 0);
	assert_int_equal(cgroup_controllers_parse("pids"), BIT(CGROUP_PIDS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cgroup_layout_of_pure_v2),
		cmocka_unit_test(test_cgroup_layout_of_hybrid),
		cmocka_unit_test(test_cgroup_layout_of_pure_v1_with_spaces_and_no_last_newline),
		cmocka_unit_test(test_cgroup_layout_survives_odd_lines),
		cmocka_unit_test(test_cgroup_first_mount_wins),
		cmocka_unit_test(test_cgroup_controllers_are_whole_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
