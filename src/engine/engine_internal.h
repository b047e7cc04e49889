/* engine_internal.h - what drivers embed */
#pragma once
#include "engine/engine.h"

struct engine {
	const struct engine_ops *ops;
	unsigned can;		     /* bits of enum engine_can */
	const char *capture_problem; /* a literal, or NULL */
	const char *accelerator;     /* a literal: what runs the box's kernel; NULL: it has none */
	unsigned fds;		     /* file descriptors that an instance needs while it runs */
	struct engine_extra extra;   /* with ENGINE_OWN_KERNEL; key NULL: nothing is added */
};

struct instance {
	struct engine *engine;
	const struct instance_ops *events;
	void *arg;
	struct instance_mark mark;
	struct instance_question *questions; /* engine.c's: not answered yet */
};

struct capture {
	struct engine *engine;
	const struct capture_ops *events;
	void *arg;
};
