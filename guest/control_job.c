/* control_job.c - see control.h
 *
 * File systems of a box may be slow, or hang: box-init itself does not wait for them. A job that
 * does not end is ended after JOB_MS. */
#include "guest/control.h"
#include "guest/watch.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

enum { JOBS_MAX = 8, JOB_MS = 60000, RESULT_FD = 3, RESULT_MAX = 16 * 1024 };

/* What the child writes: an error, then the payload. */
struct job {
	struct watch watch;
	struct timer timer;
	struct buf result;
	control_job_done done;
	uint64_t tag;
	pid_t pid;
};

static struct job jobs[JOBS_MAX];

static void job_end(struct job *job)
{
	struct buf result = job->result;
	struct err err = ERR_INIT;
	bool whole = result.len >= sizeof err;

	watch_close(&job->watch);
	timer_disarm(&job->timer);
	if (whole) {
		memcpy(&err, buf_head(&result), sizeof err);
		err.message[sizeof err.message - 1] = '\0';
		buf_eat(&result, sizeof err);
	} else {
		kill(job->pid, SIGKILL);
		err_set(&err, ERR_SYSTEM, "the box did not answer");
	}
	job->result = (struct buf)BUF_INIT;
	job->pid = 0;
	job->done(job->tag, err.kind ? &err : NULL, buf_head(&result), result.len);
	buf_done(&result);
}

static void on_result(struct watch *watch, uint32_t ready)
{
	struct job *job = owner_of(watch, struct job, watch);
	ssize_t got = read(watch->fd, buf_room(&job->result, RESULT_MAX), RESULT_MAX);

	(void)ready;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got > 0)
		buf_grew(&job->result, (size_t)got);
	if (got <= 0 || job->result.len > RESULT_MAX)
		job_end(job);
}

static void on_late(struct timer *timer)
{
	struct job *job = owner_of(timer, struct job, timer);

	buf_done(&job->result);
	job_end(job);
}

static _Noreturn void job_main(control_job_fn fn, const void *arg, int fd)
{
	struct buf out = BUF_INIT, all = BUF_INIT;
	struct err err = ERR_INIT;

	prctl(PR_SET_NAME, "box-init-job");
	if (fn(arg, &out, &err) < 0 && !err.kind)
		err_set(&err, ERR_SYSTEM, "it failed");
	buf_add(&all, &err, sizeof err);
	if (!err.kind)
		buf_add(&all, buf_head(&out), out.len);
	(void)!write(fd, buf_head(&all), all.len);
	_exit(0);
}

static struct job *find_free(void)
{
	for (size_t i = 0; i < JOBS_MAX; i++)
		if (!jobs[i].pid)
			return &jobs[i];
	return NULL;
}

int control_job_start(
	control_job_fn fn, const void *arg, uint64_t tag, control_job_done done, struct err *err)
{
	struct job *job = find_free();
	int ends[2];
	pid_t pid;

	if (!job)
		return err_set(err, ERR_LIMIT, "too many questions at once");
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, errno, "make a pipe");
	pid = fork();
	if (!pid)
		job_main(fn, arg, ends[1]);
	close(ends[1]);
	if (pid < 0) {
		err_sys(err, errno, "start a process");
		close(ends[0]);
		return -1;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	*job = (struct job){ .done = done, .tag = tag, .pid = pid };
	watch_open(&job->watch, ends[0], on_result);
	watch_set(&job->watch, EPOLLIN);
	timer_arm(&job->timer, JOB_MS, on_late);
	return 0;
}
