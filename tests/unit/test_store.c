/* test_store.c - what the store promises: rows come back, offsets rise, death loses nothing, damage
 * is told */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/file.h"
#include "store/store.h"
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char home[64];

static int set_up(void **state)
{
	(void)state;
	strcpy(home, "/tmp/test-store-XXXXXX");
	return mkdtemp(home) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	return tree_remove(AT_FDCWD, home, NULL);
}

static struct store *open_store(void)
{
	struct err err = ERR_INIT;
	struct store *store = NULL;

	if (store_open(home, &store, &err) < 0)
		fail_msg("store_open: %s", err.message);
	return store;
}

static struct box_row sample(const char *id, const char *name, uint32_t slot)
{
	return (struct box_row){
		.id = (char *)id,
		.name = (char *)name,
		.state = "creating",
		.intent = "create",
		.image = "img",
		.image_name = "debian",
		.driver = "ns",
		.profile = "standard",
		.cpu_milli = 1500,
		.memory_bytes = 1ull << 40,
		.pids = 10,
		.env = "{\"A\":\"b\"}",
		.labels = "{}",
		.remove_on_exit = true,
		.command = "[\"true\"]",
		.uid_slot = slot,
		.created_us = 1000 + slot,
		.boot = "boot",
		.start_time = 77,
		.pid = 4242,
	};
}

static int add_event(struct store *store, const char *type, const char *box, const char *tree,
	json_t *data, int64_t at_us, uint64_t *ret_offset, struct err *err)
{
	const struct event_row event = { .type = type,
		.box_id = box,
		.box_name = box,
		.tree = tree,
		.data = data,
		.at_us = at_us };

	return store_event_add(store, &event, ret_offset, err);
}

static int count_row(const struct box_row *row, void *arg, struct err *err)
{
	(void)row;
	(void)err;
	++*(int *)arg;
	return 0;
}

static int count_boxes(struct store *store)
{
	int count = 0;

	assert_int_equal(store_box_each(store, count_row, &count, NULL), 0);
	return count;
}

static int check_row(const struct box_row *row, void *arg, struct err *err)
{
	(void)err;
	*(bool *)arg = true;
	assert_string_equal(row->id, "b1");
	assert_string_equal(row->name, "ada");
	assert_string_equal(row->state, "running");
	assert_string_equal(row->env, "{\"A\":\"b\"}");
	assert_string_equal(row->end_reason, "");
	assert_int_equal(row->cpu_milli, 1500);
	assert_int_equal(row->memory_bytes, 1ull << 40);
	assert_int_equal(row->uid_slot, 7);
	assert_int_equal(row->start_time, 77);
	assert_int_equal(row->pid, 4242);
	assert_true(row->remove_on_exit);
	return 0;
}

static void test_store_gives_rows_back_after_reopen(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct box_row row = sample("b1", "ada", 7);
	bool seen = false;

	(void)state;
	assert_int_equal(store_box_insert(store, &row, STORE_KEPT, &err), 0);
	row.state = "running";
	assert_int_equal(store_box_update(store, &row, STORE_SAFE, &err), 0);
	store_close(store);
	store = open_store();
	assert_int_equal(store_box_each(store, check_row, &seen, &err), 0);
	assert_true(seen);
	assert_int_equal(store_box_delete(store, "b1", STORE_SAFE, &err), 0);
	assert_int_equal(count_boxes(store), 0);
	row.id = "gone";
	assert_int_equal(store_box_update(store, &row, STORE_KEPT, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	store_close(store);
}

static void test_store_refuses_what_is_taken(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct box_row first = sample("b1", "ada", 1), second;

	(void)state;
	first.idempotency = "key";
	assert_int_equal(store_box_insert(store, &first, STORE_KEPT, &err), 0);
	second = sample("b1", "other", 2);
	assert_int_equal(store_box_insert(store, &second, STORE_KEPT, &err), -1);
	assert_int_equal(err.kind, ERR_EXISTS);
	second = sample("b2", "ada", 2);
	assert_int_equal(store_box_insert(store, &second, STORE_KEPT, &err), -1);
	second = sample("b2", "other", 1);
	assert_int_equal(store_box_insert(store, &second, STORE_KEPT, &err), -1);
	second = sample("b2", "other", 2);
	second.idempotency = "key";
	assert_int_equal(store_box_insert(store, &second, STORE_KEPT, &err), -1);
	second.idempotency = "";
	assert_int_equal(store_box_insert(store, &second, STORE_KEPT, &err), 0);
	second = sample("b3", "third", 3); /* two rows without a key do not clash */
	assert_int_equal(store_box_insert(store, &second, STORE_KEPT, &err), 0);
	assert_int_equal(count_boxes(store), 3);
	store_close(store);
}

static void test_store_rolls_back_whole_transactions(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct box_row row = sample("b1", "ada", 1);
	uint64_t offset = 0, oldest = 0, next = 0;

	(void)state;
	assert_int_equal(store_begin(store, &err), 0);
	assert_int_equal(store_begin(store, &err), -1);
	assert_int_equal(store_box_insert(store, &row, STORE_SAFE, &err), 0);
	assert_int_equal(add_event(store, "box.created", "b1", "b1", NULL, 5, &offset, &err), 0);
	store_rollback(store);
	assert_int_equal(count_boxes(store), 0);
	assert_int_equal(store_event_range(store, &oldest, &next, &err), 0);
	assert_int_equal(oldest, next);
	assert_int_equal(store_commit(store, STORE_SAFE, &err), -1);
	assert_int_equal(store_begin(store, &err), 0);
	assert_int_equal(store_box_insert(store, &row, STORE_SAFE, &err), 0);
	assert_int_equal(store_commit(store, STORE_SAFE, &err), 0);
	assert_int_equal(count_boxes(store), 1);
	store_close(store);
}

static void test_store_event_offsets_rise_by_one_for_ever(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	uint64_t offset = 0, last = 0, oldest = 0, next = 0;
	_cleanup_json_ json_t *data = json_pack("{s:i}", "code", 3);
	json_t *list, *event;

	(void)state;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(add_event(store, "exec.exited", i % 2 ? "odd" : "even", "t", data,
					 1000000, &offset, &err),
			0);
		assert_true(last == 0 || offset == last + 1);
		last = offset;
	}
	list = store_event_list(store, last - 1, NULL, 100, &err);
	assert_int_equal(json_array_size(list), 2);
	event = json_array_get(list, 1);
	assert_int_equal(json_integer_value(json_object_get(event, "offset")), last);
	assert_string_equal(
		json_string_value(json_object_get(event, "at")), "1970-01-01T00:00:01.000Z");
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(event, "data"), "code")), 3);
	json_decref(list);
	list = store_event_list(store, 0, &(struct event_filter){ .box_id = "odd" }, 3, &err);
	assert_int_equal(json_array_size(list), 3);
	json_decref(list);
	assert_int_equal(
		store_event_trim(store, 0, &err), 0); /* the newest stays whatever is asked */
	list = store_event_list(store, 0, NULL, 100, &err);
	assert_int_equal(json_array_size(list), 1);
	json_decref(list);
	store_close(store);
	store = open_store();
	assert_int_equal(store_event_range(store, &oldest, &next, &err), 0);
	assert_int_equal(oldest, last);
	assert_int_equal(next, last + 1);
	assert_int_equal(add_event(store, "x", NULL, NULL, NULL, 1, &offset, &err), 0);
	assert_int_equal(offset, last + 1);
	store_close(store);
}

static size_t count_events(struct store *store, const char *box)
{
	const struct event_filter filter = { .box_id = box };
	_cleanup_json_ json_t *list = store_event_list(store, 0, &filter, 100000, NULL);

	return json_array_size(list);
}

static void add_events(struct store *store, const char *box, const char *tree, unsigned count)
{
	struct err err = ERR_INIT;

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(
			add_event(store, "exec.started", box, tree, NULL, i, NULL, &err), 0);
}

static void test_store_events_of_one_tree_leave_those_of_others(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct box_row quiet = sample("quiet", "quiet", 1), loud = sample("loud", "loud", 2);
	struct box_row fork = sample("fork", "fork", 3);
	uint64_t oldest = 0, next = 0, missing = 0;

	(void)state;
	fork.tree = "loud";
	assert_int_equal(store_box_insert(store, &quiet, STORE_KEPT, &err), 0);
	assert_int_equal(store_box_insert(store, &loud, STORE_KEPT, &err), 0);
	assert_int_equal(store_box_insert(store, &fork, STORE_KEPT, &err), 0);
	add_events(store, "quiet", "quiet", 20);
	add_events(store, NULL, NULL, 10);
	add_events(store, "gone", "gone", 30);
	for (int round = 0; round < 20; round++) {
		add_events(store, "loud", "loud", 100);
		add_events(store, "fork", "loud", 100);
		assert_int_equal(store_event_trim(store, 400, &err), 0);
	}
	/* 200 are new; 100 are for three trees, 100 for the one that is gone. */
	assert_int_equal(count_events(store, "quiet"), 20);
	assert_int_equal(count_events(store, "gone"), 30);
	assert_int_equal(count_events(store, "loud") + count_events(store, "fork"), 200);
	assert_int_equal(count_events(store, NULL), 20 + 10 + 30 + 200);
	assert_int_equal(store_event_range(store, &oldest, &next, &err), 0);
	assert_int_equal(next - oldest, 200);
	assert_int_equal(store_event_missing(store, 1, &missing, &err), 0);
	assert_int_equal(missing, oldest - 1 - 60);
	assert_int_equal(store_event_missing(store, oldest, &missing, &err), 0);
	assert_int_equal(missing, 0);
	/* Another store finds the same. */
	store_close(store);
	store = open_store();
	assert_int_equal(store_event_range(store, &oldest, &next, &err), 0);
	assert_int_equal(next - oldest, 200);
	/* One that is quiet has no more than its share either, when others need room. */
	add_events(store, "quiet", "quiet", 1000);
	add_events(store, "loud", "loud", 1000);
	assert_int_equal(store_event_trim(store, 400, &err), 0);
	assert_int_equal(count_events(store, "quiet"), 100 / 3);
	assert_int_equal(count_events(store, "loud"), 200);
	assert_int_equal(store_box_delete(store, "quiet", STORE_KEPT, &err), 0);
	add_events(store, "gone", "gone", 300);
	add_events(store, "loud", "loud", 300);
	assert_int_equal(store_event_trim(store, 400, &err), 0);
	assert_int_equal(count_events(store, "quiet"), 0); /* pushed out by one that is gone, too */
	assert_int_equal(count_events(store, "gone"), 100);
	store_close(store);
}

static bool home_holds(const char *text)
{
	static const char *const files[] = { "state.db", "state.db-wal" };

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", home, files[i]);
		_cleanup_free_ char *bytes = NULL;
		size_t len = 0;

		if (file_read(AT_FDCWD, path, 64 << 20, &bytes, &len, NULL) == 0 &&
			memmem(bytes, len, text, strlen(text)))
			return true;
	}
	return false;
}

static void test_store_tokens_open_the_door_until_revoked(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	_cleanup_free_ char *secret = NULL, *other = NULL;
	json_t *row = NULL;
	const struct token_row *found = NULL;
	struct token_row spec = { .name = "ci", .owner = "ann", .scopes = SCOPE_READ | SCOPE_EXEC };

	(void)state;
	assert_int_equal(store_token_create(store, &spec, &secret, &row, &err), 0);
	assert_int_equal(strlen(secret), 36);
	assert_string_equal(json_string_value(json_object_get(row, "name")), "ci");
	json_decref(row);
	assert_false(home_holds(secret));
	assert_int_equal(store_token_create(store, &spec, &other, &row, &err), -1);
	assert_int_equal(err.kind, ERR_EXISTS);
	spec.name = "Bad Name";
	assert_int_equal(store_token_create(store, &spec, &other, &row, &err), -1);
	spec.name = "good";
	spec.owner = "Bad Owner";
	assert_int_equal(store_token_create(store, &spec, &other, &row, &err), -1);
	store_close(store);

	store = open_store();
	assert_int_equal(store_token_check(store, secret, &found, &err), 0);
	assert_int_equal(found->scopes, SCOPE_READ | SCOPE_EXEC);
	assert_string_equal(found->name, "ci");
	assert_string_equal(found->owner, "ann");
	assert_ptr_equal(store_token_get(store, found->id), found);
	assert_null(store_token_get(store, "ci"));
	secret[10] ^= 1;
	assert_int_equal(store_token_check(store, secret, &found, &err), -1);
	assert_int_equal(err.kind, ERR_UNAUTHORIZED);
	assert_int_equal(store_token_check(store, "", &found, &err), -1);
	secret[10] ^= 1;
	row = store_token_list(store, &err);
	assert_int_equal(json_array_size(row), 1);
	assert_true(json_is_string(json_object_get(json_array_get(row, 0), "last_used_at")));
	json_decref(row);
	assert_int_equal(store_token_revoke(store, "ci", &err), 0);
	assert_int_equal(store_token_check(store, secret, &found, &err), -1);
	assert_int_equal(store_token_revoke(store, "ci", &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	store_close(store);
}

static void test_store_token_expires(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	_cleanup_free_ char *secret = NULL;
	json_t *row = NULL;
	const struct token_row *found = NULL;
	struct token_row spec = { .name = "short", .scopes = SCOPE_ADMIN };

	(void)state;
	spec.expires_us = clock_wall_us() - 1;
	assert_int_equal(store_token_create(store, &spec, &secret, &row, &err), 0);
	assert_null(store_token_get(store, json_string_value(json_object_get(row, "id"))));
	json_decref(row);
	assert_int_equal(store_token_check(store, secret, &found, &err), -1);
	assert_int_equal(err.kind, ERR_UNAUTHORIZED);
	store_close(store);
}

static void test_store_scopes_are_known_names(void **state)
{
	_cleanup_json_ json_t *good = json_pack("[ss]", "read", "create");
	_cleanup_json_ json_t *bad = json_pack("[s]", "root");
	_cleanup_json_ json_t *none = json_array();
	unsigned scopes = 0;

	(void)state;
	assert_int_equal(scopes_from_names(good, &scopes, NULL), 0);
	assert_int_equal(scopes, SCOPE_READ | SCOPE_CREATE);
	assert_int_equal(scopes_from_names(bad, &scopes, NULL), -1);
	assert_int_equal(scopes_from_names(none, &scopes, NULL), -1);
}

/* Runs fn in a child and returns its wait status; the child never returns to cmocka. */
static int in_child(void (*fn)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		fn();
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void child_expects_lock(void)
{
	struct err err = ERR_INIT;
	struct store *store;
	char pid[32];

	snprintf(pid, sizeof pid, "pid %d", (int)getppid());
	_exit(store_open(home, &store, &err) < 0 && err.kind == ERR_STATE &&
				strstr(err.message, pid)
			? 0
			: 2);
}

static void test_store_second_daemon_is_refused_by_pid(void **state)
{
	struct store *store = open_store();

	(void)state;
	assert_int_equal(in_child(child_expects_lock), 0);
	store_close(store);
}

static void child_writes_and_dies(void)
{
	struct err err = ERR_INIT;
	struct store *store = NULL;
	struct box_row row = sample("b1", "ada", 1);

	if (store_open(home, &store, &err) < 0 ||
		store_box_insert(store, &row, STORE_KEPT, &err) < 0)
		_exit(2);
	/* A helper that outlives the daemon does not keep its lock. */
	if (fork() == 0) {
		usleep(300000);
		_exit(0);
	}
	raise(SIGKILL);
}

static void test_store_kept_rows_survive_sudden_death(void **state)
{
	int status = in_child(child_writes_and_dies);
	struct store *store;

	(void)state;
	assert_true(WIFSIGNALED(status));
	store = open_store();
	assert_int_equal(count_boxes(store), 1);
	store_close(store);
}

/* What steps 8 and 9 of the schema have made, undone; and step 7: a home without owners. */
#define DROP_SPELLING                         \
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

static void test_store_owners_keep_their_events_and_keys_apart(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct box_row ann = sample("b1", "ada", 1), bob = sample("b2", "bea", 2);
	const struct event_filter of_bob = { .owner = "bob" };
	const struct event_filter ann_by_bob = { .box_id = "b1", .owner = "bob" };
	uint64_t count = 0, first = 0;
	json_t *list;

	(void)state;
	ann.owner = "ann";
	bob.owner = "bob";
	ann.idempotency = bob.idempotency = "key";
	assert_int_equal(store_box_insert(store, &ann, STORE_KEPT, &err), 0);
	assert_int_equal(store_box_insert(store, &bob, STORE_KEPT, &err), 0);
	for (int i = 0; i < 6; i++) {
		struct event_row event = { .type = "x",
			.box_id = i % 2 ? "b2" : "b1",
			.owner = i % 2 ? "bob" : "ann",
			.who = "token ci",
			.at_us = i };

		assert_int_equal(store_event_add(store, &event, NULL, &err), 0);
	}
	list = store_event_list(store, 0, &of_bob, 100, &err);
	assert_int_equal(json_array_size(list), 3);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(list, 0), "owner")), "bob");
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(list, 0), "who")), "token ci");
	json_decref(list);
	list = store_event_list(store, 0, &ann_by_bob, 100, &err);
	assert_int_equal(json_array_size(list), 0);
	json_decref(list);
	assert_int_equal(store_event_tail(store, &of_bob, 2, &count, &first, &err), 0);
	assert_int_equal(count, 2);
	assert_int_equal(store_event_tail(store, &ann_by_bob, 2, &count, &first, &err), 0);
	assert_int_equal(count, 0);
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

static void overwrite(const char *path, off_t at, const char *text, size_t times)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (size_t i = 0; i < times; i++)
		assert_int_equal(pwrite(fd, text, strlen(text), at + (off_t)(i * strlen(text))),
			strlen(text));
	close(fd);
}

static void test_store_damaged_file_is_told_and_kept(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	struct err err = ERR_INIT;
	struct store *store = NULL;
	struct stat before, after;

	(void)state;
	overwrite(path, 0, "this is no database\n", 400);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(store_open(home, &store, &err), -1);
	assert_non_null(strstr(err.message, "damaged"));
	assert_non_null(strstr(err.message, path));
	assert_true(err.hint[0] != '\0');
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	assert_int_equal(before.st_ino, after.st_ino);
}

static void test_store_damage_in_the_middle_is_found_at_open(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	struct err err = ERR_INIT;
	struct store *store = open_store();

	(void)state;
	for (int i = 0; i < 200; i++)
		add_event(store, "box.created", "b1", "b1", NULL, i, NULL, &err);
	store_close(store);
	overwrite(path, 4096, "garbage!", 4 * 512);
	assert_int_equal(store_open(home, &store, &err), -1);
	assert_non_null(strstr(err.message, "damaged"));
}

static void test_store_file_is_readable_by_owner_only(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	_cleanup_free_ char *wal = xasprintf("%s/state.db-wal", home);
	struct store *store = open_store();
	struct stat st;

	(void)state;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(wal, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	store_close(store);
}

static void test_store_idle_moves_the_log_into_the_database(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct stat before, after;

	(void)state;
	store_idle(store);
	for (int i = 0; i < 500; i++)
		add_event(store, "box.created", "b1", "b1", NULL, i, NULL, &err);
	assert_int_equal(stat(path, &before), 0);
	store_idle(store);
	assert_int_equal(stat(path, &after), 0);
	assert_true(after.st_size > before.st_size);
	store_close(store);
}

/* ---- networks ------------------------------------------------------------------------------- */

static struct network_row sample_network(const char *box)
{
	return (struct network_row){
		.box = (char *)box,
		.policy = "{\"preset\":\"none\"}",
		.version = 3,
		.changed_us = 77,
		.package_hosts = "[\"deb.example.com:80\"]",
		.spent = "{}",
		.ports = "[]",
		.recording = true,
	};
}

static void test_store_network_comes_back_after_reopen(void **state)
{
	struct box_row box = sample("b1", "ada", 0);
	struct network_row row = sample_network("b1"), found = { 0 };
	struct store *store = open_store();
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(store_box_insert(store, &box, STORE_KEPT, NULL), 0);
	assert_int_equal(store_network_get(store, "b1", &found, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(store_network_put(store, &row, STORE_SAFE, NULL), 0);
	row.version = 4;
	assert_int_equal(store_network_put(store, &row, STORE_KEPT, NULL), 0);
	store_close(store);
	store = open_store();
	assert_int_equal(store_network_get(store, "b1", &found, NULL), 0);
	assert_string_equal(found.policy, row.policy);
	assert_string_equal(found.package_hosts, row.package_hosts);
	assert_string_equal(found.names, ""); /* what was left unset */
	assert_int_equal(found.version, 4);
	assert_int_equal(found.changed_us, 77);
	assert_true(found.recording);
	network_row_done(&found);
	store_close(store);
}

static void test_store_network_update_leaves_the_rest(void **state)
{
	struct box_row box = sample("b1", "ada", 0);
	struct network_row row = sample_network("b1"), found = { 0 };
	struct store *store = open_store();
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(store_box_insert(store, &box, STORE_KEPT, NULL), 0);
	assert_int_equal(store_network_put(store, &row, STORE_KEPT, NULL), 0);
	assert_int_equal(store_network_update(store, "b1", "[1]", NULL, "{\"m\":1}", NULL), 0);
	assert_int_equal(store_network_get(store, "b1", &found, NULL), 0);
	assert_string_equal(found.names, "[1]");
	assert_string_equal(found.spent, "{}");
	assert_string_equal(found.meters, "{\"m\":1}");
	assert_string_equal(found.policy, row.policy);
	network_row_done(&found);
	assert_int_equal(store_network_update(store, "b2", "[1]", NULL, NULL, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	store_close(store);
}

static void test_store_network_belongs_to_a_box_and_goes_with_it(void **state)
{
	struct box_row box = sample("b1", "ada", 0);
	struct network_row row = sample_network("b1"), lost = sample_network("nobody"), found;
	struct store *store = open_store();
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(store_network_put(store, &lost, STORE_KEPT, &err), -1);
	assert_int_equal(store_box_insert(store, &box, STORE_KEPT, NULL), 0);
	assert_int_equal(store_network_put(store, &row, STORE_KEPT, NULL), 0);
	/* A changed box keeps its network. */
	assert_int_equal(store_box_update(store, &box, STORE_KEPT, NULL), 0);
	assert_int_equal(store_network_get(store, "b1", &found, NULL), 0);
	network_row_done(&found);
	assert_int_equal(store_box_delete(store, "b1", STORE_KEPT, NULL), 0);
	err_clear(&err);
	assert_int_equal(store_network_get(store, "b1", &found, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	store_close(store);
}

int main(void)
{
#define promise(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		promise(test_store_gives_rows_back_after_reopen),
		promise(test_store_refuses_what_is_taken),
		promise(test_store_rolls_back_whole_transactions),
		promise(test_store_event_offsets_rise_by_one_for_ever),
		promise(test_store_events_of_one_tree_leave_those_of_others),
		promise(test_store_tokens_open_the_door_until_revoked),
		promise(test_store_token_expires),
		promise(test_store_scopes_are_known_names),
		promise(test_store_second_daemon_is_refused_by_pid),
		promise(test_store_kept_rows_survive_sudden_death),
		promise(test_store_network_comes_back_after_reopen),
		promise(test_store_network_update_leaves_the_rest),
		promise(test_store_network_belongs_to_a_box_and_goes_with_it),
		promise(test_store_finds_the_trees_of_older_homes),
		promise(test_store_all_of_an_older_home_belongs_to_local),
		promise(test_store_owners_keep_their_events_and_keys_apart),
		promise(test_store_spelling_of_earlier_versions_becomes_columns),
		promise(test_store_newer_schema_is_left_alone),
		promise(test_store_damaged_file_is_told_and_kept),
		promise(test_store_damage_in_the_middle_is_found_at_open),
		promise(test_store_file_is_readable_by_owner_only),
		promise(test_store_idle_moves_the_log_into_the_database),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
