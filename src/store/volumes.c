/* volumes.c - the owners of volumes; see store.h */
#include "store/store_internal.h"
#include "base/alloc.h"

int store_volume_put(struct store *store, const char *name, const char *owner, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_VOLUME_PUT, err);

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, name);
	store_bind_text(stmt, 2, owner);
	return store_run(store, stmt, STORE_SAFE, err);
}

int store_volume_delete(struct store *store, const char *name, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_VOLUME_DELETE, err);

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, name);
	return store_run(store, stmt, STORE_SAFE, err);
}

char *store_volume_owner(struct store *store, const char *name)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_VOLUME_GET, NULL);
	char *owner = NULL;

	if (stmt) {
		store_bind_text(stmt, 1, name);
		if (sqlite3_step(stmt) == SQLITE_ROW)
			owner = xstrdup((const char *)sqlite3_column_text(stmt, 0));
		sqlite3_reset(stmt);
		sqlite3_clear_bindings(stmt);
	}
	return owner ? owner : xstrdup(OWNER_LOCAL);
}
