/* layers.c - which layers exist, which images have them, how large they are
 *
 * The table holds every layer of a listed image with the number of images that have it: it tells
 * how much an image has for itself, and which layers are removed with an image. While a job runs
 * no layer is removed, because the job may have found it and rely on it. Such layers wait until
 * the last job has ended.
 *
 * Sizes lie beside a layer in layer.json. A saved layer has none at first, because measuring it
 * would take longer than saving it: a helper measures it afterwards, one layer at a time.
 *
 * The same helper deletes what a saved layer has besides its `upper`: the lower layers that the
 * disk it was saved from had put aside (core/disk/seed.c), and files of the driver. Without that
 * each generation would contain all before it. A disk made from the layer must still give its
 * files higher inode numbers than all of them: the file `mark`, made before anything is deleted,
 * has the highest inode number of the subvolume and stays. */
#include "image/image_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#define LAYER_MARK "mark"

enum {
	LAYER_ID_MAX = 128,
	LAYER_JSON_MAX = 4096,
};

struct measuring {
	struct images *images;
	struct helper *helper;
	char *path; /* of the layer */
	bool saved; /* a snapshot of a disk */
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

/* ---- where layers lie ----------------------------------------------------------------------- */

static const char *const leaves[] = { [LAYER_FILES] = "files", [LAYER_UPPER] = "upper" };
static_assert(ARRAY_LEN(leaves) == LAYER_KIND_COUNT, "every kind has its folder");

const char *layer_place(const struct images *images, enum layer_kind kind)
{
	return kind == LAYER_FILES ? images->files_path : images->layers_path;
}

static char *layer_path(const struct images *images, enum layer_kind kind, const char *id)
{
	return xasprintf("%s/%s/%s", layer_place(images, kind), id, leaves[kind]);
}

/* "ID/files" or "ID/upper". */
static bool parse_short(const char *text, enum layer_kind *ret_kind, char **ret_id)
{
	const char *slash = strchr(text, '/');
	_cleanup_free_ char *id = xstrndup(text, slash ? (size_t)(slash - text) : 0);

	for (size_t i = 0; slash && layer_id_is_valid(id) && i < LAYER_KIND_COUNT; i++)
		if (!strcmp(slash + 1, leaves[i])) {
			*ret_kind = (enum layer_kind)i;
			*ret_id = steal_ptr(&id);
			return true;
		}
	return false;
}

char *layer_resolve(const struct images *images, const char *text)
{
	_cleanup_free_ char *id = NULL;
	enum layer_kind kind;

	return parse_short(text, &kind, &id) ? layer_path(images, kind, id) : NULL;
}

static const char *shorten(const struct images *images, const char *path, enum layer_kind *ret)
{
	for (size_t i = 0; i < LAYER_KIND_COUNT; i++) {
		const char *place = layer_place(images, (enum layer_kind)i);
		size_t len = strlen(place);

		if (!strncmp(path, place, len) && path[len] == '/') {
			*ret = (enum layer_kind)i;
			return path + len + 1;
		}
	}
	return path;
}

const char *layer_short(const struct images *images, const char *path)
{
	enum layer_kind kind;

	return shorten(images, path, &kind);
}

static int discard_files(struct images *images, const char *id, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", images->files_path, id), *to = NULL;
	char name[32] = IMAGE_TRASH_PREFIX;

	random_id(name + strlen(name), 10);
	to = xasprintf("%s/%s", images->files_path, name);
	if (rename(path, to) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "rename '%s' to '%s'", path, to);
	images_discard(images, images->files_path, name);
	return 0;
}

int layer_discard(struct images *images, enum layer_kind kind, const char *id, struct err *err)
{
	return kind == LAYER_FILES ? discard_files(images, id, err)
				   : pool_disk_discard(images->pool, "layers", id, err);
}

/* ---- sizes ---------------------------------------------------------------------------------- */

bool layer_read_size(const char *layer_dir, uint64_t *bytes, uint64_t *files)
{
	_cleanup_free_ char *path = xasprintf("%s/layer.json", layer_dir);
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

static char *folder_of(const char *layer_path)
{
	return xstrndup(layer_path, (size_t)(strrchr(layer_path, '/') - layer_path));
}

static bool is_leftover(const char *name)
{
	return text_has_prefix(name, "below-") || !strcmp(name, "work") ||
	       !strcmp(name, "containers");
}

static int prune(const char *layer_dir, struct err *err)
{
	_cleanup_close_ int dir = open(layer_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), mark = -1;
	_cleanup_strv_ char **names = folder_list(layer_dir);
	int ret = 0;

	if (dir < 0)
		return err_sys(err, errno, "open '%s'", layer_dir);
	/* A mark that came with the disk has a lower inode number than what the box wrote; it stays
	 * until the new one exists. */
	unlinkat(dir, LAYER_MARK ".new", 0);
	mark = openat(dir, LAYER_MARK ".new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (mark < 0 || renameat(dir, LAYER_MARK ".new", dir, LAYER_MARK) < 0)
		return err_sys(err, errno, "make '" LAYER_MARK "'");
	for (size_t i = 0; names && names[i] && ret == 0; i++)
		if (is_leftover(names[i]))
			ret = tree_remove(dir, names[i], err);
	return ret;
}

static int measure_run(int sock, void *arg)
{
	struct measuring *measuring = arg;
	struct measured *result = &measuring->result;
	_cleanup_free_ char *layer_dir = folder_of(measuring->path);
	struct err err = ERR_INIT;

	/* Done first: a layer that has a size is not looked at again. */
	if (measuring->saved && prune(layer_dir, &err) < 0)
		log_warn("cannot clean up a layer", kv_str("path", layer_dir), kv_err(&err));
	err_clear(&err);
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
	measuring->saved = layer->kind == LAYER_UPPER && pool_get_kind(images->pool) != POOL_FOLDER;
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
	_cleanup_free_ char *dir = folder_of(layer->path);

	if (layer->state != LAYER_UNREAD)
		return;
	if (layer->ours && layer_read_size(dir, &layer->size_bytes, &layer->files))
		layer->state = LAYER_MEASURED;
	else
		layer->state = layer->ours ? LAYER_WANTED : LAYER_FAILED;
	measure_next(images);
}

/* ---- the table ------------------------------------------------------------------------------ */

/* The index of path in the table, or where it would be inserted. */
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

/* A folder of a shared image has the id of that image. */
static char *id_of(const struct images *images, struct layer *layer)
{
	const char *path = layer->path, *name = shorten(images, path, &layer->kind);
	const char *end = strrchr(path, '/'), *start = end;

	layer->ours = name != path;
	if (layer->ours)
		return xstrndup(name, strcspn(name, "/"));
	while (start && start > path && start[-1] != '/')
		start--;
	return start ? xstrndup(start, (size_t)(end - start)) : xstrdup(path);
}

static struct layer *insert(struct images *images, const char *path, size_t at)
{
	struct layer *layer = xnew(struct layer);

	layer->path = xstrdup(path);
	layer->id = id_of(images, layer);
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
		/* A shared image has one layer, which was measured when the image was made. */
		if (!layer->ours && entry_of(image)->shared && !image->layers[1]) {
			layer->size_bytes = image->size_bytes;
			layer->files = image->files;
			layer->state = LAYER_MEASURED;
		}
	}
}

static void discard(struct images *images, enum layer_kind kind, const char *id)
{
	struct err err = ERR_INIT;

	if (layer_discard(images, kind, id, &err) < 0)
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
			strv_add(&images->unused, layer_short(images, layer->path));
		else if (layer->ours && discard_too)
			discard(images, layer->kind, layer->id);
		layer_free(layer);
	}
}

bool layers_have(const struct images *images, enum layer_kind kind, const char *id)
{
	_cleanup_free_ char *path = layer_path(images, kind, id);

	return layers_find(images, path);
}

void layers_settle(struct images *images)
{
	_cleanup_strv_ char **unused = steal_ptr(&images->unused);

	for (size_t i = 0; unused && unused[i]; i++) {
		_cleanup_free_ char *id = NULL;
		enum layer_kind kind;

		if (parse_short(unused[i], &kind, &id) && !layers_have(images, kind, id))
			discard(images, kind, id);
	}
}

/* Removes the scratch folder of a killed job; it may be large. */
static void sweep_scratch(struct images *images, const char *work_id)
{
	_cleanup_strv_ char **names = folder_list(images->downloads_path);

	for (size_t i = 0; names && names[i]; i++) {
		_cleanup_free_ char *from = xasprintf("%s/%s", images->downloads_path, names[i]);
		_cleanup_free_ char *to = NULL;
		char trash[32] = IMAGE_TRASH_PREFIX;

		if (names[i][0] != '.' || !strstr(names[i], work_id) ||
			text_has_prefix(names[i], IMAGE_TRASH_PREFIX))
			continue;
		random_id(trash + strlen(trash), 10);
		to = xasprintf("%s/%s", images->downloads_path, trash);
		if (rename(from, to) == 0)
			images_discard(images, images->downloads_path, trash);
	}
}

void layers_sweep(struct images *images, const char *work_id)
{
	sweep_scratch(images, work_id);
	for (size_t kind = 0; kind < LAYER_KIND_COUNT; kind++) {
		const char *place = layer_place(images, (enum layer_kind)kind);
		_cleanup_strv_ char **names = folder_list(place);

		for (size_t i = 0; names && names[i]; i++)
			if (names[i][0] == '.' && strstr(names[i], work_id))
				discard(images, (enum layer_kind)kind, names[i]);
	}
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
