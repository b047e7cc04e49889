/* workspace.c - /workspace of a removed box
 *
 * It is kept as pool/workspaces/ID.tar, ID being the box's, with ID.json beside it; the JSON is
 * written last and makes it visible. The box is removed only after that: when `box rm
 * --keep-workspace` fails, the box stays. */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "core/core_internal.h"
#include "core/stream_internal.h"
#include "helper/helper.h"
#include "pool/pool.h"
#include "tar/tar.h"
#include "view/view.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define WORKSPACE "workspace"

struct keeping {
	struct keeping *next;
	struct yard *yard;
	struct box *box;
	struct helper *helper;
	struct stream_side side;
	struct err err; /* reported by the helper; kind 0: none */
	bool told;
};

static char *folder_of(const struct yard *yard)
{
	return xasprintf("%s/workspaces", pool_get_path(yard->pool));
}

/* ---- keeping: in the helper ----------------------------------------------------------------- */

static int pack(const struct keeping *keeping, int out, struct view_totals *ret, struct err *err)
{
	_cleanup_close_ int root = -1;
	static const char end[TAR_END_SIZE];

	if ((keeping->side.from_archive &&
		    stream_side_open(keeping->yard, &keeping->side, err) < 0) ||
		view_open((const char *const *)keeping->side.layers, &root, err) < 0)
		return -1;
	if (view_pack(&(struct view_pack_spec){ .root = root, .path = WORKSPACE, .out = out }, ret,
		    err) == 0)
		return 0;
	if (!err || err->kind != ERR_NOT_FOUND)
		return -1;
	/* The box never had a /workspace. */
	err_clear(err);
	*ret = (struct view_totals){ 0 };
	return fd_write_all(out, end, sizeof end, err);
}

static int write_json(
	const struct keeping *keeping, int dir, const struct view_totals *totals, struct err *err)
{
	_cleanup_free_ char *name = xasprintf("%s.json", keeping->box->row.id), *text = NULL;
	_cleanup_json_ json_t *json = NULL;
	char when[CLOCK_RFC3339_MAX];

	json = json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I}", "id", keeping->box->row.id, "box",
		keeping->box->row.name, "box_id", keeping->box->row.id, "owner",
		keeping->box->row.owner, "kept_at", clock_rfc3339(clock_wall_us(), when),
		"size_bytes", (json_int_t)totals->bytes, "files", (json_int_t)totals->files);
	text = json_text(json);
	return file_write_atomic(dir, name, text, strlen(text), 0600, err);
}

static int write_tar(const struct keeping *keeping, int dir, const char *name,
	struct view_totals *ret, struct err *err)
{
	_cleanup_close_ int out =
		openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (out < 0)
		return err_sys(err, errno, "make '%s'", name);
	if (pack(keeping, out, ret, err) < 0)
		return -1;
	return fsync(out) < 0 ? err_sys(err, errno, "write '%s'", name) : 0;
}

/* A failure leaves no file: on a full pool it would only make things worse. */
static int keep(const struct keeping *keeping, struct err *err)
{
	_cleanup_free_ char *folder = folder_of(keeping->yard);
	_cleanup_free_ char *name = xasprintf("%s.tar", keeping->box->row.id);
	_cleanup_close_ int dir = -1;
	struct view_totals totals;

	if (dir_make_all(folder, 0700, err) < 0)
		return -1;
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, errno, "open '%s'", folder);
	if (write_tar(keeping, dir, name, &totals, err) == 0 &&
		write_json(keeping, dir, &totals, err) == 0)
		return 0;
	unlinkat(dir, name, 0);
	return -1;
}

static int run_keep(int sock, void *arg)
{
	struct err err = ERR_INIT;

	if (keep(arg, &err) == 0)
		return 0;
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 1;
}

/* ---- keeping: in the daemon ----------------------------------------------------------------- */

static void keeping_release(struct keeping *keeping)
{
	stream_side_done(keeping->yard, &keeping->side);
	free(keeping);
}

static void keeping_free(struct keeping *keeping)
{
	struct keeping **at = &keeping->yard->keepings;

	while (*at != keeping)
		at = &(*at)->next;
	*at = keeping->next;
	keeping_release(keeping);
}

static void on_message(const void *message, size_t len, void *arg)
{
	struct keeping *keeping = arg;

	if (len == sizeof keeping->err) {
		memcpy(&keeping->err, message, len);
		keeping->told = true;
	}
}

static void on_exit_keep(int code, void *arg)
{
	struct keeping *keeping = arg;
	struct box *box = keeping->box;
	struct err err = keeping->err;

	if (code && !keeping->told)
		err_set(&err, ERR_SYSTEM, "the helper ended with code %d", code);
	if (code)
		err_wrap(&err, "keep the workspace of '%s'", box->row.name);
	else
		yard_event(box->yard, "workspace.kept", box,
			json_pack("{s:s}", "workspace", box->row.id));
	box->keeping = NULL;
	keeping_free(keeping);
	box_keeping_ended(box, code ? &err : NULL);
}

int workspace_keep(struct box *box, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run_keep, .on_message = on_message, .on_exit = on_exit_keep
	};
	struct keeping *keeping;

	if (box->keeping)
		return 0;
	keeping = xnew(struct keeping);
	keeping->yard = box->yard;
	keeping->box = box;
	keeping->next = box->yard->keepings;
	box->yard->keepings = keeping;
	if (stream_side_of_box(box, &keeping->side, err) < 0 ||
		helper_start(box->yard->loop, &ops, keeping, &keeping->side.archive,
			keeping->side.from_archive ? 1 : 0, &keeping->helper, err) < 0) {
		keeping_free(keeping);
		return -1;
	}
	box->keeping = keeping;
	return 0;
}

void workspaces_close(struct yard *yard)
{
	struct keeping *keeping;

	while ((keeping = yard->keepings)) {
		yard->keepings = keeping->next;
		helper_free(keeping->helper);
		keeping->box->keeping = NULL;
		keeping_release(keeping);
	}
}

void workspaces_sweep(struct yard *yard)
{
	_cleanup_free_ char *folder = folder_of(yard);
	DIR *dir = opendir(folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');
		_cleanup_free_ char *json = NULL;

		if (!dot || strcmp(dot, ".tar"))
			continue;
		json = xasprintf("%.*s.json", (int)(dot - entry->d_name), entry->d_name);
		if (faccessat(dirfd(dir), json, F_OK, 0) < 0 && errno == ENOENT)
			unlinkat(dirfd(dir), entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
}

/* ---- afterwards ----------------------------------------------------------------------------- */

static bool is_id(const char *text)
{
	return *text && strlen(text) <= 32 &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(text);
}

static json_t *read_one(const char *folder, const char *file)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", folder, file), *text = NULL;
	json_t *one;
	size_t len;

	if (file_read(AT_FDCWD, path, 65536, &text, &len, NULL) < 0)
		return NULL;
	one = json_parse(text, len, NULL);
	/* Kept by a version without owners. */
	if (json_is_object(one) && !*json_get_text(one, "owner"))
		json_object_set_new(one, "owner", json_string(OWNER_LOCAL));
	return one;
}

static int newest_first(const void *a, const void *b)
{
	return strcmp(json_get_text(*(json_t *const *)b, "kept_at"),
		json_get_text(*(json_t *const *)a, "kept_at"));
}

json_t *workspaces_json(struct yard *yard)
{
	_cleanup_free_ char *folder = folder_of(yard);
	json_t **list = NULL, *sorted = json_array();
	DIR *dir = opendir(folder);
	struct dirent *entry;
	size_t count = 0;

	while (dir && (entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');
		json_t *one = dot && !strcmp(dot, ".json") ? read_one(folder, entry->d_name) : NULL;

		if (one && !yard_may_see(yard, json_get_text(one, "owner"))) {
			json_decref(one);
		} else if (one) {
			xgrow(list, count + 1);
			list[count++] = one;
		}
	}
	if (dir)
		closedir(dir);
	if (count)
		qsort(list, count, sizeof *list, newest_first);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(sorted, list[i]);
	free(list);
	return sorted;
}

/* Finds a workspace by id or by the name of its box; the newest comes first. */
static int find(struct yard *yard, const char *name, char **ret_id, struct err *err)
{
	_cleanup_json_ json_t *list = workspaces_json(yard);
	json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if (is_id(json_get_text(one, "id")) &&
			(!strcmp(json_get_text(one, "id"), name) ||
				!strcmp(json_get_text(one, "box"), name))) {
			*ret_id = xstrdup(json_get_text(one, "id"));
			return 0;
		}
	err_set(err, ERR_NOT_FOUND, "no workspace '%.80s'", name);
	return err_hint(err, "'box workspace ls' lists those that were kept");
}

static int start(struct yard *yard, const char *name, stream_make make,
	const struct disk_stream_ops *ops, void *arg, struct disk_stream **ret, struct err *err)
{
	_cleanup_free_ char *id = NULL, *folder = folder_of(yard);
	struct disk_stream *stream;

	if (find(yard, name, &id, err) < 0)
		return -1;
	stream = disk_stream_new(yard, ops, arg, make);
	stream->file = xasprintf("%s/%s.tar", folder, id);
	return disk_stream_start(stream, ret, err);
}

static int open_file(const char *path, int *ret, struct err *err)
{
	*ret = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open '%s'", path) : 0;
}

static int make_get(struct disk_stream *stream, int out, struct err *err)
{
	_cleanup_free_ char *block = xcalloc(1, STREAM_FLUSH);
	_cleanup_close_ int in = -1;
	ssize_t got;

	if (open_file(stream->file, &in, err) < 0)
		return -1;
	while ((got = read(in, block, STREAM_FLUSH)) > 0)
		if (fd_write_all(out, block, (size_t)got, err) < 0)
			return -1;
	return got < 0 ? err_sys(err, errno, "read '%s'", stream->file) : 0;
}

int workspace_get_start(struct yard *yard, const char *id, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err)
{
	return start(yard, id, make_get, ops, arg, ret, err);
}

static ssize_t read_fd(void *arg, void *data, size_t len, struct err *err)
{
	ssize_t got = read(*(int *)arg, data, len);

	return got < 0 ? err_sys(err, errno, "read a workspace") : got;
}

static json_t *entry_json(const struct tar_entry *entry)
{
	static const struct {
		enum tar_type type;
		const char *name;
	} names[] = { { TAR_FILE, "file" }, { TAR_LINK, "link" }, { TAR_SYMLINK, "symlink" },
		{ TAR_DIR, "dir" }, { TAR_FIFO, "fifo" } };
	const char *type = "other";
	json_t *line = json_object();
	char mode[8], when[CLOCK_RFC3339_MAX];

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (entry->type == names[i].type)
			type = names[i].name;
	snprintf(mode, sizeof mode, "%04o", entry->mode & 07777);
	json_set_path(line, entry->name);
	json_object_set_new(line, "type", json_string(type));
	json_object_set_new(line, "size", json_integer((json_int_t)(entry->real_size & INT64_MAX)));
	json_object_set_new(line, "mode", json_string(mode));
	json_object_set_new(line, "mtime",
		json_string(
			clock_rfc3339(MIN(MAX(entry->mtime, 0), 253402300799) * 1000000, when)));
	return line;
}

static int make_list(struct disk_stream *stream, int out, struct err *err)
{
	struct tar_reader *reader = xnew(struct tar_reader);
	_cleanup_close_ int in = -1;
	const struct tar_entry *entry;
	struct buf text = BUF_INIT;
	json_int_t count = 0;
	int more;

	if (open_file(stream->file, &in, err) < 0)
		return -1;
	reader->read = read_fd;
	reader->arg = &in;
	while ((more = tar_next(reader, &entry, err)) > 0) {
		count++;
		if (stream_line(out, &text, entry_json(entry), STREAM_FLUSH, err) < 0)
			return -1;
	}
	if (more < 0)
		return -1;
	return stream_line(
		out, &text, json_pack("{s:s,s:I}", "type", "end", "entries", count), 0, err);
}

int workspace_list_start(struct yard *yard, const char *id, const struct disk_stream_ops *ops,
	void *arg, struct disk_stream **ret, struct err *err)
{
	return start(yard, id, make_list, ops, arg, ret, err);
}

int workspace_remove(struct yard *yard, const char *name, struct err *err)
{
	_cleanup_free_ char *id = NULL, *folder = folder_of(yard), *json = NULL, *tar = NULL;

	if (find(yard, name, &id, err) < 0)
		return -1;
	json = xasprintf("%s/%s.json", folder, id);
	tar = xasprintf("%s/%s.tar", folder, id);
	if (unlink(json) < 0 && errno != ENOENT)
		return err_sys(err, errno, "remove workspace '%s'", id);
	if (unlink(tar) < 0 && errno != ENOENT)
		log_warn("the archive of a workspace was not removed", kv_str("path", tar),
			kv_int("errno", errno));
	yard_event(yard, "workspace.removed", NULL, json_pack("{s:s}", "workspace", id));
	return 0;
}
