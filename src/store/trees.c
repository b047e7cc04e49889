/* trees.c - the table of trees; see store.h */
#include "store/store_internal.h"
#include "base/alloc.h"
#include "store/columns.h"

static const struct column columns[] = {
	{ COLUMN_TEXT, offsetof(struct tree_row, id) },
	{ COLUMN_TEXT, offsetof(struct tree_row, head) },
	{ COLUMN_U64, offsetof(struct tree_row, cpu_milli) },
	{ COLUMN_U64, offsetof(struct tree_row, memory_bytes) },
	{ COLUMN_U64, offsetof(struct tree_row, pids) },
	{ COLUMN_U32, offsetof(struct tree_row, given) },
};

void tree_row_done(struct tree_row *row)
{
	columns_free(columns, ARRAY_LEN(columns), row);
	*row = (struct tree_row){ 0 };
}

int store_tree_put(
	struct store *store, const struct tree_row *row, enum store_grade grade, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_TREE_PUT, err);

	if (!stmt)
		return -1;
	columns_bind(stmt, columns, ARRAY_LEN(columns), row);
	if (store_run(store, stmt, grade, err) < 0)
		return err_wrap(err, "keep tree '%s'", row->id);
	return 0;
}

int store_tree_delete(struct store *store, const char *id, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_TREE_DELETE, err);

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, id);
	if (store_run(store, stmt, STORE_KEPT, err) < 0)
		return err_wrap(err, "delete tree '%s'", id);
	return 0;
}

int store_tree_each(struct store *store, void (*fn)(struct tree_row *row, void *arg), void *arg,
	struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_TREE_EACH, err);
	int rc, ret = 0;

	if (!stmt)
		return -1;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct tree_row row = { 0 };

		columns_read(stmt, columns, ARRAY_LEN(columns), &row);
		fn(&row, arg);
		tree_row_done(&row);
	}
	if (rc != SQLITE_DONE)
		ret = store_fail(store, err, "read trees");
	sqlite3_reset(stmt);
	return ret;
}
