/* host.c - see host.h */
#include "ingress/host.h"
#include <ctype.h>
#include <stddef.h>
#include <string.h>

#define LABEL_BYTES "abcdefghijklmnopqrstuvwxyz0123456789-"

/* Lower case, no port, no trailing dot. False for what is no host name. */
static bool clean(const char *text, char *ret)
{
	size_t len = strcspn(text, ":");
	const char *port = text + len;

	if (*port && (strspn(port + 1, "0123456789") != strlen(port + 1) || strlen(port + 1) > 5))
		return false;
	if (len && text[len - 1] == '.')
		len--;
	if (!len || len > HOST_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		ret[i] = (char)tolower((unsigned char)text[i]);
	ret[len] = '\0';
	return true;
}

/* Length of the part before ".domain"; 0: there is none. */
static size_t below(const char *name, const char *domain)
{
	size_t len = strlen(name), tail = strlen(domain);

	if (!tail || len < tail + 2 || strcmp(name + len - tail, domain) ||
		name[len - tail - 1] != '.')
		return 0;
	return len - tail - 1;
}

bool host_parse(const char *text, const char *domain, struct host *ret)
{
	size_t len;

	*ret = (struct host){ 0 };
	if (!text || !clean(text, ret->name))
		return false;
	len = below(ret->name, domain);
	if (!len)
		len = below(ret->name, "localhost");
	if (!len)
		return false;
	if (len <= HOST_LABEL_MAX && strspn(ret->name, LABEL_BYTES) >= len)
		memcpy(ret->label, ret->name, len);
	return true;
}

bool host_split_port(const char *label, const char **ret_name, uint16_t *ret_port)
{
	size_t digits = strspn(label, "0123456789");
	unsigned port = 0;

	if (!digits || digits > 5 || *label == '0' || label[digits] != '-' || !label[digits + 1])
		return false;
	for (size_t i = 0; i < digits; i++)
		port = port * 10 + (unsigned)(label[i] - '0');
	if (port > UINT16_MAX)
		return false;
	*ret_name = label + digits + 1;
	*ret_port = (uint16_t)port;
	return true;
}
