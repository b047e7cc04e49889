/* sshkey_internal.h - what keys and certificates share */
#pragma once
#include "sshkey/reader.h"

struct sshkey_type {
	enum sshkey_kind kind;
	const char *name;
	const char *curve; /* as it is named in the key, or NULL */
	unsigned bits;
};
extern const struct sshkey_type sshkey_types[]; /* ends with an empty name */

const struct sshkey_type *sshkey_type_find(struct bytes name); /* NULL: not accepted */
/* What comes after the name; *ret has no blob. */
int sshkey_read_fields(struct ssh_reader *reader, const struct sshkey_type *type,
	struct sshkey *ret, struct err *err);
