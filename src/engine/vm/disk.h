/* disk.h - the disk of a VM box: a sparse file with an ext4 in it, in its folder of the pool */
#pragma once
#include "base/err.h"
#include "engine/engine.h"

#define VM_DISK_FILE	"disk"
#define VM_DISK_DEFAULT ENGINE_DISK_DEFAULT /* for a box without a disk limit */

/* The size of its disk. */
uint64_t vm_disk_bytes(const struct limits *limits);
bool vm_disk_exists(const char *folder);
/* Opens it O_RDWR, and O_DIRECT where the file system supports that. */
int vm_disk_open(const char *folder, int *ret, struct err *err);
int vm_image_open(const char *path, int *ret, struct err *err);
/* Makes a new file with an empty file system. Runs mke2fs: for a helper. */
int vm_disk_format(const char *path, uint64_t bytes, struct err *err);
/* Copies the file of a template for a box: without copying data where the pool can. */
int vm_disk_clone(const char *path, const char *folder, struct err *err);
/* Grows only the file; a disk is never made smaller. */
int vm_disk_grow(int fd, uint64_t bytes, struct err *err);
