/* cp.c - files and folders into and out of a box, with the rules of `cp -r`
 *
 *   one file   GET and PUT /files: the bytes alone, fast
 *   a folder   GET and PUT /archive: a tar stream, written by mktar.c, read by untar.c
 *
 * A target that is a folder, or ends in /, is copied into; else it is the new name. A source folder that ends
 * in /. gives what it holds and not itself. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/mktar.h"
#include "cli/progress.h"
#include "cli/untar.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { BAR_DELAY_MS = 500 };

/* One side of a copy. */
struct place {
	char *box;     /* NULL: on this machine */
	char *path;    /* "-": stdin or stdout; no slash at its end */
	bool contents; /* it ended in /. */
	bool slash;    /* it ended in / */
};

struct copy {
	struct cli *cli;
	struct progress bar;
	uint64_t done, total; /* bytes; total 0: not known */
	uint64_t all;	      /* bytes of all sources so far */
	int fd;		      /* the local file */
	const char *path;     /* its name */
	mode_t mode;	      /* for a new local file */
	struct mktar *mktar;
	struct untar *untar;
};

/* ---- places ---------------------------------------------------------------------------------- */

static void place_done(struct place *place)
{
	free(place->box);
	free(place->path);
}

static void cut_tail(struct place *place)
{
	size_t len = strlen(place->path);

	for (;;) {
		if (len > 1 && place->path[len - 1] == '/') {
			place->slash = true;
			len--;
		} else if (len > 2 && place->path[len - 1] == '.' && place->path[len - 2] == '/') {
			place->contents = place->slash = true;
			len -= 2;
		} else {
			break;
		}
	}
	place->path[MAX(len, 1)] = '\0';
	if (!strcmp(place->path, "/"))
		place->contents = place->slash = true;
}

/* BOX:/path, or a local name: one that has a / before its first colon, or no colon. */
static int parse_place(const char *word, struct place *ret, struct err *err)
{
	const char *colon = strchr(word, ':'), *slash = strchr(word, '/');

	*ret = (struct place){ 0 };
	if (!*word)
		return err_set(err, ERR_INVALID, "a file name is empty");
	if (!colon || colon == word || (slash && slash < colon)) {
		ret->path = xstrdup(word);
		cut_tail(ret);
		return 0;
	}
	if (colon[1] != '/') {
		err_set(err, ERR_INVALID, "'%.200s': the path in a box must be absolute", word);
		return err_hint(err,
			"%.*s:/%.100s; a local file with a colon in its name is ./%.60s",
			(int)MIN(colon - word, 60), word, colon + 1, word);
	}
	ret->box = xstrndup(word, (size_t)(colon - word));
	ret->path = xstrdup(colon + 1);
	cut_tail(ret);
	return 0;
}

static bool is_stream(const struct place *place)
{
	return !place->box && !strcmp(place->path, "-");
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return !slash	       ? xstrdup(".")
	       : slash == path ? xstrdup("/")
			       : xstrndup(path, (size_t)(slash - path));
}

static char *join(const char *folder, const char *name)
{
	return xasprintf("%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
}

/* "file", "dir" ... of a path in a box, symlinks followed; "" when there is none. */
static int box_type(
	struct copy *copy, const struct place *place, char *ret, size_t size, struct err *err)
{
	_cleanup_free_ char *path =
		client_path("/v1/boxes/%s/files/stat?path=%s&follow=true", place->box, place->path);
	_cleanup_free_ char *box_path = client_path("/v1/boxes/%s", place->box);
	_cleanup_json_ json_t *answer = NULL;
	uint64_t mode = 0644;

	ret[0] = '\0';
	if (client_get(copy->cli->client, path, &answer, err) < 0) {
		/* Not found may be the path, or the box, which is an error. */
		return err->kind == ERR_NOT_FOUND
			       ? client_get(copy->cli->client, box_path, NULL, err)
			       : -1;
	}
	snprintf(ret, size, "%s", json_str(answer, "type"));
	copy->total = (uint64_t)json_num(answer, "size");
	mode = strtoull(json_str(answer, "mode"), NULL, 8);
	copy->mode = (mode_t)mode & (cli_has(copy->cli, "preserve") ? 07777 : 0777);
	return 0;
}

/* ---- moving bytes ----------------------------------------------------------------------------- */

static void count(struct copy *copy, size_t len)
{
	copy->done += len;
	copy->all += len;
	progress_bytes(&copy->bar, copy->done, copy->total);
}

static int64_t read_file(void *buf, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;
	ssize_t got;

	do
		got = read(copy->fd, buf, len);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_sys(err, errno, "read '%s'", copy->path);
	count(copy, (size_t)got);
	return got;
}

static int64_t read_tar(void *buf, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;
	int64_t got = mktar_read(copy->mktar, buf, len, err);

	if (got > 0)
		count(copy, (size_t)got);
	return got;
}

static int write_file(const void *data, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;

	if (fd_write_all(copy->fd, data, len, err) < 0) {
		if (err->errno_value == EPIPE && copy->fd == STDOUT_FILENO)
			exit(128 + SIGPIPE); /* reached only where SIGPIPE is ignored */
		return err_wrap(err, "'%s'", copy->path);
	}
	count(copy, len);
	return 0;
}

static int write_tar(const void *data, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;

	count(copy, len);
	return untar_feed(copy->untar, data, len, err);
}

/* The local file is made when the answer is known to be good, so that an error leaves no empty one. */
static int make_file(int64_t length, void *arg, struct err *err)
{
	struct copy *copy = arg;

	if (length >= 0)
		copy->total = (uint64_t)length;
	if (copy->fd >= 0)
		return 0;
	copy->fd = open(
		copy->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, copy->mode & 0777);
	return copy->fd < 0 ? err_sys(err, errno, "create '%s'", copy->path) : 0;
}

/* ---- into a box ------------------------------------------------------------------------------- */

static int send_file(struct copy *copy, const struct place *to, const char *path,
	const struct stat *status, struct err *err)
{
	mode_t mode = status->st_mode & (cli_has(copy->cli, "preserve") ? 07777 : 0777);
	char mode_text[8];
	_cleanup_free_ char *target = NULL;
	struct client_request request = {
		.method = "PUT",
		.body_type = "application/octet-stream",
		.read = read_file,
		.read_size = S_ISREG(status->st_mode)
				     ? status->st_size - lseek(copy->fd, 0, SEEK_CUR)
				     : -1,
		.arg = copy,
	};

	snprintf(mode_text, sizeof mode_text, "%04o", S_ISREG(status->st_mode) ? mode : 0644);
	target = client_path("/v1/boxes/%s/files?path=%s&mode=%s", to->box, path, mode_text);
	request.path = target;
	copy->total = request.read_size > 0 ? (uint64_t)request.read_size : 0;
	return client_do(copy->cli->client, &request, NULL, err);
}

static int send_folder(struct copy *copy, const struct place *to, const char *folder,
	const struct mktar_spec *spec, struct err *err)
{
	_cleanup_free_ char *target = client_path("/v1/boxes/%s/archive?path=%s", to->box, folder);
	struct client_request request = {
		.method = "PUT",
		.path = target,
		.body_type = "application/x-tar",
		.read = read_tar,
		.read_size = -1,
		.arg = copy,
	};
	int result;

	if (mktar_open(spec, &copy->mktar, err) < 0)
		return -1;
	copy->total = 0;
	result = client_do(copy->cli->client, &request, NULL, err);
	if (mktar_skipped(copy->mktar))
		cli_note(copy->cli, "left out %llu sockets, pipes or devices",
			(unsigned long long)mktar_skipped(copy->mktar));
	mktar_close(steal_ptr(&copy->mktar));
	return result;
}

static int send_contents_or_folder(struct copy *copy, const struct place *from,
	const struct place *to, const char *type, struct err *err)
{
	_cleanup_free_ char *parent = folder_of(to->path);
	struct mktar_spec spec = { .path = from->path, .preserve = cli_has(copy->cli, "preserve") };

	if (!strcmp(type, "dir")) {
		/* ".." and "." have no name of their own to appear under. */
		spec.top = from->contents || !strcmp(base_name(from->path), ".") ||
					   !strcmp(base_name(from->path), "..")
				   ? ""
				   : base_name(from->path);
		return send_folder(copy, to, to->path, &spec, err);
	}
	if (*type)
		return err_set(err, ERR_INVALID, "'%s' is a folder, '%s:%s' is none", from->path,
			to->box, to->path);
	spec.top = base_name(to->path);
	return send_folder(copy, to, parent, &spec, err);
}

static int copy_in(struct copy *copy, const struct place *from, const struct place *to,
	bool several, struct err *err)
{
	_cleanup_free_ char *into = NULL;
	struct stat status;
	char type[16];

	copy->path = is_stream(from) ? "stdin" : from->path;
	copy->fd = is_stream(from) ? dup(STDIN_FILENO)
				   : open(from->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (copy->fd < 0 || fstat(copy->fd, &status) < 0)
		return err_sys(err, errno, "open '%s'", copy->path);
	if (box_type(copy, to, type, sizeof type, err) < 0)
		return -1;
	if ((several || to->slash) && strcmp(type, "dir") &&
		!(S_ISDIR(status.st_mode) && !several && !*type)) {
		err_set(err, *type ? ERR_INVALID : ERR_NOT_FOUND, "'%s:%s' is no folder", to->box,
			to->path);
		return err_hint(
			err, "make it with 'box exec %s -- mkdir -p %s'", to->box, to->path);
	}
	if (S_ISDIR(status.st_mode))
		return is_stream(from) ? err_set(err, ERR_INVALID, "stdin is a folder")
				       : send_contents_or_folder(copy, from, to, type, err);
	if (!strcmp(type, "dir") && is_stream(from))
		return err_set(err, ERR_INVALID, "'%s:%s' is a folder; give the new file a name",
			to->box, to->path);
	if (!strcmp(type, "dir"))
		into = join(to->path, base_name(from->path));
	return send_file(copy, to, into ? into : to->path, &status, err);
}

/* ---- out of a box ----------------------------------------------------------------------------- */

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

	copy->path = path;
	if (client_do(copy->cli->client, &request, NULL, err) < 0)
		return -1;
	if (cli_has(copy->cli, "preserve") && copy->fd != STDOUT_FILENO &&
		fchmod(copy->fd, copy->mode) < 0)
		return err_sys(err, errno, "chmod '%s'", path);
	return 0;
}

static int fetch_folder(
	struct copy *copy, const struct place *from, int dir_fd, const char *top, struct err *err)
{
	_cleanup_free_ char *source =
		client_path("/v1/boxes/%s/archive?path=%s", from->box, from->path);
	struct untar_spec spec = {
		.dir_fd = dir_fd, .top = top, .preserve = cli_has(copy->cli, "preserve")
	};
	struct client_request request = {
		.method = "GET",
		.path = source,
		.data = dir_fd < 0 ? write_file : write_tar,
		.arg = copy,
	};
	int result;

	copy->total = 0;
	if (dir_fd < 0)
		return client_do(copy->cli->client, &request, NULL, err);
	copy->untar = untar_new(&spec);
	result = client_do(copy->cli->client, &request, NULL, err);
	if (result == 0)
		result = untar_finish(copy->untar, err);
	if (result == 0 && untar_skipped(copy->untar))
		cli_note(copy->cli, "left out %llu sockets, pipes or devices",
			(unsigned long long)untar_skipped(copy->untar));
	untar_free(steal_ptr(&copy->untar));
	return result;
}

static int fetch_folder_to(struct copy *copy, const struct place *from, const struct place *to,
	bool is_dir, struct err *err)
{
	_cleanup_free_ char *parent = folder_of(to->path);
	const char *where = is_dir ? to->path : parent;
	_cleanup_close_ int fd = -1;

	/* The contents of a folder need one to go into. */
	if (!is_dir && from->contents) {
		if (mkdir(to->path, 0755) < 0)
			return err_sys(err, errno, "mkdir '%s'", to->path);
		where = to->path;
		is_dir = true;
	}
	fd = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, errno, "open '%s'", where);
	return fetch_folder(copy, from, fd,
		!is_dir		 ? base_name(to->path)
		: from->contents ? ""
				 : NULL,
		err);
}

static int copy_out(struct copy *copy, const struct place *from, const struct place *to,
	bool several, struct err *err)
{
	_cleanup_free_ char *into = NULL;
	struct stat status = { 0 };
	bool exists, is_dir;
	char type[16];

	if (box_type(copy, from, type, sizeof type, err) < 0)
		return -1;
	if (!*type)
		return err_set(err, ERR_NOT_FOUND, "no '%s' in box '%s'", from->path, from->box);
	if (strcmp(type, "file") && strcmp(type, "dir"))
		return err_set(err, ERR_INVALID, "'%s:%s' is a %s, neither file nor folder",
			from->box, from->path, type);
	if (is_stream(to) && !strcmp(type, "dir") && isatty(STDOUT_FILENO)) {
		err_set(err, ERR_INVALID, "'%s:%s' is a folder and would come as a tar archive",
			from->box, from->path);
		return err_hint(err, "name a target, or send it into a pipe or file");
	}
	if (is_stream(to)) {
		copy->fd = STDOUT_FILENO;
		copy->path = "stdout";
		return strcmp(type, "dir") ? fetch_file(copy, from, "stdout", err)
					   : fetch_folder(copy, from, -1, NULL, err);
	}
	exists = stat(to->path, &status) == 0;
	is_dir = exists && S_ISDIR(status.st_mode);
	if ((several || (to->slash && strcmp(type, "dir"))) && !is_dir)
		return err_set(
			err, exists ? ERR_INVALID : ERR_NOT_FOUND, "'%s' is no folder", to->path);
	if (!strcmp(type, "dir"))
		return exists && !is_dir
			       ? err_set(err, ERR_INVALID, "'%s:%s' is a folder, '%s' is none",
					 from->box, from->path, to->path)
			       : fetch_folder_to(copy, from, to, is_dir, err);
	if (is_dir)
		into = join(to->path, base_name(from->path));
	return fetch_file(copy, from, into ? into : to->path, err);
}

/* ---- the command ------------------------------------------------------------------------------ */

static int copy_one(
	struct copy *copy, const char *word, const struct place *to, bool several, struct err *err)
{
	struct place from;
	int result;

	if (parse_place(word, &from, err) < 0)
		return -1;
	copy->fd = -1;
	copy->done = copy->total = 0;
	progress_init(&copy->bar, word, !copy->cli->quiet && !is_stream(to), BAR_DELAY_MS);
	if (!from.box == !to->box)
		result = err_set(err, ERR_INVALID,
			from.box ? "one side must be on this machine, not both in boxes"
				 : "one side must be in a box, like ada:/path");
	else
		result = to->box ? copy_in(copy, &from, to, several, err)
				 : copy_out(copy, &from, to, several, err);
	progress_done(&copy->bar);
	if (copy->fd > STDERR_FILENO && close(copy->fd) < 0 && result == 0)
		result = err_sys(err, errno, "write '%s'", copy->path);
	place_done(&from);
	return result;
}

int cmd_cp(struct cli *cli, int argc, char **argv)
{
	struct copy copy = { .cli = cli };
	struct err err = ERR_INIT;
	struct place to;
	int code = 0;

	if (parse_place(argv[argc - 1], &to, &err) < 0)
		return cli_fail(cli, &err);
	for (int i = 0; i < argc - 1; i++)
		if (copy_one(&copy, argv[i], &to, argc > 2, &err) < 0)
			code = cli_fail(cli, &err);
	if (!code && cli->json && !is_stream(&to))
		cli_print_json(json_pack("{s:I}", "bytes", (json_int_t)copy.all));
	place_done(&to);
	return code;
}
