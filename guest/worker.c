/* worker.c - box-init's side of file operations; see worker.h
 *
 * A worker is forked for each operation and has a stream socket to us on which it speaks frames of
 * its channel. Its frames pass only when the channel's window has room for them; else we stop
 * reading, and the worker blocks. What the daemon sends is queued for it, bounded by the window,
 * and given back as written.
 *
 * Cancelling closes our end: the worker notices at its next step, removes what is half done and
 * ends. One that does not within KILL_MS is killed. It counts until it was reaped, so that workers
 * stuck in a file system that hangs do not pile up. */
#include "guest/worker.h"
#include "guest/archive.h"
#include "guest/conn.h"
#include "guest/files.h"
#include "guest/job.h"
#include "guest/proc.h"
#include "guest/vm.h"
#include "guest/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
	WORKERS_MAX = 128,
	KILL_MS = 2000,
	LINE_FD = 3,
	DISK_FD = 4,
	READ_CHUNK = 128 * 1024,
};

struct worker {
	pid_t pid; /* 0: reaped */
	enum wire_op op;
	struct watch watch;
	struct channel *channel; /* NULL: cancelled or answered */
	struct buf from;	 /* frames of the worker that the window does not let pass yet */
	struct buf to;		 /* frames for the worker */
	size_t credit;		 /* DATA bytes in to that are not given back yet */
	bool replied, failed, ended;
	struct timer kill;
	struct worker *next;
};

static struct worker *workers;

/* ---- what a worker does --------------------------------------------------------------------- */

static void get_path(struct wire_reader *in, struct job *job)
{
	strcpy(job->path, wire_get_str(in, WIRE_PATH_MAX));
}

static void get_path_flag(struct wire_reader *in, struct job *job)
{
	get_path(in, job);
	job->flag = wire_get_u8(in);
}

static void get_path_mode(struct wire_reader *in, struct job *job)
{
	get_path(in, job);
	job->mode = wire_get_u32(in);
}

static void get_path_mode_flag(struct wire_reader *in, struct job *job)
{
	get_path_mode(in, job);
	job->flag = wire_get_u8(in);
}

static void get_range(struct wire_reader *in, struct job *job)
{
	get_path(in, job);
	job->offset = wire_get_u64(in);
	job->length = wire_get_u64(in);
}

static void get_two_paths(struct wire_reader *in, struct job *job)
{
	get_path(in, job);
	strcpy(job->to, wire_get_str(in, WIRE_PATH_MAX));
}

static void get_nothing(struct wire_reader *in, struct job *job)
{
	(void)in;
	(void)job;
}

static int run_processes(struct job *job, struct err *err)
{
	struct buf out = BUF_INIT;

	return proc_put_processes(&out, err) < 0 ? -1 : job_reply(job, &out, err);
}

static int run_stats(struct job *job, struct err *err)
{
	struct buf out = BUF_INIT;

	return proc_put_stats(&out, err) < 0 ? -1 : job_reply(job, &out, err);
}

static const struct {
	void (*get)(struct wire_reader *in, struct job *job);
	int (*run)(struct job *job, struct err *err);
	bool streams; /* its answer is only whole with an END */
} kinds[WIRE_OP_COUNT] = {
	[WIRE_OP_PROCESSES] = { get_nothing, run_processes, false },
	[WIRE_OP_STAT] = { get_path_flag, files_stat, false },
	[WIRE_OP_LIST] = { get_path, files_list, true },
	[WIRE_OP_READ] = { get_range, files_read, true },
	[WIRE_OP_WRITE] = { get_path_mode_flag, files_write, false },
	[WIRE_OP_MKDIR] = { get_path_mode_flag, files_mkdir, false },
	[WIRE_OP_REMOVE] = { get_path_flag, files_remove, false },
	[WIRE_OP_RENAME] = { get_two_paths, files_rename, false },
	[WIRE_OP_CHMOD] = { get_path_mode, files_chmod, false },
	[WIRE_OP_TAR_OUT] = { get_path, archive_out, true },
	[WIRE_OP_TAR_IN] = { get_path, archive_in, false },
	[WIRE_OP_STATS] = { get_nothing, run_stats, false },
	[WIRE_OP_TAR_UPPER] = { get_nothing, archive_upper, true },
};

/* A worker has its line and the disk of a machine of its own; all else is box-init's. */
static void take_fds(struct job *job)
{
	int disk = vm_get_disk();

	disk = disk < 0 ? -1 : fcntl(disk, F_DUPFD_CLOEXEC, DISK_FD + 1);
	dup3(job->fd, LINE_FD, O_CLOEXEC);
	job->fd = LINE_FD;
	if (disk >= 0)
		dup3(disk, DISK_FD, O_CLOEXEC);
	archive_set_disk(disk < 0 ? -1 : DISK_FD);
	close_range(disk < 0 ? LINE_FD + 1 : DISK_FD + 1, ~0u, 0);
}

static _Noreturn void worker_main(struct job *job)
{
	struct err err = ERR_INIT;
	sigset_t none;

	take_fds(job);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "box-init-files");
	umask(0);
	if (kinds[job->op].run(job, &err) < 0 && err.kind != ERR_CANCELLED)
		job_error(job, &err);
	_exit(0);
}

/* ---- the line to it ------------------------------------------------------------------------- */

static void worker_free_if_done(struct worker *worker)
{
	if (worker->pid || worker->watch.fd >= 0)
		return;
	for (struct worker **at = &workers; *at; at = &(*at)->next)
		if (*at == worker) {
			*at = worker->next;
			break;
		}
	timer_disarm(&worker->kill);
	buf_done(&worker->from);
	buf_done(&worker->to);
	free(worker);
}

static void on_kill(struct timer *timer)
{
	struct worker *worker = owner_of(timer, struct worker, kill);

	if (worker->pid)
		kill(worker->pid, SIGKILL);
}

/* Hangs up. The worker must not be used by the caller afterwards. */
static void worker_leave(struct worker *worker)
{
	worker->channel = NULL;
	watch_close(&worker->watch);
	timer_arm(&worker->kill, KILL_MS, on_kill);
	worker_free_if_done(worker);
}

/* The worker has closed its end. */
static void worker_hung_up(struct worker *worker)
{
	struct channel *channel = worker->channel;
	bool whole = worker->replied && (worker->ended || !kinds[worker->op].streams);
	struct err err = ERR_INIT;

	if (worker->failed || whole) {
		channel_close(channel);
	} else {
		err_set(&err, ERR_SYSTEM, "the process that did this was killed inside the box");
		channel_error(channel, &err);
	}
	worker_leave(worker);
}

static bool frame_is_allowed(const struct worker *worker, const struct wire_frame *frame)
{
	if (frame->channel != worker->channel->id || worker->failed)
		return false;
	switch (frame->type) {
	case WIRE_REPLY:
		return !worker->replied;
	case WIRE_ERROR:
		return true;
	case WIRE_DATA:
		return worker->replied && !worker->ended && frame->len > WIRE_DATA_HEADER &&
		       frame->len <= WIRE_DATA_HEADER + WIRE_DATA_MAX;
	case WIRE_END:
		return worker->replied && !worker->ended;
	default:
		return false;
	}
}

static void worker_update(struct worker *worker, bool reading)
{
	watch_set(&worker->watch, (reading ? EPOLLIN : 0) | (worker->to.len ? EPOLLOUT : 0));
}

/* Forwards frames as far as possible, and reads more only when all have passed. May free the
 * worker. */
static void worker_pass(struct worker *worker)
{
	struct wire_frame frame;
	int got;

	while ((got = wire_frame_parse(&worker->from, &frame, NULL)) > 0) {
		if (!frame_is_allowed(worker, &frame)) {
			got = -1;
			break;
		}
		if (frame.type == WIRE_DATA && frame.len > worker->channel->send_room)
			break;
		if (!channel_forward(worker->channel, &frame))
			break;
		worker->replied |= frame.type == WIRE_REPLY;
		worker->failed |= frame.type == WIRE_ERROR;
		worker->ended |= frame.type == WIRE_END;
		buf_eat(&worker->from, WIRE_HEADER + frame.len);
	}
	if (got >= 0) {
		worker_update(worker, got == 0);
		return;
	}
	/* Somebody in the box wrote into its memory: its frames are no longer trusted. */
	worker->failed = worker->replied = false;
	worker_hung_up(worker);
}

static void worker_read(struct worker *worker)
{
	ssize_t got = recv(
		worker->watch.fd, buf_room(&worker->from, READ_CHUNK), READ_CHUNK, MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		worker_hung_up(worker);
		return;
	}
	buf_grew(&worker->from, (size_t)got);
	worker_pass(worker);
}

/* Returns as much of data as the worker takes now; all of it when it is gone. */
static size_t worker_give(struct worker *worker, const uint8_t *data, size_t len)
{
	ssize_t put = send(worker->watch.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (put >= 0)
		return (size_t)put;
	return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : len;
}

static void give_back(struct worker *worker, size_t len)
{
	size_t back = worker->to.len ? MIN(len, worker->credit) : worker->credit;

	worker->credit -= back;
	channel_consumed(worker->channel, back);
}

static void on_worker(struct watch *watch, uint32_t ready)
{
	struct worker *worker = owner_of(watch, struct worker, watch);

	if (ready & EPOLLOUT && worker->to.len) {
		size_t took = worker_give(worker, buf_head(&worker->to), worker->to.len);

		buf_eat(&worker->to, took);
		give_back(worker, took);
		worker_update(worker, worker->watch.events & EPOLLIN);
	}
	if (ready & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		/* A hang-up comes even while reading is paused; it comes again later. */
		if (!(worker->watch.events & EPOLLIN)) {
			buf_done(&worker->to);
			give_back(worker, 0);
			worker_update(worker, false);
			return;
		}
		worker_read(worker);
	}
}

/* ---- the channel's side --------------------------------------------------------------------- */

static void worker_send(struct worker *worker, const struct wire_frame *frame, size_t data_len)
{
	const uint8_t *whole = frame->payload - WIRE_HEADER;
	size_t len = WIRE_HEADER + frame->len, took = 0;

	worker->credit += data_len;
	if (!worker->to.len)
		took = worker_give(worker, whole, len);
	buf_add(&worker->to, whole + took, len - took);
	give_back(worker, took);
	worker_update(worker, worker->watch.events & EPOLLIN);
}

static void worker_data(
	struct channel *channel, const struct wire_frame *frame, const uint8_t *data, size_t len)
{
	(void)data;
	worker_send(channel->owner, frame, len);
}

static void worker_end(struct channel *channel)
{
	struct buf bytes = BUF_INIT;
	struct wire_frame frame;

	wire_end(&bytes, wire_begin(&bytes, WIRE_END, channel->id));
	frame = (struct wire_frame){ WIRE_END, channel->id, buf_head(&bytes) + WIRE_HEADER, 0 };
	worker_send(channel->owner, &frame, 0);
	buf_done(&bytes);
}

static void worker_room(struct channel *channel)
{
	worker_pass(channel->owner);
}

static void worker_cancel(struct channel *channel)
{
	worker_leave(channel->owner);
}

static const struct channel_ops worker_ops = {
	.data = worker_data,
	.end = worker_end,
	.room = worker_room,
	.cancel = worker_cancel,
};

bool worker_reaped(pid_t pid)
{
	for (struct worker *worker = workers; worker; worker = worker->next)
		if (worker->pid == pid) {
			worker->pid = 0;
			worker_free_if_done(worker);
			return true;
		}
	return false;
}

static int worker_start(struct channel *channel, struct job *job, struct err *err)
{
	struct worker *worker;
	int line[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0)
		return err_sys(err, errno, "make a socket pair");
	job->fd = line[1];
	job->channel = channel->id;
	pid = fork();
	if (!pid)
		worker_main(job);
	close(line[1]);
	if (pid < 0) {
		int saved = errno;

		close(line[0]);
		return err_sys(err, saved, "start a process for this");
	}
	worker = xnew(struct worker);
	worker->pid = pid;
	worker->op = job->op;
	worker->channel = channel;
	worker->next = workers;
	workers = worker;
	watch_open(&worker->watch, line[0], on_worker);
	watch_set(&worker->watch, EPOLLIN);
	channel->ops = &worker_ops;
	channel->owner = worker;
	return 0;
}

int worker_open(struct channel *channel, enum wire_op op, struct wire_reader *in, struct err *err)
{
	static struct job job; /* large, and used up by the fork */
	unsigned count = 0;

	job = (struct job){ .op = op };
	kinds[op].get(in, &job);
	if (wire_get_done(in, err) < 0)
		return -1;
	for (struct worker *worker = workers; worker; worker = worker->next)
		count++;
	if (count >= WORKERS_MAX)
		return err_set(err, ERR_LIMIT, "more than %d file operations at once in the box",
			WORKERS_MAX);
	return worker_start(channel, &job, err);
}
