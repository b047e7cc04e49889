/* control.h - the driver's own connection to box-init of a VM: identity, clock, figures
 *
 * A restored VM must first be told who it is (wire/control.h), and serves nobody before that.
 * The box's link may be connected only after on_ready. All answers come from the box and are not
 * trusted: bounded, parsed strictly, made printable.
 *
 * The object connects automatically, and again when the port does not answer: 20 ms later,
 * because the guest does not notice an immediate reconnect, and then after each 100 ms of a
 * running guest. */
#pragma once
#include "base/err.h"
#include "wire/control.h"

struct loop;
struct control;

/* Called from the loop, never from inside a call. Each may free the control. */
struct control_ops {
	/* The VM has been told in this generation, by this or an earlier daemon. Called again
	 * after each reconnection. */
	void (*on_ready)(struct control *control, void *arg);
	/* The VM refused what it was told, or did not answer for CONTROL_PATIENCE_MS of running
	 * time. Free the control; the VM must not be served. */
	void (*on_failed)(struct control *control, const struct err *err, void *arg);
	/* A program was killed for lack of memory, or a fork was refused: the figures now. May
	 * be NULL. */
	void (*on_limit)(struct control *control, const struct control_stats *stats, void *arg);
};

enum { CONTROL_PATIENCE_MS = 30000, CONTROL_BOOT_MS = 60000, CONTROL_ASK_MS = 5000 };

struct control_spec {
	/* Path of the listening socket of the port, as qemu.h made it; any length. */
	const char *path;
	/* What the VM is told if its generation differs; strings are copied. seed and wall_us
	 * are set when it is sent. */
	struct control_tell tell;
	/* For a template: on_ready comes when box-init answers the hello and waits for TELL,
	 * with its disks mounted; it is told nothing. */
	bool greet_only;
	bool boots; /* its kernel boots: it may be silent for CONTROL_BOOT_MS */
};

struct control *control_new(struct loop *loop, const struct control_spec *spec,
	const struct control_ops *ops, void *arg);
/* No callback afterwards, of the ops or of requests. Accepts NULL. */
void control_free(struct control *control);
bool control_is_ready(const struct control *control);
/* The guest is stopped (or runs again): time-outs do not count while it is stopped. */
void control_pause(struct control *control, bool paused);

/* Each request is answered once, from the loop, in order; err is NULL on success. ERR_TIMEOUT
 * after CONTROL_ASK_MS (sync, grow: CONTROL_PATIENCE_MS) of a running guest. Requests made
 * before on_ready wait for it. A control_done may be NULL. */
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
/* Writes everything to its disk; before a capture. */
void control_sync(struct control *control, control_done done, void *arg);
/* Stops all programs of the box until it is released, or told who it is: for a capture from
 * which copies are made, so that no program runs in a copy before the copy has randomness of its
 * own. */
void control_hold(struct control *control, bool hold, control_done done, void *arg);
void control_grow(struct control *control, uint64_t disk_bytes, control_done done, void *arg);
void control_limit(struct control *control, uint64_t pids, control_done done, void *arg);
void control_set_hostname(
	struct control *control, const char *hostname, control_done done, void *arg);
/* Sets the clock to the time of sending, after the guest was stopped. */
void control_set_clock(struct control *control, control_done done, void *arg);
