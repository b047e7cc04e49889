/* cp_out.c - copies out of a box: the box is hostile, and only outfile.c and untar.c write files of
 * this machine
 *
 * What the box says of a path (its type and size) is only used to choose the request. */
#include "cli/cp_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "cli/outtree.h"
#include "cli/untar.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

static int write_file(const void *data, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;
	int fd = copy->fd >= 0 ? copy->fd : copy->file.fd;

	if (fd_write_all(fd, data, len, err) < 0) {
		if (err->errno_value == EPIPE && fd == STDOUT_FILENO)
			exit(128 + SIGPIPE); /* reached only where SIGPIPE is ignored */
		return err_wrap(err, "'%s'", copy->path);
	}
	copy_count(copy, len);
	return 0;
}

static int write_tar(const void *data, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;

	if (client_interrupted)
		return err_set(err, ERR_CANCELLED, "copying was interrupted");
	copy_count(copy, len);
	return untar_feed(copy->untar, data, len, err);
}

/* The local file is made when the answer is good, so that an error leaves none. */
static int make_file(int64_t length, void *arg, struct err *err)
{
	struct copy *copy = arg;

	if (length >= 0)
		copy->total = (uint64_t)length;
	return copy->fd >= 0 ? 0 : outfile_create_at(copy->path, &copy->file, err);
}

static mode_t masked(mode_t mode)
{
	mode_t mask = umask(0);

	umask(mask);
	return mode & ~mask;
}

static int fetch_file(
	struct copy *copy, const struct place *from, const char *path, struct err *err)
{
	_cleanup_free_ char *source =
		client_path("/v1/boxes/%s/files?path=%s", from->box, from->path);
	struct client_request request = {
		.method = "GET",
		.path = source,
		.head = make_file,
		.data = write_file,
		.arg = copy,
	};
	bool keep = copy_preserves(copy);

	copy->path = path;
	if (client_do(copy->cli->client, &request, NULL, err) < 0) {
		outfile_drop(&copy->file);
		return -1;
	}
	if (copy->file.fd < 0)
		return 0;
	return outfile_finish(&copy->file, keep ? copy->mode : masked(copy->mode), keep, err);
}

/* With a slash at the end, a symlink to a folder means the folder. */
static char *archive_path(const struct place *from)
{
	_cleanup_free_ char *folder = place_join(from->path, "");

	return client_path("/v1/boxes/%s/archive?path=%s", from->box, folder);
}

static int fetch_folder(
	struct copy *copy, const struct place *from, int dir_fd, const char *top, struct err *err)
{
	_cleanup_free_ char *source = archive_path(from);
	struct untar_spec spec = { .dir_fd = dir_fd, .top = top, .preserve = copy_preserves(copy) };
	struct client_request request = {
		.method = "GET",
		.path = source,
		.data = dir_fd < 0 ? write_file : write_tar,
		.arg = copy,
	};
	int result;

	copy->total = copy->files = 0;
	if (dir_fd < 0)
		return client_do(copy->cli->client, &request, NULL, err);
	copy->untar = untar_new(&spec);
	result = client_do(copy->cli->client, &request, NULL, err);
	if (result == 0)
		result = untar_finish(copy->untar, err);
	if (result == 0 && untar_skipped(copy->untar))
		cli_note(copy->cli, "left out %llu sockets, pipes or devices",
			(unsigned long long)untar_skipped(copy->untar));
	copy->files = untar_files(copy->untar);
	untar_free(steal_ptr(&copy->untar));
	return result;
}

/* The folder does not exist yet. */
static int fetch_new_folder(
	struct copy *copy, const struct place *from, int dir, const char *name, struct err *err)
{
	_cleanup_close_ int below = -1;
	struct outtree tree;
	int result = 0;

	outtree_begin(&tree, dir, name);
	/* The content of a folder needs a folder to go into. */
	if (from->contents) {
		if (mkdirat(dir, tree.temp, 0755) < 0)
			result = err_sys(err, errno, "mkdir '%s'", name);
		else if ((below = outdir_open_beneath(dir, tree.temp, O_RDONLY | O_DIRECTORY)) < 0)
			result = err_sys(err, errno, "open '%s'", name);
	}
	if (result == 0)
		result = fetch_folder(copy, from, from->contents ? below : dir,
			from->contents ? "" : tree.temp, err);
	return outtree_end(&tree, result, err);
}

static int fetch_folder_to(struct copy *copy, const struct place *from, const struct place *to,
	bool is_dir, struct err *err)
{
	_cleanup_free_ char *parent = place_folder(to->path);
	const char *where = is_dir ? to->path : parent;
	const char *top = is_dir ? place_name(from) : place_name(to);
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (outdir_open(where, O_RDONLY, &fd, err) < 0)
		return -1;
	if (*top && !(is_dir && from->contents) && fstatat(fd, top, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
		errno == ENOENT)
		return fetch_new_folder(copy, from, fd, top, err);
	if (fetch_folder(copy, from, fd, from->contents ? "" : top, err) == 0)
		return 0;
	/* Earlier and new files cannot be told apart any more. */
	if (copy->files && !err->hint[0])
		err_hint(err,
			"the folder existed before; what was copied before the error is in it");
	return -1;
}

static int to_stdout(struct copy *copy, const struct place *from, const char *type, struct err *err)
{
	if (!strcmp(type, "dir") && isatty(STDOUT_FILENO)) {
		err_set(err, ERR_INVALID, "'%s:%s' is a folder and would come as a tar archive",
			from->box, from->path);
		return err_hint(err, "name a target, or send it into a pipe or file");
	}
	copy->fd = STDOUT_FILENO;
	copy->path = "stdout";
	return strcmp(type, "dir") ? fetch_file(copy, from, "stdout", err)
				   : fetch_folder(copy, from, -1, NULL, err);
}

int copy_out(struct copy *copy, const struct place *from, const struct place *to, bool several,
	struct err *err)
{
	_cleanup_free_ char *into = NULL;
	struct stat status = { 0 };
	bool exists, is_dir;
	char type[16];

	if (copy_box_type(copy, from, type, sizeof type, err) < 0)
		return -1;
	if (!*type)
		return err_set(err, ERR_NOT_FOUND, "no '%s' in box '%s'", from->path, from->box);
	if (strcmp(type, "file") && strcmp(type, "dir"))
		return err_set(err, ERR_INVALID, "'%s:%s' is a %s, neither file nor folder",
			from->box, from->path, type);
	if (place_is_stream(to))
		return to_stdout(copy, from, type, err);
	exists = stat(to->path, &status) == 0;
	is_dir = exists && S_ISDIR(status.st_mode);
	if ((several || (to->slash && strcmp(type, "dir"))) && !is_dir)
		return err_set(err, exists ? ERR_INVALID : ERR_NOT_FOUND, "'%s' is not a folder",
			to->path);
	if (!strcmp(type, "dir"))
		return exists && !is_dir
			       ? err_set(err, ERR_INVALID, "'%s:%s' is a folder, but '%s' is not",
					 from->box, from->path, to->path)
			       : fetch_folder_to(copy, from, to, is_dir, err);
	/* A file goes into a folder of that name, also where a symlink only pretends to be one:
	 * that is refused. */
	if (is_dir)
		into = place_join(to->path, place_name(from));
	return fetch_file(copy, from, into ? into : to->path, err);
}
