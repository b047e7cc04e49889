/* exec_internal.h - the parts of an exec, shared by exec.c (its life) and attach.c (its readers) */
#pragma once
#include "guest/exec.h"
#include "guest/conn.h"
#include "guest/journal.h"
#include "guest/watch.h"

enum exec_state {
	EXEC_STARTING, /* forked, and not yet known whether the program could be executed */
	EXEC_RUNNING,
	EXEC_ENDING, /* the program is over; its last output is being collected */
	EXEC_OVER,
};

/* One channel that follows the output of an exec. */
struct reader {
	struct exec *exec;
	struct channel *channel;
	uint64_t at;	/* journal offset to be sent next */
	uint64_t until; /* stop there; UINT64_MAX: follow */
	bool lossless;
	uint64_t time_us; /* the time sent last */
	bool input;
	bool input_end;	  /* END came; takes effect when typed is empty */
	struct buf typed; /* input that the program has not taken yet; bounded by the window */
	struct reader *next;
};

struct exec {
	char id[WIRE_EXEC_ID_MAX + 1];
	char **argv; /* cut, for information */
	pid_t pid;
	bool tty;
	bool builtin; /* nothing of it is kept */
	bool reaped;  /* pid may have been reused */
	bool timed_out;
	bool forgotten; /* listed and told to nobody; freed at its end */
	enum exec_state state;
	int wait_status;
	int64_t started_us, started_mono_us;
	int64_t ended_us, ended_mono_us;
	uint64_t cpu_us;
	uint64_t timeout_ms;
	struct journal journal;
	struct watch
		report; /* readable with an error, or at its end when the program was executed */
	struct watch out, err, in;
	size_t out_left, err_left; /* after the grace: how much may still be read */
	bool grace_over;
	char last_typed;      /* last byte that went to the program */
	struct timer limit;   /* the time limit, then the kill after it */
	struct timer grace;   /* how long output is awaited after the end */
	struct timer hung_up; /* a terminal nobody has open; look again later */
	struct channel
		/* waits for the outcome of the start; NULL when that is known, or it was closed */
		*starter;
	struct reader *readers;
	struct exec *next;
};

/* exec.c */
extern struct exec *execs; /* in the order they started; finished ones stay in place */
struct exec *exec_find(const char *id);
void exec_free(struct exec *exec);
void exec_tell(const struct exec *exec, enum wire_event event);
/* Takes the descriptors of the program; they are not read before exec_program_started(). */
void exec_take_fds(struct exec *exec, int out, int err, int in);
void exec_program_started(struct exec *exec); /* starts its time limit */
void exec_fill_info(const struct exec *exec, struct wire_exec_info *ret);
void exec_signal_group(struct exec *exec, int number);
/* Reads the program's output if the journal has room, else pauses. Call it after a reader moved or
 * left. */
void exec_update_reading(struct exec *exec);
void exec_evict(void);

/* attach.c */
void attach_reader(struct exec *exec, struct channel *channel, const struct wire_attach_spec *spec);
void attach_pump(struct exec *exec); /* new output or the end: every reader sends what it can */
uint64_t attach_need(const struct exec *exec); /* first offset a lossless reader still needs */
void attach_feed(struct exec *exec);	       /* typed bytes into the program's input */
void attach_forget_readers(struct exec *exec); /* without their channels */
void attach_input_gone(struct exec *exec);     /* the program takes no more input */
