/* create.c - from what was asked for to a box
 *
 * The spec is checked whole before anything happens. Then a spare that fits is dressed up as the
 * box, which takes about a millisecond; where there is none, a row with its intent is written and
 * an instance made, as life.c tells. */
#include "core/time/auto.h"
#include "core/core_internal.h"
#include "core/login_name.h"
#include "core/limit.h"
#include "core/lineage.h"
#include "core/tree.h"
#include "core/boxnet/network_internal.h"
#include "base/log.h"
#include "base/clock.h"
#include "base/text.h"
#include "image/image.h"
#include "pool/pool.h"

enum {
	MEMORY_LEAST = 16 * 1024 * 1024, /* box-init, a shell and their page tables fit in this */
	PIDS_LEAST = 8,
	DISK_LEAST = 1024 * 1024,
};

/* Rows of earlier versions may have higher slots. */
static void take_slot(uint8_t *taken, uint32_t slot)
{
	if (slot < UID_SLOTS)
		taken[slot / 8] |= (uint8_t)(1 << slot % 8);
}

int box_pick_slot(struct yard *yard, uint32_t *ret, struct err *err)
{
	_cleanup_free_ uint8_t *taken = xcalloc(UID_SLOTS / 8, 1);

	for (size_t i = 0; i < yard->box_count; i++)
		take_slot(taken, yard->boxes[i]->row.uid_slot);
	for (size_t i = 0; i < yard->spares.count; i++)
		take_slot(taken, yard->spares.boxes[i]->row.uid_slot);
	for (uint32_t slot = 0; slot < UID_SLOTS; slot++)
		if (!(taken[slot / 8] & 1 << slot % 8)) {
			*ret = slot;
			return 0;
		}
	return err_set(err, ERR_LIMIT, "all %d uid ranges are in use", UID_SLOTS);
}

static int check_limit(const char *what, uint64_t value, uint64_t least, struct err *err)
{
	if (value && value < least)
		return err_set(err, ERR_INVALID, "%s must be 0 (no limit) or at least %llu", what,
			(unsigned long long)least);
	return 0;
}

int limits_check(const struct limits *limits, struct err *err)
{
	if (check_limit("cpu (thousandths)", limits->cpu_milli, 10, err) < 0 ||
		check_limit("memory", limits->memory_bytes, MEMORY_LEAST, err) < 0 ||
		check_limit("disk", limits->disk_bytes, DISK_LEAST, err) < 0)
		return -1;
	return check_limit("pids", limits->pids, PIDS_LEAST, err);
}

static int check_pairs(json_t *pairs, const char *what,
	int (*check)(const char *, const char *, struct err *), struct err *err)
{
	const char *key;
	json_t *value;

	if (json_object_size(pairs) > 256)
		return err_set(err, ERR_INVALID, "more than 256 entries in %s", what);
	json_object_foreach (pairs, key, value) {
		_cleanup_free_ char *pair = xasprintf("%s=%s", key, json_string_value(value));

		if (check(what, pair, err) < 0)
			return -1;
	}
	return 0;
}

int box_refuse_taken(struct yard *yard, const char *name, struct err *err)
{
	if (login_name_is_reserved(name)) {
		err_set(err, ERR_INVALID,
			"no box can be called '%s': it is a user name of SSH logins", name);
		return err_hint(err, "choose another name");
	}
	if (!box_lookup(yard, name))
		return 0;
	if (!box_find(yard, name, NULL)) {
		err_set(err, ERR_EXISTS, "the name '%s' is taken by another owner's box", name);
		return err_hint(err, "names are unique on a machine; choose another");
	}
	err_set(err, ERR_EXISTS, "there is a box '%s' already", name);
	return err_hint(err, "choose another name, or 'box rm -f %s'", name);
}

/* Only an asker who sees all owners may create things for another owner. */
static int pick_owner(struct yard *yard, const char *wanted, char **ret, struct err *err)
{
	if (wanted && name_check("owner", wanted, err) < 0)
		return -1;
	if (wanted && !yard_may_see(yard, wanted))
		return err_set(err, ERR_FORBIDDEN, "'owner' needs a token with the scope admin");
	*ret = xstrdup(wanted ? wanted : yard_get_owner(yard));
	return 0;
}

static int pick_name(struct yard *yard, const char *wanted, char **ret, struct err *err)
{
	if (wanted) {
		if (name_check("box name", wanted, err) < 0)
			return -1;
		if (box_refuse_taken(yard, wanted, err) < 0)
			return -1;
		*ret = xstrdup(wanted);
		return 0;
	}
	do {
		free(*ret);
		*ret = name_make_up();
	} while (box_lookup(yard, *ret));
	return 0;
}

static uint64_t limit_or(uint64_t given, uint64_t otherwise)
{
	return given == BOX_LIMIT_DEFAULT ? otherwise : given;
}

/* The main command as in Docker: the entrypoint, followed by the given command or else the image's
 * own. An entrypoint given by hand drops the image's command. "" when there is nothing to run. */
static char *main_of(const struct image *image, const struct box_spec *spec)
{
	json_t *entrypoint =
		spec->entrypoint ? spec->entrypoint : json_object_get(image->config, "entrypoint");
	json_t *command = spec->command;
	_cleanup_json_ json_t *whole = json_array();

	if (!command && spec->no_main)
		return xstrdup("");
	if (!command && !spec->entrypoint)
		command = json_object_get(image->config, "cmd");
	if (entrypoint)
		json_array_extend(whole, entrypoint);
	if (command)
		json_array_extend(whole, command);
	return json_array_size(whole) ? json_text(whole) : xstrdup("");
}

/* The driver that the image's maker or owner demands, or NULL. */
static const char *driver_demanded(const struct image *image)
{
	const json_t *labels = json_object_get(image->config, "labels");
	const char *driver = json_string_value(json_object_get(labels, IMAGE_DRIVER_LABEL));

	return driver && *driver ? driver : NULL;
}

/* The processes of a golden image can be restored only by the driver that captured them. Nobody's
 * driver is changed without a word: demands that contradict each other are an error. */
static int choose_driver(struct yard *yard, const struct box_spec *spec, const struct image *image,
	const struct snapshot *golden, struct engine **ret, struct err *err)
{
	_cleanup_free_ char *captured = golden ? golden_driver(golden) : NULL;
	const char *demanded = driver_demanded(image), *asked = spec->driver;

	if (captured && asked && strcmp(asked, captured))
		return err_set(
			err, ERR_INVALID, "the image has processes of driver '%s'", captured);
	if (captured)
		asked = captured;
	if (demanded && asked && strcmp(asked, demanded)) {
		err_set(err, ERR_INVALID, "image '%s' demands the driver '%.40s', not '%s'",
			*image->name ? image->name : image->id, demanded, asked);
		return err_hint(err, "its label " IMAGE_DRIVER_LABEL " says so");
	}
	return drivers_choose(yard->drivers, asked ? asked : demanded, ret, err);
}

/* What a kernel of its own cannot see is refused, not left out. */
static int check_attached(const struct engine *engine, const struct box_spec *spec, struct err *err)
{
	bool volumes = json_array_size(spec->volumes) > 0;

	if (!engine_can(engine, ENGINE_OWN_KERNEL) || (!volumes && !json_array_size(spec->mounts)))
		return 0;
	if (volumes)
		err_set(err, ERR_UNSUPPORTED,
			"driver '%s' has no volumes: a volume is a folder of the host, and the box "
			"has a kernel and file systems of its own",
			engine_get_name(engine));
	else
		err_set(err, ERR_UNSUPPORTED,
			"driver '%s' shows no folders of the host: its machine runs without access "
			"to the host's files",
			engine_get_name(engine));
	return err_hint(err, "'box cp' and 'new --copy' bring files in; or take --driver ns");
}

static int fill_row(
	struct yard *yard, const struct box_spec *spec, struct box_row *row, struct err *err)
{
	const struct image *image =
		images_find(yard->images, spec->image ? spec->image : "debian", err);
	struct auto_snapshot when = { AUTO_OFF, 0 };
	const struct snapshot *golden;
	enum profile profile;
	struct limits limits;
	struct engine *engine;
	char id[BOX_ID_LEN + 1];

	if (!image || pick_owner(yard, spec->owner, &row->owner, err) < 0)
		return -1;
	golden = golden_of(yard, image);
	if (choose_driver(yard, spec, image, golden, &engine, err) < 0 ||
		check_attached(engine, spec, err) < 0)
		return -1;
	limits.cpu_milli = limit_or(spec->limits.cpu_milli, yard->conf->default_cpu_milli);
	limits.memory_bytes = limit_or(spec->limits.memory_bytes, yard->conf->default_memory);
	limits.disk_bytes = limit_or(spec->limits.disk_bytes, yard->conf->default_disk);
	limits.pids = limit_or(spec->limits.pids, yard->conf->default_pids);
	if (profile_from_name(spec->profile ? spec->profile : "standard", &profile, err) < 0 ||
		limits_check(&limits, err) < 0 ||
		(spec->auto_snapshot && auto_snapshot_parse(spec->auto_snapshot, &when, err) < 0) ||
		check_pairs(spec->env, "env", env_check, err) < 0 ||
		check_pairs(spec->labels, "label", label_check, err) < 0 ||
		inside_limits_read(spec->inside, &row->fork_limits, err) < 0)
		return -1;
	if (yard->box_count >= yard->conf->max_boxes) {
		err_set(err, ERR_LIMIT, "there are %zu boxes already, the most allowed",
			yard->box_count);
		return err_hint(err, "remove some, or raise max_boxes in boxyard.conf");
	}
	if (box_pick_slot(yard, &row->uid_slot, err) < 0 ||
		pick_name(yard, spec->name, &row->name, err) < 0 ||
		pool_check_room(yard->pool, 0, err) < 0)
		return -1;
	/* Checked last, because this creates missing volumes. */
	if (box_mounts_check(yard, spec, row->owner, &row->volumes, &row->mounts, err) < 0)
		return -1;
	row->cpu_milli = limits.cpu_milli;
	row->memory_bytes = limits.memory_bytes;
	row->disk_bytes = limits.disk_bytes;
	row->pids = limits.pids;
	do
		random_id(id, BOX_ID_LEN);
	while (box_lookup(yard, id));
	row->id = xstrdup(id);
	row->state = xstrdup("creating");
	row->intent = xstrdup(intent_name(INTENT_CREATE));
	/* A box with processes uses the image that the saved box used. */
	row->image = xstrdup(golden ? golden->row.image : image->id);
	row->image_name = xstrdup(image->name);
	row->driver = xstrdup(engine_get_name(engine));
	row->profile = golden ? golden_profile(golden) : xstrdup(profile_name(profile));
	if (spec->profile && strcmp(spec->profile, row->profile))
		return err_set(err, ERR_INVALID, "image '%s' has processes of profile '%s'",
			image->name, row->profile);
	if (!strcmp(row->profile, profile_name(PROFILE_NESTED)) &&
		!engine_can(engine, ENGINE_CAN_NEST))
		return err_set(err, ERR_UNSUPPORTED, "driver '%s' has no profile 'nested'",
			engine_get_name(engine));
	row->env = spec->env ? json_text(spec->env) : xstrdup("{}");
	row->labels = spec->labels ? json_text(spec->labels) : xstrdup("{}");
	row->command = json_array_size(spec->command) ? json_text(spec->command) : xstrdup("");
	row->main = main_of(image, spec);
	row->on_limit = xstrdup(on_limit_name(spec->on_limit));
	row->remove_on_exit = spec->remove_on_exit;
	row->held = spec->hold;
	row->created_us = clock_wall_us();
	row->end_reason = xstrdup("");
	row->end_detail = xstrdup("");
	row->boot = xstrdup(yard->boot);
	row->idempotency = xstrdup(spec->idempotency ? spec->idempotency : "");
	row->sleep = box_sleep_text("", spec->sleep);
	row->auto_snapshot = spec->auto_snapshot ? auto_snapshot_text(&when) : xstrdup("");
	row->origin_box = xstrdup("");
	row->origin_position = xstrdup("");
	row->target = xstrdup("");
	row->sleep_failure = xstrdup("");
	row->tree = xstrdup("");
	row->origin_snapshot = xstrdup(golden ? golden->row.id : "");
	row->position = xstrdup("");
	row->state_id = xstrdup("");
	row->asleep_for = xstrdup("");
	return 0;
}

/* Idempotency keys are separate for each owner. */
static struct box *find_by_key(struct yard *yard, const char *key, const char *owner)
{
	for (size_t i = 0; key && *key && i < yard->box_count; i++)
		if (!strcmp(yard->boxes[i]->row.idempotency, key) &&
			!strcmp(yard->boxes[i]->row.owner, owner))
			return yard->boxes[i];
	return NULL;
}

int box_insert(struct yard *yard, const struct box_row *row, struct network *net,
	enum store_grade grade, struct err *err)
{
	if (store_begin(yard->store, err) < 0)
		return -1;
	if (store_box_insert(yard->store, row, grade, err) < 0 ||
		network_store_as(yard, row->id, net, grade, err) < 0) {
		store_rollback(yard->store);
		return -1;
	}
	return store_commit(yard->store, grade, err);
}

/* The spare becomes the box of the row: its id and uid range go into the row, the row's limits and
 * name into the spare. */
static int dress(struct box *spare, struct box_row *row, struct network *net, struct err *err)
{
	struct limits limits = { row->cpu_milli, row->memory_bytes, row->disk_bytes, row->pids };
	const struct instance_mark *mark = instance_get_mark(spare->instance);

	if (row->disk_bytes && box_limit_disk(spare, row->disk_bytes, err) < 0)
		return -1;
	if (instance_set_limits(spare->instance, &limits, err) < 0 ||
		instance_set_hostname(spare->instance, row->name, err) < 0)
		return -1;
	free(row->id);
	free(row->state);
	free(row->intent);
	row->id = xstrdup(spare->row.id);
	row->uid_slot = spare->row.uid_slot;
	row->state = xstrdup(box_state_name(BOX_RUNNING));
	row->intent = xstrdup("");
	row->pid = mark->pid;
	row->start_time = mark->start_time;
	row->started_us = clock_wall_us();
	return box_insert(spare->yard, row, net, STORE_SAFE, err);
}

static void give_tree(struct box *box, const struct limits *tree)
{
	struct err err = ERR_INIT;

	if (tree && box_set_tree(box, tree, &err) < 0)
		log_warn("a tree has only the limits of its first box", kv_str("box", box->row.id),
			kv_err(&err));
}

/* The fast path: takes a box that already runs. False: no spare fits. */
static bool create_from_spare(struct yard *yard, struct box_row *row, struct network *net,
	const struct box_spec *spec, box_done done, void *arg)
{
	bool plain =
		!strcmp(row->volumes, "[]") && !strcmp(row->mounts, "[]") && spare_fits(yard, row);
	struct box *box = plain ? spare_take(yard, row->image, row->driver, row->profile) : NULL;
	struct err err = ERR_INIT;

	if (!box)
		return false;
	if (dress(box, row, net, &err) < 0) {
		spare_discard(box);
		box_row_done(row);
		network_discard(net);
		done(NULL, &err, arg);
		return true;
	}
	box_row_done(&box->row);
	box->row = *row;
	box->net = net;
	box->state = BOX_RUNNING;
	box->spare = false;
	limit_arm(box);
	box_list(box);
	give_tree(box, spec->tree);
	if (network_attach(box, &err) < 0) {
		box_remove(box, true, NULL, NULL);
		done(NULL, &err, arg);
		return true;
	}
	ports_box_added(box);
	box_wait(box, done, arg);
	box_tell_name(box);
	box_is_up(box, true);
	return true;
}

void box_create(struct yard *yard, const struct box_spec *spec, box_done done, void *arg)
{
	struct box *box = find_by_key(
		yard, spec->idempotency, spec->owner ? spec->owner : yard_get_owner(yard));
	struct box_row row = { 0 };
	struct network *net = NULL;
	struct err err = ERR_INIT;

	if (box) {
		if (box_is_busy(box))
			box_wait(box, done, arg);
		else
			done(box, NULL, arg);
		return;
	}
	if (yard_check_stays(yard, &err) == 0 && fill_row(yard, spec, &row, &err) == 0 &&
		network_new(yard, spec, row.image, &net, &err) == 0) {
		if (!*row.origin_snapshot && create_from_spare(yard, &row, net, spec, done, arg))
			return;
		(void)box_insert(yard, &row, net, STORE_KEPT, &err);
	}
	if (err.kind) {
		network_discard(net);
		box_row_done(&row);
		done(NULL, &err, arg);
		return;
	}
	box = box_new(yard, &row);
	box->net = net;
	give_tree(box, spec->tree);
	ports_box_added(box);
	box_wait(box, done, arg);
	if (*box->row.origin_snapshot) {
		box_restore_from(box, box->row.origin_snapshot, RESTORE_FORK);
		box->restore.parent = xstrdup(box->row.image_name);
	}
	if (box_launch(box, &err) < 0)
		box_launch_failed(box, &err);
}
