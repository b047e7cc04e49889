/* dial_proxy.c - hosts behind an HTTP proxy: its settings, and the CONNECT to it
 *
 * The settings are HTTPS_PROXY and NO_PROXY, read as curl and most others do. The dialogue is
 * one CONNECT and one answer. Bytes after the answer belong to the connection, so they are
 * peeked at, and only those of the answer's head are consumed. */
#include "base/buf.h"
#include "base/strv.h"
#include "base/text.h"
#include "loop/loop.h"
#include "gate/relay/dial_internal.h"
#include "net/dns_name.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>

enum {
	URL_MAX = 2048,
	HEAD_MAX = 16 * 1024, /* of the proxy's answer */
	EXEMPT_MAX = 256,     /* entries of NO_PROXY */
	PORT_HTTP = 80,
};

/* ---- HTTPS_PROXY ---------------------------------------------------------------------------- */

/* Decodes %XX in a user name or password. */
static int decode(const char *text, size_t len, struct buf *out, struct err *err)
{
	for (size_t i = 0; i < len; i++) {
		char hex[3] = { 0 };
		char byte = text[i];

		if (byte == '%') {
			if (len - i < 3 || !isxdigit((unsigned char)text[i + 1]) ||
				!isxdigit((unsigned char)text[i + 2]))
				return err_set(err, ERR_INVALID,
					"proxy: its user or password has a '%%' without two hex "
					"digits");
			memcpy(hex, text + i + 1, 2);
			byte = (char)strtoul(hex, NULL, 16);
			i += 2;
		}
		buf_add(out, &byte, 1);
	}
	return 0;
}

static int take_credentials(const char *text, size_t len, char **ret, struct err *err)
{
	struct buf plain = BUF_INIT;
	_cleanup_free_ char *code = NULL;

	if (decode(text, len, &plain, err) < 0) {
		buf_done(&plain);
		return -1;
	}
	if (!memchr(text, ':', len))
		buf_add_str(&plain, ":");
	code = base64_encode(buf_head(&plain), plain.len);
	buf_done(&plain);
	*ret = xasprintf("Basic %s", code);
	return 0;
}

static int take_scheme(const char **text, struct err *err)
{
	const char *end = strstr(*text, "://");

	if (!end)
		return 0; /* "proxy.example:3128", without a scheme, is common */
	if (end - *text == 4 && !strncasecmp(*text, "http", 4)) {
		*text = end + 3;
		return 0;
	}
	if ((end - *text == 5 && !strncasecmp(*text, "https", 5)) ||
		!strncasecmp(*text, "socks", 5))
		return err_set(err, ERR_UNSUPPORTED, "proxy: only http:// proxies can be used");
	return err_set(err, ERR_INVALID, "proxy: it must be http://[user:password@]host:port");
}

/* "host", "host:port", "[v6]:port"; a slash at the end is allowed. */
static int take_place(const char *text, struct dial_proxy *ret, struct err *err)
{
	size_t len = strcspn(text, "/");
	_cleanup_free_ char *place = xstrndup(text, len);
	char *host = place, *port = NULL;
	struct address address;
	struct dns_name name;
	uint64_t number = PORT_HTTP;

	if (text[len] && text[len + 1])
		return err_set(err, ERR_INVALID, "proxy: nothing may follow its port");
	if (*place == '[') {
		char *end = strchr(place, ']');

		if (!end || (end[1] && end[1] != ':'))
			return err_set(err, ERR_INVALID, "proxy: '%.64s' is no host", place);
		*end = '\0';
		host = place + 1;
		port = end[1] ? end + 2 : NULL;
	} else if ((port = strchr(place, ':'))) {
		*port++ = '\0';
	}
	if (!address_parse(host, &address) && (*place == '[' || !dns_name_parse(host, &name)))
		return err_set(err, ERR_INVALID, "proxy: '%.64s' is no host", host);
	if (port && parse_u64("the proxy's port", port, 1, 65535, &number, err) < 0)
		return -1;
	snprintf(ret->host, sizeof ret->host, "%s", host);
	ret->port = (uint16_t)number;
	return 0;
}

static int parse_url(const char *text, struct dial_proxy *ret, struct err *err)
{
	const char *at;

	if (strlen(text) > URL_MAX)
		return err_set(err, ERR_INVALID, "proxy: longer than %d bytes", URL_MAX);
	if (take_scheme(&text, err) < 0)
		return -1;
	at = strrchr(text, '@'); /* a password may contain one that was not escaped as %40 */
	if (at && take_credentials(text, (size_t)(at - text), &ret->authorization, err) < 0)
		return -1;
	return take_place(at ? at + 1 : text, ret, err);
}

/* ---- NO_PROXY ------------------------------------------------------------------------------- */

static void parse_exempt(const char *text, struct dial_proxy *ret)
{
	size_t count = 0;

	while (*text && count < EXEMPT_MAX) {
		size_t len;

		text += strspn(text, ", \t");
		len = strcspn(text, ", \t");
		if (len && len < DNS_HOST_MAX) {
			_cleanup_free_ char *entry = xstrndup(text, len);

			strv_add(&ret->exempt, entry);
			count++;
		}
		text += len;
	}
}

static bool in_range(const struct address *address, const char *entry)
{
	char text[DNS_HOST_MAX];
	struct address base;
	uint64_t bits;
	char *slash;

	snprintf(text, sizeof text, "%s", entry);
	slash = strchr(text, '/');
	if (slash)
		*slash = '\0';
	if (!address_parse(text, &base) || base.family != address->family)
		return false;
	bits = base.family == 4 ? 32 : 128;
	if (slash && parse_u64("bits", slash + 1, 0, bits, &bits, NULL) < 0)
		return false;
	for (unsigned i = 0; i < bits; i++)
		if ((base.bytes[i / 8] ^ address->bytes[i / 8]) & (0x80 >> i % 8))
			return false;
	return true;
}

/* "example.com" is that name and all below it, ".example.com" only those below it. */
static bool covers_name(const char *entry, const char *name)
{
	size_t entry_len, name_len = strlen(name);

	if (text_has_prefix(entry, "*."))
		entry++;
	entry_len = strlen(entry);
	if (!entry_len || entry_len > name_len ||
		strcasecmp(name + name_len - entry_len, entry) != 0)
		return false;
	return *entry == '.' || entry_len == name_len || name[name_len - entry_len - 1] == '.';
}

bool dial_proxy_is_exempt(
	const struct dial_proxy *proxy, const char *name, const struct address *address)
{
	if (!proxy || !*proxy->host)
		return true;
	for (char **entry = proxy->exempt; entry && *entry; entry++)
		if (!strcmp(*entry, "*") || (name && *name && covers_name(*entry, name)) ||
			(address && address->family && in_range(address, *entry)))
			return true;
	return false;
}

int dial_proxy_parse(
	const char *proxy, const char *no_proxy, struct dial_proxy *ret, struct err *err)
{
	struct dial_proxy parsed = { 0 };

	if (proxy && *proxy && parse_url(proxy, &parsed, err) < 0) {
		dial_proxy_done(&parsed);
		return -1;
	}
	if (no_proxy)
		parse_exempt(no_proxy, &parsed);
	*ret = parsed;
	return 0;
}

void dial_proxy_done(struct dial_proxy *proxy)
{
	free(proxy->authorization);
	strv_free(proxy->exempt);
	*proxy = (struct dial_proxy){ 0 };
}

/* ---- CONNECT -------------------------------------------------------------------------------- */

struct dial_talk {
	int fd;
	struct loop_fd *watch;
	struct buf out, in;
	void (*done)(void *arg, const struct err *err);
	void *arg;
};

static const struct {
	unsigned status;
	enum err_kind kind;
} refusals[] = {
	{ 401, ERR_UNAUTHORIZED },
	{ 403, ERR_FORBIDDEN },
	{ 407, ERR_UNAUTHORIZED },
	{ 429, ERR_LIMIT },
	{ 504, ERR_TIMEOUT },
};

void dial_talk_cancel(struct dial_talk *talk)
{
	if (!talk)
		return;
	loop_fd_free(talk->watch);
	buf_done(&talk->out);
	buf_done(&talk->in);
	free(talk);
}

static void talk_end(struct dial_talk *talk, const struct err *err)
{
	void (*done)(void *, const struct err *) = talk->done;
	void *arg = talk->arg;

	dial_talk_cancel(talk);
	done(arg, err);
}

static void talk_failed(struct dial_talk *talk, enum err_kind kind, const char *text)
{
	struct err err = ERR_INIT;

	err_set(&err, kind, "proxy: %s", text);
	talk_end(talk, &err);
}

/* The status of "HTTP/1.1 200 …"; 0: it is no status line. */
static unsigned read_status(const char *head)
{
	if (strncmp(head, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)head[7]) || head[8] != ' ')
		return 0;
	for (int i = 9; i < 12; i++)
		if (!isdigit((unsigned char)head[i]))
			return 0;
	if (head[12] != ' ' && head[12] != '\r' && head[12] != '\n')
		return 0;
	return (unsigned)strtoul(head + 9, NULL, 10);
}

static void judge_answer(struct dial_talk *talk)
{
	unsigned status = read_status(buf_str(&talk->in));
	enum err_kind kind = ERR_UNAVAILABLE;
	char text[64];

	if (status >= 200 && status < 300) {
		talk_end(talk, NULL);
		return;
	}
	if (!status) {
		talk_failed(talk, ERR_PROTOCOL, "its answer is not HTTP");
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		if (refusals[i].status == status)
			kind = refusals[i].kind;
	snprintf(text, sizeof text, "it answered %u to CONNECT", status);
	talk_failed(talk, kind, text);
}

/* Consumes the bytes of the head and none after it. */
static void talk_read(struct dial_talk *talk)
{
	struct buf *in = &talk->in;
	size_t room = HEAD_MAX - in->len, take;
	uint8_t *tail = buf_room(in, room);
	const uint8_t *head = tail - in->len, *end;
	ssize_t got = recv(talk->fd, tail, room, MSG_PEEK);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		talk_failed(talk, ERR_UNAVAILABLE, got ? strerror(errno) : "it hung up");
		return;
	}
	take = (size_t)got;
	end = memmem(head, in->len + take, "\r\n\r\n", 4);
	if (end)
		take = (size_t)(end + 4 - tail);
	got = recv(talk->fd, tail, take, 0);
	if (got != (ssize_t)take) {
		talk_failed(talk, ERR_UNAVAILABLE, "its answer vanished");
		return;
	}
	buf_grew(in, take);
	if (end)
		judge_answer(talk);
	else if (in->len >= HEAD_MAX)
		talk_failed(talk, ERR_PROTOCOL, "its answer has no end");
}

static void talk_write(struct dial_talk *talk)
{
	ssize_t sent = send(talk->fd, buf_head(&talk->out), talk->out.len, MSG_NOSIGNAL);

	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (sent < 0) {
		talk_failed(talk, ERR_UNAVAILABLE, strerror(errno));
		return;
	}
	buf_eat(&talk->out, (size_t)sent);
	if (!talk->out.len)
		loop_fd_set(talk->watch, LOOP_READ);
}

static void on_talk(void *arg, unsigned ready)
{
	if (ready == LOOP_WRITE)
		talk_write(arg);
	else
		talk_read(arg);
}

struct dial_talk *dial_talk_start(struct loop *loop, int fd, const struct dial_proxy *proxy,
	const char *host, uint16_t port, void (*done)(void *arg, const struct err *err), void *arg)
{
	struct dial_talk *talk = xnew(struct dial_talk);
	bool is_v6 = strchr(host, ':');
	char place[DNS_HOST_MAX + 16];

	talk->fd = fd;
	talk->done = done;
	talk->arg = arg;
	snprintf(place, sizeof place, "%s%s%s:%u", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
		(unsigned)port);
	buf_addf(&talk->out, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", place, place);
	if (proxy->authorization)
		buf_addf(&talk->out, "Proxy-Authorization: %s\r\n", proxy->authorization);
	buf_add_str(&talk->out, "\r\n");
	talk->watch = loop_fd_new(loop, fd, LOOP_WRITE, on_talk, talk);
	return talk;
}
