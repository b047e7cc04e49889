/* exec_body.c - the description of a program to be run, from JSON to what core is told */
#include "api/api_internal.h"
#include "base/strv.h"
#include "base/text.h"

static const char **argv_of(json_t *list)
{
	const char **argv = xnewn(const char *, json_array_size(list) + 1);
	json_t *word;
	size_t i;

	json_array_foreach (list, i, word)
		argv[i] = json_string_value(word);
	return argv;
}

static char **env_of(json_t *map)
{
	char **env = xnewn(char *, json_object_size(map) + 1);
	size_t count = 0;
	const char *key;
	json_t *value;

	json_object_foreach (map, key, value)
		env[count++] = xasprintf("%s=%s", key, json_string_value(value));
	return env;
}

static int read_input(const char *text, const char *base64, struct exec_body *ret, struct err *err)
{
	if (text && base64)
		return err_set(err, ERR_INVALID, "give 'stdin' or 'stdin_b64', not both");
	ret->has_input = text || base64;
	if (base64 && base64_decode(base64, strlen(base64), &ret->input, &ret->input_len, err) < 0)
		return err_wrap(err, "stdin_b64");
	if (text) {
		ret->input_len = strlen(text);
		ret->input = xmemdup(text, ret->input_len);
	}
	return 0;
}

int exec_body_read(json_t *body, struct exec_body *ret, struct err *err)
{
	json_t *argv = NULL, *env = NULL;
	const char *text = NULL, *base64 = NULL;
	json_int_t rows = 0, cols = 0, timeout_ms = 0;
	const struct json_key keys[] = {
		{ "argv", JSON_WANT_STRINGS, &argv, true },
		{ "env", JSON_WANT_MAP, &env, false },
		{ "cwd", JSON_WANT_STRING, &ret->spec.cwd, false },
		{ "user", JSON_WANT_STRING, &ret->spec.user, false },
		{ "tty", JSON_WANT_BOOL, &ret->spec.tty, false },
		{ "rows", JSON_WANT_INT, &rows, false },
		{ "cols", JSON_WANT_INT, &cols, false },
		{ "timeout_ms", JSON_WANT_INT, &timeout_ms, false },
		{ "stdin", JSON_WANT_STRING, &text, false },
		{ "stdin_b64", JSON_WANT_STRING, &base64, false },
		{ "detach", JSON_WANT_BOOL, &ret->spec.detach, false },
	};

	*ret = (struct exec_body){ 0 };
	if (json_read(body, keys, ARRAY_LEN(keys), err) < 0 || input_argv("argv", argv, err) < 0 ||
		input_env(env, err) < 0)
		return -1;
	if (read_input(text, base64, ret, err) < 0)
		return -1;
	ret->argv = argv_of(argv);
	ret->env = env_of(env);
	ret->spec.argv = ret->argv;
	ret->spec.env = (const char *const *)ret->env;
	/* Core checks the maximum. */
	ret->spec.rows = (uint16_t)MIN(rows, (json_int_t)UINT16_MAX);
	ret->spec.cols = (uint16_t)MIN(cols, (json_int_t)UINT16_MAX);
	ret->spec.timeout_ms = (uint64_t)timeout_ms;
	return 0;
}

void exec_body_done(struct exec_body *body)
{
	free(body->argv);
	strv_free(body->env);
	free(body->input);
	*body = (struct exec_body){ 0 };
}
