/* networks.c - the table of networks, a row for each box that has one; see store.h
 *
 * A row is written whole when a policy or a port changes. Names, budgets and meters change all the
 * time; another statement updates those columns alone. */
#include "store/store_internal.h"
#include "base/alloc.h"

/* In the table's order. */
enum {
	AT_BOX,
	AT_POLICY,
	AT_VERSION,
	AT_CHANGED,
	AT_PACKAGE_HOSTS,
	AT_NAMES,
	AT_SPENT,
	AT_PORTS,
	AT_METERS,
	AT_RECORDING
};

static const struct {
	int at;
	size_t field;
} texts[] = {
	{ AT_BOX, offsetof(struct network_row, box) },
	{ AT_POLICY, offsetof(struct network_row, policy) },
	{ AT_PACKAGE_HOSTS, offsetof(struct network_row, package_hosts) },
	{ AT_NAMES, offsetof(struct network_row, names) },
	{ AT_SPENT, offsetof(struct network_row, spent) },
	{ AT_PORTS, offsetof(struct network_row, ports) },
	{ AT_METERS, offsetof(struct network_row, meters) },
};

void network_row_done(struct network_row *row)
{
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		free(*(char **)((char *)row + texts[i].field));
	*row = (struct network_row){ 0 };
}

int store_network_put(
	struct store *store, const struct network_row *row, enum store_grade grade, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_NETWORK_PUT, err);

	if (!stmt)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		store_bind_text(stmt, texts[i].at + 1,
			*(char *const *)((const char *)row + texts[i].field));
	sqlite3_bind_int64(stmt, AT_VERSION + 1, (sqlite3_int64)row->version);
	sqlite3_bind_int64(stmt, AT_CHANGED + 1, row->changed_us);
	sqlite3_bind_int(stmt, AT_RECORDING + 1, row->recording);
	if (store_run(store, stmt, grade, err) < 0)
		return err_wrap(err, "keep the network of box '%s'", row->box);
	return 0;
}

static struct network_row read_row(sqlite3_stmt *stmt)
{
	struct network_row row = {
		.version = (uint64_t)sqlite3_column_int64(stmt, AT_VERSION),
		.changed_us = sqlite3_column_int64(stmt, AT_CHANGED),
		.recording = sqlite3_column_int(stmt, AT_RECORDING) != 0,
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		*(char **)((char *)&row + texts[i].field) =
			xstrdup((const char *)sqlite3_column_text(stmt, texts[i].at));
	return row;
}

int store_network_get(
	struct store *store, const char *box, struct network_row *ret, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_NETWORK_GET, err);
	int rc;

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, box);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret = read_row(stmt);
	else if (rc == SQLITE_DONE)
		err_set(err, ERR_NOT_FOUND, "box '%s' has no network yet", box);
	else
		store_fail(store, err, "read the network of a box");
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_ROW ? 0 : -1;
}

/* NULL is bound as NULL, and the statement leaves that column unchanged. */
static void bind_change(sqlite3_stmt *stmt, int at, const char *text)
{
	if (text)
		store_bind_text(stmt, at, text);
	else
		sqlite3_bind_null(stmt, at);
}

int store_network_update(struct store *store, const char *box, const char *names, const char *spent,
	const char *meters, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_NETWORK_UPDATE, err);

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, box);
	bind_change(stmt, 2, names);
	bind_change(stmt, 3, spent);
	bind_change(stmt, 4, meters);
	if (store_run(store, stmt, STORE_KEPT, err) < 0)
		return err_wrap(err, "save the network meters of box '%s'", box);
	if (sqlite3_changes(store->db) == 0)
		return err_set(err, ERR_NOT_FOUND, "box '%s' has no network yet", box);
	return 0;
}
