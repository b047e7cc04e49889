/* attack.h - `box attack`: root inside a box tries to break out in every way, and must fail
 *
 * The program attacks a daemon of its own, the same program as the installed one, in a network
 * that nothing can leave: see rig.h. Each attack must be shown to have failed by three
 * independent observers: the attacker itself, the targets, which must have received nothing, and
 * the audit log, which must contain the attempt. Needs root. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct attack_options {
	const char *group;   /* only this group; NULL: all */
	const char *profile; /* "standard" or "nested"; NULL: both */
	const char *driver;  /* "ns" or "vm"; NULL: ns */
	bool json;	     /* the report as JSON on stdout */
	bool quiet;	     /* prints only failures */
	bool keep;	     /* keeps the daemon's folder for inspection */
};

/* Runs the suite and prints the report. 0: everything was refused, logged and disturbed nobody; 1:
 * something was not; -1 with err when it could not be run at all. */
int attack_run(const struct attack_options *options, struct err *err);
/* Makes only the two namespaces: runs argv where the daemon would run, and prints on stderr what
 * arrived outside. Returns its exit code, -1 with err. */
int attack_rig(char **argv, struct err *err);
/* The groups with their descriptions: "name\ttext\n" lines; yours to free. */
char *attack_groups(void);
