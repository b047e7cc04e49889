/* ops.c - which module serves which op */
#include "guest/ops.h"
#include "guest/conn.h"
#include "guest/dial.h"
#include "guest/exec.h"
#include "guest/hosts.h"
#include "guest/identity.h"
#include "guest/self.h"
#include "guest/shutdown.h"
#include "guest/worker.h"

typedef int (*open_fn)(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err);

static const open_fn openers[WIRE_OP_COUNT] = {
	[WIRE_OP_EXEC_START] = exec_open_start,
	[WIRE_OP_EXEC_ATTACH] = exec_open_attach,
	[WIRE_OP_EXEC_LIST] = exec_open_list,
	[WIRE_OP_EXEC_SIGNAL] = exec_open_signal,
	[WIRE_OP_PROCESSES] = worker_open,
	[WIRE_OP_STAT] = worker_open,
	[WIRE_OP_LIST] = worker_open,
	[WIRE_OP_READ] = worker_open,
	[WIRE_OP_WRITE] = worker_open,
	[WIRE_OP_MKDIR] = worker_open,
	[WIRE_OP_REMOVE] = worker_open,
	[WIRE_OP_RENAME] = worker_open,
	[WIRE_OP_CHMOD] = worker_open,
	[WIRE_OP_TAR_OUT] = worker_open,
	[WIRE_OP_TAR_IN] = worker_open,
	[WIRE_OP_DIAL] = dial_open,
	[WIRE_OP_STATS] = worker_open,
	[WIRE_OP_SHUTDOWN] = shutdown_open,
	[WIRE_OP_NAME] = hosts_open,
	[WIRE_OP_ANSWER] = self_open_answer,
	[WIRE_OP_IDENTITY] = identity_open,
	[WIRE_OP_RESTORED] = identity_open_restored,
	[WIRE_OP_TAR_UPPER] = worker_open,
	[WIRE_OP_WARM_UP] = exec_open_warm_up,
};

int ops_open(struct channel *channel, const struct wire_frame *frame, struct err *err)
{
	struct wire_reader in = WIRE_READER(frame);
	uint8_t op = wire_get_u8(&in);

	if (in.bad || op >= WIRE_OP_COUNT || !openers[op])
		return err_set(err, ERR_PROTOCOL, "unknown op %u", op);
	return openers[op](channel, op, &in, err);
}
