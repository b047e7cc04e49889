/* witness_internal.h - shared by the files of the witness
 *
 * witness.c         start, stop, take; the process
 * witness_serve.c   its sockets and what it answers
 * witness_packet.c  packets as they come from the wire
 * witness_dns.c     the names of the test internet */
#pragma once
#include "attack/witness.h"
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { WITNESS_RECORD_MAX = 2 * 1024 * 1024, WITNESS_DATA_MAX = 2000, WITNESS_TEXT = 80 };

struct record {
	struct buf text;
	uint64_t lost; /* lines that did not fit */
};

/* One line. */
void record_add(struct record *record, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void record_data(struct record *record, const char *where, const uint8_t *data, size_t len);

/* "203.0.113.10:80", "[fd00::1]:80"; port 0: without. out needs WITNESS_TEXT bytes; returns out. */
char *witness_address(const uint8_t *bytes, bool is_v6, unsigned port, char *out);

/* Records a packet that starts with its IP header. */
void packet_note(struct record *record, unsigned ethertype, const uint8_t *packet, size_t len);
/* Writes the answer to a DNS message into out; 0: none. */
size_t dns_answer(
	struct record *record, const uint8_t *question, size_t len, uint8_t *out, size_t max);

/* Opens the sockets in the process that will serve them, and serves until the control socket is
 * closed. */
int serve_open(const struct witness_spec *spec, int control, struct err *err);
void serve_forever(void);
