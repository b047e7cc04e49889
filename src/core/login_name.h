/* login_name.h - what the user name of an SSH login means
 *
 *   ada          a shell or a program in box ada        ada+root   as another user of the box
 *   box          the control plane: the words of the command line
 *   new          a new box, and a shell or a program in it
 *   fork+ada     a fork of ada, and a shell or a program in it
 *   try+ada      a program in ada, undone if it fails
 *
 * Strict: a name that is none of these is refused, never corrected or guessed. Pure. */
#pragma once
#include "base/err.h"
#include "base/text.h"
#include <stdbool.h>

enum login_kind { LOGIN_BOX, LOGIN_CONTROL, LOGIN_NEW, LOGIN_FORK, LOGIN_TRY };
enum { LOGIN_USER_MAX = 32 };

struct login_name {
	enum login_kind kind;
	char box[NAME_MAX_LEN + 1];    /* name or id; "" for LOGIN_CONTROL and LOGIN_NEW */
	char user[LOGIN_USER_MAX + 1]; /* a user of the box; "": the box's own */
};

/* text has len bytes from a client: any bytes. ERR_INVALID says what is allowed, in printable
 * characters. */
int login_name_parse(const char *text, size_t len, struct login_name *ret, struct err *err);
/* Whether a box of this name could not be reached by SSH: no box is made with one. */
bool login_name_is_reserved(const char *name);
