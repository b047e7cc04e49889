/* dns_fixture.h - a loop, sockets on 127.0.0.1, and a server above that is honest or not, as
 * told */
#pragma once
#include "base/alloc.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "gate/dns/message.h"
#include "gate/dns/upstream.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <cmocka.h>

static struct loop *loop;

/* ---- the loop ------------------------------------------------------------------------------- */

static void stop_loop(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static inline void run_for(uint64_t ms)
{
	struct loop_timer *timer = loop_timer_new(loop, stop_loop, NULL);

	loop_timer_start(timer, ms);
	loop_run(loop);
	loop_timer_free(timer);
}

/* Until *what is count or more; fails after five seconds. */
static inline void run_until(const volatile unsigned *what, unsigned count)
{
	int64_t end = clock_mono_us() + 5000000;

	while (*what < count && clock_mono_us() < end)
		run_for(1);
	assert_true(*what >= count);
}

/* ---- sockets -------------------------------------------------------------------------------- */

static inline int loopback_socket(int type, uint16_t *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_port = htons(*port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof address;
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 64), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

/* Both kinds at one port: the number that is free for one may be taken for the other. */
static inline void loopback_pair(int *udp, int *tcp, uint16_t *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	for (int tries = 0; tries < 100; tries++) {
		*port = 0;
		*udp = loopback_socket(SOCK_DGRAM, port);
		*tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		address.sin_port = htons(*port);
		setsockopt(*tcp, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
		if (bind(*tcp, (struct sockaddr *)&address, sizeof address) == 0 &&
			listen(*tcp, 64) == 0)
			return;
		close(*udp);
		close(*tcp);
	}
	fail_msg("no port is free for both");
}

static inline struct upstream_server server_at(uint16_t port)
{
	struct upstream_server server = { .len = sizeof(struct sockaddr_in) };
	struct sockaddr_in *address = (struct sockaddr_in *)&server.address;

	address->sin_family = AF_INET;
	address->sin_port = htons(port);
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return server;
}

static inline int connect_to(uint16_t port, int type)
{
	struct upstream_server server = server_at(port);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	assert_true(connect(fd, (struct sockaddr *)&server.address, server.len) == 0 ||
		    errno == EINPROGRESS);
	return fd;
}

/* ---- the server above ----------------------------------------------------------------------- */

enum above_mode {
	ABOVE_HONEST,
	ABOVE_SILENT,
	ABOVE_WRONG_ID,	  /* for the first three packets of each question, then honest */
	ABOVE_FLOOD,	  /* wrong ids for ever by UDP, honest by TCP */
	ABOVE_WRONG_NAME, /* answers another question */
	ABOVE_LOWER_CASE, /* by UDP and TCP */
	ABOVE_TRUNCATED,  /* by UDP; honest by TCP */
	ABOVE_SERVFAIL,
	ABOVE_GARBAGE,
	ABOVE_TCP_CLOSES, /* truncated by UDP, hangs up by TCP */
};

struct above {
	enum above_mode mode;
	uint16_t port;
	int udp, tcp, conn;
	struct loop_fd *udp_watch, *tcp_watch, *conn_watch;
	unsigned udp_count, tcp_count; /* questions seen */
	char last[DNS_TEXT_MAX];
	uint32_t ttl;
};

static const struct above_name {
	const char *name;
	const char *addresses[3];
} above_names[] = {
	{ "one.test", { "203.0.113.1", "2001:db8::1" } },
	{ "two.test", { "203.0.113.1", "203.0.113.2" } },
	{ "rebind.test", { "10.0.0.1", "::ffff:127.0.0.1" } },
	{ "mixed.test", { "203.0.113.1", "169.254.169.254" } },
	{ "empty.test", { NULL } },
};

static inline size_t above_reply(
	struct above *above, const uint8_t *message, size_t len, bool tcp, bool lie, uint8_t *out)
{
	struct address addresses[3];
	struct dns_query query;
	struct dns_reply reply = {
		.rcode = DNS_NXDOMAIN, .ttl = above->ttl, .addresses = addresses
	};
	size_t reply_len;

	assert_int_equal(dns_query_parse(message, len, &query), DNS_NOERROR);
	strcpy(above->last, query.text);
	for (size_t i = 0; i < ARRAY_LEN(above_names); i++) {
		if (strcmp(above_names[i].name, query.text))
			continue;
		reply.rcode = DNS_NOERROR;
		while (reply.count < 3 && above_names[i].addresses[reply.count]) {
			assert_true(address_parse(
				above_names[i].addresses[reply.count], &addresses[reply.count]));
			reply.count++;
		}
	}
	if (above->mode == ABOVE_SERVFAIL)
		reply.rcode = DNS_SERVFAIL;
	if (above->mode == ABOVE_LOWER_CASE)
		for (unsigned i = 0; i < query.name.len; i++)
			if (query.name.wire[i] >= 'A' && query.name.wire[i] <= 'Z')
				query.name.wire[i] += 'a' - 'A';
	if (above->mode == ABOVE_WRONG_NAME)
		query.name.wire[1] ^= 1;
	if (lie)
		query.id ^= 0x5555;
	reply_len = dns_reply_build(&query, &reply, DNS_REPLY_MAX, out);
	if (above->mode == ABOVE_GARBAGE)
		out[6] = out[7] = 9; /* records that are not there */
	if ((above->mode == ABOVE_TRUNCATED || above->mode == ABOVE_TCP_CLOSES) && !tcp)
		out[2] |= 2;
	return reply_len;
}

static inline void above_on_udp(void *arg, unsigned ready)
{
	struct above *above = arg;
	uint8_t message[1500], out[DNS_REPLY_MAX];
	struct sockaddr_in from;
	socklen_t from_len = sizeof from;
	ssize_t len = recvfrom(
		above->udp, message, sizeof message, 0, (struct sockaddr *)&from, &from_len);
	unsigned lies = above->mode == ABOVE_WRONG_ID ? 3 : above->mode == ABOVE_FLOOD ? 20 : 0;

	(void)ready;
	if (len < 0)
		return;
	above->udp_count++;
	for (unsigned i = 0; i <= lies && above->mode != ABOVE_SILENT; i++) {
		bool lie = i < lies || above->mode == ABOVE_FLOOD;
		size_t reply = above_reply(above, message, (size_t)len, false, lie, out);

		(void)!sendto(above->udp, out, reply, 0, (struct sockaddr *)&from, from_len);
	}
}

static inline void above_hang_up(struct above *above)
{
	loop_fd_free(above->conn_watch);
	above->conn_watch = NULL;
	if (above->conn >= 0)
		close(above->conn);
	above->conn = -1;
}

static inline void above_on_conn(void *arg, unsigned ready)
{
	struct above *above = arg;
	uint8_t message[1500], out[2 + DNS_REPLY_MAX];
	ssize_t len = recv(above->conn, message, sizeof message, 0);
	size_t reply;

	(void)ready;
	if (len > 2 && above->mode != ABOVE_TCP_CLOSES && above->mode != ABOVE_SILENT) {
		above->tcp_count++;
		reply = above_reply(above, message + 2, (size_t)len - 2, true, false, out + 2);
		out[0] = reply >> 8;
		out[1] = reply & 0xff;
		/* in pieces, as networks do */
		assert_int_equal(send(above->conn, out, 1, MSG_NOSIGNAL), 1);
		assert_int_equal(send(above->conn, out + 1, 7, MSG_NOSIGNAL), 7);
		assert_int_equal(send(above->conn, out + 8, reply - 6, MSG_NOSIGNAL), reply - 6);
	}
	above_hang_up(above);
}

static inline void above_on_tcp(void *arg, unsigned ready)
{
	struct above *above = arg;

	(void)ready;
	above_hang_up(above);
	above->conn = accept4(above->tcp, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (above->conn >= 0)
		above->conn_watch = loop_fd_new(loop, above->conn, LOOP_READ, above_on_conn, above);
}

static inline struct above *above_new(enum above_mode mode)
{
	struct above *above = xnew(struct above);

	above->mode = mode;
	above->ttl = 300;
	above->conn = -1;
	loopback_pair(&above->udp, &above->tcp, &above->port);
	above->udp_watch = loop_fd_new(loop, above->udp, LOOP_READ, above_on_udp, above);
	above->tcp_watch = loop_fd_new(loop, above->tcp, LOOP_READ, above_on_tcp, above);
	return above;
}

static inline void above_free(struct above *above)
{
	above_hang_up(above);
	loop_fd_free(above->udp_watch);
	loop_fd_free(above->tcp_watch);
	close(above->udp);
	close(above->tcp);
	free(above);
}
