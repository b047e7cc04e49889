/* tokens.c - bearer tokens for requests by TCP; see store.h
 *
 * A token is "box_" and 32 characters of base62 (190 bits); the database holds only its SHA-256. No
 * slow hash is needed: nobody guesses 190 bits, with or without the database. A check hashes the
 * given secret and compares it with every stored hash in constant time, so that the duration tells
 * nothing. */
#include "store/store_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"

#define SECRET_PREFIX "box_"
enum {
	SECRET_RANDOM = 32,
	SECRET_MAX = 128, /* longer than any token, so not hashed */
	ID_LEN = 10,
	USED_STEP_US = 60 * 1000 * 1000, /* the precision of last_used_at */
};

static const struct {
	const char *name;
	enum scope scope;
} scope_names[] = {
	{ "read", SCOPE_READ },
	{ "files", SCOPE_FILES },
	{ "exec", SCOPE_EXEC },
	{ "create", SCOPE_CREATE },
	{ "admin", SCOPE_ADMIN },
};

int scopes_from_names(json_t *names, unsigned *ret, struct err *err)
{
	unsigned scopes = 0;
	json_t *item;
	size_t i;

	json_array_foreach (names, i, item) {
		const char *name = json_string_value(item);
		unsigned found = 0;

		for (size_t k = 0; name && k < ARRAY_LEN(scope_names); k++)
			if (!strcmp(scope_names[k].name, name))
				found = scope_names[k].scope;
		if (!found)
			return err_set(err, ERR_INVALID,
				"unknown scope '%.40s': use read, files, exec, create or admin",
				name ? name : "?");
		scopes |= found;
	}
	if (!scopes)
		return err_set(err, ERR_INVALID,
			"a token needs a scope: read, files, exec, create or admin");
	*ret = scopes;
	return 0;
}

const char *scopes_text(unsigned scopes)
{
	static char text[64];
	size_t len = 0;

	text[0] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(scope_names); i++)
		if (scopes & scope_names[i].scope)
			len += (size_t)snprintf(text + len, sizeof text - len, "%s%s",
				len ? " or " : "", scope_names[i].name);
	return text;
}

static json_t *scopes_json(unsigned scopes)
{
	json_t *names = json_array();

	for (size_t i = 0; i < ARRAY_LEN(scope_names); i++)
		if (scopes & scope_names[i].scope)
			json_array_append_new(names, json_string(scope_names[i].name));
	return names;
}

json_t *store_time_json(int64_t us)
{
	char text[CLOCK_RFC3339_MAX];

	return us ? json_string(clock_rfc3339(us, text)) : json_null();
}

static json_t *token_json(const struct token_row *token)
{
	json_t *row = json_object();

	json_object_set_new(row, "id", json_string(token->id));
	json_object_set_new(row, "name", json_string(token->name));
	json_object_set_new(row, "owner", json_string(token->owner));
	json_object_set_new(row, "scopes", scopes_json(token->scopes));
	json_object_set_new(row, "created_at", store_time_json(token->created_us));
	json_object_set_new(row, "expires_at", store_time_json(token->expires_us));
	json_object_set_new(row, "last_used_at", store_time_json(token->last_used_us));
	return row;
}

static void token_done(struct token *token)
{
	free(token->row.id);
	free(token->row.name);
	free(token->row.owner);
}

void store_tokens_done(struct store *store)
{
	for (size_t i = 0; i < store->token_count; i++)
		token_done(&store->tokens[i]);
	free(store->tokens);
	store->tokens = NULL;
	store->token_count = 0;
}

static struct token *token_push(struct store *store)
{
	xgrow(store->tokens, store->token_count + 1);
	store->tokens[store->token_count] = (struct token){ 0 };
	return &store->tokens[store->token_count++];
}

int store_tokens_load(struct store *store, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_TOKEN_LIST, err);
	int rc;

	if (!stmt)
		return -1;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		struct token *token = token_push(store);
		struct token_row *row = &token->row;

		row->id = xstrdup((const char *)sqlite3_column_text(stmt, 0));
		row->name = xstrdup((const char *)sqlite3_column_text(stmt, 1));
		if (sqlite3_column_bytes(stmt, 2) == SHA256_SIZE)
			memcpy(token->hash, sqlite3_column_blob(stmt, 2), SHA256_SIZE);
		else
			row->expires_us = 1; /* a damaged time counts as expired */
		row->scopes = (unsigned)sqlite3_column_int(stmt, 3) & SCOPE_ALL;
		row->created_us = sqlite3_column_int64(stmt, 4);
		if (!row->expires_us)
			row->expires_us = sqlite3_column_int64(stmt, 5);
		row->last_used_us = sqlite3_column_int64(stmt, 6);
		row->owner = xstrdup((const char *)sqlite3_column_text(stmt, 7));
	}
	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? 0 : store_fail(store, err, "read tokens");
}

/* ---- making and revoking --------------------------------------------------------------------- */

static char *secret_new(void)
{
	static const char alphabet[] =
		"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	char *secret = xcalloc(1, sizeof SECRET_PREFIX + SECRET_RANDOM);
	size_t at = strlen(SECRET_PREFIX);

	memcpy(secret, SECRET_PREFIX, at);
	for (size_t end = at + SECRET_RANDOM; at < end;) {
		uint8_t byte;

		random_bytes(&byte, 1);
		if (byte < 4 * 62) /* so that all characters are equally likely */
			secret[at++] = alphabet[byte % 62];
	}
	return secret;
}

static int token_insert(struct store *store, const struct token *token, struct err *err)
{
	sqlite3_stmt *stmt = store_stmt(store, SQL_TOKEN_ADD, err);

	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, token->row.id);
	store_bind_text(stmt, 2, token->row.name);
	sqlite3_bind_blob(stmt, 3, token->hash, sizeof token->hash, SQLITE_STATIC);
	sqlite3_bind_int64(stmt, 4, token->row.scopes);
	sqlite3_bind_int64(stmt, 5, token->row.created_us);
	sqlite3_bind_int64(stmt, 6, token->row.expires_us);
	store_bind_text(stmt, 7, token->row.owner);
	return store_run(store, stmt, STORE_SAFE, err);
}

static int check_new(const struct store *store, const struct token_row *spec, struct err *err)
{
	if (name_check("token name", spec->name, err) < 0 ||
		(spec->owner && name_check("owner", spec->owner, err) < 0))
		return -1;
	for (size_t i = 0; i < store->token_count; i++)
		if (!strcmp(store->tokens[i].row.name, spec->name))
			return err_set(
				err, ERR_EXISTS, "there is a token named '%s' already", spec->name);
	if (store->token_count >= TOKENS_MAX)
		return err_set(
			err, ERR_LIMIT, "there are %d tokens already; revoke some", TOKENS_MAX);
	return 0;
}

int store_token_create(struct store *store, const struct token_row *spec, char **ret_secret,
	json_t **ret_row, struct err *err)
{
	_cleanup_free_ char *secret = NULL;
	char id[ID_LEN + 1];
	struct token token = { .row = *spec };

	if (check_new(store, spec, err) < 0)
		return -1;
	random_id(id, ID_LEN);
	secret = secret_new();
	sha256_of(secret, strlen(secret), token.hash);
	token.row.id = id;
	token.row.scopes = spec->scopes & SCOPE_ALL;
	token.row.owner = spec->owner ? spec->owner : (char *)OWNER_LOCAL;
	token.row.created_us = clock_wall_us();
	token.row.last_used_us = 0;
	if (token_insert(store, &token, err) < 0)
		return err_wrap(err, "create token '%s'", spec->name);
	token.row.id = xstrdup(id);
	token.row.name = xstrdup(spec->name);
	token.row.owner = xstrdup(token.row.owner);
	*token_push(store) = token;
	*ret_row = token_json(&token.row);
	*ret_secret = steal_ptr(&secret);
	return 0;
}

json_t *store_token_list(struct store *store, struct err *err)
{
	json_t *list = json_array();

	(void)err;
	for (size_t i = 0; i < store->token_count; i++)
		json_array_append_new(list, token_json(&store->tokens[i].row));
	return list;
}

/* An id takes precedence over a name, because people choose names. */
static struct token *token_find(struct store *store, const char *id_or_name)
{
	for (size_t i = 0; i < store->token_count; i++)
		if (!strcmp(store->tokens[i].row.id, id_or_name))
			return &store->tokens[i];
	for (size_t i = 0; i < store->token_count; i++)
		if (!strcmp(store->tokens[i].row.name, id_or_name))
			return &store->tokens[i];
	return NULL;
}

int store_token_revoke(struct store *store, const char *id_or_name, struct err *err)
{
	struct token *token = token_find(store, id_or_name);
	sqlite3_stmt *stmt;

	if (!token) {
		err_set(err, ERR_NOT_FOUND, "no token '%.80s'", id_or_name);
		return err_hint(err, "'box token ls' lists them");
	}
	stmt = store_stmt(store, SQL_TOKEN_DELETE, err);
	if (!stmt)
		return -1;
	store_bind_text(stmt, 1, token->row.id);
	if (store_run(store, stmt, STORE_SAFE, err) < 0)
		return err_wrap(err, "revoke token '%s'", token->row.name);
	token_done(token);
	store->token_count--;
	memmove(token, token + 1,
		sizeof *token * (store->token_count - (size_t)(token - store->tokens)));
	return 0;
}

/* ---- checking -------------------------------------------------------------------------------- */

static void note_use(struct store *store, struct token_row *token, int64_t now)
{
	struct err err = ERR_INIT;
	sqlite3_stmt *stmt;

	if (now - token->last_used_us < USED_STEP_US && now >= token->last_used_us)
		return;
	token->last_used_us = now;
	stmt = store_stmt(store, SQL_TOKEN_USED, &err);
	if (stmt) {
		store_bind_text(stmt, 1, token->id);
		sqlite3_bind_int64(stmt, 2, now);
		store_run(store, stmt, STORE_KEPT, &err);
	}
	if (err.kind)
		log_warn("cannot note the use of a token, continuing", kv_str("token", token->id),
			kv_err(&err));
}

/* Compares all tokens, so that the time tells nothing. NULL when none matches. */
static struct token *find_secret(const struct store *store, const char *secret)
{
	struct token *found = NULL;
	uint8_t hash[SHA256_SIZE];

	if (strnlen(secret, SECRET_MAX + 1) > SECRET_MAX)
		return NULL;
	sha256_of(secret, strlen(secret), hash);
	for (size_t i = 0; i < store->token_count; i++)
		if (sha256_equal(hash, store->tokens[i].hash, SHA256_SIZE))
			found = &store->tokens[i];
	return found;
}

static bool is_over(const struct token_row *token)
{
	return token->expires_us && token->expires_us <= clock_wall_us();
}

int store_token_check(
	struct store *store, const char *secret, const struct token_row **ret, struct err *err)
{
	struct token *found = find_secret(store, secret);

	if (!found)
		return err_set(err, ERR_UNAUTHORIZED, "unknown token");
	if (is_over(&found->row))
		return err_set(err, ERR_UNAUTHORIZED, "the token has expired");
	note_use(store, &found->row, clock_wall_us());
	*ret = &found->row;
	return 0;
}

const struct token_row *store_token_get(const struct store *store, const char *id)
{
	for (size_t i = 0; i < store->token_count; i++)
		if (!strcmp(store->tokens[i].row.id, id))
			return is_over(&store->tokens[i].row) ? NULL : &store->tokens[i].row;
	return NULL;
}
