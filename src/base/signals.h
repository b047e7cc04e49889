/* signals.h - catches the signals that end a command */
#pragma once
#include <signal.h>
#include <stddef.h>

/* Installs handler, without SA_RESTART, for those of numbers that are not ignored: a signal that
 * nohup or a shell ignores stays ignored. Adds the caught ones to *ret_caught, if that is not
 * NULL. */
void signals_catch(
	const int *numbers, size_t count, void (*handler)(int number), sigset_t *ret_caught);
/* Restores the default action for the caught ones of numbers. */
void signals_release(const int *numbers, size_t count);
