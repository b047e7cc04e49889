/* unpack.c - a layer as tar becomes a folder in the format of overlayfs
 *
 * Runs as root, on archives of any origin. layer_tree.c decides where a name leads; here the
 * kernel only ever gets one component, in a folder that is open. Later members replace earlier
 * ones.
 *
 * What hides the layers below:
 *   .wh.NAME       a character device 0/0, if they have NAME; on a folder that this layer has as
 *                  well: opaque
 *   .wh..wh..opq   the folder becomes opaque; overlayfs ignores that on a root, so there all names
 *                  are hidden
 * A whiteout concerns the layers below only, whether it comes before or after a member of that
 * name. So a folder made where this layer had something else (a whiteout, a file) is opaque, and
 * the order makes no difference.
 *
 * Devices are left out (boxes get theirs elsewhere), and so are extended attributes except
 * user.* and security.capability: trusted.overlay.* would let an archive rearrange the layers. */
#include "image/oci_internal.h"
#include "base/file.h"
#include "base/text.h"
#include "tar/tar.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

enum { CHUNK = 1024 * 1024, BLOCK = 4096 };
#define FILE_SIZE_MAX (1ull << 40) /* of one file, holes included */

#define WHITEOUT	".wh."
#define WHITEOUT_META	WHITEOUT WHITEOUT
#define WHITEOUT_OPAQUE WHITEOUT_META ".opq"

struct unpack {
	const struct unpack_spec *spec;
	struct layer_tree *tree;
	struct tar_reader reader;
	const struct tar_entry *entry; /* the current member */
	struct place place, target;    /* of the current member, and of its link target */
	struct unpack_totals totals;
	uint64_t content;
	bool root_hidden; /* nothing of the layers below is visible any more */
	uint8_t *chunk;
};

static int count_bytes(struct unpack *unpack, uint64_t len, struct err *err)
{
	if (len > unpack->spec->bytes_max - unpack->content)
		return err_set(err, ERR_LIMIT, "the archive holds more than %llu MiB",
			(unsigned long long)(unpack->spec->bytes_max >> 20));
	unpack->content += len;
	return 0;
}

static int count_file(struct unpack *unpack, struct err *err)
{
	unpack->totals.files++;
	if (unpack->totals.files + layer_tree_made(unpack->tree) > unpack->spec->files_max)
		return err_set(err, ERR_LIMIT, "the archive holds more than %llu files",
			(unsigned long long)unpack->spec->files_max);
	return 0;
}

/* Removes what this layer has where the member goes. */
static int clear_place(struct unpack *unpack, struct err *err)
{
	if (tree_remove(unpack->place.dir, unpack->place.leaf, err) < 0)
		return -1;
	/* This closes the folder of the place, so the place is looked up again. */
	layer_tree_changed(unpack->tree, true);
	return layer_tree_place(unpack->tree, unpack->entry->name, &unpack->place, err);
}

/* ---- attributes of a member ----------------------------------------------------------------- */

static int set_xattrs(
	struct unpack *unpack, int fd, mode_t type, const struct tar_entry *entry, struct err *err)
{
	for (size_t i = 0; i < entry->xattr_count; i++) {
		const struct tar_xattr *xattr = &entry->xattrs[i];

		if (fd < 0 || !layer_xattr_is_kept(xattr->name, type)) {
			unpack->totals.xattrs++;
			continue;
		}
		if (fsetxattr(fd, xattr->name, xattr->value, xattr->len, 0) == 0)
			continue;
		/* ext4 has room for a block of attributes per file, btrfs for some more, and
		 * reports the lack like this; a full disk is noticed elsewhere. */
		if (errno != EOPNOTSUPP &&
			!(errno == ENOSPC && text_has_prefix(xattr->name, "user.")))
			return err_sys(err, errno, "set the attribute '%.100s'", xattr->name);
		unpack->totals.xattrs++;
	}
	return 0;
}

/* Mostly everything is right when it is created, and checking costs less than setting. The owner
 * comes first: the kernel clears set-user-id and capabilities when it changes. */
static int set_meta(
	struct unpack *unpack, int fd, mode_t type, const struct tar_entry *entry, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "look at it");
	if (st.st_uid != entry->uid || st.st_gid != entry->gid) {
		if (fchown(fd, entry->uid, entry->gid) < 0)
			return err_sys(err, errno, "set the owner");
		if (S_ISREG(st.st_mode)) /* a folder may inherit them from its parent */
			st.st_mode &= (mode_t)~06000;
	}
	if ((st.st_mode & 07777) != (entry->mode & 07777) && fchmod(fd, entry->mode & 07777) < 0)
		return err_sys(err, errno, "set the mode");
	return set_xattrs(unpack, fd, type, entry, err);
}

static void get_times(const struct tar_entry *entry, struct timespec ret[2])
{
	ret[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	ret[1] = (struct timespec){ .tv_sec = entry->mtime, .tv_nsec = entry->mtime_ns };
}

/* For entries that cannot be opened: symlinks and pipes. */
static int set_meta_at(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	const struct place *place = &unpack->place;
	struct timespec times[2];

	get_times(entry, times);
	if (fchownat(place->dir, place->leaf, entry->uid, entry->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "set the owner");
	if (entry->type == TAR_FIFO &&
		fchmodat(place->dir, place->leaf, entry->mode & 07777, 0) < 0)
		return err_sys(err, errno, "set the mode");
	if (utimensat(place->dir, place->leaf, times, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "set the time");
	return set_xattrs(unpack, -1, 0, entry, err);
}

/* ---- members -------------------------------------------------------------------------------- */

static int pwrite_all(int fd, const uint8_t *data, size_t len, uint64_t offset, struct err *err)
{
	while (len) {
		ssize_t put = pwrite(fd, data, len, (off_t)offset);

		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return err_sys(err, errno, "write");
		data += put;
		len -= (size_t)put;
		offset += (uint64_t)put;
	}
	return 0;
}

static int fill_file(struct unpack *unpack, int fd, const struct tar_entry *entry, struct err *err)
{
	uint64_t offset = tar_offset(&unpack->reader);
	ssize_t got;

	if (entry->real_size > FILE_SIZE_MAX)
		return err_set(err, ERR_LIMIT, "the file is too large");
	if (count_bytes(unpack, entry->size, err) < 0)
		return -1;
	if (entry->sparse && ftruncate(fd, (off_t)entry->real_size) < 0)
		return err_sys(err, errno, "set the size");
	while ((got = tar_read(&unpack->reader, unpack->chunk, CHUNK, err)) > 0) {
		if (pwrite_all(fd, unpack->chunk, (size_t)got, offset, err) < 0)
			return -1;
		offset = tar_offset(&unpack->reader);
	}
	unpack->totals.bytes += (entry->size + BLOCK - 1) / BLOCK * BLOCK;
	return (int)got;
}

static int create_file(
	struct unpack *unpack, const struct tar_entry *entry, int *ret, struct err *err)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	const mode_t mode = entry->mode & 0777;
	int fd = openat(unpack->place.dir, unpack->place.leaf, flags, mode);

	if (fd < 0 && errno == EEXIST) {
		if (clear_place(unpack, err) < 0)
			return -1;
		fd = openat(unpack->place.dir, unpack->place.leaf, flags, mode);
	}
	if (fd < 0)
		return err_sys(err, errno, "create the file");
	*ret = fd;
	return 0;
}

static int make_file(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct timespec times[2];

	if (create_file(unpack, entry, &fd, err) < 0 || fill_file(unpack, fd, entry, err) < 0 ||
		set_meta(unpack, fd, S_IFREG, entry, err) < 0)
		return -1;
	get_times(entry, times);
	return futimens(fd, times) < 0 ? err_sys(err, errno, "set the time") : 0;
}

static int enter_dir(struct unpack *unpack, int *ret, struct err *err)
{
	const struct place *place = &unpack->place;
	int fd = openat(place->dir, *place->leaf ? place->leaf : ".",
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open the folder");
	*ret = fd;
	return 0;
}

static int make_dir(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	const struct place *place = &unpack->place;
	_cleanup_close_ int fd = -1;
	struct timespec times[2];
	bool opaque = false;
	struct stat st;

	if (*place->leaf && mkdirat(place->dir, place->leaf, 0700) < 0) {
		if (errno != EEXIST ||
			fstatat(place->dir, place->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return err_sys(err, errno, "make the folder");
		if (!S_ISDIR(st.st_mode)) {
			if (clear_place(unpack, err) < 0)
				return -1;
			if (mkdirat(place->dir, place->leaf, 0700) < 0)
				return err_sys(err, errno, "make the folder");
			opaque = layer_tree_has_lowers(unpack->tree);
		}
	}
	if (enter_dir(unpack, &fd, err) < 0 || (opaque && layer_set_opaque(fd, err) < 0) ||
		set_meta(unpack, fd, S_IFDIR, entry, err) < 0)
		return -1;
	get_times(entry, times);
	return layer_tree_set_time(unpack->tree, place->path, place->leaf, &times[1], err);
}

static int make_symlink(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	int code = symlinkat(entry->link, unpack->place.dir, unpack->place.leaf);

	if (code < 0 && errno == EEXIST) {
		if (clear_place(unpack, err) < 0)
			return -1;
		code = symlinkat(entry->link, unpack->place.dir, unpack->place.leaf);
	}
	if (code < 0)
		return err_sys(err, errno, "make the link");
	return set_meta_at(unpack, entry, err);
}

static int make_fifo(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	int code = mknodat(unpack->place.dir, unpack->place.leaf, S_IFIFO | 0600, 0);

	if (code < 0 && errno == EEXIST) {
		if (clear_place(unpack, err) < 0)
			return -1;
		code = mknodat(unpack->place.dir, unpack->place.leaf, S_IFIFO | 0600, 0);
	}
	if (code < 0)
		return err_sys(err, errno, "make the pipe");
	return set_meta_at(unpack, entry, err);
}

/* ---- hard links ----------------------------------------------------------------------------- */

static int copy_content(struct unpack *unpack, int from, int to, struct err *err)
{
	uint64_t offset = 0;
	ssize_t got;

	while ((got = pread(from, unpack->chunk, CHUNK, (off_t)offset)) > 0) {
		if (count_bytes(unpack, (uint64_t)got, err) < 0 ||
			pwrite_all(to, unpack->chunk, (size_t)got, offset, err) < 0)
			return -1;
		offset += (uint64_t)got;
	}
	if (got < 0)
		return err_sys(err, errno, "read a file of a layer below");
	unpack->totals.bytes += (offset + BLOCK - 1) / BLOCK * BLOCK;
	return 0;
}

static int copy_capability(int from, int to, struct err *err)
{
	char value[64];
	ssize_t len = fgetxattr(from, "security.capability", value, sizeof value);

	if (len > 0 && fsetxattr(to, "security.capability", value, (size_t)len, 0) < 0)
		return err_sys(err, errno, "copy its capabilities");
	return 0;
}

/* Copies up a file that only a layer below has, as overlayfs would, because a member links to
 * it. */
static int copy_up(struct unpack *unpack, int found, const struct stat *st, struct err *err)
{
	const struct timespec times[] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	const struct place *target = &unpack->target;
	char path[64];
	_cleanup_close_ int from = -1, to = -1;

	if (!S_ISREG(st->st_mode))
		return err_set(err, ERR_INVALID, "it links to something that is not a file");
	snprintf(path, sizeof path, "/proc/self/fd/%d", found);
	from = open(path, O_RDONLY | O_CLOEXEC);
	to = openat(target->dir, target->leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		0600);
	if (from < 0 || to < 0)
		return err_sys(err, errno, "copy a file of a layer below");
	if (copy_content(unpack, from, to, err) < 0)
		return -1;
	if (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0)
		return err_sys(err, errno, "copy a file of a layer below");
	if (copy_capability(from, to, err) < 0)
		return -1;
	return futimens(to, times) < 0 ? err_sys(err, errno, "set the time") : 0;
}

/* Finds the target of a hard link in this layer, or copies it up. */
static int find_target(
	struct unpack *unpack, const struct tar_entry *entry, struct stat *ret, struct err *err)
{
	const struct place *target = &unpack->target;
	_cleanup_close_ int found = -1;
	int there;

	if (layer_tree_place(unpack->tree, entry->link, &unpack->target, err) < 0)
		return -1;
	if (!*target->leaf)
		return err_set(err, ERR_INVALID, "it links to something that is not a file");
	if (fstatat(target->dir, target->leaf, ret, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISDIR(ret->st_mode) || S_ISCHR(ret->st_mode))
			return err_set(
				err, ERR_INVALID, "it links to something that is not a file");
		return 0;
	}
	if (errno != ENOENT)
		return err_sys(err, errno, "look for '%.200s'", entry->link);
	there = layer_tree_below(unpack->tree, target, &found, ret, err);
	if (there < 0)
		return -1;
	if (!there)
		return err_set(err, ERR_INVALID, "it links to '%.200s', which does not exist",
			entry->link);
	if (count_file(unpack, err) < 0 || copy_up(unpack, found, ret, err) < 0)
		return -1;
	if (fstatat(target->dir, target->leaf, ret, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(err, errno, "look for '%.200s'", entry->link);
	return 0;
}

static int make_link(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	const struct place *place = &unpack->place, *target = &unpack->target;
	struct stat here, there;

	if (find_target(unpack, entry, &there, err) < 0)
		return -1;
	/* Looking up one place may have closed the folder of the other. */
	if (layer_tree_place(unpack->tree, entry->name, &unpack->place, err) < 0)
		return -1;
	if (fstatat(place->dir, place->leaf, &here, AT_SYMLINK_NOFOLLOW) == 0) {
		if (here.st_ino == there.st_ino && here.st_dev == there.st_dev)
			return 0;
		/* The target may lie in the folder that has to be removed. */
		if (clear_place(unpack, err) < 0 ||
			layer_tree_place(unpack->tree, entry->link, &unpack->target, err) < 0)
			return -1;
	}
	if (linkat(target->dir, target->leaf, place->dir, place->leaf, 0) < 0)
		return err_sys(err, errno, "link to '%.200s'", entry->link);
	return 0;
}

/* ---- whiteouts ------------------------------------------------------------------------------ */

static int hide(struct unpack *unpack, const char *name, struct err *err)
{
	struct place *place = &unpack->place;
	_cleanup_close_ int found = -1, dir = -1;
	struct stat st;
	int there;

	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return err_set(err, ERR_INVALID, "its whiteout names no file");
	memmove(place->leaf, name, strlen(name) + 1);
	there = layer_tree_below(unpack->tree, place, &found, &st, err);
	if (there <= 0)
		return there; /* nothing to hide */
	if (fstatat(place->dir, place->leaf, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISDIR(st.st_mode))
			return 0; /* it is hidden already */
		return enter_dir(unpack, &dir, err) < 0 ? -1 : layer_set_opaque(dir, err);
	}
	if (mknodat(place->dir, place->leaf, S_IFCHR, 0) < 0)
		return err_sys(err, errno, "hide '%.200s'", place->leaf);
	return count_file(unpack, err);
}

/* Done once: what is made later over a whiteout is opaque anyway. */
static int hide_root(struct unpack *unpack, struct err *err)
{
	int code = 0;

	for (size_t i = 0; !unpack->root_hidden && code == 0; i++) {
		DIR *dir;
		struct dirent *entry;
		int more = layer_tree_lower_root(unpack->tree, i, &dir, err);

		if (more <= 0) {
			unpack->root_hidden = more == 0;
			return more;
		}
		while (code == 0 && (entry = readdir(dir)))
			if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
				code = hide(unpack, entry->d_name, err);
		closedir(dir);
	}
	return code;
}

static int take_whiteout(struct unpack *unpack, struct err *err)
{
	const struct place *place = &unpack->place;

	if (!layer_tree_has_lowers(unpack->tree))
		return 0;
	if (!strcmp(place->leaf, WHITEOUT_OPAQUE))
		return *place->path ? layer_set_opaque(place->dir, err) : hide_root(unpack, err);
	if (text_has_prefix(place->leaf, WHITEOUT_META))
		return 0; /* metadata of aufs */
	return hide(unpack, place->leaf + strlen(WHITEOUT), err);
}

/* ---- the archive ---------------------------------------------------------------------------- */

static int make_member(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	switch (entry->type) {
	case TAR_FILE:
		return make_file(unpack, entry, err);
	case TAR_DIR:
		return make_dir(unpack, entry, err);
	case TAR_SYMLINK:
		return make_symlink(unpack, entry, err);
	case TAR_LINK:
		return make_link(unpack, entry, err);
	case TAR_FIFO:
		return make_fifo(unpack, entry, err);
	case TAR_CHAR:
	case TAR_BLOCK_DEVICE:
		unpack->totals.devices++;
		return 0;
	}
	return err_set(err, ERR_INVALID, "it is of a type that is not supported");
}

static int take_member(struct unpack *unpack, const struct tar_entry *entry, struct err *err)
{
	/* (uid_t)-1 would mean "leave it" to chown. */
	if (entry->uid == UINT32_MAX || entry->gid == UINT32_MAX)
		return err_set(err, ERR_INVALID, "its owner is out of range");
	if (layer_tree_place(unpack->tree, entry->name, &unpack->place, err) < 0)
		return -1;
	if (!*unpack->place.leaf && entry->type != TAR_DIR)
		return err_set(err, ERR_INVALID, "it would replace the root");
	if (unpack->spec->whiteouts && text_has_prefix(unpack->place.leaf, WHITEOUT))
		return take_whiteout(unpack, err);
	if (count_file(unpack, err) < 0)
		return -1;
	return make_member(unpack, entry, err);
}

/* The blocks after the end of the archive are part of the digest. */
static int drain(struct unpack *unpack, struct err *err)
{
	ssize_t got;

	while ((got = unpack->spec->read(unpack->spec->arg, unpack->chunk, CHUNK, err)) > 0)
		if (count_bytes(unpack, (uint64_t)got, err) < 0)
			return -1;
	return (int)got;
}

static int take_all(struct unpack *unpack, struct err *err)
{
	const struct tar_entry *entry;
	int more;

	while ((more = tar_next(&unpack->reader, &entry, err)) == 1) {
		unpack->entry = entry;
		if (take_member(unpack, entry, err) < 0)
			return err_wrap(err, "member '%.200s'", entry->name);
		layer_tree_changed(unpack->tree, false);
	}
	if (more < 0 || drain(unpack, err) < 0)
		return -1;
	unpack->totals.files += layer_tree_made(unpack->tree);
	return layer_tree_end(unpack->tree, err);
}

int unpack_layer(const struct unpack_spec *spec, struct unpack_totals *ret, struct err *err)
{
	struct unpack *unpack = xnew(struct unpack); /* large: contains names and paths */
	int code;

	unpack->spec = spec;
	unpack->reader.read = spec->read;
	unpack->reader.arg = spec->arg;
	unpack->reader.bare_end = spec->whiteouts; /* a layer, whose digest is compared */
	unpack->chunk = xcalloc(1, CHUNK);
	code = layer_tree_new(spec->dir, spec->lowers, &unpack->tree, err);
	if (code == 0)
		code = take_all(unpack, err);
	if (code == 0)
		*ret = unpack->totals;
	layer_tree_free(unpack->tree);
	tar_reader_done(&unpack->reader);
	free(unpack->chunk);
	free(unpack);
	return code;
}
