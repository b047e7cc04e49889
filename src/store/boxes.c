/* boxes.c - the table of boxes; see store.h */
#include "store/store_internal.h"
#include "base/alloc.h"
#include "store/columns.h"

static const struct column columns[] = {
	{ COLUMN_TEXT, offsetof(struct box_row, id) },
	{ COLUMN_TEXT, offsetof(struct box_row, name) },
	{ COLUMN_TEXT, offsetof(struct box_row, state) },
	{ COLUMN_TEXT, offsetof(struct box_row, intent) },
	{ COLUMN_TEXT, offsetof(struct box_row, image) },
	{ COLUMN_TEXT, offsetof(struct box_row, image_name) },
	{ COLUMN_TEXT, offsetof(struct box_row, driver) },
	{ COLUMN_TEXT, offsetof(struct box_row, profile) },
	{ COLUMN_U64, offsetof(struct box_row, cpu_milli) },
	{ COLUMN_U64, offsetof(struct box_row, memory_bytes) },
	{ COLUMN_U64, offsetof(struct box_row, disk_bytes) },
	{ COLUMN_U64, offsetof(struct box_row, pids) },
	{ COLUMN_TEXT, offsetof(struct box_row, env) },
	{ COLUMN_TEXT, offsetof(struct box_row, labels) },
	{ COLUMN_BOOL, offsetof(struct box_row, remove_on_exit) },
	{ COLUMN_TEXT, offsetof(struct box_row, command) },
	{ COLUMN_U32, offsetof(struct box_row, uid_slot) },
	{ COLUMN_I64, offsetof(struct box_row, created_us) },
	{ COLUMN_I64, offsetof(struct box_row, started_us) },
	{ COLUMN_I64, offsetof(struct box_row, ended_us) },
	{ COLUMN_TEXT, offsetof(struct box_row, end_reason) },
	{ COLUMN_TEXT, offsetof(struct box_row, end_detail) },
	{ COLUMN_I64, offsetof(struct box_row, pid) },
	{ COLUMN_U64, offsetof(struct box_row, start_time) },
	{ COLUMN_TEXT, offsetof(struct box_row, boot) },
	{ COLUMN_TEXT, offsetof(struct box_row, idempotency) },
	{ COLUMN_TEXT, offsetof(struct box_row, on_limit) },
	{ COLUMN_TEXT, offsetof(struct box_row, volumes) },
	{ COLUMN_TEXT, offsetof(struct box_row, mounts) },
	{ COLUMN_TEXT, offsetof(struct box_row, main) },
	{ COLUMN_TEXT, offsetof(struct box_row, sleep) },
	{ COLUMN_TEXT, offsetof(struct box_row, auto_snapshot) },
	{ COLUMN_TEXT, offsetof(struct box_row, fork_limits) },
	{ COLUMN_TEXT, offsetof(struct box_row, origin_box) },
	{ COLUMN_TEXT, offsetof(struct box_row, origin_snapshot) },
	{ COLUMN_TEXT, offsetof(struct box_row, position) },
	{ COLUMN_TEXT, offsetof(struct box_row, state_id) },
	{ COLUMN_TEXT, offsetof(struct box_row, asleep_for) },
	{ COLUMN_I64, offsetof(struct box_row, wake_us) },
	{ COLUMN_U64, offsetof(struct box_row, generation) },
	{ COLUMN_TEXT, offsetof(struct box_row, tree) },
	{ COLUMN_TEXT, offsetof(struct box_row, origin_position) },
	{ COLUMN_TEXT, offsetof(struct box_row, owner) },
	{ COLUMN_TEXT, offsetof(struct box_row, target) },
	{ COLUMN_TEXT, offsetof(struct box_row, sleep_failure) },
	{ COLUMN_BOOL, offsetof(struct box_row, held) },
};

void box_row_done(struct box_row *row)
{
	columns_free(columns, ARRAY_LEN(columns), row);
	*row = (struct box_row){ 0 };
}

struct box_row box_row_copy(const struct box_row *row)
{
	struct box_row copy = *row;

	columns_copy(columns, ARRAY_LEN(columns), &copy);
	return copy;
}

int store_box_insert(
	struct store *store, const struct box_row *row, enum store_grade grade, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_BOX_INSERT, err);

	if (!stmt)
		return -1;
	columns_bind(stmt, columns, ARRAY_LEN(columns), row);
	if (store_run(store, stmt, grade, err) < 0)
		return err_wrap(err, "add box '%s'", row->name);
	return 0;
}

int store_box_update(
	struct store *store, const struct box_row *row, enum store_grade grade, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_BOX_UPDATE, err);

	if (!stmt)
		return -1;
	columns_bind(stmt, columns, ARRAY_LEN(columns), row);
	if (store_run(store, stmt, grade, err) < 0)
		return err_wrap(err, "change box '%s'", row->name);
	if (sqlite3_changes(store->db) == 0)
		return err_set(err, ERR_NOT_FOUND, "no row for box '%s'", row->id);
	return 0;
}

int store_box_delete(struct store *store, const char *id, enum store_grade grade, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_BOX_DELETE, err);

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, id);
	if (store_run(store, stmt, grade, err) < 0)
		return err_wrap(err, "delete box '%s'", id);
	return 0;
}

/* The rows are read before the first call, because fn may write to the same table. */
int store_box_each(struct store *store,
	int (*fn)(const struct box_row *row, void *arg, struct err *err), void *arg,
	struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_BOX_EACH, err);
	struct box_row *rows = NULL;
	size_t count = 0;
	int rc, ret = 0;

	if (!stmt)
		return -1;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		xgrow(rows, count + 1);
		rows[count] = (struct box_row){ 0 };
		columns_read(stmt, columns, ARRAY_LEN(columns), &rows[count++]);
	}
	if (rc != SQLITE_DONE)
		ret = store_fail(store, err, "read boxes");
	sqlite3_reset(stmt);
	for (size_t i = 0; i < count; i++) {
		if (ret == 0)
			ret = fn(&rows[i], arg, err);
		box_row_done(&rows[i]);
	}
	free(rows);
	return ret;
}
