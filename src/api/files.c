/* files.c - questions about files and small changes to them; bytes of files are in transfer.c */
#include "api/api_internal.h"
#include "base/text.h"
#include <stdio.h>
#include <sys/stat.h>

static const char *type_name(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "dir";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "char";
	case S_IFBLK:
		return "block";
	default:
		return "unknown";
	}
}

/* A name need not be text; the bytes themselves are told then, too. */
static void set_name(json_t *value, const char *key, const char *key_b64, const char *name)
{
	json_object_set_new(value, key, json_from_box(name));
	if (!text_is_utf8(name, strlen(name))) {
		_cleanup_free_ char *base64 = base64_encode(name, strlen(name));

		json_object_set_new(value, key_b64, json_string(base64));
	}
}

json_t *stat_json(const struct wire_stat *stat)
{
	json_t *value = json_object();
	char mode[8];

	snprintf(mode, sizeof mode, "%04o", stat->mode & 07777);
	set_name(value, "name", "name_b64", stat->name);
	json_object_set_new(value, "type", json_string(type_name(stat->mode)));
	json_object_set_new(value, "mode", json_string(mode));
	json_object_set_new(value, "uid", json_integer(stat->uid));
	json_object_set_new(value, "gid", json_integer(stat->gid));
	json_object_set_new(value, "size", json_from_u64(stat->size));
	json_object_set_new(value, "mtime", json_time_us(stat->mtime_us));
	if (S_ISLNK(stat->mode))
		set_name(value, "target", "target_b64", stat->target);
	else
		json_object_set_new(value, "target", json_null());
	return value;
}

static json_t *render_stat(struct wire_reader *reply, json_t *extra, struct err *err)
{
	struct wire_stat stat;

	(void)extra;
	wire_get_stat(reply, &stat);
	return wire_get_done(reply, err) < 0 ? NULL : stat_json(&stat);
}

void api_file_stat(struct call *call)
{
	const char *path = call_query(call, "path");
	bool follow = false;
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (input_path("path", path, &err) < 0 ||
		input_query_bool(call, "follow", &follow, &err) < 0)
		return call_error(call, &err);
	if (look(call, &(struct look_spec){ .op = WIRE_OP_STAT, .path = path, .follow = follow }))
		return;
	wire_put_str(&request, path);
	wire_put_u8(&request, follow);
	ask(call, WIRE_OP_STAT, &request, render_stat, NULL);
}

void api_file_remove(struct call *call)
{
	const char *path = call_query(call, "path");
	bool recursive = false;
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (input_path("path", path, &err) < 0 ||
		input_query_bool(call, "recursive", &recursive, &err) < 0)
		return call_error(call, &err);
	wire_put_str(&request, path);
	wire_put_u8(&request, recursive);
	ask(call, WIRE_OP_REMOVE, &request, NULL, NULL);
}

void api_file_mkdir(struct call *call)
{
	const char *path = NULL, *mode_text = "0755";
	bool parents = false;
	uint32_t mode = 0;
	const struct json_key keys[] = {
		{ "path", JSON_WANT_STRING, &path, true },
		{ "mode", JSON_WANT_STRING, &mode_text, false },
		{ "parents", JSON_WANT_BOOL, &parents, false },
	};
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		input_path("path", path, &err) < 0 ||
		input_mode("mode", mode_text, &mode, &err) < 0)
		return call_error(call, &err);
	wire_put_str(&request, path);
	wire_put_u32(&request, mode);
	wire_put_u8(&request, parents);
	ask(call, WIRE_OP_MKDIR, &request, NULL, NULL);
}

void api_file_rename(struct call *call)
{
	const char *from = NULL, *to = NULL;
	const struct json_key keys[] = {
		{ "from", JSON_WANT_STRING, &from, true },
		{ "to", JSON_WANT_STRING, &to, true },
	};
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		input_path("from", from, &err) < 0 || input_path("to", to, &err) < 0)
		return call_error(call, &err);
	wire_put_str(&request, from);
	wire_put_str(&request, to);
	ask(call, WIRE_OP_RENAME, &request, NULL, NULL);
}

void api_file_chmod(struct call *call)
{
	const char *path = NULL, *mode_text = NULL;
	uint32_t mode = 0;
	const struct json_key keys[] = {
		{ "path", JSON_WANT_STRING, &path, true },
		{ "mode", JSON_WANT_STRING, &mode_text, true },
	};
	struct buf request = BUF_INIT;
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		input_path("path", path, &err) < 0 ||
		input_mode("mode", mode_text ? mode_text : "", &mode, &err) < 0)
		return call_error(call, &err);
	wire_put_str(&request, path);
	wire_put_u32(&request, mode);
	ask(call, WIRE_OP_CHMOD, &request, NULL, NULL);
}
