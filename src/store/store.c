/* store.c - the database file: opening, locking, transactions, durability; see store.h
 *
 * Durability. The connection runs with synchronous=NORMAL: a commit writes its pages to the
 * write-ahead log and does not wait for the disk (STORE_KEPT, 0.03 ms). For STORE_SAFE the log is
 * synced after the commit through SQLite's own file object (1.2 ms here). Switching PRAGMA
 * synchronous instead costs a statement before and after each transaction, and the grade must be
 * known at BEGIN; a second connection in FULL mode would need a second set of statements. The
 * effect is the same: pages, then one sync.
 *
 * Events are gathered: those of one turn of the daemon's loop are one commit, which is made before
 * the loop waits again, and before anything else is written. A program that is run is two events;
 * each commit writes a page of the table and one of each of its indexes.
 *
 * The log is copied into the database (two syncs) when the daemon has nothing else to do, by
 * store_idle(); only a log that has grown very large is copied in the middle of things.
 *
 * The lock of the home is an fcntl lock: it belongs to the process, so that a helper forked from
 * the daemon does not go on holding it when the daemon has died. */
#include "store/store_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "store/schema.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

enum {
	BUSY_MS = 2000,	       /* somebody may be reading the file with the sqlite3 program */
	IDLE_PAGES = 64,       /* with fewer pages a checkpoint is not worth its fsyncs */
	WAL_PAGES_MAX = 16384, /* 64 MiB: the log is copied whether idle or not */
};

#define EVENT_COLUMNS "position, at_us, type, box_id, box_name, data, owner, who"

static const char *const sql_texts[] = {
	[SQL_BEGIN] = "BEGIN IMMEDIATE",
	[SQL_COMMIT] = "COMMIT",
	[SQL_ROLLBACK] = "ROLLBACK",
	[SQL_BOX_INSERT] =
		"INSERT INTO boxes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
		"?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, "
		"?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42, "
		"?43, ?44, ?45, ?46)",
	[SQL_BOX_UPDATE] =
		"UPDATE boxes SET name = ?2, state = ?3, intent = ?4, image = ?5, image_name = ?6, "
		"driver = ?7, profile = ?8, cpu_milli = ?9, memory_bytes = ?10, disk_bytes = ?11, "
		"pids = ?12, env = ?13, labels = ?14, remove_on_exit = ?15, command = ?16, "
		"uid_slot = ?17, created_us = ?18, started_us = ?19, ended_us = ?20, "
		"end_reason = ?21, end_detail = ?22, pid = ?23, start_time = ?24, boot = ?25, "
		"idempotency = ?26, on_limit = ?27, volumes = ?28, mounts = ?29, main = ?30, "
		"sleep = ?31, auto_snapshot = ?32, fork_limits = ?33, origin_box = ?34, "
		"origin_snapshot = ?35, position = ?36, state_id = ?37, asleep_for = ?38, "
		"wake_us = ?39, generation = ?40, tree = ?41, origin_position = ?42, "
		"owner = ?43, target = ?44, sleep_failure = ?45, held = ?46 "
		"WHERE id = ?1",
	[SQL_BOX_DELETE] = "DELETE FROM boxes WHERE id = ?1",
	[SQL_BOX_EACH] = "SELECT * FROM boxes ORDER BY created_us, rowid",
	[SQL_EVENT_ADD] =
		"INSERT INTO events (at_us, type, box_id, box_name, data, tree, owner, who) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
	[SQL_EVENT_LIST] = "SELECT " EVENT_COLUMNS " FROM events "
			   "WHERE position >= ?1 ORDER BY position LIMIT ?2",
	[SQL_EVENT_LIST_BOX] =
		"SELECT " EVENT_COLUMNS " FROM events WHERE box_id = ?3 AND position >= ?1 "
		"AND (?4 = '' OR owner = ?4) ORDER BY position LIMIT ?2",
	[SQL_EVENT_LIST_OWNER] =
		"SELECT " EVENT_COLUMNS " FROM events WHERE owner = ?4 AND position >= ?1 "
		"ORDER BY position LIMIT ?2",
	[SQL_EVENT_TAIL] = "SELECT count(*), min(position) FROM (SELECT position FROM events "
			   "ORDER BY position DESC LIMIT ?2)",
	[SQL_EVENT_TAIL_BOX] =
		"SELECT count(*), min(position) FROM (SELECT position FROM events WHERE "
		"box_id = ?3 AND (?4 = '' OR owner = ?4) ORDER BY position DESC LIMIT ?2)",
	[SQL_EVENT_TAIL_OWNER] =
		"SELECT count(*), min(position) FROM (SELECT position FROM events WHERE "
		"owner = ?4 ORDER BY position DESC LIMIT ?2)",
	[SQL_EVENT_RANGE] =
		"SELECT (SELECT min(position) FROM events), (SELECT max(position) FROM events)",
	/* Usually no event is missing, and nothing has to be searched. */
	[SQL_EVENT_FROM] =
		"SELECT CASE WHEN count(*) = max(position) - min(position) + 1 THEN min(position) "
		"ELSE (SELECT max(e.position) FROM events e WHERE NOT EXISTS "
		"(SELECT 1 FROM events p WHERE p.position = e.position - 1)) END FROM events",
	[SQL_EVENT_MISSING] = "SELECT count(*) FROM events WHERE position >= ?1 AND position < ?2",
	[SQL_EVENT_TREES] = "SELECT '' UNION SELECT iif(tree = '', id, tree) FROM boxes",
	[SQL_EVENT_CUT] = "SELECT position FROM events WHERE tree = ?1 ORDER BY position DESC "
			  "LIMIT 1 OFFSET ?2",
	[SQL_EVENT_TRIM_TREE] =
		"DELETE FROM events WHERE tree = ?1 AND position <= ?2 AND position <= ?3",
	[SQL_EVENT_CUT_GONE] =
		"SELECT position FROM events WHERE position <= ?1 AND tree <> '' AND tree NOT IN "
		"(SELECT iif(tree = '', id, tree) FROM boxes) ORDER BY position DESC "
		"LIMIT 1 OFFSET ?2",
	[SQL_EVENT_TRIM_GONE] =
		"DELETE FROM events WHERE position <= ?1 AND tree <> '' AND tree NOT IN "
		"(SELECT iif(tree = '', id, tree) FROM boxes)",
	[SQL_TOKEN_ADD] = "INSERT INTO tokens VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7)",
	[SQL_TOKEN_LIST] =
		"SELECT id, name, hash, scopes, created_us, expires_us, last_used_us, owner "
		"FROM tokens "
		"ORDER BY created_us, rowid",
	[SQL_TOKEN_DELETE] = "DELETE FROM tokens WHERE id = ?1",
	[SQL_TOKEN_USED] = "UPDATE tokens SET last_used_us = ?2 WHERE id = ?1",
	[SQL_KEY_ADD] = "INSERT INTO ssh_keys VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
			"?11, ?12, ?13, ?14)",
	[SQL_KEY_LIST] = "SELECT * FROM ssh_keys ORDER BY created_us, rowid",
	[SQL_KEY_FIND] = "SELECT * FROM ssh_keys WHERE fingerprint = ?1",
	/* An id wins over a name: names are chosen by people, ids are not. */
	[SQL_KEY_GET] = "SELECT * FROM ssh_keys WHERE id = ?1 OR name = ?1 "
			"OR fingerprint = ?1 ORDER BY id = ?1 DESC LIMIT 1",
	[SQL_KEY_COUNT] = "SELECT count(*) FROM ssh_keys",
	[SQL_KEY_DELETE] = "DELETE FROM ssh_keys WHERE id = ?1",
	[SQL_KEY_USED] = "UPDATE ssh_keys SET last_used_us = ?2 WHERE id = ?1",
	[SQL_NETWORK_PUT] = "INSERT OR REPLACE INTO networks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, "
			    "?8, ?9, ?10)",
	[SQL_NETWORK_GET] = "SELECT * FROM networks WHERE box = ?1",
	[SQL_NETWORK_UPDATE] =
		"UPDATE networks SET names = coalesce(?2, names), spent = coalesce(?3, spent), "
		"meters = coalesce(?4, meters) WHERE box = ?1",
	/* Not INSERT OR REPLACE: that would remove whichever snapshot has the name. */
	[SQL_SNAPSHOT_PUT] =
		"INSERT INTO snapshots VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
		"?13, ?14, ?15) ON CONFLICT (id) DO UPDATE SET box = ?2, name = ?3, parent = ?4, "
		"cause = ?5, detail = ?6, kind = ?7, status = ?8, created_us = ?9, "
		"processes = ?10, plain_bytes = ?11, stored_bytes = ?12, image = ?13, "
		"image_name = ?14, config = ?15",
	[SQL_SNAPSHOT_DELETE] = "DELETE FROM snapshots WHERE id = ?1",
	[SQL_SNAPSHOT_EACH] = "SELECT * FROM snapshots ORDER BY created_us, rowid",
	[SQL_TREE_PUT] = "INSERT OR REPLACE INTO trees VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
	[SQL_TREE_DELETE] = "DELETE FROM trees WHERE id = ?1",
	[SQL_TREE_EACH] = "SELECT * FROM trees",
	[SQL_VOLUME_PUT] = "INSERT OR REPLACE INTO volumes VALUES (?1, ?2)",
	[SQL_VOLUME_GET] = "SELECT owner FROM volumes WHERE name = ?1",
	[SQL_VOLUME_DELETE] = "DELETE FROM volumes WHERE name = ?1",
};
static_assert(ARRAY_LEN(sql_texts) == SQL_COUNT, "every statement has its text");

/* ---- errors and statements ------------------------------------------------------------------- */

int store_fail(struct store *store, struct err *err, const char *what)
{
	int code = store->db ? sqlite3_errcode(store->db) : SQLITE_NOMEM;
	const char *words = store->db ? sqlite3_errmsg(store->db) : "out of memory";
	enum err_kind kind = ERR_SYSTEM;

	switch (code & 0xff) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		err_set(err, ERR_SYSTEM, "%s: the database '%s' is damaged: %s", what, store->path,
			words);
		return err_hint(err, "nothing was changed; put a copy of the file back, or move it "
				     "away to begin anew");
	case SQLITE_CONSTRAINT:
		kind = ERR_EXISTS;
		break;
	case SQLITE_FULL:
		kind = ERR_LIMIT;
		break;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		kind = ERR_UNAVAILABLE;
		break;
	}
	return err_set(err, kind, "%s: %s", what, words);
}

sqlite3_stmt *store_stmt(struct store *store, enum store_sql which, struct err *err)
{
	sqlite3_stmt **stmt = &store->stmts[which];

	if (!*stmt && sqlite3_prepare_v3(store->db, sql_texts[which], -1, SQLITE_PREPARE_PERSISTENT,
			      stmt, NULL) != SQLITE_OK) {
		store_fail(store, err, "prepare a statement");
		return NULL;
	}
	return *stmt;
}

void store_bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
	sqlite3_bind_text(stmt, at, text ? text : "", -1, SQLITE_STATIC);
}

/* Waits until the write-ahead log is on the disk. Uses SQLite's own file object, which also knows
 * that a new log needs its directory synced. */
static int sync_log(struct store *store, struct err *err)
{
	sqlite3_file *file = NULL;

	if (sqlite3_file_control(store->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) !=
			SQLITE_OK ||
		!file || !file->pMethods)
		return err_set(err, ERR_SYSTEM, "'%s' has no write-ahead log", store->path);
	if (file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) != SQLITE_OK)
		return err_sys(err, errno, "sync the log of '%s'", store->path);
	return 0;
}

int store_run(struct store *store, sqlite3_stmt *stmt, enum store_grade grade, struct err *err)
{
	int rc;

	if (stmt != store->stmts[SQL_EVENT_ADD])
		store_settle(store);
	rc = sqlite3_step(stmt);
	if (rc != SQLITE_DONE)
		store_fail(store, err, "write to the store");
	sqlite3_reset(stmt);
	/* Bound values are the caller's memory, so the statement must not keep them. */
	sqlite3_clear_bindings(stmt);
	if (rc != SQLITE_DONE)
		return -1;
	if (grade == STORE_SAFE && !store->in_transaction)
		return sync_log(store, err);
	return 0;
}

/* ---- transactions ---------------------------------------------------------------------------- */

int store_begin(struct store *store, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_BEGIN, err);

	if (store->in_transaction)
		return err_set(err, ERR_SYSTEM, "a transaction is open already");
	if (!stmt || store_run(store, stmt, STORE_KEPT, err) < 0)
		return -1;
	store->in_transaction = true;
	return 0;
}

int store_commit(struct store *store, enum store_grade grade, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_COMMIT, err);

	if (!store->in_transaction)
		return err_set(err, ERR_SYSTEM, "no transaction is open");
	if (!stmt || store_run(store, stmt, STORE_KEPT, err) < 0) {
		store_rollback(store);
		return err_wrap(err, "commit");
	}
	store->in_transaction = false;
	return grade == STORE_SAFE ? sync_log(store, err) : 0;
}

void store_rollback(struct store *store)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_ROLLBACK, NULL);

	/* After some failures SQLite has rolled back by itself; then this statement fails, which
	 * does no harm. */
	if (store->in_transaction && stmt)
		store_run(store, stmt, STORE_KEPT, NULL);
	store->in_transaction = false;
}

int store_gather(struct store *store, struct err *err)
{
	if (store->gathering || store->in_transaction)
		return 0;
	if (store_begin(store, err) < 0)
		return -1;
	store->in_transaction = false;
	store->gathering = true;
	return 0;
}

bool store_is_gathering(const struct store *store)
{
	return store->gathering;
}

void store_settle(struct store *store)
{
	struct err err = ERR_INIT;

	if (!store->gathering)
		return;
	store->gathering = false;
	store->in_transaction = true;
	if (store_commit(store, STORE_KEPT, &err) < 0)
		log_error("cannot record events", kv_err(&err));
}

/* ---- the write-ahead log --------------------------------------------------------------------- */

static void checkpoint(struct store *store)
{
	int left = 0, copied = 0;

	if (sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &left, &copied) !=
		SQLITE_OK) {
		log_warn("cannot copy the log into the database, will try again",
			kv_str("error", sqlite3_errmsg(store->db)));
		return;
	}
	store->wal_pages = MAX(left - copied, 0);
}

static int on_commit(void *arg, sqlite3 *db, const char *schema, int pages)
{
	struct store *store = arg;

	(void)db;
	(void)schema;
	store->wal_pages = pages;
	if (pages >= WAL_PAGES_MAX)
		checkpoint(store);
	return SQLITE_OK;
}

void store_idle(struct store *store)
{
	store_settle(store);
	if (store->wal_pages >= IDLE_PAGES && !store->in_transaction)
		checkpoint(store);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int lock_refused(int fd, const char *path, struct err *err)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
		err_set(err, ERR_STATE, "another daemon (pid %d) has this home: '%s' is locked",
			(int)lock.l_pid, path);
	else
		err_set(err, ERR_STATE, "another daemon has this home: '%s' is locked", path);
	return err_hint(err, "stop it with box down, or set BOX_HOME and BOX_RUN to other folders");
}

static int lock_home(struct store *store, const char *home, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/lock", home);
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	char pid[32];
	int len;

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (fcntl(fd, F_SETLK, &lock) < 0) {
		if (errno == EAGAIN || errno == EACCES)
			return lock_refused(fd, path, err);
		return err_sys(err, errno, "lock '%s'", path);
	}
	len = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)len, 0) != len)
		return err_sys(err, errno, "write '%s'", path);
	store->lock_fd = steal_fd(&fd);
	return 0;
}

static int set_up(struct store *store, struct err *err)
{
	static const char pragmas[] = "PRAGMA journal_mode = WAL;"
				      "PRAGMA synchronous = NORMAL;"
				      "PRAGMA foreign_keys = ON;"
				      "PRAGMA trusted_schema = OFF;"
				      "PRAGMA journal_size_limit = 16777216;"
				      "PRAGMA wal_autocheckpoint = 0;";

	sqlite3_busy_timeout(store->db, BUSY_MS);
	if (sqlite3_exec(store->db, pragmas, NULL, NULL, NULL) != SQLITE_OK)
		return store_fail(store, err, "set up");
	sqlite3_wal_hook(store->db, on_commit, store);
	return 0;
}

/* Checks the whole file once, before anything depends on it: a damaged page found later would be
 * found in the middle of a change. */
static int check_whole(struct store *store, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	int ret = -1;

	if (sqlite3_prepare_v2(store->db, "PRAGMA quick_check(1)", -1, &stmt, NULL) != SQLITE_OK ||
		sqlite3_step(stmt) != SQLITE_ROW) {
		store_fail(store, err, "check");
	} else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "ok")) {
		err_set(err, ERR_SYSTEM, "the database '%s' is damaged: %s", store->path,
			(const char *)sqlite3_column_text(stmt, 0));
		err_hint(err, "nothing was changed; put a copy of the file back, or move it away "
			      "to begin anew");
	} else {
		ret = 0;
	}
	sqlite3_finalize(stmt);
	return ret;
}

static int migrate(struct store *store, struct err *err)
{
	int found = 0;

	if (schema_migrate(store->db, &found) != SQLITE_OK)
		return store_fail(store, err, "bring the schema up to date");
	if (found > schema_version() || found < 0) {
		err_set(err, ERR_UNSUPPORTED, "'%s' has schema version %d, this program knows %d",
			store->path, found, schema_version());
		return err_hint(err, "it was written by a newer box; use that one");
	}
	return found < schema_version() ? sync_log(store, err) : 0;
}

/* Creates the file here, so that only root can ever read it; SQLite gives its other files the same
 * mode. The file is closed before SQLite opens it: closing a file drops all fcntl locks the process
 * has on it. */
static int make_private(const char *path, struct err *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_sys(err, errno, "open '%s'", path);
	close(fd);
	return 0;
}

int store_open(const char *home, struct store **ret, struct err *err)
{
	_cleanup_(store_closep) struct store *store = xnew(struct store);
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
		    SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_PRIVATECACHE;

	store->lock_fd = -1;
	store->path = xasprintf("%s/state.db", home);
	if (lock_home(store, home, err) < 0)
		return -1;
	if (make_private(store->path, err) < 0)
		return -1;
	if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK)
		return store_fail(store, err, "open the store");
	if (set_up(store, err) < 0 || check_whole(store, err) < 0 || migrate(store, err) < 0 ||
		store_tokens_load(store, err) < 0)
		return err_wrap(err, "store");
	*ret = steal_ptr(&store);
	return 0;
}

void store_close(struct store *store)
{
	if (!store)
		return;
	store_settle(store);
	store_tokens_done(store);
	for (size_t i = 0; i < SQL_COUNT; i++)
		sqlite3_finalize(store->stmts[i]);
	sqlite3_close(store->db);
	cleanup_closep(&store->lock_fd);
	free(store->path);
	free(store);
}
