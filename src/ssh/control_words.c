/* control_words.c - what a login and its command are as words of the command line; see control.h */
#include "base/alloc.h"
#include "base/strv.h"
#include "base/words.h"
#include "core/login_name.h"
#include "ssh/control.h"

static void add_all(char ***words, const char *const *more)
{
	for (; *more; more++)
		strv_add(words, *more);
}

/* The command is one text for the shell of the box, as with any sshd. */
static void add_enter(char ***words, const struct login_name *name, const char *command)
{
	const char *const fork_words[] = { "enter", "fork", name->box, NULL };
	const char *const new_words[] = { "enter", "new", NULL };
	const char *const end[] = { "--", command, NULL };

	add_all(words, name->kind == LOGIN_FORK ? fork_words : new_words);
	if (command)
		add_all(words, end);
}

static int add_try(char ***words, const struct login_name *name, const char *command, bool tty,
	struct err *err)
{
	const char *const first[] = { "try", tty ? "-it" : "-i", name->box, "--", NULL };
	const char *const program[] = { "/bin/sh", "-c", command, NULL };

	if (!command) {
		err_set(err, ERR_INVALID, "what is to be tried is missing");
		return err_hint(err, "ssh try+%s@HOST COMMAND", name->box);
	}
	add_all(words, first);
	add_all(words, program);
	return 0;
}

int control_words(
	const struct login_name *name, const char *command, bool tty, char ***ret, struct err *err)
{
	_cleanup_strv_ char **words = NULL;
	int result = 0;

	switch (name->kind) {
	case LOGIN_CONTROL:
		result = words_split(command ? command : "", &words, err);
		break;
	case LOGIN_NEW:
	case LOGIN_FORK:
		add_enter(&words, name, command);
		break;
	case LOGIN_TRY:
		result = add_try(&words, name, command, tty, err);
		break;
	case LOGIN_BOX:
		return err_set(err, ERR_INVALID, "a program in a box is no command of ours");
	}
	if (result == 0)
		*ret = steal_ptr(&words);
	return result;
}
