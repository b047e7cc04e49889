/* store_internal.h - what the files of the store share: one connection, its statements, its lock */
#pragma once
#include "base/sha256.h"
#include "store/store.h"
#include <sqlite3.h>

enum store_sql {
	SQL_BEGIN,
	SQL_COMMIT,
	SQL_ROLLBACK,
	SQL_BOX_INSERT,
	SQL_BOX_UPDATE,
	SQL_BOX_DELETE,
	SQL_BOX_EACH,
	SQL_EVENT_ADD,
	SQL_EVENT_LIST,
	SQL_EVENT_LIST_BOX,
	SQL_EVENT_LIST_OWNER,
	SQL_EVENT_RANGE,
	SQL_EVENT_FROM,
	SQL_EVENT_MISSING,
	SQL_EVENT_TREES,
	SQL_EVENT_CUT,
	SQL_EVENT_TRIM_TREE,
	SQL_EVENT_CUT_GONE,
	SQL_EVENT_TRIM_GONE,
	SQL_EVENT_TAIL,
	SQL_EVENT_TAIL_BOX,
	SQL_EVENT_TAIL_OWNER,
	SQL_TOKEN_ADD,
	SQL_TOKEN_LIST,
	SQL_TOKEN_DELETE,
	SQL_TOKEN_USED,
	SQL_KEY_ADD,
	SQL_KEY_LIST,
	SQL_KEY_FIND,
	SQL_KEY_GET,
	SQL_KEY_COUNT,
	SQL_KEY_DELETE,
	SQL_KEY_USED,
	SQL_NETWORK_PUT,
	SQL_NETWORK_GET,
	SQL_NETWORK_UPDATE,
	SQL_SNAPSHOT_PUT,
	SQL_SNAPSHOT_DELETE,
	SQL_SNAPSHOT_EACH,
	SQL_TREE_PUT,
	SQL_TREE_DELETE,
	SQL_TREE_EACH,
	SQL_VOLUME_PUT,
	SQL_VOLUME_GET,
	SQL_VOLUME_DELETE,
	SQL_COUNT
};

enum { TOKENS_MAX = 1000 };

/* There are few tokens, and each request by TCP needs one, so they are also kept in memory. */
struct token {
	struct token_row row; /* first; its strings are owned here */
	uint8_t hash[SHA256_SIZE];
};

struct store {
	sqlite3 *db;
	char *path;
	int lock_fd;
	sqlite3_stmt *stmts[SQL_COUNT]; /* prepared when first used */
	bool in_transaction;
	bool gathering;		 /* a transaction with events is open; store_settle commits it */
	uint64_t events_from;	 /* no event is missing from here on; 0: not known yet */
	uint64_t events_trimmed; /* the highest offset when they were trimmed last */
	int wal_pages;		 /* in the write-ahead log, not yet copied into the database */
	struct token *tokens;
	size_t token_count;
};

/* The statement, prepared and reset; NULL with err. */
sqlite3_stmt *store_stmt(struct store *store, enum store_sql which, struct err *err);
/* Steps a statement that gives no rows, resets it and, outside a transaction, makes its commit as
 * durable as grade asks. */
int store_run(struct store *store, sqlite3_stmt *stmt, enum store_grade grade, struct err *err);
/* Opens the transaction for events, unless one is open. */
int store_gather(struct store *store, struct err *err);
/* Makes err from the connection's last error: what was tried, then SQLite's message. Adds a hint
 * when the file is damaged. */
int store_fail(struct store *store, struct err *err, const char *what);

/* tokens.c: reads the table into store->tokens. */
int store_tokens_load(struct store *store, struct err *err);
void store_tokens_done(struct store *store);

json_t *store_time_json(int64_t us); /* RFC 3339; null for 0 */

/* Binds "" for NULL, so that NOT NULL columns accept what callers leave unset. */
void store_bind_text(sqlite3_stmt *stmt, int at, const char *text);
