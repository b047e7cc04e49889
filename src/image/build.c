/* build.c - the daemon's side of making an image
 *
 * The work happens in a helper process (recipe.c) on a directory .build-ID that is locked while anybody works
 * on it. The helper reports progress and at last that it finished or why it failed; only the daemon renames
 * the directory to its id, and only after the helper and all it started are gone. So an image is either whole
 * or not there, whichever side dies when. */
#include "image/image_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* What an agent at work expects to find; then what makes these work in a box: iproute2 to see the network,
 * libnss-myhostname so that sudo and friends can resolve the box's own name, netbase for /etc/services,
 * xz-utils and unzip because archives come in those. */
static const char *const standard_packages[] = { "git", "curl", "ca-certificates", "python3",
	"nodejs", "npm", "build-essential", "sudo", "procps", "openssh-client", "tmux", "less",
	"vim-tiny", "jq", "ripgrep", "iproute2", "libnss-myhostname", "netbase", "xz-utils",
	"unzip", NULL };
static const char *const minimal_packages[] = { "procps", NULL };

enum {
	PACKAGES_MAX = 256,
	PACKAGE_NAME_MAX = 128,
	ROOM_STANDARD_MB =
		2048, /* measured: 800 MB when done, downloads and their lists meanwhile */
	ROOM_MINIMAL_MB = 512,
};

static const char *const stage_names[] = {
	[STAGE_DOWNLOAD] = "download",
	[STAGE_UNPACK] = "unpack",
	[STAGE_CONFIGURE] = "configure",
	[STAGE_CLEAN] = "clean",
	[STAGE_MEASURE] = "measure",
};
static_assert(ARRAY_LEN(stage_names) == STAGE_COUNT, "every stage has a name");

struct image_build {
	struct images *images;
	struct helper *helper;
	const struct image_build_ops *ops;
	void *arg;
	struct recipe recipe;
	char *tmp; /* .build-ID below images->dir */
	int lock;  /* its directory, flocked; the helper shares the lock */
	bool cancelled;
	bool finished;
	struct err err;
	int64_t started_us;
	struct image_build *next;
};

static void build_free(struct image_build *build)
{
	struct image_build **at = &build->images->builds;

	while (*at && *at != build)
		at = &(*at)->next;
	if (*at)
		*at = build->next;
	helper_free(build->helper);
	if (build->lock >= 0)
		close(build->lock);
	free(build->recipe.dir);
	free(build->recipe.id);
	free(build->recipe.name);
	free(build->recipe.suite);
	free(build->recipe.program);
	strv_free(build->recipe.packages);
	free(build->tmp);
	free(build);
}
DEFINE_CLEANUP(build_free, struct image_build)

/* ---- before it starts ----------------------------------------------------------------------- */

char *program_find(const char *name)
{
	const char *path = getenv("PATH");

	if (!path || !*path)
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	while (*path) {
		size_t len = strcspn(path, ":");
		_cleanup_free_ char *file = xasprintf("%.*s/%s", (int)len, path, name);

		if (len && access(file, X_OK) == 0)
			return steal_ptr(&file);
		path += len + (path[len] == ':');
	}
	return NULL;
}

/* Debian's rule for package names, with room to spare; nothing that apt or mmdebstrap would read as an
 * option, a pattern or a path. */
static int package_check(const char *name, struct err *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789+-.";
	size_t len = strnlen(name, PACKAGE_NAME_MAX + 1);

	if (len >= 2 && len <= PACKAGE_NAME_MAX && strspn(name, allowed) == len &&
		!strchr("+-.", name[0]) && name[len - 1] != '-')
		return 0;
	err_set(err, ERR_INVALID, "'%.80s' is not the name of a Debian package", name);
	return err_hint(err, "use letters a-z, digits, '+', '-' and '.'");
}

static int choose_packages(const struct image_build_spec *spec, char ***ret, struct err *err)
{
	_cleanup_strv_ char **all = strv_copy(spec->minimal ? minimal_packages : standard_packages);

	if (strv_len(spec->packages) > PACKAGES_MAX)
		return err_set(err, ERR_TOO_LARGE, "more than %d packages asked for", PACKAGES_MAX);
	for (size_t i = 0; spec->packages && spec->packages[i]; i++) {
		if (package_check(spec->packages[i], err) < 0)
			return -1;
		if (!strv_has((const char *const *)all, spec->packages[i]))
			strv_add(&all, spec->packages[i]);
	}
	*ret = steal_ptr(&all);
	return 0;
}

static int choose_suite(char **ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(AT_FDCWD, "/etc/os-release", 65536, &text, NULL, err) < 0)
		return -1;
	return suite_from_os_release(text, ret, err);
}

static int check_room(const struct images *images, bool minimal, struct err *err)
{
	uint64_t want = (uint64_t)(minimal ? ROOM_MINIMAL_MB : ROOM_STANDARD_MB) << 20, have;
	struct statvfs fs;
	char a[16], b[16];

	if (fstatvfs(images->dir, &fs) < 0)
		return err_sys(err, errno, "statvfs '%s'", images->path);
	have = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (have >= want)
		return 0;
	err_set(err, ERR_LIMIT, "building an image needs %s, '%s' has %s left",
		format_size(want, a), images->path, format_size(have, b));
	return err_hint(err, "free some space, or move BOX_HOME");
}

/* The directory is ours once we hold its lock and it is still there: between mkdir and flock another daemon
 * may have taken it for a dead build. */
static int make_directory(struct image_build *build, struct err *err)
{
	struct stat st;
	char id[11];

	for (int i = 0; i < 3; i++) {
		random_id(id, 10);
		free(build->tmp);
		build->tmp = xasprintf(IMAGE_BUILD_PREFIX "%s", id);
		if (mkdirat(build->images->dir, build->tmp, 0700) < 0)
			return err_sys(
				err, errno, "mkdir '%s/%s'", build->images->path, build->tmp);
		build->lock =
			openat(build->images->dir, build->tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (build->lock >= 0 && flock(build->lock, LOCK_EX | LOCK_NB) == 0 &&
			fstatat(build->images->dir, build->tmp, &st, 0) == 0) {
			build->recipe.id = xstrdup(id);
			build->recipe.dir = xasprintf("%s/%s", build->images->path, build->tmp);
			return 0;
		}
		if (build->lock >= 0)
			close(steal_fd(&build->lock));
	}
	return err_set(err, ERR_SYSTEM, "cannot lock a directory in '%s'", build->images->path);
}

/* ---- while it runs -------------------------------------------------------------------------- */

static int run_in_helper(int sock, void *arg)
{
	struct image_build *build = arg;

	return recipe_run(sock, &build->recipe);
}

static void on_message(const void *data, size_t len, void *arg)
{
	struct image_build *build = arg;
	struct build_message message;

	if (len != sizeof message || build->cancelled)
		return;
	memcpy(&message, data, sizeof message);
	switch (message.type) {
	case BUILD_PROGRESS:
		if (build->ops->on_progress)
			build->ops->on_progress(stage_names[message.stage], message.done,
				message.total, message.detail, build->arg);
		break;
	case BUILD_FINISHED:
		build->finished = true;
		break;
	case BUILD_FAILED:
		build->err = message.err;
		break;
	}
}

static const struct image *publish(struct image_build *build, struct err *err)
{
	struct images *images = build->images;

	if (renameat(images->dir, build->tmp, images->dir, build->recipe.id) < 0) {
		err_sys(err, errno, "rename '%s' to '%s'", build->tmp, build->recipe.id);
		return NULL;
	}
	fsync(images->dir);
	images_forget_scan(images);
	return images_find(images, build->recipe.id, err);
}

static void on_exit_of_helper(int code, void *arg)
{
	struct image_build *build = arg;
	const struct image_build_ops *ops = build->ops;
	struct err err = build->err;
	void *user = build->arg;
	bool cancelled = build->cancelled;
	const struct image *image = NULL;

	build->helper = NULL;
	if (build->finished && !cancelled)
		image = publish(build, &err);
	else if (err.kind == ERR_NONE)
		err_set(&err, ERR_SYSTEM, "the helper process ended without a word (exit code %d)",
			code);
	if (image)
		log_info("image built", kv_str("image", image->id), kv_str("name", image->name),
			kv_int("bytes", image->size_bytes), kv_int("files", image->files),
			kv_ms("took", clock_mono_us() - build->started_us));
	else
		images_discard(build->images, build->tmp);
	if (!image && !cancelled) {
		err_wrap(&err, "build image '%s'", build->recipe.name);
		log_warn("image build failed", kv_str("name", build->recipe.name), kv_err(&err));
	}
	build_free(build);
	if (!cancelled)
		ops->on_done(image, image ? NULL : &err, user);
}

int image_build_start(struct images *images, const struct image_build_spec *spec,
	const struct image_build_ops *ops, void *arg, struct image_build **ret, struct err *err)
{
	static const struct helper_ops helper_ops = {
		.run = run_in_helper, .on_message = on_message, .on_exit = on_exit_of_helper
	};
	_cleanup_(build_freep) struct image_build *build = xnew(struct image_build);
	const char *name = spec->name ? spec->name : "debian";

	build->images = images;
	build->lock = -1;
	build->ops = ops;
	build->arg = arg;
	build->started_us = clock_mono_us();
	if (name_check("image name", name, err) < 0)
		return -1;
	for (struct image_build *other = images->builds; other; other = other->next)
		if (!other->cancelled && !strcmp(other->recipe.name, name))
			return err_set(err, ERR_STATE, "image '%s' is being built already", name);
	build->recipe.name = xstrdup(name);
	build->recipe.minimal = spec->minimal;
	if (choose_packages(spec, &build->recipe.packages, err) < 0)
		return -1;
	build->recipe.program = program_find("mmdebstrap");
	if (!build->recipe.program) {
		err_set(err, ERR_UNSUPPORTED, "mmdebstrap is not installed");
		return err_hint(err, "apt-get install mmdebstrap");
	}
	if (choose_suite(&build->recipe.suite, err) < 0 ||
		check_room(images, spec->minimal, err) < 0 || make_directory(build, err) < 0)
		return -1;
	if (helper_start(images->loop, &helper_ops, build, build->lock, &build->helper, err) < 0) {
		unlinkat(images->dir, build->tmp, AT_REMOVEDIR);
		return -1;
	}
	build->next = images->builds;
	images->builds = build;
	log_info("image build started", kv_str("name", name), kv_str("suite", build->recipe.suite));
	*ret = steal_ptr(&build);
	return 0;
}

void image_build_cancel(struct image_build *build)
{
	build->cancelled = true;
	helper_kill(build->helper);
	log_info("image build cancelled", kv_str("name", build->recipe.name));
}

void image_builds_end(struct images *images)
{
	for (struct image_build *build = images->builds, *next; build; build = next) {
		next = build->next;
		build_free(build);
	}
}
