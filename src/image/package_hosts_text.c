/* package_hosts_text.c - finds the hosts in a configuration file, whatever its format
 *
 * Each package manager has its own format, but all of them are lines with keys and URLs. So
 * there is one reader of lines, which knows keys, comments, sections and continuation lines, and
 * one of URLs. Neither refuses anything: text they do not understand is skipped, and the results
 * are plain host names in any case. */
#include "image/package_hosts_internal.h"
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

enum { HOST_MAX = 253, CODE_WINDOW = 1024 };

static const struct {
	const char *name;
	unsigned port;
} schemes[] = {
	{ "http", 80 },
	{ "https", 443 },
	{ "ftp", 21 },
	{ "git", 9418 },
	{ "ssh", 22 },
};

/* ---- hosts and URLs ------------------------------------------------------------------------- */

void found_done(struct found *found)
{
	strv_free(found->hosts);
	*found = (struct found){ 0 };
}

void found_add(struct found *found, const char *host)
{
	if (found->count >= PACKAGE_HOSTS_MAX || strv_has((const char *const *)found->hosts, host))
		return;
	strv_add(&found->hosts, host);
	found->count++;
}

/* A name with a dot in it that is no address: its last label has a letter. */
static bool is_host(const char *text, size_t len)
{
	const char *dot = memrchr(text, '.', len);
	bool letter = false;

	if (!dot || text[0] == '.' || len > HOST_MAX || dot == text + len - 1)
		return false;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (!isalnum(c) && c != '-' && c != '_' && c != '.')
			return false;
		if (c == '.' && text[i + 1] == '.')
			return false;
		if (text + i > dot && isalpha(c))
			letter = true;
	}
	return letter;
}

static void add_host(struct found *found, const char *text, size_t len, unsigned port)
{
	char host[HOST_MAX + 8];

	if (!port || !is_host(text, len))
		return;
	snprintf(host, sizeof host, "%.*s:%u", (int)len, text, port);
	for (char *p = host; *p; p++)
		*p = (char)tolower((unsigned char)*p);
	found_add(found, host);
}

static bool ends_url(char c)
{
	return !c || isspace((unsigned char)c) || strchr("\"'`,;|<>(){}[]\\", c);
}

/* The port of the scheme, which may have a prefix: sparse+https, mirror+http. 0: a scheme
 * without a host. */
static unsigned port_of_scheme(const char *start, const char *end)
{
	const char *plus = memrchr(start, '+', (size_t)(end - start));

	if (plus)
		start = plus + 1;
	for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
		if (strlen(schemes[i].name) == (size_t)(end - start) &&
			!strncasecmp(start, schemes[i].name, (size_t)(end - start)))
			return schemes[i].port;
	return 0;
}

/* 0 when it is no port. */
static unsigned read_port(const char *text, const char *end)
{
	unsigned port = 0;

	for (; text < end; text++) {
		if (!isdigit((unsigned char)*text) || port > 65535)
			return 0;
		port = port * 10 + (unsigned)(*text - '0');
	}
	return port <= 65535 ? port : 0;
}

/* colon points at "://" in text. Returns the end of the URL. */
static const char *read_url(const char *text, const char *colon, struct found *found)
{
	const char *scheme = colon, *host = colon + 3, *end = host, *at, *port;
	unsigned number;

	while (scheme > text && (isalnum((unsigned char)scheme[-1]) || strchr("+-.", scheme[-1])))
		scheme--;
	while (!ends_url(*end) && !strchr("/?#", *end))
		end++;
	at = memrchr(host, '@', (size_t)(end - host));
	if (at)
		host = at + 1;
	port = memchr(host, ':', (size_t)(end - host));
	number = port ? read_port(port + 1, end) : port_of_scheme(scheme, colon);
	if (port_of_scheme(scheme, colon))
		add_host(found, host, (size_t)((port ? port : end) - host), number);
	while (!ends_url(*end))
		end++;
	return end;
}

static void read_urls(const char *text, struct found *found)
{
	const char *p = text, *colon;

	while ((colon = strstr(p, "://")))
		p = read_url(p, colon, found);
}

/* Names without a scheme are reached by https. */
static void read_names(const char *text, struct found *found)
{
	static const char between[] = " \t,|\"'";

	for (const char *p = text + strspn(text, between); *p; p += strspn(p, between)) {
		size_t len = strcspn(p, between);

		add_host(found, p, len, 443);
		p += len;
	}
}

/* ---- lines with keys ------------------------------------------------------------------------ */

/* The hosts of a section are held back until it is known that the section is not disabled. */
struct section {
	struct found pending;
	bool off;
};

struct key_reader {
	const char *keys;
	struct found *found;
	struct section section;
	const char *current; /* the key whose value continues, in keys; NULL: none we want */
	bool scoped;	     /* the key has a scope before it */
	bool headers;	     /* sections have headers in this file, and may contain empty lines */
};

static void end_section(struct key_reader *reader)
{
	struct section *section = &reader->section;

	for (size_t i = 0; !section->off && i < section->pending.count; i++)
		found_add(reader->found, section->pending.hosts[i]);
	if (!section->off && section->pending.replaced)
		reader->found->replaced = true;
	found_done(&section->pending);
	section->off = false;
	reader->current = NULL;
}

/* Finds name among the keys. A key of npm may have a scope before it (@team:registry); with a
 * scope it does not replace the default. */
static const char *find_key(const char *keys, const char *name, size_t len, bool *ret_scoped)
{
	const char *scope = name[0] == '@' ? memchr(name, ':', len) : NULL;

	*ret_scoped = scope != NULL;
	if (scope) {
		len -= (size_t)(scope + 1 - name);
		name = scope + 1;
	}
	for (const char *p = keys; *p; p += strspn(p, " ")) {
		const char *word = p + strspn(p, "!@");
		size_t word_len = strcspn(word, " ");

		if (word_len == len && !strncasecmp(word, name, len))
			return p;
		p = word + word_len;
	}
	return NULL;
}

static void read_value(struct key_reader *reader, const char *value)
{
	struct found *pending = &reader->section.pending, here = { 0 };

	read_urls(value, &here);
	if (reader->current[strspn(reader->current, "!")] == '@')
		read_names(value, &here);
	for (size_t i = 0; i < here.count; i++)
		found_add(pending, here.hosts[i]);
	if (here.count && reader->current[0] == '!' && !reader->scoped)
		pending->replaced = true;
	found_done(&here);
}

static bool is_off(const char *name, size_t len, const char *value)
{
	static const char *const words[] = { "0", "no", "false", "off", "without", "disable" };

	if (len != strlen("enabled") || strncasecmp(name, "enabled", len))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!strcasecmp(value, words[i]))
			return true;
	return false;
}

/* Length of the key at the beginning of the line; 0: there is none. *ret_value is what follows
 * it. */
static size_t split_key(const char *line, const char **ret_value)
{
	size_t len = strcspn(line, "= \t\"");
	const char *rest = line + len + strspn(line + len, " \t");

	if (!len || line[0] == '-' || memmem(line, len, "://", 3))
		return 0;
	if (*rest == '=') {
		*ret_value = rest + 1 + strspn(rest + 1, " \t");
		return len;
	}
	if (line[len - 1] != ':' && *rest != '"')
		return 0;
	*ret_value = rest;
	return line[len - 1] == ':' ? len - 1 : len;
}

static void read_key_line(struct key_reader *reader, char *line)
{
	bool indented = *line == ' ' || *line == '\t';
	char *text = line + strspn(line, " \t");
	const char *value = NULL;
	size_t len;

	if (*text == '#' || *text == ';')
		return;
	if (*text == '[' && !indented) {
		reader->headers = true;
		end_section(reader);
		return;
	}
	if (!*text) {
		if (!reader->headers)
			end_section(reader);
		return;
	}
	len = split_key(text, &value);
	if (!len) {
		if (reader->current && (indented || *text == '-'))
			read_value(reader, text);
		return;
	}
	if (is_off(text, len, value))
		reader->section.off = true;
	reader->current = find_key(reader->keys, text, len, &reader->scoped);
	if (reader->current)
		read_value(reader, value);
}

/* ---- other lines ---------------------------------------------------------------------------- */

/* deb [arch=amd64 signed-by=/x] URL suite component */
static void read_deb_line(const char *line, struct found *found)
{
	const char *rest = line + strspn(line, " \t"), *colon;

	if (strncmp(rest, "deb", 3))
		return;
	rest += strncmp(rest, "deb-src", 7) ? 3 : 7;
	if (*rest != ' ' && *rest != '\t')
		return;
	rest += strspn(rest, " \t");
	if (*rest == '[')
		rest += strcspn(rest, "]");
	colon = strstr(rest, "://");
	if (colon)
		read_url(rest, colon, found);
}

static void read_proxy_line(const char *line, struct found *found)
{
	const char *rest = line + strspn(line, " \t");
	const char *word = strcasestr(rest, "proxy");

	if (word && *rest != '#' && strncmp(rest, "//", 2))
		read_urls(word, found);
}

static void read_url_line(const char *line, struct found *found)
{
	if (line[strspn(line, " \t")] != '#')
		read_urls(line, found);
}

static void (*const line_readers[])(const char *line, struct found *found) = {
	[FORMAT_KEYS] = NULL,
	[FORMAT_DEB] = read_deb_line,
	[FORMAT_PROXY] = read_proxy_line,
	[FORMAT_URLS] = read_url_line,
};
static_assert(ARRAY_LEN(line_readers) == FORMAT_COUNT, "every format has its reader");

void hosts_read(enum host_format format, const char *keys, const char *text, struct found *found)
{
	struct key_reader reader = { .keys = keys, .found = found };
	_cleanup_free_ char *copy = xstrdup(text);
	char *left = copy, *line;

	while ((line = strsep(&left, "\n"))) {
		size_t len = strlen(line);

		while (len && isspace((unsigned char)line[len - 1]))
			line[--len] = '\0';
		if (line_readers[format])
			line_readers[format](line, found);
		else
			read_key_line(&reader, line);
	}
	end_section(&reader);
}

/* ---- program text --------------------------------------------------------------------------- */

void hosts_read_code(const char *text, char until, struct found *found)
{
	_cleanup_free_ char *window = xstrndup(text, strnlen(text, CODE_WINDOW));
	const char *colon;
	char *end;

	if (!until) {
		colon = strstr(window, "://");
		if (colon)
			read_url(window, colon, found);
		return;
	}
	end = strchr(window, until);
	if (end)
		*end = '\0';
	read_urls(window, found);
	for (char *p = window, *close; (p = strpbrk(p, "\"'")); p = close + 1) {
		close = strchr(p + 1, *p);
		if (!close)
			return;
		add_host(found, p + 1, (size_t)(close - p - 1), 443);
	}
}
