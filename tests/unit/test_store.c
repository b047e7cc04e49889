/* test_store.c - what the store promises: rows come back, death loses nothing, damage is told */
#include "store_fixture.h"
#include "base/clock.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
	const struct CMUnitTest tests[] = {
		promise(test_store_gives_rows_back_after_reopen),
		promise(test_store_refuses_what_is_taken),
		promise(test_store_rolls_back_whole_transactions),
		promise(test_store_tokens_open_the_door_until_revoked),
		promise(test_store_token_expires),
		promise(test_store_scopes_are_known_names),
		promise(test_store_second_daemon_is_refused_by_pid),
		promise(test_store_kept_rows_survive_sudden_death),
		promise(test_store_network_comes_back_after_reopen),
		promise(test_store_network_update_leaves_the_rest),
		promise(test_store_network_belongs_to_a_box_and_goes_with_it),
		promise(test_store_damaged_file_is_told_and_kept),
		promise(test_store_damage_in_the_middle_is_found_at_open),
		promise(test_store_file_is_readable_by_owner_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
