/* test_store_upgrade.c - homes of earlier versions are brought up to date, those of later ones left
 * alone */
#include "store_fixture.h"
#include <sqlite3.h>

/* What steps 8 to 10 of the schema have made, undone; and step 7: a home without owners. */
#define DROP_SPELLING                         \
	"DROP TABLE ssh_keys;"                \
	"ALTER TABLE boxes DROP COLUMN held;" \
	"ALTER TABLE boxes DROP COLUMN target; ALTER TABLE boxes DROP COLUMN sleep_failure;"
#define DROP_OWNERS                                                          \
	"DROP INDEX boxes_idempotency; ALTER TABLE boxes DROP COLUMN owner;" \
	"CREATE UNIQUE INDEX boxes_idempotency ON boxes (idempotency)"       \
	" WHERE idempotency <> '';"                                          \
	"ALTER TABLE tokens DROP COLUMN owner;"                              \
	"DROP INDEX events_owner; ALTER TABLE events DROP COLUMN owner;"     \
	"ALTER TABLE events DROP COLUMN who; DROP TABLE volumes;"

static int note_tree(const struct box_row *row, void *arg, struct err *err)
{
	(void)err;
	json_object_set_new(arg, row->id, json_string(row->tree));
	return 0;
}

static void test_store_finds_the_trees_of_older_homes(void **state)
{
	static const struct {
		const char *id, *origin;
		uint64_t generation;
		const char *tree;
	} boxes[] = {
		{ "first", "", 0, "" },
		{ "fork", "first", 1, "first" },
		{ "deeper", "fork", 2, "first" },
		{ "outside", "first", 0, "" }, /* made by hand, and so another tree */
		{ "outer", "deeper", 2, "outer" },
		{ "below", "outer", 3, "outer" },
		{ "orphan", "gone", 1, "orphan" },
	};
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	_cleanup_json_ json_t *trees = json_object();
	struct err err = ERR_INIT;
	struct store *store = open_store();
	sqlite3 *db = NULL;

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(boxes); i++) {
		struct box_row row = sample(boxes[i].id, boxes[i].id, i + 1);

		row.origin_box = (char *)boxes[i].origin;
		row.generation = boxes[i].generation;
		assert_int_equal(store_box_insert(store, &row, STORE_KEPT, &err), 0);
	}
	store_close(store);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
				 DROP_SPELLING DROP_OWNERS
				 "DROP INDEX events_tree; ALTER TABLE events DROP COLUMN tree;"
				 "DROP TABLE trees; ALTER TABLE boxes DROP COLUMN tree;"
				 "ALTER TABLE boxes DROP COLUMN origin_position;"
				 "PRAGMA user_version = 4",
				 NULL, NULL, NULL),
		SQLITE_OK);
	sqlite3_close(db);
	store = open_store();
	assert_int_equal(store_box_each(store, note_tree, trees, &err), 0);
	for (unsigned i = 0; i < ARRAY_LEN(boxes); i++)
		assert_string_equal(
			json_string_value(json_object_get(trees, boxes[i].id)), boxes[i].tree);
	store_close(store);
}

static int note_owner(const struct box_row *row, void *arg, struct err *err)
{
	(void)err;
	return json_object_set_new(arg, row->id, json_string(row->owner));
}

static void test_store_all_of_an_older_home_belongs_to_local(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db", home), *secret = NULL, *owner = NULL;
	_cleanup_json_ json_t *owners = json_object(), *row = NULL, *events = NULL;
	struct token_row spec = { .name = "ci", .owner = "ann", .scopes = SCOPE_READ };
	struct box_row box = sample("b1", "ada", 1);
	const struct event_filter local = { .owner = OWNER_LOCAL };
	const struct token_row *found = NULL;
	struct err err = ERR_INIT;
	struct store *store = open_store();
	sqlite3 *db = NULL;

	(void)state;
	box.owner = "ann";
	assert_int_equal(store_box_insert(store, &box, STORE_KEPT, &err), 0);
	assert_int_equal(store_token_create(store, &spec, &secret, &row, &err), 0);
	assert_int_equal(store_volume_put(store, "cache", "ann", &err), 0);
	add_event(store, "box.created", "b1", "b1", NULL, 1, NULL, &err);
	store_close(store);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, DROP_SPELLING DROP_OWNERS "PRAGMA user_version = 6", NULL,
				 NULL, NULL),
		SQLITE_OK);
	sqlite3_close(db);

	store = open_store();
	assert_int_equal(store_box_each(store, note_owner, owners, &err), 0);
	assert_string_equal(json_string_value(json_object_get(owners, "b1")), OWNER_LOCAL);
	assert_int_equal(store_token_check(store, secret, &found, &err), 0);
	assert_string_equal(found->owner, OWNER_LOCAL);
	owner = store_volume_owner(store, "cache");
	assert_string_equal(owner, OWNER_LOCAL);
	events = store_event_list(store, 0, &local, 10, &err);
	assert_int_equal(json_array_size(events), 1);
	assert_true(json_is_null(json_object_get(json_array_get(events, 0), "who")));
	store_close(store);
}

static int note_spelling(const struct box_row *row, void *arg, struct err *err)
{
	(void)err;
	json_object_set_new(arg, row->id,
		json_pack("[s,s,s,s]", row->intent, row->target, row->end_reason,
			row->sleep_failure));
	return 0;
}

/* Earlier versions wrote these into an intent, a name and an end reason. */
static void test_store_spelling_of_earlier_versions_becomes_columns(void **state)
{
	static const char *const expected[] = { "[\"rollback-to\",\"s1\",\"\",\"\"]",
		"[\"gone\",\"\",\"\",\"\"]", "[\"\",\"\",\"\",\"no room\"]" };
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	_cleanup_json_ json_t *found = json_object();
	struct err err = ERR_INIT;
	struct store *store = open_store();
	sqlite3 *db = NULL;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		char id[] = { (char)('a' + i), '\0' };
		struct box_row row = sample(id, i == 1 ? ".b" : id, i + 1);

		row.intent = i == 0 ? "rollback:s1" : i == 1 ? "remove" : "";
		row.end_reason = i == 2 ? "not-hibernated" : "";
		row.end_detail = i == 2 ? "no room" : "";
		assert_int_equal(store_box_insert(store, &row, STORE_KEPT, &err), 0);
	}
	store_close(store);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(db, DROP_SPELLING "PRAGMA user_version = 7", NULL, NULL, NULL),
		SQLITE_OK);
	sqlite3_close(db);
	store = open_store();
	assert_int_equal(store_box_each(store, note_spelling, found, &err), 0);
	for (unsigned i = 0; i < 3; i++) {
		char id[] = { (char)('a' + i), '\0' };
		_cleanup_free_ char *text = json_dumps(json_object_get(found, id), JSON_COMPACT);

		assert_string_equal(text, expected[i]);
	}
	store_close(store);
}

static void test_store_newer_schema_is_left_alone(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	struct err err = ERR_INIT;
	struct store *store = NULL;
	sqlite3 *db = NULL;

	(void)state;
	store_close(open_store());
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(db, "PRAGMA user_version = 999", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	assert_int_equal(store_open(home, &store, &err), -1);
	assert_int_equal(err.kind, ERR_UNSUPPORTED);
	assert_non_null(strstr(err.message, "999"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		promise(test_store_finds_the_trees_of_older_homes),
		promise(test_store_all_of_an_older_home_belongs_to_local),
		promise(test_store_spelling_of_earlier_versions_becomes_columns),
		promise(test_store_newer_schema_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
