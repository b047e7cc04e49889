/* terminal.h - the terminal we may run in: size, colours, raw mode that is always undone */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { KEY_CTRL_P = 0x10, KEY_CTRL_Q = 0x11 }; /* pressed one after the other: detach */

bool terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_cols); /* false: fd is no terminal */
/* Columns a table on stdout may use; 0: no terminal, do not cut. COLUMNS is respected. */
unsigned terminal_width(void);
/* Colours on fd: a terminal, NO_COLOR unset, TERM not dumb. */
bool terminal_has_colour(int fd);

/* Makes stdin raw: every byte goes to the box. Undone by terminal_restore(), which is also called
 * at exit and may be called from a signal handler. */
int terminal_raw(struct err *err);
/* Keeps line mode with echo and signals, but lets Ctrl-Q end a line, so that Ctrl-P Ctrl-Q is seen
 * at once. Undone by terminal_restore(), too. Does nothing in the background. */
void terminal_lines(void);
bool terminal_is_raw(void);
void terminal_restore(void);
