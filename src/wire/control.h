/* control.h - the words between the vm driver and box-init of a VM, on the port "box.1"
 *
 * The driver asks, box-init answers, in order. Every frame, both ways:
 *
 *     u32 CONTROL_MAGIC | u16 type | u16 zero | u32 number | u32 length of payload  (little endian)
 *
 * A port of a VM is one stream for ever: connections come and go on the host's side, and bytes of
 * an old one may lie in it, in both directions, half a frame too. So a connection begins with a
 * HELLO of the driver, which carries a random nonce. box-init looks for a hello in everything that
 * comes, drops what was before it, and answers HELLO with the same nonce; the driver drops all
 * bytes before that.
 *
 * A VM does not notice that it is a copy. The hello therefore carries a generation too: a random
 * number that is another one for each process of QEMU. box-init that was not told in this
 * generation serves nobody, on neither port, until TELL has told it who it is: entropy, time, name.
 * Whatever else is asked before is answered with an error.
 *
 *   HELLO    control_hello -> control_greeting
 *   TELL     control_tell -> -
 *   STATS    - -> control_stats; unasked, with the number 0, when the box ran into a limit
 *   TIMERS   - -> control_timer
 *   WHO      control_flow -> control_who
 *   SYNC     - -> - when everything written is on the disk
 *   HOLD     u8 hold -> - when all programs stand still, or go on; TELL lets them go on too
 *   GROW     u64 bytes of the disk -> -
 *   LIMIT    u64 processes at once; 0: any number -> -
 *   NAME     str host name -> -; /etc/hostname and /etc/hosts follow
 *   CLOCK    u64 wall clock, microseconds -> -; after it stood still
 *
 * An answer has the type and the number of its question; ERROR (wire_error) may be in its place. */
#pragma once
#include "wire/wire.h"

enum {
	CONTROL_MAGIC = 0x43584f42, /* "BOXC" */
	CONTROL_VERSION = 1,
	CONTROL_HEADER = 16,
	CONTROL_PAYLOAD_MAX = 4096,
	CONTROL_NONCE = 16,
	CONTROL_GENERATION = 16,
	CONTROL_SEED = 64,
	CONTROL_NAME_MAX = 63,
	CONTROL_COMM_MAX = 15,
	CONTROL_PATH_MAX = 1024,
	CONTROL_HELLO_SIZE = CONTROL_HEADER + CONTROL_NONCE + CONTROL_GENERATION + 2,
};

enum control_type {
	CONTROL_ERROR = 0,
	CONTROL_HELLO,
	CONTROL_TELL,
	CONTROL_STATS,
	CONTROL_TIMERS,
	CONTROL_WHO,
	CONTROL_SYNC,
	CONTROL_HOLD,
	CONTROL_GROW,
	CONTROL_LIMIT,
	CONTROL_NAME,
	CONTROL_CLOCK,
	CONTROL_TYPE_COUNT
};

struct control_frame {
	enum control_type type;
	uint32_t number;
	const uint8_t *payload; /* borrowed from the buffer it was parsed from */
	uint32_t len;
};

/* As wire_frame_parse: 1, 0 or -1; drop with buf_eat(in, CONTROL_HEADER + ret->len). */
int control_frame_parse(const struct buf *in, struct control_frame *ret, struct err *err);
size_t control_begin(struct buf *out, enum control_type type, uint32_t number);
void control_end(struct buf *out, size_t mark);
/* Drops what comes before the last whole hello in in, or, when there is none, what cannot be the
 * beginning of one; true: a hello is at its head. nonce NULL: any; else that one alone. */
bool control_find_hello(struct buf *in, const uint8_t nonce[CONTROL_NONCE]);
bool control_has_hello(const struct buf *in); /* a whole one, anywhere */

struct control_hello {
	uint8_t nonce[CONTROL_NONCE];
	uint8_t generation[CONTROL_GENERATION];
	uint16_t version;
};

/* box-init's hello; begins as the driver's does. */
struct control_greeting {
	uint8_t nonce[CONTROL_NONCE];
	/* in which it was told last; zeros: never. Another one than the driver's: it waits for
	 * TELL */
	uint8_t generation[CONTROL_GENERATION];
	uint16_t version;
};

enum control_kind {
	CONTROL_NEW = 1, /* a new box, from a template */
	CONTROL_START,	 /* a box that was stopped, from a template: its disk is its own */
	CONTROL_COPY,	 /* another box than the one that was captured: a fork */
	CONTROL_SAME,	 /* the same, woken or taken back */
};

struct control_tell {
	enum control_kind kind;
	uint8_t generation[CONTROL_GENERATION];
	uint8_t seed[CONTROL_SEED];
	uint64_t wall_us;     /* of CLOCK_REALTIME, when it was sent */
	const char *hostname; /* at most CONTROL_NAME_MAX */
	uint64_t disk_bytes;  /* of its disk, to which the file system is grown; 0: as it is */
	uint64_t pids;	      /* processes at once; 0: any number */
};

/* Figures of the guest's own kernel. The rising ones go back with the box. */
struct control_stats {
	uint64_t memory_total, memory_free, memory_available; /* bytes */
	uint64_t processes, threads;			      /* of the box's programs */
	uint64_t oom_kills;				      /* ever */
	uint64_t pids_refused; /* forks refused for the limit of processes, ever */
	uint64_t cpu_us;       /* user and system, of all CPUs, without box-init's own */
	uint64_t io_bytes;     /* read from and written to its disks, ever */
	uint64_t net_bytes;    /* sent and received on eth0, ever */
};

/* The next moment at which a program of the box runs by itself. */
enum control_timer_kind {
	CONTROL_TIMER_NONE = 0, /* it sleeps until somebody comes */
	CONTROL_TIMER_AT,
	CONTROL_TIMER_BUSY,    /* something runs now */
	CONTROL_TIMER_UNKNOWN, /* the guest's kernel does not tell */
};

struct control_timer {
	enum control_timer_kind kind;
	uint64_t in_ns;	  /* from now, with AT */
	const char *call; /* what kind of timer: "sleep" "timerfd" "alarm" "timer"; "" */
	const char *comm; /* who set it, where known; at most CONTROL_COMM_MAX */
	uint32_t pid;	  /* 0: not known */
};

/* A connection as the guest's kernel knows it. */
struct control_flow {
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	uint8_t family;	  /* 4 or 6 */
	uint8_t from[16], to[16];
	uint16_t from_port, to_port;
};

/* Whose socket it is; the box's own word. */
struct control_who {
	uint32_t pid; /* 0: nobody's */
	uint32_t uid;
	const char *comm;    /* at most CONTROL_COMM_MAX */
	const char *command; /* its command line, words apart by spaces; at most CONTROL_PATH_MAX */
};

void control_put_hello(struct buf *out, const struct control_hello *hello);
void control_get_hello(struct wire_reader *in, struct control_hello *ret);
void control_put_greeting(struct buf *out, const struct control_greeting *greeting);
void control_get_greeting(struct wire_reader *in, struct control_greeting *ret);
void control_put_tell(struct buf *out, const struct control_tell *tell);
void control_get_tell(struct wire_reader *in, struct control_tell *ret);
void control_put_stats(struct buf *out, const struct control_stats *stats);
void control_get_stats(struct wire_reader *in, struct control_stats *ret);
void control_put_timer(struct buf *out, const struct control_timer *timer);
void control_get_timer(struct wire_reader *in, struct control_timer *ret);
void control_put_flow(struct buf *out, const struct control_flow *flow);
void control_get_flow(struct wire_reader *in, struct control_flow *ret);
void control_put_who(struct buf *out, const struct control_who *who);
void control_get_who(struct wire_reader *in, struct control_who *ret);
