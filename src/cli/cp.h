/* cp.h - what `box new --copy` takes from `box cp` */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct cli;

/* PATH or PATH:/TARGET: what the folder PATH holds, or the file itself, into the folder TARGET of
 * the box (/workspace), which is made if it is missing. A bar when it takes long. ERR_CANCELLED
 * after a signal that is caught. */
int copy_into_new(struct cli *cli, const char *box, const char *word, struct err *err);
/* From now on Ctrl-C, TERM and HUP are remembered, and break off what is being copied, so that the
 * box can be removed. Gives the one that came, or 0. */
int copy_catch_signals(bool begin);
/* Whether word can be copied, before there is a box. */
int copy_check_word(const char *word, struct err *err);
