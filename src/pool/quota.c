/* quota.c - how much each disk may write, and how much it has written
 *
 * Simple quotas (Linux 6.7) charge an extent to the subvolume that wrote it, permanently: a copy
 * starts near zero, and its limit means "own new data". Where they do not exist, full quota
 * groups are used: they cost more, and a copy is charged for what it shares. Quotas that
 * somebody else turned on (in a native pool) are used as they are.
 *
 * The figures of all disks come from two searches: the references from the pool's subvolume to
 * those in it, which give place and name of each id, and the items of the quota tree. The tree
 * is written at each commit, twice a minute, and whenever a disk reaches its limit (the kernel
 * then checks twice), so the figure of a full disk is never too small. The figures of one disk
 * come from sysfs, where they are current. */
#include "pool/pool_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stdio.h>
#include <sys/ioctl.h>

#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4
#endif
#ifndef BTRFS_QGROUP_STATUS_FLAG_SIMPLE_MODE
#define BTRFS_QGROUP_STATUS_FLAG_SIMPLE_MODE (1ULL << 3)
#endif
#define LIMIT_CLEAR UINT64_MAX /* removes a limit */

static const char *const quota_names[] = {
	[POOL_QUOTA_NONE] = "none",
	[POOL_QUOTA_SIMPLE] = "simple",
	[POOL_QUOTA_FULL] = "full",
};
static_assert(ARRAY_LEN(quota_names) == POOL_QUOTA_COUNT, "every quota has a name");

const char *quota_name(enum pool_quota quota)
{
	return quota_names[quota];
}

/* ---- turning them on ------------------------------------------------------------------------ */

static bool take_status(const struct btrfs_item *item, void *arg)
{
	struct btrfs_qgroup_status_item status;
	enum pool_quota *quota = arg;
	uint64_t flags;

	if (item->len < offsetof(struct btrfs_qgroup_status_item, rescan))
		return false;
	memcpy(&status, item->data, offsetof(struct btrfs_qgroup_status_item, rescan));
	flags = le64toh(status.flags);
	if (flags & BTRFS_QGROUP_STATUS_FLAG_ON)
		*quota = flags & BTRFS_QGROUP_STATUS_FLAG_SIMPLE_MODE ? POOL_QUOTA_SIMPLE
								      : POOL_QUOTA_FULL;
	return false;
}

static enum pool_quota read_mode(int root)
{
	struct btrfs_range range = { .tree = BTRFS_QUOTA_TREE_OBJECTID,
		.first_type = BTRFS_QGROUP_STATUS_KEY,
		.last_type = BTRFS_QGROUP_STATUS_KEY };
	enum pool_quota quota = POOL_QUOTA_NONE;

	btrfs_search(root, &range, take_status, &quota, NULL); /* no quota tree: no quota */
	return quota;
}

static void turn_on(int root)
{
	struct btrfs_ioctl_quota_ctl_args args = { .cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA };
	struct btrfs_ioctl_quota_rescan_args rescan = { 0 };

	if (ioctl(root, BTRFS_IOC_QUOTA_CTL, &args) == 0)
		return;
	args.cmd = BTRFS_QUOTA_CTL_ENABLE;
	if (ioctl(root, BTRFS_IOC_QUOTA_CTL, &args) == 0)
		ioctl(root, BTRFS_IOC_QUOTA_RESCAN, &rescan);
}

/* Makes the group that contains all disks of a loop pool, see watch.c. */
static void make_group(struct pool *pool)
{
	struct btrfs_ioctl_qgroup_create_args args = { .create = 1,
		.qgroupid = UINT64_C(1) << QUOTA_LEVEL_SHIFT | pool->root_id };

	if (ioctl(pool->root, BTRFS_IOC_QGROUP_CREATE, &args) < 0 && errno != EEXIST) {
		log_warn("cannot make a quota group for all disks, continuing",
			kv_str("error", strerror(errno)));
		return;
	}
	pool->group = args.qgroupid;
	/* A limit set by the last daemon may no longer be needed. */
	quota_limit_group(pool, 0, NULL);
}

void quota_open(struct pool *pool)
{
	pool->quota = read_mode(pool->root);
	if (pool->quota == POOL_QUOTA_NONE) {
		turn_on(pool->root);
		pool->quota = read_mode(pool->root);
		if (pool->kind == POOL_NATIVE && pool->quota != POOL_QUOTA_NONE)
			log_info("quotas were turned on for the whole file system of the home",
				kv_str("kind", quota_name(pool->quota)));
	}
	if (pool->quota == POOL_QUOTA_NONE)
		log_warn("btrfs gives no quotas here: disks have no limits",
			kv_str("path", pool->path));
	else if (pool->kind == POOL_LOOP)
		make_group(pool);
}

bool pool_has_quota(const struct pool *pool)
{
	return pool->quota != POOL_QUOTA_NONE;
}

/* ---- limits --------------------------------------------------------------------------------- */

int quota_limit(int fd, uint64_t group, uint64_t limit, struct err *err)
{
	struct btrfs_ioctl_qgroup_limit_args args = { .qgroupid = group };

	args.lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
	args.lim.max_rfer = limit ? limit : LIMIT_CLEAR;
	if (ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0)
		return err_sys(err, errno, "set a disk's limit");
	return 0;
}

/* Uses a descriptor outside of the disk: setting the limit needs space, and a full subvolume has
 * none. */
int quota_limit_disk(int outside, int fd, uint64_t limit, struct err *err)
{
	uint64_t id;

	if (btrfs_subvol_id(fd, &id, err) < 0)
		return -1;
	return quota_limit(outside, id, limit, err);
}

int quota_limit_group(struct pool *pool, uint64_t limit, struct err *err)
{
	if (quota_limit(pool->root, pool->group, limit, err) < 0)
		return -1;
	pool->group_limit = limit;
	return 0;
}

int quota_open_disk(
	const struct pool *pool, const char *place, const char *id, int *ret, struct err *err)
{
	_cleanup_free_ char *path = pool_disk_path(pool, place, id);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, errno, "open disk '%s/%s'", place, id);
	if (!btrfs_is_subvol(fd))
		return err_set(err, ERR_UNSUPPORTED, "'%s/%s' is a plain folder", place, id);
	*ret = steal_fd(&fd);
	return 0;
}

int pool_disk_limit(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err)
{
	_cleanup_close_ int fd = -1;

	if (!pool_has_quota(pool))
		return err_set(err, ERR_UNSUPPORTED, "this pool cannot limit disks");
	if (quota_open_disk(pool, place, id, &fd, err) < 0)
		return -1;
	return quota_limit_disk(pool->root, fd, limit, err);
}

/* ---- figures of one disk -------------------------------------------------------------------- */

static int read_figure(
	const struct pool *pool, uint64_t group, const char *name, uint64_t *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL, *path = NULL;

	path = xasprintf("/sys/fs/btrfs/%s/qgroups/%llu_%llu/%s", pool->fsid,
		(unsigned long long)(group >> QUOTA_LEVEL_SHIFT),
		(unsigned long long)(group & ((UINT64_C(1) << QUOTA_LEVEL_SHIFT) - 1)), name);
	if (file_read(AT_FDCWD, path, 64, &text, NULL, err) < 0)
		return -1;
	text[strcspn(text, "\n")] = '\0';
	return parse_u64(name, text, 0, UINT64_MAX, ret, err);
}

/* Adds what is written and what is reserved: the kernel checks limits against both. */
static int read_used(const struct pool *pool, uint64_t group, uint64_t *ret, struct err *err)
{
	uint64_t written, waiting;

	if (read_figure(pool, group, "referenced", &written, err) < 0 ||
		read_figure(pool, group, "rsv_data", &waiting, err) < 0)
		return -1;
	*ret = written + waiting;
	return 0;
}

int quota_figures(const struct pool *pool, uint64_t group, uint64_t *ret_used, uint64_t *ret_limit,
	struct err *err)
{
	uint64_t used, limit;

	if (read_used(pool, group, &used, err) < 0 ||
		read_figure(pool, group, "max_referenced", &limit, err) < 0)
		return -1;
	*ret_used = used;
	*ret_limit = limit;
	return 0;
}

int quota_group_used(const struct pool *pool, uint64_t *ret, struct err *err)
{
	return read_figure(pool, pool->group, "referenced", ret, err);
}

int pool_usage(struct pool *pool, const char *place, const char *id, uint64_t *ret_used,
	uint64_t *ret_limit, struct err *err)
{
	_cleanup_close_ int fd = -1;
	uint64_t group;

	if (!pool_has_quota(pool))
		return err_set(err, ERR_UNSUPPORTED, "this pool does not count what disks use");
	if (quota_open_disk(pool, place, id, &fd, err) < 0 || btrfs_subvol_id(fd, &group, err) < 0)
		return -1;
	return quota_figures(pool, group, ret_used, ret_limit, err);
}

/* ---- figures of all disks ------------------------------------------------------------------- */

struct group_figures {
	uint64_t id, used, limit;
	uint64_t budget; /* of a disk: its budget; 0: none */
};

struct figures {
	struct group_figures *list; /* by id, as the tree has them */
	size_t count;
};

static struct group_figures *find_figures(struct figures *all, uint64_t id)
{
	size_t low = 0, high = all->count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (all->list[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < all->count && all->list[low].id == id ? &all->list[low] : NULL;
}

/* All INFO items come before all LIMIT items. */
static bool take_figures(const struct btrfs_item *item, void *arg)
{
	struct btrfs_qgroup_limit_item limit;
	struct btrfs_qgroup_info_item info;
	struct group_figures *group;
	struct figures *all = arg;

	if (item->type == BTRFS_QGROUP_INFO_KEY && item->len >= sizeof info) {
		memcpy(&info, item->data, sizeof info);
		if (!(all->count & (all->count - 1)))
			xgrow(all->list, MAX(all->count * 2, 64U));
		all->list[all->count++] =
			(struct group_figures){ .id = item->offset, .used = le64toh(info.rfer) };
	} else if (item->type == BTRFS_QGROUP_LIMIT_KEY && item->len >= sizeof limit) {
		memcpy(&limit, item->data, sizeof limit);
		group = find_figures(all, item->offset);
		if (group && (le64toh(limit.flags) & BTRFS_QGROUP_LIMIT_MAX_RFER))
			group->limit = le64toh(limit.max_rfer);
	}
	return true;
}

/* Each relation occurs twice, once from either side. */
static bool take_budgets(const struct btrfs_item *item, void *arg)
{
	struct group_figures *group;

	if (item->type != BTRFS_QGROUP_RELATION_KEY ||
		item->offset >> QUOTA_LEVEL_SHIFT != QUOTA_BUDGET_LEVEL)
		return true;
	group = find_figures(arg, item->objectid);
	if (group)
		group->budget = item->offset;
	return true;
}

static int read_all(int root, struct figures *ret, struct err *err)
{
	struct btrfs_range range = { .tree = BTRFS_QUOTA_TREE_OBJECTID,
		.first_type = BTRFS_QGROUP_INFO_KEY,
		.last_type = BTRFS_QGROUP_LIMIT_KEY,
		.last_offset = UINT64_MAX };
	struct btrfs_range relations = { .tree = BTRFS_QUOTA_TREE_OBJECTID,
		.first_objectid = BTRFS_FIRST_FREE_OBJECTID,
		.last_objectid = (UINT64_C(1) << QUOTA_LEVEL_SHIFT) - 1,
		.last_type = UINT8_MAX,
		.last_offset = UINT64_MAX };

	if (btrfs_search(root, &range, take_figures, ret, err) < 0)
		return -1;
	return btrfs_search(root, &relations, take_budgets, ret, err);
}

struct usage_walk {
	struct pool *pool;
	struct figures all;
	ino_t inodes[3];
	pool_usage_fn fn;
	void *arg;
};
static const char *const counted_places[] = { "boxes", "volumes", "layers" };

static bool tell_usage(const struct btrfs_item *item, void *arg)
{
	struct usage_walk *walk = arg;
	struct btrfs_root_ref ref;
	struct group_figures *group = find_figures(&walk->all, item->offset), *budget;
	struct pool_figures figures;
	char name[256];

	if (!group || item->len < sizeof ref)
		return true;
	memcpy(&ref, item->data, sizeof ref);
	if (le16toh(ref.name_len) >= sizeof name || item->len < sizeof ref + le16toh(ref.name_len))
		return true;
	memcpy(name, (const char *)item->data + sizeof ref, le16toh(ref.name_len));
	name[le16toh(ref.name_len)] = '\0';
	budget = group->budget ? find_figures(&walk->all, group->budget) : NULL;
	figures = (struct pool_figures){ group->used, group->limit, budget ? budget->used : 0,
		budget ? budget->limit : 0 };
	for (size_t i = 0; i < ARRAY_LEN(counted_places); i++)
		if (walk->inodes[i] == le64toh(ref.dirid))
			walk->fn(counted_places[i], name, &figures, walk->arg);
	return true;
}

/* References from the pool's subvolume to the ones in it. */
static struct btrfs_range refs_of(const struct pool *pool)
{
	return (struct btrfs_range){ .tree = BTRFS_ROOT_TREE_OBJECTID,
		.first_objectid = pool->root_id,
		.last_objectid = pool->root_id,
		.first_type = BTRFS_ROOT_REF_KEY,
		.last_type = BTRFS_ROOT_REF_KEY,
		.last_offset = UINT64_MAX };
}

int pool_usage_each(struct pool *pool, pool_usage_fn fn, void *arg, struct err *err)
{
	struct usage_walk walk = { .pool = pool, .fn = fn, .arg = arg };
	struct btrfs_range refs = refs_of(pool);
	struct stat st;
	int ret = -1;

	if (!pool_has_quota(pool))
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(counted_places); i++) {
		if (fstatat(pool->root, counted_places[i], &st, 0) < 0)
			return err_sys(
				err, errno, "look at '%s/%s'", pool->path, counted_places[i]);
		walk.inodes[i] = st.st_ino;
	}
	if (read_all(pool->root, &walk.all, err) == 0)
		ret = btrfs_search(pool->root, &refs, tell_usage, &walk, err);
	free(walk.all.list);
	return ret;
}

/* ---- unused groups -------------------------------------------------------------------------- */

static bool strike_out(const struct btrfs_item *item, void *arg)
{
	struct group_figures *group = find_figures(arg, item->offset);

	if (group)
		group->used = UINT64_MAX; /* its subvolume exists */
	return true;
}

/* In a native pool the groups of others look like those of deleted disks; budgets are always
 * ours. */
static bool may_go(const struct pool *pool, const struct group_figures *group)
{
	uint64_t level = group->id >> QUOTA_LEVEL_SHIFT;

	if (group->used || group->id < BTRFS_FIRST_FREE_OBJECTID)
		return false;
	return level == QUOTA_BUDGET_LEVEL || (!level && pool->kind == POOL_LOOP);
}

void quota_sweep(const struct pool *pool)
{
	_cleanup_close_ int root = open(pool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct btrfs_range refs = refs_of(pool);
	struct figures all = { 0 };

	if (!pool_has_quota(pool) || root < 0)
		return;
	/* Reads the groups first: a later one is not in the list. */
	if (read_all(root, &all, NULL) == 0 &&
		btrfs_search(root, &refs, strike_out, &all, NULL) == 0)
		for (size_t i = 0; i < all.count; i++) {
			struct btrfs_ioctl_qgroup_create_args args = { .qgroupid = all.list[i].id };

			/* The kernel refuses to remove a group that is still needed: a budget
			 * with members. Members come before it in the list. */
			if (may_go(pool, &all.list[i]))
				ioctl(root, BTRFS_IOC_QGROUP_CREATE, &args);
		}
	free(all.list);
}
