/* test_cgroup.c - which hierarchies are found in /proc/self/mountinfo; what is written where
 *
 * What a v2 group is told is looked at in plain files: few machines have the controllers of both
 * versions. */
#include "sys/cgroup_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

/* ---- groups that share limits --------------------------------------------------------------- */

static void note_id(const char *id, void *arg)
{
	char *all = arg;

	snprintf(all + strlen(all), 512 - strlen(all), "%s ", id);
}

static void test_cgroup_shared_groups_come_and_go_with_what_is_in_them(void **state)
{
	const struct cgroup_limits none = { 0 }, some = { .pids = 7 };
	struct cgroup_tree *tree = NULL;
	char name[64], all[512] = "", found[CGROUP_ID_SIZE];
	struct err err = ERR_INIT;
	int v2 = -1;

	(void)state;
	snprintf(name, sizeof name, "test-shared-%d", (int)getpid());
	if (cgroup_tree_open(name, &tree, &err) < 0) {
		print_message("SKIPPED: %s\n", err.message);
		skip();
	}
	assert_int_equal(cgroup_open_v2(tree, "tree-a/one", &v2, &err), 0);
	if (v2 >= 0)
		close(v2);
	assert_int_equal(cgroup_create(tree, "tree-a/one", &none, &err), 0);
	assert_int_equal(cgroup_create(tree, "tree-a/two", &none, &err), 0);
	assert_int_equal(cgroup_create(tree, "alone", &none, &err), 0);
	if (cgroup_tree_has(tree, CGROUP_PIDS)) {
		char text[32] = "";

		assert_int_equal(cgroup_limit(tree, "tree-a", &some, &err), 0);
		assert_true(cgroup_read(
			cgroup_find(tree, CGROUP_PIDS), "tree-a", "pids.max", text, sizeof text));
		assert_string_equal(text, "7\n");
	}
	cgroup_tree_each(tree, note_id, all);
	assert_non_null(strstr(all, "tree-a/one "));
	assert_non_null(strstr(all, "tree-a/two "));
	assert_non_null(strstr(all, "alone "));
	assert_int_equal(strlen(all), strlen("tree-a/one tree-a/two alone "));
	assert_true(cgroup_find_id(tree, "two", found));
	assert_string_equal(found, "tree-a/two");
	assert_true(cgroup_find_id(tree, "alone", found));
	assert_string_equal(found, "alone");
	assert_false(cgroup_find_id(tree, "tree-a", found));
	assert_int_equal(cgroup_remove(tree, "tree-a/one", &err), 0);
	assert_true(cgroup_exists(tree, "tree-a"));
	assert_int_equal(cgroup_remove(tree, "tree-a/two", &err), 0);
	assert_false(cgroup_exists(tree, "tree-a"));
	/* What a daemon left that died between the two. */
	assert_int_equal(mkdirat(tree->list[0].dir, "tree-b", 0755), 0);
	*all = '\0';
	cgroup_tree_each(tree, note_id, all);
	assert_string_equal(all, "alone ");
	assert_false(cgroup_exists(tree, "tree-b"));
	assert_int_equal(cgroup_remove(tree, "alone", &err), 0);
	cgroup_tree_close(tree);
}

static void test_cgroup_machine_keeps_something_for_itself(void **state)
{
	const uint64_t mb = UINT64_C(1) << 20;
	static const struct {
		uint64_t memory_mb, pids, left_mb, left_pids;
	} machines[] = {
		{ 512, 4096, 128, 1024 },
		{ 1024, 7600, 256, 1900 },
		{ 4096, 32768, 512, 4096 },
		{ 24576, 32768, 3072, 4096 },
		{ 1048576, 4194304, 8192, 32768 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
		struct cgroup_limits share =
			cgroup_machine_share(machines[i].memory_mb * mb, machines[i].pids);

		assert_int_equal(
			machines[i].memory_mb - share.memory_bytes / mb, machines[i].left_mb);
		assert_int_equal(machines[i].pids - share.pids, machines[i].left_pids);
		assert_int_equal(share.cpu_milli, 0);
	}
}

/* ---- limits of v2 --------------------------------------------------------------------------- */

static const char *const v2_files[] = { "memory.max", "memory.current", "memory.reclaim", "cpu.max",
	"pids.max", "pids.events", "pids.events.local", "memory.high", "memory.events",
	"memory.stat" };

struct plain {
	char dir[64];
	struct cgroup_tree tree;
};

static void put(struct plain *plain, const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof path, "%s/box/%s", plain->dir, file);
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), 0644, NULL), 0);
}

static void expect_file(struct plain *plain, const char *file, const char *want)
{
	_cleanup_free_ char *text = NULL;
	char path[128];

	snprintf(path, sizeof path, "%s/box/%s", plain->dir, file);
	assert_int_equal(file_read(AT_FDCWD, path, 4096, &text, NULL, NULL), 0);
	assert_string_equal(text, want);
	put(plain, file, ""); /* the next shorter word leaves nothing of this one */
}

static int make_plain(void **state)
{
	struct plain *plain = xnew(struct plain);
	const char *where = getenv("TMPDIR");
	char path[128];

	snprintf(
		plain->dir, sizeof plain->dir, "%s/box-test-cgroup-XXXXXX", where ? where : "/tmp");
	if (!mkdtemp(plain->dir))
		return -1;
	snprintf(path, sizeof path, "%s/box", plain->dir);
	mkdir(path, 0755);
	for (size_t i = 0; i < ARRAY_LEN(v2_files); i++)
		put(plain, v2_files[i], "");
	plain->tree = (struct cgroup_tree){ .name = "test", .layout = "v2", .count = 1 };
	plain->tree.list[0] = (struct cgroup_hierarchy){
		.dir = open(plain->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.v2 = true,
		.controllers = BIT(CGROUP_CPU) | BIT(CGROUP_MEMORY) | BIT(CGROUP_PIDS),
	};
	*state = plain;
	return 0;
}

static int remove_plain(void **state)
{
	struct plain *plain = *state;

	close(plain->tree.list[0].dir);
	tree_remove(AT_FDCWD, plain->dir, NULL);
	free(plain);
	return 0;
}

static void test_cgroup_limits_of_v2_are_set_and_lifted(void **state)
{
	struct plain *plain = *state;
	struct cgroup_limits limits = { .cpu_milli = 1500, .memory_bytes = 1 << 20, .pids = 9 };
	struct err err = ERR_INIT;

	assert_int_equal(cgroup_limit(&plain->tree, "box", &limits, &err), 0);
	expect_file(plain, "cpu.max", "150000 100000");
	expect_file(plain, "memory.max", "1048576");
	expect_file(plain, "pids.max", "9");
	limits = (struct cgroup_limits){ 0 };
	assert_int_equal(cgroup_limit(&plain->tree, "box", &limits, &err), 0);
	expect_file(plain, "cpu.max", "max 100000");
	expect_file(plain, "memory.max", "max");
	expect_file(plain, "pids.max", "max");
}

static void test_cgroup_v2_asks_for_memory_before_it_kills(void **state)
{
	struct plain *plain = *state;
	struct cgroup_limits limits = { .memory_bytes = 1 << 20, .pids = 9 };
	struct err err = ERR_INIT;

	put(plain, "memory.current", "3145728\n");
	assert_int_equal(cgroup_limit(&plain->tree, "box", &limits, &err), -1);
	assert_int_equal(err.kind, ERR_STATE);
	assert_non_null(strstr(err.message, "3M"));
	expect_file(plain, "memory.reclaim", "2097152");
	expect_file(plain, "memory.max", "");
	expect_file(plain, "pids.max", "");
}

static void test_cgroup_v2_counts_refused_forks_of_its_own_limit(void **state)
{
	struct plain *plain = *state;

	put(plain, "pids.events", "max 7\n");
	put(plain, "pids.events.local", "max 5\n");
	assert_int_equal(cgroup_pids_refused(&plain->tree, "box"), 5);
	unlinkat(plain->tree.list[0].dir, "box/pids.events.local", 0);
	assert_int_equal(cgroup_pids_refused(&plain->tree, "box"), 7);
	plain->tree.list[0].controllers = 0;
	assert_int_equal(cgroup_pids_refused(&plain->tree, "box"), 0);
}

static void test_cgroup_v2_holds_a_little_below_the_limit(void **state)
{
	struct plain *plain = *state;
	uint64_t limit = 64 << 20;
	struct err err = ERR_INIT;

	assert_int_equal(cgroup_hold(&plain->tree, "box", limit, true, &err), 0);
	expect_file(plain, "memory.high", "65011712");
	assert_int_equal(cgroup_hold(&plain->tree, "box", limit, false, &err), 0);
	expect_file(plain, "memory.high", "max");
	assert_int_equal(cgroup_hold(&plain->tree, "box", 0, true, &err), 0);
	expect_file(plain, "memory.high", "max");
}

static void test_cgroup_v2_is_not_full_of_what_can_be_taken_back(void **state)
{
	struct plain *plain = *state;
	uint64_t limit = 64 << 20;

	put(plain, "memory.current", "65100000\n");
	put(plain, "memory.stat",
		"anon 20000000\ninactive_file 30000000\nactive_file 10000000\n"
		"slab_reclaimable 5000000\n");
	assert_false(cgroup_memory_is_tight(&plain->tree, "box", limit));
	put(plain, "memory.stat", "anon 64000000\ninactive_file 0\nactive_file 4096\n");
	assert_true(cgroup_memory_is_tight(&plain->tree, "box", limit));
	assert_false(cgroup_memory_is_tight(&plain->tree, "box", 0));
	put(plain, "memory.events", "low 0\nhigh 3\nmax 2\noom 0\noom_kill 0\n");
	assert_int_equal(cgroup_memory_refused(&plain->tree, "box"), 5);
	assert_false(cgroup_memory_waits(&plain->tree, "box"));
}

/* ---- the freezer of v1 ---------------------------------------------------------------------- */

/* A tree that has the v1 freezer alone, whatever else the machine has. */
static bool open_freezer(struct cgroup_tree *tree, char *dir, size_t size)
{
	struct cgroup_layout layout;
	struct err err = ERR_INIT;

	assert_int_equal(cgroup_layout_read(&layout, &err), 0);
	snprintf(dir, size, "%s/boxyard-test-%d",
		layout.v1[CGROUP_FREEZER] ? layout.v1[CGROUP_FREEZER] : "/nonexistent",
		(int)getpid());
	cgroup_layout_done(&layout);
	if (mkdir(dir, 0755) < 0)
		return false;
	*tree = (struct cgroup_tree){ .name = "test", .layout = "v1", .count = 1 };
	tree->list[0] = (struct cgroup_hierarchy){
		.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.controllers = BIT(CGROUP_FREEZER),
	};
	return true;
}

static bool is_state(struct cgroup_tree *tree, const char *want)
{
	char text[32];

	return cgroup_read(&tree->list[0], "box", "freezer.state", text, sizeof text) &&
	       !strncmp(text, want, strlen(want));
}

static void test_cgroup_v1_freezes_and_kills_what_is_frozen(void **state)
{
	const struct cgroup_limits none = { 0 };
	struct cgroup_tree tree;
	struct cgroup_join join;
	struct err err = ERR_INIT;
	char dir[300];
	int status;
	pid_t pid;

	(void)state;
	if (!open_freezer(&tree, dir, sizeof dir)) {
		print_message("no v1 freezer here, or not root: skipped\n");
		skip();
	}
	assert_int_equal(cgroup_create(&tree, "box", &none, &err), 0);
	assert_int_equal(cgroup_join_open(&tree, "box", &join, &err), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		for (cgroup_join_enter(&join, NULL);;)
			continue;
	while (!cgroup_is_populated(&tree, "box"))
		usleep(1000);
	assert_int_equal(cgroup_freeze(&tree, "box", true, &err), 0);
	assert_true(is_state(&tree, "FROZEN"));
	assert_int_equal(cgroup_freeze(&tree, "box", false, &err), 0);
	assert_true(is_state(&tree, "THAWED"));
	assert_int_equal(cgroup_freeze(&tree, "box", true, &err), 0);
	assert_int_equal(cgroup_kill(&tree, "box", &err), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	cgroup_join_done(&join);
	assert_int_equal(cgroup_remove(&tree, "box", &err), 0);
	close(tree.list[0].dir);
	assert_int_equal(rmdir(dir), 0);
}

static void test_cgroup_without_a_freezer_says_so(void **state)
{
	struct cgroup_tree tree = { .name = "test" };
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(cgroup_freeze(&tree, "box", true, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
}

#define PLAIN_TEST(fn) cmocka_unit_test_setup_teardown(fn, make_plain, remove_plain)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cgroup_layout_of_pure_v2),
		cmocka_unit_test(test_cgroup_layout_of_hybrid),
		cmocka_unit_test(test_cgroup_layout_of_pure_v1_with_spaces_and_no_last_newline),
		cmocka_unit_test(test_cgroup_layout_survives_odd_lines),
		cmocka_unit_test(test_cgroup_first_mount_wins),
		cmocka_unit_test(test_cgroup_controllers_are_whole_words),
		cmocka_unit_test(test_cgroup_shared_groups_come_and_go_with_what_is_in_them),
		cmocka_unit_test(test_cgroup_machine_keeps_something_for_itself),
		PLAIN_TEST(test_cgroup_limits_of_v2_are_set_and_lifted),
		PLAIN_TEST(test_cgroup_v2_asks_for_memory_before_it_kills),
		PLAIN_TEST(test_cgroup_v2_counts_refused_forks_of_its_own_limit),
		PLAIN_TEST(test_cgroup_v2_holds_a_little_below_the_limit),
		PLAIN_TEST(test_cgroup_v2_is_not_full_of_what_can_be_taken_back),
		cmocka_unit_test(test_cgroup_v1_freezes_and_kills_what_is_frozen),
		cmocka_unit_test(test_cgroup_without_a_freezer_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
