/* attack.h - `box attack`: root inside a box tries everything, and nothing may come of it
 *
 * The program attacks a daemon of its own, the same program as the one installed, in a place that
 * nothing can leave: see rig.h. Every attack is proven to have failed three times over: by what the
 * attacker saw, by those it aimed at, who must have seen nothing, and by the audit log, which must
 * tell it. Needs root. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct attack_options {
	const char *group;   /* only these; NULL: all */
	const char *profile; /* "standard" or "nested"; NULL: both */
	const char *driver;  /* "ns" or "vm"; NULL: ns */
	bool json;	     /* the report as JSON on stdout */
	bool quiet;	     /* only what is wrong */
	bool keep;	     /* leave the daemon's folder for those who want to look */
};

/* Runs the suite and prints the report. 0: everything was refused, logged and disturbed nobody; 1:
 * something was not; -1 with err when it could not be run at all. */
int attack_run(const struct attack_options *options, struct err *err);
/* Only the two namespaces: runs argv where the daemon would run, and prints on stderr what arrived
 * outside. Returns its exit code, -1 with err. */
int attack_rig(char **argv, struct err *err);
/* The groups, with what they are about: "name\ttext\n" lines; yours to free. */
char *attack_groups(void);
