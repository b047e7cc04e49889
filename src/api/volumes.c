/* volumes.c - named folders that outlive boxes */
#include "api/api_internal.h"
#include "base/text.h"
#include "core/disk/volume.h"

enum { SIZE_MIN = 1024 * 1024 };

void api_volumes_list(struct call *call)
{
	call_json(call, 200, json_pack("{s:o}", "volumes", volumes_json(call->yard)));
}

static void answer(struct call *call, int status, const char *name)
{
	struct err err = ERR_INIT;
	json_t *volume = volume_json(call->yard, name, &err);

	if (volume)
		call_json(call, status, volume);
	else
		call_error(call, &err);
}

void api_volume_create(struct call *call)
{
	_cleanup_json_ json_t *value = input_take(call->body, "size");
	const char *name = NULL, *owner = call->principal->asker.owner;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &name, true },
		{ "owner", JSON_WANT_STRING, &owner, false },
	};
	struct err err = ERR_INIT;
	uint64_t size = 0;

	if (input_size("size", value, SIZE_MIN, &size, &err) < 0 ||
		json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		name_check("name", name, &err) < 0 || call_check_owner(call, owner, &err) < 0 ||
		volume_create(call->yard, name, owner, size, &err) < 0)
		return call_error(call, &err);
	answer(call, 201, name);
}

void api_volume_show(struct call *call)
{
	answer(call, 200, call->params[0]);
}

void api_volume_change(struct call *call)
{
	_cleanup_json_ json_t *value = input_take(call->body, "size");
	uint64_t size = UINT64_MAX;
	struct err err = ERR_INIT;

	if (input_size("size", value, SIZE_MIN, &size, &err) < 0 ||
		json_read(call->body, NULL, 0, &err) < 0)
		return call_error(call, &err);
	if (size == UINT64_MAX)
		err_set(&err, ERR_INVALID, "'size' is missing");
	if (err.kind || volume_set_limit(call->yard, call->params[0], size, &err) < 0)
		return call_error(call, &err);
	answer(call, 200, call->params[0]);
}

void api_volume_remove(struct call *call)
{
	struct err err = ERR_INIT;

	if (volume_remove(call->yard, call->params[0], &err) < 0)
		return call_error(call, &err);
	call_none(call);
}
