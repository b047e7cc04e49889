/* stand_in_tree.c - two processes that check themselves, for dumps and restores
 *
 * PID 1 of a small root. Its child counts and sends each number through a pipe; PID 1 compares it
 * with what it remembers and writes it to /count, through a descriptor that stays open. Both hold
 * memory that must not change. What is wrong ends it with a code of its own. Static, since the root
 * is empty but for it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATTERN = 1 << 20 };

static unsigned char *pattern_new(void)
{
	unsigned char *bytes = malloc(PATTERN);

	if (!bytes)
		_exit(10);
	for (size_t i = 0; i < PATTERN; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	return bytes;
}

static void pattern_check(const unsigned char *bytes)
{
	for (size_t i = 0; i < PATTERN; i++)
		if (bytes[i] != (unsigned char)(i * 7 + i / 251))
			_exit(11);
}

static void count(int to)
{
	unsigned char *pattern = pattern_new();

	for (unsigned number = 1;; number++) {
		if (write(to, &number, sizeof number) != sizeof number)
			_exit(12);
		if (number % 64 == 0)
			pattern_check(pattern);
		usleep(1000);
	}
}

int main(void)
{
	unsigned char *pattern = pattern_new();
	unsigned number, last = 0;
	int out = open("/count", O_CREAT | O_RDWR, 0644), ends[2];
	char text[32];
	pid_t child;

	if (out < 0 || pipe(ends) < 0)
		return 13;
	child = fork();
	if (child == 0)
		count(ends[1]);
	close(ends[1]);
	while (read(ends[0], &number, sizeof number) == sizeof number) {
		if (number != ++last)
			return 14;
		if (number % 64 == 0)
			pattern_check(pattern);
		snprintf(text, sizeof text, "%10u\n", number);
		if (pwrite(out, text, strlen(text), 0) < 0)
			return 15;
	}
	return 16;
}
