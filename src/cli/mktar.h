/* mktar.h - a local file or folder as a stream of tar bytes, read piece by piece */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mktar;

struct mktar_spec {
	/* What to pack; a symlink given here is followed, those below are kept as they are. */
	const char *path;
	const char *top; /* its name in the archive; "": only what it holds */
	bool preserve;	 /* keep owners and set-user-id bits; else everything is owned by root */
};

/* spec and its strings are borrowed until mktar_close(). */
int mktar_open(const struct mktar_spec *spec, struct mktar **ret, struct err *err);
void mktar_close(struct mktar *tar); /* accepts NULL */
/* Up to len bytes; 0 at the end of the archive; -1 with err. */
int64_t mktar_read(struct mktar *tar, void *buf, size_t len, struct err *err);
uint64_t mktar_skipped(const struct mktar *tar); /* sockets, pipes and devices left out so far */
