/* reader.c - see reader.h */
#include "sshkey/reader.h"
#include <string.h>

static const uint8_t *take(struct ssh_reader *reader, size_t len)
{
	const uint8_t *at = reader->at;

	if (reader->bad || reader->left < len) {
		reader->bad = true;
		reader->left = 0;
		return NULL;
	}
	reader->at += len;
	reader->left -= len;
	return at;
}

uint8_t ssh_read_u8(struct ssh_reader *reader)
{
	const uint8_t *at = take(reader, 1);

	return at ? *at : 0;
}

uint32_t ssh_read_u32(struct ssh_reader *reader)
{
	const uint8_t *at = take(reader, 4);

	return at ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]
		  : 0;
}

uint64_t ssh_read_u64(struct ssh_reader *reader)
{
	uint64_t high = ssh_read_u32(reader);

	return high << 32 | ssh_read_u32(reader);
}

struct bytes ssh_read_string(struct ssh_reader *reader)
{
	uint32_t len = ssh_read_u32(reader);
	const uint8_t *at = take(reader, len);

	return at ? (struct bytes){ at, len } : (struct bytes){ 0 };
}

struct bytes ssh_read_mpint(struct ssh_reader *reader)
{
	struct bytes number = ssh_read_string(reader);
	bool padded = number.len > 1 && !number.data[0] && number.data[1] & 0x80;

	if (!number.len || number.data[0] & 0x80 || (!number.data[0] && !padded)) {
		reader->bad = true;
		return (struct bytes){ 0 };
	}
	return padded ? (struct bytes){ number.data + 1, number.len - 1 } : number;
}

bool ssh_reader_is_done(const struct ssh_reader *reader)
{
	return !reader->bad && !reader->left;
}

bool bytes_equal(struct bytes a, struct bytes b)
{
	return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

bool bytes_is(struct bytes bytes, const char *text)
{
	return bytes.len == strlen(text) && (!bytes.len || !memcmp(bytes.data, text, bytes.len));
}

bool bytes_text(struct bytes bytes, char *out, size_t size)
{
	if (bytes.len >= size)
		return false;
	for (size_t i = 0; i < bytes.len; i++)
		if (bytes.data[i] < 0x20 || bytes.data[i] > 0x7e)
			return false;
	if (bytes.len)
		memcpy(out, bytes.data, bytes.len);
	out[bytes.len] = '\0';
	return true;
}
