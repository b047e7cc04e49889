/* files.c - open files: offsets, flags, removed ones, maps */
#include "tests/states/checks.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL = 20, LARGE = 3 << 20, PLAIN = 100000, STEP = 10, RECORD = 16 };

static int file_new(struct check *check, const char *name, size_t size, uint64_t seed)
{
	static unsigned char bytes[LARGE];
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);

	pattern_fill(bytes, size, seed, 0);
	must(check, fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "make %s", name);
	return fd;
}

static void whole_file_must_be(struct check *check, int fd, size_t size, uint64_t seed)
{
	static unsigned char bytes[LARGE];

	must(check, pread(fd, bytes, size, 0) == (ssize_t)size && pattern_is(bytes, size, seed, 0),
		"content of %zu bytes", size);
}

/* ---- files: what an open file remembers ----------------------------------------------------- */

static int plain, copy, appending, flagged, folder, sparse;
static off_t offset = 500;

static void files_set_up(struct check *check)
{
	plain = file_new(check, "plain", PLAIN, 1);
	copy = dup(plain);
	must(check, lseek(plain, offset, SEEK_SET) == offset, "seek");
	appending = open("appending", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
	flagged = open("plain", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	folder = open(".", O_RDONLY | O_DIRECTORY);
	sparse = file_new(check, "sparse", SMALL, 2);
	must(check, appending >= 0 && flagged >= 0 && folder >= 0, "open");
	must(check, pwrite(sparse, "end", 3, 1 << 24) == 3, "write behind a hole");
}

static void files_verify(struct check *check)
{
	unsigned char bytes[STEP];
	char record[RECORD + 1];
	struct stat info;

	must(check, lseek(plain, 0, SEEK_CUR) == offset, "offset is %ld, not %ld",
		(long)lseek(plain, 0, SEEK_CUR), (long)offset);
	must(check, lseek(copy, 0, SEEK_CUR) == offset,
		"a copy of the descriptor has its own offset");
	must(check,
		read(plain, bytes, STEP) == STEP && pattern_is(bytes, STEP, 1, (uint64_t)offset),
		"content at offset %ld", (long)offset);
	offset += STEP;
	whole_file_must_be(check, plain, PLAIN, 1);

	must(check, fcntl(appending, F_GETFL) & O_APPEND, "append flag");
	snprintf(record, sizeof record, "record %8u\n", check->asked);
	must(check, write(appending, record, RECORD) == RECORD, "append");
	must(check,
		fstat(appending, &info) == 0 && info.st_size == RECORD * (off_t)(check->asked + 1),
		"%ld bytes appended by %u records", (long)info.st_size, check->asked + 1);

	must(check, fcntl(flagged, F_GETFL) & O_NONBLOCK, "non-blocking flag");
	must(check, fcntl(flagged, F_GETFD) & FD_CLOEXEC, "close-on-exec flag");
	must(check, !(fcntl(plain, F_GETFD) & FD_CLOEXEC), "close-on-exec where it was not");
	must(check, write(flagged, "x", 1) < 0 && errno == EBADF, "read-only file was written to");
	must(check, fstatat(folder, "plain", &info, 0) == 0 && info.st_size == PLAIN,
		"open folder");
	must(check,
		fstat(sparse, &info) == 0 && info.st_size == (1 << 24) + 3 && info.st_blocks < 1000,
		"hole: %ld blocks", (long)info.st_blocks);
	whole_file_must_be(check, sparse, SMALL, 2);
}

const struct kind kind_files = { "files", files_set_up, files_verify };

/* ---- removed but open ----------------------------------------------------------------------- */

static int small, large, other_name;

static void deleted_set_up(struct check *check)
{
	small = file_new(check, "small", SMALL, 3);
	large = file_new(check, "large", LARGE, 4);
	/* Opened by a name that is removed while the file lives on by another. */
	other_name = file_new(check, "one-name", 5000, 5);
	must(check, link("one-name", "kept-name") == 0, "link");
	must(check, unlink("small") == 0 && unlink("large") == 0 && unlink("one-name") == 0,
		"unlink");
}

static void deleted_verify(struct check *check)
{
	struct stat mine, named;
	char text[32], got[32];

	must(check, fstat(small, &mine) == 0 && mine.st_nlink == 0, "small: links");
	must(check, fstat(large, &mine) == 0 && mine.st_nlink == 0 && mine.st_size == LARGE,
		"large: links, size");
	must(check,
		access("small", F_OK) < 0 && access("large", F_OK) < 0 &&
			access("one-name", F_OK) < 0,
		"removed names are back");
	errno = 0;
	whole_file_must_be(check, small, SMALL, 3);
	whole_file_must_be(check, large, LARGE, 4);
	whole_file_must_be(check, other_name, 5000, 5);
	if (check->asked) {
		snprintf(text, sizeof text, "%8u", check->asked - 1);
		must(check, pread(small, got, 8, 100) == 8 && memcmp(text, got, 8) == 0,
			"what was written before");
	}
	snprintf(text, sizeof text, "%8u", check->asked);
	must(check, pwrite(small, text, 8, 100) == 8, "write");
	must(check,
		fstat(other_name, &mine) == 0 && stat("kept-name", &named) == 0 &&
			mine.st_ino == named.st_ino,
		"the descriptor is another file than the name that was kept");
}

const struct kind kind_deleted = { "deleted", deleted_set_up, deleted_verify };

static int lost;

static void removed_folder_set_up(struct check *check)
{
	must(check, mkdir("lost", 0700) == 0 && (lost = open("lost", O_RDONLY | O_DIRECTORY)) >= 0,
		"make a folder");
	must(check, rmdir("lost") == 0, "remove it");
}

static void removed_folder_verify(struct check *check)
{
	struct stat info;

	must(check, fstat(lost, &info) == 0 && S_ISDIR(info.st_mode) && info.st_nlink == 0,
		"a removed folder that is open");
	must(check, access("lost", F_OK) < 0, "its name is back");
	errno = 0;
}

const struct kind kind_removed_folder = { "removed-folder", removed_folder_set_up,
	removed_folder_verify };

/* ---- files in memory ------------------------------------------------------------------------ */

enum { MAPPED = 1 << 20 };
static unsigned char *shared_map, *private_map, *removed_map;
static int mapped_fd;

static void mapped_set_up(struct check *check)
{
	int removed = file_new(check, "removed", MAPPED, 8);

	mapped_fd = file_new(check, "mapped", MAPPED, 6);
	shared_map = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, mapped_fd, 0);
	private_map = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE, mapped_fd, 0);
	removed_map = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, removed, 0);
	must(check,
		shared_map != MAP_FAILED && private_map != MAP_FAILED && removed_map != MAP_FAILED,
		"mmap");
	close(removed);
	unlink("removed");
	if (!check->why[0])
		pattern_fill(
			private_map, 10000, 7, 0); /* pages of its own; the file keeps the old */
}

static void mapped_verify(struct check *check)
{
	unsigned seen = 0, was = check->asked;

	must(check, pattern_is(shared_map + 8, MAPPED - 8, 6, 8), "shared map");
	must(check, pattern_is(private_map, 10000, 7, 0), "private pages");
	must(check, pattern_is(private_map + 12288, MAPPED - 12288, 6, 12288), "pages of the file");
	must(check, pattern_is(removed_map, MAPPED, 8, 0), "map of a removed file");
	if (was)
		must(check, memcmp(shared_map, &was, sizeof was) == 0,
			"what was written through the map");
	was++;
	memcpy(shared_map, &was, sizeof was);
	must(check, pread(mapped_fd, &seen, sizeof seen, 0) == sizeof seen && seen == was,
		"the file does not show what the map wrote");
}

const struct kind kind_mapped = { "mapped", mapped_set_up, mapped_verify };

/* ---- a program whose file is gone ----------------------------------------------------------- */

static int to_program[2], from_program[2];
static pid_t program;

static void program_set_up(struct check *check)
{
	static unsigned char bytes[1 << 20];
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
	    to = open("copy", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	ssize_t got;

	must(check,
		from >= 0 && to >= 0 && pipe2(to_program, O_CLOEXEC) == 0 &&
			pipe2(from_program, O_CLOEXEC) == 0,
		"set-up");
	while ((got = read(from, bytes, sizeof bytes)) > 0)
		must(check, write(to, bytes, (size_t)got) == got, "copy");
	close(to);
	close(from);
	program = child_new();
	if (program == 0) {
		dup2(to_program[0], 0);
		dup2(from_program[1], 1);
		execl("./copy", "copy", "echo", "-", NULL);
		_exit(1);
	}
	close(to_program[0]);
	close(from_program[1]);
	char byte = 'a';
	must(check, write(to_program[1], &byte, 1) == 1 && read(from_program[0], &byte, 1) == 1,
		"the copy runs");
	must(check, unlink("copy") == 0, "unlink");
}

static void program_verify(struct check *check)
{
	char byte = (char)('a' + check->asked % 20), got = 0;

	must(check,
		write(to_program[1], &byte, 1) == 1 && read(from_program[0], &got, 1) == 1 &&
			got == byte + 1,
		"a program whose file was removed");
	must(check, access("copy", F_OK) < 0, "its file is back");
	errno = 0;
}

const struct kind kind_program = { "program", program_set_up, program_verify };
