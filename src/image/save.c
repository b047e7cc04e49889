/* save.c - makes an image of a box's disk, as it is at this moment
 *
 * The box's subvolume is snapshotted; `upper` of the snapshot is the new top layer, above those
 * of the box's image. Whiteouts and opaque folders of an upper mean the same in a lower; other
 * marks of overlayfs do no harm there.
 *
 * On btrfs a snapshot is atomic, and on disk when the ioctl returns. So the draft is written
 * first, and the snapshot is made under the layer's final name, which is the image's id: its
 * commit takes both to disk, and no other sync is needed. A draft without its layer is removed
 * at the next open; one with it is a complete image.
 *
 * The snapshot holds everything the disk has. `work` is emptied; other folders (files of the
 * nested profile beside the upper) stay as they are and are neither visible nor counted, because
 * deleting many files would cost more than the save. A plain folder is copied instead, `upper`
 * alone. The changes of a box with its own kernel come as an archive (upper.c). */
#include "image/image_internal.h"
#include "base/file.h"
#include "base/text.h"
#include "pool/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

struct save {
	char *place, *disk;
	char *origin, *parent, *cache_key;
	char *owner;  /* or NULL */
	char **lower; /* the layers of the parent */
	size_t host_layers;
	json_t *config;
	int archive; /* -1: none */
	uint64_t archive_max;
	char **folders; /* those of the layers below, absolute; for an archive */
};

static void save_free(void *arg)
{
	struct save *save = arg;

	free(save->place);
	free(save->disk);
	free(save->origin);
	free(save->parent);
	free(save->cache_key);
	free(save->owner);
	strv_free(save->lower);
	strv_free(save->folders);
	cleanup_closep(&save->archive);
	json_decref(save->config);
	free(save);
}

static int copy_snapshot(const struct images *images, const struct save *save,
	struct image_draft *draft, struct err *err)
{
	_cleanup_free_ char *work = xasprintf("%s/%s/work", images->layers_path, draft->id);
	_cleanup_free_ char *upper = xasprintf("%s/%s/upper", images->layers_path, draft->id);

	if (draft_write_early(images, draft, err) < 0 ||
		pool_disk_copy(images->pool, save->place, save->disk, "layers", draft->id, "upper",
			POOL_BUDGET_NONE, err) < 0)
		return -1;
	tree_remove(AT_FDCWD, work, NULL); /* a rest is invisible */
	if (access(upper, F_OK) < 0)
		return err_sys(err, errno, "look at the copy");
	return 0;
}

static int copy_files(const struct images *images, const struct save *save,
	const struct image_draft *draft, struct err *err)
{
	_cleanup_free_ char *tmp = xasprintf(IMAGE_DRAFT_PREFIX "%s-upper", draft->id);
	_cleanup_free_ char *from = xasprintf("%s/%s", images->layers_path, tmp);
	_cleanup_free_ char *to = xasprintf("%s/%s", images->layers_path, draft->id);

	if (pool_disk_copy(images->pool, save->place, save->disk, "layers", tmp, "upper",
		    POOL_BUDGET_NONE, err) < 0 ||
		pool_sync(images->pool, err) < 0)
		return -1;
	if (rename(from, to) < 0)
		return err_sys(err, errno, "rename '%s' to '%s'", from, to);
	return 0;
}

/* From a box whose files are not on the host. */
static int unpack_archive(const struct images *images, const struct save *save,
	struct job_sink *sink, const struct image_draft *draft, struct err *err)
{
	_cleanup_free_ char *tmp = xasprintf(IMAGE_DRAFT_PREFIX "%s-upper", draft->id);
	_cleanup_free_ char *from = xasprintf("%s/%s", images->layers_path, tmp);
	_cleanup_free_ char *to = xasprintf("%s/%s", images->layers_path, draft->id);

	job_progress(sink, "copy", 0, 0, "");
	if (image_unpack_upper(images->pool, (const char *const *)save->folders, save->archive,
		    save->archive_max, "layers", tmp, err) < 0 ||
		pool_sync(images->pool, err) < 0)
		return -1;
	return rename(from, to) < 0 ? err_sys(err, errno, "rename '%s' to '%s'", from, to) : 0;
}

static int save_run(const struct images *images, struct job_sink *sink, struct image_draft *draft,
	void *arg, struct err *err)
{
	struct save *save = arg;
	_cleanup_free_ char *top = xasprintf("%s/upper", draft->id);

	strv_add(&draft->layers, top);
	for (size_t i = 0; save->lower[i]; i++)
		strv_add(&draft->layers, save->lower[i]);
	draft->origin = save->origin;
	draft->parent = save->parent;
	draft->cache_key = save->cache_key;
	draft->config = save->config;
	draft->says_hosts = true;
	draft->host_layers = save->host_layers;
	if (save->archive >= 0)
		return unpack_archive(images, save, sink, draft, err);
	return pool_get_kind(images->pool) == POOL_FOLDER ? copy_files(images, save, draft, err)
							  : copy_snapshot(images, save, draft, err);
}

static const char *save_owner(const void *arg)
{
	return ((const struct save *)arg)->owner;
}

static int check_spec(struct images *images, const struct image_save_spec *spec, struct err *err)
{
	if (strv_len((const char *const *)spec->parent->layers) >= IMAGE_LAYERS_MAX) {
		err_set(err, ERR_LIMIT, "image '%s' has %d layers already, the most there can be",
			*spec->parent->name ? spec->parent->name : spec->parent->id,
			IMAGE_LAYERS_MAX);
		return err_hint(err, "'box image export --format rootfs' and 'box image import' "
				     "make one layer of them");
	}
	if (spec->name && *spec->name && image_name_check_given(spec->name, err) < 0)
		return -1;
	if (spec->config && image_config_check(spec->config, err) < 0)
		return -1;
	const char *place = spec->place ? spec->place : "boxes";

	if (!spec->from_archive && !pool_disk_exists(images->pool, place, spec->disk))
		return err_set(err, ERR_NOT_FOUND, "there is no disk '%s'", spec->disk);
	return pool_check_room(images->pool, 0, err);
}

int image_save_start(struct images *images, const struct image_save_spec *spec,
	const struct image_job_ops *ops, void *arg, struct image_job **ret, struct err *err)
{
	static const struct job_work work = { .run = save_run,
		.free = save_free,
		.owner = save_owner,
		.light = true,
		.verb = "save" };
	_cleanup_close_ int archive = spec->from_archive ? spec->archive : -1;
	struct save *save;

	if (check_spec(images, spec, err) < 0)
		return err_wrap(err, "save an image");
	save = xnew(struct save);
	save->archive = steal_fd(&archive);
	save->archive_max = spec->archive_max;
	for (size_t i = 0; spec->parent->layers[i]; i++)
		strv_add(&save->folders, spec->parent->layers[i]);
	for (size_t i = 0; spec->parent->layers[i]; i++)
		strv_add(&save->lower, layer_short(images, spec->parent->layers[i]));
	save->host_layers = spec->learn_hosts
				    ? strv_len((const char *const *)spec->parent->layers) + 1
				    : spec->parent->host_layers;
	save->place = xstrdup(spec->place ? spec->place : "boxes");
	save->disk = spec->disk ? xstrdup(spec->disk) : NULL;
	save->origin = xstrdup(spec->origin);
	save->parent = xstrdup(spec->parent->id);
	save->cache_key = xstrdup(spec->cache_key);
	save->owner = spec->owner ? xstrdup(spec->owner) : NULL;
	save->config = json_deep_copy(spec->config ? spec->config : spec->parent->config);
	return image_job_start(images, spec->name, &work, save, save->archive, ops, arg, ret, err);
}
