/* alloc.c - allocations that end the program instead of failing */
#include "base/alloc.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Noreturn void out_of_memory(void)
{
	static const char words[] = "box: out of memory\n";

	if (write(2, words, sizeof words - 1) < 0)
		abort();
	abort();
}

static void *checked(void *ptr)
{
	if (!ptr)
		out_of_memory();
	return ptr;
}

void *xcalloc(size_t count, size_t size)
{
	return checked(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *ptr, size_t size)
{
	return checked(realloc(ptr, size ? size : 1));
}

char *xstrdup(const char *text)
{
	return text ? checked(strdup(text)) : NULL;
}

char *xstrndup(const char *text, size_t len)
{
	return checked(strndup(text, len));
}

void *xmemdup(const void *data, size_t len)
{
	void *copy = xcalloc(1, len);

	if (len)
		memcpy(copy, data, len);
	return copy;
}

char *xasprintf(const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	return checked(text);
}

void cleanup_closep(int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		close(*fd);
		errno = saved;
	}
}
