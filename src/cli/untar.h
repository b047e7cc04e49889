/* untar.h - a tar stream from a box becomes local files; the stream is an attacker's
 *
 * Nothing is written outside the target folder: names that are absolute or hold ".." are refused, no symlink
 * is followed below the target, whoever made it, and what is in the way is removed rather than written
 * through. Devices, pipes and sockets are left out; set-user-id bits and owners too unless preserved. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct untar;

struct untar_spec {
	int dir_fd; /* the target folder; borrowed */
	const char *
		top; /* the first component of every name becomes this; "": is dropped; NULL: is kept */
	bool preserve; /* modes, times and, as root, owners as they are in the archive */
};

struct untar *untar_new(const struct untar_spec *spec); /* spec is copied; top is borrowed */
void untar_free(struct untar *untar);			/* accepts NULL */
/* The next bytes of the archive, in pieces of any size. */
int untar_feed(struct untar *untar, const void *data, size_t len, struct err *err);
/* After the last byte: fails if the archive is not complete. */
int untar_finish(struct untar *untar, struct err *err);
uint64_t untar_files(const struct untar *untar);
uint64_t untar_skipped(const struct untar *untar);
