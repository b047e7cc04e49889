/* layer_tree.c - where a name of an archive lies, in a layer that is being filled, over the
 * layers below
 *
 * Archives of layers are made to be unpacked over the layers below, and a name in them may lead
 * through links that only those have: one layer has `bin -> usr/bin`, the next one a member
 * `bin/tool`, which belongs into usr/bin. So a name is walked component by component in the
 * merged tree, and the folders on its way are made in this layer as overlayfs would copy them
 * up. Links are followed by this code, starting at the root of the layer: the kernel only ever
 * gets one component, with O_NOFOLLOW, so nothing in an archive leads out of the folder.
 *
 * Nobody else writes in the folder meanwhile, so what was looked up stays valid. The folders
 * used last are kept open under the names that led to them: archives are sorted, so most names
 * need no walk. */
#include "image/oci_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

enum {
	DEPTH_MAX = 256,
	LINKS_MAX = 40,
	KEPT_MAX = 16,
	TODO_MAX = 2 * PATH_MAX,
	XATTRS_SIZE = 64 * 1024,
};
#define TIME_BYTES_MAX (64u << 20) /* paths of folders, all together */

struct kept {
	char *name; /* NULL: free */
	char *path;
	int fd;
	bool via_link;
};

struct folder_time {
	char *path;
	struct timespec mtime;
};

struct layer_tree {
	struct layer_stack stack;
	struct kept kept[KEPT_MAX];
	size_t next, last; /* the one to replace, and the one used last */
	struct folder_time *times;
	size_t time_count, time_room, time_bytes;
	uint64_t made;
};

/* One name being walked. */
struct walk {
	struct layer_tree *tree;
	int fd; /* the folder reached so far; owned unless it is the root */
	char path[PATH_MAX];
	char todo[TODO_MAX + 1]; /* what is left of the name */
	unsigned links;
};

bool layer_xattr_is_kept(const char *name, mode_t type)
{
	if (!strcmp(name, "security.capability"))
		return S_ISREG(type);
	return !strncmp(name, "user.", 5) && (S_ISREG(type) || S_ISDIR(type));
}

static int open_dir(int at, const char *name)
{
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int join(const char *path, const char *leaf, char ret[PATH_MAX], struct err *err)
{
	int len = snprintf(ret, PATH_MAX, "%s%s%s", path, *path && *leaf ? "/" : "", leaf);

	if (len >= PATH_MAX)
		return err_set(err, ERR_INVALID, "a name in the archive is too long");
	return 0;
}

int layer_tree_below(struct layer_tree *tree, const struct place *place, int *ret,
	struct stat *ret_st, struct err *err)
{
	char path[PATH_MAX];

	if (join(place->path, place->leaf, path, err) < 0)
		return -1;
	return layer_below_find(&tree->stack, path, ret, ret_st, err);
}

/* ---- walking -------------------------------------------------------------------------------- */

static void walk_leave(struct walk *walk)
{
	if (walk->fd >= 0 && walk->fd != walk->tree->stack.root)
		close(walk->fd);
	walk->fd = -1;
}

static int walk_enter(struct walk *walk, const char *name, struct err *err)
{
	char path[PATH_MAX];
	int fd = open_dir(walk->fd, name);

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", name);
	walk_leave(walk);
	walk->fd = fd;
	if (join(walk->path, name, path, err) < 0)
		return -1;
	strcpy(walk->path, path);
	return 0;
}

static int walk_up(struct walk *walk, struct err *err)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	char *slash = strrchr(walk->path, '/');

	walk_leave(walk);
	*(slash ? slash : walk->path) = '\0';
	walk->fd = *walk->path ? (int)syscall(SYS_openat2, walk->tree->stack.root, walk->path, &how,
					 sizeof how)
			       : walk->tree->stack.root;
	return walk->fd < 0 ? err_sys(err, errno, "open '%s'", walk->path) : 0;
}

/* Puts the target of the link before the rest of the name. */
static int walk_link(struct walk *walk, int dir, const char *name, struct err *err)
{
	char target[PATH_MAX], todo[TODO_MAX + 1];
	ssize_t len = readlinkat(dir, name, target, sizeof target - 1);

	if (len < 0)
		return err_sys(err, errno, "read the link '%s'", name);
	target[len] = '\0';
	if (++walk->links > LINKS_MAX)
		return err_set(err, ERR_INVALID, "too many symbolic links in a path");
	if ((size_t)snprintf(todo, sizeof todo, "%s/%s", target, walk->todo) >= sizeof todo)
		return err_set(err, ERR_INVALID, "the symbolic links in a path are too long");
	strcpy(walk->todo, todo);
	if (*target == '/') {
		walk_leave(walk);
		walk->fd = walk->tree->stack.root;
		*walk->path = '\0';
	}
	return 0;
}

static int copy_xattrs(int from, int to, struct err *err)
{
	_cleanup_free_ char *names = xcalloc(1, XATTRS_SIZE), *value = xcalloc(1, XATTRS_SIZE);
	ssize_t len = flistxattr(from, names, XATTRS_SIZE);

	for (char *name = names; len > 0 && name < names + len; name += strlen(name) + 1) {
		ssize_t size;

		if (!layer_xattr_is_kept(name, S_IFDIR))
			continue;
		size = fgetxattr(from, name, value, XATTRS_SIZE);
		if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0) < 0)
			return err_sys(err, errno, "copy '%s'", name);
	}
	return 0;
}

/* Gives the folder dir, at path, the attributes of a folder of a layer below (like, which may be
 * an O_PATH fd). */
static int make_alike(struct layer_tree *tree, int dir, const char *path, int like, struct err *err)
{
	_cleanup_close_ int model = open_dir(like, ".");
	struct stat st;

	if (model < 0 || fstat(model, &st) < 0 || fchown(dir, st.st_uid, st.st_gid) < 0 ||
		fchmod(dir, st.st_mode & 07777) < 0)
		return err_sys(err, errno, "copy the folder '%s' of a layer below", path);
	if (copy_xattrs(model, dir, err) < 0)
		return -1;
	return layer_tree_set_time(tree, path, "", &st.st_mtim, err);
}

/* like: the folder of a layer below, or -1. opaque: this layer had something else here. */
static int walk_make(struct walk *walk, const char *name, int like, bool opaque, struct err *err)
{
	if (mkdirat(walk->fd, name, 0755) < 0)
		return err_sys(err, errno, "mkdir '%s'", name);
	walk->tree->made++;
	if (walk_enter(walk, name, err) < 0)
		return -1;
	if (opaque && walk->tree->stack.lower_count && layer_set_opaque(walk->fd, err) < 0)
		return -1;
	if (like >= 0)
		return make_alike(walk->tree, walk->fd, walk->path, like, err);
	return fchmod(walk->fd, 0755) < 0 ? err_sys(err, errno, "chmod '%s'", name) : 0;
}

/* name is not in this layer: the layers below decide. */
static int walk_below(struct walk *walk, const char *name, struct err *err)
{
	_cleanup_close_ int found = -1;
	char path[PATH_MAX];
	struct stat st;
	int there;

	if (join(walk->path, name, path, err) < 0)
		return -1;
	there = layer_below_find(&walk->tree->stack, path, &found, &st, err);
	if (there < 0)
		return -1;
	if (there && S_ISLNK(st.st_mode))
		return walk_link(walk, found, "", err);
	if (there && !S_ISDIR(st.st_mode))
		return err_set(err, ERR_INVALID, "'%s' is not a folder", path);
	return walk_make(walk, name, found, false, err);
}

static int walk_step(struct walk *walk, const char *name, struct err *err)
{
	struct stat st;

	if (!*name || !strcmp(name, "."))
		return 0;
	if (!strcmp(name, ".."))
		return *walk->path ? walk_up(walk, err)
				   : 0; /* only in links; the root is its own parent */
	if (fstatat(walk->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? walk_below(walk, name, err)
				       : err_sys(err, errno, "look for '%s'", name);
	if (S_ISDIR(st.st_mode))
		return walk_enter(walk, name, err);
	if (S_ISLNK(st.st_mode))
		return walk_link(walk, walk->fd, name, err);
	if (!layer_is_whiteout(&st))
		return err_set(err, ERR_INVALID, "'%s' is not a folder", name);
	if (unlinkat(walk->fd, name, 0) < 0)
		return err_sys(err, errno, "remove '%s'", name);
	return walk_make(walk, name, -1, true, err);
}

static int walk_all(struct walk *walk, struct err *err)
{
	char name[NAME_MAX + 1];

	while (*walk->todo) {
		size_t len = strcspn(walk->todo, "/"), eat = len + (walk->todo[len] == '/');

		if (len > NAME_MAX)
			return err_set(err, ERR_INVALID, "a name in the archive is too long");
		memcpy(name, walk->todo, len);
		name[len] = '\0';
		memmove(walk->todo, walk->todo + eat, strlen(walk->todo + eat) + 1);
		if (walk_step(walk, name, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- folders kept open ---------------------------------------------------------------------- */

static void forget(struct kept *kept)
{
	if (!kept->name)
		return;
	free(kept->name);
	free(kept->path);
	close(kept->fd);
	*kept = (struct kept){ .fd = -1 };
}

void layer_tree_changed(struct layer_tree *tree, bool removed)
{
	/* A name that led through a link may lead elsewhere now: the new entry may have replaced
	 * the link. */
	for (size_t i = 0; i < KEPT_MAX; i++)
		if (removed || tree->kept[i].via_link)
			forget(&tree->kept[i]);
}

static const struct kept *recall(struct layer_tree *tree, const char *name)
{
	for (size_t n = 0; n < KEPT_MAX; n++) {
		size_t i = (tree->last + n) % KEPT_MAX;

		if (tree->kept[i].name && !strcmp(tree->kept[i].name, name)) {
			tree->last = i;
			return &tree->kept[i];
		}
	}
	return NULL;
}

static const struct kept *keep(struct layer_tree *tree, const char *name, struct walk *walk)
{
	struct kept *kept = &tree->kept[tree->next];

	tree->last = tree->next;
	tree->next = (tree->next + 1) % KEPT_MAX;
	forget(kept);
	*kept = (struct kept){ .name = xstrdup(name),
		.path = xstrdup(walk->path),
		.fd = walk->fd,
		.via_link = walk->links };
	return kept;
}

/* Removes "/", "./" and doubled slashes; ret has PATH_MAX bytes. */
static int clean(const char *name, char *ret, struct err *err)
{
	size_t out = 0, depth = 0;

	while (*name) {
		size_t len = strcspn(name, "/");

		if (len == 2 && !memcmp(name, "..", 2))
			return err_set(err, ERR_INVALID, "a name in the archive contains '..'");
		if (len > NAME_MAX || out + len + 2 > PATH_MAX || ++depth > DEPTH_MAX)
			return err_set(
				err, ERR_INVALID, "a name in the archive is too long or too deep");
		if (len && !(len == 1 && *name == '.')) {
			if (out)
				ret[out++] = '/';
			memcpy(ret + out, name, len);
			out += len;
		}
		name += len + (name[len] == '/');
	}
	ret[out] = '\0';
	return 0;
}

static int find_folder(
	struct layer_tree *tree, const char *name, const struct kept **ret, struct err *err)
{
	struct walk walk = { .tree = tree, .fd = tree->stack.root };

	*ret = recall(tree, name);
	if (*ret)
		return 0;
	strcpy(walk.todo, name);
	if (walk_all(&walk, err) < 0) {
		walk_leave(&walk);
		return -1;
	}
	if (walk.fd == tree->stack.root)
		walk.fd = fcntl(tree->stack.root, F_DUPFD_CLOEXEC, 3);
	if (walk.fd < 0)
		return err_sys(err, errno, "open the root of the layer");
	*ret = keep(tree, name, &walk);
	return 0;
}

int layer_tree_place(struct layer_tree *tree, const char *name, struct place *ret, struct err *err)
{
	char folder[PATH_MAX];
	const struct kept *kept;
	char *slash;

	if (clean(name, folder, err) < 0)
		return -1;
	slash = strrchr(folder, '/');
	strcpy(ret->leaf, slash ? slash + 1 : folder);
	*(slash ? slash : folder) = '\0';
	if (!*folder) {
		ret->dir = tree->stack.root;
		*ret->path = '\0';
		return 0;
	}
	if (find_folder(tree, folder, &kept, err) < 0)
		return -1;
	ret->dir = kept->fd;
	strcpy(ret->path, kept->path);
	return 0;
}

/* ---- times of folders ----------------------------------------------------------------------- */

int layer_tree_set_time(struct layer_tree *tree, const char *path, const char *leaf,
	const struct timespec *mtime, struct err *err)
{
	char whole[PATH_MAX];

	if (join(path, leaf, whole, err) < 0)
		return -1;
	tree->time_bytes += strlen(whole) + sizeof *tree->times;
	if (tree->time_bytes > TIME_BYTES_MAX)
		return err_set(err, ERR_LIMIT, "the archive contains too many folders");
	if (tree->time_count == tree->time_room) {
		tree->time_room = MAX(2 * tree->time_room, 64);
		xgrow(tree->times, tree->time_room);
	}
	tree->times[tree->time_count++] =
		(struct folder_time){ .path = xstrdup(whole), .mtime = *mtime };
	return 0;
}

/* A folder that was replaced meanwhile is skipped. */
int layer_tree_end(struct layer_tree *tree, struct err *err)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };

	for (size_t i = 0; i < tree->time_count; i++) {
		const struct folder_time *time = &tree->times[i];
		const struct timespec times[] = { { .tv_nsec = UTIME_OMIT }, time->mtime };
		_cleanup_close_ int fd = (int)syscall(SYS_openat2, tree->stack.root,
			*time->path ? time->path : ".", &how, sizeof how);

		if (fd >= 0 && futimens(fd, times) < 0)
			return err_sys(err, errno, "set the time of '%s'", time->path);
	}
	return 0;
}

/* ---- the tree as a whole -------------------------------------------------------------------- */

int layer_tree_new(int root, const char *const *lowers, struct layer_tree **ret, struct err *err)
{
	_cleanup_(layer_tree_freep) struct layer_tree *tree = xnew(struct layer_tree);
	size_t count = strv_len(lowers);

	tree->stack.root = root;
	tree->stack.lowers = xnewn(int, count + 1);
	for (size_t i = 0; i < count; i++) {
		tree->stack.lowers[i] = open(lowers[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (tree->stack.lowers[i] < 0)
			return err_sys(err, errno, "open the layer '%s'", lowers[i]);
		tree->stack.lower_count++;
	}
	/* Without a member for the root, it has the attributes it has in the layer below. */
	if (count && make_alike(tree, root, "", tree->stack.lowers[0], err) < 0)
		return -1;
	*ret = steal_ptr(&tree);
	return 0;
}

void layer_tree_free(struct layer_tree *tree)
{
	if (!tree)
		return;
	layer_tree_changed(tree, true);
	for (size_t i = 0; i < tree->stack.lower_count; i++)
		close(tree->stack.lowers[i]);
	for (size_t i = 0; i < tree->time_count; i++)
		free(tree->times[i].path);
	free(tree->times);
	free(tree->stack.lowers);
	free(tree);
}

bool layer_tree_has_lowers(const struct layer_tree *tree)
{
	return tree->stack.lower_count > 0;
}

int layer_tree_lower_root(const struct layer_tree *tree, size_t index, DIR **ret, struct err *err)
{
	int fd;

	if (index >= tree->stack.lower_count)
		return 0;
	fd = open_dir(tree->stack.lowers[index], ".");
	*ret = fd < 0 ? NULL : fdopendir(fd);
	return *ret ? 1 : err_sys(err, errno, "open a layer");
}

uint64_t layer_tree_made(const struct layer_tree *tree)
{
	return tree->made;
}
