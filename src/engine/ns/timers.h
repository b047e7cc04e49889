/* timers.h - when will a sleeping process tree run by itself? */
#pragma once
#include "engine/engine.h"
#include <stdint.h>

enum { TIMERS_REMEMBERED = 64 };

/* What a look found about calls whose time-out cannot be read any more once they were interrupted,
 * for example by a freezer. Some continue as restart_syscall. Others begin again with the remaining
 * time, which the kernel wrote into their memory: for them the frozen time does not pass, unless
 * timers_mend corrects it. Zeroed at first, kept from look to look. */
struct timers_memory {
	struct timers_call {
		pid_t tid;
		int64_t at_us;
		long call;
		uint64_t address; /* of the remaining time; 0: the kernel keeps it */
		bool timeval;
	} list[TIMERS_REMEMBERED];
	unsigned count;
	int64_t looked_us;
	int64_t frozen_us; /* set by the caller: when all were frozen */
};

/* Examines root and all processes below it. quiet_since_us (CLOCK_MONOTONIC): none has run after
 * that, as far as is known; used where the kernel does not tell when a thread fell asleep. A box
 * can forge everything that is read: it can deceive about itself, never about others. */
void timers_look(pid_t root, int64_t quiet_since_us, struct timers_memory *memory,
	struct instance_timer *ret);

/* Call it right before the threads continue: shortens the remaining time of restarting calls by the
 * time since frozen_us. None ends too early. A thread that sleeps in another call now is left
 * alone. */
void timers_mend(const struct timers_memory *memory);
