/* test_build.c - a Boxfile's build without a box: the configuration that grows, and the keys of the
 * cache */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/file.h"
#include "cli/build_internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static struct {
	struct build build;
	char dir[64];
} fixture;

static int set_up(void **state)
{
	(void)state;
	strcpy(fixture.dir, "/tmp/test-build-XXXXXX");
	assert_non_null(mkdtemp(fixture.dir));
	fixture.build = (struct build){ .context = open(fixture.dir, O_RDONLY | O_DIRECTORY),
		.config = json_object() };
	build_key_of_base("k3v9", fixture.build.key);
	return fixture.build.context < 0;
}

static int tear_down(void **state)
{
	(void)state;
	close(fixture.build.context);
	json_decref(fixture.build.config);
	boxfile_done(&fixture.build.boxfile);
	return tree_remove(AT_FDCWD, fixture.dir, NULL);
}

/* The steps after "from a". */
static const struct boxfile_step *steps(const char *text)
{
	_cleanup_free_ char *whole = xasprintf("from a\n%s", text);
	struct err err = ERR_INIT;

	boxfile_done(&fixture.build.boxfile);
	if (boxfile_parse(whole, strlen(whole), &fixture.build.boxfile, &err) < 0)
		fail_msg("%s", err.message);
	return fixture.build.boxfile.steps + 1;
}

static void apply(const char *text)
{
	const struct boxfile_step *step = steps(text);
	struct err err = ERR_INIT;

	for (size_t i = 1; i < fixture.build.boxfile.count; i++)
		assert_int_equal(build_config_apply(fixture.build.config, step++, &err), 0);
}

static void assert_config(const char *key, const char *text)
{
	_cleanup_free_ char *is = json_dumps(
		json_object_get(fixture.build.config, key), JSON_COMPACT | JSON_ENCODE_ANY);

	assert_string_equal(is, text);
}

static void put(const char *name, const char *text, mode_t mode)
{
	assert_int_equal(
		file_write_atomic(fixture.build.context, name, text, strlen(text), mode, NULL), 0);
	assert_int_equal(fchmodat(fixture.build.context, name, mode, 0), 0);
}

static void key_of(const char *text, char *out)
{
	struct err err = ERR_INIT;

	if (build_key_of_step(&fixture.build, steps(text), out, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(strlen(out), BUILD_KEY_LEN);
}

/* Whether the key of the step differs from the last one asked for. */
static bool key_changed(const char *text)
{
	static char last[BUILD_KEY_LEN + 1];
	char now[BUILD_KEY_LEN + 1];
	bool changed;

	key_of(text, now);
	changed = strcmp(now, last) != 0;
	strcpy(last, now);
	return changed;
}

static void test_build_config_takes_what_steps_say(void **state)
{
	(void)state;
	apply("env PATH=/opt:$PATH A=1\nenv A=2 B=$A 'C=$A'\n");
	assert_config("env", "[\"PATH=/opt:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/"
			     "sbin:/bin\",\"A=2\","
			     "\"B=1\",\"C=$A\"]");
	apply("workdir /srv\nworkdir app/./x//\nuser nobody\nexpose 80 53/udp 80/tcp\nlabel a=1 "
	      "b=x=y\n");
	assert_config("workdir", "\"/srv/app/x\"");
	assert_config("user", "\"nobody\"");
	assert_config("ports", "[\"80/tcp\",\"53/udp\"]");
	assert_config("labels", "{\"a\":\"1\",\"b\":\"x=y\"}");
	apply("entrypoint [\"a\",\"b c\"]\ncmd x 'y z'\n");
	assert_config("entrypoint", "[\"a\",\"b c\"]");
	assert_config("cmd", "[\"x\",\"y z\"]");
	apply("entrypoint []\n");
	assert_config("entrypoint", "[]");
}

static void test_build_config_paths_are_below_the_workdir(void **state)
{
	static const struct {
		const char *given, *path;
	} paths[] = { { "/", "/" }, { ".", "/srv" }, { "a", "/srv/a" }, { "./a/", "/srv/a" },
		{ "/b//c/.", "/b/c" } };

	(void)state;
	apply("workdir /srv\n");
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		_cleanup_free_ char *path = build_config_path(fixture.build.config, paths[i].given);

		assert_string_equal(path, paths[i].path);
	}
}

static void test_build_config_paths_without_a_workdir_are_in_the_workspace(void **state)
{
	_cleanup_free_ char *below = build_config_path(fixture.build.config, "a"),
			    *whole = build_config_path(fixture.build.config, "/a");

	(void)state;
	assert_string_equal(below, "/workspace/a");
	assert_string_equal(whole, "/a");
}

static void test_build_config_missing_is_empty(void **state)
{
	_cleanup_json_ json_t *full = json_pack("{s:[], s:s, s:{}}", "cmd", "user", "", "labels");
	_cleanup_json_ json_t *other = json_pack("{s:[s]}", "cmd", "x");

	(void)state;
	assert_true(build_config_equal(fixture.build.config, full));
	assert_true(build_config_equal(NULL, full));
	assert_false(build_config_equal(other, full));
	assert_false(build_config_equal(full, other));
}

static void test_build_key_follows_text_parent_and_environment(void **state)
{
	(void)state;
	assert_true(key_changed("run make\n"));
	assert_false(key_changed("RUN   make\n"));
	assert_true(key_changed("run make all\n"));
	build_key_of_base("other", fixture.build.key);
	assert_true(key_changed("run make all\n"));
	apply("env A=1\n");
	assert_true(key_changed("run make all\n"));
	apply("user nobody\n");
	assert_true(key_changed("run make all\n"));
	apply("cmd x\nlabel a=b\n");
	assert_false(key_changed("run make all\n"));
}

static void test_build_key_follows_the_files_that_are_copied(void **state)
{
	const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

	(void)state;
	assert_int_equal(mkdirat(fixture.build.context, "d", 0755), 0);
	put("d/a", "one", 0644);
	assert_true(key_changed("copy d /x\n"));
	assert_int_equal(utimensat(fixture.build.context, "d/a", old, 0), 0);
	assert_false(key_changed("copy d /x\n"));
	put("d/a", "two", 0644);
	assert_true(key_changed("copy d /x\n"));
	put("d/a", "two", 0755);
	assert_true(key_changed("copy d /x\n"));
	assert_int_equal(renameat(fixture.build.context, "d/a", fixture.build.context, "d/b"), 0);
	assert_true(key_changed("copy d /x\n"));
	assert_int_equal(symlinkat("/nowhere", fixture.build.context, "d/l"), 0);
	assert_true(key_changed("copy d /x\n"));
	put("other", "not copied", 0644);
	assert_false(key_changed("copy d /x\n"));
	assert_int_equal(mkdirat(fixture.build.context, "d/empty", 0755), 0);
	assert_true(key_changed("copy d /x\n"));
}

static void test_build_key_tells_pieces_apart(void **state)
{
	char first[BUILD_KEY_LEN + 1], second[BUILD_KEY_LEN + 1];

	(void)state;
	put("a", "xy", 0644);
	put("b", "z", 0644);
	key_of("copy a b /x/\n", first);
	put("a", "x", 0644);
	put("b", "yz", 0644);
	key_of("copy a b /x/\n", second);
	assert_string_not_equal(first, second);
}

static void assert_outside(const char *path)
{
	struct err err = ERR_INIT;
	int fd = -1;

	assert_int_equal(build_context_open(&fixture.build, path, &fd, &err), -1);
	assert_int_equal(fd, -1);
	assert_int_equal(err.kind, ERR_INVALID);
}

static void test_build_context_cannot_be_left(void **state)
{
	int fd = -1;

	(void)state;
	put("file", "x", 0644);
	assert_int_equal(symlinkat("/etc/passwd", fixture.build.context, "absolute"), 0);
	assert_int_equal(symlinkat("../../etc/passwd", fixture.build.context, "up"), 0);
	assert_int_equal(symlinkat("file", fixture.build.context, "inside"), 0);
	assert_int_equal(mkfifoat(fixture.build.context, "pipe", 0600), 0);
	assert_outside("/etc/passwd");
	assert_outside("../x");
	assert_outside("absolute");
	assert_outside("up");
	assert_outside("pipe");
	assert_int_equal(build_context_open(&fixture.build, "inside", &fd, NULL), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_build_config_takes_what_steps_say, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_build_config_paths_are_below_the_workdir, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_build_config_paths_without_a_workdir_are_in_the_workspace, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			test_build_config_missing_is_empty, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_build_key_follows_text_parent_and_environment, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_build_key_follows_the_files_that_are_copied, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_build_key_tells_pieces_apart, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			test_build_context_cannot_be_left, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
