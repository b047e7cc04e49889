/* init_program.h - box-init as this program carries it, for whoever puts it into boxes */
#pragma once
#include "base/err.h"
#include <stddef.h>

struct init_program {
	const void *data;
	size_t len;
	char *owned; /* free() it; NULL: data is part of this program */
};

/* The one at BOX_INIT, if that is set. ERR_UNSUPPORTED when there is none. */
int init_program_find(struct init_program *ret, struct err *err);
