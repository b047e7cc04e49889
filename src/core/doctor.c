/* doctor.c - what this machine can and cannot do, with or without a daemon
 *
 * Without a daemon the drivers are opened for a moment, with their own cgroups and in a temporary
 * folder beside the home, so that the same file system is tested. Everything is removed
 * afterwards. */
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "image/image.h"
#include "loop/loop.h"
#include "pool/pool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static json_t *gate_check(struct yard *yard)
{
	_cleanup_json_ json_t *state = networks_json(yard);
	const char *problem = json_string_value(json_object_get(state, "problem"));

	return json_pack("{s:s,s:b,s:s,s:s,s:b}", "name", "network gate", "ok", !problem, "detail",
		problem ? problem : "runs, and the audit log is written", "hint",
		problem ? "boxes have no network until this is mended; see the daemon's log" : "",
		"required", 1);
}

/* As the SSH front door told it, see yard_set_ssh_info. */
static json_t *ssh_check(const struct yard *yard)
{
	const char *library = json_string_value(json_object_get(yard->ssh_info, "library"));
	const char *listen = json_string_value(json_object_get(yard->ssh_info, "listen"));
	char detail[128];

	snprintf(detail, sizeof detail, "libssh %s, %s%s", library ? library : "is missing",
		listen ? "listens on " : "listens on no port", listen ? listen : "");
	return json_pack("{s:s,s:b,s:s,s:s,s:b}", "name", "ssh", "ok", library != NULL, "detail",
		detail, "hint", library ? "" : "scripts/libssh builds it; then make", "required",
		0);
}

json_t *yard_doctor_json(struct yard *yard)
{
	json_t *checks = json_array();
	bool ok = drivers_probe(yard->drivers, checks);
	bool image = images_find(yard->images, "debian", NULL) != NULL;

	json_array_append_new(
		checks, json_pack("{s:s,s:b,s:s,s:s,s:b}", "name", "base image", "ok", image,
				"detail", image ? "image 'debian' is there" : "no image 'debian'",
				"hint", image ? "" : "box image build", "required", 1));
	pool_probe(yard->pool, checks);
	json_array_append_new(checks, gate_check(yard));
	json_array_append_new(checks, ssh_check(yard));
	return json_pack("{s:b,s:o}", "ok", ok && image, "checks", checks);
}

/* ---- without a daemon ----------------------------------------------------------------------- */

/* Makes a new folder in the home, or in the deepest existing folder on the way to it. */
static int make_trial_folder(const char *home, char **ret, struct err *err)
{
	_cleanup_free_ char *above = xstrdup(home), *path = NULL;
	char *slash;

	while (access(above, W_OK) < 0 && (slash = strrchr(above, '/')) && slash != above)
		*slash = '\0';
	path = xasprintf("%s/.doctor-XXXXXX", access(above, W_OK) < 0 ? "/tmp" : above);
	if (!mkdtemp(path))
		return err_sys(err, errno, "make '%s'", path);
	*ret = steal_ptr(&path);
	return 0;
}

int yard_doctor_alone(const struct conf *conf, json_t **ret, struct err *err)
{
	_cleanup_free_ char *folder = NULL, *run = NULL, *name = NULL;
	struct groups_config limits = { NULL, ENGINE_LIMIT_AUTO, ENGINE_LIMIT_AUTO };
	struct engine_config config = { .criu = conf->criu, .vm_kernel = conf->vm_kernel };
	struct drivers *drivers = NULL;
	json_t *checks = json_array();
	struct err why = ERR_INIT;
	bool ok;

	if (geteuid() != 0) {
		json_decref(checks);
		err_set(err, ERR_FORBIDDEN,
			"the daemon is not running, and only root can look without it");
		return err_hint(err, "sudo box doctor, or start it with 'sudo box up'");
	}
	if (make_trial_folder(conf->home, &folder, err) < 0) {
		json_decref(checks);
		return -1;
	}
	run = xasprintf("%s/run", folder);
	name = xasprintf("boxyard-doctor-%d", (int)getpid());
	config.home = folder;
	config.run = run;
	config.pool = folder;
	limits.name = name;
	config.loop = loop_new();
	ok = dir_make_all(run, 0700, &why) == 0 &&
	     groups_open(&limits, &config.groups, &why) == 0 &&
	     drivers_open(engine_drivers(), &config, conf->driver, &drivers, &why) == 0 &&
	     drivers_probe(drivers, checks);
	/* No driver opened: report that. */
	if (!drivers)
		json_array_append_new(
			checks, json_pack("{s:s,s:b,s:s,s:s,s:b}", "name", "drivers", "ok", 0,
					"detail", why.message, "hint", why.hint, "required", 1));
	drivers_close(drivers);
	groups_close(config.groups);
	loop_free(config.loop);
	if (tree_remove(AT_FDCWD, folder, &why) < 0)
		log_warn("a folder is left", kv_str("path", folder), kv_err(&why));
	*ret = json_pack("{s:b,s:o}", "ok", ok, "checks", checks);
	return 0;
}
