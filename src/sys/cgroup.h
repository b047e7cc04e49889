/* cgroup.h - control groups on any layout: v2 alone, v1 alone, or v1 controllers beside a v2 tree
 *
 * A tree is the directory NAME at the top of every hierarchy in use; a group is a directory ID in
 * each of them. A group has no object of its own: its id is enough, so nothing is held open for it
 * and an earlier process's groups need no adopting.
 *
 * Groups that share limits lie in a group of theirs: the id of such a one is "tree-NAME/ID".
 * "tree-NAME" is made with the first of them and goes with the last; it is an id too, for limits
 * and figures of all in it. "." is the tree. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum cgroup_controller {
	CGROUP_CPU,
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_CPUACCT, /* v1 only; v2 counts CPU time in every group */
	CGROUP_FREEZER, /* v1 only; v2 can freeze every group */
	CGROUP_CONTROLLER_COUNT
};
const char *cgroup_controller_name(enum cgroup_controller controller);

/* ---- layout: what is mounted where (cgroup_layout.c) ---------------------------------------- */

struct cgroup_layout {
	char *v2;			   /* where cgroup2 is mounted; NULL: nowhere */
	unsigned v2_controllers;	   /* bits of enum cgroup_controller */
	char *v1[CGROUP_CONTROLLER_COUNT]; /* where each v1 controller is mounted; NULL: nowhere */
};

/* Pure: from the text of /proc/self/mountinfo. v2_controllers stays 0. */
void cgroup_layout_parse(const char *mountinfo, struct cgroup_layout *ret);
/* Pure: bits of the names in a cgroup.controllers file. */
unsigned cgroup_controllers_parse(const char *text);
int cgroup_layout_read(struct cgroup_layout *ret, struct err *err);
void cgroup_layout_done(struct cgroup_layout *layout);
/* "v2", "v1+v2", "v1" or "none". */
const char *cgroup_layout_name(const struct cgroup_layout *layout);
bool cgroup_layout_has(const struct cgroup_layout *layout, enum cgroup_controller controller);

/* ---- a tree and its groups (cgroup.c) -------------------------------------------------------- */

struct cgroup_tree;

/* Makes the directory name in every hierarchy and hands the controllers down to it. A controller
 * that cannot be had is left out; see cgroup_tree_has. */
int cgroup_tree_open(const char *name, struct cgroup_tree **ret, struct err *err);
void cgroup_tree_close(
	struct cgroup_tree *tree); /* removes its directories where empty; accepts NULL */
const char *cgroup_tree_layout(const struct cgroup_tree *tree);
bool cgroup_tree_has(const struct cgroup_tree *tree, enum cgroup_controller controller);
/* True when processes can be born into groups: otherwise they place themselves, see cgroup_join. */
bool cgroup_tree_has_v2(const struct cgroup_tree *tree);
#define CGROUP_SHARED "tree-" /* how a group begins that holds others */
enum { CGROUP_ID_SIZE = 128 };
/* Calls fn with every group's id, "tree-NAME/ID" for one in a shared group; shared groups with
 * nothing in them go. */
void cgroup_tree_each(struct cgroup_tree *tree, void (*fn)(const char *id, void *arg), void *arg);
/* A group by the last part of its id, wherever it is. False: there is none. */
bool cgroup_find_id(struct cgroup_tree *tree, const char *last, char ret[CGROUP_ID_SIZE]);

struct cgroup_limits { /* 0: unlimited */
	uint64_t cpu_milli;
	uint64_t memory_bytes;
	uint64_t pids;
};

/* Nothing is left when it fails. ERR_UNSUPPORTED when a limit has no controller. */
int cgroup_create(struct cgroup_tree *tree, const char *id, const struct cgroup_limits *limits,
	struct err *err);
/* Limits of a group that is in use; 0 lifts one. ERR_UNSUPPORTED as above; ERR_STATE, and
 * everything stays as it was, when more memory is in use than the new limit allows and the kernel
 * could not get enough of it back. */
int cgroup_limit(struct cgroup_tree *tree, const char *id, const struct cgroup_limits *limits,
	struct err *err);
/* The v2 group is given to uid, who may then make groups of his own in it (bounded in number). */
int cgroup_delegate(struct cgroup_tree *tree, const char *id, uid_t uid, struct err *err);
/* The v2 directory, made if it is not there yet, for clone_process; -1 in *ret where there is no v2
 * tree. May come before cgroup_create: a process that waits can be born while its limits are being
 * set. */
int cgroup_open_v2(struct cgroup_tree *tree, const char *id, int *ret, struct err *err);

/* v1 groups are entered by the process itself, through fds its parent opened: moving oneself needs
 * none of the locks that moving another process waits for (it can take milliseconds). */
enum { CGROUP_JOIN_MAX = 6 };
struct cgroup_join {
	int fds[CGROUP_JOIN_MAX];
	size_t count;
};
int cgroup_join_open(
	struct cgroup_tree *tree, const char *id, struct cgroup_join *ret, struct err *err);
int cgroup_join_enter(
	const struct cgroup_join *join, struct err *err); /* in the child; allocates nothing */
void cgroup_join_done(struct cgroup_join *join);
/* The same for another process with all its threads. The kernel stops all forks of the machine for
 * it, which takes it milliseconds: the files are opened by the daemon, cgroup_move is for a helper.
 * What memory it has already stays charged where it was. ERR_NOT_FOUND when it does not run. */
int cgroup_move_open(
	struct cgroup_tree *tree, const char *id, struct cgroup_join *ret, struct err *err);
int cgroup_move(const struct cgroup_join *join, pid_t pid, struct err *err);

/* A group with a limit of CPU and nothing else, for work that is done for a box outside it
 * (cgroup_work.c). Entered by *ret, or *ret_v2, which is yours, at a clone; where there is no CPU
 * controller by neither. cgroup_remove removes it. */
int cgroup_work_open(struct cgroup_tree *tree, const char *id, uint64_t cpu_milli,
	struct cgroup_join *ret, int *ret_v2, struct err *err);

/* Everything in the group, groups below it included. A group that is not there is no error. */
int cgroup_kill(struct cgroup_tree *tree, const char *id, struct err *err);
/* All processes of the group stop where they are, or go on. Returns when they do; ERR_TIMEOUT after
 * a second, and then they go on. A frozen group can be killed. */
int cgroup_freeze(struct cgroup_tree *tree, const char *id, bool frozen, struct err *err);
/* Waits no longer than that. ERR_TIMEOUT: some run on, but only to the end of what they are about
 * in the kernel; ask again, or let all go on by cgroup_freeze. */
int cgroup_freeze_try(struct cgroup_tree *tree, const char *id, int64_t bound_us, struct err *err);
/* Where the group is frozen, as a path; NULL where it cannot be. Yours. */
char *cgroup_freezer_path(const struct cgroup_tree *tree, const char *id);
bool cgroup_exists(const struct cgroup_tree *tree, const char *id);
bool cgroup_is_populated(struct cgroup_tree *tree, const char *id);
/* ERR_STATE while a process is in it. A group that is not there is no error. */
int cgroup_remove(struct cgroup_tree *tree, const char *id, struct err *err);
bool cgroup_holds(struct cgroup_tree *tree, const char *id, pid_t pid);

/* ---- waiting at the limit of memory (cgroup_hold.c) ----------------------------------------- */

/* hold: a process that would be killed for the group's limit of memory waits instead (v1), or is
 * slowed down shortly before (v2); cgroup_oom_watch tells of both. limit as set, 0: none; to be
 * called again when it changes. */
#define CGROUP_HOLD_ITS_LIMIT UINT64_MAX /* whatever limit the group has */
int cgroup_hold(
	struct cgroup_tree *tree, const char *id, uint64_t limit, bool hold, struct err *err);
/* Whether a process waits for memory right now; v1 only. */
bool cgroup_memory_waits(struct cgroup_tree *tree, const char *id);
/* Whether next to nothing is left of the limit but what the kernel cannot take back. Reads a large
 * file. */
bool cgroup_memory_is_tight(struct cgroup_tree *tree, const char *id, uint64_t limit);
/* The same, and so near that the next system call which needs memory fails; v1 only: on v2 the
 * group is slowed down well below. */
bool cgroup_memory_is_at_brim(struct cgroup_tree *tree, const char *id, uint64_t limit);
/* How often the limit was run into, ever; also for what the kernel could make room for. */
uint64_t cgroup_memory_refused(struct cgroup_tree *tree, const char *id);
/* To be told of forks the limit of processes refused: a watch on the inotify fd, -1 when that
 * cannot be had. */
int cgroup_pids_watch(struct cgroup_tree *tree, const char *id, int inotify_fd);

/* ---- the machine (cgroup_machine.c) --------------------------------------------------------- */

/* Pure: what of so much may be given away, so that the machine itself stays of use. */
struct cgroup_limits cgroup_machine_share(uint64_t memory_bytes, uint64_t pids);
/* The limits of this machine, for ".". CPU time has none: it is always shared. */
struct cgroup_limits cgroup_machine_limits(const struct cgroup_tree *tree);

/* ---- figures (cgroup_stats.c) --------------------------------------------------------------- */

struct cgroup_stats { /* 0 where the machine cannot tell */
	uint64_t cpu_us;
	uint64_t throttled_us;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	uint64_t memory_held_bytes; /* without the cache of files */
	uint64_t processes;
	uint64_t threads; /* of all of them, itself and below; what the limit counts */
	uint64_t oom_kills;
	uint64_t pids_refused;
};
int cgroup_stats(
	struct cgroup_tree *tree, const char *id, struct cgroup_stats *ret, struct err *err);
/* Processes of the group the kernel killed for memory, ever. */
uint64_t cgroup_oom_kills(struct cgroup_tree *tree, const char *id);

/* CPU time used, ever, in microseconds, and bytes read and written where the tree counts them;
 * cheap. */
uint64_t cgroup_cpu_us(struct cgroup_tree *tree, const char *id);
uint64_t cgroup_io_bytes(struct cgroup_tree *tree, const char *id);

/* What v1 counts for sockets of TCP and UDP; the kernel lets it grow over the limit where it cannot
 * refuse. 0 on v2. */
uint64_t cgroup_socket_bytes(struct cgroup_tree *tree, const char *id);

/* How much is left below the limit of memory (bytes) or processes; UINT64_MAX: there is none. */
uint64_t cgroup_room(struct cgroup_tree *tree, const char *id, enum cgroup_controller controller);

/* Forks the kernel refused for the group's limit of processes, ever. */
uint64_t cgroup_pids_refused(struct cgroup_tree *tree, const char *id);

/* Processes of the group itself, not of groups in it; at most max. */
size_t cgroup_pids(struct cgroup_tree *tree, const char *id, pid_t *ret, size_t max);
/* Includes the processes of groups in it. Returns more than max when there are more; ret then holds
 * the first max. */
size_t cgroup_pids_below(struct cgroup_tree *tree, const char *id, pid_t *ret, size_t max);

/* To be told of kills for memory: v1 gives an eventfd of its own a group (*ret_fd, yours), v2 a
 * watch on the shared inotify fd (*ret_wd). The other one is set to -1; both are without a memory
 * controller. */
int cgroup_oom_watch(struct cgroup_tree *tree, const char *id, int inotify_fd, int *ret_fd,
	int *ret_wd, struct err *err);
