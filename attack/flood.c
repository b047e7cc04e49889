/* flood.c - floods: queries, connections, incomplete hellos, datagrams
 *
 * Each goes on until COUNT is reached or its time is over, holds what it opened for a while, and
 * reports how much was answered. */
#include "attack/attacker.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FLOOD_MS = 700, HOLD_MS = 500, OPEN_MAX_FDS = 4000 };

static int held[OPEN_MAX_FDS];
static size_t held_count;

static bool is_over(int64_t since)
{
	return now_us() - since > FLOOD_MS * 1000LL;
}

static size_t build_question(uint8_t *out, unsigned number, const char *suffix)
{
	static const uint8_t head[12] = { 0, 0, 1, 0, 0, 1 };
	char name[200];
	size_t len = 12;
	char *rest = name, *label;

	memcpy(out, head, 12);
	out[0] = (uint8_t)(number >> 8);
	out[1] = (uint8_t)number;
	snprintf(name, sizeof name, "n%u.%.150s", number, suffix);
	while ((label = strsep(&rest, "."))) {
		out[len] = (uint8_t)strlen(label);
		memcpy(out + len + 1, label, out[len]);
		len += 1u + out[len];
	}
	memcpy(out + len, "\0\0\1\0\1", 5);
	return len + 5;
}

/* HOST is the server, PORT the suffix of the names. */
static void flood_questions(
	const struct endpoint *to, const char *suffix, unsigned count, struct outcome *out)
{
	int fd = socket(to->addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int64_t since = now_us();
	unsigned sent = 0, answered = 0, good = 0;
	uint8_t message[512];

	if (fd < 0 || connect(fd, (const struct sockaddr *)&to->addr, to->len) < 0) {
		outcome_errno(out, since, errno);
		return;
	}
	while (sent < count && !is_over(since)) {
		for (int i = 0; i < 32 && sent < count; i++, sent++)
			if (send(fd, message, build_question(message, sent, suffix), 0) < 0)
				break;
		while (recv(fd, message, sizeof message, 0) > 0) {
			answered++;
			good += !(message[3] & 15) && message[7];
		}
	}
	usleep(100000);
	while (recv(fd, message, sizeof message, 0) > 0) {
		answered++;
		good += !(message[3] & 15) && message[7];
	}
	close(fd);
	outcome_refused(
		out, since, "%u asked, %u answered, %u with an address", sent, answered, good);
}

static void open_many(const struct endpoint *to, unsigned count, const void *data, size_t len,
	struct outcome *out)
{
	int64_t since = now_us();
	unsigned opened = 0, failed = 0, answered = 0;
	uint8_t byte;

	while (opened + failed < count && held_count < OPEN_MAX_FDS && !is_over(since)) {
		int fd = socket(to->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0)
			break;
		if (connect(fd, (const struct sockaddr *)&to->addr, to->len) < 0 &&
			errno != EINPROGRESS) {
			close(fd);
			failed++;
			continue;
		}
		held[held_count++] = fd;
		opened++;
	}
	usleep(50000);
	for (size_t i = 0; i < held_count && len; i++)
		send(held[i], data, len, MSG_NOSIGNAL);
	usleep(HOLD_MS * 1000);
	for (size_t i = 0; i < held_count; i++) {
		answered += recv(held[i], &byte, 1, MSG_DONTWAIT) == 1;
		close(held[i]);
	}
	outcome_refused(out, since, "%u opened, %u refused, %u answered", opened, failed, answered);
}

/* Connects one after the other to refused addresses: each must be logged, none may cost much. */
static void knock(const struct endpoint *to, unsigned count, int kind, struct outcome *out)
{
	int64_t since = now_us();
	struct endpoint each = *to;
	unsigned tried = 0, refused = 0;

	for (; tried < count && !is_over(since); tried++) {
		int fd = socket(to->addr.ss_family, kind | SOCK_CLOEXEC, 0);

		if (fd < 0)
			break;
		if (each.addr.ss_family == AF_INET)
			((struct sockaddr_in *)&each.addr)->sin_addr.s_addr =
				htonl(0x0a000000 | (tried & 0xffff));
		if (connect(fd, (const struct sockaddr *)&each.addr, each.len) < 0)
			refused++;
		else if (kind == SOCK_DGRAM)
			refused += send(fd, "evil", 4, 0) < 0;
		close(fd);
	}
	outcome_refused(out, since, "%u tried, %u refused", tried, refused);
}

static void send_datagrams(const struct endpoint *to, unsigned count, struct outcome *out)
{
	int64_t since = now_us();
	unsigned sent = 0, answered = 0;
	uint8_t byte[64];

	while (sent < count && held_count < OPEN_MAX_FDS && !is_over(since)) {
		int fd = socket(to->addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0)
			break;
		if (connect(fd, (const struct sockaddr *)&to->addr, to->len) == 0)
			sent += send(fd, "flow", 4, 0) == 4;
		held[held_count++] = fd;
	}
	usleep(HOLD_MS * 1000 / 2);
	for (size_t i = 0; i < held_count; i++) {
		answered += recv(held[i], byte, sizeof byte, 0) > 0;
		close(held[i]);
	}
	outcome_refused(out, since, "%u flows, %u answered", sent, answered);
}

void attack_flood(int argc, char **argv, struct outcome *out)
{
	struct rlimit files;
	struct endpoint to;
	unsigned count = (unsigned)atoi(argv[3]);
	const char *what = argv[0];
	bool questions = !strcmp(what, "questions");

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur =
			files.rlim_max < OPEN_MAX_FDS + 64 ? files.rlim_max : OPEN_MAX_FDS + 64;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (!endpoint_find(argv[1], questions ? "53" : argv[2], &to, out))
		return;
	if (questions)
		flood_questions(&to, argv[2], count, out);
	else if (!strcmp(what, "hold"))
		open_many(&to, count, "flood\n", 6, out);
	else if (!strcmp(what, "slow"))
		open_many(&to, count, "\x16\x03\x01\x02\x00\x01", 6, out);
	else if (!strcmp(what, "idle"))
		open_many(&to, count, "", 0, out);
	else if (!strcmp(what, "knock"))
		knock(&to, count, SOCK_STREAM, out);
	else if (!strcmp(what, "knock-udp"))
		knock(&to, count, SOCK_DGRAM, out);
	else if (!strcmp(what, "flows"))
		send_datagrams(&to, count, out);
	else
		outcome_through(out, 0, "no such flood: %s", what);
}
