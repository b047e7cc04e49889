/* wire.h - the protocol between the daemon and box-init
 *
 * One stream connection carries many channels. Every frame is a 12-byte header and a payload:
 *
 *     u32 length of payload | u8 type | u8 zero | u16 zero | u32 channel      (little endian)
 *
 * Channel 0 is the connection itself. The daemon opens channels with rising ids and OPEN; ids are
 * not reused on one connection. A frame that breaks these rules ends the connection on both sides;
 * nothing else on it is trusted afterwards.
 *
 *   HELLO   both, channel 0, first frame each way: wire_hello
 *   OPEN    daemon: u8 op, then the op's request
 *   REPLY   init: the op's result; at most one per channel, before any DATA, END, GAP or EXIT
 *   ERROR   init: wire_error; instead of REPLY or after it; CLOSE follows
 *   DATA    both: u8 stream, u64 offset, bytes (see enum wire_stream)
 *   END     both: no more DATA from this side
 *   WINDOW  both: u32 credit, bytes of DATA payload the other side may send in addition
 *   GAP     init: u64 offset, u64 lost: the journal dropped [offset, offset + lost)
 *   EXIT    init: wire_exit; the exec has ended and all its output was sent
 *   SIGNAL  daemon: u32 signal number, to the exec's process group (its foreground group on a tty)
 *   RESIZE  daemon: u16 rows, u16 cols
 *   CLOSE   both: the channel has ended. init ends every channel with exactly one CLOSE, after
 *           REPLY and everything else. A CLOSE from the daemon cancels file work; an exec only
 *           loses this reader. init still answers CLOSE.
 *   EVENT   init, channel 0: u8 wire_event, wire_exec_info: something happened to an exec
 *   REQUEST init, channel 0: wire_request: the box asks the daemon for something; ANSWER answers it
 *   TIME    init: u64 wall clock, microseconds: when the following DATA of this channel was read
 *           from the program; only to readers that are not lossless
 *
 * Flow control: a side may have at most WIRE_WINDOW bytes of DATA payload (the whole payload
 * counts, including the 9 bytes of stream and offset) on a channel that the other side has not
 * given back by WINDOW.
 *
 * Versions: each side sends in its hello the newest version it speaks and the oldest it accepts;
 * the smaller of the two newest is used. Version 2 has REQUEST and the ops from ANSWER on; neither
 * is sent to a side that speaks 1. Version 3 has TIME.
 *
 * Strings are sent as u32 length, bytes, NUL, and contain no other NUL. Lists of strings are u32
 * count, strings. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct stat;

enum {
	WIRE_MAGIC = 0x59584f42, /* "BOXY" */
	WIRE_VERSION = 3,
	WIRE_VERSION_MIN = 1,
	WIRE_VERSION_INSIDE = 2, /* the first with REQUEST, ANSWER, IDENTITY, RESTORED */
	WIRE_VERSION_TIMES = 3,	 /* the first with TIME */
	WIRE_HEADER = 12,
	WIRE_HELLO_SIZE = 16,	       /* payload of a HELLO */
	WIRE_DATA_HEADER = 9,	       /* u8 stream, u64 offset */
	WIRE_DATA_MAX = 64 * 1024,     /* bytes in one DATA frame, without its header */
	WIRE_PAYLOAD_MAX = 256 * 1024, /* any payload; argv and env of a start fit here */
	WIRE_WINDOW = 512 * 1024,
	WIRE_CHANNELS_MAX = 256, /* open at once on one connection */
	WIRE_PATH_MAX = 4095,
	WIRE_ARGV_MAX = 4096,  /* entries in argv or env */
	WIRE_EXEC_ID_MAX = 32, /* [a-z0-9]+ */
	WIRE_WORDS_MAX = 128,  /* of a request */
	WIRE_WORDS_BYTES = 16 * 1024,
	WIRE_ANSWER_MAX = 32 * 1024, /* bytes of output in one answer */
	WIRE_SEED = 64,
};

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_OPEN,
	WIRE_REPLY,
	WIRE_ERROR,
	WIRE_DATA,
	WIRE_END,
	WIRE_WINDOW_ADD,
	WIRE_GAP,
	WIRE_EXIT,
	WIRE_SIGNAL,
	WIRE_RESIZE,
	WIRE_CLOSE,
	WIRE_EVENT,
	WIRE_REQUEST,
	WIRE_TIME,
	WIRE_TYPE_COUNT
};

enum wire_stream {
	WIRE_STREAM_MAIN = 0,	/* file bytes, tar bytes, dialled TCP, stdin; offset is 0 */
	WIRE_STREAM_STDOUT = 1, /* a tty's output is all stdout */
	WIRE_STREAM_STDERR =
		2, /* offset: position in the exec's journal, both streams counted together */
};

/* Requests and results of each op, in the order of their fields. "-" means empty. */
enum wire_op {
	WIRE_OP_EXEC_START =
		1, /* wire_exec_spec -> wire_exec_info; then as EXEC_ATTACH if attach is set */
	/* wire_attach_spec -> wire_exec_info; GAP and DATA, then EXIT if it is over */
	WIRE_OP_EXEC_ATTACH,
	WIRE_OP_EXEC_LIST,   /* - -> u32 count, wire_exec_info each */
	WIRE_OP_EXEC_SIGNAL, /* str id, u32 signal -> - */
	WIRE_OP_PROCESSES,   /* - -> u32 total, u32 count, wire_process each (first 500) */
	WIRE_OP_STAT,	     /* str path, u8 follow -> wire_stat */
	WIRE_OP_LIST,	     /* str path -> -; DATA frames of whole wire_stat records; END */
	WIRE_OP_READ, /* str path, u64 offset, u64 length (0: to the end) -> wire_stat; DATA; END */
	/* str path, u32 mode, u8 parents; then DATA, END from the daemon -> wire_stat. Written
	 * beside and renamed over; an unfinished one leaves the old file */
	WIRE_OP_WRITE,
	WIRE_OP_MKDIR,	/* str path, u32 mode, u8 parents -> - */
	WIRE_OP_REMOVE, /* str path, u8 recursive -> - */
	WIRE_OP_RENAME, /* str from, str to -> - */
	WIRE_OP_CHMOD,	/* str path, u32 mode -> - */
	/* str path -> -; DATA: a tar of path (its last component is the top name); END */
	WIRE_OP_TAR_OUT,
	WIRE_OP_TAR_IN, /* str dir; then DATA, END from the daemon -> u64 files, u64 bytes */
	/* u16 port -> -; DATA both ways to 127.0.0.1:port (then ::1), END half-closes */
	WIRE_OP_DIAL,
	WIRE_OP_STATS, /* - -> wire_stats */
	/* u32 grace_ms -> - at once; TERM to all, KILL after grace, then PID 1 exits */
	WIRE_OP_SHUTDOWN,
	WIRE_OP_NAME, /* - -> -; the host name has changed: /etc/hostname and /etc/hosts follow */
	/* wire_answer -> - when the asker has taken it; ERR_NOT_FOUND: the asker is gone */
	WIRE_OP_ANSWER,
	/* wire_identity -> wire_told; the box was just made from another box's state */
	WIRE_OP_IDENTITY,
	/* u8 wire_restored, seed -> wire_told; the same box, but time has passed or was rolled
	 * back */
	WIRE_OP_RESTORED,
	/* - -> -; DATA: a tar of what the box's own disk has over its image, as a layer of an OCI
	 * image; END. For boxes with a kernel of their own: ERR_UNSUPPORTED in others */
	WIRE_OP_TAR_UPPER,
	/* - -> as EXEC_START with attach, of a program that does nothing and is then forgotten: the
	 * first program in a VM takes longest, and in a spare nobody waits for it */
	WIRE_OP_WARM_UP,
	WIRE_OP_COUNT
};

enum wire_event {
	WIRE_EVENT_EXEC_STARTED = 1,
	WIRE_EVENT_EXEC_EXITED,
};

enum wire_restored {
	WIRE_RESTORED_WOKEN = 1,
	WIRE_RESTORED_ROLLED_BACK,
};

enum wire_answer_kind {
	WIRE_ANSWER_OUT = 1, /* data is for stdout */
	WIRE_ANSWER_ERR,     /* for stderr */
	WIRE_ANSWER_DONE,    /* code; nothing follows */
};

/* ---- frames ------------------------------------------------------------------------------- */

struct wire_frame {
	enum wire_type type;
	uint32_t channel;
	const uint8_t *payload; /* borrowed from the buffer it was parsed from */
	uint32_t len;
};

/* Looks at the head of in. 1: a frame is in *ret (drop it with buf_eat(in, WIRE_HEADER + ret->len)
 * when done); 0: more bytes are needed; -1: not our protocol (ERR_PROTOCOL). */
int wire_frame_parse(const struct buf *in, struct wire_frame *ret, struct err *err);

/* For a stream on which bytes of an older connection may come first: drops what is before the first
 * whole hello in in, or, when there is none, what cannot be the beginning of one; true: a hello is
 * at its head. *skipped (may be NULL) is raised by what was dropped. */
bool wire_find_hello(struct buf *in, uint64_t *skipped);

/* Starts a frame at the tail of out and ends it; write the payload with wire_put_* between them. */
size_t wire_begin(struct buf *out, enum wire_type type, uint32_t channel);
void wire_end(struct buf *out, size_t mark);
/* A DATA frame whole. */
void wire_add_data(struct buf *out, uint32_t channel, enum wire_stream stream, uint64_t offset,
	const void *data, size_t len);

/* ---- fields --------------------------------------------------------------------------------- */

void wire_put_u8(struct buf *out, uint8_t value);
void wire_put_u16(struct buf *out, uint16_t value);
void wire_put_u32(struct buf *out, uint32_t value);
void wire_put_u64(struct buf *out, uint64_t value);
void wire_put_str(struct buf *out, const char *text); /* NULL travels as "" */
void wire_put_strv(struct buf *out, const char *const *strv);

/* A read past the end, or a malformed one, returns zeros and "" and sets bad; check once with
 * wire_get_done(). */
struct wire_reader {
	const uint8_t *at;
	const uint8_t *end;
	bool bad;
};

#define WIRE_READER(frame)                                               \
	{                                                                \
		(frame)->payload, (frame)->payload + (frame)->len, false \
	}

uint8_t wire_get_u8(struct wire_reader *in);
uint16_t wire_get_u16(struct wire_reader *in);
uint32_t wire_get_u32(struct wire_reader *in);
uint64_t wire_get_u64(struct wire_reader *in);
void wire_put_bytes(struct buf *out, const void *data, size_t len); /* without their length */
void wire_get_bytes(struct wire_reader *in, void *ret, size_t len);
const char *wire_get_str(
	struct wire_reader *in, size_t max); /* borrowed, never NULL, at most max bytes */
/* NULL-terminated array you free with free(); the strings are borrowed. Never NULL. */
const char **wire_get_strv(struct wire_reader *in, size_t max_count);
/* 0 if everything was well-formed and consumed to the end, else -1 and ERR_PROTOCOL. */
int wire_get_done(const struct wire_reader *in, struct err *err);

/* ---- records -------------------------------------------------------------------------------- */

struct wire_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t version_min;
	uint64_t boot_id; /* init: random at its start; daemon: 0 */
};

struct wire_error {
	enum err_kind kind;
	uint32_t errno_value;
	const char *message; /* at most 400 bytes */
};

/* Programs that box-init is itself; see wire_exec_spec. */
enum wire_builtin {
	WIRE_NO_BUILTIN,
	WIRE_BUILTIN_SFTP, /* serves files over stdin and stdout; cwd "" means the user's home */
	/* Carries a connection that it makes, over stdin and stdout: argv is "connect", host and
	 * port, or the path of a unix socket */
	WIRE_BUILTIN_CONNECT,
	WIRE_BUILTIN_COUNT
};

struct wire_exec_spec {
	const char *id; /* chosen by the daemon, [a-z0-9]{1,32} */
	const char *const
		*argv; /* at least one; argv[0] looked up in PATH of env when it has no '/' */
	const char *const
		*env;	  /* KEY=VALUE; init adds HOME USER LOGNAME SHELL PATH TERM where unset */
	const char *cwd;  /* "" means the user's home, or / */
	const char *user; /* "" means root; name or uid, optionally :group */
	bool tty;
	bool stdin_open; /* false: stdin is /dev/null (never for tty) */
	/* Runs instead of argv, which a box-init that knows of none runs. Only with stdin_open, in
	 * whose byte it is sent: 0, 1, or 1 + builtin. Its output is not kept once it was read, and
	 * its input ends with its last reader. */
	enum wire_builtin builtin;
	bool attach;	      /* attach this channel from offset 0, lossless, with stdin */
	uint16_t rows, cols;  /* 0 means 24 x 80 */
	uint64_t timeout_ms;  /* 0: none. Then TERM, and KILL after 5 s; reason "timeout" */
	uint32_t journal_max; /* bytes kept; 0 means WIRE_JOURNAL_DEFAULT */
};

enum {
	WIRE_JOURNAL_DEFAULT = 1024 * 1024,
	WIRE_JOURNAL_MIN = 4096,
	WIRE_JOURNAL_MAX = 64 * 1024 * 1024,
};

struct wire_attach_spec {
	const char *id;
	uint64_t offset; /* WIRE_OFFSET_END: only what comes from now on */
	bool follow;	 /* false: what is there now, then CLOSE */
	bool lossless;	 /* the program waits for this reader when the journal is full */
	bool input;	 /* DATA from the daemon goes to stdin / the tty */
};
#define WIRE_OFFSET_END UINT64_MAX

enum wire_exit_reason {
	WIRE_EXIT_RUNNING = 0,
	WIRE_EXIT_EXITED,   /* code */
	WIRE_EXIT_SIGNALED, /* signal */
	WIRE_EXIT_TIMEOUT,  /* its time limit; code or signal as it ended */
	WIRE_EXIT_REASON_COUNT
};

struct wire_exec_info {
	const char *id;
	uint32_t pid; /* inside the box */
	bool tty;
	enum wire_exit_reason reason; /* WIRE_EXIT_RUNNING while it runs */
	uint32_t code;		      /* 0-255 */
	uint32_t signal;
	uint64_t started_us; /* wall clock, microseconds */
	uint64_t ended_us;   /* 0 while it runs */
	/* user + system of the program and its waited-for children; 0 while it runs */
	uint64_t cpu_us;
	uint64_t oldest;	 /* first journal offset still there */
	uint64_t newest;	 /* journal offset after the last byte */
	const char *const *argv; /* cut to 4096 bytes in all */
};

struct wire_exit {
	enum wire_exit_reason reason;
	uint32_t code;
	uint32_t signal;
	uint64_t duration_us;
	uint64_t cpu_us;
	uint64_t newest;
};

struct wire_process {
	uint32_t pid, ppid, uid;
	char state; /* R S D Z T */
	uint64_t rss_bytes;
	uint64_t cpu_us;
	uint64_t started_us; /* since boot of the box's clock */
	const char *exec;    /* id of the exec it descends from, or "" */
	const char *command; /* command line, spaces between; cut to 512 bytes; [comm] when empty */
};

struct wire_stat {
	const char *name; /* last component (LIST) or the path asked for */
	uint32_t mode;	  /* type and permission bits as in st_mode */
	uint32_t uid, gid;
	uint64_t size;
	uint64_t mtime_us;
	const char *target; /* of a symlink, else "" */
};

struct wire_stats {
	uint64_t uptime_us;
	uint32_t processes;
	uint32_t execs_running;
	uint64_t journal_bytes; /* memory of all journals */
};

/* A request of the box. The number rises; a rollback takes it back with the box. */
struct wire_request {
	uint64_t id;
	bool again; /* sent before, perhaps to nobody: the connection broke before an answer came */
	const char *const *words; /* the request, the verb first; empty: the asker is gone */
};

struct wire_answer {
	uint64_t id; /* of the request */
	/* Answers of one request count from 0; an answer that was already received is not delivered
	 * again. */
	uint64_t number;
	enum wire_answer_kind kind;
	uint32_t code;	     /* exit code, 0-255, with DONE */
	const uint8_t *data; /* at most WIRE_ANSWER_MAX; borrowed */
	uint32_t len;
};

/* The identity of a new fork. */
struct wire_identity {
	const char *name;
	const char *id;
	const char *parent; /* its name */
	uint32_t index;	    /* among its siblings of the same fork, from 0 */
	uint8_t seed[WIRE_SEED];
};

/* The result of the programs in /etc/boxyard/fork.d or restore.d. */
struct wire_told {
	uint32_t ran, failed;
	const char *failure; /* the first failure: who and how; at most 200 bytes */
};

void wire_put_hello(struct buf *out, const struct wire_hello *hello);
void wire_get_hello(struct wire_reader *in, struct wire_hello *ret);
void wire_put_error(struct buf *out, const struct err *err);
void wire_get_error(
	struct wire_reader *in, struct err *ret); /* message made printable, kind checked */
void wire_put_exec_spec(struct buf *out, const struct wire_exec_spec *spec);
/* argv and env are arrays to free with free((void *)spec->argv); the strings are borrowed. */
void wire_get_exec_spec(struct wire_reader *in, struct wire_exec_spec *ret);
void wire_put_attach_spec(struct buf *out, const struct wire_attach_spec *spec);
void wire_get_attach_spec(struct wire_reader *in, struct wire_attach_spec *ret);
void wire_put_exec_info(struct buf *out, const struct wire_exec_info *info);
void wire_get_exec_info(
	struct wire_reader *in, struct wire_exec_info *ret); /* free argv as above */
void wire_put_exit(struct buf *out, const struct wire_exit *exit);
void wire_get_exit(struct wire_reader *in, struct wire_exit *ret);
void wire_put_process(struct buf *out, const struct wire_process *process);
void wire_get_process(struct wire_reader *in, struct wire_process *ret);
/* Borrows name and target. */
struct wire_stat wire_stat_from(const char *name, const struct stat *st, const char *target);
void wire_put_stat(struct buf *out, const struct wire_stat *stat);
void wire_get_stat(struct wire_reader *in, struct wire_stat *ret);
void wire_put_stats(struct buf *out, const struct wire_stats *stats);
void wire_get_stats(struct wire_reader *in, struct wire_stats *ret);

void wire_put_request(struct buf *out, const struct wire_request *request);
void wire_get_request(struct wire_reader *in, struct wire_request *ret); /* free words as above */
void wire_put_answer(struct buf *out, const struct wire_answer *answer);
void wire_get_answer(struct wire_reader *in, struct wire_answer *ret);
void wire_put_identity(struct buf *out, const struct wire_identity *identity);
void wire_get_identity(struct wire_reader *in, struct wire_identity *ret);
void wire_put_told(struct buf *out, const struct wire_told *told);
void wire_get_told(struct wire_reader *in, struct wire_told *ret);

/* Where box-init listens, inside the box; the directory is a small read-only mount. */
#define WIRE_SOCKET_DIR	 "/run/boxyard"
#define WIRE_SOCKET_PATH "/run/boxyard/init.sock"
