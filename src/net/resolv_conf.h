/* resolv_conf.h - the host's resolver settings, as resolv.conf(5) writes them */
#pragma once
#include "base/address.h"
#include "net/dns_name.h"
#include <net/if.h>
#include <stddef.h>

enum {
	RESOLV_SERVERS_MAX = 8,
	RESOLV_SEARCH_MAX = 16,
	RESOLV_CONF_MAX = 64 * 1024, /* bytes of the file that are looked at */
};

struct resolv_server {
	struct address address;
	char scope[IF_NAMESIZE]; /* interface of a link-local IPv6 address; else "" */
};

struct resolv_conf {
	struct resolv_server servers[RESOLV_SERVERS_MAX];
	size_t server_count;
	char search[RESOLV_SEARCH_MAX][DNS_HOST_MAX]; /* lower-case, without a dot at the end */
	size_t search_count;
	unsigned ndots;	   /* 1; 15 at most */
	unsigned timeout;  /* seconds, 5; 30 at most */
	unsigned attempts; /* 2; 5 at most */
	bool rotate;
};

/* Like the C library: unknown lines are skipped, the last search or domain line counts, and without
 * a server 127.0.0.1 is used. Servers and domains above the bounds are dropped. Cannot fail. */
void resolv_conf_parse(const char *text, size_t len, struct resolv_conf *ret);
