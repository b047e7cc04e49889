/* control_socket.c - see control.h; by sock_diag and /proc, in a process of its own */
#include "guest/control.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#ifndef SOCK_DESTROY
#define SOCK_DESTROY 21
#endif

enum { ANSWER_MAX = 32 * 1024, PROCESSES_MAX = 65536, FILES_MAX = 65536 };

struct request {
	struct nlmsghdr head;
	struct inet_diag_req_v2 diag;
};

typedef void (*diag_fn)(const struct inet_diag_msg *message, void *arg);

static int open_diag(struct err *err)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	return fd < 0 ? err_sys(err, errno, "ask for sockets") : fd;
}

/* All sockets of a family and protocol. */
static void dump(int fd, uint8_t family, uint8_t protocol, diag_fn fn, void *arg)
{
	static uint8_t answer[ANSWER_MAX];
	struct request request = {
		.head = { .nlmsg_len = sizeof request,
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.diag = { .sdiag_family = family,
			.sdiag_protocol = protocol,
			.idiag_states = protocol == IPPROTO_TCP ? ~(1u << TCP_LISTEN) : ~0u },
	};
	ssize_t got;

	if (send(fd, &request, sizeof request, 0) < 0)
		return;
	while ((got = recv(fd, answer, sizeof answer, 0)) > 0) {
		const struct nlmsghdr *head = (const struct nlmsghdr *)answer;
		unsigned left = (unsigned)got;

		for (; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
			if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR)
				return;
			if (head->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
				fn(NLMSG_DATA(head), arg);
		}
	}
}

/* ---- who has a socket ----------------------------------------------------------------------- */

struct wanted {
	const struct control_flow *flow;
	uint32_t inode, uid;
	bool found;
};

static bool same_address(const struct control_flow *flow, const uint32_t theirs[4],
	const uint8_t ours[16], uint8_t family)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *bytes = (const uint8_t *)theirs;

	if (flow->family == 6)
		return family == AF_INET6 && !memcmp(bytes, ours, 16);
	/* A socket of both families has it as ::ffff:a.b.c.d. */
	if (family == AF_INET6)
		return !memcmp(bytes, mapped, sizeof mapped) && !memcmp(bytes + 12, ours, 4);
	return !memcmp(bytes, ours, 4);
}

static void is_wanted(const struct inet_diag_msg *message, void *arg)
{
	struct wanted *wanted = arg;
	const struct control_flow *flow = wanted->flow;
	const struct inet_diag_sockid *id = &message->id;
	uint8_t family = message->idiag_family;
	/* One of UDP that is not connected has neither. */
	bool to_any = flow->protocol == IPPROTO_UDP && !id->idiag_dport;

	if (wanted->found || ntohs(id->idiag_sport) != flow->from_port || !message->idiag_inode)
		return;
	if (!to_any && (ntohs(id->idiag_dport) != flow->to_port ||
			       !same_address(flow, id->idiag_dst, flow->to, family) ||
			       !same_address(flow, id->idiag_src, flow->from, family)))
		return;
	wanted->inode = message->idiag_inode;
	wanted->uid = message->idiag_uid;
	wanted->found = true;
}

static bool has_socket(int process, uint32_t inode)
{
	int dir = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = dir < 0 ? NULL : fdopendir(dir);
	char wanted[32], target[32];
	struct dirent *entry;
	bool found = false;

	snprintf(wanted, sizeof wanted, "socket:[%u]", inode);
	for (int i = 0; list && !found && i < FILES_MAX && (entry = readdir(list)); i++) {
		ssize_t len = readlinkat(dir, entry->d_name, target, sizeof target - 1);

		target[MAX(len, 0)] = '\0';
		found = !strcmp(target, wanted);
	}
	if (list)
		closedir(list);
	return found;
}

/* Reading it takes a lock of the process, which may be held: we are a process of our own. */
static void read_command(int process, char *ret, size_t size)
{
	_cleanup_close_ int fd = openat(process, "cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, ret, size - 1);

	len = MAX(len, 0);
	while (len && !ret[len - 1])
		len--;
	ret[len] = '\0';
	for (ssize_t i = 0; i < len; i++)
		if (!ret[i])
			ret[i] = ' ';
}

static void describe(int process, struct control_socket_owner *ret)
{
	_cleanup_close_ int fd = openat(process, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, ret->comm, sizeof ret->comm - 1);

	ret->comm[MAX(len, 0)] = '\0';
	ret->comm[strcspn(ret->comm, "\n")] = '\0';
	read_command(process, ret->command, sizeof ret->command);
}

static void find_process(uint32_t inode, struct control_socket_owner *ret)
{
	DIR *list = opendir("/proc");
	struct dirent *entry;

	for (int i = 0; list && i < PROCESSES_MAX && (entry = readdir(list)); i++) {
		_cleanup_close_ int process = -1;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
			continue;
		process = openat(dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (process < 0 || !has_socket(process, inode))
			continue;
		ret->who.pid = (uint32_t)strtoul(entry->d_name, NULL, 10);
		describe(process, ret);
		break;
	}
	if (list)
		closedir(list);
}

int control_find_owner(
	const struct control_flow *flow, struct control_socket_owner *ret, struct err *err)
{
	_cleanup_close_ int fd = open_diag(err);
	struct wanted wanted = { .flow = flow };

	if (fd < 0)
		return -1;
	*ret = (struct control_socket_owner){ 0 };
	ret->who.comm = ret->comm;
	ret->who.command = ret->command;
	if (flow->family == 4)
		dump(fd, AF_INET, flow->protocol, is_wanted, &wanted);
	if (!wanted.found)
		dump(fd, AF_INET6, flow->protocol, is_wanted, &wanted);
	if (!wanted.found)
		return 0;
	ret->who.uid = wanted.uid;
	find_process(wanted.inode, ret);
	return 0;
}

/* ---- connections of the past ---------------------------------------------------------------- */

/* Connections by eth0 have its address on this side; one with that on both sides, or to a bridge of
 * the box's containers, stays in the machine. */
static bool leads_out(const struct inet_diag_msg *message)
{
	static const uint8_t v4[4] = { 198, 18, 0, 2 };
	static const uint8_t v6[16] = { 0xfd, 0x62, 0x6f, 0x78, 0x79, 0x61, 0x72, 0x64, [15] = 2 };
	const struct in6_addr *from = (const struct in6_addr *)message->id.idiag_src;
	bool mapped = message->idiag_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(from);
	const uint8_t *own = message->idiag_family == AF_INET || mapped ? v4 : v6;
	size_t at = mapped ? 12 : 0, len = own == v4 ? 4 : 16;

	return !memcmp((const uint8_t *)message->id.idiag_src + at, own, len) &&
	       memcmp((const uint8_t *)message->id.idiag_dst + at, own, len) != 0;
}

/* By a socket of its own: the other one is being read. */
static void end_connection(const struct inet_diag_msg *message, void *arg)
{
	struct request request = {
		.head = { .nlmsg_len = sizeof request,
			.nlmsg_type = SOCK_DESTROY,
			.nlmsg_flags = NLM_F_REQUEST },
		.diag = { .sdiag_family = message->idiag_family,
			.sdiag_protocol = IPPROTO_TCP,
			.id = message->id },
	};

	if (leads_out(message))
		(void)!send(*(const int *)arg, &request, sizeof request, 0);
}

static void note_connection(const struct inet_diag_msg *message, void *arg)
{
	*(bool *)arg |= leads_out(message);
}

bool control_has_connections(void)
{
	_cleanup_close_ int fd = open_diag(NULL);
	bool found = false;

	if (fd < 0)
		return true;
	dump(fd, AF_INET, IPPROTO_TCP, note_connection, &found);
	dump(fd, AF_INET6, IPPROTO_TCP, note_connection, &found);
	return found;
}

void control_end_connections(void)
{
	_cleanup_close_ int fd = open_diag(NULL), second = open_diag(NULL);

	if (fd < 0 || second < 0)
		return;
	dump(fd, AF_INET, IPPROTO_TCP, end_connection, &second);
	dump(fd, AF_INET6, IPPROTO_TCP, end_connection, &second);
}
