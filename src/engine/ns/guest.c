/* guest.c - the files every box gets from us
 *
 * BOX_HOME/guest/HASH/layer is a read-only layer above every image: device nodes (nobody in a box
 * can make them) and mount points. BOX_HOME/guest/HASH/bin holds box-init and becomes /.boxyard in
 * the box, a mount of its own that `rm -rf /` inside cannot empty; under the name `box`, to which
 * /usr/local/bin/box in the layer leads, it is the command for the inside. /etc/resolv.conf, which
 * leads to the daemon's resolver, is in the layer too, above whatever the image brings; the box may
 * change it. So are certificates of the machine's own and settings of podman. HASH covers the bytes
 * of all: a new version gets a new directory, and boxes that run keep theirs. Made under a
 * temporary name and renamed.
 *
 * Boxes see bin as a memory file system of its own, made once: a mount of the folder itself would
 * tell them, in /proc/self/mountinfo, where BOX_HOME is. What it was made from stands in it, under
 * the name NAME_FILE. Kernels that cannot copy a mount that is nowhere attached (before 6.15) show
 * the folder. */
#include "engine/ns/ns_internal.h"
#include "engine/init_program.h"
#include "base/file.h"
#include "base/text.h"
#include "sys/mountfd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* Part of the hash: raise it when the tables below change. */
#define GUEST_VERSION "5"

#define NAME_FILE     "name" /* in the memory file system */
#define WORKSPACE     "workspace"
#define RESOLV_CONF   "etc/resolv.conf"
#define GUEST_COMMAND "box" /* in GUEST_BIN, and in the PATH of every box: /usr/local/bin */

enum { INIT_MAX = 64 * 1024 * 1024 };

static const struct {
	const char *path;
	mode_t mode;
} dirs[] = {
	{ "proc", 0755 },
	{ "sys", 0755 },
	{ "dev", 0755 },
	{ "dev/pts", 0755 },
	{ "dev/shm", 01777 },
	{ "dev/mqueue", 01777 },
	{ "run", 0755 },
	{ "tmp", 01777 },
	{ "root", 0700 },
	{ "etc", 0755 },
	{ "usr", 0755 },
	{ "usr/local", 0755 },
	{ "usr/local/bin", 0755 },
	{ WORKSPACE, 0755 },
	{ GUEST_MOUNT, 0755 },
};

static const struct {
	const char *name; /* in dev/ */
	unsigned minor_number;
	unsigned major_number;
} nodes[] = {
	{ "null", 3, 1 },
	{ "zero", 5, 1 },
	{ "full", 7, 1 },
	{ "random", 8, 1 },
	{ "urandom", 9, 1 },
	{ "tty", 0, 5 },
};

static const struct {
	const char *name; /* in dev/ */
	const char *target;
} links[] = {
	{ "ptmx", "pts/ptmx" },
	{ "fd", "/proc/self/fd" },
	{ "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" },
};

struct guest_content {
	struct init_program init;
	const char *resolv_conf;
	const char *certificates; /* "": none */
};

/* FNV-1a: distinguishes versions of our own files; no attacker chooses them. */
uint64_t guest_hash_more(uint64_t hash, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static int make_dir(int parent, const char *path, mode_t mode, struct err *err)
{
	if (mkdirat(parent, path, 0700) < 0 || fchmodat(parent, path, mode, 0) < 0)
		return err_sys(err, errno, "make '%s'", path);
	return 0;
}

/* Hides the same folder of the layers below. An overlay keeps its marks to itself and shows the
 * second one (since Linux 6.7) as the first: that is for a layer seen through another overlay. */
static int hide_below(int layer, const char *path, struct err *err)
{
	_cleanup_close_ int dir = openat(layer, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || fsetxattr(dir, "trusted.overlay.opaque", "y", 1, 0) < 0 ||
		fsetxattr(dir, "trusted.overlay.overlay.opaque", "y", 1, 0) < 0)
		return err_sys(err, errno, "make '%s' opaque", path);
	return 0;
}

static int make_layer(int layer, const char *resolv_conf, struct err *err)
{
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		if (make_dir(layer, dirs[i].path, dirs[i].mode, err) < 0)
			return -1;
	/* Opaque: an image may bring its own nodes, such as /dev/console, which is the
	 * machine's. */
	if (hide_below(layer, "dev", err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
		snprintf(path, sizeof path, "dev/%s", nodes[i].name);
		if (mknodat(layer, path, S_IFCHR | 0600,
			    makedev(nodes[i].major_number, nodes[i].minor_number)) < 0 ||
			fchmodat(layer, path, 0666, 0) < 0)
			return err_sys(err, errno, "make '%s'", path);
	}
	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		snprintf(path, sizeof path, "dev/%s", links[i].name);
		if (symlinkat(links[i].target, layer, path) < 0)
			return err_sys(err, errno, "make '%s'", path);
	}
	if (symlinkat("/" GUEST_MOUNT "/" GUEST_COMMAND, layer, "usr/local/bin/" GUEST_COMMAND) < 0)
		return err_sys(err, errno, "make /usr/local/bin/" GUEST_COMMAND);
	if (file_write_atomic(layer, RESOLV_CONF, resolv_conf, strlen(resolv_conf), 0644, err) < 0)
		return -1;
	if (fchmodat(layer, RESOLV_CONF, 0644, 0) < 0)
		return err_sys(err, errno, "chmod '" RESOLV_CONF "'");
	return 0;
}

/* The machine's own authorities; box-init adds them to the list of the image (guest/trust.c). */
static int make_certificates(int layer, const char *text, struct err *err)
{
	static const char folder[] = "usr/local/share/ca-certificates",
			  file[] = "usr/local/share/ca-certificates/boxyard-machine.crt";

	if (!*text)
		return 0;
	if (make_dir(layer, "usr/local/share", 0755, err) < 0 ||
		make_dir(layer, folder, 0755, err) < 0 ||
		file_write_atomic(layer, file, text, strlen(text), 0644, err) < 0)
		return -1;
	if (fchmodat(layer, file, 0644, 0) < 0)
		return err_sys(err, errno, "chmod '%s'", file);
	return 0;
}

static int make_guest(int dir, const struct guest_content *content, struct err *err)
{
	_cleanup_close_ int layer = -1, bin = -1;

	if (make_dir(dir, GUEST_LAYER, 0755, err) < 0 || make_dir(dir, GUEST_BIN, 0755, err) < 0)
		return -1;
	layer = openat(dir, GUEST_LAYER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bin = openat(dir, GUEST_BIN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (layer < 0 || bin < 0)
		return err_sys(err, errno, "open the guest layer");
	if (make_dir(bin, "empty", 0555, err) < 0)
		return -1;
	if (file_write_atomic(bin, "box-init", content->init.data, content->init.len, 0755, err) <
		0)
		return -1;
	if (fchmodat(bin, "box-init", 0755, 0) < 0)
		return err_sys(err, errno, "chmod box-init");
	/* One program with two names. */
	if (linkat(bin, "box-init", bin, GUEST_COMMAND, 0) < 0)
		return err_sys(err, errno, "link box-init");
	if (make_layer(layer, content->resolv_conf, err) < 0 ||
		guest_make_containers(layer, err) < 0)
		return -1;
	return make_certificates(layer, content->certificates, err);
}

static int make_named(
	int parent, const char *name, const struct guest_content *content, struct err *err)
{
	char tmp[32] = ".tmp-";
	_cleanup_close_ int dir = -1;
	int status;

	random_id(tmp + 5, 12);
	if (make_dir(parent, tmp, 0755, err) < 0)
		return -1;
	dir = openat(parent, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, errno, "open '%s'", tmp);
	status = make_guest(dir, content, err);
	/* Another daemon may have been faster; its folder is the same. */
	if (status == 0 && renameat(parent, tmp, parent, name) < 0 && errno != EEXIST &&
		errno != ENOTEMPTY)
		status = err_sys(err, errno, "rename '%s' to '%s'", tmp, name);
	tree_remove(parent, tmp, NULL);
	return status;
}

/* ---- bin as boxes see it -------------------------------------------------------------------- */

static int copy_program(int from, int to, struct err *err)
{
	_cleanup_free_ char *data = NULL;
	size_t len;

	if (file_read(from, "box-init", INIT_MAX, &data, &len, err) < 0 ||
		file_write_atomic(to, "box-init", data, len, 0755, err) < 0)
		return -1;
	if (fchmodat(to, "box-init", 0755, 0) < 0 ||
		linkat(to, "box-init", to, GUEST_COMMAND, 0) < 0)
		return err_sys(err, errno, "copy box-init");
	return 0;
}

static int make_memory(int bin, const char *name, int *ret, struct err *err)
{
	static const struct mount_option options[] = { { "mode", "0755" }, { "size", "64m" },
		{ "nr_inodes", "16" }, { NULL, NULL } };
	_cleanup_close_ int from = openat(bin, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), mount = -1,
			    to = -1;

	if (from < 0)
		return err_sys(err, errno, "open the folder of box-init");
	if (mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &mount, err) < 0)
		return -1;
	to = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to < 0)
		return err_sys(err, errno, "open the folder of box-init");
	if (copy_program(from, to, err) < 0 || make_dir(to, "empty", 0555, err) < 0 ||
		file_write_atomic(to, NAME_FILE, name, strlen(name), 0444, err) < 0)
		return -1;
	*ret = steal_fd(&mount);
	return 0;
}

int guest_show_from_memory(const char *name, struct guest *guest, struct err *err)
{
	int mount = -1;

	if (make_memory(guest->bin, name, &mount, err) < 0)
		return err_wrap(err, "box-init in memory");
	close(guest->bin);
	guest->bin = mount;
	return 0;
}

/* A box may show another folder: only files of root are trusted. */
static bool read_name(int parent, int bin, char ret[GUEST_NAME_SIZE])
{
	_cleanup_close_ int fd =
		openat(bin, NAME_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t len;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != 0)
		return false;
	len = read(fd, ret, GUEST_NAME_SIZE - 1);
	if (len <= 0)
		return false;
	ret[len] = '\0';
	return strspn(ret, "0123456789abcdef") == (size_t)len &&
	       faccessat(parent, ret, F_OK, 0) == 0;
}

static int open_part(int parent, const char *name, const char *part, int *ret, struct err *err)
{
	char path[64];

	snprintf(path, sizeof path, "%s/%s", name, part);
	*ret = openat(parent, path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (*ret < 0)
		return err_sys(err, errno, "open '%s'", path);
	return 0;
}

static int open_parts(int parent, const char *name, struct guest *ret, struct err *err)
{
	if (open_part(parent, name, GUEST_LAYER, &ret->layer, err) < 0)
		return -1;
	if (open_part(parent, name, GUEST_BIN, &ret->bin, err) < 0) {
		guest_close(ret);
		return -1;
	}
	return 0;
}

static int open_or_make(
	int parent, const struct guest_content *content, struct guest *ret, struct err *err)
{
	uint64_t hash =
		guest_hash_more(UINT64_C(0xcbf29ce484222325), GUEST_VERSION, strlen(GUEST_VERSION));
	char name[GUEST_NAME_SIZE];

	hash = guest_hash_more(hash, content->init.data, content->init.len);
	hash = guest_hash_more(hash, content->resolv_conf, strlen(content->resolv_conf));
	hash = guest_hash_more(hash, content->certificates, strlen(content->certificates));
	hash = guest_hash_containers(hash);
	snprintf(name, sizeof name, "%016llx", (unsigned long long)hash);
	memcpy(ret->name, name, sizeof ret->name);
	if (faccessat(parent, name, F_OK, 0) < 0 && make_named(parent, name, content, err) < 0)
		return err_wrap(err, "make the guest layer");
	return open_parts(parent, name, ret, err);
}

static int open_folder(const char *home, int *ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/guest", home);

	*ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret < 0 ? err_sys(err, errno, "open '%s'", path) : 0;
}

int guest_open_named(const char *home, const char *name, struct guest *ret, struct err *err)
{
	_cleanup_close_ int parent = -1;

	if (open_folder(home, &parent, err) < 0)
		return -1;
	if (open_parts(parent, name, ret, err) < 0)
		return err_wrap(err, "the box-init it ran with is gone");
	return 0;
}

int guest_find_name(const char *home, int bin, char ret[GUEST_NAME_SIZE], struct err *err)
{
	int parent = -1, status = -1;
	struct stat wanted, st;
	struct dirent *entry;
	DIR *dir;

	if (fstat(bin, &wanted) < 0)
		return err_sys(err, errno, "look at box-init's folder");
	if (open_folder(home, &parent, err) < 0)
		return -1;
	if (read_name(parent, bin, ret)) {
		close(parent);
		return 0;
	}
	dir = fdopendir(parent);
	while (dir && status < 0 && (entry = readdir(dir))) {
		char path[GUEST_NAME_SIZE + 8];

		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= GUEST_NAME_SIZE)
			continue;
		snprintf(path, sizeof path, "%s/" GUEST_BIN, entry->d_name);
		if (fstatat(parent, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			st.st_ino == wanted.st_ino && st.st_dev == wanted.st_dev) {
			strcpy(ret, entry->d_name);
			status = 0;
		}
	}
	if (dir)
		closedir(dir);
	else
		close(parent);
	return status < 0 ? err_set(err, ERR_NOT_FOUND,
				    "the box-init it runs with is not among those of this home")
			  : 0;
}

int guest_open(const char *home, const char *resolv_conf, const char *certificates,
	struct guest *ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/guest", home);
	_cleanup_close_ int parent = -1;
	struct guest_content content = { .resolv_conf = resolv_conf, .certificates = certificates };
	int status;

	if (dir_make_all(path, 0700, err) < 0)
		return -1;
	parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (init_program_find(&content.init, err) < 0)
		return -1;
	status = open_or_make(parent, &content, ret, err);
	free(content.init.owned);
	return status;
}

void guest_close(struct guest *guest)
{
	if (guest->layer >= 0)
		close(guest->layer);
	if (guest->bin >= 0)
		close(guest->bin);
	guest->layer = guest->bin = -1;
}

/* In the box's layer a removed file is a device 0:0. Whatever the box put in place of its workspace
 * stays. */
static int heal_workspace(int upper, struct err *err)
{
	struct stat st;

	if (fstatat(upper, WORKSPACE, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "look at /" WORKSPACE);
	if (S_ISCHR(st.st_mode) && st.st_rdev == 0 && unlinkat(upper, WORKSPACE, 0) < 0)
		return err_sys(err, errno, "restore /" WORKSPACE " of the box");
	return 0;
}

/* A replaced directory is marked opaque. What has one of our names there is removed, so that ours
 * shows again. */
static int heal_dev(int upper, struct err *err)
{
	_cleanup_close_ int dev = -1;
	struct stat st;

	if (fstatat(upper, "dev", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(err, errno, "look at /dev of the box");
	if (!S_ISDIR(st.st_mode)) {
		if (unlinkat(upper, "dev", 0) < 0)
			return err_sys(err, errno, "restore /dev of the box");
		return 0;
	}
	dev = openat(upper, "dev", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dev < 0)
		return err_sys(err, errno, "open /dev of the box");
	if (fremovexattr(dev, "trusted.overlay.opaque") < 0 && errno != ENODATA)
		return err_sys(err, errno, "restore /dev of the box");
	for (size_t i = 0; i < ARRAY_LEN(nodes) + ARRAY_LEN(links); i++) {
		bool is_node = i < ARRAY_LEN(nodes);
		const char *name = is_node ? nodes[i].name : links[i - ARRAY_LEN(nodes)].name;

		if (unlinkat(dev, name, 0) < 0 && errno != ENOENT && errno != EISDIR)
			return err_sys(err, errno, "restore /dev/%s of the box", name);
	}
	return 0;
}

int guest_heal(int upper, struct err *err)
{
	if (heal_workspace(upper, err) < 0)
		return -1;
	return heal_dev(upper, err);
}
