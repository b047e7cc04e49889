/* kvm.h - whether hardware virtualisation really works here
 *
 * /dev/kvm may be there and open and yet be useless: where the machine is itself a guest whose host
 * emulates ring 0, code of a guest's kernel runs a thousand times slower than a processor does. So
 * it is measured. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct kvm_verdict {
	bool usable;
	char reason[200]; /* a sentence for people, whichever it is */
};

/* Runs a small guest in ring 0 in a child, for 100 ms of the processor's time and a second at most;
 * blocks that long. */
void kvm_probe(struct kvm_verdict *ret);
/* The verdict of this boot of the machine: from the file `kvm` in the folder run, or probed and
 * written there. */
void kvm_verdict_get(const char *run, struct kvm_verdict *ret);

/* Frequency of the TSC in kHz, measured over 10 ms; 0 where there is none that is constant. Guests
 * under emulation cannot find it out themselves on a busy machine (kernel parameter
 * tsc_early_khz). */
uint64_t kvm_tsc_khz(void);
