/* test_vm_boot.c - box-init as the first process of a real VM, served by the daemon's own code
 *
 * Under TCG, so that it runs everywhere; says aloud when QEMU or the kernel is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "vm_fixture.h"
#include "base/alloc.h"
#include "loop/loop.h"
#include "tar/tar.h"
#include <stdio.h>
#include <sys/wait.h>

static bool here;
static struct loop *loop;

static int setup(void **state)
{
	(void)state;
	loop = loop_new();
	here = vm_world_open();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (here)
		vm_world_close();
	loop_free(loop);
	return 0;
}

static void expect(struct vm *vm, const char *command, const char *wanted)
{
	_cleanup_free_ char *output = vm_run(vm, command);

	if (strcmp(output, wanted) != 0)
		fail_msg("'%s' says '%s', not '%s'", command, output, wanted);
}

struct asked {
	struct control_stats stats;
	struct control_timer timer;
	unsigned done;
};

static void on_stats_asked(const struct control_stats *stats, const struct err *err, void *arg)
{
	struct asked *asked = arg;

	if (err)
		fail_msg("%s", err->message);
	asked->stats = *stats;
	asked->done++;
}

static void on_timer_asked(const struct control_timer *timer, const struct err *err, void *arg)
{
	struct asked *asked = arg;

	assert_null(err);
	asked->timer = *timer;
	asked->done++;
}

static void test_a_vm_boots_and_runs_programs(void **state)
{
	struct asked asked = { 0 };
	struct vm *vm;

	(void)state;
	if (!here)
		skip();
	vm = vm_start(loop, "boots", NULL, true);
	vm_tell(vm, CONTROL_NEW, "ada");
	vm_connect(vm);
	expect(vm, "echo $((6*7))", "42\n");
	expect(vm, "hostname; cat /etc/hostname", "ada\nada\n");
	expect(vm, "cat /etc/resolv.conf", "nameserver 198.18.0.1\n");
	expect(vm, "grep -c 0000000000 /etc/machine-id", "0\n");
	expect(vm, "ls /etc/ssh", "");
	expect(vm, "cat /proc/self/cgroup", "0::/programs\n");
	expect(vm, "ip -4 addr show eth0 | grep -o 198.18.0.2; ip route | head -n 1",
		"198.18.0.2\ndefault via 198.18.0.1 dev eth0 onlink \n");
	control_stats(vm->control, on_stats_asked, &asked);
	vm_wait(vm, &asked.done, 1, 10);
	assert_in_range(asked.stats.memory_total, 100 << 20, 192 << 20);
	assert_int_equal(asked.stats.processes, 0);
	control_timers(vm->control, on_timer_asked, &asked);
	vm_wait(vm, &asked.done, 2, 10);
	assert_int_equal(asked.timer.kind, CONTROL_TIMER_NONE);
	vm_free(vm);
}

/* ---- what its disk has over its image ------------------------------------------------------- */

struct received {
	struct buf tar;
	unsigned done;
	struct err err;
};

static void on_tar_data(struct chan *chan, enum wire_stream stream, uint64_t offset,
	const void *data, size_t len, void *arg)
{
	struct received *received = arg;

	(void)stream;
	(void)offset;
	buf_add(&received->tar, data, len);
	chan_consumed(chan, len);
}

static void on_tar_end(struct chan *chan, void *arg)
{
	(void)chan;
	((struct received *)arg)->done++;
}

static void on_tar_error(struct chan *chan, const struct err *err, void *arg)
{
	struct received *received = arg;

	(void)chan;
	received->err = *err;
	received->done++;
}

static ssize_t read_tar(void *arg, void *data, size_t len, struct err *err)
{
	struct buf *tar = arg;
	size_t part = MIN(len, tar->len);

	(void)err;
	memcpy(data, buf_head(tar), part);
	buf_eat(tar, part);
	return (ssize_t)part;
}

/* All names in brackets; yours. */
static char *list_tar(struct buf *tar)
{
	static struct tar_reader reader;
	const struct tar_entry *entry;
	struct buf names = BUF_INIT;
	char *text;
	int got;

	reader = (struct tar_reader){ .read = read_tar, .arg = tar };
	while ((got = tar_next(&reader, &entry, NULL)) > 0)
		buf_addf(&names, "[%s]", entry->name);
	assert_int_equal(got, 0);
	text = xstrdup(buf_str(&names));
	buf_done(&names);
	return text;
}

static void test_a_vm_sends_what_it_has_over_its_image(void **state)
{
	static const struct chan_ops ops = {
		.on_data = on_tar_data, .on_end = on_tar_end, .on_error = on_tar_error
	};
	struct received received = { .err = ERR_INIT };
	_cleanup_free_ char *names = NULL;
	struct buf nothing = BUF_INIT;
	struct vm *vm;

	(void)state;
	if (!here)
		skip();
	vm = vm_start(loop, "upper", NULL, true);
	vm_tell(vm, CONTROL_NEW, "ada");
	vm_connect(vm);
	expect(vm,
		"echo hello > /workspace/note; rm /etc/passwd; mkdir /new; dd if=/dev/zero of=/new/big "
		"bs=1M count=5 2>/dev/null; ln /new/big /new/same; echo done",
		"done\n");
	assert_non_null(chan_open(vm->link, WIRE_OP_TAR_UPPER, &nothing, &ops, &received, NULL));
	vm_wait(vm, &received.done, 1, 30);
	if (received.err.kind)
		fail_msg("%s", received.err.message);
	assert_in_range(received.tar.len, 5 << 20, 6 << 20);
	names = list_tar(&received.tar);
	assert_non_null(strstr(names, "[./workspace/note]"));
	assert_non_null(strstr(names, "[./etc/.wh.passwd]"));
	assert_non_null(strstr(names, "[./new/big]"));
	assert_non_null(strstr(names, "[./new/same]"));
	buf_done(&received.tar);
	vm_free(vm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_vm_boots_and_runs_programs),
		cmocka_unit_test(test_a_vm_sends_what_it_has_over_its_image),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
