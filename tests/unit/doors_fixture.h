/* doors_fixture.h - a box's network from inside: connections, datagrams, what came through a door
 * and what was reported; and the tests that hold for every kind of box */
#pragma once
#include "base/alloc.h"
#include "base/text.h"
#include "net/doors.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#define SYNTHETIC    "198.18.7.5"
#define SYNTHETIC_V6 "fd62:6f78:7961:7264::705"

/* inner: where the sockets of the box are; the same namespace, or that of its own kernel */
static int home = -1, netns = -1, inner = -1, doors[DOOR_COUNT];

/* ---- the inside ----------------------------------------------------------------------------- */

static inline void inside(bool yes)
{
	assert_int_equal(setns(yes ? inner : home, CLONE_NEWNET), 0);
}

static inline socklen_t aim(const char *address, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof *ret);
	if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return sizeof *v4;
	}
	assert_int_equal(inet_pton(AF_INET6, address, &v6->sin6_addr), 1);
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(port);
	return sizeof *v6;
}

static inline int inner_socket(const char *address, int type)
{
	struct timeval patience = { .tv_sec = 2 };
	int fd;

	inside(true);
	fd = socket(strchr(address, ':') ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC, 0);
	inside(false);
	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	return fd;
}

/* The errno of a connection from inside, or 0 with *ret_fd. */
static inline int try_tcp(const char *address, uint16_t port, int *ret_fd)
{
	struct sockaddr_storage to;
	socklen_t len = aim(address, port, &to);
	int fd = inner_socket(address, SOCK_STREAM), status;

	status = connect(fd, (struct sockaddr *)&to, len) < 0 ? errno : 0;
	if (ret_fd && !status)
		*ret_fd = fd;
	else
		close(fd);
	return status;
}

/* The errno a datagram from inside meets. */
static inline int try_udp(const char *address, uint16_t port)
{
	struct sockaddr_storage to;
	socklen_t len = aim(address, port, &to);
	int fd = inner_socket(address, SOCK_DGRAM), status;
	char byte = 'x';

	assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
	status = send(fd, &byte, 1, 0) < 0 || recv(fd, &byte, 1, 0) < 0 ? errno : 0;
	close(fd);
	return status;
}

static inline void wait_readable(int fd)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&poller, 1, 2000), 1);
}

/* What came through the door last was for this destination. */
static inline void assert_accepted(const char *address, uint16_t port)
{
	struct sockaddr_in6 got;
	socklen_t len = sizeof got;
	char text[INET6_ADDRSTRLEN], *plain = text;
	int fd;

	wait_readable(doors[DOOR_TCP]);
	fd = accept(doors[DOOR_TCP], NULL, NULL);
	assert_true(fd >= 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&got, &len), 0);
	inet_ntop(AF_INET6, &got.sin6_addr, text, sizeof text);
	if (text_has_prefix(text, "::ffff:"))
		plain = text + strlen("::ffff:");
	assert_string_equal(plain, address);
	assert_int_equal(ntohs(got.sin6_port), port);
	close(fd);
}

/* The next report is of a packet to this destination. */
static inline void assert_reported(const char *address, uint16_t port, uint8_t protocol)
{
	struct doors_refused refused;
	char text[ADDRESS_TEXT_MAX];

	wait_readable(doors[DOOR_REFUSED]);
	assert_int_equal(doors_refused_read(doors[DOOR_REFUSED], &refused, 1, NULL), 1);
	assert_string_equal(address_format(&refused.to.address, text), address);
	assert_int_equal(refused.to.port, port);
	assert_int_equal(refused.protocol, protocol);
	assert_int_equal(refused.from.address.bytes[refused.from.address.family == 4 ? 3 : 15], 2);
}

static inline void assert_nothing_reported(void)
{
	struct doors_refused refused;
	char text[ADDRESS_TEXT_MAX];

	if (doors_refused_read(doors[DOOR_REFUSED], &refused, 1, NULL) == 0)
		return;
	fail_msg("reported: protocol %u to %s port %u", refused.protocol,
		address_format(&refused.to.address, text), refused.to.port);
}

/* ---- for every kind of box ------------------------------------------------------------------ */

static inline void names_lead_to_the_door(void **state)
{
	int fd = -1;

	(void)state;
	assert_int_equal(try_tcp(SYNTHETIC, 443, &fd), 0);
	assert_accepted(SYNTHETIC, 443);
	close(fd);
	assert_int_equal(try_tcp(SYNTHETIC_V6, 22, &fd), 0);
	assert_accepted(SYNTHETIC_V6, 22);
	close(fd);
	assert_nothing_reported();
}

static inline void datagrams_get_an_answer_in_the_right_name(void **state)
{
	struct doors_endpoint far = { .port = 123 }, near = { 0 };
	struct sockaddr_storage to;
	socklen_t len = aim(SYNTHETIC, 123, &to);
	struct sockaddr_in own;
	socklen_t own_len = sizeof own;
	int fd = inner_socket(SYNTHETIC, SOCK_DGRAM), back = -1;
	struct err err = ERR_INIT;
	char bytes[8];

	(void)state;
	/* Not before the policy wants any. */
	assert_int_equal(try_udp(SYNTHETIC, 123), EHOSTUNREACH);
	assert_reported(SYNTHETIC, 123, IPPROTO_UDP);
	assert_int_equal(doors_set_aims(netns, NULL, 0, true, &err), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
	assert_int_equal(send(fd, "tick", 4, 0), 4);
	wait_readable(doors[DOOR_UDP]);
	assert_int_equal(recv(doors[DOOR_UDP], bytes, sizeof bytes, 0), 4);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &own_len), 0);
	near.port = ntohs(own.sin_port);
	assert_true(address_parse(DOORS_BOX_V4, &near.address));
	assert_true(address_parse(SYNTHETIC, &far.address));
	assert_int_equal(doors_open_udp(netns, &far, &near, &back, &err), 0);
	assert_int_equal(send(back, "tock", 4, 0), 4);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 4);
	assert_memory_equal(bytes, "tock", 4);
	/* From now on they come by this socket. */
	assert_int_equal(send(fd, "more", 4, 0), 4);
	wait_readable(back);
	assert_int_equal(recv(back, bytes, sizeof bytes, 0), 4);
	close(back);
	close(fd);
}

static inline void a_datagram_is_refused_after_it_came(void **state)
{
	static const struct {
		const char *box, *aim;
		enum door raw;
	} rows[] = { { DOORS_BOX_V4, SYNTHETIC, DOOR_RAW4 },
		{ "fd62:6f78:7961:7264::2", SYNTHETIC_V6, DOOR_RAW6 } };
	struct err err = ERR_INIT;
	char byte;

	(void)state;
	assert_int_equal(doors_set_aims(netns, NULL, 0, true, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct doors_endpoint far = { .port = 443 }, near = { 0 };
		struct sockaddr_storage to, own;
		socklen_t len = aim(rows[i].aim, 443, &to), own_len = sizeof own;
		int fd = inner_socket(rows[i].aim, SOCK_DGRAM);

		assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
		assert_int_equal(send(fd, "q", 1, 0), 1);
		wait_readable(doors[DOOR_UDP]);
		assert_int_equal(recv(doors[DOOR_UDP], &byte, 1, 0), 1);
		assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &own_len), 0);
		near.port = ntohs(((struct sockaddr_in *)&own)->sin_port);
		assert_true(address_parse(rows[i].box, &near.address));
		assert_true(address_parse(rows[i].aim, &far.address));
		doors_refuse_udp(doors[rows[i].raw], &far, &near);
		assert_int_equal(recv(fd, &byte, 1, 0), -1);
		assert_true(errno == EHOSTUNREACH || errno == EACCES);
		close(fd);
	}
}

static inline void without_the_sockets_everything_is_closed(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	doors_close(doors);
	assert_int_equal(try_tcp(SYNTHETIC, 443, NULL), ECONNREFUSED);
	assert_int_equal(try_tcp("8.8.8.8", 443, NULL), ECONNREFUSED);
	assert_int_equal(try_tcp(DOORS_RESOLVER_V4, 53, NULL), ECONNREFUSED);
	assert_true(try_udp(DOORS_RESOLVER_V4, 53) != 0);
	/* And the next daemon opens them again. */
	assert_int_equal(doors_open(netns, doors, &err), 0);
	assert_int_equal(try_tcp(SYNTHETIC, 443, NULL), 0);
	assert_accepted(SYNTHETIC, 443);
}
