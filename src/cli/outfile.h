/* outfile.h - the one way by which bytes out of a box become files on this machine
 *
 * What comes out of a box is an attacker's. It is written to the name the user asked for and to
 * nothing else:
 *
 *   through a link  no symlink is followed, whoever made it: an earlier copy out of the same box
 *                   may have planted it. Those of the machine itself (/tmp or /home on another
 *                   disk) are
 *   half            a file gets a temporary name beside the final one and is renamed when it is
 *                   whole; a failure, a full disk or Ctrl-C removes it, and what was there before
 *                   stays as it was
 *   set-user-id     bits never come out */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/stat.h>

enum { OUTFILE_TEMP_SIZE = 32 };

struct outfile {
	int fd;	    /* to write to; -1: there is none */
	int dir;    /* the folder, its own */
	char *name; /* in dir; NULL: written in place, as a device is */
	char temp[OUTFILE_TEMP_SIZE];
};
#define OUTFILE_INIT                \
	{                           \
		.fd = -1, .dir = -1 \
	}

/* The folder path, which the user typed. ERR_FORBIDDEN when a link leads there. Flags as for open,
 * besides O_DIRECTORY. */
int outdir_open(const char *path, int flags, int *ret, struct err *err);
/* The same below a folder, for a path out of an archive: nothing leads out of it. The result of
 * open: -1 with errno. */
int outdir_open_beneath(int dir, const char *path, int flags);

/* A new file that will be called name in dir; its mode is 0600 until it is finished. dir is not
 * kept. */
int outfile_create(int dir, const char *name, struct outfile *ret, struct err *err);
/* The same for a path the user typed. A pipe or device that is there already is written to as it
 * is, a file is replaced at the end. ERR_FORBIDDEN for a link. */
int outfile_create_at(const char *path, struct outfile *ret, struct err *err);
/* Gives the file its name. mode is masked by 0777; a file that was there keeps its own mode and
 * owner unless replace_mode. */
int outfile_finish(struct outfile *file, mode_t mode, bool replace_mode, struct err *err);
/* Removes what is not finished; accepts one that is. */
void outfile_drop(struct outfile *file);

/* A temporary name in dir for something else than a file (links): made by the caller, then renamed
 * by outfile_rename(). */
void outfile_temp_name(char ret[OUTFILE_TEMP_SIZE]);
/* temp takes the place of name, of whatever kind that is, but for a folder: ERR_EXISTS. temp is
 * gone in any case. */
int outfile_rename(int dir, const char *temp, const char *name, struct err *err);
