/* boxfile.h - parses a Boxfile, the recipe of an image, into steps; docs/boxfile.md has the
 * language
 *
 * Pure: build.c runs the steps. All text is UTF-8, bounded, and checked as far as possible without
 * a box: a wrong line is found before anything is built. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

enum boxfile_kind {
	BOXFILE_FROM,
	BOXFILE_RUN,
	BOXFILE_COPY,
	BOXFILE_ENV,
	BOXFILE_WORKDIR,
	BOXFILE_USER,
	BOXFILE_PACKAGES,
	BOXFILE_ENTRYPOINT,
	BOXFILE_CMD,
	BOXFILE_EXPOSE,
	BOXFILE_LABEL,
	BOXFILE_KIND_COUNT
};

struct boxfile_step {
	enum boxfile_kind kind;
	unsigned line; /* where it begins, from 1 */
	char *rest;    /* what follows the keyword, continued lines joined */
	/* rest as words, NULL-terminated; for run only rest itself. For copy at least two. */
	char **words;
};

struct boxfile {
	struct boxfile_step *steps; /* the first one is FROM, and the only one */
	size_t count;
};

enum { BOXFILE_SIZE_MAX = 1024 * 1024, BOXFILE_STEPS_MAX = 500 };

/* ERR_INVALID, with the line in the message. */
int boxfile_parse(const char *text, size_t len, struct boxfile *ret, struct err *err);
void boxfile_done(struct boxfile *boxfile);

const char *boxfile_keyword(enum boxfile_kind kind); /* "run" */
/* Whether the step changes the disk, and so has an image of its own. */
bool boxfile_changes_disk(enum boxfile_kind kind);

/* The value of a variable, borrowed; NULL: it has none. */
typedef const char *(*boxfile_lookup)(const char *name, void *arg);
/* Splits words as a shell does: blanks, '…', "…", backslash. With lookup, $NAME and ${NAME} outside
 * of '…' become their value, or nothing; without, a dollar is a dollar. *ret is a strv, never
 * NULL. */
int boxfile_words(const char *text, boxfile_lookup lookup, void *arg, char ***ret, struct err *err);
