/* proxy.h - SSH by the socket of this machine: who comes, and to which box
 *
 * RUN/ssh.sock (conf.ssh_socket) is a stream socket with the owner and mode of box.sock: whoever
 * can connect may do everything, and needs no key (the method "none"). `ssh ada.box` comes by it,
 * through the ProxyCommand that `box ssh-config` writes: `box ssh-proxy ada.box` connects and
 * copies bytes.
 *
 * The client cannot be made to log in as "ada" (User %n needs OpenSSH 10), so the proxy says it:
 * before the first byte of SSH it sends one line,
 *
 *     BOX <name>\n
 *
 * where <name> is 1 to PROXY_NAME_MAX printable characters without spaces: what core/login_name.h
 * reads, like "ada", "ada+root" or "box". Everything behind its end is SSH. A client that does not
 * send the line begins with "SSH-", and means by its user name what it means on the TCP port.
 *
 * The line is for this socket alone. On the TCP port the user name is all there is: it is signed
 * with the key, and a line before it could be changed on the way.
 *
 * With a line, the user name of the SSH login says which user of the box is meant (proxy_login). */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

enum { PROXY_NAME_MAX = 100, PROXY_LINE_MAX = PROXY_NAME_MAX + 5 };
/* The user that `box ssh-config` sets; a login by it means no certain user. */
#define PROXY_USER "box"
/* What hosts of the client's configuration end with. */
#define PROXY_SUFFIX ".box"

/* For the door: looks for the line at the start of what came in. Returns how many bytes it has,
 * with its end, and fills name; 0: more bytes are needed; -1 with ERR_PROTOCOL: it is malformed.
 * Bytes that begin otherwise ("SSH-…") are a line of no bytes: 0 is returned and *ret_none is
 * true. */
int proxy_read_line(const char *data, size_t len, char name[PROXY_NAME_MAX + 1], bool *ret_none,
	struct err *err);

/* For the door: the login name that is meant, for login_name_parse. name: of the line; user: of the
 * SSH login; local: name of the user at the other end of the socket ("" when it has none). With
 * PROXY_USER or local it is name itself; with any other user it is "name+user", a user of the box:
 * `ssh web@ada.box`. ERR_INVALID when name has a user already, or it is too long. */
int proxy_login(const char *name, const char *user, const char *local, char ret[PROXY_NAME_MAX + 1],
	struct err *err);

/* For the proxy: "ada.box" -> "BOX ada\n"; yours. ERR_INVALID for what is no name. */
int proxy_make_line(const char *host, char **ret, struct err *err);
