/* vm_fixture.c - see vm_fixture.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "vm_fixture.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/vm/kernel.h"
#include "engine/vm/qmp.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <x86intrin.h>

#define QEMU	"/usr/bin/qemu-system-x86_64"
#define BUSYBOX "/bin/busybox"

enum { RAM_MB = 192, DISK_MB = 64, BOOT_SECONDS = 60 };

static char world[] = "/tmp/test-vm-XXXXXX";
static struct vm_kernel *kernel;
int vm_tap = -1;

/* ---- the world ------------------------------------------------------------------------------ */

static void run(const char *format, ...)
{
	_cleanup_free_ char *command = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&command, format, args) < 0)
		abort();
	va_end(args);
	if (system(command) != 0)
		fail_msg("'%s' failed", command);
}

static bool is_missing(const char *path, const char *what)
{
	if (access(path, R_OK) == 0)
		return false;
	print_message("NOT RUN: there is no %s; %s\n", path, what);
	return true;
}

static void make_image(void)
{
	static const char *const names[] = { "sh", "cat", "head", "od", "ip", "mount", "ps", "df",
		"free", "sleep", "hostname", "date", "ls", "mkdir", "nc", "sync", "dd", "grep",
		"wc", "arp", "lsmod", "stty", "id" };

	run("mkdir -p %s/tree/bin %s/tree/etc/ssh %s/tree/tmp && cp " BUSYBOX
	    " %s/tree/bin/busybox",
		world, world, world, world);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		run("ln -s busybox %s/tree/bin/%s", world, names[i]);
	run("echo 00000000000000000000000000000000 >%s/tree/etc/machine-id; "
	    "echo old >%s/tree/etc/ssh/ssh_host_rsa_key; "
	    "echo root:x:0:0:root:/:/bin/sh >%s/tree/etc/passwd",
		world, world, world);
	/* Some modules, and all that is known of modules. */
	run("cd %s && mkdir -p %s/tree/lib/modules/%s/kernel/drivers && "
	    "cp modules.dep modules.alias modules.builtin %s/tree/lib/modules/%s && "
	    "cp --parents kernel/drivers/net/dummy.ko kernel/drivers/net/veth.ko "
	    "kernel/lib/libcrc32c.ko %s/tree/lib/modules/%s",
		vm_kernel_get_modules(kernel), world, vm_kernel_get_version(kernel), world,
		vm_kernel_get_version(kernel), world, vm_kernel_get_version(kernel));
	run("mkfs.erofs -zlz4 %s/image %s/tree >/dev/null 2>&1", world, world);
}

bool vm_world_open(void)
{
	const char *path = getenv("BOX_TEST_VM_KERNEL");
	_cleanup_free_ char *image = xasprintf("%s/vmlinuz", path ? path : "");
	_cleanup_free_ char *dir = NULL;
	struct vm_kernel_config config = { .path = path, .resolv_conf = "nameserver 198.18.0.1\n" };
	struct err err = ERR_INIT;

	if (is_missing(image, "scripts/vm-kernel gets it") ||
		is_missing(QEMU, "scripts/deps vm installs it") ||
		is_missing("/usr/bin/mkfs.erofs", "scripts/deps vm installs it") ||
		is_missing(BUSYBOX, "scripts/deps test installs it"))
		return false;
	if (!mkdtemp(world))
		fail_msg("mkdtemp");
	dir = xasprintf("%s/kernel", world);
	config.dir = dir;
	if (vm_kernel_open(&config, &kernel, &err) < 0)
		fail_msg("%s", err.message);
	make_image();
	return true;
}

void vm_world_close(void)
{
	vm_kernel_free(kernel);
	tree_remove(AT_FDCWD, world, NULL);
}

const char *vm_world_dir(void)
{
	return world;
}

/* ---- one machine ---------------------------------------------------------------------------- */

static uint64_t measure_tsc_khz(void)
{
	int64_t began = clock_mono_us(), now;
	uint64_t first = __rdtsc();

	while ((now = clock_mono_us()) < began + 10000)
		continue;
	return (__rdtsc() - first) * 1000 / (uint64_t)(now - began);
}

static void on_event(struct qmp *qmp, const char *name, json_t *data, void *arg)
{
	struct vm *vm = arg;
	const char *reason = json_string_value(json_object_get(data, "reason"));

	(void)qmp;
	if (!strcmp(name, "SHUTDOWN") && reason)
		snprintf(vm->shutdown, sizeof vm->shutdown, "%s", reason);
}

static void on_qmp_lost(struct qmp *qmp, const struct err *err, void *arg)
{
	struct vm *vm = arg;

	(void)qmp;
	(void)err;
	vm->ended++;
	qmp_free(steal_ptr(&vm->qmp));
}

static int connect_at(const char *dir, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", dir, name);
	for (int i = 0; i < 1000; i++) {
		if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) {
			fcntl(fd, F_SETFL, O_NONBLOCK);
			return fd;
		}
		usleep(10000);
	}
	fail_msg("QEMU does not listen at %s", address.sun_path);
	return -1;
}

static void execute(const struct vm *vm, const char *state)
{
	_cleanup_free_ char *line = vm_kernel_cmdline(kernel, false, measure_tsc_khz());
	_cleanup_free_ char *boot =
		state ? xasprintf("-incoming 'exec:cat %s'", state)
		      : xasprintf("-kernel %s -initrd %s -append '%s'", vm_kernel_get_image(kernel),
				vm_kernel_get_initrd(kernel), line);
	_cleanup_free_ char *net = vm_tap < 0 ? xstrdup("user,id=n0")
					      : xasprintf("tap,id=n0,fd=%d,vhost=off", dup(vm_tap));
	_cleanup_free_ char *command = xasprintf(
		"cd %s && exec " QEMU
		" -M microvm,acpi=on,rtc=on,pit=on,pic=on,isa-serial=on -accel tcg,thread=multi "
		"-cpu max -m %d -smp 1 -display none -nodefaults -no-user-config -no-reboot "
		"-serial file:console -chardev socket,id=mon,path=qmp,server=on,wait=off "
		"-mon chardev=mon,mode=control "
		"-chardev socket,id=c0,path=link,server=on,wait=off "
		"-chardev socket,id=c1,path=control,server=on,wait=off "
		"-device virtio-serial-device -device virtserialport,chardev=c0,name=box.0 "
		"-device virtserialport,chardev=c1,name=box.1 "
		"-blockdev driver=raw,node-name=ro,read-only=on,file.driver=file,"
		"file.filename=%s/image -device virtio-blk-device,drive=ro "
		"-blockdev driver=raw,node-name=rw,discard=unmap,file.driver=file,"
		"file.filename=disk -device virtio-blk-device,drive=rw "
		"-netdev %s -device virtio-net-device,netdev=n0,mac=52:54:00:00:00:02 %s "
		"</dev/null >qemu.log 2>&1",
		vm->dir, RAM_MB, world, net, boot);

	/* Whatever becomes of the test. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

void vm_make_disk(struct vm *vm)
{
	run("mke2fs -q -t ext4 -m0 -E lazy_itable_init=1,nodiscard %s/disk", vm->dir);
}

struct vm *vm_start(struct loop *loop, const char *name, const char *state, bool disk)
{
	static const struct qmp_ops ops = { .on_event = on_event, .on_lost = on_qmp_lost };
	struct vm *vm = xnew(struct vm);

	vm->loop = loop;
	vm->dir = xasprintf("%s/%s", world, name);
	run("mkdir %s", vm->dir);
	if (state)
		run("cp --sparse=always %s.disk %s/disk", state, vm->dir);
	else
		run("truncate -s %dM %s/disk", DISK_MB, vm->dir);
	if (disk && !state)
		vm_make_disk(vm);
	vm->pid = fork();
	if (!vm->pid)
		execute(vm, state);
	vm->qmp = qmp_new(loop, connect_at(vm->dir, "qmp"), &ops, vm);
	return vm;
}

void vm_free(struct vm *vm)
{
	link_free(vm->link);
	control_free(vm->control);
	qmp_free(vm->qmp);
	kill(vm->pid, SIGKILL);
	waitpid(vm->pid, NULL, 0);
	free(vm->dir);
	free(vm);
}

/* ---- waiting -------------------------------------------------------------------------------- */

struct waiting {
	struct loop *loop;
	struct loop_timer *timer;
	const unsigned *what;
	unsigned value;
	int64_t end;
};

static void on_look(void *arg)
{
	struct waiting *waiting = arg;

	if (*waiting->what >= waiting->value || clock_mono_us() > waiting->end)
		loop_stop(waiting->loop);
	else
		loop_timer_start(waiting->timer, 1);
}

void vm_wait(struct vm *vm, const unsigned *what, unsigned value, unsigned seconds)
{
	struct waiting waiting = { .loop = vm->loop,
		.what = what,
		.value = value,
		.end = clock_mono_us() + (int64_t)seconds * 1000000 };

	waiting.timer = loop_timer_new(vm->loop, on_look, &waiting);
	loop_timer_start(waiting.timer, 0);
	loop_run(vm->loop);
	loop_timer_free(waiting.timer);
	if (*what < value) {
		run("tail -n 20 %s/console >&2", vm->dir);
		fail_msg("the VM did not do it in time; %s", vm->err.message);
	}
}

/* ---- the ports ------------------------------------------------------------------------------ */

static void on_ready(struct control *control, void *arg)
{
	(void)control;
	((struct vm *)arg)->ready++;
}

static void on_failed(struct control *control, const struct err *err, void *arg)
{
	struct vm *vm = arg;

	(void)control;
	vm->err = *err;
	vm->failed++;
}

void vm_tell(struct vm *vm, enum control_kind kind, const char *hostname)
{
	static const struct control_ops ops = { on_ready, on_failed, NULL };
	_cleanup_free_ char *path = xasprintf("%s/control", vm->dir);
	struct control_spec spec = { .path = path, .tell = { .kind = kind, .hostname = hostname } };

	random_bytes(spec.tell.generation, sizeof spec.tell.generation);
	vm->control = control_new(vm->loop, &spec, &ops, vm);
	vm_wait(vm, &vm->ready, 1, BOOT_SECONDS);
}

static void on_link_ready(struct link *link, void *arg)
{
	(void)link;
	((struct vm *)arg)->link_ready++;
}

static void on_link_lost(struct link *link, const struct err *err, void *arg)
{
	struct vm *vm = arg;

	vm->err = *err;
	vm->link = NULL;
	vm->link_lost++;
	link_free(link);
}

static int connect_again(void *arg, int *ret, struct err *err)
{
	(void)err;
	*ret = connect_at(((struct vm *)arg)->dir, "link");
	return 0;
}

void vm_connect(struct vm *vm)
{
	static const struct link_ops ops = { .on_ready = on_link_ready, .on_lost = on_link_lost };
	unsigned before = vm->link_ready;
	int fd = -1;

	link_free(vm->link);
	vm->link = link_new(vm->loop, -1, &ops, vm);
	connect_again(vm, &fd, NULL);
	link_attach_port(vm->link, fd, connect_again, vm);
	vm_wait(vm, &vm->link_ready, before + 1, BOOT_SECONDS);
}

struct running {
	struct buf output;
	unsigned done;
	struct err err;
};

static void on_data(struct chan *chan, enum wire_stream stream, uint64_t offset, const void *data,
	size_t len, void *arg)
{
	(void)stream;
	(void)offset;
	buf_add(&((struct running *)arg)->output, data, len);
	chan_consumed(chan, len);
}

static void on_error(struct chan *chan, const struct err *err, void *arg)
{
	(void)chan;
	((struct running *)arg)->err = *err;
	((struct running *)arg)->done++;
}

static void on_closed(struct chan *chan, void *arg)
{
	(void)chan;
	((struct running *)arg)->done++;
}

/* Runs spec with input; its output, yours. */
static struct buf run_spec(
	struct vm *vm, struct wire_exec_spec *spec, const void *input, size_t len)
{
	static const struct chan_ops ops = {
		.on_data = on_data, .on_error = on_error, .on_closed = on_closed
	};
	const char *const env[] = { NULL };
	struct running running = { .output = BUF_INIT };
	struct buf request = BUF_INIT;
	struct chan *chan;
	char id[17];

	random_id(id, 16);
	spec->id = id;
	spec->env = env;
	spec->attach = true;
	wire_put_exec_spec(&request, spec);
	chan = chan_open(vm->link, WIRE_OP_EXEC_START, &request, &ops, &running, &vm->err);
	if (!chan)
		fail_msg("%s", vm->err.message);
	buf_done(&request);
	if (len) {
		assert_int_equal(chan_send(chan, input, len), len);
		chan_send_end(chan);
	}
	vm_wait(vm, &running.done, 1, BOOT_SECONDS);
	if (running.err.kind)
		fail_msg("%s: %s", spec->argv[0], running.err.message);
	return running.output;
}

char *vm_run(struct vm *vm, const char *command)
{
	const char *const argv[] = { "sh", "-c", command, NULL };
	struct wire_exec_spec spec = { .argv = argv, .cwd = "/" };
	struct buf output = run_spec(vm, &spec, NULL, 0);
	char *text = xstrdup(buf_str(&output));

	buf_done(&output);
	return text;
}

struct buf vm_sftp(struct vm *vm, const char *user, const void *request, size_t len)
{
	const char *const argv[] = { "/none/sftp-server", NULL };
	struct wire_exec_spec spec = {
		.argv = argv, .user = user, .stdin_open = true, .builtin = WIRE_BUILTIN_SFTP
	};

	return run_spec(vm, &spec, request, len);
}

/* ---- captures ------------------------------------------------------------------------------- */

struct call {
	unsigned done;
	char status[32];
};

static void on_called(json_t *result, const struct err *err, void *arg)
{
	struct call *call = arg;
	const char *status = json_string_value(json_object_get(result, "status"));

	if (err)
		fail_msg("QEMU: %s", err->message);
	snprintf(call->status, sizeof call->status, "%s", status ? status : "");
	call->done++;
}

static void ask_qmp(struct vm *vm, const char *command, const char *arguments, struct call *call)
{
	json_t *given = arguments ? json_loads(arguments, 0, NULL) : NULL;

	*call = (struct call){ 0 };
	qmp_call(vm->qmp, command, given, -1, on_called, call);
	vm_wait(vm, &call->done, 1, BOOT_SECONDS);
}

void vm_qmp(struct vm *vm, const char *command, const char *arguments)
{
	struct call call;

	ask_qmp(vm, command, arguments, &call);
}

void vm_capture(struct vm *vm, const char *state)
{
	_cleanup_free_ char *arguments = xasprintf("{\"uri\":\"exec:cat >%s\"}", state);
	struct call call;

	vm_qmp(vm, "stop", NULL);
	vm_qmp(vm, "migrate", arguments);
	do {
		ask_qmp(vm, "query-migrate", NULL, &call);
		usleep(10000);
	} while (strcmp(call.status, "completed") != 0);
	run("cp --sparse=always %s/disk %s.disk", vm->dir, state);
}

void vm_go_on(struct vm *vm)
{
	struct call call;

	do
		ask_qmp(vm, "query-status", NULL, &call);
	while (!strcmp(call.status, "inmigrate"));
	vm_qmp(vm, "cont", NULL);
}
