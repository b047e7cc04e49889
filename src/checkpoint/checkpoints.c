/* checkpoints.c - the table of checkpoints: their forms and holds; see checkpoints.h
 *
 * The table is read from the folders at open and kept in memory; the folders are the truth. A
 * discarded checkpoint is called .gone-… until its last hold is released and its helper has
 * ended; then it is trash (sweep.c). */
#include "checkpoint/checkpoints_internal.h"
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
	KEPT_PART = 32, /* of the free memory, for plain forms that nobody uses now */
};
#define RESERVE_MAX (UINT64_C(64) << 20) /* disk space that checkpoints leave free */

/* ---- finding -------------------------------------------------------------------------------- */

bool checkpoint_id_is_good(const char *id)
{
	size_t len = strlen(id);

	return len && len <= CHECKPOINT_ID_MAX &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == len;
}

static unsigned bucket_of(const char *id)
{
	uint32_t hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (uint8_t)*id) * 16777619u;
	return hash % BUCKETS;
}

static struct checkpoint *find(const struct checkpoints *checkpoints, const char *id, bool gone)
{
	struct checkpoint *checkpoint = checkpoints->buckets[bucket_of(id)];

	while (checkpoint && (checkpoint->gone != gone || strcmp(checkpoint->id, id)))
		checkpoint = checkpoint->next;
	return checkpoint;
}

struct checkpoint *checkpoint_find(const struct checkpoints *checkpoints, const char *id)
{
	return find(checkpoints, id, false);
}

struct checkpoint *checkpoint_add(struct checkpoints *checkpoints, const char *id)
{
	struct checkpoint **bucket = &checkpoints->buckets[bucket_of(id)];
	struct checkpoint *checkpoint = xnew(struct checkpoint);

	strcpy(checkpoint->id, id);
	checkpoint->next = *bucket;
	*bucket = checkpoint;
	checkpoint_touch(checkpoints, checkpoint);
	return checkpoint;
}

static void forget(struct checkpoints *checkpoints, struct checkpoint *checkpoint)
{
	struct checkpoint **at = &checkpoints->buckets[bucket_of(checkpoint->id)];

	while (*at != checkpoint)
		at = &(*at)->next;
	*at = checkpoint->next;
	free(checkpoint);
}

void checkpoint_touch(struct checkpoints *checkpoints, struct checkpoint *checkpoint)
{
	checkpoint->used = ++checkpoints->clock;
}

/* ---- room ----------------------------------------------------------------------------------- */

uint64_t checkpoint_disk_room(int fd)
{
	struct statvfs fs;
	uint64_t left, reserve;

	if (fstatvfs(fd, &fs) < 0)
		return UINT64_MAX; /* unknown: the writer will get the error */
	left = (uint64_t)fs.f_bavail * fs.f_frsize;
	reserve = MIN((uint64_t)fs.f_blocks * fs.f_frsize / 16, RESERVE_MAX);
	return left > reserve ? left - reserve : 0;
}

uint64_t checkpoints_memory_available(void)
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

static uint64_t promised(const struct checkpoints *checkpoints)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (const struct checkpoint *checkpoint = checkpoints->buckets[i]; checkpoint;
			checkpoint = checkpoint->next)
			bytes += checkpoint->plain == PLAIN_QUICK ? checkpoint->promised : 0;
	return bytes;
}

bool checkpoint_fits_in_memory(const struct checkpoints *checkpoints, uint64_t need)
{
	struct statvfs fs;
	uint64_t used;

	if (checkpoints->quick < 0 || fstatvfs(checkpoints->quick, &fs) < 0)
		return false;
	used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
	if (need > (uint64_t)fs.f_bfree * fs.f_frsize)
		return false;
	return MAX(used, promised(checkpoints)) + need <=
	       (checkpoints_memory_available() + used) / 4;
}

int checkpoint_check_disk(const struct checkpoints *checkpoints, uint64_t need, struct err *err)
{
	uint64_t room = checkpoint_disk_room(checkpoints->top);
	char has[16], wants[16];

	if (need <= room)
		return 0;
	err_set(err, ERR_LIMIT, "the disk of BOX_HOME has %s free for checkpoints, %s are needed",
		format_size(room, has), format_size(need, wants));
	return err_hint(
		err, "free some space on the disk of BOX_HOME, for example by removing snapshots");
}

/* ---- making --------------------------------------------------------------------------------- */

/* Makes ID/plain below dir. */
static int make_plain(int dir, const char *id, int *ret, struct err *err)
{
	_cleanup_close_ int folder = -1;

	if (mkdirat(dir, id, 0700) < 0)
		return err_sys(err, errno, "make the folder of checkpoint '%s'", id);
	folder = openat(dir, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (folder >= 0 && mkdirat(folder, PLAIN_NAME, 0700) == 0) {
		*ret = openat(folder, PLAIN_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (*ret >= 0)
			return 0;
	}
	err_sys(err, errno, "make the folder of checkpoint '%s'", id);
	tree_remove(dir, id, NULL);
	return -1;
}

int checkpoints_make(struct checkpoints *checkpoints, const char *id, uint64_t need, bool quick,
	int *ret_dir, struct err *err)
{
	struct checkpoint *checkpoint;

	if (!checkpoint_id_is_good(id))
		return err_set(err, ERR_INVALID, "'%s' is not a valid id of a checkpoint", id);
	if (checkpoint_find(checkpoints, id))
		return err_set(err, ERR_EXISTS, "there is a checkpoint '%s' already", id);
	if (quick && checkpoint_fits_in_memory(checkpoints, need) &&
		make_plain(checkpoints->quick, id, ret_dir, NULL) == 0) {
		checkpoint = checkpoint_add(checkpoints, id);
		checkpoint->plain = PLAIN_QUICK;
		checkpoint->promised = need;
		return 0;
	}
	if (checkpoint_check_disk(checkpoints, need, err) < 0 ||
		make_plain(checkpoints->top, id, ret_dir, err) < 0)
		return -1;
	checkpoint_add(checkpoints, id)->plain = PLAIN_DISK;
	return 0;
}

int checkpoint_open_plain(
	const struct checkpoints *checkpoints, const struct checkpoint *checkpoint, struct err *err)
{
	int dir = checkpoint->plain == PLAIN_QUICK ? checkpoints->quick : checkpoints->top, fd;
	char path[CHECKPOINT_ID_MAX + sizeof "/" PLAIN_NAME];

	snprintf(path, sizeof path, "%s/%s", checkpoint->id, PLAIN_NAME);
	fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? err_sys(err, errno, "open the files of checkpoint '%s'", checkpoint->id)
		      : fd;
}

int checkpoints_open_shared(
	struct checkpoints *checkpoints, const char *id, int *ret, struct err *err)
{
	const struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);
	char path[CHECKPOINT_ID_MAX + sizeof "/" SHARED_NAME];

	if (!checkpoint || checkpoint->plain != PLAIN_DISK)
		return err_set(err, ERR_NOT_FOUND, "there is no checkpoint '%s' on the disk", id);
	snprintf(path, sizeof path, "%s/%s", id, SHARED_NAME);
	if (mkdirat(checkpoints->top, path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, errno, "make the shared folder of checkpoint '%s'", id);
	*ret = openat(checkpoints->top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (*ret < 0)
		return err_sys(err, errno, "open the shared folder of checkpoint '%s'", id);
	return 0;
}

/* ---- packing and unpacking ------------------------------------------------------------------ */

static struct answer *answer_new(checkpoints_done done, checkpoints_opened opened, void *arg)
{
	struct answer *answer = xnew(struct answer);

	*answer = (struct answer){ .done = done, .opened = opened, .arg = arg, .dir = -1 };
	return answer;
}

static void answer_missing(struct checkpoints *checkpoints, struct answer *answer, const char *id)
{
	err_set(&answer->err, ERR_NOT_FOUND, "there is no checkpoint '%s'", id);
	answer_send(checkpoints, answer, NULL);
}

void checkpoints_pack(
	struct checkpoints *checkpoints, const char *id, checkpoints_done done, void *arg)
{
	struct answer *answer = answer_new(done, NULL, arg);
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	if (!checkpoint)
		answer_missing(checkpoints, answer, id);
	else if (checkpoint->packed)
		answer_send(checkpoints, answer, NULL);
	else
		job_ask(checkpoints, checkpoint, JOB_PACK, answer);
}

void checkpoints_verify(
	struct checkpoints *checkpoints, const char *id, checkpoints_done done, void *arg)
{
	struct answer *answer = answer_new(done, NULL, arg);
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	if (!checkpoint || !checkpoint->packed)
		answer_missing(checkpoints, answer, id);
	else
		job_ask(checkpoints, checkpoint, JOB_VERIFY, answer);
}

void checkpoints_plain(
	struct checkpoints *checkpoints, const char *id, checkpoints_opened done, void *arg)
{
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);
	struct err err = ERR_INIT;
	int dir;

	if (!checkpoint) {
		err_set(&err, ERR_NOT_FOUND, "there is no checkpoint '%s'", id);
		done(-1, &err, arg);
		return;
	}
	checkpoint_touch(checkpoints, checkpoint);
	if (checkpoint->plain == PLAIN_NONE) {
		job_ask(checkpoints, checkpoint, JOB_UNPACK, answer_new(NULL, done, arg));
		return;
	}
	dir = checkpoint_open_plain(checkpoints, checkpoint, &err);
	if (dir >= 0)
		checkpoint->holds++;
	done(dir, dir < 0 ? &err : NULL, arg);
}

/* ---- holding and dropping ------------------------------------------------------------------- */

void checkpoints_hold(struct checkpoints *checkpoints, const char *id)
{
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	if (checkpoint) {
		checkpoint->holds++;
		checkpoint_touch(checkpoints, checkpoint);
	}
}

void checkpoints_release(struct checkpoints *checkpoints, const char *id)
{
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	if (!checkpoint || !checkpoint->holds)
		checkpoint = find(checkpoints, id, true);
	if (!checkpoint || !checkpoint->holds)
		return;
	checkpoint->holds--;
	checkpoint_touch(checkpoints, checkpoint);
	checkpoint_settle(checkpoints, checkpoint);
}

bool checkpoints_pin(struct checkpoints *checkpoints, const char *id)
{
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	if (checkpoint)
		checkpoint->pins++;
	return checkpoint != NULL;
}

void checkpoints_unpin(struct checkpoints *checkpoints, const char *id)
{
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);
	struct err err = ERR_INIT;

	if (!checkpoint || !checkpoint->pins || --checkpoint->pins || !checkpoint->doomed)
		return;
	if (checkpoints_discard(checkpoints, id, &err) < 0)
		log_warn("a state stays", kv_err(&err));
}

static bool can_drop(const struct checkpoint *checkpoint)
{
	return checkpoint->packed && checkpoint->plain != PLAIN_NONE && !checkpoint->holds &&
	       !checkpoint->gone;
}

static void drop_plain(struct checkpoints *checkpoints, struct checkpoint *checkpoint)
{
	bool quick = checkpoint->plain == PLAIN_QUICK;
	char path[CHECKPOINT_ID_MAX + sizeof "/" PLAIN_NAME];
	struct err err = ERR_INIT;

	snprintf(path, sizeof path, "%s/%s", checkpoint->id, PLAIN_NAME);
	if (sweep_take(quick ? checkpoints->quick : checkpoints->top, quick ? checkpoint->id : path,
		    &err) < 0)
		log_warn("cannot drop the plain form of a checkpoint", kv_err(&err));
	else
		checkpoint->plain = PLAIN_NONE;
}

static int compare_used(const void *a, const void *b)
{
	const struct checkpoint *x = *(struct checkpoint *const *)a,
				*y = *(struct checkpoint *const *)b;

	return x->used > y->used ? -1 : x->used < y->used; /* the newest first */
}

void checkpoints_drop_plain(struct checkpoints *checkpoints, const char *id)
{
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	if (!checkpoint || !can_drop(checkpoint))
		return;
	drop_plain(checkpoints, checkpoint);
	sweep(checkpoints);
}

void checkpoints_trim(struct checkpoints *checkpoints, unsigned keep)
{
	_cleanup_free_ struct checkpoint **found = NULL;
	uint64_t room_bytes = checkpoints_memory_available() / KEPT_PART, plain, packed;
	size_t count = 0, room = 0;
	bool dropped = false;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct checkpoint *checkpoint = checkpoints->buckets[i]; checkpoint;
			checkpoint = checkpoint->next) {
			if (!can_drop(checkpoint))
				continue;
			if (count == room) {
				room = MAX(16, room * 2);
				xgrow(found, room);
			}
			found[count++] = checkpoint;
		}
	if (count)
		qsort(found, count, sizeof *found, compare_used);
	for (size_t i = 0; i < count; i++) {
		checkpoints_sizes(checkpoints, found[i]->id, &plain, &packed);
		if (i < keep && plain <= room_bytes) {
			room_bytes -= plain;
			continue;
		}
		drop_plain(checkpoints, found[i]);
		dropped = true;
	}
	if (dropped)
		sweep(checkpoints);
}

static int rename_gone(int dir, const struct checkpoint *checkpoint, struct err *err)
{
	char to[sizeof GONE_PREFIX + SUFFIX_LEN];

	snprintf(to, sizeof to, "%s%s", GONE_PREFIX, checkpoint->suffix);
	if (dir >= 0 && renameat(dir, checkpoint->id, dir, to) < 0 && errno != ENOENT)
		return err_sys(err, errno, "discard state '%s'", checkpoint->id);
	return 0;
}

int checkpoints_discard(struct checkpoints *checkpoints, const char *id, struct err *err)
{
	struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	if (!checkpoint)
		return 0;
	checkpoint->doomed = checkpoint->pins > 0;
	if (checkpoint->doomed)
		return 0;
	random_id(checkpoint->suffix, SUFFIX_LEN);
	if (rename_gone(checkpoints->top, checkpoint, err) < 0 ||
		rename_gone(checkpoints->quick, checkpoint, err) < 0)
		return -1;
	checkpoint->gone = true;
	job_cancel(checkpoints, checkpoint);
	checkpoint_settle(checkpoints, checkpoint);
	return 0;
}

void checkpoint_settle(struct checkpoints *checkpoints, struct checkpoint *checkpoint)
{
	char name[sizeof GONE_PREFIX + SUFFIX_LEN];

	if (!checkpoint->gone || checkpoint->holds || checkpoint->running)
		return;
	snprintf(name, sizeof name, "%s%s", GONE_PREFIX, checkpoint->suffix);
	sweep_take(checkpoints->top, name, NULL);
	if (checkpoints->quick >= 0)
		sweep_take(checkpoints->quick, name, NULL);
	forget(checkpoints, checkpoint);
	sweep(checkpoints);
}

/* ---- queries -------------------------------------------------------------------------------- */

bool checkpoints_exists(const struct checkpoints *checkpoints, const char *id)
{
	return checkpoint_find(checkpoints, id) != NULL;
}

bool checkpoints_is_packed(const struct checkpoints *checkpoints, const char *id)
{
	const struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	return checkpoint && checkpoint->packed;
}

bool checkpoints_is_quick(const struct checkpoints *checkpoints, const char *id)
{
	const struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);

	return checkpoint && checkpoint->plain == PLAIN_QUICK;
}

/* Counts existing files: a capture may still be writing. */
static uint64_t folder_bytes(int fd, bool sparse)
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
			bytes += sparse ? (uint64_t)st.st_blocks * 512 : (uint64_t)st.st_size;
	closedir(dir);
	return bytes;
}

void checkpoints_sizes(const struct checkpoints *checkpoints, const char *id, uint64_t *ret_plain,
	uint64_t *ret_packed)
{
	const struct checkpoint *checkpoint = checkpoint_find(checkpoints, id);
	char path[CHECKPOINT_ID_MAX + sizeof "/" PACKED_NAME];
	struct stat st;
	int fd;

	*ret_plain = *ret_packed = 0;
	if (!checkpoint)
		return;
	if (checkpoint->plain != PLAIN_NONE) {
		fd = checkpoint_open_plain(checkpoints, checkpoint, NULL);
		if (fd >= 0)
			*ret_plain = folder_bytes(fd, false);
	}
	snprintf(path, sizeof path, "%s/%s", id, PACKED_NAME);
	if (checkpoint->packed && fstatat(checkpoints->top, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		*ret_packed = (uint64_t)st.st_size;
	snprintf(path, sizeof path, "%s/%s", id, SHARED_NAME);
	fd = openat(checkpoints->top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		*(checkpoint->plain != PLAIN_NONE ? ret_plain : ret_packed) +=
			folder_bytes(fd, true);
}

void checkpoints_each(
	struct checkpoints *checkpoints, void (*fn)(const char *id, void *arg), void *arg)
{
	_cleanup_free_ char(*ids)[CHECKPOINT_ID_MAX + 1] = NULL;
	size_t count = 0, room = 0;

	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct checkpoint *checkpoint = checkpoints->buckets[i]; checkpoint;
			checkpoint = checkpoint->next) {
			if (checkpoint->gone)
				continue;
			if (count == room) {
				room = MAX(16, room * 2);
				xgrow(ids, room);
			}
			strcpy(ids[count++], checkpoint->id);
		}
	for (size_t i = 0; i < count; i++)
		fn(ids[i], arg);
}
