/* boxes.c - the boxes and tokens of a yard, as ingress_ops wants them */
#include "base/clock.h"
#include "base/json.h"
#include "conf/conf.h"
#include "core/box.h"
#include "core/network.h"
#include "core/yard.h"
#include "ingress/ingress_internal.h"
#include "store/store.h"
#include <assert.h>
#include <stdio.h>

enum { TOKENS_FRESH_US = 500 * 1000 };

struct boxes {
	struct yard *yard;
	struct ingress *ingress;
	json_t *tokens; /* as they were a moment ago; logins are checked against them */
	int64_t tokens_us;
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
	const char *id, uint16_t port, bool v6, int *ret_fd, struct err *err, void *arg)
{
	struct boxes *boxes = arg;
	struct box *box = box_find(boxes->yard, id, err);

	return box ? box_port_connect(box, port, v6, ret_fd, err) : -1;
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

/* ---- tokens --------------------------------------------------------------------------------- */

static json_t *tokens(struct boxes *boxes, bool fresh)
{
	int64_t now = clock_mono_us();

	if (!boxes->tokens || fresh || now - boxes->tokens_us > TOKENS_FRESH_US) {
		json_decref(boxes->tokens);
		boxes->tokens = store_token_list(yard_get_store(boxes->yard), NULL);
		boxes->tokens_us = now;
	}
	return boxes->tokens;
}

static const char *text_of(const json_t *token, const char *key)
{
	const char *text = json_string_value(json_object_get(token, key));

	return text ? text : "";
}

static int check_token(const char *secret, char *ret_id, struct err *err, void *arg)
{
	struct boxes *boxes = arg;
	struct store *store = yard_get_store(boxes->yard);
	const char *name;
	unsigned scopes;
	json_t *token;
	size_t i;

	if (store_token_check(store, secret, &scopes, err) < 0)
		return -1;
	if (!(scopes & (SCOPE_EXEC | SCOPE_ADMIN))) {
		err_set(err, ERR_FORBIDDEN, "the token's scopes do not allow this");
		return err_hint(err, "it needs the scope 'exec'");
	}
	name = store_token_name(store, secret);
	json_array_foreach (tokens(boxes, true), i, token)
		if (name && !strcmp(text_of(token, "name"), name)) {
			snprintf(ret_id, INGRESS_TOKEN_ID_MAX, "%s", text_of(token, "id"));
			return 0;
		}
	return err_set(err, ERR_UNAUTHORIZED, "unknown token");
}

static bool has_token(const char *id, void *arg)
{
	char now[CLOCK_RFC3339_MAX];
	json_t *token;
	size_t i;

	if (!strcmp(id, PORT_LOGIN_SOCKET))
		return true; /* until the login's own time is over */
	json_array_foreach (tokens(arg, false), i, token)
		if (!strcmp(text_of(token, "id"), id)) {
			const char *expires = text_of(token, "expires_at");

			/* Times of this form are in order as texts are. */
			return !*expires ||
			       strcmp(expires, clock_rfc3339(clock_wall_us(), now)) > 0;
		}
	return false;
}

static bool take_code(const char *id, const char *host, const char *code, char *ret_id, void *arg)
{
	struct boxes *boxes = arg;
	struct box *box = box_find(boxes->yard, id, NULL);

	static_assert((int)PORT_LOGIN_TOKEN_MAX == (int)INGRESS_TOKEN_ID_MAX, "one id, one size");
	if (!box || !box_login_take(box, host, code, ret_id))
		return false;
	tokens(boxes, true); /* it may be younger than what is remembered */
	return has_token(ret_id, arg);
}

static const struct ingress_ops ops = {
	.find = find,
	.is_public = is_public,
	.connect = connect_to,
	.used = used,
	.check_token = check_token,
	.has_token = has_token,
	.take_code = take_code,
};

static void boxes_free(void *arg)
{
	struct boxes *boxes = arg;

	yard_on_woken(boxes->yard, NULL, NULL);
	json_decref(boxes->tokens);
	free(boxes);
}

int ingress_open(struct yard *yard, struct ingress **ret, struct err *err)
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
	if (ingress_new(&spec, ret, err) < 0)
		return -1;
	boxes->ingress = *ret;
	yard_on_woken(yard, on_woken, boxes);
	return 0;
}
