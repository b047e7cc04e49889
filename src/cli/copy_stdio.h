/* copy_stdio.h - stdin and stdout joined with a socket */
#pragma once

struct cli;

/* Copies both ways until the other end of the socket, or whoever is at stdin and stdout, is gone.
 * Closes fd; returns the exit code. */
int copy_stdio(struct cli *cli, int fd);
