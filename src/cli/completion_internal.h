/* completion_internal.h - what the completions of all shells know besides the table of commands */
#pragma once
#include "cli/cli.h"

/* What to complete as the value of an option. The table ends with a row whose flag is NULL. */
struct completion_value {
	const char *flag;  /* without dashes */
	const char *kind;  /* names of the daemon's: "box", "image"; "file"; NULL: words */
	const char *words; /* with blanks between */
};
extern const struct completion_value completion_values[];

/* NULL: nothing is known about it. */
const struct completion_value *completion_value_of(const struct flag *flag);
/* Whether command is one of the second words of group, such as 'image build' of image. */
bool completion_is_below(const struct command *command, const struct command *group);

void completion_print_zsh(void);
void completion_print_fish(void);
