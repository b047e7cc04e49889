/* netlink.h - messages to the kernel's network stack: written once, sent as often as needed
 *
 * A batch holds whole messages; the last asks for an acknowledgement, which comes when all were
 * carried out. A refusal comes in any case. Sending allocates nothing, so a cloned child may send
 * what was written before it was born. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

struct netlink_batch {
	struct buf bytes;
	size_t at;   /* where the message being written begins */
	size_t last; /* where the one begins that asks for an answer */
};

#define NETLINK_BATCH_INIT \
	{                  \
		.at = 0    \
	}

void netlink_batch_done(struct netlink_batch *batch);
/* Begins a message; flags beside NLM_F_REQUEST. head is what stands before the attributes. */
void netlink_begin(
	struct netlink_batch *batch, uint16_t type, uint16_t flags, const void *head, size_t len);
void netlink_end(struct netlink_batch *batch);
/* The same for one that the kernel never answers. */
void netlink_end_quiet(struct netlink_batch *batch);

void netlink_attr(struct netlink_batch *batch, uint16_t type, const void *data, size_t len);
void netlink_attr_text(struct netlink_batch *batch, uint16_t type, const char *text); /* with NUL */
void netlink_attr_u32(struct netlink_batch *batch, uint16_t type, uint32_t value); /* host order */
void netlink_attr_be32(struct netlink_batch *batch, uint16_t type, uint32_t value);
void netlink_attr_be64(struct netlink_batch *batch, uint16_t type, uint64_t value);
/* Attributes inside one. What nest gives goes into unnest; nothing but attributes in between. */
size_t netlink_nest(struct netlink_batch *batch, uint16_t type);
void netlink_unnest(struct netlink_batch *batch, size_t nest);

/* Sends everything to protocol (NETLINK_ROUTE, NETLINK_NETFILTER) of the network namespace the
 * caller is in, and waits for the answer. The first refusal is the error. */
int netlink_send(int protocol, const struct netlink_batch *batch, struct err *err);
/* The same by a socket that the caller has. */
int netlink_send_by(int fd, const struct netlink_batch *batch, struct err *err);
