/* file.h - reading and writing whole small files, and fds to the end */
#pragma once
#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include <sys/types.h>

/* Reads at most max bytes of path (relative to dirfd, or AT_FDCWD) into a NUL-terminated string
 * that the caller owns. Fails with ERR_TOO_LARGE over max. ret_len may be NULL. */
int file_read(
	int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *err);
/* Creates or replaces path atomically: writes a temporary file, fsyncs and renames it. */
int file_write_atomic(
	int dirfd, const char *path, const void *data, size_t len, mode_t mode, struct err *err);
/* Writes text with one write() to an existing file, as files of /proc and cgroups need it. */
int file_poke(int dirfd, const char *path, const char *text, struct err *err);

int fd_write_all(int fd, const void *data, size_t len, struct err *err);
/* True when fd is among the last descriptors this process may open: the last eighth, at least 32. A
 * new fd gets the lowest free number, so the number tells how many are left. Callers that can wait
 * refuse then, so that enough are left for what must always work. */
bool fd_is_scarce(int fd);
int fd_set_nonblocking(int fd, struct err *err);
/* mkdir -p. */
int dir_make_all(const char *path, mode_t mode, struct err *err);
/* Removes name below dirfd like rm -rf; never follows symbolic links. A missing name is not an
 * error. */
int tree_remove(int dirfd, const char *name, struct err *err);
