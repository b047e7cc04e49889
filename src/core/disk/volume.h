/* volume.h - named folders that outlive boxes
 *
 * pool/volumes/NAME, a subvolume with `data` in it. Any number of boxes may have a volume
 * read-only, one running box at a time may write to it. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdint.h>

struct yard;

/* ERR_EXISTS. limit 0: none; ERR_UNSUPPORTED for a limit where the pool has no quota. */
int volume_create(
	struct yard *yard, const char *name, const char *owner, uint64_t limit, struct err *err);
/* For a box of that owner: makes it if there is none; ERR_EXISTS when it is another owner's, also
 * for who sees all: a volume is shared by boxes of its owner alone. */
int volume_use(struct yard *yard, const char *name, const char *owner, struct err *err);
/* ERR_STATE, naming them, while boxes have it (stopped ones too). */
int volume_remove(struct yard *yard, const char *name, struct err *err);
int volume_set_limit(struct yard *yard, const char *name, uint64_t limit, struct err *err);
/* [{"name","owner","created_at","limit_bytes","used_bytes","boxes":[{"name","path","read_only"}]}];
 * new reference. used_bytes is null without quota. */
json_t *volumes_json(struct yard *yard);
json_t *volume_json(struct yard *yard, const char *name, struct err *err); /* NULL: ERR_NOT_FOUND */
