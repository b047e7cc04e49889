/* cp.c - files and folders into and out of a box, with the rules of `cp -r`
 *
 *   one file   GET and PUT /files: the bytes alone, fast
 *   a folder   GET and PUT /archive: a tar stream, written by mktar.c, read by untar.c
 *   between    what comes out of one box goes into another, and touches no file here
 *
 * A target that is a folder, or ends in /, is copied into; else it is the new name. A source folder
 * that ends in /. gives what it holds and not itself. */
#include "cli/cp.h"
#include "cli/cp_internal.h"
#include "base/alloc.h"
#include "base/text.h"
#include "cli/mktar.h"
#include "base/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

enum { BAR_DELAY_MS = 500 };

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

/* BOX:/path, or a local name: one with a / before its first colon, or without a colon. */
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

bool place_is_stream(const struct place *place)
{
	return !place->box && !strcmp(place->path, "-");
}

const char *place_name(const struct place *place)
{
	const char *slash = strrchr(place->path, '/'), *name = slash ? slash + 1 : place->path;

	return !strcmp(name, ".") || !strcmp(name, "..") ? "" : name;
}

char *place_folder(const char *path)
{
	const char *slash = strrchr(path, '/');

	return !slash	       ? xstrdup(".")
	       : slash == path ? xstrdup("/")
			       : xstrndup(path, (size_t)(slash - path));
}

char *place_join(const char *folder, const char *name)
{
	return xasprintf("%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
}

bool copy_preserves(const struct copy *copy)
{
	return cli_has(copy->cli, "preserve") || cli_has(copy->cli, "archive");
}

int copy_box_type(
	struct copy *copy, const struct place *place, char *ret, size_t size, struct err *err)
{
	_cleanup_free_ char *path =
		client_path("/v1/boxes/%s/files/stat?path=%s&follow=true", place->box, place->path);
	_cleanup_free_ char *box_path = client_path("/v1/boxes/%s", place->box);
	_cleanup_json_ json_t *answer = NULL;
	uint64_t mode = 0644;

	ret[0] = '\0';
	if (client_get(copy->cli->client, path, &answer, err) < 0) {
		/* Not found may mean the path, or the box, which is an error. */
		return err->kind == ERR_NOT_FOUND
			       ? client_get(copy->cli->client, box_path, NULL, err)
			       : -1;
	}
	snprintf(ret, size, "%s", json_str(answer, "type"));
	copy->total = (uint64_t)json_num(answer, "size");
	mode = strtoull(json_str(answer, "mode"), NULL, 8);
	copy->mode = (mode_t)mode & (copy_preserves(copy) ? 07777 : 0777);
	return 0;
}

/* ---- moving bytes --------------------------------------------------------------------------- */

void copy_count(struct copy *copy, size_t len)
{
	copy->done += len;
	copy->all += len;
	progress_bytes(&copy->bar, copy->done, copy->total);
}

static int64_t read_file(void *buf, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;
	ssize_t got;

	if (client_interrupted)
		return err_set(err, ERR_CANCELLED, "copying was interrupted");
	do
		got = read(copy->fd, buf, len);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_sys(err, errno, "read '%s'", copy->path);
	copy_count(copy, (size_t)got);
	return got;
}

static int64_t read_tar(void *buf, size_t len, void *arg, struct err *err)
{
	struct copy *copy = arg;
	int64_t got = client_interrupted ? err_set(err, ERR_CANCELLED, "copying was interrupted")
					 : mktar_read(copy->mktar, buf, len, err);

	if (got > 0)
		copy_count(copy, (size_t)got);
	return got;
}

/* ---- into a box ----------------------------------------------------------------------------- */

static int send_file(struct copy *copy, const struct place *to, const char *path,
	const struct stat *status, struct err *err)
{
	mode_t mode = status->st_mode & (copy_preserves(copy) ? 07777 : 0777);
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

int copy_target_in_box(const struct place *from, const struct place *to, const char *type,
	const char **ret_top, char **ret_folder, struct err *err)
{
	if (!strcmp(type, "dir")) {
		/* ".." and "." have no name of their own. */
		*ret_top = from->contents ? "" : place_name(from);
		*ret_folder = xstrdup(to->path);
		return 0;
	}
	if (*type)
		return err_set(err, ERR_INVALID, "'%s' is a folder, but '%s:%s' is not", from->path,
			to->box, to->path);
	*ret_top = place_name(to);
	*ret_folder = place_folder(to->path);
	return 0;
}

int copy_check_target_in_box(
	const struct place *to, const char *type, bool from_folder, bool several, struct err *err)
{
	if ((!several && !to->slash) || !strcmp(type, "dir") || (from_folder && !several && !*type))
		return 0;
	err_set(err, *type ? ERR_INVALID : ERR_NOT_FOUND, "'%s:%s' is not a folder", to->box,
		to->path);
	return err_hint(err, "make it with 'box exec %s -- mkdir -p %s'", to->box, to->path);
}

static int send_contents_or_folder(struct copy *copy, const struct place *from,
	const struct place *to, const char *type, struct err *err)
{
	_cleanup_free_ char *folder = NULL;
	struct mktar_spec spec = { .path = from->path, .preserve = copy_preserves(copy) };

	if (copy_target_in_box(from, to, type, &spec.top, &folder, err) < 0)
		return -1;
	return send_folder(copy, to, folder, &spec, err);
}

static int copy_in(struct copy *copy, const struct place *from, const struct place *to,
	bool several, struct err *err)
{
	_cleanup_free_ char *into = NULL;
	struct stat status;
	char type[16];

	copy->path = place_is_stream(from) ? "stdin" : from->path;
	copy->fd = place_is_stream(from) ? dup(STDIN_FILENO)
					 : open(from->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (copy->fd < 0 || fstat(copy->fd, &status) < 0)
		return err_sys(err, errno, "open '%s'", copy->path);
	if (copy_box_type(copy, to, type, sizeof type, err) < 0)
		return -1;
	if (copy_check_target_in_box(to, type, S_ISDIR(status.st_mode), several, err) < 0)
		return -1;
	if (S_ISDIR(status.st_mode))
		return place_is_stream(from) ? err_set(err, ERR_INVALID, "stdin is a folder")
					     : send_contents_or_folder(copy, from, to, type, err);
	if (!strcmp(type, "dir") && place_is_stream(from))
		return err_set(err, ERR_INVALID, "'%s:%s' is a folder; give the new file a name",
			to->box, to->path);
	if (!strcmp(type, "dir"))
		into = place_join(to->path, place_name(from));
	return send_file(copy, to, into ? into : to->path, &status, err);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int copy_one(
	struct copy *copy, const char *word, const struct place *to, bool several, struct err *err)
{
	struct place from;
	int result;

	if (parse_place(word, &from, err) < 0)
		return -1;
	copy->fd = -1;
	copy->done = copy->total = 0;
	progress_init(&copy->bar, word, !copy->cli->quiet && !place_is_stream(to), BAR_DELAY_MS);
	if (from.box && to->box)
		result = copy_between(copy, &from, to, several, err);
	else if (to->box)
		result = copy_in(copy, &from, to, several, err);
	else if (from.box)
		result = copy_out(copy, &from, to, several, err);
	else
		result = err_set(err, ERR_INVALID, "one side must be in a box, like ada:/path");
	progress_done(&copy->bar);
	if (copy->fd > STDERR_FILENO && close(copy->fd) < 0 && result == 0)
		result = err_sys(err, errno, "write '%s'", copy->path);
	place_done(&from);
	return result;
}

static int fail(const struct cli *cli, struct err *err)
{
	if (err->kind == ERR_INVALID && !err->hint[0])
		err_hint(err, "see 'box help cp'");
	return cli_fail(cli, err);
}

int cmd_cp(struct cli *cli, int argc, char **argv)
{
	struct copy copy = { .cli = cli, .file = OUTFILE_INIT };
	struct err err = ERR_INIT;
	struct place to;
	int code = 0;

	if (parse_place(argv[argc - 1], &to, &err) < 0)
		return fail(cli, &err);
	for (int i = 0; i < argc - 1; i++) {
		err_clear(&err);
		if (copy_one(&copy, argv[i], &to, argc > 2, &err) < 0)
			code = fail(cli, &err);
	}
	if (!code && cli->json && !place_is_stream(&to))
		cli_print_json(json_pack("{s:I}", "bytes", (json_int_t)copy.all));
	place_done(&to);
	return code;
}

/* ---- box new --copy ------------------------------------------------------------------------- */

#define COPY_TARGET "/workspace"

static volatile int copy_signal; /* the one that came */
static volatile bool is_copying;

static void on_copy_signal(int number)
{
	copy_signal = number;
	client_interrupted = is_copying;
}

int copy_catch_signals(bool begin)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };

	if (begin) {
		copy_signal = 0;
		signals_catch(numbers, ARRAY_LEN(numbers), on_copy_signal, NULL);
	} else {
		signals_release(numbers, ARRAY_LEN(numbers));
	}
	return copy_signal;
}

/* "./src:/srv": a colon before a slash begins the target. */
static int split_word(
	const char *word, struct place *ret_from, struct place *ret_to, struct err *err)
{
	const char *colon = strstr(word, ":/");

	*ret_from = *ret_to = (struct place){ 0 };
	if (!*word || colon == word)
		return err_set(err, ERR_INVALID, "--copy '%.100s': name a folder", word);
	ret_from->path = colon ? xstrndup(word, (size_t)(colon - word)) : xstrdup(word);
	cut_tail(ret_from);
	ret_from->contents = true;
	ret_to->path = xstrdup(colon ? colon + 1 : COPY_TARGET);
	cut_tail(ret_to);
	return 0;
}

int copy_check_word(const char *word, struct err *err)
{
	struct place from, to;
	int result = split_word(word, &from, &to, err);

	if (result == 0 && access(from.path, R_OK) < 0)
		result = err_sys(err, errno, "--copy '%s'", from.path);
	place_done(&from);
	place_done(&to);
	return result;
}

static int make_target(struct copy *copy, const struct place *to, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/files/mkdir", to->box);
	char type[16];

	if (copy_box_type(copy, to, type, sizeof type, err) < 0)
		return -1;
	if (!strcmp(type, "dir"))
		return 0;
	return client_call(copy->cli->client, "POST", path,
		json_pack("{s:s,s:b}", "path", to->path, "parents", true), NULL, err);
}

int copy_into_new(struct cli *cli, const char *box, const char *word, struct err *err)
{
	struct copy copy = { .cli = cli, .file = OUTFILE_INIT, .fd = -1 };
	struct place from, to;
	int result;

	if (split_word(word, &from, &to, err) < 0)
		return -1;
	to.box = xstrdup(box);
	to.slash = true;
	progress_init(&copy.bar, from.path, !cli->quiet, BAR_DELAY_MS);
	is_copying = true;
	client_interrupted = copy_signal != 0;
	result = make_target(&copy, &to, err);
	if (result == 0)
		result = copy_in(&copy, &from, &to, false, err);
	is_copying = client_interrupted = false;
	progress_done(&copy.bar);
	if (copy.fd >= 0)
		close(copy.fd);
	place_done(&from);
	place_done(&to);
	return result < 0 || !copy_signal ? result
					  : err_set(err, ERR_CANCELLED, "copying was interrupted");
}
