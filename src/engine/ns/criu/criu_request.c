/* criu_request.c - refuses an invalid request before anything is started */
#include "engine/ns/criu/criu_internal.h"

static int check_strings(const char *what, const char *const *strings, struct err *err)
{
	size_t count = 0;

	while (strings && strings[count])
		if (++count > CRIU_STRINGS_MAX)
			return err_set(err, ERR_INVALID, "more than %d %s", CRIU_STRINGS_MAX, what);
	return 0;
}

int criu_request_check(enum criu_type type, const struct criu_request *request, struct err *err)
{
	if (!request->program || !request->limit_ms)
		return err_set(err, ERR_INVALID, "criu needs a program and a time limit");
	if (type != CRIU_TYPE_DUMP && type != CRIU_TYPE_RESTORE)
		return 0;
	if (request->images < 0 || (type == CRIU_TYPE_DUMP && request->pid <= 0))
		return err_set(
			err, ERR_INVALID, "criu needs a directory for images, a dump a process");
	if (request->inherit_count > CRIU_INHERIT_MAX)
		return err_set(err, ERR_INVALID, "more than %d inherited fds", CRIU_INHERIT_MAX);
	if (check_strings("external things", request->external, err) < 0 ||
		check_strings("paths", request->irmap_paths, err) < 0 ||
		check_strings("mounts", request->skip_mounts, err) < 0)
		return -1;
	return check_strings("file systems", request->enable_fs, err);
}
