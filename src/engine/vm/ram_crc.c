/* ram_crc.c - CRC-32C (Castagnoli), by the processor's instruction where it has it */
#include "engine/vm/ram_internal.h"

static uint32_t table[256];

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t value = i;

		for (int bit = 0; bit < 8; bit++)
			value = value & 1 ? value >> 1 ^ UINT32_C(0x82f63b78) : value >> 1;
		table[i] = value;
	}
}

static uint32_t by_table(uint32_t crc, const uint8_t *data, size_t len)
{
	if (!table[1])
		make_table();
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *data++) & 255];
	return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_instruction(
	uint32_t crc, const uint8_t *data, size_t len)
{
	uint64_t wide = crc;

	for (; len >= 8; data += 8, len -= 8) {
		uint64_t word;

		memcpy(&word, data, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	while (len--)
		crc = __builtin_ia32_crc32qi(crc, *data++);
	return crc;
}
#endif

uint32_t ram_crc_by_table(uint32_t crc, const void *data, size_t len)
{
	return ~by_table(~crc, data, len);
}

uint32_t ram_crc(uint32_t crc, const void *data, size_t len)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2"))
		return ~by_instruction(~crc, data, len);
#endif
	return ram_crc_by_table(crc, data, len);
}

bool ram_page_is_zero(const void *page)
{
	const uint8_t *bytes = page;

	/* Most pages that are not zero show it early. */
	return !bytes[0] && !bytes[RAM_PAGE - 1] && !memcmp(bytes, bytes + 1, RAM_PAGE - 1);
}
