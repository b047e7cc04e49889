/* view.h - a stack of layers seen as one tree: packed into an archive, compared with another
 *
 * Layers are folders in the format of overlayfs: a character device 0/0 hides what lies below, a
 * folder with trusted.overlay.opaque hides all below it. Everything here blocks and belongs into a
 * helper process (one with a mount namespace of its own). Contents come from boxes: nothing is
 * followed, nothing trusted. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* A path longer than the kernel accepts in one call is neither packed nor reported by name: it
 * could not be unpacked, and since every name contains its whole path, deeply nested folders
 * would take space quadratic in their depth. */
enum { VIEW_PATH_MAX = 4095 };

/* A read-only tree of the layers (absolute paths, topmost first, NULL at the end); ids as they are
 * on disk. */
int view_open(const char *const *layers, int *ret, struct err *err);

/* Stats path (no leading slash) in root, links not followed. False: it does not exist or cannot
 * be read. */
bool view_stat(int root, const char *path, struct stat *ret);

/* Opens path, absolute, as a process with the root directory root would: links are followed
 * inside it. flags as for open. */
int view_open_path(int root, const char *path, int flags, int *ret, struct err *err);

struct view_totals {
	uint64_t files; /* entries of any type */
	uint64_t bytes; /* of file contents */
};
/* Called now and then while something runs; may be NULL. */
typedef void (*view_progress)(const struct view_totals *so_far, void *arg);

/* Packs the folder path of root ("" is the whole tree) as a tar, names relative to it and
 * sorted: modes, owners, times (whole seconds), xattrs (security.capability and user.*), hard
 * links, devices. Sockets are left out, holes are written as zeros. path may be a single file.
 * ERR_NOT_FOUND when it does not exist, ERR_TOO_LARGE over VIEW_PATH_MAX. */
struct view_pack_spec {
	int root;
	const char *path;
	/* not NULL: the folder itself is included, under this name, before its contents */
	const char *top;
	int out; /* written to in full, blocking */
	/* ERR_UNSUPPORTED for a name that begins with ".wh.": it would mean something else */
	bool as_layer;
	view_progress progress;
	void *arg;
};
int view_pack(const struct view_pack_spec *spec, struct view_totals *ret, struct err *err);
int view_measure(int root, const char *path, struct view_totals *ret, struct err *err);

/* ---- differences ---------------------------------------------------------------------------- */

enum view_change { VIEW_ADDED, VIEW_CHANGED, VIEW_REMOVED };
const char *view_change_name(enum view_change change); /* "added" "changed" "removed" */

/* st is of the new side, or of the old one for something removed. path has no leading slash;
 * borrowed. A removed folder is reported once, without its contents; an added one with all its
 * contents. Returning -1 ends the walk. */
typedef int (*view_change_fn)(enum view_change change, const char *path, const struct stat *st,
	void *arg, struct err *err);
/* Reports the changes from the tree of the old layers to that of the new ones; a folder comes
 * before its contents, and names are sorted in each folder. Layers that both stacks share at
 * their bottom are not read: comparing a box with its image costs as much as the box has
 * written. Contents are compared, so a file that was only touched is reported only if its type,
 * mode, owner or xattrs differ. ERR_UNSUPPORTED where a layer uses redirects or metacopy.
 * *ret_too_deep, which may be NULL: how many files and folders were left out with their
 * contents, because of VIEW_PATH_MAX. */
int view_diff(const char *const *old_layers, const char *const *new_layers, view_change_fn fn,
	void *arg, uint64_t *ret_too_deep, struct err *err);
/* The same changes as a tar that turns the old tree into the new one: ".wh.NAME" entries for
 * what was removed, as in layers of container images. ERR_UNSUPPORTED when the name of a changed
 * file begins with ".wh.", ERR_TOO_LARGE over VIEW_PATH_MAX. */
int view_diff_pack(const char *const *old_layers, const char *const *new_layers, int out,
	struct view_totals *ret, struct err *err);
