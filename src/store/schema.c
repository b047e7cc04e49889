/* schema.c - the tables, as steps from one version of the schema to the next
 *
 * PRAGMA user_version holds how many steps a database has seen. A step is never changed once it has
 * been released; the next step corrects what is wrong with it. */
#include "store/schema.h"
#include "base/alloc.h"

static const char *const steps[] = {
	/* 1: boxes, events, tokens */
	"CREATE TABLE boxes ("
	" id TEXT PRIMARY KEY,"
	" name TEXT NOT NULL UNIQUE,"
	" state TEXT NOT NULL,"
	" intent TEXT NOT NULL,"
	" image TEXT NOT NULL,"
	" image_name TEXT NOT NULL,"
	" driver TEXT NOT NULL,"
	" profile TEXT NOT NULL,"
	" cpu_milli INTEGER NOT NULL,"
	" memory_bytes INTEGER NOT NULL,"
	" disk_bytes INTEGER NOT NULL,"
	" pids INTEGER NOT NULL,"
	" env TEXT NOT NULL,"
	" labels TEXT NOT NULL,"
	" remove_on_exit INTEGER NOT NULL,"
	" command TEXT NOT NULL,"
	" uid_slot INTEGER NOT NULL UNIQUE,"
	" created_us INTEGER NOT NULL,"
	" started_us INTEGER NOT NULL,"
	" ended_us INTEGER NOT NULL,"
	" end_reason TEXT NOT NULL,"
	" end_detail TEXT NOT NULL,"
	" pid INTEGER NOT NULL,"
	" start_time INTEGER NOT NULL,"
	" boot TEXT NOT NULL,"
	" idempotency TEXT NOT NULL"
	") STRICT;"
	"CREATE UNIQUE INDEX boxes_idempotency ON boxes (idempotency) WHERE idempotency <> '';"
	"CREATE TABLE events ("
	" position INTEGER PRIMARY KEY,"
	" at_us INTEGER NOT NULL,"
	" type TEXT NOT NULL,"
	" box_id TEXT NOT NULL,"
	" box_name TEXT NOT NULL,"
	" data TEXT NOT NULL"
	") STRICT;"
	"CREATE INDEX events_box ON events (box_id, position);"
	"CREATE TABLE tokens ("
	" id TEXT PRIMARY KEY,"
	" name TEXT NOT NULL UNIQUE,"
	" hash BLOB NOT NULL UNIQUE,"
	" scopes INTEGER NOT NULL,"
	" created_us INTEGER NOT NULL,"
	" expires_us INTEGER NOT NULL,"
	" last_used_us INTEGER NOT NULL"
	") STRICT;",
	/* 2: what a box does at its limits, what it has mounted, what it runs */
	"ALTER TABLE boxes ADD COLUMN on_limit TEXT NOT NULL DEFAULT 'notify';"
	"ALTER TABLE boxes ADD COLUMN volumes TEXT NOT NULL DEFAULT '[]';"
	"ALTER TABLE boxes ADD COLUMN mounts TEXT NOT NULL DEFAULT '[]';"
	"ALTER TABLE boxes ADD COLUMN main TEXT NOT NULL DEFAULT '';",
	/* 3: the network of a box; its row goes with the box */
	"CREATE TABLE networks ("
	" box TEXT PRIMARY KEY REFERENCES boxes (id) ON DELETE CASCADE,"
	" policy TEXT NOT NULL,"
	" version INTEGER NOT NULL,"
	" changed_us INTEGER NOT NULL,"
	" package_hosts TEXT NOT NULL,"
	" names TEXT NOT NULL,"
	" spent TEXT NOT NULL,"
	" ports TEXT NOT NULL,"
	" meters TEXT NOT NULL,"
	" recording INTEGER NOT NULL"
	") STRICT;",
	/* 4: sleep, snapshots, forks */
	"ALTER TABLE boxes ADD COLUMN sleep TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN auto_snapshot TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN fork_limits TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN origin_box TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN origin_snapshot TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN position TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN state_id TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN asleep_for TEXT NOT NULL DEFAULT '';"
	"ALTER TABLE boxes ADD COLUMN wake_us INTEGER NOT NULL DEFAULT 0;"
	"ALTER TABLE boxes ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;"
	"CREATE TABLE snapshots ("
	" id TEXT PRIMARY KEY,"
	" box TEXT NOT NULL,"
	" name TEXT NOT NULL,"
	" parent TEXT NOT NULL,"
	" cause TEXT NOT NULL,"
	" detail TEXT NOT NULL,"
	" kind TEXT NOT NULL,"
	" status TEXT NOT NULL,"
	" created_us INTEGER NOT NULL,"
	" processes INTEGER NOT NULL,"
	" plain_bytes INTEGER NOT NULL,"
	" stored_bytes INTEGER NOT NULL,"
	" image TEXT NOT NULL,"
	" image_name TEXT NOT NULL,"
	" config TEXT NOT NULL"
	") STRICT;"
	"CREATE INDEX snapshots_box ON snapshots (box, created_us);"
	"CREATE UNIQUE INDEX snapshots_name ON snapshots (box, name) WHERE name <> '';",
	/* 5: trees of boxes that were made from inside. A fork of a higher generation than its
	 * origin belongs to its origin's tree; an event belongs to the tree of its box */
	"ALTER TABLE boxes ADD COLUMN tree TEXT NOT NULL DEFAULT '';"
	"UPDATE boxes SET tree = ("
	" WITH RECURSIVE up (id, origin, generation) AS ("
	"  SELECT b.id, b.origin_box, b.generation FROM boxes b WHERE b.id = boxes.id"
	"  UNION ALL SELECT o.id, o.origin_box, o.generation FROM up JOIN boxes o"
	"  ON o.id = up.origin WHERE up.generation > o.generation)"
	" SELECT id FROM up ORDER BY generation LIMIT 1)"
	" WHERE generation > 0;"
	"CREATE TABLE trees ("
	" id TEXT PRIMARY KEY,"
	" head TEXT NOT NULL,"
	" cpu_milli INTEGER NOT NULL,"
	" memory_bytes INTEGER NOT NULL,"
	" pids INTEGER NOT NULL,"
	" given INTEGER NOT NULL"
	") STRICT;"
	"ALTER TABLE events ADD COLUMN tree TEXT NOT NULL DEFAULT '';"
	"UPDATE events SET tree = coalesce("
	" (SELECT tree FROM boxes WHERE id = box_id AND tree <> ''), box_id);"
	"CREATE INDEX events_tree ON events (tree, position);",
	/* 6: where on its origin's time line a fork was made */
	("ALTER TABLE boxes ADD COLUMN origin_position TEXT NOT NULL DEFAULT '';"
	 "UPDATE boxes SET origin_position = origin_snapshot WHERE origin_box <> '';"),
	/* 7: owners, and who asked for an event. Everything older belongs to 'local', and so does a
	 * volume without a row. Idempotency keys are separate for each owner */
	("ALTER TABLE boxes ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';"
	 "DROP INDEX boxes_idempotency;"
	 "CREATE UNIQUE INDEX boxes_idempotency ON boxes (owner, idempotency)"
	 " WHERE idempotency <> '';"
	 "ALTER TABLE tokens ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';"
	 "ALTER TABLE events ADD COLUMN owner TEXT NOT NULL DEFAULT 'local';"
	 "ALTER TABLE events ADD COLUMN who TEXT NOT NULL DEFAULT '';"
	 "CREATE INDEX events_owner ON events (owner, position);"
	 "CREATE TABLE volumes ("
	 " name TEXT PRIMARY KEY,"
	 " owner TEXT NOT NULL"
	 ") STRICT;"),
	/* 8: columns for what was hidden in the spelling of an intent, a name and an end reason */
	("ALTER TABLE boxes ADD COLUMN target TEXT NOT NULL DEFAULT '';"
	 "ALTER TABLE boxes ADD COLUMN sleep_failure TEXT NOT NULL DEFAULT '';"
	 "UPDATE boxes SET target = substr(intent, 10), intent = 'rollback-to'"
	 " WHERE intent LIKE 'rollback:%';"
	 "UPDATE boxes SET intent = 'gone' WHERE name LIKE '.%' AND intent = 'remove';"
	 "UPDATE boxes SET sleep_failure = end_detail, end_reason = '', end_detail = ''"
	 " WHERE end_reason = 'not-hibernated';"),
	/* 9: the next daemon recognizes a box that was made to be filled before its first start */
	"ALTER TABLE boxes ADD COLUMN held INTEGER NOT NULL DEFAULT 0;",
	/* 10: keys of SSH logins. One key is one principal: the same key has no second row */
	("CREATE TABLE ssh_keys ("
	 " id TEXT PRIMARY KEY,"
	 " name TEXT NOT NULL UNIQUE,"
	 " owner TEXT NOT NULL,"
	 " fingerprint TEXT NOT NULL UNIQUE,"
	 " type TEXT NOT NULL,"
	 " key TEXT NOT NULL,"
	 " scopes INTEGER NOT NULL,"
	 " box TEXT NOT NULL,"
	 " sources TEXT NOT NULL,"
	 " restricted INTEGER NOT NULL,"
	 " comment TEXT NOT NULL,"
	 " created_us INTEGER NOT NULL,"
	 " expires_us INTEGER NOT NULL,"
	 " last_used_us INTEGER NOT NULL"
	 ") STRICT;"),
};

int schema_version(void)
{
	return (int)ARRAY_LEN(steps);
}

static int read_version(sqlite3 *db, int *ret)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &stmt, NULL);

	if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		*ret = sqlite3_column_int(stmt, 0);
		rc = SQLITE_OK;
	}
	sqlite3_finalize(stmt);
	return rc;
}

static int apply(sqlite3 *db, int step)
{
	char *sql = sqlite3_mprintf(
		"BEGIN IMMEDIATE;%s;PRAGMA user_version = %d;COMMIT", steps[step], step + 1);
	int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

	sqlite3_free(sql);
	if (rc != SQLITE_OK && !sqlite3_get_autocommit(db)) {
		/* The rollback must not hide why the step failed. */
		int failed = rc;

		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
		rc = failed;
	}
	return rc;
}

int schema_migrate(sqlite3 *db, int *ret_found)
{
	int version = 0;
	int rc = read_version(db, &version);

	if (rc != SQLITE_OK)
		return rc;
	*ret_found = version;
	for (int step = version; step >= 0 && step < schema_version() && rc == SQLITE_OK; step++)
		rc = apply(db, step);
	return rc;
}
