/* host_watch.h - how this host is placed in its network: its own addresses and its resolver
 * settings, as they change */
#pragma once

struct loop;
struct host_watch;

/* changed is called from the loop when either has changed. */
struct host_watch *host_watch_new(
	struct loop *loop, const char *resolv_conf, void (*changed)(void *arg), void *arg);
void host_watch_free(struct host_watch *watch); /* accepts NULL */
/* All addresses of all interfaces, as text, NULL at the end; borrowed, valid until the next
 * change. */
const char *const *host_watch_addresses(const struct host_watch *watch);
/* The text of resolv.conf; "" when it cannot be read. Borrowed likewise. */
const char *host_watch_resolv_conf(const struct host_watch *watch);
/* The /etc/resolv.conf for boxes: our resolver, the host's search domains and ndots. Yours to
 * free. */
char *host_watch_box_resolv_conf(const struct host_watch *watch);
