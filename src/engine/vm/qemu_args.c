/* qemu_args.c - the command line of a QEMU
 *
 * A device state can be loaded only by a machine with the same options and the same devices in the
 * same order, so there is one command line for all; the differences (a kernel or a state to come,
 * disks or placeholders) are those a state does not see. */
#include "base/json.h"
#include "base/strv.h"
#include "engine/vm/qemu_internal.h"

enum { MIB = 1024 * 1024, TRANSLATION_MIN_MIB = 32, TRANSLATION_MAX_MIB = 256 };

/* The cache of translated code grows to this size and is then emptied. By default QEMU uses up
 * to a GiB, more than the whole box may have. */
static uint64_t translation_mib(const struct qemu_machine *machine)
{
	uint64_t eighth = machine->ram_bytes / MIB / 8;

	return MIN(MAX(eighth, TRANSLATION_MIN_MIB), TRANSLATION_MAX_MIB);
}

uint64_t qemu_overhead_bytes(const struct qemu_machine *machine)
{
	return (64 + (machine->kvm ? 0 : translation_mib(machine))) * (uint64_t)MIB;
}

static void add(char ***argv, const char *option, char *value)
{
	strv_add(argv, option);
	if (value)
		strv_add(argv, value);
	free(value);
}

#define addf(argv, option, ...) add((argv), (option), xasprintf(__VA_ARGS__))

/* qboot, ACPI because Debian's kernels find virtio-mmio only by it, one serial port. */
static void add_machine(char ***argv, const struct qemu_machine *machine)
{
	const char *timers = machine->kvm ? "pit=off,pic=off" : "pit=on,pic=on";

	addf(argv, "-machine", "microvm,acpi=on,rtc=on,%s,isa-serial=on,memory-backend=ram",
		timers);
	addf(argv, "-object", "memory-backend-memfd,id=ram,size=%lluM,share=on",
		(unsigned long long)(machine->ram_bytes / MIB));
	addf(argv, "-m", "%llu", (unsigned long long)(machine->ram_bytes / MIB));
	addf(argv, "-smp", "%u", machine->cpus);
	if (machine->kvm)
		addf(argv, "-accel", "kvm");
	else
		addf(argv, "-accel", "tcg,thread=multi,tb-size=%llu",
			(unsigned long long)translation_mib(machine));
	addf(argv, "-cpu", "%s", machine->kvm ? "host" : "max");
	strv_add(argv, "-nodefaults");
	strv_add(argv, "-no-user-config");
	addf(argv, "-display", "none");
	addf(argv, "-sandbox",
		"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	/* Paused, not ended, so that a later daemon can still learn the reason. */
	addf(argv, "-action", "reboot=shutdown,shutdown=pause,panic=pause");
}

static void add_sockets(char ***argv)
{
	addf(argv, "-chardev", "socket,id=qmp,fd=%d,server=on,wait=off", QEMU_FD_QMP);
	addf(argv, "-mon", "chardev=qmp,mode=control");
	addf(argv, "-chardev", "ringbuf,id=console,size=%d", QEMU_CONSOLE_BYTES);
	addf(argv, "-serial", "chardev:console");
	addf(argv, "-chardev", "socket,id=link,fd=%d,server=on,wait=off", QEMU_FD_LINK);
	addf(argv, "-chardev", "socket,id=control,fd=%d,server=on,wait=off", QEMU_FD_CONTROL);
	addf(argv, "-device", "virtio-serial-device,id=ports");
	addf(argv, "-device", "virtserialport,chardev=link,name=box.0,id=port-link");
	addf(argv, "-device", "virtserialport,chardev=control,name=box.1,id=port-control");
}

static void add_json(char ***argv, const char *option, json_t *value)
{
	add(argv, option, json_text(value));
	json_decref(value);
}

/* Short names: QEMU reads its monitor byte by byte, three microseconds each. */
static const struct {
	const char *node, *file, *none;
} names[] = { [false] = { "rw", "w", "x" }, [true] = { "ro", "r", "q" } };

json_t *qemu_node_file(bool image, int set)
{
	_cleanup_free_ char *path = xasprintf("/dev/fdset/%d", set);
	json_t *node = json_pack("{s:s, s:s, s:s, s:s}", "driver", "file", "node-name",
		names[image].file, "filename", path, "locking", "off");

	if (image)
		json_object_set_new(node, "read-only", json_true());
	else
		json_object_update_new(node,
			json_pack("{s:s, s:{s:b}}", "discard", "unmap", "cache", "direct", 1));
	return node;
}

json_t *qemu_node_raw(bool image, bool placeholder)
{
	json_t *node = json_pack("{s:s, s:s, s:s}", "driver", "raw", "node-name", names[image].node,
		"file", placeholder ? names[image].none : names[image].file);

	if (image)
		json_object_set_new(node, "read-only", json_true());
	else
		json_object_set_new(node, "discard", json_string("unmap"));
	return node;
}

/* A raw node over a file, or over nothing: blockdev-reopen adds the file later. */
static void add_disk(char ***argv, bool image, int fd, int number)
{
	int set = image ? QEMU_SET_IMAGE : QEMU_SET_DISK;

	if (fd >= 0) {
		addf(argv, "-add-fd", "fd=%d,set=%d", number, set);
		add_json(argv, "-blockdev", qemu_node_file(image, set));
	} else {
		add_json(argv, "-blockdev",
			json_pack("{s:s, s:s, s:i, s:b, s:b}", "driver", "null-co", "node-name",
				names[image].none, "size", MIB, "read-zeroes", 1, "read-only",
				image));
	}
	add_json(argv, "-blockdev", qemu_node_raw(image, fd < 0));
	if (image)
		addf(argv, "-device", "virtio-blk-device,drive=ro,id=disk-ro");
	else
		addf(argv, "-device",
			"virtio-blk-device,drive=rw,id=disk-rw,werror=stop,rerror=report");
}

static void add_network(char ***argv, int tap)
{
	if (tap >= 0)
		addf(argv, "-netdev", "tap,id=net,fd=%d,vhost=off", QEMU_FD_TAP);
	addf(argv, "-device",
		"virtio-net-device,id=card,guest_announce=off,mac=52:54:00:00:00:02%s",
		tap >= 0 ? ",netdev=net" : "");
}

/* Always -S: nothing of a guest runs before the root is empty. */
static void add_beginning(char ***argv, const struct qemu_spec *spec)
{
	strv_add(argv, "-S");
	addf(argv, "-global", "migration.send-configuration=off");
	if (!spec->kernel) {
		addf(argv, "-incoming", "defer");
		return;
	}
	addf(argv, "-kernel", QEMU_IN_KERNEL);
	if (spec->initrd)
		addf(argv, "-initrd", QEMU_IN_INITRD);
	addf(argv, "-append", "%s", spec->cmdline ? spec->cmdline : "");
}

char **qemu_argv(const struct qemu_spec *spec)
{
	char **argv = NULL;

	strv_add(&argv, spec->machine->program);
	add_machine(&argv, spec->machine);
	add_sockets(&argv);
	add_disk(&argv, true, spec->image, QEMU_FD_IMAGE);
	add_disk(&argv, false, spec->disk, QEMU_FD_DISK);
	add_network(&argv, spec->tap);
	add_beginning(&argv, spec);
	return argv;
}
