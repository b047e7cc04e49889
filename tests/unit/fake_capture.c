/* fake_capture.c - captures of fake instances, phase by phase */
#include "engine_fake_internal.h"
#include "base/alloc.h"
#include "base/file.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct fake_capture {
	struct capture base;
	struct fake_instance *instance;
	struct loop_timer *limit;
	enum fake_step next;
	bool was_frozen, stay_frozen;
	struct err err;
};

/* Of the helper that is about to be let go; shared with it, for it is older than the answer. */
static enum fake_how *copy_how;

static void capture_over(struct fake_capture *capture, const struct err *err)
{
	const struct capture_result result = { .paused_us = 1, .processes = 1, .log = "" };
	struct fake_process *process = capture->instance->process;

	loop_timer_stop(capture->limit);
	if (process)
		fake_set_frozen(process,
			err ? capture->was_frozen : capture->was_frozen || capture->stay_frozen);
	capture->base.events->on_done(&capture->base, &result, err, capture->base.arg);
}

static void capture_late(void *arg)
{
	struct err err = ERR_INIT;

	(void)fake_fail(((struct fake_capture *)arg)->next, FAKE_NEVER, &err);
	capture_over(arg, &err);
}

static void capture_goes_on(void *arg)
{
	struct fake_capture *capture = arg;
	const struct capture_ops *events = capture->base.events;
	const struct capture_result result = { .paused_us = 1, .processes = 1, .log = "" };
	enum fake_how how;
	struct err err = ERR_INIT;

	if (capture->err.kind) {
		err = capture->err;
		capture_over(capture, &err);
		return;
	}
	how = fake_reach(capture->next);
	if (how == FAKE_NEVER)
		return;
	if (how == FAKE_FAIL) {
		(void)fake_fail(capture->next, how, &err);
		capture_over(capture, &err);
		return;
	}
	if (capture->next == FAKE_REST) {
		if (capture->instance->process)
			fake_set_frozen(capture->instance->process, true);
		*copy_how = fake_reach(FAKE_COPY);
		capture->next = FAKE_TAKEN;
		events->on_rest(&capture->base, capture->base.arg);
	} else if (capture->next == FAKE_TAKEN) {
		capture->next = FAKE_DONE;
		loop_defer(fake_loop_of(capture->instance), capture_goes_on, capture);
		if (events->on_taken)
			events->on_taken(&capture->base, &result, capture->base.arg);
	} else {
		capture_over(capture, NULL);
	}
}

int fake_capture(struct instance *base, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err)
{
	struct fake_instance *instance = fake_instance_of(base);
	struct fake_capture *capture;
	_cleanup_close_ int file = -1;

	if (fake_call(FAKE_CAPTURE, err) < 0)
		return -1;
	file = openat(spec->dir, FAKE_STATE_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file < 0 || fd_write_all(file, "state", 5, err) < 0)
		return err_sys(err, errno, "make '%s'", FAKE_STATE_FILE);
	capture = xnew(struct fake_capture);
	*capture = (struct fake_capture){ .base = { base->engine, ops, arg },
		.instance = instance,
		.next = FAKE_REST,
		.was_frozen = spec->frozen,
		.stay_frozen = spec->stay_frozen };
	capture->limit = loop_timer_new(fake_loop_of(instance), capture_late, capture);
	loop_timer_start(capture->limit, spec->limit_ms ? spec->limit_ms : FAKE_LIMIT_MS);
	loop_defer(fake_loop_of(instance), capture_goes_on, capture);
	*ret = &capture->base;
	return 0;
}

int fake_capture_rest(struct instance *base, int dir, struct err *err)
{
	(void)base;
	(void)dir;
	while (*copy_how == FAKE_NEVER)
		pause();
	return *copy_how == FAKE_OK ? 0 : fake_fail(FAKE_COPY, *copy_how, err);
}

void fake_capture_go_on(struct capture *base, const struct err *failed)
{
	struct fake_capture *capture = (struct fake_capture *)base;

	if (failed)
		capture->err = *failed;
	loop_defer(fake_loop_of(capture->instance), capture_goes_on, capture);
}

void fake_capture_free(struct capture *base)
{
	struct fake_capture *capture = (struct fake_capture *)base;

	loop_undefer(fake_loop_of(capture->instance), capture_goes_on, capture);
	loop_timer_free(capture->limit);
	free(capture);
}

void fake_capture_open(void)
{
	if (!copy_how)
		copy_how = mmap(NULL, sizeof *copy_how, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}
