/* test_untar.c - what mktar packs untar unpacks; and an archive made by an attacker stays in its
 * folder */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "cli/mktar.h"
#include "cli/untar.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

struct place {
	char dir[64];
	int target; /* dir/target */
};

static int setup(void **state)
{
	struct place *place = xnew(struct place);

	umask(022);
	strcpy(place->dir, "/tmp/test-untar-XXXXXX");
	assert_non_null(mkdtemp(place->dir));
	assert_int_equal(chdir(place->dir), 0);
	assert_int_equal(mkdir("target", 0755), 0);
	place->target = open("target", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(place->target >= 0);
	*state = place;
	return 0;
}

static int teardown(void **state)
{
	struct place *place = *state;

	close(place->target);
	if (chdir("/") == 0)
		tree_remove(AT_FDCWD, place->dir, NULL);
	free(place);
	return 0;
}

static void write_text(const char *path, const char *text, mode_t mode)
{
	assert_int_equal(file_write_atomic(AT_FDCWD, path, text, strlen(text), mode, NULL), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void assert_text(const char *path, const char *expected)
{
	_cleanup_free_ char *text = NULL;
	struct err err = ERR_INIT;

	if (file_read(AT_FDCWD, path, 1 << 20, &text, NULL, &err) < 0)
		fail_msg("%s", err.message);
	assert_string_equal(text, expected);
}

/* ---- archives made by hand ------------------------------------------------------------------- */

static void put_field(char *field, size_t size, unsigned long long value)
{
	char text[32];

	snprintf(text, sizeof text, "%0*llo", (int)size - 1, value);
	memcpy(field, text, size);
}

static void put_member(
	struct buf *out, char type, const char *name, const char *link, const char *content)
{
	char block[512] = { 0 };
	size_t len = strlen(content);
	unsigned sum = 0;

	strncpy(block, name, 100);
	put_field(block + 100, 8, 06755);
	put_field(block + 108, 8, 0);
	put_field(block + 116, 8, 0);
	put_field(block + 124, 12, len);
	put_field(block + 136, 12, 1000);
	memset(block + 148, ' ', 8);
	block[156] = type;
	strncpy(block + 157, link, 100);
	memcpy(block + 257,
		"ustar\0"
		"00",
		8);
	for (size_t i = 0; i < sizeof block; i++)
		sum += (unsigned char)block[i];
	put_field(block + 148, 7, sum);
	buf_add(out, block, sizeof block);
	memset(block, 0, sizeof block);
	buf_add(out, content, len);
	buf_add(out, block, (512 - len % 512) % 512);
}

static void put_end(struct buf *out)
{
	static const char zeros[1024];

	buf_add(out, zeros, sizeof zeros);
}

/* Feeds in pieces of step bytes and forgets the archive. */
static int unpack(struct place *place, const char *top, bool preserve, struct buf *archive,
	size_t step, struct err *err)
{
	struct untar_spec spec = { .dir_fd = place->target, .top = top, .preserve = preserve };
	struct untar *untar = untar_new(&spec);
	int result = 0;

	while (result == 0 && archive->len) {
		size_t take = MIN(step, archive->len);

		result = untar_feed(untar, buf_head(archive), take, err);
		buf_eat(archive, take);
	}
	if (result == 0)
		result = untar_finish(untar, err);
	untar_free(untar);
	buf_done(archive);
	return result;
}

static void assert_refused(struct place *place, struct buf *archive)
{
	struct err err = ERR_INIT;

	put_end(archive);
	assert_int_equal(unpack(place, NULL, false, archive, 512, &err), -1);
	assert_true(err.message[0]);
	assert_int_equal(access("outside", F_OK), -1);
}

/* ---- promises ------------------------------------------------------------------------------- */

static void pack(const char *path, const char *top, struct buf *out)
{
	struct mktar_spec spec = { .path = path, .top = top };
	struct mktar *tar;
	int64_t got;

	assert_int_equal(mktar_open(&spec, &tar, NULL), 0);
	while ((got = mktar_read(tar, buf_room(out, 700), 700, NULL)) > 0)
		buf_grew(out, (size_t)got);
	assert_int_equal(got, 0);
	mktar_close(tar);
}

static void test_untar_gives_back_what_mktar_packed(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct err err = ERR_INIT;
	struct stat status;
	char target[PATH_MAX];
	_cleanup_free_ char *long_name = xasprintf("src/%0120d", 7),
			    *copied = xasprintf("target/dst/%0120d", 7);
	static const size_t steps[] = { 1, 7, 512, 100000 };

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		dir_make_all("src/a/b", 0755, NULL);
		write_text("src/a/b/file", "hello", 0750);
		write_text("src/empty", "", 0644);
		write_text(long_name, "long", 0644);
		symlink("../nowhere", "src/link");
		pack("src", "dst", &archive);
		assert_int_equal(archive.len % 512, 0);
		if (unpack(place, NULL, false, &archive, steps[i], &err) < 0)
			fail_msg("%s", err.message);
		assert_text("target/dst/a/b/file", "hello");
		assert_text("target/dst/empty", "");
		assert_text(copied, "long");
		stat("target/dst/a/b/file", &status);
		assert_int_equal(status.st_mode & 07777, 0750);
		assert_int_equal(readlink("target/dst/link", target, sizeof target), 10);
	}
}

static void test_untar_renames_or_drops_the_top(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct err err = ERR_INIT;

	mkdir("src", 0755);
	write_text("src/file", "x", 0644);
	pack("src", "src", &archive);
	assert_int_equal(unpack(place, "new", false, &archive, 512, &err), 0);
	assert_text("target/new/file", "x");
	pack("src", "src", &archive);
	assert_int_equal(unpack(place, "", false, &archive, 512, &err), 0);
	assert_text("target/file", "x");
	pack("src", "", &archive);
	assert_int_equal(unpack(place, NULL, false, &archive, 512, &err), 0);
	assert_text("target/file", "x");
}

static void test_untar_refuses_names_that_lead_out(void **state)
{
	struct buf archive = BUF_INIT;

	put_member(&archive, '0', "../outside", "", "x");
	assert_refused(*state, &archive);
	put_member(&archive, '0', "a/../../outside", "", "x");
	assert_refused(*state, &archive);
	put_member(&archive, '0', "/tmp/outside-of-test-untar", "", "x");
	assert_refused(*state, &archive);
	assert_int_equal(access("/tmp/outside-of-test-untar", F_OK), -1);
}

static void test_untar_follows_no_symlink_of_the_archive(void **state)
{
	struct buf archive = BUF_INIT;

	put_member(&archive, '2', "up", "..", "");
	put_member(&archive, '0', "up/outside", "", "x");
	assert_refused(*state, &archive);
	put_member(&archive, '2', "dir", "..", "");
	put_member(&archive, '5', "dir", "", "");
	put_member(&archive, '0', "dir/outside", "", "x");
	assert_refused(*state, &archive);
	put_member(&archive, '1', "hard", "../secret", "");
	assert_refused(*state, &archive);
}

static void test_untar_replaces_a_symlink_instead_of_writing_through_it(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct err err = ERR_INIT;

	write_text("precious", "old", 0644);
	put_member(&archive, '2', "file", "../precious", "");
	put_member(&archive, '0', "file", "", "new");
	put_end(&archive);
	assert_int_equal(unpack(place, NULL, false, &archive, 512, &err), 0);
	assert_text("precious", "old");
	assert_text("target/file", "new");
}

static void test_untar_takes_set_user_id_bits_away(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct stat status;
	struct err err = ERR_INIT;

	put_member(&archive, '0', "tool", "", "x");
	put_member(&archive, '5', "dir", "", "");
	put_end(&archive);
	assert_int_equal(unpack(place, NULL, false, &archive, 512, &err), 0);
	assert_int_equal(stat("target/tool", &status), 0);
	assert_int_equal(status.st_mode & 07777, 0755);
	assert_int_equal(stat("target/dir", &status), 0);
	assert_int_equal(status.st_mode & 07777, 0755);
	put_member(&archive, '0', "tool", "", "x");
	put_end(&archive);
	assert_int_equal(unpack(place, NULL, true, &archive, 512, &err), 0);
	assert_int_equal(stat("target/tool", &status), 0);
	assert_int_equal(status.st_mode & 07777, 0755);
	assert_int_equal(status.st_mtime, 1000);
}

/* The folder that was asked for and what lies in it; anything beside it was planted. */
static void test_untar_takes_only_the_name_that_was_asked_for(void **state)
{
	static const struct {
		char type;
		const char *name, *link;
	} bad[] = {
		{ '0', ".bashrc", "" },
		{ '5', ".ssh", "" },
		{ '0', ".ssh/authorized_keys", "" },
		{ '0', "folderx/a", "" },
		{ '2', "link", "/etc" },
		{ '2', "folder", "/etc" },
		{ '0', "folder", "" },
		{ '1', "folder/hard", "other/file" },
		{ '0', "./.bashrc", "" },
	};
	static const char *const tops[] = { "folder", "renamed", "" };
	struct place *place = *state;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		for (size_t j = 0; j < ARRAY_LEN(tops); j++) {
			struct buf archive = BUF_INIT;
			struct err err = ERR_INIT;

			put_member(&archive, '5', "folder", "", "");
			put_member(&archive, '0', "folder/good", "", "x");
			put_member(&archive, bad[i].type, bad[i].name, bad[i].link, "");
			put_end(&archive);
			assert_int_equal(unpack(place, tops[j], false, &archive, 512, &err), -1);
			assert_int_equal(access("target/.bashrc", F_OK), -1);
			assert_int_equal(access("target/.ssh", F_OK), -1);
			assert_int_equal(access("target/link", F_OK), -1);
			/* Not as the first thing either. */
			put_member(&archive, bad[i].type, bad[i].name, bad[i].link, "");
			put_end(&archive);
			if (bad[i].type != '5')
				assert_int_equal(
					unpack(place, tops[j], false, &archive, 512, &err), -1);
			buf_done(&archive);
		}
}

static void test_untar_links_only_to_what_it_has_made(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct err err = ERR_INIT;
	struct stat status;

	write_text("target/secret", "user's", 0600);
	put_member(&archive, '5', "folder", "", "");
	put_member(&archive, '1', "folder/mine", "folder/secret", "");
	put_end(&archive);
	assert_int_equal(unpack(place, "", false, &archive, 512, &err), -1);
	assert_int_equal(access("target/mine", F_OK), -1);
	put_member(&archive, '5', "folder", "", "");
	put_member(&archive, '0', "folder/a", "", "x");
	put_member(&archive, '1', "folder/b", "folder/a", "");
	put_member(&archive, '1', "folder/b", "folder/a", "");
	put_end(&archive);
	assert_int_equal(unpack(place, "", false, &archive, 512, &err), 0);
	assert_int_equal(stat("target/b", &status), 0);
	assert_int_equal(status.st_nlink, 2);
}

static void test_untar_that_fails_keeps_the_old_file_and_no_half_one(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct err err = ERR_INIT;
	int left = 0;
	struct dirent *entry;
	DIR *dir;

	write_text("target/file", "old", 0640);
	put_member(&archive, '5', "d", "", "");
	put_member(&archive, '0', "d/file", "", "new and longer than nothing");
	archive.len -= 512; /* its bytes are missing */
	assert_int_equal(unpack(place, "", false, &archive, 100, &err), -1);
	assert_text("target/file", "old");
	dir = opendir("target");
	while ((entry = readdir(dir)))
		left++;
	closedir(dir);
	assert_int_equal(left, 3); /* . .. file */
}

static void test_untar_leaves_devices_out(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct err err = ERR_INIT;

	put_member(&archive, '3', "null", "", "");
	put_member(&archive, '6', "pipe", "", "");
	put_member(&archive, '0', "file", "", "x");
	put_end(&archive);
	assert_int_equal(unpack(place, NULL, false, &archive, 512, &err), 0);
	assert_int_equal(access("target/null", F_OK), -1);
	assert_int_equal(access("target/pipe", F_OK), -1);
	assert_text("target/file", "x");
}

static void test_untar_keeps_the_holes_of_a_file(void **state)
{
	struct place *place = *state;
	static const size_t steps[] = { 1, 512, 100000 };

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct buf archive = BUF_INIT;
		struct err err = ERR_INIT;
		struct stat status;
		char text[8] = "";
		int fd;

		put_member(&archive, 'x', "pax", "",
			"24 GNU.sparse.size=5000\n32 GNU.sparse.map=4000,3,5000,0\n");
		put_member(&archive, '0', "file", "", "abc");
		put_end(&archive);
		if (unpack(place, NULL, false, &archive, steps[i], &err) < 0)
			fail_msg("%s", err.message);
		fd = open("target/file", O_RDONLY | O_CLOEXEC);
		assert_int_equal(fstat(fd, &status), 0);
		assert_int_equal(status.st_size, 5000);
		assert_int_equal(pread(fd, text, 5, 3999), 5);
		assert_memory_equal(text, "\0abc", 5);
		close(fd);
	}
}

static void test_untar_refuses_damage(void **state)
{
	struct place *place = *state;
	struct buf archive = BUF_INIT;
	struct err err = ERR_INIT;

	put_member(&archive, '0', "file", "", "x");
	buf_head(&archive)[0] ^= 1; /* the checksum no longer fits */
	assert_refused(place, &archive);
	put_member(&archive, '0', "file", "", "x"); /* and no end */
	assert_int_equal(unpack(place, NULL, false, &archive, 512, &err), -1);
	assert_int_equal(err.kind, ERR_PROTOCOL);
	put_member(&archive, 'x', "pax", "", "999 path=x\n");
	assert_refused(place, &archive);
	put_member(&archive, 'x', "pax", "", "23 path=../../outside\n");
	put_member(&archive, '0', "file", "", "x");
	assert_refused(place, &archive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_untar_gives_back_what_mktar_packed, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_renames_or_drops_the_top, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_refuses_names_that_lead_out, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_follows_no_symlink_of_the_archive, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_replaces_a_symlink_instead_of_writing_through_it, setup,
			teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_takes_set_user_id_bits_away, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_takes_only_the_name_that_was_asked_for, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_links_only_to_what_it_has_made, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_that_fails_keeps_the_old_file_and_no_half_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_untar_leaves_devices_out, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_untar_keeps_the_holes_of_a_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_untar_refuses_damage, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
