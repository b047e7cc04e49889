/* measure.c - how much a folder takes on disk
 *
 * The folder may come from a box: deeper than there are descriptors, with names of any bytes. One
 * folder is open at a time; the way back up is "..", which is safe because layers never change. */
#include "image/image_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

struct level {
	char **folders; /* below this one, not walked yet */
	size_t count;
};

struct walk {
	uint64_t bytes, files;
	struct level *levels;
	size_t depth;
};

static void walk_done(struct walk *walk)
{
	for (size_t i = 0; i < walk->depth; i++) {
		for (size_t k = 0; k < walk->levels[i].count; k++)
			free(walk->levels[i].folders[k]);
		free(walk->levels[i].folders);
	}
	free(walk->levels);
}

static void level_push(struct level *level, const char *name)
{
	/* Doubled, not grown by one: a folder may hold a million others. */
	if ((level->count & (level->count - 1)) == 0)
		xgrow(level->folders, level->count ? level->count * 2 : 1);
	level->folders[level->count++] = xstrdup(name);
}

/* A file with several links is counted once: each link counts for a part. */
static uint64_t share_of(const struct stat *st)
{
	uint64_t bytes = (uint64_t)st->st_blocks * 512;

	return S_ISDIR(st->st_mode) ? bytes : bytes / MAX(st->st_nlink, 1);
}

/* Counts the entries of fd and puts its folders on a new level. Takes fd. */
static int enter(struct walk *walk, int fd, struct err *err)
{
	DIR *dir = fdopendir(fd);
	struct level *level;
	struct dirent *entry;
	int ret = 0;

	if (!dir) {
		ret = err_sys(err, errno, "read a folder");
		close(fd);
		return ret;
	}
	if ((walk->depth & (walk->depth - 1)) == 0)
		xgrow(walk->levels, walk->depth ? walk->depth * 2 : 1);
	level = &walk->levels[walk->depth++];
	*level = (struct level){ 0 };
	while ((entry = readdir(dir))) {
		struct stat st;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			ret = err_sys(err, errno, "stat '%.80s'", entry->d_name);
			break;
		}
		walk->files++;
		walk->bytes += share_of(&st);
		if (S_ISDIR(st.st_mode))
			level_push(level, entry->d_name);
	}
	closedir(dir);
	return ret;
}

static int walk_below(struct walk *walk, int *at, struct err *err)
{
	while (walk->depth) {
		struct level *level = &walk->levels[walk->depth - 1];
		_cleanup_free_ char *name = level->count ? level->folders[--level->count] : NULL;
		int next, again;

		if (!name) {
			free(level->folders);
			if (--walk->depth == 0)
				return 0;
		}
		next = openat(
			*at, name ? name : "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return err_sys(err, errno, "open '%.80s'", name ? name : "..");
		close(*at);
		*at = next;
		if (!name)
			continue;
		again = openat(*at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (again < 0)
			return err_sys(err, errno, "open '%.80s'", name);
		if (enter(walk, again, err) < 0)
			return -1;
	}
	return 0;
}

int tree_measure(
	int dir, const char *name, uint64_t *ret_bytes, uint64_t *ret_files, struct err *err)
{
	struct walk walk = { 0 };
	_cleanup_close_ int at = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int first = at < 0 ? -1 : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret;

	if (first < 0)
		return err_sys(err, errno, "open '%.80s'", name);
	ret = enter(&walk, first, err);
	if (ret == 0)
		ret = walk_below(&walk, &at, err);
	walk_done(&walk);
	if (ret < 0)
		return err_wrap(err, "measure '%.80s'", name);
	*ret_bytes = walk.bytes;
	*ret_files = walk.files;
	return 0;
}
