/* over_ssh.c - see over_ssh.h */
#include "cli/over_ssh.h"
#include "base/alloc.h"
#include "cli/cli.h"

static bool is_over_ssh;

void over_ssh_begin(void)
{
	is_over_ssh = true;
}

bool over_ssh(void)
{
	return is_over_ssh;
}

bool over_ssh_has(const struct command *command)
{
	return !(command->options & (CMD_HERE | CMD_OWN_FILES));
}

/* ---- what names a file of the caller -------------------------------------------------------- */

#define COPY_LATER "copy it afterwards: 'cp - BOX:/FILE < FILE', or scp FILE BOX@HOST:/FILE"
#define BY_STDIN   "use - and send it to stdin: ssh box@HOST ... - < FILE"
#define BY_STDOUT  "use - and take it from stdout: ssh box@HOST ... - > FILE"
#define OWN_KEYS   "send the keys to stdin: ssh box@HOST key add NAME -f - < KEY.pub"
#define OWN_BOX	   "use box on your own machine, with BOX_HOST=ssh://box@HOST:PORT"

static const struct {
	const char *name;
	bool stream; /* "-" may be given */
	const char *hint;
} options[] = {
	{ "copy", false, COPY_LATER },
	{ "mount", false, "a volume works (-v NAME:/PATH); or " COPY_LATER },
	{ "file", true, BY_STDIN },
	{ "agent", false, OWN_KEYS },
	{ "authorized-keys", false, OWN_KEYS },
	{ "mine", false, OWN_KEYS },
	{ "folder", false, "without it, the daemon verifies its own log" },
	{ "man", false, "'help' and 'help --markdown' print to stdout" },
	{ "policy", true, BY_STDIN },
	{ "output", true, BY_STDOUT },
	{ "tar", true, BY_STDOUT },
};

enum { ALL_WORDS = -1 };
static const struct {
	const char *command;
	int word;
	const char *hint;
} files[] = {
	{ "cp", ALL_WORDS, "use - for stdin or stdout: 'cp - BOX:/FILE < FILE'; or scp" },
	{ "image import", 0, BY_STDIN },
	{ "policy check", 0, BY_STDIN },
	{ "policy set", 1, BY_STDIN },
};

static const struct {
	const char *command, *hint;
} instead[] = {
	{ "image build", OWN_BOX },
	{ "policy edit", "'policy show BOX > FILE', edit it, 'policy set BOX - < FILE'" },
	{ "workspace get", "'workspace get NAME -o - > FILE' gives it as an archive" },
};

static int refuse(struct err *err, const char *what, const char *hint)
{
	err_set(err, ERR_UNSUPPORTED, "over ssh there are no files of yours: '%.100s'", what);
	return err_hint(err, "%s", hint);
}

/* BOX:/path, as cp reads it. */
static bool is_in_box(const char *word)
{
	const char *colon = strchr(word, ':'), *slash = strchr(word, '/');

	return colon && colon != word && (!slash || colon < slash);
}

static int check_options(const struct cli *cli, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		const char *value = cli_get(cli, options[i].name);

		if (value && !(options[i].stream && !strcmp(value, "-")))
			return refuse(err, value, options[i].hint);
	}
	return 0;
}

static int check_files(const struct cli *cli, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		for (int j = 0; j < cli->flags.word_count; j++) {
			const char *word = cli->flags.words[j];

			if (strcmp(files[i].command, cli->command->name) != 0 ||
				(files[i].word != ALL_WORDS && files[i].word != j))
				continue;
			if (strcmp(word, "-") != 0 &&
				!(files[i].word == ALL_WORDS && is_in_box(word)))
				return refuse(err, word, files[i].hint);
		}
	return 0;
}

static int refuse_command(const struct command *command, struct err *err)
{
	const char *hint = command->options & CMD_HERE ? "run it on the daemon's machine" : OWN_BOX;

	for (size_t i = 0; i < ARRAY_LEN(instead); i++)
		if (!strcmp(instead[i].command, command->name))
			hint = instead[i].hint;
	err_set(err, ERR_UNSUPPORTED, "'%s' does not work over ssh", command->name);
	return err_hint(err, "%s", hint);
}

int over_ssh_check(const struct cli *cli, struct err *err)
{
	const struct command *command = cli->command;

	if (!over_ssh_has(command))
		return refuse_command(command, err);
	/* The folder of a Boxfile, the folder that is written without -o. */
	if ((!strcmp(command->name, "image build") && cli_get(cli, "file")) ||
		(!strcmp(command->name, "workspace get") && !cli_get(cli, "output")))
		return refuse_command(command, err);
	if (check_options(cli, err) < 0)
		return -1;
	return check_files(cli, err);
}
