/* relay_fixture.h - names that lead to loopback, sockets that speak while the loop runs, a client's
 * TLS hello */
#pragma once
#include "dns_fixture.h"
#include "base/buf.h"
#include <dirent.h>
#include <sys/resource.h>
#include <time.h>

/* ---- names ---------------------------------------------------------------------------------- */

/* Answers by UDP on 127.0.0.1; every name leads to loopback, so no packet leaves the machine. */
struct names {
	int fd;
	uint16_t port;
	struct loop_fd *watch;
	struct upstream *upstream;
	unsigned count; /* questions seen */
	bool silent;
};

static const struct {
	const char *name;
	const char *addresses[4];
} names_rows[] = {
	{ "good.test", { "127.0.0.1" } },
	{ "proxy.test", { "127.0.0.1" } },
	{ "both.test", { "::1", "127.0.0.1" } },
	{ "first-dead.test", { "127.0.0.2", "127.0.0.1" } },
	{ "dead.test", { "127.0.0.2" } },
	{ "many.test", { "127.0.0.3", "127.0.0.4", "127.0.0.1" } },
	{ "empty.test", { NULL } },
};

static inline void names_on_question(void *arg, unsigned ready)
{
	struct names *names = arg;
	uint8_t message[1500], out[DNS_REPLY_MAX];
	struct address addresses[4];
	struct dns_reply reply = { .rcode = DNS_NXDOMAIN, .ttl = 60, .addresses = addresses };
	struct dns_query query;
	struct sockaddr_in from;
	socklen_t from_len = sizeof from;
	ssize_t len = recvfrom(
		names->fd, message, sizeof message, 0, (struct sockaddr *)&from, &from_len);

	(void)ready;
	names->count++;
	if (len < 0 || names->silent)
		return;
	assert_int_equal(dns_query_parse(message, (size_t)len, &query), DNS_NOERROR);
	for (size_t i = 0; i < ARRAY_LEN(names_rows); i++) {
		if (strcmp(names_rows[i].name, query.text) != 0)
			continue;
		reply.rcode = DNS_NOERROR;
		for (; reply.count < 4 && names_rows[i].addresses[reply.count]; reply.count++)
			assert_true(address_parse(
				names_rows[i].addresses[reply.count], &addresses[reply.count]));
	}
	len = (ssize_t)dns_reply_build(&query, &reply, DNS_REPLY_MAX, out);
	(void)!sendto(names->fd, out, (size_t)len, 0, (struct sockaddr *)&from, from_len);
}

static inline void names_open(struct names *names)
{
	struct upstream_server server;

	*names = (struct names){ 0 };
	names->fd = loopback_socket(SOCK_DGRAM, &names->port);
	names->watch = loop_fd_new(loop, names->fd, LOOP_READ, names_on_question, names);
	server = server_at(names->port);
	names->upstream = upstream_new(
		loop, &(struct upstream_options){
			      .servers = &server, .server_count = 1, .timeout_ms = 200 });
}

static inline void names_close(struct names *names)
{
	upstream_free(names->upstream);
	loop_fd_free(names->watch);
	close(names->fd);
}

/* ---- sockets that speak while the loop runs ------------------------------------------------- */

/* Bounds each wait; a test that gets there fails. */
static inline void still_waiting(int64_t *end, const char *what)
{
	if (!*end)
		*end = clock_mono_us() + 5000000;
	if (clock_mono_us() > *end)
		fail_msg("waited too long for %s", what);
	run_for(1);
}

static inline int listen_on(const char *address, uint16_t port, int backlog, uint16_t *ret_port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	socklen_t len = sizeof to;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	assert_int_equal(bind(fd, (struct sockaddr *)&to, len), 0);
	assert_int_equal(listen(fd, backlog), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &len), 0);
	*ret_port = ntohs(to.sin_port);
	return fd;
}

static inline int accept_from(int listener)
{
	int64_t end = 0;
	int fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
		still_waiting(&end, "a connection");
	return fd;
}

static inline void say_bytes(int fd, const void *data, size_t len)
{
	int64_t end = 0;

	for (size_t sent = 0; sent < len;) {
		ssize_t n = send(fd, (const char *)data + sent, len - sent, MSG_NOSIGNAL);

		if (n < 0)
			assert_int_equal(errno, EAGAIN);
		if (n < 0)
			still_waiting(&end, "room to send");
		else
			sent += (size_t)n;
	}
}

static inline void say(int fd, const char *text)
{
	say_bytes(fd, text, strlen(text));
}

/* Reads exactly len bytes. */
static inline void hear_bytes(int fd, void *data, size_t len)
{
	int64_t end = 0;

	for (size_t got = 0; got < len;) {
		ssize_t n = recv(fd, (char *)data + got, len - got, 0);

		if (n < 0)
			assert_int_equal(errno, EAGAIN);
		assert_true(n != 0);
		if (n < 0)
			still_waiting(&end, "bytes");
		else
			got += (size_t)n;
	}
}

static inline void hear(int fd, const char *text)
{
	char got[4096] = "";

	assert_true(strlen(text) < sizeof got);
	hear_bytes(fd, got, strlen(text));
	assert_string_equal(got, text);
}

/* What comes next on fd, if not bytes: 0 an end in order, else the errno it broke with. */
static inline int hear_end(int fd)
{
	int64_t end = 0;
	char byte;
	ssize_t n;

	while ((n = recv(fd, &byte, 1, 0)) < 0 && errno == EAGAIN)
		still_waiting(&end, "an end");
	assert_true(n <= 0);
	return n < 0 ? errno : 0;
}

static inline void hear_nothing(int fd, uint64_t ms)
{
	char byte;

	run_for(ms);
	assert_int_equal(recv(fd, &byte, 1, MSG_PEEK), -1);
	assert_int_equal(errno, EAGAIN);
}

static inline void reset(int fd)
{
	const struct linger now = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(fd);
}

/* ---- what a process uses -------------------------------------------------------------------- */

static inline unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static inline int64_t cpu_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * INT64_C(1000000) + used.tv_nsec / 1000;
}

/* ---- TLS ------------------------------------------------------------------------------------ */

/* A whole ClientHello in one record; name NULL: without server_name. Returns its length. */
static inline size_t tls_hello_make(const char *name, uint8_t *out)
{
	struct buf body = BUF_INIT;
	size_t name_len = name ? strlen(name) : 0, len;
	const uint8_t version[] = { 3, 3 }, random[32] = { 7 };
	const uint8_t rest[] = { 0, 0, 2, 0x13, 1, 1,
		0 }; /* no session, one cipher, no compression */
	const uint8_t groups[] = { 0, 10, 0, 4, 0, 2, 0, 0x1d };
	const uint8_t server_name[] = { 0, 0, 0, (uint8_t)(name_len + 5), 0,
		(uint8_t)(name_len + 3), 0, 0, (uint8_t)name_len };
	size_t extensions = sizeof groups + (name ? sizeof server_name + name_len : 0);

	buf_add(&body, version, sizeof version);
	buf_add(&body, random, sizeof random);
	buf_add(&body, rest, sizeof rest);
	buf_add(&body, (uint8_t[]){ 0, (uint8_t)extensions }, 2);
	buf_add(&body, groups, sizeof groups);
	if (name) {
		buf_add(&body, server_name, sizeof server_name);
		buf_add(&body, name, name_len);
	}
	memcpy(out, (uint8_t[]){ 22, 3, 1, 0, (uint8_t)(body.len + 4), 1, 0, 0, (uint8_t)body.len },
		9);
	memcpy(out + 9, buf_head(&body), body.len);
	len = 9 + body.len;
	buf_done(&body);
	return len;
}
