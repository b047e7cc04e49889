/* capture.c - writes the processes of an instance into files
 *
 * We freeze the instance's cgroup at a moment when no process is in a vfork (preflight.c). CRIU
 * seizes every process, reads it through code that it injects, and releases it, still frozen; then
 * we thaw it, unless it was frozen before. In between, when everything is written, the caller
 * copies the disk, and ns_capture_rest, in a helper, the memory file systems.
 *
 * The daemon's connection to box-init is no obstacle: our CRIU records it as hung up. In the
 * instance it lives on; an instance restored from the files finds it closed. */
#include "engine/ns/ns_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "engine/ns/criu/criu.h"
#include "loop/loop.h"
#include "sys/beneath.h"
#include "sys/mountfd.h"
#include "sys/pidns.h"
#include "sys/procfd.h"
#include "sys/procstat.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum {
	/* A hundred GB at a GB a second; CRIU's own time limit for processes that do not stop is
	 * shorter. */
	LIMIT_MS = 120 * 1000,
	SEIZE_SECONDS = 5,
	SPARE_FIRST_MS = 10, /* the daemon starts up first */
	SPARE_MS = 30,	     /* the caller of a capture has work to do first */
	PIDS_MOST = 65536,
	WORK_CPU_MILLI = 500,
	FREEZE_US = 1000 * 1000, /* for all processes to leave their system calls */
	LOOK_US = 5 * 1000,	 /* the loop blocks this long at a time for it */
	LOOK_AGAIN_MS = 5,
};

struct ns_capture {
	struct capture base;
	struct criu *criu;
	struct ns_instance *instance;
	bool was_frozen, stay_frozen, held, thawed;
	struct loop_timer *hold_timer;
	int64_t hold_until;
	bool freezing;	    /* requested, not complete yet */
	struct err refusal; /* what cannot be captured */
	bool written;	    /* all files are written */
	bool net_held;
	bool told;
	int64_t stopped_at, went_on_at;
	uint64_t processes;
	char *work; /* the cgroup that CRIU is in, or NULL */
};

static struct ns_capture *capture_of(struct capture *base)
{
	return (struct ns_capture *)base;
}

/* ---- the place CRIU works in ---------------------------------------------------------------- */

static int make_places(int scratch, struct err *err)
{
	char name[32];

	if (mkdirat(scratch, "m", 0755) < 0)
		return err_sys(err, errno, "make a folder for mounts");
	for (int i = 0; i <= EXTERNALS_MAX; i++) {
		snprintf(name, sizeof name, "m/%d", i);
		if (mkdirat(scratch, name, 0755) < 0)
			return err_sys(err, errno, "make a folder for mounts");
	}
	return 0;
}

/* Starts a CRIU that waits for the next capture. */
static void start_spare(void *arg)
{
	struct ns_engine *engine = arg;
	struct criu_request request = CRIU_REQUEST_INIT;
	struct err err = ERR_INIT;

	state_options(engine, &request);
	if (!engine->criu_spare && criu_spare_start(&request, &engine->criu_spare, &err) < 0)
		log_warn("cannot start a CRIU in advance", kv_err(&err));
}

/* Mounted in the daemon's own mount namespace; it ends with the daemon. */
int criu_open_scratch(struct ns_engine *engine, const char *run, struct err *err)
{
	static const struct mount_option options[] = { { "mode", "0755" }, { "size", "64m" },
		{ NULL, NULL } };
	_cleanup_free_ char *path = xasprintf("%s/criu", run);
	_cleanup_close_ int mount = -1, place = -1;

	if (dir_make_all(path, 0700, err) < 0)
		return -1;
	place = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (place < 0)
		return err_sys(err, errno, "open '%s'", path);
	if (mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &mount, err) < 0 ||
		mount_attach(mount, place, err) < 0 || make_places(mount, err) < 0)
		return err_wrap(err, "make a place for CRIU");
	engine->scratch = steal_fd(&mount);
	engine->scratch_path = steal_ptr(&path);
	engine->criu_timer = loop_timer_new(engine->loop, start_spare, engine);
	loop_timer_start(engine->criu_timer, SPARE_FIRST_MS);
	return 0;
}

void criu_close_scratch(struct ns_engine *engine)
{
	loop_timer_free(engine->criu_timer);
	criu_spare_free(engine->criu_spare);
	if (engine->scratch < 0)
		return;
	mount_take_off(engine->scratch);
	close(engine->scratch);
	rmdir(engine->scratch_path);
	free(engine->scratch_path);
}

/* ---- the steps ------------------------------------------------------------------------------ */

static struct capture_result result_of(const struct ns_capture *capture, const char *log)
{
	int64_t end = capture->went_on_at ? capture->went_on_at : clock_mono_us();

	return (struct capture_result){
		.paused_us = capture->stopped_at ? (uint64_t)(end - capture->stopped_at) : 0,
		.processes = capture->processes,
		.log = log,
	};
}

static void unlock_network(struct ns_capture *capture)
{
	struct ns_instance *instance = capture->instance;
	struct err err = ERR_INIT;

	if (!capture->net_held)
		return;
	capture->net_held = false;
	if (ns_net_hold(ns_engine_of(capture->base.engine), instance->base.mark.pid, false, &err) <
		0)
		log_error("the network of a box stays blocked", kv_str("box", instance->id),
			kv_err(&err));
}

static void thaw(struct ns_capture *capture, bool failed)
{
	struct ns_instance *instance = capture->instance;
	struct err err = ERR_INIT;

	/* When CRIU undoes its work, it continues stopped processes; stop them again. */
	for (size_t i = 0;
		failed && capture->held && !capture->thawed && i < instance->stopped_count; i++)
		if (cgroup_holds(ns_engine_of(capture->base.engine)->cgroups, instance->group,
			    instance->stopped[i]))
			kill(instance->stopped[i], SIGSTOP);
	unlock_network(capture);
	if (capture->thawed || !capture->held)
		return;
	capture->thawed = true;
	if (!capture->was_frozen && (failed || !capture->stay_frozen) &&
		cgroup_freeze(ns_engine_of(capture->base.engine)->cgroups, instance->group, false,
			&err) < 0)
		log_error("a box stays frozen", kv_str("box", instance->id), kv_err(&err));
	capture->went_on_at = clock_mono_us();
}

static void note_stopped(struct ns_instance *instance)
{
	struct ns_engine *engine = ns_engine_of(instance->base.engine);
	_cleanup_free_ pid_t *pids = xcalloc(PIDS_MOST, sizeof *pids);
	size_t count = cgroup_pids_below(engine->cgroups, instance->group, pids, PIDS_MOST);

	instance->stopped_count = 0;
	for (size_t i = 0; i < count; i++) {
		if (!procstat_is_stopped(pids[i]))
			continue;
		xgrow(instance->stopped, instance->stopped_count + 1);
		instance->stopped[instance->stopped_count++] = pids[i];
	}
}

/* Cancelled before the box was frozen. */
static void stop_holding(struct ns_capture *capture)
{
	if (capture->hold_timer)
		loop_timer_stop(capture->hold_timer);
	if (!capture->freezing)
		return;
	capture->freezing = false;
	if (!capture->was_frozen)
		cgroup_freeze(ns_engine_of(capture->base.engine)->cgroups, capture->instance->group,
			false, NULL);
}

/* A process may stay long in one system call, and the box chooses which: nobody blocks on it
 * here. */
static void hold_step(void *arg)
{
	struct ns_capture *capture = arg;
	struct ns_engine *engine = ns_engine_of(capture->base.engine);
	struct ns_instance *instance = capture->instance;
	struct err err = ERR_INIT;

	capture->freezing = true;
	if (cgroup_freeze_try(engine->cgroups, instance->group, LOOK_US, &err) == 0)
		capture->held = ns_hold(engine, instance->base.mark.pid, instance->group,
					capture->was_frozen, &err) == 0;
	if (!capture->held && err.kind == ERR_TIMEOUT && clock_mono_us() < capture->hold_until) {
		loop_timer_start(capture->hold_timer, LOOK_AGAIN_MS);
		return;
	}
	if (capture->held)
		capture->freezing = false;
	else
		stop_holding(capture);
	capture->refusal = err;
	criu_answer(capture->criu, capture->held, &capture->refusal);
}

/* Freezes the box only now, when CRIU is ready to seize the processes. */
static void hold(struct ns_capture *capture)
{
	note_stopped(capture->instance);
	capture->stopped_at = clock_mono_us();
	capture->hold_until = capture->stopped_at + FREEZE_US;
	capture->hold_timer =
		loop_timer_new(ns_engine_of(capture->base.engine)->loop, hold_step, capture);
	hold_step(capture);
}

/* Everything is frozen except the kernel, which would continue to move data between sockets. */
static void lock_network(struct ns_capture *capture)
{
	struct ns_instance *instance = capture->instance;
	struct err err = ERR_INIT;
	pid_t pid = instance->base.mark.pid;

	if (ns_has_connections(pid) &&
		ns_net_hold(ns_engine_of(capture->base.engine), pid, true, &err) == 0)
		capture->net_held = true;
	criu_answer(capture->criu, !err.kind, &err);
}

static void on_event(struct criu *criu, const struct criu_event *event, void *arg)
{
	struct ns_capture *capture = arg;

	if (event->kind == CRIU_NETWORK_UNLOCK)
		capture->written = true;
	if (event->kind == CRIU_PRE_DUMP)
		hold(capture);
	else if (event->kind == CRIU_NETWORK_LOCK)
		lock_network(capture);
	else if (event->kind == CRIU_POST_DUMP)
		capture->base.events->on_rest(&capture->base, capture->base.arg);
	else
		criu_answer(criu, true, NULL);
}

/* CRIU has released all processes. */
static void on_replied(struct criu *criu, void *arg)
{
	struct ns_capture *capture = arg;
	struct capture_result result;

	(void)criu;
	if (!capture->written)
		return;
	thaw(capture, false);
	result = result_of(capture, "");
	if (!capture->base.events->on_taken)
		return;
	capture->told = true;
	capture->base.events->on_taken(&capture->base, &result, capture->base.arg);
}

static void on_done(
	struct criu *criu, const struct criu_result *result, const struct err *err, void *arg)
{
	struct ns_capture *capture = arg;
	struct capture_result own;

	(void)criu;
	stop_holding(capture);
	thaw(capture, err->kind != ERR_NONE);
	own = result_of(capture, result->log);
	if (!err->kind && !capture->told && capture->base.events->on_taken)
		capture->base.events->on_taken(&capture->base, &own, capture->base.arg);
	capture->base.events->on_done(&capture->base, &own,
		capture->refusal.kind ? &capture->refusal
		: err->kind	      ? err
				      : NULL,
		capture->base.arg);
}

/* ---- CRIU's CPU time ------------------------------------------------------------------------ */

/* Charges CRIU's CPU time: a box with a CPU limit must not get more by having itself captured again
 * and again. Half a CPU is always allowed: in the kernel's period of a tenth of a second that is
 * fifty milliseconds without a stop, more than most captures take. A CRIU started ahead is in no
 * group, and moving it takes longer than starting one. */
static int bound_work(
	struct ns_capture *capture, struct cgroup_join *ret, int *ret_v2, struct err *err)
{
	struct ns_instance *instance = capture->instance;

	capture->work = xasprintf("%s" GROUPS_WORK_SUFFIX, instance->id);
	return cgroup_work_open(ns_engine_of(capture->base.engine)->cgroups, capture->work,
		MAX(instance->cpu_limit, (uint64_t)WORK_CPU_MILLI), ret, ret_v2, err);
}

static int enter_work(void *arg, struct err *err)
{
	return cgroup_join_enter(arg, err);
}

/* If CRIU is left to itself the group stays, and is removed after the next capture or with the
 * daemon. */
static void unbound_work(struct ns_capture *capture)
{
	if (capture->work)
		cgroup_remove(ns_engine_of(capture->base.engine)->cgroups, capture->work, NULL);
	free(steal_ptr(&capture->work));
}

static int run(struct ns_instance *instance, const struct capture_spec *spec,
	const struct state *state, struct ns_capture *capture, struct err *err)
{
	static const struct criu_ops ops = {
		.on_event = on_event, .on_replied = on_replied, .on_done = on_done
	};
	struct ns_engine *engine = ns_engine_of(instance->base.engine);
	_cleanup_free_ char *freezer = cgroup_freezer_path(engine->cgroups, instance->group);
	_cleanup_strv_ char **externals = state_externals(state, NULL);
	_cleanup_strv_ char **watched = state_watched(instance);
	struct criu_request request = CRIU_REQUEST_INIT;
	struct cgroup_join join = { .count = 0 };
	_cleanup_close_ int work = -1;
	int status;

	state_options(engine, &request);
	request.irmap_paths = (const char *const *)watched;
	if (instance->cpu_limit) {
		if (bound_work(capture, &join, &work, err) < 0)
			return -1;
		request.cgroup = work;
		request.prepare = enter_work;
		request.prepare_arg = &join;
	} else {
		request.spare = steal_ptr(&engine->criu_spare);
		loop_timer_start(engine->criu_timer, SPARE_MS);
	}
	request.images = spec->dir;
	request.pid = instance->base.mark.pid;
	request.leave_running = true;
	request.auto_dedup = spec->to_end; /* see scripts/criu-changes */
	request.freeze_cgroup = freezer;
	request.external = (const char *const *)externals;
	request.seize_seconds = SEIZE_SECONDS;
	request.limit_ms = spec->limit_ms ? spec->limit_ms : LIMIT_MS;
	status = criu_dump(engine->loop, &request, &ops, capture, &capture->criu, err);
	cgroup_join_done(&join);
	return status;
}

static int start(struct ns_instance *instance, const struct capture_spec *spec,
	struct ns_capture *capture, struct err *err)
{
	struct ns_engine *engine = ns_engine_of(capture->base.engine);
	struct cgroup_stats stats;
	struct state state;

	if (state_look(instance, spec->targets, &state, err) < 0 ||
		state_write(&state, spec->dir, err) < 0)
		return -1;
	if (cgroup_stats(engine->cgroups, instance->group, &stats, NULL) == 0)
		capture->processes = stats.processes;
	return run(instance, spec, &state, capture, err);
}

int ns_capture(struct instance *base, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);
	struct ns_capture *capture;

	if (instance->state != NS_RUNNING)
		return err_set(err, ERR_STATE, "the box is not running");
	capture = xnew(struct ns_capture);
	capture->base = (struct capture){ .engine = base->engine, .events = ops, .arg = arg };
	capture->instance = instance;
	capture->was_frozen = spec->frozen;
	capture->stay_frozen = spec->stay_frozen;
	if (start(instance, spec, capture, err) < 0) {
		unbound_work(capture);
		free(capture);
		return -1;
	}
	instance->capture = capture;
	*ret = &capture->base;
	return 0;
}

/* ---- copied while the box is frozen --------------------------------------------------------- */

static int save_tree(
	struct ns_instance *instance, const char *at, int dir, const char *name, struct err *err)
{
	_cleanup_close_ int tree = -1, out = -1;
	struct statfs fs;

	if (state_open_inside(instance, at, &tree, err) < 0)
		return err_wrap(err, "'%s' of the box", at);
	/* Root of a nested box may have mounted something else there, which we could read and the
	 * box could not. */
	if (fstatfs(tree, &fs) < 0 || fs.f_type != TMPFS_MAGIC)
		return err_set(err, ERR_STATE, "the box has mounted something else on '%s'", at);
	out = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return err_sys(err, errno, "make '%s'", name);
	if (tree_save(tree, instance->uid_base, out, err) < 0)
		return err_wrap(err, "'%s' of the box", at);
	return 0;
}

/* Restored processes get their old pids, which moves no counter: without this the next process
 * could get a pid that was used before, and a child one below its parent's. */
static int save_last_pid(struct ns_instance *instance, int dir, struct err *err)
{
	_cleanup_close_ int out = -1, init = -1; /* the helper has its own, not the instance's */
	char text[16];
	pid_t last;

	if (procfd_open(instance->base.mark.pid, &init, err) < 0 ||
		pidns_get_last(init, &last, err) < 0)
		return -1;
	snprintf(text, sizeof text, "%d\n", (int)last);
	out = openat(dir, STATE_LAST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return err_sys(err, errno, "make '" STATE_LAST "'");
	return fd_write_all(out, text, strlen(text), err);
}

int ns_capture_rest(struct instance *base, int dir, struct err *err)
{
	struct ns_instance *instance = ns_instance_of(base);

	if (save_last_pid(instance, dir, err) < 0 ||
		attributes_save(instance->base.mark.pid, dir, err) < 0)
		return -1;
	if (save_tree(instance, "/run", dir, STATE_RUN, err) < 0)
		return -1;
	return save_tree(instance, "/dev/shm", dir, STATE_SHM, err);
}

void ns_capture_go_on(struct capture *base, const struct err *failed)
{
	criu_answer(capture_of(base)->criu, !failed, failed);
}

void ns_capture_free(struct capture *base)
{
	struct ns_capture *capture = capture_of(base);

	capture->instance->capture = NULL;
	/* CRIU is not killed: that could end a process that has its code in it. It undoes its work,
	 * and finds the group frozen. */
	criu_abandon(capture->criu);
	stop_holding(capture);
	thaw(capture, true);
	loop_timer_free(capture->hold_timer);
	unbound_work(capture);
	free(capture);
}
