/* bench_internal.h - shared by the files of `box bench`
 *
 * bench.c    see bench.h: chooses rows and their order, and cleans up
 * items.c    the table of rows
 * box.c      our boxes: the rows that use the API
 * cli.c      the rows that start a program: the command line, and the baseline
 * disk.c     disks and images, compared with the host's file system
 * net.c      the network of a box: the measuring process; net_rig.c its test network,
 *            net_load.c its own load
 * states.c   suspend, hibernate, snapshot, rollback and fork; wake.c waking boxes, and many
 *            sleeping ones
 * vm.c       boxes with their own kernel
 * peers.c    other sandboxes on this machine, each with options that work here
 * spawn.c    starts and times programs, all in the same way
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
	ROW_FLOW, /* likewise, with small numbers */
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
	size_t runs; /* this and the next: set by bench_row_finish() */
	double p50, p95, p99;
	double ratio; /* p50 of a peer divided by ours; 0 when unknown */
};

void bench_row_add(struct bench_row *row, double value);
/* Appends to the note, separated by "; ". */
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
	double exit;	    /* start until the program was reaped */
	size_t bytes;	    /* of stdout */
	char head[16];	    /* its beginning, NUL-terminated */
};

/* Runs the program to its end with stdout on a pipe, and waits for the processes it left behind,
 * so that the next measurement starts on a quiet machine. Fails with the last line of stderr
 * when the exit code is not 0, and with ERR_TIMEOUT after limit_ms. */
int bench_program_run(const struct bench_program *program, unsigned limit_ms,
	struct bench_times *ret, struct err *err);
/* Path of an installed program, yours to free; NULL when PATH does not have it. */
char *bench_program_find(const char *name);

/* --- memory in MiB (memory.c) --- */

int bench_memory_of(pid_t pid, double *ret, struct err *err); /* resident */
int bench_memory_own(
	pid_t pid, double *ret, struct err *err); /* resident, without files; exact to the page */
/* Memory that the host can still give. Other programs use the machine too, so this is the median
 * of a few readings within a second. */
int bench_memory_available(double *ret, struct err *err);
int bench_memory_cached(double *ret, struct err *err); /* the page cache */

/* --- our boxes (box.c) --- */

struct bench_boxes;

/* Finds the daemon behind client (borrowed, like socket). Every box made here has one label, by
 * which bench_boxes_close finds it. */
int bench_boxes_open(
	struct client *client, const char *socket, struct bench_boxes **ret, struct err *err);
/* Removes every box of this run. Accepts NULL. */
void bench_boxes_close(struct bench_boxes *boxes);
/* Name of a running box to start programs in, made on first use; borrowed. */
int bench_boxes_resident(struct bench_boxes *boxes, const char **ret, struct err *err);
/* Id of the image that new boxes start from; borrowed. */
int bench_boxes_image(struct bench_boxes *boxes, const char **ret, struct err *err);
/* Resident memory of the daemon in MiB. */
int bench_boxes_daemon_rss(struct bench_boxes *boxes, double *ret, struct err *err);

int bench_create_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_create(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_remove(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_exec_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_round_trip(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_list_boxes(struct bench_boxes *boxes, double *ret, struct err *err);

/* Makes boxes until count of ours are idle at once, and calls on_made after each (false stops
 * with ERR_CANCELLED). *ret_per_box is the host's memory per box, in MiB. */
int bench_boxes_fill(struct bench_boxes *boxes, size_t count,
	bool (*on_made)(size_t made, void *arg), void *arg, double *ret_per_box, struct err *err);
/* Makes another running box; its name is yours. */
int bench_boxes_make(struct bench_boxes *boxes, char **ret, struct err *err);
/* The same from this image; *ret_ms is how long it took. */
int bench_boxes_make_from(
	struct bench_boxes *boxes, const char *image, char **ret, double *ret_ms, struct err *err);
/* The same with additional members in the request's body, each after a comma; ret_ms may be
 * NULL. */
int bench_boxes_make_with(struct bench_boxes *boxes, const char *members, char **ret,
	double *ret_ms, struct err *err);
/* Runs `echo hi` in the box, to its first byte. */
int bench_boxes_echo(struct bench_boxes *boxes, const char *name, double *ret, struct err *err);
/* *ret is the time until the response; ret may be NULL. Returns when the box is completely
 * removed. */
int bench_boxes_remove(struct bench_boxes *boxes, const char *name, double *ret, struct err *err);
/* Runs `sh -ec script` in the box to its end; fails with its last line when the exit code is not
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
/* While the streams run, rss (if given) records the daemon's memory. */
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

/* A folder with the files of the image of new boxes, for the peers; borrowed. */
int bench_disk_rootfs(struct bench_boxes *boxes, const char **ret, struct err *err);

/* ERR_UNSUPPORTED: a requirement is missing; the row is skipped. */
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
	double first_grown, second_grown; /* growth of the host's page cache meanwhile, in MiB */
};
int bench_page_cache(struct bench_boxes *boxes, struct bench_page_cache *ret, struct err *err);

/* --- states (states.c) --- */

/* Each gives two figures; the table of rows says what the second is. */
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
const char *bench_states_parts(void); /* programs in the working box; "" until it exists */
void bench_states_done(struct bench_boxes *boxes); /* removes boxes and images */

/* For wake.c: the small box, awake, borrowed; a call without a body (ret_ms may be NULL); starts
 * a program that keeps running and waits until it has made the file up (NULL: does not wait);
 * whether the box has a program. */
int bench_states_small(struct bench_boxes *boxes, const char **ret, struct err *err);
int bench_states_post(struct bench_boxes *boxes, const char *box, const char *verb, double *ret_ms,
	struct err *err);
int bench_states_start(struct bench_boxes *boxes, const char *box, const char *const *argv,
	bool tty, const char *up, struct err *err);
/* ret_paused: as reported by the daemon. The children are removed. */
int bench_states_fork(struct bench_boxes *boxes, const char *box, unsigned count, double *ret,
	double *ret_paused, struct err *err);
bool bench_states_has(struct bench_boxes *boxes, const char *box, const char *program);

/* --- sleeping boxes (wake.c) --- */

/* ERR_UNSUPPORTED where boxes do not wake automatically. */
int bench_resume(struct bench_boxes *boxes, double *ret, double *ret_answer, struct err *err);
int bench_wake_exec(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_wake_exec_hibernated(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_url_awake(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_wake_url(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_wake_url_hibernated(struct bench_boxes *boxes, double *ret, struct err *err);
/* 200 suspended boxes: CPU milliseconds they use in two seconds, and kB of the daemon per box. */
int bench_suspended(struct bench_boxes *boxes, double *ret, double *ret_memory, struct err *err);
/* kB of the daemon per box */
int bench_hibernated(struct bench_boxes *boxes, double *ret, struct err *err);
const char *bench_hibernated_about(void);
void bench_wake_done(struct bench_boxes *boxes); /* removes the boxes */

/* --- boxes with their own kernel (vm.c) --- */

/* All of them: ERR_UNSUPPORTED where the daemon has no such driver. */
int bench_vm_create_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_vm_exec_first_byte(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_vm_suspend(struct bench_boxes *boxes, double *ret, double *ret_resume, struct err *err);
int bench_vm_hibernate(struct bench_boxes *boxes, double *ret, double *ret_wake, struct err *err);
int bench_vm_fork(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_vm_fork_10(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
int bench_vm_fork_dirty(
	struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err);
/* MiB of private memory of a new box, and the CPU time of a sleeping one in two seconds. */
int bench_vm_private(struct bench_boxes *boxes, double *ret, struct err *err);
int bench_vm_cpu_suspended(struct bench_boxes *boxes, double *ret, struct err *err);
const char *bench_vm_accelerator(void);	       /* "tcg" until the daemon has reported another */
void bench_vm_done(struct bench_boxes *boxes); /* removes the boxes */

/* --- other sandboxes (peers.c) --- */

enum bench_peer {
	PEER_BWRAP,
	PEER_CRUN,
	PEER_RUNC,
	PEER_PODMAN,
	PEER_RUNSC,
	PEER_PODMAN_STATE, /* these two: checkpoint and restore */
	PEER_RUNSC_STATE,
	PEER_QEMU, /* boots the kernel of our VMs */
	PEER_COUNT
};

struct bench_peers;

/* Makes a private mount namespace over rootfs (which is not changed) for all peers; needs root. */
int bench_peers_open(const char *rootfs, struct bench_peers **ret, struct err *err);
void bench_peers_close(struct bench_peers *peers); /* accepts NULL */
/* Finds the options with which the peer works here; how is borrowed and names them. */
int bench_peer_probe(
	struct bench_peers *peers, enum bench_peer peer, const char **ret_how, struct err *err);
/* Runs `echo hi` once with a probed peer: time to the first byte. For the checkpoint peers: *ret
 * is the checkpoint, *ret_second the restore. */
int bench_peer_run(struct bench_peers *peers, enum bench_peer peer, double *ret, double *ret_second,
	struct err *err);

/* --- the network (net.c) --- */

/* What is measured; values are in the unit of the row. */
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

/* Starts a process in a network namespace of its own, with its own daemon: no packet leaves the
 * machine, and the running daemon is not used. Needs root. */
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
	/* first: memory that is still being freed after many boxes would hide it */
	GROUP_STATES_MEMORY,
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
	/* At most one of these; without one, the group fills the row. */
	int (*run)(struct bench_boxes *boxes, double *ret, struct err *err);
	int (*stream)(
		struct bench_boxes *boxes, struct bench_row *rss, double *ret, struct err *err);
	bench_pair_fn pair;
	enum bench_net_what net;
	enum bench_peer peer;
	bool is_peer;
	bool is_second; /* a row of a peer that another row fills */
	/* the row that a peer is compared with; NULL: create_first_byte */
	const char *versus;
	const char *(*about)(void); /* a note for a row that was measured; may be NULL */
	/* maximum of runs, even if more were asked for; 0: no maximum; 1: also no run to warm up */
	size_t most;
	const char *second; /* the row for the second figure of each run; NULL: none */
	const char *needs;  /* rows that are measured with it, separated by blanks */
};

extern const struct bench_item bench_items[];
extern const size_t bench_items_count;
extern const char *const bench_group_titles[GROUP_COUNT];

size_t bench_item_find(const char *name); /* bench_items_count: there is none */
/* Fills the rows that are computed from others, when those are finished; rows[i] belongs to
 * bench_items[i]. */
void bench_items_derive(struct bench_row *rows);

/* True after ^C (or a closed terminal): finish the running measurement and clean up. */
bool bench_is_stopping(void);
