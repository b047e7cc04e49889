/* serve.h - the daemon from start to end */
#pragma once
#include "base/err.h"
#include "base/json.h"

struct conf;

/* Runs the daemon in the foreground until SIGTERM, SIGINT or a shutdown request. Boxes run on,
 * unless the request was to purge, or hibernation was asked for or configured. */
int serve_run(const struct conf *conf, struct err *err);

/* What this machine can and cannot do, without a daemon, as GET /v1/doctor answers it. New
 * reference. */
int serve_doctor(const struct conf *conf, json_t **ret, struct err *err);
