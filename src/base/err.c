/* err.c - see err.h */
#include "base/err.h"
#include "base/alloc.h"
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* Exit codes differ from the small codes programs use, and from 126-255, which exec passes
 * through. */
static const struct {
	const char *code;
	int http_status;
	int exit_code;
} kinds[] = {
	[ERR_NONE] = { "ok", 200, 0 },
	[ERR_SYSTEM] = { "system", 500, 71 },
	[ERR_INVALID] = { "invalid", 400, 64 },
	[ERR_UNAUTHORIZED] = { "unauthorized", 401, 77 },
	[ERR_FORBIDDEN] = { "forbidden", 403, 77 },
	[ERR_NOT_FOUND] = { "not_found", 404, 66 },
	[ERR_EXISTS] = { "exists", 409, 73 },
	[ERR_STATE] = { "state", 409, 65 },
	[ERR_TOO_LARGE] = { "too_large", 413, 64 },
	[ERR_LIMIT] = { "limit", 429, 75 },
	[ERR_TIMEOUT] = { "timeout", 504, 74 },
	[ERR_UNSUPPORTED] = { "unsupported", 501, 69 },
	[ERR_UNAVAILABLE] = { "unavailable", 503, 69 },
	[ERR_PROTOCOL] = { "protocol", 502, 76 },
	[ERR_CANCELLED] = { "cancelled", 499, 70 },
};
static_assert(ARRAY_LEN(kinds) == ERR_KIND_COUNT, "every kind has a row");

static enum err_kind kind_of_errno(int errno_value)
{
	switch (errno_value) {
	case ENOENT:
	case ESRCH:
		return ERR_NOT_FOUND;
	case EEXIST:
	case ENOTEMPTY:
		return ERR_EXISTS;
	case EINVAL:
	case ENOTDIR:
	case EISDIR:
	case ELOOP:
	case ENAMETOOLONG:
	case EXDEV:
		return ERR_INVALID;
	case EACCES:
	case EPERM:
	case EROFS:
		return ERR_FORBIDDEN;
	case ENOSPC:
	case EDQUOT:
	case EMFILE:
	case ENFILE:
	case EAGAIN:
	case ENOMEM:
		return ERR_LIMIT;
	case ETIMEDOUT:
		return ERR_TIMEOUT;
	case ENOSYS:
	case EOPNOTSUPP:
		return ERR_UNSUPPORTED;
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
		return ERR_UNAVAILABLE;
	default:
		return ERR_SYSTEM;
	}
}

void err_set_to(struct err *err, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return;
	err->kind = kind;
	err->errno_value = 0;
	err->hint[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof err->message, fmt, ap);
	va_end(ap);
}

void err_sys_to(struct err *err, int errno_value, const char *fmt, ...)
{
	va_list ap;
	size_t len;

	if (!err)
		return;
	err->kind = kind_of_errno(errno_value);
	err->errno_value = errno_value;
	err->hint[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof err->message, fmt, ap);
	va_end(ap);
	len = strlen(err->message);
	snprintf(err->message + len, sizeof err->message - len, ": %s", strerror(errno_value));
}

void err_wrap_to(struct err *err, const char *fmt, ...)
{
	char text[sizeof err->message];
	size_t len;
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	len = strlen(text);
	snprintf(text + len, sizeof text - len, ": %s", err->message);
	memcpy(err->message, text, sizeof text);
}

void err_hint_to(struct err *err, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	vsnprintf(err->hint, sizeof err->hint, fmt, ap);
	va_end(ap);
}

void err_clear(struct err *err)
{
	*err = (struct err)ERR_INIT;
}

const char *err_kind_code(enum err_kind kind)
{
	return (unsigned)kind < ERR_KIND_COUNT ? kinds[kind].code : "system";
}

int err_kind_http_status(enum err_kind kind)
{
	return (unsigned)kind < ERR_KIND_COUNT ? kinds[kind].http_status : 500;
}

int err_kind_exit_code(enum err_kind kind)
{
	return (unsigned)kind < ERR_KIND_COUNT ? kinds[kind].exit_code : 71;
}

enum err_kind err_kind_from_code(const char *code)
{
	for (unsigned kind = 0; kind < ERR_KIND_COUNT; kind++)
		if (!strcmp(kinds[kind].code, code))
			return kind;
	return ERR_SYSTEM;
}
