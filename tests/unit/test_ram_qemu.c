/* test_ram_qemu.c - memory in layers with real QEMU, confined as in the product
 *
 * Needs root, QEMU and a kernel of 6.7 or later for pre-copy; says aloud when it skips. */
#include "qemu_fixture.h"
#include "base/strv.h"
#include "engine/vm/ram_internal.h"
#include <sys/uio.h>

static struct ram_store *store;

/* A QEMU with its library. */
struct machine {
	struct seen seen;
	struct ram_link *link;
	char **stack;
	struct ram_pass_result result;
	bool ready, done;
	struct err err;
};

static void on_ram(const struct err *err, void *arg)
{
	struct machine *machine = arg;

	machine->done = true;
	if (err)
		machine->err = *err;
	loop_stop(test.loop);
}

static void finish_ram(struct machine *machine)
{
	await(&machine->done);
	machine->done = false;
	if (machine->err.kind)
		fail_msg("%s", machine->err.message);
}

static void start(struct machine *machine, const char *name, const char *letter)
{
	struct qemu *qemu;
	int fd;

	*machine = (struct machine){ 0 };
	spawn(&machine->seen, name, letter);
	qemu = machine->seen.qemu;
	assert_int_equal(qemu_connect(qemu_get_dir(qemu), QEMU_SOCKET_RAM, &fd, NULL), 0);
	machine->link = ram_link_new(
		test.loop, fd, qemu_get_mark(qemu).pid, small_machine.ram_bytes, NULL, machine);
}

static void end(struct machine *machine)
{
	ram_link_free(machine->link);
	if (!machine->seen.ended)
		finish(&machine->seen);
	strv_free(machine->stack);
}

static void on_pass_ready(struct ram_pass *pass, void *arg)
{
	(void)pass;
	((struct machine *)arg)->ready = true;
	loop_stop(test.loop);
}

static void on_pass_done(struct ram_pass *pass, const struct ram_pass_result *result,
	const struct err *err, void *arg)
{
	struct machine *machine = arg;

	(void)pass;
	if (result) {
		machine->result = *result;
		strv_free(machine->stack);
		machine->stack = strv_copy(result->stack);
	}
	on_ram(err, arg);
}

static const struct ram_pass_ops pass_ops = { on_pass_ready, on_pass_done };

static int state_file(int flags)
{
	_cleanup_free_ char *path = xasprintf("%s/devices", test.dir);
	int fd = open(path, flags | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

/* The counter of the guest, in its memory. */
static uint32_t count_of(struct machine *machine)
{
	uint32_t count = 0;
	struct iovec local = { &count, sizeof count };
	struct iovec remote = { (void *)(uintptr_t)(ram_link_base(machine->link) + 0x200000),
		sizeof count };

	assert_int_equal(
		process_vm_readv(qemu_get_mark(machine->seen.qemu).pid, &local, 1, &remote, 1, 0),
		sizeof count);
	return count;
}

/* As the driver does it; the count at which the guest stood still. */
static uint32_t capture(struct machine *machine, bool whole)
{
	struct ram_pass_spec spec = { .link = machine->link,
		.whole = whole,
		.pidfd = qemu_get_pidfd(machine->seen.qemu),
		.stack = (const char *const *)machine->stack,
		.disk = -1 };
	_cleanup_close_ int state = state_file(O_WRONLY | O_CREAT | O_TRUNC);
	struct seen *seen = &machine->seen;
	struct ram_pass *pass;
	uint32_t count;

	machine->ready = false;
	assert_int_equal(ram_pass_start(store, &spec, &pass_ops, machine, &pass, NULL), 0);
	await(&machine->ready);
	expect_done(qemu_stop(seen->qemu, on_verb, seen), seen);
	expect_done(qemu_save(seen->qemu, state, on_verb, seen), seen);
	count = count_of(machine);
	ram_pass_last(pass);
	finish_ram(machine);
	ram_link_add(machine->link, store, (const char *const *)machine->stack, on_ram, machine);
	finish_ram(machine);
	assert_int_equal(count_of(machine), count);
	expect_done(qemu_cont(seen->qemu, on_verb, seen), seen);
	ram_pass_free(pass);
	return count;
}

static void restore(struct machine *machine, const char *name, char **stack, uint32_t count)
{
	struct seen *seen = &machine->seen;
	_cleanup_close_ int state = state_file(O_RDONLY);

	start(machine, name, NULL);
	ram_link_map(machine->link, store, (const char *const *)stack, on_ram, machine);
	finish_ram(machine);
	assert_int_equal(count_of(machine), count);
	machine->stack = strv_copy((const char *const *)stack);
	expect_done(qemu_load(seen->qemu, state, on_verb, seen), seen);
	assert_int_equal(count_of(machine), count);
	expect_done(qemu_cont(seen->qemu, on_verb, seen), seen);
}

static void test_ram_forks_of_a_booted_guest_go_on(void **state)
{
	struct machine one, two, three;
	uint32_t count;

	(void)state;
	need_qemu();
	start(&one, "one", "c");
	expect_done(qemu_cont(one.seen.qemu, on_verb, &one.seen), &one.seen);
	pause_ms(300);
	count = capture(&one, true);
	assert_true(count > 0);
	assert_int_equal(strv_len((const char *const *)one.stack), 1);
	restore(&two, "two", one.stack, count);
	pause_ms(300);
	assert_true(count_of(&two) > count);
	assert_null(strstr(console_of(&two.seen), "hello"));
	/* A fork of the fork, and one of the first again. */
	count = capture(&two, false);
	assert_true(two.result.precopy);
	assert_int_equal(strv_len((const char *const *)two.stack), 2);
	restore(&three, "three", two.stack, count);
	pause_ms(100);
	assert_true(count_of(&three) > count);
	end(&three);
	count = capture(&one, false);
	restore(&three, "four", one.stack, count);
	pause_ms(100);
	assert_true(count_of(&three) > count && count_of(&one) > count);
	end(&three);
	end(&two);
	end(&one);
}

static void test_ram_qemu_that_nobody_took_ends_with_its_daemon(void **state)
{
	struct machine machine;

	(void)state;
	need_qemu();
	start(&machine, "one", NULL);
	ram_link_free(machine.link);
	machine.link = NULL;
	await(&machine.seen.ended);
	qemu_free(machine.seen.qemu);
}

static int set_up(void **state)
{
	struct err err = ERR_INIT;

	if (setup(state) < 0 || ram_store_open(test.loop, test.dir, &store, &err) < 0 ||
		ram_library_write(test.dir, &test.preload, &err) < 0)
		fail_msg("%s", err.message);
	return 0;
}

static int tear_down(void **state)
{
	ram_store_close(store);
	free(test.preload);
	return teardown(state);
}

static int run_all(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(test_ram_forks_of_a_booted_guest_go_on),
		TEST(test_ram_qemu_that_nobody_took_ends_with_its_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_apart(run_all);
}
