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
	EXEC_UNKNOWN,  /* its box has stopped, and nobody heard how it ended */
	EXEC_REASON_COUNT
};
const char *exec_reason_name(enum exec_reason reason); /* "running" "exited" … */

/* What is known of a program; borrowed for the call it is told in. All of it comes from inside the
 * box: text may be any bytes. */
struct exec_info {
	const char *id;
	uint32_t pid; /* inside the box */
	bool tty;
	enum exec_reason reason;
	uint32_t exit_code; /* as shells count: 128 and the signal's number; 0 while it runs */
	uint32_t signal;    /* 0: none */
	uint64_t started_us, ended_us; /* wall clock; 0: it runs, or is not known */
	uint64_t cpu_us;	       /* 0 while it runs */
	uint64_t oldest, newest;       /* offsets of the output that is kept */
	const char *const *argv;       /* NULL-terminated; cut to 4096 bytes in all */
};

/* How it ended. */
struct exec_end {
	enum exec_reason reason;
	uint32_t exit_code, signal; /* as above */
	uint64_t duration_us, cpu_us;
	uint64_t newest; /* the offset behind its last byte of output */
};

struct exec_ops {
	/* The program is there. Comes first, once. */
	void (*on_started)(struct exec *exec, const struct exec_info *info, void *arg);
	/* time_us: when it was written, by the box's wall clock; 0: not known (lossless readers
	 * are told none). Give the bytes back with exec_consumed(). */
	void (*on_output)(struct exec *exec, enum exec_stream stream, uint64_t offset,
		uint64_t time_us, const void *data, size_t len, void *arg);
	/* Output that is kept no longer. NULL: not wanted. */
	void (*on_gap)(struct exec *exec, uint64_t offset, uint64_t lost, void *arg);
	/* exec_write() takes more again. NULL: the caller does not write much. */
	void (*on_writable)(struct exec *exec, void *arg);
	/* The last one: the exec is gone afterwards. end: the program is over and all output was
	 * told. err: why nothing more comes. Both NULL: all that was asked for was told, and the
	 * program runs on (detached, not followed). */
	void (*on_done)(
		struct exec *exec, const struct exec_end *end, const struct err *err, void *arg);
};

/* A program to be started; all of it is borrowed for the call. */
struct exec_spec {
	const char *id; /* NULL: one is made up */
	/* argv[0] is looked up in PATH, inside, unless it has a '/' */
	const char *const *argv;
	const char *const *env; /* KEY=VALUE, after the image's and the box's; NULL: none */
	const char *cwd;	/* NULL or "": the image's, else the user's home */
	const char *user; /* NULL or "": the image's, else root; name or uid, optionally :group */
	bool tty;
	uint16_t rows, cols; /* 0: 24 x 80 */
	bool input;	     /* it can be written to; else its stdin is /dev/null */
	bool detach;	     /* the hold is over when the program is there */
	uint64_t timeout_ms; /* 0: none. Then TERM, and KILL after 5 s */
	/* Automatic snapshots are for what comes from outside: not for a box's own main program,
	 * nor for what a box starts in its forks. */
	bool no_snapshot;
};

/* Starts a program. ERR_STATE when the box neither runs nor wakes, ERR_INVALID for a spec that
 * cannot be. What is found out later (argv[0], user or cwd are not there: ERR_NOT_FOUND) is told
 * by on_done. */
int exec_start(struct box *box, const struct exec_spec *spec, const struct exec_ops *ops, void *arg,
	struct exec **ret, struct err *err);

struct exec_attach_spec {
	const char *id; /* borrowed for the call */
	uint64_t offset;
	bool follow;   /* else: what is there now */
	bool lossless; /* the program waits for this reader when no more can be kept */
	bool input;    /* this reader writes, and sends signals and sizes */
};

/* A program that was started before; ERR_NOT_FOUND comes by on_done. Of a box that has stopped,
 * what was kept of it is told, unless there is to be input. Whoever follows without input does not
 * keep the box from falling asleep. */
int exec_attach(struct box *box, const struct exec_attach_spec *spec, const struct exec_ops *ops,
	void *arg, struct exec **ret, struct err *err);

/* Bytes for its stdin or terminal; all are taken. False: they wait, write no more until
 * on_writable. A box that was suspended goes on. */
bool exec_write(struct exec *exec, const void *data, size_t len);
void exec_write_end(struct exec *exec);
/* To its process group, on a terminal to the foreground's; before it has started too. */
void exec_signal(struct exec *exec, uint32_t signal);
void exec_resize(struct exec *exec, uint16_t rows, uint16_t cols);
/* So many bytes of on_output were passed on. Until then they count against a window of 512 KiB,
 * beyond which the box has to wait: a slow client slows the program, not the daemon. */
void exec_consumed(struct exec *exec, size_t len);
/* Lets go: no callback comes after this. A program that is yet to be started is started, and what
 * was written goes in: to the last byte if its end was written too, else as far as the program
 * takes it at once. Accepts NULL. */
void exec_close(struct exec *exec);

/* ---- by name -------------------------------------------------------------------------------- */

struct exec_list_ops {
	void (*on_exec)(const struct exec_info *info, void *arg); /* each, oldest first */
	task_done on_done;
};
/* The programs of a box, those that are over too as long as they are kept; of a box that has
 * stopped, those whose output was kept. */
int exec_list(struct box *box, const struct exec_list_ops *ops, void *arg, struct task **ret,
	struct err *err);
/* For callers that hold no exec. */
int exec_signal_by_id(struct box *box, const char *id, uint32_t signal, task_done done, void *arg,
	struct task **ret, struct err *err);
