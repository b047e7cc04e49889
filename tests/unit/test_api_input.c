/* test_api_input.c - what clients may send, and what is refused */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "api/api_internal.h"
#include "core/exec_internal.h"

static void test_input_paths_are_absolute_without_dotdot(void **state)
{
	static const char *const good[] = { "/", "/a", "/a/b", "/a/..b", "/...", "/a..", "/a/b../c",
		"/a//b/./c" };
	static const char *const bad[] = { "", "a", "../a", "/..", "/../a", "/a/..", "/a/../b",
		"//.." };
	char longest[FILE_PATH_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(file_path_check("path", good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(file_path_check("path", bad[i], NULL), -1);
	assert_int_equal(file_path_check("path", NULL, NULL), -1);
	memset(longest, 'a', sizeof longest);
	longest[0] = '/';
	longest[FILE_PATH_MAX + 1] = '\0';
	assert_int_equal(file_path_check("path", longest, NULL), -1);
	longest[FILE_PATH_MAX] = '\0';
	assert_int_equal(file_path_check("path", longest, NULL), 0);
}

static void test_input_modes_are_octal(void **state)
{
	static const char *const bad[] = { "", "8", "0888", "17777", "rwx", "-1", "0x1", "644 " };
	uint32_t mode = 0;

	(void)state;
	assert_int_equal(input_mode("mode", "0644", &mode, NULL), 0);
	assert_int_equal(mode, 0644);
	assert_int_equal(input_mode("mode", "07777", &mode, NULL), 0);
	assert_int_equal(mode, 07777);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(input_mode("mode", bad[i], &mode, NULL), -1);
}

static void test_input_signals_by_name_or_number(void **state)
{
	static const char *const bad[] = { "", "SIG", "0", "65", "-9", "TERMINATE", "9 " };
	uint32_t number = 0;

	(void)state;
	assert_int_equal(input_signal("TERM", &number, NULL), 0);
	assert_int_equal(number, 15);
	assert_int_equal(input_signal("SIGKILL", &number, NULL), 0);
	assert_int_equal(number, 9);
	assert_int_equal(input_signal("int", &number, NULL), 0);
	assert_int_equal(number, 2);
	assert_int_equal(input_signal("64", &number, NULL), 0);
	assert_int_equal(number, 64);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(input_signal(bad[i], &number, NULL), -1);
}

static int size_of(const char *json, uint64_t *ret)
{
	_cleanup_json_ json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);

	return input_size("memory", value, 1 << 20, ret, NULL);
}

static int cpu_of(const char *json, uint64_t *ret)
{
	_cleanup_json_ json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);

	return input_cpu(value, ret, NULL);
}

static void test_input_figures_are_numbers_or_text(void **state)
{
	uint64_t value = 7;

	(void)state;
	assert_int_equal(size_of("null", &value), 0);
	assert_int_equal(value, 7);
	assert_int_equal(size_of("536870912", &value), 0);
	assert_int_equal(value, 536870912);
	assert_int_equal(size_of("\"512M\"", &value), 0);
	assert_int_equal(value, 536870912);
	assert_int_equal(size_of("0", &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(size_of("1000", &value), -1);
	assert_int_equal(size_of("-1", &value), -1);
	assert_int_equal(size_of("1.5", &value), -1);
	assert_int_equal(size_of("true", &value), -1);
	assert_int_equal(size_of("\"lots\"", &value), -1);
	assert_int_equal(cpu_of("1.5", &value), 0);
	assert_int_equal(value, 1500);
	assert_int_equal(cpu_of("\"0.25\"", &value), 0);
	assert_int_equal(value, 250);
	assert_int_equal(cpu_of("2", &value), 0);
	assert_int_equal(value, 2000);
	assert_int_equal(cpu_of("0", &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(cpu_of("-1", &value), -1);
	assert_int_equal(cpu_of("0.00001", &value), -1);
	assert_int_equal(cpu_of("\"0.00001\"", &value), -1);
	assert_int_equal(cpu_of("0.0", &value), 0);
	assert_int_equal(cpu_of("1e300", &value), -1);
	assert_int_equal(cpu_of("\"many\"", &value), -1);
	assert_int_equal(cpu_of("[]", &value), -1);
}

static int body_of(const char *text, struct exec_body *body, struct err *err)
{
	json_t *value = json_loads(text, 0, NULL);
	int ret;

	assert_non_null(value);
	ret = exec_body_read(value, body, err);
	/* What is too much is core's to say, for all doors alike. */
	if (ret == 0)
		ret = exec_spec_check(&body->spec, err);
	if (ret < 0)
		exec_body_done(body);
	json_decref(value);
	return ret;
}

static void test_input_exec_body_is_read_whole(void **state)
{
	json_t *value = json_loads(
		"{\"argv\":[\"sh\",\"-c\",\"x\"],\"env\":{\"A\":\"b=c\"},\"cwd\":\"/"
		"tmp\",\"user\":\"me:us\","
		"\"tty\":true,\"rows\":40,\"cols\":120,\"timeout_ms\":5,\"stdin_b64\":\"AP8=\"}",
		0, NULL);
	struct exec_body body;

	(void)state;
	assert_int_equal(exec_body_read(value, &body, NULL), 0);
	assert_string_equal(body.spec.argv[2], "x");
	assert_null(body.spec.argv[3]);
	assert_string_equal(body.spec.env[0], "A=b=c");
	assert_null(body.spec.env[1]);
	assert_string_equal(body.spec.cwd, "/tmp");
	assert_string_equal(body.spec.user, "me:us");
	assert_true(body.spec.tty);
	assert_int_equal(body.spec.rows, 40);
	assert_int_equal(body.spec.timeout_ms, 5);
	assert_true(body.has_input);
	assert_int_equal(body.input_len, 2);
	assert_int_equal(body.input[1], 0xff);
	exec_body_done(&body);
	json_decref(value);
}

static void test_input_exec_body_refuses_nonsense(void **state)
{
	static const char *const bad[] = {
		"{}",
		"{\"argv\":null}",
		"{\"argv\":[]}",
		"{\"argv\":[\"\"]}",
		"{\"argv\":[1]}",
		"{\"argv\":\"sh\"}",
		"{\"argv\":[\"a\"],\"what\":1}",
		"{\"argv\":[\"a\"],\"env\":{\"1A\":\"\"}}",
		"{\"argv\":[\"a\"],\"env\":{\"A=B\":\"\"}}",
		"{\"argv\":[\"a\"],\"env\":{\"\":\"\"}}",
		"{\"argv\":[\"a\"],\"env\":[\"A=b\"]}",
		"{\"argv\":[\"a\"],\"cwd\":\"tmp\"}",
		"{\"argv\":[\"a\"],\"cwd\":\"/a/../b\"}",
		"{\"argv\":[\"a\"],\"user\":\"a b\"}",
		"{\"argv\":[\"a\"],\"user\":\"-u\"}",
		"{\"argv\":[\"a\"],\"user\":\":g\"}",
		"{\"argv\":[\"a\"],\"rows\":-1}",
		"{\"argv\":[\"a\"],\"rows\":100000}",
		"{\"argv\":[\"a\"],\"timeout_ms\":\"5\"}",
		"{\"argv\":[\"a\"],\"timeout_ms\":9223372036854775807}",
		"{\"argv\":[\"a\"],\"stdin\":\"a\",\"stdin_b64\":\"YQ==\"}",
		"{\"argv\":[\"a\"],\"stdin_b64\":\"Y\"}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct exec_body body;
		struct err err = ERR_INIT;

		if (body_of(bad[i], &body, &err) == 0)
			fail_msg("accepted: %s", bad[i]);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_true(*err.message != '\0');
	}
}

static void test_input_argv_is_bounded(void **state)
{
	_cleanup_json_ json_t *many = json_array(), *large = json_array();
	char *word = xcalloc(1, 200 * 1024);

	(void)state;
	for (unsigned i = 0; i < EXEC_ARGV_MAX; i++)
		json_array_append_new(many, json_string("a"));
	assert_int_equal(input_argv("argv", many, NULL), 0);
	json_array_append_new(many, json_string("a"));
	assert_int_equal(input_argv("argv", many, NULL), -1);
	memset(word, 'a', 200 * 1024 - 1);
	json_array_append_new(large, json_string(word));
	assert_int_equal(input_argv("argv", large, NULL), -1);
	free(word);
}

/* ---- boxes ---------------------------------------------------------------------------------- */

static void test_input_box_body_is_read_whole(void **state)
{
	_cleanup_json_ json_t *value = json_loads(
		"{\"name\":\"ada\",\"image\":\"host:5000/a/b:tag\",\"cpu\":1.5,\"memory\":\"512M\","
		"\"pids\":0,\"on_limit\":\"pause\",\"no_main\":true,\"entrypoint\":[],"
		"\"command\":[\"make\"],\"idle\":{\"suspend\":\"2m\"},"
		"\"volumes\":[{\"volume\":\"cache\",\"path\":\"/cache\",\"read_only\":true}],"
		"\"mounts\":[{\"source\":\"/srv/data\",\"path\":\"/"
		"data\",\"uid\":1000,\"gid\":1000}]}",
		0, NULL);
	struct err err = ERR_INIT;
	struct box_body body;

	(void)state;
	if (box_body_read(value, &body, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(body.spec.name, "ada");
	assert_string_equal(body.spec.image, "host:5000/a/b:tag");
	assert_int_equal(body.spec.limits.cpu_milli, 1500);
	assert_int_equal(body.spec.limits.memory_bytes, 512 << 20);
	assert_int_equal(body.spec.limits.pids, 0);
	assert_true(body.spec.limits.disk_bytes == BOX_LIMIT_DEFAULT);
	assert_int_equal(body.spec.on_limit, ON_LIMIT_PAUSE);
	assert_true(body.spec.no_main);
	assert_int_equal(body.spec.sleep->suspend_ms, 120000);
	assert_int_equal(body.spec.sleep->hibernate_ms, BOX_SLEEP_DEFAULT);
	assert_int_equal(json_array_size(body.spec.entrypoint), 0);
	assert_non_null(body.spec.entrypoint);
	assert_int_equal(json_array_size(body.spec.volumes), 1);
	assert_int_equal(json_array_size(body.spec.mounts), 1);
	box_body_done(&body);
}

static void test_input_box_body_may_be_empty_or_null(void **state)
{
	_cleanup_json_ json_t *value = json_loads(
		"{\"volumes\":null,\"mounts\":null,\"on_limit\":null,\"entrypoint\":null}", 0,
		NULL);
	struct box_body body;

	(void)state;
	assert_int_equal(box_body_read(value, &body, NULL), 0);
	assert_null(body.spec.volumes);
	assert_null(body.spec.mounts);
	assert_null(body.spec.entrypoint);
	assert_int_equal(body.spec.on_limit, ON_LIMIT_NOTIFY);
	box_body_done(&body);
}

static void test_input_box_body_refuses_nonsense(void **state)
{
	static const char *const bad[] = {
		"{\"what\":1}",
		"{\"name\":\"A\"}",
		"{\"pids\":99999999}",
		"{\"disk\":\"1K\"}",
		"{\"on_limit\":\"explode\"}",
		"{\"on_limit\":1}",
		"{\"idle\":\"30s\"}",
		"{\"idle\":{\"suspend\":30}}",
		"{\"idle\":{\"suspend\":\"5ms\"}}",
		"{\"idle\":{\"hibernate\":\"never\"}}",
		"{\"idle\":{\"after\":\"30s\"}}",
		"{\"no_main\":\"yes\"}",
		"{\"command\":[]}",
		"{\"entrypoint\":\"sh\"}",
		"{\"entrypoint\":[\"\"]}",
		"{\"entrypoint\":[1]}",
		"{\"volumes\":{}}",
		"{\"volumes\":[1]}",
		"{\"volumes\":[{}]}",
		"{\"volumes\":[{\"volume\":\"cache\"}]}",
		"{\"volumes\":[{\"path\":\"/cache\"}]}",
		"{\"volumes\":[{\"volume\":\"../x\",\"path\":\"/cache\"}]}",
		"{\"volumes\":[{\"volume\":\"c\",\"path\":\"cache\"}]}",
		"{\"volumes\":[{\"volume\":\"c\",\"path\":\"/\"}]}",
		"{\"volumes\":[{\"volume\":\"c\",\"path\":\"//./\"}]}",
		"{\"volumes\":[{\"volume\":\"c\",\"path\":\"/a/../b\"}]}",
		"{\"volumes\":[{\"volume\":\"c\",\"path\":\"/a\",\"read_only\":1}]}",
		"{\"volumes\":[{\"volume\":\"c\",\"path\":\"/a\",\"mode\":1}]}",
		"{\"mounts\":[{\"source\":\"/a\"}]}",
		"{\"mounts\":[{\"source\":\"a\",\"path\":\"/a\"}]}",
		"{\"mounts\":[{\"source\":\"/a/../b\",\"path\":\"/a\"}]}",
		"{\"mounts\":[{\"source\":\"/a\",\"path\":\"/\"}]}",
		"{\"mounts\":[{\"source\":\"/a\",\"path\":\"/a\",\"uid\":-1}]}",
		"{\"mounts\":[{\"source\":\"/a\",\"path\":\"/a\",\"uid\":4294967295}]}",
		"{\"mounts\":[{\"source\":\"/a\",\"path\":\"/a\",\"gid\":\"0\"}]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		_cleanup_json_ json_t *value = json_loads(bad[i], 0, NULL);
		struct err err = ERR_INIT;
		struct box_body body;

		assert_non_null(value);
		if (box_body_read(value, &body, &err) == 0)
			fail_msg("accepted: %s", bad[i]);
		box_body_done(&body);
		assert_int_equal(err.kind, ERR_INVALID);
		assert_true(*err.message != '\0');
	}
}

static void test_input_volumes_are_bounded(void **state)
{
	_cleanup_json_ json_t *list = json_array();
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned i = 0; i < 32; i++)
		json_array_append_new(
			list, json_pack("{s:s,s:s}", "volume", "cache", "path", "/cache"));
	assert_int_equal(input_volumes(list, NULL), 0);
	json_array_append_new(list, json_pack("{s:s,s:s}", "volume", "cache", "path", "/cache"));
	assert_int_equal(input_volumes(list, &err), -1);
	assert_int_equal(input_volumes(NULL, NULL), 0);
	/* Which one is wrong is told. */
	json_array_remove(list, 0);
	json_object_set_new(json_array_get(list, 6), "path", json_string("/"));
	assert_int_equal(input_volumes(list, &err), -1);
	assert_non_null(strstr(err.message, "entry 7"));
}

static int change_of(const char *text, struct box_change *ret, json_t **ret_value)
{
	json_decref(*ret_value);
	*ret_value = json_loads(text, 0, NULL);
	return box_change_read(*ret_value, ret, NULL);
}

static void test_input_box_change_leaves_what_is_not_named(void **state)
{
	_cleanup_json_ json_t *value = NULL;
	struct box_change change;

	(void)state;
	assert_int_equal(change_of("{\"name\":\"bob\"}", &change, &value), 0);
	assert_string_equal(change.name, "bob");
	assert_false(change.has_limits);
	assert_false(change.has_on_limit);
	assert_int_equal(change_of("{\"disk\":\"1G\",\"pids\":0}", &change, &value), 0);
	assert_null(change.name);
	assert_true(change.has_limits);
	assert_int_equal(change.limits.disk_bytes, 1 << 30);
	assert_int_equal(change.limits.pids, 0);
	assert_true(change.limits.memory_bytes == BOX_LIMIT_DEFAULT);
	assert_int_equal(change_of("{\"on_limit\":\"stop\"}", &change, &value), 0);
	assert_true(change.has_on_limit);
	assert_int_equal(change.on_limit, ON_LIMIT_STOP);
	assert_false(change.has_limits);
	assert_int_equal(change_of("{}", &change, &value), -1);
	assert_int_equal(change_of("{\"name\":null}", &change, &value), -1);
	assert_int_equal(change_of("{\"name\":\"bob\",\"disk\":\"1K\"}", &change, &value), -1);
	assert_int_equal(change_of("{\"name\":\"bob\",\"image\":\"x\"}", &change, &value), -1);
	assert_int_equal(change_of("{\"name\":\"bob\",\"on_limit\":\"\"}", &change, &value), -1);
}

static void test_input_cache_keys_are_plain_words(void **state)
{
	static const char *const bad[] = { "", "A", "a b", "a/b", "a\"b" };
	char longest[130] = "";

	(void)state;
	assert_int_equal(input_cache_key("sha256:00ff", NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(input_cache_key(bad[i], NULL), -1);
	memset(longest, 'a', 129);
	assert_int_equal(input_cache_key(longest, NULL), -1);
	longest[128] = '\0';
	assert_int_equal(input_cache_key(longest, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_input_paths_are_absolute_without_dotdot),
		cmocka_unit_test(test_input_modes_are_octal),
		cmocka_unit_test(test_input_signals_by_name_or_number),
		cmocka_unit_test(test_input_figures_are_numbers_or_text),
		cmocka_unit_test(test_input_exec_body_is_read_whole),
		cmocka_unit_test(test_input_exec_body_refuses_nonsense),
		cmocka_unit_test(test_input_argv_is_bounded),
		cmocka_unit_test(test_input_box_body_is_read_whole),
		cmocka_unit_test(test_input_box_body_may_be_empty_or_null),
		cmocka_unit_test(test_input_box_body_refuses_nonsense),
		cmocka_unit_test(test_input_volumes_are_bounded),
		cmocka_unit_test(test_input_box_change_leaves_what_is_not_named),
		cmocka_unit_test(test_input_cache_keys_are_plain_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
