/* test_checkpoint_damage.c - damaged checkpoints are refused by name; full disks and sudden deaths
 * leave nothing half done
 *
 * Everything is mounted in a mount namespace of the test program's own. */
#include "checkpoint_fixture.h"

/* ---- damage --------------------------------------------------------------------------------- */

/* Some in the head and the tail, and others all over it. */
static void test_checkpoints_a_changed_byte_is_found(void **state)
{
	_cleanup_free_ char *path = packed_path("s1"), *bytes = NULL;
	unsigned named = 0, tried = 0;
	size_t len;

	(void)state;
	make_small_checkpoint("s1");
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	OK(file_read(AT_FDCWD, path, 64 * MIB, &bytes, &len, &err));
	for (size_t at = 0; at < len; at += at < 300 || at + 200 > len ? 1 : 37) {
		struct err err = ERR_INIT;

		tried++;
		bytes[at] ^= (char)(1 << at % 8);
		if (unpack_bytes("s1", bytes, len, &err) == 0)
			fail_msg("byte %zu of %zu changed, nobody saw it", at, len);
		bytes[at] ^= (char)(1 << at % 8);
		assert_int_equal(err.kind, ERR_PROTOCOL);
		assert_non_null(strstr(err.message, "packed.zst"));
		named += strstr(err.message, "pages-1.img") != NULL;
	}
	assert_true(tried > 500);
	assert_true(named > 20); /* most of it is that file */
	OK(unpack_bytes("s1", bytes, len, &err));
}

static void test_checkpoints_an_end_that_is_missing_is_found(void **state)
{
	_cleanup_free_ char *path = packed_path("s1"), *bytes = NULL;
	struct err why = ERR_INIT;
	size_t len;

	(void)state;
	make_small_checkpoint("s1");
	pack("s1");
	OK(file_read(AT_FDCWD, path, 64 * MIB, &bytes, &len, &err));
	for (size_t cut = 0; cut < len; cut += cut < 300 || cut + 200 > len ? 1 : 37) {
		assert_int_equal(unpack_bytes("s1", bytes, cut, &why), -1);
		assert_int_equal(why.kind, ERR_PROTOCOL);
	}
	bytes = xrealloc(bytes, len + 1);
	bytes[len] = 0;
	assert_int_equal(unpack_bytes("s1", bytes, len + 1, &why), -1);
	/* Whole, but somebody else's. */
	assert_int_equal(unpack_bytes("s2", bytes, len, &why), -1);
	assert_non_null(strstr(why.message, "another state"));
}

static void test_checkpoints_a_damaged_one_is_refused_and_leaves_nothing(void **state)
{
	_cleanup_free_ char *path = packed_path("s1");
	struct stat st;

	(void)state;
	make_checkpoint("s1", false);
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	assert_int_equal(stat(path, &st), 0);
	flip(path, st.st_size / 2);
	plain_fails("s1", ERR_PROTOCOL, "'pages-1.img'");
	verify_fails("s1", ERR_PROTOCOL, "'pages-1.img'");
	assert_int_equal(checkpoint_entries("s1"), 1); /* packed.zst alone */
	assert_int_equal(entries(test.checkpoints->quick), 0);
	assert_true(checkpoints_exists(test.checkpoints, "s1"));
	flip(path, st.st_size / 2);
	check_sample(plain_of("s1"));
	/* With its plain form there, that one is given. */
	flip(path, st.st_size / 2);
	check_sample(plain_of("s1"));
}

/* ---- full disks and sudden deaths ----------------------------------------------------------- */

static void test_checkpoints_a_full_disk_fails_and_leaves_the_plain_form(void **state)
{
	int dir;

	(void)state;
	close_checkpoints();
	test.no_quick = true;
	shell("mount -t tmpfs -o size=3M tmpfs %s", test.home);
	open_checkpoints();
	FAILS(ERR_LIMIT, checkpoints_make(test.checkpoints, "large", 3 * MIB, false, &dir, &err));
	OK(checkpoints_make(test.checkpoints, "s1", 2 * MIB, false, &dir, &err));
	put_random(dir, "pages-1.img", 2 * MIB);
	pack_fails("s1", ERR_LIMIT, "No space left");
	assert_true(*test.err.hint);
	assert_false(checkpoints_is_packed(test.checkpoints, "s1"));
	assert_int_equal(checkpoint_entries("s1"), 1); /* plain alone */
	assert_int_equal(entries(dir), 1);
	/* With room again it works; unpacking finds none. */
	shell("mount -o remount,size=6M %s", test.home);
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	wait_swept();
	shell("mount -o remount,size=3M %s", test.home);
	plain_fails("s1", ERR_LIMIT, "needed");
	assert_int_equal(checkpoint_entries("s1"), 1);
	close(dir);
	close_checkpoints();
	shell("umount %s", test.home);
}

static void test_checkpoints_death_while_packing_leaves_no_halves(void **state)
{
	_cleanup_free_ char *tmp = NULL;
	int64_t end;
	pid_t pid;
	int status;

	(void)state;
	make_checkpoint("whole", false);
	pack("whole");
	close_checkpoints();
	tmp = xasprintf("%s/states/s1/packed.zst.tmp", test.home);
	pid = fork();
	if (pid == 0) {
		int dir;

		/* A daemon's mounts end with it. */
		if (unshare(CLONE_NEWNS) < 0)
			_exit(1);
		test.loop = loop_new();
		open_checkpoints();
		if (checkpoints_make(test.checkpoints, "s1", 0, false, &dir, NULL) < 0)
			_exit(1);
		put_random(dir, "pages-1.img", 256 * MIB);
		checkpoints_pack(test.checkpoints, "s1", on_done, NULL);
		spin(60000);
		_exit(0);
	}
	for (end = clock_mono_us() + 20000000; access(tmp, F_OK) < 0;) {
		assert_true(clock_mono_us() < end);
		usleep(1000);
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	usleep(50000); /* its helper goes with it */
	assert_int_equal(access(tmp, F_OK), 0);
	shell("mkdir %s/states/whole/plain.tmp; touch %s/states/whole/plain.tmp/x", test.home,
		test.home);
	shell("mkdir %s/states/.gone-abc %s/states/nothing; touch %s/states/.gone-abc/x", test.home,
		test.home, test.home);
	open_checkpoints();
	assert_int_equal(access(tmp, F_OK), -1);
	assert_false(checkpoints_exists(test.checkpoints, "nothing"));
	assert_false(checkpoints_is_packed(test.checkpoints, "s1"));
	assert_true(checkpoints_is_packed(test.checkpoints, "whole"));
	assert_int_equal(checkpoint_entries("whole"), 2);
	wait_swept();
	assert_int_equal(entries_of_home(), 3); /* s1, whole, .boot */
	check_sample(plain_of("whole"));
}

/* After a start of the machine plain forms may be torn: nobody synced them. */
static void test_checkpoints_plain_forms_do_not_survive_the_machine(void **state)
{
	(void)state;
	make_checkpoint("s1", false);
	make_checkpoint("s2", false);
	pack("s2");
	close_checkpoints();
	test.no_quick = true;
	open_checkpoints();
	assert_true(checkpoints_exists(test.checkpoints, "s1"));
	assert_int_equal(checkpoint_entries("s2"), 2);
	close_checkpoints();
	shell("echo another > %s/states/.boot", test.home);
	open_checkpoints();
	assert_false(checkpoints_exists(test.checkpoints, "s1"));
	assert_int_equal(checkpoint_entries("s2"), 1);
	check_sample(plain_of("s2"));
	close_checkpoints();
	open_checkpoints();
	assert_int_equal(checkpoint_entries("s2"), 2); /* this kernel's own */
}
static void test_checkpoints_a_killed_helper_is_told_and_leaves_nothing(void **state)
{
	int dir;

	(void)state;
	OK(checkpoints_make(test.checkpoints, "s1", 0, false, &dir, &err));
	put_random(dir, "pages-1.img", 128 * MIB);
	close(dir);
	test.done = 0;
	checkpoints_pack(test.checkpoints, "s1", on_done, NULL);
	spin(10);
	kill_helpers();
	WAIT_FOR(test.done, 5000);
	check_err(ERR_SYSTEM, "killed");
	assert_int_equal(checkpoint_entries("s1"), 1);
	pack("s1");
	checkpoints_trim(test.checkpoints, 0);
	for (int i = 0; i < 2; i++) {
		test.opened = 0;
		checkpoints_plain(test.checkpoints, "s1", on_opened, NULL);
		spin(10);
		kill_helpers();
		WAIT_FOR(test.opened, 5000);
		check_err(ERR_SYSTEM, "killed");
		wait_swept();
		assert_int_equal(checkpoint_entries("s1"), 1);
		assert_int_equal(entries(test.checkpoints->quick), 0);
	}
	close(plain_of("s1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PROMISE(test_checkpoints_a_changed_byte_is_found),
		PROMISE(test_checkpoints_an_end_that_is_missing_is_found),
		PROMISE(test_checkpoints_a_damaged_one_is_refused_and_leaves_nothing),
		PROMISE(test_checkpoints_a_full_disk_fails_and_leaves_the_plain_form),
		PROMISE(test_checkpoints_death_while_packing_leaves_no_halves),
		PROMISE(test_checkpoints_plain_forms_do_not_survive_the_machine),
		PROMISE(test_checkpoints_a_killed_helper_is_told_and_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
