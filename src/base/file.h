/* file.h - whole small files, and fds read and written to the end */
#pragma once
#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include <sys/types.h>

/* Reads at most max bytes of path (relative to dirfd, or AT_FDCWD) into a NUL-terminated string
 * that is yours. ERR_TOO_LARGE over max. ret_len may be NULL. */
int file_read(
	int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *err);
/* Creates or replaces path atomically: temporary name, fsync, rename. */
int file_write_atomic(
	int dirfd, const char *path, const void *data, size_t len, mode_t mode, struct err *err);
/* One write() to an existing file, as /proc and cgroup files want it. */
int file_poke(int dirfd, const char *path, const char *text, struct err *err);

int fd_write_all(int fd, const void *data, size_t len, struct err *err);
/* True when fd is one of the last this process may have: an eighth, 32 at least. A new fd has the
 * lowest free number, so it tells how many are left: enough should be, for what must always
 * work. */
bool fd_is_scarce(int fd);
int fd_set_nonblocking(int fd, struct err *err);
/* mkdir -p. */
int dir_make_all(const char *path, mode_t mode, struct err *err);
/* rm -rf below dirfd; never follows symlinks. A missing name is no error. */
int tree_remove(int dirfd, const char *name, struct err *err);
