/* buf.h - a growable byte buffer: append at the tail, consume at the head */
#pragma once
#include "base/alloc.h"
#include <assert.h>

struct buf {
	uint8_t *data; /* owned; valid bytes are data[head .. head + len) */
	size_t head;
	size_t len;
	size_t cap;
};

#define BUF_INIT  \
	{         \
		0 \
	}

void buf_done(struct buf *buf);
/* Makes room for at least want more bytes at the tail and returns where to write them. The caller
 * writes and then calls buf_grew. */
uint8_t *buf_room(struct buf *buf, size_t want);
void buf_grew(struct buf *buf, size_t len);
void buf_add(struct buf *buf, const void *data, size_t len);
void buf_add_str(struct buf *buf, const char *text);
void buf_addf(struct buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_eat(struct buf *buf, size_t len); /* drop from the head */
/* The bytes as a NUL-terminated string; borrowed, valid until the next change. */
const char *buf_str(struct buf *buf);

static inline uint8_t *buf_head(const struct buf *buf)
{
	assert(buf->data || !buf->len);
	return buf->data ? buf->data + buf->head : NULL;
}
