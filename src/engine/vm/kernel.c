/* kernel.c - see kernel.h */
#include "engine/vm/kernel.h"
#include "base/file.h"
#include "base/sha256.h"
#include "engine/init_program.h"
#include "engine/vm/cpio.h"
#include "engine/vm/modules.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { IMAGE_MAX = 256 * 1024 * 1024, NAME_HEX = 16 };

struct vm_kernel {
	char *image, *initrd, *version, *modules;
	char key[SHA256_HEX + 1];
};

/* Modules that box-init needs before the image is mounted: disks, ports, network, file systems,
 * and those to find the owner of a connection. Everything else is loaded on demand, from the
 * image. */
static const char *const wanted[] = { "virtio_mmio", "virtio_blk", "virtio_console", "virtio_net",
	"erofs", "ext4", "overlay", "inet_diag?", "tcp_diag?", "udp_diag?", NULL };

/* ---- finding the kernel --------------------------------------------------------------------- */

static char *find_folder(const char *path)
{
	static const char *const places[] = { "%.*s/vm", "%.*s/../lib/boxyard/vm" };
	char self[4096];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	const char *slash;

	if (path && *path)
		return xstrdup(path);
	self[MAX(len, 0)] = '\0';
	slash = strrchr(self, '/');
	for (size_t i = 0; slash && i < ARRAY_LEN(places); i++) {
		_cleanup_free_ char *folder = xasprintf(places[i], (int)(slash - self), self);
		_cleanup_free_ char *image = xasprintf("%s/vmlinuz", folder);

		if (access(image, R_OK) == 0)
			return steal_ptr(&folder);
	}
	return NULL;
}

static int no_kernel(const char *what, struct err *err)
{
	err_set(err, ERR_NOT_FOUND, "%s", what);
	return err_hint(err, "'scripts/vm-kernel' gets it; or set vm_kernel in boxyard.conf");
}

/* The one folder in lib/modules. */
static int find_version(const char *folder, char **ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/lib/modules", folder), *found = NULL;
	DIR *dir = opendir(path);
	struct dirent *entry;
	bool many = false;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		many = found != NULL;
		free(found);
		found = xstrdup(entry->d_name);
	}
	if (dir)
		closedir(dir);
	if (!found)
		return no_kernel("the kernel of VMs has no modules", err);
	if (many)
		return err_set(err, ERR_INVALID, "'%s' has modules of more than one kernel", path);
	*ret = steal_ptr(&found);
	return 0;
}

static int find_modules(const char *folder, char **ret, char **ret_version, struct err *err)
{
	_cleanup_free_ char *version = NULL;

	if (find_version(folder, &version, err) < 0)
		return -1;
	*ret = xasprintf("%s/lib/modules/%s", folder, version);
	if (ret_version)
		*ret_version = steal_ptr(&version);
	return 0;
}

int vm_modules_path(const char *path, char **ret, char **ret_version, struct err *err)
{
	_cleanup_free_ char *folder = find_folder(path);

	if (!folder)
		return no_kernel("there is no kernel for boxes that have their own", err);
	return find_modules(folder, ret, ret_version, err);
}

/* ---- the initramfs -------------------------------------------------------------------------- */

static void add_text(struct buf *out, const char *path, const char *text)
{
	if (text && *text)
		cpio_add(out, path, S_IFREG | 0644, 0, text, strlen(text));
}

static int pack_initrd(const struct vm_kernel_config *config, const struct vm_modules *modules,
	struct buf *out, struct err *err)
{
	static const char *const dirs[] = { "dev", "proc", "sys", "modules", "files", "image",
		"disk", "root" };
	struct init_program init;

	if (init_program_find(&init, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		cpio_add(out, dirs[i], S_IFDIR | 0755, 0, NULL, 0);
	cpio_add(out, "dev/console", S_IFCHR | 0600, makedev(5, 1), NULL, 0);
	/* Loaded in the order of their file names. */
	for (size_t i = 0; i < modules->count; i++) {
		const struct vm_module *module = &modules->list[i];
		_cleanup_free_ char *path = xasprintf("modules/%02zu-%s.ko", i, module->name);

		cpio_add(out, path, S_IFREG | 0644, 0, buf_head(&module->bytes), module->bytes.len);
	}
	add_text(out, "files/resolv.conf", config->resolv_conf);
	add_text(out, "files/certificates", config->certificates);
	cpio_add(out, "init", S_IFREG | 0755, 0, init.data, init.len);
	cpio_end(out);
	free(init.owned);
	return 0;
}

/* Named by its content, so that daemons of two versions do not remove each other's. */
static int keep_initrd(const struct vm_kernel_config *config, const struct buf *cpio,
	struct vm_kernel *kernel, struct err *err)
{
	char hex[SHA256_HEX + 1];
	struct stat st;

	sha256_hex(buf_head(cpio), cpio->len, hex);
	if (dir_make_all(config->dir, 0700, err) < 0)
		return -1;
	kernel->initrd = xasprintf("%s/initrd-%.*s", config->dir, NAME_HEX, hex);
	if (stat(kernel->initrd, &st) == 0 && (size_t)st.st_size == cpio->len)
		return 0;
	return file_write_atomic(AT_FDCWD, kernel->initrd, buf_head(cpio), cpio->len, 0644, err);
}

static int make_key(const struct buf *cpio, struct vm_kernel *kernel, struct err *err)
{
	_cleanup_free_ char *image = NULL;
	char digest[DIGEST_SIZE];
	struct sha256 *sha;
	size_t len;

	if (file_read(AT_FDCWD, kernel->image, IMAGE_MAX, &image, &len, err) < 0)
		return -1;
	sha = sha256_new();
	sha256_add(sha, image, len);
	sha256_add(sha, buf_head(cpio), cpio->len);
	sha256_end(sha, digest);
	strcpy(kernel->key, digest_hex(digest));
	return 0;
}

static int make_initrd(
	const struct vm_kernel_config *config, struct vm_kernel *kernel, struct err *err)
{
	struct vm_modules modules;
	struct buf cpio = BUF_INIT;
	int status;

	if (vm_modules_resolve(kernel->modules, wanted, &modules, err) < 0)
		return -1;
	status = pack_initrd(config, &modules, &cpio, err);
	if (status == 0)
		status = keep_initrd(config, &cpio, kernel, err);
	if (status == 0)
		status = make_key(&cpio, kernel, err);
	vm_modules_done(&modules);
	buf_done(&cpio);
	return status;
}

/* ---- the public side ------------------------------------------------------------------------ */

DEFINE_CLEANUP(vm_kernel_free, struct vm_kernel)

int vm_kernel_open(const struct vm_kernel_config *config, struct vm_kernel **ret, struct err *err)
{
	_cleanup_free_ char *folder = find_folder(config->path);
	_cleanup_(vm_kernel_freep) struct vm_kernel *kernel = xnew(struct vm_kernel);

	if (!folder)
		return no_kernel("there is no kernel for boxes that have their own", err);
	kernel->image = xasprintf("%s/vmlinuz", folder);
	if (access(kernel->image, R_OK) < 0)
		return no_kernel("the folder of the kernel of VMs has no vmlinuz", err);
	if (find_modules(folder, &kernel->modules, &kernel->version, err) < 0)
		return -1;
	if (make_initrd(config, kernel, err) < 0)
		return err_wrap(err, "make the initramfs of VMs");
	*ret = steal_ptr(&kernel);
	return 0;
}

void vm_kernel_free(struct vm_kernel *kernel)
{
	if (!kernel)
		return;
	free(kernel->image);
	free(kernel->initrd);
	free(kernel->version);
	free(kernel->modules);
	free(kernel);
}

const char *vm_kernel_get_image(const struct vm_kernel *kernel)
{
	return kernel->image;
}

const char *vm_kernel_get_initrd(const struct vm_kernel *kernel)
{
	return kernel->initrd;
}

const char *vm_kernel_get_version(const struct vm_kernel *kernel)
{
	return kernel->version;
}

const char *vm_kernel_get_key(const struct vm_kernel *kernel)
{
	return kernel->key;
}

const char *vm_kernel_get_modules(const struct vm_kernel *kernel)
{
	return kernel->modules;
}

/* panic and reboot: when the kernel ends, QEMU ends. The watchdog is off so that the kernel has
 * no timers of its own. TCG emulates a processor without the flaws that mitigations work around,
 * and cannot calibrate the TSC on a busy machine: without a given frequency the kernel would
 * hang. */
char *vm_kernel_cmdline(const struct vm_kernel *kernel, bool kvm, uint64_t tsc_khz)
{
	static const char common[] =
		"console=ttyS0 quiet panic=-1 reboot=t no_timer_check rcupdate.rcu_expedited=1 "
		"cryptomgr.notests 8250.nr_uarts=1 pci=off nowatchdog random.trust_cpu=on";
	/* Whatever the kernel does beside its work is translated in each box again. */
	static const char emulated[] =
		" tsc=reliable mitigations=off hardened_usercopy=off init_on_alloc=0 psi=0 "
		"audit=0 lsm=landlock,yama norandmaps";
	_cleanup_free_ char *tsc =
		tsc_khz ? xasprintf(" tsc_early_khz=%llu", (unsigned long long)tsc_khz)
			: xstrdup("");

	(void)kernel;
	return xasprintf("%s%s%s", common, kvm ? "" : emulated, tsc);
}
