/* build_config.c - the configuration of an image; see build_internal.h
 *
 * The configuration is that of image.h:
 * {"entrypoint":[],"cmd":[],"env":["K=V"],"user":"","workdir":"", "ports":["80/tcp"],"labels":{}}.
 * It begins as the base image's. */
#include "base/alloc.h"
#include "base/strv.h"
#include "cli/build_internal.h"

static json_t *strings_json(char *const *words)
{
	json_t *list = json_array();

	for (; *words; words++)
		json_array_append_new(list, json_string(*words));
	return list;
}

static json_t *need(json_t *config, const char *key, json_t *empty)
{
	json_t *value = json_object_get(config, key);

	if (value) {
		json_decref(empty);
		return value;
	}
	json_object_set_new(config, key, empty);
	return empty;
}

/* ---- environment ---------------------------------------------------------------------------- */

/* The default PATH of programs, see box-init; "$PATH" must not lose it. */
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *env_get(const char *name, void *arg)
{
	json_t *env = json_object_get(arg, "env"), *pair;
	size_t i, len = strlen(name);

	json_array_foreach (env, i, pair) {
		const char *text = json_string_value(pair);

		if (text && !strncmp(text, name, len) && text[len] == '=')
			return text + len + 1;
	}
	return strcmp(name, "PATH") ? NULL : DEFAULT_PATH;
}

static void env_set(json_t *config, const char *pair)
{
	json_t *env = need(config, "env", json_array()), *old;
	size_t i, len = strcspn(pair, "=") + 1;

	json_array_foreach (env, i, old)
		if (json_string_value(old) && !strncmp(json_string_value(old), pair, len)) {
			json_array_set_new(env, i, json_string(pair));
			return;
		}
	json_array_append_new(env, json_string(pair));
}

/* Words are parsed again, now that variables have values: "env PATH=/opt/bin:$PATH". */
static int apply_env(json_t *config, const struct boxfile_step *step, struct err *err)
{
	_cleanup_json_ json_t *before = json_deep_copy(config);
	_cleanup_strv_ char **words = NULL;

	if (boxfile_words(step->rest, env_get, before, &words, err) < 0)
		return -1;
	for (char **word = words; *word; word++)
		if (strchr(*word, '='))
			env_set(config, *word);
	return 0;
}

json_t *build_config_env(json_t *config)
{
	json_t *env = json_object(), *pair;
	size_t i;

	json_array_foreach (json_object_get(config, "env"), i, pair) {
		const char *text = json_string_value(pair),
			   *equals = text ? strchr(text, '=') : NULL;
		_cleanup_free_ char *key = equals ? xstrndup(text, (size_t)(equals - text)) : NULL;

		if (key && *key)
			json_object_set_new(env, key, json_string(equals + 1));
	}
	return env;
}

/* ---- paths ---------------------------------------------------------------------------------- */

char *build_config_path(json_t *config, const char *path)
{
	const char *own = json_str(config, "workdir");
	/* The default folder of programs: see box-init. */
	const char *workdir = *path == '/' ? "" : *own ? own : "/workspace";
	_cleanup_free_ char *whole = xasprintf("%s/%s", workdir, path);
	char *out = xnewn(char, strlen(whole) + 2), *to = out;

	for (const char *p = whole; *p;) {
		size_t len = strcspn(p, "/");

		if (len && !(len == 1 && *p == '.')) {
			*to++ = '/';
			memcpy(to, p, len);
			to += len;
		}
		p += len + (p[len] == '/');
	}
	if (to == out)
		*to = '/';
	return out;
}

/* ---- the others ----------------------------------------------------------------------------- */

static void apply_ports(json_t *config, char *const *words)
{
	json_t *ports = need(config, "ports", json_array()), *old;
	size_t i;

	for (; *words; words++) {
		_cleanup_free_ char *port =
			xasprintf("%s%s", *words, strchr(*words, '/') ? "" : "/tcp");
		bool known = false;

		json_array_foreach (ports, i, old)
			known = known || !strcmp(json_string_value(old) ?: "", port);
		if (!known)
			json_array_append_new(ports, json_string(port));
	}
}

static void apply_labels(json_t *config, char *const *words)
{
	json_t *labels = need(config, "labels", json_object());

	for (; *words; words++) {
		const char *equals = strchr(*words, '=');
		_cleanup_free_ char *key = xstrndup(*words, (size_t)(equals - *words));

		json_object_set_new(labels, key, json_string(equals + 1));
	}
}

int build_config_apply(json_t *config, const struct boxfile_step *step, struct err *err)
{
	_cleanup_free_ char *path = NULL;

	switch (step->kind) {
	case BOXFILE_ENV:
		return apply_env(config, step, err);
	case BOXFILE_WORKDIR:
		path = build_config_path(config, step->words[0]);
		json_object_set_new(config, "workdir", json_string(path));
		return 0;
	case BOXFILE_USER:
		json_object_set_new(config, "user", json_string(step->words[0]));
		return 0;
	case BOXFILE_ENTRYPOINT:
		json_object_set_new(config, "entrypoint", strings_json(step->words));
		return 0;
	case BOXFILE_CMD:
		json_object_set_new(config, "cmd", strings_json(step->words));
		return 0;
	case BOXFILE_EXPOSE:
		apply_ports(config, step->words);
		return 0;
	case BOXFILE_LABEL:
		apply_labels(config, step->words);
		return 0;
	default:
		return 0;
	}
}

static bool is_empty(json_t *value)
{
	return !value || json_is_null(value) ||
	       (json_is_string(value) ? !*json_string_value(value)
				      : !json_array_size(value) && !json_object_size(value));
}

bool build_config_equal(json_t *a, json_t *b)
{
	static const char *const keys[] = { "entrypoint", "cmd", "env", "user", "workdir", "ports",
		"labels" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		json_t *left = json_object_get(a, keys[i]), *right = json_object_get(b, keys[i]);

		if (!(is_empty(left) && is_empty(right)) && !json_equal(left, right))
			return false;
	}
	return true;
}
