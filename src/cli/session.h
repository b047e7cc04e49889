/* session.h - connects stdin and stdout to a program in a box, until the program ends or we
 * detach */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct cli;

struct session_spec {
	const char *box;
	json_t *body;	  /* exec body, borrowed: the program to start; or NULL: */
	const char *exec; /* attach to this exec */
	uint64_t offset;  /* attach: from here */
	bool from_end;	  /* attach: only new output */
	/* forward stdin; an attach without it only watches and forwards no signal */
	bool input;
	bool tty;	    /* the program has a terminal; ours becomes raw when input is one */
	bool *ret_exited;   /* set when the program has ended; may be NULL */
	bool *ret_detached; /* set when the detach keys were pressed; may be NULL */
};

/* Returns the exit code for the client: the program's own, 124 at its time limit, 0 after the
 * detach keys, 141 when our output cannot be written any more. A program started here then gets
 * HUP; one attached to does not. */
int session_run(struct cli *cli, const struct session_spec *spec);
