/* tls_hello.c - see tls_hello.h
 *
 *   record  22, version, length | record  22, version, length | ...     gathered: the payloads make
 *                                                                       one message
 *   message  1, length | version, random, session, ciphers, compressions, extensions
 *
 * Each call walks the records from the start, because keeping state would cost more than the walk;
 * the message itself is read once, when it is complete. The first byte that breaks a rule decides,
 * so it does not matter in what pieces the bytes came.
 *
 * Servers are more tolerant than the standard: some ignore the version of the record, some skip
 * empty records, some accept the hello of SSL 2, which has no name. A client that begins like this
 * means TLS, so it is broken and not something else. */
#include "gate/relay/tls_hello.h"
#include "base/alloc.h"
#include "policy/policy.h"

enum {
	RECORD_HEADER = 5,
	RECORD_MAX = 16384,
	RECORDS_MAX = 128, /* each call walks them again; clients send one or two */
	RECORD_HANDSHAKE = 22,
	MESSAGE_HEADER = 4,
	MESSAGE_CLIENT_HELLO = 1,
	EXTENSIONS_MAX = 64, /* browsers send twenty */

	EXTENSION_SERVER_NAME = 0,
	EXTENSION_ECH = 0xfe0d,
	EXTENSION_ECH_DRAFT = 0xfe08, /* from this value to the one above */
	EXTENSION_ESNI = 0xffce,      /* its predecessor */
};

/* ---- reading within bounds ------------------------------------------------------------------ */

struct cursor {
	const uint8_t *at;
	size_t left;
};

/* Takes the next size bytes; false when there are fewer. */
static bool take(struct cursor *cursor, size_t size, struct cursor *ret)
{
	if (size > cursor->left)
		return false;
	*ret = (struct cursor){ cursor->at, size };
	cursor->at += size;
	cursor->left -= size;
	return true;
}

static bool take_number(struct cursor *cursor, unsigned bytes, size_t *ret)
{
	struct cursor digits;

	if (!take(cursor, bytes, &digits))
		return false;
	*ret = 0;
	for (unsigned i = 0; i < bytes; i++)
		*ret = *ret << 8 | digits.at[i];
	return true;
}

/* A vector as in the standard: a length of so many bytes, then the content. */
static bool take_vector(struct cursor *cursor, unsigned bytes, struct cursor *ret)
{
	size_t size;

	return take_number(cursor, bytes, &size) && take(cursor, size, ret);
}

/* TLS 1.0 to 1.2; 1.3 uses the number of 1.2 here. */
static bool is_version(const uint8_t *at)
{
	return at[0] == 3 && at[1] >= 1 && at[1] <= 3;
}

/* ---- the message ---------------------------------------------------------------------------- */

/* Exactly one valid name: with two, the server might use the other. */
static bool read_server_name(struct cursor body, struct tls_hello *hello)
{
	char text[DNS_HOST_MAX + 1], name[POLICY_NAME_SIZE];
	struct cursor list, host;
	size_t kind;

	if (!take_vector(&body, 2, &list) || body.left)
		return false;
	if (!take_number(&list, 1, &kind) || kind || !take_vector(&list, 2, &host) || list.left)
		return false;
	if (!host.left || host.left >= sizeof text || memchr(host.at, '\0', host.left))
		return false;
	memcpy(text, host.at, host.left);
	text[host.left] = '\0';
	if (policy_name_normalise(text, name))
		return false;
	strcpy(hello->name, name);
	return true;
}

static bool read_extension(size_t type, struct cursor body, struct tls_hello *hello)
{
	if (type == EXTENSION_SERVER_NAME)
		return read_server_name(body, hello);
	if ((type >= EXTENSION_ECH_DRAFT && type <= EXTENSION_ECH) || type == EXTENSION_ESNI)
		hello->has_ech = true;
	return true;
}

static bool read_extensions(struct cursor list, struct tls_hello *hello)
{
	uint16_t seen[EXTENSIONS_MAX];
	size_t count = 0;

	while (list.left) {
		struct cursor body;
		size_t type;

		if (!take_number(&list, 2, &type) || !take_vector(&list, 2, &body))
			return false;
		for (size_t i = 0; i < count; i++)
			if (seen[i] == type)
				return false;
		if (count == EXTENSIONS_MAX || !read_extension(type, body, hello))
			return false;
		seen[count++] = (uint16_t)type;
	}
	return true;
}

static bool read_message(struct cursor message, struct tls_hello *hello)
{
	struct cursor version, skipped, session, ciphers, compressions, extensions;

	if (!take(&message, 2, &version) || !is_version(version.at) ||
		!take(&message, 32, &skipped))
		return false;
	if (!take_vector(&message, 1, &session) || session.left > 32)
		return false;
	if (!take_vector(&message, 2, &ciphers) || !ciphers.left || ciphers.left % 2)
		return false;
	if (!take_vector(&message, 1, &compressions) || !compressions.left ||
		!memchr(compressions.at, 0, compressions.left))
		return false;
	if (!message.left) /* TLS 1.0 knew no extensions */
		return true;
	return take_vector(&message, 2, &extensions) && !message.left &&
	       read_extensions(extensions, hello);
}

/* ---- records -------------------------------------------------------------------------------- */

static bool begins_well(const uint8_t *data, size_t len)
{
	return data[0] == RECORD_HANDSHAKE && (len < 2 || data[1] == 3);
}

/* Decides about an unusual beginning: another protocol, or malformed TLS? */
static enum tls_hello_result judge_odd(const uint8_t *data, size_t len)
{
	/* SSL 2: two bytes of length, client hello, 3.x */
	if ((data[0] & 0xc0) == 0x80) {
		if ((len > 2 && data[2] != MESSAGE_CLIENT_HELLO) || (len > 3 && data[3] != 3))
			return TLS_HELLO_OTHER;
		return len > 3 ? TLS_HELLO_BROKEN : TLS_HELLO_MORE;
	}
	if (data[0] != RECORD_HANDSHAKE || data[1] >= 0x10)
		return TLS_HELLO_OTHER;
	/* An unknown version: meant as TLS only if a hello follows. */
	if (len <= RECORD_HEADER)
		return TLS_HELLO_MORE;
	return data[RECORD_HEADER] == MESSAGE_CLIENT_HELLO || !(data[3] | data[4])
		       ? TLS_HELLO_BROKEN
		       : TLS_HELLO_OTHER;
}

struct message {
	uint8_t bytes[TLS_HELLO_MAX];
	size_t len;
	size_t whole; /* 0: not known yet */
	unsigned records;
};

static bool learn_length(struct message *message)
{
	const uint8_t *at = message->bytes;

	if (message->whole)
		return true;
	if (message->len && at[0] != MESSAGE_CLIENT_HELLO)
		return false;
	if (message->len < MESSAGE_HEADER)
		return true;
	message->whole = MESSAGE_HEADER + ((size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3]);
	return message->whole <= TLS_HELLO_MAX - RECORD_HEADER;
}

/* Takes the available part of one record and moves *pos past it. False: malformed. */
static bool gather(const uint8_t *data, size_t len, size_t *pos, struct message *message)
{
	const uint8_t *head = data + *pos;
	size_t left = len - *pos, size, here;

	if (++message->records > RECORDS_MAX)
		return false;
	if (head[0] != RECORD_HANDSHAKE || (left > 1 && head[1] != 3) ||
		(left > 2 && !is_version(head + 1)))
		return false;
	if (left < RECORD_HEADER) {
		*pos = len;
		return true;
	}
	size = (size_t)head[3] << 8 | head[4];
	if (!size || size > RECORD_MAX)
		return false;
	here = MIN(size, left - RECORD_HEADER);
	memcpy(message->bytes + message->len, head + RECORD_HEADER, here);
	message->len += here;
	*pos += RECORD_HEADER + here;
	/* Nothing may follow the hello in its record: the server has not answered yet. */
	return learn_length(message) &&
	       (!message->whole || message->len - here + size <= message->whole);
}

enum tls_hello_result tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret)
{
	struct message message;
	struct tls_hello hello = { 0 };
	bool is_cut = len >= TLS_HELLO_MAX;
	size_t pos = 0;

	len = MIN(len, (size_t)TLS_HELLO_MAX);
	if (len && !begins_well(data, len))
		return judge_odd(data, len);
	message.len = message.whole = message.records = 0; /* and not all of its bytes */
	while (pos < len && (!message.whole || message.len < message.whole))
		if (!gather(data, len, &pos, &message))
			return TLS_HELLO_BROKEN;
	if (!message.whole || message.len < message.whole)
		return is_cut ? TLS_HELLO_BROKEN : TLS_HELLO_MORE;
	if (!read_message((struct cursor){ message.bytes + MESSAGE_HEADER,
				  message.whole - MESSAGE_HEADER },
		    &hello))
		return TLS_HELLO_BROKEN;
	*ret = hello;
	return hello.name[0] ? TLS_HELLO_NAMED : TLS_HELLO_UNNAMED;
}
