/* port_login.c - codes that log a browser in to a port of a box, once
 *
 * A code is made for a caller with access, for one host name and one box; it is valid for five
 * minutes and one use. Codes are kept in memory only and end with the daemon. A code shown to
 * another host than its own has leaked, and is used up by that. */
#include "base/clock.h"
#include "base/text.h"
#include "core/core_internal.h"
#include "core/boxnet/network_internal.h"
#include "core/boxnet/port_internal.h"
#include <stdio.h>

enum { LOGINS_MAX = 16 }; /* per box; the oldest is dropped for a new one */

struct port_login {
	struct port_login *next; /* older ones */
	char code[PORT_LOGIN_CODE_LEN + 1];
	char token[PORT_LOGIN_TOKEN_MAX];
	char *host;
	int64_t until_us;
};

static void login_free(struct port_login *login)
{
	if (!login)
		return;
	login_free(login->next);
	free(login->host);
	free(login);
}

void port_logins_drop(struct box *box)
{
	if (box->net)
		login_free(steal_ptr(&box->net->logins));
}

/* Also drops expired ones, which are the last. */
static void keep_newest(struct box *box, unsigned count)
{
	struct port_login **slot = &box->net->logins;
	int64_t now = clock_mono_us();

	for (; *slot && count && (*slot)->until_us > now; count--)
		slot = &(*slot)->next;
	login_free(steal_ptr(slot));
}

int box_login_new(struct box *box, const char *host, const char *token,
	char ret_code[PORT_LOGIN_CODE_LEN + 1], struct err *err)
{
	uint8_t bytes[PORT_LOGIN_CODE_LEN / 2];
	struct port_login *login;

	if (!box->net || box_is_gone(box))
		return err_set(err, ERR_STATE, "box '%s' is being removed", box->row.name);
	keep_newest(box, LOGINS_MAX - 1);
	login = xnew(struct port_login);
	random_bytes(bytes, sizeof bytes);
	for (size_t i = 0; i < sizeof bytes; i++)
		snprintf(login->code + 2 * i, 3, "%02x", bytes[i]);
	snprintf(login->token, sizeof login->token, "%s", token);
	login->host = xstrdup(host);
	login->until_us = clock_mono_us() + PORT_LOGIN_SECONDS * 1000000LL;
	login->next = box->net->logins;
	box->net->logins = login;
	memcpy(ret_code, login->code, sizeof login->code);
	return 0;
}

/* Compares in constant time. */
static bool is_code(const struct port_login *login, const char *code)
{
	unsigned differ = 0;

	if (strlen(code) != PORT_LOGIN_CODE_LEN)
		return false;
	for (size_t i = 0; i < PORT_LOGIN_CODE_LEN; i++)
		differ |= (unsigned)(login->code[i] ^ code[i]);
	return !differ;
}

bool box_login_take(
	struct box *box, const char *host, const char *code, char ret_token[PORT_LOGIN_TOKEN_MAX])
{
	struct port_login **slot, *login;
	bool good;

	if (!box->net)
		return false;
	keep_newest(box, LOGINS_MAX);
	slot = &box->net->logins;
	while (*slot && !is_code(*slot, code))
		slot = &(*slot)->next;
	login = *slot;
	if (!login)
		return false;
	*slot = steal_ptr(&login->next);
	good = !strcmp(login->host, host);
	memcpy(ret_token, login->token, sizeof login->token);
	login_free(login);
	return good;
}
