/* btrfs.c - the ioctls of btrfs as typed functions
 *
 * Uses only the kernel's interface, no btrfs-progs and no library: making a subvolume takes less
 * time than starting a program. */
#include "pool/pool_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

enum {
	SUBVOL_TOP_INODE = 256,
	SEARCH_BUFFER = 64 * 1024,
};

bool btrfs_is(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

bool btrfs_is_subvol(int fd)
{
	struct stat st;

	return btrfs_is(fd) && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_ino == SUBVOL_TOP_INODE;
}

/* ---- subvolumes ----------------------------------------------------------------------------- */

enum { GROUPS_MAX = 2 };
struct inherit {
	struct btrfs_qgroup_inherit head;
	uint64_t groups[GROUPS_MAX];
};

static int set_name(struct btrfs_ioctl_vol_args_v2 *args, const char *name, struct err *err)
{
	if (strlen(name) >= sizeof args->name)
		return err_set(err, ERR_INVALID, "name '%.40s…' is too long", name);
	strcpy(args->name, name);
	return 0;
}

static void set_groups(struct btrfs_ioctl_vol_args_v2 *args, struct inherit *inherit,
	const struct btrfs_groups *groups)
{
	const uint64_t wanted[GROUPS_MAX] = { groups->all, groups->budget };

	for (size_t i = 0; i < GROUPS_MAX; i++)
		if (wanted[i])
			inherit->groups[inherit->head.num_qgroups++] = wanted[i];
	if (!inherit->head.num_qgroups)
		return;
	args->flags |= BTRFS_SUBVOL_QGROUP_INHERIT;
	args->size = sizeof inherit->head + inherit->head.num_qgroups * sizeof *inherit->groups;
	args->qgroup_inherit = &inherit->head;
}

int btrfs_subvol_create(
	int dirfd, const char *name, const struct btrfs_groups *groups, struct err *err)
{
	struct btrfs_ioctl_vol_args_v2 args = { 0 };
	struct inherit inherit = { 0 };

	if (set_name(&args, name, err) < 0)
		return -1;
	set_groups(&args, &inherit, groups);
	if (ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
		return err_sys(err, errno, "make subvolume '%s'", name);
	return 0;
}

int btrfs_subvol_snapshot(
	int dirfd, const char *name, int source, const struct btrfs_groups *groups, struct err *err)
{
	struct btrfs_ioctl_vol_args_v2 args = { .fd = source };
	struct inherit inherit = { 0 };

	if (set_name(&args, name, err) < 0)
		return -1;
	set_groups(&args, &inherit, groups);
	if (ioctl(dirfd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0)
		return err_sys(err, errno, "make snapshot '%s'", name);
	return 0;
}

/* ---- subvolumes in subvolumes --------------------------------------------------------------- */

/* A subvolume inside another: where, and by which name. */
struct inner {
	bool found;
	uint64_t dir;
	char name[BTRFS_VOL_NAME_MAX + 1];
};

static bool take_inner(const struct btrfs_item *item, void *arg)
{
	struct inner *inner = arg;
	struct btrfs_root_ref ref;
	size_t len;

	if (item->type != BTRFS_ROOT_REF_KEY || item->len < sizeof ref)
		return true;
	memcpy(&ref, item->data, sizeof ref);
	len = le16toh(ref.name_len);
	if (len >= sizeof inner->name || item->len < sizeof ref + len)
		return true;
	inner->dir = le64toh(ref.dirid);
	memcpy(inner->name, (const char *)item->data + sizeof ref, len);
	inner->name[len] = '\0';
	inner->found = true;
	return false;
}

static int find_inner(int fd, struct inner *ret, struct err *err)
{
	struct btrfs_range range = { .tree = BTRFS_ROOT_TREE_OBJECTID,
		.first_type = BTRFS_ROOT_REF_KEY,
		.last_type = BTRFS_ROOT_REF_KEY,
		.last_offset = UINT64_MAX };

	ret->found = false;
	if (btrfs_subvol_id(fd, &range.first_objectid, err) < 0)
		return -1;
	range.last_objectid = range.first_objectid;
	return btrfs_search(fd, &range, take_inner, ret, err);
}

/* Opens the folder with this inode number in the subvolume of fd. A box chose its path, but no
 * link is followed. */
static int open_folder(int fd, uint64_t number, int *ret, struct err *err)
{
	struct btrfs_ioctl_ino_lookup_args args = { .objectid = number };
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };

	if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
		return err_sys(err, errno, "look up a folder of a subvolume");
	*ret = (int)syscall(SYS_openat2, fd, *args.name ? args.name : ".", &how, sizeof how);
	return *ret < 0 ? err_sys(err, errno, "open a folder of a subvolume") : 0;
}

/* Nothing can be deleted from a read-only subvolume. */
static void make_writable(int fd)
{
	uint64_t flags;

	if (ioctl(fd, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) == 0 && (flags & BTRFS_SUBVOL_RDONLY)) {
		flags &= ~(uint64_t)BTRFS_SUBVOL_RDONLY;
		ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
	}
}

static int destroy(int dirfd, const char *name)
{
	struct btrfs_ioctl_vol_args args = { 0 };

	snprintf(args.name, sizeof args.name, "%s", name);
	return ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args);
}

/* Destroys a subvolume that contains no other, and says whether there was one. Without
 * recursion: a box chose how deep they are nested. */
static int destroy_deepest(int top, bool *ret_found, struct err *err)
{
	_cleanup_close_ int fd = dup(top), dir = -1;
	struct inner inner, last = { 0 };

	for (;;) {
		make_writable(fd);
		if (find_inner(fd, &inner, err) < 0)
			return -1;
		if (!inner.found)
			break;
		cleanup_closep(&dir);
		dir = -1;
		if (open_folder(fd, inner.dir, &dir, err) < 0)
			return -1;
		last = inner;
		close(fd);
		fd = openat(dir, inner.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return err_sys(err, errno, "open a subvolume in a subvolume");
	}
	*ret_found = last.found;
	if (last.found && destroy(dir, last.name) < 0)
		return err_sys(err, errno, "delete a subvolume in a subvolume");
	return 0;
}

static int destroy_inner(int dirfd, const char *name, struct err *err)
{
	_cleanup_close_ int fd =
		openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool found = true;

	if (fd < 0)
		return err_sys(err, errno, "open subvolume '%s'", name);
	while (found)
		if (destroy_deepest(fd, &found, err) < 0)
			return -1;
	return 0;
}

int btrfs_subvol_destroy(int dirfd, const char *name, struct err *err)
{
	if (strlen(name) > BTRFS_VOL_NAME_MAX)
		return err_set(err, ERR_INVALID, "name '%.40s…' is too long", name);
	if (destroy(dirfd, name) == 0)
		return 0;
	if (errno == ENOTEMPTY && destroy_inner(dirfd, name, err) < 0)
		return -1;
	if (destroy(dirfd, name) < 0)
		return err_sys(err, errno, "delete subvolume '%s'", name);
	return 0;
}

int btrfs_subvol_id(int fd, uint64_t *ret, struct err *err)
{
	struct btrfs_ioctl_ino_lookup_args args = { .objectid = BTRFS_FIRST_FREE_OBJECTID };

	if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
		return err_sys(err, errno, "look up the id of a subvolume");
	*ret = args.treeid;
	return 0;
}

/* ---- the file system as a whole ------------------------------------------------------------- */

int btrfs_fsid(int fd, char ret[37], struct err *err)
{
	struct btrfs_ioctl_fs_info_args info = { 0 };
	const uint8_t *id = info.fsid;

	if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) < 0)
		return err_sys(err, errno, "ask btrfs about itself");
	snprintf(ret, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10],
		id[11], id[12], id[13], id[14], id[15]);
	return 0;
}

int btrfs_device_size(int fd, uint64_t *ret_size, struct err *err)
{
	struct btrfs_ioctl_dev_info_args info = { .devid = 1 };

	if (ioctl(fd, BTRFS_IOC_DEV_INFO, &info) < 0)
		return err_sys(err, errno, "ask btrfs about its device");
	*ret_size = info.total_bytes;
	return 0;
}

int btrfs_resize_to_device(int fd, struct err *err)
{
	struct btrfs_ioctl_vol_args args = { .name = "1:max" };

	if (ioctl(fd, BTRFS_IOC_RESIZE, &args) < 0)
		return err_sys(err, errno, "resize the file system");
	return 0;
}

void btrfs_start_commit(int fd)
{
	ioctl(fd, BTRFS_IOC_START_SYNC, NULL);
}

void btrfs_renew_metadata(int fd)
{
	struct btrfs_ioctl_balance_args args = { .flags = BTRFS_BALANCE_METADATA };

	ioctl(fd, BTRFS_IOC_BALANCE_V2, &args);
}

/* ---- searching a tree ----------------------------------------------------------------------- */

/* The key after the last one seen. */
static void step_past(struct btrfs_ioctl_search_key *key, const struct btrfs_item *last)
{
	key->min_objectid = last->objectid;
	key->min_type = last->type;
	key->min_offset = last->offset + 1;
	if (key->min_offset)
		return;
	if (++key->min_type > UINT8_MAX) {
		key->min_type = 0;
		key->min_objectid++;
	}
}

/* Walks one result; false when fn wants no more or the result is malformed. */
static bool walk_answer(const struct btrfs_ioctl_search_args_v2 *args, struct btrfs_item *last,
	btrfs_item_fn fn, void *arg)
{
	const char *at = (const char *)args->buf, *end = at + args->buf_size;

	for (uint32_t i = 0; i < args->key.nr_items; i++) {
		struct btrfs_ioctl_search_header head;

		if ((size_t)(end - at) < sizeof head)
			return false;
		memcpy(&head, at, sizeof head);
		at += sizeof head;
		if ((size_t)(end - at) < head.len)
			return false;
		*last = (struct btrfs_item){ .objectid = head.objectid,
			.offset = head.offset,
			.type = head.type,
			.data = at,
			.len = head.len };
		at += head.len;
		if (!fn(last, arg))
			return false;
	}
	return true;
}

int btrfs_search(
	int fd, const struct btrfs_range *range, btrfs_item_fn fn, void *arg, struct err *err)
{
	_cleanup_free_ struct btrfs_ioctl_search_args_v2 *args =
		xcalloc(1, sizeof *args + SEARCH_BUFFER);
	struct btrfs_ioctl_search_key key = { .tree_id = range->tree,
		.min_objectid = range->first_objectid,
		.max_objectid = range->last_objectid,
		.min_type = range->first_type,
		.max_type = range->last_type,
		.min_offset = range->first_offset,
		.max_offset = range->last_offset,
		.max_transid = UINT64_MAX };
	struct btrfs_item last;

	for (;;) {
		args->key = key;
		args->key.nr_items = UINT32_MAX;
		args->buf_size = SEARCH_BUFFER;
		if (ioctl(fd, BTRFS_IOC_TREE_SEARCH_V2, args) < 0)
			return err_sys(err, errno, "search btrfs tree %llu",
				(unsigned long long)range->tree);
		if (!args->key.nr_items || !walk_answer(args, &last, fn, arg))
			return 0;
		step_past(&key, &last);
	}
}
