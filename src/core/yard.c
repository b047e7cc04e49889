/* yard.c - opening and closing the whole, and what can be said about it */
#include "core/core_internal.h"
#include "core/disk/upper.h"
#include "core/trust.h"
#include "core/boxnet/network_internal.h"
#include "core/tree_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "conf/conf.h"
#include "image/image.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

enum { IDLE_MS = 2000 };

static void on_idle(void *arg)
{
	struct yard *yard = arg;
	struct err err = ERR_INIT;

	boxes_save_again(yard);
	snapshots_save_again(yard);
	store_idle(yard->store);
	spares_check(yard);
	golden_check(yard);
	if (store_event_trim(yard->store, EVENTS_KEPT, &err) < 0)
		log_warn("cannot trim the event log", kv_err(&err));
	loop_timer_start(yard->idle, IDLE_MS);
}

static int read_boot_id(char *ret, size_t size, struct err *err)
{
	_cleanup_free_ char *text = NULL;

	if (file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &text, NULL, err) < 0)
		return -1;
	snprintf(ret, size, "%.*s", (int)strcspn(text, "\n"), text);
	return 0;
}

/* The home holds setuid files of images: nobody but root may look inside. */
static int make_home(const char *home, struct err *err)
{
	if (dir_make_all(home, 0700, err) < 0)
		return -1;
	if (chmod(home, 0700) < 0)
		return err_sys(err, errno, "chmod '%s'", home);
	return 0;
}

static void read_last_event(struct yard *yard)
{
	uint64_t oldest = 0, next = 0;
	_cleanup_json_ json_t *events = NULL;

	if (store_event_range(yard->store, &oldest, &next, NULL) < 0 || !next)
		return;
	events = store_event_list(yard->store, next - 1, NULL, 1, NULL);
	if (json_array_size(events))
		snprintf(yard->last_event_at, sizeof yard->last_event_at, "%s",
			json_string_value(json_object_get(json_array_get(events, 0), "at")));
}

static void on_pool_full(const char *what, bool full, const char *detail, void *arg)
{
	yard_event(arg, full ? "pool.full" : "pool.room", NULL,
		json_pack("{s:s,s:s}", "what", what, "detail", detail));
}

static int open_pool(struct yard *yard, struct err *err)
{
	const struct conf *conf = yard->conf;
	struct pool_config config = {
		.loop = yard->loop,
		.home = conf->home,
		.mode = conf->pool,
		.size = conf->pool_size,
		.size_max = conf->pool_max,
		.spares = (unsigned)conf->spare_disks,
		.on_full = on_pool_full,
		.arg = yard,
	};

	if (pool_open(&config, &yard->pool, err) < 0)
		return err_wrap(err, "pool");
	return images_open(yard->loop, yard->pool, conf->home, &yard->images, err);
}

static unsigned name_image_users(const char *image, struct buf *names, void *arg)
{
	const struct yard *yard = arg;
	unsigned count = 0;

	for (size_t i = 0; i < yard->box_count; i++) {
		if (box_is_gone(yard->boxes[i]) || strcmp(yard->boxes[i]->row.image, image))
			continue;
		if (!names) {
			count += yard_may_see_box(yard, yard->boxes[i]);
			continue;
		}
		if (count++ < 5)
			buf_addf(names, "%sbox '%s'", count > 1 ? ", " : "",
				yard_may_see_box(yard, yard->boxes[i]) ? yard->boxes[i]->row.name
								       : "of another owner");
	}
	if (names && count > 5)
		buf_addf(names, " and %u more", count - 5);
	return count;
}

static int open_states(struct yard *yard, struct err *err)
{
	_cleanup_free_ char *quick = xasprintf("%s/states", yard->conf->run);

	return checkpoints_open(yard->loop, yard->conf->home, quick, &yard->checkpoints, err);
}

static int open_groups(struct yard *yard, struct err *err)
{
	const struct conf *conf = yard->conf;
	const struct groups_config config = {
		.name = conf->name,
		.memory_bytes =
			conf->yard_memory == CONF_AUTO ? ENGINE_LIMIT_AUTO : conf->yard_memory,
		.pids = conf->yard_pids == CONF_AUTO ? ENGINE_LIMIT_AUTO : conf->yard_pids,
	};

	return groups_open(&config, &yard->groups, err);
}

static int open_parts(struct yard *yard, const struct engine_ops *const *list, struct err *err)
{
	const struct conf *conf = yard->conf;
	_cleanup_free_ char *resolv_conf = NULL, *certificates = NULL;
	struct engine_config engine = {
		.loop = yard->loop,
		.home = conf->home,
		.run = conf->run,
	};

	wake_open(yard);
	if (make_home(conf->home, err) < 0 || read_boot_id(yard->boot, sizeof yard->boot, err) < 0)
		return -1;
	if (store_open(conf->home, &yard->store, err) < 0)
		return -1;
	read_last_event(yard);
	if (open_pool(yard, err) < 0)
		return -1;
	images_set_users(yard->images, name_image_users, yard);
	if (open_states(yard, err) < 0)
		return err_wrap(err, "states");
	if (networks_open(yard, err) < 0)
		return -1;
	if (open_groups(yard, err) < 0)
		return -1;
	engine.groups = yard->groups;
	engine.criu = conf->criu;
	engine.vm_kernel = conf->vm_kernel;
	engine.vm_spares = (unsigned)conf->vm_spares;
	engine.pool = pool_get_path(yard->pool);
	resolv_conf = yard_box_resolv_conf(yard);
	engine.resolv_conf = resolv_conf;
	certificates = trust_collect(conf);
	engine.certificates = certificates;
	if (drivers_open(list, &engine, conf->driver, &yard->drivers, err) < 0)
		return -1;
	if (snapshots_load(yard, err) < 0 || yard_recover(yard, err) < 0)
		return -1;
	hibernate_recovered(yard);
	snapshots_sweep(yard);
	return 0;
}

int yard_open(struct loop *loop, const struct conf *conf, struct yard **ret, struct err *err)
{
	return yard_open_with(loop, conf, engine_drivers(), ret, err);
}

int yard_open_with(struct loop *loop, const struct conf *conf,
	const struct engine_ops *const *drivers, struct yard **ret, struct err *err)
{
	struct yard *yard = xnew(struct yard);

	yard->loop = loop;
	yard->conf = conf;
	yard->started_us = clock_wall_us();
	if (open_parts(yard, drivers, err) < 0) {
		yard_close(yard);
		return -1;
	}
	yard->idle = loop_timer_new(loop, on_idle, yard);
	loop_timer_start(yard->idle, IDLE_MS);
	limits_open(yard);
	idle_open(yard);
	spares_start(yard);
	yard_event(yard, "daemon.started", NULL,
		json_pack("{s:I}", "boxes", (json_int_t)yard->box_count));
	*ret = yard;
	return 0;
}

static void close_pool(struct yard *yard)
{
	struct err err = ERR_INIT;

	if (!yard->purged)
		pool_close(yard->pool);
	else if (pool_destroy(yard->pool, &err) < 0)
		log_error("parts of the pool were not removed", kv_err(&err));
}

void yard_close(struct yard *yard)
{
	if (!yard)
		return;
	yard->closing = true;
	if (yard->idle)
		yard_event(yard, "daemon.stopped", NULL, NULL);
	limits_close(yard);
	idle_close(yard);
	workspaces_close(yard);
	disk_streams_close(yard);
	uppers_close(yard);
	networks_stop(yard);
	forks_close(yard);
	while (yard->box_count) {
		struct err err = ERR_INIT;

		err_set(&err, ERR_UNAVAILABLE, "the daemon is shutting down");
		box_notify_everybody(yard->boxes[yard->box_count - 1], &err);
		box_free(yard->boxes[yard->box_count - 1]);
	}
	free(yard->boxes);
	trees_close(yard);
	wake_close(yard);
	spares_end(yard);
	snapshots_close(yard);
	networks_close(yard);
	loop_timer_free(yard->idle);
	json_decref(yard->ssh_info);
	drivers_close(yard->drivers);
	groups_close(yard->groups);
	checkpoints_close(yard->checkpoints);
	images_close(yard->images);
	close_pool(yard);
	events_close(yard);
	store_close(yard->store);
	free(yard);
}

/* ---- purge ----------------------------------------------------------------------------------- */

void yard_purge_step(struct yard *yard)
{
	void (*done)(const struct err *, void *) = yard->purge_done;

	if (!done || yard->box_count || yard->spares.count)
		return;
	yard->purge_done = NULL;
	yard->purged = true;
	done(NULL, yard->purge_arg);
}

static void on_purged(struct box *box, const struct err *err, void *arg)
{
	struct yard *yard = arg;

	(void)box;
	if (err && yard->purge_done) {
		void (*done)(const struct err *, void *) = yard->purge_done;

		yard->purge_done = NULL;
		done(err, yard->purge_arg);
	}
}

void yard_purge(struct yard *yard, void (*done)(const struct err *err, void *arg), void *arg)
{
	size_t count = yard->box_count;
	struct box **boxes = xmemdup(yard->boxes, count * sizeof *boxes);

	yard->closing = true;
	yard->purge_done = done;
	yard->purge_arg = arg;
	for (size_t i = 0; i < count; i++)
		box_remove(boxes[i], true, on_purged, yard);
	free(boxes);
	spares_drop(yard);
	yard_purge_step(yard);
}

int yard_check_stays(const struct yard *yard, struct err *err)
{
	if (!yard->closing && !yard->going_down)
		return 0;
	return err_set(err, ERR_UNAVAILABLE, "the daemon is shutting down");
}

/* ---- information ---------------------------------------------------------------------------- */

struct images *yard_get_images(struct yard *yard)
{
	return yard->images;
}

struct pool *yard_get_pool(struct yard *yard)
{
	return yard->pool;
}

struct store *yard_get_store(struct yard *yard)
{
	return yard->store;
}

struct loop *yard_get_loop(struct yard *yard)
{
	return yard->loop;
}

const struct conf *yard_get_conf(struct yard *yard)
{
	return yard->conf;
}

static size_t count_boxes(const struct yard *yard)
{
	size_t count = 0;

	for (size_t i = 0; i < yard->box_count; i++)
		count += !box_is_gone(yard->boxes[i]) && yard_may_see_box(yard, yard->boxes[i]);
	return count;
}

static size_t count_leaving(const struct yard *yard)
{
	size_t count = 0;

	for (size_t i = 0; i < yard->box_count; i++)
		count += box_is_gone(yard->boxes[i]);
	return count;
}

struct limits yard_limits(const struct yard *yard)
{
	return groups_get_limits(yard->groups);
}

/* The limits and the usage of all boxes together. */
static json_t *whole_json(struct yard *yard)
{
	struct limits limits = groups_get_limits(yard->groups);
	struct instance_stats stats = groups_stats(yard->groups);

	return json_pack("{s:I,s:I,s:I,s:I,s:I}", "memory_bytes", (json_int_t)stats.memory_bytes,
		"memory_limit_bytes", (json_int_t)limits.memory_bytes, "processes",
		(json_int_t)stats.processes, "threads", (json_int_t)stats.threads,
		"processes_limit", (json_int_t)limits.pids);
}

void yard_set_ssh_info(struct yard *yard, json_t *info)
{
	json_decref(yard->ssh_info);
	yard->ssh_info = info;
}

json_t *yard_info_json(struct yard *yard)
{
	const struct conf *conf = yard->conf;
	json_t *states = json_object();
	size_t boxes = count_boxes(yard);
	char when[CLOCK_RFC3339_MAX];

	for (unsigned state = 0; state < BOX_STATE_COUNT; state++) {
		size_t count = 0;

		for (size_t i = 0; i < yard->box_count; i++)
			count += !box_is_gone(yard->boxes[i]) && yard->boxes[i]->state == state &&
				 yard_may_see_box(yard, yard->boxes[i]);
		json_object_set_new(states, box_state_name(state), json_integer((json_int_t)count));
	}
	return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:s?,s:I,s:I,s:I,s:o,s:s,s:o,s:o,s:o,s:O?}",
		"version", BOX_VERSION, "home", conf->home, "run", conf->run, "name", conf->name,
		"socket", conf->socket, "started_at", clock_rfc3339(yard->started_us, when), "pid",
		(json_int_t)getpid(), "criu_problem", drivers_capture_problem(yard->drivers),
		"boxes", (json_int_t)boxes, "leaving", (json_int_t)count_leaving(yard), "spares",
		(json_int_t)spares_ready(yard), "states", states, "pool",
		pool_kind_name(pool_get_kind(yard->pool)), "drivers", drivers_json(yard->drivers),
		"network", networks_json(yard), "together", whole_json(yard), "ssh",
		yard->ssh_info);
}

json_t *yard_stats_json(struct yard *yard)
{
	json_t *list = json_array();

	for (size_t i = 0; i < yard->box_count; i++) {
		json_t *stats = yard->boxes[i]->instance && yard_may_see_box(yard, yard->boxes[i])
					? box_stats_json(yard->boxes[i], NULL)
					: NULL;

		if (stats)
			json_array_append_new(list, stats);
	}
	return json_pack("{s:o}", "boxes", list);
}
