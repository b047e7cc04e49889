/* modprobe.h - loads a module and what it needs, for the kernel of a VM whose image has no modprobe
 *
 * The kernel calls `modprobe -q -- NAME` when it misses a module: NAME is a module's name or one of
 * its aliases. The lists are depmod's, in /lib/modules/VERSION of the image. */
#pragma once

int modprobe_main(int argc, char **argv); /* the exit code */
/* Searches modules.dep (text) for the module name. Returns its path, then those it needs: to be
 * loaded from the last to the first. NULL at the end; yours, one block. NULL: it is not there. */
char **modprobe_find(const char *text, const char *name);
