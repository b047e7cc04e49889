/* auth.c - who may come in
 *
 * The unix door is guarded by the socket's owner and mode: whoever can connect may do everything.
 * The TCP door is open to every program and every web page on this machine, so there
 *   - Host must be one of our own loopback names with our port: a page whose name was made to point
 *     here (DNS rebinding) sends its own name;
 *   - Origin, which browsers send, must be the same place: no other site's page may call us;
 *   - a bearer token must carry the scope of the route.
 * Wrong tokens are answered 429 when there are many of them; a right one is let in at any time. */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "conf/conf.h"
#include <stdio.h>
#include <strings.h>

enum { STRIKES_MAX = 20, STRIKES_PER_SECOND = 2 };

static bool host_is(const char *host, const char *name, uint16_t port)
{
	char text[128];

	snprintf(text, sizeof text, strchr(name, ':') ? "[%s]:%u" : "%s:%u", name, port);
	if (!strcasecmp(host, text))
		return true;
	/* Clients leave the port out when it is the one of the scheme. */
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

/* A bucket that fills with each wrong token and runs out with time. */
static bool too_many_strikes(struct api *api)
{
	int64_t now = clock_mono_us();

	api->strikes -= (double)(now - api->strikes_us) / 1e6 * STRIKES_PER_SECOND;
	if (api->strikes < 0)
		api->strikes = 0;
	api->strikes_us = now;
	if (api->strikes >= STRIKES_MAX)
		return true;
	api->strikes++;
	return false;
}

static int refuse_token(struct api *api, struct http_request *request, struct err *err)
{
	if (too_many_strikes(api)) {
		err_set(err, ERR_LIMIT, "too many requests with wrong tokens");
		return err_hint(err, "wait a few seconds");
	}
	http_reply_header(request, "WWW-Authenticate", "Bearer");
	log_debug("request with a wrong token",
		kv_int("request", (int64_t)http_request_id(request)), kv_err(err));
	return err_hint(
		err, "'box token create' makes one; send it as Authorization: Bearer TOKEN");
}

static int check_token(struct api *api, struct http_request *request, unsigned wanted,
	unsigned *ret, struct err *err)
{
	const char *header = http_request_header(request, "Authorization");
	unsigned scopes = 0;

	if (!header) {
		http_reply_header(request, "WWW-Authenticate", "Bearer");
		err_set(err, ERR_UNAUTHORIZED, "this door needs a token");
		return err_hint(err,
			"'box token create' makes one; send it as Authorization: Bearer TOKEN");
	}
	if (strncasecmp(header, "Bearer ", 7)) {
		err_set(err, ERR_UNAUTHORIZED, "Authorization must be a bearer token");
		return refuse_token(api, request, err);
	}
	header += 7;
	header += strspn(header, " ");
	if (store_token_check(yard_get_store(api->yard), header, &scopes, err) < 0)
		return err->kind == ERR_UNAUTHORIZED ? refuse_token(api, request, err) : -1;
	/* Whoever may make tokens may do everything. */
	if (!(scopes & (wanted | SCOPE_ADMIN))) {
		err_set(err, ERR_FORBIDDEN, "the token's scopes do not allow this");
		return err_hint(err, "it needs the scope %s", scopes_text(wanted));
	}
	*ret = scopes & SCOPE_ADMIN ? SCOPE_ALL : scopes;
	return 0;
}

const char *call_who(struct call *call, char *out)
{
	const char *header = http_request_header(call->request, "Authorization");
	const char *name;

	if (http_request_door(call->request) == HTTP_DOOR_UNIX) {
		snprintf(out, CALL_WHO_SIZE, "uid %u by the socket",
			(unsigned)http_request_peer_uid(call->request));
		return out;
	}
	header = header && !strncasecmp(header, "Bearer ", 7) ? header + 7 : "";
	name = store_token_name(yard_get_store(call->yard), header + strspn(header, " "));
	snprintf(out, CALL_WHO_SIZE, "token %s", name ? name : "");
	return out;
}

/* Variables hold passwords. Whoever may not make tokens sees their names alone. */
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

bool call_may(const struct call *call, unsigned scopes)
{
	return http_request_get_rights(call->request) & scopes;
}

int auth_check(
	struct api *api, struct http_request *request, const struct route *route, struct err *err)
{
	const char *host = http_request_header(request, "Host");
	unsigned scopes = 0;

	if (http_request_door(request) == HTTP_DOOR_UNIX) {
		http_request_set_rights(request, SCOPE_ALL);
		return 0;
	}
	http_request_filter_json(request, hide_env);
	if (auth_check_host(host, yard_get_conf(api->yard)->address, api->port, err) < 0 ||
		auth_check_origin(http_request_header(request, "Origin"), host, err) < 0)
		return -1;
	if (!route || !route->scope)
		return 0;
	if (check_token(api, request, route->scope, &scopes, err) < 0)
		return -1;
	http_request_set_rights(request, scopes);
	if (scopes & SCOPE_ADMIN)
		http_request_filter_json(request, NULL);
	return 0;
}
