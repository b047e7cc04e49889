/* life.c - the life of an instance
 *
 *   STARTING ── box-init was told who it is ──▶ RUNNING ── QEMU ended ──▶ ENDING ──▶ on_ended
 *       └────── a step failed, QEMU ended, or time-out ────────────────▶ ENDING ──▶ on_failed
 *
 * An instance is its QEMU process. ENDING lasts until its cgroups are removed, which the kernel
 * may refuse for a moment. A callback is always the last thing a function does, because it may
 * free the instance. */
#include "engine/vm/vm_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "engine/vm/disk.h"
#include "engine/vm/members.h"
#include "engine/vm/ram.h"
#include "loop/loop.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	REMOVE_RETRY_MS = 5,
	REMOVE_GIVE_UP_US = 5 * 1000 * 1000,
	KEEP_MS = 2000,
	DISK_AGAIN_MS = 500
};

struct vm_instance *vm_instance_new(struct vm_engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg)
{
	struct vm_instance *instance = xnew(struct vm_instance);

	instance->base = (struct instance){ .engine = &engine->base, .events = ops, .arg = arg };
	memcpy(instance->base.mark.boot, engine->boot, sizeof instance->base.mark.boot);
	instance->id = xstrdup(spec->id);
	instance->group = groups_id(spec);
	instance->dir = xasprintf("%s/%s", engine->dir, spec->id);
	/* A spare has no name yet, but the files with names in them are written already. */
	instance->hostname = xstrdup(*spec->hostname ? spec->hostname : spec->id);
	instance->limits = spec->limits;
	instance->began_at = clock_mono_us();
	instance->netns = instance->devices = instance->disk_fd = -1;
	instance->next = engine->first;
	if (engine->first)
		engine->first->prev = instance;
	engine->first = instance;
	return instance;
}

void vm_step(const struct vm_instance *instance, const char *step)
{
	log_debug("start of a VM", kv_str("box", instance->id), kv_str("step", step),
		kv_int("us", clock_mono_us() - instance->began_at));
}

void vm_set_stack(struct vm_instance *instance, char **stack)
{
	struct vm_engine *engine = vm_engine_by(instance);

	ram_store_release(engine->ram, (const char *const *)instance->manifest.stack);
	strv_free(instance->manifest.stack);
	instance->manifest.stack = stack;
	vm_keep_soon(engine);
}

void vm_keep_soon(struct vm_engine *engine)
{
	loop_timer_start(engine->keep_timer, KEEP_MS);
}

static void close_links(struct vm_instance *instance)
{
	loop_timer_free(steal_ptr(&instance->disk_timer));
	vm_capture_ended(instance);
	control_free(steal_ptr(&instance->control));
	vm_forget_questions(instance);
	ram_link_free(steal_ptr(&instance->ram));
	qemu_free(steal_ptr(&instance->qemu));
	if (instance->netns >= 0)
		close(instance->netns);
	if (instance->devices >= 0)
		close(instance->devices);
	if (instance->disk_fd >= 0)
		close(instance->disk_fd);
	instance->netns = instance->devices = instance->disk_fd = -1;
}

void vm_free(struct instance *base)
{
	struct vm_instance *instance = vm_instance_of(base);
	struct vm_engine *engine = vm_engine_by(instance);

	vm_start_forget(instance);
	*(instance->prev ? &instance->prev->next : &engine->first) = instance->next;
	if (instance->next)
		instance->next->prev = instance->prev;
	close_links(instance);
	loop_timer_free(instance->timer);
	vm_set_stack(instance, NULL);
	vm_manifest_done(&instance->manifest);
	free(instance->id);
	free(instance->group);
	free(instance->dir);
	free(instance->hostname);
	free(instance->image);
	free(instance->disk);
	free(instance);
}

/* ---- end ------------------------------------------------------------------------------------ */

static void clean_up(void *arg)
{
	struct vm_instance *instance = arg;
	struct vm_engine *engine = vm_engine_by(instance);
	const struct instance_ops *events = instance->base.events;
	struct err err = ERR_INIT, failure;

	if (cgroup_remove(engine->cgroups, instance->group, &err) < 0) {
		if (clock_mono_us() - instance->ended_at < REMOVE_GIVE_UP_US) {
			cgroup_kill(engine->cgroups, instance->group, NULL);
			loop_timer_start(instance->timer, REMOVE_RETRY_MS);
			return;
		}
		log_warn("cgroup is left behind", kv_str("box", instance->id), kv_err(&err));
	}
	qemu_remove_dir(instance->dir);
	failure = instance->failure;
	if (failure.kind)
		events->on_failed(&instance->base, &failure, instance->base.arg);
	else
		events->on_ended(
			&instance->base, instance->end, instance->detail, instance->base.arg);
}

static void begin_end(struct vm_instance *instance)
{
	struct vm_engine *engine = vm_engine_by(instance);

	instance->state = VM_ENDING;
	instance->ended_at = clock_mono_us();
	vm_start_forget(instance);
	if (instance->qemu)
		qemu_kill(instance->qemu);
	close_links(instance);
	loop_timer_free(instance->timer);
	instance->timer = loop_timer_new(engine->loop, clean_up, instance);
	cgroup_kill(engine->cgroups, instance->group, NULL);
	loop_timer_start(instance->timer, 0);
}

void vm_fail(struct vm_instance *instance, const struct err *why)
{
	if (instance->state == VM_ENDING)
		return;
	if (!instance->failure.kind)
		instance->failure = *why;
	if (instance->kill_asked)
		err_set(&instance->failure, ERR_CANCELLED, "killed while it was starting");
	begin_end(instance);
}

static void describe_end(struct vm_instance *instance, const struct qemu_end *end)
{
	char *out = instance->detail;
	size_t size = sizeof instance->detail;
	const char *line = strrchr(end->said, '\n');

	instance->end = INSTANCE_END_KILLED;
	if (instance->kill_asked || end->killed)
		snprintf(out, size, "killed");
	else if (end->why == QEMU_END_SHUTDOWN) {
		instance->end = INSTANCE_END_EXITED;
		snprintf(out, size, "shut down");
	} else if (end->why == QEMU_END_RESET) {
		instance->end = INSTANCE_END_EXITED;
		snprintf(out, size, "its kernel restarted the machine");
	} else if (end->why == QEMU_END_PANIC)
		snprintf(out, size, "its kernel panicked");
	else if (end->why == QEMU_END_SIGNALED && end->value == SIGKILL &&
		 cgroup_oom_kills(vm_engine_by(instance)->cgroups, instance->group)) {
		instance->end = INSTANCE_END_MEMORY;
		snprintf(out, size, "its QEMU was killed for memory");
	} else if (end->why == QEMU_END_SIGNALED && end->value == SIGBUS)
		snprintf(out, size, "a file of its memory was cut or cannot be read");
	else if (end->why == QEMU_END_SIGNALED)
		snprintf(out, size, "its QEMU was killed by signal %d", end->value);
	else if (end->why == QEMU_END_UNKNOWN) {
		instance->end = INSTANCE_END_UNKNOWN;
		snprintf(out, size, "it ended while nobody could look");
	} else
		snprintf(out, size, "its QEMU ended with code %d%s%.160s", end->value,
			*end->said ? ": " : "", line ? line + 1 : end->said);
}

static void on_qemu_ended(struct qemu *qemu, const struct qemu_end *end, void *arg)
{
	struct vm_instance *instance = arg;
	struct err err = ERR_INIT;

	(void)qemu;
	describe_end(instance, end);
	vm_capture_ended(instance);
	if (instance->state == VM_STARTING) {
		if (end->why == QEMU_END_FAILED)
			err = end->err;
		else
			err_set(&err, ERR_SYSTEM, "it ended while it was starting: %s%s%.200s",
				instance->detail, *end->console ? "; its console: " : "",
				end->console + (strlen(end->console) > 200
							       ? strlen(end->console) - 200
							       : 0));
		vm_fail(instance, &err);
		return;
	}
	begin_end(instance);
}

/* ---- start ---------------------------------------------------------------------------------- */

/* It was started, or adopted and connected to for the first time. */
static void on_qemu_status(
	struct qemu *qemu, enum qemu_status status, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	if (err) {
		log_warn("a VM does not say how it is", kv_str("box", instance->id), kv_err(err));
		return;
	}
	/* A daemon that died during a capture left it paused. */
	if (status == QEMU_PAUSED && !instance->capture)
		qemu_cont(qemu, NULL, NULL);
}

static void on_let_go(const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	if (err)
		log_warn("programs of a VM may stand still", kv_str("box", instance->id),
			kv_err(err));
}

static void on_qemu_ready(struct qemu *qemu, void *arg)
{
	struct vm_instance *instance = arg;
	struct err err = ERR_INIT;

	if (!instance->adopted)
		return; /* start.c goes on by itself */
	qemu_query_status(qemu, on_qemu_status, instance);
	if (!instance->ram && vm_open_links(instance, &err) < 0)
		log_warn("the memory of a VM cannot be reached", kv_str("box", instance->id),
			kv_err(&err));
	if (!instance->control)
		vm_open_control(instance);
	control_hold(instance->control, false, on_let_go, instance);
}

static void try_disk_again(void *arg)
{
	struct vm_instance *instance = arg;

	if (instance->qemu && !instance->capture && !instance->frozen)
		qemu_cont(instance->qemu, NULL, NULL);
	else
		loop_timer_start(instance->disk_timer, DISK_AGAIN_MS);
}

/* QEMU has stopped the guest and keeps the write: once there is room the guest notices nothing. */
static void on_disk_error(struct qemu *qemu, const char *reason, void *arg)
{
	struct vm_instance *instance = arg;

	(void)qemu;
	if (!instance->disk_timer) {
		instance->disk_timer =
			loop_timer_new(vm_engine_by(instance)->loop, try_disk_again, instance);
		log_error("a VM stands still until its disk can be written",
			kv_str("box", instance->id), kv_str("why", reason));
	}
	loop_timer_start(instance->disk_timer, DISK_AGAIN_MS);
}

const struct qemu_ops vm_qemu_ops = {
	.on_ready = on_qemu_ready, .on_disk_error = on_disk_error, .on_ended = on_qemu_ended
};

static void on_ram_lost(struct ram_link *link, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	vm_capture_ram_lost(instance, err);
	ram_link_free(link);
	instance->ram = NULL;
	if (!instance->kill_asked)
		log_warn("the memory of a VM cannot be reached", kv_str("box", instance->id),
			kv_err(err));
}

void vm_take_ram(struct vm_instance *instance, int fd)
{
	instance->ram = ram_link_new(vm_engine_by(instance)->loop, fd, instance->base.mark.pid,
		instance->manifest.ram_bytes, on_ram_lost, instance);
}

int vm_open_links(struct vm_instance *instance, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", instance->dir, QEMU_SOCKET_RAM);
	int fd;

	if (ram_connect(path, &fd, err) < 0)
		return -1;
	vm_take_ram(instance, fd);
	return 0;
}

void vm_open_control(struct vm_instance *instance)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", instance->dir, QEMU_SOCKET_CONTROL);
	struct control_spec spec = {
		.path = path,
		.boots = instance->boots && instance->state == VM_STARTING,
		.tell = { .kind = instance->kind ? instance->kind : CONTROL_SAME,
			.hostname = instance->hostname,
			.disk_bytes = instance->grown ? instance->manifest.disk_bytes : 0,
			.pids = instance->limits.pids },
	};

	memcpy(spec.tell.generation, instance->manifest.generation, sizeof spec.tell.generation);
	instance->control =
		control_new(vm_engine_by(instance)->loop, &spec, &vm_control_ops, instance);
}

/* From here on the next daemon may adopt it. */
static void keep_told(struct vm_instance *instance)
{
	_cleanup_close_ int dir = open(instance->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct err err = ERR_INIT;

	instance->manifest.told = true;
	if (dir < 0 || vm_manifest_write(dir, &instance->manifest, &err) < 0)
		log_warn("a VM cannot be adopted by a next daemon", kv_str("box", instance->id),
			kv_err(&err));
}

static void on_control_ready(struct control *control, void *arg)
{
	struct vm_instance *instance = arg;

	(void)control;
	/* Counts start from here. */
	if (instance->restored || instance->adopted)
		vm_ask_stats(instance);
	if (instance->state != VM_STARTING)
		return;
	vm_step(instance, "told");
	if (instance->boots)
		vm_prove_kvm(vm_engine_by(instance));
	keep_told(instance);
	instance->state = VM_RUNNING;
	loop_timer_free(steal_ptr(&instance->timer));
	instance->base.events->on_ready(&instance->base, instance->base.arg);
}

static void on_control_failed(struct control *control, const struct err *why, void *arg)
{
	struct vm_instance *instance = arg;
	struct err err = *why;

	control_free(control);
	instance->control = NULL;
	err_wrap(&err, "box-init of the VM");
	if (instance->state == VM_STARTING)
		vm_fail(instance, &err);
	else
		log_warn("a VM does not answer its driver", kv_str("box", instance->id),
			kv_err(&err));
}

static void on_control_limit(struct control *control, const struct control_stats *stats, void *arg)
{
	(void)control;
	vm_take_stats(arg, stats);
}

const struct control_ops vm_control_ops = {
	.on_ready = on_control_ready, .on_failed = on_control_failed, .on_limit = on_control_limit
};

/* ---- requests of the daemon ----------------------------------------------------------------- */

int vm_kill(struct instance *base, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);

	if (instance->state == VM_ENDING)
		return 0;
	instance->kill_asked = true;
	if (cgroup_kill(vm_engine_by(instance)->cgroups, instance->group, err) < 0)
		return -1;
	if (instance->qemu) {
		qemu_kill(instance->qemu);
		return 0;
	}
	/* There is no process yet. */
	err_set(&instance->failure, ERR_CANCELLED, "killed while it was starting");
	begin_end(instance);
	return 0;
}

/* Checks that the process is the QEMU of this box: same boot, same start time, in its cgroup. */
static int check_mark(struct vm_engine *engine, const struct instance_spec *spec,
	const struct instance_mark *mark, const char *group, struct err *err)
{
	uint64_t start_time;

	if (strcmp(mark->boot, engine->boot))
		return err_set(err, ERR_NOT_FOUND, "box '%s' ran before the machine was restarted",
			spec->id);
	if (mark->pid <= 1 || procstat_start_time(mark->pid, &start_time, NULL) < 0 ||
		start_time != mark->start_time)
		return err_set(err, ERR_NOT_FOUND, "box '%s' no longer runs", spec->id);
	if (!cgroup_holds(engine->cgroups, group, mark->pid))
		return err_set(err, ERR_NOT_FOUND, "process %d is not in the cgroup of box '%s'",
			(int)mark->pid, spec->id);
	return 0;
}

static int read_manifest(struct vm_instance *instance, struct err *err)
{
	_cleanup_close_ int dir = open(instance->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || vm_manifest_read(dir, &instance->manifest, err) < 0)
		return err_set(
			err, ERR_NOT_FOUND, "box '%s' never finished its start", instance->id);
	if (!instance->manifest.told)
		return err_set(
			err, ERR_NOT_FOUND, "box '%s' never finished its start", instance->id);
	ram_store_hold(vm_engine_by(instance)->ram, (const char *const *)instance->manifest.stack);
	return 0;
}

int vm_adopt(struct engine *base, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err)
{
	struct vm_engine *engine = vm_engine_of(base);
	_cleanup_free_ char *group = groups_id(spec);
	const struct qemu_mark process = { mark->pid, mark->start_time };
	struct vm_instance *instance;

	if (check_mark(engine, spec, mark, group, err) < 0)
		return -1;
	instance = vm_instance_new(engine, spec, ops, arg);
	instance->base.mark = *mark;
	instance->adopted = true;
	instance->state = VM_RUNNING;
	if (read_manifest(instance, err) < 0 ||
		qemu_adopt(engine->loop, instance->dir, &process, &vm_qemu_ops, instance,
			&instance->qemu, err) < 0) {
		vm_free(&instance->base);
		return -1;
	}
	/* A daemon that died during a rollback may have left the disk under another name.
	 * Without it a capture only takes longer. */
	if (spec->disk && vm_disk_open(spec->disk, &instance->disk_fd, NULL) < 0)
		log_info("the disk of a VM is not where it was", kv_str("box", instance->id));
	*ret = &instance->base;
	return 0;
}
