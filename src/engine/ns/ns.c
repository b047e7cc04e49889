/* ns.c - the namespaces driver: open, close, leftovers, and its table */
#include "engine/ns/ns_internal.h"
#include "net/doors.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "loop/loop.h"
#include "sys/procstat.h"
#include "sys/seccomp.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>

/* Each running box needs a few file descriptors of the daemon. */
static void raise_nofile(struct ns_engine *engine)
{
	struct rlimit more;

	if (getrlimit(RLIMIT_NOFILE, &engine->nofile) < 0)
		return;
	more = engine->nofile;
	more.rlim_cur = more.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &more) < 0)
		log_warn("cannot raise RLIMIT_NOFILE", kv_int("limit", engine->nofile.rlim_cur));
}

static void read_oom_score(struct ns_engine *engine)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(AT_FDCWD, "/proc/self/oom_score_adj", 16, &text, NULL, NULL) == 0)
		engine->oom_score_adj = atoi(text);
}

static void find_hidden(struct ns_engine *engine)
{
	for (unsigned i = 0; hidden_paths[i].path; i++) {
		_cleanup_free_ char *path = xasprintf("/%s", hidden_paths[i].path);

		if (access(path, F_OK) == 0)
			engine->hidden |= UINT64_C(1) << i;
	}
}

static void ns_close(struct engine *base)
{
	struct ns_engine *engine = ns_engine_of(base);

	while (engine->first)
		ns_free(&engine->first->base);
	restorings_close(engine);
	criu_close_scratch(engine);
	free(engine->criu);
	spawner_close(&engine->spawner);
	sockets_close(engine);
	loop_timer_free(engine->guard_timer);
	loop_timer_free(engine->thaw_timer);
	loop_fd_free(engine->inotify_watch);
	if (engine->inotify >= 0)
		close(engine->inotify);
	for (unsigned i = 0; i < PROFILE_COUNT; i++)
		seccomp_program_free(engine->filters[i]);
	doors_plan_free(engine->doors);
	guest_close(&engine->guest);
	free(engine->home);
	free(engine);
}
DEFINE_CLEANUP(ns_close, struct engine)

static int open_events(struct ns_engine *engine, struct err *err)
{
	engine->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (engine->inotify < 0)
		return err_sys(err, errno, "inotify");
	engine->inotify_watch =
		loop_fd_new(engine->loop, engine->inotify, LOOP_READ, ns_inotify_ready, engine);
	return 0;
}

/* Boxes run without CRIU too. */
static void open_criu(struct ns_engine *engine, const struct engine_config *config)
{
	struct err err = ERR_INIT;

	engine->criu = criu_find(config->criu);
	engine->base.capture_problem = criu_problem(engine->criu);
	if (engine->criu && criu_open_scratch(engine, config->run, &err) < 0) {
		log_warn("processes of boxes cannot be captured", kv_err(&err));
		engine->base.capture_problem = "there is no place for CRIU to work in";
	} else if (engine->base.capture_problem) {
		log_warn("captures may fail here", kv_str("why", engine->base.capture_problem));
	}
	if (engine->criu && engine->scratch >= 0)
		engine->base.can |= 1U << ENGINE_CAN_HIBERNATE;
}

static int ns_open(const struct engine_config *config, struct engine **ret, struct err *err)
{
	struct ns_engine *engine = xnew(struct ns_engine);
	_cleanup_(ns_closep) struct engine *base = &engine->base;

	engine->base.ops = &engine_ns;
	engine->loop = config->loop;
	engine->home = xstrdup(config->home);
	engine->inotify = engine->guest.layer = engine->guest.bin = -1;
	engine->spawner.socket = engine->spawner.pidfd = engine->scratch = -1;
	engine->groups = config->groups;
	engine->cgroups = groups_get_cgroups(config->groups);
	engine->base.fds = 3; /* a pidfd, box-init's socket and, in cgroup v1, a memory watch */
	engine->base.can = 1U << ENGINE_CAN_SUSPEND | 1U << ENGINE_CAN_SLEEP |
			   1U << ENGINE_CAN_HOLD | 1U << ENGINE_CAN_NEST;
	if (procstat_boot_id(engine->boot, err) < 0 || open_events(engine, err) < 0)
		return -1;
	if (layers_choose(&engine->layers, err) < 0)
		return -1;
	if (guest_open(config->home, config->resolv_conf ? config->resolv_conf : DOORS_RESOLV_CONF,
		    config->certificates ? config->certificates : "", &engine->guest, err) < 0)
		return -1;
	if (engine->layers == LAYERS_DETACHED &&
		guest_show_from_memory(engine->guest.name, &engine->guest, err) < 0)
		return -1;
	for (unsigned i = 0; i < PROFILE_COUNT; i++)
		if (profile_filter_new(i, &engine->filters[i], err) < 0)
			return -1;
	find_hidden(engine);
	/* Without it the daemon still starts, to report what is missing; boxes do not start. */
	(void)doors_prepare(&engine->doors, &engine->doors_problem);
	read_oom_score(engine);
	raise_nofile(engine);
	open_criu(engine, config);
	if (spawner_open(engine, err) < 0)
		return -1;
	sockets_open(engine);
	guard_open(engine);
	*ret = steal_ptr(&base);
	return 0;
}

static json_t *ns_describe(struct engine *base)
{
	static const char *const kinds[] = { "user", "pid", "mount", "net", "ipc", "uts", "cgroup",
		"time" };
	static const enum cgroup_controller limits[] = { CGROUP_CPU, CGROUP_MEMORY, CGROUP_PIDS };
	struct ns_engine *engine = ns_engine_of(base);
	json_t *limited = json_array(), *namespaces = json_array(), *profiles = json_array();

	for (size_t i = 0; i < ARRAY_LEN(limits); i++)
		if (cgroup_tree_has(engine->cgroups, limits[i]))
			json_array_append_new(
				limited, json_string(cgroup_controller_name(limits[i])));
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i], "time") != 0 || access("/proc/self/ns/time", F_OK) == 0)
			json_array_append_new(namespaces, json_string(kinds[i]));
	for (unsigned i = 0; i < PROFILE_COUNT; i++)
		json_array_append_new(profiles, json_string(profile_name(i)));
	return json_pack("{s:s, s:o, s:o, s:o}", "cgroup", cgroup_tree_layout(engine->cgroups),
		"cgroup_limits", limited, "namespaces", namespaces, "profiles", profiles);
}

static int ns_sweep(struct engine *base, const char *id, struct err *err)
{
	return groups_sweep(ns_engine_of(base)->groups, id, err);
}

const struct engine_ops engine_ns = {
	.name = "ns",
	.open = ns_open,
	.close = ns_close,
	.probe = ns_probe,
	.describe = ns_describe,
	.start = ns_start,
	.adopt = ns_adopt,
	.sweep = ns_sweep,
	.connect = ns_connect,
	.kill = ns_kill,
	.stats = ns_stats,
	.set_hostname = ns_set_hostname,
	.pids_refused = ns_pids_refused,
	.activity = ns_activity,
	.next_timer = ns_next_timer,
	.freeze = ns_freeze,
	.pause = ns_pause,
	.hold = ns_hold_limit,
	.memory_full = ns_memory_full,
	.set_limits = ns_set_limits,
	.memory_scope = ns_memory_scope,
	.pids_scope = ns_pids_scope,
	.netns = ns_netns,
	.pids = ns_pids,
	.free = ns_free,
	.look_at_state = ns_look_at_state,
	.capture = ns_capture,
	.capture_rest = ns_capture_rest,
	.capture_go_on = ns_capture_go_on,
	.capture_free = ns_capture_free,
};
