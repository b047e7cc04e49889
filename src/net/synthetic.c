/* synthetic.c - see synthetic.h
 *
 * A slot is a name with its number; the number is its place in 198.18.0.0/15 and the end of its
 * IPv6 address. Numbers are given out upwards; after that, the number that was freed longest ago
 * comes first: a program that kept an old address then finds nothing there for as long as possible,
 * and not another name. */
#include "net/synthetic.h"
#include "base/buf.h"
#include "base/special.h"
#include "net/dns_name.h"
#include "net/name_table.h"

struct slot {
	struct named node;
	uint32_t number;
	uint32_t holds;
	char name[];
};

struct synthetic {
	struct name_table names;
	struct slot **slots; /* by number - SYNTHETIC_FIRST */
	size_t slot_cap;
	uint32_t next;	    /* the first number never given out */
	uint64_t given;	    /* how often a number was given out */
	uint64_t reserved;  /* how often it may be given out */
	struct buf resting; /* numbers given out before, the longest free first */
	size_t names_max;
	uint64_t version;
};

static const json_int_t GIVEN_MAX = (json_int_t)1 << 48; /* nobody gets there */

static_assert(SYNTHETIC_NAMES_MAX < SYNTHETIC_COUNT - SYNTHETIC_FIRST,
	"a full map has numbers left, so that those given back can rest");

/* ---- numbers and addresses ------------------------------------------------------------------ */

struct address synthetic_numbered(unsigned family, uint32_t number)
{
	struct address address = special_range_of(SPECIAL_SYNTHETIC, family)->base;
	uint8_t *end = address.bytes + (family == 4 ? 1 : 13);

	end[0] |= (uint8_t)(number >> 16);
	end[1] |= (uint8_t)(number >> 8);
	end[2] |= (uint8_t)number;
	return address;
}

static void addresses_of(uint32_t number, struct address *v4, struct address *v6)
{
	*v4 = synthetic_numbered(4, number);
	*v6 = synthetic_numbered(6, number);
}

bool address_is_synthetic(const struct address *address)
{
	return special_kind_of(address) == SPECIAL_SYNTHETIC;
}

static struct slot *slot_of(const struct synthetic *map, const struct address *address)
{
	static const uint8_t middle[5];
	const uint8_t *end = address->bytes + (address->family == 4 ? 1 : 13);
	uint32_t number;

	if (!address_is_synthetic(address))
		return NULL;
	if (address->family == 6 && memcmp(address->bytes + 8, middle, sizeof middle))
		return NULL;
	number = (uint32_t)end[0] << 16 | (uint32_t)end[1] << 8 | end[2];
	if (address->family == 4)
		number &= SYNTHETIC_COUNT - 1;
	if (number < SYNTHETIC_FIRST || number - SYNTHETIC_FIRST >= map->slot_cap)
		return NULL;
	return map->slots[number - SYNTHETIC_FIRST];
}

static uint32_t take_number(struct synthetic *map)
{
	uint32_t number;

	map->given++;
	if (map->next < SYNTHETIC_COUNT)
		return map->next++;
	assert(map->resting.len >= sizeof number);
	memcpy(&number, buf_head(&map->resting), sizeof number);
	buf_eat(&map->resting, sizeof number);
	return number;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static struct slot *slot_add(struct synthetic *map, const char *name, uint32_t number)
{
	struct slot *slot = xcalloc(1, sizeof *slot + strlen(name) + 1);
	size_t at = number - SYNTHETIC_FIRST;

	if (at >= map->slot_cap) {
		size_t cap = MAX(MAX(64, at + 1), map->slot_cap * 2);

		xgrow(map->slots, cap);
		memset(map->slots + map->slot_cap, 0, (cap - map->slot_cap) * sizeof *map->slots);
		map->slot_cap = cap;
	}
	slot->number = number;
	strcpy(slot->name, name);
	name_table_add(&map->names, &slot->node, slot->name, 0);
	map->slots[at] = slot;
	map->version++;
	return slot;
}

static void slot_remove(struct synthetic *map, struct slot *slot)
{
	name_table_remove(&map->names, &slot->node);
	map->slots[slot->number - SYNTHETIC_FIRST] = NULL;
	buf_add(&map->resting, &slot->number, sizeof slot->number);
	free(slot);
	map->version++;
}

static int make_room(struct synthetic *map, struct err *err)
{
	if (map->given >= map->reserved)
		return err_set(err, ERR_LIMIT, "no address is left for another name");
	while (map->names.count >= map->names_max) {
		struct slot *slot = (struct slot *)map->names.oldest;

		if (!slot)
			return err_set(err, ERR_LIMIT,
				"all %zu names of the box have live connections", map->names.count);
		slot_remove(map, slot);
	}
	return 0;
}

/* The name as the map keeps it. */
static bool canonical(const char *name, char out[DNS_TEXT_MAX])
{
	struct dns_name wire;

	return dns_name_parse(name, &wire) && dns_name_text(&wire, out);
}

/* ---- the map -------------------------------------------------------------------------------- */

struct synthetic *synthetic_new(size_t names_max)
{
	struct synthetic *map = xnew(struct synthetic);

	map->names_max = names_max ? MIN(names_max, SYNTHETIC_NAMES_MAX) : SYNTHETIC_NAMES_MAX;
	map->next = SYNTHETIC_FIRST;
	map->reserved = UINT64_MAX;
	name_table_init(&map->names);
	return map;
}

void synthetic_free(struct synthetic *map)
{
	if (!map)
		return;
	for (size_t i = 0; i < map->slot_cap; i++)
		free(map->slots[i]);
	free(map->slots);
	buf_done(&map->resting);
	name_table_done(&map->names);
	free(map);
}

int synthetic_assign(struct synthetic *map, const char *name, struct address *ret_v4,
	struct address *ret_v6, struct err *err)
{
	char text[DNS_TEXT_MAX];
	struct slot *slot;

	if (!canonical(name, text))
		return err_set(err, ERR_INVALID, "'%.64s' is not a host name", name);
	slot = (struct slot *)name_table_find(&map->names, text, 0);
	if (slot) {
		name_table_touch(&map->names, &slot->node);
	} else {
		if (make_room(map, err) < 0)
			return -1;
		slot = slot_add(map, text, take_number(map));
	}
	addresses_of(slot->number, ret_v4, ret_v6);
	return 0;
}

const char *synthetic_name(const struct synthetic *map, const struct address *address)
{
	const struct slot *slot = slot_of(map, address);

	return slot ? slot->name : NULL;
}

bool synthetic_hold(struct synthetic *map, const struct address *address)
{
	struct slot *slot = slot_of(map, address);

	if (!slot)
		return false;
	slot->holds++;
	name_table_pin(&map->names, &slot->node);
	return true;
}

void synthetic_release(struct synthetic *map, const struct address *address)
{
	struct slot *slot = slot_of(map, address);

	assert(slot && slot->holds);
	if (--slot->holds == 0)
		name_table_unpin(&map->names, &slot->node);
}

size_t synthetic_count(const struct synthetic *map)
{
	return map->names.count;
}

uint64_t synthetic_given(const struct synthetic *map)
{
	return map->given;
}

void synthetic_reserve(struct synthetic *map, uint64_t given)
{
	map->reserved = given;
}

void synthetic_skip(struct synthetic *map, uint64_t given)
{
	uint64_t count = given > map->given ? given - map->given : 0;

	/* One round is as good as many. */
	for (uint64_t i = 0; i < MIN(count, (uint64_t)SYNTHETIC_COUNT); i++) {
		uint32_t number = take_number(map);

		buf_add(&map->resting, &number, sizeof number);
	}
	if (!count)
		return;
	map->given = given;
	map->version++;
}

uint64_t synthetic_version(const struct synthetic *map)
{
	return map->version;
}

/* ---- stored with the box -------------------------------------------------------------------- */

static void save_slot(json_t *names, const struct slot *slot)
{
	json_array_append_new(names, json_pack("[s, i]", slot->name, (int)slot->number));
}

/* Consecutive numbers are one entry, [first, count]: those of a lost map come by the thousand. */
static json_t *save_resting(const struct synthetic *map)
{
	json_t *resting = json_array();
	uint32_t first = 0, count = 0;

	for (size_t at = 0; at <= map->resting.len; at += sizeof first) {
		uint32_t number = 0;

		if (at < map->resting.len)
			memcpy(&number, buf_head(&map->resting) + at, sizeof number);
		if (count && number == first + count) {
			count++;
			continue;
		}
		if (count)
			json_array_append_new(
				resting, count > 1 ? json_pack("[i, i]", (int)first, (int)count)
						   : json_integer(first));
		first = number;
		count = 1;
	}
	return resting;
}

json_t *synthetic_save(const struct synthetic *map)
{
	json_t *names = json_array();

	/* The longest unused first; held ones are in use, so last. */
	for (const struct named *node = map->names.oldest; node; node = node->newer)
		save_slot(names, (const struct slot *)node);
	for (size_t i = 0; i < map->slot_cap; i++)
		if (map->slots[i] && map->slots[i]->holds)
			save_slot(names, map->slots[i]);
	return json_pack("{s:i, s:I, s:o, s:o}", "version", 2, "given", (json_int_t)map->given,
		"names", names, "resting", save_resting(map));
}

static int load_names(struct synthetic *map, json_t *names, uint8_t *seen, struct err *err)
{
	char text[DNS_TEXT_MAX];
	json_t *pair;
	size_t i;

	json_array_foreach (names, i, pair) {
		const char *name;
		json_int_t number;

		if (json_unpack(pair, "[s, I!]", &name, &number) < 0 || !canonical(name, text) ||
			strcmp(name, text) || number < SYNTHETIC_FIRST || number >= map->next ||
			seen[number]++ || name_table_find(&map->names, name, 0))
			return err_set(err, ERR_INVALID, "name %zu of the map is malformed", i);
		slot_add(map, name, number);
	}
	return 0;
}

static int load_resting(struct synthetic *map, json_t *resting, uint8_t *seen, struct err *err)
{
	json_t *item;
	size_t i;

	json_array_foreach (resting, i, item) {
		json_int_t number = json_integer_value(item), count = 1;

		if ((!json_is_integer(item) && json_unpack(item, "[I, I!]", &number, &count) < 0) ||
			number < SYNTHETIC_FIRST || number >= map->next || count < 1 ||
			count > (json_int_t)map->next - number)
			return err_set(err, ERR_INVALID, "resting number %zu is malformed", i);
		for (uint32_t value = number; value < number + count; value++) {
			if (seen[value]++)
				return err_set(err, ERR_INVALID, "number %u is there twice", value);
			buf_add(&map->resting, &value, sizeof value);
		}
	}
	return 0;
}

/* Version 1 stored the next number; no number had been given out twice before all were. */
static int load_given(json_t *saved, struct synthetic *map, struct err *err)
{
	json_int_t version = json_integer_value(json_object_get(saved, "version")), given;
	json_t *value = json_object_get(saved, version == 1 ? "next" : "given");

	if (version != 1 && version != 2)
		return err_set(err, ERR_INVALID, "map of synthetic addresses of version %lld",
			(long long)version);
	given = json_integer_value(value) - (version == 1 ? SYNTHETIC_FIRST : 0);
	if (!json_is_integer(value) || given < 0 || given > GIVEN_MAX ||
		(version == 1 && given > SYNTHETIC_COUNT - SYNTHETIC_FIRST))
		return err_set(err, ERR_INVALID, "map of synthetic addresses does not add up");
	map->given = (uint64_t)given;
	map->next = SYNTHETIC_FIRST +
		    (uint32_t)MIN(map->given, (uint64_t)SYNTHETIC_COUNT - SYNTHETIC_FIRST);
	return 0;
}

int synthetic_load(json_t *saved, size_t names_max, struct synthetic **ret, struct err *err)
{
	_cleanup_(synthetic_freep) struct synthetic *map = synthetic_new(names_max);
	_cleanup_free_ uint8_t *seen = xnewn(uint8_t, SYNTHETIC_COUNT);
	json_t *names = json_object_get(saved, "names"),
	       *resting = json_object_get(saved, "resting");

	if (json_object_size(saved) != 4 || !json_is_array(names) || !json_is_array(resting))
		return err_set(err, ERR_INVALID, "not a map of synthetic addresses");
	if (load_given(saved, map, err) < 0)
		return -1;
	if (json_array_size(names) > SYNTHETIC_NAMES_MAX)
		return err_set(err, ERR_INVALID, "map of synthetic addresses does not add up");
	if (load_names(map, names, seen, err) < 0 || load_resting(map, resting, seen, err) < 0)
		return -1;
	/* Each number ever given out has a name or rests; none is missing or there twice. */
	if (map->names.count + map->resting.len / sizeof(uint32_t) != map->next - SYNTHETIC_FIRST)
		return err_set(err, ERR_INVALID, "map of synthetic addresses does not add up");
	*ret = steal_ptr(&map);
	return 0;
}
