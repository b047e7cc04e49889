/* trust.h - certificate authorities that boxes trust in addition to those of their images
 *
 * Behind a proxy that inspects TLS, nothing can be fetched without the proxy's own authority. The
 * authorities that the machine's owner has added to the machine are added in boxes as well (setting
 * ca_certificates). They go into the layer above every image (engine), and box-init adds them to
 * the list of the image (guest/trust.c). */
#pragma once

struct conf;

/* Collects the certificates as PEM text, bounded; "" for none. Yours. */
char *trust_collect(const struct conf *conf);
