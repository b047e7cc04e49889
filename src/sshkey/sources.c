/* sources.c - see sources.h */
#include "sshkey/sources.h"
#include "base/address.h"
#include "base/text.h"
#include <string.h>

/* One entry without its '!'. */
static bool parse_range(const char *text, size_t len, struct address_range *ret)
{
	char copy[64];
	char *slash;
	uint64_t bits;

	if (!len || len >= sizeof copy)
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	slash = strchr(copy, '/');
	if (slash)
		*slash++ = '\0';
	if (!address_parse(copy, &ret->base))
		return false;
	bits = ret->base.family == 4 ? 32 : 128;
	if (slash && (strlen(slash) > 3 || parse_u64("prefix", slash, 0, bits, &bits, NULL) < 0))
		return false;
	ret->bits = (uint8_t)bits;
	/* Bits behind the prefix would say something that is not meant. */
	for (size_t bit = bits; bit < sizeof ret->base.bytes * 8; bit++)
		if (ret->base.bytes[bit / 8] & 0x80 >> bit % 8)
			return false;
	return true;
}

struct sources_walk {
	const char *at;
	struct address_range range;
	bool negated;
};

/* The next entry; 0: there is none, -1: it is malformed (at says where). */
static int next(struct sources_walk *walk)
{
	size_t len = strcspn(walk->at, ",");

	if (!*walk->at)
		return 0;
	walk->negated = *walk->at == '!';
	if (!parse_range(walk->at + walk->negated, len - walk->negated, &walk->range))
		return -1;
	walk->at += len;
	if (*walk->at == ',' && !*++walk->at)
		return -1;
	return 1;
}

int sources_check(const char *list, struct err *err)
{
	struct sources_walk walk = { .at = list };
	unsigned count = 0;
	int found = strlen(list) > SOURCES_TEXT_MAX ? -1 : next(&walk);

	for (; found > 0; found = next(&walk))
		if (++count > SOURCES_MAX)
			return err_set(
				err, ERR_INVALID, "from= has more than %d entries", SOURCES_MAX);
	if (found == 0 && count)
		return 0;
	err_set(err, ERR_INVALID, "from= does not understand '%.60s'", walk.at);
	return err_hint(err, "use addresses and ranges: 192.0.2.7,2001:db8::/32,!192.0.2.9");
}

/* ::ffff:192.0.2.1 is 192.0.2.1. */
static bool parse_peer(const char *text, struct address *ret)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (!address_parse(text, ret))
		return false;
	if (ret->family == 6 && !memcmp(ret->bytes, mapped, sizeof mapped))
		*ret = address_v4(ret->bytes + sizeof mapped);
	return true;
}

bool sources_has(const char *list, const char *peer)
{
	struct sources_walk walk = { .at = list };
	struct address address;
	bool has = false;
	int found;

	if (!parse_peer(peer, &address))
		return false;
	while ((found = next(&walk)) > 0)
		if (address_range_has(&walk.range, &address)) {
			if (walk.negated)
				return false;
			has = true;
		}
	return found == 0 && has;
}
