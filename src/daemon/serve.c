/* serve.c - subsystems start in the order of this file and stop in reverse
 *
 *   mount namespace -> run folder -> loop -> yard (store, images, driver, recovery) -> front doors
 *   (API, ways into boxes) -> signals
 */
#include "daemon/serve.h"
#include "api/api.h"
#include "auth/auth.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "conf/conf.h"
#include "core/timeline.h"
#include "core/yard.h"
#include "http/server.h"
#include "ingress/ingress.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { STOP_GRACE_MS = 3000 };

struct daemon {
	const struct conf *conf;
	struct loop *loop;
	struct yard *yard;
	struct auth *auth;
	struct api *api;
	struct ingress *ingress;
	unsigned stopping_doors;
	bool stopping;
	bool hibernating;
	bool purging;
	bool purged;
};

static void on_door_stopped(void *arg)
{
	struct daemon *daemon = arg;

	if (--daemon->stopping_doors == 0)
		loop_stop(daemon->loop);
}

static void stop(struct daemon *daemon)
{
	if (daemon->stopping)
		return;
	daemon->stopping = true;
	log_info("daemon is stopping");
	daemon->stopping_doors = 2;
	ingress_stop(daemon->ingress, STOP_GRACE_MS, on_door_stopped, daemon);
	api_stop(daemon->api, STOP_GRACE_MS, on_door_stopped, daemon);
}

static void on_hibernated(json_t *failed, void *arg)
{
	struct daemon *daemon = arg;

	if (daemon->stopping)
		return; /* told twice */
	if (json_array_size(failed))
		log_error("not every box could be hibernated",
			kv_int("boxes", (int64_t)json_array_size(failed)));
	api_hibernated(daemon->api, failed);
	stop(daemon);
}

/* Told twice, it does not wait for boxes any longer. */
static void leave(struct daemon *daemon, bool hibernate)
{
	if (!hibernate || daemon->hibernating || daemon->purging || daemon->stopping) {
		stop(daemon);
		return;
	}
	daemon->hibernating = true;
	log_info("hibernating all boxes");
	yard_hibernate_all(daemon->yard, on_hibernated, daemon);
}

static void on_signal(void *arg)
{
	struct daemon *daemon = arg;

	leave(daemon, daemon->conf->hibernate_on_shutdown);
}

/* A certificate has changed; nothing else is read again. */
static void on_hangup(void *arg)
{
	struct daemon *daemon = arg;

	api_reload(daemon->api);
	ingress_reload(daemon->ingress);
}

static void on_purged(const struct err *err, void *arg)
{
	struct daemon *daemon = arg;

	if (err)
		log_error("not everything could be removed", kv_err(err));
	daemon->purged = !err;
	stop(daemon);
}

static void on_shutdown(bool purge, bool hibernate, void *arg)
{
	struct daemon *daemon = arg;

	if (!purge) {
		leave(daemon, hibernate);
		return;
	}
	daemon->purging = true;
	yard_purge(daemon->yard, on_purged, daemon);
}

static int make_run_dir(const struct conf *conf, struct err *err)
{
	if (dir_make_all(conf->run, 0755, err) < 0)
		return -1;
	if (chmod(conf->run, 0755) < 0)
		return err_sys(err, errno, "chmod '%s'", conf->run);
	return 0;
}

/* Everything the daemon ever made, itself last. The boxes are gone already. */
static void remove_home(const struct conf *conf)
{
	struct err err = ERR_INIT;

	if (tree_remove(AT_FDCWD, conf->home, &err) < 0 ||
		tree_remove(AT_FDCWD, conf->run, &err) < 0)
		log_error("not everything could be removed", kv_err(&err));
}

/* The pool is mounted where nobody else sees it; the host's mounts come and go here as they do
 * there. First of all: files opened before would lie on other mounts. */
static int leave_mounts(struct err *err)
{
	if (unshare(CLONE_NEWNS) < 0) {
		err_sys(err, errno, "enter a mount namespace");
		return err_hint(err, "the daemon runs as root");
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return err_sys(err, errno, "make mounts slaves of the host's");
	return 0;
}

/* For a home that is to be made: nothing of it is, when the daemon could not be reached in the
 * end. */
static int check_doors(const struct conf *conf, struct err *err)
{
	_cleanup_free_ char *made = xasprintf("%s/state.db", conf->home);

	if (access(made, F_OK) == 0)
		return 0;
	if (conf->listen_tcp && http_server_probe_tcp(conf->address, conf->port, err) < 0)
		return -1;
	return conf->url_listen ? http_server_probe_tcp(conf->url_listen, conf->url_port, err) : 0;
}

static int run(struct daemon *daemon, struct err *err)
{
	struct loop_signal *term, *interrupt, *hangup;

	daemon->loop = loop_new();
	if (check_doors(daemon->conf, err) < 0 ||
		yard_open(daemon->loop, daemon->conf, &daemon->yard, err) < 0 ||
		(daemon->auth = auth_new(daemon->yard),
			api_open(daemon->yard, daemon->auth, on_shutdown, daemon, &daemon->api,
				err)) < 0 ||
		ingress_open(daemon->yard, daemon->auth, &daemon->ingress, err) < 0)
		return -1;
	ingress_attach(daemon->ingress, api_get_server(daemon->api));
	term = loop_signal_new(daemon->loop, SIGTERM, on_signal, daemon);
	interrupt = loop_signal_new(daemon->loop, SIGINT, on_signal, daemon);
	hangup = loop_signal_new(daemon->loop, SIGHUP, on_hangup, daemon);
	log_info("daemon is up", kv_str("home", daemon->conf->home),
		kv_str("socket", daemon->conf->socket));
	loop_run(daemon->loop);
	loop_signal_free(hangup);
	loop_signal_free(interrupt);
	loop_signal_free(term);
	return 0;
}

int serve_doctor(const struct conf *conf, json_t **ret, struct err *err)
{
	signal(SIGPIPE, SIG_IGN);
	log_open(2, LOG_LEVEL_ERROR);
	/* Its mounts are nobody else's. */
	if (geteuid() == 0 && leave_mounts(err) < 0)
		return -1;
	return yard_doctor_alone(conf, ret, err);
}

int serve_run(const struct conf *conf, struct err *err)
{
	struct daemon daemon = { .conf = conf };
	int ret;

	umask(022);
	signal(SIGPIPE, SIG_IGN);
	log_open(2, conf->log_level);
	if (leave_mounts(err) < 0 || make_run_dir(conf, err) < 0)
		return -1;
	ret = run(&daemon, err);
	api_close(daemon.api);
	ingress_free(daemon.ingress);
	auth_free(daemon.auth);
	yard_close(daemon.yard);
	if (daemon.loop)
		loop_free(daemon.loop);
	if (daemon.purged)
		remove_home(conf);
	return ret;
}
