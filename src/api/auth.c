/* auth.c - who may come in
 *
 * The owner and mode of the Unix socket guard it: whoever can connect may do everything. Every
 * program and every web page on this machine can reach the TCP listener, so there
 *   - Host must be one of our own loopback names with our port: a page whose name was made to point
 *     here (DNS rebinding) sends its own name. With TLS, any name of the certificate is accepted;
 *   - Origin, which browsers send, must be the same place: no other site's page may call us;
 *   - a bearer token must have the scope of the route.
 * Connections that another front door opened (auth/inner.h) have their principal with them.
 * Many wrong tokens are answered 429; a right one is always accepted. */
#include "api/api_internal.h"
#include "base/log.h"
#include "base/text.h"
#include "conf/conf.h"
#include "http/pass.h"
#include <stdio.h>
#include <strings.h>

static bool host_is(const char *host, const char *name, uint16_t port)
{
	char text[128];

	snprintf(text, sizeof text, strchr(name, ':') ? "[%s]:%u" : "%s:%u", name, port);
	if (!strcasecmp(host, text))
		return true;
	/* Clients leave the port out when it is the scheme's default. */
	return port == 80 && !strncasecmp(host, text, strlen(text) - 3) &&
	       strlen(host) == strlen(text) - 3;
}

int auth_check_host(const char *host, const char *address, uint16_t port, struct err *err)
{
	const char *const names[] = { "127.0.0.1", "localhost", "::1", address };

	for (size_t i = 0; host && i < ARRAY_LEN(names); i++)
		if (names[i] && host_is(host, names[i], port))
			return 0;
	err_set(err, ERR_FORBIDDEN, "Host '%.80s' is not a name of this daemon", host ? host : "");
	return err_hint(err, "use http://127.0.0.1:%u", port);
}

int auth_check_origin(const char *origin, const char *host, struct err *err)
{
	const char *rest = NULL;

	if (!origin)
		return 0;
	if (!strncasecmp(origin, "http://", 7))
		rest = origin + 7;
	else if (!strncasecmp(origin, "https://", 8))
		rest = origin + 8;
	if (rest && host && !strcasecmp(rest, host))
		return 0;
	return err_set(
		err, ERR_FORBIDDEN, "requests from the page '%.80s' are not allowed", origin);
}

static int hint_token(struct http_request *request, struct err *err)
{
	http_reply_header(request, "WWW-Authenticate", "Bearer");
	return err_hint(
		err, "'box token create' makes one; send it as Authorization: Bearer TOKEN");
}

static int check_token(
	struct api *api, struct http_request *request, struct principal *ret, struct err *err)
{
	const char *header = http_request_header(request, "Authorization");
	const char *peer = http_request_peer(request);

	if (!header) {
		err_set(err, ERR_UNAUTHORIZED, "a token is needed here");
		return hint_token(request, err);
	}
	if (strncasecmp(header, "Bearer ", 7)) {
		err_set(err, ERR_UNAUTHORIZED, "Authorization must be a bearer token");
		return auth_strike(api->auth, peer, err) < 0 ? -1 : hint_token(request, err);
	}
	header += 7;
	header += strspn(header, " ");
	if (auth_by_token(api->auth, peer, header, ret, err) == 0)
		return 0;
	log_debug("request with a wrong token",
		kv_int("request", (int64_t)http_request_id(request)), kv_str("peer", peer),
		kv_err(err));
	return err->kind == ERR_UNAUTHORIZED ? hint_token(request, err) : -1;
}

/* Variables may contain passwords: a principal that cannot make tokens sees only their names. */
static void hide_env(json_t *value)
{
	const char *key;
	json_t *member;
	size_t i;

	json_array_foreach (value, i, member)
		hide_env(member);
	json_object_foreach (value, key, member) {
		const char *name;
		json_t *old;
		void *next;

		if (strcmp(key, "env") || !json_is_object(member)) {
			hide_env(member);
			continue;
		}
		json_object_foreach_safe(member, next, name, old)
			json_object_set_new(member, name, json_null());
	}
}

int call_check_owner(const struct call *call, const char *owner, struct err *err)
{
	if (name_check("owner", owner, err) < 0)
		return -1;
	if (yard_may_see(call->yard, owner))
		return 0;
	return err_set(err, ERR_FORBIDDEN, "'owner' needs a token with the scope admin");
}

const char *call_who(const struct call *call)
{
	return call->principal->asker.who;
}

bool call_may(const struct call *call, unsigned scopes)
{
	return call->principal->scopes & scopes;
}

/* Another front door has let the principal in. It may wait for hours between two requests, so its
 * credential is looked up each time. */
static int check_inner(struct api *api, struct http_request *request, const struct route *route,
	struct principal *ret, struct err *err)
{
	if (auth_again(api->auth, http_request_inner_who(request), ret, err) < 0)
		return -1;
	if (route && route->scope && principal_check_scope(ret, route->scope, err) < 0)
		return -1;
	if (principal_is_admin(ret))
		http_request_filter_json(request, NULL);
	return 0;
}

int auth_check(struct api *api, struct http_request *request, const struct route *route,
	struct principal *ret, struct err *err)
{
	const char *host = http_request_header(request, "Host");

	*ret = (struct principal){ .kind = PRINCIPAL_NOBODY };
	if (http_request_transport(request) == HTTP_TRANSPORT_UNIX) {
		auth_by_socket(api->auth, http_request_peer_uid(request), ret);
		return 0;
	}
	http_request_filter_json(request, hide_env);
	if (http_request_transport(request) == HTTP_TRANSPORT_INNER)
		return check_inner(api, request, route, ret, err);
	/* With TLS, a page whose name was made to point here has no certificate for that name. */
	if ((http_request_transport(request) == HTTP_TRANSPORT_TCP &&
		    auth_check_host(host, yard_get_conf(api->yard)->address, api->port, err) < 0) ||
		auth_check_origin(http_request_header(request, "Origin"), host, err) < 0)
		return -1;
	if (!route || !route->scope)
		return 0;
	if (check_token(api, request, ret, err) < 0 ||
		principal_check_scope(ret, route->scope, err) < 0)
		return -1;
	if (principal_is_admin(ret))
		http_request_filter_json(request, NULL);
	return 0;
}
