/* signals.c - catches the signals that end a command; see signals.h */
#include "base/signals.h"
#include <stdbool.h>

static bool is_ignored(int number)
{
	struct sigaction now;

	return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void signals_catch(
	const int *numbers, size_t count, void (*handler)(int number), sigset_t *ret_caught)
{
	const struct sigaction action = { .sa_handler = handler };

	for (size_t i = 0; i < count; i++) {
		if (is_ignored(numbers[i]))
			continue;
		sigaction(numbers[i], &action, NULL);
		if (ret_caught)
			sigaddset(ret_caught, numbers[i]);
	}
}

void signals_release(const int *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!is_ignored(numbers[i]))
			signal(numbers[i], SIG_DFL);
}
