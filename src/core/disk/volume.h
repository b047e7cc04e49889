/* volume.h - named folders that outlive boxes
 *
 * pool/volumes/NAME, a subvolume with `data` in it. Any number of boxes may have a volume
 * read-only, one running box at a time may write to it. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdint.h>

struct yard;

/* Fails with ERR_EXISTS when it exists. limit 0: none; ERR_UNSUPPORTED for a limit where the pool
 * has no quota. */
int volume_create(
	struct yard *yard, const char *name, const char *owner, uint64_t limit, struct err *err);
/* Finds or creates a volume for a box of that owner. Fails with ERR_EXISTS when it is another
 * owner's, also for an asker who sees all: only boxes of one owner share a volume. */
int volume_use(struct yard *yard, const char *name, const char *owner, struct err *err);
/* Fails with ERR_STATE, naming them, while boxes use it (stopped ones too). */
int volume_remove(struct yard *yard, const char *name, struct err *err);
int volume_set_limit(struct yard *yard, const char *name, uint64_t limit, struct err *err);
/* [{"name","owner","created_at","limit_bytes","used_bytes","boxes":[{"name","path","read_only"}]}];
 * new reference. used_bytes is null without quota. */
json_t *volumes_json(struct yard *yard);
json_t *volume_json(struct yard *yard, const char *name, struct err *err); /* NULL: ERR_NOT_FOUND */
