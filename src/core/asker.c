/* asker.c - see asker.h */
#include "core/asker.h"
#include "core/core_internal.h"
#include <assert.h>
#include "image/image.h"
#include <stdio.h>

static_assert(sizeof OWNER_LOCAL == sizeof IMAGE_OWNER_SHARED, "one word for both");

void asker_of_box(struct asker *asker, const struct box *box)
{
	*asker = (struct asker){ 0 };
	snprintf(asker->who, sizeof asker->who, "box %s", box->row.name);
	snprintf(asker->owner, sizeof asker->owner, "%s", box->row.owner);
}

static bool is_bound(const struct yard *yard)
{
	return yard->asker && *yard->asker->only_box;
}

const struct asker *yard_set_asker(struct yard *yard, const struct asker *asker)
{
	const struct asker *before = yard->asker;

	yard->asker = asker;
	if (yard->images)
		images_set_view(yard->images, is_bound(yard) ? "" : yard_get_owner(yard),
			!asker || asker->sees_all);
	return before;
}

bool yard_may_see(const struct yard *yard, const char *owner)
{
	if (is_bound(yard))
		return false;
	return !yard->asker || yard->asker->sees_all || !strcmp(yard->asker->owner, owner);
}

bool yard_may_see_box(const struct yard *yard, const struct box *box)
{
	if (is_bound(yard))
		return !strcmp(yard->asker->owner, box->row.owner) &&
		       !strcmp(yard->asker->only_box, box->row.name);
	return yard_may_see(yard, box->row.owner);
}

const char *yard_get_owner(const struct yard *yard)
{
	return yard->asker ? yard->asker->owner : OWNER_LOCAL;
}

const char *yard_only_owner(const struct yard *yard)
{
	return yard->asker && !yard->asker->sees_all ? yard->asker->owner : NULL;
}

const char *yard_get_who(const struct yard *yard)
{
	return yard->asker ? yard->asker->who : "daemon";
}

void box_note_asker(struct box *box)
{
	if (box->yard->asker)
		snprintf(box->asked_by, sizeof box->asked_by, "%s", box->yard->asker->who);
}

void box_forget_asker(struct box *box)
{
	box->asked_by[0] = '\0';
}

/* Upper bound on the programs remembered per box: a program that never starts, or whose end was not
 * heard, stays in the list. */
enum { EXECS_MAX = 4096 };

void box_note_exec(struct box *box, const char *exec, const char *who)
{
	if (!box->exec_who || json_object_size(box->exec_who) >= EXECS_MAX) {
		json_decref(box->exec_who);
		box->exec_who = json_object();
	}
	if (*who && !json_object_get(box->exec_who, exec))
		json_object_set_new(box->exec_who, exec, json_string(who));
}

const char *box_exec_who(const struct box *box, const char *exec)
{
	return json_string_value(json_object_get(box->exec_who, exec));
}

void box_forget_exec(struct box *box, const char *exec)
{
	if (exec && box->exec_who) {
		json_object_del(box->exec_who, exec);
		return;
	}
	json_decref(box->exec_who);
	box->exec_who = NULL;
}
