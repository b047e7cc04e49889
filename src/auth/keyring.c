/* keyring.c - see keyring.h */
#include "auth/keyring.h"
#include "auth/auth_internal.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/yard.h"
#include "sshkey/line.h"
#include <assert.h>
#include <stdio.h>

static_assert((int)KEY_SPEC_LINE_MAX == KEYLINE_MAX, "one bound");

/* What the principal itself is bound to, and passes on. */
struct bounds {
	unsigned scopes;
	int64_t expires_us; /* 0: never */
	unsigned restricted;
	char sources[SOURCES_TEXT_MAX + 1]; /* "" : any */
};

static int bounds_of_key(
	struct store *store, const struct principal *principal, struct bounds *ret, struct err *err)
{
	struct key_row key = { 0 };

	if (store_key_get(store, principal->id + strlen(PRINCIPAL_ID_KEY), &key, NULL) < 0)
		return err_set(err, ERR_UNAUTHORIZED, "the key is not valid any more");
	ret->expires_us = key.expires_us;
	ret->restricted = key.restricted;
	snprintf(ret->sources, sizeof ret->sources, "%s", key.sources);
	key_row_done(&key);
	return 0;
}

static int bounds_read(
	struct auth *auth, const struct principal *principal, struct bounds *ret, struct err *err)
{
	struct store *store = yard_get_store(auth->yard);
	const struct token_row *token;

	*ret = (struct bounds){ .scopes = principal->scopes };
	if (ret->scopes & SCOPE_EXEC)
		ret->scopes |= SCOPE_FILES;
	switch (principal->kind) {
	case PRINCIPAL_SOCKET:
		return 0;
	case PRINCIPAL_TOKEN:
		token = store_token_get(store, principal->id);
		if (!token)
			return err_set(err, ERR_UNAUTHORIZED, "the token is no longer valid");
		ret->expires_us = token->expires_us;
		return 0;
	case PRINCIPAL_KEY:
		return bounds_of_key(store, principal, ret, err);
	default:
		/* It ends with the certificate, and so would have to what it makes. */
		return err_set(err, ERR_FORBIDDEN, "a login by certificate cannot add keys");
	}
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* The value from the body or the line; "" : from neither. */
static int choose(
	const char *what, const char *given, const char *line, const char **ret, struct err *err)
{
	if (given && *line && strcmp(given, line))
		return err_set(err, ERR_INVALID,
			"'%s' is given twice, in the request and in the options of the key", what);
	*ret = given ? given : line;
	return 0;
}

static int choose_role(const char *role, const char *box, const struct bounds *bounds,
	unsigned *ret, struct err *err)
{
	static const char *const usual[] = { "create", "exec", "files", "read" };

	for (size_t i = *box ? 1 : 0; !*role && i < ARRAY_LEN(usual); i++) {
		unsigned scopes;

		if (role_from_name(usual[i], &scopes, err) == 0 && !(scopes & ~bounds->scopes))
			role = usual[i];
	}
	if (role_from_name(*role ? role : "read", ret, err) < 0)
		return -1;
	if (*ret & ~bounds->scopes) {
		err_set(err, ERR_FORBIDDEN, "the role %s is more than you have", role_name(*ret));
		return err_hint(err, "a key gets at most the scopes of who adds it");
	}
	if (*box && *ret & ~SCOPES_BOUND) {
		err_set(err, ERR_INVALID, "a key of one box has at most the role exec");
		return err_hint(err, "leave the role out, or the box");
	}
	return 0;
}

static int choose_sources(
	const char *sources, const struct bounds *bounds, const char **ret, struct err *err)
{
	if (*sources && sources_check(sources, err) < 0)
		return -1;
	if (*bounds->sources && *sources && strcmp(sources, bounds->sources)) {
		err_set(err, ERR_FORBIDDEN, "your own key may come from '%.200s' only",
			bounds->sources);
		return err_hint(err, "leave 'from' out: the new key gets the same");
	}
	*ret = *sources ? sources : bounds->sources;
	return 0;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return !a ? b : !b ? a : MIN(a, b);
}

static int choose_expiry(const struct key_spec *spec, const struct keyline *line,
	const struct bounds *bounds, int64_t *ret, struct err *err)
{
	int64_t asked = earlier(spec->expires_us, line->expires_us);

	if (asked && asked <= clock_wall_us())
		return err_set(err, ERR_INVALID, "the key would have expired already");
	if (asked && bounds->expires_us && asked > bounds->expires_us) {
		err_set(err, ERR_FORBIDDEN, "the key would outlive the one you use");
		return err_hint(err, "leave the time out: it expires with yours");
	}
	*ret = earlier(asked, bounds->expires_us);
	return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_taken(struct store *store, const char *name)
{
	struct key_row other = { 0 };

	if (store_key_get(store, name, &other, NULL) < 0)
		return false;
	key_row_done(&other);
	return true;
}

/* "ann@laptop" -> "ann-laptop"; "" when nothing is left. */
static void label_of(const char *comment, char ret[NAME_MAX_LEN + 1])
{
	size_t len = 0;

	for (; *comment && len < NAME_MAX_LEN - 4; comment++) {
		char c = *comment >= 'A' && *comment <= 'Z' ? (char)(*comment + 32) : *comment;

		if ((c >= 'a' && c <= 'z') || (len && c >= '0' && c <= '9'))
			ret[len++] = c;
		else if (len && ret[len - 1] != '-')
			ret[len++] = '-';
	}
	while (len && ret[len - 1] == '-')
		len--;
	ret[len] = '\0';
}

/* Of the comment, with a number when that is taken. */
static void make_name(struct store *store, const char *comment, char ret[NAME_MAX_LEN + 1])
{
	enum { TRIES = 100 };
	char label[NAME_MAX_LEN + 1], id[9];

	label_of(comment, label);
	if (!*label)
		strcpy(label, "key");
	snprintf(ret, NAME_MAX_LEN + 1, "%s", label);
	for (int i = 2; i < TRIES && is_taken(store, ret); i++)
		snprintf(ret, NAME_MAX_LEN + 1, "%s-%d", label, i);
	if (!is_taken(store, ret))
		return;
	random_id(id, sizeof id - 1);
	snprintf(ret, NAME_MAX_LEN + 1, "key-%s", id);
}

/* ---- adding ---------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

/* Looks for the key and the name: *ret_row is set when the very same key is there. What another
 * owner has is not described. */
static int check_free(struct auth *auth, const struct key_row *want, bool named, json_t **ret_row,
	struct err *err)
{
	struct store *store = yard_get_store(auth->yard);
	struct key_row other = { 0 };
	bool mine, same;

	if (store_key_find(store, want->fingerprint, &other, NULL) == 0) {
		mine = yard_may_see(auth->yard, other.owner);
		same = mine && same_text(other.owner, want->owner) &&
		       other.scopes == want->scopes && same_text(other.box, want->box) &&
		       same_text(other.sources, want->sources) &&
		       other.restricted == want->restricted &&
		       other.expires_us == want->expires_us &&
		       (!named || same_text(other.name, want->name));
		if (same)
			*ret_row = key_row_json(&other);
		key_row_done(&other);
		if (same || mine)
			return 0; /* the store says which one it is */
		return err_set(err, ERR_EXISTS, "another owner has added this key already");
	}
	if (store_key_get(store, want->name, &other, NULL) < 0)
		return 0;
	mine = yard_may_see(auth->yard, other.owner);
	key_row_done(&other);
	if (mine)
		return 0;
	return err_set(
		err, ERR_EXISTS, "the name '%s' is taken by another owner's key", want->name);
}

static void note(struct auth *auth, const char *event, json_t *row)
{
	static const char *const fields[] = { "id", "name", "owner", "fingerprint", "type", "role",
		"box" };
	json_t *data = json_object();

	for (size_t i = 0; i < ARRAY_LEN(fields); i++)
		json_object_set(data, fields[i], json_object_get(row, fields[i]));
	yard_event(auth->yard, event, NULL, data);
}

static int check_owner(struct auth *auth, const char *owner, struct err *err)
{
	if (name_check("owner", owner, err) < 0)
		return -1;
	if (yard_may_see(auth->yard, owner))
		return 0;
	err_set(err, ERR_FORBIDDEN, "a key for another owner needs the scope admin");
	return err_hint(err, "leave 'owner' out: the key is yours");
}

/* Fills row, whose texts are borrowed from spec, line, bounds and name. */
static int fill_row(struct auth *auth, const struct principal *principal,
	const struct key_spec *spec, const struct keyline *line, const struct bounds *bounds,
	struct key_row *row, struct err *err)
{
	const char *role, *box, *from, *sources;
	unsigned scopes = 0;

	if (line->is_ca) {
		err_set(err, ERR_INVALID, "cert-authority lines are not for single keys");
		return err_hint(err, "the setting ssh_ca names a file with CAs");
	}
	row->owner = (char *)(spec->owner ? spec->owner : principal->asker.owner);
	if (check_owner(auth, row->owner, err) < 0 ||
		choose("role", spec->role, line->role, &role, err) < 0 ||
		choose("box", spec->box, line->box, &box, err) < 0 ||
		choose("from", spec->from, line->sources, &from, err) < 0 ||
		(*box && name_check("box", box, err) < 0) ||
		choose_role(role, box, bounds, &scopes, err) < 0 ||
		choose_sources(from, bounds, &sources, err) < 0 ||
		choose_expiry(spec, line, bounds, &row->expires_us, err) < 0)
		return -1;
	row->scopes = scopes;
	row->box = (char *)box;
	row->sources = (char *)sources;
	row->restricted = spec->restricted | line->restricted | bounds->restricted;
	row->type = (char *)line->key.name;
	row->comment = (char *)line->comment;
	return 0;
}

static int add_line(struct auth *auth, const struct principal *principal,
	const struct key_spec *spec, const struct keyline *line, json_t **ret_row, bool *ret_made,
	struct err *err)
{
	struct store *store = yard_get_store(auth->yard);
	_cleanup_free_ char *base64 = base64_encode(line->blob, line->blob_len);
	char fingerprint[SSHKEY_FINGERPRINT_SIZE], name[NAME_MAX_LEN + 1];
	struct key_row row = { .fingerprint = fingerprint, .key = base64 };
	struct bounds bounds;
	json_t *there = NULL;

	if (bounds_read(auth, principal, &bounds, err) < 0 ||
		fill_row(auth, principal, spec, line, &bounds, &row, err) < 0)
		return -1;
	if (spec->name && name_check("name", spec->name, err) < 0)
		return -1;
	sshkey_fingerprint(line->blob, line->blob_len, fingerprint);
	if (!spec->name)
		make_name(store, line->comment, name);
	row.name = spec->name ? (char *)spec->name : name;
	if (check_free(auth, &row, spec->name, &there, err) < 0)
		return -1;
	*ret_made = !there;
	if (there) {
		*ret_row = there;
		return 0;
	}
	if (store_key_add(store, &row, ret_row, err) < 0)
		return -1;
	note(auth, "key.added", *ret_row);
	return 0;
}

int auth_key_add(struct auth *auth, const struct principal *principal, const struct key_spec *spec,
	json_t **ret_row, bool *ret_made, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	const char *at = spec->line;
	struct keyline line;
	unsigned number = 0;
	int result;

	/* Before it is cut into lines: a private key has many. */
	if (keyline_check_public(spec->line, err) < 0)
		return -1;
	text = keyline_next(&at, &number);
	if (!text)
		return err_set(err, ERR_INVALID, "there is no key in it");
	if (at[strspn(at, " \t\r\n")]) {
		err_set(err, ERR_INVALID, "there is more than one line");
		return err_hint(err, "add one key at a time");
	}
	if (keyline_read(text, &line, err) < 0)
		return -1;
	result = add_line(auth, principal, spec, &line, ret_row, ret_made, err);
	keyline_done(&line);
	return result;
}

/* ---- the others ------------------------------------------------------------------------------ */

json_t *auth_key_list(struct auth *auth, struct err *err)
{
	json_t *all = store_key_list(yard_get_store(auth->yard), err);

	for (size_t i = all ? json_array_size(all) : 0; i-- > 0;)
		if (!yard_may_see(auth->yard, json_get_text(json_array_get(all, i), "owner")))
			json_array_remove(all, i);
	return all;
}

static int find(struct auth *auth, const char *which, struct key_row *ret, struct err *err)
{
	struct key_row row = { 0 };

	if (store_key_get(yard_get_store(auth->yard), which, &row, err) < 0)
		return -1;
	if (yard_may_see(auth->yard, row.owner)) {
		*ret = row;
		return 0;
	}
	key_row_done(&row);
	err_set(err, ERR_NOT_FOUND, "no key '%.80s'", which);
	return err_hint(err, "'box key ls' lists them");
}

int auth_key_show(struct auth *auth, const char *which, json_t **ret_row, struct err *err)
{
	struct key_row row = { 0 };

	if (find(auth, which, &row, err) < 0)
		return -1;
	*ret_row = key_row_json(&row);
	key_row_done(&row);
	return 0;
}

int auth_key_remove(struct auth *auth, const char *which, struct err *err)
{
	_cleanup_json_ json_t *removed = NULL;
	struct key_row row = { 0 };
	int result;

	if (find(auth, which, &row, err) < 0)
		return -1;
	result = store_key_remove(yard_get_store(auth->yard), row.id, &removed, err);
	key_row_done(&row);
	if (result == 0)
		note(auth, "key.removed", removed);
	return result;
}
