/* path.h - opens paths of the box without following /proc's magic links
 *
 * Everything runs as root of the box, inside it: a path cannot lead out. Magic links are refused
 * because they lead to whatever a process has open, which is not what a path says. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

/* The location of a name: a directory and one component, "." for the root itself. */
struct place {
	int dir;
	char name[256];
};
#define PLACE_INIT     \
	{              \
		-1, "" \
	}
void place_done(struct place *place);
#define _cleanup_place_ _cleanup_(place_done)

/* Absolute, not too long, no "..": ERR_INVALID says which. */
int path_check(const char *path, struct err *err);
/* openat2() without magic links; the fd or -1. */
int path_open(int dir, const char *path, int flags, mode_t mode, struct err *err);
/* Finds the location of path; with follow its last component is not a symlink. It need not exist,
 * but its folder must; with parents (0755) the folder is made. */
int path_find(const char *path, bool follow, bool parents, struct place *ret, struct err *err);
/* mkdir -p: makes what is missing of path, the last with mode. An fd (O_PATH) of it, or -1. */
int path_make_dirs(const char *path, mode_t mode, struct err *err);
/* The raw openat2(); -1 and errno. */
int open_how(int dir, const char *path, int flags, mode_t mode, unsigned long long resolve);
