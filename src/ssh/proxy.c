/* proxy.c - see proxy.h */
#include "ssh/proxy.h"
#include "base/alloc.h"
#include <stdio.h>

#define WORD "BOX "

static bool is_name(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	return len > 0 && len <= PROXY_NAME_MAX;
}

int proxy_read_line(const char *data, size_t len, char name[PROXY_NAME_MAX + 1], bool *ret_none,
	struct err *err)
{
	size_t word = strlen(WORD), name_len;
	const char *end;

	*ret_none = false;
	if (memcmp(data, WORD, MIN(len, word)) != 0) {
		*ret_none = true;
		return 0;
	}
	end = memchr(data, '\n', MIN(len, (size_t)PROXY_LINE_MAX));
	if (!end && len < PROXY_LINE_MAX)
		return 0;
	name_len = end ? (size_t)(end - data) - word : 0;
	if (!end || !is_name(data + word, name_len))
		return err_set(err, ERR_PROTOCOL, "the first line names no box");
	memcpy(name, data + word, name_len);
	name[name_len] = '\0';
	return (int)(word + name_len + 1);
}

int proxy_login(const char *name, const char *user, const char *local, char ret[PROXY_NAME_MAX + 1],
	struct err *err)
{
	int len;

	if (!strcmp(user, PROXY_USER) || (*local && !strcmp(user, local)))
		len = snprintf(ret, PROXY_NAME_MAX + 1, "%s", name);
	else if (strchr(name, '+'))
		return err_set(err, ERR_INVALID, "a user of the box is named twice");
	else
		len = snprintf(ret, PROXY_NAME_MAX + 1, "%s+%s", name, user);
	if (len > PROXY_NAME_MAX)
		return err_set(err, ERR_INVALID, "the name of the box or user is too long");
	return 0;
}

int proxy_make_line(const char *host, char **ret, struct err *err)
{
	size_t len = strlen(host), suffix = strlen(PROXY_SUFFIX);

	if (len > suffix && !strcmp(host + len - suffix, PROXY_SUFFIX))
		len -= suffix;
	if (!is_name(host, len))
		return err_set(err, ERR_INVALID, "'%.40s' is no name of a box", host);
	*ret = xasprintf(WORD "%.*s\n", (int)len, host);
	return 0;
}
