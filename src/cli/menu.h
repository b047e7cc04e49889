/* menu.h - commands typed one after the other, at a terminal */
#pragma once

/* Asks for lines at the terminal until `exit` or the end of input, and has run called with the words
 * of each. Returns the exit code of the last command. */
int menu_run(int (*run)(int argc, char **argv));
