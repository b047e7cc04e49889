/* test_ram.c - memory in layers: captured while it is written, cloned */
#include "ram_fixture.h"

/* ---- captures -------------------------------------------------------------------------------- */

static void test_ram_clone_has_the_memory_of_the_moment(void **state)
{
	struct machine machine;
	uint64_t hash;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 100 4000 1");
	hash = machine_capture(&machine);
	assert_int_equal(strv_len((const char *const *)machine.stack), 1);
	assert_int_equal(test.result.bytes, 4000 * RAM_PAGE);
	check_clone(machine.stack, 64, hash);
	/* What the machine writes later is its own. */
	tell(&machine, "fill 2 100 4000 1");
	check_clone(machine.stack, 64, hash);
	machine_end(&machine);
}

static void test_ram_of_the_machine_itself_is_free_after_a_capture(void **state)
{
	struct machine machine;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 0 8000 1");
	tell(&machine, "zero 9000 1000");
	assert_in_range(tell(&machine, "private"), 9000 * 4, 9100 * 4);
	machine_capture(&machine);
	assert_int_equal(tell(&machine, "private"), 0);
	machine_end(&machine);
}

static void test_ram_nothing_written_is_no_layer(void **state)
{
	struct machine machine;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 0 100 1");
	machine_capture(&machine);
	machine_capture(&machine);
	assert_null(test.result.layer);
	assert_int_equal(strv_len((const char *const *)machine.stack), 1);
	assert_int_equal(files_in_store(), 2);
	machine_end(&machine);
}

static void test_ram_thirty_generations_while_it_is_written(void **state)
{
	struct machine machine, child;

	(void)state;
	machine_new(&machine, 32, NULL);
	tell(&machine, "fill 1 0 8000 1");
	tell(&machine, "write 4711");
	for (int generation = 0; generation < 30; generation++) {
		uint64_t hash = machine_capture(&machine);

		machine_new(&child, 32, machine.stack);
		assert_true(tell(&child, "hash") == hash);
		machine_end(&machine);
		machine = child;
		tellf(&machine, "write %d", generation + 1);
	}
	assert_in_range(strv_len((const char *const *)machine.stack), 20, 30);
	machine_end(&machine);
}

static void test_ram_many_captures_of_one_machine(void **state)
{
	struct machine machine;

	(void)state;
	machine_new(&machine, 32, NULL);
	tell(&machine, "write 99");
	tell(&machine, "write 98");
	for (int i = 0; i < 12; i++)
		check_clone(machine.stack, 32, machine_capture(&machine));
	machine_end(&machine);
}

static void test_ram_zeros_over_something_are_zeros(void **state)
{
	struct machine machine;
	uint64_t hash;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 0 4000 1");
	machine_capture(&machine);
	tell(&machine, "zero 10 3");
	tell(&machine, "zero 100 1000");
	tell(&machine, "fill 2 13 1 1");
	tell(&machine, "zero 5000 5");
	hash = machine_capture(&machine);
	assert_true(test.result.bytes < 100 * RAM_PAGE);
	check_clone(machine.stack, 64, hash);
	assert_true(ram_store_bytes(test.store, machine.stack[1]) < 64 * 1024);
	machine_end(&machine);
}

static void test_ram_scattered_pages_make_few_extents(void **state)
{
	struct machine machine;
	uint64_t hash;

	(void)state;
	machine_new(&machine, 128, NULL);
	tell(&machine, "fill 1 0 16000 2");
	hash = machine_capture(&machine);
	assert_true(test.result.extents <= 2000);
	check_clone(machine.stack, 128, hash);
	tell(&machine, "fill 2 1 10000 3");
	hash = machine_capture(&machine);
	check_clone(machine.stack, 128, hash);
	machine_end(&machine);
}

/* A direct read writes to pages past their entries: without the library's touch it is lost. */
static void test_ram_direct_reads_are_not_lost(void **state)
{
	char path[96];
	_cleanup_free_ char *data = xcalloc(1, 8 * MIB);
	struct machine machine;
	int disk;

	(void)state;
	snprintf(path, sizeof path, "%s/disk", test.dir);
	for (size_t i = 0; i < 8 * MIB; i++)
		data[i] = (char)(i * 2654435761U >> 13);
	OK(file_write_atomic(AT_FDCWD, path, data, 8 * MIB, 0600, &err));
	disk = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	assert_true(disk >= 0);
	machine_start(&machine, 64, disk, NULL);
	machine_map(&machine, NULL);
	tell(&machine, "disk");
	for (int i = 0; i < 16; i++)
		check_clone(machine.stack, 64, machine_capture(&machine));
	machine_end(&machine);
	close(disk);
}

static void test_ram_dropped_pages_change_no_layer(void **state)
{
	struct machine machine;
	uint64_t hash;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 0 4000 1");
	hash = machine_capture(&machine);
	tell(&machine, "fill 2 0 4000 1");
	assert_int_equal(tell(&machine, "drop 0 4000"), 0);
	check_clone(machine.stack, 64, hash);
	machine_end(&machine);
}

static void test_ram_without_write_protection_the_last_pass_copies(void **state)
{
	struct machine machine;
	uint64_t hash;

	(void)state;
	machine_start(&machine, 64, -1, "nofaults");
	machine_map(&machine, NULL);
	tell(&machine, "write 5");
	tell(&machine, "fill 1 0 4000 1");
	for (int i = 0; i < 4; i++) {
		hash = machine_capture(&machine);
		assert_false(test.result.precopy);
		check_clone(machine.stack, 64, hash);
	}
	machine_end(&machine);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void test_ram_cancelled_pass_leaves_nothing(void **state)
{
	struct machine machine;
	struct ram_pass *pass;
	uint64_t hash;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "write 6");
	tell(&machine, "fill 1 0 8000 1");
	for (int when = 0; when < 3; when++) {
		pass = pass_begin(&machine, -1);
		if (when > 0)
			wait_for(&test.ready);
		if (when > 1)
			ram_pass_last(pass);
		ram_pass_free(pass);
	}
	/* And what these have write-protected is not lost to the next one. */
	hash = machine_capture(&machine);
	check_clone(machine.stack, 64, hash);
	assert_int_equal(files_in_store(), 2);
	machine_end(&machine);
}

static void test_ram_disk_full_leaves_nothing_and_the_machine_goes_on(void **state)
{
	struct machine machine;
	struct ram_pass *pass;
	char path[96];
	uint64_t hash;

	(void)state;
	ram_store_close(test.store);
	snprintf(path, sizeof path, "%s/memory", test.dir);
	assert_int_equal(mount("full", path, "tmpfs", 0, "size=8m"), 0);
	OK(ram_store_open(test.loop, test.dir, &test.store, &err));
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 0 4000 1");
	hash = tell(&machine, "hash");
	pass = pass_begin(&machine, -1);
	finish_badly(ERR_LIMIT, "No space left");
	ram_pass_free(pass);
	assert_int_equal(files_in_store(), 0);
	assert_true(tell(&machine, "hash") == hash);
	/* With room it works. */
	assert_int_equal(mount("full", path, "tmpfs", MS_REMOUNT, "size=64m"), 0);
	check_clone(machine.stack, 64, machine_capture(&machine));
	machine_end(&machine);
	ram_store_close(test.store);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	OK(ram_store_open(test.loop, test.dir, &test.store, &err));
}

static void test_ram_machine_that_dies_in_a_pass_is_an_error(void **state)
{
	struct machine machine;
	struct ram_pass *pass;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 0 4000 1");
	pass = pass_begin(&machine, -1);
	wait_for(&test.ready);
	kill(machine.pid, SIGKILL);
	waitpid(machine.pid, NULL, 0);
	wait_for(&machine.lost);
	ram_pass_last(pass);
	finish_badly(ERR_UNAVAILABLE, "QEMU");
	ram_pass_free(pass);
	assert_int_equal(files_in_store(), 0);
	machine_end(&machine);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void test_ram_kept_machine_outlives_the_connection(void **state)
{
	struct machine machine;
	uint64_t hash;

	(void)state;
	machine_new(&machine, 64, NULL);
	ram_link_keep(machine.link, on_done, NULL);
	finish();
	tell(&machine, "fill 1 0 4000 1");
	for (int i = 0; i < 3; i++) {
		ram_link_free(machine.link);
		machine_connect(&machine);
		hash = machine_capture(&machine);
	}
	check_clone(machine.stack, 64, hash);
	machine_end(&machine);
}

static void test_ram_machine_nobody_took_ends_with_the_connection(void **state)
{
	struct machine machine;
	int status;

	(void)state;
	machine_new(&machine, 64, NULL);
	ram_link_free(machine.link);
	assert_int_equal(waitpid(machine.pid, &status, 0), machine.pid);
	assert_true(WIFEXITED(status));
	machine.link = NULL;
	machine.pid = fork(); /* for machine_end */
	if (machine.pid == 0)
		_exit(0);
	machine_end(&machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_ram_clone_has_the_memory_of_the_moment),
		TEST(test_ram_of_the_machine_itself_is_free_after_a_capture),
		TEST(test_ram_nothing_written_is_no_layer),
		TEST(test_ram_thirty_generations_while_it_is_written),
		TEST(test_ram_many_captures_of_one_machine),
		TEST(test_ram_zeros_over_something_are_zeros),
		TEST(test_ram_scattered_pages_make_few_extents),
		TEST(test_ram_direct_reads_are_not_lost),
		TEST(test_ram_dropped_pages_change_no_layer),
		TEST(test_ram_without_write_protection_the_last_pass_copies),
		TEST(test_ram_cancelled_pass_leaves_nothing),
		TEST(test_ram_disk_full_leaves_nothing_and_the_machine_goes_on),
		TEST(test_ram_machine_that_dies_in_a_pass_is_an_error),
		TEST(test_ram_kept_machine_outlives_the_connection),
		TEST(test_ram_machine_nobody_took_ends_with_the_connection),
	};

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		fprintf(stderr, "SKIPPED: a mount namespace needs root\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
