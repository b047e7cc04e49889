/* socket_owner.c - see socket_owner.h
 *
 * A request to the kernel with all four numbers of a connection is answered from its hash table.
 * Without the far address it must be a dump filtered by port. TCP wants the socket's own end as
 * source; UDP, for historical reasons, the other way round. Only the netlink socket is made in the
 * box's namespace; it stays there when we are back. */
#include "core/boxnet/socket_owner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>

enum {
	ANSWER_MAX = 32 * 1024,
	ANSWERS_MAX = 64, /* of a dump; more sockets with one port make no sense */
	LISTEN = 10,	  /* TCP_LISTEN, TCP_TIME_WAIT of the kernel */
	TIME_WAIT = 6,
	STATUS_MAX = 4096,
};

/* ---- the socket ----------------------------------------------------------------------------- */

struct question {
	uint8_t protocol;
	uint8_t family;
	const struct doors_endpoint *from, *to;
	bool found;
	ino_t inode;
	uid_t uid;
};

/* A process that cannot come back would do everything in the wrong namespace: it ends. */
static int open_diag(int netns, struct err *err)
{
	_cleanup_close_ int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int fd, why;

	if (home < 0)
		return err_sys(err, errno, "open the own network namespace");
	if (setns(netns, CLONE_NEWNET) < 0)
		return err_sys(err, errno, "enter the network namespace of a box");
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	why = errno;
	if (setns(home, CLONE_NEWNET) < 0) {
		log_error("cannot come back from the network namespace of a box");
		abort();
	}
	if (fd < 0)
		return err_sys(err, why, "ask for sockets");
	return fd;
}

static void put_address(__be32 out[4], const struct address *address)
{
	memcpy(out, address->bytes, address->family == 4 ? 4 : 16);
}

static int send_question(int fd, const struct question *question, bool dump, struct err *err)
{
	const struct doors_endpoint *from = question->from, *to = question->to;
	bool swap = question->protocol == IPPROTO_UDP && !dump;
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 body;
	} request = {
		.head = { .nlmsg_len = sizeof request,
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | (dump ? NLM_F_DUMP : 0)) },
		.body = { .sdiag_family = question->family,
			.sdiag_protocol = question->protocol,
			.idiag_states = question->protocol == IPPROTO_UDP
						? ~0U
						: ~(1U << LISTEN | 1U << TIME_WAIT) },
	};
	struct inet_diag_sockid *id = &request.body.id;

	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	id->idiag_sport = htons(swap ? to->port : from->port);
	/* An unconnected datagram socket has no far port. */
	if (!dump || question->protocol == IPPROTO_TCP)
		id->idiag_dport = htons(swap ? from->port : to->port);
	if (!dump) {
		put_address(id->idiag_src, swap ? &to->address : &from->address);
		put_address(id->idiag_dst, swap ? &from->address : &to->address);
	}
	if (send(fd, &request, sizeof request, 0) < 0)
		return err_sys(err, errno, "ask for a socket");
	return 0;
}

static bool is_any(const struct address *address)
{
	static const uint8_t zero[16];

	return !memcmp(address->bytes, zero, sizeof zero);
}

/* A dual-stack socket shows IPv4 as ::ffff:a.b.c.d. */
static struct address address_of(const struct inet_diag_msg *found)
{
	const uint8_t *bytes = (const uint8_t *)found->id.idiag_src;
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (found->idiag_family == AF_INET)
		return address_v4(bytes);
	if (!memcmp(bytes, mapped, sizeof mapped))
		return address_v4(bytes + 12);
	return address_v6(bytes);
}

/* Whether found is the wanted socket: a dump returns every socket with the port, and exact answers
 * are checked too. */
static bool is_asked_for(const struct question *question, const struct inet_diag_msg *found)
{
	struct address own = address_of(found);
	uint16_t far = ntohs(found->id.idiag_dport);

	if (!found->idiag_inode || ntohs(found->id.idiag_sport) != question->from->port)
		return false;
	if (question->protocol == IPPROTO_UDP)
		return (is_any(&own) || address_equal(&own, &question->from->address)) &&
		       (!far || far == question->to->port);
	return found->idiag_state != LISTEN && found->idiag_state != TIME_WAIT &&
	       far == question->to->port && address_equal(&own, &question->from->address);
}

/* False: the answer is complete. */
static bool take_answer(struct question *question, const char *data, size_t len)
{
	const struct nlmsghdr *head = (const struct nlmsghdr *)(const void *)data;

	for (; NLMSG_OK(head, len); head = NLMSG_NEXT(head, len)) {
		const struct inet_diag_msg *found = NLMSG_DATA(head);

		if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
			head->nlmsg_len < NLMSG_LENGTH(sizeof *found))
			return false;
		if (!is_asked_for(question, found))
			continue;
		question->found = true;
		question->inode = found->idiag_inode;
		question->uid = found->idiag_uid;
		return false;
	}
	return true;
}

static int ask_for(int netns, struct question *question, bool dump, struct err *err)
{
	_cleanup_close_ int fd = open_diag(netns, err);
	_cleanup_free_ char *data = xcalloc(1, ANSWER_MAX);
	int64_t till = clock_mono_us() + SOCKET_OWNER_MS_MAX * 1000;
	bool more = true;

	if (fd < 0 || send_question(fd, question, dump, err) < 0)
		return -1;
	for (int i = 0; more && i < ANSWERS_MAX && (!i || clock_mono_us() < till); i++) {
		ssize_t len = recv(fd, data, ANSWER_MAX, MSG_DONTWAIT);

		more = len > 0 && take_answer(question, data, (size_t)len) && dump;
	}
	return 0;
}

int socket_owner_find(int netns, uint8_t protocol, const struct doors_endpoint *from,
	const struct doors_endpoint *to, ino_t *ret_inode, uid_t *ret_uid, struct err *err)
{
	struct question question = { .protocol = protocol,
		.family = from->address.family == 4 ? AF_INET : AF_INET6,
		.from = from,
		.to = to };
	bool dump = !to->address.family;

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return err_set(err, ERR_UNSUPPORTED, "only TCP and UDP have sockets to ask for");
	if (ask_for(netns, &question, dump, err) < 0)
		return -1;
	/* A dump lists sockets by the family they were made with: IPv4 may go through an IPv6
	 * socket. */
	if (dump && !question.found && question.family == AF_INET) {
		question.family = AF_INET6;
		if (ask_for(netns, &question, dump, err) < 0)
			return -1;
	}
	if (!question.found)
		return err_set(err, ERR_NOT_FOUND, "the socket is gone");
	*ret_inode = question.inode;
	*ret_uid = question.uid;
	return 0;
}

/* ---- its owner ------------------------------------------------------------------------------ */

struct search {
	char link[40]; /* "socket:[INODE]" */
	size_t fds;
	int64_t till;
};

static bool holds(struct search *search, int proc)
{
	int copy = openat(proc, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	bool found = false;

	if (!dir) {
		cleanup_closep(&copy);
		return false;
	}
	while (!found && search->fds < SOCKET_OWNER_FDS_MAX && clock_mono_us() < search->till &&
		(entry = readdir(dir))) {
		char link[sizeof search->link];
		ssize_t len;

		if (entry->d_name[0] == '.')
			continue;
		search->fds++;
		len = readlinkat(dirfd(dir), entry->d_name, link, sizeof link);
		found = len == (ssize_t)strlen(search->link) &&
			!memcmp(link, search->link, (size_t)len);
	}
	closedir(dir);
	return found;
}

static bool read_proc(int proc, const char *name, char text[STATUS_MAX])
{
	_cleanup_close_ int fd = openat(proc, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, STATUS_MAX - 1);

	text[MAX(len, 0)] = '\0';
	return len > 0;
}

/* The second number after a key of /proc/PID/status; the first when there is no second. */
static bool second_number(const char *status, const char *key, long *ret)
{
	const char *line = strstr(status, key);

	if (!line)
		return false;
	return sscanf(line + strlen(key), "%ld %ld", ret, ret) >= 1;
}

/* map has "inside outside count" lines. */
static long uid_inside(const char *map, long outside)
{
	long in, out, count;
	int used;

	for (; sscanf(map, "%ld %ld %ld%n", &in, &out, &count, &used) == 3; map += used)
		if (outside >= out && outside - out < count)
			return in + (outside - out);
	return outside;
}

static json_t *about(int proc, int64_t till)
{
	char text[STATUS_MAX], command[SOCKET_OWNER_COMMAND_MAX + 1];
	long pid, uid;

	/* NSpid: as we see it, as the box does, as nested boxes do. Uid: real, effective. */
	if (!read_proc(proc, "status", text) || !second_number(text, "\nNSpid:", &pid) ||
		!second_number(text, "\nUid:", &uid))
		return NULL;
	if (read_proc(proc, "uid_map", text))
		uid = uid_inside(text, uid);
	socket_owner_command(proc, till, command);
	return json_pack("{s:I,s:I,s:s}", "pid", (json_int_t)pid, "uid", (json_int_t)uid, "command",
		command);
}

json_t *socket_owner_holds(ino_t inode, const pid_t *pids, size_t count)
{
	struct search search = { .till = clock_mono_us() + SOCKET_OWNER_MS_MAX * 1000 };

	snprintf(search.link, sizeof search.link, "socket:[%llu]", (unsigned long long)inode);
	count = MIN(count, SOCKET_OWNER_PIDS_MAX);
	/* Last first: a process that connects was often started lately. */
	for (size_t i = count; i-- && clock_mono_us() < search.till;) {
		char path[32];
		_cleanup_close_ int proc = -1;

		snprintf(path, sizeof path, "/proc/%d", (int)pids[i]);
		proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (proc >= 0 && holds(&search, proc))
			return about(proc, search.till);
	}
	return NULL;
}

/* ---- events --------------------------------------------------------------------------------- */

/* "192.0.2.1:80" or "[2001:db8::1]:80". */
static bool read_endpoint(const char *text, struct doors_endpoint *ret)
{
	char address[ADDRESS_TEXT_MAX + 2];
	const char *colon = text ? strrchr(text, ':') : NULL;
	size_t len = colon ? (size_t)(colon - text) : 0;
	bool brackets = len > 2 && text[0] == '[' && text[len - 1] == ']';
	uint64_t port;

	if (!len || len >= sizeof address ||
		parse_u64("port", colon + 1, 1, 65535, &port, NULL) < 0)
		return false;
	snprintf(address, sizeof address, "%.*s", (int)(len - (brackets ? 2 : 0)), text + brackets);
	ret->port = (uint16_t)port;
	return address_parse(address, &ret->address);
}

static bool read_far_end(const json_t *event, struct doors_endpoint *ret)
{
	const char *address = json_string_value(json_object_get(event, "address"));
	json_int_t port = json_integer_value(json_object_get(event, "port"));

	*ret = (struct doors_endpoint){ 0 };
	if (read_endpoint(json_string_value(json_object_get(event, "to")), ret))
		return true;
	*ret = (struct doors_endpoint){ .port = (uint16_t)port };
	/* With a name, the address is where the name led, not what the box sees. */
	if (address && !json_object_get(event, "name"))
		address_parse(address, &ret->address);
	return port > 0 && port <= UINT16_MAX;
}

bool socket_owner_read_event(const json_t *event, uint8_t *ret_protocol,
	struct doors_endpoint *ret_from, struct doors_endpoint *ret_to)
{
	const char *protocol = json_string_value(json_object_get(event, "protocol"));

	if (protocol && !strcmp(protocol, "tcp"))
		*ret_protocol = IPPROTO_TCP;
	else if (protocol && !strcmp(protocol, "udp"))
		*ret_protocol = IPPROTO_UDP;
	else
		return false;
	return read_endpoint(json_string_value(json_object_get(event, "from")), ret_from) &&
	       read_far_end(event, ret_to);
}

json_t *socket_owner_of_event(int netns, const json_t *event, const pid_t *pids, size_t count)
{
	struct doors_endpoint from, to;
	uint8_t number;
	ino_t inode;
	uid_t uid;

	if (!socket_owner_read_event(event, &number, &from, &to))
		return NULL;
	if (socket_owner_find(netns, number, &from, &to, &inode, &uid, NULL) < 0)
		return NULL;
	return socket_owner_holds(inode, pids, count);
}
