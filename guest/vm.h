/* vm.h - box-init as the first process of a machine of its own
 *
 * The kernel starts it as /init of the initramfs that engine/vm/kernel.c made:
 *
 *     /modules/NN-NAME.ko   to be loaded in the order of their names
 *     /files/               small files every box gets: resolv.conf, certificates
 *     /image, /disk, /root  where the image, the box's disk and the root made of both are mounted
 *
 * vda is the image, an erofs; vdb the box's own disk, an ext4. A template may be frozen with or
 * without a disk. With one, the root is made at once; without, when it is told who it is: by then a
 * disk with a file system has taken the place of an empty one. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

bool vm_is_here(int argc, char **argv); /* this process is that one */
/* Modules, devices, network, the image; and the root, if there is a disk for it. */
int vm_boot(struct err *err);
bool vm_has_root(void);
/* Of one that has none. */
int vm_make_root(struct err *err);
/* Folder of the file system of its disk: upper, and outside/ for what is no overlay. -1: no root
 * yet. Borrowed; not reachable by a path. */
int vm_get_disk(void);
/* bytes of the disk: its file system is made as large. */
int vm_grow(uint64_t bytes, struct err *err);
/* Opens a port, as soon as it is there; it stays ours. */
int vm_open_port(unsigned number, struct err *err);
/* What went wrong is said on the console, if anything. The machine ends with it. */
_Noreturn void vm_end(const struct err *err);

/* vm_net.c */
int vm_net_open(struct err *err); /* lo and eth0; no eth0 is no error */

/* vm_root.c */
int vm_root_enter(struct err *err); /* /image and /disk are mounted */
