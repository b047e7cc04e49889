/* inside_internal.h - what the files of the inside door share */
#pragma once
#include "core/ask.h"

struct args {
	bool json, disk_only, quiet;
	uint64_t count;	  /* -n; 0: not given */
	const char *from; /* --from; NULL: not given */
	char **rest;	  /* borrowed from the words, in an array of our own */
	size_t rest_count;
};

enum arg_flag {
	ARG_JSON = 1,
	ARG_DISK_ONLY = 2,
	ARG_COUNT = 4,
	ARG_FROM = 8,
	ARG_QUIET = 16,
	ARG_PROGRAM = 32, /* words from the second plain one on are not ours */
};

/* The words behind the first, of which least to most are plain ones. ret is done with args_done,
 * also when this fails. */
int args_read(char **words, unsigned allowed, size_t least, size_t most, struct args *ret,
	struct err *err);
void args_done(struct args *args);

/* verbs.c - each answers its ask, at once or later */
void inside_info(struct ask *ask, const struct args *args);
void inside_ls(struct ask *ask, const struct args *args);
void inside_timeline(struct ask *ask, const struct args *args);
void inside_fork(struct ask *ask, const struct args *args);
void inside_snapshot(struct ask *ask, const struct args *args);
void inside_rollback(struct ask *ask, const struct args *args);
void inside_exec(struct ask *ask, const struct args *args);
void inside_rm(struct ask *ask, const struct args *args);
