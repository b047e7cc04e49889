/* dns_name.c - see dns_name.h */
#include "net/dns_name.h"
#include "base/alloc.h"
#include "base/text.h"

static bool is_letter(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_host_byte(uint8_t c)
{
	return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static uint8_t lower(uint8_t c)
{
	return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
}

bool dns_name_read(const uint8_t *message, size_t len, size_t *pos, struct dns_name *ret)
{
	size_t at = *pos, before = *pos, end = 0, used = 0;

	while (at < len) {
		uint8_t size = message[at];

		if ((size & 0xc0) == 0xc0) {
			size_t target;

			if (at + 1 >= len)
				return false;
			target = (size_t)(size & 0x3f) << 8 | message[at + 1];
			if (target < DNS_HEADER || target >= before)
				return false;
			if (!end)
				end = at + 2;
			at = before = target;
			continue;
		}
		if (size > DNS_LABEL_MAX || at + 1 + size > len || used + 1 + size > DNS_NAME_MAX)
			return false;
		memcpy(ret->wire + used, message + at, 1 + size);
		used += 1 + size;
		at += 1 + size;
		if (!size) {
			ret->len = used;
			*pos = end ? end : at;
			return true;
		}
	}
	return false;
}

bool dns_name_text(const struct dns_name *name, char *out)
{
	bool host = name->len > 1;
	size_t at = 0;

	while (at + 1 < name->len) {
		const uint8_t *label = name->wire + at;

		if (at)
			*out++ = '.';
		for (unsigned i = 1; i <= label[0]; i++) {
			if (is_host_byte(label[i])) {
				*out++ = lower(label[i]);
				continue;
			}
			host = false;
			*out++ = '\\';
			*out++ = '0' + label[i] / 100;
			*out++ = '0' + label[i] / 10 % 10;
			*out++ = '0' + label[i] % 10;
		}
		at += 1 + label[0];
	}
	*out = '\0';
	return host;
}

bool dns_name_parse(const char *text, struct dns_name *ret)
{
	size_t used = 0;

	while (*text) {
		size_t size = 0;

		while (is_host_byte(text[size]))
			size++;
		if (!size || size > DNS_LABEL_MAX || used + 2 + size > DNS_NAME_MAX)
			return false;
		if (text[size] && text[size] != '.')
			return false;
		ret->wire[used] = size;
		memcpy(ret->wire + used + 1, text, size);
		used += 1 + size;
		text += size + (text[size] == '.');
	}
	if (!used)
		return false;
	ret->wire[used] = 0;
	ret->len = used + 1;
	return true;
}

bool dns_name_equal(const struct dns_name *a, const struct dns_name *b)
{
	/* Lengths of labels are below 'A', so lower() leaves them alone. */
	if (a->len != b->len)
		return false;
	for (unsigned i = 0; i < a->len; i++)
		if (lower(a->wire[i]) != lower(b->wire[i]))
			return false;
	return true;
}

bool dns_name_equal_case(const struct dns_name *a, const struct dns_name *b)
{
	return a->len == b->len && !memcmp(a->wire, b->wire, a->len);
}

void dns_name_mix_case(struct dns_name *name)
{
	uint8_t bits[(DNS_NAME_MAX + 7) / 8];

	random_bytes(bits, sizeof bits);
	for (unsigned i = 0; i < name->len; i++)
		if (is_letter(name->wire[i]))
			name->wire[i] =
				(name->wire[i] & ~0x20) | (bits[i / 8] >> i % 8 & 1 ? 0x20 : 0);
}
