/* menu_line.c - see menu_line.h
 *
 * The terminal gives us each key and shows none; signals stay keys of the terminal. Text is typed
 * at the end of the line: keys that move within it are ignored. */
#include "cli/menu_line.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/strv.h"
#include "cli/menu_complete.h"
#include <errno.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 64 * 1024, HISTORY_MAX = 200 };
enum {
	KEY_CTRL_D = 4,
	KEY_CTRL_H = 8,
	KEY_CTRL_L = 12,
	KEY_CTRL_U = 21,
	KEY_CTRL_W = 23,
	KEY_ESCAPE = 27,
	KEY_DELETE = 127,
};

enum state { TYPING, DONE, ENDED };

struct editor {
	const char *prompt;
	struct buf line;
	size_t shown; /* in the history; its length: the new line */
};

static char *history[HISTORY_MAX];
static size_t history_len;

static void remember(const char *line)
{
	if (!line[strspn(line, " ")] || (history_len && !strcmp(history[history_len - 1], line)))
		return;
	if (history_len == HISTORY_MAX) {
		free(history[0]);
		memmove(history, history + 1, --history_len * sizeof *history);
	}
	history[history_len++] = xstrdup(line);
}

/* ---- showing -------------------------------------------------------------------------------- */

static void show(struct editor *editor)
{
	printf("\r\033[K%s%s", editor->prompt, buf_str(&editor->line));
	fflush(stdout);
}

static void set(struct editor *editor, size_t len)
{
	editor->line.len = MIN(len, editor->line.len);
	show(editor);
}

static void append(struct editor *editor, const char *text, size_t len)
{
	if (editor->line.len + len > LINE_BYTES_MAX)
		return;
	buf_add(&editor->line, text, len);
	fwrite(text, 1, len, stdout);
	fflush(stdout);
}

/* ---- keys ----------------------------------------------------------------------------------- */

/* Whole characters of UTF-8. */
static void erase_character(struct editor *editor)
{
	const char *text = buf_str(&editor->line);
	size_t len = editor->line.len;

	while (len && ((unsigned char)text[--len] & 0xc0) == 0x80)
		;
	set(editor, len);
}

static void erase_word(struct editor *editor)
{
	const char *text = buf_str(&editor->line);
	size_t len = editor->line.len;

	while (len && text[len - 1] == ' ')
		len--;
	while (len && text[len - 1] != ' ')
		len--;
	set(editor, len);
}

static void show_history(struct editor *editor, int step)
{
	size_t wanted = editor->shown + (size_t)step;

	if (wanted > history_len) /* also below 0 */
		return;
	editor->shown = wanted;
	editor->line.len = 0;
	if (wanted < history_len)
		buf_add_str(&editor->line, history[wanted]);
	show(editor);
}

static size_t common_length(char **words)
{
	size_t len = strlen(words[0]);

	for (size_t i = 1; words[i]; i++)
		for (size_t j = 0; j < len; j++)
			if (words[i][j] != words[0][j])
				len = j;
	return len;
}

static void complete(struct editor *editor)
{
	size_t begun = 0, common;
	_cleanup_strv_ char **words = menu_complete(buf_str(&editor->line), &begun);

	if (!words)
		return;
	common = common_length(words);
	if (common > begun || !words[1]) {
		append(editor, words[0] + begun, common - begun);
		if (!words[1] && words[0][common - 1] != ':')
			append(editor, " ", 1);
		return;
	}
	putchar('\n');
	for (size_t i = 0; words[i]; i++)
		printf("%s%s", words[i], words[i + 1] ? "  " : "\n");
	show(editor);
}

static int read_byte(char *ret)
{
	ssize_t got = read(STDIN_FILENO, ret, 1);

	return got < 0 && errno == EINTR ? -1 : got == 1;
}

/* ESC [ ... letter, or ESC O letter; up and down are known. */
static void take_sequence(struct editor *editor)
{
	char byte = 0;

	if (read_byte(&byte) != 1 || (byte != '[' && byte != 'O'))
		return;
	do
		if (read_byte(&byte) != 1)
			return;
	while (byte < '@' || byte > '~');
	if (byte == 'A')
		show_history(editor, -1);
	else if (byte == 'B')
		show_history(editor, 1);
}

static enum state take_key(struct editor *editor, char key)
{
	switch (key) {
	case '\n':
	case '\r':
		putchar('\n');
		return DONE;
	case KEY_CTRL_D:
		return editor->line.len ? TYPING : ENDED;
	case KEY_CTRL_H:
	case KEY_DELETE:
		erase_character(editor);
		break;
	case KEY_CTRL_L:
		printf("\033[H\033[2J");
		show(editor);
		break;
	case KEY_CTRL_U:
		set(editor, 0);
		break;
	case KEY_CTRL_W:
		erase_word(editor);
		break;
	case KEY_ESCAPE:
		take_sequence(editor);
		break;
	case '\t':
		complete(editor);
		break;
	default:
		if ((unsigned char)key >= ' ')
			append(editor, &key, 1);
	}
	return TYPING;
}

static enum state edit(struct editor *editor, const volatile sig_atomic_t *over)
{
	enum state state = TYPING;

	show(editor);
	while (state == TYPING) {
		char key;
		int got = read_byte(&key);

		if (got > 0) {
			state = take_key(editor, key);
		} else if (got == 0 || *over) {
			state = ENDED;
		} else { /* Ctrl-C */
			putchar('\n');
			editor->shown = history_len;
			set(editor, 0);
		}
	}
	if (state == ENDED)
		putchar('\n');
	fflush(stdout);
	return state;
}

char *menu_line_read(const char *prompt, const volatile sig_atomic_t *over)
{
	struct editor editor = { .prompt = prompt, .line = BUF_INIT, .shown = history_len };
	struct termios before, keys;
	char *text = NULL;

	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return NULL;
	keys = before;
	keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	keys.c_cc[VMIN] = 1;
	keys.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
	if (edit(&editor, over) == DONE) {
		text = xstrdup(buf_str(&editor.line));
		remember(text);
	}
	tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	buf_done(&editor.line);
	return text;
}
