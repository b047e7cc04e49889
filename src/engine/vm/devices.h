/* devices.h - the state of a VM's devices, as QEMU wrote it */
#pragma once
#include "base/err.h"
#include <stdint.h>

/* Makes a copy of the state in fd with its clocks advanced by passed_us: a time-out inside ends
 * when it would have ended. tsc_khz: of the guest's processor; 0: it has a clock of its own
 * (KVM), which stands still. *ret is yours. ERR_PROTOCOL when the state has no QEMU header. */
int vm_devices_let_time_pass(
	int fd, uint64_t passed_us, uint64_t tsc_khz, int *ret, struct err *err);
