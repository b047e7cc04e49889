/* help.c - the manual, printed from the table of commands: for a terminal and as Markdown. Manual
 * pages are in help_man.c. */
#include "base/alloc.h"
#include "cli/help_internal.h"
#include "cli/over_ssh.h"
#include "cli/terminal.h"

enum { NAME_COLUMN = 16, FLAG_COLUMN = 27 };

const char help_exit_codes[] =
	"0          it worked\n"
	"1-125      from exec, shell, attach and 'new -- PROGRAM': the program's own\n"
	"124        the program reached its --timeout\n"
	"128+N      the program (or this command) was ended by signal N; 130 is Ctrl-C\n"
	"141        nobody reads the output any more\n"
	"64         wrong command line or value (invalid, too_large)\n"
	"65         not possible now, such as exec in a stopped box (state)\n"
	"66         no such box, image, exec, file or program (not_found)\n"
	"69         the daemon does not run or answer (unavailable), or this machine cannot do it "
	"(unsupported)\n"
	"70         interrupted (cancelled)\n"
	"71         a system call failed (system)\n"
	"73         the name is taken (exists)\n"
	"74         it took too long (timeout)\n"
	"75         out of something counted: boxes, disk, memory; or the box is paused at its "
	"limit (limit)\n"
	"76         the other side answered nonsense (protocol)\n"
	"77         not allowed (unauthorized, forbidden)\n";

const char help_environment[] =
	"BOX_HOME    state of the daemon (/var/lib/boxyard)\n"
	"BOX_RUN     sockets (/run/boxyard; BOX_HOME/run if that is set alone): commands talk to "
	"BOX_RUN/box.sock\n"
	"BOX_LISTEN  address of the REST API over TCP (127.0.0.1:30001), or off\n"
	"BOX_CONF    configuration file (/etc/boxyard.conf)\n"
	"BOX_HOST    another daemon: ssh://USER@HOST, https://HOST:PORT or unix:///SOCKET\n"
	"BOX_TOKEN   for https\n"
	"BOX_CACERT  certificates to trust for https besides the machine's own, PEM\n"
	"BOX_CONTEXT a daemon by the name it has in 'box context ls'\n"
	"NO_COLOR    set: no colours\n"
	"COLUMNS     width of tables on a terminal\n";

static const struct {
	const char *name;
	const char *title;
	const char *text;
} topics[] = {
	{ "exit-codes", "exit codes", help_exit_codes },
	{ "environment", "environment", help_environment },
};

static void print_flag(const struct flag *flag, FILE *out)
{
	char text[80];

	if (flag->letter)
		snprintf(text, sizeof text, "  -%c, --%s%s%s", flag->letter, flag->name,
			flag->value ? " " : "", flag->value ? flag->value : "");
	else
		snprintf(text, sizeof text, "      --%s%s%s", flag->name, flag->value ? " " : "",
			flag->value ? flag->value : "");
	fprintf(out, "%-*s  %s\n", FLAG_COLUMN, text, flag->help);
}

static void print_examples(const char *examples, const char *indent, FILE *out)
{
	size_t widest = 0;

	for (const char *p = examples; *p; p = strchr(p, '\n') + 1)
		widest = MAX(widest, strcspn(p, "\t"));
	for (const char *p = examples; *p; p = strchr(p, '\n') + 1) {
		int command = (int)strcspn(p, "\t"), comment = (int)strcspn(p + command + 1, "\n");

		fprintf(out, "%s%-*.*s   # %.*s\n", indent, (int)widest, command, p, comment,
			p + command + 1);
	}
}

static bool is_below(const struct command *command, const struct command *group)
{
	size_t len = strlen(group->name);

	return !strncmp(command->name, group->name, len) && command->name[len] == ' ';
}

static void print_overview(FILE *out)
{
	fprintf(out,
		"box %s - a computer of its own for every agent\n\nusage: box COMMAND [OPTION...] "
		"[WORD...]\n\n",
		BOX_VERSION);
	for (const struct command *command = NULL; (command = command_next(command));)
		if (!strchr(command->name, ' ') && !(command->options & CMD_HIDDEN) &&
			(!over_ssh() || over_ssh_has(command)))
			fprintf(out, "  %-*s%s\n", NAME_COLUMN, command->name, command->summary);
	fprintf(out, "\n'box help COMMAND' explains one; 'box help exit-codes' and 'box help "
		     "environment' the rest.\n");
}

void help_print(const struct command *command, FILE *out)
{
	if (!command) {
		print_overview(out);
		return;
	}
	fprintf(out, "usage: box %s%s%s\n\n%c%s.\n", command->name, *command->usage ? " " : "",
		command->usage, command->summary[0] & ~0x20, command->summary + 1);
	if (command->options & CMD_GROUP) {
		fputc('\n', out);
		for (const struct command *below = NULL; (below = command_next(below));)
			if (is_below(below, command))
				fprintf(out, "  %-*s%s\n", NAME_COLUMN, below->name,
					below->summary);
		return;
	}
	if (command->text)
		fprintf(out, "%s\n", command->text);
	fprintf(out, "\noptions:\n");
	for (const struct flag *flag = command->flags; flag && flag->name; flag++)
		print_flag(flag, out);
	for (const struct flag *flag = common_flags; flag->name; flag++)
		print_flag(flag, out);
	if (command->examples) {
		fprintf(out, "\nexamples:\n");
		print_examples(command->examples, "  ", out);
	}
}

/* A cell of a Markdown table: a bar in it would begin the next cell. */
static void print_cell(const char *text, FILE *out)
{
	for (; *text; text++)
		fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static void print_markdown_command(const struct command *command, FILE *out)
{
	fprintf(out, "\n## box %s\n\n    box %s%s%s\n\n%c%s.", command->name, command->name,
		*command->usage ? " " : "", command->usage, command->summary[0] & ~0x20,
		command->summary + 1);
	if (command->text)
		fprintf(out, " %s", command->text);
	fputc('\n', out);
	if (command->flags) {
		fprintf(out, "\n| option | |\n| --- | --- |\n");
		for (const struct flag *flag = command->flags; flag->name; flag++) {
			fprintf(out, "| `");
			if (flag->letter)
				fprintf(out, "-%c`, `", flag->letter);
			fprintf(out, "--%s%s", flag->name, flag->value ? " " : "");
			print_cell(flag->value ? flag->value : "", out);
			fprintf(out, "` | ");
			print_cell(flag->help, out);
			fprintf(out, " |\n");
		}
	}
	if (command->examples) {
		fputc('\n', out);
		print_examples(command->examples, "    ", out);
	}
}

static void print_markdown(FILE *out)
{
	fprintf(out, "# The command line\n\nPrinted by `box help --markdown` from the table of "
		     "commands; do not edit.\n\n"
		     "    box COMMAND [OPTION...] [WORD...]\n\n"
		     "Every command takes these:\n\n| option | |\n| --- | --- |\n");
	for (const struct flag *flag = common_flags; flag->name; flag++)
		fprintf(out, "| `--%s` | %s |\n", flag->name, flag->help);
	for (const struct command *command = NULL; (command = command_next(command));)
		if (!(command->options & (CMD_GROUP | CMD_HIDDEN)))
			print_markdown_command(command, out);
	for (size_t i = 0; i < ARRAY_LEN(topics); i++) {
		fprintf(out, "\n## %c%s\n\n", topics[i].title[0] & ~0x20, topics[i].title + 1);
		for (const char *p = topics[i].text; *p; p = strchr(p, '\n') + 1)
			fprintf(out, "    %.*s\n", (int)strcspn(p, "\n"), p);
	}
}

int cmd_help(struct cli *cli, int argc, char **argv)
{
	const struct command *command;
	struct err err = ERR_INIT;
	int words = 0;

	if (cli_has(cli, "man"))
		return help_write_man(cli_get(cli, "man"), &err) < 0 ? cli_fail(cli, &err) : 0;
	if (cli_has(cli, "markdown")) {
		print_markdown(stdout);
		return 0;
	}
	if (!argc) {
		help_print(NULL, stdout);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(topics); i++)
		if (!strcmp(argv[0], topics[i].name)) {
			fputs(topics[i].text, stdout);
			return 0;
		}
	command = command_find(argc, argv, &words);
	if (!command)
		return command_unknown(argv[0]);
	if (words < argc)
		return cli_usage(cli, "no command '%.60s%s%.60s'", argv[0], argc > 1 ? " " : "",
			argc > 1 ? argv[1] : "");
	help_print(command, stdout);
	return 0;
}

int cmd_version(struct cli *cli, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (cli->json)
		return cli_print_json(json_pack("{s:s}", "version", BOX_VERSION));
	printf("box %s\n", BOX_VERSION);
	return 0;
}
