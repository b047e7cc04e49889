/* images.c - images: list, build with progress, remove
 *
 * A build belongs to the client that asked for it: when it goes away the build is cancelled, and nothing of
 * it stays. */
#include "api/api_internal.h"
#include "base/strv.h"
#include "base/text.h"
#include "image/image.h"

enum { PACKAGES_MAX = 500, PACKAGE_LEN_MAX = 128 };

/* ---- building ------------------------------------------------------------------------------------- */

struct build {
	struct api *api;
	struct http_request *request; /* NULL: gone, or answered */
	struct image_build *run;      /* NULL: over */
};

static void build_settle(struct build *build)
{
	if (!build->request && !build->run)
		free(build);
}

static void send_line(struct build *build, const json_t *value)
{
	struct buf *line = &build->api->scratch;

	line->len = line->head = 0;
	ndjson_add(line, value);
	http_reply_write(build->request, buf_head(line), line->len);
}

static void on_progress(
	const char *stage, unsigned done, unsigned total, const char *detail, void *arg)
{
	struct build *build = arg;
	_cleanup_json_ json_t *line = NULL;

	/* A client that does not read misses some progress; it never misses the end. */
	if (!build->request || http_reply_pending(build->request) > API_PENDING_MAX)
		return;
	line = json_pack("{s:s,s:s,s:I,s:I,s:o}", "type", "progress", "stage", stage, "done",
		(json_int_t)done, "total", (json_int_t)total, "detail",
		json_from_box(detail ? detail : ""));
	send_line(build, line);
}

static void on_done(const struct image *image, const struct err *err, void *arg)
{
	struct build *build = arg;

	build->run = NULL;
	if (image)
		yard_event(build->api->yard, "image.built", NULL,
			json_pack("{s:s,s:s}", "id", image->id, "name", image->name));
	if (build->request) {
		struct http_request *request = build->request;

		if (image) {
			_cleanup_json_ json_t *line =
				json_pack("{s:s,s:o}", "type", "done", "image", image_json(image));

			send_line(build, line);
		} else {
			struct buf *line = &build->api->scratch;

			line->len = line->head = 0;
			ndjson_error(line, err);
			http_reply_write(request, buf_head(line), line->len);
		}
		build->request = NULL;
		http_reply_end(request);
	}
	build_settle(build);
}

static void on_gone(struct http_request *request, void *arg)
{
	struct build *build = arg;

	(void)request;
	build->request = NULL;
	if (build->run)
		image_build_cancel(steal_ptr(&build->run));
	build_settle(build);
}

static int check_packages(json_t *packages, struct err *err)
{
	json_t *item;
	size_t i;

	if (json_array_size(packages) > PACKAGES_MAX)
		return err_set(err, ERR_INVALID, "'packages' has more than %d names", PACKAGES_MAX);
	json_array_foreach (packages, i, item) {
		const char *name = json_string_value(item);
		size_t len = strlen(name);

		/* As Debian names them, with an optional :architecture; never an option of the builder. */
		if (len < 2 || len > PACKAGE_LEN_MAX ||
			strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789+-.:") != len ||
			name[0] == '-' || name[0] == '+' || name[0] == '.' || name[0] == ':')
			return err_set(
				err, ERR_INVALID, "'%.80s' is not the name of a package", name);
	}
	return 0;
}

static int read_spec(
	json_t *body, struct image_build_spec *ret, char ***ret_packages, struct err *err)
{
	json_t *packages = NULL, *item;
	size_t i;
	const struct json_key keys[] = {
		{ "name", JSON_WANT_STRING, &ret->name, false },
		{ "packages", JSON_WANT_STRINGS, &packages, false },
		{ "minimal", JSON_WANT_BOOL, &ret->minimal, false },
	};

	ret->name = "debian";
	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0 ||
		name_check("name", ret->name, err) < 0 || check_packages(packages, err) < 0)
		return -1;
	json_array_foreach (packages, i, item)
		strv_add(ret_packages, json_string_value(item));
	ret->packages = (const char *const *)*ret_packages;
	return 0;
}

void api_image_build(struct call *call)
{
	static const struct image_build_ops ops = { .on_progress = on_progress,
		.on_done = on_done };
	_cleanup_strv_ char **packages = NULL;
	struct image_build_spec spec = { 0 };
	struct image_build *run = NULL;
	struct err err = ERR_INIT;
	struct build *build;

	if (read_spec(call->body, &spec, &packages, &err) < 0)
		return call_error(call, &err);
	build = xnew(struct build);
	build->api = call->api;
	if (image_build_start(yard_get_images(call->yard), &spec, &ops, build, &run, &err) < 0) {
		free(build);
		return call_error(call, &err);
	}
	build->run = run;
	build->request = call->request;
	http_request_on_gone(call->request, on_gone, build);
	http_reply_begin(call->request, 200, "application/x-ndjson");
}

/* ---- the rest ------------------------------------------------------------------------------------- */

void api_images_list(struct call *call)
{
	call_json(
		call, 200, json_pack("{s:o}", "images", images_json(yard_get_images(call->yard))));
}

static const struct image *call_image(struct call *call)
{
	struct err err = ERR_INIT;
	const struct image *image = images_find(yard_get_images(call->yard), call->params[0], &err);

	if (!image)
		call_error(call, &err);
	return image;
}

void api_image_show(struct call *call)
{
	const struct image *image = call_image(call);

	if (image)
		call_json(call, 200, image_json(image));
}

struct users {
	const char *image;
	struct buf names;
	unsigned count;
};

static bool note_user(struct box *box, void *arg)
{
	struct users *users = arg;
	_cleanup_json_ json_t *value = box_json(box);
	const char *image = json_string_value(json_object_get(value, "image_id"));

	if (!image || strcmp(image, users->image))
		return true;
	if (users->count++ < 5)
		buf_addf(&users->names, "%s'%s'", users->count > 1 ? ", " : "", box_get_name(box));
	return true;
}

void api_image_remove(struct call *call)
{
	const struct image *image = call_image(call);
	struct users users = { 0 };
	struct err err = ERR_INIT;
	_cleanup_free_ char *id = NULL, *name = NULL;

	if (!image)
		return;
	id = xstrdup(image->id);
	name = xstrdup(image->name);
	users.image = id;
	box_each(call->yard, note_user, &users);
	if (users.count > 5)
		buf_addf(&users.names, " and %u more", users.count - 5);
	if (users.count) {
		err_set(&err, ERR_STATE, "image '%s' is used by %u %s: %s", name, users.count,
			users.count == 1 ? "box" : "boxes", buf_str(&users.names));
		err_hint(&err, "remove them first with box rm");
	}
	buf_done(&users.names);
	if (err.kind || images_remove(yard_get_images(call->yard), id, &err) < 0)
		return call_error(call, &err);
	yard_event(
		call->yard, "image.removed", NULL, json_pack("{s:s,s:s}", "id", id, "name", name));
	call_none(call);
}
