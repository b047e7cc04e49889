/* disk.h - the disk of a VM box: a sparse file with an ext4 in it, in its folder of the pool */
#pragma once
#include "base/err.h"
#include "engine/engine.h"

#define VM_DISK_FILE	"disk"
#define VM_DISK_DEFAULT ENGINE_DISK_DEFAULT /* of a box without a limit of disk */

/* How large its disk is. */
uint64_t vm_disk_bytes(const struct limits *limits);
bool vm_disk_exists(const char *folder);
/* O_RDWR | O_DIRECT where the file system has that. */
int vm_disk_open(const char *folder, int *ret, struct err *err);
int vm_image_open(const char *path, int *ret, struct err *err);
/* A new file with an empty file system. Runs mke2fs: for a helper. */
int vm_disk_format(const char *path, uint64_t bytes, struct err *err);
/* The file of a template becomes that of a box: without copying where the pool can. */
int vm_disk_clone(const char *path, const char *folder, struct err *err);
/* The file alone; a disk is never made smaller. */
int vm_disk_grow(int fd, uint64_t bytes, struct err *err);
