/* spool.h - the files of an image archive, written to disk to be read in any order */
#pragma once
#include "image/oci_internal.h"

struct spool;

struct spool *spool_new(const struct images *images, int dir); /* an empty folder; borrowed */
void spool_free(struct spool *spool);			       /* accepts NULL; the files stay */
DEFINE_CLEANUP(spool_free, struct spool)
/* Stores files and links of a tar; everything else is skipped. */
int spool_fill(struct spool *spool, read_fn read, void *arg, struct err *err);
bool spool_has(const struct spool *spool, const char *name);
/* Names as "blobs/sha256/…", without "./". ERR_INVALID when it is not in the archive. */
int spool_open_file(const struct spool *spool, const char *name, int *ret, struct err *err);
/* expected: the size and digest the file must have, or NULL. New reference, or NULL. */
json_t *spool_read_json(const struct spool *spool, const char *name,
	const struct oci_blob *expected, struct err *err);
/* "./a//b" is "a/b"; NULL when it leads out of the archive. Yours. */
char *spool_clean_name(const char *name);
