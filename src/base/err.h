/* err.h - an error as a plain value: a kind, an errno and a message that grows a prefix at each
 * level
 *
 * It allocates nothing and holds no pointers, so a cloned child can write() it whole down a
 * pipe. */
#pragma once
#include <stddef.h>

enum err_kind {
	ERR_NONE = 0,
	ERR_SYSTEM,	  /* a system call failed; errno_value says how */
	ERR_INVALID,	  /* the caller's input is wrong */
	ERR_UNAUTHORIZED, /* no or unknown credentials */
	ERR_FORBIDDEN,	  /* known, but not allowed */
	ERR_NOT_FOUND,	  /* box, exec, image, file, program ... does not exist */
	ERR_EXISTS,	  /* name taken, file there already */
	ERR_STATE,	  /* not possible in the present state (box not running ...) */
	ERR_TOO_LARGE,	  /* body, frame, name over its limit */
	ERR_LIMIT,	  /* out of a counted resource: boxes, ranges, channels, disk */
	ERR_TIMEOUT,
	ERR_UNSUPPORTED, /* this machine, driver or image cannot do it */
	ERR_UNAVAILABLE, /* daemon or box-init does not answer */
	ERR_PROTOCOL,	 /* the other side broke the protocol */
	ERR_CANCELLED,
	ERR_KIND_COUNT
};

struct err {
	enum err_kind kind;
	int errno_value;
	char message[512]; /* what failed, in one line */
	char hint[256];	   /* what to do next; may be empty */
};

#define ERR_INIT  \
	{         \
		0 \
	}

/* All of these return -1, so that a failing function can end with `return err_set(...)`. They are
 * macros, so that compilers and analyzers see it too. err may be NULL when the caller does not
 * care. */
#define err_set(...) ERR_FAIL_(err_set_to(__VA_ARGS__))
/* err_sys appends ": strerror(errno_value)"; the kind follows the errno (ENOENT is ERR_NOT_FOUND
 * ...). */
#define err_sys(...) ERR_FAIL_(err_sys_to(__VA_ARGS__))
/* err_wrap puts "text: " before the message already there. */
#define err_wrap(...) ERR_FAIL_(err_wrap_to(__VA_ARGS__))
/* err_hint says what to do next; it leaves the message as it is. */
#define err_hint(...) ERR_FAIL_(err_hint_to(__VA_ARGS__))

#define ERR_FAIL_(call) \
	({              \
		call;   \
		-1;     \
	})

void err_set_to(struct err *err, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void err_sys_to(struct err *err, int errno_value, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void err_wrap_to(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void err_hint_to(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void err_clear(struct err *err);

/* One table maps each kind to its API code, HTTP status and exit code. */
const char *err_kind_code(enum err_kind kind);	    /* "not_found" */
int err_kind_http_status(enum err_kind kind);	    /* 404 */
int err_kind_exit_code(enum err_kind kind);	    /* CLI exit code, 64 to 79 */
enum err_kind err_kind_from_code(const char *code); /* ERR_SYSTEM for an unknown code */
