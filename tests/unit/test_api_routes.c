/* test_api_routes.c - the route table, the door's checks and the OpenAPI document printed from the
 * table */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "api/api_internal.h"
#include <ctype.h>

static char params[API_PARAMS][API_PARAM_MAX];
static char allow[64];

static void test_routes_find_their_handlers(void **state)
{
	const struct route *route;

	(void)state;
	route = route_match("GET", "/v1/boxes/ada/execs/x1/logs", params, allow);
	assert_non_null(route);
	assert_ptr_equal(route->handler, api_exec_logs);
	assert_string_equal(params[0], "ada");
	assert_string_equal(params[1], "x1");
	assert_ptr_equal(
		route_match("POST", "/v1/boxes", params, allow)->handler, api_boxes_create);
	assert_ptr_equal(route_match("HEAD", "/v1/health", params, allow)->handler, api_health);
	route = route_match("DELETE", "/v1/boxes/ada/snapshots/k3v9", params, allow);
	assert_non_null(route);
	assert_ptr_equal(route->handler, api_snapshot_remove);
	assert_string_equal(params[1], "k3v9");
	assert_ptr_equal(
		route_match("POST", "/v1/boxes/ada/fork", params, allow)->handler, api_box_fork);
	assert_ptr_equal(route_match("GET", "/v1/boxes/ada/timeline", params, allow)->handler,
		api_box_timeline);
	/* A fixed part is not taken for a name. */
	assert_ptr_equal(route_match("GET", "/v1/boxes/ada/files/stat", params, allow)->handler,
		api_file_stat);
}

static void test_routes_refuse_what_is_not_there(void **state)
{
	static const char *const paths[] = { "", "/", "/v1", "/v1/", "/v1/boxes/",
		"/v1/boxes//exec", "/v1/boxes/a/b/c", "/v2/boxes", "/v1/boxes/a/", "/v1/health/",
		"/v1/boxesx" };
	char path[API_PARAM_MAX + 32] = "/v1/boxes/";

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		if (route_match("GET", paths[i], params, allow))
			fail_msg("found: %s", paths[i]);
		assert_string_equal(allow, "");
	}
	memset(path + 10, 'a', API_PARAM_MAX);
	assert_null(route_match("GET", path, params, allow));
	path[10 + API_PARAM_MAX - 1] = '\0';
	assert_non_null(route_match("GET", path, params, allow));
}

static void expect_image(
	const char *method, const char *path, void (*handler)(struct call *call), const char *name)
{
	const struct route *route = route_match(method, path, params, allow);

	if (!route)
		fail_msg("not found: %s %s", method, path);
	assert_ptr_equal(route->handler, handler);
	assert_string_equal(params[0], name);
}

static void test_routes_names_of_images_hold_slashes(void **state)
{
	char path[32 + IMAGE_NAME_MAX + 2] = "/v1/images/";

	(void)state;
	expect_image("GET", "/v1/images/python:3.11", api_image_show, "python:3.11");
	expect_image("GET", "/v1/images/host:5000/a/b:tag", api_image_show, "host:5000/a/b:tag");
	expect_image("DELETE", "/v1/images/a/b", api_image_remove, "a/b");
	expect_image("GET", "/v1/images/a/b:1/export", api_image_export, "a/b:1");
	expect_image("POST", "/v1/images/a/b/tag", api_image_tag, "a/b");
	expect_image("GET", "/v1/images/a/export:latest", api_image_show, "a/export:latest");
	/* Fixed parts come first, for the method they have. */
	assert_ptr_equal(
		route_match("POST", "/v1/images/pull", params, allow)->handler, api_image_pull);
	expect_image("GET", "/v1/images/pull", api_image_show, "pull");
	assert_null(route_match("POST", "/v1/images/a/b", params, allow));
	assert_null(route_match("GET", "/v1/images/", params, allow));
	assert_null(route_match("GET", "/v1/images//a", params, allow));
	assert_null(route_match("GET", "/v1/images/a/", params, allow));
	assert_null(route_match("POST", "/v1/images//tag", params, allow));
	/* Nobody else's names do. */
	assert_null(route_match("GET", "/v1/boxes/a/b", params, allow));
	assert_null(route_match("GET", "/v1/volumes/a/b", params, allow));
	assert_null(route_match("GET", "/v1/workspaces/a/b", params, allow));
	memset(path + 11, 'a', IMAGE_NAME_MAX + 1);
	assert_null(route_match("GET", path, params, allow));
	path[11 + IMAGE_NAME_MAX] = '\0';
	assert_non_null(route_match("GET", path, params, allow));
}

static void test_routes_that_change_the_pool_are_for_admins(void **state)
{
	(void)state;
	assert_int_equal(route_match("GET", "/v1/pool", params, allow)->scope, SCOPE_READ);
	assert_int_equal(route_match("POST", "/v1/pool/grow", params, allow)->scope, SCOPE_ADMIN);
	assert_int_equal(route_match("POST", "/v1/pool/scrub", params, allow)->scope, SCOPE_ADMIN);
}

/* Questions that do not fit into a query; they change nothing. */
static bool is_question(const struct route *route)
{
	return !strcmp(route->pattern, "/v1/boxes/{box}/policy/explain") ||
	       !strcmp(route->pattern, "/v1/policy/check");
}

/* A token that may only read changes nothing. */
static void test_routes_reading_is_all_that_read_allows(void **state)
{
	size_t count;
	const struct route *routes = route_table(&count);

	(void)state;
	for (size_t i = 0; i < count; i++)
		if (routes[i].scope == SCOPE_READ && strcmp(routes[i].method, "GET") &&
			!is_question(&routes[i]))
			fail_msg("%s %s", routes[i].method, routes[i].pattern);
}

#define B "/v1/boxes/{box}"

/* Every call that is not a change, with the scope it takes; whatever is not here changes something
 * and needs more. A new one has to be thought about: what it shows, and whether a box is woken for
 * it. */
static const struct {
	const char *pattern;
	unsigned scope;
} reading[] = {
	{ "/v1/boxes", SCOPE_READ },
	{ B, SCOPE_READ },
	{ B "/timeline", SCOPE_READ },
	{ B "/stats", SCOPE_READ },
	{ B "/processes", SCOPE_READ },
	{ B "/policy", SCOPE_READ },
	{ B "/policy/explain", SCOPE_READ },
	{ B "/policy/proposal", SCOPE_READ },
	{ B "/ports", SCOPE_READ },
	{ B "/url", SCOPE_READ },
	{ B "/net", SCOPE_READ },
	{ B "/execs", SCOPE_READ },
	{ B "/execs/{exec}", SCOPE_READ },
	{ B "/diff", SCOPE_FILES | SCOPE_EXEC },
	{ B "/execs/{exec}/logs", SCOPE_FILES | SCOPE_EXEC },
	{ B "/files", SCOPE_FILES | SCOPE_EXEC },
	{ B "/files/stat", SCOPE_FILES | SCOPE_EXEC },
	{ B "/files/list", SCOPE_FILES | SCOPE_EXEC },
	{ B "/archive", SCOPE_FILES | SCOPE_EXEC },
	{ B "/exec", SCOPE_EXEC },
	{ B "/execs/{exec}/attach", SCOPE_EXEC },
	{ "/v1/compare", SCOPE_FILES | SCOPE_EXEC },
	{ "/v1/stats", SCOPE_READ },
	{ "/v1/net", SCOPE_READ },
	{ "/v1/policy/check", SCOPE_READ },
	{ "/v1/policy/presets", SCOPE_READ },
	{ "/v1/events", SCOPE_READ },
	{ "/v1/audit", SCOPE_READ },
	{ "/v1/audit/verify", SCOPE_READ },
	{ "/v1/images", SCOPE_READ },
	{ "/v1/images/{image}", SCOPE_READ },
	{ "/v1/images/{image}/export", SCOPE_FILES | SCOPE_EXEC },
	{ "/v1/pool", SCOPE_READ },
	{ "/v1/volumes", SCOPE_READ },
	{ "/v1/volumes/{volume}", SCOPE_READ },
	{ "/v1/workspaces", SCOPE_READ },
	{ "/v1/workspaces/{workspace}", SCOPE_FILES | SCOPE_EXEC },
	{ "/v1/workspaces/{workspace}/archive", SCOPE_FILES | SCOPE_EXEC },
	{ "/v1/tokens", SCOPE_ADMIN },
	{ "/v1/keys", SCOPE_READ },
	{ "/v1/keys/{key}", SCOPE_READ },
	{ "/v1/info", SCOPE_READ },
	{ "/v1/doctor", SCOPE_READ },
	{ "/v1/openapi.json", 0 },
	{ "/v1/health", 0 },
};
#undef B

static void test_routes_take_the_scope_of_what_they_show(void **state)
{
	size_t count, found = 0;
	const struct route *routes = route_table(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		bool reads = !strcmp(routes[i].method, "GET") || is_question(&routes[i]);
		size_t k = 0;

		while (k < ARRAY_LEN(reading) && strcmp(reading[k].pattern, routes[i].pattern))
			k++;
		if (reads && k == ARRAY_LEN(reading))
			fail_msg("not in the table: %s %s", routes[i].method, routes[i].pattern);
		if (reads && reading[k].scope != routes[i].scope)
			fail_msg("%s takes %u", routes[i].pattern, routes[i].scope);
		if (!reads && (routes[i].scope & (SCOPE_READ | SCOPE_FILES)))
			fail_msg("%s %s changes something", routes[i].method, routes[i].pattern);
		found += reads;
	}
	assert_int_equal(found, ARRAY_LEN(reading));
}

static void test_routes_tell_which_methods_a_path_has(void **state)
{
	(void)state;
	assert_null(route_match("PUT", "/v1/boxes", params, allow));
	assert_string_equal(allow, "POST, GET");
	/* A stream has no head alone. */
	assert_null(route_match("HEAD", "/v1/boxes/a/execs/b/logs", params, allow));
	assert_string_equal(allow, "GET");
	assert_null(route_match("get", "/v1/boxes", params, allow));
}

static void test_routes_only_two_need_no_token(void **state)
{
	size_t count, open = 0;
	const struct route *routes = route_table(&count);

	(void)state;
	for (size_t i = 0; i < count; i++)
		open += routes[i].scope == 0;
	assert_int_equal(open, 2);
	assert_int_equal(route_match("GET", "/v1/health", params, allow)->scope, 0);
	assert_int_equal(route_match("GET", "/v1/openapi.json", params, allow)->scope, 0);
	assert_int_equal(route_match("POST", "/v1/tokens", params, allow)->scope, SCOPE_ADMIN);
}

static void test_door_knows_its_own_names_only(void **state)
{
	static const char *const good[] = { "127.0.0.1:30001", "localhost:30001", "LOCALHOST:30001",
		"[::1]:30001", "10.0.0.5:30001" };
	static const char *const bad[] = { "", "127.0.0.1", "localhost", "127.0.0.1:30002",
		"evil.example:30001", "localhost.evil.example:30001", "127.0.0.1:300011",
		"::1:30001", "localhost:30001@evil", "0.0.0.0:30001" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(auth_check_host(good[i], "10.0.0.5", 30001, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (auth_check_host(bad[i], "10.0.0.5", 30001, NULL) == 0)
			fail_msg("let in: %s", bad[i]);
	assert_int_equal(auth_check_host(NULL, NULL, 30001, NULL), -1);
	assert_int_equal(auth_check_host("localhost", NULL, 80, NULL), 0);
	assert_int_equal(auth_check_host("localhos", NULL, 80, NULL), -1);
}

static void test_door_takes_pages_of_its_own_only(void **state)
{
	const char *host = "127.0.0.1:30001";

	(void)state;
	assert_int_equal(auth_check_origin(NULL, host, NULL), 0);
	assert_int_equal(auth_check_origin("http://127.0.0.1:30001", host, NULL), 0);
	assert_int_equal(auth_check_origin("https://127.0.0.1:30001", host, NULL), 0);
	assert_int_equal(auth_check_origin("http://127.0.0.1", host, NULL), -1);
	assert_int_equal(auth_check_origin("http://localhost:30001", host, NULL), -1);
	assert_int_equal(auth_check_origin("http://evil.example", host, NULL), -1);
	assert_int_equal(auth_check_origin("null", host, NULL), -1);
	assert_int_equal(auth_check_origin("", host, NULL), -1);
	assert_int_equal(auth_check_origin("file://127.0.0.1:30001", host, NULL), -1);
}

static void test_openapi_has_every_route(void **state)
{
	_cleanup_json_ json_t *doc = api_openapi();
	_cleanup_json_ json_t *ids = json_object();
	json_t *paths = json_object_get(doc, "paths");
	size_t count;
	const struct route *routes = route_table(&count);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(doc, "openapi")), "3.1.0");
	for (size_t i = 0; i < count; i++) {
		char method[16] = "";
		json_t *operation;

		for (size_t k = 0; routes[i].method[k]; k++)
			method[k] = (char)tolower((unsigned char)routes[i].method[k]);
		operation = json_object_get(json_object_get(paths, routes[i].pattern), method);
		if (!operation)
			fail_msg("missing: %s %s", routes[i].method, routes[i].pattern);
		/* Ids are unique, or generated clients lose a call. */
		assert_int_equal(
			json_object_set_new(ids,
				json_string_value(json_object_get(operation, "operationId")),
				json_true()),
			0);
		assert_int_equal(json_object_size(ids), i + 1);
	}
}

/* "#/components/schemas/Box": a kind, and a name in it. */
static bool is_there(json_t *components, const char *ref)
{
	char kind[32] = "", name[64] = "";

	return sscanf(ref, "#/components/%31[a-z]/%63s", kind, name) == 2 &&
	       json_object_get(json_object_get(components, kind), name);
}

static void check_refs(json_t *value, json_t *components)
{
	const char *key;
	json_t *item;
	size_t i;

	json_array_foreach (value, i, item)
		check_refs(item, components);
	json_object_foreach (value, key, item) {
		if (!strcmp(key, "$ref") && !is_there(components, json_string_value(item)))
			fail_msg("nothing at %s", json_string_value(item));
		check_refs(item, components);
	}
}

static void test_openapi_has_everything_it_names(void **state)
{
	_cleanup_json_ json_t *doc = api_openapi();

	(void)state;
	check_refs(doc, json_object_get(doc, "components"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_routes_find_their_handlers),
		cmocka_unit_test(test_routes_refuse_what_is_not_there),
		cmocka_unit_test(test_routes_names_of_images_hold_slashes),
		cmocka_unit_test(test_routes_that_change_the_pool_are_for_admins),
		cmocka_unit_test(test_routes_reading_is_all_that_read_allows),
		cmocka_unit_test(test_routes_take_the_scope_of_what_they_show),
		cmocka_unit_test(test_routes_tell_which_methods_a_path_has),
		cmocka_unit_test(test_routes_only_two_need_no_token),
		cmocka_unit_test(test_door_knows_its_own_names_only),
		cmocka_unit_test(test_door_takes_pages_of_its_own_only),
		cmocka_unit_test(test_openapi_has_every_route),
		cmocka_unit_test(test_openapi_has_everything_it_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
