/* view.c - merges a stack of layers into one tree; see view.h
 *
 * Two or more layers become an overlay without an upper layer, mounted detached. A single layer
 * is its folder, cloned into a mount of its own: mounts inside it are invisible, and like the
 * overlay it is read-only and opens no devices. Layers are passed as fds, so that neither the
 * length of their names nor special characters matter. */
#include "view/view_internal.h"
#include "base/strv.h"
#include "sys/beneath.h"
#include "sys/mountfd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum { LAYERS_MAX = 500, FD_PATH_SIZE = 24 }; /* overlayfs accepts no more */
#define VIEW_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)

struct lowers {
	size_t count;
	int fds[LAYERS_MAX];
	char paths[LAYERS_MAX][FD_PATH_SIZE]; /* "/proc/self/fd/7" */
};

static void lowers_close(struct lowers *lowers)
{
	for (size_t i = 0; i < lowers->count; i++)
		close(lowers->fds[i]);
	free(lowers);
}
DEFINE_CLEANUP(lowers_close, struct lowers)

static int lowers_open(const char *const *layers, struct lowers **ret, struct err *err)
{
	_cleanup_(lowers_closep) struct lowers *lowers = xnew(struct lowers);

	for (size_t i = 0; layers[i]; i++) {
		int fd;

		if (i == LAYERS_MAX)
			return err_set(err, ERR_LIMIT, "more than %d layers", LAYERS_MAX);
		fd = open(layers[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return err_sys(err, errno, "layer '%s'", layers[i]);
		lowers->fds[i] = fd;
		snprintf(lowers->paths[i], FD_PATH_SIZE, "/proc/self/fd/%d", fd);
		lowers->count++;
	}
	*ret = steal_ptr(&lowers);
	return 0;
}

static int open_one(const char *layer, int *ret, struct err *err)
{
	_cleanup_close_ int mount = -1;

	if (mount_clone(AT_FDCWD, layer, &mount, err) < 0 || mount_set(mount, VIEW_ATTR, err) < 0)
		return err_wrap(err, "layer '%s'", layer);
	*ret = steal_fd(&mount);
	return 0;
}

/* Boxes make neither redirects nor files without content; such marks are not followed. */
static int open_overlay(const struct lowers *lowers, int *ret, struct err *err)
{
	_cleanup_free_ struct mount_option *options = xnewn(struct mount_option, lowers->count + 2);

	options[0] = (struct mount_option){ "redirect_dir", "nofollow" };
	for (size_t i = 0; i < lowers->count; i++)
		options[i + 1] = (struct mount_option){ "lowerdir+", lowers->paths[i] };
	return mount_new("overlay", options, VIEW_ATTR, ret, err);
}

/* Uses mount(2), whose options may be one page long. The overlay must be attached for a moment,
 * and the topmost layer is a folder that always exists. */
int view_open_by_mount(const char *const *layers, int *ret, struct err *err)
{
	_cleanup_(lowers_closep) struct lowers *lowers = NULL;
	struct buf options = BUF_INIT;
	int fd = -1, status, saved;

	if (lowers_open(layers, &lowers, err) < 0)
		return -1;
	buf_add_str(&options, "redirect_dir=nofollow,lowerdir=");
	for (size_t i = 0; i < lowers->count; i++)
		buf_addf(&options, "%s%s", i ? ":" : "", lowers->paths[i]);
	status = mount("overlay", layers[0], "overlay",
		MS_RDONLY | MS_NODEV | MS_NOSUID | MS_NOEXEC, buf_str(&options));
	saved = errno;
	buf_done(&options);
	if (status < 0)
		return err_sys(err, saved, "mount overlay of %zu layers", lowers->count);
	fd = open(layers[0], O_PATH | O_DIRECTORY | O_CLOEXEC);
	saved = errno;
	umount2(layers[0], MNT_DETACH);
	if (fd < 0)
		return err_sys(err, saved, "open overlay on '%s'", layers[0]);
	*ret = fd;
	return 0;
}

int view_open(const char *const *layers, int *ret, struct err *err)
{
	_cleanup_(lowers_closep) struct lowers *lowers = NULL;
	struct err why = ERR_INIT;

	if (!layers[0])
		return err_set(err, ERR_INVALID, "a view needs a layer");
	if (!layers[1])
		return open_one(layers[0], ret, err);
	if (lowers_open(layers, &lowers, err) < 0)
		return -1;
	if (open_overlay(lowers, ret, &why) == 0)
		return 0;
	if (why.errno_value == EINVAL && view_open_by_mount(layers, ret, NULL) == 0)
		return 0;
	if (err)
		*err = why;
	return -1;
}

bool view_stat(int root, const char *path, struct stat *ret)
{
	_cleanup_close_ int fd = -1;

	return beneath_open(root, path, O_PATH | O_NOFOLLOW, &fd, NULL) == 0 &&
	       fstat(fd, ret) == 0 && !view_is_whiteout(ret);
}

int view_open_path(int root, const char *path, int flags, int *ret, struct err *err)
{
	return in_root_open(root, path, flags, ret, err);
}
