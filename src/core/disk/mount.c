/* mount.c - what a box sees besides its disk: volumes, and folders of the host
 *
 * A folder of the host, with all symlinks resolved, must be one that the asker may share: anybody
 * those below the setting mount_roots; a caller over the Unix socket also his own (mount_own), and
 * root those of others too, except the machine's own system folders. A token has no uid, so over
 * TCP only the roots count. The asker is stored with the mount ("by") and checked at each start.
 *
 * The one user that owns the folder is uid:gid in the box; everybody else is nobody. What root of
 * the box writes is therefore owned by that user on the host, with set-user-id bits; a folder of
 * root, or of root's group, is for this reason mounted read-only, unless root asks for it with
 * "root". The daemon's own folders (the disks of all boxes, its socket) are given to nobody, and
 * neither is a folder that contains them.
 *
 * Both lists are checked when a box is created and again at each start: the host may have changed
 * meanwhile. */
#include "core/core_internal.h"
#include "base/text.h"
#include "core/disk/volume.h"
#include "pool/pool.h"
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

struct wish {
	const char *from; /* name of a volume, or a folder of the host */
	const char *path;
	bool read_only;
	json_int_t uid, gid; /* of a folder */
	json_int_t by;	     /* uid of the user who gave it; -1: nobody of this machine */
	bool root;	     /* root accepts that the box writes as root */
};

static int read_wish(json_t *item, const char *from_key, struct wish *ret, struct err *err)
{
	json_t *by = json_object_get(item, "by");

	*ret = (struct wish){
		.from = json_string_value(json_object_get(item, from_key)),
		.path = json_string_value(json_object_get(item, "path")),
		.read_only = json_is_true(json_object_get(item, "read_only")),
		.uid = json_integer_value(json_object_get(item, "uid")),
		.gid = json_integer_value(json_object_get(item, "gid")),
		.by = json_is_integer(by) ? json_integer_value(by) : -1,
		.root = json_is_true(json_object_get(item, "root")),
	};
	if (!ret->from || !ret->path || ret->path[0] != '/' || !ret->path[1] ||
		strlen(ret->path) >= PATH_MAX)
		return err_set(
			err, ERR_INVALID, "a mount needs '%s' and an absolute 'path'", from_key);
	if (ret->uid < 0 || ret->uid >= UID_RANGE || ret->gid < 0 || ret->gid >= UID_RANGE)
		return err_set(err, ERR_INVALID, "uid and gid of '%.100s' are between 0 and %d",
			ret->path, UID_RANGE - 1);
	return 0;
}

/* ---- folders of the host -------------------------------------------------------------------- */

static bool lies_below(const char *path, const char *root)
{
	_cleanup_free_ char *real = realpath(root, NULL);
	size_t len = real ? strlen(real) : 0;

	if (!real)
		return false;
	if (len == 1)
		return true;
	return !strncmp(path, real, len) && (path[len] == '/' || !path[len]);
}

static bool holds_or_lies_in(const char *path, const char *ours)
{
	_cleanup_free_ char *real = realpath(ours, NULL);

	return real && (lies_below(path, real) || lies_below(real, path));
}

/* Paths that root shares only by naming them in the configuration: secrets, devices and sockets of
 * the machine. */
static bool is_of_the_machine(const char *path)
{
	static const char *const folders[] = { "/boot", "/dev", "/etc", "/proc", "/run", "/sys" };

	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		if (holds_or_lies_in(path, folders[i]))
			return true;
	return false;
}

static bool is_allowed(
	const struct yard *yard, const struct wish *wish, const char *real, const struct stat *st)
{
	for (size_t i = 0; yard->conf->mount_roots && yard->conf->mount_roots[i]; i++)
		if (lies_below(real, yard->conf->mount_roots[i]))
			return true;
	if (!yard->conf->mount_own || wish->by < 0)
		return false;
	return wish->by == 0 ? !is_of_the_machine(real) : st->st_uid == (uid_t)wish->by;
}

static int refuse_folder(const struct yard *yard, const struct wish *wish, struct err *err)
{
	const char *own = yard->conf->mount_own ? "own:" : "";

	if (wish->by == 0 && access(wish->from, F_OK) < 0 && errno == ENOENT)
		return err_set(
			err, ERR_NOT_FOUND, "'%.200s' does not exist on this machine", wish->from);
	err_set(err, ERR_FORBIDDEN, "'%.200s' cannot be mounted into a box", wish->from);
	if (!yard->conf->mount_own || wish->by < 0)
		return err_hint(err,
			"%sallow it in /etc/boxyard.conf: mount_roots = "
			"%s%.100s",
			yard->conf->mount_own ? "over TCP, " : "", own, wish->from);
	if (wish->by == 0)
		return err_hint(err,
			"it holds files of the system; allow it in /etc/boxyard.conf: "
			"mount_roots = %s%.100s",
			own, wish->from);
	return err_hint(err,
		"only a file or folder that exists and belongs to you (uid %lld) can be; "
		"/etc/boxyard.conf can allow more: mount_roots = %s%.100s",
		(long long)wish->by, own, wish->from);
}

static int check_writable(
	const struct wish *wish, const char *real, const struct stat *st, struct err *err)
{
	if (wish->read_only || (st->st_uid && st->st_gid) || (wish->root && wish->by == 0))
		return 0;
	err_set(err, ERR_FORBIDDEN, "'%.200s' belongs to %s of this machine", real,
		st->st_uid ? "root's group" : "root");
	if (wish->by == 0)
		return err_hint(err,
			"mount it read-only (:ro), copy it ('box new --copy %.60s'), or let the "
			"box write there as root (:rw,root)",
			wish->from);
	return err_hint(
		err, "mount it read-only (:ro), or chown it to its user and that user's group");
}

static int resolve_folder(const struct yard *yard, const struct wish *wish,
	struct instance_mount *ret, struct err *err)
{
	_cleanup_free_ char *real = realpath(wish->from, NULL);
	struct stat st;

	if (wish->from[0] != '/')
		return err_set(err, ERR_INVALID, "'%.200s' is not an absolute path", wish->from);
	/* A missing and a forbidden folder give the same answer. The engine checks the owner again
	 * when it has opened the folder. */
	if (!real || stat(real, &st) < 0 || !is_allowed(yard, wish, real, &st))
		return refuse_folder(yard, wish, err);
	if (holds_or_lies_in(real, yard->conf->home) || holds_or_lies_in(real, yard->conf->run))
		return err_set(err, ERR_FORBIDDEN,
			"'%.200s' cannot be mounted into a box: the daemon's own files are there",
			real);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "'%.200s' is neither a folder nor a file", real);
	if (check_writable(wish, real, &st, err) < 0)
		return -1;
	*ret = (struct instance_mount){
		.source = steal_ptr(&real),
		.target = xstrdup(wish->path),
		.read_only = wish->read_only,
		.map_owner = true,
		.owner_uid = st.st_uid,
		.owner_gid = st.st_gid,
		.box_uid = (uid_t)wish->uid,
		.box_gid = (gid_t)wish->gid,
	};
	return 0;
}

/* ---- volumes -------------------------------------------------------------------------------- */

static bool writes_to(const struct box *box, const char *volume)
{
	_cleanup_json_ json_t *list = json_loads(box->row.volumes, 0, NULL);
	json_t *item;
	size_t i;

	json_array_foreach (list, i, item)
		if (!strcmp(json_get_text(item, "volume"), volume) &&
			!json_is_true(json_object_get(item, "read_only")))
			return true;
	return false;
}

/* Checked before anything is said about who uses the volume. */
static int check_volume_owner(
	struct yard *yard, const char *name, const char *owner, struct err *err)
{
	return pool_disk_exists(yard->pool, VOLUME_DISKS, name) ? volume_use(yard, name, owner, err)
								: 0;
}

static int check_writer(
	struct yard *yard, const struct box *self, const struct wish *wish, struct err *err)
{
	for (size_t i = 0; !wish->read_only && i < yard->box_count; i++) {
		const struct box *box = yard->boxes[i];

		if (box == self || box_is_gone(box) || !box->instance ||
			!writes_to(box, wish->from))
			continue;
		err_set(err, ERR_STATE, "box '%s' writes to volume '%s'", box->row.name,
			wish->from);
		return err_hint(err,
			"one box at a time may write: give it read-only (:ro), or stop '%s'",
			box->row.name);
	}
	return 0;
}

static int resolve_volume(
	struct box *box, const struct wish *wish, struct instance_mount *ret, struct err *err)
{
	struct yard *yard = box->yard;
	_cleanup_free_ char *path = NULL;

	if (check_volume_owner(yard, wish->from, box->row.owner, err) < 0 ||
		check_writer(yard, box, wish, err) < 0)
		return -1;
	if (!pool_disk_exists(yard->pool, VOLUME_DISKS, wish->from))
		return err_set(err, ERR_NOT_FOUND, "there is no volume '%.80s'", wish->from);
	path = pool_disk_path(yard->pool, VOLUME_DISKS, wish->from);
	*ret = (struct instance_mount){
		.source = xasprintf("%s/" VOLUME_DATA, path),
		.target = xstrdup(wish->path),
		.read_only = wish->read_only,
	};
	return 0;
}

/* ---- both ----------------------------------------------------------------------------------- */

static int check_paths(json_t *volumes, json_t *mounts, struct err *err)
{
	_cleanup_json_ json_t *seen = json_object();
	json_t *lists[] = { volumes, mounts }, *item;
	size_t i;

	for (size_t list = 0; list < ARRAY_LEN(lists); list++)
		json_array_foreach (lists[list], i, item) {
			const char *path = json_get_text(item, "path");

			if (json_object_get(seen, path))
				return err_set(err, ERR_INVALID, "'%.100s' is mounted twice", path);
			json_object_set_new(seen, path, json_true());
		}
	if (json_array_size(volumes) + json_array_size(mounts) > INSTANCE_MOUNTS_MAX)
		return err_set(
			err, ERR_INVALID, "more than %d volumes and mounts", INSTANCE_MOUNTS_MAX);
	return 0;
}

static int check_volumes(struct yard *yard, json_t *volumes, const char *owner, struct err *err)
{
	struct wish wish;
	json_t *item;
	size_t i;

	json_array_foreach (volumes, i, item)
		if (read_wish(item, "volume", &wish, err) < 0 ||
			name_check("volume", wish.from, err) < 0 ||
			check_volume_owner(yard, wish.from, owner, err) < 0 ||
			check_writer(yard, NULL, &wish, err) < 0)
			return -1;
	json_array_foreach (volumes, i, item)
		if (volume_use(yard, json_get_text(item, "volume"), owner, err) < 0)
			return -1;
	return 0;
}

int box_mounts_check(struct yard *yard, const struct box_spec *spec, const char *owner,
	char **ret_volumes, char **ret_mounts, struct err *err)
{
	struct wish wish;
	json_t *item;
	size_t i;

	if (check_paths(spec->volumes, spec->mounts, err) < 0)
		return -1;
	json_array_foreach (spec->mounts, i, item) {
		struct instance_mount mount;

		json_object_set_new(item, "by",
			json_integer(spec->by_socket ? (json_int_t)spec->asked_by : -1));
		if (read_wish(item, "source", &wish, err) < 0 ||
			resolve_folder(yard, &wish, &mount, err) < 0)
			return -1;
		free((char *)mount.source);
		free((char *)mount.target);
	}
	if (check_volumes(yard, spec->volumes, owner, err) < 0)
		return -1;
	*ret_volumes = spec->volumes ? json_text(spec->volumes) : xstrdup("[]");
	*ret_mounts = spec->mounts ? json_text(spec->mounts) : xstrdup("[]");
	return 0;
}

/* A mount inside another comes after it: "/data" is less than "/data/cache". */
static int outer_first(const void *a, const void *b)
{
	return strcmp(((const struct instance_mount *)a)->target,
		((const struct instance_mount *)b)->target);
}

int box_mounts_resolve(
	struct box *box, struct instance_mount **ret, size_t *ret_count, struct err *err)
{
	_cleanup_json_ json_t *volumes = json_loads(box->row.volumes, 0, NULL);
	_cleanup_json_ json_t *mounts = json_loads(box->row.mounts, 0, NULL);
	size_t most = json_array_size(volumes) + json_array_size(mounts), count = 0, i;
	struct instance_mount *list = xcalloc(most + 1, sizeof *list);
	struct wish wish;
	json_t *item;

	json_array_foreach (volumes, i, item)
		if (read_wish(item, "volume", &wish, err) < 0 ||
			resolve_volume(box, &wish, &list[count++], err) < 0)
			goto fail;
	json_array_foreach (mounts, i, item)
		if (read_wish(item, "source", &wish, err) < 0 ||
			resolve_folder(box->yard, &wish, &list[count++], err) < 0)
			goto fail;
	if (count)
		qsort(list, count, sizeof *list, outer_first);
	*ret = list;
	*ret_count = count;
	return 0;
fail:
	box_mounts_done(list, count);
	return -1;
}

void box_mounts_done(struct instance_mount *mounts, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free((char *)mounts[i].source);
		free((char *)mounts[i].target);
	}
	free(mounts);
}
