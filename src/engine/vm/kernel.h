/* kernel.h - the kernel of VMs: where it is, and the initramfs made for it
 *
 * scripts/vm-kernel gets Debian's cloud kernel as a package and installs it in a folder:
 *
 *     vmlinuz
 *     lib/modules/VERSION/...     the package's whole tree, with depmod's lists
 *
 * It is searched at the configured path (conf vm_kernel), in vm/ beside the program (as built),
 * and in ../lib/boxyard/vm beside the program (as installed). The initramfs contains box-init as
 * /init, the modules a VM needs to find its disks, in the order of their `depends=`, and the
 * small files every box gets. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct vm_kernel;

struct vm_kernel_config {
	const char *path;	  /* of the folder above; NULL or "": the built or installed one */
	const char *dir;	  /* folder for the initramfs (BOX_HOME/vm); made if missing */
	const char *resolv_conf;  /* text of /etc/resolv.conf in every box */
	const char *certificates; /* PEM, trusted in every box beside its image's; NULL or "" */
};

/* Finds the kernel and makes the initramfs, unless one with the same content exists.
 * ERR_NOT_FOUND, with a hint, when there is no kernel. Reads and writes a few MB: about 20 ms. */
int vm_kernel_open(const struct vm_kernel_config *config, struct vm_kernel **ret, struct err *err);
void vm_kernel_free(struct vm_kernel *kernel); /* accepts NULL */

const char *vm_kernel_get_image(const struct vm_kernel *kernel);   /* path of vmlinuz */
const char *vm_kernel_get_initrd(const struct vm_kernel *kernel);  /* path */
const char *vm_kernel_get_version(const struct vm_kernel *kernel); /* "6.1.0-40-cloud-amd64" */
/* A key of kernel and initramfs together, hexadecimal; for engine keys. */
const char *vm_kernel_get_key(const struct vm_kernel *kernel);
/* The folder lib/modules/VERSION: images of VMs contain a copy of it at the same path. */
const char *vm_kernel_get_modules(const struct vm_kernel *kernel);
/* Yours. tsc_khz 0: not given (KVM). */
char *vm_kernel_cmdline(const struct vm_kernel *kernel, bool kvm, uint64_t tsc_khz);

/* Finds the folder of modules without making anything: *ret is the path of lib/modules/VERSION,
 * *ret_version its last component; both yours, ret_version may be NULL. */
int vm_modules_path(const char *path, char **ret, char **ret_version, struct err *err);
