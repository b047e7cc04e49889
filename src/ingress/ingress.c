/* ingress.c - see ingress.h: opening and closing; a request finds its box and port
 *
 *   Host -> box and port -> our own paths -> private or public -> does the box run -> exchange
 *
 * Only a client that may access the box is told whether it runs. */
#include "ingress/ingress.h"
#include "base/log.h"
#include "base/text.h"
#include "http/tls.h"
#include "ingress/ingress_internal.h"
#include "loop/loop.h"
#include <stdio.h>

static const struct ingress_limits default_limits = {
	.connect = 10000, .idle = 5000, .tick = 1000
};

/* ---- finding the box ------------------------------------------------------------------------ */

/* A box with exactly this name comes first; only then are leading digits a port. (Names of boxes
 * begin with a letter, so today both never match.) */
static bool find_box(struct ingress *ingress, struct aim *aim)
{
	const char *name;

	if (!*aim->host.label)
		return false;
	if (ingress->ops.find(aim->host.label, &aim->box, ingress->arg)) {
		aim->port = aim->box.default_port;
		return true;
	}
	return host_split_port(aim->host.label, &name, &aim->port) &&
	       ingress->ops.find(name, &aim->box, ingress->arg);
}

static void refuse_unknown(struct http_request *request, const struct aim *aim)
{
	const char *name = aim->host.label;
	char text[160];
	uint16_t port;

	if (*name)
		host_split_port(name, &name, &port);
	if (*name)
		snprintf(text, sizeof text, "there is no box '%s'", name);
	else
		snprintf(text, sizeof text, "this name leads to no box");
	page_reply(request, &(struct page){ .status = 404,
				    .kind = ERR_NOT_FOUND,
				    .title = "No such box",
				    .text = text,
				    .hint = "box ls" });
}

static void refuse_state(struct http_request *request, const struct ingress_box *box)
{
	static const struct {
		const char *title, *text, *verb;
	} said[] = {
		[INGRESS_BOX_STOPPED] = { "The box is stopped", "box '%s' is stopped", "start" },
		[INGRESS_BOX_SUSPENDED] = { "The box is suspended", "box '%s' is suspended",
			"resume" },
		[INGRESS_BOX_BUSY] = { "The box is not ready", "box '%s' is starting or stopping",
			NULL },
	};
	char text[128], hint[96] = "";

	snprintf(text, sizeof text, said[box->state].text, box->name);
	if (said[box->state].verb)
		snprintf(hint, sizeof hint, "box %s %s", said[box->state].verb, box->name);
	http_reply_header(request, "Retry-After", "5");
	page_reply(request, &(struct page){ .status = 503,
				    .kind = ERR_STATE,
				    .title = said[box->state].title,
				    .text = text,
				    .hint = hint });
}

/* Accepts the origin form, or the asterisk of OPTIONS; printable ASCII only. */
static bool is_good_target(const struct http_head *head)
{
	const char *target = head->target;

	if (*target != '/' && (strcmp(target, "*") || strcmp(head->method, "OPTIONS")))
		return false;
	for (; *target; target++)
		if ((unsigned char)*target <= ' ' || (unsigned char)*target >= 0x7f)
			return false;
	return true;
}

static void take(struct ingress *ingress, struct http_request *request, struct aim *aim)
{
	if (!is_good_target(http_request_head(request)))
		return page_reply(request, &(struct page){ .status = 400,
						   .kind = ERR_INVALID,
						   .title = "Malformed request",
						   .text = "the request's target is malformed",
						   .hint = "" });
	if (!find_box(ingress, aim))
		return refuse_unknown(request, aim);
	if (login_is_own_path(request))
		return login_answer(ingress, request, aim);
	if (!ingress->ops.is_public(aim->box.id, aim->port, ingress->arg) &&
		!login_check(ingress, request, aim))
		return;
	if (aim->box.state != INGRESS_BOX_RUNS)
		return refuse_state(request, &aim->box);
	exchange_start(ingress, request, aim);
}

static bool is_box_host(const struct http_request *request, void *arg)
{
	const struct ingress *ingress = arg;
	struct host host;

	return http_request_transport(request) != HTTP_TRANSPORT_UNIX &&
	       http_request_transport(request) != HTTP_TRANSPORT_INNER &&
	       host_parse(http_request_header(request, "Host"), ingress->domain, &host);
}

static bool is_any(const struct http_request *request, void *arg)
{
	(void)request;
	(void)arg;
	return true;
}

static void handle(struct http_request *request, void *arg)
{
	struct ingress *ingress = arg;
	struct aim aim = { 0 };

	host_parse(http_request_header(request, "Host"), ingress->domain, &aim.host);
	take(ingress, request, &aim);
}

void ingress_attach(struct ingress *ingress, struct http_server *server)
{
	static const struct http_front boxes = { .wants = is_box_host, .handle = handle };

	http_server_add_front(server, &boxes, ingress);
}

/* ---- TLS ------------------------------------------------------------------------------------ */

void ingress_reload(struct ingress *ingress)
{
	http_tls_refresh(ingress->tls);
}

/* Never called: the front takes every request of this listener. */
static void handle_nothing(struct http_request *request, void *arg)
{
	http_reply(request, 404, NULL, NULL, 0);
}

static int open_tls(struct ingress *ingress, const struct ingress_spec *spec, struct err *err)
{
	/* This listener serves nothing else. */
	static const struct http_front all = { .wants = is_any, .handle = handle };

	if (http_tls_new(spec->certificate, spec->key, &ingress->tls, err) < 0)
		return -1;
	ingress->server = http_server_new(spec->loop, handle_nothing, ingress);
	http_server_add_front(ingress->server, &all, ingress);
	if (http_server_listen_tls(ingress->server, spec->tls_address, spec->tls_port, ingress->tls,
		    &ingress->tls_port, err) < 0)
		return -1;
	http_tls_watch(ingress->tls, spec->loop);
	return 0;
}

uint16_t ingress_get_tls_port(const struct ingress *ingress)
{
	return ingress->tls_port;
}

/* ---- opening and closing -------------------------------------------------------------------- */

int ingress_new(const struct ingress_spec *spec, struct ingress **ret, struct err *err)
{
	struct ingress *ingress = xnew(struct ingress);

	ingress->loop = spec->loop;
	ingress->ops = *spec->ops;
	ingress->arg = spec->arg;
	ingress->free_arg = spec->free_arg;
	ingress->domain = xstrdup(spec->domain);
	ingress->limits = default_limits;
	ingress->scratch = xcalloc(1, INGRESS_READ_SIZE);
	backends_open(ingress);
	if (login_open(ingress, spec->home, err) < 0 ||
		(spec->tls_address && open_tls(ingress, spec, err) < 0)) {
		ingress_free(ingress);
		return err_wrap(err, "the way into boxes");
	}
	*ret = ingress;
	return 0;
}

void ingress_stop(struct ingress *ingress, uint64_t grace_ms, void (*done)(void *arg), void *arg)
{
	if (ingress->server)
		http_server_stop(ingress->server, grace_ms, done, arg);
	else
		done(arg);
}

void ingress_free(struct ingress *ingress)
{
	if (!ingress)
		return;
	http_server_free(ingress->server);
	http_tls_free(ingress->tls);
	backends_close(ingress);
	if (ingress->free_arg)
		ingress->free_arg(ingress->arg);
	free(ingress->scratch);
	free(ingress->domain);
	free(ingress);
}
