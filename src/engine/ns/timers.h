/* timers.h - when will a sleeping process tree run by itself? */
#pragma once
#include "engine/engine.h"
#include <stdint.h>

enum { TIMERS_REMEMBERED = 64 };

/* What a look found of calls whose end is not where it was once they were interrupted, as by a
 * freezer. Some go on under another name (restart_syscall), and cannot be read any more. Others
 * begin again with what was left of their time-out, which the kernel wrote into their memory: for
 * them the time they were frozen does not pass, unless timers_mend tells them. Zeroed at first,
 * kept from look to look. */
struct timers_memory {
	struct timers_call {
		pid_t tid;
		int64_t at_us;
		long call;
		uint64_t address; /* of what is left; 0: the kernel remembers it itself */
		bool timeval;
	} list[TIMERS_REMEMBERED];
	unsigned count;
	int64_t looked_us;
	int64_t frozen_us; /* the caller's to set: they have all stopped */
};

/* Looks at root and all processes below it. quiet_since_us (CLOCK_MONOTONIC): none has run after
 * that, for all that is known; used where the kernel does not tell when a thread fell asleep.
 * Everything read is the box's to forge: it can be wrong about itself, never about others. */
void timers_look(pid_t root, int64_t quiet_since_us, struct timers_memory *memory,
	struct instance_timer *ret);

/* For calls that begin again, right before their threads go on: what the kernel left them is made
 * less by the time since frozen_us. None ends before its time. One that sleeps in another call now
 * is left alone. */
void timers_mend(const struct timers_memory *memory);
