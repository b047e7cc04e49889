/* http_guard_head.c - reads the head of a request as the strictest server would
 *
 * A program that checks requests for another server must read them as that server does, or it
 * checks something else ("request smuggling"). Servers differ, so a head that any two of them
 * could read differently is refused: there is only one way to write each thing. Checked are the
 * bytes, the request line, and the form of each header; then those headers that say where the
 * request goes and where it ends. */
#include "gate/relay/http_guard_internal.h"
#include "base/address.h"
#include "policy/policy.h"
#include <ctype.h>
#include <strings.h>

struct slice {
	const char *at;
	size_t len;
};

#define SLICE(text)                    \
	(struct slice)                 \
	{                              \
		text, sizeof(text) - 1 \
	}

static bool is_same(struct slice a, struct slice b)
{
	return a.len == b.len && !memcmp(a.at, b.at, a.len);
}

static bool is_same_any_case(struct slice a, struct slice b)
{
	return a.len == b.len && !strncasecmp(a.at, b.at, a.len);
}

/* Returns the text before the first c, which is dropped; all of it when there is none. */
static struct slice cut_at(struct slice *rest, char c)
{
	const char *found = memchr(rest->at, c, rest->len);
	struct slice first = { rest->at, found ? (size_t)(found - rest->at) : rest->len };
	size_t used = first.len + (found != NULL);

	rest->at += used;
	rest->len -= used;
	return first;
}

static struct slice trim(struct slice text)
{
	while (text.len && (text.at[0] == ' ' || text.at[0] == '\t')) {
		text.at++;
		text.len--;
	}
	while (text.len && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t'))
		text.len--;
	return text;
}

static bool is_word_byte(char c)
{
	return isalnum((uint8_t)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* ---- headers that count --------------------------------------------------------------------- */

enum header {
	HEADER_HOST,
	HEADER_LENGTH,
	HEADER_CODING,
	HEADER_CONNECTION,
	HEADER_UPGRADE,
	HEADER_KEY,
	HEADER_VERSION,
	HEADER_METHOD_OVERRIDE,
	HEADER_METHOD,
	HEADER_OVERRIDE,
	HEADER_URL,
	HEADER_REWRITE,
	HEADER_COUNT
};

static const struct known {
	struct slice name;
	const char *again; /* reason to refuse a second one; NULL: a list */
	const char *never; /* reason to refuse it at all */
} known[] = {
	[HEADER_HOST] = { SLICE("host"), "smuggling: more than one Host", NULL },
	[HEADER_LENGTH] = { SLICE("content-length"), "smuggling: more than one Content-Length",
		NULL },
	[HEADER_CODING] = { SLICE("transfer-encoding"),
		"smuggling: more than one Transfer-Encoding", NULL },
	[HEADER_CONNECTION] = { SLICE("connection"), NULL, NULL },
	[HEADER_UPGRADE] = { SLICE("upgrade"), "smuggling: more than one Upgrade", NULL },
	[HEADER_KEY] = { SLICE("sec-websocket-key"), "more than one Sec-WebSocket-Key", NULL },
	[HEADER_VERSION] = { SLICE("sec-websocket-version"), "more than one Sec-WebSocket-Version",
		NULL },
	/* Some servers use these instead of the method or path that the policy has checked. */
	[HEADER_METHOD_OVERRIDE] = { SLICE("x-http-method-override"), NULL,
		"a header that changes the method" },
	[HEADER_METHOD] = { SLICE("x-http-method"), NULL, "a header that changes the method" },
	[HEADER_OVERRIDE] = { SLICE("x-method-override"), NULL,
		"a header that changes the method" },
	[HEADER_URL] = { SLICE("x-original-url"), NULL, "a header that changes the path" },
	[HEADER_REWRITE] = { SLICE("x-rewrite-url"), NULL, "a header that changes the path" },
};
static_assert(ARRAY_LEN(known) == HEADER_COUNT, "every header has its row");

struct reading {
	struct slice method, target;
	bool is_1_0;
	bool wants_upgrade;		    /* Connection: upgrade */
	struct slice headers[HEADER_COUNT]; /* .at is NULL: missing */
};

static bool has(const struct reading *reading, enum header header)
{
	return reading->headers[header].at;
}

/* Which header it is, HEADER_COUNT for all others. '_' counts as '-': CGI and similar gateways
 * treat them alike. */
static enum header header_of(struct slice name)
{
	for (enum header i = 0; i < HEADER_COUNT; i++) {
		size_t at = 0;

		if (name.len != known[i].name.len)
			continue;
		while (at < name.len &&
			known[i].name.at[at] ==
				(name.at[at] == '_' ? '-' : tolower((uint8_t)name.at[at])))
			at++;
		if (at == name.len)
			return i;
	}
	return HEADER_COUNT;
}

/* A proxy after us removes the headers that Connection names. */
static const char *read_connection(struct slice list, struct reading *reading)
{
	while (list.len) {
		enum header header = header_of(trim(cut_at(&list, ',')));

		if (header == HEADER_UPGRADE)
			reading->wants_upgrade = true;
		else if (header < HEADER_COUNT)
			return "smuggling: Connection names a header that must stay";
	}
	return NULL;
}

static const char *read_known(
	enum header header, struct slice name, struct slice value, struct reading *reading)
{
	if (memchr(name.at, '_', name.len))
		return "smuggling: '_' instead of '-' in a header's name";
	if (known[header].never)
		return known[header].never;
	if (header == HEADER_CONNECTION)
		return read_connection(value, reading);
	if (has(reading, header))
		return known[header].again;
	reading->headers[header] = value;
	return NULL;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static const char *check_bytes(struct slice line)
{
	for (size_t i = 0; i < line.len; i++) {
		uint8_t c = (uint8_t)line.at[i];

		if ((c >= ' ' && c != 0x7f) || c == '\t')
			continue;
		return !c	   ? "NUL in a head"
		       : c == '\r' ? "smuggling: CR without LF"
				   : "control character in a head";
	}
	return NULL;
}

static const char *read_header(struct slice line, struct reading *reading)
{
	struct slice value = line, name = cut_at(&value, ':');
	enum header header;

	if (line.at[0] == ' ' || line.at[0] == '\t')
		return "smuggling: folded header";
	if (name.len == line.len)
		return "header without a colon";
	for (size_t i = 0; i < name.len; i++)
		if (!is_word_byte(name.at[i]))
			return name.at[i] == ' ' || name.at[i] == '\t'
				       ? "smuggling: space before a colon"
				       : "bad byte in a header's name";
	if (!name.len)
		return "header without a name";
	header = header_of(name);
	return header == HEADER_COUNT ? NULL : read_known(header, name, trim(value), reading);
}

static const char *read_request_line(struct slice line, struct reading *reading)
{
	struct slice version = line;

	if (!line.len)
		return "empty line before a request";
	reading->method = cut_at(&version, ' ');
	reading->target = cut_at(&version, ' ');
	if (is_same(reading->method, SLICE("PRI")))
		return "HTTP/2 preface";
	if (!reading->method.len || reading->method.len >= HTTP_METHOD_MAX)
		return "bad method";
	for (size_t i = 0; i < reading->method.len; i++)
		if (!(isupper((uint8_t)reading->method.at[i]) || reading->method.at[i] == '-'))
			return "bad method";
	if (is_same(reading->method, SLICE("CONNECT")))
		return "CONNECT";
	for (size_t i = 0; i < reading->target.len; i++)
		if (reading->target.at[i] <= ' ' || reading->target.at[i] >= 0x7f ||
			reading->target.at[i] == '#')
			return "bad byte in a target";
	reading->is_1_0 = is_same(version, SLICE("HTTP/1.0"));
	return reading->is_1_0 || is_same(version, SLICE("HTTP/1.1")) ? NULL : "not HTTP/1";
}

/* Every line ends with CR LF, as the caller has checked; the last line is empty. */
static const char *read_lines(struct slice head, struct reading *reading)
{
	const char *why;
	unsigned headers = 0;
	struct slice line;

	for (bool first = true;; first = false) {
		line = cut_at(&head, '\n');
		line.len--;
		if (!first && !line.len)
			return NULL;
		why = check_bytes(line);
		if (!why && !first && ++headers > HTTP_GUARD_HEADERS_MAX)
			why = "too many headers";
		if (!why)
			why = first ? read_request_line(line, reading) : read_header(line, reading);
		if (why)
			return why;
	}
}

/* ---- destination ---------------------------------------------------------------------------- */

struct place {
	char host[DNS_HOST_MAX];
	uint16_t port;
};

static bool read_port(struct slice text, uint16_t *ret)
{
	unsigned port = 0;

	if (!text.len || text.len > 5 || text.at[0] == '0')
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (!isdigit((uint8_t)text.at[i]))
			return false;
		port = port * 10 + (unsigned)(text.at[i] - '0');
	}
	*ret = (uint16_t)port;
	return port <= UINT16_MAX;
}

/* A name or an address, without brackets. */
static bool read_host(struct slice text, bool is_v6, char *out)
{
	char copy[POLICY_NAME_SIZE], name[POLICY_NAME_SIZE];
	struct address address;

	if (!text.len || text.len >= sizeof copy)
		return false;
	memcpy(copy, text.at, text.len);
	copy[text.len] = '\0';
	if (address_parse(copy, &address)) {
		address_format(&address, out);
		return is_v6 == (address.family == 6);
	}
	if (is_v6 || policy_name_normalise(copy, name))
		return false;
	strcpy(out, name);
	return true;
}

/* HOST, HOST:PORT, [V6], [V6]:PORT; no user. */
static bool read_place(struct slice text, struct place *ret)
{
	bool is_v6 = text.len && text.at[0] == '[';
	struct slice host, rest = text;
	bool has_port;

	if (is_v6) {
		cut_at(&rest, '[');
		host = cut_at(&rest, ']');
		if (host.len + 2 > text.len || (rest.len && rest.at[0] != ':'))
			return false;
		has_port = rest.len;
		cut_at(&rest, ':');
	} else {
		host = cut_at(&rest, ':');
		has_port = host.len < text.len;
	}
	ret->port = 0;
	return read_host(host, is_v6, ret->host) && (!has_port || read_port(rest, &ret->port));
}

static bool is_same_place(const struct place *a, const struct place *b)
{
	return !strcmp(a->host, b->host) && (a->port ? a->port : 80) == (b->port ? b->port : 80);
}

/* http://PLACE/path: the place must equal Host; the path is used. */
static const char *read_absolute(
	struct slice target, bool is_options, struct place *ret, struct slice *ret_path)
{
	static const char scheme[] = "http://";
	struct slice rest = { target.at + strlen(scheme), target.len - strlen(scheme) };
	size_t len = 0;

	while (len < rest.len && rest.at[len] != '/' && rest.at[len] != '?')
		len++;
	if (!read_place((struct slice){ rest.at, len }, ret))
		return "bad host in a target";
	*ret_path = (struct slice){ rest.at + len, rest.len - len };
	if (!ret_path->len)
		*ret_path = is_options ? SLICE("*") : SLICE("/");
	return ret_path->at[0] == '?' ? "target without a path" : NULL;
}

static const char *read_where(const struct reading *reading, struct http_head *head)
{
	struct slice target = reading->target, path = target;
	bool is_options = is_same(reading->method, SLICE("OPTIONS"));
	bool is_absolute = target.len > 7 && !strncasecmp(target.at, "http://", 7);
	struct place aim = { 0 }, host = { 0 };
	const char *why = NULL;

	if (is_absolute)
		why = read_absolute(target, is_options, &aim, &path);
	else if (!target.len ||
		 !(target.at[0] == '/' || (is_options && is_same(target, SLICE("*")))))
		why = "bad target";
	if (why)
		return why;
	if (path.len > HTTP_GUARD_PATH_MAX)
		return "path too long";
	if (has(reading, HEADER_HOST) && !read_place(reading->headers[HEADER_HOST], &host))
		return "bad Host";
	if (!has(reading, HEADER_HOST) && !reading->is_1_0)
		return "no Host";
	if (!has(reading, HEADER_HOST))
		host = aim;
	else if (is_absolute && !is_same_place(&aim, &host))
		return "smuggling: Host is not the target's";
	strcpy(head->request.host, host.host);
	head->request.port = host.port;
	head->path = xstrndup(path.at, path.len);
	return NULL;
}

/* ---- length of the body --------------------------------------------------------------------- */

static const char *read_length(struct slice text, uint64_t *ret)
{
	static const char bad[] = "smuggling: bad Content-Length";

	if (!text.len || text.len > 18 || (text.len > 1 && text.at[0] == '0'))
		return bad;
	*ret = 0;
	for (size_t i = 0; i < text.len; i++) {
		if (!isdigit((uint8_t)text.at[i]))
			return bad;
		*ret = *ret * 10 + (uint64_t)(text.at[i] - '0');
	}
	return NULL;
}

static const char *read_body(const struct reading *reading, struct http_head *head)
{
	if (has(reading, HEADER_LENGTH) && has(reading, HEADER_CODING))
		return "smuggling: both Content-Length and Transfer-Encoding";
	if (has(reading, HEADER_LENGTH))
		return read_length(reading->headers[HEADER_LENGTH], &head->length);
	if (!has(reading, HEADER_CODING))
		return NULL;
	if (reading->is_1_0)
		return "smuggling: Transfer-Encoding in HTTP/1.0";
	if (!is_same_any_case(reading->headers[HEADER_CODING], SLICE("chunked")))
		return "smuggling: Transfer-Encoding other than chunked";
	head->is_chunked = true;
	return NULL;
}

/* ---- upgrades ------------------------------------------------------------------------------- */

/* An invalid handshake may be an upgrade to one server and a normal request to another. */
static const char *read_upgrade(const struct reading *reading, struct http_head *head)
{
	if (!has(reading, HEADER_UPGRADE))
		return NULL;
	/* Some clients offer h2c with every first request, and most servers ignore it. */
	if (is_same_any_case(reading->headers[HEADER_UPGRADE], SLICE("h2c")) &&
		reading->wants_upgrade && !reading->is_1_0 && !head->is_chunked && !head->length) {
		head->request.upgrade = head->offers_h2 = true;
		return NULL;
	}
	if (!is_same_any_case(reading->headers[HEADER_UPGRADE], SLICE("websocket")))
		return "upgrade to something other than websocket";
	if (!reading->wants_upgrade || reading->is_1_0 || head->is_chunked || head->length ||
		!is_same(reading->method, SLICE("GET")) || reading->headers[HEADER_KEY].len != 24 ||
		!is_same(reading->headers[HEADER_VERSION], SLICE("13")))
		return "bad websocket handshake";
	head->request.upgrade = true;
	return NULL;
}

const char *http_head_read(const char *text, size_t len, struct http_head *ret)
{
	struct reading reading = { 0 };
	const char *why = read_lines((struct slice){ text, len }, &reading);

	*ret = (struct http_head){ 0 };
	if (!why)
		why = read_body(&reading, ret);
	if (!why)
		why = read_upgrade(&reading, ret);
	if (!why)
		why = read_where(&reading, ret);
	if (why)
		return why;
	memcpy(ret->method, reading.method.at, reading.method.len);
	ret->request.method = ret->method;
	ret->request.path = ret->path;
	return NULL;
}

void http_head_done(struct http_head *head)
{
	free(head->path);
	head->path = NULL;
}
