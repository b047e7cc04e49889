/* vm_internal.h - the vm driver: what its files share
 *
 *   vm.c         opens the driver, its table, what this machine can do
 *   template.c   machines that were booted once: every new box is a copy of one
 *   start.c      an instance: a template's or a captured state, or a boot from its own disk
 *   life.c       what happens to an instance: ready, failed, ended; adopting, letting go
 *   reach.c      calls into a running instance: connect, figures, limits, freezing
 *   capture.c    an instance at one moment: layers of memory, device state
 *   manifest.c   what a state, a template and a running instance are made of, as a file
 *   disk.c       the disk of a box: a file with a file system in it
 *   kernel.c     the guest's kernel and initramfs
 *   qemu.c       one QEMU process; qmp.c its monitor, members.c those that wait
 *   ram_*.c      layers of memory
 *   control.c    the driver's own words with box-init
 *   kvm.c        whether the hardware can be used */
#pragma once
#include "base/alloc.h"
#include "engine/engine_internal.h"
#include "engine/groups.h"
#include "engine/vm/control.h"
#include "engine/vm/qemu.h"

struct doors_plan;
struct loop_timer;
struct members;
struct members_take;
struct ram_link;
struct ram_pass;
struct ram_store;
struct template;
struct vm_capture;
struct vm_kernel;

#define VM_RAM_DEFAULT (UINT64_C(512) << 20)
#define VM_RAM_MIN     (UINT64_C(128) << 20)
enum {
	VM_CPUS_KVM = 4, /* maximum for a box without a CPU limit */
	VM_PIDS = 96,	 /* threads of QEMU */
	VM_BOOT_MS = 60 * 1000,
	VM_PROVE_MS = 10 * 1000, /* the first boot by a KVM that was only tried */
	VM_START_MS = 30 * 1000, /* of one that does not boot */
};

/* ---- manifest.c ----------------------------------------------------------------------------- */

#define VM_DIGEST 72
struct vm_manifest {
	char *key; /* of the engine: QEMU, accelerator, kernel, initramfs */
	char *image_key;
	uint64_t ram_bytes;
	unsigned cpus;
	uint64_t disk_bytes;  /* size known to the guest's file system */
	uint64_t tsc_khz;     /* 0: measured by the guest */
	uint64_t captured_us; /* wall clock; 0: it is running */
	char **stack;	      /* layers of memory, bottom to top */
	/* digest of the file VM_DEVICES; empty: it is running */
	char devices[VM_DIGEST];
	uint8_t generation[CONTROL_GENERATION]; /* of a running instance */
	bool told;
};
#define VM_MANIFEST "vm.json"
#define VM_DEVICES  "devices"

void vm_manifest_done(struct vm_manifest *manifest);
void vm_manifest_copy(struct vm_manifest *to, const struct vm_manifest *from);
/* Replaces the file in dir. */
int vm_manifest_write(int dir, const struct vm_manifest *manifest, struct err *err);
/* ERR_PROTOCOL when it is malformed. */
int vm_manifest_read(int dir, struct vm_manifest *ret, struct err *err);
/* The digest of the device state in dir; vm_devices_check compares it with the recorded one. */
int vm_devices_digest(int dir, char ret[VM_DIGEST], struct err *err);
int vm_devices_check(int dir, const struct vm_manifest *manifest, struct err *err);

/* ---- the driver and its instances ----------------------------------------------------------- */

struct vm_engine {
	struct engine base;
	struct loop *loop;
	char *home, *run;
	char *dir;  /* BOX_RUN/vm, with the folders of instances */
	char *pool; /* where disks lie */
	struct groups *groups;
	struct cgroup_tree *cgroups;
	struct doors_plan *doors;
	struct vm_kernel *kernel;
	struct ram_store *ram;
	struct members *members;
	char *program;	  /* QEMU */
	char *preload;	  /* the library for RAM layers */
	char *key;	  /* see vm_manifest */
	char reason[200]; /* why KVM, or why not */
	bool kvm;
	bool kvm_proven; /* a kernel was booted by it */
	uint64_t tsc_khz;
	char boot[40];
	struct template *templates;
	struct vm_instance *first;
	struct loop_timer *keep_timer; /* removes layers that nobody needs */
};

enum vm_state {
	VM_STARTING,
	VM_RUNNING,
	VM_ENDING, /* QEMU has ended; its cgroups are being removed */
};

struct vm_instance {
	struct instance base;
	struct vm_instance *prev, *next;
	enum vm_state state;
	char *id, *group, *dir, *hostname;
	char *image, *disk; /* paths at its start; a rollback changes that of the disk */
	int disk_fd;	    /* -1: not yet */
	struct vm_manifest manifest;
	struct limits limits;
	struct qemu *qemu;
	struct ram_link *ram;
	struct control *control;
	int netns;   /* until QEMU has entered it; -1 */
	int devices; /* device state to load; -1 */
	struct members_take *take;
	struct template *template; /* it waits for this one, or was made from it */
	bool waits_for_template;
	bool restored; /* from a state */
	bool boots;    /* its kernel, from the disk it has */
	bool moved;    /* into its groups */
	bool whole;    /* memory, devices and disks are there */
	bool grown;    /* its disk, since its file system was made or grown last */
	bool frozen;   /* its cgroup is */
	bool stopped;  /* QEMU was told to stop it; so it is left by a capture that ends it */
	bool held;     /* its programs are, by box-init */
	bool kill_asked, adopted;
	int64_t began_at; /* when it was started */
	bool merging;	  /* its layers, because there were too many */
	size_t merge_of;
	enum control_kind kind;
	struct loop_timer *timer;      /* of the start, then of the end */
	struct loop_timer *disk_timer; /* until its disk can be written again; NULL: it can */
	int64_t ended_at;
	struct err failure;
	enum instance_end end;
	char detail[256];
	struct vm_capture *capture;
	struct owner_question *questions; /* to box-init, see reach.c */
	/* The last answers of box-init, requested when core asks. */
	struct {
		struct control_stats last;
		bool asked;
		int64_t asked_at, answered_at;
		uint64_t peak; /* of its memory */
	} stats;
	struct {
		struct instance_timer last;
		bool asked;
		int64_t answered_at;
	} timers;
};

static inline struct vm_engine *vm_engine_of(struct engine *base)
{
	return (struct vm_engine *)base;
}

static inline struct vm_instance *vm_instance_of(struct instance *base)
{
	return (struct vm_instance *)base;
}

static inline struct vm_engine *vm_engine_by(const struct vm_instance *instance)
{
	return (struct vm_engine *)instance->base.engine;
}

struct qemu_machine vm_machine(const struct vm_engine *engine, uint64_t ram_bytes, unsigned cpus);
int vm_boot_ms(const struct vm_engine *engine); /* how long a boot may take */
/* A kernel was booted by KVM, if that is used: a later failure is not its fault. */
void vm_prove_kvm(struct vm_engine *engine);
/* No kernel boots with KVM, why says how that ended: all VMs that start from now on are emulated,
 * until the machine is restarted. Fails when it is proven. */
int vm_give_up_kvm(struct vm_engine *engine, const struct err *why, struct err *err);
/* What its group may use: the guest's RAM and QEMU's own memory. */
uint64_t vm_memory_of(const struct vm_engine *engine, uint64_t ram_bytes, unsigned cpus);
uint64_t vm_ram_of(const struct limits *limits);
unsigned vm_cpus_of(const struct vm_engine *engine, const struct limits *limits);

/* ---- life.c --------------------------------------------------------------------------------- */

struct vm_instance *vm_instance_new(struct vm_engine *engine, const struct instance_spec *spec,
	const struct instance_ops *ops, void *arg);
/* A step of its start has finished: logged with log_level = debug. */
void vm_step(const struct vm_instance *instance, const char *step);
/* The start failed: everything is ended, then on_failed is called. */
void vm_fail(struct vm_instance *instance, const struct err *why);
/* Sets the layers of its memory, held as long as it lives. Takes stack, which is held once
 * already. */
void vm_set_stack(struct vm_instance *instance, char **stack);
void vm_keep_soon(struct vm_engine *engine);
extern const struct qemu_ops vm_qemu_ops;
extern const struct control_ops vm_control_ops;
int vm_kill(struct instance *base, struct err *err);
void vm_free(struct instance *base);
int vm_adopt(struct engine *base, const struct instance_spec *spec,
	const struct instance_mark *mark, const struct instance_ops *ops, void *arg,
	struct instance **ret, struct err *err);
/* Connects to the library of layers and to box-init. */
int vm_open_links(struct vm_instance *instance, struct err *err);
void vm_take_ram(struct vm_instance *instance, int fd); /* a connection to the library */
void vm_open_control(struct vm_instance *instance);

/* ---- start.c -------------------------------------------------------------------------------- */

int vm_start(struct engine *base, const struct instance_spec *spec, const struct instance_ops *ops,
	void *arg, struct instance **ret, struct err *err);
void vm_start_forget(struct vm_instance *instance); /* it ends, or was cancelled */
void vm_look_at_state(struct engine *base, int dir, struct instance_state_facts *ret);

/* ---- template.c ----------------------------------------------------------------------------- */

/* A machine that was booted once and then stopped: its layers, its devices, its disk. */
struct template
{
	struct template *next;
	struct vm_engine *engine;
	struct vm_manifest manifest;
	char *name;  /* of its folder and of its disk's file */
	char *image; /* path; NULL: no box needed it yet */
	bool ready;
	bool checking;		      /* its memory is being compared with its checksums */
	struct template_build *build; /* NULL: not being made */
	struct err problem;	      /* of the last attempt */
};

/* The template for such an instance; starts to make it if it does not exist. If it is not
 * *ret->ready, vm_template_settled is called later for all that wait. */
int vm_template_get(struct vm_engine *engine, const char *image, const char *image_key,
	uint64_t ram_bytes, unsigned cpus, struct template **ret, struct err *err);
int vm_template_open_devices(const struct template *template, int *ret, struct err *err);
char *vm_template_disk(const struct template *template); /* its path; yours */
/* Defined in start.c: the template is ready, or has a problem. */
void vm_template_settled(struct template *template);
void vm_templates_load(struct vm_engine *engine);
void vm_templates_close(struct vm_engine *engine);
size_t vm_templates_count(const struct vm_engine *engine);

/* ---- reach.c, capture.c --------------------------------------------------------------------- */

int vm_connect(struct instance *base, int *ret_fd, struct err *err);
void vm_ask_stats(struct vm_instance *instance); /* unless that was done a moment ago */
void vm_take_stats(struct vm_instance *instance, const struct control_stats *stats);
int vm_stats(struct instance *base, struct instance_stats *ret, struct err *err);
int vm_set_hostname(struct instance *base, const char *hostname, struct err *err);
uint64_t vm_pids_refused(struct instance *base);
int vm_activity(struct instance *base, struct instance_activity *ret, struct err *err);
int vm_next_timer(
	struct instance *base, int64_t quiet_since_us, struct instance_timer *ret, struct err *err);
int vm_freeze(struct instance *base, bool frozen, struct err *err);
int vm_pause(struct instance *base, struct err *err);
int vm_set_limits(struct instance *base, const struct limits *limits, struct err *err);
enum instance_scope vm_memory_scope(struct instance *base);
enum instance_scope vm_pids_scope(struct instance *base);
int vm_netns(struct instance *base, int *ret, struct err *err);
size_t vm_pids(struct instance *base, pid_t *ret, size_t max);
int vm_ask_owner(struct instance *base, const struct instance_flow *flow, instance_owner_fn done,
	void *arg, struct err *err);
void vm_forget_questions(struct vm_instance *instance);

int vm_capture(struct instance *base, const struct capture_spec *spec,
	const struct capture_ops *ops, void *arg, struct capture **ret, struct err *err);
int vm_capture_rest(struct instance *base, int dir, struct err *err);
void vm_capture_go_on(struct capture *base, const struct err *failed);
void vm_capture_free(struct capture *base);
/* The connection to the library in QEMU has ended: no pass may use it any more. */
void vm_capture_ram_lost(struct vm_instance *instance, const struct err *err);
void vm_capture_ended(struct vm_instance *instance); /* QEMU has ended */
/* Releases what a capture has left stopped. */
void vm_let_go(struct vm_instance *instance);
