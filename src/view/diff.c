/* diff.c - the changes between two stacks of layers; see view.h
 *
 * Where two stacks share their bottom, a difference can only lie at a path that one of the other
 * layers contains: as a file or folder, or as a mark that hides one. So these layers are walked
 * together for names, and each name is looked up in the two merged trees, where overlayfs has
 * resolved it. There is one exception: below a folder where a layer hides everything (it is
 * opaque there, or a lower layer has something else there), paths matter that are in none of
 * them; from there on the merged trees themselves are walked.
 *
 * Trees of the walk: the old one, the new one, then the layers that are not shared. */
#include "view/view_internal.h"
#include "base/strv.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { OLD, NEW, FIRST_LAYER };

/* One change. dir and name are of the new side. */
typedef int (*tell_fn)(void *arg, enum view_change change, const char *path, const struct stat *st,
	int dir, const char *name, struct err *err);

struct diff {
	size_t width;
	int *tops;
	int *next; /* fds of the folder to go into */
	struct walk walk;
	tell_fn tell;
	void *arg;
	uint64_t too_deep; /* left out */
	bool whole;	   /* leaving something out is an error */
};

const char *view_change_name(enum view_change change)
{
	static const char *const names[] = {
		[VIEW_ADDED] = "added", [VIEW_CHANGED] = "changed", [VIEW_REMOVED] = "removed"
	};

	return names[change];
}

/* ---- looking things up ---------------------------------------------------------------------- */

/* 1: it exists. overlayfs refuses to look up redirects and files without content, which no box
 * makes. */
static int look_up(int dir, const char *name, const char *path, struct stat *ret, struct err *err)
{
	if (dir < 0)
		return 0;
	if (fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) == 0)
		return !view_is_whiteout(ret);
	if (errno == ENOENT || errno == ENOTDIR)
		return 0;
	if (errno == EPERM)
		return err_set(err, ERR_UNSUPPORTED,
			"'/%.300s' is a redirect or has its content elsewhere in the layers", path);
	return err_sys(err, errno, "'/%.300s'", path);
}

static bool is_opaque(int fd)
{
	char value;

	return fgetxattr(fd, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
}

/* Opens the same folder in a layer. *whole becomes true if the layer hides something below it. */
static int enter_layer(
	int dir, const struct walk_item *item, int *ret, bool *whole, struct err *err)
{
	struct stat st;

	*ret = -1;
	if (dir < 0)
		return 0;
	if (walk_open_folder(dir, item->name, item->path, ret, err) < 0)
		return -1;
	if (*ret >= 0)
		*whole |= is_opaque(*ret);
	else if (fstatat(dir, item->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		*whole = true;
	return 0;
}

/* ---- the walk ------------------------------------------------------------------------------- */

static int open_next(struct diff *diff, const struct walk_item *item, bool is_in_old, bool *whole,
	struct err *err)
{
	for (size_t i = 0; i < diff->width; i++)
		diff->next[i] = -1;
	if (walk_open_folder(item->dirs[NEW], item->name, item->path, &diff->next[NEW], err) < 0)
		return -1;
	if (is_in_old && walk_open_folder(item->dirs[OLD], item->name, item->path, &diff->next[OLD],
				 err) < 0)
		return -1;
	for (size_t i = FIRST_LAYER; i < diff->width && !*whole; i++)
		if (enter_layer(item->dirs[i], item, &diff->next[i], whole, err) < 0)
			return -1;
	return 0;
}

static int go_in(struct diff *diff, const struct walk_item *item, bool is_in_old, struct err *err)
{
	bool whole = item->whole || !is_in_old;
	int status = open_next(diff, item, is_in_old, &whole, err);

	/* If the folder was removed meanwhile, its contents are not reported as removed files. */
	if (status < 0 || diff->next[NEW] < 0) {
		for (size_t i = 0; i < diff->width; i++)
			cleanup_closep(&diff->next[i]);
		return status;
	}
	return walk_enter(&diff->walk, diff->next, whole ? OLD : FIRST_LAYER,
		whole ? FIRST_LAYER : diff->width, whole, err);
}

static int compare(struct diff *diff, const struct walk_item *item, struct err *err)
{
	struct side old = { .dir = item->dirs[OLD], .name = item->name },
		    new = { .dir = item->dirs[NEW], .name = item->name };
	int was, is, same = 0;

	if (strlen(item->path) > VIEW_PATH_MAX) {
		diff->too_deep++;
		return diff->whole ? packer_check_path(item->path, err) : 0;
	}
	was = look_up(old.dir, old.name, item->path, &old.st, err);
	if (was < 0)
		return -1;
	is = look_up(new.dir, new.name, item->path, &new.st, err);
	if (is < 0)
		return -1;
	if (!is)
		return was ? diff->tell(diff->arg, VIEW_REMOVED, item->path, &old.st, -1,
				     item->name, err)
			   : 0;
	if (was && (old.st.st_mode & S_IFMT) == (new.st.st_mode &S_IFMT))
		same = same_entry(&old, &new, item->path, err);
	if (same < 0)
		return -1;
	if (!same && diff->tell(diff->arg, was ? VIEW_CHANGED : VIEW_ADDED, item->path, &new.st,
			     new.dir, item->name, err) < 0)
		return -1;
	if (!S_ISDIR(new.st.st_mode))
		return 0;
	return go_in(diff, item, was && S_ISDIR(old.st.st_mode), err);
}

static int run(struct diff *diff, struct err *err)
{
	struct walk_item item;
	int status;

	for (size_t i = 0; i < diff->width; i++) {
		if (walk_open_folder(diff->tops[i], ".", "", &diff->next[i], err) == 0)
			continue;
		while (i-- > 0)
			close(diff->next[i]);
		return -1;
	}
	if (walk_enter(&diff->walk, diff->next, FIRST_LAYER, diff->width, false, err) < 0)
		return -1;
	while ((status = walk_next(&diff->walk, &item, err)) == 1)
		if (compare(diff, &item, err) < 0)
			return -1;
	return status;
}

/* ---- the stacks ----------------------------------------------------------------------------- */

/* Opens the layers of a stack but the last `shared` ones. */
static int open_layers(struct diff *diff, const char *const *layers, size_t shared, struct err *err)
{
	size_t count = strv_len(layers) - shared;

	for (size_t i = 0; i < count; i++) {
		int fd = open(layers[i], O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (fd < 0)
			return err_sys(err, errno, "layer '%s'", layers[i]);
		diff->tops[diff->width++] = fd;
	}
	return 0;
}

static size_t count_shared(const char *const *a, const char *const *b)
{
	size_t i = strv_len(a), j = strv_len(b), shared = 0;

	while (i && j && !strcmp(a[--i], b[--j]))
		shared++;
	return shared;
}

/* A removed layer loses its name first and then file after file: a diff of it would look
 * complete. */
static int check_there(const char *const *layers, struct err *err)
{
	for (size_t i = 0; layers[i]; i++)
		if (access(layers[i], F_OK) < 0)
			return err_set(err, ERR_STATE, "a layer was removed while it was read");
	return 0;
}

static int compare_stacks(const char *const *old_layers, const char *const *new_layers,
	tell_fn tell, void *arg, uint64_t *ret_too_deep, struct err *err)
{
	size_t old_count = strv_len(old_layers), new_count = strv_len(new_layers),
	       shared = count_shared(old_layers, new_layers);
	struct diff diff = { .width = 0, .tell = tell, .arg = arg, .whole = !ret_too_deep };
	int ret = -1;

	if (shared == old_count && shared == new_count)
		return 0;
	diff.tops = xnewn(int, FIRST_LAYER + old_count + new_count);
	diff.next = xnewn(int, FIRST_LAYER + old_count + new_count);
	if (view_open(old_layers, &diff.tops[OLD], err) < 0)
		goto out;
	diff.width++;
	if (view_open(new_layers, &diff.tops[NEW], err) < 0)
		goto out;
	diff.width++;
	if (open_layers(&diff, old_layers, shared, err) < 0 ||
		open_layers(&diff, new_layers, shared, err) < 0)
		goto out;
	walk_init(&diff.walk, diff.width);
	ret = run(&diff, err);
	walk_done(&diff.walk);
	if (ret_too_deep)
		*ret_too_deep = diff.too_deep;
	if (ret == 0 && (check_there(old_layers, err) < 0 || check_there(new_layers, err) < 0))
		ret = -1;
out:
	for (size_t i = 0; i < diff.width; i++)
		close(diff.tops[i]);
	free(diff.tops);
	free(diff.next);
	return ret;
}

/* ---- as a list ------------------------------------------------------------------------------ */

struct listing {
	view_change_fn fn;
	void *arg;
};

static int tell_list(void *arg, enum view_change change, const char *path, const struct stat *st,
	int dir, const char *name, struct err *err)
{
	const struct listing *listing = arg;

	return listing->fn(change, path, st, listing->arg, err);
}

int view_diff(const char *const *old_layers, const char *const *new_layers, view_change_fn fn,
	void *arg, uint64_t *ret_too_deep, struct err *err)
{
	struct listing listing = { fn, arg };
	uint64_t none;

	if (!ret_too_deep)
		ret_too_deep = &none;
	*ret_too_deep = 0;
	return compare_stacks(old_layers, new_layers, tell_list, &listing, ret_too_deep, err);
}

/* ---- as a tar ------------------------------------------------------------------------------- */

static int put_whiteout(struct packer *packer, const char *path, const char *name, struct err *err)
{
	size_t folder = strlen(path) - strlen(name);
	_cleanup_free_ char *mark = xasprintf("%.*s" WHITEOUT "%s", (int)folder, path, name);
	struct tar_entry entry = { .type = TAR_FILE, .name = mark };

	return packer_put_header(packer, &entry, err);
}

static int tell_pack(void *arg, enum view_change change, const char *path, const struct stat *st,
	int dir, const char *name, struct err *err)
{
	struct packer *packer = arg;

	if (packer_check_name(name, path, err) < 0)
		return -1;
	/* A socket is not packed, but what it replaced must be removed. */
	if (change == VIEW_REMOVED || (change == VIEW_CHANGED && S_ISSOCK(st->st_mode)))
		return put_whiteout(packer, path, name, err);
	return packer_put(packer, dir, name, path, st, err);
}

int view_diff_pack(const char *const *old_layers, const char *const *new_layers, int out,
	struct view_totals *ret, struct err *err)
{
	_cleanup_(packer_done) struct packer packer = { .out = out };

	if (compare_stacks(old_layers, new_layers, tell_pack, &packer, NULL, err) < 0 ||
		packer_finish(&packer, err) < 0)
		return -1;
	if (ret)
		*ret = packer.totals;
	return 0;
}
