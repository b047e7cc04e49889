/* test_qemu.c - real QEMU processes: how they are confined, what they are asked to do, how they
 * end */
#include "qemu_fixture.h"
#include "engine/vm/qemu_internal.h"
#include <dirent.h>

/* ---- confinement ---------------------------------------------------------------------------- */

static char *proc_text(struct seen *seen, const char *name)
{
	char path[64], *text = NULL;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)qemu_get_mark(seen->qemu).pid, name);
	assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &text, NULL, NULL), 0);
	return text;
}

static void expect_line(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no line '%s' in:\n%s", line, text);
}

static unsigned count_files(struct seen *seen, const char *folder)
{
	char path[128];
	struct dirent *entry;
	unsigned count = 0;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/root/%s", (int)qemu_get_mark(seen->qemu).pid, folder);
	dir = opendir(path);
	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

static void expect_other_namespace(struct seen *seen, const char *name)
{
	char path[64], ours[64] = "", theirs[64] = "";

	snprintf(path, sizeof path, "/proc/self/ns/%s", name);
	assert_true(readlink(path, ours, sizeof ours - 1) > 0);
	snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)qemu_get_mark(seen->qemu).pid, name);
	assert_true(readlink(path, theirs, sizeof theirs - 1) > 0);
	assert_string_not_equal(ours, theirs);
}

static void test_qemu_has_no_privileges_and_an_empty_root(void **state)
{
	static const char *const namespaces[] = { "mnt", "pid", "ipc", "uts", "net" };
	_cleanup_free_ char *status = NULL, *uid = NULL;
	struct seen seen;

	(void)state;
	need_qemu();
	spawn(&seen, "one", NULL);
	status = proc_text(&seen, "status");
	uid = xasprintf("Uid:\t%u\t", QEMU_UID_FIRST + qemu_get_mark(seen.qemu).pid);
	expect_line(status, uid);
	expect_line(status, "CapPrm:\t0000000000000000");
	expect_line(status, "CapBnd:\t0000000000000000");
	expect_line(status, "NoNewPrivs:\t1");
	expect_line(status, "Seccomp:\t2");
	for (size_t i = 0; i < ARRAY_LEN(namespaces); i++)
		expect_other_namespace(&seen, namespaces[i]);
	assert_int_equal(count_files(&seen, "usr"), 0);
	assert_int_equal(count_files(&seen, "lib"), 0);
	assert_int_equal(count_files(&seen, "dev"), 0);
	finish(&seen);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void expect_end(const char *letter, enum qemu_why why, const char *console)
{
	struct seen seen;

	need_qemu();
	spawn(&seen, letter, letter);
	qemu_cont(seen.qemu, NULL, NULL);
	await(&seen.ended);
	assert_int_equal(seen.end.why, why);
	assert_false(seen.end.killed);
	expect_line(seen.console, console);
	qemu_free(seen.qemu);
}

static void test_end_tells_what_the_guest_did(void **state)
{
	(void)state;
	expect_end("r", QEMU_END_RESET, "hello");
	expect_end("s", QEMU_END_SHUTDOWN, "hello");
	expect_end("p", QEMU_END_PANIC, "Kernel panic");
}

static void expect_failure(const char *program, const char *message)
{
	_cleanup_free_ char *dir = xasprintf("%s/failing", test.dir);
	const struct qemu_machine machine = { program, false, UINT64_C(128) << 20, 1 };
	struct qemu_spec spec = { .machine = &machine,
		.dir = dir,
		.netns = -1,
		.tap = -1,
		.image = -1,
		.disk = -1,
		.cgroup = -1 };
	struct seen seen = { 0 };

	assert_int_equal(qemu_spawn(test.loop, &spec, &seen_ops, &seen, &seen.qemu, NULL), 0);
	await(&seen.ended);
	assert_int_equal(seen.end.why, QEMU_END_FAILED);
	expect_line(seen.end.err.message, message);
	qemu_free(seen.qemu);
	qemu_remove_dir(dir);
}

static void test_failed_start_says_why(void **state)
{
	(void)state;
	need_qemu();
	expect_failure("/usr/bin/no-such-qemu", "No such file");
	expect_failure("/usr/bin/false", "ended before it answered");
	expect_failure("/usr/bin/env", "QEMU did not start: "); /* complains about its options */
}

static void test_killed_qemu_is_told_by_its_signal(void **state)
{
	struct seen seen;

	(void)state;
	need_qemu();
	spawn(&seen, "one", NULL);
	kill(qemu_get_mark(seen.qemu).pid, SIGKILL);
	await(&seen.ended);
	assert_int_equal(seen.end.why, QEMU_END_SIGNALED);
	assert_int_equal(seen.end.value, SIGKILL);
	assert_false(seen.end.killed);
	qemu_free(seen.qemu);
}

static void test_quit_ends_it(void **state)
{
	struct seen seen;

	(void)state;
	need_qemu();
	spawn(&seen, "one", "c");
	expect_done(qemu_cont(seen.qemu, on_verb, &seen), &seen);
	qemu_quit(seen.qemu);
	await(&seen.ended);
	assert_int_equal(seen.end.why, QEMU_END_EXITED);
	qemu_free(seen.qemu);
}

/* ---- running -------------------------------------------------------------------------------- */

static void test_guest_runs_stops_and_goes_on(void **state)
{
	struct seen seen;

	(void)state;
	need_qemu();
	spawn(&seen, "one", "c");
	assert_int_equal(status_of(&seen), QEMU_PAUSED);
	assert_string_equal(console_of(&seen), "");
	expect_done(qemu_cont(seen.qemu, on_verb, &seen), &seen);
	await_console(&seen, "hello");
	await_console(&seen, ".");
	expect_done(qemu_stop(seen.qemu, on_verb, &seen), &seen);
	assert_int_equal(status_of(&seen), QEMU_PAUSED);
	console_of(&seen);
	pause_ms(100);
	assert_string_equal(console_of(&seen), "");
	expect_done(qemu_cont(seen.qemu, on_verb, &seen), &seen);
	await_console(&seen, ".");
	assert_int_equal(status_of(&seen), QEMU_RUNNING);
	finish(&seen);
}

/* ---- states --------------------------------------------------------------------------------- */

static uint64_t ram_address(struct seen *seen)
{
	_cleanup_free_ char *maps = proc_text(seen, "maps");
	unsigned long long from = 0, to;
	char *line = strstr(maps, "memfd:");

	assert_non_null(line);
	while (line > maps && line[-1] != '\n')
		line--;
	assert_int_equal(sscanf(line, "%llx-%llx", &from, &to), 2);
	assert_int_equal(to - from, small_machine.ram_bytes);
	return from;
}

static int open_memory(struct seen *seen, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof path, "/proc/%d/mem", (int)qemu_get_mark(seen->qemu).pid);
	fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* What layers do in the product. */
static void copy_ram(struct seen *from, struct seen *to)
{
	enum { PIECE = 1 << 20 };
	_cleanup_close_ int in = open_memory(from, O_RDONLY), out = open_memory(to, O_WRONLY);
	uint64_t source = ram_address(from), target = ram_address(to);
	_cleanup_free_ char *piece = malloc(PIECE), *none = calloc(1, PIECE);

	for (uint64_t at = 0; at < small_machine.ram_bytes; at += PIECE) {
		assert_int_equal(pread(in, piece, PIECE, (off_t)(source + at)), PIECE);
		if (memcmp(piece, none, PIECE) != 0)
			assert_int_equal(pwrite(out, piece, PIECE, (off_t)(target + at)), PIECE);
	}
}

static int state_file(int flags)
{
	_cleanup_free_ char *path = xasprintf("%s/state", test.dir);
	int fd = open(path, flags | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

static void save_state(struct seen *seen)
{
	_cleanup_close_ int fd = state_file(O_WRONLY | O_CREAT | O_TRUNC);

	expect_done(qemu_save(seen->qemu, fd, on_verb, seen), seen);
}

static void load_state(struct seen *seen)
{
	_cleanup_close_ int fd = state_file(O_RDONLY);

	await_verb(qemu_load(seen->qemu, fd, on_verb, seen), seen);
}

static void test_saved_guest_goes_on_in_another_and_in_itself(void **state)
{
	struct seen one, other;

	(void)state;
	need_qemu();
	spawn(&one, "one", "c");
	spawn(&other, "other", NULL);
	assert_int_equal(status_of(&other), QEMU_WAITS);
	expect_done(qemu_cont(one.qemu, on_verb, &one), &one);
	await_console(&one, ".");
	expect_done(qemu_stop(one.qemu, on_verb, &one), &one);
	save_state(&one);
	copy_ram(&one, &other);
	load_state(&other);
	expect_verb(&other);
	assert_int_equal(status_of(&other), QEMU_PAUSED);
	assert_string_equal(console_of(&other), "");
	expect_done(qemu_cont(other.qemu, on_verb, &other), &other);
	expect_done(qemu_cont(one.qemu, on_verb, &one), &one);
	await_console(&other, ".");
	assert_null(strstr(other.text, "hello"));
	assert_int_equal(status_of(&one), QEMU_RUNNING);
	finish(&other);
	finish(&one);
}

static void expect_no_open_file(struct seen *seen, const char *path)
{
	_cleanup_free_ char *folder = xasprintf("/proc/%d/fd", (int)qemu_get_mark(seen->qemu).pid);
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char target[256];
	ssize_t n;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
		target[n > 0 ? n : 0] = '\0';
		if (strstr(target, path) || strstr(target, "memfd:state"))
			fail_msg("QEMU has '%s' open", target);
	}
	closedir(dir);
}

/* A QEMU that was broken into afterwards cannot change what was saved before. */
static void test_saved_state_is_out_of_its_reach(void **state)
{
	struct seen seen;

	(void)state;
	need_qemu();
	spawn(&seen, "one", "c");
	save_state(&seen);
	expect_done(qemu_prepare_save(seen.qemu, on_verb, &seen), &seen);
	save_state(&seen);
	/* Of the file in memory QEMU lets go when the guest goes on. */
	expect_done(qemu_cont(seen.qemu, on_verb, &seen), &seen);
	status_of(&seen);
	status_of(&seen);
	expect_no_open_file(&seen, test.dir);
	finish(&seen);
}

static void test_state_that_does_not_fit_is_an_error(void **state)
{
	struct seen seen;
	int fd;

	(void)state;
	need_qemu();
	fd = state_file(O_WRONLY | O_CREAT | O_TRUNC);
	assert_int_equal(write(fd, "nonsense nonsense", 17), 17);
	close(fd);
	spawn(&seen, "one", NULL);
	load_state(&seen);
	assert_int_equal(seen.err.kind, ERR_PROTOCOL);
	if (!seen.ended)
		await(&seen.ended);
	qemu_free(seen.qemu);
}

/* ---- disks ---------------------------------------------------------------------------------- */

static int make_disk(const char *name, char letter, off_t size, int flags)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", test.dir, name);
	char block[4096];
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	memset(block, letter, sizeof block);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, block, sizeof block), sizeof block);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
	fd = open(path, flags | O_CLOEXEC);
	if (fd < 0 && (flags & O_DIRECT))
		fd = open(path, (flags & ~O_DIRECT) | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void on_answer(json_t *result, const struct err *err, void *arg)
{
	struct seen *seen = arg;

	snprintf(seen->text, sizeof seen->text, "%s",
		json_is_string(result) ? json_string_value(result) : "");
	on_verb(seen->qemu, err, arg);
}

/* On the device's side of a disk: what the guest would see. */
static void block_io(struct seen *seen, const char *command)
{
	expect_done(qmp_call(seen->qemu->qmp, "human-monitor-command",
			    json_pack("{s:s}", "command-line", command), -1, on_answer, seen),
		seen);
	if (strstr(seen->text, "failed") || strstr(seen->text, "rror"))
		fail_msg("%s: %s", command, seen->text);
}

static void expect_letter(const char *name, off_t at, char letter)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", test.dir, name);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char found = 0;

	assert_int_equal(pread(fd, &found, 1, at), 1);
	assert_int_equal(found, letter);
}

static void test_placeholders_become_files(void **state)
{
	int image = -1, disk = -1;
	struct seen one, other;

	(void)state;
	need_qemu();
	spawn(&one, "one", "c");
	spawn(&other, "other", NULL);
	save_state(&one);
	finish(&one);
	load_state(&other);
	expect_verb(&other);
	image = make_disk("image", 'i', 8 << 20, O_RDONLY);
	disk = make_disk("disk", 'd', 16 << 20, O_RDWR | O_DIRECT);
	expect_done(qemu_attach(other.qemu, image, disk, on_verb, &other), &other);
	close(image);
	close(disk);
	block_io(&other, "qemu-io -d disk-ro \"read -P 0x69 0 4096\"");
	block_io(&other, "qemu-io -d disk-rw \"read -P 0x64 0 4096\"");
	block_io(&other, "qemu-io -d disk-rw \"write -P 0x65 8M 4096\"");
	expect_letter("disk", 8 << 20, 'e');
	expect_done(qemu_query_io(other.qemu, on_io, &other), &other);
	finish(&other);
}

static void test_grown_disk_is_seen(void **state)
{
	_cleanup_free_ char *path = NULL;
	struct seen seen;
	int disk;

	(void)state;
	need_qemu();
	spawn(&seen, "one", "c");
	disk = make_disk("disk", 'd', 16 << 20, O_RDWR | O_DIRECT);
	expect_done(qemu_attach(seen.qemu, -1, disk, on_verb, &seen), &seen);
	path = xasprintf("%s/disk", test.dir);
	assert_int_equal(truncate(path, 32 << 20), 0);
	expect_done(qemu_resize(seen.qemu, 32 << 20, on_verb, &seen), &seen);
	block_io(&seen, "qemu-io -d disk-rw \"write -P 0x65 24M 4096\"");
	expect_letter("disk", 24 << 20, 'e');
	close(disk);
	finish(&seen);
}

/* ---- adoption ------------------------------------------------------------------------------- */

static void adopt(struct seen *seen, const char *name, const struct qemu_mark *mark)
{
	_cleanup_free_ char *dir = xasprintf("%s/%s", test.dir, name);
	struct err err = ERR_INIT;

	*seen = (struct seen){ 0 };
	if (qemu_adopt(test.loop, dir, mark, &seen_ops, seen, &seen->qemu, &err) < 0)
		fail_msg("%s", err.message);
	await(&seen->ready);
}

static void test_next_daemon_finds_it_again(void **state)
{
	_cleanup_free_ char *moved = NULL;
	struct qemu_mark mark;
	struct seen seen;
	struct err err = ERR_INIT;
	struct qemu *none;

	(void)state;
	need_qemu();
	spawn(&seen, "one", "c");
	moved = xasprintf("%s/two", test.dir);
	assert_int_equal(qemu_rename(seen.qemu, moved, NULL), 0);
	expect_done(qemu_cont(seen.qemu, on_verb, &seen), &seen);
	mark = qemu_get_mark(seen.qemu);
	qemu_free(seen.qemu);
	adopt(&seen, "two", &mark);
	assert_false(seen.ended);
	assert_int_equal(status_of(&seen), QEMU_RUNNING);
	await_console(&seen, "hello");
	mark.start_time++;
	assert_int_equal(qemu_adopt(test.loop, moved, &mark, &seen_ops, &seen, &none, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	finish(&seen);
}

static void test_next_daemon_learns_that_the_guest_ended(void **state)
{
	struct qemu_mark mark;
	struct seen seen;

	(void)state;
	need_qemu();
	spawn(&seen, "one", "p");
	mark = qemu_get_mark(seen.qemu);
	expect_done(qemu_cont(seen.qemu, on_verb, &seen), &seen);
	qemu_free(seen.qemu);
	sleep(2);
	adopt(&seen, "one", &mark);
	await(&seen.ended);
	assert_true(seen.end.why == QEMU_END_SHUTDOWN || seen.end.why == QEMU_END_PANIC);
	expect_line(seen.console, "Kernel panic");
	qemu_free(seen.qemu);
}

/* ---- figures -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	return *(const int64_t *)a < *(const int64_t *)b   ? -1
	       : *(const int64_t *)a > *(const int64_t *)b ? 1
							   : 0;
}

static void print_figures(const char *name, int64_t *us, size_t count)
{
	qsort(us, count, sizeof *us, compare);
	print_message("%-28s p50 %6.2f ms   p95 %6.2f ms\n", name, (double)us[count / 2] / 1000,
		(double)us[count * 95 / 100] / 1000);
}

#define timed(slot, ...)                         \
	do {                                     \
		int64_t from = clock_mono_us();  \
		__VA_ARGS__;                     \
		(slot) = clock_mono_us() - from; \
	} while (0)

/* Printed with BOX_TEST_FIGURES=1. */
static void test_figures(void **state)
{
	enum { ROUNDS = 20, START, SAVE, LOAD, ATTACH, CONT, STOP, STATUS, RESIZE, STATS, KINDS };
	static const char *const names[KINDS - START] = { "start to ready", "save devices",
		"load devices", "attach image and disk", "cont", "stop", "query-status",
		"block_resize", "query-blockstats" };
	static int64_t us[KINDS][ROUNDS];
	_cleanup_close_ int image = -1, disk = -1;
	struct seen one, other;

	(void)state;
	need_qemu();
	if (!getenv("BOX_TEST_FIGURES"))
		return;
	spawn(&one, "one", "c");
	image = make_disk("image", 'i', 8 << 20, O_RDONLY);
	disk = make_disk("disk", 'd', 16 << 20, O_RDWR | O_DIRECT);
	for (int i = 0; i < ROUNDS; i++) {
		_cleanup_free_ char *dir = xasprintf("%s/other", test.dir);

		timed(us[START][i], spawn(&other, "other", NULL));
		expect_done(qemu_prepare_save(one.qemu, on_verb, &one), &one);
		timed(us[SAVE][i], save_state(&one));
		copy_ram(&one, &other);
		timed(us[LOAD][i], load_state(&other));
		timed(us[ATTACH][i],
			expect_done(qemu_attach(other.qemu, image, disk, on_verb, &other), &other));
		timed(us[CONT][i], expect_done(qemu_cont(other.qemu, on_verb, &other), &other));
		pause_ms(20);
		timed(us[STOP][i], expect_done(qemu_stop(other.qemu, on_verb, &other), &other));
		timed(us[STATUS][i], status_of(&other));
		timed(us[RESIZE][i],
			expect_done(qemu_resize(other.qemu, 16 << 20, on_verb, &other), &other));
		timed(us[STATS][i], expect_done(qemu_query_io(other.qemu, on_io, &other), &other));
		finish(&other);
		qemu_remove_dir(dir);
	}
	for (int i = START; i < KINDS; i++)
		print_figures(names[i - START], us[i], ROUNDS);
	finish(&one);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
#define row(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		row(test_qemu_has_no_privileges_and_an_empty_root),
		row(test_end_tells_what_the_guest_did),
		row(test_failed_start_says_why),
		row(test_killed_qemu_is_told_by_its_signal),
		row(test_quit_ends_it),
		row(test_guest_runs_stops_and_goes_on),
		row(test_saved_guest_goes_on_in_another_and_in_itself),
		row(test_saved_state_is_out_of_its_reach),
		row(test_state_that_does_not_fit_is_an_error),
		row(test_placeholders_become_files),
		row(test_grown_disk_is_seen),
		row(test_next_daemon_finds_it_again),
		row(test_next_daemon_learns_that_the_guest_ended),
		row(test_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_apart(run);
}
