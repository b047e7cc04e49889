/* seccomp.h - system call filters: built once with libseccomp, installed in children as BPF */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seccomp_rule {
	int call;    /* the system call that is refused */
	int answer;  /* the errno it returns */
	bool masked; /* refused only when (argument arg & mask) == value */
	unsigned arg;
	uint64_t mask, value;
	bool also; /* and when argument also_arg, as an int, is also_value */
	unsigned also_arg;
	uint32_t also_value;
};

struct seccomp_program; /* opaque */

/* Allows everything except the rules. Calls of other architectures (32 bit, x32) end the
 * process. */
int seccomp_program_new(const struct seccomp_rule *rules, size_t count,
	struct seccomp_program **ret, struct err *err);
/* The reverse: allows what the rules describe, whatever their answer, and ends the process at any
 * other call. */
int seccomp_program_new_only(const struct seccomp_rule *rules, size_t count,
	struct seccomp_program **ret, struct err *err);
void seccomp_program_free(struct seccomp_program *program); /* accepts NULL */
/* Installs the filter for the calling process and what it starts. Needs CAP_SYS_ADMIN in its user
 * namespace. */
int seccomp_program_install(const struct seccomp_program *program, struct err *err);
