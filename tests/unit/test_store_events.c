/* test_store_events.c - the log of events: offsets rise, shares of trees, owners apart */
#include "store_fixture.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

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

static void test_store_idle_moves_the_log_into_the_database(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db", home);
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct stat before, after;

	(void)state;
	store_idle(store);
	for (int i = 0; i < 500; i++) {
		add_event(store, "box.created", "b1", "b1", NULL, i, NULL, &err);
		store_settle(store);
	}
	assert_int_equal(stat(path, &before), 0);
	store_idle(store);
	assert_int_equal(stat(path, &after), 0);
	assert_true(after.st_size > before.st_size);
	store_close(store);
}

/* Bytes in the write-ahead log, once what was added is settled. */
static off_t log_size(struct store *store)
{
	_cleanup_free_ char *path = xasprintf("%s/state.db-wal", home);
	struct stat st;

	store_settle(store);
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void test_store_events_of_one_turn_are_one_commit(void **state)
{
	struct store *store = open_store();
	off_t empty, one, two;

	(void)state;
	add_events(store, "b1", "b1", 1);
	empty = log_size(store);
	add_events(store, "b1", "b1", 1);
	one = log_size(store);
	add_events(store, "b1", "b1", 2);
	assert_true(store_is_gathering(store));
	assert_int_equal(count_events(store, "b1"), 4); /* not settled, and seen */
	two = log_size(store);
	assert_false(store_is_gathering(store));
	assert_int_equal(two - one, one - empty);
	store_close(store);
}

static void child_dies(bool settled)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();
	struct box_row row = sample("b1", "ada", 1);

	add_events(store, "b1", "b1", 2);
	if (settled)
		store_settle(store);
	else if (store_box_insert(store, &row, STORE_KEPT, &err) < 0)
		_exit(2);
	raise(SIGKILL);
}

static void test_store_settled_events_survive_sudden_death(void **state)
{
	(void)state;
	for (unsigned round = 1; round <= 2; round++) {
		struct store *store;
		pid_t pid = fork();
		int status = 0;

		if (pid == 0)
			child_dies(round == 1);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		store = open_store();
		assert_int_equal(count_events(store, "b1"), 2 * round);
		store_close(store);
	}
}

static void test_store_events_gathered_before_a_transaction_outlive_its_end(void **state)
{
	struct err err = ERR_INIT;
	struct store *store = open_store();

	(void)state;
	add_events(store, "b1", "b1", 1);
	assert_int_equal(store_begin(store, &err), 0);
	add_events(store, "b1", "b1", 1);
	store_rollback(store);
	assert_int_equal(count_events(store, "b1"), 1);
	add_events(store, "b1", "b1", 1);
	store_close(store);
	store = open_store();
	assert_int_equal(count_events(store, "b1"), 2);
	store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		promise(test_store_event_offsets_rise_by_one_for_ever),
		promise(test_store_events_of_one_tree_leave_those_of_others),
		promise(test_store_owners_keep_their_events_and_keys_apart),
		promise(test_store_events_of_one_turn_are_one_commit),
		promise(test_store_settled_events_survive_sudden_death),
		promise(test_store_events_gathered_before_a_transaction_outlive_its_end),
		promise(test_store_idle_moves_the_log_into_the_database),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
