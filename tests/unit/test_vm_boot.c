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

/* Connections there are: one that is being made to 203.0.113.9:7000, one to 127.0.0.1:7001. */
#define OUTSIDE "grep -c ' 097100CB:1B58 02 ' /proc/net/tcp"
#define INSIDE	"grep -c ' 0100007F:1B59 01 ' /proc/net/tcp"

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

static void on_done(const struct err *err, void *arg)
{
	if (err)
		fail_msg("%s", err->message);
	(*(unsigned *)arg)++;
}

static void on_shutdown(struct chan *chan, void *arg)
{
	(void)chan;
	(*(unsigned *)arg)++;
}

/* QEMU ends, and tells that it was asked for. */
static void check_shutdown(struct vm *vm)
{
	static const struct chan_ops ops = { .on_closed = on_shutdown };
	struct buf request = BUF_INIT;
	unsigned closed = 0;

	wire_put_u32(&request, 100);
	assert_non_null(chan_open(vm->link, WIRE_OP_SHUTDOWN, &request, &ops, &closed, NULL));
	buf_done(&request);
	vm_wait(vm, &vm->link_lost, 1, 30);
	vm_wait(vm, &vm->ended, 1, 10);
	assert_string_equal(vm->shutdown, "guest-shutdown");
	_cleanup_free_ char *command = xasprintf("e2fsck -fn %s/disk >/dev/null 2>&1", vm->dir);

	assert_int_equal(system(command), 0);
}

/* The greeting, and the real path of ".". */
static void expect_sftp(struct vm *vm, const char *user, const char *home)
{
	static const uint8_t request[] = { 0, 0, 0, 5, 1, 0, 0, 0, 3, /* INIT */
		0, 0, 0, 10, 16, 0, 0, 0, 9, 0, 0, 0, 1, '.' };
	struct buf answer = vm_sftp(vm, user, request, sizeof request);

	if (!memmem(buf_head(&answer), answer.len, "copy-data", 9) ||
		!memmem(buf_head(&answer), answer.len, home, strlen(home)))
		fail_msg("sftp of '%s' gave %zu bytes without '%s'", user, answer.len, home);
	buf_done(&answer);
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
	expect(vm, "hostname; sleep 0.5; cat /etc/hostname", "ada\nada\n");
	expect(vm, "cat /etc/resolv.conf", "nameserver 198.18.0.1\n");
	expect(vm, "grep -c 0000000000 /etc/machine-id", "0\n");
	expect(vm, "ls /etc/ssh", "");
	expect_sftp(vm, "", "/");
	expect(vm, "mkdir -p /home/bob; echo bob:x:7:7::/home/bob: >> /etc/passwd", "");
	expect_sftp(vm, "bob", "/home/bob");
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

/* The kernel asks for a module by its alias; the image has no modprobe. */
static void check_modules(struct vm *vm)
{
	expect(vm, "ip link add d0 type dummy && ip link show d0 | grep -c ' d0: '", "1\n");
	expect(vm, "lsmod | grep -c '^dummy '", "1\n");
	expect(vm, "grep -c . /proc/sys/kernel/modprobe; ls /.boxyard",
		"1\nbox\nbox-init\nmodprobe\n");
}

static void check_growth(struct vm *vm)
{
	struct asked asked = { 0 };

	vm_qmp(vm, "block_resize", "{\"node-name\":\"rw\",\"size\":134217728}");
	control_grow(vm->control, 134217728, on_done, &asked.done);
	vm_wait(vm, &asked.done, 1, 30);
	expect(vm, "test $(df -k / | tail -n 1 | { read a b c; echo $b; }) -gt 100000; echo $?",
		"0\n");
}

static void check_limits(struct vm *vm)
{
	struct asked asked = { 0 };

	control_limit(vm->control, 8, on_done, &asked.done);
	vm_wait(vm, &asked.done, 1, 10);
	expect(vm, "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1 & done 2>&1 | grep -c fork; wait",
		"1\n");
	control_stats(vm->control, on_stats_asked, &asked);
	vm_wait(vm, &asked.done, 2, 10);
	assert_true(asked.stats.pids_refused > 0);
	control_limit(vm->control, 0, on_done, &asked.done);
	vm_wait(vm, &asked.done, 3, 10);
}

static void check_timers(struct vm *vm)
{
	struct asked asked = { 0 };

	free(vm_run(vm, "(while :; do :; done) >/dev/null 2>&1 & echo $! >/tmp/busy"));
	control_timers(vm->control, on_timer_asked, &asked);
	vm_wait(vm, &asked.done, 1, 10);
	assert_int_equal(asked.timer.kind, CONTROL_TIMER_BUSY);
	free(vm_run(vm, "kill -9 $(cat /tmp/busy); sleep 300 >/dev/null 2>&1 & sleep 0.2"));
	control_timers(vm->control, on_timer_asked, &asked);
	vm_wait(vm, &asked.done, 2, 10);
	assert_int_equal(asked.timer.kind, CONTROL_TIMER_AT);
	assert_in_range(asked.timer.in_ns, UINT64_C(200000000000), UINT64_C(300000000000));
}

struct owner {
	unsigned done;
	uint32_t pid;
	char comm[16], command[64];
};

static void on_who(const struct control_who *who, const struct err *err, void *arg)
{
	struct owner *owner = arg;

	if (err)
		fail_msg("%s", err->message);
	owner->pid = who->pid;
	snprintf(owner->comm, sizeof owner->comm, "%s", who->comm);
	snprintf(owner->command, sizeof owner->command, "%s", who->command);
	owner->done++;
}

/* A connection within the machine. */
static void check_who(struct vm *vm)
{
	struct control_flow flow = { .protocol = 6, .family = 4, .to_port = 7000 };
	struct owner owner = { 0 };
	_cleanup_free_ char *row = NULL;
	unsigned port = 0;

	memcpy(flow.from, "\x7f\0\0\1", 4);
	memcpy(flow.to, "\x7f\0\0\1", 4);
	free(vm_run(vm, "{ (sleep 60 | nc -l -p 7000) & sleep 0.3; "
			"(sleep 60 | nc 127.0.0.1 7000) & sleep 0.5; } >/dev/null 2>&1"));
	row = vm_run(vm, "grep ' 0100007F:1B58 01 ' /proc/net/tcp");
	assert_int_equal(sscanf(row, " %*d: %*x:%x", &port), 1);
	flow.from_port = (uint16_t)port;
	control_who(vm->control, &flow, on_who, &owner);
	vm_wait(vm, &owner.done, 1, 10);
	assert_true(owner.pid > 1);
	assert_string_equal(owner.comm, "nc");
	assert_string_equal(owner.command, "nc 127.0.0.1 7000");
	flow.from_port = 7002;
	control_who(vm->control, &flow, on_who, &owner);
	vm_wait(vm, &owner.done, 2, 10);
	assert_int_equal(owner.pid, 0);
}

static void check_hold(struct vm *vm)
{
	unsigned done = 0;

	free(vm_run(vm, "(while :; do echo x >>/tmp/beats; sleep 0.05; done) >/dev/null 2>&1 & "
			"sleep 0.2"));
	control_hold(vm->control, true, on_done, &done);
	vm_wait(vm, &done, 1, 10);
	control_hold(vm->control, false, on_done, &done);
	vm_wait(vm, &done, 2, 10);
	expect(vm, "a=$(wc -l </tmp/beats); sleep 0.5; test $(wc -l </tmp/beats) -gt $a; echo $?",
		"0\n");
}

static void check_name_and_clock(struct vm *vm)
{
	unsigned done = 0;

	control_set_hostname(vm->control, "bob", on_done, &done);
	free(vm_run(vm, "date -s 2001-01-01"));
	control_set_clock(vm->control, on_done, &done);
	vm_wait(vm, &done, 2, 10);
	expect(vm, "hostname; sleep 0.3; cat /etc/hostname; test $(date +%Y) -ge 2024; echo $?",
		"bob\nbob\n0\n");
}

/* All that is quick needs one boot. */
static void test_what_a_vm_can_do(void **state)
{
	struct vm *vm;

	(void)state;
	if (!here)
		skip();
	vm = vm_start(loop, "can", NULL, true);
	vm_tell(vm, CONTROL_NEW, "ada");
	vm_connect(vm);
	check_modules(vm);
	check_growth(vm);
	check_limits(vm);
	check_timers(vm);
	check_name_and_clock(vm);
	check_who(vm);
	check_hold(vm);
	/* A connection that ends and comes again in the same moment is not seen inside. */
	vm_connect(vm);
	expect(vm, "echo again", "again\n");
	check_shutdown(vm);
	vm_free(vm);
}

/* A template without a disk gets one before it is told. */
static void test_a_disk_may_come_later(void **state)
{
	struct vm *vm;

	(void)state;
	if (!here)
		skip();
	vm = vm_start(loop, "later", NULL, false);
	usleep(4000000);
	vm_make_disk(vm);
	vm_tell(vm, CONTROL_START, "eve");
	vm_connect(vm);
	expect(vm, "hostname; cat /etc/machine-id", "eve\n00000000000000000000000000000000\n");
	vm_free(vm);
}

/* Two copies of one moment: what each is told makes them differ, and they serve nobody before. */
static void test_copies_differ_once_they_were_told(void **state)
{
	_cleanup_free_ char *moment = xasprintf("%s/moment", vm_world_dir());
	_cleanup_free_ char *random[2] = { NULL, NULL };
	struct vm *vm;

	(void)state;
	if (!here)
		skip();
	vm = vm_start(loop, "parent", NULL, true);
	vm_tell(vm, CONTROL_NEW, "parent");
	vm_connect(vm);
	/* A connection that leads out, where nobody answers, and one that stays inside. */
	free(vm_run(vm,
		"echo kept >/tmp/file; sync; arp -s 198.18.0.1 52:54:00:00:00:01; "
		"{ (sleep 600 | nc -l -p 7001) & sleep 0.3; (sleep 600 | nc 127.0.0.1 7001) & "
		"(sleep 600 | nc 203.0.113.9 7000) & sleep 0.5; } >/dev/null 2>&1"));
	expect(vm, OUTSIDE "; " INSIDE, "1\n1\n");
	vm_capture(vm, moment);
	vm_free(vm);
	for (int i = 0; i < 2; i++) {
		vm = vm_start(loop, i ? "second" : "first", moment, true);
		vm_go_on(vm);
		vm_tell(vm, CONTROL_COPY, i ? "second" : "first");
		vm_connect(vm);
		random[i] = vm_run(vm, "head -c 16 /dev/urandom | od -An -tx1");
		expect(vm, OUTSIDE "; " INSIDE, "0\n1\n");
		expect(vm, "hostname; cat /tmp/file", i ? "second\nkept\n" : "first\nkept\n");
		expect(vm, "test $(date +%s) -ge 1700000000; echo $?", "0\n");
		vm_free(vm);
	}
	assert_string_not_equal(random[0], random[1]);
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
		cmocka_unit_test(test_what_a_vm_can_do),
		cmocka_unit_test(test_a_disk_may_come_later),
		cmocka_unit_test(test_a_vm_sends_what_it_has_over_its_image),
		cmocka_unit_test(test_copies_differ_once_they_were_told),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
