/* tally.c - figures for each destination, up to a maximum number
 *
 * A new row replaces the one that was unused longest, and its figures are added to the row
 * `other`, so that the sums stay right. Rows with live connections stay. */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/gate_internal.h"

void tally_init(struct tally *tally, size_t max)
{
	*tally = (struct tally){ .max = max, .other = { .protocol = "any" } };
	name_table_init(&tally->rows);
}

static void row_free(struct tally *tally, struct tally_row *row)
{
	name_table_remove(&tally->rows, &row->node);
	free(row->key);
	free(row);
}

void tally_done(struct tally *tally)
{
	for (size_t i = 0; i < tally->rows.bucket_count; i++)
		while (tally->rows.buckets[i])
			row_free(tally, (struct tally_row *)tally->rows.buckets[i]);
	name_table_done(&tally->rows);
}

static bool make_room(struct tally *tally)
{
	struct tally_row *oldest = (struct tally_row *)tally->rows.oldest, *other = &tally->other;

	if (tally->rows.count < tally->max)
		return true;
	tally->full = true;
	if (!oldest)
		return false;
	other->bytes_out += oldest->bytes_out;
	other->bytes_in += oldest->bytes_in;
	other->connections += oldest->connections;
	other->refused += oldest->refused;
	other->questions += oldest->questions;
	other->last_us = MAX(other->last_us, oldest->last_us);
	row_free(tally, oldest);
	return true;
}

struct tally_row *tally_get(struct tally *tally, const char *name, const struct address *address,
	uint16_t port, const char *protocol)
{
	char key[DNS_HOST_MAX + ADDRESS_TEXT_MAX + 32], text[ADDRESS_TEXT_MAX];
	struct tally_row *row;

	snprintf(key, sizeof key, "%s %s %u/%s", name, *name ? "" : address_format(address, text),
		port, protocol);
	row = (struct tally_row *)name_table_find(&tally->rows, key, 0);
	if (!row) {
		if (!make_room(tally)) {
			tally->other.last_us = clock_wall_us();
			return &tally->other;
		}
		row = xnew(struct tally_row);
		row->key = xstrdup(key);
		snprintf(row->name, sizeof row->name, "%s", name);
		row->port = port;
		row->protocol = protocol;
		if (!*name)
			row->address = *address;
		name_table_add(&tally->rows, &row->node, row->key, 0);
	} else if (!row->node.pinned) {
		name_table_touch(&tally->rows, &row->node);
	}
	row->last_us = clock_wall_us();
	return row;
}

void tally_enter(struct tally *tally, struct tally_row *row)
{
	row->connections++;
	if (row->now++ == 0 && row != &tally->other)
		name_table_pin(&tally->rows, &row->node);
}

void tally_leave(struct tally *tally, struct tally_row *row)
{
	if (--row->now == 0 && row != &tally->other)
		name_table_unpin(&tally->rows, &row->node);
}

static json_t *row_json(const struct tally_row *row)
{
	char at[CLOCK_RFC3339_MAX], address[ADDRESS_TEXT_MAX];
	json_t *value = json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "port",
		(int)row->port, "protocol", row->protocol, "bytes_out", (json_int_t)row->bytes_out,
		"bytes_in", (json_int_t)row->bytes_in, "connections", (json_int_t)row->connections,
		"connections_now", (json_int_t)row->now, "refused", (json_int_t)row->refused,
		"questions", (json_int_t)row->questions, "last_at",
		clock_rfc3339(row->last_us, at));

	if (*row->name)
		json_object_set_new(value, "name", json_string(row->name));
	if (row->address.family)
		json_object_set_new(
			value, "address", json_string(address_format(&row->address, address)));
	if (row->reason)
		json_object_set_new(value, "reason", json_string(row->reason));
	return value;
}

json_t *tally_json(const struct tally *tally)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < tally->rows.bucket_count; i++)
		for (const struct named *node = tally->rows.buckets[i]; node; node = node->chain)
			json_array_append_new(rows, row_json((const struct tally_row *)node));
	if (tally->other.last_us) {
		json_t *other = row_json(&tally->other);

		json_object_set_new(other, "name", json_string("other"));
		json_array_append_new(rows, other);
	}
	return rows;
}
