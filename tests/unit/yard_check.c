/* yard_check.c - what must hold when a yard is at rest: nothing is half done, nothing leaks */
#include "yard_fixture.h"
#include "base/text.h"
#include "core/boxnet/network_internal.h"
#include "image/image.h"
#include "pool/pool.h"
#include "checkpoint/checkpoints.h"
#include <dirent.h>

#define CHECK(cond, ...)                              \
	do {                                          \
		if (!(cond)) {                        \
			print_error("%s: ", context); \
			fail_msg(__VA_ARGS__);        \
		}                                     \
	} while (0)

/* ---- one box -------------------------------------------------------------------------------- */

static void check_nobody_waits(const struct box *box, const char *context)
{
	CHECK(!box->waiters && !box->removers && !operation_is_on(box),
		"somebody waits for box '%s'", box->row.name);
	CHECK(!box->capturing && !box->saving && !box->trial && !box->seeding && !box->keeping &&
			!box->restore.state && !box->wake.link,
		"something is still being done to box '%s'", box->row.name);
	CHECK(!box->wake.wanted && !box->remove_wanted, "box '%s' has wishes left", box->row.name);
}

static void check_instance(const struct box *box, const char *context)
{
	bool up = box->state == BOX_RUNNING || box->state == BOX_SUSPENDED;
	const struct fake_process *process = process_of(box);

	CHECK(up == (box->instance != NULL), "box '%s' is %s and %s an instance", box->row.name,
		box_state_name(box->state), box->instance ? "has" : "has not");
	CHECK(up == (box->row.pid != 0), "the row of '%s' has pid %lld", box->row.name,
		(long long)box->row.pid);
	if (!up)
		return;
	CHECK(process && process->instance == box->instance && process->mark.pid == box->row.pid,
		"what runs of '%s' is not what its row says", box->row.name);
	CHECK(process->frozen == (box->state == BOX_SUSPENDED), "box '%s' is %s and %s",
		box->row.name, box_state_name(box->state), process->frozen ? "frozen" : "not");
	CHECK(box->state != BOX_RUNNING || box->link_ready, "box '%s' cannot be reached",
		box->row.name);
}

static void check_box(const struct box *box, const char *context)
{
	CHECK(!box_is_busy(box) && !box_is_gone(box), "box '%s' is %s", box->row.name,
		box_state_name(box->state));
	CHECK(!*box->row.intent && !strcmp(box->row.state, box_state_name(box->state)),
		"the row of '%s' says %s, intent '%s'", box->row.name, box->row.state,
		box->row.intent);
	check_nobody_waits(box, context);
	check_instance(box, context);
	CHECK(box_has_disk(box), "box '%s' has no disk", box->row.name);
	CHECK((box->state == BOX_HIBERNATED) == (*box->row.state_id != '\0'),
		"box '%s' is %s and its state is '%s'", box->row.name, box_state_name(box->state),
		box->row.state_id);
	CHECK(!*box->row.state_id ||
			checkpoints_is_packed(test.yard->checkpoints, box->row.state_id),
		"box '%s' sleeps in a state that is not packed", box->row.name);
	CHECK(!*box->row.position || snapshot_by_id(test.yard, box->row.position),
		"the position of '%s' is gone", box->row.name);
}

/* ---- what is on disk ------------------------------------------------------------------------ */

static void check_ports(struct box *box, const char *context)
{
	struct network_row row = { 0 };
	_cleanup_json_ json_t *stored = NULL;

	CHECK(store_network_get(test.yard->store, box->row.id, &row, NULL) == 0,
		"the network of '%s' is not stored", box->row.name);
	stored = json_loads(row.ports, 0, NULL);
	CHECK(json_equal(stored, box->net->ports), "the store has other ports of '%s': %s",
		box->row.name, row.ports);
	network_row_done(&row);
}

static int match_row(const struct box_row *row, void *arg, struct err *err)
{
	const char *context = arg;
	struct box *box = box_find(test.yard, row->id, NULL);

	(void)err;
	CHECK(box, "the store has a box '%s' that nobody knows", row->name);
	CHECK(!strcmp(row->state, box->row.state) && !strcmp(row->intent, box->row.intent) &&
			!strcmp(row->name, box->row.name) && row->pid == box->row.pid &&
			!strcmp(row->state_id, box->row.state_id) &&
			!strcmp(row->asleep_for, box->row.asleep_for) &&
			!strcmp(row->position, box->row.position),
		"the store says other things of box '%s': %s, intent '%s'", row->name, row->state,
		row->intent);
	CHECK(!strcmp(row->origin_box, box->row.origin_box) &&
			!strcmp(row->origin_snapshot, box->row.origin_snapshot) &&
			!strcmp(row->origin_position, box->row.origin_position) &&
			!strcmp(row->labels, box->row.labels) &&
			!strcmp(row->fork_limits, box->row.fork_limits) &&
			row->remove_on_exit == box->row.remove_on_exit &&
			row->generation == box->row.generation,
		"the store says that box '%s' comes from '%s', not '%s'", row->name,
		row->origin_box, box->row.origin_box);
	if (box->net && !box_is_gone(box))
		check_ports(box, context);
	return 0;
}

static int count_row(const struct box_row *row, void *arg, struct err *err)
{
	(void)row;
	(void)err;
	++*(size_t *)arg;
	return 0;
}

static int match_snapshot(const struct snapshot_row *row, void *arg, struct err *err)
{
	const char *context = arg;
	const struct snapshot *snapshot = snapshot_by_id(test.yard, row->id);

	(void)err;
	CHECK(snapshot && !strcmp(row->status, snapshot->row.status),
		"the store has a snapshot '%s' that nobody knows", row->id);
	CHECK(!strcmp(row->box, snapshot->row.box) && !strcmp(row->parent, snapshot->row.parent),
		"the store has snapshot '%s' on another time line", row->id);
	return 0;
}

static void check_disks(const char *place, bool (*known)(const char *name), const char *context)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", pool_get_path(test.yard->pool), place);
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		CHECK(entry->d_name[0] == '.' ? !entry->d_name[1] || entry->d_name[1] == '.'
					      : known(entry->d_name),
			"%s/%s is nobody's disk", place, entry->d_name);
	if (dir)
		closedir(dir);
}

static bool is_box(const char *name)
{
	return box_find(test.yard, name, NULL) != NULL;
}

static bool is_snapshot(const char *name)
{
	return snapshot_by_id(test.yard, name) != NULL;
}

static void check_state(const char *id, void *arg)
{
	const char *context = arg;
	bool known = snapshot_by_id(test.yard, id) != NULL;

	for (size_t i = 0; i < test.yard->box_count; i++)
		known = known || !strcmp(test.yard->boxes[i]->row.state_id, id);
	CHECK(known, "state '%s' is nobody's", id);
}

static void check_snapshots(const char *context)
{
	for (size_t i = 0; i < test.yard->snapshot_count; i++) {
		const struct snapshot *snapshot = test.yard->snapshots[i];
		const char *id = snapshot->row.id;

		CHECK(!strcmp(snapshot->row.status, "ready") && !snapshot->users &&
				!snapshot->doomed && !snapshot->packing,
			"snapshot '%s' is %s, with %u users", id, snapshot->row.status,
			snapshot->users);
		CHECK(pool_disk_exists(test.yard->pool, SNAPSHOT_DISKS, id),
			"snapshot '%s' has no disk", id);
		CHECK(strcmp(snapshot->row.kind, "full") != 0 ||
				checkpoints_exists(test.yard->checkpoints, id),
			"snapshot '%s' has no state", id);
		CHECK(!*snapshot->row.box || box_find(test.yard, snapshot->row.box, NULL),
			"snapshot '%s' is of no box", id);
	}
}

void check_yard(const char *context)
{
	struct yard *yard = test.yard;
	_cleanup_json_ json_t *left = NULL;
	size_t rows = 0, running = 0;

	CHECK(!yard->forkings && !yard->packings && !yard->snapshot_wishes && !yard->keepings,
		"somebody is still at work");
	for (size_t i = 0; i < yard->box_count; i++) {
		check_box(yard->boxes[i], context);
		running += yard->boxes[i]->instance != NULL;
	}
	left = groups_leftovers(yard->groups);
	CHECK(fake_count() == running && json_array_size(left) == running,
		"%zu processes in %zu groups, of %zu boxes", fake_count(), json_array_size(left),
		running);
	check_snapshots(context);
	CHECK(store_box_each(yard->store, match_row, (void *)context, NULL) == 0 &&
			store_box_each(yard->store, count_row, &rows, NULL) == 0 &&
			store_snapshot_each(yard->store, match_snapshot, (void *)context, NULL) ==
				0,
		"the store cannot be read");
	CHECK(rows == yard->box_count, "%zu rows of %zu boxes", rows, yard->box_count);
	check_disks(BOX_DISKS, is_box, context);
	check_disks(SNAPSHOT_DISKS, is_snapshot, context);
	check_disks("views", is_box, context);
	checkpoints_each(yard->checkpoints, check_state, (void *)context);
}

void check_empty(const char *context)
{
	struct yard *yard = test.yard;

	check_yard(context);
	while (yard->box_count) {
		struct answer answer = ANSWER_INIT;

		box_remove(yard->boxes[0], true, on_box, &answer);
		wait_for(&answer, true);
		CHECK(!answer.err.kind, "%s", answer.err.message);
	}
	for (size_t i = yard->snapshot_count; i-- > 0;)
		snapshot_discard(yard, yard->snapshots[i]);
	yard_settle_late();
	check_yard(context);
}
