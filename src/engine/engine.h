/* engine.h - how a box is isolated: one table of functions per driver
 *
 * An instance is a running box as the driver sees it: processes, namespaces, cgroup, disk mount. It
 * outlives the daemon; `instance_free` only releases it. Drivers know nothing of each other and
 * nothing of names, rows or front doors. */
#pragma once
#include "base/address.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct groups;
struct loop;
struct engine;	 /* a driver opened for one home */
struct instance; /* drivers embed this as their first member; see engine_internal.h */

/* What the disk of an instance with a kernel of its own holds when it has no limit: it must be as
 * large as something. Sparse. */
#define ENGINE_DISK_DEFAULT (UINT64_C(10) << 30)
#define ENGINE_LIMIT_AUTO   UINT64_MAX /* a value that leaves the machine enough for itself */

struct limits {
	uint64_t cpu_milli;    /* thousandths of a CPU; 0: unlimited */
	uint64_t memory_bytes; /* 0: unlimited */
	uint64_t disk_bytes;   /* 0: unlimited */
	uint64_t pids;	       /* 0: unlimited */
};

enum profile { PROFILE_STANDARD, PROFILE_NESTED, PROFILE_COUNT };
const char *profile_name(enum profile profile);
int profile_from_name(const char *name, enum profile *ret, struct err *err);

/* A folder or a file of the host that a box sees; what is mounted below it is not seen. Neither
 * device nodes nor set-user-id programs work there. ERR_INVALID for a target the box itself depends
 * on ("/", "/run", and in /proc, /sys, /dev, /run/boxyard, /.boxyard) and for one that is not plain
 * ("/a/", "/a/../b"); ERR_UNSUPPORTED when the source's file system cannot be id-mapped. */
struct instance_mount {
	const char
		*source; /* absolute; resolved by the driver without following a link at its end */
	const char *target; /* absolute path in the box; made if it is missing */
	bool read_only;
	/* False: ids on disk are the box's own, shifted as its layers are (a volume). True: the one
	 * host user owner_uid:owner_gid is seen as box_uid:box_gid, everybody else as nobody (a
	 * folder of the host's). */
	bool map_owner;
	uid_t owner_uid;
	gid_t owner_gid;
	uid_t box_uid;
	gid_t box_gid;
};
enum { INSTANCE_MOUNTS_MAX = 32, INSTANCE_LAYERS_MAX = 128 };

/* Settings that only the ns driver uses. */
struct instance_ns {
	/* Read-only folders of the image, topmost first, NULL at the end. */
	const char *const *layers;
	/* How many of the lowest layers lie on the file system of the disk, in another subvolume.
	 * Two subvolumes number their files alike, so these layers are put into an overlay of their
	 * own. 0: none. */
	size_t apart;
	uint32_t uid_base; /* 131072 ids from here belong to this box */
	enum profile profile;
};

/* Settings that only the vm driver uses. */
struct instance_vm {
	const char *image; /* the image as one file, an erofs; see image_file_start in image.h */
	/* Identifies the content of that file: templates are kept by it. [A-Za-z0-9._-]+ */
	const char *image_key;
};

/* What the image file of its instances holds besides the image. Strings live as long as the
 * engine. */
struct engine_extra {
	const char *key;	       /* letters and digits: stands for all of the below */
	const char *modules, *release; /* folder of a kernel's modules, and that kernel; or NULL */
	const char *const *folders;    /* that are there in every image; NULL at the end; or NULL */
};

struct instance_spec {
	const char *id; /* box id: [a-z0-9]+, names cgroups and files */
	/* The instances of one tree (an id, as above) together use no more than its limits; see
	 * groups_set_tree_limits. NULL: no tree. */
	const char *tree;
	struct limits tree_limits; /* the disk limit is not used; 0: none */
	const char *hostname;	   /* the box's name */
	const char *disk; /* directory of the box's own; the driver keeps upper and work in it */
	const struct instance_mount *mounts;
	size_t mount_count;
	struct limits limits;
	struct instance_ns ns; /* for the ns driver */
	struct instance_vm vm; /* likewise */
	/* A captured state to restore, instead of starting a new box-init. NULL: none. The process
	 * limit is a little higher then, until set_limits sets it: a box at its limit must be
	 * restorable. */
	const struct instance_state *state;
};

/* Where a state lies, as instance_capture left it. Borrowed during the call; temporary files are
 * removed again. */
struct instance_state {
	int dir;
	/* The clocks continue as if the box had been awake; else they stood still since the
	 * capture. */
	bool time_passes;
};

/* What the caller must know about a state before making an instance from it. */
struct instance_state_facts {
	uint64_t memory_bytes;
	bool locks; /* its processes hold locks on files */
	/* something rare is in it: worth a test restore before its processes are ended */
	bool unusual;
};

/* Identifies a running instance across daemon restarts; stored with the box. */
struct instance_mark {
	pid_t pid;	     /* PID 1 of the box as the host sees it */
	uint64_t start_time; /* field 22 of /proc/PID/stat */
	char boot[40];	     /* /proc/sys/kernel/random/boot_id */
};

struct instance_stats {
	uint64_t cpu_us;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	/* Without the page cache, which the kernel drops when it needs room. */
	uint64_t memory_held_bytes;
	uint64_t processes;
	uint64_t threads; /* of all processes; the process limit counts these */
	uint64_t oom_kills;
	uint64_t throttled_us;
	uint64_t pids_refused; /* forks that failed because of the process limit, in total */
};

/* Counters that only rise; 0 where the machine does not tell. */
struct instance_activity {
	uint64_t cpu_us;
	uint64_t io_bytes;
};

enum instance_timer_kind {
	INSTANCE_TIMER_NONE,	/* nothing inside will run by itself */
	INSTANCE_TIMER_AT,	/* something inside runs by itself at that moment */
	INSTANCE_TIMER_UNKNOWN, /* something may; call says why that is unknown */
	INSTANCE_TIMER_BUSY,	/* the instance does not sleep; call says what it does */
};
#define INSTANCE_TIMER_FURTHEST_US (INT64_C(366) * 86400 * 1000000) /* later counts as never */

struct instance_timer {
	enum instance_timer_kind kind;
	int64_t at_us; /* CLOCK_MONOTONIC of the host */
	pid_t pid;     /* as the box sees it; 0: no particular process */
	char comm[16]; /* printable; chosen by the box */
	char call[48];
	/* Something sleeps for a relative time that would begin anew, or be late, after a capture
	 * and restore. */
	bool span;
};

/* A connection of an instance with a kernel of its own, as that kernel knows it. */
struct instance_flow {
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	struct address from;
	struct address to; /* family 0: not known */
	uint16_t from_port, to_port;
};

/* Who made it, by the box's own word. */
struct instance_owner {
	uint32_t pid, uid;
	const char *command; /* any bytes; borrowed */
};
typedef void (*instance_owner_fn)(
	const struct instance_owner *owner, const struct err *err, void *arg);

/* Whose limit an instance has reached: its own, its tree's, or that of all instances. */
enum instance_scope { INSTANCE_SCOPE_OWN, INSTANCE_SCOPE_TREE, INSTANCE_SCOPE_ALL };

enum instance_end {
	INSTANCE_END_EXITED,  /* PID 1 exited by itself or after a shutdown request */
	INSTANCE_END_KILLED,  /* by a signal */
	INSTANCE_END_MEMORY,  /* PID 1 was killed at the memory limit */
	INSTANCE_END_UNKNOWN, /* it ended while no daemon watched */
};

/* Called from the loop, never from inside start, adopt or kill. Each callback may free the
 * instance. */
struct instance_ops {
	/* box-init is up and listening. Exactly one of on_ready and on_failed follows a start. */
	void (*on_ready)(struct instance *instance, void *arg);
	/* Comes before one of those: the start takes longer than usual, and why (a sentence for
	 * people). May be NULL. */
	void (*on_waiting)(struct instance *instance, const char *what, void *arg);
	/* The instance never came up; everything it had is already removed. Free it. */
	void (*on_failed)(struct instance *instance, const struct err *err, void *arg);
	/* All processes have ended; cgroup and mounts are removed. detail is a sentence for
	 * people. */
	void (*on_ended)(
		struct instance *instance, enum instance_end end, const char *detail, void *arg);
	/* The kernel killed processes inside for memory (count since the last call); 0: it would
	 * have, see hold. */
	void (*on_oom)(struct instance *instance, uint64_t kills, void *arg);
	/* Forks were refused at the process limit. May be NULL; not every machine tells. */
	void (*on_pids)(struct instance *instance, void *arg);
	/* For a restore, before on_ready: the mark is known, and no process has run yet. May be
	 * NULL. */
	void (*on_marked)(struct instance *instance, void *arg);
	/* For a restore, between on_marked and on_ready: everything is restored, and the processes
	 * run when this returns. May be NULL. */
	void (*on_going)(struct instance *instance, void *arg);
	/* For a restore, after on_going and before on_failed: no process has run after all. May be
	 * NULL. */
	void (*on_held)(struct instance *instance, void *arg);
};

/* ---- capture: an instance at one moment, written into files --------------------------------- */

struct capture; /* one being made; drivers embed it as their first member */

struct capture_result {
	uint64_t paused_us; /* how long the processes stood still */
	uint64_t processes;
	const char *log; /* for a failed capture: the last lines of the tool; "". Borrowed */
};

/* Called from the loop, never from inside capture. on_rest may free the capture, on_done must. */
struct capture_ops {
	/* All processes are frozen. The caller now copies what must match the state: the disk, and
	 * with instance_capture_rest what the driver copies itself. Then it calls capture_go_on. */
	void (*on_rest)(struct capture *capture, void *arg);
	/* The files are complete and the processes run again; only cleanup is left. May be NULL. */
	void (*on_taken)(struct capture *capture, const struct capture_result *result, void *arg);
	/* Called exactly once, unless freed before. The instance is as it was, frozen or not,
	 * whether the capture worked or not. */
	void (*on_done)(struct capture *capture, const struct capture_result *result,
		const struct err *err, void *arg);
};

struct capture_spec {
	int dir;	  /* empty; borrowed until the call returns */
	bool frozen;	  /* the instance is frozen already */
	bool stay_frozen; /* keep it frozen after a successful capture */
	/* The instance is killed afterwards, and its disk belongs to the state: the links that the
	 * driver made there for deleted open files stay. */
	bool to_end;
	uint64_t limit_ms;	    /* time limit; 0: the driver's default */
	const char *const *targets; /* of its mounts (instance_spec), NULL at the end; or NULL */
	/* A folder for hard links to files of the driver that the state needs; -1: none, for
	 * drivers that share nothing. Borrowed until the call returns. */
	int shared;
};

/* What a driver can do on this machine, known when it is opened. Every driver has all the other
 * functions of the table. */
enum engine_can {
	ENGINE_CAN_SUSPEND,   /* freeze, pause */
	ENGINE_CAN_SLEEP,     /* activity, next_timer: a box may be suspended when it is idle */
	ENGINE_CAN_HOLD,      /* hold, memory_full: a box waits at its memory limit */
	ENGINE_CAN_HIBERNATE, /* capture, and start from a state: hibernate, fork, rollback */
	ENGINE_CAN_NEST,      /* profile nested */
	/* Instances have their own kernel: files and sockets are not the host's, an image is one
	 * file, states share layers of memory, and every new instance is a copy of one started
	 * before. */
	ENGINE_OWN_KERNEL,
	ENGINE_CAN_COUNT
};
const char *engine_can_name(enum engine_can can);

struct engine_config {
	struct loop *loop;
	const char *home; /* BOX_HOME */
	const char *run;  /* BOX_RUN */
	/* cgroups of all instances, see groups.h; borrowed for the engine's life */
	struct groups *groups;
	const char
		*resolv_conf; /* text of /etc/resolv.conf in every box; NULL: only the resolver */
	const char
		/* PEM, trusted in every box in addition to its image's; NULL or "": none */
		*certificates;
	const char *pool;      /* where disks lie: files are cloned within */
	const char *vm_kernel; /* folder of the kernel of VMs; NULL or "": where it was put */
	unsigned vm_spares;    /* QEMU processes that wait for a VM, of each size in use */
	const char *criu; /* path of the program; NULL or "": where it was built or installed */
};

struct engine_ops {
	const char *name; /* "ns" */
	int (*open)(const struct engine_config *config, struct engine **ret, struct err *err);
	void (*close)(struct engine *engine);
	/* Adds {"name","ok","detail","hint","required"} objects to checks. ERR_UNSUPPORTED when
	 * boxes cannot run. */
	int (*probe)(struct engine *engine, json_t *checks, struct err *err);
	/* Facts for `box info`: e.g. {"cgroup":"v1+v2"}. New reference. */
	json_t *(*describe)(struct engine *engine);
	/* Returns once the first process exists and *mark is known; nothing that is not recorded
	 * outlives a crash for longer than this call. The rest happens in the background, see
	 * instance_ops. */
	int (*start)(struct engine *engine, const struct instance_spec *spec,
		const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err);
	/* Takes over an instance that an earlier daemon started. Fails with ERR_NOT_FOUND when it
	 * no longer runs. */
	int (*adopt)(struct engine *engine, const struct instance_spec *spec,
		const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
		struct instance **ret, struct err *err);
	/* Removes the remains of an instance that does not run: processes, cgroups, mounts. Not its
	 * disk. */
	int (*sweep)(struct engine *engine, const char *id, struct err *err);

	/* Makes a new non-blocking connection to box-init. */
	int (*connect)(struct instance *instance, int *ret_fd, struct err *err);
	int (*kill)(
		/* kills everything now; on_ended follows */
		struct instance *instance, struct err *err);
	int (*stats)(struct instance *instance, struct instance_stats *ret, struct err *err);
	int (*set_hostname)(struct instance *instance, const char *hostname, struct err *err);
	/* Forks refused at the process limit, in total; cheap enough for every second. 0 where
	 * nobody can tell. */
	uint64_t (*pids_refused)(struct instance *instance);
	/* Cheap enough for every second. */
	int (*activity)(struct instance *instance, struct instance_activity *ret, struct err *err);
	/* The earliest moment at which something inside runs by itself. Takes some microseconds per
	 * thread. quiet_since_us (CLOCK_MONOTONIC): no CPU was used after that. Call it before
	 * freezing; a frozen instance cannot be examined. */
	int (*next_timer)(struct instance *instance, int64_t quiet_since_us,
		struct instance_timer *ret, struct err *err);
	/* Freezes or thaws all processes. Returns when the kernel confirms; ERR_TIMEOUT after a
	 * second. A frozen instance can be killed. */
	int (*freeze)(struct instance *instance, bool frozen, struct err *err);
	/* Like freeze, but does not wait for processes inside a system call (a long write, waiting
	 * for memory): they stop when they leave it. */
	int (*pause)(struct instance *instance, struct err *err);
	/* With hold, a process that reaches the memory limit waits instead of being killed, where
	 * the machine can do that, until hold is turned off or the limit raised; on_oom reports it.
	 * Call it again after set_limits. */
	int (*hold)(struct instance *instance, bool hold, struct err *err);
	/* For an instance with hold: whether it has reached its memory limit since the last call
	 * and cannot continue. */
	bool (*memory_full)(struct instance *instance);
	/* Changes the limits of a running instance; 0 means unlimited. Fails with ERR_STATE,
	 * without a change, when more memory is in use than the new limit. */
	int (*set_limits)(struct instance *instance, const struct limits *limits, struct err *err);
	/* Whose memory limit it was; call it right after a process was killed, or could not be
	 * made. */
	enum instance_scope (*memory_scope)(struct instance *instance);
	enum instance_scope (*pids_scope)(struct instance *instance);
	/* The network namespace, set up as net/doors.h says; yours to close. */
	int (*netns)(struct instance *instance, int *ret, struct err *err);
	/* The processes as the host sees them, at most max. */
	size_t (*pids)(struct instance *instance, pid_t *ret, size_t max);
	/* With ENGINE_OWN_KERNEL: asks the box who made a connection. done is called once, from the
	 * loop, unless the instance is freed before. */
	int (*ask_owner)(struct instance *instance, const struct instance_flow *flow,
		instance_owner_fn done, void *arg, struct err *err);
	void (*free)(
		/* releases it; the box runs on; no callback after this */
		struct instance *instance);

	/* Writes the processes into files; the instance goes on as it was. Fails with
	 * ERR_UNSUPPORTED, or with ERR_STATE, the process and the reason when something cannot be
	 * captured. */
	int (*capture)(struct instance *instance, const struct capture_spec *spec,
		const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err);
	void (*look_at_state)(struct engine *engine, int dir, struct instance_state_facts *ret);
	/* Blocks: for a helper process, between on_rest and capture_go_on. dir is the capture's. */
	int (*capture_rest)(struct instance *instance, int dir, struct err *err);
	void (*capture_go_on)(struct capture *capture, const struct err *failed);
	void (*capture_free)(struct capture *capture);
};

extern const struct engine_ops engine_ns;
extern const struct engine_ops engine_vm;

/* These call the driver's table; a missing function is answered with ERR_UNSUPPORTED here, in one
 * place. */
const struct engine_ops *const *engine_drivers(void); /* of this program; NULL at the end */
int engine_open(const struct engine_ops *ops, const struct engine_config *config,
	struct engine **ret, struct err *err);
void engine_close(struct engine *engine); /* accepts NULL */
const char *engine_get_name(const struct engine *engine);
bool engine_can(const struct engine *engine, enum engine_can can);
/* What runs the kernel that instances have of their own: "kvm", "tcg"; NULL: they have none. */
const char *engine_get_accelerator(const struct engine *engine);
/* File descriptors of the daemon that an instance needs while it runs. */
unsigned engine_get_fds(const struct engine *engine);
/* With ENGINE_OWN_KERNEL. */
const struct engine_extra *engine_get_extra(const struct engine *engine);
/* What is wrong with its captures, a literal for people; NULL: nothing. */
const char *engine_capture_problem(const struct engine *engine);
int engine_probe(struct engine *engine, json_t *checks, struct err *err);
json_t *engine_describe(struct engine *engine);
void engine_whole(struct engine *engine, struct limits *ret,
	struct instance_stats *ret_stats); /* each may be NULL */
int engine_start(struct engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg, struct instance **ret, struct err *err);
int engine_adopt(struct engine *engine, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err);
int engine_sweep(struct engine *engine, const char *id, struct err *err);
struct instance_state_facts engine_look_at_state(struct engine *engine, int dir);

bool instance_can(const struct instance *instance, enum engine_can can);
const struct instance_mark *instance_get_mark(const struct instance *instance);
int instance_connect(struct instance *instance, int *ret_fd, struct err *err);
int instance_kill(struct instance *instance, struct err *err);
int instance_stats(struct instance *instance, struct instance_stats *ret, struct err *err);
int instance_set_hostname(struct instance *instance, const char *hostname, struct err *err);
int instance_set_limits(struct instance *instance, const struct limits *limits, struct err *err);
uint64_t instance_pids_refused(struct instance *instance);
enum instance_scope instance_memory_scope(struct instance *instance);
enum instance_scope instance_pids_scope(struct instance *instance);
int instance_activity(struct instance *instance, struct instance_activity *ret, struct err *err);
int instance_next_timer(struct instance *instance, int64_t quiet_since_us,
	struct instance_timer *ret, struct err *err);
int instance_freeze(struct instance *instance, bool frozen, struct err *err);
int instance_pause(struct instance *instance, struct err *err);
int instance_hold(struct instance *instance, bool hold, struct err *err);
bool instance_memory_full(struct instance *instance);
int instance_netns(struct instance *instance, int *ret, struct err *err);
size_t instance_pids(struct instance *instance, pid_t *ret, size_t max);
/* Asks a box with a kernel of its own who made a connection. done is called once, from the loop or
 * by instance_free, unless this fails. */
int instance_ask_owner(struct instance *instance, const struct instance_flow *flow,
	instance_owner_fn done, void *arg, struct err *err);
/* Redirects the callbacks of an instance. */
void instance_hand_over(struct instance *instance, const struct instance_ops *ops, void *arg);
void instance_free(struct instance *instance); /* accepts NULL */
int instance_capture(struct instance *instance, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err);
int instance_capture_rest(struct instance *instance, int dir, struct err *err);
/* Call it once for each on_rest; failed not NULL: the capture is cancelled for that reason. */
void capture_go_on(struct capture *capture, const struct err *failed);
void capture_free(struct capture *capture); /* cancels it if it is not done; accepts NULL */
