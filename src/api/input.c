/* input.c - what clients send, checked; each refusal says what is allowed */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/text.h"
#include <signal.h>
#include <stdio.h>
#include <strings.h>

enum {
	ARGV_BYTES_MAX = 128 * 1024,
	ENV_BYTES_MAX = 64 * 1024, /* argv, env and the box's own env fit one wire payload */
	ENV_COUNT_MAX = 1024,
	LABELS_MAX = 64,
	ATTACHED_MAX = 32, /* volumes, and folders of the host, per box */
	CACHE_KEY_MAX = 128,
};

json_t *input_take(json_t *object, const char *key)
{
	json_t *value = json_incref(json_object_get(object, key));

	json_object_del(object, key);
	return value;
}

/* ---- modes, signals ------------------------------------------------------------------------- */

int input_mode(const char *what, const char *text, uint32_t *ret, struct err *err)
{
	uint32_t mode = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '7' && p - text < 5; p++)
		mode = mode * 8 + (uint32_t)(*p - '0');
	if (p == text || *p || mode > 07777)
		return err_set(err, ERR_INVALID, "%s '%.20s' must be octal permissions like 0644",
			what, text);
	*ret = mode;
	return 0;
}

static const struct {
	const char *name;
	int number;
} signals[] = {
	{ "HUP", SIGHUP },
	{ "INT", SIGINT },
	{ "QUIT", SIGQUIT },
	{ "ILL", SIGILL },
	{ "TRAP", SIGTRAP },
	{ "ABRT", SIGABRT },
	{ "BUS", SIGBUS },
	{ "FPE", SIGFPE },
	{ "KILL", SIGKILL },
	{ "USR1", SIGUSR1 },
	{ "SEGV", SIGSEGV },
	{ "USR2", SIGUSR2 },
	{ "PIPE", SIGPIPE },
	{ "ALRM", SIGALRM },
	{ "TERM", SIGTERM },
	{ "STKFLT", SIGSTKFLT },
	{ "CHLD", SIGCHLD },
	{ "CONT", SIGCONT },
	{ "STOP", SIGSTOP },
	{ "TSTP", SIGTSTP },
	{ "TTIN", SIGTTIN },
	{ "TTOU", SIGTTOU },
	{ "URG", SIGURG },
	{ "XCPU", SIGXCPU },
	{ "XFSZ", SIGXFSZ },
	{ "VTALRM", SIGVTALRM },
	{ "PROF", SIGPROF },
	{ "WINCH", SIGWINCH },
	{ "IO", SIGIO },
	{ "PWR", SIGPWR },
	{ "SYS", SIGSYS },
};

int input_signal(const char *text, uint32_t *ret, struct err *err)
{
	const char *name = strncasecmp(text, "SIG", 3) ? text : text + 3;
	uint64_t number;

	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (!strcasecmp(signals[i].name, name)) {
			*ret = (uint32_t)signals[i].number;
			return 0;
		}
	if (parse_u64("signal", text, 1, 64, &number, NULL) < 0)
		return err_set(err, ERR_INVALID,
			"signal '%.20s' must be a name like TERM or a number from 1 to 64", text);
	*ret = (uint32_t)number;
	return 0;
}

/* ---- queries -------------------------------------------------------------------------------- */

int input_query_bool(struct call *call, const char *key, bool *ret, struct err *err)
{
	const char *text = call_query(call, key);

	if (!text)
		return 0;
	if (!*text || !strcmp(text, "true") || !strcmp(text, "1"))
		*ret = true;
	else if (!strcmp(text, "false") || !strcmp(text, "0"))
		*ret = false;
	else
		return err_set(err, ERR_INVALID, "%s '%.20s' must be true or false", key, text);
	return 0;
}

int input_query_u64(struct call *call, const char *key, uint64_t lowest, uint64_t highest,
	uint64_t *ret, struct err *err)
{
	const char *text = call_query(call, key);

	return text ? parse_u64(key, text, lowest, highest, ret, err) : 0;
}

int input_query_time(struct call *call, const char *key, uint64_t *ret, struct err *err)
{
	const char *text = call_query(call, key);

	return text ? parse_moment(key, text, ret, err) : 0;
}

int input_query_offset(struct call *call, uint64_t *ret, struct err *err)
{
	const char *text = call_query(call, "offset");

	if (text && !strcmp(text, "end")) {
		*ret = EXEC_OFFSET_END;
		return 0;
	}
	return text ? parse_u64("offset", text, 0, INT64_MAX, ret, err) : 0;
}

/* ---- figures of a box ----------------------------------------------------------------------- */

int input_size(const char *what, json_t *value, uint64_t lowest, uint64_t *ret, struct err *err)
{
	char text[32], low[16];
	uint64_t size;

	if (!value || json_is_null(value))
		return 0;
	if (json_is_integer(value))
		snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
	else if (!json_is_string(value))
		return err_set(err, ERR_INVALID,
			"'%s' must be a size: bytes, or text like \"512M\"", what);
	if (parse_size(what, json_is_string(value) ? json_string_value(value) : text, 0,
		    (uint64_t)1 << 50, &size, err) < 0)
		return -1;
	if (size && size < lowest)
		return err_set(err, ERR_INVALID, "'%s' must be at least %s, or 0 for no limit",
			what, format_size(lowest, low));
	*ret = size;
	return 0;
}

int input_cpu(json_t *value, uint64_t *ret_milli, struct err *err)
{
	char text[64];

	if (!value || json_is_null(value))
		return 0;
	if (json_is_number(value)) {
		double cpus = json_number_value(value);

		/* A value that would be rounded to 0 must not mean "no limit". */
		if (cpus < 0 || cpus > 1e6 || (cpus > 0 && cpus < 0.01))
			return err_set(err, ERR_INVALID,
				"'cpu' must be a number of CPUs from 0.01 to 1024, or 0 for no limit");
		snprintf(text, sizeof text, "%.3f", cpus);
	} else if (!json_is_string(value)) {
		return err_set(
			err, ERR_INVALID, "'cpu' must be a number of CPUs, like 2 or \"1.5\"");
	} else {
		snprintf(text, sizeof text, "%s", json_string_value(value));
	}
	if (!strcmp(text, "0") || !strcmp(text, "0.000")) {
		*ret_milli = 0;
		return 0;
	}
	return parse_cpus("cpu", text, ret_milli, err);
}

int input_argv(const char *what, json_t *argv, struct err *err)
{
	size_t bytes = 0, i;
	json_t *word;

	if (json_array_size(argv) == 0 || !*json_string_value(json_array_get(argv, 0)))
		return err_set(err, ERR_INVALID, "'%s' must name a program", what);
	if (json_array_size(argv) > EXEC_ARGV_MAX)
		return err_set(
			err, ERR_INVALID, "'%s' has more than %d words", what, EXEC_ARGV_MAX);
	json_array_foreach (argv, i, word)
		bytes += json_string_length(word) + 1;
	if (bytes > ARGV_BYTES_MAX)
		return err_set(err, ERR_INVALID, "'%s' is larger than %d bytes in all", what,
			ARGV_BYTES_MAX);
	return 0;
}

int input_env(json_t *env, struct err *err)
{
	size_t bytes = 0;
	const char *key;
	json_t *value;

	if (json_object_size(env) > ENV_COUNT_MAX)
		return err_set(err, ERR_INVALID, "'env' has more than %d variables", ENV_COUNT_MAX);
	json_object_foreach (env, key, value) {
		_cleanup_free_ char *pair = xasprintf("%s=%s", key, json_string_value(value));

		bytes += strlen(pair) + 1;
		/* A key with '=' would become another variable. */
		if (strchr(key, '='))
			return err_set(err, ERR_INVALID, "env '%.80s' must not hold '='", key);
		if (env_check("env", pair, err) < 0)
			return -1;
	}
	if (bytes > ENV_BYTES_MAX)
		return err_set(
			err, ERR_INVALID, "'env' is larger than %d bytes in all", ENV_BYTES_MAX);
	return 0;
}

int input_labels(json_t *labels, struct err *err)
{
	const char *key;
	json_t *value;

	if (json_object_size(labels) > LABELS_MAX)
		return err_set(err, ERR_INVALID, "a box has at most %d labels", LABELS_MAX);
	json_object_foreach (labels, key, value) {
		_cleanup_free_ char *pair = xasprintf("%s=%s", key, json_string_value(value));

		if (strchr(key, '='))
			return err_set(err, ERR_INVALID,
				"label '%.80s' must not hold '=' in its key", key);
		if (label_check("label", pair, err) < 0)
			return -1;
	}
	return 0;
}

/* ---- volumes and mounts --------------------------------------------------------------------- */

static int check_list(const char *what, json_t *list, struct err *err)
{
	if (!json_is_array(list))
		return err_set(err, ERR_INVALID, "'%s' must be a list of objects", what);
	if (json_array_size(list) > ATTACHED_MAX)
		return err_set(
			err, ERR_INVALID, "'%s' has more than %d entries", what, ATTACHED_MAX);
	return 0;
}

/* The target in the box may be anything but "/". */
static int check_target(const char *path, struct err *err)
{
	if (file_path_check("path", path, err) < 0)
		return -1;
	if (strspn(path, "/.") == strlen(path))
		return err_set(err, ERR_INVALID,
			"path '%.80s' is the root of the box; name a file or folder below it",
			path);
	return 0;
}

static int check_volume(json_t *entry, struct err *err)
{
	const char *name = NULL, *path = NULL;
	bool read_only;
	const struct json_key keys[] = {
		{ "volume", JSON_WANT_STRING, &name, true },
		{ "path", JSON_WANT_STRING, &path, true },
		{ "read_only", JSON_WANT_BOOL, &read_only, false },
	};

	if (json_read(entry, keys, ARRAY_LEN(keys), err) < 0 || name_check("volume", name, err) < 0)
		return -1;
	return check_target(path, err);
}

static int check_mount(json_t *entry, struct err *err)
{
	const char *source = NULL, *path = NULL;
	json_int_t uid = 0, gid = 0;
	bool read_only, root;
	const struct json_key keys[] = {
		{ "root", JSON_WANT_BOOL, &root, false },
		{ "source", JSON_WANT_STRING, &source, true },
		{ "path", JSON_WANT_STRING, &path, true },
		{ "read_only", JSON_WANT_BOOL, &read_only, false },
		{ "uid", JSON_WANT_INT, &uid, false },
		{ "gid", JSON_WANT_INT, &gid, false },
	};

	if (json_read(entry, keys, ARRAY_LEN(keys), err) < 0 ||
		file_path_check("source", source, err) < 0)
		return -1;
	if (uid >= UINT32_MAX || gid >= UINT32_MAX)
		return err_set(err, ERR_INVALID, "'uid' and 'gid' are below %u", UINT32_MAX);
	return check_target(path, err);
}

static int check_entries(const char *what, json_t *list,
	int (*check)(json_t *entry, struct err *err), struct err *err)
{
	json_t *entry;
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	if (check_list(what, list, err) < 0)
		return -1;
	json_array_foreach (list, i, entry)
		if (check(entry, err) < 0)
			return err_wrap(err, "'%s', entry %zu", what, i + 1);
	return 0;
}

int input_volumes(json_t *volumes, struct err *err)
{
	return check_entries("volumes", volumes, check_volume, err);
}

int input_mounts(json_t *mounts, struct err *err)
{
	return check_entries("mounts", mounts, check_mount, err);
}

int input_cache_key(const char *key, struct err *err)
{
	size_t len = strlen(key);

	if (!len || len > CACHE_KEY_MAX ||
		strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789:._-") != len)
		return err_set(err, ERR_INVALID,
			"'cache_key' has 1 to %d of a-z, 0-9, ':', '.', '_' and '-'",
			CACHE_KEY_MAX);
	return 0;
}

/* ---- from inside a box ---------------------------------------------------------------------- */
