/* completion.c - shell completion, printed from the table of commands: what is the same for all
 * shells, and bash
 *
 * The script knows commands and options; names of boxes, images, volumes, tokens and keys are asked
 * of the daemon when they are needed. In it, `options` are those of the command, `valued` the ones
 * a value follows, `names` is what its words are and `most` how many of them are such names (-1:
 * all). */
#include "cli/completion_internal.h"
#include "base/alloc.h"

static const char script_head[] = "# bash completion for box: source <(box completion bash)\n"
				  "_box_names() {\n"
				  "\tcase $1 in\n"
				  "\tbox) box ls --names 2>/dev/null ;;\n"
				  "\timage) box image ls --names 2>/dev/null ;;\n"
				  "\tvolume) box volume ls --names 2>/dev/null ;;\n"
				  "\tworkspace) box workspace ls --names 2>/dev/null ;;\n"
				  "\ttoken) box token ls --names 2>/dev/null ;;\n"
				  "\tkey) box key ls --names 2>/dev/null ;;\n"
				  "\tesac\n"
				  "}\n"
				  "_box() {\n"
				  "\tlocal cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} "
				  "words= options= valued= names= most=-1 given=0 i\n"
				  "\tCOMPREPLY=()\n"
				  "\tif ((COMP_CWORD > 2)); then\n"
				  "\t\tcase \"$command ${COMP_WORDS[2]}\" in\n";

static const char script_tail[] =
	"\tfor ((i = 2; i < COMP_CWORD; i++)); do\n"
	"\t\tif [[ ${COMP_WORDS[i]} == -- ]]; then\n"
	"\t\t\tCOMPREPLY=($(compgen -c -- \"$cur\"))\n"
	"\t\t\treturn\n"
	"\t\tfi\n"
	"\t\t[[ ${COMP_WORDS[i]} == -* || \" $valued \" == *\" ${COMP_WORDS[i-1]} \"* ]] || "
	"((given++))\n"
	"\tdone\n"
	"\tif [[ \" $valued \" == *\" ${COMP_WORDS[COMP_CWORD-1]} \"* ]]; then\n"
	"\t\tcase ${COMP_WORDS[COMP_CWORD-1]} in\n";

static const char script_end[] = "\t\t*) words= ;;\n"
				 "\t\tesac\n"
				 "\telif [[ $cur == -* ]]; then\n"
				 "\t\twords=\"$options --json --quiet --help\"\n"
				 "\telif [[ $names == file ]]; then\n"
				 "\t\tcompopt -o nospace 2>/dev/null\n"
				 "\t\tCOMPREPLY=($(compgen -f -- \"$cur\") $(compgen -S : -W "
				 "\"$(_box_names box)\" -- \"$cur\"))\n"
				 "\t\treturn\n"
				 "\telif [[ -n $names ]] && ((most < 0 || given < most)); then\n"
				 "\t\twords+=\" $(_box_names \"$names\")\"\n"
				 "\telif ((most >= 0 && given >= most)); then\n"
				 "\t\twords=\n"
				 "\tfi\n"
				 "\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
				 "}\n"
				 "complete -F _box box\n";

/* Options that mean the same wherever they are. */
const struct completion_value completion_values[] = {
	{ "image", "image", NULL },
	{ "box", "box", NULL },
	{ "peer", "box", NULL },
	{ "state", NULL,
		"creating starting running suspended hibernating hibernated rolling-back stopping "
		"stopped removing" },
	{ "auto-snapshot", NULL, "off exec interval=5m" },
	{ "on-limit", NULL, "notify pause stop" },
	{ "pull", NULL, "missing never always" },
	{ "format", NULL, "oci docker rootfs" },
	{ "file", "file", NULL },
	{ "output", "file", NULL },
	{ "tar", "file", NULL },
	{ "mount", "file", NULL },
	{ "copy", "file", NULL },
	{ "policy", "file", NULL },
	{ "net", NULL, "none packages dev open" },
	{ "profile", NULL, "standard nested" },
	{ "driver", NULL, "ns vm" },
	{ "scope", NULL, "read files exec create admin" },
	{ "role", NULL, "read files exec create admin" },
	{ NULL },
};

const struct completion_value *completion_value_of(const struct flag *flag)
{
	for (const struct completion_value *value = completion_values; value->flag; value++)
		if (!strcmp(value->flag, flag->name))
			return value;
	return NULL;
}

bool completion_is_below(const struct command *command, const struct command *group)
{
	size_t len = strlen(group->name);

	return !strncmp(command->name, group->name, len) && command->name[len] == ' ';
}

/* The letter of an option in whatever command has one. */
static char letter_of(const char *name)
{
	for (const struct command *command = NULL; (command = command_next(command));)
		for (const struct flag *flag = command->flags; flag && flag->name; flag++)
			if (!strcmp(flag->name, name) && flag->letter)
				return flag->letter;
	return 0;
}

static void print_values(void)
{
	for (const struct completion_value *value = completion_values; value->flag; value++) {
		char letter = letter_of(value->flag);

		printf("\t\t--%s", value->flag);
		if (letter)
			printf("|-%c", letter);
		if (!value->kind)
			printf(") words='%s' ;;\n", value->words);
		else if (!strcmp(value->kind, "file"))
			printf(") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
		else
			printf(") words=$(_box_names %s) ;;\n", value->kind);
	}
}

static void print_names(void)
{
	for (const struct command *command = NULL; (command = command_next(command));)
		if (!strchr(command->name, ' ') && !(command->options & CMD_HIDDEN))
			printf(" %s", command->name);
}

/* The second words of a heading such as image. */
static void print_below(const struct command *group)
{
	for (const struct command *command = NULL; (command = command_next(command));)
		if (completion_is_below(command, group))
			printf(" %s", command->name + strlen(group->name) + 1);
}

static void print_case(const struct command *command)
{
	printf("\t\"%s\")%s", command->name, strchr(command->name, ' ') ? " given=-1" : "");
	if (command->options & CMD_GROUP) {
		printf(" words='");
		print_below(command);
		printf("'");
	}
	if (command->words && !strcmp(command->words, "command")) {
		printf(" words='");
		print_names();
		printf("'");
	} else if (command->words) {
		printf(" names=%s", command->words);
	}
	/* Of several different words (BOX EXEC, BOX NAME) only the first is completed. */
	if (!(command->options & CMD_GROUP) && (command->most >= 0 || command->stop_after))
		printf(" most=%d", MIN(command->most < 0 ? 1 : command->most, 1));
	printf(" options='");
	for (const struct flag *flag = command->flags; flag && flag->name; flag++)
		printf(" --%s", flag->name);
	printf("' valued='");
	for (const struct flag *flag = command->flags; flag && flag->name; flag++)
		if (flag->value)
			printf(" --%s", flag->name);
	for (const struct flag *flag = command->flags; flag && flag->name; flag++)
		if (flag->value && flag->letter)
			printf(" -%c", flag->letter);
	printf("' ;;\n");
}

static void print_bash(void)
{
	fputs(script_head, stdout);
	for (const struct command *command = NULL; (command = command_next(command));)
		if (strchr(command->name, ' '))
			print_case(command);
	printf("\t\tesac\n\tfi\n\tif ((COMP_CWORD == 1)); then\n\t\twords='");
	print_names();
	printf("'\n\telif [[ -z $options$names ]]; then\n\t\tcase $command in\n");
	for (const struct command *command = NULL; (command = command_next(command));)
		if (!strchr(command->name, ' '))
			print_case(command);
	printf("\t\tesac\n\tfi\n");
	fputs(script_tail, stdout);
	print_values();
	fputs(script_end, stdout);
}

int cmd_completion(struct cli *cli, int argc, char **argv)
{
	static const struct {
		const char *shell;
		void (*print)(void);
	} shells[] = {
		{ "bash", print_bash },
		{ "zsh", completion_print_zsh },
		{ "fish", completion_print_fish },
	};

	(void)argc;
	for (size_t i = 0; i < ARRAY_LEN(shells); i++)
		if (!strcmp(argv[0], shells[i].shell)) {
			shells[i].print();
			return 0;
		}
	return cli_usage(cli, "no completion for '%.40s', only for bash, zsh and fish", argv[0]);
}
