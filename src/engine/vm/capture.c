/* capture.c - captures an instance: its memory as one more layer, and the state of its devices
 *
 *   passes over written pages, guest runs ─► programs stopped ─► stop ─┬─► last pass
 *                                                                     ├─► device state
 *                                                                     └─► on_rest: disk, by core
 *   ... after all three ─► its memory is mapped from the layers ─► guest and programs continue
 *                                                                              ─► on_taken
 *
 * box-init stops the programs before the guest is stopped, so that no program runs in a copy
 * before the copy has randomness of its own. A suspended VM is resumed for that moment, and then
 * suspended again with its programs stopped until it is woken. */
#include "engine/vm/vm_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "engine/vm/disk.h"
#include "engine/vm/ram.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

struct vm_capture {
	struct capture base;
	struct vm_instance *instance;
	int dir, shared;
	bool was_frozen, stay_frozen;
	struct ram_pass *pass;
	char **stack; /* with the new layer; held */
	/* Finished steps. */
	bool stopped, devices_saved, passed, copied, mapping, done;
	unsigned pending; /* answers that are still expected */
	bool gone;	  /* cancelled; freed with the last answer */
	int64_t stopped_at, went_on_at;
	struct err err;
};

static struct vm_capture *capture_of(struct capture *base)
{
	return (struct vm_capture *)base;
}

static struct capture_result result_of(const struct vm_capture *capture)
{
	int64_t end = capture->went_on_at ? capture->went_on_at : clock_mono_us();

	return (struct capture_result){
		.paused_us = capture->stopped_at ? (uint64_t)(end - capture->stopped_at) : 0,
		.processes = capture->instance->stats.last.processes,
		.log = "",
	};
}

static void release(struct vm_capture *capture)
{
	struct vm_instance *instance = capture->instance;

	if (instance->capture == capture)
		instance->capture = NULL;
	ram_pass_free(capture->pass);
	if (capture->stack) {
		ram_store_release(vm_engine_by(instance)->ram, (const char *const *)capture->stack);
		strv_free(capture->stack);
	}
	if (capture->dir >= 0)
		close(capture->dir);
	if (capture->shared >= 0)
		close(capture->shared);
	free(capture);
}

/* An answer has come. False: nobody waits for it any more. */
static bool answered(struct vm_capture *capture)
{
	capture->pending--;
	if (!capture->gone)
		return true;
	if (!capture->pending)
		release(capture);
	return false;
}

/* ---- continuing the guest ------------------------------------------------------------------- */

static void on_let_go(const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	if (err)
		log_warn("programs of a VM may stand still", kv_str("box", instance->id),
			kv_err(err));
}

void vm_let_go(struct vm_instance *instance)
{
	if (instance->stopped)
		qemu_cont(instance->qemu, NULL, NULL);
	instance->stopped = false;
	if (instance->held && instance->control)
		control_hold(instance->control, false, on_let_go, instance);
	instance->held = false;
}

static void suspend_again(struct vm_instance *instance)
{
	struct err err = ERR_INIT;

	if (vm_freeze(&instance->base, true, &err) < 0)
		log_warn("a VM cannot be suspended again", kv_str("box", instance->id),
			kv_err(&err));
}

static void tell_done(void *arg)
{
	struct vm_capture *capture = arg;
	struct capture_result result = result_of(capture);
	struct err err = capture->err;

	capture->done = true;
	capture->base.events->on_done(
		&capture->base, &result, err.kind ? &err : NULL, capture->base.arg);
}

static void end(struct vm_capture *capture)
{
	struct vm_instance *instance = capture->instance;
	struct capture_result result;

	if (!capture->went_on_at)
		capture->went_on_at = clock_mono_us();
	loop_defer(vm_engine_by(instance)->loop, tell_done, capture);
	result = result_of(capture);
	if (!capture->err.kind && capture->base.events->on_taken)
		capture->base.events->on_taken(&capture->base, &result, capture->base.arg);
}

static void on_continued(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_capture *capture = arg;
	struct vm_instance *instance = capture->instance;

	(void)qemu;
	if (!answered(capture))
		return;
	capture->went_on_at = clock_mono_us();
	instance->stopped = false;
	if (err)
		log_error("a VM stays stopped", kv_str("box", instance->id), kv_err(err));
	if (capture->was_frozen)
		suspend_again(instance);
	else
		vm_let_go(instance);
	end(capture);
}

/* Continues the guest, or leaves it stopped if that was requested and all succeeded. */
static void go_on(struct vm_capture *capture)
{
	struct vm_instance *instance = capture->instance;

	if (!instance->qemu) {
		end(capture);
		return;
	}
	if (capture->stay_frozen && !capture->err.kind && instance->stopped) {
		suspend_again(instance);
		end(capture);
		return;
	}
	if (!instance->stopped) {
		if (capture->was_frozen)
			suspend_again(instance);
		else
			vm_let_go(instance);
		end(capture);
		return;
	}
	capture->pending++;
	qemu_cont(instance->qemu, on_continued, capture);
}

static void give_up(struct vm_capture *capture, const struct err *err, const char *what)
{
	if (capture->err.kind)
		return;
	capture->err = *err;
	err_wrap(&capture->err, "%s", what);
	ram_pass_free(steal_ptr(&capture->pass));
	go_on(capture);
}

/* ---- everything is written ------------------------------------------------------------------ */

static int link_layers(struct vm_capture *capture, struct err *err)
{
	const struct vm_engine *engine = vm_engine_by(capture->instance);

	for (char **layer = capture->stack; layer && *layer; layer++)
		for (int i = 0; i < 2; i++) {
			_cleanup_free_ char *name = xasprintf("%s%s", *layer, i ? ".map" : "");
			_cleanup_free_ char *path = xasprintf("%s/memory/%s", engine->home, name);

			if (linkat(AT_FDCWD, path, capture->shared, name, 0) < 0)
				return err_sys(err, errno, "link the layer '%s'", name);
		}
	return 0;
}

/* Before it goes on: a daemon that adopts it must know of all layers it has mapped, for what is in
 * them is not written to any later one. */
static int write_own(struct vm_capture *capture, struct err *err)
{
	struct vm_instance *instance = capture->instance;
	_cleanup_close_ int own = open(instance->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (own < 0)
		return err_sys(err, errno, "open '%s'", instance->dir);
	return vm_manifest_write(own, &instance->manifest, err);
}

static int write_files(struct vm_capture *capture, struct err *err)
{
	struct vm_manifest manifest = capture->instance->manifest;

	if (link_layers(capture, err) < 0)
		return -1;
	manifest.told = false;
	manifest.captured_us = (uint64_t)clock_wall_us();
	if (vm_devices_digest(capture->dir, manifest.devices, err) < 0)
		return -1;
	return vm_manifest_write(capture->dir, &manifest, err);
}

static void on_merged(char **stack, const struct err *err, void *arg)
{
	struct vm_instance *instance = arg;

	instance->merging = false;
	if (err) {
		log_warn("layers of memory are not merged", kv_str("box", instance->id),
			kv_err(err));
		return;
	}
	/* Captured again meanwhile: there are more layers now. */
	if (instance->capture ||
		strv_len((const char *const *)instance->manifest.stack) != instance->merge_of) {
		ram_store_release(vm_engine_by(instance)->ram, (const char *const *)stack);
		strv_free(stack);
		return;
	}
	vm_set_stack(instance, stack);
}

static void merge(struct vm_instance *instance)
{
	struct ram_store *ram = vm_engine_by(instance)->ram;
	const char *const *stack = (const char *const *)instance->manifest.stack;

	if (instance->merging || !ram_store_wants_merge(ram, stack))
		return;
	instance->merging = true;
	instance->merge_of = strv_len(stack);
	ram_store_merge(ram, stack, on_merged, instance);
}

static void on_mapped(const struct err *err, void *arg)
{
	struct vm_capture *capture = arg;
	struct vm_instance *instance = capture->instance;
	struct err why = ERR_INIT;
	bool goes_on;

	if (!answered(capture))
		return;
	if (err) {
		give_up(capture, err, "its memory");
		return;
	}
	/* The instance has a hold of its own. */
	ram_store_hold(vm_engine_by(instance)->ram, (const char *const *)capture->stack);
	vm_set_stack(instance, strv_copy((const char *const *)capture->stack));
	if (write_own(capture, &why) < 0) {
		give_up(capture, &why, "write its state");
		return;
	}
	/* One that goes on does so while the rest is written. */
	goes_on = instance->qemu && instance->stopped && !capture->stay_frozen;
	if (goes_on)
		go_on(capture);
	if (write_files(capture, &why) < 0) {
		capture->err = why;
		err_wrap(&capture->err, "write its state");
	}
	if (!goes_on)
		go_on(capture);
	merge(instance);
}

static void when_all(struct vm_capture *capture)
{
	if (!capture->devices_saved || !capture->passed || !capture->copied || capture->err.kind ||
		capture->mapping)
		return;
	if (!capture->instance->ram) {
		struct err err = ERR_INIT;

		err_set(&err, ERR_UNAVAILABLE, "QEMU has ended");
		give_up(capture, &err, "its memory");
		return;
	}
	capture->mapping = true;
	capture->pending++;
	ram_link_add(capture->instance->ram, vm_engine_by(capture->instance)->ram,
		(const char *const *)capture->stack, on_mapped, capture);
}

/* ---- the guest is stopped ------------------------------------------------------------------- */

static void on_saved(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_capture *capture = arg;

	(void)qemu;
	if (!answered(capture))
		return;
	if (err) {
		give_up(capture, err, "the state of its devices");
		return;
	}
	capture->devices_saved = true;
	when_all(capture);
}

static void on_passed(struct ram_pass *pass, const struct ram_pass_result *result,
	const struct err *err, void *arg)
{
	struct vm_capture *capture = arg;

	if (err) {
		give_up(capture, err, "its memory");
		return;
	}
	capture->stack = strv_copy(result->stack);
	ram_pass_free(pass);
	capture->pass = NULL;
	capture->passed = true;
	when_all(capture);
}

static void on_pass_ready(struct ram_pass *pass, void *arg);

static int start_pass(struct vm_capture *capture, struct err *err)
{
	static const struct ram_pass_ops ops = { .on_ready = on_pass_ready, .on_done = on_passed };
	struct vm_instance *instance = capture->instance;
	struct ram_pass_spec spec = { .link = instance->ram,
		.pidfd = qemu_get_pidfd(instance->qemu),
		.disk = instance->disk_fd,
		.stack = (const char *const *)instance->manifest.stack };

	if (!instance->ram)
		return err_set(err, ERR_UNAVAILABLE, "QEMU has ended");
	qemu_prepare_save(instance->qemu, NULL, NULL);
	return ram_pass_start(
		vm_engine_by(instance)->ram, &spec, &ops, capture, &capture->pass, err);
}

static void on_stopped(struct qemu *qemu, const struct err *err, void *arg)
{
	struct vm_capture *capture = arg;
	struct vm_instance *instance = capture->instance;
	_cleanup_close_ int fd = -1;
	struct err why = ERR_INIT;

	instance->stopped = !err;
	/* Cancelled while it was being stopped: it continues. */
	if (!answered(capture) || capture->err.kind) {
		vm_let_go(instance);
		return;
	}
	if (err) {
		give_up(capture, err, "stop it");
		return;
	}
	capture->stopped = true;
	fd = openat(capture->dir, VM_DEVICES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		err_sys(&why, errno, "make '" VM_DEVICES "'");
	if (fd < 0 || (!capture->pass && start_pass(capture, &why) < 0)) {
		give_up(capture, &why, "write its state");
		return;
	}
	if (!capture->was_frozen)
		ram_pass_last(capture->pass);
	capture->pending++;
	qemu_save(qemu, fd, on_saved, capture);
	capture->base.events->on_rest(&capture->base, capture->base.arg);
}

static void on_held(const struct err *err, void *arg)
{
	struct vm_capture *capture = arg;
	struct vm_instance *instance = capture->instance;

	if (!answered(capture) || capture->err.kind)
		return;
	/* A guest that does not answer is captured too: a copy is not served before it was told
	 * who it is. */
	if (err)
		log_warn("programs of a VM are not held for a capture", kv_str("box", instance->id),
			kv_err(err));
	capture->pending++;
	qemu_stop(instance->qemu, on_stopped, capture);
}

static void hold(struct vm_capture *capture)
{
	struct vm_instance *instance = capture->instance;

	capture->stopped_at = clock_mono_us();
	capture->pending++;
	if (!instance->control || instance->held) {
		on_held(NULL, capture);
		return;
	}
	instance->held = true;
	control_hold(instance->control, true, on_held, capture);
}

static void on_pass_ready(struct ram_pass *pass, void *arg)
{
	struct vm_capture *capture = arg;

	if (capture->stopped)
		ram_pass_last(pass);
	else
		hold(capture);
}

/* ---- the table ------------------------------------------------------------------------------ */

static int begin(struct vm_capture *capture, struct err *err)
{
	struct vm_instance *instance = capture->instance;

	if (!instance->ram) {
		err_set(err, ERR_UNAVAILABLE, "the memory of the box cannot be reached");
		return -1;
	}
	if (!capture->was_frozen)
		return start_pass(capture, err);
	if (vm_freeze(&instance->base, false, err) < 0)
		return -1;
	hold(capture);
	return 0;
}

int vm_capture(struct instance *base, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err)
{
	struct vm_instance *instance = vm_instance_of(base);
	struct vm_capture *capture;

	if (instance->state != VM_RUNNING || !instance->qemu)
		return err_set(err, ERR_STATE, "the box is not running");
	if (instance->capture)
		return err_set(err, ERR_STATE, "the box is being captured");
	capture = xnew(struct vm_capture);
	capture->base = (struct capture){ .engine = base->engine, .events = ops, .arg = arg };
	capture->instance = instance;
	capture->was_frozen = spec->frozen;
	capture->stay_frozen = spec->stay_frozen;
	capture->dir = fcntl(spec->dir, F_DUPFD_CLOEXEC, 3);
	capture->shared = fcntl(spec->shared, F_DUPFD_CLOEXEC, 3);
	instance->capture = capture;
	if (capture->dir < 0 || capture->shared < 0) {
		err_sys(err, errno, "keep the folder of the state");
		release(capture);
		return -1;
	}
	if (begin(capture, err) < 0) {
		release(capture);
		return -1;
	}
	*ret = &capture->base;
	return 0;
}

int vm_capture_rest(struct instance *base, int dir, struct err *err)
{
	(void)base; /* what is not on the disk is in its memory */
	(void)dir;
	(void)err;
	return 0;
}

void vm_capture_go_on(struct capture *base, const struct err *why)
{
	struct vm_capture *capture = capture_of(base);

	capture->copied = true;
	if (why)
		give_up(capture, why, "its disk");
	else
		when_all(capture);
}

void vm_capture_free(struct capture *base)
{
	struct vm_capture *capture = capture_of(base);
	struct vm_instance *instance = capture->instance;

	loop_undefer(vm_engine_by(instance)->loop, tell_done, capture);
	ram_pass_free(steal_ptr(&capture->pass));
	if (!capture->done && !capture->went_on_at && instance->qemu) {
		vm_let_go(instance);
		if (capture->was_frozen && instance->state == VM_RUNNING)
			suspend_again(instance);
	}
	capture->gone = true;
	if (!capture->pending)
		release(capture);
}

void vm_capture_ram_lost(struct vm_instance *instance, const struct err *err)
{
	struct vm_capture *capture = instance->capture;

	if (!capture)
		return;
	if (capture->gone || capture->went_on_at || capture->done)
		ram_pass_free(steal_ptr(&capture->pass));
	else
		give_up(capture, err, "its memory");
}

void vm_capture_ended(struct vm_instance *instance)
{
	struct vm_capture *capture = instance->capture;

	if (!capture)
		return;
	capture->pending = 0; /* no more answers come */
	ram_pass_free(steal_ptr(&capture->pass));
	if (capture->gone)
		release(capture);
}
