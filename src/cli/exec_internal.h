/* exec_internal.h - what exec.c and new.c share: the options of a program to start */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>

struct cli;
struct session_spec;

/* Reads --env into env. "KEY=VALUE", or "KEY" for our own value; a KEY that is not set here is left
 * out, as with env and docker. */
int exec_read_env(struct cli *cli, json_t *env, struct err *err);
/* A new array; NULL with err when a word is not UTF-8. */
json_t *exec_words(int count, char **words, struct err *err);
/* The body of an exec, from the options and the words of the program. */
int exec_body(struct cli *cli, int argc, char **argv, bool tty, json_t **ret, struct err *err);
/* The body of a shell of the box's user, which runs command, or is a login shell for NULL. */
int exec_shell_body(struct cli *cli, const char *command, bool tty, json_t **ret, struct err *err);
/* A shell without input shows its prompt and looks as if it hung. */
void exec_warn_without_input(struct cli *cli, const struct session_spec *spec);

/* new.c: --label into labels. */
int labels_read(struct cli *cli, json_t *labels, struct err *err);
/* new.c: reads --cpu, --memory, --disk, --pids, --on-limit, --inside and --auto-snapshot into body;
 * checked here, so that an error names the option. */
int limits_read(struct cli *cli, json_t *body, struct err *err);
