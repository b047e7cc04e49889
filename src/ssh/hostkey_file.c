/* hostkey_file.c - see hostkey_file.h */
#include "ssh/hostkey_file.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/text.h"
#include "sshkey/reader.h"

#define BEGIN "-----BEGIN OPENSSH PRIVATE KEY-----"
#define END   "-----END OPENSSH PRIVATE KEY-----"
#define MAGIC "openssh-key-v1" /* with its NUL */
#define TYPE  "ssh-ed25519"

enum { COLUMNS = 70, ALIGN = 8 };

/* ---- writing --------------------------------------------------------------------------------- */

uint8_t *hostkey_put_string(uint8_t *out, const void *data, size_t len)
{
	out[0] = (uint8_t)(len >> 24);
	out[1] = (uint8_t)(len >> 16);
	out[2] = (uint8_t)(len >> 8);
	out[3] = (uint8_t)len;
	if (data)
		memcpy(out + 4, data, len);
	return out + 4 + len;
}

void hostkey_write_blob(const uint8_t point[HOSTKEY_POINT_SIZE], uint8_t ret[HOSTKEY_BLOB_SIZE])
{
	uint8_t *at = hostkey_put_string(ret, TYPE, strlen(TYPE));

	hostkey_put_string(at, point, HOSTKEY_POINT_SIZE);
}

static void add_string(struct buf *out, const void *data, size_t len)
{
	uint8_t head[4];

	hostkey_put_string(head, NULL, len);
	buf_add(out, head, sizeof head);
	buf_add(out, data, len);
}

/* A buf is freed with what is in it. */
static void buf_wipe(struct buf *buf)
{
	explicit_bzero(buf->data, buf->cap);
	buf_done(buf);
}

static void add_secret(struct buf *out, const struct hostkey_parts *parts, const char *comment)
{
	uint8_t both[HOSTKEY_SEED_SIZE + HOSTKEY_POINT_SIZE];
	struct buf inner = BUF_INIT;
	uint8_t check[4];

	assert(parts); /* for the analyzer, which believes otherwise */
	random_bytes(check, sizeof check);
	memcpy(both, parts->seed, sizeof parts->seed);
	memcpy(both + sizeof parts->seed, parts->point, sizeof parts->point);
	buf_room(&inner, 512); /* moves no secret */
	buf_add(&inner, check, sizeof check);
	buf_add(&inner, check, sizeof check);
	add_string(&inner, TYPE, strlen(TYPE));
	add_string(&inner, parts->point, sizeof parts->point);
	add_string(&inner, both, sizeof both);
	add_string(&inner, comment, strlen(comment));
	for (uint8_t pad = 1; inner.len % ALIGN; pad++)
		buf_add(&inner, &pad, 1);
	add_string(out, buf_head(&inner), inner.len);
	explicit_bzero(both, sizeof both);
	buf_wipe(&inner);
}

char *hostkey_file_text(const struct hostkey_parts *parts, const char *comment)
{
	static const uint8_t one[4] = { 0, 0, 0, 1 };
	struct buf body = BUF_INIT, text = BUF_INIT;
	uint8_t blob[HOSTKEY_BLOB_SIZE];
	char *base64, *result;

	hostkey_write_blob(parts->point, blob);
	buf_room(&body, 1024);
	buf_room(&text, 2048);
	buf_add(&body, MAGIC, sizeof MAGIC);
	add_string(&body, "none", 4);
	add_string(&body, "none", 4);
	add_string(&body, "", 0);
	buf_add(&body, one, sizeof one);
	add_string(&body, blob, sizeof blob);
	add_secret(&body, parts, comment);
	base64 = base64_encode(buf_head(&body), body.len);
	buf_addf(&text, BEGIN "\n");
	for (size_t at = 0; at < strlen(base64); at += COLUMNS)
		buf_addf(&text, "%.*s\n", COLUMNS, base64 + at);
	buf_addf(&text, END "\n");
	result = xstrdup(buf_str(&text));
	explicit_bzero(base64, strlen(base64));
	free(base64);
	buf_wipe(&text);
	buf_wipe(&body);
	return result;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int damaged(struct err *err)
{
	return err_set(err, ERR_INVALID, "the file is damaged");
}

static int read_secret(
	struct bytes bytes, struct bytes public, struct hostkey_parts *ret, struct err *err)
{
	struct ssh_reader reader = ssh_reader_of(bytes);
	uint32_t check = ssh_read_u32(&reader), again = ssh_read_u32(&reader);
	struct bytes type = ssh_read_string(&reader), point, both;
	uint8_t blob[HOSTKEY_BLOB_SIZE];

	if (check != again || reader.bad)
		return damaged(err);
	if (!bytes_is(type, TYPE))
		return err_set(err, ERR_INVALID, "it is no Ed25519 key");
	point = ssh_read_string(&reader);
	both = ssh_read_string(&reader);
	ssh_read_string(&reader); /* the comment */
	if (reader.bad || point.len != HOSTKEY_POINT_SIZE ||
		both.len != HOSTKEY_SEED_SIZE + HOSTKEY_POINT_SIZE || reader.left >= ALIGN ||
		memcmp(both.data + HOSTKEY_SEED_SIZE, point.data, HOSTKEY_POINT_SIZE))
		return damaged(err);
	for (uint8_t pad = 1; reader.left; pad++)
		if (ssh_read_u8(&reader) != pad)
			return damaged(err);
	hostkey_write_blob(point.data, blob);
	if (!bytes_equal(public, (struct bytes){ blob, sizeof blob }))
		return damaged(err);
	memcpy(ret->seed, both.data, sizeof ret->seed);
	memcpy(ret->point, point.data, sizeof ret->point);
	return 0;
}

static int read_body(struct bytes bytes, struct hostkey_parts *ret, struct err *err)
{
	struct ssh_reader reader = ssh_reader_of(bytes);
	struct bytes cipher, kdf, public, secret;

	if (bytes.len < sizeof MAGIC || memcmp(bytes.data, MAGIC, sizeof MAGIC))
		return damaged(err);
	reader.at += sizeof MAGIC;
	reader.left -= sizeof MAGIC;
	cipher = ssh_read_string(&reader);
	kdf = ssh_read_string(&reader);
	if (!reader.bad && (!bytes_is(cipher, "none") || !bytes_is(kdf, "none"))) {
		err_set(err, ERR_INVALID, "it has a passphrase");
		return err_hint(err, "'ssh-keygen -p -f FILE' takes it away");
	}
	if (ssh_read_string(&reader).len || ssh_read_u32(&reader) != 1)
		return damaged(err);
	public = ssh_read_string(&reader);
	secret = ssh_read_string(&reader);
	return ssh_reader_is_done(&reader) ? read_secret(secret, public, ret, err) : damaged(err);
}

/* What is between the two lines, without the ends of lines; yours, secret. NULL: they are not
 * there. */
static char *take_base64(const char *text, size_t len)
{
	const char *start, *end;
	char *out, *to;

	if (memchr(text, '\0', len) || !text_has_prefix(text, BEGIN "\n"))
		return NULL;
	start = text + strlen(BEGIN "\n");
	end = strstr(start, "\n" END);
	if (!end || end[strlen("\n" END)] != '\n' || end[strlen("\n" END "\n")])
		return NULL;
	to = out = xcalloc(1, (size_t)(end - start) + 1);
	for (; start < end; start++)
		if (*start != '\n')
			*to++ = *start;
	return out;
}

int hostkey_file_read(const char *text, size_t len, struct hostkey_parts *ret, struct err *err)
{
	char *base64 = take_base64(text, len);
	size_t body_len = 0;
	uint8_t *body = NULL;
	int result;

	if (!base64) {
		if (strstr(text, "-----BEGIN "))
			return err_set(err, ERR_INVALID,
				"the file is damaged, or not in the format of OpenSSH");
		return damaged(err);
	}
	if (base64_decode(base64, strlen(base64), &body, &body_len, NULL) < 0)
		result = damaged(err);
	else
		result = read_body((struct bytes){ body, body_len }, ret, err);
	explicit_bzero(base64, strlen(base64));
	free(base64);
	if (body)
		explicit_bzero(body, body_len);
	free(body);
	return result;
}
