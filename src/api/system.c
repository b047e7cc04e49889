/* system.c - the daemon itself */
#include "api/api_internal.h"
#include "conf/conf.h"
#include "loop/loop.h"
#include <stdio.h>

void api_stats(struct call *call)
{
	call_json(call, 200, yard_stats_json(call->yard));
}

/* Core knows nothing of listeners; the address is added here. */
void api_info(struct call *call)
{
	const struct conf *conf = yard_get_conf(call->yard);
	json_t *info = yard_info_json(call->yard);
	char listen[128];

	snprintf(listen, sizeof listen,
		strchr(conf->address ? conf->address : "", ':') ? "[%s]:%u" : "%s:%u",
		conf->address ? conf->address : "", call->api->port);
	json_object_set_new(info, "listen", call->api->port ? json_string(listen) : json_null());
	json_object_set_new(info, "listen_tls", json_boolean(call->api->tls));
	json_object_set_new(
		info, "hibernate_on_shutdown", json_boolean(conf->hibernate_on_shutdown));
	json_object_set_new(
		info, "connections", json_integer(http_server_get_connections(call->api->server)));
	call_json(call, 200, info);
}

void api_doctor(struct call *call)
{
	call_json(call, 200, yard_doctor_json(call->yard));
}

void api_health(struct call *call)
{
	static const char ok[] = "{\"ok\":true}";

	http_reply(call->request, 200, "application/json", ok, sizeof ok - 1);
}

void api_openapi_json(struct call *call)
{
	call_json(call, 200, api_openapi());
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Answers all who wait for boxes to be hibernated, with failed or err. */
static void answer_askers(struct api *api, json_t *failed, const struct err *err)
{
	for (size_t i = 0; i < api->asker_count; i++) {
		struct http_request *request = later_end(api->askers[i]);

		if (request && err)
			http_reply_error(request, err);
		else if (request)
			http_reply_json(request, 202,
				json_pack("{s:b,s:O}", "ok", 1, "not_hibernated", failed));
	}
	api->asker_count = 0;
}

void api_hibernated(struct api *api, json_t *failed)
{
	answer_askers(api, failed, NULL);
}

void shutdown_askers_fail(struct api *api, const struct err *err)
{
	answer_askers(api, NULL, err);
}

static void shut_down(void *arg)
{
	struct api *api = arg;

	api->hibernate = api->hibernate && !api->purge;
	api->shutdown(api->purge, api->hibernate, api->shutdown_arg);
}

/* The shutdown begins after the answer, outside this call. Where boxes are hibernated first, the
 * answer lists those that were not. */
void api_shutdown(struct call *call)
{
	struct api *api = call->api;
	bool asked = json_is_true(json_object_get(call->body, "hibernate"));
	bool purge = false, hibernate = yard_get_conf(call->yard)->hibernate_on_shutdown;
	const struct json_key keys[] = {
		{ "purge", JSON_WANT_BOOL, &purge, false },
		{ "hibernate", JSON_WANT_BOOL, &hibernate, false },
	};
	struct err err = ERR_INIT;

	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) == 0 && purge && asked)
		err_set(&err, ERR_INVALID, "'purge' and 'hibernate' exclude each other");
	if (err.kind)
		return call_error(call, &err);
	api->purge = api->purge || purge;
	if (!api->ending)
		api->hibernate = hibernate;
	if (api->hibernate && !api->purge) {
		xgrow(api->askers, api->asker_count + 1);
		api->askers[api->asker_count++] = later_new(call);
	} else {
		call_json(call, 202, json_pack("{s:b,s:[]}", "ok", 1, "not_hibernated"));
	}
	if (api->ending)
		return;
	api->ending = true;
	loop_defer(yard_get_loop(call->yard), shut_down, api);
}
