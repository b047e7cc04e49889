/* open.c - reads the images from disk at the start and removes leftovers
 *
 *   pool/images/.new-ID    a draft. If its image.json is complete and all its layers exist, it was
 *                          finished and the daemon died before publishing it: it is published now.
 *                          That is why publishing needs no sync: the rename may get lost, the image
 *                          does not. Other drafts are removed.
 *   pool/layers/.…, BOX_HOME/layers/.…   an unfinished layer that no job fills any more, or a layer
 *                                        being removed
 *   …/.trash-…             being removed, in pool/images, BOX_HOME/downloads and BOX_HOME/images
 *   BOX_HOME/image-files/ID-KEY.erofs   removed if its image no longer exists
 *   BOX_HOME/images/.build-ID   a build of an older version; removed if nobody holds its lock
 *
 * Layers that no image has stay: a pull that was killed finds them when it is repeated. */
#include "image/image_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "pool/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define OLD_BUILD_PREFIX ".build-"

static void remove_now(const char *dir, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);
	struct err err = ERR_INIT;

	if (tree_remove(AT_FDCWD, path, &err) < 0)
		log_warn("cannot sweep", kv_str("path", path), kv_err(&err));
}

static void finish_or_sweep(struct images *images, const char *name)
{
	const char *id = name + strlen(IMAGE_DRAFT_PREFIX);
	const struct image *image;
	struct err err = ERR_INIT;

	if (image_id_is_valid(id) && images_publish(images, id, &image, &err) == 0) {
		log_info("image was finished before, publishing it", kv_str("image", id),
			kv_str("name", image->name));
		return;
	}
	log_info("sweeping an unfinished image", kv_str("image", id));
	remove_now(images->path, name);
	for (size_t kind = 0; kind < LAYER_KIND_COUNT; kind++)
		layer_discard(images, (enum layer_kind)kind, id, NULL);
}

static void sweep_own(struct images *images)
{
	_cleanup_strv_ char **drafts = folder_list(images->path);

	for (size_t i = 0; drafts && drafts[i]; i++)
		if (text_has_prefix(drafts[i], IMAGE_TRASH_PREFIX))
			remove_now(images->path, drafts[i]);
		else if (text_has_prefix(drafts[i], IMAGE_DRAFT_PREFIX))
			finish_or_sweep(images, drafts[i]);
	layers_sweep(images, "");
}

static void take_up_trash(struct images *images, const char *dir)
{
	_cleanup_strv_ char **names = folder_list(dir);

	for (size_t i = 0; names && names[i]; i++)
		if (text_has_prefix(names[i], IMAGE_TRASH_PREFIX))
			images_discard(images, dir, names[i]);
}

/* A build whose lock nobody holds has died. */
static void sweep_old_build(struct images *images, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", images->shared, name);
	_cleanup_free_ char *trash =
		xasprintf(IMAGE_TRASH_PREFIX "%s", name + strlen(OLD_BUILD_PREFIX));
	_cleanup_free_ char *trash_path = xasprintf("%s/%s", images->shared, trash);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || rename(path, trash_path) < 0)
		return;
	log_info("sweeping an unfinished image", kv_str("path", path));
	images_discard(images, images->shared, trash);
}

static void sweep_shared(struct images *images)
{
	_cleanup_strv_ char **names = NULL;

	if (!shared_is_ours(images))
		return;
	names = folder_list(images->shared);
	for (size_t i = 0; names && names[i]; i++)
		if (text_has_prefix(names[i], OLD_BUILD_PREFIX))
			sweep_old_build(images, names[i]);
		else if (text_has_prefix(names[i], IMAGE_TRASH_PREFIX))
			images_discard(images, images->shared, names[i]);
}

static int make_places(const struct images *images, struct err *err)
{
	const char *const places[] = { images->path, images->layers_path, images->files_path,
		images->downloads_path, images->disks_path };

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if (dir_make_all(places[i], 0700, err) < 0)
			return err_wrap(err, "open the images");
		/* The content may have set-user-id bits. */
		if (chmod(places[i], 0700) < 0)
			return err_sys(err, errno, "chmod '%s'", places[i]);
	}
	return 0;
}

/* ext4 does not reuse the inode number of a deleted file for minutes, and skips each of them for
 * every new file: a layer unpacked where another one was removed took ten times as long. With
 * this flag, each folder below gets its own region of the disk, as below the root. Other file
 * systems have no such flag. */
static void spread_out(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int flags;

	if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_TOPDIR_FL)) {
		flags |= FS_TOPDIR_FL;
		ioctl(fd, FS_IOC_SETFLAGS, &flags); /* only for speed */
	}
}

int images_open(struct loop *loop, struct pool *pool, const char *home, struct images **ret,
	struct err *err)
{
	_cleanup_free_ char *real_home = realpath(home, NULL);
	struct images *images;

	if (!real_home)
		return err_sys(err, errno, "resolve '%s'", home);
	images = xnew(struct images);
	images->loop = loop;
	images->pool = pool;
	images->owner = IMAGE_OWNER_SHARED;
	images->path = xasprintf("%s/images", pool_get_path(pool));
	images->layers_path = xasprintf("%s/layers", pool_get_path(pool));
	images->files_path = xasprintf("%s/layers", real_home);
	images->downloads_path = xasprintf("%s/downloads", real_home);
	images->shared = xasprintf("%s/images", real_home);
	images->disks_path = xasprintf("%s/image-files", real_home);
	if (make_places(images, err) < 0) {
		images_close(images);
		return -1;
	}
	spread_out(images->files_path);
	tags_load(images);
	images_read_place(images, images->path, false);
	images_refresh(images);
	sweep_own(images);
	sweep_shared(images);
	files_sweep(images);
	take_up_trash(images, images->downloads_path);
	*ret = images;
	return 0;
}

void images_set_users(struct images *images, image_users_fn fn, void *arg)
{
	images->users = fn;
	images->users_arg = arg;
}

void images_close(struct images *images)
{
	if (!images)
		return;
	image_jobs_end(images);
	files_end(images);
	removals_end(images);
	layers_free(images);
	for (size_t i = 0; i < images->count; i++)
		image_free(images->list[i]);
	for (size_t i = 0; i < images->gone_count; i++)
		image_free(images->gone[i]);
	tags_free(images);
	strv_free(images->complained);
	free(images->list);
	free(images->by_id);
	free(images->gone);
	free(images->path);
	free(images->layers_path);
	free(images->files_path);
	free(images->downloads_path);
	free(images->shared);
	free(images->disks_path);
	free(images);
}
