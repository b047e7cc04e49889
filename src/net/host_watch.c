/* host_watch.c - see host_watch.h
 *
 * The kernel tells of addresses that come and go; resolv.conf is looked at every few seconds, because it may be a link, a file
 * replaced by rename, or both. */
#include "net/host_watch.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/strv.h"
#include "loop/loop.h"
#include "net/address.h"
#include "net/doors.h"
#include "net/resolv_conf.h"
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_MS = 3000 };

struct host_watch {
	char *path;
	char *resolv_conf;
	char **addresses;
	int socket; /* -1: the kernel tells nothing, and the timer does it all */
	struct loop_fd *ready;
	struct loop_timer *timer;
	void (*changed)(void *arg);
	void *arg;
};

static char **read_addresses(void)
{
	char text[NET_ADDRESS_TEXT_MAX];
	struct ifaddrs *list = NULL;
	char **ret = NULL;

	if (getifaddrs(&list) < 0)
		list = NULL;
	for (struct ifaddrs *at = list; at; at = at->ifa_next) {
		struct net_address address = { 0 };

		if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET)
			address = net_address_v4(
				(const uint8_t *)&((struct sockaddr_in *)at->ifa_addr)->sin_addr);
		else if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET6)
			address = net_address_v6(
				(const uint8_t *)&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr);
		else
			continue;
		net_address_format(&address, text);
		if (!strv_has((const char *const *)ret, text))
			strv_add(&ret, text);
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

/* Whether anything is new. */
static bool look(struct host_watch *watch)
{
	char **addresses = read_addresses();
	char *text = NULL;
	bool changed = false;

	if (file_read(AT_FDCWD, watch->path, RESOLV_CONF_MAX, &text, NULL, NULL) < 0)
		text = xstrdup("");
	if (!watch->addresses || !same_list(addresses, watch->addresses)) {
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
	/* First the socket: what changes while it is read is told again. */
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
