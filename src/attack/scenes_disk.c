/* scenes_disk.c - more disk than the limit: subvolumes, rollbacks, forks
 *
 * A box of its own has a small disk and a small volume. The daemon is asked how much the box
 * holds in the end, whatever the box was told meanwhile. */
#include "attack/suite.h"
#include "base/alloc.h"
#include "base/buf.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HOARDER "hoarder"
#define HOARD	"hoard"
#define LIMIT	"48M"
#define INSIDE	"/.boxyard/box"

enum { MOST = 50 << 20, PATIENCE = 100, PATIENCE_US = 100 * 1000 };

static const struct check orders[] = {
	{ .name = "subvolume-in-volume", .words = { "disk", "subvolume", "/v" } },
	{ .name = "subvolume-v2-in-volume", .words = { "disk", "subvolume-v2", "/v" } },
	{ .name = "snapshot-in-volume", .words = { "disk", "snapshot", "/v" } },
	{ .name = "subvolume-in-storage",
		.flags = CHECK_NESTED,
		.words = { "disk", "subvolume", "/var/lib/containers" } },
	{ .name = "volume-beyond-its-size", .words = { "disk", "fill", "/v/f", "40" } },
	{ .name = "disk-within-its-size",
		.flags = CHECK_WORKS,
		.words = { "disk", "fill", "/f", "30" } },
	{ .name = "disk-beyond-its-size", .words = { "disk", "fill", "/g", "30" } },
};

static bool is(json_t *object, const char *key, const char *text)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value && !strcmp(value, text);
}

/* Runs a command against the daemon; NULL when it fails. New reference. */
static json_t *ask(struct suite *suite, const char *const *words)
{
	struct buf out = BUF_INIT;
	json_t *answer = NULL;
	int code = -1;

	if (rig_box(&suite->rig, words, &out, &code, NULL) == 0 && code == 0)
		answer = json_loads(buf_str(&out), 0, NULL);
	buf_done(&out);
	return answer;
}

static bool has_quota(struct suite *suite)
{
	static const char *const words[] = { "pool", "show", "--json", NULL };
	_cleanup_json_ json_t *pool = ask(suite, words);

	return pool && !is(pool, "quota", "none");
}

static json_int_t kept(struct suite *suite)
{
	static const char *const words[] = { "show", HOARDER, "--json", NULL };
	_cleanup_json_ json_t *box = ask(suite, words);

	return json_integer_value(json_object_get(json_object_get(box, "disk"), "tree_bytes"));
}

/* Snapshot and rollback: the box has a new disk, with all that was on the old one. */
static bool go_back(struct suite *suite, const struct group *group)
{
	static const char *const snapshot[] = { "exec", HOARDER, "--", INSIDE, "snapshot",
		"--disk-only", NULL };
	static const char *const rollback[] = { "exec", HOARDER, "--", INSIDE, "rollback",
		"--disk-only", NULL };
	static const char *const running[] = { "show", HOARDER, "--json", NULL };
	struct buf out = BUF_INIT;
	bool up = false;
	int code;

	if (!suite_box(suite, group, snapshot))
		return false;
	/* The program that asks for the rollback ends with it, and gets no answer. */
	rig_box(&suite->rig, rollback, &out, &code, NULL);
	buf_done(&out);
	for (int i = 0; i < PATIENCE && !up; i++) {
		_cleanup_json_ json_t *box = ask(suite, running);

		up = is(box, "state", "running");
		if (!up)
			usleep(PATIENCE_US);
	}
	return up;
}

static void check_going_back(struct suite *suite, const struct group *group)
{
	static const struct check more = { .name = "disk-multiplied-by-going-back",
		.words = { "disk", "fill", "/more", "30" } };

	if (go_back(suite, group))
		suite_check(suite, group, HOARDER, &more);
	else
		suite_problem(
			suite_add(suite, group, more.name, false, ""), "the box did not come back");
}

static void check_kept(struct suite *suite, const struct group *group)
{
	json_int_t bytes = kept(suite);
	char how[HOW_SIZE];

	snprintf(how, sizeof how, "%lld bytes of " LIMIT, (long long)bytes);
	if (bytes > 0 && bytes <= MOST)
		suite_add(suite, group, "keeps-no-more-than-allowed", true, how);
	else
		suite_problem(suite_add(suite, group, "keeps-no-more-than-allowed", false, how),
			"it keeps %lld bytes", (long long)bytes);
}

static bool make_boxes(struct suite *suite, const struct group *group)
{
	const char *volume[] = { "volume", "create", HOARD, "--size", "32M", NULL };
	_cleanup_free_ char *file = suite_policy_file(suite, HOARDER, group->policy);
	const char *box[] = { "new", HOARDER, "--image", RIG_IMAGE, suite_flag(suite),
		suite->profile, "--policy", file, "--disk", LIMIT, "--volume", HOARD ":/v", NULL };

	return suite_box(suite, group, volume) && suite_box(suite, group, box);
}

static void scene_disk(struct suite *suite, const struct group *group, const char *box)
{
	static const char *const drop[] = { "volume", "rm", HOARD, NULL };

	(void)box;
	if (!has_quota(suite)) {
		suite_add(suite, group, "quota", true, "skipped: this machine has no btrfs quotas");
		return;
	}
	if (make_boxes(suite, group)) {
		for (size_t i = 0; i < ARRAY_LEN(orders) && !rig_is_stopping(); i++)
			if (!(orders[i].flags & CHECK_NESTED) || !strcmp(suite->profile, "nested"))
				suite_check(suite, group, HOARDER, &orders[i]);
		check_going_back(suite, group);
		check_kept(suite, group);
	}
	suite_remove_box(suite, HOARDER);
	suite_box(suite, group, drop);
}

const struct group disk_groups[] = {
	{ "disk", "more disk than the limit: subvolumes, rollbacks",
		"{\"version\":1,\"preset\":\"none\"}", "", .scene = scene_disk,
		.not_vm = "its disk is one file; it has no subvolumes" },
	{ .name = NULL },
};
