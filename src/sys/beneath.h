/* beneath.h - opens paths inside a directory tree that somebody else controls
 *
 * None of these functions leaves the tree or follows a magic link of /proc, and only in_root_open()
 * follows symbolic links. */
#pragma once
#include "base/err.h"
#include <sys/types.h>

/* Opens path, relative to root. flags are as for open; O_CLOEXEC is added. Keeps the errno: ELOOP
 * means a link. */
int beneath_open(int root, const char *path, int flags, int *ret, struct err *err);
/* Opens path, which may be absolute, as a process with this root sees it: links are followed inside
 * the tree, magic links of /proc are not. */
int in_root_open(int root, const char *path, int flags, int *ret, struct err *err);
/* Opens a directory as O_PATH; missing components are made with mode. Fails with ERR_INVALID when
 * one of them is a symbolic link or not a directory. */
int beneath_make_dir(int root, const char *path, mode_t mode, int *ret, struct err *err);
/* Opens a regular file as O_PATH; a missing one is made empty, and directories on the way as above.
 * Fails with ERR_INVALID when it is something else. */
int beneath_make_file(int root, const char *path, mode_t mode, int *ret, struct err *err);
