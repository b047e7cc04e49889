/* loopfile.c - pool.img: a btrfs in a sparse file
 *
 * It is made under another name and renamed when it is complete, so a pool.img is always a file
 * system. It has three sizes: those of the file, of the loop device and of the file system.
 * Growing sets them in this order. If they differ (the daemon died in between), the size of the
 * file is the right one, and the others are set to it. */
#include "pool/pool_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

enum { FS_BLOCK = 4096, MKFS_METADATA = 8 << 20 };

static const char *find_mkfs(void)
{
	static const char *const paths[] = { "/usr/sbin/mkfs.btrfs", "/sbin/mkfs.btrfs",
		"/usr/bin/mkfs.btrfs", "/usr/local/sbin/mkfs.btrfs" };

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		if (access(paths[i], X_OK) == 0)
			return paths[i];
	return NULL;
}

static bool kernel_has_btrfs(void)
{
	_cleanup_close_ int fd = fsopen("btrfs", FSOPEN_CLOEXEC); /* loads the module */

	return fd >= 0;
}

bool loopfile_can(char *why, size_t size)
{
	if (!find_mkfs()) {
		snprintf(why, size, "mkfs.btrfs is missing: apt install btrfs-progs");
		return false;
	}
	if (!loopdev_works(why, size))
		return false;
	if (!kernel_has_btrfs()) {
		snprintf(why, size, "the kernel has no btrfs: modprobe btrfs");
		return false;
	}
	return true;
}

/* ---- making --------------------------------------------------------------------------------- */

static int run_mkfs(const char *path, struct err *err)
{
	const char *program = find_mkfs();
	/* One copy of metadata: a second one in the same file would not help against a broken
	 * disk. */
	const char *argv[] = { "mkfs.btrfs", "-q", "-f", "-K", "-m", "single", "-L", "boxyard",
		path, NULL };
	char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL };
	posix_spawn_file_actions_t files;
	int status = 0, failed;
	pid_t pid;

	if (!program) {
		err_set(err, ERR_UNSUPPORTED, "mkfs.btrfs is missing");
		return err_hint(err, "apt install btrfs-progs");
	}
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
	/* mkfs warns about changed defaults at every call; a failure is reported below. */
	posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	failed = posix_spawn(&pid, program, &files, NULL, (char *const *)argv, env);
	posix_spawn_file_actions_destroy(&files);
	if (failed)
		return err_sys(err, failed, "run '%s'", program);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(err, errno, "wait for '%s'", program);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		err_set(err, ERR_SYSTEM, "'%s' failed on '%s'", program, path);
		return err_hint(err, "run this to see the error: mkfs.btrfs -f -m single %s", path);
	}
	return 0;
}

static int make_new(const char *path, uint64_t size, struct err *err)
{
	_cleanup_close_ int fd = -1;

	if (unlink(path) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove '%s'", path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "create '%s'", path);
	if (ftruncate(fd, (off_t)size) < 0)
		return err_sys(
			err, errno, "make '%s' %llu bytes long", path, (unsigned long long)size);
	if (run_mkfs(path, err) < 0)
		return -1;
	if (fsync(fd) < 0)
		return err_sys(err, errno, "sync '%s'", path);
	return 0;
}

int loopfile_make(struct pool *pool, uint64_t size, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s.new", pool->image);
	_cleanup_close_ int home = open(pool->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (make_new(path, size, err) < 0) {
		unlink(path);
		return -1;
	}
	if (rename(path, pool->image) < 0)
		return err_sys(err, errno, "rename '%s'", path);
	if (home >= 0)
		fsync(home);
	log_info("pool made", kv_str("path", pool->image), kv_int("bytes", (int64_t)size));
	return 0;
}

/* ---- mounting ------------------------------------------------------------------------------- */

#define MOUNT_FLAGS (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME)

static int mount_device(struct pool *pool, struct err *err)
{
	char device[32];
	int error;

	snprintf(device, sizeof device, "/dev/loop%d", pool->device);
	if (mount(device, pool->path, "btrfs", MOUNT_FLAGS, "discard=async") == 0)
		return 0;
	error = errno;
	/* A host that cannot punch holes: the space of deleted data is not returned to it,
	 * everything else works. */
	if (error == EOPNOTSUPP && mount(device, pool->path, "btrfs", MOUNT_FLAGS, "") == 0)
		return 0;
	err_sys(err, error, "mount the file system in '%s'", pool->image);
	return err_hint(
		err, "dmesg says more; check it with: btrfs check --readonly %s", pool->image);
}

int loopfile_mount(struct pool *pool, struct err *err)
{
	_cleanup_close_ int device = -1;

	if (loopdev_find(pool->image, &pool->device, &device, err) < 0)
		return -1;
	if (device >= 0)
		pool->direct_io = loopdev_has_direct_io(device);
	else if (loopdev_attach(pool->image, &pool->device, &device, &pool->direct_io, err) < 0)
		return err_hint(err, "the pool is '%s' and needs a loop device: modprobe loop",
			pool->image);
	/* The open device stays bound until the mount holds it. */
	return mount_device(pool, err);
}

/* ---- one size for file, device and file system ---------------------------------------------- */

static int spread_to_device(const struct pool *pool, uint64_t size, struct err *err)
{
	_cleanup_close_ int device = -1;
	uint64_t present = 0;

	if (loopdev_open(pool->device, &device, err) < 0)
		return -1;
	if (ioctl(device, BLKGETSIZE64, &present) < 0)
		return err_sys(err, errno, "ask a loop device for its size");
	if (present < size && ioctl(device, LOOP_SET_CAPACITY, 0) < 0)
		return err_sys(err, errno, "grow a loop device");
	return 0;
}

int loopfile_spread(const struct pool *pool, struct err *err)
{
	_cleanup_close_ int root = open(pool->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t size, present;
	struct stat st;

	if (root < 0)
		return err_sys(err, errno, "open '%s'", pool->path);
	if (stat(pool->image, &st) < 0)
		return err_sys(err, errno, "look at '%s'", pool->image);
	size = (uint64_t)st.st_size / FS_BLOCK * FS_BLOCK;
	if (spread_to_device(pool, size, err) < 0 || btrfs_device_size(root, &present, err) < 0)
		return -1;
	return present < size ? btrfs_resize_to_device(root, err) : 0;
}

/* mkfs leaves 8 MiB. Data takes chunk after chunk, and in a pool filled by one big file that
 * file could not even be deleted: everything needs metadata, balancing too. Done once:
 * afterwards there is more. */
void loopfile_settle(const struct pool *pool)
{
	_cleanup_free_ char *path = NULL, *text = NULL;
	uint64_t bytes;

	path = xasprintf("/sys/fs/btrfs/%s/allocation/metadata/total_bytes", pool->fsid);
	if (file_read(AT_FDCWD, path, 64, &text, NULL, NULL) < 0)
		return;
	text[strcspn(text, "\n")] = '\0';
	if (parse_u64("metadata", text, 0, UINT64_MAX, &bytes, NULL) == 0 && bytes <= MKFS_METADATA)
		btrfs_renew_metadata(pool->root);
}
