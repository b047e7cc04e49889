/* terminal.c - see terminal.h */
#include "cli/terminal.h"
#include "base/alloc.h"
#include "base/text.h"
#include <errno.h>
#include <sys/ioctl.h>
#include <termios.h>

static struct termios cooked; /* as it was before terminal_raw() */
static volatile bool is_changed, is_raw;
static bool restored_at_exit;

bool terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_cols)
{
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size) < 0)
		return false;
	*ret_rows = size.ws_row ? size.ws_row : 24;
	*ret_cols = size.ws_col ? size.ws_col : 80;
	return true;
}

unsigned terminal_width(void)
{
	const char *columns = getenv("COLUMNS");
	uint64_t width;
	uint16_t rows, cols;

	if (!terminal_size(STDOUT_FILENO, &rows, &cols))
		return 0;
	if (columns && parse_u64("COLUMNS", columns, 1, 10000, &width, NULL) == 0)
		return (unsigned)width;
	return cols;
}

bool terminal_has_colour(int fd)
{
	const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");

	return !(no_colour && *no_colour) && term && strcmp(term, "dumb") && isatty(fd);
}

static int keep_settings(struct err *err)
{
	if (!is_changed && tcgetattr(STDIN_FILENO, &cooked) < 0)
		return err_sys(err, errno, "read the terminal's settings");
	if (!restored_at_exit) {
		atexit(terminal_restore);
		restored_at_exit = true;
	}
	is_changed = true;
	return 0;
}

int terminal_raw(struct err *err)
{
	struct termios raw;

	if (keep_settings(err) < 0)
		return -1;
	raw = cooked;
	cfmakeraw(&raw);
	is_raw = true;
	if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0) {
		is_raw = is_changed = false;
		return err_sys(err, errno, "make the terminal raw");
	}
	return 0;
}

void terminal_lines(void)
{
	struct termios lines;

	/* A background process would be stopped for changing the terminal. */
	if (tcgetpgrp(STDIN_FILENO) != getpgrp() || keep_settings(NULL) < 0)
		return;
	lines = cooked;
	lines.c_iflag &= ~(tcflag_t)IXON;
	lines.c_cc[VEOL] = KEY_CTRL_Q;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &lines);
}

bool terminal_is_raw(void)
{
	return is_raw;
}

void terminal_restore(void)
{
	if (is_changed)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked);
	is_raw = is_changed = false;
}
