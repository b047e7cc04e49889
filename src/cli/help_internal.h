/* help_internal.h - the manual in its several forms */
#pragma once
#include "cli/cli.h"
#include <stdio.h>
#include <string.h>

#ifndef BOX_VERSION
#define BOX_VERSION "0.1.0"
#endif

/* Lines of "code or name   what it means". */
extern const char help_exit_codes[], help_environment[];

/* Writes box.1 and a page for each command, such as box-image-build.1, into the folder dir, which
 * is made if it is missing. */
int help_write_man(const char *dir, struct err *err);
