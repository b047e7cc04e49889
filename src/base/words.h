/* words.h - a line of text as the words a shell would make of it
 *
 * Quotes and backslashes as POSIX has them: 'as it is', "with \" \\ \$ and \`", and \ before any
 * byte outside of quotes. Nothing is expanded: no variables, no patterns, no commands, no comments;
 * a byte that would mean such a thing in a shell is a byte like others. Pure. */
#pragma once
#include "base/err.h"

enum { WORDS_MAX = 4096 };

/* *ret is NULL-terminated, yours (strv_free) and may be empty. ERR_INVALID: a quote is not closed,
 * a backslash is the last byte, or there are more than WORDS_MAX words. */
int words_split(const char *line, char ***ret, struct err *err);
