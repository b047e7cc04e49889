/* file_make.c - writes an image into one file; in the helper
 *
 * mkfs.erofs needs a path, so the merged tree of the layers is mounted on a temporary folder.
 * Two small layers are added: `bottom`, below all of the image, holds folders that the image
 * lacks; `top`, above it, holds folders where the image has something else at their path.
 * Modules of a kernel are mounted over a folder made in this way.
 *
 * The same tree gives the same bytes: the file's UUID is derived from its name, and
 * SOURCE_DATE_EPOCH replaces the time of the build. mkfs.erofs would cut file times later than
 * that, so it lies far in the future. A captured machine can therefore continue with a rebuilt
 * file. */
#include "image/image_internal.h"
#include "image/oci_internal.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "sys/mountfd.h"
#include "view/view.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define BUILD_TIME "4102444800" /* 2100-01-01 */
enum { TICK_MS = 50, SAID_MAX = 64 * 1024 };

/* ---- the file ------------------------------------------------------------------------------- */

enum {
	EROFS_OFFSET = 1024, /* of the superblock */
	EROFS_MAGIC = 0xE0F5E1E2,
	EROFS_CHECKSUM = 1, /* feature_compat: the checksum is there */
	BLOCK = 4096,
};

/* The beginning of a superblock; the checksum covers it and the rest of its block. */
struct superblock {
	uint32_t magic, checksum, feature_compat;
	uint8_t block_bits, extension_slots;
	uint16_t root;
	uint64_t inodes, build_time;
	uint32_t build_time_ns, blocks;
};
static_assert(offsetof(struct superblock, blocks) == 36, "as it lies on disk");

static uint32_t crc32c(uint32_t crc, const uint8_t *data, size_t len)
{
	for (; len; len--) {
		crc ^= *data++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
	}
	return crc;
}

int file_verify(const char *path, uint64_t *ret_bytes, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	uint8_t block[BLOCK];
	struct superblock sb;
	struct stat st;
	uint32_t told;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (!S_ISREG(st.st_mode) || pread(fd, block, sizeof block, 0) != sizeof block)
		return err_set(err, ERR_PROTOCOL, "'%s' is truncated", path);
	memcpy(&sb, block + EROFS_OFFSET, sizeof sb);
	told = le32toh(sb.checksum);
	memset(block + EROFS_OFFSET + offsetof(struct superblock, checksum), 0, sizeof told);
	if (le32toh(sb.magic) != EROFS_MAGIC || sb.block_bits != 12 ||
		!(le32toh(sb.feature_compat) & EROFS_CHECKSUM) ||
		crc32c(~UINT32_C(0), block + EROFS_OFFSET, BLOCK - EROFS_OFFSET) != told)
		return err_set(err, ERR_PROTOCOL, "'%s' is damaged", path);
	if ((uint64_t)st.st_size != (uint64_t)le32toh(sb.blocks) * BLOCK)
		return err_set(err, ERR_PROTOCOL, "'%s' has the wrong size", path);
	*ret_bytes = (uint64_t)st.st_blocks * 512;
	return 0;
}

/* ---- the tree ------------------------------------------------------------------------------- */

struct making {
	const struct file_work *work;
	struct scratch scratch;
	char *top, *bottom, *empty, *apart, *root; /* folders in scratch */
	bool has_top;
	char *modules_at; /* in the tree */
};

static void making_done(struct making *making)
{
	free(making->top);
	free(making->bottom);
	free(making->empty);
	free(making->apart);
	free(making->root);
	free(making->modules_at);
	scratch_discard(&making->scratch);
}

static char *make_folder(const struct making *making, const char *name)
{
	char *path = xasprintf("%s/%s", making->scratch.path, name);

	mkdir(path, 0755); /* an error shows when it is used */
	return path;
}

/* mkdir -p of path in layer. Folders that the image also has get their mode and owner from
 * there. */
static int add_folder(int view, const char *layer, const char *path, struct err *err)
{
	_cleanup_free_ char *part = xstrdup(path);

	for (char *end = part; end;) {
		_cleanup_free_ char *full = NULL;
		struct stat st;

		if ((end = strchr(end, '/')))
			*end = '\0';
		full = xasprintf("%s/%s", layer, part);
		if (mkdir(full, 0755) < 0 && errno != EEXIST)
			return err_sys(err, errno, "make '%s'", full);
		if (view_stat(view, part, &st) && S_ISDIR(st.st_mode)) {
			const struct timespec times[] = { st.st_atim, st.st_mtim };

			if (chown(full, st.st_uid, st.st_gid) < 0 ||
				chmod(full, st.st_mode & 07777) < 0 ||
				utimensat(AT_FDCWD, full, times, 0) < 0)
				return err_sys(err, errno, "set up '%s'", full);
		}
		if (end)
			*end++ = '/';
	}
	return 0;
}

/* True if nothing in the image is in the way of a folder of that path. */
static bool way_is_free(int view, const char *path, bool *ret_there)
{
	_cleanup_free_ char *part = xstrdup(path);
	struct stat st;

	*ret_there = false;
	for (char *end = part; end;) {
		if ((end = strchr(end, '/')))
			*end = '\0';
		if (!view_stat(view, part, &st))
			return true;
		if (!S_ISDIR(st.st_mode))
			return false;
		if (end)
			*end++ = '/';
	}
	*ret_there = true;
	return true;
}

static int want_folder(struct making *making, int view, const char *path, struct err *err)
{
	bool there, below = way_is_free(view, path, &there);

	if (there)
		return 0;
	if (!below)
		making->has_top = true;
	return add_folder(view, below ? making->bottom : making->top, path, err);
}

/* The root folder of a merged tree is that of its topmost layer, so `top` gets the attributes of
 * the image's root. */
static int copy_root_attributes(const struct making *making, int view, struct err *err)
{
	struct timespec times[2];
	struct stat st;

	if (fstat(view, &st) < 0)
		return err_sys(err, errno, "stat the image");
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	if (chown(making->top, st.st_uid, st.st_gid) < 0 ||
		chmod(making->top, st.st_mode & 07777) < 0 ||
		utimensat(AT_FDCWD, making->top, times, 0) < 0)
		return err_sys(err, errno, "set up '%s'", making->top);
	return 0;
}

static int add_folders(struct making *making, const char *const *layers, struct err *err)
{
	const struct file_work *work = making->work;
	_cleanup_close_ int view = -1;
	struct stat st;

	if (view_open(layers, &view, err) < 0)
		return -1;
	for (size_t i = 0; work->folders && work->folders[i]; i++)
		if (want_folder(making, view, work->folders[i], err) < 0)
			return -1;
	if (work->modules) {
		bool merged = view_stat(view, "lib", &st) && S_ISLNK(st.st_mode);

		making->modules_at =
			xasprintf("%slib/modules/%s", merged ? "usr/" : "", work->release);
		if (want_folder(making, view, making->modules_at, err) < 0)
			return -1;
	}
	return making->has_top ? copy_root_attributes(making, view, err) : 0;
}

static int attach(int mount, const char *path, struct err *err)
{
	_cleanup_close_ int target = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return target < 0 ? err_sys(err, errno, "open '%s'", path)
			  : mount_attach(mount, target, err);
}

static int attach_view(const char *const *layers, const char *path, struct err *err)
{
	_cleanup_close_ int view = -1;

	return view_open(layers, &view, err) < 0 ? -1 : attach(view, path, err);
}

/* Merges the layers whose files may have the inode numbers of other files into a tree of their
 * own first: two files must not look like two links to one. *ret: the layers of the image with
 * that tree in their place. */
static int set_apart(const struct making *making, char ***ret, struct err *err)
{
	const struct file_work *work = making->work;
	size_t count = strv_len((const char *const *)work->layers);
	_cleanup_strv_ char **apart = NULL;

	for (size_t i = 0; i < count; i++)
		strv_add(i < count - work->apart ? ret : &apart, work->layers[i]);
	if (!apart)
		return 0;
	strv_add(&apart, making->empty); /* an overlay needs two folders */
	if (attach_view((const char *const *)apart, making->apart, err) < 0)
		return -1;
	strv_add(ret, making->apart);
	return 0;
}

static int attach_modules(const struct making *making, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", making->root, making->modules_at);
	_cleanup_close_ int modules = -1;

	if (mount_clone(AT_FDCWD, making->work->modules, &modules, err) < 0)
		return err_wrap(err, "modules '%s'", making->work->modules);
	return attach(modules, path, err);
}

static int make_tree(struct making *making, struct err *err)
{
	_cleanup_strv_ char **layers = NULL, **all = NULL;

	if (set_apart(making, &layers, err) < 0 ||
		add_folders(making, (const char *const *)layers, err) < 0)
		return -1;
	if (making->has_top)
		strv_add(&all, making->top);
	for (size_t i = 0; layers[i]; i++)
		strv_add(&all, layers[i]);
	strv_add(&all, making->bottom);
	if (attach_view((const char *const *)all, making->root, err) < 0)
		return -1;
	return making->modules_at ? attach_modules(making, err) : 0;
}

/* ---- mkfs.erofs ----------------------------------------------------------------------------- */

/* A UUID out of the file's name. */
static void name_to_uuid(const struct file_work *work, char ret[37])
{
	_cleanup_free_ char *name = xasprintf("%s %s", work->id, work->key);
	char hex[SHA256_HEX + 1];

	sha256_hex(name, strlen(name), hex);
	snprintf(
		ret, 37, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hex, hex + 8, hex + 13, hex + 17, hex + 20);
}

static _Noreturn void exec_mkfs(
	const struct making *making, const char *uuid, const char *out, int said)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_DFL);
	dup2(said, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	setenv("SOURCE_DATE_EPOCH", BUILD_TIME, 1);
	execl(making->work->program, "mkfs.erofs", "--quiet", "-zlz4", "-U", uuid, out,
		making->root, (char *)NULL);
	dprintf(STDERR_FILENO, "cannot run %s: %s\n", making->work->program, strerror(errno));
	_exit(127);
}

static int explain(int said, int status, struct err *err)
{
	char text[SAID_MAX + 1], *line;
	ssize_t len = pread(said, text, SAID_MAX, 0);

	text[MAX(len, 0)] = '\0';
	if (strstr(text, strerror(ENOSPC)) || strstr(text, strerror(EDQUOT))) {
		err_set(err, ERR_LIMIT, "no space left on the disk of BOX_HOME");
		return room_explain(err);
	}
	for (len = MAX(len, 0); len && text[len - 1] == '\n';)
		text[--len] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	if (WIFSIGNALED(status))
		return err_set(
			err, ERR_SYSTEM, "mkfs.erofs was ended by signal %d", WTERMSIG(status));
	return err_set(
		err, ERR_SYSTEM, "mkfs.erofs: %.300s", *line ? line : "failed without a message");
}

static int run_mkfs(const struct making *making, const char *out,
	int (*tick)(uint64_t bytes, void *arg, struct err *err), void *arg, struct err *err)
{
	/* In memory: the disk may be full, and that may be the error to report. */
	_cleanup_close_ int said = memfd_create("mkfs.erofs", MFD_CLOEXEC);
	int status = 0;
	char uuid[37];
	pid_t pid, got;

	if (said < 0)
		return err_sys(err, errno, "make a file in memory");
	name_to_uuid(making->work, uuid);
	pid = fork();
	if (pid == 0)
		exec_mkfs(making, uuid, out, said);
	if (pid < 0)
		return err_sys(err, errno, "fork");
	while ((got = waitpid(pid, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
		struct stat st = { 0 };

		stat(out, &st);
		if (tick((uint64_t)st.st_blocks * 512, arg, err) < 0) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return -1;
		}
		poll(NULL, 0, TICK_MS);
	}
	if (got < 0)
		return err_sys(err, errno, "wait for mkfs.erofs");
	return status ? explain(said, status, err) : 0;
}

/* ---- all together --------------------------------------------------------------------------- */

static int sync_path(const char *path, int flags, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | flags);

	return fd < 0 || fsync(fd) < 0 ? err_sys(err, errno, "write '%s' to disk", path) : 0;
}

/* Readable for everybody: the machines that use it as a disk run under uids of their own. */
static int publish(
	const struct images *images, const char *out, const struct file_work *work, struct err *err)
{
	uint64_t bytes;

	if (file_verify(out, &bytes, err) < 0)
		return err_wrap(err, "mkfs.erofs made an incomplete file");
	if (chmod(out, 0444) < 0)
		return err_sys(err, errno, "chmod '%s'", out);
	if (sync_path(out, 0, err) < 0)
		return room_explain(err);
	if (rename(out, work->path) < 0)
		return err_sys(err, errno, "rename '%s' to '%s'", out, work->path);
	return sync_path(images->disks_path, O_DIRECTORY, err);
}

int file_make(const struct images *images, const struct file_work *work,
	int (*tick)(uint64_t bytes, void *arg, struct err *err), void *arg, struct err *err)
{
	_cleanup_(making_done) struct making making = { .work = work, .scratch = SCRATCH_INIT };
	_cleanup_free_ char *out = NULL;
	int status;

	if (scratch_make(images, "file", &making.scratch, err) < 0)
		return -1;
	making.top = make_folder(&making, "top");
	making.bottom = make_folder(&making, "bottom");
	making.empty = make_folder(&making, "empty");
	making.apart = make_folder(&making, "apart");
	making.root = make_folder(&making, "root");
	out = xasprintf("%s/image.erofs", making.scratch.path);
	status = make_tree(&making, err);
	if (status == 0)
		status = run_mkfs(&making, out, tick, arg, err);
	/* with the modules mounted in it, so that nothing there is deleted */
	umount2(making.root, MNT_DETACH);
	umount2(making.apart, MNT_DETACH);
	return status == 0 ? publish(images, out, work, err) : -1;
}
