/* modules.h - which kernel modules a VM needs, in the order to load them */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct vm_module {
	char *name;	  /* the kernel's spelling: '_' for '-' */
	struct buf bytes; /* unpacked */
};

struct vm_modules {
	struct vm_module *list; /* dependencies come first */
	size_t count;
};

/* wanted: names, NULL at the end. folder is lib/modules/VERSION. Modules are resolved by their
 * own `depends=`. Left out are modules built into the kernel (modules.builtin), and missing ones
 * whose name ends with '?'. .ko and .ko.xz are read. */
int vm_modules_resolve(
	const char *folder, const char *const *wanted, struct vm_modules *ret, struct err *err);
void vm_modules_done(struct vm_modules *modules);

/* `depends=` of a module's bytes, yours; "" when it has no dependencies. */
int vm_module_depends(const void *data, size_t len, char **ret, struct err *err);
