/* menu_line.h - one line typed at a terminal, with Tab completing words */
#pragma once
#include <signal.h>

/* Yours; NULL at the end of input, and when a signal has set *over. Ctrl-C begins the line anew. */
char *menu_line_read(const char *prompt, const volatile sig_atomic_t *over);
