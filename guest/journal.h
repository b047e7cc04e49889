/* journal.h - the last bytes a program wrote, with the stream and the offset of each
 *
 * Offsets count the bytes of both streams together from the program's start; [oldest, newest) is
 * there. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct journal_run {
	uint64_t start;	       /* offset of its first byte; it ends where the next one starts */
	uint64_t time_us : 56; /* of its first byte, by the wall clock */
	uint64_t stream : 8;
};

struct journal {
	uint8_t *data; /* the byte at offset o is data[o % cap] */
	size_t cap;
	size_t max;
	uint64_t oldest, newest;
	struct journal_run *runs; /* a ring as well, sorted by start */
	size_t run_head, run_count, run_cap;
};

#define JOURNAL_NEED_NOTHING UINT64_MAX

void journal_init(struct journal *journal, size_t max); /* takes no memory until the first byte */
void journal_done(struct journal *journal);
/* Appends; the oldest bytes are dropped when there is no more room. */
void journal_add(
	struct journal *journal, uint8_t stream, uint64_t time_us, const void *data, size_t len);
/* Drops the bytes before offset, which may be beyond newest. */
void journal_forget(struct journal *journal, uint64_t offset);
/* How many bytes, of either stream, can be added without losing anything from offset need on. */
size_t journal_room(const struct journal *journal, uint64_t need);
/* The bytes from offset (not below oldest) on: at most max, of one stream, in one or two pieces
 * (the unused piece is empty). They are borrowed until the next change. Returns how many; 0 at
 * newest. */
size_t journal_peek(const struct journal *journal, uint64_t offset, size_t max, uint8_t *ret_stream,
	struct iovec ret[2]);
/* When the byte at offset came, or a little earlier; 0: it is not kept. Bytes of one millisecond
 * have one time; for a program that writes often and little one time covers at least 128 bytes. */
uint64_t journal_time(const struct journal *journal, uint64_t offset);
/* Frees the memory that its content does not need. Nothing should be added afterwards, though it
 * can be. */
void journal_shrink(struct journal *journal);
size_t journal_memory(const struct journal *journal);
