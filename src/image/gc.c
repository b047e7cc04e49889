/* gc.c - removes what nobody needs any more
 *
 * Needed are our images that have a name or a user, all shared ones, and the images they were
 * built on. Layers that no needed image has are removed; so are finished downloads, which only
 * save downloading again, and disk files of images without a box, which can be made again. While
 * a job runs, layers and downloads stay, because it may rely on them. */
#include "image/image_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* Whether each image of the list is needed, and how many needed images have each layer of the
 * table. */
struct survey {
	bool *needed;
	unsigned *holders;
	uint64_t bytes;
	unsigned layers, downloads, files;
};

static void survey_done(struct survey *survey)
{
	free(survey->needed);
	free(survey->holders);
}

static size_t index_of(const struct images *images, const struct image *image)
{
	size_t i = 0;

	while (images->list[i] != image)
		i++;
	return i;
}

static void mark_images(struct images *images, struct survey *survey)
{
	survey->needed = xnewn(bool, images->count + 1);
	for (size_t i = 0; i < images->count; i++) {
		const struct image *image = images->list[i];

		if (!*image->name && !entry_of(image)->shared &&
			images_check_own(images, image, NULL) == 0 &&
			!images_count_users(images, image, NULL))
			continue;
		while (image && !survey->needed[index_of(images, image)]) {
			survey->needed[index_of(images, image)] = true;
			image = images_by_id(images, image->parent);
		}
	}
}

static size_t layer_index(const struct images *images, const struct layer *layer)
{
	size_t i = 0;

	while (images->layers[i] != layer)
		i++;
	return i;
}

static void mark_layers(struct images *images, struct survey *survey)
{
	survey->holders = xnewn(unsigned, images->layer_count + 1);
	for (size_t i = 0; i < images->count; i++)
		for (size_t k = 0; survey->needed[i] && images->list[i]->layers[k]; k++)
			survey->holders[layer_index(
				images, layers_find(images, images->list[i]->layers[k]))]++;
	for (size_t i = 0; i < images->layer_count; i++) {
		struct layer *layer = images->layers[i];

		if (survey->holders[i] || !layer->ours)
			continue;
		layers_know(images, layer);
		survey->layers++;
		survey->bytes += layer->size_bytes;
	}
}

/* ---- layers without an image ---------------------------------------------------------------- */

static void collect_layers(
	struct images *images, enum layer_kind kind, bool dry, struct survey *survey)
{
	_cleanup_strv_ char **ids = folder_list(layer_place(images, kind));

	for (size_t i = 0; ids && ids[i]; i++) {
		_cleanup_free_ char *dir = xasprintf("%s/%s", layer_place(images, kind), ids[i]);
		uint64_t bytes = 0, files;
		struct err err = ERR_INIT;

		if (layers_have(images, kind, ids[i]) ||
			text_has_prefix(ids[i], IMAGE_TRASH_PREFIX))
			continue;
		layer_read_size(dir, &bytes, &files);
		if (!dry && layer_discard(images, kind, ids[i], &err) < 0) {
			log_warn("cannot remove a layer", kv_str("layer", ids[i]), kv_err(&err));
			continue;
		}
		survey->layers++;
		survey->bytes += bytes;
	}
}

/* ---- downloads ------------------------------------------------------------------------------ */

static uint64_t size_of(int dir, const char *name)
{
	uint64_t bytes = 0, files;
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISDIR(st.st_mode))
		tree_measure(dir, name, &bytes, &files, NULL);
	return bytes + (uint64_t)st.st_blocks * 512;
}

/* Moves the downloads into one folder, which is deleted in the background: a large file takes
 * time to delete. */
static void collect_downloads(struct images *images, bool dry, struct survey *survey)
{
	const char *path = images->downloads_path;
	_cleanup_close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), trash = -1;
	_cleanup_strv_ char **names = folder_list(path);
	char name[32] = IMAGE_TRASH_PREFIX;

	random_id(name + strlen(name), 10);
	if (dir < 0 || !names || (!dry && mkdirat(dir, name, 0700) < 0))
		return;
	trash = dry ? -1 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; names[i]; i++) {
		uint64_t bytes;

		if (text_has_prefix(names[i], IMAGE_TRASH_PREFIX))
			continue;
		bytes = size_of(dir, names[i]);
		if (!dry && renameat(dir, names[i], trash, names[i]) < 0)
			continue;
		survey->downloads++;
		survey->bytes += bytes;
	}
	if (!dry)
		images_discard(images, path, name);
}

/* Disk files of images that stay but that no box uses: they are made again for the next box. */
static void collect_files(struct images *images, bool dry, struct survey *survey)
{
	for (size_t i = 0; i < images->count; i++) {
		struct image *image = images->list[i];

		if (!entry_of(image)->file_bytes || images_check_own(images, image, NULL) < 0 ||
			images_count_users(images, image, NULL) || files_are_made(images, image))
			continue;
		survey->files++;
		survey->bytes += entry_of(image)->file_bytes;
		if (!dry)
			files_drop(images, image);
	}
}

/* ---- all together --------------------------------------------------------------------------- */

static int remove_unneeded(struct images *images, const json_t *ids, struct err *err)
{
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const char *id = json_string_value(json_array_get(ids, i));

		if (images_unlist(images, images_by_id(images, id), err) < 0)
			return -1;
	}
	return 0;
}

json_t *images_gc(struct images *images, bool dry, struct err *err)
{
	/* Only a caller who may change everybody's images removes what belongs to no image. */
	bool rest = !images->jobs && !images->only_own;
	_cleanup_json_ json_t *ids = json_array();
	_cleanup_(survey_done) struct survey survey = { 0 };

	images_refresh(images);
	mark_images(images, &survey);
	mark_layers(images, &survey);
	for (size_t i = 0; i < images->count; i++)
		if (!survey.needed[i])
			json_array_append_new(ids, json_string(images->list[i]->id));
	for (size_t kind = 0; kind < LAYER_KIND_COUNT && rest; kind++)
		collect_layers(images, (enum layer_kind)kind, dry, &survey);
	collect_files(images, dry, &survey);
	if (!dry && remove_unneeded(images, ids, err) < 0)
		return NULL;
	if (rest)
		collect_downloads(images, dry, &survey);
	return json_pack("{s:O, s:i, s:i, s:i, s:I}", "images", ids, "layers", (int)survey.layers,
		"downloads", (int)survey.downloads, "files", (int)survey.files, "bytes",
		(json_int_t)survey.bytes);
}
