/* outfile.h - the only way in which bytes from a box become files on this machine
 *
 * What comes out of a box is hostile. It is written to the name the user asked for and nowhere
 * else:
 *
 *   symlinks     none is followed, whoever made it: an earlier copy out of the same box may have
 *                planted it. Those of the machine itself (/tmp or /home on another disk) are
 *   unfinished   a file gets a temporary name beside the final one and is renamed when it is
 *                complete; a failure, a full disk or Ctrl-C removes it, and what was there before
 *                stays
 *   set-user-id  bits are always removed */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/stat.h>

enum { OUTFILE_TEMP_SIZE = 32 };

struct outfile {
	int fd;	    /* to write to; -1: there is none */
	int dir;    /* the folder, its own */
	char *name; /* in dir; NULL: written in place, like a device */
	char temp[OUTFILE_TEMP_SIZE];
};
#define OUTFILE_INIT                \
	{                           \
		.fd = -1, .dir = -1 \
	}

/* Opens a folder that the user typed. Fails with ERR_FORBIDDEN when a symlink leads there. Flags as
 * for open, besides O_DIRECTORY. */
int outdir_open(const char *path, int flags, int *ret, struct err *err);
/* The same below a folder, for a path from an archive: it cannot leave the folder. Returns like
 * open: -1 with errno. */
int outdir_open_beneath(int dir, const char *path, int flags);

/* Makes a new file that will be called name in dir; its mode is 0600 until it is finished. dir is
 * not kept. */
int outfile_create(int dir, const char *name, struct outfile *ret, struct err *err);
/* The same for a path that the user typed. An existing pipe or device is written to directly, a
 * file is replaced at the end. Fails with ERR_FORBIDDEN for a symlink. */
int outfile_create_at(const char *path, struct outfile *ret, struct err *err);
/* Gives the file its name. mode is masked by 0777; an existing file keeps its mode and owner unless
 * replace_mode. */
int outfile_finish(struct outfile *file, mode_t mode, bool replace_mode, struct err *err);
/* Removes an unfinished file; accepts a finished one. */
void outfile_drop(struct outfile *file);

/* A temporary name in dir for something that is not a file (links): made by the caller, then
 * renamed by outfile_rename(). */
void outfile_temp_name(char ret[OUTFILE_TEMP_SIZE]);
/* temp replaces name, of any kind except a folder: ERR_EXISTS. temp is gone in any case. */
int outfile_rename(int dir, const char *temp, const char *name, struct err *err);
