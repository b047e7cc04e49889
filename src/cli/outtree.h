/* outtree.h - a new folder with content from a box: complete, or not there
 *
 * It is filled under a temporary name beside the final one, like a file (outfile.h), and renamed
 * when it is complete. A failure, a full disk or Ctrl-C removes it. Only kill -9 leaves something:
 * a folder whose name begins with ".box-". */
#pragma once
#include "cli/outfile.h"

struct outtree {
	int dir;	  /* borrowed */
	const char *name; /* borrowed; the folder's in dir, where there is nothing of that name */
	char temp[OUTFILE_TEMP_SIZE]; /* its temporary name; the caller makes it */
};

/* From now on a signal that would end the program cancels the client's request. */
void outtree_begin(struct outtree *tree, int dir, const char *name);
/* result: of filling it, with err if it is -1. Gives the folder its name or removes it; returns -1
 * if it does not exist. After a signal the folder is removed, and the program ends by the
 * signal. */
int outtree_end(struct outtree *tree, int result, struct err *err);
