/* disk.c - disks and images, compared with the host's file system
 *
 * Both sides do the same work with the same program and the same files, once in a box and once
 * in a folder on the host (--host-dir, which should be on the disk of BOX_HOME). Preparing and
 * removing are outside the measured time; there is no sync. The host's page cache is read as a
 * whole, so the machine should be quiet then. */
#include "bench/bench_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/client.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { LIMIT_MS = 300000, FOLDERS = 100, FILES_EACH = 100, FILE_MOST = 8192 };

#define SELF "/proc/self/exe"
#define NPM_CI                                                                        \
	"npm ci --offline --cache ./npm-cache --no-audit --no-fund --ignore-scripts " \
	"--loglevel=error"
/* Renamed, not deleted: see UNTAR_NEW. */
#define NPM_ASIDE "if test -e node_modules; then mv node_modules $(mktemp -d ./gone-XXXXXX); fi"
#define NPM_NEEDS "needs --npm-project DIR with package.json, package-lock.json and npm-cache"

static struct {
	struct bench_disk_options options;
	char dir[256];	  /* on the host; "" until needed */
	char *full;	  /* box with 512 MB */
	char *box;	  /* box that unpacks and installs */
	char *readers[2]; /* boxes that read the image */
	char *exported;	  /* the image boxes start from, as tar */
	char *rootfs;	  /* and as files */
	bool has_untar, has_npm_box, has_npm_host;
} work;

void bench_disk_configure(const struct bench_disk_options *options)
{
	work.options = *options;
}

void bench_disk_done(void)
{
	if (work.dir[0])
		tree_remove(AT_FDCWD, work.dir, NULL);
	work.dir[0] = '\0';
	free(work.full);
	free(work.box);
	free(work.readers[0]);
	free(work.readers[1]);
	free(work.exported);
	free(work.rootfs);
}

static double since(int64_t start_us)
{
	return (double)(clock_mono_us() - start_us) / 1000.0;
}

static int need_dir(struct err *err)
{
	const char *parent = work.options.host_dir ? work.options.host_dir : "/var/tmp";

	if (work.dir[0])
		return 0;
	if (strlen(parent) > sizeof work.dir - 32)
		return err_set(err, ERR_INVALID, "--host-dir is too long");
	snprintf(work.dir, sizeof work.dir, "%s/box-bench-XXXXXX", parent);
	if (!mkdtemp(work.dir)) {
		work.dir[0] = '\0';
		return err_sys(err, errno, "make a folder in '%s'", parent);
	}
	return 0;
}

static int need_box(struct bench_boxes *boxes, char **box, struct err *err)
{
	return *box ? 0 : bench_boxes_make(boxes, box, err);
}

static int run_host(const char *const *argv, double *ret, struct err *err)
{
	struct bench_program program = { .argv = argv, .mount_ns = -1 };
	struct bench_times times;

	if (bench_program_run(&program, LIMIT_MS, &times, err) < 0)
		return -1;
	if (ret)
		*ret = times.exit;
	return 0;
}

static int run_host_script(const char *script, double *ret, struct err *err)
{
	return run_host((const char *[]){ "/bin/sh", "-ec", script, NULL }, ret, err);
}

/* --- images --- */

static int remove_image(struct bench_boxes *boxes, const char *name, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/images/%s", name);

	return client_call(bench_boxes_get_client(boxes), "DELETE", path, NULL, NULL, err);
}

int bench_image_save(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_json_ json_t *image = NULL;
	int64_t start_us;
	double took;

	if (!work.full) {
		if (need_box(boxes, &work.full, err) < 0 ||
			bench_boxes_run(boxes, work.full,
				"head -c 512M /dev/urandom >/root/fill; sync /root/fill", NULL,
				err) < 0)
			return -1;
	}
	path = client_path("/v1/boxes/%s/save", work.full);
	start_us = clock_mono_us();
	if (client_call(bench_boxes_get_client(boxes), "POST", path, json_object(), &image, err) <
		0)
		return -1;
	took = since(start_us);
	if (remove_image(boxes, json_string_value(json_object_get(image, "id")) ?: "", err) < 0)
		return -1;
	*ret = took;
	return 0;
}

int bench_remove_full(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *name = NULL;

	if (bench_boxes_make(boxes, &name, err) < 0 ||
		bench_boxes_run(boxes, name, "head -c 64M /dev/zero >/root/fill", NULL, err) < 0)
		return -1;
	return bench_boxes_remove(boxes, name, ret, err);
}

/* The files of the image that boxes start from, as tar. */
static int need_export(struct bench_boxes *boxes, struct err *err)
{
	_cleanup_free_ char *out = NULL;
	const char *id;

	if (work.exported)
		return 0;
	if (need_dir(err) < 0 || bench_boxes_image(boxes, &id, err) < 0)
		return -1;
	out = xasprintf("%s/rootfs.tar", work.dir);
	if (run_host((const char *[]){ SELF, "image", "export", id, "--format", "rootfs", "-o", out,
			     "--quiet", NULL },
		    NULL, err) < 0)
		return err_wrap(err, "export the base image");
	work.exported = steal_ptr(&out);
	return 0;
}

/* Other programs cannot read the pool, so they get a copy. */
int bench_disk_rootfs(struct bench_boxes *boxes, const char **ret, struct err *err)
{
	_cleanup_free_ char *script = NULL;

	if (!work.rootfs) {
		if (need_export(boxes, err) < 0)
			return -1;
		script = xasprintf("cd '%s'; mkdir rootfs; exec tar xpf rootfs.tar -C rootfs "
				   "--numeric-owner --xattrs --xattrs-include='*'",
			work.dir);
		if (run_host_script(script, NULL, err) < 0)
			return err_wrap(err, "unpack the base image for the peers");
		work.rootfs = xasprintf("%s/rootfs", work.dir);
	}
	*ret = work.rootfs;
	return 0;
}

static int64_t read_archive(void *buf, size_t len, void *arg, struct err *err)
{
	ssize_t got = read(*(int *)arg, buf, len);

	return got < 0 ? err_sys(err, errno, "read the archive") : got;
}

int bench_image_import(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_close_ int fd = -1;
	struct client_request request = {
		.method = "POST",
		.path = "/v1/images/import?name=bench-import",
		.body_type = "application/x-tar",
		.read = read_archive,
		.arg = &fd,
	};
	const char *archive;
	struct stat info;
	int64_t start_us;
	double took;

	if (!work.options.tar && need_export(boxes, err) < 0)
		return -1;
	archive = work.options.tar ? work.options.tar : work.exported;
	fd = open(archive, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &info) < 0)
		return err_sys(err, errno, "open '%s'", archive);
	request.read_size = info.st_size;
	start_us = clock_mono_us();
	if (client_do(bench_boxes_get_client(boxes), &request, NULL, err) < 0)
		return -1;
	took = since(start_us);
	if (remove_image(boxes, "bench-import", err) < 0)
		return -1;
	*ret = (double)info.st_size / (1 << 20) / (took / 1000.0);
	return 0;
}

/* --- 10,000 files --- */

static int make_files(const char *folder, struct err *err)
{
	char path[320], block[FILE_MOST];

	random_bytes(block, sizeof block);
	for (unsigned i = 0; i < FOLDERS * FILES_EACH; i++) {
		_cleanup_close_ int fd = -1;

		snprintf(path, sizeof path, "%s/%02u", folder, i / FILES_EACH);
		if (i % FILES_EACH == 0 && dir_make_all(path, 0755, err) < 0)
			return -1;
		snprintf(path, sizeof path, "%s/%02u/%02u", folder, i / FILES_EACH, i % FILES_EACH);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (fd < 0)
			return err_sys(err, errno, "make '%s'", path);
		/* 1 to 8 KiB: the sizes of source files. */
		if (fd_write_all(fd, block, 1024 * (1 + i % 8), err) < 0)
			return -1;
	}
	return 0;
}

static int need_untar(struct bench_boxes *boxes, struct err *err)
{
	_cleanup_free_ char *folder = NULL, *script = NULL, *archive = NULL, *target = NULL;

	if (work.has_untar)
		return 0;
	if (need_dir(err) < 0 || need_box(boxes, &work.box, err) < 0)
		return -1;
	folder = xasprintf("%s/files", work.dir);
	script = xasprintf("cd '%s'; tar cf files.tar files; rm -rf files", work.dir);
	archive = xasprintf("%s/files.tar", work.dir);
	target = xasprintf("%s:/root/files.tar", work.box);
	if (make_files(folder, err) < 0 || run_host_script(script, NULL, err) < 0 ||
		run_host((const char *[]){ SELF, "cp", archive, target, NULL }, NULL, err) < 0)
		return err_wrap(err, "prepare 10,000 files");
	work.has_untar = true;
	return 0;
}

/* Into a new folder each time, and nothing is removed before the end: ext4 is many times slower
 * where files were deleted a moment ago, and that is not what is to be compared. */
#define UNTAR_NEW "d=$(mktemp -d %s/out-XXXXXX); exec tar xf %s/files.tar -C $d"

int bench_untar_box(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *script = xasprintf(UNTAR_NEW, "/root", "/root");

	if (need_untar(boxes, err) < 0)
		return -1;
	return bench_boxes_run(boxes, work.box, script, ret, err);
}

int bench_untar_host(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *script = NULL;

	if (need_untar(boxes, err) < 0)
		return -1;
	script = xasprintf(UNTAR_NEW, work.dir, work.dir);
	return run_host_script(script, ret, err);
}

/* --- npm --- */

static int check_npm(struct err *err)
{
	static const char *const names[] = { "package.json", "package-lock.json", "npm-cache" };

	if (!work.options.npm_project)
		return err_set(err, ERR_UNSUPPORTED, NPM_NEEDS);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		_cleanup_free_ char *path = xasprintf("%s/%s", work.options.npm_project, names[i]);

		if (access(path, R_OK) < 0)
			return err_set(
				err, ERR_UNSUPPORTED, NPM_NEEDS "; '%.80s' does not exist", path);
	}
	return 0;
}

int bench_npm_box(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *target = NULL;

	if (check_npm(err) < 0 || need_box(boxes, &work.box, err) < 0)
		return -1;
	target = xasprintf("%s:/root/npm", work.box);
	if (!work.has_npm_box &&
		run_host((const char *[]){ SELF, "cp", work.options.npm_project, target, NULL },
			NULL, err) < 0)
		return err_wrap(err, "copy the project into a box");
	work.has_npm_box = true;
	if (bench_boxes_run(boxes, work.box, "cd /root/npm; " NPM_ASIDE, NULL, err) < 0)
		return -1;
	return bench_boxes_run(boxes, work.box, "cd /root/npm; exec " NPM_CI " 2>&1", ret, err);
}

/* With the image's own programs, so that only the place differs. */
int bench_npm_host(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *before = NULL, *script = NULL, *target = NULL;
	const char *root;

	if (check_npm(err) < 0 || bench_disk_rootfs(boxes, &root, err) < 0)
		return -1;
	target = xasprintf("%s/root/npm", root);
	if (!work.has_npm_host && run_host((const char *[]){ "/bin/cp", "-a", "--",
						   work.options.npm_project, target, NULL },
					  NULL, err) < 0)
		return err_wrap(err, "copy the project");
	work.has_npm_host = true;
	before = xasprintf("cd '%s'; " NPM_ASIDE, target);
	script = xasprintf("cd '%s'; exec unshare -m sh -ec 'mount --rbind /dev dev; mount -t proc "
			   "proc proc; exec chroot . /bin/sh -c \"cd /root/npm; exec " NPM_CI "\"'",
		root);
	return run_host_script(before, NULL, err) < 0 ? -1 : run_host_script(script, ret, err);
}

/* --- the page cache --- */

/* The same 200 MB of the image in every box. Only larger files, so that the shell takes less of
 * the time. */
#define CHOOSE                                                                                    \
	"find /usr -xdev -type f -size +64k ! -name '*[ \\\"]*' -printf '%s %p\\n' | sort -k2 | " \
	"awk '{ if (sum > 200 * 1048576) exit; sum += $1; print $2 }' >/tmp/list; "
/* Drops one file at a time from the cache: dropping all caches would affect the whole machine. */
#define FORGET "while read -r f; do dd if=\"$f\" iflag=nocache count=0 status=none; done </tmp/list"
#define READ   "exec xargs -a /tmp/list cat >/dev/null"

static int read_in(struct bench_boxes *boxes, const char *box, double *ret_ms, double *ret_grown,
	struct err *err)
{
	double before, after;

	if (bench_memory_cached(&before, err) < 0 ||
		bench_boxes_run(boxes, box, READ, ret_ms, err) < 0 ||
		bench_memory_cached(&after, err) < 0)
		return -1;
	*ret_grown = after - before;
	return 0;
}

int bench_page_cache(struct bench_boxes *boxes, struct bench_page_cache *ret, struct err *err)
{
	struct bench_page_cache seen = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(work.readers); i++)
		if (!work.readers[i] && (need_box(boxes, &work.readers[i], err) < 0 ||
						bench_boxes_run(boxes, work.readers[i],
							CHOOSE "test -s /tmp/list", NULL, err) < 0))
			return -1;
	if (bench_boxes_run(boxes, work.readers[0], FORGET, NULL, err) < 0 ||
		read_in(boxes, work.readers[0], &seen.first_ms, &seen.first_grown, err) < 0 ||
		read_in(boxes, work.readers[1], &seen.second_ms, &seen.second_grown, err) < 0)
		return -1;
	*ret = seen;
	return 0;
}
