/* reports.c - checks the messages of the gate
 *
 * A shape is a table: each key of an object with what it may hold. Unknown keys, wrong types,
 * negative numbers and overlong texts are malformed. What passes is safe to store and to give
 * back. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "gate/gate_internal.h"

enum kind { TEXT, NUMBER, ADDRESS, LIST, OBJECT };

struct shape;
struct key {
	const char *name;
	enum kind kind;
	size_t max; /* of a text: bytes; of a number: its maximum, 0: any; of a list: its length */
	const struct shape *shape; /* of an object, and of the elements of a list */
	bool required;
};

struct shape {
	const struct key *keys;
	size_t count;
};
#define SHAPE(table)                    \
	{                               \
		table, ARRAY_LEN(table) \
	}

enum {
	RULE_MAX = EVENT_RULE_MAX,
	NAME_MAX_BYTES = DNS_HOST_MAX,
	PORT = UINT16_MAX,
	ROWS_MAX = 2048 + 1,
	CONNECTIONS_MAX = 1000
};

static const struct key event_keys[] = {
	{ .name = "type", .kind = TEXT, .max = 16, .required = true },
	{ .name = "verdict", .kind = TEXT, .max = 16 },
	{ .name = "name", .kind = TEXT, .max = EVENT_TEXT_MAX },
	{ .name = "address", .kind = ADDRESS },
	{ .name = "port", .kind = NUMBER, .max = PORT },
	{ .name = "protocol", .kind = TEXT, .max = 16 },
	{ .name = "from", .kind = TEXT, .max = 64 },
	{ .name = "to", .kind = TEXT, .max = 64 },
	{ .name = "rule", .kind = TEXT, .max = RULE_MAX },
	{ .name = "place", .kind = TEXT, .max = 64 },
	{ .name = "reason", .kind = TEXT, .max = EVENT_TEXT_MAX },
	{ .name = "end", .kind = TEXT, .max = 16 },
	{ .name = "bytes_out", .kind = NUMBER },
	{ .name = "bytes_in", .kind = NUMBER },
	{ .name = "duration_ms", .kind = NUMBER },
	{ .name = "qtype", .kind = TEXT, .max = 16 },
	{ .name = "answers", .kind = NUMBER, .max = 64 },
	{ .name = "count", .kind = NUMBER },
	{ .name = "dropped", .kind = NUMBER },
	{ .name = "method", .kind = TEXT, .max = EVENT_TEXT_MAX },
	{ .name = "path", .kind = TEXT, .max = EVENT_TEXT_MAX },
	{ .name = "host", .kind = TEXT, .max = EVENT_TEXT_MAX },
	{ .name = "version", .kind = NUMBER },
	{ .name = "cut", .kind = NUMBER },
};
static const struct shape event_shape = SHAPE(event_keys);

static const struct key row_keys[] = {
	{ .name = "name", .kind = TEXT, .max = NAME_MAX_BYTES },
	{ .name = "address", .kind = ADDRESS },
	{ .name = "port", .kind = NUMBER, .max = PORT, .required = true },
	{ .name = "protocol", .kind = TEXT, .max = 16, .required = true },
	{ .name = "reason", .kind = TEXT, .max = EVENT_TEXT_MAX },
	{ .name = "bytes_out", .kind = NUMBER },
	{ .name = "bytes_in", .kind = NUMBER },
	{ .name = "connections", .kind = NUMBER },
	{ .name = "connections_now", .kind = NUMBER },
	{ .name = "refused", .kind = NUMBER },
	{ .name = "questions", .kind = NUMBER },
	{ .name = "last_at", .kind = TEXT, .max = CLOCK_RFC3339_MAX },
};
static const struct shape row_shape = SHAPE(row_keys);

static const struct key spent_rule_keys[] = {
	{ .name = "rule", .kind = TEXT, .max = RULE_MAX, .required = true },
	{ .name = "destination", .kind = TEXT, .max = NAME_MAX_BYTES, .required = true },
	{ .name = "bytes", .kind = NUMBER, .required = true },
};
static const struct shape spent_rule_shape = SHAPE(spent_rule_keys);
static const struct key spent_keys[] = {
	{ .name = "box", .kind = NUMBER, .required = true },
	{ .name = "rules",
		.kind = LIST,
		.max = ALLOTMENTS_MAX,
		.shape = &spent_rule_shape,
		.required = true },
};
static const struct shape spent_shape = SHAPE(spent_keys);

static const struct key meters_keys[] = {
	{ .name = "bytes_out", .kind = NUMBER, .required = true },
	{ .name = "bytes_in", .kind = NUMBER, .required = true },
	{ .name = "connections", .kind = NUMBER, .required = true },
	{ .name = "connections_now", .kind = NUMBER, .required = true },
	{ .name = "refused", .kind = NUMBER, .required = true },
	{ .name = "questions", .kind = NUMBER, .required = true },
	{ .name = "destinations",
		.kind = LIST,
		.max = ROWS_MAX,
		.shape = &row_shape,
		.required = true },
	{ .name = "spent", .kind = OBJECT, .shape = &spent_shape, .required = true },
};
static const struct shape meters_shape = SHAPE(meters_keys);

static const struct key limit_keys[] = {
	{ .name = "limit", .kind = TEXT, .max = 16, .required = true },
	{ .name = "scope", .kind = TEXT, .max = 16, .required = true },
	{ .name = "on_limit", .kind = TEXT, .max = 16, .required = true },
	{ .name = "rule", .kind = TEXT, .max = RULE_MAX },
	{ .name = "name", .kind = TEXT, .max = NAME_MAX_BYTES },
};
static const struct shape limit_shape = SHAPE(limit_keys);

static const struct key endpoint_keys[] = {
	{ .name = "address", .kind = ADDRESS, .required = true },
	{ .name = "port", .kind = NUMBER, .max = PORT, .required = true },
};
static const struct shape endpoint_shape = SHAPE(endpoint_keys);

static const struct key recorded_keys[] = {
	{ .name = "since", .kind = TEXT, .max = CLOCK_RFC3339_MAX },
	{ .name = "destinations",
		.kind = LIST,
		.max = ROWS_MAX,
		.shape = &row_shape,
		.required = true },
	{ .name = "private", .kind = LIST, .max = ROWS_MAX, .shape = &row_shape, .required = true },
};
static const struct shape recorded_shape = SHAPE(recorded_keys);

static const struct key connection_keys[] = {
	{ .name = "name", .kind = TEXT, .max = NAME_MAX_BYTES },
	{ .name = "address", .kind = ADDRESS },
	{ .name = "port", .kind = NUMBER, .max = PORT, .required = true },
	{ .name = "protocol", .kind = TEXT, .max = 16, .required = true },
	{ .name = "from", .kind = TEXT, .max = 64, .required = true },
	{ .name = "rule", .kind = TEXT, .max = RULE_MAX },
	{ .name = "bytes_out", .kind = NUMBER },
	{ .name = "bytes_in", .kind = NUMBER },
	{ .name = "since", .kind = TEXT, .max = CLOCK_RFC3339_MAX },
};
static const struct shape connection_shape = SHAPE(connection_keys);

/* ---- checking ------------------------------------------------------------------------------- */

static int check_object(json_t *object, const struct shape *shape, struct err *err);

static int check_list(json_t *list, size_t max, const struct shape *shape, struct err *err)
{
	json_t *item;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > max)
		return err_set(err, ERR_PROTOCOL, "a value is not a list, or the list is too long");
	json_array_foreach (list, i, item)
		if (check_object(item, shape, err) < 0)
			return -1;
	return 0;
}

static bool is_address(json_t *value)
{
	struct address address;

	return json_is_string(value) && address_parse(json_string_value(value), &address);
}

static int check_value(json_t *value, const struct key *key, struct err *err)
{
	bool good = false;

	switch (key->kind) {
	case TEXT:
		good = json_is_string(value) && json_string_length(value) <= key->max &&
		       strlen(json_string_value(value)) == json_string_length(value);
		break;
	case NUMBER:
		good = json_is_integer(value) && json_integer_value(value) >= 0 &&
		       (!key->max || json_integer_value(value) <= (json_int_t)key->max);
		break;
	case ADDRESS:
		good = is_address(value);
		break;
	case LIST:
		return check_list(value, key->max, key->shape, err);
	case OBJECT:
		return check_object(value, key->shape, err);
	}
	return good ? 0 : err_set(err, ERR_PROTOCOL, "'%s' has a wrong value", key->name);
}

static int check_object(json_t *object, const struct shape *shape, struct err *err)
{
	const char *name;
	json_t *value;

	if (!json_is_object(object))
		return err_set(err, ERR_PROTOCOL, "a value is not an object");
	json_object_foreach (object, name, value) {
		const struct key *key = NULL;

		for (size_t i = 0; i < shape->count && !key; i++)
			if (!strcmp(shape->keys[i].name, name))
				key = &shape->keys[i];
		if (!key)
			return err_set(err, ERR_PROTOCOL, "an unknown key");
		if (check_value(value, key, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < shape->count; i++)
		if (shape->keys[i].required && !json_object_get(object, shape->keys[i].name))
			return err_set(err, ERR_PROTOCOL, "'%s' is missing", shape->keys[i].name);
	return 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

static int check_saved(json_t *saved, struct err *err)
{
	_cleanup_(synthetic_freep) struct synthetic *map = NULL;

	if (synthetic_load(saved, 0, &map, err) < 0)
		return err_set(err, ERR_PROTOCOL, "a malformed map of names");
	return 0;
}

/* A list of connections, a map of names, or the record of watch mode; null when the box was just
 * removed. */
static int check_answer(json_t *value, struct err *err)
{
	if (json_object_get(value, "resting"))
		return check_saved(value, err);
	if (json_is_array(value))
		return check_list(value, CONNECTIONS_MAX, &connection_shape, err);
	return json_is_null(value) ? 0 : check_object(value, &recorded_shape, err);
}

static int check_name_of_box(json_t *name, struct err *err)
{
	if (!json_is_string(name) || name_check("name", json_string_value(name), NULL) < 0)
		return err_set(err, ERR_PROTOCOL, "a malformed name of a box");
	return 0;
}

static const struct part {
	const char *what, *name;
	struct key key; /* or: */
	int (*check)(json_t *value, struct err *err);
} parts[] = {
	{ "event", "event", { .name = "event", .kind = OBJECT, .shape = &event_shape }, NULL },
	{ "meters", "meters", { .name = "meters", .kind = OBJECT, .shape = &meters_shape }, NULL },
	{ "limit", "data", { .name = "data", .kind = OBJECT, .shape = &limit_shape }, NULL },
	{ "names", "saved", { 0 }, check_saved },
	{ "reserve", NULL, { 0 }, NULL },
	{ "traffic", "peer", { .name = "peer", .kind = NUMBER, .max = 1 }, NULL },
	{ "dropped", NULL, { 0 }, NULL },
	{ "dial_box", "name", { 0 }, check_name_of_box },
	{ "dial_box", "port", { .name = "port", .kind = NUMBER, .max = PORT }, NULL },
	{ "dial_box", "ticket", { .name = "ticket", .kind = NUMBER }, NULL },
	{ "open_udp", "aim", { .name = "aim", .kind = OBJECT, .shape = &endpoint_shape }, NULL },
	{ "open_udp", "client", { .name = "client", .kind = OBJECT, .shape = &endpoint_shape },
		NULL },
	{ "open_udp", "ticket", { .name = "ticket", .kind = NUMBER }, NULL },
	{ "answer", "request", { .name = "request", .kind = NUMBER }, NULL },
	{ "answer", "value", { 0 }, check_answer },
};

int report_check(json_t *message, struct err *err)
{
	json_t *what = json_object_get(message, "do"), *box = json_object_get(message, "box");
	size_t found = 0, values = 0;

	if (!json_is_string(what) || (box && !json_is_string(box)))
		return err_set(err, ERR_PROTOCOL, "a message without 'do'");
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		const struct part *part = &parts[i];
		json_t *value;

		if (strcmp(part->what, json_string_value(what)))
			continue;
		found++;
		if (!part->name)
			continue;
		values++;
		value = json_object_get(message, part->name);
		if (!value)
			return err_set(err, ERR_PROTOCOL, "'%s' is missing", part->name);
		if ((part->check ? part->check(value, err) : check_value(value, &part->key, err)) <
			0)
			return err_wrap(err, "%s", part->what);
	}
	if (!found || json_object_size(message) != values + 1 + (box ? 1 : 0))
		return err_set(err, ERR_PROTOCOL, "a message of an unknown kind");
	return 0;
}
