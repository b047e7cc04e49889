/* vm.c - the vm driver: boxes with their own kernel, in QEMU
 *
 * Uses stock QEMU and Debian's cloud kernel, with KVM where it can run a kernel, else with
 * emulation; the choice is reported, never changed silently. */
#include "engine/vm/vm_internal.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "engine/vm/disk.h"
#include "engine/vm/kernel.h"
#include "engine/vm/kvm.h"
#include "engine/vm/members.h"
#include "engine/vm/ram.h"
#include "loop/loop.h"
#include "net/doors.h"
#include "sys/procstat.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const places[] = { "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin",
	"/usr/sbin", "/sbin" };

/* Yours; NULL: it is not installed. */
static char *find_program(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		char *path = xasprintf("%s/%s", places[i], name);

		if (access(path, X_OK) == 0)
			return path;
		free(path);
	}
	return NULL;
}

struct qemu_machine vm_machine(const struct vm_engine *engine, uint64_t ram_bytes, unsigned cpus)
{
	return (struct qemu_machine){
		.program = engine->program, .kvm = engine->kvm, .ram_bytes = ram_bytes, .cpus = cpus
	};
}

uint64_t vm_memory_of(const struct vm_engine *engine, uint64_t ram_bytes, unsigned cpus)
{
	struct qemu_machine machine = vm_machine(engine, ram_bytes, cpus);

	/* As long as it might be emulated after all. */
	machine.kvm = engine->kvm_proven;
	return ram_bytes + qemu_overhead_bytes(&machine);
}

uint64_t vm_ram_of(const struct limits *limits)
{
	uint64_t bytes = limits->memory_bytes ? limits->memory_bytes : VM_RAM_DEFAULT;

	return MAX(bytes, VM_RAM_MIN) & ~((UINT64_C(1) << 20) - 1);
}

unsigned vm_cpus_of(const struct vm_engine *engine, const struct limits *limits)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned all = online > 0 ? (unsigned)online : 1;

	if (limits->cpu_milli)
		return MIN(MAX((unsigned)((limits->cpu_milli + 999) / 1000), 1), all);
	/* An emulated CPU uses time of a real one even when it is idle. */
	return engine->kvm ? MIN(all, VM_CPUS_KVM) : 1;
}

/* ---- unused layers -------------------------------------------------------------------------- */

/* A layer that a checkpoint needs has a second hard link (checkpoint/checkpoints.h). */
static void keep_layers(void *arg)
{
	struct vm_engine *engine = arg;
	_cleanup_free_ char *path = xasprintf("%s/memory", engine->home);
	_cleanup_strv_ char **used = strv_copy(NULL);
	DIR *folder = opendir(path);
	struct dirent *entry;
	struct stat st;

	if (!folder)
		return;
	while ((entry = readdir(folder)))
		if (ram_id_is_valid(entry->d_name) &&
			fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			st.st_nlink > 1)
			strv_add(&used, entry->d_name);
	closedir(folder);
	ram_store_keep(engine->ram, (const char *const *)used);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void vm_close(struct engine *base)
{
	struct vm_engine *engine = vm_engine_of(base);

	while (engine->first)
		vm_free(&engine->first->base);
	vm_templates_close(engine);
	members_close(engine->members);
	ram_store_close(engine->ram);
	vm_kernel_free(engine->kernel);
	doors_plan_free(engine->doors);
	loop_timer_free(engine->keep_timer);
	free(engine->home);
	free(engine->run);
	free(engine->dir);
	free(engine->pool);
	free(engine->program);
	free(engine->preload);
	free(engine->key);
	free(engine);
}
DEFINE_CLEANUP(vm_close, struct engine)

static int find_programs(struct vm_engine *engine, struct err *err)
{
	static const struct {
		const char *program, *package;
	} others[] = { { "mke2fs", "e2fsprogs" }, { "mkfs.erofs", "erofs-utils" } };

	engine->program = find_program("qemu-system-x86_64");
	if (!engine->program) {
		err_set(err, ERR_UNSUPPORTED, "QEMU is not installed");
		return err_hint(err, "install qemu-system-x86 (on Debian)");
	}
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		_cleanup_free_ char *path = find_program(others[i].program);

		if (path)
			continue;
		err_set(err, ERR_UNSUPPORTED, "%s is not installed", others[i].program);
		return err_hint(err, "install %s (on Debian)", others[i].package);
	}
	return 0;
}

static void use_accelerator(struct vm_engine *engine, const struct kvm_verdict *verdict)
{
	engine->kvm = verdict->usable;
	engine->kvm_proven = verdict->usable && verdict->proven;
	snprintf(engine->reason, sizeof engine->reason, "%s", verdict->reason);
	engine->base.accelerator = engine->kvm ? "kvm" : "tcg";
	engine->tsc_khz = engine->kvm ? 0 : kvm_tsc_khz();
}

static void choose_accelerator(struct vm_engine *engine)
{
	struct kvm_verdict verdict;

	kvm_verdict_get(engine->run, &verdict);
	use_accelerator(engine, &verdict);
}

static int open_kernel(
	struct vm_engine *engine, const struct engine_config *config, struct err *err)
{
	_cleanup_free_ char *dir = xasprintf("%s/vm", engine->home);
	const struct vm_kernel_config kernel = {
		.path = config->vm_kernel,
		.dir = dir,
		.resolv_conf = config->resolv_conf ? config->resolv_conf : DOORS_RESOLV_CONF,
		.certificates = config->certificates,
	};

	if (vm_kernel_open(&kernel, &engine->kernel, err) < 0)
		return -1;
	engine->base.extra = (struct engine_extra){
		.key = vm_kernel_get_key(engine->kernel),
		.modules = vm_kernel_get_modules(engine->kernel),
		.release = vm_kernel_get_version(engine->kernel),
	};
	return 0;
}

/* The key of everything that a state depends on. */
static int make_key(struct vm_engine *engine, struct err *err)
{
	const struct qemu_machine machine = vm_machine(engine, 0, 0);
	_cleanup_free_ char *qemu = qemu_key(&machine, err);
	_cleanup_free_ char *cmdline = vm_kernel_cmdline(engine->kernel, engine->kvm, 0);
	_cleanup_free_ char *text = NULL;
	char digest[DIGEST_SIZE];

	if (!qemu)
		return -1;
	/* The TSC frequency is measured each time: a difference of a tenth of a percent is
	 * ignored. */
	text = xasprintf("%s %s %s %llu", qemu, vm_kernel_get_key(engine->kernel), cmdline,
		(unsigned long long)(engine->tsc_khz + 5000) / 10000);
	digest_of(text, strlen(text), digest);
	free(engine->key);
	engine->key = xstrndup(strchr(digest, ':') + 1, 32);
	return 0;
}

/* ---- KVM that passes its probe and does not carry a kernel ---------------------------------- */

int vm_boot_ms(const struct vm_engine *engine)
{
	return engine->kvm && !engine->kvm_proven ? VM_PROVE_MS : VM_BOOT_MS;
}

void vm_prove_kvm(struct vm_engine *engine)
{
	struct kvm_verdict verdict = { .usable = true, .proven = true };

	if (!engine->kvm || engine->kvm_proven)
		return;
	engine->kvm_proven = true;
	snprintf(verdict.reason, sizeof verdict.reason, "%s", engine->reason);
	kvm_verdict_put(engine->run, &verdict);
}

int vm_give_up_kvm(struct vm_engine *engine, const struct err *why, struct err *err)
{
	struct kvm_verdict verdict = { .usable = false };

	if (engine->kvm_proven)
		return err_set(err, ERR_STATE, "kernels boot with KVM here");
	snprintf(verdict.reason, sizeof verdict.reason,
		"/dev/kvm passes its trial, but no kernel boots with it: %.110s", why->message);
	log_error("VMs are emulated until the machine is restarted", kv_str("why", verdict.reason));
	kvm_verdict_put(engine->run, &verdict);
	use_accelerator(engine, &verdict);
	return make_key(engine, err);
}

static int open_parts(struct vm_engine *engine, const struct engine_config *config, struct err *err)
{
	const struct members_config members = { .loop = engine->loop,
		.run = engine->dir,
		.count = config->vm_spares,
		.groups = engine->groups };
	struct members_config with = members;

	if (find_programs(engine, err) < 0 || open_kernel(engine, config, err) < 0)
		return -1;
	choose_accelerator(engine);
	if (make_key(engine, err) < 0 || doors_prepare(&engine->doors, err) < 0)
		return -1;
	if (dir_make_all(engine->dir, 0700, err) < 0 ||
		ram_library_write(engine->dir, &engine->preload, err) < 0)
		return -1;
	if (ram_store_open(engine->loop, engine->home, &engine->ram, err) < 0)
		return -1;
	with.preload = engine->preload;
	with.doors = engine->doors;
	return members_open(&with, &engine->members, err);
}

static int vm_open(const struct engine_config *config, struct engine **ret, struct err *err)
{
	struct vm_engine *engine = xnew(struct vm_engine);
	_cleanup_(vm_closep) struct engine *base = &engine->base;

	engine->base.ops = &engine_vm;
	engine->loop = config->loop;
	engine->home = xstrdup(config->home);
	engine->run = xstrdup(config->run);
	engine->dir = xasprintf("%s/vm", config->run);
	engine->pool = xstrdup(config->pool);
	engine->groups = config->groups;
	engine->cgroups = groups_get_cgroups(config->groups);
	engine->base.fds = 6; /* pidfd, monitor, memory, control, link */
	engine->base.can = 1U << ENGINE_CAN_SUSPEND | 1U << ENGINE_CAN_SLEEP |
			   1U << ENGINE_CAN_HIBERNATE | 1U << ENGINE_CAN_NEST |
			   1U << ENGINE_OWN_KERNEL;
	engine->keep_timer = loop_timer_new(engine->loop, keep_layers, engine);
	if (procstat_boot_id(engine->boot, err) < 0 || open_parts(engine, config, err) < 0)
		return -1;
	vm_templates_load(engine);
	vm_keep_soon(engine);
	*ret = steal_ptr(&base);
	return 0;
}

static json_t *vm_describe(struct engine *base)
{
	const struct vm_engine *engine = vm_engine_of(base);

	return json_pack("{s:s, s:s, s:s, s:s, s:I}", "accelerator", engine->base.accelerator,
		"accelerator_reason", engine->reason, "qemu", engine->program, "kernel",
		vm_kernel_get_version(engine->kernel), "templates",
		(json_int_t)vm_templates_count(engine));
}

static void add_check(json_t *checks, const char *name, bool ok, const char *detail)
{
	json_array_append_new(checks, json_pack("{s:s, s:b, s:s, s:s, s:b}", "name", name, "ok", ok,
					      "detail", detail, "hint", "", "required", 0));
}

static int vm_probe(struct engine *base, json_t *checks, struct err *err)
{
	struct vm_engine *engine = vm_engine_of(base);

	(void)err;
	add_check(checks, "vm: KVM", engine->kvm, engine->reason);
	add_check(checks, "vm: QEMU", true, engine->program);
	add_check(checks, "vm: kernel", true, vm_kernel_get_version(engine->kernel));
	return 0;
}

static int vm_sweep(struct engine *base, const char *id, struct err *err)
{
	struct vm_engine *engine = vm_engine_of(base);
	_cleanup_free_ char *dir = xasprintf("%s/%s", engine->dir, id);

	if (groups_sweep(engine->groups, id, err) < 0)
		return -1;
	qemu_remove_dir(dir);
	return 0;
}

const struct engine_ops engine_vm = {
	.name = "vm",
	.open = vm_open,
	.close = vm_close,
	.probe = vm_probe,
	.describe = vm_describe,
	.start = vm_start,
	.adopt = vm_adopt,
	.sweep = vm_sweep,
	.connect = vm_connect,
	.kill = vm_kill,
	.stats = vm_stats,
	.set_hostname = vm_set_hostname,
	.pids_refused = vm_pids_refused,
	.activity = vm_activity,
	.next_timer = vm_next_timer,
	.freeze = vm_freeze,
	.pause = vm_pause,
	.set_limits = vm_set_limits,
	.memory_scope = vm_memory_scope,
	.pids_scope = vm_pids_scope,
	.netns = vm_netns,
	.pids = vm_pids,
	.ask_owner = vm_ask_owner,
	.free = vm_free,
	.look_at_state = vm_look_at_state,
	.capture = vm_capture,
	.capture_rest = vm_capture_rest,
	.capture_go_on = vm_capture_go_on,
	.capture_free = vm_capture_free,
};
