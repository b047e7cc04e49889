/* dns.c - a DNS client that also sends malformed queries
 *
 * Names are written with escapes, so that a label may contain dots, NULs and any other byte:
 * "a\x00b.test". A dot separates labels, "\x2e" is a dot inside a label. */
#include "attack/attacker.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MESSAGE_MAX = 4096, DNS_TRUNCATED = 0x0200 };

struct message {
	uint8_t bytes[MESSAGE_MAX];
	size_t len;
};

static void put16(struct message *m, unsigned value)
{
	if (m->len + 2 <= sizeof m->bytes) {
		m->bytes[m->len++] = (uint8_t)(value >> 8);
		m->bytes[m->len++] = (uint8_t)value;
	}
}

/* Labels of any length are written as they are: a length over 63 is one of the attacks. */
static void put_name(struct message *m, const char *name)
{
	while (*name) {
		const char *end = name;
		char label[512];
		size_t len;

		while (*end && *end != '.')
			end += *end == '\\' && end[1] ? 2 : 1;
		snprintf(label, sizeof label, "%.*s", (int)(end - name), name);
		len = m->len + sizeof label < sizeof m->bytes
			      ? unescape(label, m->bytes + m->len + 1, sizeof label - 1)
			      : 0;
		m->bytes[m->len] = (uint8_t)len;
		m->len += 1 + len;
		name = *end ? end + 1 : end;
	}
	m->bytes[m->len++] = 0;
}

static void put_question(struct message *m, const char *name, int type)
{
	*m = (struct message){ .len = 0 };
	put16(m, (unsigned)(now_us() & 0xffff));
	put16(m, 0x0100);
	put16(m, 1);
	put16(m, 0);
	put16(m, 0);
	put16(m, 0);
	put_name(m, name);
	put16(m, (unsigned)type);
	put16(m, 1);
}

static void read_resolv_conf(char *ret, size_t size)
{
	FILE *file = fopen("/etc/resolv.conf", "re");
	char line[256], server[64];

	snprintf(ret, size, "198.18.0.1");
	while (file && fgets(line, sizeof line, file))
		if (sscanf(line, "nameserver %60s", server) == 1) {
			snprintf(ret, size, "%s", server);
			break;
		}
	if (file)
		fclose(file);
}

static int dial(const char *server, bool tcp, struct outcome *out)
{
	struct endpoint to;
	char own[64];
	int fd;

	read_resolv_conf(own, sizeof own);
	if (!endpoint_find(strcmp(server, "-") ? server : own, "53", &to, out))
		return -1;
	if (tcp)
		return endpoint_connect(&to, out);
	fd = socket(to.addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to.addr, to.len) < 0) {
		outcome_errno(out, now_us(), errno);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

static bool is_whole(const uint8_t *data, size_t len, void *arg)
{
	return len >= 2 && len >= 2u + (size_t)(data[0] << 8 | data[1]);
}

/* Sends what is in m and puts the answer into it; false with the outcome filled in. */
static bool ask(const char *server, bool tcp, bool patient, struct message *m, struct outcome *out)
{
	int fd = dial(server, tcp, out), error = 0;
	int64_t since = now_us();
	uint8_t framed[MESSAGE_MAX + 2];
	size_t got;

	if (fd < 0)
		return false;
	framed[0] = (uint8_t)(m->len >> 8);
	framed[1] = (uint8_t)m->len;
	memcpy(framed + 2, m->bytes, m->len);
	if (!send_all(fd, tcp ? framed : framed + 2, tcp ? m->len + 2 : m->len)) {
		outcome_errno(out, since, errno);
		close(fd);
		return false;
	}
	if (tcp) {
		got = receive_all(fd, framed, sizeof framed, is_whole, NULL, &error);
		got = got > 2 ? got - 2 : 0;
	} else {
		struct pollfd one = { .fd = fd, .events = POLLIN };
		ssize_t len = poll(&one, 1, patient ? 1500 : ANSWER_MS) == 1
				      ? recv(fd, framed + 2, MESSAGE_MAX, 0)
				      : -1;

		error = len < 0 ? (one.revents ? errno : EAGAIN) : 0;
		got = len > 0 ? (size_t)len : 0;
	}
	close(fd);
	if (got < 12) {
		if (error && error != EAGAIN)
			outcome_errno(out, since, error);
		else
			outcome_refused(out, since, tcp && !error ? "closed" : "no answer");
		out->silent = error == EAGAIN;
		return false;
	}
	memcpy(m->bytes, framed + 2, got);
	m->len = got;
	return true;
}

static size_t skip_name(const struct message *m, size_t at)
{
	while (at < m->len && m->bytes[at]) {
		if (m->bytes[at] >= 0xc0)
			return at + 2;
		at += 1u + m->bytes[at];
	}
	return at + 1;
}

static unsigned get16(const struct message *m, size_t at)
{
	return at + 2 <= m->len ? (unsigned)(m->bytes[at] << 8 | m->bytes[at + 1]) : 0;
}

/* The first address record of an answer. */
static bool find_address(const struct message *m, int type, struct endpoint *ret)
{
	size_t at = 12;

	for (unsigned i = 0; i < get16(m, 4); i++)
		at = skip_name(m, at) + 4;
	for (unsigned i = 0; i < get16(m, 6) && at < m->len; i++) {
		unsigned len;

		at = skip_name(m, at);
		len = get16(m, at + 8);
		if ((int)get16(m, at) == type && at + 10 + len <= m->len &&
			len == (type == DNS_A ? 4 : 16)) {
			struct sockaddr_in *v4 = (struct sockaddr_in *)&ret->addr;
			struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ret->addr;
			void *to = type == DNS_A ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr;

			memset(ret, 0, sizeof *ret);
			ret->addr.ss_family = type == DNS_A ? AF_INET : AF_INET6;
			ret->len = type == DNS_A ? sizeof *v4 : sizeof *v6;
			memcpy(to, m->bytes + at + 10, len);
			inet_ntop(ret->addr.ss_family, to, ret->text, sizeof ret->text);
			return true;
		}
		at += 10 + len;
	}
	return false;
}

static void judge(const struct message *m, int type, int64_t since, struct outcome *out)
{
	static const char *const codes[] = { "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP",
		"REFUSED" };
	unsigned code = m->bytes[3] & 15, answers = get16(m, 6);
	struct endpoint found;

	if (code || !answers) {
		outcome_refused(out, since, "%s%s", code < 6 ? codes[code] : "another code",
			code ? "" : " without an answer");
		return;
	}
	outcome_through(out, since, "%u answers", answers);
	if ((type == DNS_A || type == DNS_AAAA) && find_address(m, type, &found))
		outcome_detail(out, "%s", found.text);
}

bool dns_resolve(const char *name, int type, struct endpoint *ret, struct outcome *out)
{
	struct message m;
	int64_t since = now_us();

	put_question(&m, name, type);
	if (!ask("-", false, true, &m, out))
		return false;
	if (find_address(&m, type, ret))
		return true;
	judge(&m, 0, since, out);
	out->refused = true;
	return false;
}

static const struct {
	const char *name;
	int type;
} types[] = { { "A", 1 }, { "NS", 2 }, { "CNAME", 5 }, { "SOA", 6 }, { "NULL", 10 }, { "PTR", 12 },
	{ "MX", 15 }, { "TXT", 16 }, { "AAAA", 28 }, { "SRV", 33 }, { "NAPTR", 35 }, { "SVCB", 64 },
	{ "HTTPS", 65 }, { "AXFR", 252 }, { "ANY", 255 } };

void attack_ask(int argc, char **argv, struct outcome *out)
{
	struct message m;
	int64_t since = now_us();
	int type = atoi(argv[2]);

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, argv[2]))
			type = types[i].type;
	put_question(&m, argv[3], type);
	if (ask(argv[0], !strcmp(argv[1], "tcp"), true, &m, out))
		judge(&m, type, since, out);
}

/* Makes a valid query invalid in one way. */
static bool spoil(struct message *m, const char *how, const char *name)
{
	if (!strcmp(how, "two-questions")) {
		m->bytes[5] = 2;
		put_name(m, name);
		put16(m, 1);
		put16(m, 1);
	} else if (!strcmp(how, "pointer-loop")) {
		m->len = 12;
		put16(m, 0xc00c);
		put16(m, 1);
		put16(m, 1);
	} else if (!strcmp(how, "cut-short")) {
		m->len -= 6;
	} else if (!strcmp(how, "update")) {
		m->bytes[2] = 5 << 3;
	} else if (!strcmp(how, "response")) {
		m->bytes[2] |= 0x80;
	} else if (!strcmp(how, "chaos")) {
		m->bytes[m->len - 1] = 3;
	} else if (!strcmp(how, "two-labels-long")) {
		m->len = 12;
		for (int i = 0; i < 5; i++) {
			m->bytes[m->len] = 63;
			memset(m->bytes + m->len + 1, 'a', 63);
			m->len += 64;
		}
		m->bytes[m->len++] = 0;
		put16(m, 1);
		put16(m, 1);
	} else if (!strcmp(how, "client-subnet")) {
		static const uint8_t opt[] = { 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 8, 0, 8, 0,
			1, 32, 0, 'e', 'v', 'i', 'l' };

		m->bytes[11] = 1;
		memcpy(m->bytes + m->len, opt, sizeof opt);
		m->len += sizeof opt;
	} else {
		return false;
	}
	return true;
}

void attack_ask_odd(int argc, char **argv, struct outcome *out)
{
	struct message m;
	int64_t since = now_us();

	put_question(&m, argv[3], DNS_A);
	if (!spoil(&m, argv[2], argv[3]))
		outcome_through(out, 0, "no such way: %s", argv[2]);
	else if (ask(argv[0], !strcmp(argv[1], "tcp"), false, &m, out))
		judge(&m, DNS_A, since, out);
}
