/* menu_complete.c - see menu_complete.h */
#include "cli/menu_complete.h"
#include "base/alloc.h"
#include "base/strv.h"
#include "cli/cli.h"
#include "cli/completion_internal.h"
#include "cli/over_ssh.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

struct completion {
	const char *begun; /* the last word */
	char **found;
};

static void offer(struct completion *completion, const char *word)
{
	if (!strncmp(word, completion->begun, strlen(completion->begun)) &&
		!strv_has((const char *const *)completion->found, word))
		strv_add(&completion->found, word);
}

/* ---- names ---------------------------------------------------------------------------------- */

/* As completion.c has them for shells. */
static const struct {
	const char *kind, *words[4];
} lists[] = {
	{ "box", { "ls", "--names" } },
	{ "image", { "image", "ls", "--names" } },
	{ "volume", { "volume", "ls", "--names" } },
	{ "workspace", { "workspace", "ls", "--names" } },
	{ "token", { "token", "ls", "--names" } },
};

static _Noreturn void print_names(const char *const *words, int out)
{
	/* No errors between the words of a line that is being typed. */
	if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0)
		_exit(126);
	close(STDERR_FILENO);
	_exit(cli_run((int)strv_len(words), (char **)words));
}

static char *read_names(const char *const *words)
{
	char *text = NULL;
	size_t len = 0;
	int ends[2];
	FILE *in;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return xstrdup("");
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		print_names(words, ends[1]);
	close(ends[1]);
	in = fdopen(ends[0], "re");
	if (!in || getdelim(&text, &len, '\0', in) < 0) {
		free(text);
		text = xstrdup("");
	}
	if (in)
		fclose(in);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return text;
}

static void offer_names(struct completion *completion, const char *kind, const char *after)
{
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		_cleanup_free_ char *text = NULL;
		char *rest, *name;

		if (strcmp(lists[i].kind, kind) != 0)
			continue;
		text = read_names(lists[i].words);
		rest = text;
		while ((name = strsep(&rest, "\n"))) {
			_cleanup_free_ char *word = xasprintf("%s%s", name, after);

			if (*name)
				offer(completion, word);
		}
	}
}

/* ---- commands and options ------------------------------------------------------------------- */

static bool is_offered(const struct command *command)
{
	return !(command->options & CMD_HIDDEN) && (!over_ssh() || over_ssh_has(command));
}

static void offer_commands(struct completion *completion)
{
	for (const struct command *command = NULL; (command = command_next(command));)
		if (!strchr(command->name, ' ') && is_offered(command))
			offer(completion, command->name);
}

static void offer_below(struct completion *completion, const struct command *group)
{
	for (const struct command *command = NULL; (command = command_next(command));)
		if (completion_is_below(command, group) && is_offered(command))
			offer(completion, command->name + strlen(group->name) + 1);
}

static void offer_flags(struct completion *completion, const struct flag *flags)
{
	for (; flags && flags->name; flags++) {
		char option[64];

		snprintf(option, sizeof option, "--%s", flags->name);
		offer(completion, option);
	}
}

/* The option that word is, if a value follows it. */
static const struct flag *valued(const struct command *command, const char *word)
{
	for (const struct flag *flag = command->flags; flag && flag->name; flag++)
		if (flag->value && word[0] == '-' &&
			((word[1] == '-' && !strcmp(word + 2, flag->name)) ||
				(flag->letter && word[1] == flag->letter && !word[2])))
			return flag;
	return NULL;
}

static void offer_value(struct completion *completion, const struct flag *flag)
{
	const struct completion_value *value = completion_value_of(flag);
	_cleanup_free_ char *words = value && value->words ? xstrdup(value->words) : NULL;
	char *rest = words, *word;

	while (rest && (word = strsep(&rest, " ")))
		offer(completion, word);
	if (value && value->kind)
		offer_names(completion, value->kind, "");
}

/* Of several different words (BOX EXEC, BOX NAME) only the first is offered. */
static void offer_words(struct completion *completion, const struct command *command, int before)
{
	if (!command->words)
		return;
	if (!strcmp(command->words, "command"))
		offer_commands(completion);
	else if (!strcmp(command->words, "file"))
		offer_names(completion, "box", ":");
	else if (!before || (command->most < 0 && !command->stop_after))
		offer_names(completion, command->words, "");
}

static void complete_command(struct completion *completion, int count, char **words)
{
	int used = 0, before = 0;
	const struct command *command = command_find(count, words, &used);
	const struct flag *flag;

	if (!command)
		return;
	if (command->options & CMD_GROUP && count == 1)
		return offer_below(completion, command);
	flag = count > used ? valued(command, words[count - 1]) : NULL;
	if (flag)
		return offer_value(completion, flag);
	for (int i = used; i < count; i++) {
		if (!strcmp(words[i], "--"))
			return; /* a program in a box */
		before += words[i][0] != '-' && !(i > used && valued(command, words[i - 1]));
	}
	if (completion->begun[0] == '-') {
		offer_flags(completion, command->flags);
		offer_flags(completion, common_flags);
	} else {
		offer_words(completion, command, before);
	}
}

char **menu_complete(const char *line, size_t *ret_begun)
{
	_cleanup_free_ char *copy = xstrdup(line);
	_cleanup_strv_ char **words = NULL;
	struct completion completion = { .begun = "" };
	char *rest = copy, *word;
	int count = 0;

	while ((word = strsep(&rest, " ")))
		if (!rest)
			completion.begun = word;
		else if (*word && (count || strcmp(word, "box") != 0)) {
			strv_add(&words, word);
			count++;
		}
	*ret_begun = strlen(completion.begun);
	if (count)
		complete_command(&completion, count, words);
	else
		offer_commands(&completion);
	return completion.found;
}
