/* restore.h - a box that starts from a state; see restore.c */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>

enum restore_kind { RESTORE_NONE, RESTORE_WAKE, RESTORE_ROLLBACK, RESTORE_FORK };

/* Set while a box starts from a state. */
struct box_restore {
	char *state; /* id, held; NULL: a fresh start */
	int dir;     /* folder of the unpacked state; -1: not there yet */
	enum restore_kind kind;
	char *parent;	/* RESTORE_FORK: name of the box it was forked from */
	unsigned index; /* RESTORE_FORK: among the children of one fork, from 0 */
	bool waits;	/* for the state to be unpacked */
	bool in_call, held;
	bool used;     /* the state belongs to a snapshot, which is held meanwhile */
	json_t *names; /* that had addresses at the capture; NULL: not known, or already used */
	struct err problem;
};
