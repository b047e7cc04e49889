/* cgroup.h - control groups on any layout: v2 alone, v1 alone, or v1 controllers beside a v2 tree
 *
 * A tree is the directory NAME at the top of every hierarchy in use; a group is a directory ID in
 * each of them. A group is named by its id alone: no object is kept for it and no file is held
 * open, so a new daemon can use the groups of the one before it at once.
 *
 * Groups that share limits are in a shared group: their ids are "tree-NAME/ID". "tree-NAME" is made
 * with the first of them and removed with the last; it is also an id, for limits and statistics of
 * all groups in it. "." is the tree itself. */
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

/* Pure: parses the text of /proc/self/mountinfo. v2_controllers stays 0. */
void cgroup_layout_parse(const char *mountinfo, struct cgroup_layout *ret);
/* Pure: the bits of the names in a cgroup.controllers file. */
unsigned cgroup_controllers_parse(const char *text);
int cgroup_layout_read(struct cgroup_layout *ret, struct err *err);
void cgroup_layout_done(struct cgroup_layout *layout);
/* "v2", "v1+v2", "v1" or "none". */
const char *cgroup_layout_name(const struct cgroup_layout *layout);
bool cgroup_layout_has(const struct cgroup_layout *layout, enum cgroup_controller controller);

/* ---- a tree and its groups (cgroup.c) -------------------------------------------------------- */

struct cgroup_tree;

/* Makes the directory name in every hierarchy and enables the controllers for it. A controller that
 * is not available is left out; see cgroup_tree_has. */
int cgroup_tree_open(const char *name, struct cgroup_tree **ret, struct err *err);
void cgroup_tree_close(
	struct cgroup_tree *tree); /* removes its directories if they are empty; accepts NULL */
const char *cgroup_tree_layout(const struct cgroup_tree *tree);
bool cgroup_tree_has(const struct cgroup_tree *tree, enum cgroup_controller controller);
/* True when processes can be started in groups (clone3); otherwise they join by themselves, see
 * cgroup_join. */
bool cgroup_tree_has_v2(const struct cgroup_tree *tree);
#define CGROUP_SHARED "tree-" /* the prefix of shared groups */
enum { CGROUP_ID_SIZE = 128 };
/* Calls fn with the id of every group, "tree-NAME/ID" for one in a shared group. Removes shared
 * groups that are empty. */
void cgroup_tree_each(struct cgroup_tree *tree, void (*fn)(const char *id, void *arg), void *arg);
/* Finds a group by the last part of its id. False: there is none. */
bool cgroup_find_id(struct cgroup_tree *tree, const char *last, char ret[CGROUP_ID_SIZE]);

struct cgroup_limits { /* 0: unlimited */
	uint64_t cpu_milli;
	uint64_t memory_bytes;
	uint64_t pids;
};

/* Fails with ERR_UNSUPPORTED when a limit has no controller. On failure nothing is left behind. */
int cgroup_create(struct cgroup_tree *tree, const char *id, const struct cgroup_limits *limits,
	struct err *err);
/* Changes the limits of a group that is in use; 0 lifts a limit. Fails with ERR_UNSUPPORTED as
 * above. Fails with ERR_STATE, and changes nothing, when more memory is in use than the new limit
 * allows and the kernel cannot reclaim enough. */
int cgroup_limit(struct cgroup_tree *tree, const char *id, const struct cgroup_limits *limits,
	struct err *err);
/* Gives the v2 group to uid, who may then make groups in it (bounded in number). */
int cgroup_delegate(struct cgroup_tree *tree, const char *id, uid_t uid, struct err *err);
/* Opens the v2 directory for clone_process, and makes it if needed; *ret is -1 where there is no v2
 * tree. May be called before cgroup_create: a process that waits can be started while its limits
 * are being set. */
int cgroup_open_v2(struct cgroup_tree *tree, const char *id, int *ret, struct err *err);

/* A process enters v1 groups by itself, through fds that its parent opened: moving oneself needs
 * none of the locks that moving another process waits for (which can take milliseconds). */
enum { CGROUP_JOIN_MAX = 6 };
struct cgroup_join {
	int fds[CGROUP_JOIN_MAX];
	size_t count;
};
int cgroup_join_open(
	struct cgroup_tree *tree, const char *id, struct cgroup_join *ret, struct err *err);
int cgroup_join_enter(
	/* called in the child; allocates nothing */
	const struct cgroup_join *join, struct err *err);
void cgroup_join_done(struct cgroup_join *join);
/* Moves another process with all its threads. The kernel stops all forks of the machine for it,
 * which takes milliseconds: the daemon opens the files, a helper calls cgroup_move. Memory that the
 * process already has stays charged to its old group. Fails with ERR_NOT_FOUND when it does not
 * run. */
int cgroup_move_open(
	struct cgroup_tree *tree, const char *id, struct cgroup_join *ret, struct err *err);
int cgroup_move(const struct cgroup_join *join, pid_t pid, struct err *err);

/* Makes a group with a CPU limit and nothing else, for work done for a box outside it
 * (cgroup_work.c). A process enters it through *ret, or through *ret_v2, which is yours, at its
 * clone; both are unset where there is no CPU controller. cgroup_remove removes it. */
int cgroup_work_open(struct cgroup_tree *tree, const char *id, uint64_t cpu_milli,
	struct cgroup_join *ret, int *ret_v2, struct err *err);

/* Kills everything in the group and in groups below it. A missing group is not an error. */
int cgroup_kill(struct cgroup_tree *tree, const char *id, struct err *err);
/* Freezes or thaws all processes of the group and returns when that is done. Fails with ERR_TIMEOUT
 * after a second, and then they are thawed. A frozen group can be killed. */
int cgroup_freeze(struct cgroup_tree *tree, const char *id, bool frozen, struct err *err);
/* Freezes, but waits only for the given time. ERR_TIMEOUT: some processes have not stopped yet, and
 * stop as soon as they leave the kernel; call again, or thaw all with cgroup_freeze. */
int cgroup_freeze_try(struct cgroup_tree *tree, const char *id, int64_t bound_us, struct err *err);
/* The path of the group in the hierarchy that freezes it; NULL where groups cannot be frozen. Yours
 * to free. */
char *cgroup_freezer_path(const struct cgroup_tree *tree, const char *id);
bool cgroup_exists(const struct cgroup_tree *tree, const char *id);
bool cgroup_is_populated(struct cgroup_tree *tree, const char *id);
/* Fails with ERR_STATE while a process is in it. A missing group is not an error. */
int cgroup_remove(struct cgroup_tree *tree, const char *id, struct err *err);
bool cgroup_holds(struct cgroup_tree *tree, const char *id, pid_t pid);

/* ---- waiting at the memory limit (cgroup_hold.c) -------------------------------------------- */

/* With hold, a process that would be killed for the group's memory limit waits instead (v1), or is
 * slowed down shortly before the limit (v2); cgroup_oom_watch reports both. limit is the one that
 * is set, 0: none. Call again when the limit changes. */
#define CGROUP_HOLD_ITS_LIMIT UINT64_MAX /* whatever limit the group has */
int cgroup_hold(
	struct cgroup_tree *tree, const char *id, uint64_t limit, bool hold, struct err *err);
/* True while a process waits for memory; v1 only. */
bool cgroup_memory_waits(struct cgroup_tree *tree, const char *id);
/* True when almost all memory below the limit is in use and the kernel cannot reclaim it. Reads a
 * large file. */
bool cgroup_memory_is_tight(struct cgroup_tree *tree, const char *id, uint64_t limit);
/* As above, and so close to the limit that the next system call which needs memory fails; v1 only:
 * v2 slows the group down well below the limit. */
bool cgroup_memory_is_at_brim(struct cgroup_tree *tree, const char *id, uint64_t limit);
/* How often the group reached its limit so far, also when the kernel could reclaim enough
 * memory. */
uint64_t cgroup_memory_refused(struct cgroup_tree *tree, const char *id);
/* Watches for forks that the process limit refused: returns a watch of the inotify fd, -1 when that
 * is not possible. */
int cgroup_pids_watch(struct cgroup_tree *tree, const char *id, int inotify_fd);

/* ---- the machine (cgroup_machine.c) --------------------------------------------------------- */

/* Pure: how much of the given amounts boxes may use together, so that the machine itself stays
 * usable. */
struct cgroup_limits cgroup_machine_share(uint64_t memory_bytes, uint64_t pids);
/* The limits of this machine for all boxes together, to be set on ".". CPU time is not limited: it
 * is always shared. */
struct cgroup_limits cgroup_machine_limits(const struct cgroup_tree *tree);

/* ---- figures (cgroup_stats.c) --------------------------------------------------------------- */

struct cgroup_stats { /* 0 where the machine cannot tell */
	uint64_t cpu_us;
	uint64_t throttled_us;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	uint64_t memory_held_bytes; /* without the page cache */
	uint64_t processes;
	uint64_t threads; /* threads of the group and of groups below it; what the process limit
			   * counts */
	uint64_t oom_kills;
	uint64_t pids_refused;
};
int cgroup_stats(
	struct cgroup_tree *tree, const char *id, struct cgroup_stats *ret, struct err *err);
/* How many processes of the group the kernel has killed for memory so far. */
uint64_t cgroup_oom_kills(struct cgroup_tree *tree, const char *id);

/* CPU time used so far in microseconds, and bytes read and written where the tree counts them;
 * cheap. */
uint64_t cgroup_cpu_us(struct cgroup_tree *tree, const char *id);
uint64_t cgroup_io_bytes(struct cgroup_tree *tree, const char *id);

/* Memory that v1 counts for TCP and UDP sockets; the kernel lets it exceed the limit where it
 * cannot refuse. 0 on v2. */
uint64_t cgroup_socket_bytes(struct cgroup_tree *tree, const char *id);

/* How much is left below the limit of memory (bytes) or processes; UINT64_MAX: no limit. */
uint64_t cgroup_room(struct cgroup_tree *tree, const char *id, enum cgroup_controller controller);

/* How many forks the kernel has refused for the group's process limit so far. */
uint64_t cgroup_pids_refused(struct cgroup_tree *tree, const char *id);

/* The processes of the group itself, not of groups below it; at most max. */
size_t cgroup_pids(struct cgroup_tree *tree, const char *id, pid_t *ret, size_t max);
/* The processes of the group and of groups below it. Returns more than max when there are more; ret
 * then holds the first max. */
size_t cgroup_pids_below(struct cgroup_tree *tree, const char *id, pid_t *ret, size_t max);

/* Watches for out-of-memory kills: v1 gives an eventfd for each group (*ret_fd, yours), v2 a watch
 * of the shared inotify fd (*ret_wd). The other one is set to -1; both are when there is no memory
 * controller. */
int cgroup_oom_watch(struct cgroup_tree *tree, const char *id, int inotify_fd, int *ret_fd,
	int *ret_wd, struct err *err);
