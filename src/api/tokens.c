/* tokens.c - tokens of the TCP listener */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/text.h"

#define EXPIRY_MAX_MS (3650ull * 86400000)

void api_tokens_list(struct call *call)
{
	struct err err = ERR_INIT;
	json_t *list = store_token_list(yard_get_store(call->yard), &err);

	if (!list)
		return call_error(call, &err);
	call_json(call, 200, json_pack("{s:o}", "tokens", list));
}

static int read_spec(json_t *body, struct token_row *ret, struct err *err)
{
	const char *expires_in = NULL;
	json_t *scopes = NULL;
	uint64_t ms = 0;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, true },
		{ "owner", JSON_WANT_STRING, &ret->owner, false },
		{ "scopes", JSON_WANT_STRINGS, &scopes, false },
		{ "expires_in", JSON_WANT_STRING, &expires_in, false },
	};

	ret->scopes = SCOPE_READ;
	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (!ret->name)
		return err_set(err, ERR_INVALID, "'name' is missing");
	if (scopes && scopes_from_names(scopes, &ret->scopes, err) < 0)
		return -1;
	if (expires_in &&
		parse_duration("expires_in", expires_in, 1000, EXPIRY_MAX_MS, &ms, err) < 0)
		return -1;
	if (ms)
		ret->expires_us = clock_wall_us() + (int64_t)ms * 1000;
	return 0;
}

void api_token_create(struct call *call)
{
	struct token_row spec = { .owner = (char *)call->principal->asker.owner };
	_cleanup_free_ char *secret = NULL;
	struct err err = ERR_INIT;
	json_t *row = NULL;

	if (read_spec(call->body, &spec, &err) < 0 ||
		store_token_create(yard_get_store(call->yard), &spec, &secret, &row, &err) < 0)
		return call_error(call, &err);
	yard_event(call->yard, "token.created", NULL,
		json_pack("{s:O,s:O,s:O,s:O}", "id", json_object_get(row, "id"), "name",
			json_object_get(row, "name"), "owner", json_object_get(row, "owner"),
			"scopes", json_object_get(row, "scopes")));
	json_object_set_new(row, "token", json_string(secret));
	explicit_bzero(secret, strlen(secret));
	http_reply_header(call->request, "Cache-Control", "no-store");
	call_json(call, 201, row);
}

void api_token_revoke(struct call *call)
{
	struct err err = ERR_INIT;

	if (store_token_revoke(yard_get_store(call->yard), call->params[0], &err) < 0)
		return call_error(call, &err);
	yard_event(call->yard, "token.revoked", NULL, json_pack("{s:s}", "token", call->params[0]));
	call_none(call);
}
