/* serve.c - the daemon from start to end. Its parts are the rows of one table, at the end of this
 * file. A new front door is a row before "api", whose listeners all HTTP fronts share. */
#include "daemon/serve.h"
#include "daemon/parts.h"
#include "api/api.h"
#include "auth/auth.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "conf/conf.h"
#include "core/time/timeline.h"
#include "core/yard.h"
#include "http/server.h"
#include "ingress/ingress.h"
#include "inside/inside.h"
#include "loop/loop.h"
#include "ssh/sshd.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
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
	struct sshd *sshd;
	struct parts parts;
	struct loop_signal *term, *interrupt, *hangup;
	bool stopping;
	bool hibernating;
	bool purging;
	bool purged;
};

static void on_stopped(void *arg)
{
	struct daemon *daemon = arg;

	loop_stop(daemon->loop);
}

static void stop(struct daemon *daemon)
{
	if (daemon->stopping)
		return;
	daemon->stopping = true;
	log_info("daemon is stopping");
	parts_stop(&daemon->parts, on_stopped);
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

/* A second request to leave does not wait for boxes any longer. */
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

/* SIGHUP: a certificate or a host key has changed. Nothing else is read again. */
static void on_hangup(void *arg)
{
	struct daemon *daemon = arg;

	parts_reload(&daemon->parts);
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

/* ---- the parts ------------------------------------------------------------------------------ */

static int start_run(void *arg, struct err *err)
{
	const struct conf *conf = ((struct daemon *)arg)->conf;

	if (dir_make_all(conf->run, 0755, err) < 0)
		return -1;
	if (chmod(conf->run, 0755) < 0)
		return err_sys(err, errno, "chmod '%s'", conf->run);
	return 0;
}

/* Removes everything the daemon ever made, its home last. The boxes are gone already. */
static void remove_home(const struct conf *conf)
{
	struct err err = ERR_INIT;

	if (tree_remove(AT_FDCWD, conf->home, &err) < 0 ||
		tree_remove(AT_FDCWD, conf->run, &err) < 0)
		log_error("not everything could be removed", kv_err(&err));
}

/* The pool is mounted where no other process sees it; mounts of the host still come and go here.
 * This must happen first: files opened before would lie on other mounts. */
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

/* Checks the ports before a new home is made, so that nothing of it is left when the daemon could
 * not listen. */
static int check_ports(void *arg, struct err *err)
{
	const struct conf *conf = ((struct daemon *)arg)->conf;
	_cleanup_free_ char *made = xasprintf("%s/state.db", conf->home);

	if (access(made, F_OK) == 0)
		return 0;
	if (conf->listen_tcp && http_server_probe_tcp(conf->address, conf->port, err) < 0)
		return -1;
	return conf->url_listen ? http_server_probe_tcp(conf->url_listen, conf->url_port, err) : 0;
}

static int start_mounts(void *arg, struct err *err)
{
	(void)arg;
	return leave_mounts(err);
}

static int start_loop(void *arg, struct err *err)
{
	struct daemon *daemon = arg;

	(void)err;
	daemon->loop = loop_new();
	return 0;
}

static void close_loop(void *arg)
{
	loop_free(((struct daemon *)arg)->loop);
}

static int start_yard(void *arg, struct err *err)
{
	struct daemon *daemon = arg;

	return yard_open(daemon->loop, daemon->conf, &daemon->yard, err);
}

static void close_yard(void *arg)
{
	yard_close(((struct daemon *)arg)->yard);
}

static int start_auth(void *arg, struct err *err)
{
	struct daemon *daemon = arg;

	(void)err;
	daemon->auth = auth_new(daemon->yard);
	return 0;
}

static void close_auth(void *arg)
{
	auth_free(((struct daemon *)arg)->auth);
}

static int start_inside(void *arg, struct err *err)
{
	(void)err;
	inside_open(((struct daemon *)arg)->yard);
	return 0;
}

static void close_inside(void *arg)
{
	inside_close(((struct daemon *)arg)->yard);
}

static int start_ingress(void *arg, struct err *err)
{
	struct daemon *daemon = arg;

	return ingress_open(daemon->yard, daemon->auth, &daemon->ingress, err);
}

static void attach_ingress(void *arg, struct http_server *server)
{
	ingress_attach(((struct daemon *)arg)->ingress, server);
}

static const char *ingress_listens(void *arg)
{
	const struct daemon *daemon = arg;
	static char text[128];

	if (!daemon->conf->url_listen)
		return NULL;
	snprintf(text, sizeof text, "https://%s port %u", daemon->conf->url_listen,
		ingress_get_tls_port(daemon->ingress));
	return text;
}

static void reload_ingress(void *arg)
{
	ingress_reload(((struct daemon *)arg)->ingress);
}

static void stop_ingress(void *arg, void (*done)(void *done_arg), void *done_arg)
{
	ingress_stop(((struct daemon *)arg)->ingress, STOP_GRACE_MS, done, done_arg);
}

static void close_ingress(void *arg)
{
	ingress_free(((struct daemon *)arg)->ingress);
}

static int start_ssh(void *arg, struct err *err)
{
	struct daemon *daemon = arg;

	return sshd_open(daemon->yard, daemon->auth, &daemon->sshd, err);
}

static const char *ssh_listens(void *arg)
{
	return sshd_listens(((struct daemon *)arg)->sshd);
}

static void reload_ssh(void *arg)
{
	sshd_reload(((struct daemon *)arg)->sshd);
}

static void stop_ssh(void *arg, void (*done)(void *done_arg), void *done_arg)
{
	sshd_stop(((struct daemon *)arg)->sshd, STOP_GRACE_MS, done, done_arg);
}

static void close_ssh(void *arg)
{
	sshd_close(((struct daemon *)arg)->sshd);
}

static int start_api(void *arg, struct err *err)
{
	struct daemon *daemon = arg;

	return api_open(daemon->yard, daemon->auth, on_shutdown, daemon, &daemon->api, err);
}

static const char *api_listens(void *arg)
{
	const struct daemon *daemon = arg;
	const struct conf *conf = daemon->conf;
	static char text[256];

	snprintf(text, sizeof text, "%s", conf->socket);
	if (conf->listen_tcp)
		snprintf(text, sizeof text, "%s, %s://%s port %u", conf->socket,
			*conf->listen_certificate ? "https" : "http", conf->address,
			api_get_port(daemon->api));
	return text;
}

static void reload_api(void *arg)
{
	api_reload(((struct daemon *)arg)->api);
}

static void stop_api(void *arg, void (*done)(void *done_arg), void *done_arg)
{
	api_stop(((struct daemon *)arg)->api, STOP_GRACE_MS, done, done_arg);
}

static void close_api(void *arg)
{
	api_close(((struct daemon *)arg)->api);
}

static int start_signals(void *arg, struct err *err)
{
	struct daemon *daemon = arg;

	(void)err;
	daemon->term = loop_signal_new(daemon->loop, SIGTERM, on_signal, daemon);
	daemon->interrupt = loop_signal_new(daemon->loop, SIGINT, on_signal, daemon);
	daemon->hangup = loop_signal_new(daemon->loop, SIGHUP, on_hangup, daemon);
	return 0;
}

static void close_signals(void *arg)
{
	struct daemon *daemon = arg;

	loop_signal_free(daemon->hangup);
	loop_signal_free(daemon->interrupt);
	loop_signal_free(daemon->term);
}

/* The API's server is closed before the fronts, because it calls them. */
static const struct part parts[] = {
	{ .name = "mounts", .start = start_mounts },
	{ .name = "run folder", .start = start_run },
	{ .name = "ports", .start = check_ports },
	{ .name = "loop", .start = start_loop, .close = close_loop },
	{ .name = "yard", .start = start_yard, .close = close_yard },
	{ .name = "auth", .start = start_auth, .close = close_auth },
	{ .name = "inside", .start = start_inside, .close = close_inside },
	{ .name = "box URLs",
		.start = start_ingress,
		.attach = attach_ingress,
		.listens = ingress_listens,
		.reload = reload_ingress,
		.stop = stop_ingress,
		.close = close_ingress },
	{ .name = "ssh",
		.start = start_ssh,
		.listens = ssh_listens,
		.reload = reload_ssh,
		.stop = stop_ssh,
		.close = close_ssh },
	{ .name = "api",
		.start = start_api,
		.listens = api_listens,
		.reload = reload_api,
		.stop = stop_api,
		.close = close_api },
	{ .name = "signals", .start = start_signals, .close = close_signals },
};

int serve_doctor(const struct conf *conf, json_t **ret, struct err *err)
{
	signal(SIGPIPE, SIG_IGN);
	log_open(2, LOG_LEVEL_ERROR);
	/* Mounts of this process must not be visible to other processes. */
	if (geteuid() == 0 && leave_mounts(err) < 0)
		return -1;
	return yard_doctor_alone(conf, ret, err);
}

int serve_run(const struct conf *conf, struct err *err)
{
	struct daemon daemon = { .conf = conf };

	umask(022);
	signal(SIGPIPE, SIG_IGN);
	log_open(2, conf->log_level);
	daemon.parts = (struct parts){ .table = parts, .count = ARRAY_LEN(parts), .arg = &daemon };
	if (parts_start(&daemon.parts, err) < 0)
		return -1;
	parts_attach(&daemon.parts, api_get_server(daemon.api));
	log_info("daemon is up", kv_str("home", conf->home), kv_str("socket", conf->socket));
	loop_run(daemon.loop);
	parts_close(&daemon.parts);
	if (daemon.purged)
		remove_home(conf);
	return 0;
}
