/* api.c - the front door: a request becomes a call
 *
 *   door (Host, Origin) -> route -> token and scope -> query keys -> body -> handler
 *
 * Each step refuses with one error; a handler sees only what passed them all. */
#include "api/api_internal.h"
#include "auth/inner.h"
#include "base/log.h"
#include "conf/conf.h"
#include "http/tls.h"
#include "loop/loop.h"
#include <grp.h>
#include <stdio.h>

/* ---- helpers for handlers ------------------------------------------------------------------- */

void call_error(struct call *call, const struct err *err)
{
	http_reply_error(call->request, err);
}

void call_json(struct call *call, int status, json_t *value)
{
	http_reply_json(call->request, status, value);
}

void call_none(struct call *call)
{
	http_reply(call->request, 204, NULL, NULL, 0);
}

const char *call_query(struct call *call, const char *key)
{
	return http_request_query(call->request, key);
}

struct box *call_box(struct call *call)
{
	struct err err = ERR_INIT;
	struct box *box = box_find(call->yard, call->params[0], &err);

	if (!box)
		call_error(call, &err);
	return box;
}

struct box *call_box_awake(struct call *call)
{
	struct box *box = call_box(call);
	enum box_state state = box ? box_get_state(box) : BOX_RUNNING;
	struct err err = ERR_INIT;

	if (state == BOX_RUNNING || state == BOX_STOPPED || call_may(call, SCOPE_ALL & ~SCOPE_READ))
		return box;
	err_set(&err, ERR_STATE, "box '%s' is %s, not running", box_get_name(box),
		box_state_name(state));
	err_hint(&err, "a token with the scope read alone cannot wake a box");
	call_error(call, &err);
	return NULL;
}

void live_add(struct api *api, struct live *live, void (*stop)(struct live *live))
{
	live->stop = stop;
	live->next = &api->lives;
	live->prev = api->lives.prev;
	live->prev->next = live;
	api->lives.prev = live;
}

void live_remove(struct live *live)
{
	if (!live->next)
		return;
	live->next->prev = live->prev;
	live->prev->next = live->next;
	live->next = live->prev = NULL;
}

/* ---- from request to handler ---------------------------------------------------------------- */

struct query_check {
	const struct query_key *known;
	char unknown[64];
};

static bool check_key(const char *key, const char *value, void *arg)
{
	struct query_check *check = arg;

	(void)value;
	for (const struct query_key *known = check->known; known && known->name; known++)
		if (!strcmp(known->name, key))
			return true;
	snprintf(check->unknown, sizeof check->unknown, "%.60s", *key ? key : "(empty)");
	return false;
}

static int check_query(const struct call *call, struct err *err)
{
	struct query_check check = { .known = call->route->query };

	http_request_each_query(call->request, check_key, &check);
	if (*check.unknown)
		return err_set(err, ERR_INVALID, "unknown query key '%s'", check.unknown);
	for (const struct query_key *key = call->route->query; key && key->name; key++)
		if (key->required && !http_request_query(call->request, key->name))
			return err_set(
				err, ERR_INVALID, "the query key '%s' is missing", key->name);
	return 0;
}

/* The handler works for the principal: core finds what it may see, and events name it. The
 * principal is copied: the request is freed with its answer, which may come before core is done. */
static void run_handler(struct call *call)
{
	const struct principal principal = *call->principal;
	const struct asker *before = auth_enter(call->api->auth, &principal);

	call->principal = &principal;
	call->route->handler(call);
	call->principal = NULL;
	auth_leave(call->api->auth, before);
}

static void on_body(struct http_request *request, const char *body, size_t len, void *arg)
{
	struct api *api = arg;
	const struct route *route = http_request_get_data(request);
	struct call call = { .api = api, .yard = api->yard, .request = request };
	_cleanup_json_ json_t *value = NULL;
	struct err err = ERR_INIT;
	char allow[64];

	call.route = route_match(route->method, http_request_path(request), call.params, allow);
	value = len ? json_parse(body, len, &err) : json_object();
	if (value && !json_is_object(value))
		err_set(&err, ERR_INVALID, "the body must be a JSON object");
	if (err.kind)
		return call_error(&call, &err);
	call.body = value;
	call.principal = http_request_get_asker(request);
	run_handler(&call);
}

static void refuse_route(struct http_request *request, const char *allow)
{
	struct err err = ERR_INIT;

	if (!*allow) {
		err_set(&err, ERR_NOT_FOUND, "no such API call: %s %.120s",
			http_request_method(request), http_request_path(request));
		err_hint(&err, "GET /v1/openapi.json lists all calls");
		return http_reply_error(request, &err);
	}
	http_reply_header(request, "Allow", allow);
	http_reply_json(request, 405,
		json_pack("{s:{s:s,s:s,s:s}}", "error", "code", "invalid", "message",
			"this path has no such method", "hint", allow));
}

/* A command may name the daemon it means, by its home, since that is what people set. */
static int check_home(struct api *api, struct http_request *request, struct err *err)
{
	const char *home = http_request_header(request, "Box-Home");

	if (!home || http_request_transport(request) != HTTP_TRANSPORT_UNIX ||
		!strcmp(home, yard_get_conf(api->yard)->home) || !strcmp(home, api->home))
		return 0;
	err_set(err, ERR_STATE, "the daemon here has the home '%s', not '%.200s' as BOX_HOME says",
		api->home, home);
	return err_hint(
		err, "set BOX_RUN to where that daemon's socket is, or start it with 'box up'");
}

static void handle(struct http_request *request, void *arg)
{
	struct api *api = arg;
	struct call call = { .api = api, .yard = api->yard, .request = request };
	struct principal principal;
	struct err err = ERR_INIT;
	char allow[64];

	call.route = route_match(
		http_request_method(request), http_request_path(request), call.params, allow);
	call.principal = &principal;
	if (auth_check(api, request, call.route, &principal, &err) < 0 ||
		check_home(api, request, &err) < 0)
		return http_reply_error(request, &err);
	if (!call.route)
		return refuse_route(request, allow);
	if (check_query(&call, &err) < 0)
		return http_reply_error(request, &err);
	if (!(call.route->flags & ROUTE_BODY))
		return run_handler(&call);
	http_request_set_asker(request, xmemdup(&principal, sizeof principal), free);
	http_request_set_data(request, (void *)call.route);
	http_request_read_body(request, API_BODY_MAX, on_body, api);
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* The group may not exist on this machine; then only root can use the socket. */
static int listen_unix(struct api *api, const struct conf *conf, struct err *err)
{
	struct group *group = conf->group && *conf->group ? getgrnam(conf->group) : NULL;

	return http_server_listen_unix(api->server, conf->socket, group ? group->gr_gid : getegid(),
		group ? 0660 : 0600, err);
}

/* With a certificate the listener speaks TLS on any address; conf demands one for addresses other
 * than loopback. */
static int listen_tcp(struct api *api, const struct conf *conf, struct err *err)
{
	if (!conf->listen_tcp)
		return 0;
	if (!*conf->listen_certificate)
		return http_server_listen_tcp(
			api->server, conf->address, conf->port, &api->port, err);
	if (http_tls_new(conf->listen_certificate, conf->listen_key, &api->tls, err) < 0)
		return -1;
	http_tls_watch(api->tls, yard_get_loop(api->yard));
	return http_server_listen_tls(
		api->server, conf->address, conf->port, api->tls, &api->port, err);
}

static int on_inner(int fd, const struct principal *principal, void *arg, struct err *err)
{
	struct api *api = arg;

	return http_server_add(api->server, fd, xmemdup(principal, sizeof *principal), free, err);
}

int api_open(struct yard *yard, struct auth *auth, api_shutdown_fn shutdown, void *arg,
	struct api **ret, struct err *err)
{
	const struct conf *conf = yard_get_conf(yard);
	struct api *api = xnew(struct api);

	api->yard = yard;
	api->auth = auth;
	api->home = realpath(conf->home, NULL);
	if (!api->home)
		api->home = xstrdup(conf->home);
	api->shutdown = shutdown;
	api->shutdown_arg = arg;
	api->lives.next = api->lives.prev = &api->lives;
	api->server = http_server_new(yard_get_loop(yard), handle, api);
	auth_set_inner(auth, on_inner, api);
	if (listen_unix(api, conf, err) < 0 || listen_tcp(api, conf, err) < 0) {
		api_close(api);
		return err_wrap(err, "listen");
	}
	*ret = api;
	return 0;
}

void api_stop(struct api *api, uint64_t grace_ms, void (*done)(void *arg), void *arg)
{
	struct err err = ERR_INIT;

	err_set(&err, ERR_UNAVAILABLE, "the daemon was stopped before all boxes were hibernated");
	shutdown_askers_fail(api, &err);
	api->hibernate = false; /* later requests do not wait */
	/* Endless streams would use up the grace period. Each stop removes itself from the ring. */
	while (api->lives.next != &api->lives) {
		struct live *live = api->lives.next;

		live_remove(live);
		live->stop(live);
	}
	http_server_stop(api->server, grace_ms, done, arg);
}

void api_close(struct api *api)
{
	if (!api)
		return;
	auth_set_inner(api->auth, NULL, NULL);
	http_server_free(api->server);
	http_tls_free(api->tls);
	buf_done(&api->scratch);
	free(api->askers);
	free(api->home);
	free(api);
}

void api_reload(struct api *api)
{
	http_tls_refresh(api->tls);
}

uint16_t api_get_port(const struct api *api)
{
	return api->port;
}

struct http_server *api_get_server(struct api *api)
{
	return api->server;
}
