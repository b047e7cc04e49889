/* given.h - connections that the daemon gives out itself
 *
 * A program that the daemon started without a network and without files, such as a command over
 * SSH, has one descriptor on which it asks for connections to the API. They are authenticated
 * already. The descriptor is a SOCK_SEQPACKET unix socket:
 *
 *   we       GIVEN_ASK                      one byte
 *   daemon   GIVEN_YES and a descriptor     a connected stream socket
 *            GIVEN_NO and a text            why there is none
 *
 * Processes that share the descriptor may ask at the same time: any answer is as good as
 * another. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

/* Its value is the number of the descriptor. */
#define GIVEN_VARIABLE "BOX_API_FD"

enum { GIVEN_ASK = '?', GIVEN_YES = '+', GIVEN_NO = '-', GIVEN_TEXT_MAX = 512 };

/* *ret (yours) is a target for client_new when the environment names such a descriptor, else NULL.
 * ERR_INVALID when the variable is set and the descriptor is none. */
int given_read(char **ret, struct err *err);
bool given_is(const char *target); /* whether given_read made it */
int given_fd(const char *target);  /* the descriptor it asks on; -1 for other targets */
int given_dial(const char *target, int *ret_fd, struct err *err);
