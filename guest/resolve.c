/* resolve.c - see resolve.h: numbers, /etc/hosts, then questions for A and AAAA by UDP (RFC 1035)
 *
 * The answer comes from the daemon's resolver, but may be anybody's: it is read strictly, and what
 * does not fit is no answer. */
#include "guest/resolve.h"
#include "base/file.h"
#include "base/text.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
	FILE_MAX = 256 * 1024,
	NAME_BYTES = 253,
	LABEL_BYTES = 63,
	MESSAGE_MAX = 1500,
	HEADER = 12,
	TYPE_A = 1,
	TYPE_AAAA = 28,
	CLASS_IN = 1,
	TRY_MS = 3000,
	TRIES = 2,
	DNS_PORT = 53,
};

/* Adds a numeric address; false: text is none, or there is no more room. */
static bool add_text(struct resolved *ret, const char *text, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	if (ret->count == RESOLVE_MAX)
		return false;
	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		memcpy(&ret->address[ret->count++], &v4, sizeof v4);
	else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
		memcpy(&ret->address[ret->count++], &v6, sizeof v6);
	else
		return false;
	return true;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Calls fn with the words of each line of a small file, comments left out. */
static void each_line(
	const char *path, void (*fn)(char **words, size_t count, void *arg), void *arg)
{
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;
	char *line, *rest;
	size_t len;

	if (file_read(AT_FDCWD, path, FILE_MAX, &text, &len, &err) < 0)
		return;
	rest = text;
	while ((line = strsep(&rest, "\n"))) {
		char *words[16], *word;
		size_t count = 0;

		line[strcspn(line, "#;")] = '\0';
		while (count < 16 && (word = strsep(&line, " \t\r")))
			if (*word)
				words[count++] = word;
		if (count)
			fn(words, count, arg);
	}
}

struct wanted {
	const char *host;
	uint16_t port;
	struct resolved *ret;
};

static void look_in_hosts(char **words, size_t count, void *arg)
{
	struct wanted *wanted = arg;

	for (size_t i = 1; i < count; i++)
		if (!strcasecmp(words[i], wanted->host)) {
			add_text(wanted->ret, words[0], wanted->port);
			return;
		}
}

static void look_for_server(char **words, size_t count, void *arg)
{
	struct resolved *servers = arg;

	if (count >= 2 && !strcmp(words[0], "nameserver"))
		add_text(servers, words[1], DNS_PORT);
}

/* ---- questions ------------------------------------------------------------------------------ */

/* The length of the question, 0: the name cannot be asked for. */
static size_t put_question(uint8_t *out, uint16_t id, const char *host, uint16_t type)
{
	uint8_t *at = out + HEADER;
	const char *label = host;

	memset(out, 0, HEADER);
	out[0] = (uint8_t)(id >> 8);
	out[1] = (uint8_t)id;
	out[2] = 1; /* recursion, please */
	out[5] = 1; /* one question */
	while (*label) {
		size_t len = strcspn(label, ".");

		if (!len || len > LABEL_BYTES || at - out + len > HEADER + NAME_BYTES)
			return 0;
		*at++ = (uint8_t)len;
		memcpy(at, label, len);
		at += len;
		label += len + (label[len] == '.');
	}
	*at++ = 0;
	*at++ = (uint8_t)(type >> 8);
	*at++ = (uint8_t)type;
	*at++ = 0;
	*at++ = CLASS_IN;
	return (size_t)(at - out);
}

/* The offset behind a name, or 0: malformed. */
static size_t skip_name(const uint8_t *in, size_t len, size_t at)
{
	while (at < len) {
		if ((in[at] & 0xc0) == 0xc0)
			return at + 2 <= len ? at + 2 : 0;
		if (in[at] & 0xc0)
			return 0;
		if (!in[at])
			return at + 1;
		at += 1u + in[at];
	}
	return 0;
}

static unsigned u16_at(const uint8_t *in)
{
	return (unsigned)in[0] << 8 | in[1];
}

static void add_record(struct wanted *wanted, unsigned type, const uint8_t *data, size_t len)
{
	char text[INET6_ADDRSTRLEN];

	if (type == TYPE_A && len == 4 && inet_ntop(AF_INET, data, text, sizeof text))
		add_text(wanted->ret, text, wanted->port);
	if (type == TYPE_AAAA && len == 16 && inet_ntop(AF_INET6, data, text, sizeof text))
		add_text(wanted->ret, text, wanted->port);
}

/* False: it is no answer to this question. */
static bool read_answer(const uint8_t *in, size_t len, const uint8_t *question, size_t question_len,
	struct wanted *wanted)
{
	size_t at = question_len;
	unsigned answers;

	if (len < question_len || memcmp(in, question, 2) || !(in[2] & 0x80) ||
		u16_at(in + 4) != 1 ||
		memcmp(in + HEADER, question + HEADER, question_len - HEADER))
		return false;
	answers = u16_at(in + 6);
	while (answers--) {
		size_t size;

		at = skip_name(in, len, at);
		if (!at || at + 10 > len)
			return true;
		size = u16_at(in + at + 8);
		if (at + 10 + size > len)
			return true;
		if (u16_at(in + at + 2) == CLASS_IN)
			add_record(wanted, u16_at(in + at), in + at + 10, size);
		at += 10 + size;
	}
	return true;
}

static void ask(const struct sockaddr_storage *server, struct wanted *wanted, uint16_t type)
{
	_cleanup_close_ int fd = socket(server->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint8_t question[HEADER + NAME_BYTES + 8], in[MESSAGE_MAX];
	uint16_t id;
	size_t len;

	random_bytes(&id, sizeof id);
	len = put_question(question, id, wanted->host, type);
	if (!len || fd < 0 || connect(fd, (const struct sockaddr *)server, sizeof *server) < 0)
		return;
	for (unsigned i = 0; i < TRIES; i++) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (send(fd, question, len, MSG_NOSIGNAL) < 0)
			return;
		while (poll(&ready, 1, TRY_MS) > 0) {
			got = recv(fd, in, sizeof in, 0);
			if (got < 0)
				return;
			if (read_answer(in, (size_t)got, question, len, wanted))
				return;
		}
	}
}

int resolve(const char *host, uint16_t port, struct resolved *ret, struct err *err)
{
	struct resolved servers = { .count = 0 };
	struct wanted wanted = { .host = host, .port = port, .ret = ret };

	ret->count = 0;
	if (add_text(ret, host, port))
		return 0;
	each_line("/etc/hosts", look_in_hosts, &wanted);
	if (!ret->count)
		each_line("/etc/resolv.conf", look_for_server, &servers);
	for (size_t i = 0; i < servers.count && !ret->count; i++) {
		ask(&servers.address[i], &wanted, TYPE_A);
		if (!ret->count)
			ask(&servers.address[i], &wanted, TYPE_AAAA);
	}
	if (!ret->count)
		return err_set(err, ERR_NOT_FOUND,
			"there is no host '%.200s', or the box may not reach it", host);
	return 0;
}
