/* engine_internal.h - what drivers embed */
#pragma once
#include "engine/engine.h"

struct engine {
	const struct engine_ops *ops;
};

struct instance {
	struct engine *engine;
	const struct instance_ops *events;
	void *arg;
	struct instance_mark mark;
};

struct capture {
	struct engine *engine;
	const struct capture_ops *events;
	void *arg;
};
