/* synthetic.h - the addresses that stand for names inside one box
 *
 * A box that may reach a name gets an address that exists nowhere else: one of 198.18.0.0/15, and
 * one of a /64 of ours for IPv6, both with the same number. A connection to it is led to the gate,
 * which finds the name here and connects to that. The map belongs to one box and is stored with it,
 * so that a resumed or forked box keeps valid addresses.
 *
 * Addresses are given out in a fixed order, counted from the box's creation (synthetic_given), and
 * only as far as was reserved. The reservation is stored first: when a map is lost, the next one
 * starts after what was reserved (synthetic_skip), and an address that somebody may still remember
 * stands for nothing instead of another name. */
#pragma once
#include "base/address.h"
#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"

struct synthetic;

enum {
	SYNTHETIC_NAMES_MAX = 65536, /* of one box */
	SYNTHETIC_FIRST = 256,	     /* 198.18.0.0/24 is left for the gateway's own addresses */
	SYNTHETIC_COUNT = 131072,
};

/* The address with that number in 198.18.0.0/15 or fd62:6f78:7961:7264::/64, which spells
 * "boxyard". The same in every box, as all inner addresses are. */
struct address synthetic_numbered(unsigned family, uint32_t number);

struct synthetic *synthetic_new(size_t names_max); /* 0: SYNTHETIC_NAMES_MAX */
void synthetic_free(struct synthetic *map);	   /* accepts NULL */

/* The addresses of name (as text, see dns_name.h), assigned now if it had none. When the map is
 * full, the name that was not asked for longest is dropped, and its address rests until all others
 * have been used; names with live connections stay. Fails with ERR_LIMIT when all have some or
 * nothing more is reserved, ERR_INVALID for an invalid host name. */
int synthetic_assign(struct synthetic *map, const char *name, struct address *ret_v4,
	struct address *ret_v6, struct err *err);
/* The name of an address of either family; NULL when it stands for none. Borrowed, valid until the
 * next synthetic_assign or as long as the address is held. */
const char *synthetic_name(const struct synthetic *map, const struct address *address);
/* A connection to address began or ended; false when it stands for no name. Each hold has one
 * release. */
bool synthetic_hold(struct synthetic *map, const struct address *address);
void synthetic_release(struct synthetic *map, const struct address *address);
size_t synthetic_count(const struct synthetic *map);

/* How many addresses were given out so far, including reused ones. */
uint64_t synthetic_given(const struct synthetic *map);
/* Limits the total number given out: synthetic_assign then fails for new names until more are
 * reserved. Initially unlimited. */
void synthetic_reserve(struct synthetic *map, uint64_t given);
/* Up to this many may have been given out by a lost map: they stand for nothing, and rest like
 * those of dropped names. */
void synthetic_skip(struct synthetic *map, uint64_t given);

/* Changes with each added or dropped name, so that the map can be stored when necessary. */
uint64_t synthetic_version(const struct synthetic *map);
/* The map as JSON, a new reference; and back. Holds are not stored. Fails with ERR_INVALID for a
 * map that synthetic_save did not write. */
json_t *synthetic_save(const struct synthetic *map);
int synthetic_load(json_t *saved, size_t names_max, struct synthetic **ret, struct err *err);

/* Whether an address is in the ranges at all, given out or not. */
bool address_is_synthetic(const struct address *address);

DEFINE_CLEANUP(synthetic_free, struct synthetic)
