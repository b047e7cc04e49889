/* protocol.h - the protocol between the daemon and the library in QEMU: fixed messages, one
 * answer to each request
 *
 * SOCK_SEQPACKET, native byte order (both are on one machine), fds sent with RAM_MAP. Every
 * request is answered once, in order. A request that violates a rule is answered with EPROTO and
 * changes nothing. */
#pragma once
#include <stdint.h>

#define RAM_MAGIC UINT32_C(0x3152584b)

enum ram_kind {
	RAM_HELLO = 1,	/* answer: base and size, 0 before an attach */
	RAM_ATTACH,	/* base, size: sets the location of the guest's RAM; once */
	RAM_MAP,	/* pieces; fds are numbered in the order they come */
	RAM_REGISTER,	/* starts asynchronous write protection; all pages count as written */
	RAM_UNREGISTER, /* ends it */
	RAM_KEEP,	/* outlive the connection */
	RAM_KIND_COUNT
};

enum {
	RAM_MESSAGE_PIECES = 1024,
	RAM_MESSAGE_FDS = 128,
	RAM_PAGE = 4096,
};

#define RAM_ZERO UINT32_MAX /* instead of an fd: pages of zeros */

struct ram_piece {
	uint64_t offset; /* in the RAM and in the file */
	uint64_t length;
	uint32_t fd; /* index */
	uint32_t unused;
};

struct ram_request {
	uint32_t magic;
	uint32_t kind;
	uint64_t base, size; /* RAM_ATTACH */
	uint32_t count;	     /* RAM_MAP */
	uint32_t later;	     /* RAM_MAP, 1: what it replaces is freed after the answer */
	struct ram_piece pieces[];
};

struct ram_answer {
	uint32_t magic;
	uint32_t kind;	/* the request's */
	uint32_t error; /* an errno; 0: done */
	uint32_t unused;
	uint64_t base, size;
};
