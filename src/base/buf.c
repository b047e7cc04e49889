/* buf.c - see buf.h */
#include "base/buf.h"
#include <stdarg.h>
#include <stdio.h>

void buf_done(struct buf *buf)
{
	free(buf->data);
	*buf = (struct buf)BUF_INIT;
}

uint8_t *buf_room(struct buf *buf, size_t want)
{
	if (buf->head && (buf->len == 0 || buf->head + buf->len + want > buf->cap)) {
		if (buf->len)
			memmove(buf->data, buf->data + buf->head, buf->len);
		buf->head = 0;
	}
	if (buf->len + want > buf->cap) {
		buf->cap = MAX(buf->len + want, buf->cap * 2);
		buf->data = xrealloc(buf->data, buf->cap);
	}
	return buf->data + buf->head + buf->len;
}

void buf_grew(struct buf *buf, size_t len)
{
	buf->len += len;
}

void buf_add(struct buf *buf, const void *data, size_t len)
{
	if (!len)
		return;
	memcpy(buf_room(buf, len), data, len);
	buf->len += len;
}

void buf_add_str(struct buf *buf, const char *text)
{
	buf_add(buf, text, strlen(text));
}

void buf_addf(struct buf *buf, const char *fmt, ...)
{
	va_list ap, again;
	int len;

	va_start(ap, fmt);
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len > 0) {
		vsnprintf((char *)buf_room(buf, (size_t)len + 1), (size_t)len + 1, fmt, again);
		buf->len += (size_t)len;
	}
	va_end(again);
}

void buf_eat(struct buf *buf, size_t len)
{
	buf->head += len;
	buf->len -= len;
	if (!buf->len)
		buf->head = 0;
}

const char *buf_str(struct buf *buf)
{
	*buf_room(buf, 1) = '\0';
	return (const char *)buf_head(buf);
}
