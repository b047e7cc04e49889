/* host_watch.c - see host_watch.h
 *
 * The kernel reports addresses that come and go; resolv.conf is read every few seconds, because it
 * may be a symlink, a file replaced by rename, or both. */
#include "net/host_watch.h"
#include "base/address.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/strv.h"
#include "loop/loop.h"
#include "net/doors.h"
#include "net/resolv_conf.h"
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	LOOK_MS = 3000,
	ADDRESSES_MAX = 200, /* less than POLICY_HOSTS_MAX: the gate adds its own */
};

struct host_watch {
	char *path;
	char *resolv_conf;
	char **addresses;
	int socket; /* -1: the kernel does not report, and only the timer is used */
	struct loop_fd *ready;
	struct loop_timer *timer;
	void (*changed)(void *arg);
	void *arg;
};

/* A host that forwards also answers to the first address of each IPv6 network, as its router. */
static struct address router_of(const struct address *address, const struct sockaddr *mask)
{
	const uint8_t *bits = (const uint8_t *)&((const struct sockaddr_in6 *)mask)->sin6_addr;
	struct address router = *address;

	for (size_t i = 0; i < 16; i++)
		router.bytes[i] &= bits[i];
	return router;
}

/* Hosts of clusters have thousands of addresses, and policies have room for some hundreds. Then
 * whole ranges around them are used, the narrowest that fit: too much closed can be seen in the
 * log, too much open cannot be undone. */
static const struct {
	unsigned v4, v6;
} widths[] = { { 32, 128 }, { 28, 120 }, { 24, 112 }, { 20, 64 }, { 16, 56 }, { 12, 48 }, { 8, 32 },
	{ 0, 0 } };

static void add_range(char ***list, const struct address *address, unsigned bits)
{
	unsigned whole = address->family == 4 ? 32 : 128;
	char text[ADDRESS_TEXT_MAX], range[ADDRESS_TEXT_MAX + 8];
	struct address base = *address;

	for (unsigned bit = bits; bit < whole; bit++)
		base.bytes[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	address_format(&base, text);
	snprintf(range, sizeof range, bits == whole ? "%s" : "%s/%u", text, bits);
	if (!strv_has((const char *const *)*list, range))
		strv_add(list, range);
}

static struct address address_of(const struct ifaddrs *at)
{
	if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET)
		return address_v4((const uint8_t *)&((struct sockaddr_in *)at->ifa_addr)->sin_addr);
	if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET6)
		return address_v6(
			(const uint8_t *)&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr);
	return (struct address){ 0 };
}

/* NULL: the kernel cannot be asked now, for example without a free descriptor. That is not the same
 * as none. */
static char **read_addresses(void)
{
	struct ifaddrs *list = NULL;
	char **ret = NULL;

	if (getifaddrs(&list) < 0)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(widths); i++) {
		size_t count = 0;

		strv_free(ret);
		ret = NULL;
		for (struct ifaddrs *at = list; at && count <= ADDRESSES_MAX; at = at->ifa_next) {
			struct address address = address_of(at), router;
			unsigned bits = address.family == 4 ? widths[i].v4 : widths[i].v6;

			if (!address.family)
				continue;
			add_range(&ret, &address, bits);
			if (address.family == 6 && at->ifa_netmask) {
				router = router_of(&address, at->ifa_netmask);
				add_range(&ret, &router, bits);
			}
			count = strv_len((const char *const *)ret);
		}
		if (count <= ADDRESSES_MAX)
			break;
	}
	freeifaddrs(list);
	if (!ret)
		ret = xnewn(char *, 1);
	return ret;
}

static bool same_list(char **a, char **b)
{
	size_t i = 0;

	for (; a[i] && b[i]; i++)
		if (strcmp(a[i], b[i]))
			return false;
	return !a[i] && !b[i];
}

/* Whether anything has changed. */
static bool look(struct host_watch *watch)
{
	char **addresses = read_addresses();
	struct err err = ERR_INIT;
	char *text = NULL;
	bool changed = false;

	/* A missing file means this host, as to every resolver; an unreadable one keeps the
	 * previous content. */
	if (file_read(AT_FDCWD, watch->path, RESOLV_CONF_MAX, &text, NULL, &err) < 0)
		text = xstrdup(
			err.kind == ERR_NOT_FOUND || !watch->resolv_conf ? "" : watch->resolv_conf);
	if (!addresses && !watch->addresses)
		addresses = xnewn(char *, 1);
	if (addresses && (!watch->addresses || !same_list(addresses, watch->addresses))) {
		strv_free(watch->addresses);
		watch->addresses = steal_ptr(&addresses);
		changed = true;
	}
	if (!watch->resolv_conf || strcmp(text, watch->resolv_conf)) {
		free(watch->resolv_conf);
		watch->resolv_conf = steal_ptr(&text);
		changed = true;
	}
	strv_free(addresses);
	free(text);
	return changed;
}

static void on_timer(void *arg)
{
	struct host_watch *watch = arg;

	loop_timer_start(watch->timer, LOOK_MS);
	if (look(watch))
		watch->changed(watch->arg);
}

static void on_ready(void *arg, unsigned ready)
{
	struct host_watch *watch = arg;
	char scratch[8192];

	(void)ready;
	while (recv(watch->socket, scratch, sizeof scratch, MSG_DONTWAIT) > 0)
		;
	if (look(watch))
		watch->changed(watch->arg);
}

static void open_socket(struct host_watch *watch, struct loop *loop)
{
	struct sockaddr_nl groups = { .nl_family = AF_NETLINK,
		.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR };

	watch->socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (watch->socket < 0)
		return;
	if (bind(watch->socket, (struct sockaddr *)&groups, sizeof groups) < 0) {
		close(watch->socket);
		watch->socket = -1;
		return;
	}
	watch->ready = loop_fd_new(loop, watch->socket, LOOP_READ, on_ready, watch);
}

struct host_watch *host_watch_new(
	struct loop *loop, const char *resolv_conf, void (*changed)(void *arg), void *arg)
{
	struct host_watch *watch = xnew(struct host_watch);

	watch->path = xstrdup(resolv_conf);
	watch->changed = changed;
	watch->arg = arg;
	/* The socket first: changes while reading are then reported again. */
	open_socket(watch, loop);
	look(watch);
	watch->timer = loop_timer_new(loop, on_timer, watch);
	loop_timer_start(watch->timer, LOOK_MS);
	return watch;
}

void host_watch_free(struct host_watch *watch)
{
	if (!watch)
		return;
	loop_fd_free(watch->ready);
	if (watch->socket >= 0)
		close(watch->socket);
	loop_timer_free(watch->timer);
	strv_free(watch->addresses);
	free(watch->resolv_conf);
	free(watch->path);
	free(watch);
}

const char *const *host_watch_addresses(const struct host_watch *watch)
{
	return (const char *const *)watch->addresses;
}

const char *host_watch_resolv_conf(const struct host_watch *watch)
{
	return watch->resolv_conf;
}

char *host_watch_box_resolv_conf(const struct host_watch *watch)
{
	struct buf text = BUF_INIT;
	struct resolv_conf *conf = xnew(struct resolv_conf);
	char *ret;

	resolv_conf_parse(watch->resolv_conf, strlen(watch->resolv_conf), conf);
	buf_add_str(&text, DOORS_RESOLV_CONF);
	for (size_t i = 0; i < conf->search_count; i++)
		buf_addf(&text, "%s%s", i ? " " : "search ", conf->search[i]);
	if (conf->search_count)
		buf_add_str(&text, "\n");
	if (conf->ndots != 1)
		buf_addf(&text, "options ndots:%u\n", conf->ndots);
	ret = xstrdup(buf_str(&text));
	buf_done(&text);
	free(conf);
	return ret;
}
