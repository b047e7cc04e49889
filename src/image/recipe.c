/* recipe.c - the making of an image, inside the helper process
 *
 *   download, unpack, configure   mmdebstrap, its output read line by line
 *   clean                         what of the build machine got in goes out
 *   measure                       size and number of files, then image.json, then everything to disk
 *
 * Settings of the machine that only matter for downloading (proxies, credentials, certificates) are given to
 * apt by a file that the setup hook puts in and the customize hook takes out: none of it stays in the image. */
#include "image/image_internal.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PROGRESS_EVERY_US = 100 * 1000 };

/* mmdebstrap runs hooks as `sh -c HOOK exec ROOT` with the machine's own apt settings in force. */
static const char setup_hook[] =
	"set -e\n"
	"conf=\"$1/etc/apt/apt.conf.d/00boxyard-build\"\n"
	"apt-config dump | grep -E '^Acquire::(http|https|ftp|Retries|Check|Allow|ForceIP|Max|Min)'"
	" > \"$conf\" || :\n"
	"eval \"$(apt-config shell auth Dir::Etc::netrc/f authd Dir::Etc::netrcparts/d)\"\n"
	"echo \"Dir::Etc::netrc \\\"$auth\\\"; Dir::Etc::netrcparts \\\"$authd\\\";\" >> "
	"\"$conf\"\n"
	"echo 'Acquire::IndexTargets::deb-src::Sources::DefaultEnabled \"false\";' >> \"$conf\"\n";

/* A user for programs that refuse to run as root; names the box can resolve; the keys its package sources
 * name; a locale that speaks UTF-8. */
static const char customize_hook[] =
	"set -e\n"
	"rm -f \"$1/etc/apt/apt.conf.d/00boxyard-build\"\n"
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

/* No manuals, no translations: a third of the size. Licences stay. unsafe-io: fsync after each file makes
 * installing slow and protects nothing in a box; the image as a whole is synced once at the end. */
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

/* ---- telling the daemon --------------------------------------------------------------------- */

static void tell_progress(
	int sock, enum build_stage stage, unsigned done, unsigned total, const char *detail)
{
	struct build_message message = {
		.type = BUILD_PROGRESS, .stage = stage, .done = done, .total = total
	};

	snprintf(message.detail, sizeof message.detail, "%s", detail);
	send(sock, &message, sizeof message, MSG_NOSIGNAL);
}

static int tell_failure(int sock, const struct err *err)
{
	struct build_message message = { .type = BUILD_FAILED, .err = *err };

	send(sock, &message, sizeof message, MSG_NOSIGNAL);
	return 1;
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

static int make_argv(const struct recipe *recipe, char ***ret, struct err *err)
{
	_cleanup_free_ char *include = join("--include=", recipe->packages);
	_cleanup_free_ char *setup = xasprintf("--setup-hook=%s", setup_hook);
	_cleanup_free_ char *customize = xasprintf("--customize-hook=%s", customize_hook);
	_cleanup_free_ char *rootfs = xasprintf("%s/rootfs", recipe->dir);
	_cleanup_free_ char *tmp = xasprintf("%s/tmp", recipe->dir);
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
	strv_add(&argv, rootfs);
	for (size_t i = 0; sources[i]; i++)
		strv_add(&argv, sources[i]);
	*ret = steal_ptr(&argv);
	return 0;
}

static _Noreturn void run_mmdebstrap(const struct recipe *recipe, char **argv, int out)
{
	_cleanup_free_ char *tmp = xasprintf("%s/tmp", recipe->dir);

	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	setenv("TMPDIR", tmp, 1); /* its scratch files go when ours go */
	setenv("LC_ALL", "C.UTF-8", 1);
	setenv("DEBIAN_FRONTEND", "noninteractive", 1);
	unsetenv("APT_CONFIG");
	execv(recipe->program, argv);
	dprintf(STDERR_FILENO, "E: cannot run %s: %s\n", recipe->program, strerror(errno));
	_exit(127);
}

/* Reads until everybody has closed the pipe. The whole text is kept as build.log beside the image. */
static void follow(int sock, FILE *in, FILE *log, struct progress *progress)
{
	int64_t told_us = 0;
	enum build_stage told = STAGE_COUNT;
	char line[4096];

	while (fgets(line, sizeof line, in)) {
		int64_t now = clock_mono_us();

		fputs(line, log);
		line[strcspn(line, "\r\n")] = '\0';
		if (!progress_feed(progress, line))
			continue;
		if (progress->stage == told && progress->done < progress->total &&
			now - told_us < PROGRESS_EVERY_US)
			continue;
		told = progress->stage;
		told_us = now;
		tell_progress(
			sock, progress->stage, progress->done, progress->total, progress->detail);
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

static int install(int sock, const struct recipe *recipe, int dir, struct err *err)
{
	_cleanup_strv_ char **argv = NULL;
	struct progress progress = { 0 };
	int out[2], code, log_fd;
	FILE *in, *log;
	pid_t pid;

	if (make_argv(recipe, &argv, err) < 0)
		return -1;
	log_fd = openat(dir, "build.log", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (log_fd < 0 || pipe2(out, O_CLOEXEC) < 0)
		return err_sys(err, errno, "prepare the build in '%s'", recipe->dir);
	pid = fork();
	if (pid == 0)
		run_mmdebstrap(recipe, argv, out[1]);
	close(out[1]);
	if (pid < 0)
		return err_sys(err, errno, "fork");
	in = fdopen(out[0], "r");
	log = fdopen(log_fd, "w");
	if (!in || !log)
		return err_sys(err, errno, "read what mmdebstrap says");
	follow(sock, in, log, &progress);
	fclose(in);
	fclose(log);
	code = wait_for(pid);
	if (code == 0)
		return 0;
	progress_explain(&progress, code, err);
	return -1;
}

/* ---- afterwards ----------------------------------------------------------------------------- */

/* mmdebstrap copies the build machine's name and resolver in; logs and caches tell of the build. */
static int clean(int rootfs, struct err *err)
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
		if (tree_remove(rootfs, unwanted[i], err) < 0)
			return err_wrap(err, "clean");
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (mkdirat(rootfs, folders[i], 0755) < 0)
			return err_sys(err, errno, "mkdir '%s'", folders[i]);
	/* Empty means "not set yet" to everyone who reads it; missing is an error to some. */
	fd = openat(rootfs, "etc/machine-id", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return err_sys(err, errno, "create 'etc/machine-id'");
	close(fd);
	return 0;
}

/* Sums up everything below name; a file with many links is counted once, in parts. */
static int measure(int parent, const char *name, struct image *image, struct err *err)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int ret = 0;

	if (!dir)
		return err_sys(err, errno, "read '%s'", name);
	while (ret == 0 && (entry = readdir(dir))) {
		struct stat st;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			ret = err_sys(err, errno, "stat '%s'", entry->d_name);
			break;
		}
		image->files++;
		image->size_bytes += (uint64_t)st.st_blocks * 512 /
				     (S_ISDIR(st.st_mode) ? 1 : (uint64_t)MAX(st.st_nlink, 1));
		if (S_ISDIR(st.st_mode))
			ret = measure(fd, entry->d_name, image, err);
	}
	closedir(dir);
	return ret;
}

static int describe(const struct recipe *recipe, int dir, struct err *err)
{
	_cleanup_free_ char *origin =
		xasprintf("mmdebstrap %s%s", recipe->suite, recipe->minimal ? " minimal" : "");
	_cleanup_json_ json_t *packages = json_array();
	struct image image = { .id = recipe->id,
		.name = recipe->name,
		.origin = origin,
		.packages = packages,
		.created_us = clock_wall_us() };

	for (size_t i = 0; recipe->packages[i]; i++)
		json_array_append_new(packages, json_string(recipe->packages[i]));
	if (measure(dir, "rootfs", &image, err) < 0)
		return err_wrap(err, "measure");
	return image_write_json(dir, &image, err);
}

static int cook(int sock, const struct recipe *recipe, struct err *err)
{
	_cleanup_close_ int dir = open(recipe->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int rootfs = -1;

	if (dir < 0 || mkdirat(dir, "tmp", 0700) < 0)
		return err_sys(err, errno, "open '%s'", recipe->dir);
	tell_progress(sock, STAGE_DOWNLOAD, 0, 0, "package lists");
	if (install(sock, recipe, dir, err) < 0)
		return -1;
	tell_progress(sock, STAGE_CLEAN, 0, 1, "");
	rootfs = openat(dir, "rootfs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rootfs < 0)
		return err_sys(err, errno, "open 'rootfs'");
	if (clean(rootfs, err) < 0 || tree_remove(dir, "tmp", err) < 0)
		return -1;
	tell_progress(sock, STAGE_MEASURE, 0, 1, "");
	if (describe(recipe, dir, err) < 0)
		return -1;
	if (syncfs(dir) < 0)
		return err_sys(err, errno, "write the image to disk");
	tell_progress(sock, STAGE_MEASURE, 1, 1, "");
	return 0;
}

int recipe_run(int sock, const struct recipe *recipe)
{
	struct build_message done = { .type = BUILD_FINISHED };
	struct err err = ERR_INIT;

	umask(022);
	if (cook(sock, recipe, &err) < 0)
		return tell_failure(sock, &err);
	return send(sock, &done, sizeof done, MSG_NOSIGNAL) < 0;
}
