/* ram_merge.c - merges layers into fewer, with the same content
 *
 * The upper layers of a stack are written into one new layer. A lower one that is larger than
 * all above it together stays: the template that a thousand boxes share is not copied for each
 * of them, and a page is copied a logarithmic number of times in its life. The old layers stay
 * for others that use them. */
#include "base/strv.h"
#include "engine/vm/ram_internal.h"
#include <errno.h>
#include <fcntl.h>

size_t ram_merge_floor(const struct ram_stack *stack)
{
	uint64_t above = 0;
	size_t floor = stack->count;

	/* At least two layers, and half of them: otherwise the next merge would come too soon. */
	while (floor > 0) {
		uint64_t bytes = ram_layer_bytes(&stack->layers[floor - 1]);
		size_t taken = stack->count - floor;

		if (taken >= 2 && taken >= stack->count / 2 && bytes > above)
			break;
		above += bytes;
		floor--;
	}
	return floor;
}

struct merge {
	const struct ram_stack *stack;
	size_t floor;
	int file;
	uint8_t *state;
	uint32_t *checksums;
	char *room;
	size_t room_len;
};

static int copy_pages(struct merge *merge, const struct ram_layer *layer, size_t from, size_t count,
	struct err *err)
{
	uint64_t offset = from * RAM_PAGE;
	size_t len = count * RAM_PAGE;

	for (size_t at = 0; at < len;) {
		ssize_t got = pread(layer->fd, merge->room + at, len - at, (off_t)(offset + at));

		if (got <= 0)
			return err_sys(
				err, got < 0 ? errno : EIO, "read layer '%s' of memory", layer->id);
		at += (size_t)got;
	}
	for (size_t i = 0; i < count; i++)
		merge->checksums[from + i] = ram_crc(0, merge->room + i * RAM_PAGE, RAM_PAGE);
	for (size_t at = 0; at < len;) {
		ssize_t put = pwrite(merge->file, merge->room + at, len - at, (off_t)(offset + at));

		if (put <= 0)
			return err_sys(err, put < 0 ? errno : ENOSPC, "write a layer of memory");
		at += (size_t)put;
	}
	return 0;
}

/* Painting decides which layer's page counts; the layers themselves decide which pages exist:
 * zeros over something are content. */
static void note_pages(struct merge *merge)
{
	for (size_t i = merge->floor; i < merge->stack->count; i++) {
		const struct ram_layer *layer = &merge->stack->layers[i];

		for (size_t e = 0; e < layer->count; e++)
			memset(merge->state + layer->extents[e].offset / RAM_PAGE,
				layer->extents[e].zero ? RAM_PAGE_ZERO : RAM_PAGE_DATA,
				layer->extents[e].length / RAM_PAGE);
	}
}

static int copy_all(struct merge *merge, struct err *err)
{
	_cleanup_free_ uint16_t *paint = ram_stack_paint(merge->stack);
	size_t pages = merge->stack->ram_bytes / RAM_PAGE, most = merge->room_len / RAM_PAGE;

	note_pages(merge);
	for (size_t from = 0, end; from < pages; from = end) {
		for (end = from + 1; end < pages && end - from < most &&
				     paint[end] == paint[from] &&
				     merge->state[end] == merge->state[from];)
			end++;
		if (merge->state[from] == RAM_PAGE_DATA &&
			copy_pages(merge, &merge->stack->layers[paint[from]], from, end - from,
				err) < 0)
			return -1;
	}
	return 0;
}

static int merge_stack(
	int dir, const struct ram_stack *stack, size_t floor, const char *id, struct err *err)
{
	size_t pages = stack->ram_bytes / RAM_PAGE, room_len = 1 << 20;
	_cleanup_free_ uint8_t *state = xnewn(uint8_t, pages);
	_cleanup_free_ uint32_t *checksums = xnewn(uint32_t, pages);
	_cleanup_free_ char *room = xcalloc(1, room_len);
	_cleanup_close_ int file = -1;
	struct ram_layer layer = { .ram_bytes = stack->ram_bytes, .fd = -1 };
	struct merge merge = { stack, floor, -1, state, checksums, room, room_len };
	int result;

	/* A merge of damaged data would give it a new, valid checksum. */
	for (size_t i = floor; i < stack->count; i++)
		if (ram_layer_verify(&stack->layers[i], err) < 0)
			return -1;
	if (ram_layer_create(dir, id, stack->ram_bytes, &file, err) < 0)
		return -1;
	merge.file = file;
	if (copy_all(&merge, err) < 0)
		return -1;
	strcpy(layer.id, id);
	ram_layer_build(&layer, state, checksums, pages);
	result = ram_layer_save(dir, &layer, err);
	ram_layer_done(&layer);
	return result;
}

int ram_merge_run(
	int dir, const char *const *ids, const char *id, uint32_t *ret_floor, struct err *err)
{
	struct ram_stack stack;
	size_t floor;
	int result;

	if (ram_stack_load(dir, ids, 0, &stack, err) < 0)
		return -1;
	floor = ram_merge_floor(&stack);
	*ret_floor = (uint32_t)floor;
	result = stack.count < 2 ? err_set(err, ERR_INVALID, "there is nothing to merge")
				 : merge_stack(dir, &stack, floor, id, err);
	ram_stack_done(&stack);
	if (result < 0)
		ram_layer_remove(dir, id);
	return result;
}
