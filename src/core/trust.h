/* trust.h - authorities that boxes trust beside those of their images
 *
 * Behind a proxy that looks into TLS, nothing can be fetched without the proxy's own authority. The
 * machine has it; what its owner added there is added in boxes (ca_certificates in boxyard.conf).
 * It goes into the layer that lies above every image (engine), and box-init adds it to the list of
 * the image (guest/trust.c). */
#pragma once

struct conf;

/* PEM text of certificates alone, bounded; "" for none. Yours. */
char *trust_collect(const struct conf *conf);
