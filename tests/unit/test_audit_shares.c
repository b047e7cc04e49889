/* test_audit_shares.c - who writes most does not decide how long the lines of others are kept */
#include "audit/audit_shares.h"
#include "audit_fixture.h"

static json_t *line_of(const char *box, unsigned number)
{
	return json_pack("{s:s,s:s,s:s,s:i}", "type", "dns", "box", box, "box_name", box, "count",
		(int)number);
}

static size_t count_of(struct audit *audit, const char *box, unsigned *ret_last)
{
	struct err err = ERR_INIT;
	uint64_t next = 0;
	size_t count = 0;

	do {
		_cleanup_json_ json_t *lines = audit_read(
			audit, next, &(struct audit_filter){ .box = box }, 1000, &next, &err);
		size_t size = json_array_size(lines);

		assert_non_null(lines);
		count += size;
		if (size && ret_last)
			*ret_last = (unsigned)json_integer_value(
				json_object_get(json_array_get(lines, size - 1), "count"));
	} while (next < audit_get_next(audit));
	return count;
}

static void assert_whole(struct fixture *f, const char *folder)
{
	_cleanup_free_ char *path = xasprintf("%s%s", f->folder, folder);
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *result = audit_verify(path, &err);

	assert_true(json_is_true(json_object_get(result, "ok")));
}

static void test_a_flood_pushes_out_nobody_else(void **state)
{
	struct fixture *f = *state;
	struct audit_shares *shares;
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *logs = NULL;
	unsigned last = 0;
	struct audit *own;

	open_log(f, 64 * 1024, 2);
	shares = audit_shares_new(f->loop, f->audit);
	assert_null(audit_shares_log(shares, "noisy", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	for (unsigned i = 0; i < 5; i++)
		audit_shares_add(shares, "quiet", line_of("quiet", i));
	for (unsigned i = 0; i < 20000; i++)
		audit_shares_add(shares, "noisy", line_of("noisy", i));
	assert_int_equal(count_of(f->audit, "quiet", NULL), 5);
	/* It had its share, and the last line there tells where it goes on. */
	assert_in_range(count_of(f->audit, "noisy", NULL), 10, 60);
	own = audit_shares_log(shares, "noisy", &err);
	assert_non_null(own);
	assert_true(count_of(own, "noisy", &last) > 50);
	assert_int_equal(last, 19999); /* nothing new is left unsaid */
	logs = audit_shares_list(shares);
	assert_int_equal(json_array_size(logs), 1);
	audit_flush(own, NULL);
	audit_flush(f->audit, NULL);
	assert_whole(f, "");
	assert_whole(f, "/trees/noisy");
	/* Others write as before; with a new file everybody has a share again. */
	for (unsigned k = 0; k < 20; k++)
		for (unsigned i = 0; i < 30; i++) {
			char name[16];

			snprintf(name, sizeof name, "other%u", k);
			audit_shares_add(shares, name, line_of(name, i));
		}
	audit_flush(f->audit, NULL);
	assert_true(audit_get_file(f->audit) > 1);
	audit_shares_add(shares, "noisy", line_of("noisy", 77777));
	count_of(f->audit, "noisy", &last);
	assert_int_equal(last, 77777);
	audit_shares_free(shares);
}

static void test_logs_of_trees_are_bounded_and_named_strictly(void **state)
{
	struct fixture *f = *state;
	struct audit_shares *shares;
	struct err err = ERR_INIT;
	_cleanup_json_ json_t *logs = NULL;

	for (unsigned k = 0; k < 40; k++) {
		char name[16];

		snprintf(name, sizeof name, "tree%u", k);
		open_log(f, 16 * 1024, 2);
		shares = audit_shares_new(f->loop, f->audit);
		for (unsigned i = 0; i < 30; i++)
			audit_shares_add(shares, name, line_of(name, i));
		audit_shares_free(shares);
		close_log(f);
		f->audit = NULL;
	}
	open_log(f, 16 * 1024, 2);
	shares = audit_shares_new(f->loop, f->audit);
	logs = audit_shares_list(shares);
	assert_in_range(json_array_size(logs), 20, 32);
	assert_non_null(audit_shares_log(shares, "tree39", &err));
	assert_null(audit_shares_log(shares, "../trees/tree39", &err));
	assert_null(audit_shares_log(shares, "", &err));
	assert_null(audit_shares_log(shares, "..", &err));
	audit_shares_free(shares);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_flood_pushes_out_nobody_else),
		TEST(test_logs_of_trees_are_bounded_and_named_strictly),
	};

	return cmocka_run_group_tests_name("audit_shares", tests, NULL, NULL);
}
