/* json.h - strict reading of JSON objects that come from outside, with jansson
 *
 * A spec table names each key with its type. Unknown keys, wrong types and missing required keys
 * fail with ERR_INVALID and a message that names the key. */
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

/* Parses text strictly: duplicate keys and trailing bytes are refused, nesting is bounded. Returns
 * a new reference. */
json_t *json_parse(const char *text, size_t len, struct err *err);
int json_read(json_t *object, const struct json_key *keys, size_t count, struct err *err);
/* As one line without spaces; yours to free. */
char *json_text(const json_t *value);

/* The string under key, borrowed; "" when the key is missing. */
static inline const char *json_get_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}
/* Makes JSON from text that comes from inside a box: bytes that are not UTF-8 become '?'. */
json_t *json_from_box(const char *text);
json_t *json_time_us(uint64_t us);     /* RFC 3339, or null for 0 */
json_t *json_from_u64(uint64_t value); /* cut to the largest integer JSON holds */

static inline void json_unrefp(json_t **value)
{
	json_decref(*value);
}
#define _cleanup_json_ __attribute__((cleanup(json_unrefp)))
