/* run.c - one command: found, its options parsed, checked, run */
#include "base/alloc.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/over_ssh.h"
#include "client/given.h"
#include "client/remote.h"
#include <errno.h>
#include <signal.h>

/* The placeholder of the word at index: "BOX" of the usage "BOX [NAME...]"; the last one may
 * repeat. Returns whether usage has one. */
static bool word_of_usage(const char *usage, int index, char *out, size_t size)
{
	bool again = false;

	*out = '\0';
	for (int i = 0; *usage && *usage != '|' && !text_has_prefix(usage, "[--"); i++) {
		size_t len = strcspn(usage, " "), start = strspn(usage, "[");
		size_t end = start + strspn(usage + start, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

		snprintf(out, size, "%.*s", (int)(end - start), usage + start);
		again = !strncmp(usage + end, "...", 3);
		if (i == index)
			return true;
		usage += len + strspn(usage + len, " ");
	}
	return again;
}

/* Names become parts of API paths, and one with a slash would be another path. */
static const char *find_name_with_slash(const struct cli *cli)
{
	static const char *const names[] = { "BOX", "CHILD", "OTHER", "EXEC", "SNAPSHOT", "VOLUME",
		"WORKSPACE", "TOKEN", "PORT" };
	int count = cli->flags.dash_at >= 0 ? cli->flags.dash_at : cli->flags.word_count;
	char what[16];

	if (cli->command->options & CMD_STOP_AT_PROGRAM)
		count = MIN(count, cli->command->stop_after);
	for (int i = 0; i < count && word_of_usage(cli->command->usage, i, what, sizeof what); i++)
		for (size_t j = 0; j < ARRAY_LEN(names); j++)
			if (!strcmp(what, names[j]) && strchr(cli->flags.words[i], '/'))
				return cli->flags.words[i];
	return NULL;
}

/* An empty name, such as an unset variable in a script, cannot be part of an API path. */
static bool has_empty_name(const struct cli *cli)
{
	static const char *const names[] = { "box", "image", "volume", "workspace", "token",
		"key" };
	const struct command *command = cli->command;
	int count = cli->flags.word_count;
	bool is_name = false;

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		is_name = is_name || (command->words && !strcmp(command->words, names[i]));
	if (command->options & CMD_STOP_AT_PROGRAM)
		count = MIN(count, command->stop_after);
	for (int i = 0; is_name && i < count; i++)
		if (!*cli->flags.words[i])
			return true;
	return false;
}

static int check_words(const struct cli *cli)
{
	const struct command *command = cli->command;
	int count = cli->flags.word_count;

	if ((command->options & CMD_GROUP) && count)
		return cli_usage(cli, "'box %s' has no '%.60s', only %s", command->name,
			cli->flags.words[0], command->usage);
	if (command->options & CMD_GROUP)
		return cli_usage(
			cli, "'box %s' needs one more word: %s", command->name, command->usage);
	if (count < command->least)
		return cli_usage(cli, "too few words: box %s %s", command->name, command->usage);
	if (command->most >= 0 && count > command->most)
		return cli_usage(cli, "'%.60s' is one word too many: box %s%s%s",
			cli->flags.words[command->most], command->name, *command->usage ? " " : "",
			command->usage);
	if (has_empty_name(cli))
		return cli_usage(cli, "a name is empty: box %s %s", command->name, command->usage);
	if (find_name_with_slash(cli))
		return cli_usage(cli, "'%.60s' is no name, it has a '/': box %s %s",
			find_name_with_slash(cli), command->name, command->usage);
	return 0;
}

/* ---- which daemon --------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int take_variable(char **slot, const char *name)
{
	if (variable(name)) {
		free(*slot);
		*slot = xstrdup(variable(name));
	}
	return 0;
}

/* See context.c. */
static int choose_daemon(struct cli *cli, struct err *err)
{
	const char *host = variable("BOX_HOST"), *context = variable("BOX_CONTEXT");
	bool here = !host && !context && (variable("BOX_HOME") || variable("BOX_RUN"));
	_cleanup_free_ char *name = NULL;

	if (host && remote_read(host, &cli->target, err) < 0)
		return err_wrap(err, "BOX_HOST");
	if (!host && !here &&
		context_find(context, &cli->target, &cli->token, &cli->cacert, &name, err) < 0)
		return -1;
	if (cli->target && remote_is(cli->target) && (cli->command->options & CMD_HERE)) {
		err_set(err, ERR_INVALID,
			"'box %s' works on this machine only, but %s%s names another",
			cli->command->name, name ? "context " : "BOX_HOST", name ? name : "");
		return err_hint(err, "%s",
			name ? "'box context use default', or BOX_CONTEXT=default" : "unset it");
	}
	take_variable(&cli->token, "BOX_TOKEN");
	take_variable(&cli->cacert, "BOX_CACERT");
	if (!cli->target) {
		cli->target = xstrdup(cli->conf.socket);
		if (cli->conf.home_given) {
			cli->home = realpath(cli->conf.home, NULL);
			if (!cli->home)
				cli->home = xstrdup(cli->conf.home);
		}
	}
	remote_use(cli->target, cli->token, cli->cacert, cli->home);
	return 0;
}

/* Runs the command that argv[0] (and perhaps argv[1]) name. */
static int run(struct cli *cli, int argc, char **argv)
{
	struct err err = ERR_INIT;
	int words = 0, wrong;

	/* Errors of the command line are printed as JSON, too; the options are parsed below. */
	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--json"))
			cli_want_json(true);
	cli->command = command_find(argc, argv, &words);
	if (!cli->command)
		return command_unknown(argv[0]);
	if (flags_parse(cli->command->flags, common_flags,
		    cli->command->options & CMD_STOP_AT_PROGRAM ? FLAGS_STOP : FLAGS_ANYWHERE,
		    cli->command->stop_after, argc - words, argv + words, &cli->flags, &err) < 0)
		return cli_usage(cli, "%s%s%s", err.message, err.hint[0] ? ", " : "", err.hint);
	cli->json = cli_has(cli, "json");
	cli_want_json(cli->json);
	cli->quiet = cli_has(cli, "quiet");
	if (cli_has(cli, "help")) {
		help_print(cli->command, stdout);
		return 0;
	}
	wrong = check_words(cli);
	if (wrong)
		return wrong;
	if (over_ssh() && over_ssh_check(cli, &err) < 0)
		return cli_fail(cli, &err);
	if (!(cli->command->options & CMD_NO_CONF)) {
		if ((!over_ssh() && conf_load(&cli->conf, &err) < 0) ||
			given_read(&cli->target, &err) < 0)
			return cli_fail(cli, &err);
		if (!cli->target && !(cli->command->options & CMD_HIDDEN) &&
			choose_daemon(cli, &err) < 0)
			return cli_fail(cli, &err);
		if (!cli->target)
			cli->target = xstrdup(cli->conf.socket);
		cli->client = client_new(cli->target);
	}
	return cli->command->run(cli, cli->flags.word_count, cli->flags.words);
}

/* A full disk or a closed pipe shows only when the last bytes are written. */
static int flush_output(const struct cli *cli, int code)
{
	struct err err = ERR_INIT;
	int failed;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (errno == EPIPE)
		return 128 + SIGPIPE;
	err_sys(&err, errno, "write output");
	failed = cli_fail(cli, &err);
	return code ? code : failed;
}

int cli_run(int argc, char **argv)
{
	static char *const help[] = { "help", NULL }, *const version[] = { "version", NULL };
	struct cli cli = { .flags = { .dash_at = -1 } };
	int code;

	if (argc <= 0 || !strcmp(argv[0], "--help") || !strcmp(argv[0], "-h")) {
		argc = 1;
		argv = (char **)help;
	} else if (!strcmp(argv[0], "--version") || !strcmp(argv[0], "-V")) {
		argc = 1;
		argv = (char **)version;
	}
	code = flush_output(&cli, run(&cli, argc, argv));
	client_free(cli.client);
	free(cli.target);
	free(cli.token);
	free(cli.cacert);
	free(cli.home);
	conf_done(&cli.conf);
	flags_done(&cli.flags);
	return code;
}
