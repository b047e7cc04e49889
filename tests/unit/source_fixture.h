/* source_fixture.h - bytes in memory, read in steps of a chosen size */
#pragma once
#include "base/alloc.h"
#include "base/err.h"
#include <sys/types.h>

struct source {
	const uint8_t *data;
	size_t len, step;
};

static inline ssize_t read_source(void *arg, void *data, size_t len, struct err *err)
{
	struct source *source = arg;

	(void)err;
	len = MIN(len, MIN(source->len, source->step));
	memcpy(data, source->data, len);
	source->data += len;
	source->len -= len;
	return (ssize_t)len;
}
