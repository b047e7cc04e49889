/* volume.c - see volume.h; the only records of a volume are its folder, its owner's row and its
 * limit in the pool */
#include "core/disk/volume.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/core_internal.h"
#include "pool/pool.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { VOLUME_LEAST = 1024 * 1024 };

static int check_limit(struct yard *yard, uint64_t limit, struct err *err)
{
	if (limit && limit < VOLUME_LEAST)
		return err_set(
			err, ERR_INVALID, "size must be 0 (no limit) or at least %d", VOLUME_LEAST);
	if (!limit || pool_has_quota(yard->pool))
		return 0;
	err_set(err, ERR_UNSUPPORTED, "the pool has no quota here, a volume cannot have a size");
	return err_hint(err, "'box doctor' says what is missing");
}

static bool may_see(struct yard *yard, const char *name)
{
	_cleanup_free_ char *owner = store_volume_owner(yard->store, name);

	return yard_may_see(yard, owner);
}

static int find(struct yard *yard, const char *name, struct err *err)
{
	if (name_check("volume", name, NULL) == 0 &&
		pool_disk_exists(yard->pool, VOLUME_DISKS, name) && may_see(yard, name))
		return 0;
	err_set(err, ERR_NOT_FOUND, "no volume '%.80s'", name);
	return err_hint(err, "'box volume ls' lists them");
}

static int refuse_taken(struct yard *yard, const char *name, struct err *err)
{
	if (may_see(yard, name))
		return err_set(err, ERR_EXISTS, "there is a volume '%s' already", name);
	err_set(err, ERR_EXISTS, "the name '%s' is taken by another owner's volume", name);
	return err_hint(err, "names are unique on a machine; choose another");
}

int volume_use(struct yard *yard, const char *name, const char *owner, struct err *err)
{
	_cleanup_free_ char *of = NULL;

	if (!pool_disk_exists(yard->pool, VOLUME_DISKS, name))
		return volume_create(yard, name, owner, 0, err);
	of = store_volume_owner(yard->store, name);
	if (!strcmp(of, owner))
		return 0;
	return refuse_taken(yard, name, err);
}

int volume_create(
	struct yard *yard, const char *name, const char *owner, uint64_t limit, struct err *err)
{
	_cleanup_free_ char *path = NULL, *data = NULL;

	if (name_check("volume", name, err) < 0 || check_limit(yard, limit, err) < 0)
		return -1;
	if (pool_disk_exists(yard->pool, VOLUME_DISKS, name))
		return refuse_taken(yard, name, err);
	/* The owner is stored first: an existing volume never lacks its owner. */
	if (pool_check_room(yard->pool, 0, err) < 0 ||
		store_volume_put(yard->store, name, owner, err) < 0 ||
		pool_disk_make(yard->pool, VOLUME_DISKS, name, limit, err) < 0)
		return err_wrap(err, "make volume '%s'", name);
	path = pool_disk_path(yard->pool, VOLUME_DISKS, name);
	data = xasprintf("%s/" VOLUME_DATA, path);
	if (mkdir(data, 0755) < 0) {
		err_sys(err, errno, "make volume '%s'", name);
		pool_disk_discard(yard->pool, VOLUME_DISKS, name, NULL);
		return -1;
	}
	yard_event(yard, "volume.created", NULL,
		json_pack("{s:s,s:I}", "name", name, "limit_bytes", (json_int_t)limit));
	return 0;
}

/* The boxes that use it, as [{"name","path","read_only"}]. */
static json_t *users_json(struct yard *yard, const char *name)
{
	json_t *users = json_array(), *item;
	size_t i;

	for (size_t box = 0; box < yard->box_count; box++) {
		_cleanup_json_ json_t *list = NULL;

		if (box_is_gone(yard->boxes[box]))
			continue;
		list = json_loads(yard->boxes[box]->row.volumes, 0, NULL);
		json_array_foreach (list, i, item)
			if (!strcmp(json_get_text(item, "volume"), name))
				json_array_append_new(users,
					json_pack("{s:s,s:s,s:b}", "name",
						yard->boxes[box]->row.name, "path",
						json_get_text(item, "path"), "read_only",
						json_is_true(json_object_get(item, "read_only"))));
	}
	return users;
}

int volume_remove(struct yard *yard, const char *name, struct err *err)
{
	_cleanup_json_ json_t *users = NULL;

	if (find(yard, name, err) < 0)
		return -1;
	users = users_json(yard, name);
	if (json_array_size(users)) {
		err_set(err, ERR_STATE, "volume '%s' is used by box '%s'%s", name,
			json_get_text(json_array_get(users, 0), "name"),
			json_array_size(users) > 1 ? " and others" : "");
		return err_hint(err, "'box volume show %s' names them; remove them first", name);
	}
	if (pool_disk_discard(yard->pool, VOLUME_DISKS, name, err) < 0)
		return err_wrap(err, "remove volume '%s'", name);
	store_volume_delete(yard->store, name, NULL);
	yard_event(yard, "volume.removed", NULL, json_pack("{s:s}", "name", name));
	return 0;
}

int volume_set_limit(struct yard *yard, const char *name, uint64_t limit, struct err *err)
{
	if (find(yard, name, err) < 0 || check_limit(yard, limit, err) < 0)
		return -1;
	if (pool_disk_limit(yard->pool, VOLUME_DISKS, name, limit, err) < 0)
		return -1;
	return pool_budget_limit(yard->pool, VOLUME_DISKS, name, limit, err);
}

json_t *volume_json(struct yard *yard, const char *name, struct err *err)
{
	_cleanup_free_ char *path = NULL, *owner = NULL;
	char when[CLOCK_RFC3339_MAX];
	uint64_t used = 0, limit = 0;
	json_t *used_json;
	struct statx st = { 0 };

	if (find(yard, name, err) < 0)
		return NULL;
	path = pool_disk_path(yard->pool, VOLUME_DISKS, name);
	statx(AT_FDCWD, path, 0, STATX_BTIME | STATX_MTIME, &st);
	if (!(st.stx_mask & STATX_BTIME))
		st.stx_btime = st.stx_mtime;
	used_json = pool_usage(yard->pool, VOLUME_DISKS, name, &used, &limit, NULL) < 0
			    ? json_null()
			    : json_integer((json_int_t)used);
	owner = store_volume_owner(yard->store, name);
	return json_pack("{s:s,s:s,s:s,s:I,s:o,s:o}", "name", name, "owner", owner, "created_at",
		clock_rfc3339(st.stx_btime.tv_sec * 1000000LL + st.stx_btime.tv_nsec / 1000, when),
		"limit_bytes", (json_int_t)limit, "used_bytes", used_json, "boxes",
		users_json(yard, name));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(json_get_text(*(json_t *const *)a, "name"),
		json_get_text(*(json_t *const *)b, "name"));
}

json_t *volumes_json(struct yard *yard)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", pool_get_path(yard->pool), VOLUME_DISKS);
	json_t **list = NULL, *sorted = json_array();
	DIR *dir = opendir(path);
	struct dirent *entry;
	size_t count = 0;

	while (dir && (entry = readdir(dir))) {
		json_t *volume =
			entry->d_name[0] == '.' ? NULL : volume_json(yard, entry->d_name, NULL);

		if (volume) {
			xgrow(list, count + 1);
			list[count++] = volume;
		}
	}
	if (dir)
		closedir(dir);
	if (count)
		qsort(list, count, sizeof *list, by_name);
	for (size_t i = 0; i < count; i++)
		json_array_append_new(sorted, list[i]);
	free(list);
	return sorted;
}
