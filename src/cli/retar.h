/* retar.h - turns an archive from one box into one for another: parsed strictly, the folder
 * renamed, written anew
 *
 * Bytes of one box never reach another unchecked. All names must lie below the first one, which is
 * a folder; owners and set-user-id bits are kept only if preserved. Sparse files become plain
 * ones. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct retar;

struct retar_spec {
	/* Up to len bytes of the old archive; 0 at its end, -1 with err. */
	int64_t (*read)(void *buf, size_t len, void *arg, struct err *err);
	void *arg;
	const char *top; /* the new name of the folder; "": only its content */
	bool preserve;
};

struct retar *retar_new(const struct retar_spec *spec); /* spec is copied; top is borrowed */
void retar_free(struct retar *retar);			/* accepts NULL */
/* Up to len bytes of the new archive; 0 at its end, -1 with err. */
int64_t retar_read(struct retar *retar, void *buf, size_t len, struct err *err);
