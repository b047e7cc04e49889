/* talk.c - TCP, UDP and local sockets as programs use them; malformed HTTP */
#include "attack/attacker.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

void attack_connect(int argc, char **argv, struct outcome *out)
{
	struct endpoint to;
	int fd;

	if (!endpoint_find(argv[0], argv[1], &to, out))
		return;
	fd = endpoint_connect(&to, out);
	if (fd < 0)
		return;
	exchange(fd, "evil\n", 5, out);
	close(fd);
}

void attack_datagram(int argc, char **argv, struct outcome *out)
{
	struct endpoint to;
	int64_t since = now_us();
	int fd;

	if (!endpoint_find(argv[0], argv[1], &to, out))
		return;
	fd = socket(to.addr.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &(int){ 1 }, sizeof(int));
	if (fd < 0 || connect(fd, (struct sockaddr *)&to.addr, to.len) < 0)
		outcome_errno(out, since, errno);
	else
		/* A QUIC version 1 Initial begins like this; who is no QUIC server echoes it all
		 * the same. */
		exchange(fd,
			"\xc3\x00\x00\x00\x01\x08"
			"evilevil",
			14, out);
	if (fd >= 0)
		close(fd);
}

static size_t count_answers(const uint8_t *text, size_t len)
{
	const uint8_t *end = text + len;
	size_t count = 0;

	while ((text = memmem(text, (size_t)(end - text), "HTTP/1.1 ", 9))) {
		count++;
		text += 9;
	}
	return count;
}

static bool has_answers(const uint8_t *text, size_t len, void *arg)
{
	return count_answers(text, len) >= *(size_t *)arg;
}

/* Each text is one write; an empty one is a pause, longer than the gate waits for incomplete
 * input. Succeeds when ANSWERS responses came. */
void attack_send(int argc, char **argv, struct outcome *out)
{
	static uint8_t buf[TEXT_MAX];
	struct endpoint to;
	int64_t since = now_us();
	size_t len, answers, wanted = (size_t)atoi(argv[2]);
	int fd, error;

	if (!endpoint_find(argv[0], argv[1], &to, out) || (fd = endpoint_connect(&to, out)) < 0)
		return;
	for (int i = 3; i < argc; i++) {
		if (i > 3)
			usleep(*argv[i] ? 20000 : 250000);
		if (!send_all(fd, buf, unescape(argv[i], buf, sizeof buf)))
			break;
	}
	len = receive_all(fd, buf, sizeof buf, has_answers, &wanted, &error);
	answers = count_answers(buf, len);
	close(fd);
	if (answers >= wanted)
		outcome_through(out, since, "%zu answers", answers);
	else if (error && error != EAGAIN)
		outcome_errno(out, since, error);
	else
		outcome_refused(out, since, error ? "no answer" : "closed");
	out->silent = out->refused && error == EAGAIN;
	outcome_detail(out, "%zu answers", answers);
}

/* Abstract sockets belong to a network namespace, not to a file system. */
void attack_unix(int argc, char **argv, struct outcome *out)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int64_t since = now_us();
	size_t len = strlen(argv[0]);

	memcpy(name.sun_path + 1, argv[0],
		len < sizeof name.sun_path - 1 ? len : sizeof name.sun_path - 1);
	if (fd < 0 || connect(fd, (struct sockaddr *)&name,
			      (socklen_t)(sizeof name.sun_family + 1 + len)) < 0)
		outcome_errno(out, since, errno);
	else
		exchange(fd, "evil\n", 5, out);
	if (fd >= 0)
		close(fd);
}
