/* fdpass.c - see fdpass.h */
#include "sys/fdpass.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union space {
	char bytes[CMSG_SPACE(sizeof(int) * FDPASS_MAX)];
	struct cmsghdr align;
};

ssize_t fdpass_send(
	int socket, const void *data, size_t len, const int *fds, size_t count, int flags)
{
	struct iovec part = { (void *)data, len };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	union space space;

	assert(count <= FDPASS_MAX);
	if (count) {
		struct cmsghdr *head = &space.align;

		memset(&space, 0, CMSG_SPACE(sizeof(int) * count));
		message.msg_control = &space;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(head), fds, sizeof(int) * count);
	}
	return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

ssize_t fdpass_receive(
	int socket, void *data, size_t len, int *fds, size_t room, int flags, struct fdpass *ret)
{
	struct iovec part = { data, len };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct cmsghdr *head;
	union space space;
	ssize_t got;

	assert(room <= FDPASS_MAX);
	*ret = (struct fdpass){ 0 };
	do {
		message.msg_control = &space;
		/* CMSG_LEN, not CMSG_SPACE: into the padding that CMSG_SPACE adds, the kernel would
		 * put one more fd. */
		message.msg_controllen = CMSG_LEN(sizeof(int) * room);
		got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -1;
	ret->cut = message.msg_flags & MSG_TRUNC;
	ret->lost = message.msg_flags & MSG_CTRUNC;
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		ret->count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(head), sizeof(int) * ret->count);
	}
	return got;
}

void fdpass_close(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}
