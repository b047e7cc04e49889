/* ssh_config.h - how this machine's SSH client reaches the boxes of a daemon: as text
 *
 * Pure but for ssh_way_find, which asks the daemon. */
#pragma once
#include "cli/cli.h"

/* How the daemon is reached. */
enum ssh_way_kind {
	SSH_WAY_SOCKET, /* this machine's: its socket, through `box ssh-proxy` */
	SSH_WAY_HOP,	/* ssh://: `box ssh-proxy` on the other machine */
	SSH_WAY_TCP,	/* https://: the port of its SSH door, with a key */
};

struct ssh_way {
	enum ssh_way_kind kind;
	char *program; /* this program's path */
	char *socket;  /* SSH_WAY_SOCKET, SSH_WAY_HOP: ssh.sock there; NULL: the usual one */
	char *host;    /* SSH_WAY_HOP, SSH_WAY_TCP */
	char *user;    /* SSH_WAY_HOP: on the other machine; "" : as configured */
	unsigned port; /* 0: the usual one */
	char *alias;   /* the name of the daemon in the file of host keys */
	char *known;   /* lines of that file */
	char *known_path;
	json_t *boxes; /* SSH_WAY_TCP: [{"name"}], for Host blocks */
};

/* Asks the daemon for its host key. Released with ssh_way_done. */
int ssh_way_find(struct cli *cli, struct ssh_way *ret, struct err *err);
void ssh_way_done(struct ssh_way *way); /* accepts a zeroed one */
/* Writes the lines of the host keys into known_path; those of other daemons in it stay. */
int ssh_way_keep_keys(const struct ssh_way *way, struct err *err);

/* A line "Name value" for each option; NULL-terminated. Yours (strv). */
char **ssh_way_options(const struct ssh_way *way);
/* The whole block for ssh_config; yours. */
char *ssh_way_block(const struct ssh_way *way);

/* $XDG_CONFIG_HOME/boxyard/known_hosts; yours. */
int ssh_known_path(char **ret, struct err *err);
