/* untar.h - unpacks a tar stream from a box into local files; the stream is hostile
 *
 * Nothing is written outside the name that was asked for: absolute names and names with ".." are
 * refused, and so are those not below the first name; no symlink is followed below the target,
 * whoever made it; what is in the way is replaced rather than written through, by a complete file
 * (outfile.h). A hard link leads only to a file from the same archive. Devices, pipes and sockets
 * are left out, set-user-id bits are removed. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct untar;

struct untar_spec {
	int dir_fd; /* the target folder; borrowed */
	/* The archive holds one folder, whose name is the first component of every name and which
	 * comes before its content: it is called top here; "": its content goes into the target.
	 * NULL: names are kept, and anything may come: only for a target made for this archive
	 * alone. */
	const char *top;
	bool preserve; /* keep modes, times and, as root, owners of the archive */
};

struct untar *untar_new(const struct untar_spec *spec); /* spec is copied; top is borrowed */
void untar_free(struct untar *untar); /* accepts NULL; removes an unfinished file */
/* The next bytes of the archive, in pieces of any size. */
int untar_feed(struct untar *untar, const void *data, size_t len, struct err *err);
/* After the last byte: fails if the archive is not complete. */
int untar_finish(struct untar *untar, struct err *err);
uint64_t untar_files(const struct untar *untar);
uint64_t untar_skipped(const struct untar *untar);
