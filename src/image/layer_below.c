/* layer_below.c - what the layers below show, through whiteouts and opaque folders
 *
 * A name is looked up as overlayfs does it: from the top down, until a layer has it or hides it
 * from the layers further down. */
#include "image/oci_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define OPAQUE "trusted.overlay.opaque"

bool layer_is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

int layer_set_opaque(int dir, struct err *err)
{
	if (fsetxattr(dir, OPAQUE, "y", 1, 0) < 0)
		return err_sys(err, errno, "set " OPAQUE);
	return 0;
}

static bool is_opaque(int dir)
{
	char value;

	return fgetxattr(dir, OPAQUE, &value, 1) == 1 && value == 'y';
}

static int open_dir(int at, const char *name)
{
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

enum sight { SIGHT_FOUND, SIGHT_MISSING, SIGHT_HIDDEN };

/* Looks path up in one layer. is_top: this is the layer being filled, so its own leaf counts as
 * missing. HIDDEN: the layers further down show nothing there either. */
static int look_into(int layer, bool is_top, const char *path, enum sight *ret_sight, int *ret,
	struct stat *ret_st, struct err *err)
{
	_cleanup_close_ int dir = open_dir(layer, ".");
	bool opaque = dir >= 0 && is_opaque(dir);
	char name[NAME_MAX + 1];

	if (dir < 0)
		return err_sys(err, errno, "open a layer");
	for (;;) {
		size_t len = strcspn(path, "/");
		bool is_leaf = !path[len];
		int next;

		*ret_sight = opaque ? SIGHT_HIDDEN : SIGHT_MISSING;
		snprintf(name, sizeof name, "%.*s", (int)len, path);
		if (is_leaf && is_top)
			return 0;
		if (fstatat(dir, name, ret_st, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? 0 : err_sys(err, errno, "look for '%s'", name);
		if (layer_is_whiteout(ret_st) || (!is_leaf && !S_ISDIR(ret_st->st_mode))) {
			*ret_sight = SIGHT_HIDDEN;
			return 0;
		}
		next = is_leaf ? openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC)
			       : open_dir(dir, name);
		if (next < 0)
			return err_sys(err, errno, "open '%s' of a layer", name);
		if (is_leaf) {
			*ret_sight = SIGHT_FOUND;
			*ret = next;
			return 0;
		}
		close(dir);
		dir = next;
		opaque |= is_opaque(dir);
		path += len + 1;
	}
}

int layer_below_find(const struct layer_stack *stack, const char *path, int *ret,
	struct stat *ret_st, struct err *err)
{
	enum sight sight = SIGHT_MISSING;

	if (!stack->lower_count)
		return 0;
	if (look_into(stack->root, true, path, &sight, ret, ret_st, err) < 0)
		return -1;
	for (size_t i = 0; i < stack->lower_count && sight == SIGHT_MISSING; i++)
		if (look_into(stack->lowers[i], false, path, &sight, ret, ret_st, err) < 0)
			return -1;
	return sight == SIGHT_FOUND;
}
