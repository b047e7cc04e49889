/* keys.c - keys of SSH logins; the rules are those of auth/keyring.h */
#include "api/api_internal.h"
#include "auth/keyring.h"
#include "base/clock.h"
#include "base/text.h"

#define EXPIRY_MAX_MS (3650ull * 86400000)

void api_keys_list(struct call *call)
{
	struct err err = ERR_INIT;
	json_t *list = auth_key_list(call->api->auth, &err);

	if (!list)
		return call_error(call, &err);
	call_json(call, 200, json_pack("{s:o}", "keys", list));
}

static int read_restricted(json_t *names, unsigned *ret, struct err *err)
{
	json_t *name;
	size_t i;

	json_array_foreach (names, i, name) {
		unsigned bit = key_restriction_from_name(json_string_value(name));

		if (!bit) {
			err_set(err, ERR_INVALID, "'restricted' does not know '%.40s'",
				json_string_value(name));
			return err_hint(
				err, "pty, port-forwarding, agent-forwarding, X11-forwarding");
		}
		*ret |= bit;
	}
	return 0;
}

static int read_expiry(const char *at, const char *ttl, int64_t *ret_us, struct err *err)
{
	uint64_t ms = 0, us = 0;

	if (at && ttl)
		return err_set(err, ERR_INVALID, "give 'expires_at' or 'ttl', not both");
	if (ttl && parse_duration("ttl", ttl, 1000, EXPIRY_MAX_MS, &ms, err) < 0)
		return -1;
	if (at && (!strchr(at, 'T') || parse_moment("expires_at", at, &us, NULL) < 0)) {
		err_set(err, ERR_INVALID, "expires_at: '%.40s' is not a time", at);
		return err_hint(err, "like 2027-01-02T03:04:05Z, or 'ttl': \"30d\"");
	}
	if (ttl)
		*ret_us = clock_wall_us() + (int64_t)ms * 1000;
	else if (at)
		*ret_us = (int64_t)MAX(us, 1);
	return 0;
}

static int read_spec(json_t *body, struct key_spec *ret, struct err *err)
{
	const char *expires_at = NULL, *ttl = NULL;
	json_t *restricted = NULL;
	const struct json_key keys[] = {
		{ "key", JSON_WANT_STRING, &ret->line, true },
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "owner", JSON_WANT_STRING, &ret->owner, false },
		{ "role", JSON_WANT_STRING, &ret->role, false },
		{ "box", JSON_WANT_STRING, &ret->box, false },
		{ "from", JSON_WANT_STRING, &ret->from, false },
		{ "expires_at", JSON_WANT_STRING, &expires_at, false },
		{ "ttl", JSON_WANT_STRING, &ttl, false },
		{ "restricted", JSON_WANT_STRINGS, &restricted, false },
	};

	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0)
		return -1;
	if (restricted && read_restricted(restricted, &ret->restricted, err) < 0)
		return -1;
	return read_expiry(expires_at, ttl, &ret->expires_us, err);
}

void api_key_add(struct call *call)
{
	struct key_spec spec = { 0 };
	struct err err = ERR_INIT;
	json_t *row = NULL;
	bool made = false;

	if (read_spec(call->body, &spec, &err) < 0 ||
		auth_key_add(call->api->auth, call->principal, &spec, &row, &made, &err) < 0)
		return call_error(call, &err);
	call_json(call, made ? 201 : 200, row);
}

void api_key_show(struct call *call)
{
	struct err err = ERR_INIT;
	json_t *row = NULL;

	if (auth_key_show(call->api->auth, call->params[0], &row, &err) < 0)
		return call_error(call, &err);
	call_json(call, 200, row);
}

void api_key_remove(struct call *call)
{
	struct err err = ERR_INIT;

	if (auth_key_remove(call->api->auth, call->params[0], &err) < 0)
		return call_error(call, &err);
	call_none(call);
}
