/* signals.h - catches the signals that end a command */
#pragma once
#include <signal.h>
#include <stddef.h>

/* Has handler called, without SA_RESTART, for those of numbers that are not ignored: what nohup
 * and shells have set to be ignored stays ignored. Adds those that are caught to *ret_caught, if
 * that is not NULL. */
void signals_catch(
	const int *numbers, size_t count, void (*handler)(int number), sigset_t *ret_caught);
/* Makes the caught ones of numbers end the program again. */
void signals_release(const int *numbers, size_t count);
