/* boxes.c - implements ingress_ops with the boxes and tokens of a yard */
#include "auth/auth.h"
#include "conf/conf.h"
#include "core/box.h"
#include "core/boxnet/network.h"
#include "core/yard.h"
#include "ingress/ingress_internal.h"
#include <assert.h>
#include <stdio.h>

struct boxes {
	struct yard *yard;
	struct auth *auth;
	struct ingress *ingress;
	struct woken_watch *watch;
};

static bool find(const char *name, struct ingress_box *ret, void *arg)
{
	static const enum ingress_box_state states[BOX_STATE_COUNT] = {
		[BOX_CREATING] = INGRESS_BOX_BUSY,
		[BOX_STARTING] = INGRESS_BOX_BUSY,
		[BOX_RUNNING] = INGRESS_BOX_RUNS,
		[BOX_SUSPENDED] = INGRESS_BOX_SUSPENDED,
		[BOX_HIBERNATING] = INGRESS_BOX_BUSY,
		[BOX_HIBERNATED] = INGRESS_BOX_SUSPENDED,
		[BOX_ROLLING_BACK] = INGRESS_BOX_BUSY,
		[BOX_STOPPING] = INGRESS_BOX_BUSY,
		[BOX_STOPPED] = INGRESS_BOX_STOPPED,
		[BOX_REMOVING] = INGRESS_BOX_BUSY,
	};
	struct boxes *boxes = arg;
	struct box *box = box_find(boxes->yard, name, NULL);

	if (!box)
		return false;
	snprintf(ret->id, sizeof ret->id, "%s", box_get_id(box));
	snprintf(ret->name, sizeof ret->name, "%s", box_get_name(box));
	ret->state = box_is_there(box) ? INGRESS_BOX_RUNS : states[box_get_state(box)];
	ret->default_port = box_port_default(box);
	return true;
}

static bool is_public(const char *id, uint16_t port, void *arg)
{
	struct boxes *boxes = arg;
	struct box *box = box_find(boxes->yard, id, NULL);

	return box && box_port_access(box, port) == PORT_PUBLIC;
}

static int connect_to(
	const char *id, uint16_t port, bool second, int *ret_fd, struct err *err, void *arg)
{
	struct boxes *boxes = arg;
	struct box *box = box_find(boxes->yard, id, err);

	return box ? box_port_connect(box, port, second, ret_fd, err) : -1;
}

static void used(const char *id, void *arg)
{
	struct boxes *boxes = arg;
	struct box *box = box_find(boxes->yard, id, NULL);

	if (box)
		box_is_used(box);
}

static void on_woken(struct box *box, const struct err *err, void *arg)
{
	struct boxes *boxes = arg;

	ingress_box_woken(boxes->ingress, box_get_id(box), err);
}

/* ---- access --------------------------------------------------------------------------------- */

static int check_principal(
	struct boxes *boxes, const struct principal *principal, const char *id, struct err *err)
{
	const struct asker *before;
	struct box *box;

	if (principal_check_scope(principal, SCOPE_EXEC | SCOPE_ADMIN, err) < 0)
		return -1;
	before = auth_enter(boxes->auth, principal);
	box = box_find(boxes->yard, id, NULL);
	auth_leave(boxes->auth, before);
	return box ? 0 : err_set(err, ERR_FORBIDDEN, "the token does not open this box");
}

static int check_token(const char *box, const char *peer, const char *secret, char *ret_id,
	struct err *err, void *arg)
{
	struct boxes *boxes = arg;
	struct principal principal;

	static_assert((int)PRINCIPAL_ID_SIZE == (int)INGRESS_TOKEN_ID_MAX, "one id, one size");
	if (auth_by_token(boxes->auth, peer, secret, &principal, err) < 0 ||
		check_principal(boxes, &principal, box, err) < 0)
		return -1;
	snprintf(ret_id, INGRESS_TOKEN_ID_MAX, "%s", principal.id);
	return 0;
}

/* Whether the token still exists; a login by the socket is valid until it expires. */
static bool has_token(const char *box, const char *id, void *arg)
{
	struct boxes *boxes = arg;
	struct principal principal;

	return auth_by_id(boxes->auth, id, &principal, NULL) == 0 &&
	       check_principal(boxes, &principal, box, NULL) == 0;
}

static bool strike(const char *peer, void *arg)
{
	struct boxes *boxes = arg;

	return auth_strike(boxes->auth, peer, NULL) < 0;
}

static bool take_code(const char *id, const char *host, const char *code, char *ret_id, void *arg)
{
	struct boxes *boxes = arg;
	struct box *box = box_find(boxes->yard, id, NULL);

	static_assert((int)PORT_LOGIN_TOKEN_MAX == (int)INGRESS_TOKEN_ID_MAX, "one id, one size");
	if (!box || !box_login_take(box, host, code, ret_id))
		return false;
	return has_token(id, ret_id, arg);
}

static const struct ingress_ops ops = {
	.find = find,
	.is_public = is_public,
	.connect = connect_to,
	.used = used,
	.check_token = check_token,
	.has_token = has_token,
	.strike = strike,
	.take_code = take_code,
};

static void boxes_free(void *arg)
{
	struct boxes *boxes = arg;

	woken_watch_free(boxes->watch);
	free(boxes);
}

int ingress_open(struct yard *yard, struct auth *auth, struct ingress **ret, struct err *err)
{
	const struct conf *conf = yard_get_conf(yard);
	struct boxes *boxes = xnew(struct boxes);
	struct ingress_spec spec = { .loop = yard_get_loop(yard),
		.home = conf->home,
		.domain = conf->url_domain,
		.tls_address = conf->url_listen,
		.tls_port = conf->url_port,
		.certificate = conf->url_certificate,
		.key = conf->url_key,
		.ops = &ops,
		.arg = boxes,
		.free_arg = boxes_free };

	boxes->yard = yard;
	boxes->auth = auth;
	if (ingress_new(&spec, ret, err) < 0)
		return -1;
	boxes->ingress = *ret;
	boxes->watch = woken_watch_new(yard, on_woken, boxes);
	return 0;
}
