/* disk.c - see disk.h */
#include "engine/vm/disk.h"
#include "base/alloc.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { COPY_STEP = 64 << 20, BY_HAND = 1 << 20 };

uint64_t vm_disk_bytes(const struct limits *limits)
{
	uint64_t bytes = limits->disk_bytes ? limits->disk_bytes : VM_DISK_DEFAULT;

	return (bytes + 4095) & ~UINT64_C(4095);
}

bool vm_disk_exists(const char *folder)
{
	_cleanup_free_ char *path = xasprintf("%s/" VM_DISK_FILE, folder);

	return access(path, F_OK) == 0;
}

int vm_disk_open(const char *folder, int *ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/" VM_DISK_FILE, folder);
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 && errno == EINVAL)
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return err_sys(err, errno, "open the disk '%s'", path);
	*ret = fd;
	return 0;
}

int vm_image_open(const char *path, int *ret, struct err *err)
{
	*ret = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return *ret < 0 ? err_sys(err, errno, "open the image '%s'", path) : 0;
}

/* Before the first byte; a file system without this flag is fine. */
static void set_nocow(int fd)
{
	int flags = 0;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
		flags |= FS_NOCOW_FL;
		(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
	}
}

static int make_file(const char *path, int *ret, struct err *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_sys(err, errno, "make '%s'", path);
	set_nocow(fd);
	*ret = fd;
	return 0;
}

static int run_mke2fs(const char *path, struct err *err)
{
	char *const argv[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-E",
		"lazy_itable_init=1,lazy_journal_init=1,nodiscard", (char *)path, NULL };
	int code, status;
	pid_t pid;

	code = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
	if (code == ENOENT) {
		err_set(err, ERR_UNSUPPORTED, "mke2fs is not installed");
		return err_hint(err, "install e2fsprogs");
	}
	if (code)
		return err_sys(err, code, "start mke2fs");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return err_set(err, ERR_SYSTEM, "mke2fs failed on '%s'", path);
	return 0;
}

int vm_disk_format(const char *path, uint64_t bytes, struct err *err)
{
	_cleanup_close_ int fd = -1;

	if (make_file(path, &fd, err) < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) < 0)
		err_sys(err, errno, "make a disk of %llu bytes", (unsigned long long)bytes);
	else if (run_mke2fs(path, err) == 0)
		return 0;
	unlink(path);
	return -1;
}

/* The kernel does not copy between file systems of different types. */
static ssize_t copy_by_hand(int from, int to, off_t at, size_t len)
{
	_cleanup_free_ uint8_t *bytes = xcalloc(1, BY_HAND);
	ssize_t got = pread(from, bytes, MIN(len, (size_t)BY_HAND), at);

	return got <= 0 ? got : pwrite(to, bytes, (size_t)got, at);
}

static ssize_t copy_some(int from, int to, off_t at, size_t len)
{
	off_t in = at, out = at;
	ssize_t done = copy_file_range(from, &in, to, &out, len, 0);

	return done < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == EINVAL)
		       ? copy_by_hand(from, to, at, len)
		       : done;
}

/* Copies the extents with data; the rest stays a hole. */
static int copy_pieces(int from, int to, off_t size, struct err *err)
{
	off_t at = 0;

	while (at < size) {
		off_t begin = lseek(from, at, SEEK_DATA), end;

		if (begin < 0 && errno == ENXIO)
			break;
		end = begin < 0 ? -1 : lseek(from, begin, SEEK_HOLE);
		if (end < 0)
			return err_sys(err, errno, "look for data in a disk");
		for (at = begin; at < end;) {
			ssize_t done = copy_some(from, to, at, (size_t)MIN(end - at, COPY_STEP));

			if (done <= 0)
				return err_sys(err, done ? errno : EIO, "copy a disk");
			at += done;
		}
	}
	return 0;
}

int vm_disk_clone(const char *path, const char *folder, struct err *err)
{
	_cleanup_free_ char *copy = xasprintf("%s/" VM_DISK_FILE, folder);
	_cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), to = -1;
	struct stat st;

	if (from < 0 || fstat(from, &st) < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (make_file(copy, &to, err) < 0)
		return -1;
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (ftruncate(to, st.st_size) < 0)
		err_sys(err, errno, "make '%s'", copy);
	else if (copy_pieces(from, to, st.st_size, err) == 0)
		return 0;
	unlink(copy);
	return -1;
}

int vm_disk_grow(int fd, uint64_t bytes, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "look at the disk");
	if ((uint64_t)st.st_size < bytes && ftruncate(fd, (off_t)bytes) < 0)
		return err_sys(err, errno, "make the disk larger");
	return 0;
}
