/* openapi.c - the OpenAPI 3.1 document, printed from the route table and the shapes in schemas.c */
#include "api/api_internal.h"
#include <ctype.h>
#include <stdio.h>

/* A schema by name, bytes, or (for a stream) lines of a schema. */
static json_t *content_json(const char *name, bool lines)
{
	json_t *schema;

	if (!strcmp(name, "bytes") || strchr(name, '/'))
		return json_pack("{s:{s:{s:s,s:s}}}",
			strchr(name, '/') ? name : "application/octet-stream", "schema", "type",
			"string", "format", "binary");
	schema = json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", name));
	return json_pack(
		"{s:{s:o}}", lines ? "application/x-ndjson" : "application/json", "schema", schema);
}

static json_t *parameter_json(const char *name, size_t len, const char *in, const char *type,
	const char *about, bool required)
{
	return json_pack("{s:s%,s:s,s:b,s:s,s:{s:s}}", "name", name, len, "in", in, "required",
		required, "description", about, "schema", "type", type);
}

static json_t *parameters_json(const struct route *route)
{
	json_t *list = json_array();

	for (const char *p = route->pattern; (p = strchr(p, '{')); p++) {
		size_t len = strcspn(p + 1, "}");

		json_array_append_new(
			list, parameter_json(p + 1, len, "path", "string", "id or name", true));
	}
	for (const struct query_key *key = route->query; key && key->name; key++)
		json_array_append_new(list, parameter_json(key->name, strlen(key->name), "query",
						    key->type, key->about, key->required));
	if (route->handler == api_boxes_create)
		json_array_append_new(
			list, parameter_json("Idempotency-Key", 15, "header", "string",
				      "the same key again gives the same box, with 200", false));
	return list;
}

/* Errors that any request can get. The codes are in the table of docs/api.md. */
static const struct refusal {
	const char *status, *name, *about;
} refusals[] = {
	{ "400", "Invalid", "the request is not understood, or asks for what cannot be" },
	{ "401", "NoToken", "the token is missing, unknown or revoked" },
	{ "403", "Forbidden", "the token's scopes do not allow it" },
	{ "404", "NotFound", "there is no such thing" },
	{ "409", "Conflict", "not in this state, or it is there already" },
	{ "429", "Limit", "a limit is reached; the message says which" },
};

static json_t *refusals_json(void)
{
	json_t *all = json_object();

	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		json_object_set_new(all, refusals[i].name,
			json_pack("{s:s,s:o}", "description", refusals[i].about, "content",
				content_json("Error", false)));
	return all;
}

static bool can_be(const struct route *route, const struct refusal *refusal)
{
	bool about_thing = strchr(route->pattern, '{') != NULL;

	if (!strcmp(refusal->status, "404"))
		return about_thing;
	if (!strcmp(refusal->status, "401") || !strcmp(refusal->status, "403"))
		return route->scope;
	if (!strcmp(refusal->status, "409") || !strcmp(refusal->status, "429"))
		return strcmp(route->method, "GET") != 0 && route->scope;
	return true;
}

static json_t *answers_json(const struct route *route)
{
	bool lines =
		(route->flags & ROUTE_STREAM) && route->answer && strstr(route->answer, "Line");
	json_t *good = json_pack("{s:s}", "description", route->summary);
	json_t *bad = json_pack(
		"{s:s,s:o}", "description", "an error", "content", content_json("Error", false));
	json_t *answers;
	char status[16];

	if (route->answer)
		json_object_set_new(good, "content", content_json(route->answer, lines));
	if (route->handler == api_box_diff) /* format=tar */
		json_object_update_new(
			json_object_get(good, "content"), content_json("application/x-tar", false));
	snprintf(status, sizeof status, "%d", route->status);
	answers = json_pack("{s:o}", status, good);
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		if (can_be(route, &refusals[i]))
			json_object_set_new(answers, refusals[i].status,
				json_pack("{s:o}", "$ref",
					json_sprintf(
						"#/components/responses/%s", refusals[i].name)));
	json_object_set_new(answers, "default", bad);
	return answers;
}

/* "GET /v1/boxes/{box}/files/stat" becomes getBoxFilesStat, without a second list of names. */
static json_t *operation_id(const struct route *route)
{
	char id[96];
	size_t len = 0;
	bool upper = true;

	for (const char *p = route->method; *p; p++)
		id[len++] = (char)tolower((unsigned char)*p);
	for (const char *p = route->pattern + 3; *p && len < sizeof id - 1; p++) {
		if (!isalnum((unsigned char)*p)) {
			upper = true;
			continue;
		}
		id[len++] = upper ? (char)toupper((unsigned char)*p) : *p;
		upper = false;
	}
	return json_stringn(id, len);
}

static json_t *operation_json(const struct route *route)
{
	json_t *operation = json_object();

	json_object_set_new(operation, "operationId", operation_id(route));
	json_object_set_new(operation, "summary", json_string(route->summary));
	json_object_set_new(operation, "x-scope",
		json_string(route->scope ? scopes_text(route->scope) : "none"));
	if (route->flags & ROUTE_WEBSOCKET)
		json_object_set_new(operation, "x-websocket", json_true());
	json_object_set_new(operation, "parameters", parameters_json(route));
	if (route->request)
		json_object_set_new(operation, "requestBody",
			json_pack("{s:o}", "content", content_json(route->request, false)));
	json_object_set_new(operation, "responses", answers_json(route));
	if (!route->scope)
		json_object_set_new(operation, "security", json_array());
	return operation;
}

static json_t *paths_json(void)
{
	size_t count;
	const struct route *routes = route_table(&count);
	json_t *paths = json_object();

	for (size_t i = 0; i < count; i++) {
		json_t *path = json_object_get(paths, routes[i].pattern);
		char method[16];
		size_t k = 0;

		if (!path) {
			path = json_object();
			json_object_set_new(paths, routes[i].pattern, path);
		}
		for (; routes[i].method[k]; k++)
			method[k] = (char)tolower((unsigned char)routes[i].method[k]);
		method[k] = '\0';
		json_object_set_new(path, method, operation_json(&routes[i]));
	}
	return paths;
}

json_t *api_openapi(void)
{
	json_t *token = json_pack("{s:s,s:s,s:s}", "type", "http", "scheme", "bearer",
		"description", "for the TCP port; none is needed on the unix socket");

	json_t *info = json_pack("{s:s,s:s,s:s,s:{s:s,s:s}}", "title", "Boxyard", "version", "1",
		"description", "Boxes: isolated Linux machines that start in milliseconds",
		"license", "name", "Apache 2.0", "url",
		"https://www.apache.org/licenses/LICENSE-2.0");
	json_t *servers = json_pack("[{s:s,s:s}]", "url", "http://127.0.0.1:30001", "description",
		"the TCP port as shipped ('listen' in boxyard.conf); the same over the unix socket "
		"/run/boxyard/box.sock");

	return json_pack("{s:s,s:o,s:o,s:[{s:[]}],s:o,s:{s:o,s:o,s:{s:o}}}", "openapi", "3.1.0",
		"info", info, "servers", servers, "security", "token", "paths", paths_json(),
		"components", "schemas", schemas_json(), "responses", refusals_json(),
		"securitySchemes", "token", token);
}
