/* disk.c - more disk space than the limit: subvolumes of btrfs, which a quota might not count,
 * and plain writing */
#include "attack/attacker.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

static int make_subvolume(int dir)
{
	struct btrfs_ioctl_vol_args args = { .name = "inner" };

	return ioctl(dir, BTRFS_IOC_SUBVOL_CREATE, &args);
}

static int make_subvolume_v2(int dir)
{
	struct btrfs_ioctl_vol_args_v2 args = { .name = "inner2" };

	return ioctl(dir, BTRFS_IOC_SUBVOL_CREATE_V2, &args);
}

static int make_snapshot(int dir)
{
	struct btrfs_ioctl_vol_args_v2 args = { .fd = dir, .name = "inner3" };

	return ioctl(dir, BTRFS_IOC_SNAP_CREATE_V2, &args);
}

static void order(const char *path, int (*make)(int dir), struct outcome *out)
{
	int64_t start = now_us();
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || make(dir) < 0)
		outcome_errno(out, start, errno);
	else
		outcome_through(out, start, "made");
	if (dir >= 0)
		close(dir);
}

/* Fills blocks that are all different and cannot be compressed. */
static void scramble(uint64_t *words, size_t count, uint64_t *seed)
{
	for (size_t i = 0; i < count; i++) {
		*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
		words[i] = *seed;
	}
}

static void fill(const char *path, long pieces, struct outcome *out)
{
	static uint64_t data[PIECE / sizeof(uint64_t)];
	uint64_t seed = (uint64_t)now_us();
	int64_t start = now_us();
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), error = 0;
	long done = 0;

	if (fd < 0)
		return outcome_errno(out, start, errno);
	for (; done < pieces && !error; done++) {
		scramble(data, sizeof data / sizeof *data, &seed);
		error = write(fd, data, sizeof data) == sizeof data ? 0 : errno ? errno : ENOSPC;
	}
	if (!error && fsync(fd) < 0)
		error = errno;
	close(fd);
	if (error)
		outcome_errno(out, start, error);
	else
		outcome_through(out, start, "written");
	outcome_detail(out, "%ld MiB", done);
}

void attack_disk(int argc, char **argv, struct outcome *out)
{
	if (!strcmp(argv[0], "fill"))
		fill(argv[1], argc > 2 ? atol(argv[2]) : 1, out);
	else if (!strcmp(argv[0], "snapshot"))
		order(argv[1], make_snapshot, out);
	else
		order(argv[1], strcmp(argv[0], "subvolume") ? make_subvolume_v2 : make_subvolume,
			out);
}
