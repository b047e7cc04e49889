/* frame.c - frames and their fields; see wire.h */
#include "wire/wire.h"
#include <endian.h>

int wire_frame_parse(const struct buf *in, struct wire_frame *ret, struct err *err)
{
	const uint8_t *p = buf_head(in);
	struct wire_reader head;
	uint32_t len, zero;
	uint8_t type;

	if (in->len < WIRE_HEADER)
		return 0;
	head = (struct wire_reader){ p, p + WIRE_HEADER, false };
	len = wire_get_u32(&head);
	type = wire_get_u8(&head);
	zero = wire_get_u8(&head);
	zero |= wire_get_u16(&head);
	if (type == 0 || type >= WIRE_TYPE_COUNT || zero)
		return err_set(err, ERR_PROTOCOL, "frame of unknown type %u", type);
	if (len > WIRE_PAYLOAD_MAX)
		return err_set(err, ERR_PROTOCOL, "frame of %u bytes is over the limit of %d", len,
			WIRE_PAYLOAD_MAX);
	if (in->len < WIRE_HEADER + (size_t)len)
		return 0;
	ret->type = type;
	ret->channel = wire_get_u32(&head);
	ret->payload = p + WIRE_HEADER;
	ret->len = len;
	return 1;
}

bool wire_find_hello(struct buf *in, uint64_t *skipped)
{
	static const uint8_t hello[] = { WIRE_HELLO_SIZE, 0, 0, 0, WIRE_HELLO, 0, 0, 0, 0, 0, 0, 0,
		'B', 'O', 'X', 'Y' };
	const uint8_t *head = buf_head(in);
	const uint8_t *found = head ? memmem(head, in->len, hello, sizeof hello) : NULL;
	size_t before;

	if (found)
		before = (size_t)(found - buf_head(in));
	else
		before = in->len - MIN(in->len, sizeof hello - 1);
	buf_eat(in, before);
	if (skipped)
		*skipped += before;
	return found && in->len >= WIRE_HEADER + WIRE_HELLO_SIZE;
}

size_t wire_begin(struct buf *out, enum wire_type type, uint32_t channel)
{
	size_t mark = out->len;

	wire_put_u32(out, 0);
	wire_put_u8(out, (uint8_t)type);
	wire_put_u8(out, 0);
	wire_put_u16(out, 0);
	wire_put_u32(out, channel);
	return mark;
}

void wire_end(struct buf *out, size_t mark)
{
	uint32_t len = (uint32_t)(out->len - mark - WIRE_HEADER);

	len = htole32(len);
	memcpy(buf_head(out) + mark, &len, sizeof len);
}

void wire_add_data(struct buf *out, uint32_t channel, enum wire_stream stream, uint64_t offset,
	const void *data, size_t len)
{
	size_t mark = wire_begin(out, WIRE_DATA, channel);

	wire_put_u8(out, (uint8_t)stream);
	wire_put_u64(out, offset);
	buf_add(out, data, len);
	wire_end(out, mark);
}

void wire_put_u8(struct buf *out, uint8_t value)
{
	buf_add(out, &value, sizeof value);
}

void wire_put_u16(struct buf *out, uint16_t value)
{
	value = htole16(value);
	buf_add(out, &value, sizeof value);
}

void wire_put_u32(struct buf *out, uint32_t value)
{
	value = htole32(value);
	buf_add(out, &value, sizeof value);
}

void wire_put_u64(struct buf *out, uint64_t value)
{
	value = htole64(value);
	buf_add(out, &value, sizeof value);
}

void wire_put_str(struct buf *out, const char *text)
{
	size_t len = text ? strlen(text) : 0;

	wire_put_u32(out, (uint32_t)len);
	buf_add(out, text, len);
	wire_put_u8(out, 0);
}

void wire_put_strv(struct buf *out, const char *const *strv)
{
	uint32_t count = 0;

	while (strv && strv[count])
		count++;
	wire_put_u32(out, count);
	for (uint32_t i = 0; i < count; i++)
		wire_put_str(out, strv[i]);
}

void wire_put_bytes(struct buf *out, const void *data, size_t len)
{
	buf_add(out, data, len);
}

static bool take(struct wire_reader *in, void *ret, size_t len)
{
	if (in->bad || (size_t)(in->end - in->at) < len) {
		in->bad = true;
		memset(ret, 0, len);
		return false;
	}
	memcpy(ret, in->at, len);
	in->at += len;
	return true;
}

uint8_t wire_get_u8(struct wire_reader *in)
{
	uint8_t value;

	take(in, &value, sizeof value);
	return value;
}

uint16_t wire_get_u16(struct wire_reader *in)
{
	uint16_t value;

	take(in, &value, sizeof value);
	return le16toh(value);
}

uint32_t wire_get_u32(struct wire_reader *in)
{
	uint32_t value;

	take(in, &value, sizeof value);
	return le32toh(value);
}

uint64_t wire_get_u64(struct wire_reader *in)
{
	uint64_t value;

	take(in, &value, sizeof value);
	return le64toh(value);
}

void wire_get_bytes(struct wire_reader *in, void *ret, size_t len)
{
	take(in, ret, len);
}

const char *wire_get_str(struct wire_reader *in, size_t max)
{
	uint32_t len = wire_get_u32(in);
	const char *text = (const char *)in->at;

	if (in->bad || len > max || (size_t)(in->end - in->at) < (size_t)len + 1 ||
		text[len] != '\0' || memchr(text, '\0', len)) {
		in->bad = true;
		return "";
	}
	in->at += (size_t)len + 1;
	return text;
}

const char **wire_get_strv(struct wire_reader *in, size_t max_count)
{
	uint32_t count = wire_get_u32(in);
	const char **strv;

	/* Each string takes five bytes at least: a count the payload cannot hold allocates
	 * nothing. */
	if (in->bad || count > max_count || count > (size_t)(in->end - in->at) / 5) {
		in->bad = in->bad || count > 0;
		count = 0;
	}
	strv = xnewn(const char *, count + 1);
	for (uint32_t i = 0; i < count; i++)
		strv[i] = wire_get_str(in, WIRE_PAYLOAD_MAX);
	return strv;
}

int wire_get_done(const struct wire_reader *in, struct err *err)
{
	if (in->bad || in->at != in->end)
		return err_set(err, ERR_PROTOCOL, "malformed message");
	return 0;
}
