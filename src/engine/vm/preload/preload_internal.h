/* preload_internal.h - what the files of the library share */
#pragma once
#include <stdint.h>

/* Where the guest's RAM is in this process; size 0: not known yet. Set once, size last. */
extern uint64_t preload_base;
extern _Atomic uint64_t preload_size;
