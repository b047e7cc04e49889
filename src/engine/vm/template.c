/* template.c - machines that were booted once: every new box is a copy of one
 *
 *   BOX_HOME/vm/templates/NAME/vm.json, devices   its description, and the state of its devices
 *   POOL/vm/NAME                                  its disk: mounted, and empty
 *   BOX_HOME/memory/…                             its RAM, one layer
 *
 * A template depends on the image, RAM, CPUs and on QEMU and the kernel (its key). It is made
 * when the first box needs it: the kernel boots, box-init mounts the disks and waits to be told
 * who it is; then the machine is stopped and saved. It never runs again. A daemon checks a
 * template before it uses it; a damaged one is made again. */
#include "engine/vm/vm_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "base/text.h"
#include "engine/vm/disk.h"
#include "engine/vm/kernel.h"
#include "engine/vm/ram.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include "net/doors.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_LEN = 20 };

struct template_build {
	struct template *template;
	struct helper *helper; /* makes the disk */
	struct qemu *qemu;
	struct ram_link *ram;
	struct ram_pass *pass;
	struct control *control;
	struct loop_timer *timer;
	char *dir;
	char **stack; /* held; the result */
	bool kvm;
	int limit_ms; /* of the boot */
	bool devices_saved, passed;
	int64_t began_at;
};

/* ---- names ---------------------------------------------------------------------------------- */

static char *name_of(
	const struct vm_engine *engine, const char *image_key, uint64_t ram_bytes, unsigned cpus)
{
	_cleanup_free_ char *text = xasprintf("%s %s %llu %u %llu", engine->key, image_key,
		(unsigned long long)ram_bytes, cpus, (unsigned long long)VM_DISK_DEFAULT);
	char digest[DIGEST_SIZE];

	digest_of(text, strlen(text), digest);
	return xstrndup(strchr(digest, ':') + 1, NAME_LEN);
}

static char *folder_of(const struct template *template)
{
	return xasprintf("%s/vm/templates/%s", template->engine->home, template->name);
}

char *vm_template_disk(const struct template *template)
{
	return xasprintf("%s/vm/%s", template->engine->pool, template->name);
}

int vm_template_open_devices(const struct template *template, int *ret, struct err *err)
{
	_cleanup_free_ char *folder = folder_of(template);
	_cleanup_free_ char *path = xasprintf("%s/" VM_DEVICES, folder);

	*ret = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return *ret < 0 ? err_sys(err, errno, "open '%s'", path) : 0;
}

/* ---- the end of a build --------------------------------------------------------------------- */

static void build_free(struct template_build *build)
{
	struct vm_engine *engine = build->template->engine;

	if (!build)
		return;
	ram_store_forget(engine->ram, build);
	helper_free(build->helper);
	control_free(build->control);
	ram_pass_free(build->pass);
	ram_link_free(build->ram);
	if (build->qemu)
		qemu_kill(build->qemu);
	qemu_free(build->qemu);
	qemu_remove_dir(build->dir);
	loop_timer_free(build->timer);
	strv_free(build->stack);
	free(build->dir);
	free(build);
}

static void remove_files(struct template *template)
{
	_cleanup_free_ char *folder = folder_of(template), *disk = vm_template_disk(template);
	_cleanup_free_ char *half = xasprintf("%s.tmp", disk);

	tree_remove(AT_FDCWD, folder, NULL);
	unlink(disk);
	unlink(half);
}

static void settle(struct template_build *build, const struct err *err)
{
	struct template *template = build->template;

	template->build = NULL;
	if (err) {
		template->problem = *err;
		err_wrap(&template->problem, "make the template of the box");
		remove_files(template);
		ram_store_release(template->engine->ram, (const char *const *)build->stack);
		log_error("a template of VMs cannot be made", kv_str("template", template->name),
			kv_err(err));
	} else {
		strv_free(template->manifest.stack);
		template->manifest.stack = steal_ptr(&build->stack); /* held permanently */
		template->ready = true;
		log_info("a template of VMs is ready", kv_str("template", template->name),
			kv_int("ms", (clock_mono_us() - build->began_at) / 1000));
	}
	build_free(build);
	vm_template_settled(template);
}

static void fail(struct template_build *build, const struct err *err)
{
	settle(build, err);
}

static bool failed(struct template_build *build, const struct err *err, const char *what)
{
	struct err why;

	if (!err)
		return false;
	why = *err;
	err_wrap(&why, "%s", what);
	fail(build, &why);
	return true;
}

/* ---- saving --------------------------------------------------------------------------------- */

static int keep(struct template_build *build, struct err *err)
{
	struct template *template = build->template;
	_cleanup_free_ char *folder = folder_of(template), *disk = vm_template_disk(template);
	_cleanup_free_ char *half = xasprintf("%s.tmp", disk);
	_cleanup_close_ int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return err_sys(err, errno, "open '%s'", folder);
	if (rename(half, disk) < 0)
		return err_sys(err, errno, "keep the disk '%s'", disk);
	strv_free(template->manifest.stack);
	template->manifest.stack = strv_copy((const char *const *)build->stack);
	if (vm_devices_digest(dir, template->manifest.devices, err) < 0)
		return -1;
	return vm_manifest_write(dir, &template->manifest, err);
}

static void on_synced(const struct err *err, void *arg)
{
	struct template_build *build = arg;
	struct err why = ERR_INIT;

	if (failed(build, err, "its memory"))
		return;
	if (keep(build, &why) < 0)
		fail(build, &why);
	else
		settle(build, NULL);
}

static void when_written(struct template_build *build)
{
	if (build->devices_saved && build->passed)
		ram_store_sync(build->template->engine->ram, (const char *const *)build->stack,
			on_synced, build);
}

static void on_saved(struct qemu *qemu, const struct err *err, void *arg)
{
	struct template_build *build = arg;

	(void)qemu;
	if (failed(build, err, "the state of its devices"))
		return;
	build->devices_saved = true;
	when_written(build);
}

static void on_passed(struct ram_pass *pass, const struct ram_pass_result *result,
	const struct err *err, void *arg)
{
	struct template_build *build = arg;

	if (err) {
		failed(build, err, "its memory");
		return;
	}
	build->stack = strv_copy(result->stack);
	ram_pass_free(pass);
	build->pass = NULL;
	build->passed = true;
	when_written(build);
}

static void on_stopped(struct qemu *qemu, const struct err *err, void *arg)
{
	struct template_build *build = arg;
	_cleanup_free_ char *folder = folder_of(build->template);
	_cleanup_free_ char *path = xasprintf("%s/" VM_DEVICES, folder);
	_cleanup_close_ int fd = -1;
	struct err why = ERR_INIT;

	if (failed(build, err, "stop it"))
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		err_sys(&why, errno, "make '%s'", path);
		fail(build, &why);
		return;
	}
	ram_pass_last(build->pass);
	qemu_save(qemu, fd, on_saved, build);
}

static void on_pass_ready(struct ram_pass *pass, void *arg)
{
	struct template_build *build = arg;

	(void)pass;
	qemu_stop(build->qemu, on_stopped, build);
}

/* ---- the boot ------------------------------------------------------------------------------- */

static int begin(struct template *template, struct err *err);

static struct template *find(struct vm_engine *engine, const char *name)
{
	struct template *template = engine->templates;

	while (template && strcmp(template->name, name))
		template = template->next;
	return template;
}

/* It becomes a template of the emulated machine; another one like that may be there by now. */
static void build_emulated(struct template *template)
{
	struct vm_engine *engine = template->engine;
	struct vm_manifest *manifest = &template->manifest;
	char *name = name_of(engine, manifest->image_key, manifest->ram_bytes, manifest->cpus);
	struct template *other = find(engine, name);
	struct err err = ERR_INIT;

	if (other) {
		for (struct vm_instance *i = engine->first; i; i = i->next)
			if (i->waits_for_template && i->template == template)
				i->template = other;
		free(name);
		if (!other->build && !other->checking)
			vm_template_settled(other);
		return;
	}
	free(template->name);
	template->name = name;
	free(manifest->key);
	manifest->key = xstrdup(engine->key);
	manifest->tsc_khz = engine->tsc_khz;
	if (begin(template, &err) < 0) {
		template->problem = err;
		vm_template_settled(template);
	}
}

/* The kernel did not come up. The first time that KVM is to blame, it is given up. */
static void fail_boot(struct template_build *build, const struct err *why)
{
	struct template *template = build->template;
	struct err err = ERR_INIT;

	if (!build->kvm ||
		(template->engine->kvm && vm_give_up_kvm(template->engine, why, &err) < 0)) {
		settle(build, why);
		return;
	}
	remove_files(template);
	template->build = NULL;
	build_free(build);
	build_emulated(template);
}

static void on_waits(struct control *control, void *arg)
{
	static const struct ram_pass_ops ops = { .on_ready = on_pass_ready, .on_done = on_passed };
	struct template_build *build = arg;
	struct ram_pass_spec spec = {
		.link = build->ram, .pidfd = qemu_get_pidfd(build->qemu), .disk = -1
	};
	struct err err = ERR_INIT;

	if (build->pass)
		return;
	if (build->kvm)
		vm_prove_kvm(build->template->engine);
	control_free(control);
	build->control = NULL;
	if (ram_pass_start(build->template->engine->ram, &spec, &ops, build, &build->pass, &err) <
		0)
		fail(build, &err);
}

static void on_control_failed(struct control *control, const struct err *err, void *arg)
{
	struct template_build *build = arg;

	control_free(control);
	build->control = NULL;
	fail_boot(build, err);
}

static void on_continued(struct qemu *qemu, const struct err *err, void *arg)
{
	static const struct control_ops ops = { .on_ready = on_waits,
		.on_failed = on_control_failed };
	struct template_build *build = arg;
	_cleanup_free_ char *path = xasprintf("%s/%s", build->dir, QEMU_SOCKET_CONTROL);
	struct control_spec spec = { .path = path, .greet_only = true, .boots = true };

	(void)qemu;
	if (failed(build, err, "boot it"))
		return;
	spec.tell.hostname = "box";
	build->control = control_new(build->template->engine->loop, &spec, &ops, build);
}

static void on_mapped(const struct err *err, void *arg)
{
	struct template_build *build = arg;

	if (!failed(build, err, "its memory"))
		qemu_cont(build->qemu, on_continued, build);
}

static void on_ram_lost(struct ram_link *link, const struct err *err, void *arg)
{
	struct template_build *build = arg;

	ram_pass_free(steal_ptr(&build->pass)); /* it uses the connection */
	ram_link_free(link);
	build->ram = NULL;
	failed(build, err, "its memory");
}

static void on_qemu_ready(struct qemu *qemu, void *arg)
{
	static const char *const empty[] = { NULL };
	struct template_build *build = arg;
	struct vm_engine *engine = build->template->engine;
	_cleanup_free_ char *path = xasprintf("%s/%s", build->dir, QEMU_SOCKET_RAM);
	struct err err = ERR_INIT;
	int fd;

	if (ram_connect(path, &fd, &err) < 0) {
		fail(build, &err);
		return;
	}
	build->ram = ram_link_new(engine->loop, fd, qemu_get_mark(qemu).pid,
		build->template->manifest.ram_bytes, on_ram_lost, build);
	ram_link_map(build->ram, engine->ram, empty, on_mapped, build);
}

static void on_qemu_ended(struct qemu *qemu, const struct qemu_end *end, void *arg)
{
	struct template_build *build = arg;
	struct err err = end->err;

	qemu_free(qemu);
	build->qemu = NULL;
	if (!err.kind)
		err_set(&err, ERR_SYSTEM, "its QEMU ended while it booted%s%.300s",
			*end->console ? "; its console: " : "",
			end->console +
				(strlen(end->console) > 300 ? strlen(end->console) - 300 : 0));
	if (build->pass)
		fail(build, &err);
	else
		fail_boot(build, &err);
}

static const struct qemu_ops qemu_ops = { .on_ready = on_qemu_ready, .on_ended = on_qemu_ended };

static int spawn(struct template_build *build, struct err *err)
{
	struct template *template = build->template;
	struct vm_engine *engine = template->engine;
	_cleanup_free_ char *cmdline =
		vm_kernel_cmdline(engine->kernel, engine->kvm, engine->tsc_khz);
	_cleanup_free_ char *path = vm_template_disk(template);
	_cleanup_free_ char *half = xasprintf("%s.tmp", path);
	_cleanup_close_ int image = -1, disk = -1, netns = -1, tap = -1;
	struct qemu_machine machine =
		vm_machine(engine, template->manifest.ram_bytes, template->manifest.cpus);
	struct qemu_spec spec = { .machine = &machine,
		.dir = build->dir,
		.kernel = vm_kernel_get_image(engine->kernel),
		.initrd = vm_kernel_get_initrd(engine->kernel),
		.cmdline = cmdline,
		.preload = engine->preload,
		.cgroup = -1 };

	if (vm_image_open(template->image, &image, err) < 0 ||
		doors_make_vm(engine->doors, &netns, &tap, err) < 0)
		return -1;
	disk = open(half, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (disk < 0)
		return err_sys(err, errno, "open '%s'", half);
	spec.image = image;
	spec.disk = disk;
	spec.netns = netns;
	spec.tap = tap;
	return qemu_spawn(engine->loop, &spec, &qemu_ops, build, &build->qemu, err);
}

/* ---- its disk ------------------------------------------------------------------------------- */

static int run_format(int sock, void *arg)
{
	struct template_build *build = arg;
	_cleanup_free_ char *disk = vm_template_disk(build->template);
	_cleanup_free_ char *half = xasprintf("%s.tmp", disk);
	struct err err = ERR_INIT;

	unlink(half);
	(void)vm_disk_format(half, build->template->manifest.disk_bytes, &err);
	send(sock, &err, sizeof err, MSG_NOSIGNAL);
	return 0;
}

static void on_formatted(const void *message, size_t len, void *arg)
{
	struct template_build *build = arg;

	if (len == sizeof build->template->problem)
		memcpy(&build->template->problem, message, len);
}

static void on_format_ended(int code, void *arg)
{
	struct template_build *build = arg;
	struct err err = build->template->problem;

	build->helper = NULL;
	if (code && !err.kind)
		err_set(&err, ERR_SYSTEM, "the helper that makes its disk ended with code %d",
			code);
	if (err.kind || spawn(build, &err) < 0)
		fail(build, &err);
}

static void boot_too_long(void *arg)
{
	struct template_build *build = arg;
	struct err err = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "its kernel did not come up within %d s",
		build->limit_ms / 1000);
	if (build->qemu && !build->pass)
		fail_boot(build, &err);
	else
		fail(build, &err);
}

static int begin(struct template *template, struct err *err)
{
	static const struct helper_ops ops = {
		.run = run_format, .on_message = on_formatted, .on_exit = on_format_ended
	};
	struct vm_engine *engine = template->engine;
	_cleanup_free_ char *folder = folder_of(template);
	_cleanup_free_ char *disks = xasprintf("%s/vm", engine->pool);
	struct template_build *build;

	remove_files(template);
	if (dir_make_all(folder, 0700, err) < 0 || dir_make_all(disks, 0700, err) < 0)
		return -1;
	build = xnew(struct template_build);
	build->template = template;
	build->began_at = clock_mono_us();
	build->kvm = engine->kvm;
	build->dir = xasprintf("%s/template-%s", engine->dir, template->name);
	qemu_remove_dir(build->dir);
	build->timer = loop_timer_new(engine->loop, boot_too_long, build);
	build->limit_ms = vm_boot_ms(engine);
	loop_timer_start(build->timer, (uint64_t)build->limit_ms);
	err_clear(&template->problem);
	if (helper_start(engine->loop, &ops, build, NULL, 0, &build->helper, err) < 0) {
		build_free(build);
		return -1;
	}
	template->build = build;
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------ */

static struct template *add(struct vm_engine *engine, char *name)
{
	struct template *template = xnew(struct template);

	template->engine = engine;
	template->name = name;
	template->next = engine->templates;
	engine->templates = template;
	return template;
}

static int check_devices(const struct template *template, struct err *err)
{
	_cleanup_free_ char *folder = folder_of(template);
	_cleanup_close_ int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return err_sys(err, errno, "open '%s'", folder);
	return vm_devices_check(dir, &template->manifest, err);
}

/* Checks that all files exist and have the right size; the content of memory and disk is not
 * read. */
static int check_files(const struct template *template, struct err *err)
{
	_cleanup_free_ char *disk = vm_template_disk(template);
	struct stat st;

	if (stat(disk, &st) < 0)
		return err_sys(err, errno, "its disk '%s'", disk);
	if ((uint64_t)st.st_size != template->manifest.disk_bytes)
		return err_set(err, ERR_PROTOCOL, "its disk '%s' has %lld bytes", disk,
			(long long)st.st_size);
	if (check_devices(template, err) < 0)
		return -1;
	return ram_store_check(
		template->engine->ram, (const char *const *)template->manifest.stack, err);
}

static int make_again(struct template *template, const struct err *why, struct err *err)
{
	struct vm_engine *engine = template->engine;

	if (why)
		log_warn("a template of VMs is damaged and made again",
			kv_str("template", template->name), kv_err(why));
	template->ready = false;
	ram_store_release(engine->ram, (const char *const *)template->manifest.stack);
	strv_free(steal_ptr(&template->manifest.stack));
	vm_keep_soon(engine);
	if (template->image)
		return begin(template, err);
	remove_files(template); /* nobody waits for it */
	return 0;
}

static void on_checked(const struct err *damage, void *arg)
{
	struct template *template = arg;
	struct err err = ERR_INIT;

	template->checking = false;
	if (!damage) {
		template->ready = true;
		vm_template_settled(template);
	} else if (make_again(template, damage, &err) < 0) {
		template->problem = err;
		vm_template_settled(template);
	}
}

int vm_template_get(struct vm_engine *engine, const char *image, const char *image_key,
	uint64_t ram_bytes, unsigned cpus, struct template **ret, struct err *err)
{
	_cleanup_free_ char *name = name_of(engine, image_key, ram_bytes, cpus);
	struct template *template = find(engine, name);
	struct err damage = ERR_INIT;

	*ret = template;
	if (template && !template->image)
		template->image = xstrdup(image);
	if (template && (template->build || template->checking))
		return 0;
	if (template && template->ready && check_files(template, &damage) == 0)
		return 0;
	if (!template) {
		*ret = template = add(engine, steal_ptr(&name));
		template->manifest = (struct vm_manifest){ .key = xstrdup(engine->key),
			.image_key = xstrdup(image_key),
			.ram_bytes = ram_bytes,
			.cpus = cpus,
			.disk_bytes = VM_DISK_DEFAULT,
			.tsc_khz = engine->tsc_khz };
	}
	free(template->image);
	template->image = xstrdup(image);
	return make_again(template, damage.kind ? &damage : NULL, err);
}

/* Its memory is checked in the background. One with another key belongs to a QEMU or kernel that
 * no longer exists. */
static void load(struct vm_engine *engine, int folder, const char *name)
{
	_cleanup_close_ int dir =
		openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct template *template = add(engine, xstrdup(name));
	struct err err = ERR_INIT;

	if (dir >= 0 && vm_manifest_read(dir, &template->manifest, &err) == 0 &&
		!strcmp(template->manifest.key, engine->key) && check_files(template, &err) == 0) {
		template->checking = true;
		ram_store_hold(engine->ram, (const char *const *)template->manifest.stack);
		ram_store_verify(engine->ram, (const char *const *)template->manifest.stack,
			on_checked, template);
		return;
	}
	if (err.kind)
		log_warn("a template of VMs is damaged", kv_str("template", name), kv_err(&err));
	remove_files(template);
	engine->templates = template->next;
	vm_manifest_done(&template->manifest);
	free(template->name);
	free(template);
}

void vm_templates_load(struct vm_engine *engine)
{
	_cleanup_free_ char *path = xasprintf("%s/vm/templates", engine->home);
	DIR *folder = opendir(path);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.')
			load(engine, dirfd(folder), entry->d_name);
	if (folder)
		closedir(folder);
}

void vm_templates_close(struct vm_engine *engine)
{
	while (engine->templates) {
		struct template *template = engine->templates;

		engine->templates = template->next;
		if (template->build)
			build_free(template->build);
		ram_store_forget(engine->ram, template);
		vm_manifest_done(&template->manifest);
		free(template->name);
		free(template->image);
		free(template);
	}
}

size_t vm_templates_count(const struct vm_engine *engine)
{
	size_t count = 0;

	for (const struct template *template = engine->templates; template;
		template = template->next)
		count += template->ready;
	return count;
}
