/* exec_ops.c - starts execs, and answers requests about them; see exec.c for their life
 *
 * A start is answered when the child's report pipe tells the outcome. Until then the exec exists
 * only for the channel that asked: its input is already taken, but nobody else sees it. */
#include "guest/connect.h"
#include "guest/exec_internal.h"
#include "guest/spawn.h"
#include "base/clock.h"
#include "base/strv.h"
#include <errno.h>

enum {
	RUNNING_MAX = 512,
	ARGV_KEPT = 4096,
	BUILTIN_JOURNAL = 256 * 1024, /* what is on its way */
};
#define TIMEOUT_MAX_MS (10ull * 365 * 24 * 3600 * 1000)

static bool refuse_more;

void exec_refuse_more(void)
{
	refuse_more = true;
}

/* As much of argv as fits into max bytes; the last argument may be cut. Free with strv_free. */
static char **argv_cut(const char *const *argv, size_t max)
{
	size_t count = strv_len(argv), kept = 0;
	char **cut = xnewn(char *, count + 1);

	for (; kept < count && max; kept++) {
		size_t len = strnlen(argv[kept], max);

		cut[kept] = xstrndup(argv[kept], len);
		/* The length and NUL of each string are sent too and count. */
		max -= MIN(max, len + 5);
	}
	return cut;
}

/* ---- the start ------------------------------------------------------------------------------ */

static void starter_cancel(struct channel *channel)
{
	((struct exec *)channel->owner)->starter = NULL;
}

static const struct channel_ops starter_ops = { .cancel = starter_cancel };

static void start_failed(struct exec *exec, const struct err *err)
{
	attach_forget_readers(exec);
	if (exec->starter)
		channel_error(exec->starter, err);
	exec_free(exec);
}

static void start_worked(struct exec *exec)
{
	struct channel *channel = steal_ptr(&exec->starter);
	struct wire_exec_info info;

	if (channel) {
		exec_fill_info(exec, &info);
		wire_put_exec_info(channel_begin(channel, WIRE_REPLY), &info);
		channel_end(channel);
		if (!exec->readers)
			channel_close(channel);
	}
	exec_program_started(exec);
}

static void on_report(struct watch *watch, uint32_t ready)
{
	struct exec *exec = owner_of(watch, struct exec, report);
	struct err err = ERR_INIT;
	ssize_t got = read(watch->fd, &err, sizeof err);

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	watch_close(watch);
	if (got == (ssize_t)sizeof err)
		start_failed(exec, &err);
	else
		start_worked(exec);
}

static bool id_is_valid(const char *id)
{
	return *id && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(id);
}

static int check_spec(const struct wire_exec_spec *spec, struct err *err)
{
	if (!id_is_valid(spec->id))
		return err_set(err, ERR_INVALID, "an exec id is 1 to 32 of a-z 0-9");
	if (spec->builtin >= WIRE_BUILTIN_COUNT || (spec->builtin && spec->tty))
		return err_set(err, ERR_UNSUPPORTED, "box-init has no such program of its own");
	if (!spec->argv[0] || !*spec->argv[0])
		return err_set(err, ERR_INVALID, "no program named");
	if (spec->builtin == WIRE_BUILTIN_CONNECT && strcmp(spec->argv[0], CONNECT_PROGRAM))
		return err_set(err, ERR_INVALID, "this program is '%s'", CONNECT_PROGRAM);
	for (size_t i = 0; spec->env[i]; i++)
		if (*spec->env[i] == '=' || !strchr(spec->env[i], '='))
			return err_set(err, ERR_INVALID,
				"environment entry '%.100s' is not KEY=VALUE", spec->env[i]);
	if (*spec->cwd && *spec->cwd != '/')
		return err_set(
			err, ERR_INVALID, "working directory '%.300s' is not absolute", spec->cwd);
	if (spec->journal_max &&
		(spec->journal_max < WIRE_JOURNAL_MIN || spec->journal_max > WIRE_JOURNAL_MAX))
		return err_set(err, ERR_INVALID, "a journal holds %d to %d bytes", WIRE_JOURNAL_MIN,
			WIRE_JOURNAL_MAX);
	if (refuse_more)
		return err_set(err, ERR_STATE, "the box is shutting down");
	if (exec_find(spec->id))
		return err_set(err, ERR_EXISTS, "exec '%s' exists already", spec->id);
	if (exec_count_running() >= RUNNING_MAX)
		return err_set(err, ERR_LIMIT, "%d programs run in the box already", RUNNING_MAX);
	return 0;
}

static size_t journal_size(const struct wire_exec_spec *spec)
{
	if (spec->journal_max)
		return spec->journal_max;
	return spec->builtin ? BUILTIN_JOURNAL : WIRE_JOURNAL_DEFAULT;
}

static int exec_start(
	struct channel *channel, const struct wire_exec_spec *spec, bool forgotten, struct err *err)
{
	struct spawned child;
	struct exec *exec;
	struct exec **at = &execs;

	if (check_spec(spec, err) < 0 || spawn(spec, &child, err) < 0)
		return -1;
	exec = xnew(struct exec);
	strcpy(exec->id, spec->id);
	exec->argv = argv_cut(spawn_argv(spec), ARGV_KEPT);
	exec->builtin = spec->builtin;
	exec->pid = child.pid;
	exec->tty = spec->tty;
	exec->forgotten = forgotten;
	exec->started_us = clock_wall_us();
	exec->started_mono_us = clock_mono_us();
	exec->timeout_ms = MIN(spec->timeout_ms, TIMEOUT_MAX_MS);
	journal_init(&exec->journal, journal_size(spec));
	watch_open(&exec->report, child.report, on_report);
	exec_take_fds(exec, child.out, child.err, child.in);
	watch_set(&exec->report, EPOLLIN);
	while (*at)
		at = &(*at)->next;
	*at = exec;
	exec->starter = channel;
	channel->ops = &starter_ops;
	channel->owner = exec;
	/* Attached at once, because input may come before the outcome is known. */
	if (spec->attach)
		attach_reader(exec, channel,
			&(struct wire_attach_spec){
				.offset = 0, .follow = true, .lossless = true, .input = true });
	return 0;
}

/* ---- ops ------------------------------------------------------------------------------------ */

int exec_open_start(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	struct wire_exec_spec spec;
	int ret;

	(void)op;
	wire_get_exec_spec(in, &spec);
	ret = wire_get_done(in, err);
	if (ret == 0)
		ret = exec_start(channel, &spec, false, err);
	free((void *)spec.argv);
	free((void *)spec.env);
	return ret;
}

/* What was written is on the disk, too, when it ends: the kernel would write it in the moment the
 * spare is woken, since time has passed. */
int exec_open_warm_up(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	static const char *const argv[] = { "/bin/sh", "-c", "echo; sync", NULL };
	static const char *const env[] = { NULL };
	const struct wire_exec_spec spec = {
		.id = "warmup", .argv = argv, .env = env, .cwd = "", .user = "", .attach = true
	};

	(void)op;
	return wire_get_done(in, err) < 0 ? -1 : exec_start(channel, &spec, true, err);
}

/* An exec whose start is undecided does not exist for others yet. */
static struct exec *exec_find_started(const char *id, struct err *err)
{
	struct exec *exec = exec_find(id);

	if (exec && exec->state != EXEC_STARTING)
		return exec;
	err_set(err, ERR_NOT_FOUND, "no exec '%s' in the box", id);
	return NULL;
}

int exec_open_attach(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	struct wire_attach_spec spec;
	struct wire_exec_info info;
	struct exec *exec;

	(void)op;
	wire_get_attach_spec(in, &spec);
	if (wire_get_done(in, err) < 0)
		return -1;
	exec = exec_find_started(spec.id, err);
	if (!exec)
		return -1;
	exec_fill_info(exec, &info);
	wire_put_exec_info(channel_begin(channel, WIRE_REPLY), &info);
	channel_end(channel);
	attach_reader(exec, channel, &spec);
	return 0;
}

int exec_open_list(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	enum { FIXED = 160 }; /* more than an info without its argv takes */
	struct buf *out;
	uint32_t count = 0, left;
	size_t argv_max;

	(void)op;
	if (wire_get_done(in, err) < 0)
		return -1;
	for (struct exec *exec = execs; exec; exec = exec->next)
		count += exec->state != EXEC_STARTING;
	/* Everything must fit one frame: with very many execs the command lines are cut shorter. */
	count = MIN(count, (uint32_t)(WIRE_PAYLOAD_MAX / FIXED - 1));
	argv_max = WIRE_PAYLOAD_MAX / (count + 1) - FIXED;
	left = count;
	out = channel_begin(channel, WIRE_REPLY);
	wire_put_u32(out, count);
	for (struct exec *exec = execs; exec; exec = exec->next) {
		struct wire_exec_info info;
		char **argv;

		if (exec->state == EXEC_STARTING || !left)
			continue;
		left--;
		exec_fill_info(exec, &info);
		argv = argv_cut(info.argv, MIN(argv_max, (size_t)ARGV_KEPT));
		info.argv = (const char *const *)argv;
		wire_put_exec_info(out, &info);
		strv_free(argv);
	}
	channel_end(channel);
	channel_close(channel);
	return 0;
}

int exec_open_signal(
	struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	const char *id = wire_get_str(in, WIRE_EXEC_ID_MAX);
	uint32_t number = wire_get_u32(in);
	struct exec *exec;

	(void)op;
	if (wire_get_done(in, err) < 0)
		return -1;
	if (number < 1 || number > 64)
		return err_set(err, ERR_INVALID, "signal %u does not exist; 1 to 64 do", number);
	exec = exec_find_started(id, err);
	if (!exec)
		return -1;
	if (exec->reaped)
		return err_set(err, ERR_STATE, "exec '%s' has ended", id);
	exec_signal_group(exec, (int)number);
	channel_begin(channel, WIRE_REPLY);
	channel_end(channel);
	channel_close(channel);
	return 0;
}
