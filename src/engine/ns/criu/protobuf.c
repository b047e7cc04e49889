/* protobuf.c - see protobuf.h */
#include "engine/ns/criu/protobuf.h"

static void put_varint(struct buf *out, uint64_t value)
{
	uint8_t bytes[10];
	size_t len = 0;

	do {
		bytes[len] = (uint8_t)(value & 0x7f);
		value >>= 7;
		if (value)
			bytes[len] |= 0x80;
		len++;
	} while (value);
	buf_add(out, bytes, len);
}

void pb_put_number(struct buf *out, unsigned field, uint64_t value)
{
	put_varint(out, field << 3 | PB_VARINT);
	put_varint(out, value);
}

void pb_put_int(struct buf *out, unsigned field, int value)
{
	pb_put_number(out, field, (uint64_t)(int64_t)value);
}

void pb_put_bytes(struct buf *out, unsigned field, const void *data, size_t len)
{
	put_varint(out, field << 3 | PB_BYTES);
	put_varint(out, len);
	buf_add(out, data, len);
}

void pb_put_string(struct buf *out, unsigned field, const char *text)
{
	pb_put_bytes(out, field, text, strlen(text));
}
