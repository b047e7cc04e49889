/* name_table.h - things found by (name, number) in O(1), in the order they were last used
 *
 * The node lives inside the caller's struct, as its first member; the table owns nothing but its
 * buckets. Names come from boxes, so the hash is keyed: nobody outside can aim at one bucket. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct named {
	const char *name; /* the caller's; must live as long as the node is in the table */
	uint16_t number;
	bool pinned;
	uint64_t hash;
	struct named *chain;
	struct named *older, *newer;
};

struct name_table {
	uint64_t key[2];
	struct named **buckets;
	size_t bucket_count; /* a power of two */
	size_t count;
	struct named *oldest, *newest; /* pinned nodes are in neither */
};

void name_table_init(struct name_table *table);
void name_table_done(struct name_table *table); /* frees no node */
struct named *name_table_find(const struct name_table *table, const char *name, uint16_t number);
/* Adds a node as the newest. The name must not be in the table with that number. */
void name_table_add(
	struct name_table *table, struct named *node, const char *name, uint16_t number);
void name_table_remove(struct name_table *table, struct named *node);
void name_table_touch(struct name_table *table, struct named *node); /* the newest now */
/* A pinned node can still be found but is not in the order of use; unpinned, it becomes the
 * newest. */
void name_table_pin(struct name_table *table, struct named *node);
void name_table_unpin(struct name_table *table, struct named *node);
