/* engine_fake_internal.h - what the files of the fake driver share */
#pragma once
#include "engine_fake.h"
#include "engine/engine_internal.h"

#define FAKE_STATE_FILE "fake.img" /* what a capture writes and a restore wants to find */

struct groups;
struct loop;
struct loop_timer;

struct fake_engine {
	struct engine base;
	struct loop *loop;
	struct groups *groups;
	char boot[40];
};

struct fake_instance {
	struct instance base;
	struct fake_process *process; /* NULL: it has ended */
	struct loop_timer *limit;
	bool restored, ready, ends;
	enum fake_step next; /* of its start */
	enum instance_end end;
};
struct fake_instance *fake_instance_of(struct instance *instance);
struct loop *fake_loop_of(const struct fake_instance *instance);

/* ---- fake_world.c */
enum fake_how fake_reach(enum fake_step step);
int fake_fail(enum fake_step step, enum fake_how how, struct err *err); /* -1 */
int fake_call(enum fake_step step, struct err *err); /* of a call that answers at once */
/* Cgroups of processes are made and removed here; NULL: there is no daemon. */
int fake_set_groups(struct groups *groups, struct err *err);
struct fake_process *fake_process_new(
	const struct instance_spec *spec, const char *boot, struct err *err);
void fake_process_gone(struct fake_process *process);
void fake_set_frozen(struct fake_process *process, bool frozen);

/* ---- fake_capture.c: the driver's functions */
void fake_capture_open(void);
int fake_capture(struct instance *instance, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err);
int fake_capture_rest(struct instance *instance, int dir, struct err *err);
void fake_capture_go_on(struct capture *capture, const struct err *failed);
void fake_capture_free(struct capture *capture);

/* ---- fake_init.c */
int fake_init_connect(
	struct loop *loop, struct fake_process *process, bool port, int *ret_fd, struct err *err);
void fake_init_settle(struct fake_process *process); /* it was frozen, or not any more */
void fake_shut_down(struct fake_process *process);   /* box-init was asked to end */
