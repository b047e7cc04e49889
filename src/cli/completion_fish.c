/* completion_fish.c - fish completion, printed from the table of commands; see completion.c */
#include "cli/completion_internal.h"
#include <string.h>

static const char head[] =
	"# fish completion for box: box completion fish > /etc/fish/completions/box.fish\n"
	"function __box_names\n"
	"\tif test $argv[1] = box\n"
	"\t\tbox ls --names 2>/dev/null\n"
	"\telse\n"
	"\t\tbox $argv[1] ls --names 2>/dev/null\n"
	"\tend\n"
	"end\n"
	"# Words before the cursor begin with these.\n"
	"function __box_in\n"
	"\tset -l given (commandline -opc)[2..]\n"
	"\tset -l count (count $argv)\n"
	"\ttest (count $given) -ge $count; and test \"$given[1..$count]\" = \"$argv\"\n"
	"end\n"
	"# They are these, and no more.\n"
	"function __box_after\n"
	"\tset -l given (commandline -opc)[2..]\n"
	"\ttest \"$given\" = \"$argv\"\n"
	"end\n"
	"complete -c box -f\n";

static void print_quoted(const char *text)
{
	putchar('\'');
	for (; *text; text++) {
		if (*text == '\'' || *text == '\\')
			putchar('\\');
		putchar(*text);
	}
	putchar('\'');
}

static void print_flags(const char *condition, const struct flag *flag)
{
	for (; flag && flag->name; flag++) {
		const struct completion_value *value = completion_value_of(flag);

		printf("complete -c box %s -l %s", condition, flag->name);
		if (flag->letter)
			printf(" -s %c", flag->letter);
		if (flag->value)
			printf(value && value->kind && !strcmp(value->kind, "file") ? " -r -F"
										    : " -x");
		if (flag->value && value && !value->kind)
			printf(" -a '%s'", value->words);
		else if (flag->value && value && strcmp(value->kind, "file") != 0)
			printf(" -a '(__box_names %s)'", value->kind);
		printf(" -d ");
		print_quoted(flag->help);
		putchar('\n');
	}
}

static void print_words(const struct command *command, const char *condition)
{
	bool one = command->most >= 0 || command->stop_after;

	if (!strcmp(command->words, "file"))
		printf("complete -c box %s -F -a '(__box_names box):'\n", condition);
	else if (!strcmp(command->words, "command")) {
		for (const struct command *each = NULL; (each = command_next(each));)
			if (!strchr(each->name, ' ') && !(each->options & CMD_HIDDEN))
				printf("complete -c box %s -a %s\n", condition, each->name);
	} else
		printf("complete -c box -n '__box_%s %s' -a '(__box_names %s)'\n",
			one ? "after" : "in", command->name, command->words);
}

void completion_print_fish(void)
{
	char condition[96];

	fputs(head, stdout);
	for (const struct command *command = NULL; (command = command_next(command));) {
		const char *blank = strchr(command->name, ' ');

		if (command->options & CMD_HIDDEN)
			continue;
		printf("complete -c box -n '__box_after%s%.*s' -a %s -d ", blank ? " " : "",
			blank ? (int)(blank - command->name) : 0, command->name,
			blank ? blank + 1 : command->name);
		print_quoted(command->summary);
		putchar('\n');
		if (command->options & CMD_GROUP)
			continue;
		snprintf(condition, sizeof condition, "-n '__box_in %s'", command->name);
		print_flags(condition, command->flags);
		if (command->words)
			print_words(command, condition);
	}
	print_flags("", common_flags);
}
