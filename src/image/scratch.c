/* scratch.c - temporary folders in BOX_HOME/downloads
 *
 * Whoever works in one holds a lock on it, which the kernel releases when that process is
 * killed: so an abandoned folder can be recognised. A folder may be removed between being opened
 * and being locked; then it has no name any more, and another one is made. */
#include "image/oci_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

/* 1 with the lock, 0 when somebody else has it or the folder was removed. */
static int take(const char *path, int operation, int *ret, struct err *err)
{
	_cleanup_close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int code;

	if (dir < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "open '%s'", path);
	do
		code = flock(dir, operation);
	while (code < 0 && errno == EINTR);
	if (code < 0 && errno == EWOULDBLOCK)
		return 0;
	if (code < 0 || fstat(dir, &st) < 0)
		return err_sys(err, errno, "lock '%s'", path);
	if (!st.st_nlink)
		return 0;
	*ret = steal_fd(&dir);
	return 1;
}

static void sweep(const char *downloads, const char *prefix)
{
	DIR *dir = opendir(downloads);
	struct err err = ERR_INIT;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		_cleanup_free_ char *path = xasprintf("%s/%s", downloads, entry->d_name);
		_cleanup_close_ int lock = -1;

		if (text_has_prefix(entry->d_name, prefix) &&
			take(path, LOCK_EX | LOCK_NB, &lock, NULL) == 1 &&
			tree_remove(AT_FDCWD, path, &err) < 0)
			log_warn("cannot remove what unfinished work left", kv_str("path", path),
				kv_err(&err));
	}
	if (dir)
		closedir(dir);
}

int scratch_make(
	const struct images *images, const char *kind, struct scratch *ret, struct err *err)
{
	_cleanup_free_ char *prefix = xasprintf(".%s-", kind);

	sweep(images->downloads_path, prefix);
	for (;;) {
		_cleanup_free_ char *path = xasprintf(
			"%s/%s%s-XXXXXX", images->downloads_path, prefix, images->work_id);
		int code, dir;

		if (!mkdtemp(path))
			return err_sys(err, errno, "make '%s'", path);
		code = take(path, LOCK_EX, &dir, err);
		if (code < 0)
			return -1;
		if (code) {
			*ret = (struct scratch){ .path = steal_ptr(&path), .dir = dir };
			return 0;
		}
	}
}

int scratch_open(
	const struct images *images, const char *name, struct scratch *ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", images->downloads_path, name);
	int code = 0, dir = -1;

	while (code == 0) {
		if (dir_make_all(path, 0700, err) < 0)
			return -1;
		code = take(path, LOCK_EX, &dir, err);
	}
	if (code < 0)
		return -1;
	*ret = (struct scratch){ .path = steal_ptr(&path), .dir = dir };
	return 0;
}

void scratch_close(struct scratch *scratch)
{
	free(scratch->path);
	if (scratch->dir >= 0)
		close(scratch->dir);
	*scratch = (struct scratch)SCRATCH_INIT;
}

void scratch_discard(struct scratch *scratch)
{
	struct err err = ERR_INIT;

	if (scratch->path && tree_remove(AT_FDCWD, scratch->path, &err) < 0)
		log_warn("cannot remove a folder that is not needed any more",
			kv_str("path", scratch->path), kv_err(&err));
	scratch_close(scratch);
}
