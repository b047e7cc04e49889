/* layers.c - what layers there are, who has them, how large they are
 *
 * The table holds every layer of a listed image with the number of images that have it: it tells what an image has
 * for itself, and which layers go with an image. While a job runs no layer goes: the job may just have found that it
 * is there already. Such layers wait until the last job is over.
 *
 * Sizes lie beside a layer in layer.json. A saved layer has none at first, because a walk through it would take longer
 * than the saving: a helper measures it afterwards, one layer at a time. */
#include "image/image_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/pool.h"
#include <fcntl.h>
#include <sys/socket.h>

enum {
	LAYER_ID_MAX = 128,
	LAYER_JSON_MAX = 4096,
};

struct measuring {
	struct images *images;
	struct helper *helper;
	char *path; /* of the layer */
	struct measured {
		uint64_t bytes, files;
	} result;
	bool finished;
};

static void measure_next(struct images *images);

bool layer_id_is_valid(const char *id)
{
	size_t len = strnlen(id, LAYER_ID_MAX + 1);

	return len && len <= LAYER_ID_MAX && id[0] != '.' &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-") ==
		       len;
}

const char *layer_short(const struct images *images, const char *path)
{
	size_t len = strlen(images->layers_path);

	return !strncmp(path, images->layers_path, len) && path[len] == '/' ? path + len + 1 : path;
}

/* ---- sizes ------------------------------------------------------------------------------------------ */

bool layer_read_size(const struct images *images, const char *id, uint64_t *bytes, uint64_t *files)
{
	_cleanup_free_ char *path = xasprintf("%s/%s/layer.json", images->layers_path, id);
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *json = NULL;
	json_int_t size, count;
	size_t len;

	if (file_read(AT_FDCWD, path, LAYER_JSON_MAX, &text, &len, NULL) < 0)
		return false;
	json = json_parse(text, len, NULL);
	if (!json || json_unpack(json, "{s:I, s:I}", "size_bytes", &size, "files", &count) < 0 ||
		size < 0 || count < 0)
		return false;
	*bytes = (uint64_t)size;
	*files = (uint64_t)count;
	return true;
}

int layer_write_size(const char *layer_dir, uint64_t bytes, uint64_t files, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/layer.json", layer_dir);
	_cleanup_json_ json_t *json = json_pack(
		"{s:I, s:I}", "size_bytes", (json_int_t)bytes, "files", (json_int_t)files);
	_cleanup_free_ char *text = json_text(json);

	return file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, err);
}

static int measure_run(int sock, void *arg)
{
	struct measuring *measuring = arg;
	struct measured *result = &measuring->result;
	_cleanup_free_ char *layer_dir = xstrdup(measuring->path);
	struct err err = ERR_INIT;

	*strrchr(layer_dir, '/') = '\0';
	if (tree_measure(AT_FDCWD, measuring->path, &result->bytes, &result->files, &err) < 0 ||
		layer_write_size(layer_dir, result->bytes, result->files, &err) < 0) {
		log_warn("cannot measure a layer", kv_str("path", measuring->path), kv_err(&err));
		return 1;
	}
	return send(sock, result, sizeof *result, MSG_NOSIGNAL) < 0;
}

static void measure_message(const void *data, size_t len, void *arg)
{
	struct measuring *measuring = arg;

	if (len != sizeof measuring->result)
		return;
	memcpy(&measuring->result, data, len);
	measuring->finished = true;
}

static void measuring_free(struct measuring *measuring)
{
	measuring->images->measuring = NULL;
	helper_free(measuring->helper);
	free(measuring->path);
	free(measuring);
}

static void measure_exited(int code, void *arg)
{
	struct measuring *measuring = arg;
	struct images *images = measuring->images;
	struct layer *layer = layers_find(images, measuring->path);

	(void)code;
	measuring->helper = NULL;
	if (layer) {
		layer->state = measuring->finished ? LAYER_MEASURED : LAYER_FAILED;
		layer->size_bytes = measuring->result.bytes;
		layer->files = measuring->result.files;
	}
	measuring_free(measuring);
	measure_next(images);
}

static void measure_start(struct images *images, struct layer *layer)
{
	static const struct helper_ops ops = { .run = measure_run,
		.on_message = measure_message,
		.on_exit = measure_exited,
		.light = true };
	struct measuring *measuring = xnew(struct measuring);
	struct err err = ERR_INIT;

	measuring->images = images;
	measuring->path = xstrdup(layer->path);
	images->measuring = measuring;
	if (helper_start(images->loop, &ops, measuring, NULL, 0, &measuring->helper, &err) < 0) {
		log_warn("cannot measure a layer now", kv_str("path", layer->path), kv_err(&err));
		layer->state = LAYER_FAILED;
		measuring_free(measuring);
	}
}

static void measure_next(struct images *images)
{
	for (size_t i = 0; i < images->layer_count && !images->measuring; i++)
		if (images->layers[i]->state == LAYER_WANTED)
			measure_start(images, images->layers[i]);
}

void layers_know(struct images *images, struct layer *layer)
{
	if (layer->state != LAYER_UNREAD)
		return;
	if (layer->ours && layer_read_size(images, layer->id, &layer->size_bytes, &layer->files))
		layer->state = LAYER_MEASURED;
	else
		layer->state = layer->ours ? LAYER_WANTED : LAYER_FAILED;
	measure_next(images);
}

/* ---- the table --------------------------------------------------------------------------------------- */

/* Where path is, or would be. */
static size_t position(const struct images *images, const char *path, bool *found)
{
	size_t low = 0, high = images->layer_count;

	*found = false;
	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strcmp(images->layers[middle]->path, path);

		if (order == 0) {
			*found = true;
			return middle;
		}
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct layer *layers_find(const struct images *images, const char *path)
{
	bool found;
	size_t at = position(images, path, &found);

	return found ? images->layers[at] : NULL;
}

/* A folder of a shared image is called as that image is. */
static char *id_of(const struct images *images, const char *path, bool *ret_ours)
{
	const char *name = layer_short(images, path), *end = strrchr(path, '/'), *start = end;

	*ret_ours = name != path;
	if (*ret_ours)
		return xstrndup(name, strcspn(name, "/"));
	while (start && start > path && start[-1] != '/')
		start--;
	return start ? xstrndup(start, (size_t)(end - start)) : xstrdup(path);
}

static struct layer *insert(struct images *images, const char *path, size_t at)
{
	struct layer *layer = xnew(struct layer);

	layer->path = xstrdup(path);
	layer->id = id_of(images, path, &layer->ours);
	xgrow(images->layers, images->layer_count + 1);
	memmove(images->layers + at + 1, images->layers + at,
		(images->layer_count - at) * sizeof *images->layers);
	images->layers[at] = layer;
	images->layer_count++;
	return layer;
}

static void layer_free(struct layer *layer)
{
	free(layer->path);
	free(layer->id);
	free(layer);
}

void layers_add(struct images *images, const struct image *image)
{
	for (size_t i = 0; image->layers[i]; i++) {
		bool found;
		size_t at = position(images, image->layers[i], &found);
		struct layer *layer =
			found ? images->layers[at] : insert(images, image->layers[i], at);

		layer->images++;
		/* The one layer of a shared image was measured when that was made. */
		if (!layer->ours && entry_of(image)->shared && !image->layers[1]) {
			layer->size_bytes = image->size_bytes;
			layer->files = image->files;
			layer->state = LAYER_MEASURED;
		}
	}
}

static void discard(struct images *images, const char *id)
{
	struct err err = ERR_INIT;

	if (pool_disk_discard(images->pool, "layers", id, &err) < 0)
		log_warn("cannot remove a layer", kv_str("layer", id), kv_err(&err));
}

void layers_drop(struct images *images, const struct image *image, bool discard_too)
{
	for (size_t i = 0; image->layers[i]; i++) {
		bool found;
		size_t at = position(images, image->layers[i], &found);
		struct layer *layer = found ? images->layers[at] : NULL;

		if (!layer || --layer->images)
			continue;
		memmove(images->layers + at, images->layers + at + 1,
			(--images->layer_count - at) * sizeof *images->layers);
		if (layer->ours && discard_too && images->jobs)
			strv_add(&images->unused, layer->id);
		else if (layer->ours && discard_too)
			discard(images, layer->id);
		layer_free(layer);
	}
}

bool layers_have(const struct images *images, const char *id)
{
	_cleanup_free_ char *files = xasprintf("%s/%s/files", images->layers_path, id);
	_cleanup_free_ char *upper = xasprintf("%s/%s/upper", images->layers_path, id);

	return layers_find(images, files) || layers_find(images, upper);
}

void layers_settle(struct images *images)
{
	_cleanup_strv_ char **unused = steal_ptr(&images->unused);

	for (size_t i = 0; unused && unused[i]; i++)
		if (!layers_have(images, unused[i]))
			discard(images, unused[i]);
}

void layers_sweep(struct images *images, const char *work_id)
{
	_cleanup_strv_ char **names = folder_list(images->layers_path);

	for (size_t i = 0; names && names[i]; i++)
		if (names[i][0] == '.' && strstr(names[i], work_id))
			discard(images, names[i]);
}

void layers_free(struct images *images)
{
	if (images->measuring)
		measuring_free(images->measuring);
	for (size_t i = 0; i < images->layer_count; i++)
		layer_free(images->layers[i]);
	free(images->layers);
	strv_free(images->unused);
}
