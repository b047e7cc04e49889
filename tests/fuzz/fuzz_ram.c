/* fuzz_ram.c - arbitrary bytes as a map of memory, and as what QEMU's side tells of it
 *
 * The first byte says as what: the map of a layer (read as it is, and once more with a checksum
 * that fits), an answer of the library, or /proc/PID/maps. A map that is taken keeps its promises,
 * and what is to be mapped for it covers the whole RAM once. */
#include "engine/vm/ram_internal.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAINTED_MAX = 256 << 20 };

static void check_pieces(struct ram_layer *layer)
{
	struct ram_layer both[2] = { *layer, *layer };
	struct ram_stack stack = { both, 2, layer->ram_bytes };
	struct ram_piece *pieces;
	uint64_t at = 0;
	size_t count;

	if (ram_stack_pieces(&stack, false, &pieces, &count, NULL) < 0)
		return;
	for (size_t i = 0; i < count; i++) {
		assert(pieces[i].offset == at && pieces[i].length);
		assert(pieces[i].fd == RAM_ZERO || pieces[i].fd == 1); /* the upper one counts */
		at += pieces[i].length;
	}
	assert(at == layer->ram_bytes);
	free(pieces);
}

static void read_map(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct ram_layer layer;
	uint64_t at = 0;

	if (ram_layer_parse(data, size, &layer, &err) < 0) {
		assert(err.kind == ERR_PROTOCOL);
		return;
	}
	assert(layer.count <= RAM_EXTENTS_MAX && layer.ram_bytes <= RAM_BYTES_MAX);
	for (size_t i = 0; i < layer.count; i++) {
		const struct ram_extent *extent = &layer.extents[i];

		assert(extent->offset >= at && extent->length);
		assert(!((extent->offset | extent->length) % RAM_PAGE));
		at = extent->offset + extent->length;
		assert(at > extent->offset && at <= layer.ram_bytes);
	}
	assert(ram_layer_bytes(&layer) <= layer.ram_bytes);
	if (layer.ram_bytes <= PAINTED_MAX)
		check_pieces(&layer);
	ram_layer_done(&layer);
}

static void read_map_with_a_checksum(const uint8_t *data, size_t size)
{
	uint8_t *copy = xmemdup(data, size);
	uint32_t sum;

	if (size >= sizeof sum) {
		sum = ram_crc(0, copy, size - sizeof sum);
		memcpy(copy + size - sizeof sum, &sum, sizeof sum);
		read_map(copy, size);
	}
	free(copy);
}

static void read_answer(const uint8_t *data, size_t size)
{
	for (uint32_t kind = 0; kind <= RAM_KIND_COUNT; kind++) {
		struct ram_answer answer;
		struct err err = ERR_INIT;

		if (ram_answer_check(data, size, kind, &answer, &err) < 0) {
			assert(err.kind == ERR_PROTOCOL);
			continue;
		}
		assert(answer.kind == kind && answer.error <= 4095);
		assert(answer.size <= RAM_BYTES_MAX && answer.base + answer.size >= answer.base);
	}
}

static void read_maps(const uint8_t *data, size_t size)
{
	char *text = xstrndup((const char *)data, size);
	uint64_t base;

	ram_find_mapping(text, 0x4000, &base, NULL);
	ram_find_mapping(text, UINT64_C(256) << 20, &base, NULL);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	switch (data[0] % 3) {
	case 0:
		read_map(data + 1, size - 1);
		read_map_with_a_checksum(data + 1, size - 1);
		break;
	case 1:
		read_answer(data + 1, size - 1);
		break;
	case 2:
		read_maps(data + 1, size - 1);
		break;
	}
	return 0;
}
