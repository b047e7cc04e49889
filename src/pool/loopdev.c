/* loopdev.c - loop devices: found by their file, or bound to it
 *
 * A device is bound with "autoclear": it releases the file when nobody has it open, and a
 * mounted file system has it open. So nothing must be undone, however the daemon ends. A device
 * that still exists means that its file system is still in use: it must be found and used again,
 * because two devices on one file would be two file systems writing the same blocks. */
#include "pool/pool_internal.h"
#include "base/file.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

enum {
	LOOP_BLOCK = 4096,
	ATTACH_TRIES = 64, /* other programs take free devices too */
};

int loopdev_open(int number, int *ret, struct err *err)
{
	char path[32];
	int fd;

	snprintf(path, sizeof path, "/dev/loop%d", number);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	*ret = fd;
	return 0;
}

/* A cheap check, so that devices of others are not even opened. */
static bool may_be_of(int sys_block, const char *name, const char *path)
{
	_cleanup_free_ char *file = NULL, *text = xasprintf("%s/loop/backing_file", name);
	const char *base = strrchr(path, '/');

	if (file_read(sys_block, text, 8192, &file, NULL, NULL) < 0)
		return false;
	return strstr(file, base ? base : path) != NULL;
}

static bool is_bound_to(int fd, const struct stat *file)
{
	struct loop_info64 info;

	return ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == file->st_dev &&
	       info.lo_inode == file->st_ino && !info.lo_offset && !info.lo_sizelimit;
}

int loopdev_find(const char *path, int *ret_number, int *ret, struct err *err)
{
	struct dirent *entry;
	struct stat st;
	DIR *dir;

	*ret_number = -1;
	*ret = -1;
	if (stat(path, &st) < 0)
		return err_sys(err, errno, "look at '%s'", path);
	dir = opendir("/sys/block");
	if (!dir)
		return err_sys(err, errno, "open '/sys/block'");
	while (*ret < 0 && (entry = readdir(dir))) {
		int number, fd;

		if (sscanf(entry->d_name, "loop%d", &number) != 1 ||
			!may_be_of(dirfd(dir), entry->d_name, path) ||
			loopdev_open(number, &fd, NULL) < 0)
			continue;
		if (!is_bound_to(fd, &st)) {
			close(fd);
			continue;
		}
		*ret_number = number;
		*ret = fd;
	}
	closedir(dir);
	return 0;
}

static int configure(int device, int file, const char *path, bool direct_io)
{
	struct loop_config config = { .fd = (uint32_t)file, .block_size = LOOP_BLOCK };

	config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (direct_io ? LO_FLAGS_DIRECT_IO : 0);
	snprintf((char *)config.info.lo_file_name, sizeof config.info.lo_file_name, "%s", path);
	return ioctl(device, LOOP_CONFIGURE, &config);
}

bool loopdev_has_direct_io(int fd)
{
	struct loop_info64 info;

	return ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && (info.lo_flags & LO_FLAGS_DIRECT_IO);
}

int loopdev_attach(
	const char *path, int *ret_number, int *ret, bool *ret_direct_io, struct err *err)
{
	_cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	_cleanup_close_ int file = open(path, O_RDWR | O_CLOEXEC);
	bool direct_io = true;

	if (control < 0)
		return err_sys(err, errno, "open '/dev/loop-control'");
	if (file < 0)
		return err_sys(err, errno, "open '%s'", path);
	for (int i = 0; i < ATTACH_TRIES; i++) {
		_cleanup_close_ int device = -1;
		int number = ioctl(control, LOOP_CTL_GET_FREE);

		if (number < 0)
			return err_sys(err, errno, "get a free loop device");
		if (loopdev_open(number, &device, err) < 0)
			return -1;
		if (configure(device, file, path, direct_io) == 0) {
			*ret_number = number;
			*ret_direct_io = loopdev_has_direct_io(device);
			*ret = steal_fd(&device);
			return 0;
		}
		/* EBUSY: another program took it first. Any other error may mean that the host's
		 * file system cannot do direct I/O. */
		if (errno != EBUSY && !direct_io)
			return err_sys(err, errno, "bind '%s' to a loop device", path);
		if (errno != EBUSY)
			direct_io = false;
	}
	return err_set(err, ERR_LIMIT, "no free loop device for '%s'", path);
}

bool loopdev_works(char *why, size_t size)
{
	_cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control >= 0)
		return true;
	snprintf(why, size, "/dev/loop-control cannot be opened (%s): modprobe loop",
		strerror(errno));
	return false;
}
