/* menu_complete.h - what the Tab key offers in the menu, from the tables of the command line */
#pragma once
#include <stddef.h>

/* All that may stand for the last word of line, which may be begun (*ret_begun bytes of it are
 * there). Commands and options come from the table of commands; names are asked for by 'ls --names'
 * and the like, as shell completion does. Yours (strv_free); NULL: nothing. */
char **menu_complete(const char *line, size_t *ret_begun);
