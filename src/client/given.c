/* given.c - see given.h */
#include "client/given.h"
#include "base/alloc.h"
#include "base/text.h"
#include "sys/fdpass.h"
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define PREFIX "fd://"

static bool is_packet_socket(int fd)
{
	int type = 0, domain = 0;
	socklen_t len = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_SEQPACKET &&
	       getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

int given_read(char **ret, struct err *err)
{
	const char *value = getenv(GIVEN_VARIABLE);
	uint64_t fd;

	if (!value || !*value) {
		*ret = NULL;
		return 0;
	}
	if (parse_u64(GIVEN_VARIABLE, value, 3, INT_MAX, &fd, err) < 0)
		return -1;
	if (!is_packet_socket((int)fd))
		return err_set(err, ERR_INVALID,
			GIVEN_VARIABLE ": descriptor %d is no socket of the daemon", (int)fd);
	*ret = xasprintf(PREFIX "%d", (int)fd);
	return 0;
}

bool given_is(const char *target)
{
	return text_has_prefix(target, PREFIX);
}

static int gone(struct err *err)
{
	return err_set(err, ERR_UNAVAILABLE, "the daemon has ended");
}

/* 1: the connection that came is closed already. An asker that was killed leaves its answer to the
 * next one, and the daemon does not keep a silent connection for long. */
static int take_answer(int fd, int *ret_fd, struct err *err)
{
	char answer[GIVEN_TEXT_MAX + 1] = "";
	_cleanup_close_ int connection = -1;
	struct pollfd watch;
	struct fdpass pass;
	ssize_t got;

	got = fdpass_receive(fd, answer, sizeof answer - 1, &connection, 1, 0, &pass);
	if (got <= 0)
		return gone(err);
	if (answer[0] == GIVEN_NO)
		return err_set(err, ERR_LIMIT, "%s", answer + 1);
	if (answer[0] != GIVEN_YES || pass.count != 1)
		return err_set(err, ERR_PROTOCOL, "the daemon gave no connection");
	watch = (struct pollfd){ .fd = connection, .events = POLLIN };
	if (poll(&watch, 1, 0) > 0)
		return 1;
	*ret_fd = steal_fd(&connection);
	return 0;
}

int given_fd(const char *target)
{
	return given_is(target) ? atoi(target + strlen(PREFIX)) : -1;
}

int given_dial(const char *target, int *ret_fd, struct err *err)
{
	int fd = given_fd(target), result;

	do {
		const char ask = GIVEN_ASK;

		if (send(fd, &ask, 1, MSG_NOSIGNAL) != 1)
			return gone(err);
		result = take_answer(fd, ret_fd, err);
	} while (result > 0);
	return result;
}
