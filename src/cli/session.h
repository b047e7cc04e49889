/* session.h - a person or a pipe joined to a program in a box, until the program ends or we let
 * go */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct cli;

struct session_spec {
	const char *box;
	json_t *body;	  /* exec body, borrowed: start this; or NULL: */
	const char *exec; /* attach to this exec */
	uint64_t offset;  /* attach: from here */
	bool from_end;	  /* attach: only what comes from now on */
	bool input;	  /* forward stdin; attach without it only watches and forwards no signal */
	bool tty;	  /* the program has a terminal; ours becomes raw when input is one */
	bool *ret_exited; /* set when the program has ended; may be NULL */
	bool *ret_detached; /* set when the detach keys were pressed; may be NULL */
};

/* Returns the exit code for the client: the program's own, 124 for its time limit, 0 after the
 * detach keys, 141 when nobody reads our output any more. A program that was started here is hung
 * up then; one attached to is not. */
int session_run(struct cli *cli, const struct session_spec *spec);
