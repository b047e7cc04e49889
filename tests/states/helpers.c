/* helpers.c - what several kinds need */
#include "tests/states/checks.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool must(struct check *check, bool good, const char *format, ...)
{
	int saved = errno;
	va_list args;
	size_t used;

	errno = 0;
	if (good || check->why[0])
		return good;
	va_start(args, format);
	vsnprintf(check->why, sizeof check->why, format, args);
	va_end(args);
	used = strlen(check->why);
	if (saved)
		snprintf(check->why + used, sizeof check->why - used, " (errno: %s)",
			strerror(saved));
	return false;
}

unsigned char pattern(uint64_t seed, uint64_t at)
{
	uint64_t x = (at / 8 + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (unsigned char)((x ^ (x >> 31)) >> (at % 8 * 8));
}

void pattern_fill(void *to, size_t size, uint64_t seed, uint64_t from)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)to)[i] = pattern(seed, from + i);
}

bool pattern_is(const void *bytes, size_t size, uint64_t seed, uint64_t from)
{
	for (size_t i = 0; i < size; i++)
		if (((const unsigned char *)bytes)[i] != pattern(seed, from + i))
			return false;
	return true;
}

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool moves_on(const volatile unsigned *counter, unsigned old, unsigned limit_ms)
{
	for (unsigned waited = 0; *counter == old && waited < limit_ms; waited++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return *counter != old;
}

pid_t child_new(void)
{
	pid_t pid = fork();

	if (pid < 0)
		_exit(20);
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

bool child_is_over(pid_t pid, int status)
{
	int got;

	while (waitpid(pid, &got, 0) != pid)
		if (errno != EINTR)
			return false;
	return got == status;
}

bool process_state_is(pid_t pid, char state)
{
	char path[64], line[512], *end;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	for (int tries = 0; tries < 1000; tries++) {
		FILE *file = fopen(path, "re");
		bool right = file && fgets(line, sizeof line, file) && (end = strrchr(line, ')')) &&
			     end[1] && end[2] == state;

		if (file)
			fclose(file);
		if (right)
			return true;
		usleep(2000);
	}
	return false;
}
