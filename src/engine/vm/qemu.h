/* qemu.h - one QEMU process: started, confined, controlled, ended
 *
 * Each QEMU has a user id of its own and no capabilities, its own mount, pid, ipc and uts
 * namespaces, a network namespace that the caller made, QEMU's own seccomp filter, and a root
 * that is empty before its guest runs for the first time: what it needs to start (its program,
 * libraries, firmware) is mounted there read-only and removed as soon as it answers. Everything
 * else comes as file descriptors. It outlives the daemon.
 *
 * DIR (BOX_RUN/vm/ID, mode 0700) holds its listening sockets, each for one client at a time; the
 * next daemon connects again:
 *
 *     qmp       its monitor; used by this file
 *     link      virtio-serial port "box.0": box-init's wire protocol
 *     control   virtio-serial port "box.1": the driver's own protocol with box-init (control.h)
 *     ram       the preload library's (src/engine/vm/ram.h); only with a preload
 *
 * The guest's devices, in this order, which a state depends on: virtio-serial with box.0 and
 * box.1, the image (vda, node "ro"), the disk (vdb, node "rw"), the network card, one 16550
 * whose last QEMU_CONSOLE_BYTES are kept. When a guest shuts down, resets or panics, QEMU only
 * pauses; the process is then ended from here, with the reason known. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cgroup_join;
struct cgroup_tree;
struct loop;
struct qemu;

#define QEMU_SOCKET_QMP	    "qmp"
#define QEMU_SOCKET_LINK    "link"
#define QEMU_SOCKET_CONTROL "control"
#define QEMU_SOCKET_RAM	    "ram"

enum {
	QEMU_CONSOLE_BYTES = 64 * 1024,
	QEMU_START_MS = 10000, /* until the monitor answers */
	/* a QEMU's user id is this plus its pid, so that no two running ones share it; far above
	 * those of boxes */
	QEMU_UID_FIRST = 0x70000000,
	QEMU_CPUS_MAX = 64,
};

/* What a state depends on: the same for the QEMU that saves it and the one that loads it. */
struct qemu_machine {
	const char *program; /* absolute: /usr/bin/qemu-system-x86_64 */
	bool kvm;
	uint64_t ram_bytes; /* whole MiB */
	unsigned cpus;
};

struct qemu_spec {
	const struct qemu_machine *machine;
	const char *dir; /* made here; must not exist yet */
	int netns;	 /* its network namespace; -1: an empty one of its own */
	int tap;	 /* for its network card (IFF_VNET_HDR); -1: a card without a cable */
	/* Disks from the start; -1: a placeholder, see qemu_attach. image: O_RDONLY; disk:
	 * O_RDWR | O_DIRECT. */
	int image, disk;
	/* For a guest that boots. kernel NULL: it waits for a state, see qemu_load. */
	const char *kernel, *initrd, *cmdline;
	const char *preload; /* the library of RAM layers; NULL: plain memory */
	/* Its cgroups: entered by join (NULL: none), or created in cgroup (-1: not). */
	const struct cgroup_join *join;
	int cgroup;
};

enum qemu_why {
	QEMU_END_EXITED,   /* by itself, or on request; value: exit code */
	QEMU_END_SIGNALED, /* value: the signal */
	QEMU_END_UNKNOWN,  /* it ended while no daemon was connected */
	QEMU_END_SHUTDOWN, /* its guest shut down */
	QEMU_END_RESET,	   /* its guest restarted the machine */
	QEMU_END_PANIC,	   /* its guest's kernel panicked */
	QEMU_END_FAILED,   /* it never answered: see err */
};

struct qemu_end {
	enum qemu_why why;
	int value;
	bool killed;	  /* by qemu_kill */
	const char *said; /* the last output of QEMU; "" for none. Borrowed, printable */
	/* the last output of the guest's console; "" for none. Borrowed, printable */
	const char *console;
	struct err err; /* of QEMU_END_FAILED */
};

/* Its status; QEMU's names in parentheses. */
enum qemu_status {
	QEMU_WAITS,	/* for a state (inmigrate, prelaunch) */
	QEMU_RUNNING,	/* (running) */
	QEMU_PAUSED,	/* (paused, prelaunch after a load, save-vm ...) */
	QEMU_IO_ERROR,	/* stopped because the disk is full or broken (io-error) */
	QEMU_SHUT_DOWN, /* its guest ended: shut down, reset (shutdown) */
	QEMU_PANICKED,	/* (guest-panicked) */
	QEMU_STATUS_COUNT
};
const char *qemu_status_name(enum qemu_status status);

/* All from the loop; each may free the qemu. */
struct qemu_ops {
	/* It answers; for an adopted one too. No guest has run unless it was adopted. */
	void (*on_ready)(struct qemu *qemu, void *arg);
	/* It stopped because the disk could not be written; reason is QEMU's. qemu_cont tries
	 * again. May be NULL. */
	void (*on_disk_error)(struct qemu *qemu, const char *reason, void *arg);
	/* The process has ended; called exactly once, ready or not. Its folder still exists. */
	void (*on_ended)(struct qemu *qemu, const struct qemu_end *end, void *arg);
};

/* Returns when the process exists; later failures are reported by on_ended (QEMU_END_FAILED).
 * After a failure here nothing is left. */
int qemu_spawn(struct loop *loop, const struct qemu_spec *spec, const struct qemu_ops *ops,
	void *arg, struct qemu **ret, struct err *err);
/* Connects to a running QEMU of an earlier daemon. ERR_NOT_FOUND: the process has ended.
 * on_ready follows; or on_ended, if its guest ended meanwhile, with QEMU_END_SHUTDOWN for a
 * restart too. */
struct qemu_mark {
	pid_t pid;
	uint64_t start_time; /* field 22 of /proc/PID/stat */
};
int qemu_adopt(struct loop *loop, const char *dir, const struct qemu_mark *mark,
	const struct qemu_ops *ops, void *arg, struct qemu **ret, struct err *err);
void qemu_free(struct qemu *qemu); /* disconnects, QEMU runs on; accepts NULL */
void qemu_set_ops(struct qemu *qemu, const struct qemu_ops *ops, void *arg);

struct qemu_mark qemu_get_mark(const struct qemu *qemu);
int qemu_get_pidfd(const struct qemu *qemu); /* borrowed */
const char *qemu_get_dir(const struct qemu *qemu);
bool qemu_is_ready(const struct qemu *qemu);
/* Moves its folder: to that of a box, when a waiting QEMU is taken. */
int qemu_rename(struct qemu *qemu, const char *dir, struct err *err);
/* A connection to one of its sockets, non-blocking; yours. */
int qemu_connect(const char *dir, const char *name, int *ret, struct err *err);
void qemu_kill(struct qemu *qemu); /* on_ended follows */
/* Kills it and waits, for three seconds at most; on_ended is not called. Free it then. */
void qemu_wait_end(struct qemu *qemu);
/* Removes its folder, which must no longer be in use. */
void qemu_remove_dir(const char *dir);

/* The maximum memory of QEMU besides the RAM: for the limit of its cgroup. */
uint64_t qemu_overhead_bytes(const struct qemu_machine *machine);
/* A key of the accelerator, the program's build and its command line: a state can only be loaded
 * with the same key. Yours; NULL: there is no such program. */
char *qemu_key(const struct qemu_machine *machine, struct err *err);

/* ---- qemu_verbs.c --------------------------------------------------------------------------- */

/* Verbs are carried out one at a time, in the order of the calls; err NULL: success. From the
 * loop. No callback after qemu_free. Errors as in qmp.h; if QEMU ends meanwhile:
 * ERR_UNAVAILABLE, and on_ended follows. */
typedef void (*qemu_done)(struct qemu *qemu, const struct err *err, void *arg);

/* Loads the device state in fd (written by qemu_save; QEMU reads it itself) into a waiting QEMU:
 * RAM is mapped before, disks are attached afterwards. It is paused then. ERR_PROTOCOL when the
 * state does not fit; that QEMU cannot be used any more. */
void qemu_load(struct qemu *qemu, int fd, qemu_done done, void *arg);
/* Replaces placeholders by files, each once: image O_RDONLY, disk O_RDWR | O_DIRECT; -1:
 * unchanged. QEMU must have loaded its state and be paused. */
void qemu_attach(struct qemu *qemu, int image, int disk, qemu_done done, void *arg);
void qemu_cont(struct qemu *qemu, qemu_done done, void *arg);
/* When done is called, no guest instruction runs and the kernel has all writes to the disk. */
void qemu_stop(struct qemu *qemu, qemu_done done, void *arg);
/* Writes the device state without RAM of a stopped QEMU into fd (writable, empty); the guest can
 * continue. QEMU itself never gets that file, because it could change the record later.
 * ERR_TOO_LARGE over QEMU_STATE_MAX. */
enum { QEMU_STATE_MAX = 16 << 20 };
/* Does a part of the next qemu_save in advance, while the guest runs. Optional. */
void qemu_prepare_save(struct qemu *qemu, qemu_done done, void *arg);
void qemu_save(struct qemu *qemu, int fd, qemu_done done, void *arg);
/* Reports a new size to QEMU: the disk's file has grown to bytes already. */
void qemu_resize(struct qemu *qemu, uint64_t bytes, qemu_done done, void *arg);
/* Asks QEMU to quit; kills it after a second. on_ended follows. */
void qemu_quit(struct qemu *qemu);

/* Moves the process into another cgroup. Done in a helper, in parallel to the other verbs: the
 * kernel takes milliseconds for it. */
void qemu_move(
	struct qemu *qemu, struct cgroup_tree *tree, const char *group, qemu_done done, void *arg);

typedef void (*qemu_status_done)(
	struct qemu *qemu, enum qemu_status status, const struct err *err, void *arg);
void qemu_query_status(struct qemu *qemu, qemu_status_done done, void *arg);

struct qemu_io { /* of the disk and the image together, since it was started */
	uint64_t read_bytes, written_bytes;
};
typedef void (*qemu_io_done)(
	struct qemu *qemu, const struct qemu_io *io, const struct err *err, void *arg);
void qemu_query_io(struct qemu *qemu, qemu_io_done done, void *arg);

/* The console output since the last call, at most QEMU_CONSOLE_BYTES; borrowed, printable. */
typedef void (*qemu_console_done)(
	struct qemu *qemu, const char *text, const struct err *err, void *arg);
void qemu_read_console(struct qemu *qemu, qemu_console_done done, void *arg);
