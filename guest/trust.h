/* trust.h - authorities of the machine that the box is in; see core/trust.h */
#pragma once

/* Once, at the start: what the layer above the image brings is added to the image's own list, where
 * it has one. */
void trust_open(void);
/* Paths for the environment of programs; NULL: there is nothing to say. The whole list, and what
 * was added alone. */
const char *trust_get_list(void);
const char *trust_get_added(void);
