/* recipe.c - builds a base image, inside the helper process
 *
 *   download, unpack, configure   mmdebstrap, its output read line by line
 *   clean                         removes what came from the build machine
 *   measure                       size and number of files, then a sync
 *
 * An installation runs programs of the tree and makes device nodes in it, but the disk of
 * BOX_HOME may be mounted noexec or nodev: so the layer gets a mount of its own that allows
 * both, in the helper's own mount namespace.
 *
 * Settings of the machine that are only needed for downloading (proxies, credentials,
 * certificates) are given to apt by a file that the setup hook adds and the customize hook
 * removes: none of it stays in the image. */
#include "image/image_internal.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/text.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *const stage_names[] = {
	[STAGE_DOWNLOAD] = "download",
	[STAGE_UNPACK] = "unpack",
	[STAGE_CONFIGURE] = "configure",
	[STAGE_CLEAN] = "clean",
	[STAGE_MEASURE] = "measure",
};
static_assert(ARRAY_LEN(stage_names) == STAGE_COUNT, "every stage has a name");

/* Where the image is built: the layer's own folder, with `files`, and a temporary `tmp`. */
struct build {
	const struct recipe *recipe;
	struct job_sink *sink;
	const char *path; /* absolute */
	int dir;
};

/* mmdebstrap runs hooks as `sh -c HOOK exec ROOT` with the machine's own apt settings in force.
 * Empty folders for manuals are made before any package comes: openjdk and others make links in
 * them with update-alternatives and cannot be configured without. */
static const char setup_hook[] =
	"set -e\n"
	"conf=\"$1/etc/apt/apt.conf.d/00boxyard-build\"\n"
	"apt-config dump | grep -E '^Acquire::(http|https|ftp|Retries|Check|Allow|ForceIP|Max|Min)'"
	" > \"$conf\" || :\n"
	"eval \"$(apt-config shell auth Dir::Etc::netrc/f authd Dir::Etc::netrcparts/d)\"\n"
	"echo \"Dir::Etc::netrc \\\"$auth\\\"; Dir::Etc::netrcparts \\\"$authd\\\";\" >> "
	"\"$conf\"\n"
	"echo 'Acquire::IndexTargets::deb-src::Sources::DefaultEnabled \"false\";' >> \"$conf\"\n"
	"for section in 1 2 3 4 5 6 7 8; do mkdir -p \"$1/usr/share/man/man$section\"; done\n";

/* The subordinate uids of users begin at 65536: Debian's first range, from 100000, crosses
 * 131072, and such a range cannot be mapped (see NS_EXTENTS in engine/ns). The hook also adds a
 * user for programs that refuse to run as root, names that the box can resolve, the keys of its
 * package sources, and a UTF-8 locale. */
static const char customize_hook[] =
	"set -e\n"
	"rm -f \"$1/etc/apt/apt.conf.d/00boxyard-build\"\n"
	"sed -i -E 's/^#?(SUB_[UG]ID_MIN)[ \t].*/\\1\\t65536/' \"$1/etc/login.defs\"\n"
	"chroot \"$1\" useradd --create-home --uid 1000 --user-group --shell /bin/bash user\n"
	"if [ -d \"$1/etc/sudoers.d\" ]; then\n"
	"	echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' > \"$1/etc/sudoers.d/user\"\n"
	"	chmod 0440 \"$1/etc/sudoers.d/user\"\n"
	"fi\n"
	"[ -e \"$1/etc/hosts\" ] || printf '127.0.0.1\\tlocalhost\\n"
	"::1\\tlocalhost ip6-localhost ip6-loopback\\n' > \"$1/etc/hosts\"\n"
	"echo 'export LANG=\"${LANG:-C.UTF-8}\"' > \"$1/etc/profile.d/lang.sh\"\n"
	"cat \"$1\"/etc/apt/sources.list \"$1\"/etc/apt/sources.list.d/* 2>/dev/null |\n"
	"	grep -ioE 'signed-by[=:] */[^] ]+' | sed 's/^[^/]*//' | sort -u |\n"
	"	while read -r key; do\n"
	"		[ -e \"$1$key\" ] || [ ! -f \"$key\" ] || install -D -m 0644 \"$key\" "
	"\"$1$key\"\n"
	"	done\n";

/* No manuals, no translations: a third of the size. Licences stay. unsafe-io: fsync after each file
 * makes installing slow and protects nothing in a box; the image as a whole is synced once at the
 * end. */
static const char *const options[] = {
	"--mode=root",
	"--format=directory",
	"--verbose",
	"--aptopt=APT::Install-Recommends \"false\"",
	"--aptopt=Acquire::Languages \"none\"",
	"--dpkgopt=force-unsafe-io",
	"--dpkgopt=path-exclude=/usr/share/man/*",
	"--dpkgopt=path-exclude=/usr/share/info/*",
	"--dpkgopt=path-exclude=/usr/share/groff/*",
	"--dpkgopt=path-exclude=/usr/share/lintian/*",
	"--dpkgopt=path-exclude=/usr/share/locale/*",
	"--dpkgopt=path-include=/usr/share/locale/locale.alias",
	"--dpkgopt=path-exclude=/usr/share/doc/*",
	"--dpkgopt=path-include=/usr/share/doc/*/copyright",
	NULL,
};

/* ---- a folder where programs run ------------------------------------------------------------ */

int folder_unlock(const char *path, struct err *err)
{
	struct mount_attr attr = { .attr_clr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					       MOUNT_ATTR_NOEXEC };

	if (mount(path, path, NULL, MS_BIND, NULL) < 0)
		return err_sys(err, errno, "bind '%s'", path);
	if (mount_setattr(AT_FDCWD, path, 0, &attr, sizeof attr) < 0) {
		err_sys(err, errno, "let programs run in '%s'", path);
		folder_lock(path);
		return -1;
	}
	return 0;
}

void folder_lock(const char *path)
{
	umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
}

/* ---- mmdebstrap ----------------------------------------------------------------------------- */

static char *join(const char *first, char **strv)
{
	struct buf out = BUF_INIT;
	char *text;

	buf_add_str(&out, first);
	for (size_t i = 0; strv[i]; i++) {
		buf_add_str(&out, i ? "," : "");
		buf_add_str(&out, strv[i]);
	}
	text = xstrdup(buf_str(&out));
	buf_done(&out);
	return text;
}

static int make_argv(const struct build *build, char ***ret, struct err *err)
{
	const struct recipe *recipe = build->recipe;
	_cleanup_free_ char *include = join("--include=", recipe->packages);
	_cleanup_free_ char *setup = xasprintf("--setup-hook=%s", setup_hook);
	_cleanup_free_ char *customize = xasprintf("--customize-hook=%s", customize_hook);
	_cleanup_free_ char *files = xasprintf("%s/files", build->path);
	_cleanup_free_ char *tmp = xasprintf("%s/tmp", build->path);
	_cleanup_strv_ char **argv = NULL, **sources = NULL;

	if (sources_collect("/etc/apt", tmp, &sources, err) < 0)
		return -1;
	strv_add(&argv, recipe->program);
	for (size_t i = 0; options[i]; i++)
		strv_add(&argv, options[i]);
	strv_add(&argv, recipe->minimal ? "--variant=apt" : "--variant=minbase");
	strv_add(&argv, include);
	strv_add(&argv, setup);
	strv_add(&argv, customize);
	strv_add(&argv, recipe->suite);
	strv_add(&argv, files);
	for (size_t i = 0; sources[i]; i++)
		strv_add(&argv, sources[i]);
	*ret = steal_ptr(&argv);
	return 0;
}

static _Noreturn void run_mmdebstrap(const struct build *build, char **argv, int out)
{
	const char *program = build->recipe->program;
	_cleanup_free_ char *tmp = xasprintf("%s/tmp", build->path);

	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	setenv("TMPDIR", tmp, 1); /* its temporary files are removed with ours */
	setenv("LC_ALL", "C.UTF-8", 1);
	setenv("DEBIAN_FRONTEND", "noninteractive", 1);
	unsetenv("APT_CONFIG");
	execv(program, argv);
	dprintf(STDERR_FILENO, "E: cannot run %s: %s\n", program, strerror(errno));
	_exit(127);
}

/* Reads until all writers have closed the pipe. All output is kept as build.log beside the
 * files. */
static void follow(struct job_sink *sink, FILE *in, FILE *log, struct progress *progress)
{
	char line[4096];

	while (fgets(line, sizeof line, in)) {
		fputs(line, log);
		line[strcspn(line, "\r\n")] = '\0';
		if (progress_feed(progress, line))
			job_progress(sink, stage_names[progress->stage], progress->done,
				progress->total, progress->detail);
	}
}

/* We are PID 1 here: orphans of maintainer scripts are ours to reap, too. */
static int wait_for(pid_t pid)
{
	int status;
	pid_t got;

	while ((got = wait(&status)) != pid)
		if (got < 0 && errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int install(const struct build *build, struct err *err)
{
	_cleanup_strv_ char **argv = NULL;
	struct progress progress = { 0 };
	int out[2], code, log_fd;
	FILE *in, *log;
	pid_t pid;

	if (make_argv(build, &argv, err) < 0)
		return -1;
	log_fd = openat(build->dir, "build.log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (log_fd < 0 || pipe2(out, O_CLOEXEC) < 0)
		return err_sys(err, errno, "prepare the build in '%s'", build->path);
	pid = fork();
	if (pid == 0)
		run_mmdebstrap(build, argv, out[1]);
	close(out[1]);
	if (pid < 0)
		return err_sys(err, errno, "fork");
	in = fdopen(out[0], "r");
	log = fdopen(log_fd, "w");
	if (!in || !log)
		return err_sys(err, errno, "read what mmdebstrap says");
	follow(build->sink, in, log, &progress);
	fclose(in);
	fclose(log);
	code = wait_for(pid);
	if (code == 0)
		return 0;
	progress_explain(&progress, code, err);
	return -1;
}

/* ---- cleaning up ---------------------------------------------------------------------------- */

/* mmdebstrap copies the build machine's host name and resolver; logs and caches belong to the
 * build. */
static int clean(int files, struct err *err)
{
	static const char *const unwanted[] = { "etc/resolv.conf", "etc/hostname", "etc/machine-id",
		"var/lib/dbus/machine-id", "var/log/apt", "var/log/dpkg.log",
		"var/log/bootstrap.log", "var/log/alternatives.log", "var/cache/ldconfig/aux-cache",
		"var/cache/apt/archives", "var/cache/debconf/config.dat-old",
		"var/cache/debconf/templates.dat-old", "var/lib/dpkg/status-old",
		"var/lib/dpkg/available-old" };
	static const char *const folders[] = { "var/log/apt", "var/cache/apt/archives",
		"var/cache/apt/archives/partial" };
	int fd;

	for (size_t i = 0; i < ARRAY_LEN(unwanted); i++)
		if (tree_remove(files, unwanted[i], err) < 0)
			return err_wrap(err, "clean");
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (mkdirat(files, folders[i], 0755) < 0)
			return err_sys(err, errno, "mkdir '%s'", folders[i]);
	/* Empty means "not set yet" to every reader; some treat a missing file as an error. */
	fd = openat(files, "etc/machine-id", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return err_sys(err, errno, "create 'etc/machine-id'");
	close(fd);
	return 0;
}

static int run_build(const struct build *build, struct err *err)
{
	_cleanup_close_ int files = -1;

	if (mkdirat(build->dir, "tmp", 0700) < 0)
		return err_sys(err, errno, "mkdir '%s/tmp'", build->path);
	job_progress(build->sink, "download", 0, 0, "package lists");
	if (install(build, err) < 0)
		return -1;
	job_progress(build->sink, "clean", 0, 1, "");
	files = openat(build->dir, "files", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (files < 0)
		return err_sys(err, errno, "open 'files'");
	if (clean(files, err) < 0)
		return -1;
	return tree_remove(build->dir, "tmp", err);
}

static int cook_unlocked(
	const struct recipe *recipe, struct job_sink *sink, const char *path, struct err *err)
{
	struct build build = { .recipe = recipe, .sink = sink, .path = path };
	int ret;

	if (folder_unlock(path, err) < 0)
		return -1;
	build.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = build.dir < 0 ? err_sys(err, errno, "open '%s'", path) : run_build(&build, err);
	if (build.dir >= 0)
		close(build.dir);
	folder_lock(path); /* a mount point cannot be renamed */
	return ret;
}

static void describe(const struct recipe *recipe, struct image_draft *draft)
{
	_cleanup_free_ char *layer = xasprintf("%s/files", draft->id);

	draft->origin =
		xasprintf("mmdebstrap %s%s", recipe->suite, recipe->minimal ? " minimal" : "");
	draft->packages = json_array();
	draft->config = json_object();
	strv_add(&draft->layers, layer);
	for (size_t i = 0; recipe->packages[i]; i++)
		json_array_append_new(draft->packages, json_string(recipe->packages[i]));
}

int recipe_run(const struct images *images, struct job_sink *sink, struct image_draft *draft,
	void *arg, struct err *err)
{
	const struct recipe *recipe = arg;
	_cleanup_free_ char *tmp = NULL, *path = NULL;
	_cleanup_close_ int files = -1;

	if (layer_begin(images, draft->id, &tmp, &files, err) < 0)
		return -1;
	path = xasprintf("%s/%s", images->files_path, tmp);
	if (cook_unlocked(recipe, sink, path, err) < 0)
		return -1;
	job_progress(sink, "measure", 0, 1, "");
	if (tree_measure(files, ".", &draft->size_bytes, &draft->files, err) < 0)
		return -1;
	describe(recipe, draft);
	if (layer_publish(images, draft->id, tmp, draft->size_bytes, draft->files, err) < 0)
		return -1;
	job_progress(sink, "measure", 1, 1, "");
	return 0;
}
