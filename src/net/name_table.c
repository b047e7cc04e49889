/* name_table.c - see name_table.h; the hash is SipHash-1-3 */
#include "net/name_table.h"
#include "base/alloc.h"
#include "base/text.h"
#include <assert.h>

enum { BUCKETS_AT_FIRST = 64 };

/* ---- hash ----------------------------------------------------------------------------------- */

static uint64_t rotate(uint64_t value, unsigned by)
{
	return value << by | value >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[0] = rotate(v[0], 32);
	v[2] += v[3];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[2] = rotate(v[2], 32);
}

static void sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
}

static uint64_t hash_of(const struct name_table *table, const char *name, uint16_t number)
{
	uint64_t v[4] = { table->key[0] ^ 0x736f6d6570736575u, table->key[1] ^ 0x646f72616e646f6du,
		table->key[0] ^ 0x6c7967656e657261u, table->key[1] ^ 0x7465646279746573u };
	size_t len = strlen(name), at = 0;
	uint64_t word;

	for (; at + sizeof word <= len; at += sizeof word) {
		memcpy(&word, name + at, sizeof word);
		sip_word(v, word);
	}
	word = 0;
	memcpy(&word, name + at, len - at);
	sip_word(v, word);
	sip_word(v, (uint64_t)len << 16 | number);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- order of use --------------------------------------------------------------------------- */

static void order_remove(struct name_table *table, struct named *node)
{
	*(node->older ? &node->older->newer : &table->oldest) = node->newer;
	*(node->newer ? &node->newer->older : &table->newest) = node->older;
	node->older = node->newer = NULL;
}

static void order_append(struct name_table *table, struct named *node)
{
	node->older = table->newest;
	node->newer = NULL;
	*(table->newest ? &table->newest->newer : &table->oldest) = node;
	table->newest = node;
}

void name_table_touch(struct name_table *table, struct named *node)
{
	if (node->pinned || table->newest == node)
		return;
	order_remove(table, node);
	order_append(table, node);
}

void name_table_pin(struct name_table *table, struct named *node)
{
	if (node->pinned)
		return;
	order_remove(table, node);
	node->pinned = true;
}

void name_table_unpin(struct name_table *table, struct named *node)
{
	if (!node->pinned)
		return;
	node->pinned = false;
	order_append(table, node);
}

/* ---- buckets -------------------------------------------------------------------------------- */

void name_table_init(struct name_table *table)
{
	*table = (struct name_table){ .bucket_count = BUCKETS_AT_FIRST };
	table->buckets = xnewn(struct named *, table->bucket_count);
	random_bytes(table->key, sizeof table->key);
}

void name_table_done(struct name_table *table)
{
	free(table->buckets);
	*table = (struct name_table){ 0 };
}

static struct named **bucket_of(const struct name_table *table, uint64_t hash)
{
	return &table->buckets[hash & (table->bucket_count - 1)];
}

static void grow(struct name_table *table)
{
	struct named **old = table->buckets;
	size_t old_count = table->bucket_count;

	table->bucket_count *= 2;
	table->buckets = xnewn(struct named *, table->bucket_count);
	for (size_t i = 0; i < old_count; i++)
		for (struct named *node = old[i], *next; node; node = next) {
			struct named **bucket = bucket_of(table, node->hash);

			next = node->chain;
			node->chain = *bucket;
			*bucket = node;
		}
	free(old);
}

struct named *name_table_find(const struct name_table *table, const char *name, uint16_t number)
{
	uint64_t hash = hash_of(table, name, number);

	for (struct named *node = *bucket_of(table, hash); node; node = node->chain)
		if (node->hash == hash && node->number == number && !strcmp(node->name, name))
			return node;
	return NULL;
}

void name_table_add(struct name_table *table, struct named *node, const char *name, uint16_t number)
{
	struct named **bucket;

	if (table->count == table->bucket_count)
		grow(table);
	*node = (struct named){
		.name = name, .number = number, .hash = hash_of(table, name, number)
	};
	bucket = bucket_of(table, node->hash);
	node->chain = *bucket;
	*bucket = node;
	order_append(table, node);
	table->count++;
}

void name_table_remove(struct name_table *table, struct named *node)
{
	struct named **at = bucket_of(table, node->hash);

	while (*at != node) {
		assert(*at);
		at = &(*at)->chain;
	}
	*at = node->chain;
	if (!node->pinned)
		order_remove(table, node);
	table->count--;
}
