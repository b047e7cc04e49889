/* cli.h - the command line: one table of commands, what each is handed, and how it answers
 *
 * A command gets the words that are left when the options are taken out (argv[0] is the first one,
 * argv[argc] is NULL) and returns the exit code of the program. Options are asked for by name:
 *
 * 	if (cli_has(cli, "all")) ...
 * 	const char *runs = cli_get(cli, "runs");
 *
 * A failing command ends with `return cli_fail(cli, &err);`: one line on stderr and the exit code
 * of the kind. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "client/client.h"
#include "cli/flags.h"
#include "conf/conf.h"
#include <stdbool.h>
#include <stdio.h>

struct cli;

enum command_flag {
	CMD_STOP_AT_PROGRAM = 1, /* options end where the program to run begins */
	CMD_GROUP = 2,		 /* only a heading, such as "image" of "image build" */
	CMD_HIDDEN = 4,
	CMD_NO_CONF = 8, /* works without configuration and daemon */
	/* is about this machine, whatever BOX_HOST says; refused when it names another */
	CMD_HERE = 16,
	/* needs files or programs of the caller's own machine; refused over ssh, as CMD_HERE is */
	CMD_OWN_FILES = 32,
};

struct command {
	const char *name;	  /* "exec", or two words: "image build" */
	const char *usage;	  /* what follows the name: "BOX [--] PROGRAM [ARG...]" */
	const char *summary;	  /* one line for the list */
	const char *text;	  /* the rest of the help; may be NULL */
	const char *examples;	  /* lines of "command\tcomment"; may be NULL */
	const struct flag *flags; /* may be NULL; --json, --quiet and --help are added */
	int (*run)(struct cli *cli, int argc, char **argv);
	unsigned options; /* enum command_flag */
	int least, most;  /* words; most -1: any number */
	int stop_after;	  /* with CMD_STOP_AT_PROGRAM: words before the program */
	/* what completion offers for words: "box", "image", "volume", "workspace", "token", "key",
	 * "command", "file" */
	const char *words;
};

struct cli {
	const struct command *command;
	struct flags flags;
	struct conf conf;
	bool json;	       /* --json */
	bool quiet;	       /* --quiet */
	struct client *client; /* to target; connects on first use */
	char *target;	       /* conf.socket, or another machine's daemon; see remote.h */
	char *token, *cacert, *home;
};

/* Runs the command that the words name, with all that belongs to it; returns the exit code.
 * run.c */
int cli_run(int argc, char **argv);

bool cli_has(const struct cli *cli, const char *flag);
const char *cli_get(const struct cli *cli, const char *flag); /* last one given; NULL: none */
const char *cli_nth(const struct cli *cli, const char *flag, size_t index);

/* From now on errors and notes are lines of JSON: {"error":{"code","message","hint"}}, {"note"}. */
void cli_want_json(bool wanted);
/* `box: message (hint)` on stderr; returns the exit code of the error's kind. */
int cli_fail(const struct cli *cli, const struct err *err);
/* Reports each error of an array of the API ({"error", "name"}), with "VERB 'NAME': " before it if
 * verb is not NULL; returns the exit code of the last one, 0 when there is none. */
int cli_fail_each(const struct cli *cli, json_t *errors, const char *verb);
/* The same line without ending anything; silent with --quiet. */
void cli_note(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A wrong command line: message and `box help VERB`; returns 64. */
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* json_str(box, "name"): the string under key, "" when there is none. Borrowed. */
const char *json_str(json_t *object, const char *key);
int64_t json_num(json_t *object, const char *key); /* 0 when there is none */

/* Prints value as one line of JSON and takes the reference; returns 0. */
int cli_print_json(json_t *value);
/* Prints only the array under key ("boxes"), as --json prints lists; takes the reference of answer;
 * returns 0. */
int cli_print_json_list(json_t *answer, const char *key);

/* All pages of GET /v1/boxes with --label and --state of the command line: an array, a new
 * reference. */
int cli_list_boxes(struct cli *cli, json_t **ret, struct err *err);
/* Whether its objects have more than one "owner": then a table shows them. */
bool cli_has_owners(json_t *list);
/* DELETEs /v1/WHAT/NAME for each name and prints those that worked; continues after a failure and
 * returns the last failure's code. */
int cli_delete_each(struct cli *cli, const char *what, int argc, char **argv);

/* POSTs body (consumed, may be NULL) to each box's verb and prints those it worked for; continues
 * after a failure and returns the last failure's code. */
int cli_post_each(struct cli *cli, int argc, char **argv, const char *verb, json_t *body);

/* ---- the tables, in commands_*.c ------------------------------------------------------------- */

/* Each ends with a row whose name is NULL. */
extern const struct command boxes_commands[], timeline_commands[], disks_commands[],
	network_commands[], system_commands[];
/* All commands in order: the next one after command, the first for NULL, NULL after the last. */
const struct command *command_next(const struct command *command);
extern const struct flag common_flags[];
/* The command named by the first one or two words; *ret_words tells how many they are. NULL:
 * none. */
const struct command *command_find(int argc, char **argv, int *ret_words);

/* What a command of another tool is called here, as a sentence; NULL: nothing known. habits.c */
const char *habit_hint(const char *word);
/* A command of another tool that is one letter from word; NULL: none. */
const char *habit_near(const char *word);
/* Reports an unknown command, and which one may be meant; returns 64. */
int command_unknown(const char *word);

int cmd_attach(struct cli *cli, int argc, char **argv);
int cmd_attack(struct cli *cli, int argc, char **argv);
int cmd_audit(struct cli *cli, int argc, char **argv);
int cmd_bench(struct cli *cli, int argc, char **argv);
int cmd_context_add(struct cli *cli, int argc, char **argv);
int cmd_context_ls(struct cli *cli, int argc, char **argv);
int cmd_context_rm(struct cli *cli, int argc, char **argv);
int cmd_context_use(struct cli *cli, int argc, char **argv);
int cmd_completion(struct cli *cli, int argc, char **argv);
int cmd_control(struct cli *cli, int argc, char **argv);
int cmd_cp(struct cli *cli, int argc, char **argv);
int cmd_df(struct cli *cli, int argc, char **argv);
int cmd_diff(struct cli *cli, int argc, char **argv);
int cmd_compare(struct cli *cli, int argc, char **argv);
int cmd_dial_stdio(struct cli *cli, int argc, char **argv);
int cmd_doctor(struct cli *cli, int argc, char **argv);
int cmd_down(struct cli *cli, int argc, char **argv);
int cmd_enter(struct cli *cli, int argc, char **argv);
int cmd_events(struct cli *cli, int argc, char **argv);
int cmd_exec(struct cli *cli, int argc, char **argv);
int cmd_help(struct cli *cli, int argc, char **argv);
int cmd_hibernate(struct cli *cli, int argc, char **argv);
int cmd_image_build(struct cli *cli, int argc, char **argv);
int cmd_image_export(struct cli *cli, int argc, char **argv);
int cmd_image_gc(struct cli *cli, int argc, char **argv);
int cmd_image_import(struct cli *cli, int argc, char **argv);
int cmd_image_ls(struct cli *cli, int argc, char **argv);
int cmd_image_pull(struct cli *cli, int argc, char **argv);
int cmd_image_rm(struct cli *cli, int argc, char **argv);
int cmd_image_show(struct cli *cli, int argc, char **argv);
int cmd_image_tag(struct cli *cli, int argc, char **argv);
int cmd_info(struct cli *cli, int argc, char **argv);
int cmd_key_add(struct cli *cli, int argc, char **argv);
int cmd_key_ls(struct cli *cli, int argc, char **argv);
int cmd_key_rm(struct cli *cli, int argc, char **argv);
int cmd_logs(struct cli *cli, int argc, char **argv);
int cmd_ls(struct cli *cli, int argc, char **argv);
int cmd_net(struct cli *cli, int argc, char **argv);
int cmd_new(struct cli *cli, int argc, char **argv);
int cmd_policy_check(struct cli *cli, int argc, char **argv);
int cmd_policy_edit(struct cli *cli, int argc, char **argv);
int cmd_policy_explain(struct cli *cli, int argc, char **argv);
int cmd_policy_presets(struct cli *cli, int argc, char **argv);
int cmd_policy_propose(struct cli *cli, int argc, char **argv);
int cmd_policy_record(struct cli *cli, int argc, char **argv);
int cmd_policy_set(struct cli *cli, int argc, char **argv);
int cmd_policy_show(struct cli *cli, int argc, char **argv);
int cmd_pool_grow(struct cli *cli, int argc, char **argv);
int cmd_pool_scrub(struct cli *cli, int argc, char **argv);
int cmd_pool_show(struct cli *cli, int argc, char **argv);
int cmd_port_add(struct cli *cli, int argc, char **argv);
int cmd_port_default(struct cli *cli, int argc, char **argv);
int cmd_port_ls(struct cli *cli, int argc, char **argv);
int cmd_port_rm(struct cli *cli, int argc, char **argv);
int cmd_promote(struct cli *cli, int argc, char **argv);
int cmd_ps(struct cli *cli, int argc, char **argv);
int cmd_rename(struct cli *cli, int argc, char **argv);
int cmd_resume(struct cli *cli, int argc, char **argv);
int cmd_rm(struct cli *cli, int argc, char **argv);
int cmd_rollback(struct cli *cli, int argc, char **argv);
int cmd_save(struct cli *cli, int argc, char **argv);
int cmd_serve(struct cli *cli, int argc, char **argv);
int cmd_fork(struct cli *cli, int argc, char **argv);
int cmd_forget(struct cli *cli, int argc, char **argv);
int cmd_gate(struct cli *cli, int argc, char **argv);
int cmd_ssh_connection(struct cli *cli, int argc, char **argv);
int cmd_set(struct cli *cli, int argc, char **argv);
int cmd_shell(struct cli *cli, int argc, char **argv);
int cmd_show(struct cli *cli, int argc, char **argv);
int cmd_snapshot(struct cli *cli, int argc, char **argv);
int cmd_ssh(struct cli *cli, int argc, char **argv);
int cmd_ssh_config(struct cli *cli, int argc, char **argv);
int cmd_ssh_proxy(struct cli *cli, int argc, char **argv);
int cmd_start(struct cli *cli, int argc, char **argv);
int cmd_stats(struct cli *cli, int argc, char **argv);
int cmd_stop(struct cli *cli, int argc, char **argv);
int cmd_suspend(struct cli *cli, int argc, char **argv);
int cmd_timeline(struct cli *cli, int argc, char **argv);
int cmd_token_create(struct cli *cli, int argc, char **argv);
int cmd_token_ls(struct cli *cli, int argc, char **argv);
int cmd_token_revoke(struct cli *cli, int argc, char **argv);
int cmd_try(struct cli *cli, int argc, char **argv);
int cmd_up(struct cli *cli, int argc, char **argv);
int cmd_url(struct cli *cli, int argc, char **argv);
int cmd_version(struct cli *cli, int argc, char **argv);
int cmd_volume_create(struct cli *cli, int argc, char **argv);
int cmd_volume_ls(struct cli *cli, int argc, char **argv);
int cmd_volume_rm(struct cli *cli, int argc, char **argv);
int cmd_volume_set(struct cli *cli, int argc, char **argv);
int cmd_volume_show(struct cli *cli, int argc, char **argv);
int cmd_wake(struct cli *cli, int argc, char **argv);
int cmd_workspace_get(struct cli *cli, int argc, char **argv);
int cmd_workspace_ls(struct cli *cli, int argc, char **argv);
int cmd_workspace_rm(struct cli *cli, int argc, char **argv);

/* ports.c: checks the ports of --publish, [HOST:]PORT each, and sets them for a box. */
int ports_check_publish(struct cli *cli, struct err *err);
int ports_publish(struct cli *cli, const char *box, struct err *err);

/* context.c: target and credentials of the context name; NULL: of the current one. *ret_target
 * NULL: this machine's daemon. All are yours. */
int context_find(const char *name, char **ret_target, char **ret_token, char **ret_cacert,
	char **ret_name, struct err *err);

/* help.c: the manual of one command (or heading) on out; of the program when command is NULL. */
void help_print(const struct command *command, FILE *out);
