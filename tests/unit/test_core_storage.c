/* test_core_storage.c - every write to the store, and every change of the pool, fails at every
 * operation
 *
 * As on a disk that is full for a moment: one write fails, those after it work again. Each
 * operation runs once while its writes are counted, then again for each of them. Whoever waits gets
 * one answer, boxes are in states that last, the store says the same as the daemon, and nothing is
 * left over. The functions are replaced at link time (--wrap). */
#include "core_operations.h"
#include "pool/pool.h"
#include <sqlite3.h>
#include <stdio.h>

enum { WRITES_MAX = 200 };

static struct {
	size_t count;	/* writes so far */
	size_t fails;	/* the one that fails; 0: none */
	char name[128]; /* what that was */
} writes;

static bool fails(const char *what, const char *of)
{
	if (++writes.count != writes.fails)
		return false;
	snprintf(writes.name, sizeof writes.name, "%s %.80s", what, of);
	return true;
}

static int no_room(struct err *err)
{
	return err_set(err, ERR_LIMIT, "there is no room on the disk");
}

/* ---- instead of the real ones --------------------------------------------------------------- */

int __real_store_run(
	struct store *store, sqlite3_stmt *stmt, enum store_grade grade, struct err *err);
int __wrap_store_run(
	struct store *store, sqlite3_stmt *stmt, enum store_grade grade, struct err *err);
int __wrap_store_run(
	struct store *store, sqlite3_stmt *stmt, enum store_grade grade, struct err *err)
{
	if (!fails("write", sqlite3_sql(stmt)))
		return __real_store_run(store, stmt, grade, err);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return no_room(err);
}

int __real_pool_disk_make(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
int __wrap_pool_disk_make(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err);
int __wrap_pool_disk_make(
	struct pool *pool, const char *place, const char *id, uint64_t limit, struct err *err)
{
	return fails("make disk", place) ? no_room(err)
					 : __real_pool_disk_make(pool, place, id, limit, err);
}

int __real_pool_disk_rename(
	struct pool *pool, const char *place, const char *id, const char *new_id, struct err *err);
int __wrap_pool_disk_rename(
	struct pool *pool, const char *place, const char *id, const char *new_id, struct err *err);
int __wrap_pool_disk_rename(
	struct pool *pool, const char *place, const char *id, const char *new_id, struct err *err)
{
	return fails("rename disk", place) ? no_room(err)
					   : __real_pool_disk_rename(pool, place, id, new_id, err);
}

/* ---- the walk ------------------------------------------------------------------------------- */

/* How many writes it took. */
static size_t run(const struct trial_of *operation, size_t nth)
{
	struct answer answer = ANSWER_INIT;
	char context[256];
	size_t count;

	snprintf(context, sizeof context, "%s: write %zu", operation->name, nth);
	test.context = context;
	writes.fails = 0;
	operation->prepare();
	fake_tell_nothing();
	writes.count = 0;
	writes.fails = nth;
	operation->begin(&answer);
	wait_for(&answer, true);
	count = writes.count;
	writes.fails = 0;
	snprintf(context, sizeof context, "%s: write %zu of %zu, %s", operation->name, nth, count,
		nth ? writes.name : "");
	yard_skip(10000); /* what could not be written is written again */
	yard_settle_late();
	check_yard(context);
	check_empty(context);
	answer_done(&answer);
	test.context = NULL;
	return count;
}

static void walk(void **state)
{
	const struct trial_of *operation = *state;
	size_t count = run(operation, 0);

	assert_in_range(count, 1, WRITES_MAX);
	for (size_t nth = 1; nth <= count; nth++)
		run(operation, nth);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[OPERATIONS_MAX];
	size_t count = operation_tests(argc, argv, walk, tests);
	int ret;

	if (yard_is_gate(argc, argv, &ret))
		return ret;
	return _cmocka_run_group_tests(
		"storage", tests, count, yard_group_setup, yard_group_teardown);
}
