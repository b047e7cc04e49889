/* snapshots.c - the table of snapshots; see store.h */
#include "store/store_internal.h"
#include "base/alloc.h"
#include "store/columns.h"

static const struct column columns[] = {
	{ COLUMN_TEXT, offsetof(struct snapshot_row, id) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, box) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, name) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, parent) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, cause) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, detail) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, kind) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, status) },
	{ COLUMN_I64, offsetof(struct snapshot_row, created_us) },
	{ COLUMN_U64, offsetof(struct snapshot_row, processes) },
	{ COLUMN_U64, offsetof(struct snapshot_row, plain_bytes) },
	{ COLUMN_U64, offsetof(struct snapshot_row, stored_bytes) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, image) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, image_name) },
	{ COLUMN_TEXT, offsetof(struct snapshot_row, config) },
};

void snapshot_row_done(struct snapshot_row *row)
{
	columns_free(columns, ARRAY_LEN(columns), row);
	*row = (struct snapshot_row){ 0 };
}

struct snapshot_row snapshot_row_copy(const struct snapshot_row *row)
{
	struct snapshot_row copy = *row;

	columns_copy(columns, ARRAY_LEN(columns), &copy);
	return copy;
}

int store_snapshot_put(struct store *store, const struct snapshot_row *row, enum store_grade grade,
	struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_SNAPSHOT_PUT, err);
	struct err why = ERR_INIT;

	if (!stmt)
		return -1;
	columns_bind(stmt, columns, ARRAY_LEN(columns), row);
	if (store_run(store, stmt, grade, &why) == 0)
		return 0;
	if (why.kind == ERR_EXISTS)
		return err_set(err, ERR_EXISTS, "the time line has a snapshot named '%s' already",
			row->name ? row->name : "");
	if (err)
		*err = why;
	return err_wrap(err, "keep snapshot '%s'", row->id);
}

int store_snapshot_delete(
	struct store *store, const char *id, enum store_grade grade, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_SNAPSHOT_DELETE, err);

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, id);
	if (store_run(store, stmt, grade, err) < 0)
		return err_wrap(err, "delete snapshot '%s'", id);
	return 0;
}

/* The rows are read before the first call, because fn may write to the same table. */
int store_snapshot_each(struct store *store,
	int (*fn)(const struct snapshot_row *row, void *arg, struct err *err), void *arg,
	struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_SNAPSHOT_EACH, err);
	struct snapshot_row *rows = NULL;
	size_t count = 0, room = 0;
	int rc, ret = 0;

	if (!stmt)
		return -1;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		if (count == room) {
			room = MAX(16, room * 2);
			xgrow(rows, room);
		}
		rows[count] = (struct snapshot_row){ 0 };
		columns_read(stmt, columns, ARRAY_LEN(columns), &rows[count++]);
	}
	if (rc != SQLITE_DONE)
		ret = store_fail(store, err, "read snapshots");
	sqlite3_reset(stmt);
	for (size_t i = 0; i < count; i++) {
		if (ret == 0)
			ret = fn(&rows[i], arg, err);
		snapshot_row_done(&rows[i]);
	}
	free(rows);
	return ret;
}
