/* dns_name.h - domain names as they travel and as text
 *
 * As text a name is lower-case, without the dot at the end; the root is "". A byte that no host
 * name has (anything but letters, digits, '-' and '_') is written \DDD, so that a dot inside a
 * label can never be taken for one between labels. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DNS_HEADER = 12, /* bytes of a message before its first name */
	DNS_LABEL_MAX = 63,
	DNS_NAME_MAX = 255,  /* bytes as it travels, with the empty label at the end */
	DNS_HOST_MAX = 254,  /* bytes of a host name as text, with NUL */
	DNS_TEXT_MAX = 1024, /* bytes of any name as text, with NUL */
};

struct dns_name {
	uint8_t len; /* 0: no name at all; the root has 1 */
	uint8_t wire[DNS_NAME_MAX];
};

/* Reads the name at *pos of a message and moves *pos past it. A pointer must point after the header
 * and before everything read of this name so far, so it cannot loop. False: malformed, *pos
 * unchanged. */
bool dns_name_read(const uint8_t *message, size_t len, size_t *pos, struct dns_name *ret);
/* Writes the name as text into out (DNS_TEXT_MAX bytes). True when it is a host name: at least one
 * label, no byte that had to be escaped; it then fits DNS_HOST_MAX. */
bool dns_name_text(const struct dns_name *name, char *out);
/* From the text of a host name, a dot at its end allowed; case is kept. False: not a host name. */
bool dns_name_parse(const char *text, struct dns_name *ret);
bool dns_name_equal(const struct dns_name *a, const struct dns_name *b);      /* case ignored */
bool dns_name_equal_case(const struct dns_name *a, const struct dns_name *b); /* byte for byte */
/* Each letter upper- or lower-case at random: a forged answer must guess them too ("0x20"). */
void dns_name_mix_case(struct dns_name *name);
