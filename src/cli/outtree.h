/* outtree.h - a new folder out of a box: whole, or not there
 *
 * It is filled under a temporary name beside the final one, as a file is (outfile.h), and renamed
 * when it is whole. A failure, a full disk or Ctrl-C removes it. Only a kill -9 leaves something: a
 * folder whose name begins with ".box-". */
#pragma once
#include "cli/outfile.h"

struct outtree {
	int dir;	  /* borrowed */
	const char *name; /* borrowed; the folder's in dir, where there is nothing of that name */
	char temp[OUTFILE_TEMP_SIZE]; /* its name until the end; the caller makes it */
};

/* From now on a signal that would end the program breaks off what the client does. */
void outtree_begin(struct outtree *tree, int dir, const char *name);
/* result: of filling it, with err if it is -1. Gives the folder its name or removes it; returns -1
 * if it is not there. After a signal nothing is there, and the program ends by it. */
int outtree_end(struct outtree *tree, int result, struct err *err);
