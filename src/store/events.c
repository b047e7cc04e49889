/* events.c - the log of what happened; see store.h
 *
 * Offsets are the table's row numbers. They rise by one because the newest row is never deleted: SQLite
 * gives the next row the highest number there is plus one. */
#include "store/store_internal.h"
#include "base/clock.h"

int store_event_add(struct store *store, const char *type, const char *box_id, const char *box_name,
	json_t *data, int64_t at_us, uint64_t *ret_offset, struct err *err)
{
	_cleanup_free_ char *text = data ? json_text(data) : NULL;
	sqlite3_stmt *stmt = store_stmt(store, SQL_EVENT_ADD, err);

	if (!stmt)
		return -1;
	sqlite3_bind_int64(stmt, 1, at_us);
	store_bind_text(stmt, 2, type);
	store_bind_text(stmt, 3, box_id);
	store_bind_text(stmt, 4, box_name);
	store_bind_text(stmt, 5, text);
	if (store_run(store, stmt, STORE_KEPT, err) < 0)
		return err_wrap(err, "record event '%s'", type);
	if (ret_offset)
		*ret_offset = (uint64_t)sqlite3_last_insert_rowid(store->db);
	return 0;
}

static json_t *text_or_null(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text && *text ? json_string(text) : json_null();
}

static json_t *event_json(sqlite3_stmt *stmt)
{
	char at[CLOCK_RFC3339_MAX];
	json_t *event = json_object();
	json_t *data =
		json_loads((const char *)sqlite3_column_text(stmt, 5), JSON_DECODE_ANY, NULL);

	json_object_set_new(event, "offset", json_integer(sqlite3_column_int64(stmt, 0)));
	json_object_set_new(
		event, "at", json_string(clock_rfc3339(sqlite3_column_int64(stmt, 1), at)));
	json_object_set_new(event, "type", json_string((const char *)sqlite3_column_text(stmt, 2)));
	json_object_set_new(event, "box", text_or_null(stmt, 3));
	json_object_set_new(event, "box_name", text_or_null(stmt, 4));
	json_object_set_new(event, "data", data ? data : json_null());
	return event;
}

json_t *store_event_list(
	struct store *store, uint64_t since, const char *box_id, unsigned limit, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, box_id ? SQL_EVENT_LIST_BOX : SQL_EVENT_LIST, err);
	json_t *list = json_array();
	int rc;

	if (!stmt) {
		json_decref(list);
		return NULL;
	}
	sqlite3_bind_int64(stmt, 1, (sqlite3_int64)MIN(since, (uint64_t)INT64_MAX));
	sqlite3_bind_int64(stmt, 2, limit);
	if (box_id)
		store_bind_text(stmt, 3, box_id);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		json_array_append_new(list, event_json(stmt));
	if (rc != SQLITE_DONE) {
		store_fail(store, err, "read events");
		json_decref(list);
		list = NULL;
	}
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return list;
}

int store_event_range(
	struct store *store, uint64_t *ret_oldest, uint64_t *ret_next, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_EVENT_RANGE, err);
	int ret = -1;

	if (!stmt)
		return -1;
	if (sqlite3_step(stmt) == SQLITE_ROW) {
		bool empty = sqlite3_column_type(stmt, 0) == SQLITE_NULL;

		*ret_oldest = empty ? 1 : (uint64_t)sqlite3_column_int64(stmt, 0);
		*ret_next = empty ? 1 : (uint64_t)sqlite3_column_int64(stmt, 1) + 1;
		ret = 0;
	} else {
		store_fail(store, err, "read events");
	}
	sqlite3_reset(stmt);
	return ret;
}

int store_event_trim(struct store *store, uint64_t keep, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_EVENT_TRIM, err);

	if (!stmt)
		return -1;
	sqlite3_bind_int64(stmt, 1, (sqlite3_int64)MIN(MAX(keep, 1), (uint64_t)INT64_MAX));
	if (store_run(store, stmt, STORE_KEPT, err) < 0)
		return err_wrap(err, "trim events");
	return 0;
}
