/* record.c - reads image.json
 *
 * The file of an older home names no layers: its layer is `rootfs` beside it. Layers are
 * "ID/files" or "ID/upper" in the folders of layers.c, or, for the lowest ones of an image saved
 * on top of a shared one, folders by their absolute path. */
#include "image/image_internal.h"
#include "base/file.h"
#include "pool/pool.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { IMAGE_JSON_MAX = 1024 * 1024 };

bool image_id_is_valid(const char *id)
{
	return strlen(id) == 10 && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == 10;
}

void image_free(struct image *image)
{
	struct image_entry *entry = entry_of(image);

	if (!image)
		return;
	free(image->id);
	free(entry->given);
	free(image->origin);
	free(image->parent);
	free(image->digest);
	free(image->cache_key);
	free(image->owner);
	strv_free(image->layers);
	json_decref(image->packages);
	json_decref(image->config);
	free(entry);
}
DEFINE_CLEANUP(image_free, struct image)

/* The folder of a layer in image.json; NULL for a text that no image of ours has. Yours. */
static char *resolve_layer(const struct images *images, const char *text, bool shared)
{
	if (*text == '/')
		return strstr(text, "/../") ? NULL : xstrdup(text);
	return shared ? NULL : layer_resolve(images, text);
}

static int read_layers(const struct images *images, json_t *list, struct image *image, bool shared,
	struct err *err)
{
	if (!json_is_array(list) || !json_array_size(list) ||
		json_array_size(list) > IMAGE_LAYERS_MAX)
		return err_set(err, ERR_INVALID, "'layers' is not a list of 1 to %d folders",
			IMAGE_LAYERS_MAX);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i));
		_cleanup_free_ char *path = text ? resolve_layer(images, text, shared) : NULL;

		if (!path)
			return err_set(
				err, ERR_INVALID, "layer %zu is not a folder of this home", i);
		strv_add(&image->layers, path);
	}
	return 0;
}

static bool is_disk_of_box(const char *layer)
{
	const char *last = strrchr(layer, '/');

	return last && !strcmp(last, "/upper");
}

/* Without a value in the file, the lowest layers count that are no disk of a box. */
static void count_host_layers(struct image *image, json_int_t said)
{
	size_t count = strv_len((const char *const *)image->layers);

	if (said >= 0) {
		image->host_layers = MIN((size_t)said, count);
		return;
	}
	while (image->host_layers < count &&
		!is_disk_of_box(image->layers[count - 1 - image->host_layers]))
		image->host_layers++;
}

static int check_layers(const struct image *image, struct err *err)
{
	struct stat st;

	for (size_t i = 0; image->layers[i]; i++)
		if (stat(image->layers[i], &st) < 0 || !S_ISDIR(st.st_mode))
			return err_set(
				err, ERR_NOT_FOUND, "its layer '%s' is missing", image->layers[i]);
	return 0;
}

static int parse(const struct images *images, json_t *json, const char *folder_path, bool shared,
	struct image *image, struct err *err)
{
	const char *id, *name, *origin, *parent = "", *digest = "", *cache_key = "";
	/* also the owner of images made before there were owners */
	const char *owner = IMAGE_OWNER_SHARED;
	json_t *packages, *config = NULL, *layers = NULL;
	json_int_t created, size, files, host_layers = -1;
	json_error_t why;

	if (json_unpack_ex(json, &why, 0,
		    "{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s?s, s?s, s?s, s?o, s?o, s?I, s?s}", "id",
		    &id, "name", &name, "origin", &origin, "created_us", &created, "size", &size,
		    "files", &files, "packages", &packages, "parent", &parent, "digest", &digest,
		    "cache_key", &cache_key, "config", &config, "layers", &layers, "host_layers",
		    &host_layers, "owner", &owner) < 0)
		return err_set(err, ERR_INVALID, "%s", why.text);
	if (!image_id_is_valid(id) || !json_is_array(packages) || size < 0 || files < 0 ||
		(*name && image_name_check(name, NULL) < 0) ||
		(*parent && !image_id_is_valid(parent)))
		return err_set(err, ERR_INVALID, "it does not describe an image");
	if (config && image_config_check(config, err) < 0)
		return -1;
	image->id = xstrdup(id);
	entry_of(image)->given = image_name_normal(name);
	image->name = entry_of(image)->given;
	image->origin = xstrdup(origin);
	image->parent = xstrdup(parent);
	image->digest = xstrdup(digest);
	image->cache_key = xstrdup(cache_key);
	image->owner = xstrdup(owner);
	image->created_us = created;
	image->size_bytes = (uint64_t)size;
	image->files = (uint64_t)files;
	image->packages = json_incref(packages);
	image->config = config ? json_incref(config) : json_object();
	if (!layers)
		strv_add(&image->layers, folder_path);
	else if (read_layers(images, layers, image, shared, err) < 0)
		return -1;
	count_host_layers(image, host_layers);
	return 0;
}

int record_read(const struct images *images, const char *dir, const char *folder, const char *id,
	bool shared, struct image **ret, struct err *err)
{
	_cleanup_(image_freep) struct image *image = &xnew(struct image_entry)->image;
	_cleanup_free_ char *path = xasprintf("%s/%s/image.json", dir, folder), *text = NULL;
	_cleanup_free_ char *rootfs = xasprintf("%s/%s/rootfs", dir, id);
	_cleanup_json_ json_t *json = NULL;
	size_t len;

	entry_of(image)->shared = shared;
	if (file_read(AT_FDCWD, path, IMAGE_JSON_MAX, &text, &len, err) < 0)
		return -1;
	json = json_parse(text, len, err);
	if (!json || parse(images, json, rootfs, shared, image, err) < 0)
		return err_wrap(err, "'%s'", path);
	if (strcmp(id, image->id))
		return err_set(err, ERR_INVALID, "'%s' describes another image", path);
	if (check_layers(image, err) < 0)
		return err_wrap(err, "image '%s'", id);
	*ret = steal_ptr(&image);
	return 0;
}
