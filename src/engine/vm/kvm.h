/* kvm.h - whether hardware virtualisation really works here
 *
 * /dev/kvm may exist and open and still be useless: on a machine that is itself a guest whose
 * host emulates ring 0, kernel code of our guests runs a thousand times slower than normal. So
 * the speed is measured. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct kvm_verdict {
	bool usable;
	bool proven;	  /* a guest's kernel was booted by it */
	char reason[200]; /* a sentence for people, whichever it is */
};

/* Runs a small guest in ring 0 in a child, for 100 ms of CPU time and a second at most; blocks
 * that long. */
void kvm_probe(struct kvm_verdict *ret);
/* The verdict for this boot of the machine: read from the file `kvm` in the folder run, or
 * probed and written there. */
void kvm_verdict_get(const char *run, struct kvm_verdict *ret);
/* What was learnt since holds until the machine is restarted. */
void kvm_verdict_put(const char *run, const struct kvm_verdict *verdict);

/* Frequency of the TSC in kHz, measured over 10 ms; 0 if it is not constant. Emulated guests
 * cannot measure it themselves on a busy machine (kernel parameter tsc_early_khz). */
uint64_t kvm_tsc_khz(void);
