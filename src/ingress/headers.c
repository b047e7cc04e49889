/* headers.c - see headers.h
 *
 * A header is looked up in a table of headers that never pass, then in the lists of the
 * Connection headers, which name those meant for the next hop only. '_' counts as '-' in the
 * tables: many servers treat them alike, and a client could otherwise pass an X_Forwarded_For. */
#include "ingress/headers.h"
#include "base/text.h"
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

enum { NAME_KNOWN_MAX = 32 };

/* In both directions. */
static const char *const hop_names[] = { "connection", "keep-alive", "proxy-connection",
	"proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
	"upgrade", "content-length" };
/* Set by us, or for us only. */
static const char *const request_names[] = { "expect", "forwarded", "x-forwarded-for",
	"x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-server",
	"x-forwarded-scheme", "x-forwarded-ssl", "x-real-ip", "box-token" };
/* Headers that serve only other hosts of the domain, or make browsers delete data of those. */
static const char *const answer_names[] = { "alt-svc", "clear-site-data" };
/* Trailers must not change what the head said (RFC 9110, 6.5.1). */
static const char *const trailer_names[] = { "set-cookie", "host", "authorization",
	"www-authenticate", "content-type", "content-encoding", "content-range", "location",
	"cache-control", "expires", "age", "date", "vary", "retry-after" };

static bool is_listed(const char *name, const char *const *list, size_t count)
{
	char known[NAME_KNOWN_MAX];
	size_t len = strlen(name);

	if (len >= sizeof known)
		return false;
	for (size_t i = 0; i <= len; i++)
		known[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(known, list[i]))
			return true;
	return false;
}

static bool list_names(const char *list, const char *name)
{
	size_t len = strlen(name);

	while (*list) {
		size_t item;

		list += strspn(list, " \t,");
		item = strcspn(list, " \t,");
		if (item == len && !strncasecmp(list, name, len))
			return true;
		list += item;
	}
	return false;
}

static void put(struct buf *out, const char *name, const char *value)
{
	buf_add_str(out, name);
	buf_add(out, ": ", 2);
	buf_add_str(out, value);
	buf_add(out, "\r\n", 2);
}

/* ---- cookies and tokens --------------------------------------------------------------------- */

static const char *trimmed(const char *text, size_t *len)
{
	while (*len && (*text == ' ' || *text == '\t')) {
		text++;
		(*len)--;
	}
	while (*len && (text[*len - 1] == ' ' || text[*len - 1] == '\t'))
		(*len)--;
	return text;
}

static bool is_name(const char *text, size_t len, const char *name)
{
	return len == strlen(name) && !strncasecmp(text, name, len);
}

/* Whether a cookie "name=value" has our name. One without '=' has no name, or is all name: it
 * counts either way. Browsers send one with an empty name, "=name=value", back as "name=value". */
static bool is_login_cookie(const char *pair, size_t len)
{
	size_t empty = strspn(pair, " \t="), name_len;
	const char *equals, *name;

	pair += MIN(empty, len);
	len -= MIN(empty, len);
	equals = memchr(pair, '=', len);
	name_len = equals ? (size_t)(equals - pair) : len;
	name = trimmed(pair, &name_len);

	return is_name(name, name_len, LOGIN_COOKIE) ||
	       is_name(name, name_len, LOGIN_COOKIE_SECURE);
}

/* Appends the cookies of a request without ours; nothing if there are no others. */
static void put_cookies(const char *value, struct buf *out)
{
	bool any = false;

	while (*value) {
		size_t len = strcspn(value, ";"), kept = len;
		const char *pair = trimmed(value, &kept);

		if (kept && !is_login_cookie(pair, kept)) {
			buf_add_str(out, any ? "; " : "Cookie: ");
			buf_add(out, pair, kept);
			any = true;
		}
		value += len + (value[len] == ';');
	}
	if (any)
		buf_add(out, "\r\n", 2);
}

bool headers_each_login(const struct http_head *head, const char *name,
	bool (*fn)(const char *value, size_t len, void *arg), void *arg)
{
	size_t name_len = strlen(name);

	for (unsigned i = 0; i < head->count; i++) {
		const char *value = head->headers[i].value;

		if (strcasecmp(head->headers[i].name, "Cookie"))
			continue;
		while (*value) {
			size_t len = strcspn(value, ";"), kept = len;
			const char *pair = trimmed(value, &kept);

			if (kept > name_len && pair[name_len] == '=' &&
				!memcmp(pair, name, name_len) &&
				fn(pair + name_len + 1, kept - name_len - 1, arg))
				return true;
			value += len + (value[len] == ';');
		}
	}
	return false;
}

/* "Bearer box_…": no application in a box has tokens of this form. */
static const char *bearer_token(const char *value)
{
	if (strncasecmp(value, "Bearer", 6) || (value[6] != ' ' && value[6] != '\t'))
		return NULL;
	value += 6 + strspn(value + 6, " \t");
	return strncmp(value, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) ? NULL : value;
}

/* Decodes base64 text, as far as it is valid and fits. */
static void decode_base64(const char *text, char *out, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned bits = 0, have = 0;
	const char *digit;

	for (; *text && (digit = strchr(digits, *text)) && size > 1; text++) {
		bits = bits << 6 | (unsigned)(digit - digits);
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		*out++ = (char)(bits >> have);
		size--;
	}
	*out = '\0';
}

/* True if one of our tokens is a word of text. */
static bool names_token(const char *text)
{
	for (; *text; text += strcspn(text, " \t,;:=\"'")) {
		text += strspn(text, " \t,;:=\"'");
		if (text_has_prefix(text, TOKEN_PREFIX))
			return true;
	}
	return false;
}

/* A token that was sent in a way we do not accept (another scheme, as a Basic password) must not
 * reach the box either. */
static bool holds_token(const char *value)
{
	char plain[512];

	if (names_token(value))
		return true;
	if (strncasecmp(value, "Basic", 5) || (value[5] != ' ' && value[5] != '\t'))
		return false;
	decode_base64(value + 5 + strspn(value + 5, " \t"), plain, sizeof plain);
	return names_token(plain);
}

const char *headers_token(const struct http_head *head)
{
	const char *own = http_head_get(head, TOKEN_HEADER);

	if (own)
		return own;
	for (unsigned i = 0; i < head->count; i++)
		if (!strcasecmp(head->headers[i].name, "Authorization") &&
			bearer_token(head->headers[i].value))
			return bearer_token(head->headers[i].value);
	return NULL;
}

/* ---- to the box ----------------------------------------------------------------------------- */

static bool is_for_next_hop(const struct http_head *head, const char *name)
{
	for (unsigned i = 0; i < head->count; i++)
		if (!strcasecmp(head->headers[i].name, "Connection") &&
			list_names(head->headers[i].value, name))
			return strcasecmp(name, "Host") != 0;
	return false;
}

static void put_request_header(
	const struct http_head *head, const struct http_header *header, struct buf *out)
{
	if (is_listed(header->name, hop_names, ARRAY_LEN(hop_names)) ||
		is_listed(header->name, request_names, ARRAY_LEN(request_names)) ||
		is_for_next_hop(head, header->name))
		return;
	if (!strcasecmp(header->name, "Cookie"))
		return put_cookies(header->value, out);
	if (!strcasecmp(header->name, "Authorization") && holds_token(header->value))
		return;
	put(out, header->name, header->value);
}

void headers_put_request(
	const struct http_head *head, const struct headers_from *from, struct buf *out)
{
	const char *host = http_head_get(head, "Host");

	buf_addf(out, "%s %s HTTP/1.1\r\n", head->method, head->target);
	for (unsigned i = 0; i < head->count; i++)
		put_request_header(head, &head->headers[i], out);
	if (*from->peer)
		put(out, "X-Forwarded-For", from->peer);
	put(out, "X-Forwarded-Proto", from->proto);
	put(out, "X-Forwarded-Host", host ? host : "");
	if (from->upgrade) {
		put(out, "Connection", "Upgrade");
		put(out, "Upgrade", http_head_get(head, "Upgrade"));
	}
	if (head->chunked)
		put(out, "Transfer-Encoding", "chunked");
	else if (http_head_get(head, "Content-Length"))
		buf_addf(out, "Content-Length: %llu\r\n", (unsigned long long)head->length);
	buf_add(out, "\r\n", 2);
}

/* ---- to the client -------------------------------------------------------------------------- */

/* Drops its Domain, so that the cookie belongs to the requested host only. */
static void put_set_cookie(const char *value, struct buf *out)
{
	size_t len = strcspn(value, ";");

	if (is_login_cookie(value, len))
		return;
	buf_add_str(out, "Set-Cookie: ");
	buf_add(out, value, len);
	for (value += len; *value; value += len) {
		size_t name_len;
		const char *name;

		value++;
		len = strcspn(value, ";");
		name_len = MIN(len, strcspn(value, "="));
		name = trimmed(value, &name_len);
		if (is_name(name, name_len, "Domain"))
			continue;
		buf_add(out, ";", 1);
		buf_add(out, value, len);
	}
	buf_add(out, "\r\n", 2);
}

static bool box_meant_next_hop(const struct answer *answer, const char *name)
{
	for (unsigned i = 0; i < answer->count; i++)
		if (!strcasecmp(answer->headers[i].name, "Connection") &&
			list_names(answer->headers[i].value, name))
			return true;
	return false;
}

void headers_put_answer(const struct answer *answer, bool upgrade, struct buf *out)
{
	const char *protocol = upgrade ? answer_get(answer, "Upgrade") : NULL;

	for (unsigned i = 0; i < answer->count; i++) {
		const char *name = answer->headers[i].name;

		if (is_listed(name, hop_names, ARRAY_LEN(hop_names)) ||
			is_listed(name, answer_names, ARRAY_LEN(answer_names)) ||
			box_meant_next_hop(answer, name))
			continue;
		if (!strcasecmp(name, "Set-Cookie"))
			put_set_cookie(answer->headers[i].value, out);
		else
			put(out, name, answer->headers[i].value);
	}
	if (upgrade) {
		put(out, "Connection", "Upgrade");
		put(out, "Upgrade", protocol ? protocol : "");
	}
}

void headers_put_trailers(const struct answer *answer, struct buf *out)
{
	size_t left = answer->trailers.len;
	const char *line = left ? (const char *)buf_head(&answer->trailers) : "";
	const char *end = line + left;
	char name[NAME_KNOWN_MAX * 2];

	while (line < end) {
		const char *lf = memchr(line, '\n', (size_t)(end - line));
		const char *colon = memchr(line, ':', (size_t)(lf - line));
		size_t len = colon ? (size_t)(colon - line) : 0;

		if (len && len < sizeof name && answer_name_is_good(line, len)) {
			memcpy(name, line, len);
			name[len] = '\0';
			if (!is_listed(name, hop_names, ARRAY_LEN(hop_names)) &&
				!is_listed(name, answer_names, ARRAY_LEN(answer_names)) &&
				!is_listed(name, trailer_names, ARRAY_LEN(trailer_names)))
				buf_add(out, line, (size_t)(lf + 1 - line));
		}
		line = lf + 1;
	}
}
