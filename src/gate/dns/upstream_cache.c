/* upstream_cache.c - the cache of answers; when it is full, the least recently used is removed */
#include "base/alloc.h"
#include "base/clock.h"
#include "gate/dns/upstream_internal.h"

struct entry {
	struct named node;
	int64_t until; /* clock_mono_us */
	struct dns_result result;
	char name[];
};

void upstream_cache_init(struct cache *cache, size_t max)
{
	name_table_init(&cache->table);
	cache->max = max;
}

static void drop(struct cache *cache, struct named *node)
{
	name_table_remove(&cache->table, node);
	free(node);
}

void upstream_cache_done(struct cache *cache)
{
	while (cache->table.oldest)
		drop(cache, cache->table.oldest);
	name_table_done(&cache->table);
}

void upstream_cache_put(struct cache *cache, const char *name, const struct dns_question *question,
	const struct dns_result *result)
{
	struct named *old = name_table_find(&cache->table, name, question->type);
	struct entry *entry;

	if (old)
		drop(cache, old);
	if (!result->ttl)
		return;
	if (cache->table.count >= cache->max)
		drop(cache, cache->table.oldest);
	entry = xcalloc(1, sizeof *entry + strlen(name) + 1);
	entry->until = clock_mono_us() + (int64_t)result->ttl * 1000000;
	entry->result = *result;
	strcpy(entry->name, name);
	name_table_add(&cache->table, &entry->node, entry->name, question->type);
}

bool upstream_cache_get(
	struct cache *cache, const char *name, uint16_t type, struct dns_result *ret)
{
	struct entry *entry = (struct entry *)name_table_find(&cache->table, name, type);
	int64_t left;

	if (!entry)
		return false;
	left = entry->until - clock_mono_us();
	if (left <= 0) {
		drop(cache, &entry->node);
		return false;
	}
	name_table_touch(&cache->table, &entry->node);
	*ret = entry->result;
	ret->ttl = (uint32_t)((left + 999999) / 1000000);
	return true;
}
