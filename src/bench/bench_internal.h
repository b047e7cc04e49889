/* bench_internal.h - what the files of `box bench` share
 *
 * bench.c    see bench.h: which rows, in what order, what is left behind (nothing)
 * items.c    the table of rows
 * box.c      our boxes: the rows that go through the API
 * cli.c      the rows that start a program: the command line, and the floor
 * disk.c     disks and images, side by side with the host's file system
 * net.c      the network of a box: the process that measures it; net_rig.c where it does,
 *            net_load.c its own load
 * states.c   boxes asleep, kept, taken back and copied; wake.c sleeping ones that wake, and many
 *            of them
 * vm.c       boxes with a kernel of their own
 * peers.c    the other sandboxes of this machine, each with options under which it works here
 * spawn.c    programs started and timed, the same way for everybody
 * memory.c   memory of the daemon and of the host
 * report.c   percentiles, the table and the JSON
 *
 * All times are milliseconds. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct client;

/* --- figures (report.c) --- */

struct bench_samples {
	double *values; /* owned */
	size_t count;
};

enum bench_row_kind {
	ROW_TIME, /* small is good */
	ROW_RATE, /* large is good: p95 and p99 are the slow tail all the same */
	ROW_FLOW, /* likewise, of small numbers */
	ROW_SIZE,
	ROW_RATIO,
};

struct bench_row {
	const char *name;
	const char *unit;
	enum bench_row_kind kind;
	bool peer;
	struct bench_samples samples;
	char note[320]; /* why there are fewer runs or none; how a peer was run */
	bool failed;
	size_t runs; /* this and the next: after bench_row_finish() */
	double p50, p95, p99;
	double ratio; /* a peer's p50 over ours; 0 when unknown */
};

void bench_row_add(struct bench_row *row, double value);
/* Appends to the note, after "; " when there is one already. */
void bench_row_note(struct bench_row *row, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void bench_row_finish(struct bench_row *row);
void bench_row_done(struct bench_row *row);
void bench_report_json(const struct bench_row *const *rows, size_t count);
void bench_report_table(const struct bench_row *const *rows, size_t count);

/* --- programs (spawn.c) --- */

struct bench_program {
	const char *const *argv; /* argv[0] is a path */
	int mount_ns;		 /* entered before exec; -1: ours */
	/* Called every few milliseconds while the program runs; may be NULL. */
	void (*on_tick)(void *arg);
	void *arg;
};

struct bench_times {
	double first_byte;  /* start to the first byte of stdout */
	double end_of_file; /* start to the end of stdout */
	double exit;	    /* start to the program reaped */
	size_t bytes;	    /* of stdout */
	char head[16];	    /* its beginning, NUL-terminated */
};

/* Runs the program to its end with stdout on a pipe to us, and waits for whatever it left behind,
 * so that the next measurement starts on a quiet machine. Fails with the last line of stderr when
 * the program does not exit with 0, and with ERR_TIMEOUT after limit_ms. */
int bench_program_run(const struct bench_program *program, unsigned limit_ms,
	struct bench_times *ret, struct err *err);
/* Path of an installed program, yours to free; NULL when PATH does not have it. */
char *bench_program_find(const char *name);

/* --- memory in MiB (memory.c) --- */

int bench_memory_of(pid_t pid, double *ret, struct err *err); /* resident */
int bench_memory_own(
	pid_t pid, double *ret, struct err *err); /* resident and of no file; exact to the page */
/* What the host could still give. Others use the machine too: the middle one of a few looks, spread
 * over a second. */
int bench_memory_available(double *ret, struct err *err);
int bench_memory_cached(double *ret, struct err *err); /* the page cache */

/* --- our boxes (box.c) --- */

struct bench_boxes;

/* Finds the daemon behind client (borrowed, like socket). Every box made here carries one label, by
 * which the last of them goes. */
int bench_boxes_open(
	struct client *client, const char *socket, struct bench_boxes **ret, struct err *err);
/* Removes every box of this run. accepts NULL. */
void bench_boxes_close(struct bench_boxes *boxes);
/* Name of a running box to start programs in, made on first use; borrowed. */
int bench_boxes_resident(struct bench_boxes *boxes, const char **ret, struct err *err);
/* Id of the image that new boxes start from; borrowed. */
int bench_boxes_image(struct bench_boxes *boxes, const char **ret, struct err *err);
/* MiB the daemon holds now. */
int bench_boxes_daemon_rss(struct bench_boxes *boxes, double *ret, struct err *err);

int bench_create_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_create(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_remove(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_exec_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_round_trip(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_list_boxes(struct bench_boxes *boxes, double *ret, struct err *err);

/* Makes boxes until count of ours idle at once, calling on_made after each (a return of false stops
 * with ERR_CANCELLED). *ret_per_box is the host's memory for each, in MiB. */
int bench_boxes_fill(struct bench_boxes *boxes, size_t count,
	bool (*on_made)(size_t made, void *arg), void *arg, double *ret_per_box, struct err *err);
/* Another running box of this run; its name is yours. */
int bench_boxes_make(struct bench_boxes *boxes, char **ret, struct err *err);
/* Likewise from this image; *ret_ms is how long it took. */
int bench_boxes_make_from(
	struct bench_boxes *boxes, const char *image, char **ret, double *ret_ms, struct err *err);
/* Likewise with these members of the request's body, each after a comma; ret_ms may be NULL. */
int bench_boxes_make_with(struct bench_boxes *boxes, const char *members, char **ret,
	double *ret_ms, struct err *err);
/* `echo hi` in the box, to its first byte. */
int bench_boxes_echo(struct bench_boxes *boxes, const char *name, double *ret, struct err *err);
/* ret may be NULL: ms until it was answered. Returns when all of it is gone. */
int bench_boxes_remove(struct bench_boxes *boxes, const char *name, double *ret, struct err *err);
/* `sh -ec script` in the box, to its end; fails with its last words when it does not exit with
 * 0. */
int bench_boxes_run(struct bench_boxes *boxes, const char *name, const char *script, double *ret,
	struct err *err);
struct client *bench_boxes_get_client(struct bench_boxes *boxes);
const char *bench_boxes_get_socket(const struct bench_boxes *boxes);
/* How many boxes the daemon lists. */
size_t bench_boxes_count(struct bench_boxes *boxes);
/* Removes the boxes bench_boxes_fill() made. */
void bench_boxes_drain(struct bench_boxes *boxes);

/* --- the command line (cli.c) --- */

int bench_floor_exec(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_exec_cli(struct bench_boxes *boxes, double *ret, struct err *err);
/* The streams feed rss, when given, with the daemon's memory while they run. */
int bench_stdout_stream(
	struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err);
int bench_cp_in(struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err);
int bench_cp_out(struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err);
void bench_cli_done(void); /* removes the files */

/* --- disks and images (disk.c) --- */

struct bench_disk_options {
	const char *tar;	 /* root file system to import; NULL: the base image's own */
	const char *host_dir;	 /* NULL: /var/tmp */
	const char *npm_project; /* NULL: none, and no such rows */
};
void bench_disk_configure(const struct bench_disk_options *options); /* strings are borrowed */
void bench_disk_done(void);					     /* removes the files */

/* A folder with the files of the image that new boxes start from, for the peers; borrowed. */
int bench_disk_rootfs(struct bench_boxes *boxes, const char **ret, struct err *err);

/* ERR_UNSUPPORTED: there is nothing to measure with; the row is skipped. */
int bench_image_save(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_remove_full(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_image_import(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_untar_box(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_untar_host(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_npm_box(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_npm_host(struct bench_boxes *boxes, double *ret, struct err *err);

struct bench_page_cache {
	double first_ms,
		second_ms; /* reading the same files of the image in one box, then in another */
	double first_grown, second_grown; /* what the host's page cache grew by meanwhile, in MiB */
};
int bench_page_cache(struct bench_boxes *boxes, struct bench_page_cache *ret, struct err *err);

/* --- states (states.c) --- */

/* Each gives two figures; what the second is says the table of rows. */
typedef int (*bench_pair_fn)(
	struct bench_boxes *boxes, double *ret, double *ret_second, struct err *err);
int bench_suspend(struct bench_boxes *boxes, double *ret, double *ret_resume, struct err *err);
int bench_hibernate_small(
	struct bench_boxes *boxes, double *ret, double *ret_wake, struct err *err);
int bench_hibernate_work(struct bench_boxes *boxes, double *ret, double *ret_wake, struct err *err);
int bench_fork_small(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_fork_work(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_fork_ten(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_fork_ten_work(
	struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_fork_big(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_snapshot_small(
	struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_snapshot_work(
	struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_rollback_small(
	struct bench_boxes *boxes, double *ret, double *ret_forget, struct err *err);
int bench_rollback_work(
	struct bench_boxes *boxes, double *ret, double *ret_forget, struct err *err);
int bench_new_golden(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_new_golden_work(struct bench_boxes *boxes, double *ret, struct err *err);
const char *bench_states_parts(void); /* what the working box consists of; "" until it is there */
void bench_states_done(struct bench_boxes *boxes); /* removes boxes and images */

/* For wake.c: the small box, awake, borrowed; a call without a body (ret_ms may be NULL); a
 * program that runs on, waited for until it has made the file up (NULL: not waited for); whether
 * the box has a program. */
int bench_states_small(struct bench_boxes *boxes, const char **ret, struct err *err);
int bench_states_post(struct bench_boxes *boxes, const char *box, const char *verb, double *ret_ms,
	struct err *err);
int bench_states_start(struct bench_boxes *boxes, const char *box, const char *const *argv,
	bool tty, const char *up, struct err *err);
/* ret_paused: as the daemon tells. The children are removed. */
int bench_states_fork(struct bench_boxes *boxes, const char *box, unsigned count, double *ret,
	double *ret_paused, struct err *err);
bool bench_states_has(struct bench_boxes *boxes, const char *box, const char *program);

/* --- sleeping boxes (wake.c) --- */

/* ERR_UNSUPPORTED where boxes do not wake by themselves. */
int bench_resume(struct bench_boxes *boxes, double *ret, double *ret_answer, struct err *err);
int bench_wake_exec(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_wake_exec_hibernated(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_url_awake(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_wake_url(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_wake_url_hibernated(struct bench_boxes *boxes, double *ret, struct err *err);
/* 200 of them: ms of processor that they use in two seconds, and kB of the daemon for each. */
int bench_suspended(struct bench_boxes *boxes, double *ret, double *ret_memory, struct err *err);
int bench_hibernated(struct bench_boxes *boxes, double *ret, struct err *err); /* kB for each */
const char *bench_hibernated_about(void);
void bench_wake_done(struct bench_boxes *boxes); /* removes the boxes */

/* --- boxes with a kernel of their own (vm.c) --- */

/* All of them: ERR_UNSUPPORTED where the daemon has no such driver. */
int bench_vm_create_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_vm_exec_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_vm_suspend(struct bench_boxes *boxes, double *ret, double *ret_resume, struct err *err);
int bench_vm_hibernate(struct bench_boxes *boxes, double *ret, double *ret_wake, struct err *err);
int bench_vm_fork(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_vm_fork_10(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_vm_fork_dirty(
	struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
/* MiB that a new box has for itself, and what its processor does in two seconds of sleep. */
int bench_vm_private(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_vm_cpu_suspended(struct bench_boxes *boxes, double *ret, struct err *err);
const char *bench_vm_accelerator(void);	       /* "tcg" until the daemon has said otherwise */
void bench_vm_done(struct bench_boxes *boxes); /* removes the boxes */

/* --- the others (peers.c) --- */

enum bench_peer {
	PEER_BWRAP,
	PEER_CRUN,
	PEER_RUNC,
	PEER_PODMAN,
	PEER_RUNSC,
	PEER_PODMAN_STATE, /* these two: to disk and back */
	PEER_RUNSC_STATE,
	PEER_QEMU, /* boots the kernel of our VMs */
	PEER_COUNT
};

struct bench_peers;

/* A private mount namespace over rootfs (which stays untouched) for all peers; needs root. */
int bench_peers_open(const char *rootfs, struct bench_peers **ret, struct err *err);
void bench_peers_close(struct bench_peers *peers); /* accepts NULL */
/* Finds the options under which the peer works here; how is borrowed and says which. */
int bench_peer_probe(
	struct bench_peers *peers, enum bench_peer peer, const char **ret_how, struct err *err);
/* A probed peer runs `echo hi` once: time to the first byte. Those of states: *ret is the
 * checkpoint, *ret_second the restore. */
int bench_peer_run(struct bench_peers *peers, enum bench_peer peer, double *ret, double *ret_second,
	struct err *err);

/* --- the network (net.c) --- */

/* What is measured there; values are in the unit of the row. */
enum bench_net_what {
	NET_NOTHING,
	NET_NETNS,
	NET_SETUP,
	NET_TEARDOWN,
	NET_CREATE,
	NET_FIRST,
	NET_FIRST_DIRECT,
	NET_CONNECT,
	NET_CONNECT_DIRECT,
	NET_PING,
	NET_PING_DIRECT,
	NET_SEND,
	NET_SEND_DIRECT,
	NET_SEND_LOOPBACK,
	NET_RECEIVE,
	NET_RECEIVE_DIRECT,
	NET_RECEIVE_LOOPBACK,
	NET_FLOWS,
	NET_FLOWS_DIRECT,
	NET_INGRESS,
	NET_INGRESS_DIRECT,
	NET_REQUEST,
	NET_REQUEST_DIRECT,
	NET_ANSWERS,
	NET_ADD_BOX, /* no figure: one more idle box */
	NET_WHAT_COUNT
};

struct bench_net;

/* A process in a network of its own, with a daemon of its own: no packet leaves the machine, and
 * the running daemon is not asked. Needs root. */
int bench_net_open(struct bench_net **ret, struct err *err);
void bench_net_close(struct bench_net *net); /* with its boxes; accepts NULL */
/* *ret_second is the figure of the row's `second`. */
int bench_net_run(struct bench_net *net, enum bench_net_what what, double *ret, double *ret_second,
	struct err *err);

/* --- the rows (items.c) --- */

enum { BENCH_ITEMS_MAX = 160 };

enum bench_group {
	GROUP_COLD,
	GROUP_VERBS,
	GROUP_STREAMS,
	GROUP_DISK,
	GROUP_REMOVAL,
	GROUP_FILES,
	GROUP_CACHE,
	GROUP_IMPORT,
	GROUP_MANY,
	GROUP_STATES_MEMORY, /* first: memory that many boxes have left would hide it */
	GROUP_STATES,
	GROUP_STATES_MANY,
	GROUP_VM,
	GROUP_NET,
	GROUP_NET_MANY,
	GROUP_DERIVED,
	GROUP_COUNT
};

struct bench_item {
	const char *name;
	const char *unit;
	enum bench_row_kind kind;
	enum bench_group group;
	const char *summary;
	/* At most one of these; without any the row is filled by its group. */
	int (*run)(struct bench_boxes *boxes, double *ret, struct err *err);
	int (*stream)(
		struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err);
	bench_pair_fn pair;
	enum bench_net_what net;
	enum bench_peer peer;
	bool is_peer;
	bool is_second;		    /* a peer's row that another one fills */
	const char *versus;	    /* row that a peer is compared with; NULL: create_first_byte */
	const char *(*about)(void); /* a note for a row that was measured; may be NULL */
	/* runs, whatever was asked for; 0: any number; 1: nothing is run to warm up either */
	size_t most;
	const char *second; /* row that gets the second figure of each run; NULL: there is none */
	const char *needs;  /* rows measured along with it, separated by blanks */
};

extern const struct bench_item bench_items[];
extern const size_t bench_items_count;
extern const char *const bench_group_titles[GROUP_COUNT];

size_t bench_item_find(const char *name); /* bench_items_count: there is none */
/* Fills the rows that follow from others, when those are finished; rows[i] belongs to
 * bench_items[i]. */
void bench_items_derive(struct bench_row *rows);

/* True once the person pressed ^C (or the terminal went away): finish what is under way, clean
 * up. */
bool bench_is_stopping(void);
