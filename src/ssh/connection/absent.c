/* absent.c - a build without libssh; see scripts/libssh */
#include "ssh/connection/connection.h"
#include <stddef.h>
#include <stdio.h>

int sshc_main(void)
{
	fprintf(stderr, "box was built without libssh: there is no SSH front door\n");
	return 69;
}

const char *ssh_library_version(void)
{
	return NULL;
}
