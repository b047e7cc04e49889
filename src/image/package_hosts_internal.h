/* package_hosts_internal.h - between the table of sources and the readers of their text */
#pragma once
#include "base/alloc.h"
#include "base/strv.h"
#include "image/package_hosts.h"

enum host_format {
	/* KEY = VALUE, KEY: VALUE, KEY "VALUE", with continuation lines; sections in brackets or
	 * between empty lines can be disabled by `enabled`. Takes the URLs of the given keys:
	 * '!' before a key says that it replaces the default, '@' that its value may be a bare
	 * name. */
	FORMAT_KEYS,
	FORMAT_DEB,   /* deb [options] URL ...; one a line */
	FORMAT_PROXY, /* apt.conf: the lines about a proxy */
	FORMAT_URLS,  /* every URL in lines that are not comments */
	FORMAT_COUNT
};

struct found {
	char **hosts; /* strv; may be NULL while there are none */
	size_t count;
	bool replaced; /* a key with '!' was there */
};

void found_done(struct found *found);
void found_add(
	struct found *found, const char *host); /* "NAME:PORT"; added once, up to the maximum */

/* text is NUL-terminated, len bytes; NULs in it end it. keys: words separated by spaces, for
 * FORMAT_KEYS. */
void hosts_read(enum host_format format, const char *keys, const char *text, struct found *found);
/* Reads program text behind a mark: quoted URLs and names up to the character `until`, or, where
 * that is 0, the first URL. */
void hosts_read_code(const char *text, char until, struct found *found);
