/* vm.c - see vm.h */
#include "guest/vm.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define IMAGE_DEVICE "/dev/vda"
#define DISK_DEVICE  "/dev/vdb"

enum {
	DEVICE_MS = 10000, /* for a device to appear */
	LOOK_MS = 2,
	SUPER_AT = 1024, /* superblock of ext4: its magic, the logarithm of its block size */
	SUPER_MAGIC_AT = 0x38,
	SUPER_BLOCK_AT = 0x18,
	SUPER_MAGIC = 0xef53,
};

/* ext4's own header is not among those of the kernel for programs. */
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

static int disk = -1;

bool vm_is_here(int argc, char **argv)
{
	return getpid() == 1 && argc > 0 && !strcmp(argv[0], "/init");
}

bool vm_has_root(void)
{
	return disk >= 0;
}

int vm_get_disk(void)
{
	return disk;
}

/* ---- devices -------------------------------------------------------------------------------- */

static int mount_first(void)
{
	static const struct {
		const char *type, *target;
	} first[] = { { "devtmpfs", "/dev" }, { "proc", "/proc" }, { "sysfs", "/sys" } };

	for (size_t i = 0; i < ARRAY_LEN(first); i++)
		if (mount(first[i].type, first[i].target, first[i].type,
			    MS_NOSUID | (i ? MS_NOEXEC | MS_NODEV : 0), NULL) < 0)
			return -1;
	return 0;
}

/* Sets up descriptors 0 to 2 as programs expect them of PID 1: 0 is empty, output goes to the
 * console. */
static void take_console(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int console = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);

	dup2(null, 0);
	dup2(console >= 0 ? console : null, 1);
	dup2(console >= 0 ? console : null, 2);
	if (null > 2)
		close(null);
	if (console > 2)
		close(console);
}

static int load_module(const char *name, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("/modules/%s", name);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
		return err_sys(err, errno, "load module %s", name);
	return 0;
}

static int load_modules(struct err *err)
{
	struct dirent **entries = NULL;
	int count = scandir("/modules", &entries, NULL, alphasort), status = 0;

	for (int i = 0; i < count; i++) {
		if (status == 0 && entries[i]->d_name[0] != '.')
			status = load_module(entries[i]->d_name, err);
		free(entries[i]);
	}
	free(entries);
	return count < 0 ? err_sys(err, errno, "look at the modules") : status;
}

static int wait_for(const char *path, struct err *err)
{
	int64_t end = clock_mono_us() + (int64_t)DEVICE_MS * 1000;

	while (access(path, F_OK) < 0) {
		if (clock_mono_us() > end)
			return err_set(err, ERR_NOT_FOUND, "device %s did not appear", path);
		usleep(LOOK_MS * 1000);
	}
	return 0;
}

int vm_open_port(unsigned number, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("/dev/vport0p%u", number);
	int fd;

	if (wait_for(path, err) < 0)
		return -1;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? err_sys(err, errno, "open %s", path) : fd;
}

/* ---- disks ---------------------------------------------------------------------------------- */

/* Reads the superblock from the disk now, not what was cached of another disk in its place. */
static bool read_super(uint8_t ret[1024])
{
	_cleanup_close_ int fd = open(DISK_DEVICE, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ioctl(fd, BLKFLSBUF, 0);
	if (pread(fd, ret, 1024, SUPER_AT) != 1024)
		return false;
	return ret[SUPER_MAGIC_AT] == (SUPER_MAGIC & 255) &&
	       ret[SUPER_MAGIC_AT + 1] == SUPER_MAGIC >> 8;
}

int vm_make_root(struct err *err)
{
	uint8_t super[1024];
	int fd;

	if (!read_super(super))
		return err_set(err, ERR_INVALID, "the box's disk has no file system");
	/* Its inode tables are zeros: they lie in holes of a file. ext4 would write them all the
	 * same, for minutes, in every box. */
	if (mount(DISK_DEVICE, "/disk", "ext4", MS_NOATIME,
		    "discard,noinit_itable,no_prefetch_block_bitmaps") < 0)
		return err_sys(err, errno, "mount the box's disk");
	fd = open("/disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open the box's disk");
	if (vm_root_enter(err) < 0) {
		close(fd);
		return -1;
	}
	disk = fd;
	return 0;
}

int vm_grow(uint64_t bytes, struct err *err)
{
	uint8_t super[1024];
	uint64_t device = 0, blocks;
	_cleanup_close_ int fd = open(DISK_DEVICE, O_RDONLY | O_CLOEXEC);

	if (disk < 0 || fd < 0 || ioctl(fd, BLKGETSIZE64, &device) < 0 || !read_super(super))
		return err_set(err, ERR_STATE, "the box has no disk");
	if (super[SUPER_BLOCK_AT] > 6)
		return err_set(err, ERR_INVALID, "the file system of the box's disk is damaged");
	blocks = MIN(bytes, device) >> (10 + super[SUPER_BLOCK_AT]);
	/* EINVAL, EPERM: smaller than it is already. */
	if (ioctl(disk, EXT4_IOC_RESIZE_FS, &blocks) < 0)
		return err_sys(err, errno, "grow the file system to %llu bytes",
			(unsigned long long)bytes);
	return 0;
}

/* ---- start and end -------------------------------------------------------------------------- */

/* Files that are written when the box is told who it is. Opened for writing they are copied from
 * the image to the disk, here in the template and not in every new box. */
static void copy_names_up(void)
{
	static const char *const files[] = { "/etc/machine-id", "/etc/hostname", "/etc/hosts" };

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		int fd = open(files[i], O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

		if (fd >= 0)
			close(fd);
	}
}

int vm_boot(struct err *err)
{
	uint8_t super[1024];

	if (mount_first() < 0)
		return err_sys(err, errno, "mount /dev, /proc, /sys");
	take_console();
	file_poke(AT_FDCWD, "/proc/self/oom_score_adj", "-1000", NULL);
	if (load_modules(err) < 0)
		return -1;
	if (wait_for(IMAGE_DEVICE, err) < 0 || wait_for(DISK_DEVICE, err) < 0)
		return -1;
	if (mount(IMAGE_DEVICE, "/image", "erofs", MS_RDONLY, NULL) < 0)
		return err_sys(err, errno, "mount the image");
	if (vm_net_open(err) < 0)
		return -1;
	if (!read_super(super))
		return 0;
	if (vm_make_root(err) < 0)
		return -1;
	copy_names_up();
	return 0;
}

/* QEMU distinguishes two ways: a requested end powers the machine off; everything else (and a
 * panic) resets it, which ends it as well (-no-reboot). */
_Noreturn void vm_end(const struct err *err)
{
	if (err)
		dprintf(2, "box-init: %s\n", err->message);
	sync();
	/* Its journal is empty afterwards. */
	if (disk >= 0)
		ioctl(disk, FIFREEZE, 0);
	for (;;) {
		reboot(err ? RB_AUTOBOOT : RB_POWER_OFF);
		pause();
	}
}
