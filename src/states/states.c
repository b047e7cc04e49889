/* states.c - the table of states: which there are, in which form, who holds them; see states.h
 *
 * The table is made from the folders at open and kept in memory; the folders are the truth. A
 * discarded state is called .gone-… until its last hold is released and its helper has ended, then
 * it is trash (sweep.c). */
#include "states/states_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum {
	MEMINFO_MAX = 16384,
	KEPT_PART = 32, /* of the free memory, for plain forms that nobody needs now */
};
#define RESERVE_MAX (UINT64_C(64) << 20) /* of the disk, not given to states */

/* ---- finding -------------------------------------------------------------------------------- */

bool state_id_is_good(const char *id)
{
	size_t len = strlen(id);

	return len && len <= STATE_ID_MAX &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == len;
}

static unsigned bucket_of(const char *id)
{
	uint32_t hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (uint8_t)*id) * 16777619u;
	return hash % BUCKETS;
}

static struct state *find(const struct states *states, const char *id, bool gone)
{
	struct state *state = states->buckets[bucket_of(id)];

	while (state && (state->gone != gone || strcmp(state->id, id)))
		state = state->next;
	return state;
}

struct state *state_find(const struct states *states, const char *id)
{
	return find(states, id, false);
}

struct state *state_add(struct states *states, const char *id)
{
	struct state **bucket = &states->buckets[bucket_of(id)];
	struct state *state = xnew(struct state);

	strcpy(state->id, id);
	state->next = *bucket;
	*bucket = state;
	state_touch(states, state);
	return state;
}

static void forget(struct states *states, struct state *state)
{
	struct state **at = &states->buckets[bucket_of(state->id)];

	while (*at != state)
		at = &(*at)->next;
	*at = state->next;
	free(state);
}

void state_touch(struct states *states, struct state *state)
{
	state->used = ++states->clock;
}

/* ---- room ----------------------------------------------------------------------------------- */

uint64_t state_disk_room(int fd)
{
	struct statvfs fs;
	uint64_t left, reserve;

	if (fstatvfs(fd, &fs) < 0)
		return UINT64_MAX; /* whoever writes will see */
	left = (uint64_t)fs.f_bavail * fs.f_frsize;
	reserve = MIN((uint64_t)fs.f_blocks * fs.f_frsize / 16, RESERVE_MAX);
	return left > reserve ? left - reserve : 0;
}

uint64_t states_memory_available(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned long long kib;
	const char *line;

	if (file_read(AT_FDCWD, "/proc/meminfo", MEMINFO_MAX, &text, NULL, NULL) < 0 ||
		!(line = strstr(text, "\nMemAvailable:")) ||
		sscanf(line, "\nMemAvailable: %llu kB", &kib) != 1)
		return 0;
	return (uint64_t)kib << 10;
}

static uint64_t promised(const struct states *states)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (const struct state *state = states->buckets[i]; state; state = state->next)
			bytes += state->plain == PLAIN_QUICK ? state->promised : 0;
	return bytes;
}

bool state_fits_in_memory(const struct states *states, uint64_t need)
{
	struct statvfs fs;
	uint64_t used;

	if (states->quick < 0 || fstatvfs(states->quick, &fs) < 0)
		return false;
	used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
	if (need > (uint64_t)fs.f_bfree * fs.f_frsize)
		return false;
	return MAX(used, promised(states)) + need <= (states_memory_available() + used) / 4;
}

int state_check_disk(const struct states *states, uint64_t need, struct err *err)
{
	uint64_t room = state_disk_room(states->top);
	char has[16], wants[16];

	if (need <= room)
		return 0;
	err_set(err, ERR_LIMIT, "the disk of BOX_HOME has %s free for states, %s are needed",
		format_size(room, has), format_size(need, wants));
	return err_hint(err, "make some space on the disk of BOX_HOME; removing snapshots does");
}

/* ---- making --------------------------------------------------------------------------------- */

/* ID/plain below dir, new. */
static int make_plain(int dir, const char *id, int *ret, struct err *err)
{
	_cleanup_close_ int folder = -1;

	if (mkdirat(dir, id, 0700) < 0)
		return err_sys(err, errno, "make the folder of state '%s'", id);
	folder = openat(dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (folder >= 0 && mkdirat(folder, PLAIN_NAME, 0700) == 0) {
		*ret = openat(folder, PLAIN_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (*ret >= 0)
			return 0;
	}
	err_sys(err, errno, "make the folder of state '%s'", id);
	tree_remove(dir, id, NULL);
	return -1;
}

int states_make(struct states *states, const char *id, uint64_t need, bool quick, int *ret_dir,
	struct err *err)
{
	struct state *state;

	if (!state_id_is_good(id))
		return err_set(err, ERR_INVALID, "'%s' cannot be the id of a state", id);
	if (state_find(states, id))
		return err_set(err, ERR_EXISTS, "there is a state '%s' already", id);
	if (quick && state_fits_in_memory(states, need) &&
		make_plain(states->quick, id, ret_dir, NULL) == 0) {
		state = state_add(states, id);
		state->plain = PLAIN_QUICK;
		state->promised = need;
		return 0;
	}
	if (state_check_disk(states, need, err) < 0 ||
		make_plain(states->top, id, ret_dir, err) < 0)
		return -1;
	state_add(states, id)->plain = PLAIN_DISK;
	return 0;
}

int state_open_plain(const struct states *states, const struct state *state, struct err *err)
{
	int dir = state->plain == PLAIN_QUICK ? states->quick : states->top, fd;
	char path[STATE_ID_MAX + sizeof "/" PLAIN_NAME];

	snprintf(path, sizeof path, "%s/%s", state->id, PLAIN_NAME);
	fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? err_sys(err, errno, "open the files of state '%s'", state->id) : fd;
}

/* ---- packing and unpacking ------------------------------------------------------------------ */

static struct answer *answer_new(states_done done, states_opened opened, void *arg)
{
	struct answer *answer = xnew(struct answer);

	*answer = (struct answer){ .done = done, .opened = opened, .arg = arg, .dir = -1 };
	return answer;
}

static void answer_missing(struct states *states, struct answer *answer, const char *id)
{
	err_set(&answer->err, ERR_NOT_FOUND, "there is no state '%s'", id);
	answer_send(states, answer, NULL);
}

void states_pack(struct states *states, const char *id, states_done done, void *arg)
{
	struct answer *answer = answer_new(done, NULL, arg);
	struct state *state = state_find(states, id);

	if (!state)
		answer_missing(states, answer, id);
	else if (state->packed)
		answer_send(states, answer, NULL);
	else
		job_ask(states, state, JOB_PACK, answer);
}

void states_verify(struct states *states, const char *id, states_done done, void *arg)
{
	struct answer *answer = answer_new(done, NULL, arg);
	struct state *state = state_find(states, id);

	if (!state || !state->packed)
		answer_missing(states, answer, id);
	else
		job_ask(states, state, JOB_VERIFY, answer);
}

void states_plain(struct states *states, const char *id, states_opened done, void *arg)
{
	struct state *state = state_find(states, id);
	struct err err = ERR_INIT;
	int dir;

	if (!state) {
		err_set(&err, ERR_NOT_FOUND, "there is no state '%s'", id);
		done(-1, &err, arg);
		return;
	}
	state_touch(states, state);
	if (state->plain == PLAIN_NONE) {
		job_ask(states, state, JOB_UNPACK, answer_new(NULL, done, arg));
		return;
	}
	dir = state_open_plain(states, state, &err);
	if (dir >= 0)
		state->holds++;
	done(dir, dir < 0 ? &err : NULL, arg);
}

/* ---- holding and dropping ------------------------------------------------------------------- */

void states_hold(struct states *states, const char *id)
{
	struct state *state = state_find(states, id);

	if (state) {
		state->holds++;
		state_touch(states, state);
	}
}

void states_release(struct states *states, const char *id)
{
	struct state *state = state_find(states, id);

	if (!state || !state->holds)
		state = find(states, id, true);
	if (!state || !state->holds)
		return;
	state->holds--;
	state_touch(states, state);
	state_settle(states, state);
}

bool states_pin(struct states *states, const char *id)
{
	struct state *state = state_find(states, id);

	if (state)
		state->pins++;
	return state != NULL;
}

void states_unpin(struct states *states, const char *id)
{
	struct state *state = state_find(states, id);
	struct err err = ERR_INIT;

	if (!state || !state->pins || --state->pins || !state->doomed)
		return;
	if (states_discard(states, id, &err) < 0)
		log_warn("a state stays", kv_err(&err));
}

static bool can_drop(const struct state *state)
{
	return state->packed && state->plain != PLAIN_NONE && !state->holds && !state->gone;
}

static void drop_plain(struct states *states, struct state *state)
{
	bool quick = state->plain == PLAIN_QUICK;
	char path[STATE_ID_MAX + sizeof "/" PLAIN_NAME];
	struct err err = ERR_INIT;

	snprintf(path, sizeof path, "%s/%s", state->id, PLAIN_NAME);
	if (sweep_take(quick ? states->quick : states->top, quick ? state->id : path, &err) < 0)
		log_warn("cannot drop the plain form of a state", kv_err(&err));
	else
		state->plain = PLAIN_NONE;
}

static int compare_used(const void *a, const void *b)
{
	const struct state *x = *(struct state *const *)a, *y = *(struct state *const *)b;

	return x->used > y->used ? -1 : x->used < y->used; /* the newest first */
}

void states_drop_plain(struct states *states, const char *id)
{
	struct state *state = state_find(states, id);

	if (!state || !can_drop(state))
		return;
	drop_plain(states, state);
	sweep(states);
}

void states_trim(struct states *states, unsigned keep)
{
	_cleanup_free_ struct state **found = NULL;
	uint64_t room_bytes = states_memory_available() / KEPT_PART, plain, packed;
	size_t count = 0, room = 0;
	bool dropped = false;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct state *state = states->buckets[i]; state; state = state->next) {
			if (!can_drop(state))
				continue;
			if (count == room) {
				room = MAX(16, room * 2);
				xgrow(found, room);
			}
			found[count++] = state;
		}
	if (count)
		qsort(found, count, sizeof *found, compare_used);
	for (size_t i = 0; i < count; i++) {
		states_sizes(states, found[i]->id, &plain, &packed);
		if (i < keep && plain <= room_bytes) {
			room_bytes -= plain;
			continue;
		}
		drop_plain(states, found[i]);
		dropped = true;
	}
	if (dropped)
		sweep(states);
}

static int rename_gone(int dir, const struct state *state, struct err *err)
{
	char to[sizeof GONE_PREFIX + SUFFIX_LEN];

	snprintf(to, sizeof to, "%s%s", GONE_PREFIX, state->suffix);
	if (dir >= 0 && renameat(dir, state->id, dir, to) < 0 && errno != ENOENT)
		return err_sys(err, errno, "discard state '%s'", state->id);
	return 0;
}

int states_discard(struct states *states, const char *id, struct err *err)
{
	struct state *state = state_find(states, id);

	if (!state)
		return 0;
	state->doomed = state->pins > 0;
	if (state->doomed)
		return 0;
	random_id(state->suffix, SUFFIX_LEN);
	if (rename_gone(states->top, state, err) < 0 || rename_gone(states->quick, state, err) < 0)
		return -1;
	state->gone = true;
	job_cancel(states, state);
	state_settle(states, state);
	return 0;
}

void state_settle(struct states *states, struct state *state)
{
	char name[sizeof GONE_PREFIX + SUFFIX_LEN];

	if (!state->gone || state->holds || state->running)
		return;
	snprintf(name, sizeof name, "%s%s", GONE_PREFIX, state->suffix);
	sweep_take(states->top, name, NULL);
	if (states->quick >= 0)
		sweep_take(states->quick, name, NULL);
	forget(states, state);
	sweep(states);
}

/* ---- asking --------------------------------------------------------------------------------- */

bool states_exists(const struct states *states, const char *id)
{
	return state_find(states, id) != NULL;
}

bool states_is_packed(const struct states *states, const char *id)
{
	const struct state *state = state_find(states, id);

	return state && state->packed;
}

bool states_is_quick(const struct states *states, const char *id)
{
	const struct state *state = state_find(states, id);

	return state && state->plain == PLAIN_QUICK;
}

/* Of whatever is there: a capture may still be writing. */
static uint64_t folder_bytes(int fd)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	if (!dir) {
		close(fd);
		return 0;
	}
	while ((entry = readdir(dir)))
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			S_ISREG(st.st_mode))
			bytes += (uint64_t)st.st_size;
	closedir(dir);
	return bytes;
}

void states_sizes(
	const struct states *states, const char *id, uint64_t *ret_plain, uint64_t *ret_packed)
{
	const struct state *state = state_find(states, id);
	char path[STATE_ID_MAX + sizeof "/" PACKED_NAME];
	struct stat st;
	int fd;

	*ret_plain = *ret_packed = 0;
	if (!state)
		return;
	if (state->plain != PLAIN_NONE) {
		fd = state_open_plain(states, state, NULL);
		if (fd >= 0)
			*ret_plain = folder_bytes(fd);
	}
	snprintf(path, sizeof path, "%s/%s", id, PACKED_NAME);
	if (state->packed && fstatat(states->top, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		*ret_packed = (uint64_t)st.st_size;
}

void states_each(struct states *states, void (*fn)(const char *id, void *arg), void *arg)
{
	_cleanup_free_ char(*ids)[STATE_ID_MAX + 1] = NULL;
	size_t count = 0, room = 0;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct state *state = states->buckets[i]; state; state = state->next) {
			if (state->gone)
				continue;
			if (count == room) {
				room = MAX(16, room * 2);
				xgrow(ids, room);
			}
			strcpy(ids[count++], state->id);
		}
	for (size_t i = 0; i < count; i++)
		fn(ids[i], arg);
}
