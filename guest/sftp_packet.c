/* sftp_packet.c - the fields of requests and answers; numbers are big endian, texts have a length
 *
 * An answer is written at the tail of the output and gets its length when it is whole. */
#include "guest/sftp_internal.h"
#include <endian.h>
#include <errno.h>

/* ---- of requests ---------------------------------------------------------------------------- */

static const uint8_t *take(struct sftp_request *request, size_t len)
{
	const uint8_t *at = request->at;

	if (request->bad || (size_t)(request->end - at) < len) {
		request->bad = true;
		return NULL;
	}
	request->at += len;
	return at;
}

uint8_t sftp_get_u8(struct sftp_request *request)
{
	const uint8_t *at = take(request, 1);

	return at ? *at : 0;
}

uint32_t sftp_get_u32(struct sftp_request *request)
{
	const uint8_t *at = take(request, 4);
	uint32_t value = 0;

	if (at)
		memcpy(&value, at, sizeof value);
	return be32toh(value);
}

uint64_t sftp_get_u64(struct sftp_request *request)
{
	const uint8_t *at = take(request, 8);
	uint64_t value = 0;

	if (at)
		memcpy(&value, at, sizeof value);
	return be64toh(value);
}

const uint8_t *sftp_get_bytes(struct sftp_request *request, size_t *ret_len)
{
	size_t len = sftp_get_u32(request);
	const uint8_t *at = take(request, len);

	*ret_len = at ? len : 0;
	return at;
}

void sftp_get_text(struct sftp_request *request, char *ret, size_t size)
{
	size_t len;
	const uint8_t *at = sftp_get_bytes(request, &len);

	*ret = '\0';
	if (!at)
		return;
	if (len >= size || memchr(at, '\0', len)) {
		request->bad = true;
		return;
	}
	memcpy(ret, at, len);
	ret[len] = '\0';
}

void sftp_get_attrs(struct sftp_request *request, struct sftp_attrs *ret)
{
	uint32_t count;
	size_t len;

	*ret = (struct sftp_attrs){ .flags = sftp_get_u32(request) };
	if (ret->flags & SFTP_ATTR_SIZE)
		ret->size = sftp_get_u64(request);
	if (ret->flags & SFTP_ATTR_OWNER) {
		ret->uid = sftp_get_u32(request);
		ret->gid = sftp_get_u32(request);
	}
	if (ret->flags & SFTP_ATTR_MODE)
		ret->mode = sftp_get_u32(request) & 07777;
	if (ret->flags & SFTP_ATTR_TIMES) {
		ret->atime = sftp_get_u32(request);
		ret->mtime = sftp_get_u32(request);
	}
	if (!(ret->flags & SFTP_ATTR_EXTENDED))
		return;
	/* Nobody has defined any. */
	for (count = sftp_get_u32(request); count && !request->bad; count--) {
		sftp_get_bytes(request, &len);
		sftp_get_bytes(request, &len);
	}
}

/* ---- of answers ----------------------------------------------------------------------------- */

void sftp_store_u32(uint8_t *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof value);
}

void sftp_put_u8(struct buf *out, uint8_t value)
{
	buf_add(out, &value, sizeof value);
}

void sftp_put_u32(struct buf *out, uint32_t value)
{
	value = htobe32(value);
	buf_add(out, &value, sizeof value);
}

void sftp_put_u64(struct buf *out, uint64_t value)
{
	value = htobe64(value);
	buf_add(out, &value, sizeof value);
}

void sftp_put_bytes(struct buf *out, const void *data, size_t len)
{
	sftp_put_u32(out, (uint32_t)len);
	buf_add(out, data, len);
}

void sftp_put_text(struct buf *out, const char *text)
{
	sftp_put_bytes(out, text, strlen(text));
}

void sftp_put_attrs(struct buf *out, const struct stat *st)
{
	sftp_put_u32(out, SFTP_ATTR_SIZE | SFTP_ATTR_OWNER | SFTP_ATTR_MODE | SFTP_ATTR_TIMES);
	sftp_put_u64(out, (uint64_t)st->st_size);
	sftp_put_u32(out, st->st_uid);
	sftp_put_u32(out, st->st_gid);
	sftp_put_u32(out, st->st_mode);
	sftp_put_u32(out, (uint32_t)st->st_atime);
	sftp_put_u32(out, (uint32_t)st->st_mtime);
}

size_t sftp_begin(struct sftp_request *request, enum sftp_type type)
{
	size_t mark = request->out->len;

	sftp_put_u32(request->out, 0);
	sftp_put_u8(request->out, (uint8_t)type);
	sftp_put_u32(request->out, request->id);
	return mark;
}

void sftp_end(struct sftp_request *request, size_t mark)
{
	sftp_store_u32(buf_head(request->out) + mark, (uint32_t)(request->out->len - mark - 4));
}

static void answer_status(struct sftp_request *request, enum sftp_code code, const char *message)
{
	size_t mark = sftp_begin(request, SFTP_STATUS);

	sftp_put_u32(request->out, code);
	sftp_put_text(request->out, message);
	sftp_put_text(request->out, ""); /* its language */
	sftp_end(request, mark);
}

static const char *const code_messages[] = {
	[SFTP_OK] = "Success",
	[SFTP_EOF] = "End of file",
	[SFTP_NO_SUCH_FILE] = "No such file",
	[SFTP_PERMISSION_DENIED] = "Permission denied",
	[SFTP_FAILURE] = "Failure",
	[SFTP_BAD_MESSAGE] = "Bad message",
	[SFTP_UNSUPPORTED] = "Operation unsupported",
};

void sftp_answer_code(struct sftp_request *request, enum sftp_code code)
{
	answer_status(request, code, code_messages[code]);
}

static enum sftp_code code_of(int errno_value)
{
	switch (errno_value) {
	case 0:
		return SFTP_OK;
	case ENOENT:
	case ENOTDIR:
	case EBADF:
	case ELOOP:
		return SFTP_NO_SUCH_FILE;
	case EPERM:
	case EACCES:
	case EFAULT:
		return SFTP_PERMISSION_DENIED;
	case ENAMETOOLONG:
	case EINVAL:
		return SFTP_BAD_MESSAGE;
	case ENOSYS:
		return SFTP_UNSUPPORTED;
	default:
		return SFTP_FAILURE;
	}
}

void sftp_answer_errno(struct sftp_request *request, int errno_value)
{
	enum sftp_code code = code_of(errno_value);

	/* The codes are few: the text says whether the disk is full or the folder is not empty. */
	answer_status(
		request, code, code == SFTP_FAILURE ? strerror(errno_value) : code_messages[code]);
}

void sftp_answer_result(struct sftp_request *request, int result)
{
	sftp_answer_errno(request, result < 0 ? errno : 0);
}

void sftp_answer_stat(struct sftp_request *request, int result, const struct stat *st)
{
	size_t mark;

	if (result < 0) {
		sftp_answer_errno(request, errno);
		return;
	}
	mark = sftp_begin(request, SFTP_ATTRS);
	sftp_put_attrs(request->out, st);
	sftp_end(request, mark);
}

void sftp_answer_name(struct sftp_request *request, const char *name)
{
	size_t mark = sftp_begin(request, SFTP_NAME);

	sftp_put_u32(request->out, 1);
	sftp_put_text(request->out, name);
	sftp_put_text(request->out, name);
	sftp_put_u32(request->out, 0);
	sftp_end(request, mark);
}
