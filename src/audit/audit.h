/* audit.h - what boxes tried and were allowed, as lines that cannot be changed unnoticed
 *
 * A folder of files `audit-NNNNNN.jsonl`. Each line is a JSON object; "seq" counts up by one across
 * files, "prev" is the SHA-256 of the line before (its bytes without the newline), so that no line
 * can be changed, removed or put in without breaking the chain. `head` holds seq and hash of the
 * last line written, `tail` those before the oldest line kept. Lines are gathered and written every
 * 50 ms or 64 KiB; a line torn by a crash is cut off at the next start, and a line of type "audit"
 * says so, as about all that was wrong with the log.
 *
 *   audit.c         lines into files: gathered, written, a new file begun, the oldest removed;
 *                   followers
 *   audit_open.c    going on where the last daemon ended
 *   audit_read.c    lines for readers
 *   audit_verify.c  the whole chain, from outside
 *   audit_shares.c  a share of it for each tree of boxes
 *   audit_chain.c   what all of them share: how lines begin, head and tail, the list of files;
 *                   audit_hash.c: SHA-256 */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct audit;
struct loop;

enum {
	AUDIT_LINE_MAX = 640 * 1024
}; /* of a longer event only its first facts are kept, and "cut":true */

struct audit_options {
	uint64_t file_bytes; /* a new file is begun when one has so many; 0: 64 MiB */
	unsigned files;	     /* so many are kept, 2 at least; 0: 16 */
};

/* options may be NULL. */
int audit_open(struct loop *loop, const char *folder, const struct audit_options *options,
	struct audit **ret, struct err *err);
void audit_close(struct audit *audit); /* writes what is left; accepts NULL */
/* Takes the reference of an object. "at" is added when missing; "seq" and "prev" always. A failing
 * disk is logged and told by audit_trouble: lines wait in memory (1 MiB) and are written when they
 * can be; those that found no room are counted in a line of type "audit" that follows them
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
uint64_t audit_get_next(const struct audit *audit);   /* behind the newest line that is in a file */

/* Which lines are read; a NULL in a field: all. */
struct audit_filter {
	const char *box; /* their "box" or "box_name" */
	const char *verdict;
	const char *owner; /* a line that names none is of AUDIT_OWNER_DEFAULT */
};
#define AUDIT_OWNER_DEFAULT "local"

/* Lines as they are, for readers: from seq `since` on, at most max lines that fit filter (NULL:
 * all). Reads files, bounded work a call (about 4 MiB of lines looked at); *ret_next is where to go
 * on, audit_get_next at the end. New array of objects. */
json_t *audit_read(struct audit *audit, uint64_t since, const struct audit_filter *filter,
	unsigned max, uint64_t *ret_next, struct err *err);
/* Where to begin for the last count lines that fit; bounded. */
uint64_t audit_recent(struct audit *audit, const struct audit_filter *filter, unsigned count);
/* Whether a line fits. *ret_all: all lines were looked at; in a long log only the newest are,
 * bounded. */
bool audit_knows(struct audit *audit, const struct audit_filter *filter, bool *ret_all);
bool audit_fits(const json_t *line, const struct audit_filter *filter);
/* fn is called for each line written from now on, right after it was; event is borrowed, with its
 * "seq". */
struct audit_feed;
struct audit_feed *audit_feed_new(
	struct audit *audit, void (*fn)(void *arg, json_t *event), void *arg);
void audit_feed_free(struct audit_feed *feed); /* accepts NULL; also from within fn */

/* Checks a folder from outside (the daemon may be running or dead): every hash, every number, head
 * and tail. Slow: for a helper or a command.
 * {"ok","lines","first","last","hash","bytes","notes":[seq,…],"problem","file","line"}; the last
 * three are null when it is ok. notes are the first 20 lines of type "audit": what the log itself
 * tells about lines lost or torn. New reference; NULL when the folder cannot be read. */
json_t *audit_verify(const char *folder, struct err *err);
