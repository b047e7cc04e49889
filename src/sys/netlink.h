/* netlink.h - messages to the kernel's network stack: written once, sent as often as needed
 *
 * A batch holds whole messages; the last one asks for an acknowledgement, which comes when all were
 * carried out. A refusal always comes. Sending allocates nothing, so a cloned child may send what
 * was written before. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

struct netlink_batch {
	struct buf bytes;
	size_t at;   /* where the message that is being written begins */
	size_t last; /* where the message begins that asks for an acknowledgement */
};

#define NETLINK_BATCH_INIT \
	{                  \
		.at = 0    \
	}

void netlink_batch_done(struct netlink_batch *batch);
/* Begins a message; flags are added to NLM_F_REQUEST. head is what comes before the attributes. */
void netlink_begin(
	struct netlink_batch *batch, uint16_t type, uint16_t flags, const void *head, size_t len);
void netlink_end(struct netlink_batch *batch);
/* Ends a message that the kernel never answers. */
void netlink_end_quiet(struct netlink_batch *batch);

void netlink_attr(struct netlink_batch *batch, uint16_t type, const void *data, size_t len);
void netlink_attr_text(struct netlink_batch *batch, uint16_t type, const char *text); /* with NUL */
void netlink_attr_u32(struct netlink_batch *batch, uint16_t type, uint32_t value); /* host order */
void netlink_attr_be32(struct netlink_batch *batch, uint16_t type, uint32_t value);
void netlink_attr_be64(struct netlink_batch *batch, uint16_t type, uint64_t value);
/* Attributes inside an attribute: the value netlink_nest returns is given to netlink_unnest; only
 * attributes may come in between. */
size_t netlink_nest(struct netlink_batch *batch, uint16_t type);
void netlink_unnest(struct netlink_batch *batch, size_t nest);

/* Sends everything to protocol (NETLINK_ROUTE, NETLINK_NETFILTER) of the caller's network namespace
 * and waits for the answer. The first refusal is the error. */
int netlink_send(int protocol, const struct netlink_batch *batch, struct err *err);
/* As netlink_send, by a socket of the caller. */
int netlink_send_by(int fd, const struct netlink_batch *batch, struct err *err);
