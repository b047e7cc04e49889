/* exec.h - programs in a box: start, attach, output from an offset, input, signals
 *
 * A program belongs to its box, not to whoever started it: it outlives the caller, its connection
 * and the daemon. A `struct exec` is one caller's hold of one program: what the program writes
 * comes out of it, input goes into it, and exec_close() lets go of it while the program runs on.
 *
 * All front doors start programs with exec_start(), which does everything that belongs to it: the
 * automatic snapshot (auto.h), waking a box that sleeps, the environment, user and folder that
 * image and box give, and the time limit, which is told even while the box stands still.
 *
 * Callbacks come from the loop, never from inside a call made to an exec. */
#pragma once
#include "core/task.h"
#include <stdint.h>

struct box;
struct exec; /* opaque: fields live in exec.c */

enum {
	EXEC_ID_MAX = 32,		  /* [a-z0-9]+ */
	EXEC_ARGV_MAX = 4096,		  /* words of a program, variables of an environment */
	EXEC_KEPT_MAX = 64 * 1024 * 1024, /* bytes of output a box keeps of one program */
};
#define EXEC_OFFSET_END UINT64_MAX /* only what comes from now on */

enum exec_stream { EXEC_STDOUT = 1, EXEC_STDERR = 2 }; /* a terminal's output is all stdout */

enum exec_reason {
	EXEC_RUNNING,
	EXEC_EXITED,   /* code */
	EXEC_SIGNALED, /* signal */
	EXEC_TIMEOUT,  /* its time limit; code or signal as it ended */
	EXEC_UNKNOWN,  /* its box has stopped, and its end was not reported */
	EXEC_REASON_COUNT
};
const char *exec_reason_name(enum exec_reason reason); /* "running" "exited" … */

/* What is known of a program; borrowed for the call. All of it comes from inside the box: texts may
 * hold any bytes. */
struct exec_info {
	const char *id;
	uint32_t pid; /* inside the box */
	bool tty;
	enum exec_reason reason;
	uint32_t exit_code; /* as in shells: 128 plus the signal's number; 0 while it runs */
	uint32_t signal;    /* 0: none */
	uint64_t started_us, ended_us; /* wall clock; 0: still running, or not known */
	uint64_t cpu_us;	       /* 0 while it runs */
	uint64_t oldest, newest;       /* offsets of the output that is kept */
	const char *const *argv;       /* NULL-terminated; cut to 4096 bytes in all */
};

/* How a program ended. */
struct exec_end {
	enum exec_reason reason;
	uint32_t exit_code, signal; /* as above */
	uint64_t duration_us, cpu_us;
	uint64_t newest; /* the offset behind its last byte of output */
};

struct exec_ops {
	/* The program runs. Comes first, once. */
	void (*on_started)(struct exec *exec, const struct exec_info *info, void *arg);
	/* time_us: when it was written, by the box's wall clock; 0: not known (lossless readers get
	 * no times). Return the bytes with exec_consumed(). */
	void (*on_output)(struct exec *exec, enum exec_stream stream, uint64_t offset,
		uint64_t time_us, const void *data, size_t len, void *arg);
	/* Output that is no longer kept. NULL: not wanted. */
	void (*on_gap)(struct exec *exec, uint64_t offset, uint64_t lost, void *arg);
	/* exec_write() takes more again. NULL: the caller does not write much. */
	void (*on_writable)(struct exec *exec, void *arg);
	/* The last callback: the exec is freed afterwards. end: the program has ended and all its
	 * output was delivered. err: why nothing more comes. Both NULL: all that was asked for was
	 * delivered, and the program runs on (detached, or not followed). */
	void (*on_done)(
		struct exec *exec, const struct exec_end *end, const struct err *err, void *arg);
};

/* Servers that box-init brings along: the image needs none. */
enum exec_builtin {
	EXEC_NO_BUILTIN,
	EXEC_SFTP, /* SFTP, version 3 with OpenSSH's extensions, as user, from his home */
	/* A connection made inside the box: argv is "connect", and host and port or the path of a
	 * unix socket. Its first byte of output is '+': it stands; a line on stderr says why not */
	EXEC_CONNECT,
};

/* A program to start; everything is borrowed for the call. */
struct exec_spec {
	const char *id; /* NULL: a generated id */
	/* Runs instead of argv, which is looked at by EXEC_CONNECT alone, with input and neither
	 * tty nor detach. It speaks binary on stdin and stdout, and its output is not kept. It ends
	 * by itself when its input ends or its caller is gone, exec_close() included. A box that
	 * still runs an older box-init (restored, adopted) runs OpenSSH's server of its image
	 * instead, and is told ERR_NOT_FOUND where there is none. */
	enum exec_builtin builtin;
	/* argv[0] is looked up in PATH, inside, unless it has a '/' */
	const char *const *argv;
	const char *const *env; /* KEY=VALUE, after the image's and the box's; NULL: none */
	const char *cwd;	/* NULL or "": the image's, else the user's home */
	const char *user; /* NULL or "": the image's, else root; name or uid, optionally :group */
	bool tty;
	uint16_t rows, cols; /* 0: 24 x 80 */
	bool input;	     /* stdin can be written to; else it is /dev/null */
	bool detach;	     /* on_done is called as soon as the program runs */
	uint64_t timeout_ms; /* 0: none. At the limit: TERM, and KILL after 5 s */
	/* No automatic snapshot before this program. Set for a box's own main program and for
	 * programs that a box starts in its forks. */
	bool no_snapshot;
};

/* Starts a program. Fails with ERR_STATE when the box neither runs nor can be woken, and with
 * ERR_INVALID for an invalid spec. Later failures (argv[0], user or cwd do not exist:
 * ERR_NOT_FOUND) come by on_done. */
int exec_start(struct box *box, const struct exec_spec *spec, const struct exec_ops *ops, void *arg,
	struct exec **ret, struct err *err);

struct exec_attach_spec {
	const char *id; /* borrowed for the call */
	uint64_t offset;
	bool follow;   /* else: only what is kept now */
	bool lossless; /* the program waits for this reader when the journal is full */
	bool input;    /* this reader also sends input, signals and window sizes */
};

/* Attaches to a running or ended program; ERR_NOT_FOUND comes by on_done. For a stopped box the
 * kept output is delivered, unless input is wanted. A follower without input does not keep the box
 * awake. */
int exec_attach(struct box *box, const struct exec_attach_spec *spec, const struct exec_ops *ops,
	void *arg, struct exec **ret, struct err *err);

/* Writes to stdin or the terminal; all bytes are taken. False: they are buffered, write no more
 * until on_writable. A suspended box is resumed. */
bool exec_write(struct exec *exec, const void *data, size_t len);
void exec_write_end(struct exec *exec);
/* Sends a signal to the program's process group, on a terminal to the foreground group. May be
 * called before the program has started. */
void exec_signal(struct exec *exec, uint32_t signal);
void exec_resize(struct exec *exec, uint16_t rows, uint16_t cols);
/* Returns so many bytes of on_output to the window of 512 KiB. When it is used up the box has to
 * wait: a slow client slows the program, not the daemon. */
void exec_consumed(struct exec *exec, size_t len);
/* Closes the exec: no callback comes after this. A program not started yet is still started, and
 * written bytes are still sent: all of them if the end of input was written too, else as much as
 * the program takes at once. Accepts NULL. */
void exec_close(struct exec *exec);

/* ---- by name -------------------------------------------------------------------------------- */

struct exec_list_ops {
	void (*on_exec)(const struct exec_info *info, void *arg); /* each, oldest first */
	task_done on_done;
};
/* Lists the programs of a box: running ones, and ended ones as long as they are kept; for a stopped
 * box, those whose output was kept. */
int exec_list(struct box *box, const struct exec_list_ops *ops, void *arg, struct task **ret,
	struct err *err);
/* For callers without an exec. */
int exec_signal_by_id(struct box *box, const char *id, uint32_t signal, task_done done, void *arg,
	struct task **ret, struct err *err);
