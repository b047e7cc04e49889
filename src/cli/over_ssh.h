/* over_ssh.h - the same commands, for somebody who came in by SSH
 *
 * `ssh box@HOST WORDS` runs this program beside the daemon (control.c). There it has no files, no
 * programs and no network: commands work on what the daemon has, a file comes by stdin or goes to
 * stdout. What needs more is refused before it begins, and the message says what to do instead. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct cli;
struct command;

void over_ssh_begin(void); /* from now on, for good */
bool over_ssh(void);
/* Whether the command works over ssh at all: help and completion leave others out. */
bool over_ssh_has(const struct command *command);
/* The command with its options and words: ERR_UNSUPPORTED when it needs the caller's own files. */
int over_ssh_check(const struct cli *cli, struct err *err);
