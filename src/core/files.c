/* files.c - see files.h
 *
 *   box-init  ── channel (task.c) ──┐
 *                                    > file_ops
 *   a helper  ── disk_stream ───────┘   for a box that is stopped (look_internal.h)
 */
#include "core/files.h"
#include "core/look_internal.h"
#include "core/task_internal.h"

enum {
	READ_SIZE = 128 * 1024,
	PENDING_MAX = 256 * 1024, /* bytes not yet returned; above this the helper has to wait */
	RECORD_MAX = 64 * 1024,
};
static_assert((int)FILE_PATH_MAX == (int)WIRE_PATH_MAX, "the bound of files.h is box-init's");

struct file_task {
	struct task task;
	enum file_verb verb;
	const struct file_ops *ops;
	void *arg;
	struct disk_stream *stream; /* NULL: box-init is asked */
	struct buf gathered;	    /* received from the helper, not parsed yet */
	bool paused;
	bool headed; /* FILE_READ: the record before the bytes has come */
};

/* ---- what comes ----------------------------------------------------------------------------- */

static void tell_info(struct file_task *file, const struct wire_stat *stat)
{
	file->ops->on_info(&(const struct file_info){ .name = stat->name,
				   .mode = stat->mode,
				   .uid = stat->uid,
				   .gid = stat->gid,
				   .size = stat->size,
				   .mtime_us = stat->mtime_us,
				   .target = stat->target },
		file->arg);
}

static int on_stat(struct task *task, struct wire_reader *reply, struct err *err)
{
	struct wire_stat stat;

	wire_get_stat(reply, &stat);
	if (wire_get_done(reply, err) < 0)
		return -1;
	tell_info((struct file_task *)task, &stat);
	return 0;
}

static int on_counts(struct task *task, struct wire_reader *reply, struct err *err)
{
	struct file_task *file = (struct file_task *)task;
	uint64_t files = wire_get_u64(reply);
	uint64_t bytes = wire_get_u64(reply);

	if (wire_get_done(reply, err) < 0)
		return -1;
	file->ops->on_unpacked(files, bytes, file->arg);
	return 0;
}

static int on_bytes(struct task *task, const void *data, size_t len, struct err *err)
{
	struct file_task *file = (struct file_task *)task;

	(void)err;
	file->ops->on_data(data, len, file->arg);
	return 0;
}

/* Parses whole records of wire_stat. */
static int on_entries(struct task *task, const void *data, size_t len, struct err *err)
{
	struct file_task *file = (struct file_task *)task;
	struct wire_reader in = { data, (const uint8_t *)data + len, false };

	while (in.at < in.end && !in.bad && !task->finished) {
		struct wire_stat stat;

		wire_get_stat(&in, &stat);
		if (!in.bad)
			tell_info(file, &stat);
	}
	if (task->finished)
		return 0;
	file->ops->on_data(NULL, len, file->arg);
	return wire_get_done(&in, err);
}

static void on_writable(struct task *task)
{
	struct file_task *file = (struct file_task *)task;

	if (file->ops->on_writable)
		file->ops->on_writable(file->arg);
}

static void on_done(struct task *task, const struct err *err)
{
	struct file_task *file = (struct file_task *)task;

	file->ops->on_done(err, file->arg);
}

/* ---- the verbs, as box-init knows them ------------------------------------------------------ */

#define VERB(name, ...)                                                                       \
	{                                                                                     \
		.op = WIRE_OP_##name, .writable = on_writable, .done = on_done, ##__VA_ARGS__ \
	}

static const struct task_kind kinds[] = {
	[FILE_STAT] = VERB(STAT, .reply = on_stat),
	[FILE_LIST] = VERB(LIST, .data = on_entries),
	[FILE_READ] = VERB(READ, .reply = on_stat, .data = on_bytes),
	[FILE_WRITE] = VERB(WRITE, .reply = on_stat),
	[FILE_MKDIR] = VERB(MKDIR),
	[FILE_REMOVE] = VERB(REMOVE),
	[FILE_RENAME] = VERB(RENAME),
	[FILE_CHMOD] = VERB(CHMOD),
	[FILE_TAR_OUT] = VERB(TAR_OUT, .data = on_bytes),
	[FILE_TAR_IN] = VERB(TAR_IN, .reply = on_counts),
};
static_assert(ARRAY_LEN(kinds) == FILE_VERB_COUNT, "every verb has its op");

static void put_request(struct buf *out, const struct file_spec *spec)
{
	wire_put_str(out, spec->path);
	switch (spec->verb) {
	case FILE_STAT:
		wire_put_u8(out, spec->follow);
		break;
	case FILE_READ:
		wire_put_u64(out, spec->offset);
		wire_put_u64(out, spec->length);
		break;
	case FILE_WRITE:
	case FILE_MKDIR:
		wire_put_u32(out, spec->mode);
		wire_put_u8(out, spec->parents);
		break;
	case FILE_REMOVE:
		wire_put_u8(out, spec->recursive);
		break;
	case FILE_RENAME:
		wire_put_str(out, spec->to);
		break;
	case FILE_CHMOD:
		wire_put_u32(out, spec->mode);
		break;
	default:
		break;
	}
}

/* ---- from the disk of a box that is stopped ------------------------------------------------- */

/* Parses the next whole record of what was gathered: 1, or 0 when it is not complete yet. */
static int next_record(struct file_task *file, struct err *err)
{
	const uint8_t *at = buf_head(&file->gathered);
	struct wire_reader in = { at, at + file->gathered.len, false };
	struct wire_stat stat;
	uint32_t len;

	if (file->gathered.len < sizeof len)
		return 0;
	len = wire_get_u32(&in);
	if (len > RECORD_MAX)
		return err_set(err, ERR_PROTOCOL, "a helper said something unknown");
	if (file->gathered.len < sizeof len + len)
		return 0;
	in.end = in.at + len;
	wire_get_stat(&in, &stat);
	if (wire_get_done(&in, err) < 0)
		return -1;
	tell_info(file, &stat);
	buf_eat(&file->gathered, sizeof len + len);
	return 1;
}

static int take_gathered(struct file_task *file, struct err *err)
{
	size_t before = file->gathered.len;
	bool bytes = file->verb == FILE_TAR_OUT || file->headed;
	int got = 1;

	while (!bytes && (got = next_record(file, err)) == 1 && !file->task.finished)
		bytes = file->headed = file->verb == FILE_READ;
	if (got < 0 || file->task.finished)
		return got;
	if (bytes && file->gathered.len) {
		file->task.owed += file->gathered.len;
		file->ops->on_data(buf_head(&file->gathered), file->gathered.len, file->arg);
		buf_eat(&file->gathered, file->gathered.len);
	} else if (file->verb == FILE_LIST && before > file->gathered.len) {
		file->task.owed += before - file->gathered.len;
		file->ops->on_data(NULL, before - file->gathered.len, file->arg);
	}
	return 0;
}

/* Reads once per round of the loop, so that others have their turn. */
static void on_readable(struct disk_stream *stream, void *arg)
{
	struct file_task *file = arg;
	struct err err = ERR_INIT;
	size_t len = disk_stream_read(stream, buf_room(&file->gathered, READ_SIZE), READ_SIZE);

	if (!len)
		return;
	buf_grew(&file->gathered, len);
	task_enter(&file->task);
	if (take_gathered(file, &err) < 0)
		task_finish(&file->task, &err);
	if (task_leave(&file->task) && file->task.owed > PENDING_MAX) {
		file->paused = true;
		disk_stream_pause(stream, true);
	}
}

static void on_stream_done(struct disk_stream *stream, const struct err *err, void *arg)
{
	struct file_task *file = arg;

	(void)stream;
	task_finish(&file->task, err);
}

static void on_consumed(struct task *task)
{
	struct file_task *file = (struct file_task *)task;

	if (!file->paused || task->owed > PENDING_MAX)
		return;
	file->paused = false;
	disk_stream_pause(file->stream, false);
}

static void release(struct task *task)
{
	struct file_task *file = (struct file_task *)task;

	disk_stream_free(file->stream);
	buf_done(&file->gathered);
}

static int look(
	struct file_task *file, struct box *box, const struct file_spec *spec, struct err *err)
{
	static const struct disk_stream_ops ops = { .on_readable = on_readable,
		.on_done = on_stream_done };
	const struct look_spec look = { .op = file->task.kind->op,
		.path = spec->path,
		.follow = spec->follow,
		.offset = spec->offset,
		.length = spec->length };

	if (box_look_start(box, &look, &ops, file, &file->stream, err) == 0)
		return 0;
	task_free(&file->task);
	return -1;
}

/* ---- start ---------------------------------------------------------------------------------- */

static bool has_dotdot(const char *path)
{
	for (const char *p = path; *p; p++)
		if (p[0] == '/' && p[1] == '.' && p[2] == '.' && (p[3] == '/' || p[3] == '\0'))
			return true;
	return false;
}

int file_path_check(const char *what, const char *path, struct err *err)
{
	if (!path || !*path)
		return err_set(err, ERR_INVALID, "'%s' is missing", what);
	if (strlen(path) > FILE_PATH_MAX)
		return err_set(
			err, ERR_INVALID, "'%s' is longer than %d bytes", what, FILE_PATH_MAX);
	if (*path != '/')
		return err_set(err, ERR_INVALID, "%s '%.80s' must be absolute: begin with '/'",
			what, path);
	if (has_dotdot(path))
		return err_set(err, ERR_INVALID, "%s '%.80s' must not hold '..'", what, path);
	return 0;
}

static bool is_on_disk(enum file_verb verb)
{
	return verb == FILE_STAT || verb == FILE_LIST || verb == FILE_READ || verb == FILE_TAR_OUT;
}

int file_start(struct box *box, const struct file_spec *spec, const struct file_ops *ops, void *arg,
	struct task **ret, struct err *err)
{
	bool rename = spec->verb == FILE_RENAME;
	struct buf request = BUF_INIT;
	struct file_task *file;
	int started;

	if (file_path_check(rename ? "from" : "path", spec->path, err) < 0 ||
		(rename && file_path_check("to", spec->to, err) < 0))
		return -1;
	file = xnew(struct file_task);
	*file = (struct file_task){
		.task = { .kind = &kinds[spec->verb], .consumed = on_consumed, .release = release },
		.verb = spec->verb,
		.ops = ops,
		.arg = arg
	};
	if (is_on_disk(spec->verb) && box_is_looked_at(box)) {
		started = look(file, box, spec, err);
	} else {
		put_request(&request, spec);
		started = task_open(&file->task, box, &request, err);
		buf_done(&request);
	}
	if (started == 0)
		*ret = &file->task;
	return started;
}
