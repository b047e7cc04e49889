/* criu_image.c - see criu_image.h
 *
 * An image file is two numbers that say what it is, then messages, each behind its length; all
 * little-endian. These have one message. Files are called KIND-N.img, where N is CRIU's own number
 * of the namespace. */
#include "engine/ns/criu/criu_image.h"
#include "base/alloc.h"
#include "base/file.h"
#include "engine/ns/criu/protobuf.h"
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { NAME_SIZE = 64 };
static const uint32_t magic_common = 0x54564319, magic_users = 0x55474906, magic_uts = 0x54473203;

static bool is_image(const char *name, const char *kind)
{
	size_t len = strlen(kind), digits;

	if (strncmp(name, kind, len) != 0 || name[len] != '-')
		return false;
	digits = strspn(name + len + 1, "0123456789");
	return digits && digits < 12 && !strcmp(name + len + 1 + digits, ".img");
}

/* The one image of a kind: a box has one namespace of each. */
static int find(int images, const char *kind, char ret[NAME_SIZE], struct err *err)
{
	int fd = openat(images, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	unsigned found = 0;

	if (!dir) {
		err_sys(err, errno, "open the images");
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while ((entry = readdir(dir)) != NULL) {
		if (!is_image(entry->d_name, kind))
			continue;
		snprintf(ret, NAME_SIZE, "%s", entry->d_name);
		found++;
	}
	closedir(dir);
	if (!found)
		return err_set(err, ERR_NOT_FOUND, "no image '%s' in the dump", kind);
	return found > 1 ? err_set(err, ERR_INVALID, "%u images '%s' in the dump", found, kind) : 0;
}

static void put_word(struct buf *out, uint32_t word)
{
	word = htole32(word);
	buf_add(out, &word, sizeof word);
}

/* Not synced: a restore follows at once, or the dump is synced as a whole. World-readable, like
 * CRIU's own: a restore reads them as root of the box. The directory keeps others out. */
static int replace(
	int images, const char *kind, uint32_t magic, const struct buf *message, struct err *err)
{
	struct buf out = BUF_INIT;
	char name[NAME_SIZE], draft[NAME_SIZE + 8];
	int fd, status = -1;

	if (find(images, kind, name, err) < 0)
		return -1;
	snprintf(draft, sizeof draft, "%s.new", name);
	put_word(&out, magic_common);
	put_word(&out, magic);
	put_word(&out, (uint32_t)message->len);
	buf_add(&out, buf_head(message), message->len);
	unlinkat(images, draft, 0);
	fd = openat(images, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		err_sys(err, errno, "make '%s'", draft);
	else if (fchmod(fd, 0644) < 0) /* whatever the umask */
		err_sys(err, errno, "chmod '%s'", draft);
	else if (fd_write_all(fd, buf_head(&out), out.len, err) == 0)
		status = renameat(images, draft, images, name) < 0
				 ? err_sys(err, errno, "rename '%s'", draft)
				 : 0;
	if (fd >= 0)
		close(fd);
	buf_done(&out);
	return status;
}

int criu_image_set_users(
	int images, const struct idmap_extent *extents, size_t count, struct err *err)
{
	struct buf message = BUF_INIT;
	int status;

	/* Users are 1, groups 2. */
	for (unsigned field = 1; field <= 2; field++)
		for (size_t i = 0; i < count; i++) {
			struct buf range = BUF_INIT;

			pb_put_number(&range, 1, extents[i].inside);
			pb_put_number(&range, 2, extents[i].outside);
			pb_put_number(&range, 3, extents[i].count);
			pb_put_bytes(&message, field, buf_head(&range), range.len);
			buf_done(&range);
		}
	status = replace(images, "userns", magic_users, &message, err);
	buf_done(&message);
	return status;
}

int criu_image_set_hostname(int images, const char *hostname, struct err *err)
{
	struct buf message = BUF_INIT;
	int status;

	pb_put_string(&message, 1, hostname);
	pb_put_string(&message, 2, "(none)"); /* the domain, as the kernel has it at first */
	status = replace(images, "utsns", magic_uts, &message, err);
	buf_done(&message);
	return status;
}
