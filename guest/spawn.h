/* spawn.h - a program in a session of its own, with pipes or a terminal */
#pragma once
#include "wire/wire.h"
#include <sys/types.h>

struct spawned {
	pid_t pid;
	/* A struct err if the program could not be executed, else just the end of file. */
	int report;
	int out; /* non-blocking, as all of these; the terminal's own end with tty */
	int err; /* -1 with tty */
	int in;	 /* -1 when stdin is /dev/null; a second descriptor of the terminal with tty */
};

/* The command line of a program: that of the builtin, if spec asks for one. */
const char *const *spawn_argv(const struct wire_exec_spec *spec);

/* Forks. The caller owns the descriptors of *ret and reaps the child. Only failures before the fork
 * are errors here (mostly ERR_LIMIT); a missing program, user or folder is reported through
 * report. */
int spawn(const struct wire_exec_spec *spec, struct spawned *ret, struct err *err);
