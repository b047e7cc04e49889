/* start.c - starts an instance: from a template, from a captured state, or by a boot from its
 * own disk
 *
 *   take a waiting QEMU ─► cgroups, mark ─► map layers ─► load devices ─► attach disks ─► continue
 *   start a QEMU ────────► cgroups, mark ─► empty memory ───────────────────────────────► continue
 *
 * Then box-init is told who it is (life.c); before that nobody is served. A taken QEMU ends with
 * the daemon until its mark is written, so nothing outlives a crash unrecorded. A new box is a
 * copy of a template, which is booted when the first box needs it; a box that already has a disk
 * boots from it, because a template's memory belongs to another disk. */
#include "engine/vm/vm_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "engine/vm/devices.h"
#include "engine/vm/disk.h"
#include "engine/vm/kernel.h"
#include "engine/vm/members.h"
#include "engine/vm/ram.h"
#include "loop/loop.h"
#include "net/doors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A state younger than this was just written by us: it is not read again to check it. */
enum { FRESH_US = 10 * 1000 * 1000 };

/* Writes the mark of a QEMU that becomes this instance. */
static int keep_mark(struct vm_instance *instance, struct err *err)
{
	struct vm_engine *engine = vm_engine_by(instance);
	struct qemu_mark mark = qemu_get_mark(instance->qemu);
	_cleanup_close_ int dir = open(instance->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)engine;
	instance->base.mark.pid = mark.pid;
	instance->base.mark.start_time = mark.start_time;
	if (dir < 0)
		return err_sys(err, errno, "open '%s'", instance->dir);
	return vm_manifest_write(dir, &instance->manifest, err);
}

static bool failed(struct vm_instance *instance, const struct err *err, const char *what)
{
	struct err why;

	if (!err)
		return false;
	why = *err;
	err_wrap(&why, "%s", what);
	vm_fail(instance, &why);
	return true;
}

/* ---- the steps, last one first -------------------------------------------------------------- */

static void on_continued(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	(void)qemu;
	if (failed(instance, err, "let the VM run"))
		return;
	vm_step(instance, "runs");
	if (instance->state == VM_STARTING)
		vm_open_control(instance);
}

static void on_kept(const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;
	const struct instance_ops *events = instance->base.events;

	if (failed(instance, err, "its memory"))
		return;
	if (instance->restored && events->on_going)
		events->on_going(&instance->base, instance->base.arg);
	qemu_cont(instance->qemu, on_continued, instance);
}

/* It is complete, and in its cgroups: from here on it outlives the daemon. */
static void when_whole(struct vm_instance *instance)
{
	const struct instance_ops *events = instance->base.events;
	struct err err = ERR_INIT;

	if (!instance->moved || !instance->whole)
		return;
	if (keep_mark(instance, &err) < 0) {
		vm_fail(instance, &err);
		return;
	}
	if (events->on_marked)
		events->on_marked(&instance->base, instance->base.arg);
	ram_link_keep(instance->ram, on_kept, instance);
}

static void on_resized(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	(void)qemu;
	if (failed(instance, err, "the size of its disk"))
		return;
	instance->whole = true;
	when_whole(instance);
}

static void on_attached(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;
	uint64_t wanted = vm_disk_bytes(&instance->limits);

	if (failed(instance, err, "attach its disks"))
		return;
	vm_step(instance, "disks attached");
	if (wanted > instance->manifest.disk_bytes) {
		instance->manifest.disk_bytes = wanted;
		instance->grown = true;
		qemu_resize(qemu, wanted, on_resized, instance);
		return;
	}
	instance->whole = true;
	when_whole(instance);
}

/* A truncated disk would be read and written past its end. */
static int check_disk(int fd, uint64_t bytes, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(err, errno, "look at the disk");
	if ((uint64_t)st.st_size >= bytes)
		return 0;
	return err_set(err, ERR_PROTOCOL, "its disk is damaged: it has %lld of %llu bytes",
		(long long)st.st_size, (unsigned long long)bytes);
}

static void on_loaded(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;
	_cleanup_close_ int image = -1;
	struct err why = ERR_INIT;

	if (failed(instance, err, "load the state of its devices"))
		return;
	vm_step(instance, "devices loaded");
	if (vm_disk_open(instance->disk, &instance->disk_fd, &why) < 0 ||
		check_disk(instance->disk_fd, instance->manifest.disk_bytes, &why) < 0 ||
		vm_image_open(instance->image, &image, &why) < 0) {
		vm_fail(instance, &why);
		return;
	}
	if (vm_disk_bytes(&instance->limits) > instance->manifest.disk_bytes &&
		vm_disk_grow(instance->disk_fd, vm_disk_bytes(&instance->limits), &why) < 0) {
		vm_fail(instance, &why);
		return;
	}
	qemu_attach(qemu, image, instance->disk_fd, on_attached, instance);
}

static void on_mapped(const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	if (failed(instance, err, "its memory"))
		return;
	vm_step(instance, "memory mapped");
	if (instance->devices >= 0) {
		qemu_load(instance->qemu, instance->devices, on_loaded, instance);
		return;
	}
	instance->whole = true;
	when_whole(instance);
}

static void map(struct vm_instance *instance)
{
	static const char *const empty[] = { NULL };
	const char *const *stack = (const char *const *)instance->manifest.stack;

	ram_link_map(instance->ram, vm_engine_by(instance)->ram, stack ? stack : empty, on_mapped,
		instance);
}

/* ---- a waiting QEMU ------------------------------------------------------------------------- */

static void on_moved(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	(void)qemu;
	if (failed(instance, err, "its cgroup"))
		return;
	vm_step(instance, "in its groups");
	instance->moved = true;
	when_whole(instance);
}

static void on_taken(const struct member *member, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;
	struct vm_engine *engine = vm_engine_by(instance);
	struct err why = ERR_INIT;

	instance->take = NULL;
	if (failed(instance, err, "start QEMU"))
		return;
	vm_step(instance, "QEMU taken");
	instance->qemu = member->qemu;
	qemu_set_ops(member->qemu, &vm_qemu_ops, instance);
	instance->base.mark.pid = qemu_get_mark(member->qemu).pid;
	if (member->netns >= 0)
		close(member->netns); /* QEMU is in it */
	vm_take_ram(instance, member->ram);
	qemu_remove_dir(instance->dir); /* left by a dead daemon */
	if (qemu_rename(instance->qemu, instance->dir, &why) < 0) {
		vm_fail(instance, &why);
		return;
	}
	qemu_move(instance->qemu, engine->cgroups, instance->group, on_moved, instance);
	map(instance);
}

static void take(struct vm_instance *instance)
{
	struct vm_engine *engine = vm_engine_by(instance);
	struct qemu_machine machine =
		vm_machine(engine, instance->manifest.ram_bytes, instance->manifest.cpus);

	members_take(engine->members, &machine, on_taken, instance, &instance->take);
}

static void on_verified(const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	if (!failed(instance, err, "its memory"))
		take(instance);
}

/* ---- from a template ------------------------------------------------------------------------ */

static int copy_template(struct vm_instance *instance, struct err *err)
{
	struct template *template = instance->template;
	_cleanup_free_ char *disk = vm_template_disk(template);

	vm_manifest_copy(&instance->manifest, &template->manifest);
	random_bytes(instance->manifest.generation, sizeof instance->manifest.generation);
	*instance->manifest.devices = '\0';
	ram_store_hold(vm_engine_by(instance)->ram, (const char *const *)instance->manifest.stack);
	if (vm_template_open_devices(template, &instance->devices, err) < 0)
		return -1;
	return vm_disk_clone(disk, instance->disk, err);
}

static void use_template(struct vm_instance *instance)
{
	struct err err = ERR_INIT;

	instance->waits_for_template = false;
	if (instance->template->problem.kind)
		err = instance->template->problem;
	if (err.kind || copy_template(instance, &err) < 0) {
		vm_fail(instance, &err);
		return;
	}
	take(instance);
}

void vm_template_settled(struct template *template)
{
	for (struct vm_instance *i = template->engine->first, *next; i; i = next) {
		next = i->next;
		if (i->waits_for_template && i->template == template)
			use_template(i);
	}
}

/* ---- a boot --------------------------------------------------------------------------------- */

static void on_booted_qemu(struct qemu *qemu, void *arg)
{
	struct vm_instance *instance = arg;
	struct err err = ERR_INIT;

	instance->base.mark.pid = qemu_get_mark(qemu).pid;
	instance->moved = true; /* started in its cgroups */
	if (vm_open_links(instance, &err) < 0)
		vm_fail(instance, &err);
	else
		map(instance);
}

static void on_boot_ended(struct qemu *qemu, const struct qemu_end *end, void *arg)
{
	vm_qemu_ops.on_ended(qemu, end, arg);
}

static void on_boot_disk_error(struct qemu *qemu, const char *reason, void *arg)
{
	vm_qemu_ops.on_disk_error(qemu, reason, arg);
}

static int boot(struct vm_instance *instance, struct err *err)
{
	static const struct qemu_ops ops = { .on_ready = on_booted_qemu,
		.on_disk_error = on_boot_disk_error,
		.on_ended = on_boot_ended };
	struct vm_engine *engine = vm_engine_by(instance);
	_cleanup_free_ char *cmdline =
		vm_kernel_cmdline(engine->kernel, engine->kvm, engine->tsc_khz);
	_cleanup_close_ int image = -1, netns = -1, tap = -1, v2 = -1;
	struct qemu_machine machine =
		vm_machine(engine, instance->manifest.ram_bytes, instance->manifest.cpus);
	struct cgroup_join join = { .count = 0 };
	struct qemu_spec spec = { .machine = &machine,
		.dir = instance->dir,
		.kernel = vm_kernel_get_image(engine->kernel),
		.initrd = vm_kernel_get_initrd(engine->kernel),
		.cmdline = cmdline,
		.preload = engine->preload,
		.join = &join };
	int status;

	if (vm_image_open(instance->image, &image, err) < 0 ||
		vm_disk_open(instance->disk, &instance->disk_fd, err) < 0 ||
		vm_disk_grow(instance->disk_fd, vm_disk_bytes(&instance->limits), err) < 0 ||
		doors_make_vm(engine->doors, &netns, &tap, err) < 0)
		return -1;
	if (cgroup_open_v2(engine->cgroups, instance->group, &v2, err) < 0 ||
		cgroup_join_open(engine->cgroups, instance->group, &join, err) < 0)
		return -1;
	instance->manifest.disk_bytes = vm_disk_bytes(&instance->limits);
	instance->grown = true; /* perhaps: the guest looks */
	spec.image = image;
	spec.disk = instance->disk_fd;
	spec.netns = netns;
	spec.tap = tap;
	spec.cgroup = v2;
	qemu_remove_dir(instance->dir);
	status = qemu_spawn(engine->loop, &spec, &ops, instance, &instance->qemu, err);
	cgroup_join_done(&join);
	return status;
}

/* ---- the start ------------------------------------------------------------------------------ */

static void start_too_long(void *arg)
{
	struct vm_instance *instance = arg;
	struct vm_engine *engine = vm_engine_by(instance);
	struct err err = ERR_INIT, why = ERR_INIT;

	err_set(&err, ERR_TIMEOUT, "the box did not come up within %lld s",
		(long long)(clock_mono_us() - instance->began_at) / 1000000);
	if (instance->boots && engine->kvm && vm_give_up_kvm(engine, &err, &why) == 0)
		err_hint(&err, "KVM does not work here: start the box again, it is emulated then");
	vm_fail(instance, &err);
}

static int check_state(
	const struct vm_instance *instance, const struct instance_spec *spec, struct err *err)
{
	const struct vm_engine *engine = vm_engine_by(instance);

	if (!strcmp(instance->manifest.key, engine->key) &&
		!strcmp(instance->manifest.image_key, spec->vm.image_key))
		return 0;
	err_set(err, ERR_UNSUPPORTED,
		"its memory was captured with another version of QEMU, the kernel or the image");
	return err_hint(err, "the processes in it are lost, the disk is not: start from the disk");
}

static int let_time_pass(struct vm_instance *instance, struct err *err)
{
	int64_t passed = clock_wall_us() - (int64_t)instance->manifest.captured_us;
	int changed;

	if (passed <= 0)
		return 0;
	if (vm_devices_let_time_pass(instance->devices, (uint64_t)passed,
		    instance->manifest.tsc_khz, &changed, err) < 0)
		return -1;
	close(instance->devices);
	instance->devices = changed;
	return 0;
}

static int open_state(
	struct vm_instance *instance, const struct instance_spec *spec, struct err *err)
{
	int dir = spec->state->dir;
	int64_t age;

	if (vm_manifest_read(dir, &instance->manifest, err) < 0)
		return -1;
	ram_store_hold(vm_engine_by(instance)->ram, (const char *const *)instance->manifest.stack);
	if (check_state(instance, spec, err) < 0)
		return -1;
	instance->devices = openat(dir, VM_DEVICES, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (instance->devices < 0)
		return err_sys(err, errno, "open '" VM_DEVICES "'");
	if (vm_devices_check(dir, &instance->manifest, err) < 0)
		return -1;
	*instance->manifest.devices = '\0';
	random_bytes(instance->manifest.generation, sizeof instance->manifest.generation);
	instance->manifest.told = false;
	age = clock_wall_us() - (int64_t)instance->manifest.captured_us;
	if (spec->state->time_passes && let_time_pass(instance, err) < 0)
		return -1;
	if (age >= 0 && age < FRESH_US)
		take(instance);
	else
		ram_store_verify(vm_engine_by(instance)->ram,
			(const char *const *)instance->manifest.stack, on_verified, instance);
	return 0;
}

static int open_template(
	struct vm_instance *instance, const struct instance_spec *spec, struct err *err)
{
	struct vm_engine *engine = vm_engine_by(instance);

	if (vm_template_get(engine, spec->vm.image, spec->vm.image_key, vm_ram_of(&spec->limits),
		    vm_cpus_of(engine, &spec->limits), &instance->template, err) < 0)
		return -1;
	instance->waits_for_template = true;
	return 0;
}

static void use_ready_template(void *arg)
{
	use_template(arg);
}

static int begin(struct vm_instance *instance, const struct instance_spec *spec, struct err *err)
{
	struct vm_engine *engine = vm_engine_by(instance);
	struct instance_spec grouped = *spec;

	if (spec->state) {
		instance->restored = true;
		instance->kind = CONTROL_SAME;
		if (open_state(instance, spec, err) < 0)
			return -1;
	} else if (vm_disk_exists(spec->disk)) {
		instance->boots = true;
		instance->kind = CONTROL_START;
		instance->manifest = (struct vm_manifest){ .key = xstrdup(engine->key),
			.image_key = xstrdup(spec->vm.image_key),
			.ram_bytes = vm_ram_of(&spec->limits),
			.cpus = vm_cpus_of(engine, &spec->limits),
			.tsc_khz = engine->tsc_khz };
		random_bytes(instance->manifest.generation, sizeof instance->manifest.generation);
	} else {
		instance->kind = CONTROL_NEW;
		if (open_template(instance, spec, err) < 0)
			return -1;
	}
	grouped.limits.memory_bytes = vm_memory_of(engine,
		instance->manifest.ram_bytes ? instance->manifest.ram_bytes
					     : vm_ram_of(&spec->limits),
		vm_cpus_of(engine, &spec->limits));
	grouped.limits.pids = VM_PIDS;
	return groups_make(engine->groups, &grouped, err);
}

static void tell_waiting(void *arg)
{
	struct vm_instance *instance = arg;

	if (instance->base.events->on_waiting)
		instance->base.events->on_waiting(&instance->base,
			"the template of this image and size is booted once", instance->base.arg);
}

int vm_start(struct engine *base, const struct instance_spec *spec, const struct instance_ops *ops,
	void *arg, struct instance **ret, struct err *err)
{
	struct vm_engine *engine = vm_engine_of(base);
	struct vm_instance *instance;

	if (spec->mount_count) {
		err_set(err, ERR_UNSUPPORTED, "boxes of the driver 'vm' have no mounts");
		return err_hint(err, "copy files with 'box cp', or use '--driver ns'");
	}
	if (strlen(spec->hostname) > CONTROL_NAME_MAX)
		return err_set(err, ERR_INVALID, "host name '%.80s' is too long", spec->hostname);
	instance = vm_instance_new(engine, spec, ops, arg);
	instance->image = xstrdup(spec->vm.image);
	instance->disk = xstrdup(spec->disk);
	instance->timer = loop_timer_new(engine->loop, start_too_long, instance);
	if (begin(instance, spec, err) < 0 || (instance->boots && boot(instance, err) < 0)) {
		cgroup_remove(engine->cgroups, instance->group, NULL);
		vm_free(&instance->base);
		return err_wrap(err, "start box '%s'", spec->id);
	}
	loop_timer_start(instance->timer, instance->restored ? VM_START_MS
					  : instance->boots  ? (uint64_t)vm_boot_ms(engine)
							     : VM_BOOT_MS);
	if (instance->waits_for_template && instance->template->ready)
		loop_defer(engine->loop, use_ready_template, instance);
	else if (instance->waits_for_template && instance->template->build)
		loop_defer(engine->loop, tell_waiting, instance);
	*ret = &instance->base;
	return 0;
}

void vm_start_forget(struct vm_instance *instance)
{
	struct vm_engine *engine = vm_engine_by(instance);

	members_cancel(steal_ptr(&instance->take));
	ram_store_forget(engine->ram, instance);
	loop_undefer(engine->loop, use_ready_template, instance);
	loop_undefer(engine->loop, tell_waiting, instance);
	instance->waits_for_template = false;
}

void vm_look_at_state(struct engine *base, int dir, struct instance_state_facts *ret)
{
	struct vm_engine *engine = vm_engine_of(base);
	struct vm_manifest manifest = { 0 };

	*ret = (struct instance_state_facts){ 0 };
	if (vm_manifest_read(dir, &manifest, NULL) < 0)
		return;
	for (char **layer = manifest.stack; layer && *layer; layer++)
		ret->memory_bytes += ram_store_bytes(engine->ram, *layer);
	vm_manifest_done(&manifest);
}
