/* menu_line.c - see menu_line.h */
#include "cli/menu_line.h"
#include "base/alloc.h"
#include "base/buf.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { LINE_BYTES_MAX = 64 * 1024 };

char *menu_line_read(const char *prompt)
{
	struct buf line = BUF_INIT;
	char *text = NULL;

	printf("%s", prompt);
	fflush(stdout);
	while (line.len < LINE_BYTES_MAX) {
		char byte;
		ssize_t got = read(STDIN_FILENO, &byte, 1);

		if (got < 0 && errno == EINTR) {
			line.len = line.head = 0;
			printf("\n%s", prompt);
			fflush(stdout);
			continue;
		}
		if (got <= 0) {
			putchar('\n');
			break;
		}
		if (byte == '\n') {
			text = xstrdup(buf_str(&line));
			break;
		}
		buf_add(&line, &byte, 1);
	}
	buf_done(&line);
	return text;
}
