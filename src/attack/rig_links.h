/* rig_links.h - the two network namespaces of the rig and what connects them */
#pragma once
#include "base/err.h"

/* Makes both and moves the caller into the site; *ret_world is the world, as a descriptor. */
int rig_links_make(int *ret_world, struct err *err);
