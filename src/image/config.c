/* config.c - the configuration of an image: what its maker says about how to run it
 *
 * It comes from a registry or an archive and ends as arguments and environment of programs in a
 * box, so it is checked for types and bounded once, when the image is made. */
#include "image/image_internal.h"

enum {
	STRINGS_MAX = 1024,
	STRING_MAX = 32 * 1024,
	BYTES_MAX = 256 * 1024,
};

struct tally {
	size_t strings, bytes;
};

static int count_string(struct tally *tally, const char *key, const char *text, struct err *err)
{
	size_t len = strlen(text);

	tally->strings++;
	tally->bytes += len;
	if (len > STRING_MAX)
		return err_set(err, ERR_TOO_LARGE,
			"image config: a string of '%s' is longer than %d bytes", key, STRING_MAX);
	if (tally->strings > STRINGS_MAX || tally->bytes > BYTES_MAX)
		return err_set(err, ERR_TOO_LARGE, "image config: more than %d strings or %d bytes",
			STRINGS_MAX, BYTES_MAX);
	return 0;
}

static int any_is_fine(const char *text, struct err *err)
{
	(void)text;
	(void)err;
	return 0;
}

static int check_env(const char *text, struct err *err)
{
	const char *equals = strchr(text, '=');

	if (equals && equals != text)
		return 0;
	return err_set(err, ERR_INVALID, "image config: '%.80s' in 'env' is not KEY=VALUE", text);
}

/* "80/tcp", "53", "8000-8010/udp". */
static int check_port(const char *text, struct err *err)
{
	size_t number = strspn(text, "0123456789-");
	const char *protocol = text + number;

	if (number && number <= 11 && text[0] != '-' &&
		(!*protocol || !strcmp(protocol, "/tcp") || !strcmp(protocol, "/udp") ||
			!strcmp(protocol, "/sctp")))
		return 0;
	return err_set(err, ERR_INVALID, "image config: '%.80s' in 'ports' is not a port", text);
}

static int check_list(struct tally *tally, const char *key, json_t *list,
	int (*check)(const char *text, struct err *err), struct err *err)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i));

		if (count_string(tally, key, text, err) < 0 || check(text, err) < 0)
			return -1;
	}
	return 0;
}

int image_config_check(json_t *config, struct err *err)
{
	json_t *entrypoint = NULL, *cmd = NULL, *env = NULL, *ports = NULL, *labels = NULL, *value;
	const char *user = "", *workdir = "", *key;
	const struct json_key keys[] = {
		{ "entrypoint", JSON_WANT_STRINGS, &entrypoint, false },
		{ "cmd", JSON_WANT_STRINGS, &cmd, false },
		{ "env", JSON_WANT_STRINGS, &env, false },
		{ "user", JSON_WANT_STRING, &user, false },
		{ "workdir", JSON_WANT_STRING, &workdir, false },
		{ "ports", JSON_WANT_STRINGS, &ports, false },
		{ "labels", JSON_WANT_MAP, &labels, false },
	};
	struct tally tally = { 0 };

	if (!json_is_object(config))
		return err_set(err, ERR_INVALID, "image config is not an object");
	if (json_read(config, keys, ARRAY_LEN(keys), err) < 0)
		return err_wrap(err, "image config");
	if (check_list(&tally, "entrypoint", entrypoint, any_is_fine, err) < 0 ||
		check_list(&tally, "cmd", cmd, any_is_fine, err) < 0 ||
		check_list(&tally, "env", env, check_env, err) < 0 ||
		check_list(&tally, "ports", ports, check_port, err) < 0 ||
		count_string(&tally, "user", user, err) < 0 ||
		count_string(&tally, "workdir", workdir, err) < 0)
		return -1;
	json_object_foreach (labels, key, value)
		if (count_string(&tally, "labels", key, err) < 0 ||
			count_string(&tally, "labels", json_string_value(value), err) < 0)
			return -1;
	return 0;
}
