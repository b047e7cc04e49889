/* criu_rpc.h - the messages of `criu swrk`: protobuf, one message each packet, the few fields in
 * use
 *
 * Pure: bytes from a request, an answer from bytes. Field numbers are those of CRIU's rpc.proto. */
#pragma once
#include "base/buf.h"
#include "engine/ns/criu/criu.h"

enum criu_type {
	CRIU_TYPE_EMPTY = 0, /* an answer to nothing that was asked: an error */
	CRIU_TYPE_DUMP = 1,
	CRIU_TYPE_RESTORE = 2,
	CRIU_TYPE_CHECK = 3,
	CRIU_TYPE_NOTIFY = 6,
	CRIU_TYPE_VERSION = 10,
};

enum {
	CRIU_MESSAGE_MAX = 16384, /* of CRIU's; they are some hundred bytes */
	CRIU_SCRIPT_MAX = 64,	  /* with its NUL */
	CRIU_TEXT_MAX = 400,
};

/* images and work are fd numbers of the process that made the socket. */
void criu_rpc_put_request(struct buf *out, enum criu_type type, const struct criu_request *request);
void criu_rpc_put_notified(struct buf *out, bool ok);

struct criu_reply {
	enum criu_type type;
	bool success;
	pid_t pid;		      /* of a restore or an event; 0: none */
	char script[CRIU_SCRIPT_MAX]; /* of an event: its name */
	int errno_value;	      /* 0: none */
	char text[CRIU_TEXT_MAX];     /* what went wrong first, one printable line; may be empty */
	struct criu_version version;
};

/* Fails with ERR_PROTOCOL unless data is one whole message of a known type with all it needs. */
int criu_rpc_get_reply(const void *data, size_t len, struct criu_reply *ret, struct err *err);

/* The error kind of a failure. */
enum err_kind criu_reply_kind(const struct criu_reply *reply);
/* The name as a constant; NULL: an event of a newer version. */
const char *criu_rpc_find_event(const char *script, enum criu_event_kind *ret);
const char *criu_type_name(enum criu_type type); /* of a request: "dump" */

/* Makes text one line: unprintable characters become '?', line ends become spaces; cut to size. */
void criu_text_clean(char *out, size_t size, const char *text, size_t len);
