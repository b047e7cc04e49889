/* ns_internal.h - the namespaces driver: what its files share
 *
 *   ns.c       opens the driver, finds and sweeps leftovers
 *   start.c    the daemon's half of a start: cgroups, clone, id maps, overlay
 *   layers.c   how the overlay gets its layers, which differs between kernels
 *   mounts.c   folders of the host and volumes, as the box sees them
 *   spawner.c  the small process that clones for the daemon
 *   child.c    the box's half: mounts, root, privileges, exec of box-init
 *   life.c     what happens to an instance: ready, failed, ended, short of memory; adopting,
 *              letting go
 *   reach.c    calls into a running instance: connect, figures, host name
 *   profile.c  what a profile may do: capabilities, system calls, hidden paths
 *   guest.c    the files every box gets from us: device nodes, mount points, box-init
 *   capture.c  the processes of an instance into files, by CRIU
 *   restore.c  an instance from such files
 *   state.c    what the two must agree upon: which mounts are whose, CRIU's options
 *   tree.c     memory file systems as a file
 *   net_hold.c no packets while connections are written down or put back
 *   preflight.c  what in a box cannot be captured, before that is tried
 *   guard.c    terminals and open files, which the machine has together with all boxes
 *   sockets.c  what sockets hold that no cgroup counts; see sockets.h
 *   neighbours.c  addresses on a link, of which the machine has one table
 *   probe.c    what this machine can do, by trying it */
#pragma once
#include "base/alloc.h"
#include "engine/engine_internal.h"
#include "engine/groups.h"
#include "sys/cgroup.h"
#include <sys/resource.h>

struct doors_plan;
struct loop_fd;
struct loop_timer;
struct idmap_pair;
struct seccomp_program;
struct walker;

enum {
	/* User ids that belong to one box: its own 65536 and as many for users nested in it. */
	NS_IDS = 131072,
	NS_START_MS = 10000, /* a start that takes longer has failed */
	NS_SWEEP_MS = 2000,
	NS_RANGES_KEPT = 32,
};

/* Ids above those, up to 2^31 - 1, map to the same host ids for all boxes: files in archives have
 * such owners (from Windows or company directories), and tar and npm give files to them. Boxes are
 * kept apart not by these ids but because each sees only its own processes and files; what the
 * kernel counts per user it counts for all boxes together here. */
#define NS_SHARED_FIRST 0x80000000u
#define NS_SHARED_COUNT (0x80000000u - NS_IDS)
#define NS_EXTENTS(base)                                         \
	{                                                        \
		{ 0, (base), NS_IDS },                           \
		{                                                \
			NS_IDS, NS_SHARED_FIRST, NS_SHARED_COUNT \
		}                                                \
	}
enum { NS_EXTENT_COUNT = 2 };

/* ---- guest.c -------------------------------------------------------------------------------- */

enum { GUEST_NAME_SIZE = 32 };
struct guest {
	int layer; /* directory: the lower layer above every image */
	/* Directory beside it, or a mount of the same files: becomes GUEST_MOUNT in the box. */
	int bin;
	char name[GUEST_NAME_SIZE]; /* of guest_open */
};
#define GUEST_LAYER "layer" /* names of the two folders */
#define GUEST_BIN   "bin"
#define GUEST_MOUNT ".boxyard"
#define GUEST_INIT  "/" GUEST_MOUNT "/box-init"
#define GUEST_EMPTY GUEST_MOUNT "/empty" /* an empty directory, used to hide others */

/* The same for the version that was in use when a state was captured, by its name in
 * BOX_HOME/guest; and that name. */
int guest_open_named(const char *home, const char *name, struct guest *ret, struct err *err);
int guest_find_name(const char *home, int bin, char ret[GUEST_NAME_SIZE], struct err *err);
int guest_open(const char *home, const char *resolv_conf, const char *certificates,
	struct guest *ret, struct err *err);
void guest_close(struct guest *guest);
/* Makes bin a memory file system with its files, which does not tell boxes where the files lie. */
int guest_show_from_memory(const char *name, struct guest *guest, struct err *err);
/* Undoes what a box did to /dev in its own layer before it stopped, since nodes cannot be made
 * inside; also restores a removed /workspace. */
int guest_heal(int upper, struct err *err);
uint64_t guest_hash_more(uint64_t hash, const void *data, size_t len);

/* ---- containers.c --------------------------------------------------------------------------- */

/* Puts the settings of podman into the guest layer, and adds their bytes to its hash. */
int guest_make_containers(int layer, struct err *err);
uint64_t guest_hash_containers(uint64_t hash);

/* ---- layers.c ------------------------------------------------------------------------------- */

enum layers_way { LAYERS_DETACHED, LAYERS_ATTACHED };

/* What an overlay is stacked from: detached mounts, and directories on them. All lowers are in a
 * row: the guest layer, then the image's from the top down; then copies that several of them share,
 * and what the apart ones need. */
enum layer { LAYER_DISK, LAYER_GUEST, LAYER_IMAGE };
enum { LAYERS_FDS_MAX = LAYER_IMAGE + INSTANCE_LAYERS_MAX + INSTANCE_LAYERS_MAX / 2 + 4 };
struct layers {
	int fds[LAYERS_FDS_MAX]; /* -1: none */
	bool is_mount[LAYERS_FDS_MAX];
	size_t count;
	size_t lower_count;
	size_t apart; /* how many of the last lowers */
	size_t empty; /* with apart: index of an empty folder */
	bool mixed;   /* they are on several mounts, so perhaps on several file systems */
};

struct layers_spec {
	const char *const *image; /* as in struct instance_spec, apart too */
	size_t apart;
	int disk;
	int userns; /* the box's */
	int guest;  /* the guest layer */
};

struct ns_engine;
/* Finds out which method the kernel supports. */
int layers_choose(enum layers_way *ret, struct err *err);
void layers_init(struct layers *layers);
/* ret is initialised before and closed afterwards by the caller, also when this fails. */
int layers_open(struct ns_engine *engine, const struct layers_spec *spec, struct layers *ret,
	struct err *err);
void layers_close(struct ns_engine *engine, struct layers *layers);
/* Makes the overlay, detached. The layers cannot be used for anything else afterwards. uid: the
 * box's root on the host. */
int layers_stack(
	struct ns_engine *engine, struct layers *layers, uint32_t uid, int *ret, struct err *err);

/* The spawner's part of the attached method. It enters its own mount namespace once; then each
 * overlay is made, and its layers are detached, whether it worked or not. None of these
 * allocates. */
int layers_open_holder(const struct ns_engine *engine, int *ret, struct err *err);
int layers_stack_on(int holder, struct layers *layers, uint32_t uid, int *ret, struct err *err);
void layers_take_off(int holder, const struct layers *layers);

/* ---- mounts.c ------------------------------------------------------------------------------- */

enum {
	MOUNT_TARGET_MAX = 256, /* with its NUL */
	MOUNT_TARGETS_MAX = INSTANCE_MOUNTS_MAX * MOUNT_TARGET_MAX,
};

/* Checks that every target is a place where something may be mounted, before anything is made. */
int mounts_check(const struct instance_spec *spec, struct err *err);
/* Opens spec->mount_count detached mounts as the box sees them. On failure the caller closes those
 * already opened (the others stay as they were). userns: the box's. */
int mounts_open(struct ns_engine *engine, const struct instance_spec *spec, int userns, int *ret,
	struct err *err);
/* Makes copies of detached mounts that no other user namespace can make writable or free of nodev
 * and nosuid. Runs in a process with its own mount namespace, which it changes. */
int mounts_lock(const char *place, const int *fds, size_t count, int *ret, struct err *err);

/* ---- profile.c ------------------------------------------------------------------------------ */

struct hidden_path {
	const char *path;
	bool is_dir;
};
extern const struct hidden_path hidden_paths[]; /* ends with a NULL path */

uint64_t profile_capabilities(enum profile profile);
int profile_filter_new(enum profile profile, struct seccomp_program **ret, struct err *err);

/* ---- the driver and its instances ----------------------------------------------------------- */

struct ns_instance;
struct restoring;

enum cgroup_view { CGROUP_VIEW_NONE, CGROUP_VIEW_READ_ONLY, CGROUP_VIEW_OWN };

struct spawner {
	int pidfd;
	int socket;
	pid_t pid;
};

struct ns_engine {
	struct engine base;
	struct loop *loop;
	char *home;
	struct cgroup_tree *cgroups;
	struct groups *groups; /* the cgroups with their limits; borrowed */
	enum layers_way layers;
	struct guest guest;
	struct seccomp_program *filters[PROFILE_COUNT];
	struct doors_plan *doors; /* how a box's network is set up; NULL: it cannot be */
	struct err doors_problem; /* why doors is NULL */
	uint64_t hidden;	  /* bits: which of hidden_paths exist on this machine */
	char boot[40];
	int oom_score_adj;    /* of the daemon */
	struct rlimit nofile; /* as the daemon was started with; boxes get these */
	int inotify;	      /* memory events of v2 groups */
	struct loop_fd *inotify_watch;
	struct ns_instance *first;
	struct {
		struct loop_timer *timer;
		int64_t last; /* last full look */
		unsigned looks;
		bool in_between;
		unsigned few;		/* number of sockets that cannot hold much */
	} sockets;			/* see sockets.c */
	struct loop_timer *guard_timer; /* see guard.c */
	struct walker *walker;		/* see socket_walker.c */
	struct loop_timer *thaw_timer;	/* see life.c */
	unsigned thaw_count;
	struct spawner spawner;
	char *criu;  /* the program; NULL: none */
	int scratch; /* a tmpfs that becomes CRIU's /run and /tmp; -1: none */
	char *scratch_path;
	struct restoring *restorings;  /* see restore.c */
	struct criu_spare *criu_spare; /* started ahead for the next capture; NULL: none */
	struct loop_timer *criu_timer;
	struct ns_range {
		uint32_t base;
		int userns;
		/* Recently used user namespaces through which layers are seen; see restore.c. */
	} ranges[NS_RANGES_KEPT];
	unsigned range_next;
};

enum ns_state {
	NS_STARTING, /* until box-init has been executed */
	NS_RUNNING,
	NS_ENDING, /* PID 1 is gone; cgroups are being removed */
};

struct ns_instance {
	struct instance base;
	struct ns_instance *prev, *next;
	char *id;
	char *group; /* its cgroup */
	uint32_t uid_base;
	enum profile profile;
	uint64_t memory_limit;
	unsigned sockets_over; /* looks in a row that found too much in its sockets */
	struct {
		uint64_t asked; /* the request without an answer yet; 0: none */
		int64_t asked_at, not_before;
	} walk; /* see socket_walker.c */
	/* looks that found too many entries, and when the last was; see neighbours.c */
	unsigned neighbours_over;
	int64_t neighbours_at;
	uint64_t cpu_limit; /* thousandths; 0: none */
	bool frozen;
	bool adopted;		    /* from an earlier daemon */
	struct ns_capture *capture; /* the capture in progress; NULL: none */
	enum ns_state state;
	struct restoring *restoring; /* the restore in progress; NULL: none */
	/* processes stopped by a signal when a capture began; see capture.c */
	pid_t *stopped;
	size_t stopped_count;

	int pidfd;
	struct loop_fd *pidfd_watch;
	int control; /* the child reports a failed start here; closed by a successful exec */
	struct loop_fd *control_watch;
	int socket;		  /* box-init's, O_PATH; opened by the first connect */
	struct loop_timer *timer; /* limits the start, later retries the cleanup */

	int oom_fd; /* v1 */
	int oom_wd; /* v2 */
	int pids_wd;
	bool holds;		 /* processes wait at the memory limit, see engine_ops.hold */
	uint64_t memory_refused; /* as of the last look */
	bool brim_told;		 /* the lack of memory was reported, and there was no more since */
	struct loop_fd *oom_watch;
	struct loop_timer *oom_timer;
	uint64_t oom_seen; /* kills reported so far */
	int64_t oom_at;	   /* when the last kill was noticed; 0: never */

	struct timers_memory *timers; /* NULL until asked for; see timers.h */

	bool kill_asked;
	struct err failure; /* why the start failed, when known */
	enum instance_end end;
	char detail[256];
	int64_t ended_at;
};

static inline struct ns_engine *ns_engine_of(struct engine *engine)
{
	return (struct ns_engine *)engine;
}

static inline struct ns_instance *ns_instance_of(struct instance *instance)
{
	return (struct ns_instance *)instance;
}

/* life.c */
struct ns_instance *ns_instance_new(struct ns_engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg);
/* Starts watching an existing process; pidfd, mark and (when starting) control are set. */
void ns_instance_watch(struct ns_instance *instance);
int ns_adopt(struct engine *engine, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err);
int ns_kill(struct instance *instance, struct err *err);
void ns_free(struct instance *instance);
void ns_inotify_ready(void *engine, unsigned ready);

/* The start failed, and no process of it runs: on_failed follows. */
void ns_instance_fail(struct ns_instance *instance, const struct err *why);

/* ---- state.c: what a capture and a restore agree upon --------------------------------------- */

enum external_kind {
	EXTERNAL_RUN,
	EXTERNAL_SOCKET,
	EXTERNAL_SHM,
	EXTERNAL_BIN,
	EXTERNAL_HIDDEN, /* an empty folder over a path of /proc or /sys */
	EXTERNAL_CGROUP,
	EXTERNAL_CONTAINERS,
	EXTERNAL_DOCKER,
	EXTERNAL_MOUNT, /* a folder of the host, or a volume */
	EXTERNAL_KIND_COUNT
};
enum { EXTERNALS_MAX = 24 + INSTANCE_MOUNTS_MAX };
/* A mount that CRIU leaves to us. */
struct external {
	enum external_kind kind;
	bool is_file;		   /* EXTERNAL_MOUNT, in a restore */
	bool read_only;		   /* EXTERNAL_CGROUP */
	char at[MOUNT_TARGET_MAX]; /* path in the box */
};
struct state {
	char guest[GUEST_NAME_SIZE];
	uint32_t uid_base;
	bool wide; /* it has the shared ids too; states of earlier versions do not */
	enum profile profile;
	struct external externals[EXTERNALS_MAX];
	size_t external_count;
};
#define STATE_FILE	 "box.json"
#define STATE_RUN	 "run.tree"
#define STATE_LAST	 "last-pid"   /* the last pid that was given out */
#define STATE_ATTRIBUTES "attributes" /* settings of threads; attributes.c */
#define STATE_SHM	 "shm.tree"

/* Describes a running instance. targets: of the mounts it was given. */
int state_look(struct ns_instance *instance, const char *const *targets, struct state *ret,
	struct err *err);
int state_write(const struct state *state, int dir, struct err *err);
char **state_watched(struct ns_instance *instance); /* for irmap_paths; yours */
int state_read(int dir, struct state *ret, struct err *err);
struct criu_request;
void state_options(struct ns_engine *engine, struct criu_request *request);
/* "mnt[/run]:e0" for a capture, "mnt[e0]:PLACE/0" for a restore; a list as CRIU wants it, yours
 * (strv_free). */
char **state_externals(const struct state *state, const char *place);
/* Opens a folder of the box as O_PATH, safe against symlinks of the box. */
int state_open_inside(struct ns_instance *instance, const char *path, int *ret, struct err *err);

/* attributes.c: for all threads of the box with this PID 1, while they are frozen. */
int attributes_save(pid_t init, int dir, struct err *err);
void attributes_load(pid_t init, int dir); /* failures are only logged */

/* net_hold.c */
int ns_in_network(pid_t pid, int (*fn)(void *arg, struct err *err), void *arg, struct err *err);
/* Drops all packets of the box's sockets, or stops dropping them. */
int ns_net_hold(struct ns_engine *engine, pid_t pid, bool hold, struct err *err);
bool ns_has_connections(pid_t pid);

/* tree.c: saves the content of a directory on a memory file system, owned by ids from base on, into
 * a file; and back. */
int tree_save(int dir, uint32_t base, int out, struct err *err);
int tree_load(int dir, uint32_t base, int in, struct err *err);

/* capture.c */
int ns_capture(struct instance *instance, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err);
int ns_capture_rest(struct instance *instance, int dir, struct err *err);
void ns_capture_go_on(struct capture *capture, const struct err *failed);
void ns_capture_free(struct capture *capture);
int criu_open_scratch(struct ns_engine *engine, const char *run, struct err *err);
void criu_close_scratch(struct ns_engine *engine);

/* restore.c */
int ns_restore(struct ns_engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err);
/* the instance is freed before the restore has finished */
void restoring_forget(struct ns_instance *instance);
void restorings_close(struct ns_engine *engine); /* also the cached user namespaces */

/* start.c */
/* Makes the cgroups of a new instance with its limits, and tells how to join them. */
int ns_make_cgroups(struct ns_engine *engine, const struct instance_spec *spec, bool delegate,
	struct cgroup_join *ret, struct err *err);
int ns_open_disk(const struct instance_spec *spec, int *ret, struct err *err);
enum cgroup_view ns_cgroup_view(const struct ns_engine *engine, enum profile profile);
int ns_make_bin(int bin, int *ret, struct err *err);
int ns_make_containers(const struct instance_spec *spec, int disk, int userns, int *ret_containers,
	int *ret_docker, struct err *err);
int ns_start(struct engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err);

/* reach.c */
int ns_connect(struct instance *instance, int *ret_fd, struct err *err);
int ns_stats(struct instance *instance, struct instance_stats *ret, struct err *err);
/* Sets the host name; forbid_users: no more user namespaces can be made in it. */
int ns_arrange(
	struct ns_instance *instance, const char *hostname, bool forbid_users, struct err *err);
int ns_set_hostname(struct instance *instance, const char *hostname, struct err *err);
int ns_set_limits(struct instance *instance, const struct limits *limits, struct err *err);
enum instance_scope ns_memory_scope(struct instance *instance);
enum instance_scope ns_pids_scope(struct instance *instance);
uint64_t ns_pids_refused(struct instance *instance);
int ns_freeze(struct instance *instance, bool frozen, struct err *err);
int ns_pause(struct instance *instance, struct err *err);
int ns_hold_limit(struct instance *instance, bool hold, struct err *err);
bool ns_memory_full(struct instance *instance);
int ns_netns(struct instance *instance, int *ret, struct err *err);
size_t ns_pids(struct instance *instance, pid_t *ret, size_t max);

/* state.c */
void ns_look_at_state(struct engine *engine, int dir, struct instance_state_facts *ret);

/* criu_find.c */
/* The path of CRIU: as wanted, or where it was built or installed. Yours, or NULL. */
char *criu_find(const char *wanted);
/* What is wrong with the CRIU at that path (NULL: none was found), a literal; NULL: nothing. */
const char *criu_problem(const char *criu);

/* preflight.c */
/* Whether the box has anything that CRIU is known to refuse or to lose silently: ERR_STATE with the
 * process, as the box numbers it, and the reason. errno_value EAGAIN: it will be over in a moment,
 * try again. 0 also when the box has ended meanwhile. Takes a tenth of a millisecond for a small
 * box; of a very large box only a part is examined. Exact when the box is frozen. init: PID 1 of
 * the box, as we see it; id: its group. */
int ns_preflight(struct ns_engine *engine, pid_t init, const char *id, struct err *err);
/* activity.c */
int ns_activity(struct instance *instance, struct instance_activity *ret, struct err *err);
int ns_next_timer(struct instance *instance, int64_t quiet_since_us, struct instance_timer *ret,
	struct err *err);

/* Call it before a freeze or a thaw: it adjusts calls with time-outs that would not notice the
 * pause. */
void ns_timers_freeze(struct ns_instance *instance, bool frozen);

/* Freezes the box at a moment when it can be captured. With CRIU's freeze_cgroup on a group that is
 * not frozen yet, a process that waits in vfork for its frozen child makes CRIU hang until its time
 * limit, and a box that starts programs all the time is nearly always in that state. 0: the box is
 * frozen, and CRIU may start. -1: as ns_preflight, and frozen only if it was (frozen); ERR_TIMEOUT:
 * a process is in a long system call, try again. Takes some milliseconds for a busy box, a tenth of
 * a second at most. */
int ns_hold(struct ns_engine *engine, pid_t init, const char *id, bool frozen, struct err *err);

/* guard.c */
void guard_open(struct ns_engine *engine);
uint64_t guard_count_fds(pid_t pid);
/* Kills the process of the box that has the most by count_of. False: there is none but box-init. */
/* Kills every process but box-init, as far as they are examined. */
bool guard_kill_all(struct ns_instance *instance);
bool guard_kill_largest(struct ns_instance *instance, uint64_t (*count_of)(pid_t pid));
/* The same in the box that has the most, if that is more than fair. */
void guard_take_back(
	struct ns_engine *engine, const char *what, uint64_t fair, uint64_t (*count_of)(pid_t pid));
bool guard_is_scarce(uint64_t used, uint64_t most); /* most 0: unknown, so never */

/* sockets.c */
void sockets_open(struct ns_engine *engine);
void sockets_close(struct ns_engine *engine);

/* probe.c */
int ns_probe(struct engine *engine, json_t *checks, struct err *err);

/* ---- child.c: between clone and exec -------------------------------------------------------- */

/* Namespaces that the clone makes, with CLONE_NEWTIME where clone3 accepts it. The child makes the
 * others itself, in parallel to the daemon: a network namespace alone takes half a millisecond. */
#define NS_CLONE_FLAGS (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS)

/* What a child gets at its start; it sees the rest in the driver it was copied from. */
struct ns_plan {
	char hostname[65];
	uint32_t owner; /* uid that makes the user namespace: the box's root on the host */
	enum profile profile;
	enum cgroup_view cgroup_view;
	/* the clone could not make the time namespace: the child tries it itself */
	bool time_apart;
	int control; /* the child's end */
	int cgroup;  /* the v2 group; -1: none */
};

/* Messages of the daemon over the control socket: MAPPED with the cgroups to join; then ROOT with
 * the fds below, CONTAINERS and DOCKER only for a nested box, and one for each of the box's mounts.
 * The data after ROOT are the targets, each ended by a NUL. */
enum ns_word { NS_WORD_MAPPED = 1, NS_WORD_ROOT };
enum ns_fd { NS_FD_ROOT, NS_FD_BIN, NS_FD_CONTAINERS, NS_FD_DOCKER, NS_FD_COUNT };
enum { NS_FDS_MAX = (int)NS_FD_COUNT + (int)INSTANCE_MOUNTS_MAX };
_Static_assert((int)NS_FDS_MAX >= (int)CGROUP_JOIN_MAX, "one size fits both");

/* How many fds come before the mounts. */
static inline size_t ns_fds_fixed(enum profile profile)
{
	return profile == PROFILE_NESTED ? NS_FD_COUNT : NS_FD_CONTAINERS;
}

/* Never returns: becomes box-init, or reports a struct err over the control socket and exits. */
_Noreturn void ns_child(const struct ns_engine *engine, struct ns_plan *plan);

/* ---- spawner.c: the process that clones ----------------------------------------------------- */

/* Everything in engine that a child needs must be set by now. */
int spawner_open(struct ns_engine *engine, struct err *err);
void spawner_close(struct spawner *spawner); /* accepts one that is not open */
/* Asks for a child as planned; spawner_answer waits for it. The caller can work between them. */
int spawner_ask(struct ns_engine *engine, const struct ns_plan *plan, struct err *err);
int spawner_answer(struct ns_engine *engine, pid_t *ret_pid, struct err *err);
/* Makes an overlay in the spawner's own mount namespace; for kernels that need attached layers. */
int spawner_stack(struct ns_engine *engine, const struct layers *layers, uint32_t uid, int *ret,
	struct err *err);
/* idmap_new, in a process that is cheaper to copy. */
int spawner_idmap(
	struct ns_engine *engine, const struct idmap_pair *pair, int *ret, struct err *err);
/* mounts_lock, in a process made for it; fds are replaced. */
int spawner_lock(struct ns_engine *engine, int *fds, size_t count, struct err *err);
/* Closes fds in the spawner, because closing a detached mount blocks on the kernel. The caller must
 * not use them any more. */
void spawner_dispose(struct ns_engine *engine, const int *fds, size_t count);
