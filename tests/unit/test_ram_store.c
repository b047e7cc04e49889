/* test_ram_store.c - layers of memory on the disk: merged, held, damaged; hostile ends of links */
#include "ram_fixture.h"

static int open_layer(const char *id, const char *ending, int flags)
{
	char *path = xasprintf("%s/memory/%s%s", test.dir, id, ending);
	int fd;

	chmod(path, 0600);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	free(path);
	return fd;
}

static void flip(const char *id, const char *ending, off_t at)
{
	_cleanup_close_ int fd = open_layer(id, ending, O_RDWR);
	unsigned char byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static const char *const *ids_of(const struct machine *machine)
{
	return (const char *const *)machine->stack;
}

/* ---- merging --------------------------------------------------------------------------------- */

static void on_merged(char **stack, const struct err *why, void *arg)
{
	test.stack = stack;
	on_done(why, arg);
}

static void test_ram_merged_stack_has_the_same_content(void **state)
{
	struct machine machine;
	uint64_t hash = 0;
	char *all;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 0 6000 1");
	for (int i = 0; i < 18; i++) {
		assert_int_equal(
			ram_store_wants_merge(test.store, ids_of(&machine)), i > RAM_LAYERS_WANTED);
		hash = machine_capture(&machine);
		tellf(&machine, "fill %d %d 100 %d", i + 2, i * 90, 1 + i % 3);
		tellf(&machine, "zero %d 40", 3000 + i * 30);
	}
	assert_int_equal(files_in_store(), 36);
	ram_store_merge(test.store, ids_of(&machine), on_merged, NULL);
	finish();
	/* The large layer at the bottom was left alone. */
	assert_int_equal(strv_len((const char *const *)test.stack), 2);
	assert_string_equal(test.stack[0], machine.stack[0]);
	check_clone(test.stack, 64, hash);
	check_clone(machine.stack, 64, hash);
	/* Captures go on over the new stack, and the old layers may go. */
	all = xstrdup(machine.stack[17]);
	take_stack(&machine);
	ram_store_keep(test.store, ids_of(&machine));
	assert_int_equal(files_in_store(), 4);
	assert_false(ram_store_has(test.store, all));
	hash = machine_capture(&machine);
	check_clone(machine.stack, 64, hash);
	free(all);
	machine_end(&machine);
}

static void test_ram_merge_of_a_damaged_layer_is_refused(void **state)
{
	struct machine machine;

	(void)state;
	machine_new(&machine, 64, NULL);
	for (int i = 0; i < 3; i++) {
		tellf(&machine, "fill %d 0 100 1", i + 1);
		machine_capture(&machine);
	}
	flip(machine.stack[2], "", 5000);
	ram_store_merge(test.store, ids_of(&machine), on_merged, NULL);
	finish_badly(ERR_PROTOCOL, machine.stack[2]);
	assert_null(test.stack);
	assert_int_equal(files_in_store(), 6);
	machine_end(&machine);
}

static void test_ram_forgotten_work_calls_nobody_and_leaves_nothing(void **state)
{
	struct machine machine;
	int asks;

	(void)state;
	machine_new(&machine, 64, NULL);
	for (int i = 0; i < 3; i++) {
		tellf(&machine, "fill %d 0 3000 1", i + 1);
		machine_capture(&machine);
	}
	for (int i = 0; i < 3; i++)
		ram_store_merge(test.store, ids_of(&machine), on_merged, &asks);
	ram_store_verify(test.store, ids_of(&machine), on_done, &asks);
	ram_store_forget(test.store, &asks);
	ram_store_sync(test.store, ids_of(&machine), on_done, NULL);
	finish();
	assert_null(test.stack);
	assert_int_equal(files_in_store(), 6);
	machine_end(&machine);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void check_map_fails(struct machine *machine, enum err_kind kind, const char *text)
{
	struct machine clone;

	machine_start(&clone, 64, -1, NULL);
	ram_link_map(clone.link, test.store, ids_of(machine), on_done, NULL);
	finish_badly(kind, text);
	/* Whoever could not be mapped is as it was, and others go on. */
	tell(&clone, "hash");
	assert_false(clone.lost);
	machine_end(&clone);
	tell(machine, "hash");
}

static void test_ram_damaged_data_is_found_by_its_checksum(void **state)
{
	struct machine machine;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 10 100 1");
	machine_capture(&machine);
	tell(&machine, "fill 2 200 100 1");
	machine_capture(&machine);
	ram_store_verify(test.store, ids_of(&machine), on_done, NULL);
	finish();
	flip(machine.stack[1], "", 250 * RAM_PAGE + 77);
	ram_store_verify(test.store, ids_of(&machine), on_done, NULL);
	finish_badly(ERR_PROTOCOL, machine.stack[1]);
	assert_non_null(strstr(test.err.message, "checksum of 409600 bytes at 819200 is wrong"));
	machine_end(&machine);
}

static void test_ram_damaged_map_is_refused_before_anything_is_mapped(void **state)
{
	struct machine machine;
	off_t len;
	int fd;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 10 100 2");
	machine_capture(&machine);
	fd = open_layer(machine.stack[0], ".map", O_RDONLY);
	len = lseek(fd, 0, SEEK_END);
	close(fd);
	for (off_t at = 0; at < len; at += 97) {
		flip(machine.stack[0], ".map", at);
		check_map_fails(&machine, ERR_PROTOCOL, machine.stack[0]);
		flip(machine.stack[0], ".map", at);
	}
	fd = open_layer(machine.stack[0], ".map", O_RDWR);
	assert_int_equal(ftruncate(fd, len - 24), 0);
	close(fd);
	check_map_fails(&machine, ERR_PROTOCOL, "wrong length");
	machine_end(&machine);
}

static void test_ram_cut_or_missing_layers_are_told_by_name(void **state)
{
	struct machine machine;
	char *path;
	int fd;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 10 100 1");
	machine_capture(&machine);
	fd = open_layer(machine.stack[0], "", O_RDWR);
	assert_int_equal(ftruncate(fd, 32 * MIB), 0);
	check_map_fails(&machine, ERR_PROTOCOL, machine.stack[0]);
	assert_int_equal(ftruncate(fd, 64 * MIB), 0);
	close(fd);
	path = xasprintf("%s/memory/%s", test.dir, machine.stack[0]);
	assert_int_equal(unlink(path), 0);
	check_map_fails(&machine, ERR_NOT_FOUND, machine.stack[0]);
	ram_store_verify(test.store, ids_of(&machine), on_done, NULL);
	finish_badly(ERR_NOT_FOUND, machine.stack[0]);
	free(path);
	machine_end(&machine);
}

static void test_ram_of_another_size_is_refused(void **state)
{
	struct machine machine, other;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 10 100 1");
	machine_capture(&machine);
	machine_start(&other, 128, -1, NULL);
	ram_link_map(other.link, test.store, ids_of(&machine), on_done, NULL);
	finish_badly(ERR_PROTOCOL, "machine with 67108864 bytes instead of 134217728");
	machine_end(&other);
	machine_end(&machine);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void test_ram_layers_go_when_nobody_names_or_holds_them(void **state)
{
	struct machine machine;
	char **stack;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 10 100 1");
	machine_capture(&machine);
	tell(&machine, "fill 2 10 100 1");
	machine_capture(&machine);
	stack = strv_copy(ids_of(&machine));
	ram_store_keep(test.store, NULL); /* held by the machine */
	assert_true(ram_store_has(test.store, stack[1]));
	machine_end(&machine);
	ram_store_keep(test.store, (const char *const[]){ stack[0], stack[0], NULL });
	assert_true(ram_store_has(test.store, stack[0]));
	assert_false(ram_store_has(test.store, stack[1]));
	assert_true(ram_store_bytes(test.store, stack[0]) >= 100 * RAM_PAGE);
	assert_int_equal(ram_store_bytes(test.store, stack[1]), 0);
	ram_store_keep(test.store, NULL);
	assert_int_equal(files_in_store(), 0);
	strv_free(stack);
}

static void test_ram_what_is_half_written_goes_at_opening(void **state)
{
	static const char *const names[] = { "aaaaaaaaaaaaaaaa.tmp", "bbbbbbbbbbbbbbbb",
		"bbbbbbbbbbbbbbbb.map.tmp", "cccccccccccccccc.map", "dddddddddddddddd" };
	struct machine machine;

	(void)state;
	machine_new(&machine, 64, NULL);
	tell(&machine, "fill 1 10 100 1");
	machine_capture(&machine);
	machine_end(&machine);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char *path = xasprintf("%s/memory/%s", test.dir, names[i]);

		OK(file_write_atomic(AT_FDCWD, path, "x", 1, 0600, &err));
		free(path);
	}
	ram_store_close(test.store);
	OK(ram_store_open(test.loop, test.dir, &test.store, &err));
	assert_int_equal(files_in_store(), 2);
}

/* ---- hostile ends ---------------------------------------------------------------------------- */

static void test_ram_library_refuses_bad_messages_and_lives(void **state)
{
	struct {
		struct ram_request request;
		struct ram_piece pieces[3];
	} message = { .request = { .magic = RAM_MAGIC, .kind = RAM_MAP, .count = 1 } };
	const struct ram_piece bad[] = {
		{ 0, 0, RAM_ZERO, 0 },
		{ 1, RAM_PAGE, RAM_ZERO, 0 },
		{ 0, RAM_PAGE + 1, RAM_ZERO, 0 },
		{ 64 * MIB, RAM_PAGE, RAM_ZERO, 0 },
		{ 0, 65 * MIB, RAM_ZERO, 0 },
		{ RAM_PAGE, UINT64_MAX - RAM_PAGE + 1, RAM_ZERO, 0 },
		{ 0, RAM_PAGE, 0, 0 },
		{ 0, RAM_PAGE, 7, 0 },
	};
	struct machine machine;
	struct ram_answer answer;
	uint64_t hash;
	int fd;

	(void)state;
	machine_new(&machine, 64, NULL);
	ram_link_keep(machine.link, on_done, NULL);
	finish();
	tell(&machine, "fill 1 0 1000 1");
	hash = tell(&machine, "hash");
	ram_link_free(machine.link);
	OK(ram_connect(machine.path, &fd, &err));
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad) + 4; i++) {
		size_t len = sizeof message.request + sizeof *bad;

		message.request.count = 1;
		if (i < ARRAY_LEN(bad))
			message.pieces[0] = bad[i];
		else if (i == ARRAY_LEN(bad))
			len--;
		else if (i == ARRAY_LEN(bad) + 1)
			message.request.count = UINT32_MAX;
		else if (i == ARRAY_LEN(bad) + 2)
			len = 3;
		else
			message.request.magic = 1;
		assert_int_equal(send(fd, &message, len, 0), len);
		assert_int_equal(recv(fd, &answer, sizeof answer, 0), sizeof answer);
		assert_int_equal(answer.error, EPROTO);
	}
	close(fd);
	assert_true(tell(&machine, "hash") == hash);
	machine_connect(&machine);
	machine_capture(&machine);
	machine_end(&machine);
}

static void lose_by(const void *data, size_t len, enum err_kind kind, const char *text)
{
	struct machine machine = { 0 };
	int pair[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	if (len)
		assert_int_equal(send(pair[1], data, len, 0), len);
	else
		close(pair[1]);
	machine.link = ram_link_new(test.loop, pair[0], getpid(), 64 * MIB, on_lost, &machine);
	ram_link_keep(machine.link, on_done, NULL);
	finish_badly(kind, text);
	wait_for(&machine.lost);
	/* What is asked of a dead link fails, too. */
	ram_link_keep(machine.link, on_done, NULL);
	finish_badly(kind, text);
	ram_link_free(machine.link);
	if (len)
		close(pair[1]);
}

static void test_ram_answers_that_do_not_fit_end_the_link(void **state)
{
	struct ram_answer good = { .magic = RAM_MAGIC,
		.kind = RAM_HELLO,
		.base = 0x7f0000000000,
		.size = 64 * MIB },
			  bad;

	(void)state;
	lose_by(NULL, 0, ERR_UNAVAILABLE, "");
	lose_by("x", 1, ERR_PROTOCOL, "1 bytes");
	bad = good;
	bad.magic++;
	lose_by(&bad, sizeof bad, ERR_PROTOCOL, "another request");
	bad = good;
	bad.kind = RAM_KEEP;
	lose_by(&bad, sizeof bad, ERR_PROTOCOL, "another request");
	bad = good;
	bad.size = 128 * MIB;
	lose_by(&bad, sizeof bad, ERR_PROTOCOL, "134217728 bytes instead of 67108864");
	bad = good;
	bad.base = UINT64_MAX - RAM_PAGE + 1;
	lose_by(&bad, sizeof bad, ERR_PROTOCOL, "impossible address");
	bad = good;
	bad.error = 100000;
	lose_by(&bad, sizeof bad, ERR_PROTOCOL, "impossible error");
	bad = good;
	bad.base = bad.size = 0; /* there is no such mapping in this process */
	lose_by(&bad, sizeof bad, ERR_PROTOCOL, "0 shared mappings");
}

static void test_ram_mapping_is_the_only_shared_one_of_its_size(void **state)
{
	uint64_t base = 0;

	(void)state;
	OK(ram_find_mapping("1000-3000 rw-s 0 0 0 a\n3000-7000 rw-s 0 00:01 5 /memfd:x\n", 0x4000,
		&base, &err));
	assert_int_equal(base, 0x3000);
	assert_int_equal(ram_find_mapping("1000-3000 rw-p 0 0 0\n", 0x2000, &base, &err), -1);
	assert_int_equal(ram_find_mapping("1000-3000 rw-s 0 0 0\n3000-5000 rw-s 0 0 0\n", 0x2000,
				 &base, &err),
		-1);
	assert_int_equal(ram_find_mapping("", 0x2000, &base, &err), -1);
	assert_int_equal(ram_find_mapping("rubbish\n\n5-", 0x2000, &base, &err), -1);
}

static void test_ram_checksum_is_crc32c(void **state)
{
	(void)state;
	assert_int_equal(ram_crc(0, "123456789", 9), 0xe3069283);
	assert_int_equal(ram_crc(ram_crc(0, "1234", 4), "56789", 5), 0xe3069283);
	assert_int_equal(ram_crc_by_table(0, "123456789", 9), 0xe3069283);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_ram_merged_stack_has_the_same_content),
		TEST(test_ram_merge_of_a_damaged_layer_is_refused),
		TEST(test_ram_forgotten_work_calls_nobody_and_leaves_nothing),
		TEST(test_ram_damaged_data_is_found_by_its_checksum),
		TEST(test_ram_damaged_map_is_refused_before_anything_is_mapped),
		TEST(test_ram_cut_or_missing_layers_are_told_by_name),
		TEST(test_ram_of_another_size_is_refused),
		TEST(test_ram_layers_go_when_nobody_names_or_holds_them),
		TEST(test_ram_what_is_half_written_goes_at_opening),
		TEST(test_ram_library_refuses_bad_messages_and_lives),
		TEST(test_ram_answers_that_do_not_fit_end_the_link),
		TEST(test_ram_mapping_is_the_only_shared_one_of_its_size),
		TEST(test_ram_checksum_is_crc32c),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
