/* reader.h - reads the SSH wire format (RFC 4251, section 5) from a run of bytes
 *
 * A reader that ran out or met something malformed is bad from then on, and gives empty values: the
 * caller reads all fields and asks once, at the end. */
#pragma once
#include "sshkey/sshkey.h"

struct ssh_reader {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static inline struct ssh_reader ssh_reader_of(struct bytes bytes)
{
	return (struct ssh_reader){ .at = bytes.data, .left = bytes.len };
}

uint8_t ssh_read_u8(struct ssh_reader *reader);
uint32_t ssh_read_u32(struct ssh_reader *reader);
uint64_t ssh_read_u64(struct ssh_reader *reader);
struct bytes ssh_read_string(struct ssh_reader *reader);
/* A positive number in its shortest form; without the zero that is there for the sign. */
struct bytes ssh_read_mpint(struct ssh_reader *reader);
bool ssh_reader_is_done(const struct ssh_reader *reader); /* not bad, and nothing is left */

bool bytes_equal(struct bytes a, struct bytes b);
bool bytes_is(struct bytes bytes, const char *text);
/* A copy as text into out of size; false when it is too long or has a byte that is not printable
 * ASCII. */
bool bytes_text(struct bytes bytes, char *out, size_t size);
