/* test_checkpoint.c - checkpoints: packed and unpacked unchanged, held, dropped, in memory
 *
 * Everything is mounted in a mount namespace of the test program's own. */
#include "checkpoint_fixture.h"

/* ---- round trips ---------------------------------------------------------------------------- */

static void test_checkpoints_come_back_as_they_were(void **state)
{
	uint64_t plain, packed;

	(void)state;
	make_checkpoint("s1", false);
	pack("s1");
	assert_true(checkpoints_is_packed(test.checkpoints, "s1"));
	checkpoints_sizes(test.checkpoints, "s1", &plain, &packed);
	assert_int_equal(plain, SAMPLE_BYTES);
	assert_in_range(packed, 1, SAMPLE_BYTES);
	checkpoints_trim(test.checkpoints, 0);
	checkpoints_sizes(test.checkpoints, "s1", &plain, &packed);
	assert_int_equal(plain, 0);
	check_sample(plain_of("s1"));
	checkpoints_sizes(test.checkpoints, "s1", &plain, &packed);
	assert_int_equal(plain, SAMPLE_BYTES);
	verify("s1");
	/* Packing again is fine, and needs no helper. */
	pack("s1");
}

static void test_checkpoints_empty_ones_are_checkpoints_too(void **state)
{
	int dir;

	(void)state;
	OK(checkpoints_make(test.checkpoints, "empty", 0, false, &dir, &err));
	close(dir);
	pack("empty");
	checkpoints_trim(test.checkpoints, 0);
	dir = plain_of("empty");
	assert_int_equal(entries(dir), 0);
	close(dir);
}

static void test_checkpoints_zeros_come_back_as_holes(void **state)
{
	struct stat st;
	int dir;

	(void)state;
	OK(checkpoints_make(test.checkpoints, "holes", 0, false, &dir, &err));
	put_zeros(dir, "pages-1.img", 32 * MIB);
	close(dir);
	pack("holes");
	checkpoints_trim(test.checkpoints, 0);
	dir = plain_of("holes");
	assert_int_equal(fstatat(dir, "pages-1.img", &st, 0), 0);
	assert_int_equal(st.st_size, 32 * MIB);
	assert_true(st.st_blocks * 512 < MIB);
	close(dir);
}

static void test_checkpoints_hold_files_only(void **state)
{
	int dir;

	(void)state;
	OK(checkpoints_make(test.checkpoints, "s1", 0, false, &dir, &err));
	assert_int_equal(mkdirat(dir, "folder", 0700), 0);
	pack_fails("s1", ERR_INVALID, "'folder'");
	assert_int_equal(unlinkat(dir, "folder", AT_REMOVEDIR), 0);
	assert_int_equal(symlinkat("/etc/passwd", dir, "link"), 0);
	pack_fails("s1", ERR_INVALID, "'link'");
	assert_int_equal(unlinkat(dir, "link", 0), 0);
	put_bytes(dir, "bad name", "x", 1);
	pack_fails("s1", ERR_INVALID, "'bad name'");
	assert_int_equal(unlinkat(dir, "bad name", 0), 0);
	pack("s1");
	close(dir);
}

static void test_checkpoints_are_made_once_and_found_by_id(void **state)
{
	int dir;

	(void)state;
	make_checkpoint("s1", false);
	FAILS(ERR_EXISTS, checkpoints_make(test.checkpoints, "s1", 0, false, &dir, &err));
	FAILS(ERR_INVALID, checkpoints_make(test.checkpoints, "../x", 0, false, &dir, &err));
	FAILS(ERR_INVALID, checkpoints_make(test.checkpoints, "", 0, false, &dir, &err));
	FAILS(ERR_INVALID, checkpoints_make(test.checkpoints, "A", 0, false, &dir, &err));
	FAILS(ERR_LIMIT,
		checkpoints_make(test.checkpoints, "huge", UINT64_C(1) << 60, false, &dir, &err));
	assert_false(checkpoints_exists(test.checkpoints, "huge"));
	assert_true(checkpoints_exists(test.checkpoints, "s1"));
	assert_false(checkpoints_exists(test.checkpoints, "s2"));
	pack_fails("s2", ERR_NOT_FOUND, "'s2'");
	plain_fails("s2", ERR_NOT_FOUND, "'s2'");
	OK(checkpoints_discard(test.checkpoints, "s2", &err));
	test.count = 0;
	checkpoints_each(test.checkpoints, count_each, NULL);
	assert_int_equal(test.count, 1);
}

static nlink_t count_links(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 ? 0 : st.st_nlink;
}

/* A file that two checkpoints share is needed until the second is discarded. */
static void test_checkpoints_share_files_by_links(void **state)
{
	_cleanup_free_ char *layer = xasprintf("%s/layer", test.home);
	uint64_t plain, packed, alone;
	int dir, fd;

	(void)state;
	fd = open(layer, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, layer, strlen(layer)), strlen(layer));
	close(fd);
	FAILS(ERR_NOT_FOUND, checkpoints_open_shared(test.checkpoints, "s1", &dir, &err));
	for (int i = 1; i < 3; i++) {
		char id[8];

		snprintf(id, sizeof id, "s%d", i);
		make_checkpoint(id, false);
		checkpoints_sizes(test.checkpoints, id, &alone, &packed);
		OK(checkpoints_open_shared(test.checkpoints, id, &dir, &err));
		assert_int_equal(linkat(AT_FDCWD, layer, dir, "layer", 0), 0);
		close(dir);
		checkpoints_sizes(test.checkpoints, id, &plain, &packed);
		assert_true(plain > alone);
	}
	pack("s1");
	assert_int_equal(count_links(layer), 3);
	OK(checkpoints_discard(test.checkpoints, "s2", &err));
	wait_swept();
	assert_int_equal(count_links(layer), 2);
	/* A daemon that comes later finds it with the packed form. */
	checkpoints_drop_plain(test.checkpoints, "s1");
	close_checkpoints();
	open_checkpoints();
	assert_int_equal(count_links(layer), 2);
	OK(checkpoints_discard(test.checkpoints, "s1", &err));
	wait_swept();
	assert_int_equal(count_links(layer), 1);
}

/* ---- holds ---------------------------------------------------------------------------------- */

static void test_checkpoints_held_ones_are_not_trimmed(void **state)
{
	uint64_t plain, packed;

	(void)state;
	for (int i = 0; i < 4; i++) {
		char id[8];

		snprintf(id, sizeof id, "s%d", i);
		make_checkpoint(id, false);
		if (i != 3)
			pack(id);
	}
	checkpoints_hold(test.checkpoints, "s0");
	checkpoints_hold(test.checkpoints, "s0");
	checkpoints_release(test.checkpoints, "s0");
	close(plain_of("s1"));
	checkpoints_release(test.checkpoints, "s1"); /* used last */
	checkpoints_trim(test.checkpoints, 1);
	for (int i = 0; i < 4; i++) {
		char id[8];

		snprintf(id, sizeof id, "s%d", i);
		checkpoints_sizes(test.checkpoints, id, &plain, &packed);
		assert_int_equal(plain != 0, i != 2); /* s3 is not packed */
	}
	checkpoints_release(test.checkpoints, "s0");
	checkpoints_release(test.checkpoints, "s0"); /* once too often is nothing */
	checkpoints_trim(test.checkpoints, 0);
	checkpoints_sizes(test.checkpoints, "s0", &plain, &packed);
	assert_int_equal(plain, 0);
	assert_true(packed > 0);
	checkpoints_drop_plain(test.checkpoints, "s3");
	checkpoints_sizes(test.checkpoints, "s3", &plain, &packed);
	assert_int_equal(plain, SAMPLE_BYTES);
	pack("s3");
	checkpoints_drop_plain(test.checkpoints, "s3");
	checkpoints_drop_plain(test.checkpoints, "nobody");
	checkpoints_sizes(test.checkpoints, "s3", &plain, &packed);
	assert_int_equal(plain, 0);
}

static void test_checkpoints_many_who_wait_share_one_unpacking(void **state)
{
	(void)state;
	make_checkpoint("s1", false);
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	test.opened = 0;
	for (int i = 0; i < 5; i++)
		checkpoints_plain(test.checkpoints, "s1", on_opened, NULL);
	assert_int_equal(test.opened, 0);
	WAIT_FOR(test.opened == 5, 5000);
	close(test.dir);
	for (int i = 0; i < 5; i++) {
		uint64_t plain, packed;

		checkpoints_trim(test.checkpoints, 0);
		checkpoints_sizes(test.checkpoints, "s1", &plain, &packed);
		assert_int_equal(plain, SAMPLE_BYTES);
		checkpoints_release(test.checkpoints, "s1");
	}
	checkpoints_trim(test.checkpoints, 0);
	assert_int_equal(checkpoint_entries("s1"), 1);
}

static void test_checkpoints_discarded_files_stay_while_held(void **state)
{
	int dir;

	(void)state;
	make_checkpoint("s1", false);
	dir = plain_of("s1");
	OK(checkpoints_discard(test.checkpoints, "s1", &err));
	assert_false(checkpoints_exists(test.checkpoints, "s1"));
	spin(50);
	check_sample(dir);
	checkpoints_release(test.checkpoints, "s1");
	wait_swept();
	assert_int_equal(entries_of_home(), 1); /* .boot */
	make_checkpoint("s1", false);		/* the id is free again */
}

static void test_checkpoints_discard_ends_what_is_under_way(void **state)
{
	int dir;

	(void)state;
	OK(checkpoints_make(test.checkpoints, "s1", 0, false, &dir, &err));
	put_random(dir, "pages-1.img", 128 * MIB);
	close(dir);
	test.done = 0;
	checkpoints_pack(test.checkpoints, "s1", on_done, NULL);
	checkpoints_pack(test.checkpoints, "s1", on_done, NULL);
	spin(20);
	OK(checkpoints_discard(test.checkpoints, "s1", &err));
	WAIT_FOR(test.done == 2, 5000);
	assert_int_equal(test.err.kind, ERR_CANCELLED);
	wait_swept();
	assert_int_equal(entries_of_home(), 1);
}

static void test_checkpoints_more_than_may_run_at_once_wait_their_turn(void **state)
{
	(void)state;
	test.done = 0;
	for (int i = 0; i < 9; i++) {
		char id[8];

		snprintf(id, sizeof id, "s%d", i);
		make_checkpoint(id, i % 2);
		checkpoints_pack(test.checkpoints, id, on_done, NULL);
	}
	WAIT_FOR(test.done == 9, 10000);
	assert_int_equal(test.err.kind, ERR_NONE);
	checkpoints_trim(test.checkpoints, 0);
	test.opened = 0;
	for (int i = 0; i < 9; i++) {
		char id[8];

		snprintf(id, sizeof id, "s%d", i);
		checkpoints_plain(test.checkpoints, id, on_opened_close, NULL);
	}
	WAIT_FOR(test.opened == 9, 10000);
	assert_int_equal(test.err.kind, ERR_NONE);
}

static void close_inside(const struct err *err, void *arg)
{
	(void)err;
	(void)arg;
	test.done++;
	close_checkpoints();
}

static void test_checkpoints_may_be_closed_at_any_moment(void **state)
{
	int dir;

	(void)state;
	make_checkpoint("s1", false);
	make_checkpoint("s2", false);
	checkpoints_pack(test.checkpoints, "s1", close_inside, NULL);
	checkpoints_pack(test.checkpoints, "s2", close_inside, NULL);
	test.done = 0;
	WAIT_FOR(test.done, 5000);
	spin(30);
	assert_int_equal(test.done, 1);
	open_checkpoints();
	OK(checkpoints_make(test.checkpoints, "s3", 0, false, &dir, &err));
	put_random(dir, "pages-1.img", 64 * MIB);
	close(dir);
	checkpoints_pack(test.checkpoints, "s3", close_inside, NULL);
	spin(20);
	close_checkpoints();
	open_checkpoints();
	assert_int_equal(checkpoint_entries("s3"), 1);
	wait_swept();
	assert_int_equal(entries_of_home(), 4); /* s1, s2, s3, .boot */
}

static void test_checkpoints_pinned_ones_outlive_their_discard(void **state)
{
	(void)state;
	make_checkpoint("s1", false);
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	assert_true(checkpoints_pin(test.checkpoints, "s1"));
	assert_true(checkpoints_pin(test.checkpoints, "s1"));
	assert_false(checkpoints_pin(test.checkpoints, "none"));
	OK(checkpoints_discard(test.checkpoints, "s1", &err));
	check_sample(plain_of("s1"));
	checkpoints_release(test.checkpoints, "s1");
	checkpoints_unpin(test.checkpoints, "s1");
	assert_true(checkpoints_exists(test.checkpoints, "s1"));
	checkpoints_unpin(test.checkpoints, "s1");
	assert_false(checkpoints_exists(test.checkpoints, "s1"));
	wait_swept();
	assert_int_equal(entries_of_home(), 1); /* .boot */
	/* A pin alone discards nothing. */
	make_checkpoint("s2", false);
	assert_true(checkpoints_pin(test.checkpoints, "s2"));
	checkpoints_unpin(test.checkpoints, "s2");
	assert_true(checkpoints_exists(test.checkpoints, "s2"));
}

static void test_checkpoints_forgotten_ones_hold_nothing(void **state)
{
	int who, other;

	(void)state;
	make_checkpoint("s1", false);
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	wait_swept();
	test.opened = 0;
	checkpoints_plain(test.checkpoints, "s1", on_opened, &who);
	checkpoints_forget(test.checkpoints, &who);
	checkpoints_plain(test.checkpoints, "s1", on_opened, &other);
	WAIT_FOR(test.opened, 5000);
	spin(30);
	assert_int_equal(test.opened, 1);
	close(test.dir);
	checkpoints_release(test.checkpoints, "s1");
	OK(checkpoints_discard(test.checkpoints, "s1", &err));
	WAIT_FOR(!test.checkpoints->jobs, 5000);
	wait_swept();
	assert_int_equal(entries_of_home(), 1);
}

/* ---- in memory ------------------------------------------------------------------------------ */

static void test_checkpoints_quick_ones_lie_in_memory_and_pack_to_disk(void **state)
{
	uint64_t plain, packed;
	int dir;

	(void)state;
	make_checkpoint("s1", true);
	assert_true(checkpoints_is_quick(test.checkpoints, "s1"));
	assert_int_equal(entries_of_home(), 1);
	check_sample(plain_of("s1"));
	checkpoints_release(test.checkpoints, "s1");
	pack("s1");
	assert_int_equal(checkpoint_entries("s1"), 1);
	checkpoints_trim(test.checkpoints, 0);
	assert_false(checkpoints_is_quick(test.checkpoints, "s1"));
	/* Small ones are unpacked there too. */
	check_sample(plain_of("s1"));
	assert_true(checkpoints_is_quick(test.checkpoints, "s1"));
	assert_int_equal(checkpoint_entries("s1"), 1);
	make_checkpoint("s2", false);
	/* A failure leaves no folder on disk. */
	make_checkpoint("s3", true);
	dir = plain_of("s3");
	assert_int_equal(mkdirat(dir, "folder", 0700), 0);
	close(dir);
	pack_fails("s3", ERR_INVALID, "'folder'");
	assert_int_equal(entries_of_home(), 3); /* s1, s2, .boot */
	/* They end with the daemon. */
	close_checkpoints();
	open_checkpoints();
	assert_false(checkpoints_exists(test.checkpoints, "s3"));
	checkpoints_sizes(test.checkpoints, "s1", &plain, &packed);
	assert_true(packed > 0);
	make_checkpoint("s4", true);
	OK(checkpoints_discard(test.checkpoints, "s4", &err));
	wait_swept();
}

static void test_checkpoints_memory_is_promised_once(void **state)
{
	uint64_t need = memory_available() / 6;
	int dir;

	(void)state;
	OK(checkpoints_make(test.checkpoints, "s1", need, true, &dir, &err));
	close(dir);
	assert_true(checkpoints_is_quick(test.checkpoints, "s1"));
	/* Nothing has been written; still there is no room for another such: it goes to the disk,
	 * if that has the room. */
	if (checkpoints_make(test.checkpoints, "s2", need, true, &dir, NULL) == 0)
		close(dir);
	assert_false(checkpoints_is_quick(test.checkpoints, "s2"));
	OK(checkpoints_discard(test.checkpoints, "s1", &err));
	OK(checkpoints_make(test.checkpoints, "s3", need, true, &dir, &err));
	close(dir);
	assert_true(checkpoints_is_quick(test.checkpoints, "s3"));
}

static void test_checkpoints_full_memory_unpacks_to_the_disk(void **state)
{
	int dir;

	(void)state;
	OK(checkpoints_make(test.checkpoints, "s1", 0, false, &dir, &err));
	put_random(dir, "pages-1.img", 4 * MIB);
	close(dir);
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	/* Room for it at the beginning; then somebody else writes, here by a limit on files. */
	shell("mount -o remount,nr_inodes=3 %s", test.run);
	close(plain_of("s1"));
	assert_false(checkpoints_is_quick(test.checkpoints, "s1"));
	assert_int_equal(entries(test.checkpoints->quick), 0);
	assert_int_equal(checkpoint_entries("s1"), 2);
}

/* ---- figures -------------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
	return (*(const int64_t *)a > *(const int64_t *)b) -
	       (*(const int64_t *)a < *(const int64_t *)b);
}

static void test_checkpoints_small_ones_take_no_time(void **state)
{
	int64_t began, packing[20], unpacking[20];
	const int rounds = ARRAY_LEN(packing);
	(void)state;
	for (int i = 0; i < rounds; i++) {
		char id[8];
		int dir;

		snprintf(id, sizeof id, "s%d", i);
		make_like_criu(id);
		began = clock_mono_us();
		pack(id);
		packing[i] = clock_mono_us() - began;
		checkpoints_trim(test.checkpoints, 0);
		wait_swept();
		began = clock_mono_us();
		dir = plain_of(id);
		unpacking[i] = clock_mono_us() - began;
		close(dir);
		checkpoints_release(test.checkpoints, id);
	}
	qsort(packing, rounds, sizeof *packing, compare_times);
	qsort(unpacking, rounds, sizeof *unpacking, compare_times);
	print_message("1.5 MB in 40 files: pack %.1f ms (best %.1f), unpack %.1f ms (best %.1f)\n",
		(double)packing[rounds / 2] / 1000, (double)packing[0] / 1000,
		(double)unpacking[rounds / 2] / 1000, (double)unpacking[0] / 1000);
	assert_true(packing[rounds / 2] < 1000000 && unpacking[rounds / 2] < 1000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PROMISE(test_checkpoints_come_back_as_they_were),
		PROMISE(test_checkpoints_empty_ones_are_checkpoints_too),
		PROMISE(test_checkpoints_zeros_come_back_as_holes),
		PROMISE(test_checkpoints_hold_files_only),
		PROMISE(test_checkpoints_are_made_once_and_found_by_id),
		PROMISE(test_checkpoints_held_ones_are_not_trimmed),
		PROMISE(test_checkpoints_many_who_wait_share_one_unpacking),
		PROMISE(test_checkpoints_share_files_by_links),
		PROMISE(test_checkpoints_discarded_files_stay_while_held),
		PROMISE(test_checkpoints_discard_ends_what_is_under_way),
		PROMISE(test_checkpoints_more_than_may_run_at_once_wait_their_turn),
		PROMISE(test_checkpoints_may_be_closed_at_any_moment),
		PROMISE(test_checkpoints_pinned_ones_outlive_their_discard),
		PROMISE(test_checkpoints_forgotten_ones_hold_nothing),
		PROMISE(test_checkpoints_quick_ones_lie_in_memory_and_pack_to_disk),
		PROMISE(test_checkpoints_memory_is_promised_once),
		PROMISE(test_checkpoints_full_memory_unpacks_to_the_disk),
		PROMISE(test_checkpoints_small_ones_take_no_time),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
