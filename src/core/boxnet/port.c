/* port.c - the ports of a box: their settings, and connections to them
 *
 * The row of a box holds a sorted array, one object per port:
 * {"port","access","host_port","default"}. A port that is not in it is private and has no port on
 * the host. port_listen.c has the listeners on the host. */
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/port_internal.h"
#include "image/image.h"
#include "net/doors.h"
#include <stdio.h>

enum { PORTS_MAX = 64, HOST_PORT_MIN = 1024, PORT_COMMON = 8080 };

static const char *const access_names[] = { [PORT_PRIVATE] = "private", [PORT_PUBLIC] = "public" };

int port_access_from_name(const char *name, enum port_access *ret, struct err *err)
{
	for (size_t i = 0; i < ARRAY_LEN(access_names); i++)
		if (!strcmp(access_names[i], name)) {
			*ret = (enum port_access)i;
			return 0;
		}
	return err_set(err, ERR_INVALID, "access '%.40s' must be private or public", name);
}

static uint16_t port_of(const json_t *entry)
{
	return (uint16_t)json_integer_value(json_object_get(entry, "port"));
}

static json_t *find(const struct box *box, uint16_t port)
{
	json_t *entry;
	size_t i;

	if (!box->net)
		return NULL;
	json_array_foreach (box->net->ports, i, entry)
		if (port_of(entry) == port)
			return entry;
	return NULL;
}

/* ---- telling -------------------------------------------------------------------------------- */

json_t *box_ports_json(struct box *box)
{
	json_t *list = json_array(), *entry;
	size_t i;

	json_array_foreach (box->net ? box->net->ports : NULL, i, entry) {
		json_t *copy = json_copy(entry);
		const char *problem = port_listener_problem(box, port_of(entry));

		if (problem)
			json_object_set_new(copy, "problem", json_string(problem));
		json_array_append_new(list, copy);
	}
	return list;
}

enum port_access box_port_access(const struct box *box, uint16_t port)
{
	return !strcmp(json_get_text(find(box, port), "access"), access_names[PORT_PUBLIC])
		       ? PORT_PUBLIC
		       : PORT_PRIVATE;
}

/* The first exposed TCP port of the image; 0: none. */
static uint16_t image_port(const struct box *box)
{
	const struct image *image = box_image(box);
	json_t *text;
	size_t i;

	json_array_foreach (image ? json_object_get(image->config, "ports") : NULL, i, text) {
		unsigned port = 0;
		char protocol[8] = "tcp";

		if (sscanf(json_string_value(text), "%5u/%7s", &port, protocol) >= 1 && port &&
			port <= UINT16_MAX && !strcmp(protocol, "tcp"))
			return (uint16_t)port;
	}
	return 0;
}

uint16_t box_port_default(const struct box *box)
{
	json_t *ports = box->net ? box->net->ports : NULL, *entry;
	uint16_t port;
	size_t i;

	json_array_foreach (ports, i, entry)
		if (json_is_true(json_object_get(entry, "default")))
			return port_of(entry);
	if (json_array_size(ports) == 1)
		return port_of(json_array_get(ports, 0));
	port = image_port(box);
	return port ? port : PORT_COMMON;
}

char *box_port_url(const struct box *box, uint16_t port, uint16_t door)
{
	const struct conf *conf = box->yard->conf;
	bool apart = conf->url_listen && *conf->url_domain;
	bool tls = apart || *conf->listen_certificate;
	uint16_t outer = apart ? conf->url_port : door;
	char label[96], suffix[16] = "";

	if (!outer)
		return NULL;
	if (!port)
		snprintf(label, sizeof label, "%s", box->row.name);
	else
		snprintf(label, sizeof label, "%u-%s", port, box->row.name);
	if (strlen(label) > 63) /* too long for a DNS label; the box's id works too */
		snprintf(label, sizeof label, "%u-%s", port, box->row.id);
	if (outer != (tls ? 443 : 80))
		snprintf(suffix, sizeof suffix, ":%u", outer);
	return xasprintf("%s://%s.%s%s/", tls ? "https" : "http", label,
		*conf->url_domain ? conf->url_domain : "localhost", suffix);
}

/* ---- changing ------------------------------------------------------------------------------- */

/* Stores the array as the ports of the box; takes it. */
static int replace(struct box *box, json_t *ports, struct err *err)
{
	json_t *old = box->net->ports;

	box->net->ports = ports;
	if (network_store(box, STORE_SAFE, err) < 0) {
		box->net->ports = old;
		json_decref(ports);
		return err_wrap(err, "keep the ports of box '%s'", box->row.name);
	}
	json_decref(old);
	yard_event(box->yard, "box.ports", box, json_pack("{s:O}", "ports", ports));
	return 0;
}

/* The entry for port in a copy of the box's ports, added in order when missing. */
static json_t *edit(struct box *box, uint16_t port, json_t **ret_ports)
{
	json_t *ports = json_deep_copy(box->net->ports), *entry;
	size_t at;

	*ret_ports = ports;
	json_array_foreach (ports, at, entry) {
		if (port_of(entry) == port)
			return entry;
		if (port_of(entry) > port)
			break;
	}
	entry = json_pack("{s:i,s:s,s:n,s:b}", "port", port, "access", access_names[PORT_PRIVATE],
		"host_port", "default", 0);
	json_array_insert_new(ports, at, entry);
	return entry;
}

static int check(struct box *box, uint16_t port, struct err *err)
{
	if (!box->net || box_is_gone(box))
		return err_set(err, ERR_STATE, "box '%s' is being removed", box->row.name);
	if (!port)
		return err_set(err, ERR_INVALID, "a port is between 1 and 65535");
	if (!find(box, port) && json_array_size(box->net->ports) >= PORTS_MAX)
		return err_set(
			err, ERR_LIMIT, "box '%s' has %d ports already", box->row.name, PORTS_MAX);
	return 0;
}

int box_port_set(struct box *box, uint16_t port, const enum port_access *access, int host_port,
	struct err *err)
{
	struct port_listener *listener = NULL;
	json_t *ports, *entry;

	if (check(box, port, err) < 0)
		return -1;
	if (host_port > UINT16_MAX || (host_port > 0 && host_port < HOST_PORT_MIN))
		return err_set(err, ERR_INVALID, "the host's port must be between %d and 65535",
			HOST_PORT_MIN);
	/* The existing listener is kept, and with it its connections. */
	if (host_port >= 0 && port_listener_host_port(box, port) > 0 &&
		(!host_port || port_listener_host_port(box, port) == host_port))
		host_port = -1;
	if (host_port >= 0 && port_listener_new(box, port, (uint16_t)host_port, &listener, err) < 0)
		return -1;
	entry = edit(box, port, &ports);
	if (access)
		json_object_set_new(entry, "access", json_string(access_names[*access]));
	if (listener)
		json_object_set_new(
			entry, "host_port", json_integer(port_listener_get_host_port(listener)));
	if (replace(box, ports, err) < 0) {
		port_listener_free(listener);
		return -1;
	}
	if (listener)
		port_listener_adopt(box, listener);
	return 0;
}

int box_port_remove(struct box *box, uint16_t port, struct err *err)
{
	json_t *ports, *entry;
	size_t i;

	if (!find(box, port))
		return err_set(err, ERR_NOT_FOUND, "nothing is set for port %u of box '%s'", port,
			box->row.name);
	ports = json_deep_copy(box->net->ports);
	json_array_foreach (ports, i, entry)
		if (port_of(entry) == port)
			break;
	json_array_remove(ports, i);
	if (replace(box, ports, err) < 0)
		return -1;
	port_listener_drop(box, port);
	return 0;
}

int box_port_set_default(struct box *box, uint16_t port, struct err *err)
{
	json_t *ports, *entry;
	size_t i;

	if (check(box, port, err) < 0)
		return -1;
	edit(box, port, &ports);
	json_array_foreach (ports, i, entry)
		json_object_set_new(entry, "default", json_boolean(port_of(entry) == port));
	return replace(box, ports, err);
}

/* ---- connecting ----------------------------------------------------------------------------- */

int box_port_connect(struct box *box, uint16_t port, bool second, int *ret_fd, struct err *err)
{
	int later = box_touch(box, err);

	if (later < 0)
		return -1;
	*ret_fd = -1;
	if (later)
		return 0;
	if (!box->net || box->net->netns < 0 || !box->instance) {
		err_set(err, ERR_STATE, "box '%s' has no network", box->row.name);
		return err_hint(err, "box start %s", box->row.name);
	}
	if (!instance_can(box->instance, ENGINE_OWN_KERNEL))
		return doors_connect(box->net->netns, second ? DOORS_LOOPBACK_V6 : DOORS_LOOPBACK,
			port, ret_fd, err);
	return second ? port_dial(box, port, ret_fd, err)
		      : doors_connect(box->net->netns, DOORS_OUTSIDE, port, ret_fd, err);
}

/* ---- boxes come and go ---------------------------------------------------------------------- */

void ports_box_added(struct box *box)
{
	json_t *entry;
	size_t i;

	json_array_foreach (box->net ? box->net->ports : NULL, i, entry) {
		json_t *host_port = json_object_get(entry, "host_port");

		if (json_is_integer(host_port))
			port_listener_restore(
				box, port_of(entry), (uint16_t)json_integer_value(host_port));
	}
}

void ports_box_removed(struct box *box)
{
	port_listeners_drop(box);
	port_logins_drop(box);
	port_dials_free(box->net);
}
