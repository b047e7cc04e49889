/* json.c - see json.h */
#include "base/json.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"

json_t *json_parse(const char *text, size_t len, struct err *err)
{
	json_error_t why;
	json_t *value = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);

	if (!value)
		err_set(err, ERR_INVALID, "bad JSON at line %d, column %d: %s", why.line,
			why.column, why.text);
	return value;
}

static bool values_are_strings(json_t *value)
{
	const char *key;
	json_t *item;
	size_t i;

	if (json_is_array(value)) {
		json_array_foreach (value, i, item)
			if (!json_is_string(item))
				return false;
	} else {
		json_object_foreach (value, key, item)
			if (!json_is_string(item))
				return false;
	}
	return true;
}

static int read_one(const struct json_key *key, json_t *value, struct err *err)
{
	switch (key->want) {
	case JSON_WANT_STRING:
		if (!json_is_string(value))
			return err_set(err, ERR_INVALID, "'%s' must be a string", key->name);
		*(const char **)key->ret = json_string_value(value);
		return 0;
	case JSON_WANT_INT:
		if (!json_is_integer(value) || json_integer_value(value) < 0)
			return err_set(err, ERR_INVALID,
				"'%s' must be a whole number, zero or more", key->name);
		*(json_int_t *)key->ret = json_integer_value(value);
		return 0;
	case JSON_WANT_BOOL:
		if (!json_is_boolean(value))
			return err_set(err, ERR_INVALID, "'%s' must be true or false", key->name);
		*(bool *)key->ret = json_is_true(value);
		return 0;
	case JSON_WANT_STRINGS:
		if (!json_is_array(value) || !values_are_strings(value))
			return err_set(
				err, ERR_INVALID, "'%s' must be a list of strings", key->name);
		*(json_t **)key->ret = value;
		return 0;
	case JSON_WANT_MAP:
		if (!json_is_object(value) || !values_are_strings(value))
			return err_set(
				err, ERR_INVALID, "'%s' must be an object of strings", key->name);
		*(json_t **)key->ret = value;
		return 0;
	case JSON_WANT_OBJECT:
		if (!json_is_object(value))
			return err_set(err, ERR_INVALID, "'%s' must be an object", key->name);
		*(json_t **)key->ret = value;
		return 0;
	}
	return err_set(err, ERR_SYSTEM, "unknown JSON type for '%s'", key->name);
}

static bool is_absent(json_t *value)
{
	return !value || json_is_null(value);
}

int json_read(json_t *object, const struct json_key *keys, size_t count, struct err *err)
{
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return err_set(err, ERR_INVALID, "expected a JSON object");
	json_object_foreach (object, name, value) {
		const struct json_key *key = NULL;

		for (size_t i = 0; i < count && !key; i++)
			if (!strcmp(keys[i].name, name))
				key = &keys[i];
		if (!key)
			return err_set(err, ERR_INVALID, "unknown key '%.80s'", name);
		if (!json_is_null(value) && read_one(key, value, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < count; i++)
		if (keys[i].required && is_absent(json_object_get(object, keys[i].name)))
			return err_set(err, ERR_INVALID, "'%s' is missing", keys[i].name);
	return 0;
}

char *json_text(const json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	if (!text)
		abort();
	return text;
}

json_t *json_from_box(const char *text)
{
	_cleanup_free_ char *clean = NULL;

	if (text_is_utf8(text, strlen(text)))
		return json_string_nocheck(text);
	clean = xstrdup(text);
	for (char *p = clean; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return json_string_nocheck(clean);
}

json_t *json_time_us(uint64_t us)
{
	char text[CLOCK_RFC3339_MAX];

	/* Four digits of a year end at 9999, and a clock inside a box may claim any year. */
	return us && us < 253402300800000000 ? json_string_nocheck(clock_rfc3339((int64_t)us, text))
					     : json_null();
}

json_t *json_from_u64(uint64_t value)
{
	return json_integer((json_int_t)MIN(value, (uint64_t)INT64_MAX));
}
