/* test_criu_rpc.c - the messages to and from CRIU, byte by byte, its logs, and changes of its
 * images */
#include "base/file.h"
#include "engine/ns/criu/criu_image.h"
#include "engine/ns/criu/criu_internal.h"
#include "engine/ns/criu/criu_rpc.h"
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <cmocka.h>

static void expect_bytes(struct buf *got, const void *want, size_t len)
{
	assert_int_equal(got->len, len);
	assert_memory_equal(buf_head(got), want, len);
	buf_done(got);
}
#define EXPECT_BYTES(got, text) expect_bytes(got, text, sizeof(text) - 1)

/* ---- writing: the bytes are those of CRIU's own rpc.proto, as protoc reads them ------------- */

static void test_criu_rpc_small_requests(void **state)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	struct buf out = BUF_INIT;

	(void)state;
	criu_rpc_put_request(&out, CRIU_TYPE_VERSION, &request);
	EXPECT_BYTES(&out, "\x08\x0a");
	criu_rpc_put_request(&out, CRIU_TYPE_CHECK, &request);
	EXPECT_BYTES(&out, "\x08\x03");
	criu_rpc_put_notified(&out, true);
	EXPECT_BYTES(&out, "\x08\x06\x18\x01");
	criu_rpc_put_notified(&out, false);
	EXPECT_BYTES(&out, "\x08\x06\x18\x00");
}

static void test_criu_rpc_plain_dump_and_restore(void **state)
{
	struct criu_request request = CRIU_REQUEST_INIT;
	struct buf out = BUF_INIT;

	(void)state;
	request.images = 7;
	request.pid = 300;
	criu_rpc_put_request(&out, CRIU_TYPE_DUMP, &request);
	EXPECT_BYTES(&out, "\x08\x01\x12\x19\x08\x07\x10\xac\x02\x48\x01\x52\x08"
			   "dump.log"
			   "\x60\x01\x90\x02\x00\x80\x04\x03");
	request.work = 8;
	criu_rpc_put_request(&out, CRIU_TYPE_RESTORE, &request);
	EXPECT_BYTES(&out, "\x08\x02\x12\x1f\x08\x07\x48\x01\x52\x0b"
			   "restore.log"
			   "\x60\x01\x88\x01\x08\xd0\x01\x01\x90\x02\x00\x80\x04\x03");
}

static bool has(struct buf *out, const char *bytes, size_t len)
{
	return memmem(buf_head(out), out->len, bytes, len) != NULL;
}

/* Each option alone: what it adds to a plain request. */
static void test_criu_rpc_every_option(void **state)
{
	static const char *const two[] = { "a", "bc", NULL };
	static const struct criu_inherit inherit[] = { { "pipe:[12]", 9 } };
#define OPTION(bytes, ...)                                                         \
	{                                                                          \
		{ .images = 7, .work = -1, __VA_ARGS__ }, bytes, sizeof(bytes) - 1 \
	}
	static const struct {
		struct criu_request request;
		const char *bytes;
		size_t len;
	} rows[] = {
		OPTION("\x18\x01", .leave_running = true),
		OPTION("\x20\x01", .ext_unix_sk = true),
		OPTION("\x28\x01", .tcp_established = true),
		OPTION("\x40\x01", .file_locks = true),
		OPTION("\x6a\x04/mnt", .root = "/mnt"),
		OPTION("\x80\x01\x01", .auto_dedup = true),
		OPTION("\x90\x01\x01", .link_remap = true),
		OPTION("\xa8\x01\x01", .force_irmap = true),
		OPTION("\xda\x01\x0d\x0a\x09pipe:[12]\x10\x09", .inherit = inherit,
			.inherit_count = 1),
		OPTION("\xfa\x01\x01"
		       "a"
		       "\xfa\x01\x02"
		       "bc",
			.skip_mounts = two),
		OPTION("\x82\x02\x01"
		       "a"
		       "\x82\x02\x02"
		       "bc",
			.enable_fs = two),
		OPTION("\x98\x02\x80\x80\x80\x20", .ghost_limit = 64 << 20),
		OPTION("\xa2\x02\x01"
		       "a"
		       "\xa2\x02\x02"
		       "bc",
			.irmap_paths = two),
		OPTION("\xaa\x02\x01"
		       "a"
		       "\xaa\x02\x02"
		       "bc",
			.external = two),
		OPTION("\xb0\x02\x80\x80\x80\x80\x04", .empty_ns = CLONE_NEWNET),
		OPTION("\xe2\x02\x02/g", .freeze_cgroup = "/g"),
		OPTION("\xe8\x02\xac\x02", .seize_seconds = 300),
		OPTION("\xf0\x02\x01", .tcp_skip_in_flight = true),
		OPTION("\xf8\x02\x01", .weak_sysctls = true),
		OPTION("\x80\x03\x01", .lazy_pages = true),
		OPTION("\x90\x03\x01", .orphan_pts_master = true),
		OPTION("\xa0\x03\x01", .tcp_close = true),
		OPTION("\xaa\x03\x01p", .lsm_profile = "p"),
		OPTION("\x88\x04\x01", .mntns_compat_mode = true),
		OPTION("\x90\x04\x01", .skip_file_rwx_check = true),
	};
	struct criu_request plain = { .images = 7, .work = -1 };
	struct buf before = BUF_INIT;

	(void)state;
	criu_rpc_put_request(&before, CRIU_TYPE_RESTORE, &plain);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct buf out = BUF_INIT;

		criu_rpc_put_request(&out, CRIU_TYPE_RESTORE, &rows[i].request);
		if (!has(&out, rows[i].bytes, rows[i].len) || out.len != before.len + rows[i].len)
			fail_msg("option %zu is wrong", i);
		buf_done(&out);
	}
	buf_done(&before);
}

/* ---- reading -------------------------------------------------------------------------------- */

static int read_reply(const char *bytes, size_t len, struct criu_reply *ret)
{
	/* A copy of exactly this size: a sanitizer sees a byte too many. */
	char *copy = xmemdup(bytes, len ? len : 1);
	struct err err = ERR_INIT;
	int status = criu_rpc_get_reply(copy, len, ret, &err);

	if (status < 0)
		assert_int_equal(err.kind, ERR_PROTOCOL);
	free(copy);
	return status;
}
#define READ(text, reply) read_reply(text, sizeof(text) - 1, reply)

static void test_criu_rpc_good_replies(void **state)
{
	struct criu_reply reply;

	(void)state;
	assert_int_equal(READ("\x08\x01\x10\x01\x1a\x02\x08\x00", &reply), 0);
	assert_int_equal(reply.type, CRIU_TYPE_DUMP);
	assert_true(reply.success);
	assert_int_equal(READ("\x08\x02\x10\x01\x22\x03\x08\xac\x02", &reply), 0);
	assert_int_equal(reply.pid, 300);
	/* A failed restore has pid -1. */
	assert_int_equal(
		READ("\x08\x02\x10\x00\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x38\x11",
			&reply),
		0);
	assert_false(reply.success);
	assert_int_equal(reply.errno_value, 17);
	assert_int_equal(READ("\x08\x06\x10\x01\x2a\x0a\x0a\x08pre-dump", &reply), 0);
	assert_string_equal(reply.script, "pre-dump");
	assert_int_equal(reply.pid, 0);
	assert_int_equal(READ("\x08\x06\x10\x01\x2a\x0d\x0a\x08setup-ns\x10\xac\x02", &reply), 0);
	assert_int_equal(reply.pid, 300);
	assert_int_equal(READ("\x08\x0a\x10\x01\x52\x06\x08\x04\x10\x02\x20\x01", &reply), 0);
	assert_int_equal(reply.version.major, 4);
	assert_int_equal(reply.version.minor, 2);
	assert_int_equal(reply.version.sublevel, 1);
	assert_int_equal(READ("\x08\x00\x10\x00\x4a\x0bno\x1b[31m \xc3\xbc\n", &reply), 0);
	assert_string_equal(reply.text, "no?[31m ??");
}

static void test_criu_rpc_passes_over_what_it_does_not_know(void **state)
{
	struct criu_reply reply;

	(void)state;
	assert_int_equal(READ("\x08\x01\xf8\x07\x05\x10\x01\xfa\x07\x03xyz\xf9\x07"
			      "12345678\xfd\x07"
			      "1234",
				 &reply),
		0);
	assert_true(reply.success);
}

static void test_criu_rpc_refuses_hostile_replies(void **state)
{
#define ROW(text)                      \
	{                              \
		text, sizeof(text) - 1 \
	}
	static const struct {
		const char *bytes;
		size_t len;
	} rows[] = {
		ROW(""), ROW("\x08"), ROW("\x08\x01"),	 /* success is missing */
		ROW("\x10\x01"),			 /* the type is missing */
		ROW("\x08\x01\x10\x01\x08\x02"),	 /* the type twice */
		ROW("\x08\x07\x10\x01"),		 /* a type we did not ask for */
		ROW("\x08\xff\xff\xff\xff\x7f\x10\x01"), /* over 32 bits */
		ROW("\x08\x01\x10\x02"),		 /* neither true nor false */
		ROW("\x0a\x01\x01\x10\x01"),		 /* the type as bytes */
		ROW("\x08\x01\x10\x01\x00\x00"),	 /* field 0 */
		ROW("\x08\x01\x10\x01\x1b"),		 /* a group */
		ROW("\x08\x01\x10\x01\x1f"),		 /* no such wire type */
		ROW("\x08\x01\x10\x01\xf8\x07"),	 /* cut off in a value */
		/* a key without end */
		ROW("\x08\x01\x10\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00"),
		/* over 64 bits */
		ROW("\x08\x01\x10\x01\xf8\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
		ROW("\x08\x01\x10\x01\x4a\x05"
		    "1234"), /* text longer than the message */
		ROW("\x08\x01\x10\x01\x4a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
		    "1234"),
		ROW("\x08\x01\x10\x01\xf9\x07"
		    "1234567"),				 /* 64 bits, 56 there */
		ROW("\x08\x02\x10\x01"),		 /* restored, but no pid */
		ROW("\x08\x02\x10\x01\x22\x02\x08\x00"), /* restored pid 0 */
		ROW("\x08\x02\x10\x01\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff"
		    "\x01"),		 /* restored -1: everybody */
		ROW("\x08\x06\x10\x01"), /* an event without a name */
		ROW("\x08\x06\x10\x01\x2a\x02\x0a\x00"),
		ROW("\x08\x06\x10\x01\x2a\x05\x0a\x03"
		    "a b"),
		ROW("\x08\x06\x10\x01\x2a\x05\x0a\x03"
		    "a\0b"),
		ROW("\x08\x06\x10\x00\x2a\x0a\x0a\x08pre-dump"), /* an event that failed */
		ROW("\x08\x06\x10\x01\x2a\x15\x0a\x08pre-"
		    "dump\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		ROW("\x08\x00\x10\x01"),		 /* nothing succeeded */
		ROW("\x08\x0a\x10\x01\x52\x02\x08\x04"), /* half a version */
	};
	struct criu_reply reply;
	_cleanup_free_ char *large = xcalloc(1, CRIU_MESSAGE_MAX + 1);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (read_reply(rows[i].bytes, rows[i].len, &reply) == 0)
			fail_msg("row %zu was taken", i);
	assert_int_equal(read_reply(large, CRIU_MESSAGE_MAX + 1, &reply), -1);
}

static void test_criu_rpc_bounds_texts(void **state)
{
	struct buf in = BUF_INIT;
	struct criu_reply reply;
	char name[CRIU_SCRIPT_MAX + 1];

	(void)state;
	buf_add(&in, "\x08\x01\x10\x00\x4a\xe8\x07", 7);
	for (int i = 0; i < 1000; i++)
		buf_add(&in, "x", 1);
	assert_int_equal(read_reply((char *)buf_head(&in), in.len, &reply), 0);
	assert_int_equal(strlen(reply.text), CRIU_TEXT_MAX - 1);
	buf_done(&in);
	memset(name, 'a', sizeof name);
	buf_add(&in, "\x08\x06\x10\x01\x2a\x42\x0a\x40", 8);
	buf_add(&in, name, 64);
	assert_int_equal(read_reply((char *)buf_head(&in), in.len, &reply), -1);
	buf_done(&in);
}

/* ---- logs ----------------------------------------------------------------------------------- */

static void test_criu_log_ends_on_whole_printable_lines(void **state)
{
	_cleanup_close_ int fd = memfd_create("log", MFD_CLOEXEC);
	char log[CRIU_LOG_MAX], line[64];

	(void)state;
	criu_log_tail(fd, NULL, log);
	assert_string_equal(log, "");
	for (int i = 0; i < 2000; i++)
		dprintf(fd, "(00.%06d) line\n", i);
	dprintf(fd, "(00.1)      7: Error (criu/files.c:12): Can't dump \x1b]0;\xff name\nlast\n");
	criu_log_tail(fd, NULL, log);
	assert_true(strlen(log) > CRIU_LOG_MAX - 200);
	assert_memory_equal(log, "(00.", 4);
	assert_non_null(strstr(log, "Can't dump ?]0;? name\nlast\n"));
	criu_log_error(log, line, sizeof line);
	assert_string_equal(line, "Can't dump ?]0;? name");
	criu_log_error("all is well\n", line, sizeof line);
	assert_string_equal(line, "");
	criu_log_error("Error (cut", line, sizeof line);
	assert_string_equal(line, "Error (cut");
	criu_log_error("Error (cut\nx): y", line, sizeof line);
	assert_string_equal(line, "Error (cut");
}

/* Lines as CRIU 4.2 writes them, and what is said instead. */
static void test_criu_explain_tells_people(void **state)
{
	static const struct {
		const char *log, *want;
	} cases[] = {
		{ "(00.011922) Error (criu/sk-unix.c:881): unix: Can't dump half of stream unix "
		  "connection. "
		  "name: /run/x; peer name: (null)\n",
			"a unix socket is connected to something outside the box" },
		{ "(00.011922) Error (criu/sk-unix.c:881): Can't dump half of stream unix "
		  "connection. name: "
		  "(null); peer name: /tmp/s\n(00.02) Error (criu/cr-dump.c:1768): Dump files "
		  "(pid: 9) failed "
		  "with -1\n",
			"a unix socket is connected to something outside the box" },
		{ "(00.007) Error (criu/files-ext.c:94): Can't dump file 21 of that type [600] "
		  "(anon "
		  "anon_inode:[io_uring])\n",
			"a process uses io_uring" },
		{ "(00.007) Error (criu/files-ext.c:94): Can't dump file 5 of that type [600] "
		  "(anon "
		  "anon_inode:[odd])\n",
			"a process has a file of the kind [odd] open" },
		{ "(00.007) Error (criu/files-ext.c:94): Can't dump file 5 of that type [20666] "
		  "(chr "
		  "10:229)\n",
			"a process has a device open (character device 10:229)" },
		{ "(00.004) Error (criu/namespaces.c:460): Can't dump nested pid namespace for "
		  "812\n"
		  "(00.004) Error (criu/namespaces.c:700): Can't make pidns id\n",
			"a process has a pid namespace of its own" },
		{ "(00.003) Error (compel/src/lib/infect.c:262): Unseizable non-zombie 77 found, "
		  "state t, err "
		  "-1/10\n",
			"a process is traced by another one, such as a debugger" },
		{ "(00.01) Error (criu/fsnotify.c:284):  Can't dump that handle\n",
			"a file watched with inotify or fanotify could not be found by its name" },
		{ "(00.01) Error (criu/fsnotify.c:284): fsnotify:  Can't dump that handle\n",
			"a file watched with inotify or fanotify could not be found by its name" },
		{ "(00.01) Error (criu/tty.c:410): tty: Found slave peer index 3 without "
		  "correspond master "
		  "peer\n",
			"a terminal's other end is outside the box" },
		{ "(00.1) Error (criu/files-reg.c:1031): Can't dump ghost file /tmp/a b of "
		  "99999999 size, "
		  "increase limit\n",
			"a removed file that is still open is too large: /tmp/a b" },
		{ "(00.1)     17: Error (criu/files-reg.c:2175): File var/log/x has bad size 5 "
		  "(expect 4)\n",
			"process 17: the file var/log/x has changed since" },
		{ "Error (criu/files-ext.c:94): Can't dump file 21 of that type [600] (anon "
		  "anon_inode:[io_uring])\nError (criu/cr-dump.c:2095): In process 17 (node)\n",
			"process 17 (node) uses io_uring" },
		{ "Error (criu/include/criu-landlock.c:130): Landlock restricts a thread\n"
		  "Error (criu/cr-dump.c:2095): In process 17 (xz)\n",
			"process 17 (xz) has restricted itself with Landlock, which nobody can "
			"read back" },
		{ "Error (criu/cr-dump.c:9): Timeout reached\nError (criu/x.c:1): In process 0 "
		  "(gone)\n"
		  "Error (criu/x.c:1): In process 4 (a\x01(b)\n",
			"process 4 (a?(b): the processes did not stop in time" },
		{ "(00.1) Error (criu/sk-inet.c:137): inet: Unsupported proto 262 for socket 1f\n",
			"a process uses Multipath TCP" },
		{ "(00.1) Error (criu/x.c:1): something new\n", "" },
		{ "(00.1) Warn  (criu/x.c:1): Timeout reached\n", "" },
		{ "(00.0) Error (criu/rlimit.c:3): rlimit: RLIMIT_NOFILE: Can't dump nested x "
		  "namespace\n",
			"" },
		{ "", "" },
	};
	char words[CRIU_TEXT_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(
			criu_explain(cases[i].log, words, sizeof words), cases[i].want[0] != '\0');
		assert_string_equal(words, cases[i].want);
	}
	/* A name of a process's choice is no message. */
	assert_false(criu_explain(
		"Error (criu/x.c:1): No file Timeout reached: here\n", words, sizeof words));
	assert_true(criu_explain("Error (criu/files-reg.c:2): File ", words, 4) == false);
	assert_true(criu_explain("Error (c): Timeout reached", words, 4));
	assert_string_equal(words, "the");
}

static void test_criu_log_of_a_pipe_or_nothing_is_empty(void **state)
{
	int ends[2];
	char log[CRIU_LOG_MAX];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	criu_log_tail(ends[0], NULL, log);
	assert_string_equal(log, "");
	criu_log_tail(ends[0], "dump.log", log);
	assert_string_equal(log, "");
	close(ends[0]);
	close(ends[1]);
}

/* ---- images: the bytes are CRIU's own ------------------------------------------------------- */

static void expect_file(int dir, const char *name, const char *want, size_t len)
{
	_cleanup_free_ char *text = NULL;
	size_t got;

	assert_int_equal(file_read(dir, name, 4096, &text, &got, NULL), 0);
	assert_int_equal(got, len);
	assert_memory_equal(text, want, len);
}

static void test_criu_image_changes_users_and_name_of_one_child(void **state)
{
	static const char users[] =
		"\x19\x43VT\x06IGU\x40\0\0\0"
		"\x0a\x0c\x08\x00\x10\x80\x80\x88\x80\x04\x18\x80\x80\x08"
		"\x0a\x10\x08\x80\x80\x08\x10\x80\x80\x80\x80\x08\x18\x80\x80\xf8\xff\x07"
		"\x12\x0c\x08\x00\x10\x80\x80\x88\x80\x04\x18\x80\x80\x08"
		"\x12\x10\x08\x80\x80\x08\x10\x80\x80\x80\x80\x08\x18\x80\x80\xf8\xff\x07";
	static const struct idmap_extent extents[] = { { 0, 1073872896, 131072 },
		{ 131072, 0x80000000u, 0x7ffe0000u } };
	static const char name[] = "\x19\x43VT\x03\x32GT\x0d\0\0\0\x0a\x03"
				   "ada\x12\x06(none)";
	char path[] = "/tmp/box-test-criu-image-XXXXXX";
	struct err err = ERR_INIT;
	int dir;

	(void)state;
	assert_non_null(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(criu_image_set_users(dir, extents, 1, &err), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(file_write_atomic(dir, "userns-15.img", "old", 3, 0600, &err), 0);
	assert_int_equal(file_write_atomic(dir, "userns-x.img", "other", 5, 0600, &err), 0);
	assert_int_equal(file_write_atomic(dir, "utsns-12.img", "old", 3, 0600, &err), 0);
	assert_int_equal(linkat(dir, "userns-15.img", dir, "elsewhere", 0), 0);
	assert_int_equal(criu_image_set_users(dir, extents, ARRAY_LEN(extents), &err), 0);
	expect_file(dir, "userns-15.img", users, sizeof users - 1);
	expect_file(dir, "elsewhere", "old", 3);
	expect_file(dir, "userns-x.img", "other", 5);
	assert_int_equal(criu_image_set_hostname(dir, "ada", &err), 0);
	expect_file(dir, "utsns-12.img", name, sizeof name - 1);
	assert_int_equal(file_write_atomic(dir, "utsns-13.img", "old", 3, 0600, &err), 0);
	assert_int_equal(criu_image_set_hostname(dir, "ada", &err), -1);
	assert_int_equal(err.kind, ERR_INVALID);
	close(dir);
	assert_int_equal(tree_remove(AT_FDCWD, path, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_criu_rpc_small_requests),
		cmocka_unit_test(test_criu_rpc_plain_dump_and_restore),
		cmocka_unit_test(test_criu_rpc_every_option),
		cmocka_unit_test(test_criu_rpc_good_replies),
		cmocka_unit_test(test_criu_rpc_passes_over_what_it_does_not_know),
		cmocka_unit_test(test_criu_rpc_refuses_hostile_replies),
		cmocka_unit_test(test_criu_rpc_bounds_texts),
		cmocka_unit_test(test_criu_explain_tells_people),
		cmocka_unit_test(test_criu_log_ends_on_whole_printable_lines),
		cmocka_unit_test(test_criu_log_of_a_pipe_or_nothing_is_empty),
		cmocka_unit_test(test_criu_image_changes_users_and_name_of_one_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
