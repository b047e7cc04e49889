/* exec.c - the life of an exec; see exec.h
 *
 *   STARTING  forked. The report pipe says an error (the exec is forgotten, the channel gets ERROR)
 *             or just ends (the program was executed: REPLY).
 *   RUNNING   output is read into the journal and handed to the readers. When the journal is full
 *             of bytes a lossless reader still needs, reading stops and the program waits on its
 *             full pipe.
 *   ENDING    the program was reaped. Its output is over at the end of file of its pipes, or when
 *             GRACE_MS have passed: background children may hold a pipe open for ever. What lay in
 *             the pipes at that moment is still read, however long a slow lossless reader makes
 *             that take.
 *   OVER      EXIT goes to the readers when they have read all; the journal is kept for later ones.
 *             Finished execs go oldest first when there are too many.
 *
 * Output of background children after that is read and thrown away, so that they do not die of
 * SIGPIPE; a terminal hangs up as it does with ssh. */
#include "guest/exec_internal.h"
#include "guest/proc.h"
#include "base/clock.h"
#include "base/strv.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

enum {
	FINISHED_MAX = 64,
	FINISHED_BYTES_MAX = 16 * 1024 * 1024,
	GRACE_MS = 200,
	KILL_MS = 5000,
	HUNG_UP_MS = 100,
	DRAINS_MAX = 256,
	READ_MAX = 64 * 1024,
	PIPE_LARGE = 256 * 1024,
};

struct exec *execs; /* in the order they started; finished ones stay in place */
static uint8_t scratch[READ_MAX];

struct exec *exec_find(const char *id)
{
	for (struct exec *exec = execs; exec; exec = exec->next)
		if (!strcmp(exec->id, id))
			return exec;
	return NULL;
}

void exec_free(struct exec *exec)
{
	for (struct exec **at = &execs; *at; at = &(*at)->next)
		if (*at == exec) {
			*at = exec->next;
			break;
		}
	/* Dropped before its kill timer fired: kill the rest now. */
	if (exec->limit.armed && exec->timed_out)
		proc_signal_session(exec->pid, !exec->reaped, SIGKILL);
	timer_disarm(&exec->limit);
	timer_disarm(&exec->grace);
	timer_disarm(&exec->hung_up);
	watch_close(&exec->report);
	watch_close(&exec->out);
	watch_close(&exec->err);
	watch_close(&exec->in);
	journal_done(&exec->journal);
	strv_free(exec->argv);
	free(exec);
}

/* ---- what is told about it ------------------------------------------------------------------- */

static enum wire_exit_reason exit_reason(const struct exec *exec)
{
	if (exec->state != EXEC_OVER)
		return WIRE_EXIT_RUNNING;
	if (exec->timed_out)
		return WIRE_EXIT_TIMEOUT;
	return WIFSIGNALED(exec->wait_status) ? WIRE_EXIT_SIGNALED : WIRE_EXIT_EXITED;
}

void exec_fill_info(const struct exec *exec, struct wire_exec_info *ret)
{
	bool over = exec->state == EXEC_OVER;

	*ret = (struct wire_exec_info){
		.id = exec->id,
		.pid = (uint32_t)exec->pid,
		.tty = exec->tty,
		.reason = exit_reason(exec),
		.code = over && WIFEXITED(exec->wait_status)
				? (uint32_t)WEXITSTATUS(exec->wait_status)
				: 0,
		.signal = over && WIFSIGNALED(exec->wait_status)
				  ? (uint32_t)WTERMSIG(exec->wait_status)
				  : 0,
		.started_us = (uint64_t)exec->started_us,
		.ended_us = over ? (uint64_t)exec->ended_us : 0,
		.cpu_us = over ? exec->cpu_us : 0,
		.oldest = exec->journal.oldest,
		.newest = exec->journal.newest,
		.argv = (const char *const *)exec->argv,
	};
}

void exec_tell(const struct exec *exec, enum wire_event event)
{
	struct wire_exec_info info;

	if (exec->forgotten)
		return;
	exec_fill_info(exec, &info);
	conn_event(event, &info);
}

/* ---- the end -------------------------------------------------------------------------------- */

static struct watch drains[DRAINS_MAX]; /* fn is NULL: free */

static void on_drain(struct watch *watch, uint32_t ready)
{
	ssize_t got = read(watch->fd, scratch, sizeof scratch);

	(void)ready;
	if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	watch_close(watch);
	watch->fn = NULL;
}

static void drain(struct watch *from)
{
	struct watch *watch = drains;

	if (from->fd < 0)
		return;
	watch_set(from, 0);
	while (watch < drains + DRAINS_MAX && watch->fn)
		watch++;
	if (watch == drains + DRAINS_MAX) {
		watch_close(from);
		return;
	}
	watch_open(watch, steal_fd(&from->fd), on_drain);
	watch_set(watch, EPOLLIN);
}

static void exec_over(struct exec *exec)
{
	timer_disarm(&exec->grace);
	timer_disarm(&exec->hung_up);
	if (exec->tty) {
		watch_close(&exec->out);
	} else {
		drain(&exec->out);
		drain(&exec->err);
	}
	journal_shrink(&exec->journal);
	exec->state = EXEC_OVER;
	exec_tell(exec, WIRE_EVENT_EXEC_EXITED);
	attach_pump(exec);
	exec_evict();
}

static void drop_forgotten(void)
{
	for (struct exec *exec = execs, *next; exec; exec = next) {
		next = exec->next;
		if ((exec->forgotten || exec->builtin) && exec->state == EXEC_OVER &&
			!exec->readers)
			exec_free(exec);
	}
}

void exec_evict(void)
{
	drop_forgotten();
	for (;;) {
		struct exec *oldest = NULL;
		unsigned count = 0;
		size_t bytes = 0;

		for (struct exec *exec = execs; exec; exec = exec->next) {
			if (exec->state != EXEC_OVER)
				continue;
			count++;
			bytes += journal_memory(&exec->journal);
			/* An exec that is still being read stays. */
			if (!exec->readers &&
				(!oldest || exec->ended_mono_us < oldest->ended_mono_us))
				oldest = exec;
		}
		if (!oldest || count < 2 || (count <= FINISHED_MAX && bytes <= FINISHED_BYTES_MAX))
			return;
		exec_free(oldest);
	}
}

static bool output_is_over(const struct exec *exec)
{
	bool out = exec->out.fd < 0 || (exec->grace_over && !exec->out_left);
	bool err = exec->err.fd < 0 || (exec->grace_over && !exec->err_left);

	return out && err;
}

static size_t bytes_waiting(const struct watch *watch)
{
	int count = 0;

	if (watch->fd < 0 || ioctl(watch->fd, FIONREAD, &count) < 0 || count < 0)
		return 0;
	return (size_t)count;
}

static void on_grace(struct timer *timer)
{
	struct exec *exec = owner_of(timer, struct exec, grace);

	exec->grace_over = true;
	exec->out_left = bytes_waiting(&exec->out);
	exec->err_left = bytes_waiting(&exec->err);
	if (output_is_over(exec))
		exec_over(exec);
}

static void program_ended(struct exec *exec)
{
	exec->state = EXEC_ENDING;
	if (!exec->timed_out)
		timer_disarm(&exec->limit);
	timer_disarm(&exec->hung_up);
	watch_close(&exec->in);
	attach_input_gone(exec);
	if (output_is_over(exec)) {
		exec_over(exec);
		return;
	}
	timer_arm(&exec->grace, GRACE_MS, on_grace);
	exec_update_reading(exec);
}

bool exec_reaped(pid_t pid, int status, const struct rusage *usage)
{
	for (struct exec *exec = execs; exec; exec = exec->next) {
		if (exec->reaped || exec->pid != pid)
			continue;
		exec->reaped = true;
		exec->wait_status = status;
		exec->ended_us = clock_wall_us();
		exec->ended_mono_us = clock_mono_us();
		exec->cpu_us =
			(uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
			(uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
		/* The report pipe tells whether it ever was the program. */
		if (exec->state == EXEC_RUNNING)
			program_ended(exec);
		return true;
	}
	return false;
}

/* ---- output --------------------------------------------------------------------------------- */

void exec_update_reading(struct exec *exec)
{
	bool may;

	if (exec->state != EXEC_RUNNING && exec->state != EXEC_ENDING)
		return;
	if (exec->builtin)
		journal_forget(&exec->journal, attach_need(exec));
	may = journal_room(&exec->journal, attach_need(exec)) > 0;
	if (!exec->hung_up.armed)
		watch_set(&exec->out, may && (!exec->grace_over || exec->out_left) ? EPOLLIN : 0);
	watch_set(&exec->err, may && (!exec->grace_over || exec->err_left) ? EPOLLIN : 0);
}

static void on_look_again(struct timer *timer)
{
	exec_update_reading(owner_of(timer, struct exec, hung_up));
}

/* End of file, or EIO of a terminal that nobody has open. */
static void output_ended(struct exec *exec, struct watch *watch)
{
	/* The program may open its terminal again, so the terminal stays while it lives. */
	if (exec->tty && exec->state == EXEC_RUNNING) {
		watch_set(watch, 0);
		timer_arm(&exec->hung_up, HUNG_UP_MS, on_look_again);
		return;
	}
	watch_close(watch);
	if (exec->state == EXEC_ENDING && output_is_over(exec))
		exec_over(exec);
}

static void take_output(
	struct exec *exec, struct watch *watch, enum wire_stream stream, size_t *left)
{
	size_t room = journal_room(&exec->journal, attach_need(exec));
	ssize_t got;

	room = MIN(room, sizeof scratch);
	if (exec->grace_over)
		room = MIN(room, *left);
	if (!room) {
		exec_update_reading(exec);
		return;
	}
	got = read(watch->fd, scratch, room);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		output_ended(exec, watch);
		return;
	}
	/* A full pipe: this program writes much. Most write little, and pipe memory is charged to
	 * the box. */
	if ((size_t)got == sizeof scratch && !exec->tty)
		fcntl(watch->fd, F_SETPIPE_SZ, PIPE_LARGE);
	journal_add(
		&exec->journal, (uint8_t)stream, (uint64_t)clock_wall_us(), scratch, (size_t)got);
	attach_pump(exec);
	if (exec->grace_over)
		*left -= (size_t)got;
	if (exec->grace_over && output_is_over(exec))
		exec_over(exec);
	else
		exec_update_reading(exec);
}

static void on_out(struct watch *watch, uint32_t ready)
{
	struct exec *exec = owner_of(watch, struct exec, out);

	(void)ready;
	take_output(exec, watch, WIRE_STREAM_STDOUT, &exec->out_left);
}

static void on_err(struct watch *watch, uint32_t ready)
{
	struct exec *exec = owner_of(watch, struct exec, err);

	(void)ready;
	take_output(exec, watch, WIRE_STREAM_STDERR, &exec->err_left);
}

static void on_in(struct watch *watch, uint32_t ready)
{
	(void)ready;
	attach_feed(owner_of(watch, struct exec, in));
}

/* ---- signals and the time limit ------------------------------------------------------------- */

void exec_signal_group(struct exec *exec, int number)
{
	pid_t group = 0;

	if (exec->reaped)
		return;
	if (exec->tty && ioctl(exec->out.fd, TIOCGPGRP, &group) == 0 && group > 1 &&
		kill(-group, number) == 0)
		return;
	/* A process just forked has no group of its own yet. */
	if (kill(-exec->pid, number) < 0)
		kill(exec->pid, number);
}

static void on_limit(struct timer *timer)
{
	struct exec *exec = owner_of(timer, struct exec, limit);

	if (!exec->timed_out) {
		exec->timed_out = true;
		proc_signal_session(exec->pid, !exec->reaped, SIGTERM);
		proc_signal_session(exec->pid, !exec->reaped, SIGCONT);
		timer_arm(&exec->limit, KILL_MS, on_limit);
		return;
	}
	proc_signal_session(exec->pid, !exec->reaped, SIGKILL);
}

void exec_signal_all(int number)
{
	for (struct exec *exec = execs; exec; exec = exec->next)
		if (!exec->reaped)
			proc_signal_session(exec->pid, true, number);
}

void exec_take_fds(struct exec *exec, int out, int err, int in)
{
	watch_open(&exec->out, out, on_out);
	watch_open(&exec->err, err, on_err);
	watch_open(&exec->in, in, on_in);
}

void exec_program_started(struct exec *exec)
{
	exec->state = EXEC_RUNNING;
	exec_tell(exec, WIRE_EVENT_EXEC_STARTED);
	if (exec->timeout_ms)
		timer_arm(&exec->limit, exec->timeout_ms, on_limit);
	exec_update_reading(exec);
	/* It may have ended before its start was known. */
	if (exec->reaped)
		program_ended(exec);
}

/* ---- figures -------------------------------------------------------------------------------- */

unsigned exec_count_running(void)
{
	unsigned count = 0;

	for (struct exec *exec = execs; exec; exec = exec->next)
		count += exec->state != EXEC_OVER;
	return count;
}

bool exec_has_news(void)
{
	for (struct exec *exec = execs; exec; exec = exec->next)
		if (exec->state != EXEC_OVER || exec->readers)
			return true;
	return false;
}

uint64_t exec_journal_memory(void)
{
	uint64_t bytes = 0;

	for (struct exec *exec = execs; exec; exec = exec->next)
		bytes += journal_memory(&exec->journal);
	return bytes;
}

const char *exec_id_of(pid_t pid, pid_t session)
{
	for (struct exec *exec = execs; exec; exec = exec->next)
		if (exec->pid == session || (!exec->reaped && exec->pid == pid))
			return exec->id;
	return NULL;
}
