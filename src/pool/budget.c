/* budget.c - disks that are counted together
 *
 * A limit on a disk alone can be multiplied. A box that rolls back to its own snapshot gets a
 * new disk that starts at zero, because simple quotas charge shared data to the disk that wrote
 * it; a box that forks itself gets a limit for each copy. So each disk is in a budget: a quota
 * group without a disk of its own. A copy made for the same owner joins the same budget. The
 * kernel adds up what all members have written and still refer to, deleted ones included: the
 * group of a deleted subvolume stays a member until its last extent is freed. A write is refused
 * when the limit of the disk or of the budget is reached.
 *
 * The quota tree is the only record of which budget a disk is in, so nothing can disagree with
 * it. A budget has the number of the first subvolume that was in it; numbers of subvolumes are
 * never reused. */
#include "pool/pool_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <sys/ioctl.h>

enum { TRIES = 5 };

/* ---- finding the budget of a disk ----------------------------------------------------------- */

static bool take_budget(const struct btrfs_item *item, void *arg)
{
	if (item->type != BTRFS_QGROUP_RELATION_KEY ||
		item->offset >> QUOTA_LEVEL_SHIFT != QUOTA_BUDGET_LEVEL)
		return true;
	*(uint64_t *)arg = item->offset;
	return false;
}

int budget_of(const struct pool *pool, int fd, uint64_t *ret, struct err *err)
{
	struct btrfs_range range = { .tree = BTRFS_QUOTA_TREE_OBJECTID,
		.first_type = BTRFS_QGROUP_RELATION_KEY,
		.last_type = BTRFS_QGROUP_RELATION_KEY,
		.last_offset = UINT64_MAX };
	uint64_t id;

	*ret = 0;
	if (!pool_has_quota(pool))
		return 0;
	if (btrfs_subvol_id(fd, &id, err) < 0)
		return -1;
	range.first_objectid = range.last_objectid = id;
	return btrfs_search(fd, &range, take_budget, ret, err);
}

/* ---- making a budget ------------------------------------------------------------------------ */

/* Returns 0 or an errno. */
static int assign(int outside, uint64_t id, uint64_t budget)
{
	struct btrfs_ioctl_qgroup_assign_args args = { .assign = 1, .src = id, .dst = budget };
	struct btrfs_ioctl_quota_rescan_args rescan = { 0 };
	int status = ioctl(outside, BTRFS_IOC_QGROUP_ASSIGN, &args);

	/* Full quota groups have to be rescanned for shared extents. */
	if (status > 0)
		ioctl(outside, BTRFS_IOC_QUOTA_RESCAN, &rescan);
	return status < 0 && errno != EEXIST ? errno : 0;
}

static int make(int outside, int fd, uint64_t *ret, struct err *err)
{
	struct btrfs_ioctl_qgroup_create_args args = { .create = 1 };
	int failed = EINVAL;
	uint64_t id;

	if (btrfs_subvol_id(fd, &id, err) < 0)
		return -1;
	args.qgroupid = (uint64_t)QUOTA_BUDGET_LEVEL << QUOTA_LEVEL_SHIFT | id;
	/* Between the two calls a concurrent quota_sweep may remove the new group. */
	for (int i = 0; i < TRIES && failed == EINVAL; i++) {
		if (ioctl(outside, BTRFS_IOC_QGROUP_CREATE, &args) < 0 && errno != EEXIST)
			return err_sys(err, errno, "make a budget");
		failed = assign(outside, id, args.qgroupid);
	}
	if (failed)
		return err_sys(err, failed, "count a disk in a budget");
	*ret = args.qgroupid;
	return 0;
}

int budget_need(const struct pool *pool, int outside, int fd, uint64_t *ret, struct err *err)
{
	if (budget_of(pool, fd, ret, err) < 0)
		return -1;
	return *ret || !pool_has_quota(pool) ? 0 : make(outside, fd, ret, err);
}

int budget_need_at(const struct pool *pool, int dirfd, const char *name, struct err *err)
{
	_cleanup_close_ int fd = -1;
	uint64_t budget;

	if (!pool_has_quota(pool))
		return 0;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open disk '%s'", name);
	return budget_need(pool, dirfd, fd, &budget, err);
}

/* ---- limit and figures ---------------------------------------------------------------------- */

static int open_budget(struct pool *pool, const char *place, const char *id, int *ret_fd,
	uint64_t *ret, struct err *err)
{
	_cleanup_close_ int fd = -1;

	if (!pool_has_quota(pool))
		return err_set(err, ERR_UNSUPPORTED, "this pool does not count what disks use");
	if (quota_open_disk(pool, place, id, &fd, err) < 0 ||
		budget_need(pool, pool->root, fd, ret, err) < 0)
		return -1;
	*ret_fd = steal_fd(&fd);
	return 0;
}

int pool_budget_limit(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err)
{
	_cleanup_close_ int fd = -1;
	uint64_t budget;

	if (open_budget(pool, place, id, &fd, &budget, err) < 0)
		return -1;
	return quota_limit(pool->root, budget, limit, err);
}

int pool_budget_usage(struct pool *pool, const char *place, const char *id, uint64_t *ret_used,
	uint64_t *ret_limit, struct err *err)
{
	_cleanup_close_ int fd = -1;
	uint64_t budget;

	if (open_budget(pool, place, id, &fd, &budget, err) < 0)
		return -1;
	return quota_figures(pool, budget, ret_used, ret_limit, err);
}
