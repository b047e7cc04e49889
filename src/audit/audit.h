/* audit.h - what boxes tried and were allowed, as lines that cannot be changed unnoticed
 *
 * A folder of files `audit-NNNNNN.jsonl`. Each line is a JSON object; "seq" counts up by one across
 * files, "prev" is the SHA-256 of the line before (its bytes without the newline), so that no line
 * can be changed, removed or inserted without breaking the chain. `head` holds seq and hash of the
 * last line written, `tail` those before the oldest line kept. Lines are written every 50 ms or 64
 * KiB. A line torn by a crash is cut off at the next start; a line of type "audit" reports this and
 * everything else that was wrong with the log.
 *
 *   audit.c         lines into files: collected, written, a new file begun, the oldest removed;
 *                   followers
 *   audit_open.c    continues where the last daemon ended
 *   audit_read.c    lines for readers
 *   audit_verify.c  checks the whole chain, from outside
 *   audit_shares.c  a share of the log for each tree of boxes
 *   audit_chain.c   what all of them share: how lines begin, head and tail, the list of files */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct audit;
struct loop;

enum {
	AUDIT_LINE_MAX = 640 * 1024
}; /* a longer event keeps only its main facts, and gets "cut":true */

struct audit_options {
	uint64_t file_bytes; /* a new file is begun at this size; 0: 64 MiB */
	unsigned files;	     /* how many files are kept, at least 2; 0: 16 */
};

/* options may be NULL. */
int audit_open(struct loop *loop, const char *folder, const struct audit_options *options,
	struct audit **ret, struct err *err);
void audit_close(struct audit *audit); /* writes what is left; accepts NULL */
/* Takes the reference of an object. Adds "seq" and "prev", and "at" when missing. A failing disk
 * is logged and reported by audit_trouble: lines wait in memory (1 MiB) and are written as soon
 * as possible; those that found no room are counted in a line of type "audit" that follows
 * ("lost":N). */
size_t audit_add(struct audit *audit, json_t *event); /* bytes of the line; 0: it was lost */
int audit_flush(struct audit *audit, struct err *err);
/* NULL, or why lines cannot be written now. Borrowed. */
const char *audit_trouble(const struct audit *audit);
/* {"lines","oldest","next","bytes","files","lost","trouble":null|"…"}; new reference. */
json_t *audit_json(const struct audit *audit);
const char *audit_get_folder(const struct audit *audit);
uint64_t audit_get_file(const struct audit *audit);   /* number of the newest file */
uint64_t audit_get_oldest(const struct audit *audit); /* seq of the oldest line kept */
uint64_t audit_get_next(const struct audit *audit);   /* the number after the newest line that is in
						       * a file */

/* Which lines are read; a NULL field matches all. */
struct audit_filter {
	const char *box; /* compared with "box" and "box_name" */
	const char *verdict;
	const char *owner; /* a line without an owner belongs to AUDIT_OWNER_DEFAULT */
};
#define AUDIT_OWNER_DEFAULT "local"

/* Reads lines for readers: from seq `since` on, at most max lines that match filter (NULL: all).
 * Each call reads a bounded amount (about 4 MiB of lines); *ret_next is where to continue,
 * audit_get_next at the end. New array of objects. */
json_t *audit_read(struct audit *audit, uint64_t since, const struct audit_filter *filter,
	unsigned max, uint64_t *ret_next, struct err *err);
/* Where the last count matching lines begin; bounded. */
uint64_t audit_recent(struct audit *audit, const struct audit_filter *filter, unsigned count);
/* Whether a line matches. *ret_all: all lines were read; of a long log only the newest are. */
bool audit_knows(struct audit *audit, const struct audit_filter *filter, bool *ret_all);
bool audit_fits(const json_t *line, const struct audit_filter *filter);
/* Calls fn for each line from now on, right after it was written; event is borrowed, with its
 * "seq". */
struct audit_feed;
struct audit_feed *audit_feed_new(
	struct audit *audit, void (*fn)(void *arg, json_t *event), void *arg);
void audit_feed_free(struct audit_feed *feed); /* accepts NULL; also from within fn */

/* Checks a folder from outside (the daemon may be running or not): every hash, every number, head
 * and tail. Slow: for a helper or a command.
 * {"ok","lines","first","last","hash","bytes","notes":[seq,…],"problem","file","line"}; the last
 * three are null when it is ok. notes are the first 20 lines of type "audit": what the log itself
 * reports about lost or torn lines. New reference; NULL when the folder cannot be read. */
json_t *audit_verify(const char *folder, struct err *err);
