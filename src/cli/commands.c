/* commands.c - finds commands in the tables that have all there is to know about them
 *
 * Help, manual pages, completion and docs/cli.md are printed from the tables, in this order:
 * commands_boxes.c, commands_timeline.c, commands_disks.c, commands_network.c, commands_system.c.
 * The options of each command are in options.h. */
#include "cli/cli.h"
#include "base/alloc.h"
#include "base/near.h"
#include "cli/options.h"

const struct flag common_flags[] = {
	{ "json", 0, NULL,
		"print JSON: one value, or one object a line for what goes on; errors too" },
	{ "quiet", 'q', NULL, "no remarks on stderr" },
	{ "help", 'h', NULL, "show the help of this command" },
	FLAG_END,
};

static const struct command *const tables[] = { boxes_commands, timeline_commands, disks_commands,
	network_commands, system_commands };

static const struct command *end_of(const struct command *table)
{
	while (table->name)
		table++;
	return table;
}

const struct command *command_next(const struct command *command)
{
	if (!command)
		return tables[0];
	if ((++command)->name)
		return command;
	for (size_t i = 0; i + 1 < ARRAY_LEN(tables); i++)
		if (command == end_of(tables[i]))
			return tables[i + 1];
	return NULL;
}

/* Destructive commands are offered only for long words with one wrong letter: somebody who types
 * 'tpo' or 'rn' may mean anything, and repeats what is offered. */
static bool may_offer(const char *word, const char *command)
{
	static const char *const careful[] = { "down", "forget", "promote", "rm", "rollback",
		"stop" };

	for (size_t i = 0; i < ARRAY_LEN(careful); i++)
		if (!strcmp(careful[i], command))
			return strlen(word) > 3 && text_distance(word, command) == 1;
	return text_is_near(word, command);
}

static const char *nearest_command(const char *word)
{
	const char *best = NULL;

	for (const struct command *command = NULL; (command = command_next(command));)
		if (!strchr(command->name, ' ') && may_offer(word, command->name) &&
			(!best || text_distance(word, command->name) < text_distance(word, best)))
			best = command->name;
	return best;
}

int command_unknown(const char *word)
{
	const struct cli no_command = { 0 };
	const char *near = nearest_command(word), *habit = habit_hint(word), *meant;

	if (habit)
		return cli_usage(&no_command, "there is no 'box %s': %s", word, habit);
	if (word[0] == '-')
		return cli_usage(&no_command,
			"unknown option '%.60s'; options come after the command", word);
	meant = habit_near(word);
	if (meant && (!near || text_distance(word, meant) < text_distance(word, near)))
		return cli_usage(&no_command, "unknown command '%.60s'; if '%s' is meant: %s", word,
			meant, habit_hint(meant));
	if (near)
		return cli_usage(
			&no_command, "unknown command '%.60s', did you mean '%s'?", word, near);
	return cli_usage(&no_command, "unknown command '%.60s'", word);
}

const struct command *command_find(int argc, char **argv, int *ret_words)
{
	const struct command *found = NULL;

	for (const struct command *command = NULL; argc > 0 && (command = command_next(command));) {
		size_t first = strcspn(command->name, " ");
		const char *second = command->name[first] ? command->name + first + 1 : NULL;

		if (strlen(argv[0]) != first || strncmp(argv[0], command->name, first))
			continue;
		if (!second) {
			found = command;
			*ret_words = 1;
		} else if (argc > 1 && !strcmp(argv[1], second)) {
			*ret_words = 2;
			return command;
		}
	}
	return found;
}
