/* ports.c - connections into a box: URLs and ports of the host */
#include "api/api_internal.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/boxnet/network.h"
#include <stdio.h>
#include <strings.h>

static json_t *url_value(struct call *call, struct box *box, uint16_t port)
{
	_cleanup_free_ char *url = box_port_url(box, port, call->api->port);

	return url ? json_string(url) : json_null();
}

static json_t *ports_json(struct call *call, struct box *box)
{
	json_t *ports = box_ports_json(box), *entry;
	size_t i;

	json_array_foreach (ports, i, entry)
		json_object_set_new(entry, "url",
			url_value(call, box,
				(uint16_t)json_integer_value(json_object_get(entry, "port"))));
	return json_pack("{s:o,s:i}", "ports", ports, "default", box_port_default(box));
}

static int read_port(const char *text, uint16_t *ret, struct err *err)
{
	uint64_t port;

	if (parse_u64("port", text, 1, UINT16_MAX, &port, err) < 0)
		return -1;
	*ret = (uint16_t)port;
	return 0;
}

void api_ports_list(struct call *call)
{
	struct box *box = call_box(call);

	if (box)
		call_json(call, 200, ports_json(call, box));
}

void api_port_set(struct call *call)
{
	struct box *box = call_box(call);
	const char *access_name = NULL;
	json_int_t host_port = -1;
	bool is_default = false;
	const struct json_key keys[] = {
		{ "access", JSON_WANT_STRING, &access_name, false },
		{ "host_port", JSON_WANT_INT, &host_port, false },
		{ "default", JSON_WANT_BOOL, &is_default, false },
	};
	enum port_access access = PORT_PRIVATE;
	struct err err = ERR_INIT;
	uint16_t port;

	if (!box)
		return;
	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0 ||
		read_port(call->params[1], &port, &err) < 0 ||
		(access_name && port_access_from_name(access_name, &access, &err) < 0))
		return call_error(call, &err);
	if (host_port > UINT16_MAX) {
		err_set(&err, ERR_INVALID, "'host_port' is larger than 65535");
		return call_error(call, &err);
	}
	if (box_port_set(box, port, access_name ? &access : NULL, (int)host_port, &err) < 0 ||
		(is_default && box_port_set_default(box, port, &err) < 0))
		return call_error(call, &err);
	call_json(call, 200, ports_json(call, box));
}

void api_port_remove(struct call *call)
{
	struct box *box = call_box(call);
	struct err err = ERR_INIT;
	uint16_t port;

	if (!box)
		return;
	if (read_port(call->params[1], &port, &err) < 0 || box_port_remove(box, port, &err) < 0)
		return call_error(call, &err);
	call_none(call);
}

void api_box_url(struct call *call)
{
	struct box *box = call_box(call);
	const char *text = call_query(call, "port");
	struct err err = ERR_INIT;
	uint16_t asked = 0, port;

	if (!box)
		return;
	if (text && read_port(text, &asked, &err) < 0)
		return call_error(call, &err);
	port = asked ? asked : box_port_default(box);
	call_json(call, 200,
		json_pack("{s:s,s:i,s:s,s:o}", "box", box_get_name(box), "port", port, "access",
			box_port_access(box, port) == PORT_PUBLIC ? "public" : "private", "url",
			url_value(call, box, asked)));
}

/* ---- links that log in ---------------------------------------------------------------------- */

/* "8080-web.localhost" of "http://8080-web.localhost:30001/"; yours to free. */
static char *host_of(const char *url)
{
	const char *host = strstr(url, "://") + 3;

	return xasprintf("%.*s", (int)strcspn(host, ":/"), host);
}

void api_box_login(struct call *call)
{
	struct box *box = call_box(call);
	json_int_t port = 0;
	const struct json_key keys[] = { { "port", JSON_WANT_INT, &port, false } };
	_cleanup_free_ char *url = NULL, *host = NULL, *link = NULL;
	char code[PORT_LOGIN_CODE_LEN + 1], until[CLOCK_RFC3339_MAX];
	struct err err = ERR_INIT;

	if (!box)
		return;
	if (json_read(call->body, keys, ARRAY_LEN(keys), &err) < 0)
		return call_error(call, &err);
	if (port < 0 || port > UINT16_MAX) {
		err_set(&err, ERR_INVALID, "'port' is between 1 and 65535");
		return call_error(call, &err);
	}
	url = box_port_url(box, (uint16_t)port, call->api->port);
	port = port ? port : box_port_default(box);
	if (!url) {
		err_set(&err, ERR_UNSUPPORTED, "the daemon does not listen for box URLs");
		err_hint(&err, "set listen or url_listen in its configuration");
		return call_error(call, &err);
	}
	host = host_of(url);
	/* The login ends with the credential that asked for it. */
	if (box_login_new(box, host, call->principal->id, code, &err) < 0)
		return call_error(call, &err);
	link = xasprintf("%s.boxyard/login?code=%s", url, code);
	clock_rfc3339(clock_wall_us() + PORT_LOGIN_SECONDS * 1000000LL, until);
	http_reply_header(call->request, "Cache-Control", "no-store");
	call_json(call, 201,
		json_pack("{s:s,s:i,s:s,s:s}", "box", box_get_name(box), "port", (int)port, "url",
			link, "expires_at", until));
}
