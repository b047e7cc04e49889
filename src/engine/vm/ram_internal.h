/* ram_internal.h - shared by the files of ram.h: layers in memory, stacks, work in helpers */
#pragma once
#include "base/alloc.h"
#include "engine/vm/preload/protocol.h"
#include "engine/vm/ram.h"

enum {
	RAM_EXTENTS_MAX = 12000, /* of one layer */
	RAM_MAP_FILE_MAX = 40 + RAM_EXTENTS_MAX * 24,
};

/* ---- checksums (ram_crc.c) ------------------------------------------------------------------- */

/* CRC-32C; start with 0. */
uint32_t ram_crc(uint32_t crc, const void *data, size_t len);
uint32_t ram_crc_by_table(uint32_t crc, const void *data, size_t len); /* on any processor */
bool ram_page_is_zero(const void *page);

/* ---- one layer (ram_layer.c) ----------------------------------------------------------------- */

struct ram_extent {
	uint64_t offset, length;
	/* CRC-32C of the CRC-32Cs of its pages, four bytes each: pages are copied several times,
	 * not in the order of the file. */
	uint32_t checksum;
	bool zero; /* nothing in the file: pages of zeros */
};

struct ram_layer {
	char id[RAM_ID_LEN + 1];
	uint64_t ram_bytes;
	struct ram_extent *extents; /* ascending; adjacent ones of the same kind are merged */
	size_t count;
	int fd; /* of the data, read-only; -1 */
};

void ram_layer_done(struct ram_layer *layer);
uint64_t ram_layer_bytes(const struct ram_layer *layer); /* of data */
/* Parses a .map file strictly. ERR_PROTOCOL says what is wrong. */
int ram_layer_parse(const void *data, size_t len, struct ram_layer *ret, struct err *err);
/* Reads the map of a layer and opens its data: ERR_NOT_FOUND; ERR_PROTOCOL: damaged, or not of
 * size ram_bytes (0: any). */
int ram_layer_load(
	int dir, const char *id, uint64_t ram_bytes, struct ram_layer *ret, struct err *err);
/* Writes ID.map for the data in ID.tmp, which it renames: then the layer exists. */
int ram_layer_save(int dir, const struct ram_layer *layer, struct err *err);
void ram_layer_remove(int dir, const char *id); /* with its unfinished files */
/* Reads all data: ERR_PROTOCOL names the first damaged extent. */
int ram_layer_verify(const struct ram_layer *layer, struct err *err);
/* Makes ID.tmp, empty, of ram_bytes. */
int ram_layer_create(int dir, const char *id, uint64_t ram_bytes, int *ret, struct err *err);

/* Makes extents from pages. state: one enum ram_page per page; checksums: one per page. Short
 * runs of zeros become data (the file has a hole there). */
enum ram_page { RAM_PAGE_NONE, RAM_PAGE_DATA, RAM_PAGE_ZERO };
void ram_layer_build(
	struct ram_layer *layer, const uint8_t *state, const uint32_t *checksums, size_t pages);

/* ---- a stack (ram_stack.c) ------------------------------------------------------------------- */

struct ram_stack {
	struct ram_layer *layers; /* bottom to top */
	size_t count;
	uint64_t ram_bytes;
};

void ram_stack_done(struct ram_stack *stack);
/* ram_bytes 0: as in the lowest layer. */
int ram_stack_load(int dir, const char *const *ids, uint64_t ram_bytes, struct ram_stack *ret,
	struct err *err);
/* One number per page: the index of the layer that counts, RAM_PAINT_ZERO where there is none. */
#define RAM_PAINT_ZERO UINT16_MAX
uint16_t *ram_stack_paint(const struct ram_stack *stack);
/* The pieces to map, ascending; piece.fd is the index of the layer or RAM_ZERO. only_top: only
 * those of the uppermost layer. ERR_LIMIT over RAM_PIECES_MAX. */
int ram_stack_pieces(const struct ram_stack *stack, bool only_top, struct ram_piece **ret,
	size_t *ret_count, struct err *err);

/* ---- the link (ram_link.c) ------------------------------------------------------------------- */

/* Finds the mapping in text, which is /proc/PID/maps. */
int ram_find_mapping(const char *text, uint64_t size, uint64_t *ret_base, struct err *err);
/* Checks an answer of the library to a request of this kind. */
int ram_answer_check(
	const void *data, size_t len, uint32_t kind, struct ram_answer *ret, struct err *err);
pid_t ram_link_pid(const struct ram_link *link);
uint64_t ram_link_bytes(const struct ram_link *link);
uint64_t ram_link_base(const struct ram_link *link); /* 0: not known yet */
void ram_link_register(struct ram_link *link, ram_done done, void *arg);
/* Calls done when ram_link_base is known; the next ram_link_add maps the whole stack. */
void ram_link_locate(struct ram_link *link, ram_done done, void *arg);
void ram_link_unregister(struct ram_link *link);
void ram_link_forget(struct ram_link *link, const void *arg); /* done with arg: not called */

/* ---- copying, in a helper (ram_copy.c) ------------------------------------------------------ */

struct ram_copy_job {
	int dir;
	const char *id;
	const char *const *stack;
	pid_t pid;
	int pidfd;
	uint64_t base, ram_bytes;
	bool precopy, whole;
	int disk;
};

struct ram_copy_report {
	bool ready; /* false: this is the last report */
	bool empty; /* nothing was written: there is no layer */
	bool precopy;
	uint64_t bytes, last_bytes, live_us, last_us;
	uint32_t extents;
	struct err err;
};

int ram_copy_run(int sock, const struct ram_copy_job *job); /* of helper_ops.run */

/* ---- the store (ram_store.c) ----------------------------------------------------------------- */

struct loop *ram_store_loop(const struct ram_store *store);
int ram_store_dir(const struct ram_store *store);
void ram_store_add_pass(struct ram_store *store, struct ram_pass *pass);
void ram_store_remove_pass(struct ram_store *store, struct ram_pass *pass);
void ram_pass_end(struct ram_pass *pass); /* the store closes: waits for the helper */
/* Merges in a helper: the layers of a stack above *ret_floor become the layer id. */
int ram_merge_run(
	int dir, const char *const *stack, const char *id, uint32_t *ret_floor, struct err *err);
/* How many of the lowest layers of a stack a merge does not touch. */
size_t ram_merge_floor(const struct ram_stack *stack);
