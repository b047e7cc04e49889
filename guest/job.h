/* job.h - one file operation as the worker process sees it: a request, and a connection to the
 * daemon
 *
 * The worker may block: box-init forwards its frames as the window allows, and closes the
 * connection to cancel. Then reading and writing fail with ERR_CANCELLED; the job cleans up and
 * ends. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"

struct job {
	/* the request */
	enum wire_op op;
	char path[WIRE_PATH_MAX + 1];
	char to[WIRE_PATH_MAX + 1];
	uint32_t mode;
	uint64_t offset, length;
	bool flag; /* follow, parents or recursive */

	/* the connection */
	int fd;
	uint32_t channel;
	struct buf in;
	size_t held; /* bytes of in that the last job_take returned */
};

/* reply may be NULL: empty. */
int job_reply(struct job *job, const struct buf *reply, struct err *err);
int job_data(
	struct job *job, const void *data, size_t len, struct err *err); /* at most WIRE_DATA_MAX */
int job_end(struct job *job, struct err *err);
int job_error(struct job *job, const struct err *why);
/* Returns the next bytes from the daemon, borrowed until the next call: their number; 0 at the END;
 * or -1. */
ssize_t job_take(struct job *job, const uint8_t **ret, struct err *err);
