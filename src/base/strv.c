/* strv.c - see strv.h */
#include "base/strv.h"
#include <stdarg.h>
#include <stdio.h>

size_t strv_len(const char *const *strv)
{
	size_t len = 0;

	while (strv && strv[len])
		len++;
	return len;
}

char **strv_copy(const char *const *strv)
{
	size_t len = strv_len(strv);
	char **copy = xnewn(char *, len + 1);

	for (size_t i = 0; i < len; i++)
		copy[i] = xstrdup(strv[i]);
	return copy;
}

void strv_free(char **strv)
{
	for (size_t i = 0; strv && strv[i]; i++)
		free(strv[i]);
	free(strv);
}

void strv_add(char ***strv, const char *text)
{
	size_t len = strv_len((const char *const *)*strv);

	*strv = xrealloc(*strv, (len + 2) * sizeof(char *));
	(*strv)[len] = xstrdup(text);
	(*strv)[len + 1] = NULL;
}

bool strv_has(const char *const *strv, const char *text)
{
	for (size_t i = 0; strv && strv[i]; i++)
		if (!strcmp(strv[i], text))
			return true;
	return false;
}

void strv_addf(char ***strv, const char *fmt, ...)
{
	_cleanup_free_ char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (vasprintf(&text, fmt, args) < 0)
		abort();
	va_end(args);
	strv_add(strv, text);
}
