/* terminal.h - the terminal we may run in: size, colours, raw mode that is always undone */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

bool terminal_size(int fd, uint16_t *ret_rows, uint16_t *ret_cols); /* false: fd is no terminal */
/* Columns a table on stdout may use; 0: no terminal, do not cut. COLUMNS is respected. */
unsigned terminal_width(void);
/* Colours on fd: a terminal, NO_COLOR unset, TERM not dumb. */
bool terminal_has_colour(int fd);

/* stdin becomes raw: every byte goes to the box. Undone by terminal_restore(), which is also called at exit
 * and may be called from a signal handler. */
int terminal_raw(struct err *err);
void terminal_restore(void);
