/* keys.c - public keys of SSH logins; see store.h
 *
 * Read from the database at each login: that is rare, and a key that was removed is gone at
 * once. */
#include "store/store_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "store/columns.h"

enum {
	ID_LEN = 10,
	USED_STEP_US = 60 * 1000 * 1000, /* last_used_at is as precise as this */
};

#define COLUMN(kind, field)                             \
	{                                               \
		(kind), offsetof(struct key_row, field) \
	}
static const struct column columns[] = {
	COLUMN(COLUMN_TEXT, id),
	COLUMN(COLUMN_TEXT, name),
	COLUMN(COLUMN_TEXT, owner),
	COLUMN(COLUMN_TEXT, fingerprint),
	COLUMN(COLUMN_TEXT, type),
	COLUMN(COLUMN_TEXT, key),
	COLUMN(COLUMN_U32, scopes),
	COLUMN(COLUMN_TEXT, box),
	COLUMN(COLUMN_TEXT, sources),
	COLUMN(COLUMN_U32, restricted),
	COLUMN(COLUMN_TEXT, comment),
	COLUMN(COLUMN_I64, created_us),
	COLUMN(COLUMN_I64, expires_us),
	COLUMN(COLUMN_I64, last_used_us),
};

static const struct {
	const char *name;
	unsigned scopes;
} roles[] = {
	{ "read", SCOPE_READ },
	{ "files", SCOPE_READ | SCOPE_FILES },
	{ "exec", SCOPE_READ | SCOPE_FILES | SCOPE_EXEC },
	{ "create", SCOPE_READ | SCOPE_FILES | SCOPE_EXEC | SCOPE_CREATE },
	{ "admin", SCOPE_ALL },
};

static const struct {
	const char *name;
	unsigned bit;
} restrictions[] = {
	{ "pty", KEY_NO_PTY },
	{ "port-forwarding", KEY_NO_FORWARDING },
	{ "agent-forwarding", KEY_NO_AGENT },
	{ "X11-forwarding", KEY_NO_X11 },
};

int role_from_name(const char *name, unsigned *ret_scopes, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (!strcmp(roles[i].name, name)) {
			*ret_scopes = roles[i].scopes;
			return 0;
		}
	return err_set(err, ERR_INVALID,
		"unknown role '%.40s': use read, files, exec, create or admin", name);
}

const char *role_name(unsigned scopes)
{
	size_t i = ARRAY_LEN(roles);

	while (i-- > 1)
		if ((scopes & roles[i].scopes) == roles[i].scopes)
			break;
	return roles[i].name;
}

unsigned key_restriction_from_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(restrictions); i++)
		if (!strcmp(restrictions[i].name, name))
			return restrictions[i].bit;
	return 0;
}

static json_t *restricted_json(unsigned restricted)
{
	json_t *names = json_array();

	for (size_t i = 0; i < ARRAY_LEN(restrictions); i++)
		if (restricted & restrictions[i].bit)
			json_array_append_new(names, json_string(restrictions[i].name));
	return names;
}

static json_t *text_or_null(const char *text)
{
	return text && *text ? json_string(text) : json_null();
}

json_t *key_row_json(const struct key_row *key)
{
	return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:s,s:o,s:o,s:o}", "id", key->id,
		"name", key->name, "owner", key->owner, "fingerprint", key->fingerprint, "type",
		key->type, "key", key->key, "role", role_name(key->scopes), "box",
		text_or_null(key->box), "from", text_or_null(key->sources), "restricted",
		restricted_json(key->restricted), "comment", key->comment, "created_at",
		store_time_json(key->created_us), "expires_at", store_time_json(key->expires_us),
		"last_used_at", store_time_json(key->last_used_us));
}

void key_row_done(struct key_row *row)
{
	columns_free(columns, ARRAY_LEN(columns), row);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_one(struct store *store, enum store_sql which, const char *by, struct key_row *ret,
	struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, which, err);
	int rc;

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, by);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		*ret = (struct key_row){ 0 };
		columns_read(stmt, columns, ARRAY_LEN(columns), ret);
		ret->scopes &= SCOPE_ALL;
	}
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	if (rc == SQLITE_ROW)
		return 0;
	if (rc != SQLITE_DONE)
		return store_fail(store, err, "read keys");
	err_set(err, ERR_NOT_FOUND, "no key '%.80s'", by);
	return err_hint(err, "'box key ls' lists them");
}

int store_key_find(
	struct store *store, const char *fingerprint, struct key_row *ret, struct err *err)
{
	return read_one(store, SQL_KEY_FIND, fingerprint, ret, err);
}

int store_key_get(struct store *store, const char *id, struct key_row *ret, struct err *err)
{
	return read_one(store, SQL_KEY_GET, id, ret, err);
}

json_t *store_key_list(struct store *store, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_KEY_LIST, err);
	json_t *list;
	int rc;

	if (!stmt)
		return NULL;
	list = json_array();
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct key_row row = { 0 };

		columns_read(stmt, columns, ARRAY_LEN(columns), &row);
		json_array_append_new(list, key_row_json(&row));
		key_row_done(&row);
	}
	sqlite3_reset(stmt);
	if (rc == SQLITE_DONE)
		return list;
	json_decref(list);
	store_fail(store, err, "read keys");
	return NULL;
}

/* ---- changing -------------------------------------------------------------------------------- */

static int refuse_taken(struct store *store, const struct key_row *spec, struct err *err)
{
	struct key_row other = { 0 };

	if (store_key_find(store, spec->fingerprint, &other, NULL) == 0) {
		err_set(err, ERR_EXISTS, "this key is there already, as '%s' of owner '%s'",
			other.name, other.owner);
		key_row_done(&other);
		return err_hint(err, "a key is one principal; 'box key rm' removes it");
	}
	if (store_key_get(store, spec->name, &other, NULL) == 0) {
		key_row_done(&other);
		err_set(err, ERR_EXISTS, "there is a key named '%s' already", spec->name);
		return err_hint(err, "choose another name, or 'box key rm %s'", spec->name);
	}
	return 0;
}

static int check_count(struct store *store, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_KEY_COUNT, err);
	int64_t count = -1;

	if (!stmt)
		return -1;
	if (sqlite3_step(stmt) == SQLITE_ROW)
		count = sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	if (count < 0)
		return store_fail(store, err, "count keys");
	if (count >= KEYS_MAX)
		return err_set(err, ERR_LIMIT, "there are %d keys already; remove some", KEYS_MAX);
	return 0;
}

int store_key_add(
	struct store *store, const struct key_row *spec, json_t **ret_row, struct err *err)
{
	struct key_row row = *spec;
	char id[ID_LEN + 1];
	sqlite3_stmt *stmt;

	if (refuse_taken(store, spec, err) < 0 || check_count(store, err) < 0)
		return -1;
	random_id(id, ID_LEN);
	row.id = id;
	row.created_us = clock_wall_us();
	row.last_used_us = 0;
	stmt = store_stmt(store, SQL_KEY_ADD, err);
	if (!stmt)
		return -1;
	columns_bind(stmt, columns, ARRAY_LEN(columns), &row);
	if (store_run(store, stmt, STORE_SAFE, err) < 0)
		return err_wrap(err, "add key '%s'", spec->name);
	if (store_key_get(store, id, &row, err) < 0)
		return -1;
	*ret_row = key_row_json(&row);
	key_row_done(&row);
	return 0;
}

int store_key_remove(struct store *store, const char *id_or_name, json_t **ret_row, struct err *err)
{
	struct key_row row = { 0 };
	sqlite3_stmt *stmt;
	int ret = -1;

	if (store_key_get(store, id_or_name, &row, err) < 0)
		return -1;
	stmt = store_stmt(store, SQL_KEY_DELETE, err);
	if (stmt) {
		store_bind_text(stmt, 1, row.id);
		ret = store_run(store, stmt, STORE_SAFE, err);
	}
	if (ret < 0)
		err_wrap(err, "remove key '%s'", row.name);
	else
		*ret_row = key_row_json(&row);
	key_row_done(&row);
	return ret;
}

void store_key_used(struct store *store, const struct key_row *key)
{
	int64_t now = clock_wall_us();
	struct err err = ERR_INIT;
	sqlite3_stmt *stmt;

	if (now - key->last_used_us < USED_STEP_US && now >= key->last_used_us)
		return;
	stmt = store_stmt(store, SQL_KEY_USED, &err);
	if (stmt) {
		store_bind_text(stmt, 1, key->id);
		sqlite3_bind_int64(stmt, 2, now);
		store_run(store, stmt, STORE_KEPT, &err);
	}
	if (err.kind)
		log_warn("cannot note the use of a key, continuing", kv_str("key", key->id),
			kv_err(&err));
}
