/* beneath.h - opening paths inside a directory tree that somebody else controls
 *
 * None of these leaves the tree or follows a magic link of /proc, and only in_root_open() follows
 * symbolic links. */
#pragma once
#include "base/err.h"
#include <sys/types.h>

/* flags as for open; O_CLOEXEC is added. path is relative to root. Keeps the errno: ELOOP is a
 * link. */
int beneath_open(int root, const char *path, int flags, int *ret, struct err *err);
/* As a process whose root is root sees path, which may be absolute: links are followed inside the
 * tree, those of /proc are not. */
int in_root_open(int root, const char *path, int flags, int *ret, struct err *err);
/* A directory as O_PATH; missing components are made with mode. ERR_INVALID when one of them is a
 * symbolic link or no directory. */
int beneath_make_dir(int root, const char *path, mode_t mode, int *ret, struct err *err);
/* A regular file as O_PATH; an empty one is made if it is missing, and directories on the way as
 * above. ERR_INVALID when it is something else. */
int beneath_make_file(int root, const char *path, mode_t mode, int *ret, struct err *err);
