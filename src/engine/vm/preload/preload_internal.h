/* preload_internal.h - shared by the files of the library */
#pragma once
#include <stdint.h>

/* Where the guest's RAM is in this process; size 0: not known yet. Set once, size last. */
extern uint64_t preload_base;
extern _Atomic uint64_t preload_size;
