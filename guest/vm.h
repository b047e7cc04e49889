/* vm.h - box-init as the first process of a VM
 *
 * The kernel starts it as /init of the initramfs that engine/vm/kernel.c made:
 *
 *     /modules/NN-NAME.ko   loaded in the order of their names
 *     /files/               small files every box gets: resolv.conf, certificates
 *     /image, /disk, /root  mount points: the image, the box's disk, the root made of both
 *
 * vda is the image, an erofs; vdb the box's own disk, an ext4. A template may be captured with
 * or without a disk. With one, the root is made at once; without, when box-init is told who it
 * is: by then a disk with a file system has replaced an empty one. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

bool vm_is_here(int argc, char **argv); /* whether this process is that one */
/* Sets up modules, devices, network and the image; and the root, if there is a disk for it. */
int vm_boot(struct err *err);
bool vm_has_root(void);
/* Makes the root if there is none yet. */
int vm_make_root(struct err *err);
/* Folder of the disk's file system: upper, and outside/ for folders that must not be on an
 * overlay. -1: no root yet. Borrowed; no path leads to it. */
int vm_get_disk(void);
/* Grows the file system to bytes, the size of the disk. */
int vm_grow(uint64_t bytes, struct err *err);
/* Opens a port as soon as it appears; it stays open. */
int vm_open_port(unsigned number, struct err *err);
/* Ends the machine. err, if any, is printed on the console. */
_Noreturn void vm_end(const struct err *err);

/* vm_net.c */
int vm_net_open(struct err *err); /* lo and eth0; no eth0 is no error */

/* vm_root.c */
int vm_root_enter(struct err *err); /* /image and /disk are mounted */
