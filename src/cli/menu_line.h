/* menu_line.h - one line typed at a terminal, with Tab completing words */
#pragma once

/* Yours; NULL at the end of input. Ctrl-C begins the line anew. */
char *menu_line_read(const char *prompt);
