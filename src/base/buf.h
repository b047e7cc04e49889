/* buf.h - a growable run of bytes with a read end: append at the tail, consume at the head */
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
/* Room for at least want more bytes at the tail; returns where to write them. Follow with
 * buf_grew. */
uint8_t *buf_room(struct buf *buf, size_t want);
void buf_grew(struct buf *buf, size_t len);
void buf_add(struct buf *buf, const void *data, size_t len);
void buf_add_str(struct buf *buf, const char *text);
void buf_addf(struct buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_eat(struct buf *buf, size_t len); /* drop from the head */
/* A NUL-terminated view of the bytes; borrowed, valid until the next change. */
const char *buf_str(struct buf *buf);

static inline uint8_t *buf_head(const struct buf *buf)
{
	assert(buf->data || !buf->len);
	return buf->data ? buf->data + buf->head : NULL;
}
