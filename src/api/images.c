/* images.c - images: list, show, name, export, remove, tidy up; image_jobs.c and image_import.c
 * make them */
#include "api/api_internal.h"
#include "image/image.h"

static const struct image *call_image(struct call *call)
{
	struct err err = ERR_INIT;
	const struct image *image = images_find(yard_get_images(call->yard), call->params[0], &err);

	if (!image)
		call_error(call, &err);
	return image;
}

/* ---- looking -------------------------------------------------------------------------------- */

static json_t *list_cached(struct images *images, const char *cache_key)
{
	const struct image *image = images_find_cached(images, cache_key);
	json_t *list = json_array();

	if (image)
		json_array_append_new(list, image_json(images, image));
	return list;
}

void api_images_list(struct call *call)
{
	struct images *images = yard_get_images(call->yard);
	const char *cache_key = call_query(call, "cache_key");
	struct err err = ERR_INIT;
	bool all = false;

	if (input_query_bool(call, "all", &all, &err) < 0 ||
		(cache_key && input_cache_key(cache_key, &err) < 0))
		return call_error(call, &err);
	call_json(call, 200,
		json_pack("{s:o}", "images",
			cache_key ? list_cached(images, cache_key) : images_json(images, all)));
}

void api_image_show(struct call *call)
{
	const struct image *image = call_image(call);

	if (image)
		call_json(call, 200, image_json(yard_get_images(call->yard), image));
}

void api_image_export(struct call *call)
{
	const char *format_name = call_query(call, "format");
	enum image_format format = IMAGE_FORMAT_OCI;
	struct err err = ERR_INIT;
	struct pump *pump;

	if (format_name && image_format_from_name(format_name, &format, &err) < 0)
		return call_error(call, &err);
	pump = pump_new(call, "application/x-tar");
	pump_started(pump,
		image_export_start(
			call->yard, call->params[0], format, &pump_ops, pump, &pump->stream, &err),
		&err);
}

/* ---- changing ------------------------------------------------------------------------------- */

void api_image_tag(struct call *call)
{
	struct images *images = yard_get_images(call->yard);
	const char *name = NULL;
	const struct json_key keys[] = { { "name", JSON_WANT_STRING, &name, true } };
	const struct image *image;
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		image_name_check(name, &err) < 0)
		return call_error(call, &err);
	image = call_image(call);
	if (!image)
		return;
	if (images_tag(images, image->id, name, &err) < 0)
		return call_error(call, &err);
	image = images_find(images, name, &err);
	if (!image)
		return call_error(call, &err);
	call_json(call, 200, image_json(images, image));
}

/* One of several names goes alone, as with Docker. */
static void untag(struct call *call, const struct image *image)
{
	struct err err = ERR_INIT;

	if (images_untag(yard_get_images(call->yard), image, call->params[0], &err) < 0)
		return call_error(call, &err);
	yard_event(call->yard, "image.untagged", NULL,
		json_pack("{s:s,s:s}", "id", image->id, "name", call->params[0]));
	call_none(call);
}

static void tell_removed(struct yard *yard, const char *id, const char *name)
{
	yard_event(yard, "image.removed", NULL, json_pack("{s:s,s:s}", "id", id, "name", name));
}

void api_image_remove(struct call *call)
{
	const struct image *image = call_image(call);
	struct err err = ERR_INIT;

	if (!image)
		return;
	if (images_can_untag(yard_get_images(call->yard), image, call->params[0]))
		return untag(call, image);
	if (images_remove(yard_get_images(call->yard), image->id, &err) < 0)
		return call_error(call, &err);
	tell_removed(call->yard, image->id, image->name); /* still valid here, see image.h */
	call_none(call);
}

void api_images_gc(struct call *call)
{
	bool dry = false;
	const struct json_key keys[] = { { "dry", JSON_WANT_BOOL, &dry, false } };
	struct err err = ERR_INIT;
	json_t *result, *id;
	size_t i;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0)
		return call_error(call, &err);
	result = images_gc(yard_get_images(call->yard), dry, &err);
	if (!result)
		return call_error(call, &err);
	if (!dry)
		json_array_foreach (json_object_get(result, "images"), i, id)
			tell_removed(call->yard, json_string_value(id), "");
	call_json(call, 200, result);
}
