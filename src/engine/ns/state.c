/* state.c - what a capture and a restore of an instance agree upon
 *
 * The root, the memory file systems, box-init's folder and the mounts of the host are made again by
 * us, for another range of users if need be: CRIU is told to leave them to us ("external"). Which
 * of them exist is read from the running box and kept beside CRIU's own files, with the version of
 * box-init that it runs and its range. */
#include "engine/ns/ns_internal.h"
#include "base/file.h"
#include "base/text.h"
#include "base/json.h"
#include "base/strv.h"
#include "engine/ns/criu/criu.h"
#include "sys/beneath.h"
#include "sys/procstat.h"
#include "sys/procfd.h"
#include "wire/wire.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

enum {
	MOUNTINFO_MAX = 4 * 1024 * 1024,
	STATE_MAX = 64 * 1024,
	STATE_VERSION = 1,
	WATCHED_MAX = 64,
};

static const char *const kind_names[] = {
	[EXTERNAL_RUN] = "run",
	[EXTERNAL_SOCKET] = "socket",
	[EXTERNAL_SHM] = "shm",
	[EXTERNAL_BIN] = "bin",
	[EXTERNAL_HIDDEN] = "hidden",
	[EXTERNAL_CGROUP] = "cgroup",
	[EXTERNAL_CONTAINERS] = "containers",
	[EXTERNAL_DOCKER] = "docker",
	[EXTERNAL_MOUNT] = "mount",
};
_Static_assert(ARRAY_LEN(kind_names) == EXTERNAL_KIND_COUNT, "every kind has a name");

static const struct {
	enum external_kind kind;
	const char *at;
	bool needed;
} fixed[] = {
	{ EXTERNAL_RUN, "/run", true },
	{ EXTERNAL_SOCKET, WIRE_SOCKET_DIR, true },
	{ EXTERNAL_SHM, "/dev/shm", true },
	{ EXTERNAL_BIN, "/" GUEST_MOUNT, true },
	{ EXTERNAL_CGROUP, "/sys/fs/cgroup", false },
	{ EXTERNAL_CONTAINERS, "/var/lib/containers", false },
	{ EXTERNAL_DOCKER, "/var/lib/docker", false },
};

/* ---- looking -------------------------------------------------------------------------------- */

int state_open_inside(struct ns_instance *instance, const char *path, int *ret, struct err *err)
{
	_cleanup_close_ int root = -1;
	char proc[32];

	snprintf(proc, sizeof proc, "/proc/%d/root", (int)instance->base.mark.pid);
	root = open(proc, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_set(err, ERR_UNAVAILABLE, "the box has ended");
	return beneath_open(root, path + 1, O_RDONLY | O_DIRECTORY, ret, err);
}

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime …": is something mounted there, and with which options. */
static bool is_mounted(const char *mountinfo, const char *at, bool *ret_read_only)
{
	size_t len = strlen(at);

	for (const char *line = mountinfo; line && *line;) {
		const char *end = strchr(line, '\n'), *word = line;

		for (int i = 0; i < 4 && word; i++) {
			word = strchr(word, ' ');
			word = word ? word + 1 : NULL;
		}
		if (word && (!end || word < end) && !strncmp(word, at, len) && word[len] == ' ') {
			*ret_read_only = !strncmp(word + len, " ro", 3);
			return true;
		}
		line = end ? end + 1 : NULL;
	}
	return false;
}

static int add(struct state *state, enum external_kind kind, const char *at, bool read_only,
	struct err *err)
{
	struct external *external = &state->externals[state->external_count];

	if (state->external_count >= EXTERNALS_MAX || strlen(at) >= sizeof external->at)
		return err_set(err, ERR_LIMIT, "more mounts than a checkpoint can have");
	external->kind = kind;
	external->read_only = read_only;
	strcpy(external->at, at);
	state->external_count++;
	return 0;
}

static int look_at_fixed(struct state *state, const char *mountinfo, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
		bool read_only = false;

		if (!is_mounted(mountinfo, fixed[i].at, &read_only)) {
			if (!fixed[i].needed)
				continue;
			err_set(err, ERR_STATE, "the box has taken '%s' off", fixed[i].at);
			return err_hint(err, "a snapshot of the disk alone is possible");
		}
		if (add(state, fixed[i].kind, fixed[i].at, read_only, err) < 0)
			return -1;
	}
	return 0;
}

static int look_at_rest(
	struct state *state, const char *mountinfo, const char *const *targets, struct err *err)
{
	char at[MOUNT_TARGET_MAX];
	bool read_only;

	for (size_t i = 0; hidden_paths[i].path; i++) {
		snprintf(at, sizeof at, "/%s", hidden_paths[i].path);
		if (hidden_paths[i].is_dir && is_mounted(mountinfo, at, &read_only) &&
			add(state, EXTERNAL_HIDDEN, at, true, err) < 0)
			return -1;
	}
	for (size_t i = 0; targets && targets[i]; i++)
		if (is_mounted(mountinfo, targets[i], &read_only) &&
			add(state, EXTERNAL_MOUNT, targets[i], read_only, err) < 0)
			return -1;
	return 0;
}

int state_look(struct ns_instance *instance, const char *const *targets, struct state *ret,
	struct err *err)
{
	_cleanup_free_ char *mountinfo = NULL;
	_cleanup_close_ int bin = -1;
	char path[40];

	*ret = (struct state){ .uid_base = instance->uid_base, .profile = instance->profile };
	snprintf(path, sizeof path, "/proc/%d/mountinfo", (int)instance->base.mark.pid);
	if (file_read(AT_FDCWD, path, MOUNTINFO_MAX, &mountinfo, NULL, err) < 0)
		return err_wrap(err, "mounts of the box");
	if (look_at_fixed(ret, mountinfo, err) < 0 ||
		look_at_rest(ret, mountinfo, targets, err) < 0)
		return -1;
	if (procstat_has_ids(instance->base.mark.pid, NS_IDS, &ret->wide, err) < 0)
		return -1;
	if (state_open_inside(instance, "/" GUEST_MOUNT, &bin, err) < 0)
		return -1;
	return guest_find_name(ns_engine_of(instance->base.engine)->home, bin, ret->guest, err);
}

/* ---- keeping -------------------------------------------------------------------------------- */

int state_write(const struct state *state, int dir, struct err *err)
{
	_cleanup_json_ json_t *externals = json_array(), *all = NULL;
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int fd = -1;

	for (size_t i = 0; i < state->external_count; i++)
		json_array_append_new(externals,
			json_pack("{s:s,s:s,s:b}", "kind", kind_names[state->externals[i].kind],
				"at", state->externals[i].at, "read_only",
				state->externals[i].read_only));
	all = json_pack("{s:s,s:i,s:s,s:s,s:I,s:b,s:O}", "driver", "ns", "version", STATE_VERSION,
		"guest", state->guest, "profile", profile_name(state->profile), "uid_base",
		(json_int_t)state->uid_base, "wide", state->wide, "externals", externals);
	text = json_text(all);
	fd = openat(dir, STATE_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, errno, "make '" STATE_FILE "'");
	return fd_write_all(fd, text, strlen(text), err);
}

static int damaged(struct err *err)
{
	err_set(err, ERR_PROTOCOL, "the checkpoint is damaged: '" STATE_FILE "'");
	return err_hint(err, "the disk alone can be used");
}

static int read_external(struct state *state, json_t *item, struct err *err)
{
	const char *kind = json_string_value(json_object_get(item, "kind"));
	const char *at = json_string_value(json_object_get(item, "at"));

	for (unsigned i = 0; kind && at && at[0] == '/' && i < EXTERNAL_KIND_COUNT; i++)
		if (!strcmp(kind, kind_names[i]))
			return add(state, i, at, json_is_true(json_object_get(item, "read_only")),
				err);
	return damaged(err);
}

int state_read(int dir, struct state *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ json_t *all = NULL;
	const char *guest, *profile;
	json_int_t base;
	json_t *item;
	size_t i;

	*ret = (struct state){ 0 };
	if (file_read(dir, STATE_FILE, STATE_MAX, &text, NULL, err) < 0)
		return err_wrap(err, "read the state");
	all = json_loads(text, 0, NULL);
	guest = json_string_value(json_object_get(all, "guest"));
	profile = json_string_value(json_object_get(all, "profile"));
	base = json_integer_value(json_object_get(all, "uid_base"));
	if (json_integer_value(json_object_get(all, "version")) != STATE_VERSION || !guest ||
		strlen(guest) >= sizeof ret->guest || strchr(guest, '/') || !profile || base <= 0 ||
		base > UINT32_MAX)
		return damaged(err);
	strcpy(ret->guest, guest);
	ret->uid_base = (uint32_t)base;
	ret->wide = json_is_true(json_object_get(all, "wide"));
	if (profile_from_name(profile, &ret->profile, err) < 0)
		return -1;
	json_array_foreach (json_object_get(all, "externals"), i, item)
		if (read_external(ret, item, err) < 0)
			return -1;
	return 0;
}

/* ---- CRIU ----------------------------------------------------------------------------------- */

static bool is_watched(const char *name)
{
	/* Not on the disk, or searched last. */
	static const char *const others[] = { "proc", "sys", "dev", "run", GUEST_MOUNT, "usr",
		NULL };

	return strcmp(name, ".") && strcmp(name, "..") && !strv_has(others, name);
}

/* Folders in which CRIU searches files watched by inotify by their inode: all below "/", which
 * itself does not work. The largest comes last. */
char **state_watched(struct ns_instance *instance)
{
	char **list = strv_copy(NULL);
	char path[32];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof path, "/proc/%d/root", (int)instance->base.mark.pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)) && strv_len((const char *const *)list) < WATCHED_MAX) {
		_cleanup_free_ char *folder = xasprintf("/%s", entry->d_name);

		if (entry->d_type == DT_DIR && is_watched(entry->d_name))
			strv_add(&list, folder);
	}
	if (dir)
		closedir(dir);
	strv_add(&list, "/usr");
	return list;
}

void state_options(struct ns_engine *engine, struct criu_request *request)
{
	request->program = engine->criu;
	request->scratch = engine->scratch;
	request->ext_unix_sk = true;
	request->tcp_established = true;
	request->tcp_skip_in_flight = true;
	request->file_locks = true;
	request->link_remap = true;
	request->force_irmap = true;
	request->skip_file_rwx_check = true;
	request->ghost_limit = 256u << 20;
	request->empty_ns = CLONE_NEWNET;
}

char **state_externals(const struct state *state, const char *place)
{
	char **list = strv_copy(NULL);

	for (size_t i = 0; i < state->external_count; i++) {
		_cleanup_free_ char *text =
			place ? xasprintf("mnt[e%zu]:%s/%s%zu", i, place,
					state->externals[i].is_file ? "f" : "", i + 1)
			      : xasprintf("mnt[%s]:e%zu", state->externals[i].at, i);

		strv_add(&list, text);
	}
	return list;
}

/* ---- facts of a state ----------------------------------------------------------------------- */

enum { MAGIC_SIZE = 8 }; /* of an image of CRIU's with nothing in it */

/* Counts the memory files; all others are small. */
static uint64_t count_pages(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	if (fd >= 0 && !folder)
		close(fd);
	while (folder && (entry = readdir(folder)))
		if (text_has_prefix(entry->d_name, "pages-") &&
			fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_size;
	if (folder)
		closedir(folder);
	return bytes;
}

void ns_look_at_state(struct engine *engine, int dir, struct instance_state_facts *ret)
{
	struct stat st;

	(void)engine;
	*ret = (struct instance_state_facts){
		.memory_bytes = count_pages(dir),
		.locks = fstatat(dir, "filelocks.img", &st, 0) == 0 && st.st_size > MAGIC_SIZE,
		.unusual = fstatat(dir, "unusual", &st, AT_SYMLINK_NOFOLLOW) == 0,
	};
}
