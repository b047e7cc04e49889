/* tls.c - ClientHellos: whole, in pieces, with missing or wrong names
 *
 * Nothing is encrypted here. A server that receives a hello answers with something; only that
 * matters. */
#include "attack/attacker.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELLO_MAX = 20 * 1024 };

struct hello {
	uint8_t bytes[HELLO_MAX];
	size_t len;
};

static void put(struct hello *h, const void *data, size_t len)
{
	if (h->len + len <= sizeof h->bytes) {
		memcpy(h->bytes + h->len, data, len);
		h->len += len;
	}
}

static void put8(struct hello *h, unsigned value)
{
	put(h, &(uint8_t){ (uint8_t)value }, 1);
}

static void put16(struct hello *h, size_t value)
{
	put8(h, (unsigned)(value >> 8));
	put8(h, (unsigned)(value & 0xff));
}

static void put_server_name(struct hello *h, unsigned kind, const char *first, const char *second)
{
	uint8_t names[2][512];
	size_t lens[2] = { unescape(first, names[0], 512),
		second ? unescape(second, names[1], 512) : 0 };
	size_t list = 3 + lens[0] + (second ? 3 + lens[1] : 0);

	put16(h, 0); /* server_name */
	put16(h, list + 2);
	put16(h, list);
	for (int i = 0; i < (second ? 2 : 1); i++) {
		put8(h, kind);
		put16(h, lens[i]);
		put(h, names[i], lens[i]);
	}
}

/* encrypted_client_hello, outer form, with bytes nobody can read. */
static void put_ech(struct hello *h)
{
	uint8_t payload[144];

	memset(payload, 0x5a, sizeof payload);
	put16(h, 0xfe0d);
	put16(h, 1 + 4 + 1 + 2 + 32 + 2 + sizeof payload);
	put8(h, 0);
	put16(h, 1);
	put16(h, 1);
	put8(h, 7);
	put16(h, 32);
	put(h, payload, 32);
	put16(h, sizeof payload);
	put(h, payload, sizeof payload);
}

static void put_extensions(struct hello *h, const char *how, const char *name)
{
	static const uint8_t groups[] = { 0, 10, 0, 4, 0, 2, 0, 29 },
			     versions[] = { 0, 43, 0, 3, 2, 3, 4 };
	size_t at = h->len;

	put16(h, 0);
	put(h, versions, sizeof versions);
	if (!strcmp(how, "late"))
		for (int i = 0; i < 40; i++) { /* puts the name far from the beginning */
			put16(h, 0x1a00 + (size_t)i);
			put16(h, 200);
			h->len += 200;
		}
	if (!strcmp(how, "two-names"))
		put_server_name(h, 0, "allowed.test", name);
	else if (!strcmp(how, "other-kind"))
		put_server_name(h, 1, name, NULL);
	else if (strcmp(how, "none"))
		put_server_name(h, 0, name, NULL);
	if (!strcmp(how, "twice"))
		put_server_name(h, 0, "allowed.test", NULL);
	if (!strcmp(how, "ech"))
		put_ech(h);
	put(h, groups, sizeof groups);
	h->bytes[at] = (uint8_t)((h->len - at - 2) >> 8);
	h->bytes[at + 1] = (uint8_t)(h->len - at - 2);
}

/* Makes the handshake message, without records around it. */
static void make_hello(struct hello *h, const char *how, const char *name)
{
	*h = (struct hello){ .len = 0 };
	put(h, "\x01\x00\x00\x00\x03\x03", 6);
	for (int i = 0; i < 32; i++)
		put8(h, (unsigned)i);
	put8(h, 0);
	put(h, "\x00\x02\x13\x01\x01\x00", 6);
	put_extensions(h, how, name);
	if (!strcmp(how, "long"))
		h->len = HELLO_MAX - 100;
	h->bytes[2] = (uint8_t)((h->len - 4) >> 8);
	h->bytes[3] = (uint8_t)(h->len - 4);
}

static void wrap(const struct hello *h, size_t each, struct hello *ret)
{
	*ret = (struct hello){ .len = 0 };
	for (size_t at = 0; at < h->len; at += each) {
		size_t len = h->len - at < each ? h->len - at : each;

		put(ret, "\x16\x03\x01", 3);
		put16(ret, len);
		put(ret, h->bytes + at, len);
	}
}

/* Writes `each` bytes at a time with a pause between, so that each is a packet. */
static bool send_in_pieces(int fd, const struct hello *h, size_t each)
{
	for (size_t at = 0; at < h->len; at += each) {
		if (!send_all(fd, h->bytes + at, h->len - at < each ? h->len - at : each))
			return false;
		usleep(3000);
	}
	return true;
}

void attack_tls(int argc, char **argv, struct outcome *out)
{
	static const uint8_t ssl2[] = { 0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10 };
	static struct hello inner, whole;
	const char *how = argv[2];
	struct endpoint to;
	int fd;

	if (!endpoint_find(argv[0], argv[1], &to, out) || (fd = endpoint_connect(&to, out)) < 0)
		return;
	make_hello(&inner, how, argv[3]);
	wrap(&inner, !strcmp(how, "records") ? 20 : 16000, &whole);
	if (!strcmp(how, "half"))
		whole.len /= 2;
	if (!strcmp(how, "behind") || !strcmp(how, "behind-pieces")) {
		/* Sends the first bytes of another protocol, and waits until they are passed on. */
		uint8_t answer[256];

		(void)send_all(fd, "\x01", 1);
		usleep(250000);
		while (recv(fd, answer, sizeof answer, MSG_DONTWAIT) > 0)
			;
	}
	if (!strcmp(how, "sslv2"))
		exchange(fd, ssl2, sizeof ssl2, out);
	else if (!strcmp(how, "segments") || !strcmp(how, "bytes") || !strcmp(how, "behind-pieces"))
		send_in_pieces(fd, &whole, !strcmp(how, "bytes") ? 2 : 40)
			? exchange(fd, "", 0, out)
			: outcome_errno(out, 0, errno);
	else
		exchange(fd, whole.bytes, whole.len, out);
	close(fd);
}
