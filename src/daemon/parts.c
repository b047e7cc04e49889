/* parts.c - see parts.h */
#include "daemon/parts.h"
#include "base/log.h"

static void log_started(const struct part *part, void *arg)
{
	const char *where = part->listens ? part->listens(arg) : NULL;

	if (where)
		log_info("part is up", kv_str("part", part->name), kv_str("listens", where));
	else
		log_debug("part is up", kv_str("part", part->name));
}

int parts_start(struct parts *parts, struct err *err)
{
	for (size_t i = 0; i < parts->count; i++) {
		const struct part *part = &parts->table[i];

		if (part->start && part->start(parts->arg, err) < 0) {
			log_debug("part does not start", kv_str("part", part->name), kv_err(err));
			parts_close(parts);
			return -1;
		}
		parts->started = i + 1;
		log_started(part, parts->arg);
	}
	return 0;
}

void parts_attach(struct parts *parts, struct http_server *server)
{
	for (size_t i = 0; i < parts->started; i++)
		if (parts->table[i].attach)
			parts->table[i].attach(parts->arg, server);
}

void parts_reload(struct parts *parts)
{
	for (size_t i = 0; i < parts->started; i++)
		if (parts->table[i].reload)
			parts->table[i].reload(parts->arg);
}

static void on_stopped(void *arg)
{
	struct parts *parts = arg;

	if (--parts->stopping == 0)
		parts->stopped(parts->arg);
}

/* stopping counts one more than there are front doors, so that one which ends at once does not end
 * the rest. */
void parts_stop(struct parts *parts, void (*stopped)(void *arg))
{
	parts->stopped = stopped;
	parts->stopping = 1;
	for (size_t i = parts->started; i-- > 0;)
		if (parts->table[i].stop) {
			parts->stopping++;
			parts->table[i].stop(parts->arg, on_stopped, parts);
		}
	on_stopped(parts);
}

void parts_close(struct parts *parts)
{
	while (parts->started) {
		const struct part *part = &parts->table[--parts->started];

		if (part->close)
			part->close(parts->arg);
	}
}
