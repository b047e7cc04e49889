/* cp.h - what `box new --copy` takes from `box cp` */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct cli;

/* Copies the content of the folder PATH, or the file itself, into the folder TARGET of the box
 * (/workspace), which is made if it is missing; word is PATH or PATH:/TARGET. Shows a bar when it
 * takes long. Fails with ERR_CANCELLED after a caught signal. */
int copy_into_new(struct cli *cli, const char *box, const char *word, struct err *err);
/* From now on Ctrl-C, TERM and HUP are caught and cancel the copy, so that the box can be removed.
 * Returns the signal that came, or 0. */
int copy_catch_signals(bool begin);
/* Checks word before the box is made. */
int copy_check_word(const char *word, struct err *err);
