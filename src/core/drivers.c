/* drivers.c - the drivers of a yard: opened once, chosen by the row of a box */
#include "core/drivers.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"

enum { DRIVERS_MAX = 8 };

struct driver {
	const struct engine_ops *ops;
	struct engine *engine; /* NULL: it does not work here */
	struct err why;	       /* why engine is NULL */
};

struct drivers {
	struct driver list[DRIVERS_MAX];
	size_t count;
	char *demanded; /* "": none */
};

static bool is_allowed(const struct drivers *drivers, const struct driver *driver)
{
	return !*drivers->demanded || !strcmp(drivers->demanded, driver->ops->name);
}

/* The first driver that works and may be used. */
static const struct driver *find_default(const struct drivers *drivers)
{
	for (size_t i = 0; i < drivers->count; i++)
		if (drivers->list[i].engine && is_allowed(drivers, &drivers->list[i]))
			return &drivers->list[i];
	return NULL;
}

static const struct driver *find(const struct drivers *drivers, const char *name)
{
	for (size_t i = 0; i < drivers->count; i++)
		if (!strcmp(drivers->list[i].ops->name, name))
			return &drivers->list[i];
	return NULL;
}

static void name_all(const struct drivers *drivers, struct buf *out)
{
	for (size_t i = 0; i < drivers->count; i++)
		buf_addf(out, "%s%s", i ? ", " : "", drivers->list[i].ops->name);
}

static int refuse_unknown(const struct drivers *drivers, const char *name, struct err *err)
{
	struct buf names = BUF_INIT;

	name_all(drivers, &names);
	err_set(err, ERR_INVALID, "there is no driver '%.40s'", name);
	err_hint(err, "drivers: %s", buf_str(&names));
	buf_done(&names);
	return -1;
}

static int refuse_broken(const struct driver *driver, struct err *err)
{
	err_set(err, ERR_UNSUPPORTED, "driver '%s' does not work on this machine: %s",
		driver->ops->name, driver->why.message);
	return err_hint(err, "%s", *driver->why.hint ? driver->why.hint : "'box doctor' says more");
}

int drivers_open(const struct engine_ops *const *list, const struct engine_config *config,
	const char *demanded, struct drivers **ret, struct err *err)
{
	struct drivers *drivers = xnew(struct drivers);
	const struct driver *first;
	int status = 0;

	drivers->demanded = xstrdup(demanded);
	for (; *list && drivers->count < DRIVERS_MAX; list++) {
		struct driver *driver = &drivers->list[drivers->count++];

		driver->ops = *list;
		if (engine_open(*list, config, &driver->engine, &driver->why) < 0)
			log_warn("a driver does not work here", kv_str("driver", (*list)->name),
				kv_err(&driver->why));
	}
	first = *demanded ? find(drivers, demanded) : find_default(drivers);
	if (*demanded && !first)
		status = refuse_unknown(drivers, demanded, err);
	else if (*demanded && !first->engine)
		status = refuse_broken(first, err);
	else if (!first)
		status = refuse_broken(&drivers->list[0], err);
	if (status < 0)
		drivers_close(drivers);
	else
		*ret = drivers;
	return status;
}

void drivers_close(struct drivers *drivers)
{
	if (!drivers)
		return;
	for (size_t i = 0; i < drivers->count; i++)
		engine_close(drivers->list[i].engine);
	free(drivers->demanded);
	free(drivers);
}

int drivers_choose(
	const struct drivers *drivers, const char *asked, struct engine **ret, struct err *err)
{
	const struct driver *driver = asked ? find(drivers, asked) : find_default(drivers);

	if (!driver)
		return refuse_unknown(drivers, asked ? asked : "", err);
	if (!is_allowed(drivers, driver)) {
		err_set(err, ERR_INVALID, "boxes must use the driver '%s', not '%s'",
			drivers->demanded, driver->ops->name);
		return err_hint(err, "'driver' in boxyard.conf demands it");
	}
	if (!driver->engine)
		return refuse_broken(driver, err);
	*ret = driver->engine;
	return 0;
}

int drivers_find(
	const struct drivers *drivers, const char *name, struct engine **ret, struct err *err)
{
	const struct driver *driver = find(drivers, name);

	if (!driver)
		return refuse_unknown(drivers, name, err);
	if (!driver->engine)
		return refuse_broken(driver, err);
	*ret = driver->engine;
	return 0;
}

int drivers_sweep(const struct drivers *drivers, const char *id, struct err *err)
{
	int status = 0;

	for (size_t i = 0; i < drivers->count; i++)
		if (drivers->list[i].engine && engine_sweep(drivers->list[i].engine, id, err) < 0)
			status = -1;
	return status;
}

static json_t *capabilities_json(const struct engine *engine)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < ENGINE_CAN_COUNT; i++)
		if (engine_can(engine, i))
			json_array_append_new(list, json_string(engine_can_name(i)));
	return list;
}

json_t *drivers_json(const struct drivers *drivers)
{
	const struct driver *first = find_default(drivers);
	json_t *all = json_object();

	for (size_t i = 0; i < drivers->count; i++) {
		const struct driver *driver = &drivers->list[i];
		json_t *one = driver->engine ? engine_describe(driver->engine) : json_object();

		json_object_set_new(one, "available", json_boolean(driver->engine != NULL));
		json_object_set_new(one, "allowed", json_boolean(is_allowed(drivers, driver)));
		json_object_set_new(one, "default", json_boolean(driver == first));
		if (driver->engine)
			json_object_set_new(one, "can", capabilities_json(driver->engine));
		else
			json_object_set_new(one, "why", json_string(driver->why.message));
		json_object_set_new(all, driver->ops->name, one);
	}
	return all;
}

unsigned drivers_fds(const struct drivers *drivers)
{
	unsigned most = 0;

	for (size_t i = 0; i < drivers->count; i++)
		if (drivers->list[i].engine)
			most = MAX(most, engine_get_fds(drivers->list[i].engine));
	return most;
}

const char *drivers_capture_problem(const struct drivers *drivers)
{
	for (size_t i = 0; i < drivers->count; i++)
		if (drivers->list[i].engine && engine_capture_problem(drivers->list[i].engine))
			return engine_capture_problem(drivers->list[i].engine);
	return NULL;
}

/* Of a driver that does not open, only the reason is reported. */
bool drivers_probe(const struct drivers *drivers, json_t *checks)
{
	bool usable = false;

	for (size_t i = 0; i < drivers->count; i++) {
		const struct driver *driver = &drivers->list[i];
		char name[48];

		if (driver->engine && engine_probe(driver->engine, checks, NULL) == 0)
			usable = usable || is_allowed(drivers, driver);
		if (driver->engine)
			continue;
		snprintf(name, sizeof name, "driver %s", driver->ops->name);
		json_array_append_new(
			checks, json_pack("{s:s,s:b,s:s,s:s,s:b}", "name", name, "ok", 0, "detail",
					driver->why.message, "hint", driver->why.hint, "required",
					!strcmp(drivers->demanded, driver->ops->name)));
	}
	return usable;
}
