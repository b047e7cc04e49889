/* text.c - see text.h */
#include "base/text.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#define AGO_MAX_MS (UINT64_C(100) * 366 * 86400 * 1000)

static bool is_lower(char c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
	return is_lower(c) || (c >= 'A' && c <= 'Z');
}

int name_check(const char *what, const char *text, struct err *err)
{
	size_t len = strnlen(text, NAME_MAX_LEN + 1);
	bool ok = len >= 1 && len <= NAME_MAX_LEN && is_lower(text[0]) && text[len - 1] != '-';

	for (size_t i = 0; ok && i < len; i++)
		ok = is_lower(text[i]) || is_digit(text[i]) || text[i] == '-';
	if (ok)
		return 0;
	err_set(err, ERR_INVALID, "%s '%.80s' is not a valid name", what, text);
	return err_hint(err,
		"use 1 to 63 of a-z, 0-9 and '-', starting with a letter, not ending with '-'");
}

int parse_u64(const char *what, const char *text, uint64_t lowest, uint64_t highest, uint64_t *ret,
	struct err *err)
{
	uint64_t value = 0;
	bool ok = *text != '\0';

	for (const char *p = text; ok && *p; p++)
		ok = is_digit(*p) && !__builtin_mul_overflow(value, 10, &value) &&
		     !__builtin_add_overflow(value, (uint64_t)(*p - '0'), &value);
	if (!ok || value < lowest || value > highest)
		return err_set(err, ERR_INVALID,
			"%s '%.40s' must be a whole number from %" PRIu64 " to %" PRIu64, what,
			text, lowest, highest);
	*ret = value;
	return 0;
}

/* Decimal numbers are kept in units of 1/SCALE: 64 bits before the point, twelve digits after
 * it. */
static const unsigned __int128 SCALE = 1000000000000;

/* Stops at the first character that is not part of the number; NULL when there is no number. */
static const char *parse_decimal(const char *text, unsigned __int128 *ret)
{
	unsigned __int128 value = 0, part = SCALE;
	const char *p = text;

	if (!is_digit(*p))
		return NULL;
	for (; is_digit(*p); p++) {
		value = value * 10 + (unsigned)(*p - '0');
		if (value >> 64)
			return NULL;
	}
	value *= SCALE;
	if (*p == '.') {
		if (!is_digit(*++p))
			return NULL;
		for (; is_digit(*p); p++) {
			part /= 10;
			value += part * (unsigned)(*p - '0');
		}
	}
	*ret = value;
	return p;
}

int parse_size(const char *what, const char *text, uint64_t lowest, uint64_t highest, uint64_t *ret,
	struct err *err)
{
	static const char letters[] = "KMGT";
	char low[16], high[16];
	unsigned __int128 value = 0;
	const char *p = parse_decimal(text, &value);
	bool ok = p != NULL;

	if (ok && *p) {
		char upper = (char)(is_lower(*p) ? *p - 32 : *p);
		const char *letter = strchr(letters, upper);

		if (letter && *letter) {
			int shift = 10 * (int)(letter - letters + 1);

			ok = value <= ~(unsigned __int128)0 >> shift;
			value <<= shift;
			p++;
			if (*p == 'i' && p[1] == 'B')
				p++;
		}
		if (*p == 'B')
			p++;
		ok = ok && *p == '\0';
	}
	/* A value below one byte must not become 0, which often means "no limit". */
	ok = ok && (!value || value >= SCALE);
	value /= SCALE;
	if (!ok && lowest == 0 && highest >= INT64_MAX)
		return err_set(
			err, ERR_INVALID, "%s '%.40s' must be a size, like 512M or 2G", what, text);
	if (!ok || value < lowest || value > highest)
		return err_set(err, ERR_INVALID,
			"%s '%.40s' must be a size from %s to %s, like 512M or 2G", what, text,
			format_size(lowest, low), format_size(highest, high));
	*ret = (uint64_t)value;
	return 0;
}

/* Writes a duration in the largest unit that divides it: 3600000 becomes "1h". */
static void format_bound(uint64_t ms, char *out, size_t size)
{
	static const struct {
		const char *suffix;
		uint64_t ms;
	} units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 },
		{ "ms", 1 } };
	size_t i = 0;

	while (ms % units[i].ms)
		i++;
	snprintf(out, size, "%" PRIu64 "%s", ms / units[i].ms, ms ? units[i].suffix : "");
}

int parse_duration(const char *what, const char *text, uint64_t lowest_ms, uint64_t highest_ms,
	uint64_t *ret_ms, struct err *err)
{
	static const struct {
		const char *suffix;
		uint64_t ms;
	} units[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 },
		{ "d", 86400000 } };
	unsigned __int128 value = 0;
	const char *p = parse_decimal(text, &value);
	char low[32], high[32];
	bool ok = false;

	for (size_t i = 0; p && i < ARRAY_LEN(units); i++)
		if (!strcmp(p, units[i].suffix)) {
			value = value * units[i].ms / SCALE;
			ok = true;
			break;
		}
	if (!ok || value < lowest_ms || value > highest_ms) {
		format_bound(lowest_ms, low, sizeof low);
		format_bound(highest_ms, high, sizeof high);
		return err_set(err, ERR_INVALID,
			"%s '%.40s' must be a duration from %s to %s, like 30s, 5m or 2h", what,
			text, low, high);
	}
	*ret_ms = (uint64_t)value;
	return 0;
}

int parse_cpus(const char *what, const char *text, uint64_t *ret_milli, struct err *err)
{
	unsigned __int128 value = 0;
	const char *p = parse_decimal(text, &value);

	value /= SCALE / 1000;
	if (!p || *p || value < 10 || value > 1024000)
		return err_set(err, ERR_INVALID,
			"%s '%.40s' must be a number of CPUs from 0.01 to 1024", what, text);
	*ret_milli = (uint64_t)value;
	return 0;
}

int env_check(const char *what, const char *text, struct err *err)
{
	const char *p = text;

	if (is_alpha(*p) || *p == '_')
		while (is_alpha(*p) || is_digit(*p) || *p == '_')
			p++;
	if (p == text || *p != '=')
		return err_set(err, ERR_INVALID,
			"%s '%.80s' must be KEY=VALUE, KEY of letters, digits and '_', not "
			"starting with a digit",
			what, text);
	if (strlen(text) > 32768)
		return err_set(err, ERR_INVALID, "%s '%.*s' is longer than 32768 bytes", what,
			(int)MIN(p - text, 80), text);
	return 0;
}

/* Reads the rest of a time after its seconds: an optional fraction, then Z or the offset from
 * UTC. */
static bool parse_zone(const char *text, int64_t *us)
{
	int hours, minutes, end = -1;
	int64_t unit = 100000;
	char sign;

	if (*text == '.')
		for (text++; *text >= '0' && *text <= '9'; text++, unit /= 10)
			*us += (*text - '0') * unit;
	if (!strcmp(text, "Z"))
		return true;
	if (sscanf(text, "%c%2d:%2d%n", &sign, &hours, &minutes, &end) < 3 || end != 6 ||
		text[end] || (sign != '+' && sign != '-') || hours > 23 || minutes > 59 ||
		hours < 0 || minutes < 0)
		return false;
	*us -= (sign == '-' ? -1 : 1) * (int64_t)(hours * 60 + minutes) * 60000000;
	return true;
}

int parse_moment(const char *what, const char *text, uint64_t *ret_us, struct err *err)
{
	struct tm parts = { 0 };
	const char *rest;
	uint64_t ago_ms;
	int64_t us;

	if (!strchr(text, 'T')) {
		if (parse_duration(what, text, 0, AGO_MAX_MS, &ago_ms, err) < 0)
			return err_hint(err, "how long ago (10m), or a time: 2026-01-02T03:04:05Z");
		us = clock_wall_us() - (int64_t)ago_ms * 1000;
	} else {
		rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &parts);
		us = rest ? (int64_t)timegm(&parts) * 1000000 : 0;
		if (!rest || !parse_zone(rest, &us)) {
			err_set(err, ERR_INVALID, "%s: '%.40s' is not a time", what, text);
			return err_hint(err, "like 2026-01-02T03:04:05Z, or how long ago: 10m");
		}
	}
	*ret_us = (uint64_t)MAX(us, 0);
	return 0;
}

int label_check(const char *what, const char *text, struct err *err)
{
	const char *p = text;
	bool ok;

	while (is_alpha(*p) || is_digit(*p) || (*p && strchr("._/-", *p)))
		p++;
	ok = p > text && p - text <= 63 && *p == '=' && strlen(p + 1) <= 255;
	for (const char *v = ok ? p + 1 : ""; *v; v++)
		ok = ok && (unsigned char)*v >= ' ' && *v != 0x7f;
	if (!ok || !text_is_utf8(text, strlen(text)))
		return err_set(err, ERR_INVALID,
			"%s '%.80s' must be key=value, key 1 to 63 of letters, digits and ._/-, "
			"value at most 255 "
			"printable bytes",
			what, text);
	return 0;
}

char *format_size(uint64_t bytes, char *out)
{
	static const char letters[] = "KMGTP";
	double value = (double)bytes;
	int unit = -1;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(out, 16, "%" PRIu64, bytes);
	else if (value < 10 && value != (uint64_t)value)
		snprintf(out, 16, "%.1f%c", value, letters[unit]);
	else
		snprintf(out, 16, "%.0f%c", value, letters[unit]);
	return out;
}

char *format_age(uint64_t ms, char *out)
{
	uint64_t seconds = ms / 1000;

	if (seconds < 60)
		snprintf(out, 16, "%" PRIu64 "s", seconds);
	else if (seconds < 3600)
		snprintf(out, 16, "%" PRIu64 "m", seconds / 60);
	else if (seconds < 86400)
		snprintf(out, 16, "%" PRIu64 "h", seconds / 3600);
	else
		snprintf(out, 16, "%" PRIu64 "d", seconds / 86400 % 1000000);
	return out;
}

bool text_is_utf8(const char *data, size_t len)
{
	const unsigned char *p = (const unsigned char *)data, *end = p + len;

	while (p < end) {
		unsigned char c = *p++;
		unsigned more, lowest;
		uint32_t rune;

		if (c == 0)
			return false;
		if (c < 0x80)
			continue;
		if (c >= 0xc2 && c <= 0xdf)
			more = 1, rune = c & 0x1f, lowest = 0x80;
		else if (c >= 0xe0 && c <= 0xef)
			more = 2, rune = c & 0x0f, lowest = 0x800;
		else if (c >= 0xf0 && c <= 0xf4)
			more = 3, rune = c & 0x07, lowest = 0x10000;
		else
			return false;
		if ((size_t)(end - p) < more)
			return false;
		for (; more; more--, p++) {
			if ((*p & 0xc0) != 0x80)
				return false;
			rune = rune << 6 | (*p & 0x3f);
		}
		if (rune < lowest || rune > 0x10ffff || (rune >= 0xd800 && rune <= 0xdfff))
			return false;
	}
	return true;
}

bool text_has_prefix(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

static const char base64_alphabet[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *data, size_t len)
{
	const uint8_t *in = data;
	char *out = xcalloc(1, (len + 2) / 3 * 4 + 1), *p = out;

	for (size_t i = 0; i < len; i += 3) {
		size_t left = MIN(len - i, 3);
		uint32_t word = (uint32_t)in[i] << 16;

		if (left > 1)
			word |= (uint32_t)in[i + 1] << 8;
		if (left > 2)
			word |= in[i + 2];
		*p++ = base64_alphabet[word >> 18];
		*p++ = base64_alphabet[word >> 12 & 63];
		*p++ = left > 1 ? base64_alphabet[word >> 6 & 63] : '=';
		*p++ = left > 2 ? base64_alphabet[word & 63] : '=';
	}
	return out;
}

int base64_decode(const char *text, size_t len, uint8_t **ret, size_t *ret_len, struct err *err)
{
	size_t padding = 0, out_len;
	_cleanup_free_ uint8_t *out = NULL;
	uint32_t word = 0;
	size_t at = 0;

	while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
		padding++;
	if (len % 4)
		return err_set(
			err, ERR_INVALID, "base64 text has a length that is no multiple of four");
	out_len = len / 4 * 3 - padding;
	out = xcalloc(1, out_len + 3);
	for (size_t i = 0; i < len; i++) {
		const char *found =
			text[i] && i < len - padding ? strchr(base64_alphabet, text[i]) : NULL;

		if (!found && i < len - padding)
			return err_set(
				err, ERR_INVALID, "base64 text has a wrong character at %zu", i);
		word = word << 6 | (found ? (uint32_t)(found - base64_alphabet) : 0);
		if (i % 4 == 3) {
			out[at++] = (uint8_t)(word >> 16);
			out[at++] = (uint8_t)(word >> 8);
			out[at++] = (uint8_t)word;
			word = 0;
		}
	}
	*ret_len = out_len;
	*ret = steal_ptr(&out);
	return 0;
}

void random_bytes(void *out, size_t len)
{
	uint8_t *p = out;

	while (len) {
		ssize_t got = getrandom(p, len, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			abort();
		p += got;
		len -= (size_t)got;
	}
}

void random_id(char *out, size_t len)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t bytes[16];
	size_t at = sizeof bytes;

	for (size_t i = 0; i < len; i++) {
		unsigned count = i ? 36 : 26;
		uint8_t byte;

		do {
			if (at == sizeof bytes) {
				random_bytes(bytes, sizeof bytes);
				at = 0;
			}
			byte = bytes[at++];
		} while (byte >= 256 / count * count);
		out[i] = alphabet[byte % count];
	}
	out[len] = '\0';
}

int text_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
