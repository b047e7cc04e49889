/* endpoint.c - addresses, and connections with timing
 *
 * The gate may accept a connection of a box and close it a moment later, when it has seen the
 * first bytes. So a target counts as reached only when something came back. */
#include "attack/attacker.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int patience_ms = ANSWER_MS;

static bool parse_address(const char *host, uint16_t port, struct endpoint *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&ret->addr;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ret->addr;
	const char *percent = strchr(host, '%');
	char plain[64];

	memset(ret, 0, sizeof *ret);
	snprintf(plain, sizeof plain, "%.*s", percent ? (int)(percent - host) : 63, host);
	snprintf(ret->text, sizeof ret->text, "%.60s", host);
	if (inet_pton(AF_INET, plain, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		ret->len = sizeof *v4;
		return true;
	}
	if (inet_pton(AF_INET6, plain, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		v6->sin6_scope_id = percent ? if_nametoindex(percent + 1) : 0;
		ret->len = sizeof *v6;
		return true;
	}
	return false;
}

/* "6:NAME" resolves to an IPv6 address. */
bool endpoint_find(const char *host, const char *port, struct endpoint *ret, struct outcome *out)
{
	uint16_t number = (uint16_t)atoi(port);
	int type = !strncmp(host, "6:", 2) ? DNS_AAAA : DNS_A;

	if (parse_address(host, number, ret))
		return true;
	if (!dns_resolve(type == DNS_AAAA ? host + 2 : host, type, ret, out))
		return false;
	if (ret->addr.ss_family == AF_INET)
		((struct sockaddr_in *)&ret->addr)->sin_port = htons(number);
	else
		((struct sockaddr_in6 *)&ret->addr)->sin6_port = htons(number);
	outcome_detail(out, "%.80s is %s", host, ret->text);
	return true;
}

int endpoint_connect(const struct endpoint *to, struct outcome *out)
{
	int fd = socket(to->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int64_t since = now_us();
	int error = 0;
	socklen_t len = sizeof error;

	if (fd < 0) {
		outcome_errno(out, since, errno);
		return -1;
	}
	if (connect(fd, (const struct sockaddr *)&to->addr, to->len) < 0) {
		struct pollfd one = { .fd = fd, .events = POLLOUT };

		error = errno;
		if (error == EINPROGRESS) {
			error = ETIMEDOUT;
			if (poll(&one, 1, 1500) == 1)
				getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
		}
	}
	if (error) {
		outcome_errno(out, since, error);
		close(fd);
		return -1;
	}
	return fd;
}

bool send_all(int fd, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);
		struct pollfd one = { .fd = fd, .events = POLLOUT };

		if (sent < 0 && errno == EAGAIN && poll(&one, 1, ANSWER_MS) == 1)
			continue;
		if (sent <= 0)
			return false;
		at += sent;
		len -= (size_t)sent;
	}
	return true;
}

size_t receive_all(int fd, uint8_t *buf, size_t max,
	bool (*is_enough)(const uint8_t *, size_t, void *), void *arg, int *ret_error)
{
	size_t len = 0;

	*ret_error = 0;
	while (len < max && !(len && is_enough(buf, len, arg))) {
		struct pollfd one = { .fd = fd, .events = POLLIN };
		ssize_t got;

		if (poll(&one, 1, len ? ANSWER_MS / 4 : ANSWER_MS) != 1) {
			*ret_error = EAGAIN;
			break;
		}
		got = recv(fd, buf + len, max - len, 0);
		if (got < 0 && errno == EAGAIN)
			continue;
		if (got < 0)
			*ret_error = errno;
		if (got <= 0)
			break;
		len += (size_t)got;
	}
	return len;
}

void exchange(int fd, const void *data, size_t len, struct outcome *out)
{
	int64_t since = now_us();
	struct pollfd one = { .fd = fd, .events = POLLIN };
	uint8_t buf[512];
	ssize_t got;

	if (len && !send_all(fd, data, len)) {
		outcome_errno(out, since, errno);
		return;
	}
	if (poll(&one, 1, patience_ms) != 1) {
		outcome_refused(out, since, "no answer");
		out->silent = true;
		return;
	}
	got = recv(fd, buf, sizeof buf - 1, 0);
	if (got > 0) {
		buf[got] = '\0';
		outcome_through(out, since, "answered");
		outcome_detail(out, "got '%.100s'", (char *)buf);
	} else if (got == 0) {
		outcome_refused(out, since, "closed");
	} else {
		outcome_errno(out, since, errno);
	}
}
