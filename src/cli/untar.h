/* untar.h - a tar stream from a box becomes local files; the stream is an attacker's
 *
 * Nothing is written outside the one name that was asked for: names that are absolute or hold ".."
 * are refused, and so are those below another name than the first; no symlink is followed below the
 * target, whoever made it; what is in the way is replaced rather than written through, by a file
 * that is whole (outfile.h). A hard link leads only to a file that came out of the same archive.
 * Devices, pipes and sockets are left out, set-user-id bits are taken away. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct untar;

struct untar_spec {
	int dir_fd; /* the target folder; borrowed */
	/* What was asked for is one folder, whose name is the first component of every name and
	 * which comes before what it holds: it is called top here; "": what it holds goes into the
	 * target. NULL: names are kept as they are, and anything may come: only for a target that
	 * is there for this archive alone. */
	const char *top;
	bool preserve; /* modes, times and, as root, owners as they are in the archive */
};

struct untar *untar_new(const struct untar_spec *spec); /* spec is copied; top is borrowed */
void untar_free(struct untar *untar); /* accepts NULL; a file that is not whole is removed */
/* The next bytes of the archive, in pieces of any size. */
int untar_feed(struct untar *untar, const void *data, size_t len, struct err *err);
/* After the last byte: fails if the archive is not complete. */
int untar_finish(struct untar *untar, struct err *err);
uint64_t untar_files(const struct untar *untar);
uint64_t untar_skipped(const struct untar *untar);
