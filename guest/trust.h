/* trust.h - certificate authorities of the machine; see core/trust.h */
#pragma once

/* Called once at the start: adds the certificates of the layer above the image to the image's own
 * list, where it has one. */
void trust_open(void);
/* Paths for the environment of programs; NULL: none. The whole list, and only what was added. */
const char *trust_get_list(void);
const char *trust_get_added(void);
