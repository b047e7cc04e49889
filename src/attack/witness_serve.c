/* witness_serve.c - the sockets of a witness, and what it answers
 *
 * One epoll loop. Each descriptor has a row that says what it is; connections are identified by
 * the port they came to. The record is returned on request, after everything in transit has been
 * read. */
#include "attack/witness_internal.h"
#include "base/file.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/un.h>

enum {
	FDS_MAX = 16384,
	EVENTS = 64,
	CHUNK = 16384,
	QUIET_MS = 4, /* after this time without input, everything sent before has arrived */
};

enum kind {
	KIND_NONE,
	KIND_CONTROL,
	KIND_PACKETS,
	KIND_LISTENER,
	KIND_UDP,
	KIND_UNIX,
	KIND_CONNECTION
};

static struct row {
	uint8_t kind;
	bool broken;  /* sent no HTTP on an HTTP port */
	uint8_t tail; /* how much of "\r\n\r\n" the last bytes matched */
	uint16_t port;
	char where[WITNESS_TEXT];
} rows[FDS_MAX];

static int poller = -1;
static int control_fd = -1;
static struct record record;

/* ---- the record ----------------------------------------------------------------------------- */

void record_add(struct record *to, const char *fmt, ...)
{
	char line[WITNESS_DATA_MAX + 200];
	va_list args;

	if (to->text.len > WITNESS_RECORD_MAX) {
		to->lost++;
		return;
	}
	va_start(args, fmt);
	vsnprintf(line, sizeof line, fmt, args);
	va_end(args);
	buf_addf(&to->text, "%s\n", line);
}

void record_data(struct record *to, const char *where, const uint8_t *data, size_t len)
{
	char text[WITNESS_DATA_MAX + 1];
	size_t used = MIN(len, (size_t)WITNESS_DATA_MAX);

	for (size_t i = 0; i < used; i++)
		text[i] = (char)(data[i] >= 0x20 && data[i] < 0x7f ? data[i] : '.');
	text[used] = '\0';
	record_add(to, "data %s %s", where, text);
}

static void hand_over(void)
{
	uint32_t len;

	if (record.lost)
		buf_addf(&record.text, "lost %llu\n", (unsigned long long)record.lost);
	len = (uint32_t)record.text.len;
	if (fd_write_all(control_fd, &len, sizeof len, NULL) < 0 ||
		(len && fd_write_all(control_fd, buf_head(&record.text), len, NULL) < 0))
		_exit(0);
	buf_eat(&record.text, record.text.len);
	record.lost = 0;
}

/* ---- sockets -------------------------------------------------------------------------------- */

static int watch(int fd, enum kind kind, uint16_t port, struct err *err)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (fd >= FDS_MAX)
		return err_set(err, ERR_LIMIT, "too many connections");
	if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0)
		return err_sys(err, errno, "epoll_ctl");
	rows[fd] = (struct row){ .kind = kind, .port = port };
	return 0;
}

static int open_port(uint16_t port, int type, struct err *err)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	_cleanup_close_ int fd = socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, off = 0;

	if (fd < 0)
		return err_sys(err, errno, "socket");
	setsockopt(fd, SOL_IPV6, IPV6_V6ONLY, &off, sizeof off);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(fd, SOL_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
	setsockopt(fd, SOL_IPV6, IPV6_FREEBIND, &on,
		sizeof on); /* answers from addresses on no interface */
	if (bind(fd, (struct sockaddr *)&any, sizeof any) < 0 ||
		(type == SOCK_STREAM && listen(fd, 1024) < 0))
		return err_sys(err, errno, "listen on port %u", port);
	if (watch(fd, type == SOCK_STREAM ? KIND_LISTENER : KIND_UDP, port, err) < 0)
		return -1;
	steal_fd(&fd);
	return 0;
}

static int open_packets(const char *link, struct err *err)
{
	struct sockaddr_ll where = { .sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex(link) };
	_cleanup_close_ int fd =
		socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
	int size = 8 * 1024 * 1024;

	if (fd < 0)
		return err_sys(err, errno, "packet socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
	if (bind(fd, (struct sockaddr *)&where, sizeof where) < 0)
		return err_sys(err, errno, "look at '%s'", link);
	if (watch(fd, KIND_PACKETS, 0, err) < 0)
		return -1;
	steal_fd(&fd);
	return 0;
}

static int open_unix(const char *name, struct err *err)
{
	struct sockaddr_un where = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	size_t len = MIN(strlen(name), sizeof where.sun_path - 1);

	memcpy(where.sun_path + 1, name, len);
	if (fd < 0 ||
		bind(fd, (struct sockaddr *)&where,
			(socklen_t)(sizeof where.sun_family + 1 + len)) < 0 ||
		listen(fd, 64) < 0)
		return err_sys(err, errno, "abstract socket '%s'", name);
	if (watch(fd, KIND_UNIX, 0, err) < 0)
		return -1;
	steal_fd(&fd);
	return 0;
}

int serve_open(const struct witness_spec *spec, int control, struct err *err)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = MIN(files.rlim_max, (rlim_t)FDS_MAX);
		setrlimit(RLIMIT_NOFILE, &files);
	}
	control_fd = control;
	poller = epoll_create1(EPOLL_CLOEXEC);
	if (poller < 0)
		return err_sys(err, errno, "epoll_create1");
	if (watch(control, KIND_CONTROL, 0, err) < 0)
		return -1;
	for (const uint16_t *port = spec->ports; *port; port++)
		if (open_port(*port, SOCK_STREAM, err) < 0 || open_port(*port, SOCK_DGRAM, err) < 0)
			return -1;
	if (spec->link && open_packets(spec->link, err) < 0)
		return -1;
	return spec->unix_socket ? open_unix(spec->unix_socket, err) : 0;
}

/* ---- what came ------------------------------------------------------------------------------ */

static char *endpoint_text(const struct sockaddr_in6 *at, char *out)
{
	bool mapped = IN6_IS_ADDR_V4MAPPED(&at->sin6_addr);

	return witness_address(
		at->sin6_addr.s6_addr + (mapped ? 12 : 0), !mapped, ntohs(at->sin6_port), out);
}

static void on_listener(int fd)
{
	int conn;

	while ((conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		struct sockaddr_in6 local = { 0 };
		socklen_t len = sizeof local;
		bool is_unix = rows[fd].kind == KIND_UNIX;

		if (watch(conn, KIND_CONNECTION, rows[fd].port, NULL) < 0) {
			close(conn);
			continue;
		}
		strcpy(rows[conn].where, "unix");
		if (!is_unix && getsockname(conn, (struct sockaddr *)&local, &len) == 0)
			endpoint_text(&local, rows[conn].where);
		record_add(&record, is_unix ? "%s" : "tcp %s", rows[conn].where);
	}
}

static void say(int fd, const void *data, size_t len)
{
	if (send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return; /* a client that does not read misses it */
}

/* As a careless server does: a response for each empty line, whatever preceded it. */
static void answer_http(int fd, const uint8_t *data, size_t len)
{
	static const char good[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
	static const char bad[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
	struct row *row = &rows[fd];
	bool starts = !row->broken && !row->tail && (data[0] < 'A' || data[0] > 'Z');

	for (size_t i = 0; i < len; i++) {
		bool fits = data[i] == (row->tail % 2 ? '\n' : '\r');

		row->tail = fits ? row->tail + 1 : data[i] == '\r';
		if (row->tail == 4) {
			say(fd, good, sizeof good - 1);
			row->tail = 0;
			starts = false;
		}
	}
	if (starts)
		say(fd, bad, sizeof bad - 1);
}

static void answer_dns(int fd, const uint8_t *data, size_t len)
{
	uint8_t answer[1024];
	size_t used =
		len > 2 ? dns_answer(&record, data + 2, len - 2, answer + 2, sizeof answer - 2) : 0;

	answer[0] = (uint8_t)(used >> 8);
	answer[1] = (uint8_t)used;
	if (used)
		say(fd, answer, used + 2);
}

static void on_connection(int fd)
{
	static const uint8_t alert[] = { 0x15, 3, 3, 0, 2, 2, 40 };
	struct row *row = &rows[fd];
	uint8_t data[CHUNK];
	ssize_t len = recv(fd, data, sizeof data, 0);

	if (len < 0 && errno == EAGAIN)
		return;
	if (len <= 0) {
		record_add(&record, "closed %s", row->where);
		row->kind = KIND_NONE;
		close(fd);
		return;
	}
	record_data(&record, row->where, data, (size_t)len);
	if (row->port == 80)
		answer_http(fd, data, (size_t)len);
	else if (row->port == 443 || row->port == 853 || row->port == 8443)
		say(fd, alert, sizeof alert);
	else if (row->port == 53)
		answer_dns(fd, data, (size_t)len);
	else
		say(fd, data, (size_t)len);
}

static void answer_datagram(int fd, const struct msghdr *message, const uint8_t *data, size_t len)
{
	struct msghdr back = *message;
	struct in6_pktinfo *info = NULL;
	uint8_t answer[1024];
	struct iovec part = { answer, 0 };
	char text[WITNESS_TEXT];
	struct sockaddr_in6 local = { .sin6_port = htons(rows[fd].port) };

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&back); c; c = CMSG_NXTHDR(&back, c))
		if (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_PKTINFO)
			info = (struct in6_pktinfo *)CMSG_DATA(c);
	if (!info)
		return;
	local.sin6_addr = info->ipi6_addr;
	if (!IN6_IS_ADDR_LINKLOCAL(&info->ipi6_addr))
		info->ipi6_ifindex = 0; /* the address lies on no interface */
	record_data(&record, endpoint_text(&local, text), data, len);
	if (rows[fd].port == 53) {
		part.iov_len = dns_answer(&record, data, len, answer, sizeof answer);
	} else {
		part.iov_len = MIN(len, sizeof answer);
		memcpy(answer, data, part.iov_len);
	}
	back.msg_iov = &part;
	if (part.iov_len)
		sendmsg(fd, &back, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void on_datagrams(int fd)
{
	uint8_t data[CHUNK], control[256];
	struct sockaddr_in6 peer;

	for (int i = 0; i < EVENTS; i++) {
		struct iovec part = { data, sizeof data };
		struct msghdr message = { &peer, sizeof peer, &part, 1, control, sizeof control,
			0 };
		ssize_t len = recvmsg(fd, &message, 0);

		if (len < 0)
			return;
		answer_datagram(fd, &message, data, (size_t)len);
	}
}

static void on_packets(int fd)
{
	uint8_t packet[256];

	for (int i = 0; i < 4 * EVENTS; i++) {
		struct sockaddr_ll from = { 0 };
		socklen_t size = sizeof from;
		ssize_t len =
			recvfrom(fd, packet, sizeof packet, 0, (struct sockaddr *)&from, &size);

		if (len < 0)
			return;
		if (from.sll_pkttype != PACKET_OUTGOING)
			packet_note(&record, ntohs(from.sll_protocol), packet, (size_t)len);
	}
}

static void on_ready(int fd, bool *ret_asked)
{
	char word;

	switch ((enum kind)rows[fd].kind) {
	case KIND_CONTROL:
		if (read(fd, &word, 1) != 1)
			_exit(0);
		*ret_asked = true;
		break;
	case KIND_PACKETS:
		on_packets(fd);
		break;
	case KIND_LISTENER:
	case KIND_UNIX:
		on_listener(fd);
		break;
	case KIND_UDP:
		on_datagrams(fd);
		break;
	case KIND_CONNECTION:
		on_connection(fd);
		break;
	case KIND_NONE:
		break;
	}
}

void serve_forever(void)
{
	struct epoll_event events[EVENTS];
	bool asked = false;

	for (;;) {
		int count = epoll_wait(poller, events, EVENTS, asked ? QUIET_MS : -1);

		if (count < 0 && errno != EINTR)
			_exit(1);
		for (int i = 0; i < count; i++)
			on_ready(events[i].data.fd, &asked);
		if (asked && !count) {
			hand_over();
			asked = false;
		}
	}
}
