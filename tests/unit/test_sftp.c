/* test_sftp.c - the SFTP server, request by request, in a folder of its own */
#include "guest/sftp_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { READ = 1, WRITE = 2, APPEND = 4, CREATE = 8, TRUNCATE = 16, NEW = 32 };

struct rig {
	struct sftp *sftp;
	struct buf in, out;
	struct sftp_request answer; /* its fields, behind its number */
	uint8_t type;
	uint32_t id;
	size_t mark;
};

static char folder[] = "/tmp/test-sftp-XXXXXX";

/* ---- requests and answers ------------------------------------------------------------------- */

static void begin(struct rig *rig, uint8_t type)
{
	buf_eat(&rig->in, rig->in.len);
	rig->mark = rig->in.len;
	sftp_put_u32(&rig->in, 0);
	sftp_put_u8(&rig->in, type);
	sftp_put_u32(&rig->in, ++rig->id);
}

static void begin_extended(struct rig *rig, const char *name)
{
	begin(rig, SFTP_EXTENDED);
	sftp_put_text(&rig->in, name);
}

/* Sends the request and reads its only answer. */
static uint8_t ask(struct rig *rig)
{
	uint32_t len;

	sftp_store_u32(buf_head(&rig->in) + rig->mark, (uint32_t)(rig->in.len - rig->mark - 4));
	buf_eat(&rig->out, rig->out.len);
	assert_int_equal(sftp_serve(rig->sftp, &rig->in, &rig->out, NULL), 1);
	assert_int_equal(rig->in.len, 0);
	rig->answer = (struct sftp_request){ .at = buf_head(&rig->out),
		.end = buf_head(&rig->out) + rig->out.len };
	len = sftp_get_u32(&rig->answer);
	assert_int_equal(len, rig->out.len - 4);
	rig->type = sftp_get_u8(&rig->answer);
	assert_int_equal(sftp_get_u32(&rig->answer), rig->id);
	return rig->type;
}

static enum sftp_code ask_code(struct rig *rig)
{
	assert_int_equal(ask(rig), SFTP_STATUS);
	return sftp_get_u32(&rig->answer);
}

static void put_path(struct rig *rig, const char *path)
{
	sftp_put_text(&rig->in, path);
}

static enum sftp_code ask_path(struct rig *rig, uint8_t type, const char *path)
{
	begin(rig, type);
	put_path(rig, path);
	return ask_code(rig);
}

static enum sftp_code ask_two_paths(
	struct rig *rig, uint8_t type, const char *extension, const char *one, const char *other)
{
	if (extension)
		begin_extended(rig, extension);
	else
		begin(rig, type);
	put_path(rig, one);
	put_path(rig, other);
	return ask_code(rig);
}

static enum sftp_code try_open(struct rig *rig, const char *path, uint32_t flags, uint32_t *ret)
{
	begin(rig, SFTP_OPEN);
	put_path(rig, path);
	sftp_put_u32(&rig->in, flags);
	sftp_put_u32(&rig->in, 0);
	if (ask(rig) == SFTP_STATUS)
		return sftp_get_u32(&rig->answer);
	assert_int_equal(rig->type, SFTP_HANDLE);
	assert_int_equal(sftp_get_u32(&rig->answer), 4);
	*ret = sftp_get_u32(&rig->answer);
	return SFTP_OK;
}

static uint32_t open_file(struct rig *rig, const char *path, uint32_t flags)
{
	uint32_t handle = 0;

	assert_int_equal(try_open(rig, path, flags, &handle), SFTP_OK);
	return handle;
}

static void put_handle(struct rig *rig, uint32_t handle)
{
	sftp_put_u32(&rig->in, 4);
	sftp_put_u32(&rig->in, handle);
}

static enum sftp_code ask_handle(struct rig *rig, uint8_t type, uint32_t handle)
{
	begin(rig, type);
	put_handle(rig, handle);
	return ask_code(rig);
}

static enum sftp_code write_at(struct rig *rig, uint32_t handle, uint64_t offset, const char *text)
{
	begin(rig, SFTP_WRITE);
	put_handle(rig, handle);
	sftp_put_u64(&rig->in, offset);
	sftp_put_text(&rig->in, text);
	return ask_code(rig);
}

static void begin_read(struct rig *rig, uint32_t handle, uint64_t offset, uint32_t len)
{
	begin(rig, SFTP_READ);
	put_handle(rig, handle);
	sftp_put_u64(&rig->in, offset);
	sftp_put_u32(&rig->in, len);
}

static void check_text(struct rig *rig, const char *text)
{
	size_t len;
	const uint8_t *at = sftp_get_bytes(&rig->answer, &len);

	assert_int_equal(len, strlen(text));
	assert_memory_equal(at, text, len);
}

static void check_read(struct rig *rig, uint32_t handle, uint64_t offset, const char *text)
{
	begin_read(rig, handle, offset, 1000);
	assert_int_equal(ask(rig), SFTP_DATA);
	check_text(rig, text);
}

static void make_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void check_file(const char *path, const char *text)
{
	char found[100] = "";
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	assert_int_equal(fread(found, 1, sizeof found - 1, file), strlen(text));
	assert_string_equal(found, text);
	fclose(file);
}

static int setup(void **state)
{
	struct rig *rig = xnew(struct rig);

	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	rig->sftp = sftp_new();
	if (!mkdtemp(folder) || chdir(folder) < 0)
		return -1;
	sftp_put_u32(&rig->in, 5);
	sftp_put_u8(&rig->in, SFTP_INIT);
	sftp_put_u32(&rig->in, 3);
	*state = rig;
	return sftp_serve(rig->sftp, &rig->in, &rig->out, NULL) == 1 ? 0 : -1;
}

static int teardown(void **state)
{
	struct rig *rig = *state;
	char command[100];

	sftp_free(rig->sftp);
	buf_done(&rig->in);
	buf_done(&rig->out);
	free(rig);
	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	return chdir("/") < 0 || system(command);
}

/* ---- promises ------------------------------------------------------------------------------- */

static void test_sftp_greets_with_version_3_and_extensions(void **state)
{
	struct rig *rig = *state;
	struct sftp_request hello = { .at = buf_head(&rig->out),
		.end = buf_head(&rig->out) + rig->out.len };
	unsigned count = 0;
	size_t len;

	assert_int_equal(sftp_get_u32(&hello), rig->out.len - 4);
	assert_int_equal(sftp_get_u8(&hello), SFTP_VERSION);
	assert_int_equal(sftp_get_u32(&hello), 3);
	for (; hello.at < hello.end; count++) {
		sftp_get_bytes(&hello, &len);
		sftp_get_bytes(&hello, &len);
	}
	assert_false(hello.bad);
	assert_int_equal(count, 11);
}

static void test_sftp_reads_and_writes_at_any_offset(void **state)
{
	const uint64_t far = 5ull * 1024 * 1024 * 1024;
	struct rig *rig = *state;
	uint32_t handle = open_file(rig, "file", READ | WRITE | CREATE);

	assert_int_equal(write_at(rig, handle, 0, "hello"), SFTP_OK);
	assert_int_equal(write_at(rig, handle, far, "far"), SFTP_OK);
	check_read(rig, handle, far, "far");
	check_read(rig, handle, far + 1, "ar");
	begin_read(rig, handle, far + 3, 10);
	assert_int_equal(ask_code(rig), SFTP_EOF);
	begin_read(rig, handle, 0, UINT32_MAX);
	assert_int_equal(ask(rig), SFTP_DATA);
	assert_int_equal(sftp_get_u32(&rig->answer), SFTP_DATA_MAX);
	begin_read(rig, handle, UINT64_MAX, 1);
	assert_int_equal(ask_code(rig), SFTP_BAD_MESSAGE);
	assert_int_equal(ask_handle(rig, SFTP_CLOSE, handle), SFTP_OK);
	assert_int_equal(ask_handle(rig, SFTP_CLOSE, handle), SFTP_FAILURE);
}

static void test_sftp_opens_as_the_flags_say(void **state)
{
	struct rig *rig = *state;
	uint32_t handle;

	make_file("old", "old");
	assert_int_equal(try_open(rig, "old", WRITE | CREATE | NEW, &handle), SFTP_FAILURE);
	assert_int_equal(try_open(rig, "none", READ, &handle), SFTP_NO_SUCH_FILE);
	handle = open_file(rig, "old", WRITE | APPEND);
	assert_int_equal(write_at(rig, handle, 0, "+"), SFTP_OK);
	check_file("old", "old+");
	begin_read(rig, handle, 0, 1);
	assert_int_equal(ask_code(rig), SFTP_NO_SUCH_FILE);
	handle = open_file(rig, "old", WRITE | TRUNCATE);
	check_file("old", "");
	handle = open_file(rig, "old", READ);
	assert_int_equal(write_at(rig, handle, 0, "x"), SFTP_NO_SUCH_FILE);
}

static void test_sftp_fifo_does_not_block(void **state)
{
	struct rig *rig = *state;
	uint32_t handle;

	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(try_open(rig, "fifo", WRITE, &handle), SFTP_FAILURE);
	handle = open_file(rig, "fifo", READ);
	begin_read(rig, handle, 0, 10);
	assert_int_equal(ask_code(rig), SFTP_FAILURE);
}

static void test_sftp_has_a_bound_of_handles(void **state)
{
	struct rig *rig = *state;
	uint32_t handle;

	make_file("file", "");
	for (unsigned i = 0; i < SFTP_HANDLES_MAX; i++)
		assert_int_equal(open_file(rig, "file", READ), i);
	assert_int_equal(try_open(rig, "file", READ, &handle), SFTP_FAILURE);
	assert_int_equal(ask_path(rig, SFTP_OPENDIR, "."), SFTP_FAILURE);
	assert_int_equal(ask_handle(rig, SFTP_CLOSE, 7), SFTP_OK);
	assert_int_equal(open_file(rig, "file", READ), 7);
}

static void test_sftp_sets_attributes(void **state)
{
	struct rig *rig = *state;
	struct stat st;

	make_file("file", "12345");
	begin(rig, SFTP_SETSTAT);
	put_path(rig, "file");
	sftp_put_u32(&rig->in, SFTP_ATTR_SIZE | SFTP_ATTR_OWNER | SFTP_ATTR_MODE | SFTP_ATTR_TIMES |
				       SFTP_ATTR_EXTENDED);
	sftp_put_u64(&rig->in, 2);
	sftp_put_u32(&rig->in, getuid());
	sftp_put_u32(&rig->in, getgid());
	sftp_put_u32(&rig->in, 04755);
	sftp_put_u32(&rig->in, 1000000000);
	sftp_put_u32(&rig->in, 4000000000);
	sftp_put_u32(&rig->in, 1);
	sftp_put_text(&rig->in, "who@example.org");
	sftp_put_text(&rig->in, "knows");
	assert_int_equal(ask_code(rig), SFTP_OK);
	assert_int_equal(stat("file", &st), 0);
	assert_int_equal(st.st_size, 2);
	assert_int_equal(st.st_mode, S_IFREG | 04755);
	assert_int_equal(st.st_atime, 1000000000);
	assert_int_equal(st.st_mtime, 4000000000);
	begin(rig, SFTP_STAT);
	put_path(rig, "file");
	assert_int_equal(ask(rig), SFTP_ATTRS);
	assert_int_equal(sftp_get_u32(&rig->answer), 15);
	assert_int_equal(sftp_get_u64(&rig->answer), 2);
}

static void test_sftp_rename_keeps_what_is_there(void **state)
{
	struct rig *rig = *state;

	make_file("one", "1");
	make_file("two", "2");
	assert_int_equal(ask_two_paths(rig, SFTP_RENAME, NULL, "one", "two"), SFTP_FAILURE);
	check_file("two", "2");
	assert_int_equal(ask_two_paths(rig, SFTP_RENAME, NULL, "one", "three"), SFTP_OK);
	assert_int_equal(
		ask_two_paths(rig, 0, "posix-rename@openssh.com", "three", "two"), SFTP_OK);
	check_file("two", "1");
	assert_int_equal(ask_two_paths(rig, 0, "hardlink@openssh.com", "two", "four"), SFTP_OK);
	check_file("four", "1");
	assert_int_equal(ask_path(rig, SFTP_REMOVE, "two"), SFTP_OK);
	assert_int_equal(ask_path(rig, SFTP_REMOVE, "two"), SFTP_NO_SUCH_FILE);
}

static void check_real(struct rig *rig, const char *path, const char *real)
{
	char whole[200];

	snprintf(whole, sizeof whole, *real == '/' ? "%s" : "%2$s/%1$s", real, folder);
	begin(rig, SFTP_REALPATH);
	put_path(rig, path);
	assert_int_equal(ask(rig), SFTP_NAME);
	assert_int_equal(sftp_get_u32(&rig->answer), 1);
	check_text(rig, whole);
}

static void test_sftp_real_paths_and_links(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(mkdir("a", 0777), 0);
	/* Where it leads comes first. */
	assert_int_equal(ask_two_paths(rig, SFTP_SYMLINK, NULL, "a/../a", "link"), SFTP_OK);
	assert_int_equal(ask_two_paths(rig, SFTP_SYMLINK, NULL, "/", "root"), SFTP_OK);
	assert_int_equal(ask_two_paths(rig, SFTP_SYMLINK, NULL, "loop", "loop"), SFTP_OK);
	begin(rig, SFTP_READLINK);
	put_path(rig, "link");
	assert_int_equal(ask(rig), SFTP_NAME);
	assert_int_equal(sftp_get_u32(&rig->answer), 1);
	check_text(rig, "a/../a");
	check_real(rig, "/", "/");
	check_real(rig, "/..//../.", "/");
	check_real(rig, "", folder);
	check_real(rig, "a/..", folder);
	check_real(rig, "link//none/", "a/none");
	check_real(rig, "root/tmp", "/tmp");
	check_real(rig, "root", "/");
	assert_int_equal(ask_path(rig, SFTP_REALPATH, "a/none/none"), SFTP_NO_SUCH_FILE);
	assert_int_equal(ask_path(rig, SFTP_REALPATH, "loop"), SFTP_NO_SUCH_FILE);
}

static unsigned list(struct rig *rig, const char *wanted, char *line, size_t size)
{
	uint32_t handle, count, seen = 0;
	char name[300];
	size_t len;

	begin(rig, SFTP_OPENDIR);
	put_path(rig, ".");
	assert_int_equal(ask(rig), SFTP_HANDLE);
	sftp_get_u32(&rig->answer);
	handle = sftp_get_u32(&rig->answer);
	for (;;) {
		begin(rig, SFTP_READDIR);
		put_handle(rig, handle);
		if (ask(rig) == SFTP_STATUS)
			break;
		assert_true(rig->out.len < 34000);
		for (count = sftp_get_u32(&rig->answer); count; count--, seen++) {
			sftp_get_text(&rig->answer, name, sizeof name);
			if (!strcmp(name, wanted))
				sftp_get_text(&rig->answer, line, size);
			else
				sftp_get_bytes(&rig->answer, &len);
			rig->answer.at += 32; /* its attributes */
		}
		assert_false(rig->answer.bad || rig->answer.at != rig->answer.end);
	}
	assert_int_equal(sftp_get_u32(&rig->answer), SFTP_EOF);
	assert_int_equal(ask_handle(rig, SFTP_CLOSE, handle), SFTP_OK);
	return seen;
}

static void test_sftp_lists_folders_of_any_size(void **state)
{
	const struct timespec times[2] = { { .tv_sec = 86400 * 3 }, { .tv_sec = 86400 * 3 } };
	struct rig *rig = *state;
	char name[32], line[512] = "", end[64];

	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "file %u \xff\n", i);
		make_file(name, "abc");
	}
	assert_int_equal(chmod("file 5 \xff\n", 01640), 0);
	assert_int_equal(utimensat(AT_FDCWD, "file 5 \xff\n", times, 0), 0);
	assert_int_equal(list(rig, "file 5 \xff\n", line, sizeof line), 1002);
	assert_memory_equal(line, "-rw-r----T   1 ", 15);
	snprintf(end, sizeof end, "        3 Jan  4  1970 file 5 \xff\n");
	assert_string_equal(line + strlen(line) - strlen(end), end);
}

static void test_sftp_copies_inside(void **state)
{
	struct rig *rig = *state;
	uint32_t from, to;

	make_file("from", "0123456789");
	make_file("to", "abc");
	from = open_file(rig, "from", READ);
	to = open_file(rig, "to", WRITE);
	for (unsigned round = 0; round < 3; round++) {
		begin_extended(rig, "copy-data");
		put_handle(rig, from);
		sftp_put_u64(&rig->in, 2);
		sftp_put_u64(&rig->in, round == 0 ? 3 : round == 1 ? 0 : 100);
		put_handle(rig, to);
		sftp_put_u64(&rig->in, 3);
		assert_int_equal(ask_code(rig), round == 2 ? SFTP_EOF : SFTP_OK);
		check_file("to", round == 0 ? "abc234" : "abc23456789");
	}
	begin_extended(rig, "copy-data");
	put_handle(rig, from);
	sftp_put_u64(&rig->in, 0);
	sftp_put_u64(&rig->in, 0);
	put_handle(rig, from);
	sftp_put_u64(&rig->in, 0);
	assert_int_equal(ask_code(rig), SFTP_FAILURE);
}

static void test_sftp_tells_names_and_homes(void **state)
{
	struct rig *rig = *state;

	begin_extended(rig, "users-groups-by-id@openssh.com");
	sftp_put_u32(&rig->in, 8);
	sftp_put_u32(&rig->in, 0);
	sftp_put_u32(&rig->in, 4000000000);
	sftp_put_u32(&rig->in, 4);
	sftp_put_u32(&rig->in, 0);
	assert_int_equal(ask(rig), SFTP_EXTENDED_REPLY);
	assert_int_equal(sftp_get_u32(&rig->answer), 12);
	check_text(rig, "root");
	check_text(rig, "");
	assert_int_equal(sftp_get_u32(&rig->answer), 8);
	check_text(rig, "root");
	/* More than fit an answer. */
	begin_extended(rig, "users-groups-by-id@openssh.com");
	sftp_put_u32(&rig->in, 8000);
	for (unsigned i = 0; i < 2000; i++)
		sftp_put_u32(&rig->in, i);
	sftp_put_u32(&rig->in, 0);
	assert_int_equal(ask_code(rig), SFTP_FAILURE);
	begin_extended(rig, "home-directory");
	put_path(rig, "root");
	assert_int_equal(ask(rig), SFTP_NAME);
	assert_int_equal(sftp_get_u32(&rig->answer), 1);
	check_text(rig, "/root");
	begin_extended(rig, "expand-path@openssh.com");
	put_path(rig, "~root/../etc/.");
	assert_int_equal(ask(rig), SFTP_NAME);
	assert_int_equal(sftp_get_u32(&rig->answer), 1);
	check_text(rig, "/etc");
}

static void test_sftp_says_what_it_does_not_know(void **state)
{
	struct rig *rig = *state;
	char path[SFTP_PATH_MAX + 2] = "";

	begin(rig, 99);
	assert_int_equal(ask_code(rig), SFTP_UNSUPPORTED);
	begin_extended(rig, "unheard-of@example.org");
	assert_int_equal(ask_code(rig), SFTP_UNSUPPORTED);
	/* Cut short, with a NUL, too long. */
	begin(rig, SFTP_OPEN);
	put_path(rig, "file");
	assert_int_equal(ask_code(rig), SFTP_BAD_MESSAGE);
	begin(rig, SFTP_REMOVE);
	sftp_put_bytes(&rig->in, "a\0b", 3);
	assert_int_equal(ask_code(rig), SFTP_BAD_MESSAGE);
	memset(path, 'x', sizeof path - 1);
	assert_int_equal(ask_path(rig, SFTP_REMOVE, path), SFTP_BAD_MESSAGE);
	begin(rig, SFTP_REMOVE);
	sftp_put_u32(&rig->in, UINT32_MAX);
	assert_int_equal(ask_code(rig), SFTP_BAD_MESSAGE);
	assert_int_equal(ask_handle(rig, SFTP_READDIR, 0), SFTP_FAILURE);
	assert_int_equal(ask_handle(rig, SFTP_FSTAT, UINT32_MAX), SFTP_FAILURE);
}

static int serve_bytes(struct sftp *sftp, uint32_t len, const void *data, size_t data_len)
{
	struct buf in = BUF_INIT, out = BUF_INIT;
	int got;

	sftp_put_u32(&in, len);
	buf_add(&in, data, data_len);
	got = sftp_serve(sftp, &in, &out, NULL);
	buf_done(&in);
	buf_done(&out);
	return got;
}

static void test_sftp_ends_when_it_is_another_protocol(void **state)
{
	struct rig *rig = *state;
	struct sftp *fresh = sftp_new();

	assert_int_equal(serve_bytes(rig->sftp, SFTP_PACKET_MAX + 1, "", 0), -1);
	assert_int_equal(serve_bytes(rig->sftp, SFTP_PACKET_MAX, "", 0), 0);
	assert_int_equal(serve_bytes(rig->sftp, 0, "", 0), -1);
	assert_int_equal(serve_bytes(rig->sftp, 4, "\3\0\0\0", 4), -1);
	/* A second greeting, and a request before the first. */
	assert_int_equal(serve_bytes(rig->sftp, 5, "\1\0\0\0\3", 5), -1);
	assert_int_equal(serve_bytes(fresh, 9, "\21\0\0\0\1\0\0\0\0", 9), -1);
	sftp_free(fresh);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_FOLDER(test_sftp_greets_with_version_3_and_extensions),
		IN_FOLDER(test_sftp_reads_and_writes_at_any_offset),
		IN_FOLDER(test_sftp_opens_as_the_flags_say),
		IN_FOLDER(test_sftp_fifo_does_not_block),
		IN_FOLDER(test_sftp_has_a_bound_of_handles),
		IN_FOLDER(test_sftp_sets_attributes),
		IN_FOLDER(test_sftp_rename_keeps_what_is_there),
		IN_FOLDER(test_sftp_real_paths_and_links),
		IN_FOLDER(test_sftp_lists_folders_of_any_size),
		IN_FOLDER(test_sftp_copies_inside),
		IN_FOLDER(test_sftp_tells_names_and_homes),
		IN_FOLDER(test_sftp_says_what_it_does_not_know),
		IN_FOLDER(test_sftp_ends_when_it_is_another_protocol),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
