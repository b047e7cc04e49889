/* menu.c - see menu.h */
#include "cli/menu.h"
#include "base/alloc.h"
#include "base/strv.h"
#include "base/words.h"
#include "cli/cli.h"
#include "cli/menu_line.h"
#include <termios.h>

static const char *const leave[] = { "exit", "quit", "logout", "bye" };

static bool is_leave(const char *word)
{
	for (size_t i = 0; i < ARRAY_LEN(leave); i++)
		if (!strcmp(word, leave[i]))
			return true;
	return false;
}

/* 0, or the exit code of a line that cannot be read. */
static int split(const char *line, char ***ret)
{
	struct err err = ERR_INIT;

	return words_split(line, ret, &err) < 0 ? cli_fail(NULL, &err) : 0;
}

/* The words of the program's own command line, whose name may stand before them. */
static int run_line(const char *line, int (*run)(int argc, char **argv), bool *ret_leave, int code)
{
	_cleanup_strv_ char **words = NULL;
	int wrong = split(line, &words), count, skip;

	if (wrong)
		return wrong;
	count = (int)strv_len((const char *const *)words);
	skip = count > 1 && !strcmp(words[0], "box");
	if (!count)
		return code;
	if (count == 1 && is_leave(words[0])) {
		*ret_leave = true;
		return code;
	}
	return run(count - skip, words + skip);
}

int menu_run(int (*run)(int argc, char **argv), const volatile sig_atomic_t *over)
{
	struct termios settings;
	bool leaving = false;
	int code = 0;

	tcgetattr(STDIN_FILENO, &settings);
	puts("'help' lists the commands, 'help COMMAND' explains one, 'exit' leaves.");
	while (!leaving && !*over) {
		_cleanup_free_ char *line = menu_line_read("box> ", over);

		if (!line)
			break;
		code = run_line(line, run, &leaving, code);
		/* A command that was killed leaves the terminal as it had made it. */
		tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
	}
	return code;
}
