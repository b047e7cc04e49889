/* menu.h - commands typed one after the other, at a terminal */
#pragma once

#include <signal.h>

/* Asks for lines at the terminal until `exit`, the end of input or a signal that sets *over, and
 * has run called with the words of each. Returns the exit code of the last command. */
int menu_run(int (*run)(int argc, char **argv), const volatile sig_atomic_t *over);
