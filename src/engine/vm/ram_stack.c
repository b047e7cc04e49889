/* ram_stack.c - which layer is mapped where
 *
 * Each page gets the number of its layer, painted bottom to top into an array of two bytes per
 * page (512 kB for 1 GiB); runs of the same number are the pieces. This is simple, and bounded
 * by the size of the RAM whatever the maps say. */
#include "base/strv.h"
#include "engine/vm/ram_internal.h"

void ram_stack_done(struct ram_stack *stack)
{
	for (size_t i = 0; i < stack->count; i++)
		ram_layer_done(&stack->layers[i]);
	free(stack->layers);
	*stack = (struct ram_stack){ 0 };
}

int ram_stack_load(
	int dir, const char *const *ids, uint64_t ram_bytes, struct ram_stack *ret, struct err *err)
{
	struct ram_stack stack = { .ram_bytes = ram_bytes };
	size_t count = strv_len(ids);

	if (count > RAM_LAYERS_MAX)
		return err_set(err, ERR_LIMIT, "%zu layers of memory are more than %d", count,
			RAM_LAYERS_MAX);
	stack.layers = xnewn(struct ram_layer, count + 1);
	for (size_t i = 0; i < count; i++) {
		if (ram_layer_load(dir, ids[i], stack.ram_bytes, &stack.layers[i], err) < 0) {
			ram_stack_done(&stack);
			return -1;
		}
		stack.count++;
		stack.ram_bytes = stack.layers[i].ram_bytes;
	}
	*ret = stack;
	return 0;
}

static void paint_layer(uint16_t *pages, const struct ram_layer *layer, uint16_t number)
{
	for (size_t i = 0; i < layer->count; i++) {
		const struct ram_extent *extent = &layer->extents[i];
		uint16_t color = extent->zero ? RAM_PAINT_ZERO : number;
		size_t first = extent->offset / RAM_PAGE, count = extent->length / RAM_PAGE;

		for (size_t page = 0; page < count; page++)
			pages[first + page] = color;
	}
}

uint16_t *ram_stack_paint(const struct ram_stack *stack)
{
	size_t count = stack->ram_bytes / RAM_PAGE;
	uint16_t *pages = xnewn(uint16_t, count + 1);

	memset(pages, 0xff, count * sizeof *pages);
	for (size_t i = 0; i < stack->count; i++)
		paint_layer(pages, &stack->layers[i], (uint16_t)i);
	return pages;
}

struct pieces {
	struct ram_piece *data;
	size_t count, room;
};

static int add_piece(
	struct pieces *pieces, uint64_t offset, uint64_t length, uint32_t fd, struct err *err)
{
	if (pieces->count == RAM_PIECES_MAX)
		return err_set(err, ERR_LIMIT, "memory of more than %d pieces must be merged",
			RAM_PIECES_MAX);
	if (pieces->count == pieces->room) {
		pieces->room = pieces->room ? pieces->room * 2 : 64;
		xgrow(pieces->data, pieces->room);
	}
	pieces->data[pieces->count++] =
		(struct ram_piece){ .offset = offset, .length = length, .fd = fd };
	return 0;
}

static int top_pieces(const struct ram_stack *stack, struct pieces *pieces, struct err *err)
{
	const struct ram_layer *top = &stack->layers[stack->count - 1];

	for (size_t i = 0; i < top->count; i++) {
		const struct ram_extent *extent = &top->extents[i];
		uint32_t fd = extent->zero ? RAM_ZERO : (uint32_t)stack->count - 1;

		if (add_piece(pieces, extent->offset, extent->length, fd, err) < 0)
			return -1;
	}
	return 0;
}

static int all_pieces(const struct ram_stack *stack, struct pieces *pieces, struct err *err)
{
	_cleanup_free_ uint16_t *pages = ram_stack_paint(stack);
	size_t count = stack->ram_bytes / RAM_PAGE;

	for (size_t from = 0, end; from < count; from = end) {
		uint32_t fd = pages[from] == RAM_PAINT_ZERO ? RAM_ZERO : pages[from];

		for (end = from + 1; end < count && pages[end] == pages[from];)
			end++;
		if (add_piece(pieces, from * RAM_PAGE, (end - from) * RAM_PAGE, fd, err) < 0)
			return -1;
	}
	return 0;
}

int ram_stack_pieces(const struct ram_stack *stack, bool only_top, struct ram_piece **ret,
	size_t *ret_count, struct err *err)
{
	struct pieces pieces = { 0 };
	int result = only_top && stack->count ? top_pieces(stack, &pieces, err)
					      : all_pieces(stack, &pieces, err);

	if (result < 0) {
		free(pieces.data);
		return -1;
	}
	*ret = pieces.data;
	*ret_count = pieces.count;
	return 0;
}
