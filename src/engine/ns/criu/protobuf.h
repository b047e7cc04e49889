/* protobuf.h - fields of protobuf messages, written
 *
 * A message is a row of fields, each a key (number and wire type) and a value: a varint, or a
 * length and bytes. */
#pragma once
#include "base/buf.h"

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

void pb_put_number(struct buf *out, unsigned field, uint64_t value);
void pb_put_int(struct buf *out, unsigned field,
	int value); /* int32: a negative number takes as many bytes as a 64-bit one */
void pb_put_bytes(struct buf *out, unsigned field, const void *data, size_t len);
void pb_put_string(struct buf *out, unsigned field, const char *text);
