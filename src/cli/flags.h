/* flags.h - options of a command line, parsed by a table
 *
 * `--name value`, `--name=value`, `-n value`, `-nvalue`, `-n=value`, bundled switches (`-it`), `--`
 * ends the options. Anything that is not in the table is refused with the nearest name. The same
 * table prints help and completion. Pure: no I/O. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flag {
	const char *name;  /* "memory" for --memory; a table ends with a row whose name is NULL */
	char letter;	   /* 'm' for -m; 0: none */
	const char *value; /* what stands for the value in help ("SIZE"); NULL: a switch */
	const char *help;
};

struct flag_use {
	const char *name;  /* of the flag, borrowed from its table */
	const char *value; /* borrowed from argv; "" for a switch */
};

struct flags {
	struct flag_use *uses; /* in the order given */
	size_t count;
	char **words; /* what is not an option, NULL-terminated; strings borrowed from argv */
	int word_count;
	int dash_at; /* how many words stood before `--`; -1 when there was none */
};

enum flags_mode {
	FLAGS_ANYWHERE = 0,
	FLAGS_STOP =
		/* Options end at the first word after `stop_after` words, so that a program's own
		 * options are left to it: `box exec BOX ls -l` */
	1,
};

/* table and common are searched in this order; common may be NULL. */
int flags_parse(const struct flag *table, const struct flag *common, enum flags_mode mode,
	int stop_after, int argc, char **argv, struct flags *ret, struct err *err);
void flags_done(struct flags *flags);

bool flags_has(const struct flags *flags, const char *name);
const char *flags_get(
	const struct flags *flags, const char *name); /* the last one; NULL when not given */
/* The value of the index-th use of name, NULL after the last. */
const char *flags_nth(const struct flags *flags, const char *name, size_t index);
