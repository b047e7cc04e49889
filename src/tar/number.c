/* number.c - numbers in a tar archive: octal, binary and decimal; see tar_internal.h */
#include "tar/tar_internal.h"

uint32_t tar_fill(uint64_t size)
{
	return (uint32_t)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

uint32_t tar_sum(const struct tar_header *header)
{
	const uint8_t *bytes = (const uint8_t *)header;
	uint32_t total = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++) {
		bool in_sum = i >= offsetof(struct tar_header, checksum) &&
			      i < offsetof(struct tar_header, type);

		total += in_sum ? ' ' : bytes[i];
	}
	return total;
}

/* With the highest bit set, the rest is a large binary number, high byte first. Negative numbers
 * (times before 1970) exist only in this form. */
static int get_binary(const uint8_t *p, const uint8_t *end, int64_t *ret, struct err *err)
{
	bool negative = *p & 0x40;
	uint64_t value = negative ? UINT64_MAX : 0;

	value = value << 6 | (*p++ & 0x3f);
	for (; p < end; p++) {
		/* Only copies of the sign bit may be shifted out. */
		if (value >> 55 != (negative ? 0x1ff : 0))
			return err_set(err, ERR_INVALID, "a number in the archive is too large");
		value = value << 8 | *p;
	}
	*ret = (int64_t)value;
	return 0;
}

int tar_get_number(const char *field, size_t size, int64_t *ret, struct err *err)
{
	const uint8_t *p = (const uint8_t *)field, *end = p + size;
	uint64_t value = 0;

	if (*p & 0x80)
		return get_binary(p, end, ret, err);
	while (p < end && *p == ' ')
		p++;
	for (; p < end && *p >= '0' && *p <= '7'; p++)
		value = value << 3 | (uint64_t)(*p - '0');
	for (; p < end; p++)
		if (*p != ' ' && *p != '\0')
			return err_set(err, ERR_INVALID, "a number in the archive is malformed");
	*ret = (int64_t)value;
	return 0;
}

int tar_get_u32(const char *field, size_t size, uint32_t *ret, struct err *err)
{
	int64_t value;

	if (tar_get_number(field, size, &value, err) < 0)
		return -1;
	if (value < 0 || value > UINT32_MAX)
		return err_set(err, ERR_INVALID, "a number in the archive is out of range");
	*ret = (uint32_t)value;
	return 0;
}

int tar_get_size(const char *field, size_t size, uint64_t *ret, struct err *err)
{
	int64_t value;

	if (tar_get_number(field, size, &value, err) < 0)
		return -1;
	if (value < 0 || (uint64_t)value > TAR_SIZE_MAX)
		return err_set(err, ERR_INVALID, "a size in the archive is out of range");
	*ret = (uint64_t)value;
	return 0;
}

int tar_parse_decimal(const char *text, uint64_t max, uint64_t *ret, struct err *err)
{
	uint64_t value = 0;

	if (!*text)
		return err_set(err, ERR_INVALID, "a number in the archive is empty");
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || value > (max - (uint64_t)(*text - '0')) / 10)
			return err_set(err, ERR_INVALID, "a number in the archive is malformed");
		value = value * 10 + (uint64_t)(*text - '0');
	}
	*ret = value;
	return 0;
}

int tar_parse_time(char *text, int64_t *ret, uint32_t *ret_ns, struct err *err)
{
	bool negative = *text == '-';
	char *dot = strchr(text, '.');
	uint64_t seconds;
	uint32_t ns = 0, unit = 100000000;

	if (dot)
		*dot++ = '\0';
	if (tar_parse_decimal(text + negative, TAR_SIZE_MAX, &seconds, err) < 0)
		return -1;
	for (; dot && *dot; dot++, unit /= 10) {
		if (*dot < '0' || *dot > '9')
			return err_set(err, ERR_INVALID, "a time in the archive is malformed");
		ns += (uint32_t)(*dot - '0') * unit;
	}
	*ret = negative ? -(int64_t)seconds : (int64_t)seconds;
	if (negative && ns) {
		--*ret;
		ns = 1000000000 - ns;
	}
	*ret_ns = ns;
	return 0;
}
