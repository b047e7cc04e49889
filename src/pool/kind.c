/* kind.c - which kind of pool this home has or can have, and how each is mounted at
 * BOX_HOME/pool
 *
 * A pool keeps its kind for life: disks in it would become invisible if the next daemon chose
 * another. So an existing pool decides, and the configuration may only agree. Where there is no
 * pool, the best kind that works is made. */
#include "pool/pool_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "sys/mountfd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>

#define SIZE_LEAST   (256 * MIB)
#define SIZE_DEFAULT (64 * GIB)
#define SIZE_TINY    (128 * MIB) /* needed by btrfs itself */

enum { KIND_NONE = -1 };

static const char *const kind_names[] = {
	[POOL_NATIVE] = "native",
	[POOL_LOOP] = "loop",
	[POOL_FOLDER] = "folder",
};
static_assert(ARRAY_LEN(kind_names) == POOL_KIND_COUNT, "every kind has a name");

const char *pool_kind_name(enum pool_kind kind)
{
	return kind_names[kind];
}

/* ---- choosing ------------------------------------------------------------------------------- */

static bool is_on_btrfs(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && btrfs_is(fd);
}

static int find_present(const struct pool *pool)
{
	_cleanup_close_ int fd = open(pool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (access(pool->image, F_OK) == 0)
		return POOL_LOOP;
	if (fd >= 0 && btrfs_is_subvol(fd))
		return POOL_NATIVE;
	return fd >= 0 && faccessat(fd, "boxes", F_OK, 0) == 0 ? POOL_FOLDER : KIND_NONE;
}

static int find_wanted(const char *mode, int *ret, struct err *err)
{
	*ret = KIND_NONE;
	if (!mode || !strcmp(mode, "auto"))
		return 0;
	for (int i = 0; i < POOL_KIND_COUNT; i++)
		if (!strcmp(mode, kind_names[i])) {
			*ret = i;
			return 0;
		}
	return err_set(
		err, ERR_INVALID, "pool kind '%s' must be auto, native, loop or folder", mode);
}

static int find_best(struct pool *pool)
{
	if (is_on_btrfs(pool->home))
		return POOL_NATIVE;
	return loopfile_can(pool->note, sizeof pool->note) ? POOL_LOOP : POOL_FOLDER;
}

static int choose(struct pool *pool, const char *mode, struct err *err)
{
	int present = find_present(pool), wanted;

	if (find_wanted(mode, &wanted, err) < 0)
		return -1;
	if (present != KIND_NONE && wanted != KIND_NONE && present != wanted) {
		err_set(err, ERR_STATE, "the pool of this home is of kind '%s', not '%s'",
			kind_names[present], kind_names[wanted]);
		return err_hint(err,
			"set it to auto; or remove all boxes and images (box down --purge) first");
	}
	if (present == POOL_FOLDER)
		snprintf(pool->note, sizeof pool->note,
			"it was made as a plain folder and stays one");
	pool->kind = (enum pool_kind)(present != KIND_NONE  ? present
				      : wanted != KIND_NONE ? wanted
							    : find_best(pool));
	return 0;
}

/* ---- each kind ------------------------------------------------------------------------------ */

static int make_dir(const struct pool *pool, struct err *err)
{
	if (mkdir(pool->path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "mkdir '%s'", pool->path);
	return 0;
}

/* Mounts the folder on itself, with restrictive flags. */
static int mount_on_itself(const struct pool *pool, struct err *err)
{
	_cleanup_close_ int target = open(pool->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int copy = -1;

	if (target < 0)
		return err_sys(err, errno, "open '%s'", pool->path);
	if (mount_clone(target, "", &copy, err) < 0 ||
		mount_set(copy, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err) <
			0 ||
		mount_attach(copy, target, err) < 0)
		return err_wrap(err, "mount the pool '%s'", pool->path);
	return 0;
}

static int open_native(struct pool *pool, uint64_t size, struct err *err)
{
	_cleanup_close_ int home = open(pool->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)size;
	if (home < 0)
		return err_sys(err, errno, "open '%s'", pool->home);
	if (!btrfs_is(home))
		return err_set(err, ERR_UNSUPPORTED, "'%s' is not on btrfs", pool->home);
	if (find_present(pool) == KIND_NONE) {
		rmdir(pool->path); /* removes an empty folder that is in the way */
		if (btrfs_subvol_create(home, "pool", &(struct btrfs_groups){ 0 }, err) < 0)
			return -1;
	}
	return mount_on_itself(pool, err);
}

static int first_size(struct pool *pool, uint64_t wanted, uint64_t *ret, struct err *err)
{
	struct host_room room;
	uint64_t most;
	char free[16], want[16];

	if (host_room_read(pool, &room, err) < 0)
		return -1;
	most = host_room_backs(&room);
	if (wanted && wanted < SIZE_TINY)
		return err_set(err, ERR_INVALID, "a pool needs 128M at least");
	*ret = wanted ? wanted / MIB * MIB : MIN(most / 2, SIZE_DEFAULT) / MIB * MIB;
	if (*ret > most || (!wanted && *ret < SIZE_LEAST)) {
		err_set(err, ERR_LIMIT, "no room for a pool of %s: '%s' has %s free",
			format_size(wanted ? wanted : SIZE_LEAST, want), pool->home,
			format_size(room.free, free));
		return err_hint(
			err, "free some space, or put the home on a larger disk (BOX_HOME)");
	}
	return 0;
}

static int open_loop(struct pool *pool, uint64_t size, struct err *err)
{
	_cleanup_free_ char *half = xasprintf("%s.new", pool->image);
	uint64_t bytes;

	if (unlink(half) == 0)
		log_info("a half-made pool was removed", kv_str("path", half));
	if (make_dir(pool, err) < 0)
		return -1;
	if (access(pool->image, F_OK) < 0 &&
		(first_size(pool, size, &bytes, err) < 0 || loopfile_make(pool, bytes, err) < 0))
		return -1;
	return loopfile_mount(pool, err);
}

static int open_folder(struct pool *pool, uint64_t size, struct err *err)
{
	(void)size;
	if (make_dir(pool, err) < 0)
		return -1;
	return mount_on_itself(pool, err);
}

static int (*const openers[])(struct pool *pool, uint64_t size, struct err *err) = {
	[POOL_NATIVE] = open_native,
	[POOL_LOOP] = open_loop,
	[POOL_FOLDER] = open_folder,
};
static_assert(ARRAY_LEN(openers) == POOL_KIND_COUNT, "every kind can be opened");

static bool is_mount_point(const char *path)
{
	struct statx st;

	return statx(AT_FDCWD, path, AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, 0, &st) == 0 &&
	       (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

int kind_open(struct pool *pool, const char *mode, uint64_t size, struct err *err)
{
	bool may_fall = !mode || !strcmp(mode, "auto");

	/* Removes mounts of an earlier daemon in this mount namespace; processes that use them
	 * keep them. */
	while (is_mount_point(pool->path) && umount2(pool->path, MNT_DETACH) == 0)
		;
	if (choose(pool, mode, err) < 0)
		return -1;
	if (openers[pool->kind](pool, size, err) == 0)
		return 0;
	/* Falls back only if the home is on btrfs, no subvolume can be made there, and the pool
	 * is empty. */
	if (!may_fall || pool->kind != POOL_NATIVE || find_present(pool) != KIND_NONE)
		return -1;
	log_warn("no subvolume can be made in this home, trying a loop file", kv_err(err));
	err_clear(err);
	pool->kind = loopfile_can(pool->note, sizeof pool->note) ? POOL_LOOP : POOL_FOLDER;
	return openers[pool->kind](pool, size, err);
}

/* ---- removal -------------------------------------------------------------------------------- */

enum { WAIT_US = 20 * 1000, WAITS = 500 };

static int unmount(const struct pool *pool, struct err *err)
{
	for (int i = 0; umount2(pool->path, 0) < 0; i++) {
		if (errno == EINVAL || errno == ENOENT)
			return 0;
		if (errno != EBUSY || i == WAITS)
			return err_sys(err, errno, "unmount '%s'", pool->path);
		usleep(WAIT_US); /* the last helper may not have ended yet */
	}
	return 0;
}

/* Destroys the inner subvolumes first: the outer one can only be removed when they are gone. */
static int destroy_native(const struct pool *pool, int home, struct err *err)
{
	_cleanup_close_ int root = openat(home, "pool", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (root < 0)
		return err_sys(err, errno, "open '%s'", pool->path);
	if (places_empty(pool, root, err) < 0)
		return -1;
	return btrfs_subvol_destroy(home, "pool", err);
}

static void wait_for_device(const struct pool *pool)
{
	int number, fd;

	for (int i = 0; i < WAITS && loopdev_find(pool->image, &number, &fd, NULL) == 0; i++) {
		if (fd < 0)
			return;
		close(fd); /* perhaps the last open descriptor of it */
		usleep(WAIT_US);
	}
}

int kind_destroy(const struct pool *pool, struct err *err)
{
	_cleanup_close_ int home = open(pool->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (home < 0)
		return err_sys(err, errno, "open '%s'", pool->home);
	if (unmount(pool, err) < 0)
		return -1;
	if (pool->kind == POOL_NATIVE)
		return destroy_native(pool, home, err);
	if (pool->kind == POOL_LOOP)
		wait_for_device(pool);
	if (unlink(pool->image) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove '%s'", pool->image);
	if (unlink(pool->reserve) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove '%s'", pool->reserve);
	return tree_remove(home, "pool", err);
}
