/* line.h - lines of authorized_keys: [options] type base64 [comment]
 *
 * Options of OpenSSH that are understood: from=, expiry-time=, restrict, cert-authority,
 * principals=, pty, no-pty and the like. Ours: box=, role=, expires= (as expiry-time=). Any other
 * one is refused: leaving out what a line demands would let the key do more than whoever wrote it
 * meant. Pure. */
#pragma once
#include "sshkey/sources.h"
#include "sshkey/sshkey.h"

enum { KEYLINE_MAX = 32 * 1024, KEYLINE_COMMENT_MAX = 128, KEYLINE_WORD_MAX = 64 };

/* What a key may not do; the bits are the caller's: see keyline_read. */
enum keyline_restriction {
	KEYLINE_NO_PTY = 1,
	KEYLINE_NO_FORWARDING = 2,
	KEYLINE_NO_AGENT = 4,
	KEYLINE_NO_X11 = 8,
	KEYLINE_RESTRICT = 15
};

struct keyline {
	uint8_t *blob; /* owned */
	size_t blob_len;
	struct sshkey key;		   /* points into blob */
	char comment[KEYLINE_COMMENT_MAX]; /* printable; cut when it is longer */
	char box[KEYLINE_WORD_MAX];	   /* "" : not given */
	char role[KEYLINE_WORD_MAX];	   /* likewise */
	char sources[SOURCES_TEXT_MAX + 1];
	char principals[KEYLINE_COMMENT_MAX]; /* "ann,bob"; of a CA */
	int64_t expires_us;		      /* wall clock; 0: never */
	unsigned restricted;		      /* enum keyline_restriction */
	bool is_ca;
};

/* Fails with ERR_INVALID for a text with a private key, in any of the usual formats; the second one
 * for a certificate too. Each can be taken for a public key by mistake; keyline_read checks it. */
int keyline_check_private(const char *text, struct err *err);
int keyline_check_public(const char *text, struct err *err);
/* Reads one line without its end. ERR_INVALID; no message quotes more than the name of an option.
 * *ret is released with keyline_done. */
int keyline_read(const char *line, struct keyline *ret, struct err *err);
void keyline_done(struct keyline *line); /* accepts a zeroed one */
/* The next line of text that has a key: comments and empty lines are passed over. Returns it, as a
 * copy that is yours, and moves *at behind it; NULL: no more. *number counts lines, from 1. */
char *keyline_next(const char **at, unsigned *number);
