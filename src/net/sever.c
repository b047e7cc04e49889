/* sever.c - see sever.h
 *
 * The kernel tells all TCP sockets of the namespace (sock_diag). A connection is within the box
 * when the socket of the other direction is there too, whatever the addresses: the box may speak to
 * itself by any of them. */
#include "net/sever.h"
#include "base/alloc.h"
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum { ANSWER_SIZE = 32 * 1024, SOCKETS_MAX = 1 << 20 };
#define STATES_CONNECTED (~((1u << TCP_LISTEN) | (1u << TCP_TIME_WAIT) | (1u << TCP_CLOSE)))

struct found {
	struct inet_diag_sockid *ids;
	uint8_t *families;
	size_t count;
};

static int ask(int fd, int family, struct err *err)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} question = {
		.head = { .nlmsg_len = sizeof question,
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.body = { .sdiag_family = (uint8_t)family,
			.sdiag_protocol = IPPROTO_TCP,
			.idiag_states = STATES_CONNECTED },
	};

	if (send(fd, &question, sizeof question, 0) < 0)
		return err_sys(err, errno, "ask for the connections of the box");
	return 0;
}

static int add(struct found *found, const struct inet_diag_msg *message, struct err *err)
{
	if (found->count >= SOCKETS_MAX)
		return err_set(err, ERR_LIMIT, "more than %d connections", SOCKETS_MAX);
	if (!(found->count & (found->count - 1))) {
		size_t room = MAX(found->count * 2, (size_t)16);

		xgrow(found->ids, room);
		xgrow(found->families, room);
	}
	found->ids[found->count] = message->id;
	found->families[found->count++] = message->idiag_family;
	return 0;
}

/* 1: it was the last message. */
static int take(struct found *found, const struct nlmsghdr *head, struct err *err)
{
	if (head->nlmsg_type == NLMSG_DONE)
		return 1;
	if (head->nlmsg_type == NLMSG_ERROR) {
		const struct nlmsgerr *refusal = NLMSG_DATA(head);

		return err_sys(err, -refusal->error, "list the connections of the box");
	}
	if (head->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
		return err_set(err, ERR_PROTOCOL, "the kernel described a socket incompletely");
	return add(found, NLMSG_DATA(head), err);
}

static int list(int fd, int family, struct found *found, struct err *err)
{
	char answer[ANSWER_SIZE] __attribute__((aligned(NLMSG_ALIGNTO)));

	if (ask(fd, family, err) < 0)
		return -1;
	for (;;) {
		ssize_t got = recv(fd, answer, sizeof answer, 0);
		int len = (int)got, status = 0;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return err_sys(
				err, got < 0 ? errno : EPROTO, "list the connections of the box");
		for (const struct nlmsghdr *head = (void *)answer; NLMSG_OK(head, len) && !status;
			head = NLMSG_NEXT(head, len))
			status = take(found, head, err);
		if (status)
			return status < 0 ? -1 : 0;
	}
}

/* One end as the other would name it: always as IPv6, because a listener of both families accepts
 * IPv4 as mapped addresses. */
struct end {
	uint32_t here[4], there[4];
	uint16_t here_port, there_port;
};

static void widen(uint32_t out[4], const uint32_t *address, uint8_t family)
{
	const uint32_t mapped[4] = { 0, 0, htonl(0xffff), address[0] };

	memcpy(out, family == AF_INET ? mapped : address, sizeof mapped);
}

static struct end end_of(const struct found *found, size_t i, bool other)
{
	const struct inet_diag_sockid *id = &found->ids[i];
	struct end end;

	memset(&end, 0, sizeof end);
	widen(end.here, other ? id->idiag_dst : id->idiag_src, found->families[i]);
	widen(end.there, other ? id->idiag_src : id->idiag_dst, found->families[i]);
	end.here_port = other ? id->idiag_dport : id->idiag_sport;
	end.there_port = other ? id->idiag_sport : id->idiag_dport;
	return end;
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct end));
}

static int destroy(int fd, const struct found *found, size_t i, struct err *err)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} order = {
		.head = { .nlmsg_len = sizeof order,
			.nlmsg_type = SOCK_DESTROY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.body = { .sdiag_family = found->families[i],
			.sdiag_protocol = IPPROTO_TCP,
			.idiag_states = ~0u,
			.id = found->ids[i] },
	};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr body;
		char rest[1024];
	} answer;

	if (send(fd, &order, sizeof order, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
		return err_sys(err, errno, "end a connection of the box");
	if (answer.head.nlmsg_type != NLMSG_ERROR || !answer.body.error ||
		answer.body.error == -ENOENT)
		return 0;
	err_sys(err, -answer.body.error, "end a connection of the box");
	if (err && answer.body.error == -EOPNOTSUPP)
		err->kind = ERR_UNSUPPORTED;
	return -1;
}

int sever_count(void *arg, struct err *err)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct found found = { 0 };
	int status = 0;

	if (fd < 0)
		return err_sys(err, errno, "socket for sock_diag");
	if (list(fd, AF_INET, &found, err) < 0 || list(fd, AF_INET6, &found, err) < 0)
		status = -1;
	*(size_t *)arg = found.count;
	free(found.ids);
	free(found.families);
	return status;
}

int sever_outside(void *arg, struct err *err)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct found found = { 0 };
	struct end *ends = NULL;
	size_t ended = 0;
	int status = 0;

	if (fd < 0)
		return err_sys(err, errno, "socket for sock_diag");
	if (list(fd, AF_INET, &found, err) < 0 || list(fd, AF_INET6, &found, err) < 0)
		status = -1;
	ends = xnewn(struct end, found.count + 1);
	for (size_t i = 0; i < found.count; i++)
		ends[i] = end_of(&found, i, false);
	qsort(ends, found.count, sizeof *ends, compare);
	for (size_t i = 0; i < found.count && status == 0; i++) {
		struct end other = end_of(&found, i, true);

		if (bsearch(&other, ends, found.count, sizeof *ends, compare))
			continue;
		status = destroy(fd, &found, i, err);
		ended++;
	}
	free(ends);
	free(found.ids);
	free(found.families);
	if (arg)
		*(size_t *)arg += ended;
	return status;
}
