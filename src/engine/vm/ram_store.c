/* ram_store.c - the layers of BOX_HOME/memory: holds, and work on them
 *
 * The folder decides which layers exist; holds are counted in memory. Checks, syncs and merges
 * each are a job in a helper of its own, at most JOBS_MAX at a time. A job holds its layers
 * until it ends. */
#include "base/file.h"
#include "base/log.h"
#include "base/strv.h"
#include "base/text.h"
#include "engine/vm/ram_internal.h"
#include "helper/helper.h"
#include "loop/loop.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { JOBS_MAX = 2 };

struct hold {
	struct hold *next;
	char id[RAM_ID_LEN + 1];
	unsigned count;
};

enum job_kind { JOB_SYNC, JOB_VERIFY, JOB_MERGE };

struct job {
	struct job *next;
	struct ram_store *store;
	enum job_kind kind;
	char **stack;
	char id[RAM_ID_LEN + 1]; /* JOB_MERGE: the new layer */
	ram_done done;
	ram_merged merged;
	void *arg;
	struct helper *helper; /* NULL: waits for its turn */
	struct job_report {
		struct err err;
		uint32_t floor; /* this many layers stay below the new one */
	} report;
	bool reported;
};

struct ram_store {
	struct loop *loop;
	int dir;
	struct hold *holds;
	struct job *jobs;
	struct ram_pass **passes;
	size_t pass_count;
};

static_assert(sizeof(struct job_report) <= HELPER_MESSAGE_MAX, "a message of a helper");

/* ---- layers and holds ------------------------------------------------------------------------ */

bool ram_id_is_valid(const char *id)
{
	return strlen(id) == RAM_ID_LEN && *id >= 'a' && *id <= 'z' &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == RAM_ID_LEN;
}

static bool file_is_there(int dir, const char *id, const char *ending)
{
	char name[RAM_ID_LEN + 16];

	snprintf(name, sizeof name, "%s%s", id, ending);
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool ram_store_has(const struct ram_store *store, const char *id)
{
	return ram_id_is_valid(id) && file_is_there(store->dir, id, ".map") &&
	       file_is_there(store->dir, id, "");
}

int ram_store_check(struct ram_store *store, const char *const *ids, struct err *err)
{
	static const char *const none[] = { NULL };
	struct ram_stack stack;

	if (ram_stack_load(store->dir, ids ? ids : none, 0, &stack, err) < 0)
		return -1;
	ram_stack_done(&stack);
	return 0;
}

uint64_t ram_store_bytes(const struct ram_store *store, const char *id)
{
	struct stat st;

	if (!ram_id_is_valid(id) || fstatat(store->dir, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (uint64_t)st.st_blocks * 512;
}

static struct hold **find_hold(struct ram_store *store, const char *id)
{
	struct hold **hold = &store->holds;

	while (*hold && strcmp((*hold)->id, id))
		hold = &(*hold)->next;
	return hold;
}

void ram_store_hold(struct ram_store *store, const char *const *stack)
{
	for (; stack && *stack; stack++) {
		struct hold **place = find_hold(store, *stack);

		if (!ram_id_is_valid(*stack))
			continue;
		if (!*place) {
			*place = xnew(struct hold);
			strcpy((*place)->id, *stack);
		}
		(*place)->count++;
	}
}

void ram_store_release(struct ram_store *store, const char *const *stack)
{
	for (; stack && *stack; stack++) {
		struct hold **place = find_hold(store, *stack), *hold = *place;

		if (!hold || --hold->count) /* an id of no layer was not held */
			continue;
		*place = hold->next;
		free(hold);
	}
}

/* Calls fn for each layer that has a file of any kind. */
static void each_layer(
	struct ram_store *store, void (*fn)(struct ram_store *, const char *, void *), void *arg)
{
	int fd = openat(store->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		char id[RAM_ID_LEN + 1];

		snprintf(id, sizeof id, "%.*s", RAM_ID_LEN, entry->d_name);
		if (ram_id_is_valid(id))
			fn(store, id, arg);
	}
	closedir(dir);
}

static bool is_being_made(const struct ram_store *store, const char *id)
{
	return file_is_there(store->dir, id, ".tmp") || file_is_there(store->dir, id, ".map.tmp") ||
	       !ram_store_has(store, id);
}

/* An unfinished layer is being made; leftovers were removed when the store was opened. */
static void drop_unused(struct ram_store *store, const char *id, void *arg)
{
	if (!strv_has(arg, id) && !*find_hold(store, id) && !is_being_made(store, id))
		ram_layer_remove(store->dir, id);
}

void ram_store_keep(struct ram_store *store, const char *const *used)
{
	static const char *const none[] = { NULL };

	each_layer(store, drop_unused, (void *)(used ? used : none));
}

static void drop_half(struct ram_store *store, const char *id, void *arg)
{
	(void)arg;
	if (is_being_made(store, id))
		ram_layer_remove(store->dir, id);
}

int ram_store_open(struct loop *loop, const char *home, struct ram_store **ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/memory", home);
	struct ram_store *store;
	int dir;

	if (dir_make_all(path, 0700, err) < 0)
		return -1;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, errno, "open '%s'", path);
	store = xnew(struct ram_store);
	store->loop = loop;
	store->dir = dir;
	each_layer(store, drop_half, NULL);
	*ret = store;
	return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int sync_layer(int dir, const char *id, struct err *err)
{
	static const char *const endings[] = { "", ".map" };

	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		char name[RAM_ID_LEN + 16];
		_cleanup_close_ int fd = -1;

		snprintf(name, sizeof name, "%s%s", id, endings[i]);
		fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 || fsync(fd) < 0)
			return err_sys(err, errno, "sync layer '%s' of memory", id);
	}
	return 0;
}

static int sync_stack(int dir, char **stack, struct err *err)
{
	for (; *stack; stack++)
		if (sync_layer(dir, *stack, err) < 0)
			return -1;
	if (fsync(dir) < 0)
		return err_sys(err, errno, "sync the folder of memory");
	return 0;
}

static int verify_stack(int dir, const char *const *ids, struct err *err)
{
	struct ram_stack stack;
	int result = 0;

	if (ram_stack_load(dir, ids, 0, &stack, err) < 0)
		return -1;
	for (size_t i = 0; i < stack.count && result == 0; i++)
		result = ram_layer_verify(&stack.layers[i], err);
	ram_stack_done(&stack);
	return result;
}

static int run_job(int sock, void *arg)
{
	struct job *job = arg;
	struct job_report *report = &job->report;
	int dir = job->store->dir;

	switch (job->kind) {
	case JOB_SYNC:
		sync_stack(dir, job->stack, &report->err);
		break;
	case JOB_VERIFY:
		verify_stack(dir, (const char *const *)job->stack, &report->err);
		break;
	case JOB_MERGE:
		ram_merge_run(dir, (const char *const *)job->stack, job->id, &report->floor,
			&report->err);
		break;
	}
	return send(sock, report, sizeof *report, MSG_NOSIGNAL) != sizeof *report;
}

static void on_report(const void *message, size_t len, void *arg)
{
	struct job *job = arg;

	if (len == sizeof job->report)
		memcpy(&job->report, message, len);
	job->reported = len == sizeof job->report;
}

/* For a job that is no longer in the list. */
static void dispose_job(struct job *job)
{
	ram_store_release(job->store, (const char *const *)job->stack);
	ram_store_release(job->store, (const char *const[]){ job->id, NULL });
	strv_free(job->stack);
	free(job);
}

static void free_job(struct job *job)
{
	struct job **place = &job->store->jobs;

	while (*place && *place != job)
		place = &(*place)->next;
	if (*place)
		*place = job->next;
	dispose_job(job);
}

/* The layers that stayed, and the new one. */
static char **merged_stack(const struct job *job)
{
	char **stack = NULL;

	for (size_t i = 0; i < job->report.floor; i++)
		strv_add(&stack, job->stack[i]);
	strv_add(&stack, job->id);
	return stack;
}

static void end_job(struct job *job)
{
	const struct err *err = job->report.err.kind ? &job->report.err : NULL;
	struct job over = *job;
	char **stack = NULL;

	if (job->kind == JOB_MERGE && (err || !job->merged))
		ram_layer_remove(job->store->dir, job->id);
	else if (job->kind == JOB_MERGE)
		stack = merged_stack(job);
	if (stack)
		ram_store_hold(job->store, (const char *const *)stack);
	free_job(job);
	if (over.merged)
		over.merged(stack, over.report.err.kind ? &over.report.err : NULL, over.arg);
	if (over.done)
		over.done(over.report.err.kind ? &over.report.err : NULL, over.arg);
}

static void start_jobs(void *arg);

static void on_job_exit(int code, void *arg)
{
	struct job *job = arg;
	struct ram_store *store = job->store;

	job->helper = NULL;
	if (!job->reported)
		err_set(&job->report.err, ERR_SYSTEM,
			"the helper for layers of memory ended with %d", code);
	loop_undefer(store->loop, start_jobs, store);
	loop_defer(store->loop, start_jobs, store);
	end_job(job);
}

static const struct helper_ops job_ops = {
	.run = run_job, .on_message = on_report, .on_exit = on_job_exit, .light = true
};

static void start_jobs(void *arg)
{
	struct ram_store *store = arg;
	unsigned running = 0;

	for (struct job *job = store->jobs; job; job = job->next)
		running += job->helper != NULL;
	for (struct job *job = store->jobs, *next; job && running < JOBS_MAX; job = next) {
		next = job->next;
		if (job->helper)
			continue;
		if (!job->done && !job->merged) {
			free_job(job); /* cancelled */
			continue;
		}
		if (helper_start(store->loop, &job_ops, job, &store->dir, 1, &job->helper,
			    &job->report.err) < 0) {
			end_job(job);
			loop_undefer(store->loop, start_jobs, store);
			loop_defer(store->loop, start_jobs, store); /* its caller may have
								     * changed the list */
			return;
		}
		running++;
	}
}

static struct job *add_job(
	struct ram_store *store, enum job_kind kind, const char *const *stack, void *arg)
{
	static const char *const none[] = { NULL };
	struct job *job = xnew(struct job), **place = &store->jobs;

	*job = (struct job){ .store = store, .kind = kind, .arg = arg };
	job->stack = strv_copy(stack ? stack : none);
	ram_store_hold(store, stack);
	while (*place)
		place = &(*place)->next;
	*place = job;
	loop_undefer(store->loop, start_jobs, store);
	loop_defer(store->loop, start_jobs, store);
	return job;
}

void ram_store_sync(struct ram_store *store, const char *const *stack, ram_done done, void *arg)
{
	add_job(store, JOB_SYNC, stack, arg)->done = done;
}

void ram_store_verify(struct ram_store *store, const char *const *stack, ram_done done, void *arg)
{
	add_job(store, JOB_VERIFY, stack, arg)->done = done;
}

void ram_store_merge(struct ram_store *store, const char *const *stack, ram_merged done, void *arg)
{
	struct job *job = add_job(store, JOB_MERGE, stack, arg);

	job->merged = done;
	random_id(job->id, RAM_ID_LEN);
	ram_store_hold(store, (const char *const[]){ job->id, NULL }); /* before it exists */
}

bool ram_store_wants_merge(struct ram_store *store, const char *const *ids)
{
	struct ram_stack stack;
	size_t extents = 0;

	if (strv_len(ids) > RAM_LAYERS_WANTED)
		return true;
	if (strv_len(ids) < 3 ||
		ram_stack_load(store->dir, ids, 0, &stack, &(struct err)ERR_INIT) < 0)
		return false;
	/* the bottom is not merged because of its extents */
	for (size_t i = 1; i < stack.count; i++)
		extents += stack.layers[i].count;
	ram_stack_done(&stack);
	return extents > RAM_PIECES_WANTED;
}

void ram_store_forget(struct ram_store *store, const void *arg)
{
	for (struct job *job = store->jobs; job; job = job->next)
		if (job->arg == arg) {
			job->done = NULL;
			job->merged = NULL;
			if (job->helper)
				helper_kill(job->helper);
		}
}

/* ---- the rest -------------------------------------------------------------------------------- */

struct loop *ram_store_loop(const struct ram_store *store)
{
	return store->loop;
}

int ram_store_dir(const struct ram_store *store)
{
	return store->dir;
}

void ram_store_add_pass(struct ram_store *store, struct ram_pass *pass)
{
	xgrow(store->passes, store->pass_count + 1);
	store->passes[store->pass_count++] = pass;
}

void ram_store_remove_pass(struct ram_store *store, struct ram_pass *pass)
{
	for (size_t i = 0; i < store->pass_count; i++)
		if (store->passes[i] == pass) {
			store->passes[i] = store->passes[--store->pass_count];
			return;
		}
}

void ram_store_close(struct ram_store *store)
{
	if (!store)
		return;
	loop_undefer(store->loop, start_jobs, store);
	while (store->pass_count)
		ram_pass_end(store->passes[0]);
	while (store->jobs) {
		struct job *job = store->jobs;

		store->jobs = job->next;
		helper_free(job->helper);
		if (job->kind == JOB_MERGE)
			ram_layer_remove(store->dir, job->id);
		dispose_job(job);
	}
	while (store->holds) {
		struct hold *hold = store->holds;

		store->holds = hold->next;
		free(hold);
	}
	close(store->dir);
	free(store->passes);
	free(store);
}
