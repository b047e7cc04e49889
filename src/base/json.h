/* json.h - reading JSON objects from outside strictly, over jansson
 *
 * A spec table names each key with its type; unknown keys, wrong types and missing required keys
 * are ERR_INVALID with the key in the message. */
#pragma once
#include "base/err.h"
#include <jansson.h>
#include <stdint.h>
#include <stdbool.h>
#include <stddef.h>

enum json_want {
	JSON_WANT_STRING,  /* const char *, borrowed from the object */
	JSON_WANT_INT,	   /* json_int_t, not negative */
	JSON_WANT_BOOL,	   /* bool */
	JSON_WANT_STRINGS, /* json_t *: array of strings, borrowed */
	JSON_WANT_MAP,	   /* json_t *: object whose values are strings, borrowed */
	JSON_WANT_OBJECT,  /* json_t *, borrowed */
};

struct json_key {
	const char *name;
	enum json_want want;
	void *ret; /* points at the type named by want; untouched when the key is absent or null */
	bool required;
};

/* Parses text strictly: duplicate keys and trailing bytes refused, nesting bounded. New
 * reference. */
json_t *json_parse(const char *text, size_t len, struct err *err);
int json_read(json_t *object, const struct json_key *keys, size_t count, struct err *err);
/* One line, no spaces; yours to free. */
char *json_text(const json_t *value);

/* The string under key, borrowed; "" when there is none. */
static inline const char *json_get_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}
/* Text from inside a box as JSON: bytes that are not UTF-8 become '?'. */
json_t *json_from_box(const char *text);
json_t *json_time_us(uint64_t us);     /* RFC 3339, or null for 0 */
json_t *json_from_u64(uint64_t value); /* cut to what JSON integers hold */

static inline void json_unrefp(json_t **value)
{
	json_decref(*value);
}
#define _cleanup_json_ __attribute__((cleanup(json_unrefp)))
