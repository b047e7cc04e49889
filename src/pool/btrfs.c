/* btrfs.c - the ioctls of btrfs as typed functions
 *
 * Only what is in the kernel's interface, no btrfs-progs and no library: a subvolume is made in less time
 * than a program takes to start. */
#include "pool/pool_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/ioctl.h>
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

/* ---- subvolumes ----------------------------------------------------------------------------------------- */

struct inherit_one {
	struct btrfs_qgroup_inherit head;
	uint64_t group;
};

static int set_name(struct btrfs_ioctl_vol_args_v2 *args, const char *name, struct err *err)
{
	if (strlen(name) >= sizeof args->name)
		return err_set(err, ERR_INVALID, "name '%.40s…' is too long", name);
	strcpy(args->name, name);
	return 0;
}

static void set_group(
	struct btrfs_ioctl_vol_args_v2 *args, struct inherit_one *inherit, uint64_t group)
{
	if (!group)
		return;
	inherit->head.num_qgroups = 1;
	inherit->group = group;
	args->flags |= BTRFS_SUBVOL_QGROUP_INHERIT;
	args->size = sizeof *inherit;
	args->qgroup_inherit = &inherit->head;
}

int btrfs_subvol_create(int dirfd, const char *name, uint64_t group, struct err *err)
{
	struct btrfs_ioctl_vol_args_v2 args = { 0 };
	struct inherit_one inherit = { 0 };

	if (set_name(&args, name, err) < 0)
		return -1;
	set_group(&args, &inherit, group);
	if (ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
		return err_sys(err, errno, "make subvolume '%s'", name);
	return 0;
}

int btrfs_subvol_snapshot(int dirfd, const char *name, int source, uint64_t group, struct err *err)
{
	struct btrfs_ioctl_vol_args_v2 args = { .fd = source };
	struct inherit_one inherit = { 0 };

	if (set_name(&args, name, err) < 0)
		return -1;
	set_group(&args, &inherit, group);
	if (ioctl(dirfd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0)
		return err_sys(err, errno, "make snapshot '%s'", name);
	return 0;
}

int btrfs_subvol_destroy(int dirfd, const char *name, struct err *err)
{
	struct btrfs_ioctl_vol_args args = { 0 };

	if (strlen(name) >= sizeof args.name)
		return err_set(err, ERR_INVALID, "name '%.40s…' is too long", name);
	strcpy(args.name, name);
	if (ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args) < 0)
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

/* ---- the file system as a whole ---------------------------------------------------------------------------- */

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

/* ---- searching a tree ------------------------------------------------------------------------------------ */

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

/* Walks one answer; false when fn wants no more or the answer makes no sense. */
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
