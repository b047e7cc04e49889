/* control.h - the driver's own connection to box-init of a VM: who it is now, and how it is
 *
 * A VM that was restored serves nobody before it was told (wire/control.h). Only when on_ready has
 * come may the box's link be connected. All answers are the box's own word: bounded, parsed
 * strictly, printable.
 *
 * The object connects by itself, and again when the port does not answer: at once is not seen by
 * the guest, so 20 ms later, after each 100 ms of a running guest. */
#pragma once
#include "base/err.h"
#include "wire/control.h"

struct loop;
struct control;

/* Called from the loop, never from inside a call. Each may free the control. */
struct control_ops {
	/* It has been told in this generation, now or by an earlier daemon. Comes again after a
	 * connection was lost and made again. */
	void (*on_ready)(struct control *control, void *arg);
	/* It refused what it was told, or did not answer for CONTROL_PATIENCE_MS of running. Free
	 * it; the VM is not to be served. */
	void (*on_failed)(struct control *control, const struct err *err, void *arg);
	/* A program was killed for memory, or a fork refused: its figures now. May be NULL. */
	void (*on_limit)(struct control *control, const struct control_stats *stats, void *arg);
};

enum { CONTROL_PATIENCE_MS = 30000, CONTROL_BOOT_MS = 60000, CONTROL_ASK_MS = 5000 };

struct control_spec {
	/* Of the listening socket of the port, as qemu.h made it; any length. */
	const char *path;
	/* What it is told if its generation is another one; strings are copied. seed and wall_us
	 * are filled in when it is sent. */
	struct control_tell tell;
	/* Of a template: on_ready comes when box-init answers the hello and waits for TELL, its
	 * disks mounted; it is told nothing. */
	bool greet_only;
	bool boots; /* its kernel: it may be silent for CONTROL_BOOT_MS */
};

struct control *control_new(struct loop *loop, const struct control_spec *spec,
	const struct control_ops *ops, void *arg);
/* Nobody is called any more: not the ops, nor anybody who asked. Accepts NULL. */
void control_free(struct control *control);
bool control_is_ready(const struct control *control);
/* The guest stands still (or goes on): no time passes for what was asked. */
void control_pause(struct control *control, bool paused);

/* Each is answered once, from the loop, in order; err is NULL when it worked. ERR_TIMEOUT after
 * CONTROL_ASK_MS (sync, grow: CONTROL_PATIENCE_MS) of a running guest. What is asked before
 * on_ready waits for it. A control_done may be NULL. */
typedef void (*control_done)(const struct err *err, void *arg);
typedef void (*control_stats_fn)(
	const struct control_stats *stats, const struct err *err, void *arg);
typedef void (*control_timer_fn)(
	const struct control_timer *timer, const struct err *err, void *arg);
typedef void (*control_who_fn)(const struct control_who *who, const struct err *err, void *arg);

void control_stats(struct control *control, control_stats_fn done, void *arg);
void control_timers(struct control *control, control_timer_fn done, void *arg);
void control_who(
	struct control *control, const struct control_flow *flow, control_who_fn done, void *arg);
/* Everything written is on its disk; before a capture. */
void control_sync(struct control *control, control_done done, void *arg);
/* All programs of the box stand still until it is let go, or told: for a capture of which copies
 * are made, so that no program runs in a copy before that has randomness of its own. */
void control_hold(struct control *control, bool hold, control_done done, void *arg);
void control_grow(struct control *control, uint64_t disk_bytes, control_done done, void *arg);
void control_limit(struct control *control, uint64_t pids, control_done done, void *arg);
void control_set_hostname(
	struct control *control, const char *hostname, control_done done, void *arg);
/* After it stood still: the time is what it is when this is sent. */
void control_set_clock(struct control *control, control_done done, void *arg);
