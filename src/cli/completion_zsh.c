/* completion_zsh.c - zsh completion, printed from the table of commands; see completion.c */
#include "cli/completion_internal.h"
#include <string.h>

static const char head[] =
	"#compdef box\n"
	"# zsh completion for box: box completion zsh > /usr/local/share/zsh/site-functions/_box\n"
	"_box_names() {\n"
	"\tlocal -a found\n"
	"\tcase $1 in\n"
	"\tbox) found=(${(f)\"$(box ls --names 2>/dev/null)\"}) ;;\n"
	"\t*) found=(${(f)\"$(box $1 ls --names 2>/dev/null)\"}) ;;\n"
	"\tesac\n"
	"\tcompadd -a found\n"
	"}\n"
	"_box_paths() {\n"
	"\t_files\n"
	"\tlocal -a found=(${(f)\"$(box ls --names 2>/dev/null)\"})\n"
	"\tcompadd -S : -a found\n"
	"}\n";

/* In single quotes, with what _arguments and _describe take for their own behind a backslash. */
static void print_quoted(const char *text)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", stdout);
		else if (strchr("[]:\\", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void print_value(const struct flag *flag)
{
	const struct completion_value *value = completion_value_of(flag);

	printf(":");
	print_quoted(flag->value);
	if (!value)
		printf(": ");
	else if (!value->kind)
		printf(":(%s)", value->words);
	else if (!strcmp(value->kind, "file"))
		printf(":_files");
	else
		printf(":_box_names %s", value->kind);
}

static void print_flag(const struct flag *flag, const char *spelling)
{
	printf(" \\\n\t\t\t'*%s[", spelling);
	print_quoted(flag->help);
	printf("]");
	if (flag->value)
		print_value(flag);
	printf("'");
}

static void print_flags(const struct flag *flag)
{
	char spelling[64];

	for (; flag && flag->name; flag++) {
		if (flag->letter) {
			snprintf(spelling, sizeof spelling, "-%c", flag->letter);
			print_flag(flag, spelling);
		}
		snprintf(spelling, sizeof spelling, "--%s%s", flag->name, flag->value ? "=" : "");
		print_flag(flag, spelling);
	}
}

static void print_command(const struct command *command)
{
	bool one = command->most >= 0 || command->stop_after;

	printf("\t'%s')\n\t\t_arguments -S", command->name);
	print_flags(command->flags);
	print_flags(common_flags);
	if (command->words && !strcmp(command->words, "file"))
		printf(" \\\n\t\t\t'*:path:_box_paths'");
	else if (command->words && !strcmp(command->words, "command"))
		printf(" \\\n\t\t\t'*:command:($names)'");
	else if (command->words)
		printf(" \\\n\t\t\t'%s:%s:_box_names %s'", one ? "1" : "*", command->words,
			command->words);
	if (command->stop_after)
		printf(" \\\n\t\t\t'*::program:_normal'");
	printf("\n\t\t;;\n");
}

/* 'name:summary' of all first words, or of the second ones of group. */
static void print_list(const struct command *group)
{
	for (const struct command *command = NULL; (command = command_next(command));) {
		if (command->options & CMD_HIDDEN || (group ? !completion_is_below(command, group)
							    : !!strchr(command->name, ' ')))
			continue;
		printf(" '%s:", group ? command->name + strlen(group->name) + 1 : command->name);
		print_quoted(command->summary);
		printf("'");
	}
}

void completion_print_zsh(void)
{
	fputs(head, stdout);
	printf("_box() {\n\tlocal -a commands names\n\tlocal skip=1\n\tcommands=(");
	print_list(NULL);
	printf(")\n\tnames=(${commands%%%%:*})\n"
	       "\tif ((CURRENT == 2)); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n"
	       "\tcommands=()\n\tcase $words[2] in\n");
	for (const struct command *command = NULL; (command = command_next(command));)
		if (command->options & CMD_GROUP) {
			printf("\t%s) commands=(", command->name);
			print_list(command);
			printf(") skip=2 ;;\n");
		}
	printf("\tesac\n\tif ((skip == 2 && CURRENT == 3)); then\n"
	       "\t\t_describe command commands\n\t\treturn\n\tfi\n"
	       "\tlocal command=\"${(j: :)words[2,skip+1]}\"\n"
	       "\twords=(\"${(@)words[skip+1,-1]}\")\n\t((CURRENT -= skip))\n"
	       "\tcase $command in\n");
	for (const struct command *command = NULL; (command = command_next(command));)
		if (!(command->options & (CMD_GROUP | CMD_HIDDEN)))
			print_command(command);
	printf("\tesac\n}\n_box \"$@\"\n");
}
