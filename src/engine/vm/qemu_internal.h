/* qemu_internal.h - shared by the qemu files */
#pragma once
#include "base/alloc.h"
#include "engine/vm/qemu.h"
#include "engine/vm/qmp.h"

/* The numbers of the descriptors that a QEMU gets; the socket for errors before the exec comes
 * after them. */
enum qemu_fd {
	QEMU_FD_QMP = 3,
	QEMU_FD_LINK,
	QEMU_FD_CONTROL,
	QEMU_FD_RAM,
	QEMU_FD_TAP,
	QEMU_FD_IMAGE,
	QEMU_FD_DISK,
	QEMU_FD_END
};

/* Paths in its root during its start. */
#define QEMU_IN_KERNEL	"/kernel"
#define QEMU_IN_INITRD	"/initrd"
#define QEMU_IN_PRELOAD "/box-ram.so"

enum { QEMU_SAID_BYTES = 2048 };

/* Everything the child needs between clone and exec, prepared. */
struct qemu_plan {
	const struct qemu_spec *spec;
	char **argv;
	char **envp;
	char *prefix;	      /* folder of the program if that is not /usr; NULL: /usr */
	int fds[QEMU_FD_END]; /* by their number there; -1: none */
	int output;	      /* receives its output */
	int report;	      /* receives a struct err when the exec fails */
};

/* qemu_args.c: NULL-terminated, yours (strv_free). */
char **qemu_argv(const struct qemu_spec *spec);
/* File descriptor sets, by QEMU's numbers. */
enum { QEMU_SET_IMAGE = 1, QEMU_SET_DISK, QEMU_SET_STATE };
/* The file of a disk from such a set, and the node above it that the device uses ("ro", "rw");
 * new references. */
json_t *qemu_node_file(bool image, int set);
json_t *qemu_node_raw(bool image, bool placeholder);

/* qemu_child.c */
_Noreturn void qemu_child(struct qemu_plan *plan);
/* In a child of the daemon: unmounts everything in the root of the QEMU behind pidfd. */
_Noreturn void qemu_empty_root(int pidfd, const char *prefix);

/* A verb in progress. */
struct qemu_verb {
	struct qemu_verb *next;
	struct qemu *qemu;
	void *arg;
	struct move *move; /* of qemu_move: its helper */
	int fd;		   /* of qemu_save: where the state is written */
	union {
		qemu_done done;
		qemu_status_done status;
		qemu_io_done io;
		qemu_console_done console;
	};
};

struct qemu {
	struct loop *loop;
	const struct qemu_ops *ops;
	void *arg;
	char *dir, *prefix;
	struct qemu_mark mark;
	int pidfd;
	struct loop_fd *exit_watch;
	struct qmp *qmp;
	struct loop_timer *timer; /* kills it when it has not done `late` in time */
	const char *late;
	int report; /* -1: executed, or adopted */
	int output;
	struct loop_fd *output_watch;
	char said[QEMU_SAID_BYTES];
	size_t said_len;
	int cleaner; /* pidfd of the child that empties its root */
	struct loop_fd *cleaner_watch;
	bool ready, killed;
	bool guest_ended;
	enum qemu_why guest_why;
	char *console;
	struct err err; /* why it was ended from here */
	struct qemu_verb *verbs;
	int saved;		   /* where QEMU saves its state; -1: not passed yet */
	bool set_left;		   /* QEMU still has the previous one */
	struct qemu_verb *loading; /* QEMU is loading; it is polled until it has finished */
	bool asking, ask_again;
};

/* qemu.c: makes one without a process yet, and watches it by its monitor (taken). */
struct qemu *qemu_new(struct loop *loop, const char *dir, const struct qemu_ops *ops, void *arg);
void qemu_watch(struct qemu *qemu, int monitor);
/* Kills the QEMU unless it does this within ms; what NULL: no longer expected. */
void qemu_expect(struct qemu *qemu, const char *what, uint64_t ms);

/* qemu_verbs.c */
enum qemu_status qemu_status_of(json_t *result); /* of query-status */
struct qemu_verb *qemu_verb_new(struct qemu *qemu, void *arg);
/* Frees the verb, then calls its done. */
void qemu_verb_finish(struct qemu_verb *verb, const struct err *err);
void qemu_move_cancel(struct move *move); /* qemu_move.c; accepts NULL */
void qemu_verbs_forget(struct qemu *qemu);
/* removes it from the list, and frees it */
struct qemu_verb qemu_verb_take(struct qemu_verb *verb);
/* qemu_state.c */
void qemu_forget_saved(struct qemu *qemu);
/* Called once for a QEMU that waits for a state, so that it sends an event at the end of a load. */
void qemu_load_prepare(struct qemu *qemu);
/* A load may have ended; qemu_load_lost: it never will. */
void qemu_load_event(struct qemu *qemu, const char *name);
void qemu_load_lost(struct qemu *qemu);
/* The monitor reported the end of the guest: reads its console, then ends the process. */
void qemu_guest_ended(struct qemu *qemu, enum qemu_why why);
/* Makes output of a guest or QEMU printable in place. */
void qemu_make_printable(char *text);
