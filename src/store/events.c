/* events.c - the log of events; see store.h
 *
 * Offsets are the table's row ids. They rise by one because the newest row is never deleted: SQLite
 * gives the next row the highest id plus one.
 *
 * The log is trimmed by shares: a box that causes thousands of events pushes out its own events and
 * those of its tree, but not those of others. So there are gaps below events_from. */
#include "store/store_internal.h"
#include "base/clock.h"

enum { TRIM_PART = 50 }; /* the log is trimmed again when this part of what is kept was added */

int store_event_add(
	struct store *store, const struct event_row *event, uint64_t *ret_offset, struct err *err)
{
	_cleanup_free_ char *text = event->data ? json_text(event->data) : NULL;
	sqlite3_stmt *stmt = store_stmt(store, SQL_EVENT_ADD, err);

	if (!stmt || store_gather(store, err) < 0)
		return -1;
	sqlite3_bind_int64(stmt, 1, event->at_us);
	store_bind_text(stmt, 2, event->type);
	store_bind_text(stmt, 3, event->box_id);
	store_bind_text(stmt, 4, event->box_name);
	store_bind_text(stmt, 5, text);
	store_bind_text(stmt, 6, event->tree);
	store_bind_text(stmt, 7, event->owner ? event->owner : OWNER_LOCAL);
	store_bind_text(stmt, 8, event->who);
	if (store_run(store, stmt, STORE_KEPT, err) < 0)
		return err_wrap(err, "record event '%s'", event->type);
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
	json_object_set_new(event, "owner", text_or_null(stmt, 6));
	json_object_set_new(event, "who", text_or_null(stmt, 7));
	json_object_set_new(event, "data", data ? data : json_null());
	return event;
}

/* The statement for a filter, with ?3 and ?4 bound. The index by box is the narrower one. */
static sqlite3_stmt *filtered(struct store *store, const struct event_filter *filter,
	enum store_sql all, enum store_sql of_box, enum store_sql of_owner, struct err *err)
{
	const char *box = filter ? filter->box_id : NULL, *owner = filter ? filter->owner : NULL;
	sqlite3_stmt *stmt = store_stmt(store, box ? of_box : owner ? of_owner : all, err);

	if (stmt && box)
		store_bind_text(stmt, 3, box);
	if (stmt && (box || owner))
		store_bind_text(stmt, 4, owner);
	return stmt;
}

json_t *store_event_list(struct store *store, uint64_t since, const struct event_filter *filter,
	unsigned limit, struct err *err)
{
	sqlite3_stmt *stmt = filtered(
		store, filter, SQL_EVENT_LIST, SQL_EVENT_LIST_BOX, SQL_EVENT_LIST_OWNER, err);
	json_t *list = json_array();
	int rc;

	if (!stmt) {
		json_decref(list);
		return NULL;
	}
	sqlite3_bind_int64(stmt, 1, (sqlite3_int64)MIN(since, (uint64_t)INT64_MAX));
	sqlite3_bind_int64(stmt, 2, limit);
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

/* One number; false: there is none. */
static bool read_number(struct store *store, sqlite3_stmt *stmt, uint64_t *ret)
{
	bool found =
		sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL;

	(void)store;
	if (found)
		*ret = (uint64_t)sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return found;
}

int store_event_range(
	struct store *store, uint64_t *ret_oldest, uint64_t *ret_next, struct err *err)
{
	sqlite3_stmt *from = store->events_from ? NULL : store_stmt(store, SQL_EVENT_FROM, err);
	sqlite3_stmt *stmt = store_stmt(store, SQL_EVENT_RANGE, err);
	int ret = -1;

	if (!stmt || (!from && !store->events_from))
		return -1;
	if (from)
		read_number(store, from, &store->events_from);
	if (sqlite3_step(stmt) == SQLITE_ROW) {
		bool empty = sqlite3_column_type(stmt, 0) == SQLITE_NULL;

		*ret_oldest = empty ? 1 : store->events_from;
		*ret_next = empty ? 1 : (uint64_t)sqlite3_column_int64(stmt, 1) + 1;
		ret = 0;
	} else {
		store_fail(store, err, "read events");
	}
	sqlite3_reset(stmt);
	return ret;
}

int store_event_tail(struct store *store, const struct event_filter *filter, uint64_t wanted,
	uint64_t *ret_count, uint64_t *ret_first, struct err *err)
{
	sqlite3_stmt *stmt = filtered(
		store, filter, SQL_EVENT_TAIL, SQL_EVENT_TAIL_BOX, SQL_EVENT_TAIL_OWNER, err);
	int ret = -1;

	if (!stmt)
		return -1;
	sqlite3_bind_int64(stmt, 2, (sqlite3_int64)MIN(wanted, (uint64_t)INT64_MAX));
	if (sqlite3_step(stmt) == SQLITE_ROW) {
		*ret_count = (uint64_t)sqlite3_column_int64(stmt, 0);
		*ret_first = (uint64_t)sqlite3_column_int64(stmt, 1);
		ret = 0;
	} else {
		store_fail(store, err, "read events");
	}
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return ret;
}

int store_event_missing(struct store *store, uint64_t since, uint64_t *ret, struct err *err)
{
	sqlite3_stmt *stmt;
	uint64_t oldest = 0, next = 0, there = 0;

	if (store_event_range(store, &oldest, &next, err) < 0)
		return -1;
	*ret = 0;
	if (since >= oldest)
		return 0;
	stmt = store_stmt(store, SQL_EVENT_MISSING, err);
	if (!stmt)
		return -1;
	sqlite3_bind_int64(stmt, 1, (sqlite3_int64)since);
	sqlite3_bind_int64(stmt, 2, (sqlite3_int64)oldest);
	if (!read_number(store, stmt, &there))
		return store_fail(store, err, "count events");
	*ret = oldest - since - there;
	return 0;
}

/* ---- shares --------------------------------------------------------------------------------- */

/* Deletes events of one tree: the newest count stay, and only those older than border are
 * deleted. */
static int trim_tree(
	struct store *store, const char *tree, uint64_t border, uint64_t count, struct err *err)
{
	sqlite3_stmt *cut = store_stmt(store, SQL_EVENT_CUT, err), *trim;
	uint64_t last = 0;

	if (!cut)
		return -1;
	store_bind_text(cut, 1, tree);
	sqlite3_bind_int64(cut, 2, (sqlite3_int64)count);
	if (!read_number(store, cut, &last))
		return 0;
	trim = store_stmt(store, SQL_EVENT_TRIM_TREE, err);
	if (!trim)
		return -1;
	store_bind_text(trim, 1, tree);
	sqlite3_bind_int64(trim, 2, (sqlite3_int64)last);
	sqlite3_bind_int64(trim, 3, (sqlite3_int64)border);
	return store_run(store, trim, STORE_KEPT, err);
}

/* Deletes events of removed boxes, all trees together. */
static int trim_gone(struct store *store, uint64_t border, uint64_t count, struct err *err)
{
	sqlite3_stmt *cut = store_stmt(store, SQL_EVENT_CUT_GONE, err), *trim;
	uint64_t last = 0;

	if (!cut)
		return -1;
	sqlite3_bind_int64(cut, 1, (sqlite3_int64)border);
	sqlite3_bind_int64(cut, 2, (sqlite3_int64)count);
	if (!read_number(store, cut, &last))
		return 0;
	trim = store_stmt(store, SQL_EVENT_TRIM_GONE, err);
	if (!trim)
		return -1;
	sqlite3_bind_int64(trim, 1, (sqlite3_int64)last);
	return store_run(store, trim, STORE_KEPT, err);
}

/* Trees that have boxes, and "". Yours. */
static int list_trees(struct store *store, json_t **ret, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_EVENT_TREES, err);
	json_t *list = json_array();
	int rc = SQLITE_ERROR;

	while (stmt && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		json_array_append_new(
			list, json_string((const char *)sqlite3_column_text(stmt, 0)));
	if (stmt)
		sqlite3_reset(stmt);
	if (rc != SQLITE_DONE) {
		json_decref(list);
		return stmt ? store_fail(store, err, "read trees") : -1;
	}
	*ret = list;
	return 0;
}

static int trim(struct store *store, uint64_t border, uint64_t older, struct err *err)
{
	_cleanup_json_ json_t *trees = NULL;
	json_t *tree;
	size_t i;

	if (list_trees(store, &trees, err) < 0)
		return -1;
	json_array_foreach (trees, i, tree)
		if (trim_tree(store, json_string_value(tree), border,
			    older / 2 / json_array_size(trees), err) < 0)
			return -1;
	return trim_gone(store, border, older / 2, err);
}

int store_event_trim(struct store *store, uint64_t keep, struct err *err)
{
	uint64_t oldest = 0, next = 0, newest;
	int changes = sqlite3_total_changes(store->db);

	keep = MIN(MAX(keep, 2), (uint64_t)INT64_MAX);
	if (store_event_range(store, &oldest, &next, err) < 0)
		return -1;
	newest = next - 1;
	/* Everything is within the newest half, or little was added since the last time. */
	if (newest <= keep / 2 || newest - store->events_trimmed < keep / TRIM_PART)
		return 0;
	if (store_begin(store, err) < 0)
		return -1;
	if (trim(store, newest - keep / 2, keep / 2, err) < 0) {
		store_rollback(store);
		return err_wrap(err, "trim events");
	}
	store->events_trimmed = newest;
	if (sqlite3_total_changes(store->db) != changes)
		store->events_from = MAX(oldest, newest - keep / 2 + 1);
	return store_commit(store, STORE_KEPT, err);
}
