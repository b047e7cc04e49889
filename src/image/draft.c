/* draft.c - unfinished images and layers; all of it runs in the helper that makes them
 *
 * A layer is filled under BOX_HOME/layers/.new-JOB-RANDOM, synced, and then renamed to its id: a
 * layer with its final name is complete even after a power failure, and a repeated pull may
 * trust it. A draft is written when all its layers have their names: it lies on another file
 * system, so the order of writes between the two is not kept. The daemon publishes the draft. */
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	ORIGIN_MAX = 255,
	DIGEST_MAX = 255,
	CACHE_KEY_MAX = 255,
};

/* ---- drafts --------------------------------------------------------------------------------- */

static int check_text(const char *what, const char *text, size_t max, struct err *err)
{
	if (!text || strnlen(text, max + 1) <= max)
		return 0;
	return err_set(err, ERR_TOO_LARGE, "%s of an image is longer than %zu bytes", what, max);
}

static int check_layer(const struct images *images, const char *text, struct err *err)
{
	_cleanup_free_ char *path = layer_resolve(images, text);

	if (*text == '/' || path)
		return 0;
	return err_set(err, ERR_INVALID, "'%.80s' is not a layer", text);
}

/* Some of the values come from an archive or a registry. */
static int draft_check(
	const struct images *images, const struct image_draft *draft, struct err *err)
{
	size_t count = strv_len((const char *const *)draft->layers);

	if (!count || count > IMAGE_LAYERS_MAX) {
		err_set(err, ERR_LIMIT, "an image has 1 to %d layers, this one would have %zu",
			IMAGE_LAYERS_MAX, count);
		return err_hint(err, "'box image export --format rootfs' and 'box image import' "
				     "make one layer of them");
	}
	for (size_t i = 0; i < count; i++)
		if (check_layer(images, draft->layers[i], err) < 0)
			return -1;
	if ((draft->name && *draft->name && image_name_check(draft->name, err) < 0) ||
		(draft->config && image_config_check(draft->config, err) < 0) ||
		check_text("origin", draft->origin, ORIGIN_MAX, err) < 0 ||
		check_text("digest", draft->digest, DIGEST_MAX, err) < 0 ||
		check_text("cache key", draft->cache_key, CACHE_KEY_MAX, err) < 0)
		return -1;
	return 0;
}

static const char *or_empty(const char *text)
{
	return text ? text : "";
}

static char *draft_text(const struct image_draft *draft)
{
	int64_t now = clock_wall_us();
	char created[CLOCK_RFC3339_MAX];
	_cleanup_json_ json_t *layers = json_array(), *none = json_array(), *empty = json_object();
	_cleanup_json_ json_t *json = NULL;

	for (size_t i = 0; draft->layers[i]; i++)
		json_array_append_new(layers, json_string(draft->layers[i]));
	json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:O, s:O, s:O}",
		"id", draft->id, "owner", draft->owner ? draft->owner : IMAGE_OWNER_SHARED, "name",
		or_empty(draft->name), "origin", or_empty(draft->origin), "parent",
		or_empty(draft->parent), "digest", or_empty(draft->digest), "cache_key",
		or_empty(draft->cache_key), "created_at", clock_rfc3339(now, created), "created_us",
		(json_int_t)now, "size", (json_int_t)draft->size_bytes, "files",
		(json_int_t)draft->files, "packages", draft->packages ? draft->packages : none,
		"config", draft->config ? draft->config : empty, "layers", layers);
	if (json && draft->says_hosts)
		json_object_set_new(
			json, "host_layers", json_integer((json_int_t)draft->host_layers));
	return json ? json_text(json) : NULL;
}

/* Makes the folder of the draft and the text of its image.json. */
static int draft_prepare(const struct images *images, const struct image_draft *draft,
	char **ret_path, char **ret_text, struct err *err)
{
	_cleanup_free_ char *dir =
		xasprintf("%s/" IMAGE_DRAFT_PREFIX "%s", images->path, draft->id);
	_cleanup_free_ char *text = NULL;

	if (draft_check(images, draft, err) < 0)
		return -1;
	text = draft_text(draft);
	if (!text)
		return err_set(err, ERR_INVALID, "the description of the image is not UTF-8");
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "mkdir '%s'", dir);
	*ret_path = xasprintf("%s/image.json", dir);
	*ret_text = steal_ptr(&text);
	return 0;
}

static int fsync_path(const char *path, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return err_sys(err, errno, "fsync '%s'", path);
	return 0;
}

int draft_write(const struct images *images, const struct image_draft *draft, struct err *err)
{
	_cleanup_free_ char *path = NULL, *text = NULL;

	if (draft_prepare(images, draft, &path, &text, err) < 0 ||
		file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, err) < 0)
		return -1;
	*strrchr(path, '/') = '\0';
	return fsync_path(path, err) < 0 ? -1 : fsync_path(images->path, err);
}

/* A small file whose write was started becomes part of the running transaction of btrfs, which
 * the snapshot commits. If the power fails in between, the draft is incomplete and removed at
 * the next open. */
int draft_write_early(const struct images *images, struct image_draft *draft, struct err *err)
{
	_cleanup_free_ char *path = NULL, *text = NULL;
	_cleanup_close_ int fd = -1;

	if (draft_prepare(images, draft, &path, &text, err) < 0)
		return -1;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "create '%s'", path);
	if (fd_write_all(fd, text, strlen(text), err) < 0)
		return err_wrap(err, "'%s'", path);
	if (sync_file_range(fd, 0, 0,
		    SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			    SYNC_FILE_RANGE_WAIT_AFTER) < 0)
		return err_sys(err, errno, "write '%s'", path);
	draft->written = true;
	return 0;
}

/* ---- layers --------------------------------------------------------------------------------- */

bool layer_exists(const struct images *images, const char *id)
{
	_cleanup_free_ char *path = xasprintf("%s/%s/files", images->files_path, id);

	return layer_id_is_valid(id) && access(path, F_OK) == 0;
}

int layer_begin(
	const struct images *images, const char *id, char **ret_tmp, int *ret, struct err *err)
{
	_cleanup_free_ char *tmp = NULL, *dir = NULL, *files = NULL;
	char suffix[9];
	int fd;

	if (!layer_id_is_valid(id))
		return err_set(err, ERR_INVALID, "'%.80s' is not the id of a layer", id);
	random_id(suffix, sizeof suffix - 1);
	tmp = xasprintf(IMAGE_DRAFT_PREFIX "%s-%s", images->work_id, suffix);
	dir = xasprintf("%s/%s", images->files_path, tmp);
	files = xasprintf("%s/files", dir);
	if (mkdir(dir, 0700) < 0)
		return err_sys(err, errno, "mkdir '%s'", dir);
	fd = mkdir(files, 0755) < 0 ? -1 : open(files, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		err_sys(err, errno, "make '%s'", files);
		layer_abandon(images, tmp);
		return -1;
	}
	*ret_tmp = steal_ptr(&tmp);
	*ret = fd;
	return 0;
}

/* One sync of the whole file system: an fsync of each file would take minutes. */
static int sync_files(const struct images *images, struct err *err)
{
	_cleanup_close_ int fd = open(images->files_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || syncfs(fd) < 0)
		return err_sys(err, errno, "sync '%s'", images->files_path);
	return 0;
}

int layer_publish(const struct images *images, const char *id, const char *tmp, uint64_t size_bytes,
	uint64_t files, struct err *err)
{
	_cleanup_free_ char *from = xasprintf("%s/%s", images->files_path, tmp);
	_cleanup_free_ char *to = xasprintf("%s/%s", images->files_path, id);

	if (layer_write_size(from, size_bytes, files, err) < 0 || sync_files(images, err) < 0)
		return err_wrap(err, "layer '%s'", id);
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, 1 /* RENAME_NOREPLACE */) == 0)
		return fsync_path(images->files_path, err);
	if (errno != EEXIST && errno != ENOTEMPTY)
		return err_sys(err, errno, "rename '%s' to '%s'", from, to);
	layer_abandon(images, tmp);
	return 0;
}

void layer_abandon(const struct images *images, const char *tmp)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", images->files_path, tmp);
	struct err err = ERR_INIT;

	if (tree_remove(AT_FDCWD, path, &err) < 0)
		log_warn("cannot remove an unfinished layer, the next start will",
			kv_str("layer", tmp), kv_err(&err));
}
