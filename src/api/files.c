/* files.c - the calls about files: what is asked, how a file is told; transfer.c does the rest */
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

/* A name need not be text; its bytes are then sent too. */
static void set_name(json_t *value, const char *key, const char *key_b64, const char *name)
{
	json_object_set_new(value, key, json_from_box(name));
	if (!text_is_utf8(name, strlen(name))) {
		_cleanup_free_ char *base64 = base64_encode(name, strlen(name));

		json_object_set_new(value, key_b64, json_string(base64));
	}
}

json_t *file_json(const struct file_info *info)
{
	json_t *value = json_object();
	char mode[8];

	snprintf(mode, sizeof mode, "%04o", info->mode & 07777);
	set_name(value, "name", "name_b64", info->name);
	json_object_set_new(value, "type", json_string(type_name(info->mode)));
	json_object_set_new(value, "mode", json_string(mode));
	json_object_set_new(value, "uid", json_integer(info->uid));
	json_object_set_new(value, "gid", json_integer(info->gid));
	json_object_set_new(value, "size", json_from_u64(info->size));
	json_object_set_new(value, "mtime", json_time_us(info->mtime_us));
	if (S_ISLNK(info->mode))
		set_name(value, "target", "target_b64", info->target);
	else
		json_object_set_new(value, "target", json_null());
	return value;
}

void api_file_stat(struct call *call)
{
	struct file_spec spec = { .verb = FILE_STAT, .path = call_query(call, "path") };
	struct err err = ERR_INIT;

	if (input_query_bool(call, "follow", &spec.follow, &err) < 0)
		return call_error(call, &err);
	transfer(call, &spec);
}

void api_file_list(struct call *call)
{
	transfer(call, &(struct file_spec){ .verb = FILE_LIST, .path = call_query(call, "path") });
}

void api_file_read(struct call *call)
{
	struct file_spec spec = { .verb = FILE_READ, .path = call_query(call, "path") };
	struct err err = ERR_INIT;

	if (input_query_u64(call, "offset", 0, INT64_MAX, &spec.offset, &err) < 0 ||
		input_query_u64(call, "length", 0, INT64_MAX, &spec.length, &err) < 0)
		return call_error(call, &err);
	transfer(call, &spec);
}

void api_file_write(struct call *call)
{
	struct file_spec spec = { .verb = FILE_WRITE, .path = call_query(call, "path") };
	const char *mode = call_query(call, "mode");
	struct err err = ERR_INIT;

	if ((mode && input_mode("mode", mode, &spec.mode, &err) < 0) ||
		input_query_bool(call, "parents", &spec.parents, &err) < 0)
		return call_error(call, &err);
	transfer(call, &spec);
}

void api_file_remove(struct call *call)
{
	struct file_spec spec = { .verb = FILE_REMOVE, .path = call_query(call, "path") };
	struct err err = ERR_INIT;

	if (input_query_bool(call, "recursive", &spec.recursive, &err) < 0)
		return call_error(call, &err);
	transfer(call, &spec);
}

void api_archive_read(struct call *call)
{
	transfer(call,
		&(struct file_spec){ .verb = FILE_TAR_OUT, .path = call_query(call, "path") });
}

void api_archive_write(struct call *call)
{
	transfer(
		call, &(struct file_spec){ .verb = FILE_TAR_IN, .path = call_query(call, "path") });
}

void api_file_mkdir(struct call *call)
{
	struct file_spec spec = { .verb = FILE_MKDIR };
	const char *mode = "0755";
	const struct json_key keys[] = {
		{ "path", JSON_WANT_STRING, &spec.path, true },
		{ "mode", JSON_WANT_STRING, &mode, false },
		{ "parents", JSON_WANT_BOOL, &spec.parents, false },
	};
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		input_mode("mode", mode, &spec.mode, &err) < 0)
		return call_error(call, &err);
	transfer(call, &spec);
}

void api_file_rename(struct call *call)
{
	struct file_spec spec = { .verb = FILE_RENAME };
	const struct json_key keys[] = {
		{ "from", JSON_WANT_STRING, &spec.path, true },
		{ "to", JSON_WANT_STRING, &spec.to, true },
	};
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0)
		return call_error(call, &err);
	transfer(call, &spec);
}

void api_file_chmod(struct call *call)
{
	struct file_spec spec = { .verb = FILE_CHMOD };
	const char *mode = NULL;
	const struct json_key keys[] = {
		{ "path", JSON_WANT_STRING, &spec.path, true },
		{ "mode", JSON_WANT_STRING, &mode, true },
	};
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		input_mode("mode", mode ? mode : "", &spec.mode, &err) < 0)
		return call_error(call, &err);
	transfer(call, &spec);
}
