/* attacker.h - box-attacker: one attempt to break out, made by root inside a box
 *
 * `box-attacker ATTACK ARGS` tries one thing and prints what it saw as one line of JSON. It
 * makes no verdict: whether the attack succeeded is found out outside. It is static and needs no
 * libraries, so that it runs in an image with nothing else in it.
 *
 *   main.c      the table of attacks; the line that is printed
 *   endpoint.c  addresses and names; connecting, with timing
 *   dns.c       a DNS client that also sends malformed queries
 *   talk.c      TCP and UDP as programs use them; malformed HTTP
 *   tls.c       ClientHellos, whole and in pieces
 *   raw.c       hand-made packets
 *   cable.c     floods of frames that no normal machine sends
 *   self.c      changes to the box's own addresses, routes, devices and rules
 *   flood.c     floods of queries, connections and datagrams
 *   disk.c      more disk space than the limit
 *   hoard.c     more kernel memory and kernel objects than the limit; hoard_sockets.c: in sockets,
 *               hoard_networks.c: in network namespaces of its own
 *   plant.c     files that harm a careless copy
 *   stay.c      long-running: listening, holding a connection, being a neighbour
 *   load.c      no attack: what `box bench` measures */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	/* timeout of an answer; a target that is reached answers in less than one */
	ANSWER_MS = 400,
	TEXT_MAX = 64 * 1024,
};

/* How long exchange() waits for an answer; ANSWER_MS by default. */
extern int patience_ms;

struct outcome {
	bool refused;
	bool silent;	  /* refused by silence */
	char how[160];	  /* "ECONNREFUSED after 0.2 ms" */
	char detail[512]; /* what came back, or what was done before */
};

struct endpoint {
	struct sockaddr_storage addr;
	socklen_t len;
	char text[80];
};

int64_t now_us(void);
void outcome_refused(struct outcome *out, int64_t since_us, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void outcome_errno(struct outcome *out, int64_t since_us, int error);
void outcome_through(struct outcome *out, int64_t since_us, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void outcome_detail(struct outcome *out, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* "\r\n\x00\\" as C has them, into out; returns the length. */
size_t unescape(const char *text, uint8_t *out, size_t max);

/* endpoint.c. Finds an address (with %interface where needed) or resolves a name; false with
 * outcome filled in when there is none. */
bool endpoint_find(const char *host, const char *port, struct endpoint *ret, struct outcome *out);
/* A connected socket, or -1 with the outcome filled in. */
int endpoint_connect(const struct endpoint *to, struct outcome *out);
/* Sends, then waits for any byte back; fills in the outcome. */
void exchange(int fd, const void *data, size_t len, struct outcome *out);
/* Receives until the other side ends, is_enough returns true, or nothing more comes; returns the
 * length, *ret_error is the errno of a reset, EAGAIN after silence. */
size_t receive_all(int fd, uint8_t *buf, size_t max,
	bool (*is_enough)(const uint8_t *data, size_t len, void *arg), void *arg, int *ret_error);
bool send_all(int fd, const void *data, size_t len);

/* dns.c */
enum { DNS_A = 1, DNS_AAAA = 28 };
/* The first address of name; false with the outcome filled in. */
bool dns_resolve(const char *name, int type, struct endpoint *ret, struct outcome *out);

/* self.c: makes a device of that kind (on eth0, where it needs a lower device). Returns the
 * errno, or 0. */
int self_new_link(const char *kind, const char *name);

/* raw.c: the checksum of the internet protocols; sum is the sum so far. */
uint16_t packet_checksum(const uint8_t *data, size_t len, uint32_t sum);

typedef void attack_fn(int argc, char **argv, struct outcome *out);
attack_fn attack_ask, attack_ask_odd;				     /* dns.c */
attack_fn attack_connect, attack_datagram, attack_send, attack_unix; /* talk.c */
attack_fn attack_tls;						     /* tls.c */
attack_fn attack_raw, attack_frame;				     /* raw.c */
attack_fn attack_cable;						     /* cable.c */
attack_fn attack_change;					     /* self.c */
attack_fn attack_flood;						     /* flood.c */
attack_fn attack_listen, attack_hold, attack_neighbour;		     /* stay.c */
attack_fn attack_disk;						     /* disk.c */
attack_fn attack_plant;						     /* plant.c */
attack_fn attack_hoard, attack_told;				     /* hoard.c */
attack_fn attack_load;						     /* load.c */
