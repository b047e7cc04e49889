/* test_store_snapshots.c - rows of snapshots: come back whole, names are unique on a time line */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/file.h"
#include "store/store.h"
#include <fcntl.h>
#include <stdio.h>

static char home[64];
static struct store *store;

static void open_store(void)
{
	struct err err = ERR_INIT;

	if (store_open(home, &store, &err) < 0)
		fail_msg("store_open: %s", err.message);
}

static int set_up(void **state)
{
	(void)state;
	strcpy(home, "/tmp/test-snapshots-XXXXXX");
	if (!mkdtemp(home))
		return -1;
	open_store();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	store_close(store);
	return tree_remove(AT_FDCWD, home, NULL);
}

static struct snapshot_row sample(const char *id, const char *name, int64_t created_us)
{
	return (struct snapshot_row){
		.id = (char *)id,
		.box = "b1",
		.name = (char *)name,
		.parent = "s0",
		.cause = "exec",
		.detail = "make -j2",
		.kind = "full",
		.status = "making",
		.created_us = created_us,
		.processes = 7,
		.plain_bytes = 1ull << 40,
		.stored_bytes = 3,
		.image = "img",
		.image_name = "debian",
		.config = "{\"a\":1}",
	};
}

static void put(const struct snapshot_row *row, enum store_grade grade)
{
	struct err err = ERR_INIT;

	if (store_snapshot_put(store, row, grade, &err) < 0)
		fail_msg("%s", err.message);
}

struct found {
	char ids[64];
	struct snapshot_row last; /* a copy */
	unsigned stop_at;
};

static int find(const struct snapshot_row *row, void *arg, struct err *err)
{
	struct found *found = arg;

	strcat(strcat(found->ids, row->id), " ");
	snapshot_row_done(&found->last);
	found->last = snapshot_row_copy(row);
	if (found->stop_at && --found->stop_at == 0)
		return err_set(err, ERR_CANCELLED, "enough");
	return 0;
}

static void test_snapshots_come_back_whole_and_oldest_first(void **state)
{
	struct snapshot_row row = sample("s3", "", 300);
	struct found found = { .ids = "" };

	(void)state;
	put(&row, STORE_SAFE);
	row = sample("s1", "", 100);
	put(&row, STORE_KEPT);
	row = sample("s2", "", 200);
	put(&row, STORE_KEPT);
	store_close(store);
	open_store();
	assert_int_equal(store_snapshot_each(store, find, &found, NULL), 0);
	assert_string_equal(found.ids, "s1 s2 s3 ");
	assert_string_equal(found.last.id, "s3");
	assert_string_equal(found.last.box, "b1");
	assert_string_equal(found.last.name, "");
	assert_string_equal(found.last.parent, "s0");
	assert_string_equal(found.last.cause, "exec");
	assert_string_equal(found.last.detail, "make -j2");
	assert_string_equal(found.last.kind, "full");
	assert_string_equal(found.last.status, "making");
	assert_int_equal(found.last.created_us, 300);
	assert_int_equal(found.last.processes, 7);
	assert_true(found.last.plain_bytes == 1ull << 40);
	assert_int_equal(found.last.stored_bytes, 3);
	assert_string_equal(found.last.image, "img");
	assert_string_equal(found.last.image_name, "debian");
	assert_string_equal(found.last.config, "{\"a\":1}");
	snapshot_row_done(&found.last);
	assert_null(found.last.id);
	snapshot_row_done(&found.last); /* again is fine */
}

static void test_snapshots_put_replaces_the_row_of_that_id_alone(void **state)
{
	struct snapshot_row first = sample("s1", "", 100), second = sample("s2", "", 200);
	struct found found = { .ids = "" };

	(void)state;
	put(&first, STORE_KEPT);
	put(&second, STORE_KEPT);
	second.status = "ready";
	second.stored_bytes = 99;
	second.detail = NULL; /* the same as "" */
	put(&second, STORE_SAFE);
	assert_int_equal(store_snapshot_each(store, find, &found, NULL), 0);
	assert_string_equal(found.ids, "s1 s2 ");
	assert_string_equal(found.last.status, "ready");
	assert_string_equal(found.last.detail, "");
	assert_int_equal(found.last.stored_bytes, 99);
	snapshot_row_done(&found.last);
}

static void test_snapshots_names_are_unique_on_a_time_line(void **state)
{
	struct snapshot_row row = sample("s1", "before", 100);
	struct found found = { .ids = "" };
	struct err err = ERR_INIT;

	(void)state;
	put(&row, STORE_KEPT);
	row = sample("s2", "before", 200);
	assert_int_equal(store_snapshot_put(store, &row, STORE_KEPT, &err), -1);
	assert_int_equal(err.kind, ERR_EXISTS);
	assert_non_null(strstr(err.message, "'before'"));
	row.box = "b2"; /* another time line */
	put(&row, STORE_KEPT);
	/* Those without a name do not clash; nor does one that is written again under its own. */
	row = sample("s3", "", 300);
	put(&row, STORE_KEPT);
	row = sample("s4", "", 400);
	put(&row, STORE_KEPT);
	row = sample("s1", "before", 100);
	put(&row, STORE_KEPT);
	/* The one that had the name is still the one that has it. */
	row = sample("s4", "before", 400);
	assert_int_equal(store_snapshot_put(store, &row, STORE_KEPT, &err), -1);
	assert_int_equal(store_snapshot_each(store, find, &found, NULL), 0);
	assert_string_equal(found.ids, "s1 s2 s3 s4 ");
	assert_string_equal(found.last.name, "");
	snapshot_row_done(&found.last);
}

static int delete_each(const struct snapshot_row *row, void *arg, struct err *err)
{
	++*(int *)arg;
	return store_snapshot_delete(store, row->id, STORE_KEPT, err);
}

static void test_snapshots_are_deleted_even_while_told(void **state)
{
	struct found found = { .ids = "" };
	struct err err = ERR_INIT;
	char id[8];
	int count = 0;

	(void)state;
	for (int i = 0; i < 50; i++) {
		struct snapshot_row row = sample(id, "", i);

		snprintf(id, sizeof id, "s%d", i);
		put(&row, STORE_KEPT);
	}
	found.stop_at = 2;
	assert_int_equal(store_snapshot_each(store, find, &found, &err), -1);
	assert_int_equal(err.kind, ERR_CANCELLED);
	assert_string_equal(found.ids, "s0 s1 ");
	snapshot_row_done(&found.last);
	assert_int_equal(store_snapshot_each(store, delete_each, &count, NULL), 0);
	assert_int_equal(count, 50);
	count = 0;
	assert_int_equal(store_snapshot_each(store, delete_each, &count, NULL), 0);
	assert_int_equal(count, 0);
	assert_int_equal(store_snapshot_delete(store, "s1", STORE_SAFE, NULL), 0);
}

int main(void)
{
#define promise(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		promise(test_snapshots_come_back_whole_and_oldest_first),
		promise(test_snapshots_put_replaces_the_row_of_that_id_alone),
		promise(test_snapshots_names_are_unique_on_a_time_line),
		promise(test_snapshots_are_deleted_even_while_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
