/* vm.c - boxes with their own kernel, through the API
 *
 * Three boxes are measured, each made on first use: a small one of the default size, one of 256
 * MB that hibernates, and one of 1 GB that has just written 500 MB when it is forked. The first
 * run of a row, which is not counted, waits for the template. The private memory of a box is
 * read from its processes, which are found by its cgroup. */
#include "bench/bench_internal.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/client.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

enum {
	TEN = 10,
	LOOK_US = 2 * 1000 * 1000,
	SPARE_US = 10 * 1000 * 1000,
	SPARE_LOOK_US = 50 * 1000,
	DIRTY_NEEDS_MIB = 4 * 1024,
};

#define SMALL	",\"driver\":\"vm\""
#define SLEEPER ",\"driver\":\"vm\",\"memory\":\"256M\""
#define LARGE	",\"driver\":\"vm\",\"memory\":\"1G\""

static struct {
	char *small, *sleeper, *large;
	char accelerator[8];
	unsigned written; /* how often the large one has written */
} vm;

const char *bench_vm_accelerator(void)
{
	return *vm.accelerator ? vm.accelerator : "tcg";
}

static int check_driver(struct bench_boxes *boxes, struct err *err)
{
	_cleanup_json_ json_t *info = NULL;
	const char *why;
	json_t *driver;

	if (client_get(bench_boxes_get_client(boxes), "/v1/info", &info, err) < 0)
		return -1;
	driver = json_object_get(json_object_get(info, "drivers"), "vm");
	why = json_string_value(json_object_get(driver, "why"));
	if (!json_is_true(json_object_get(driver, "available")))
		return err_set(err, ERR_UNSUPPORTED, "there is no driver vm: %s",
			why ?: "this daemon does not know it");
	if (!json_is_true(json_object_get(driver, "allowed")))
		return err_set(err, ERR_UNSUPPORTED, "the configuration demands another driver");
	snprintf(vm.accelerator, sizeof vm.accelerator, "%s",
		json_string_value(json_object_get(driver, "accelerator")) ?: "");
	return 0;
}

/* Makes the box if it does not exist, else wakes it. */
static int need(struct bench_boxes *boxes, char **box, const char *members, struct err *err)
{
	if (*box)
		return bench_states_post(boxes, *box, "wake", NULL, err);
	return check_driver(boxes, err) < 0 ? -1
					    : bench_boxes_make_with(boxes, members, box, NULL, err);
}

/* ---- creating ------------------------------------------------------------------------------- */

/* One that was taken is replaced some seconds later. Without spares (BOX_SPARES=0) it is waited for
 * in vain, SPARE_US before each run. */
static int wait_for_spare(struct bench_boxes *boxes, struct err *err)
{
	int64_t end = clock_mono_us() + SPARE_US;

	for (;;) {
		_cleanup_json_ json_t *info = NULL;

		if (client_get(bench_boxes_get_client(boxes), "/v1/info", &info, err) < 0)
			return -1;
		if (json_integer_value(json_object_get(info, "spares")) > 0 ||
			clock_mono_us() > end)
			return 0;
		usleep(SPARE_LOOK_US);
	}
}

int bench_vm_create_first_byte(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *box = NULL;
	double made, said;
	int done;

	if (check_driver(boxes, err) < 0 || wait_for_spare(boxes, err) < 0 ||
		bench_boxes_make_with(boxes, SMALL, &box, &made, err) < 0)
		return -1;
	done = bench_boxes_echo(boxes, box, &said, err);
	if (bench_boxes_remove(boxes, box, NULL, done < 0 ? NULL : err) < 0 || done < 0)
		return -1;
	*ret = made + said;
	return 0;
}

int bench_vm_exec_first_byte(struct bench_boxes *boxes, double *ret, struct err *err)
{
	return need(boxes, &vm.small, SMALL, err) < 0 ? -1
						      : bench_boxes_echo(boxes, vm.small, ret, err);
}

/* ---- suspend and hibernate ------------------------------------------------------------------ */

int bench_vm_suspend(struct bench_boxes *boxes, double *ret, double *ret_resume, struct err *err)
{
	if (need(boxes, &vm.small, SMALL, err) < 0 ||
		bench_states_post(boxes, vm.small, "suspend", ret, err) < 0)
		return -1;
	return bench_states_post(boxes, vm.small, "resume", ret_resume, err);
}

int bench_vm_hibernate(struct bench_boxes *boxes, double *ret, double *ret_wake, struct err *err)
{
	if (need(boxes, &vm.sleeper, SLEEPER, err) < 0 ||
		bench_states_post(boxes, vm.sleeper, "hibernate", ret, err) < 0)
		return -1;
	return bench_states_post(boxes, vm.sleeper, "wake", ret_wake, err);
}

/* ---- forks ---------------------------------------------------------------------------------- */

int bench_vm_fork(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return need(boxes, &vm.small, SMALL, err) < 0
		       ? -1
		       : bench_states_fork(boxes, vm.small, 1, ret, ret_paused, err);
}

int bench_vm_fork_10(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	return need(boxes, &vm.small, SMALL, err) < 0
		       ? -1
		       : bench_states_fork(boxes, vm.small, TEN, ret, ret_paused, err);
}

/* Other bytes each time: captured pages are no longer dirty. */
static int write_memory(struct bench_boxes *boxes, struct err *err)
{
	_cleanup_free_ char *script =
		xasprintf("mountpoint -q /mnt || mount -t tmpfs -o size=600m dirty /mnt; "
			  "yes 'boxyard %u' | head -c 500M | dd of=/mnt/dirty bs=1M "
			  "conv=notrunc iflag=fullblock status=none",
			vm.written++);

	return bench_boxes_run(boxes, vm.large, script, NULL, err);
}

int bench_vm_fork_dirty(struct bench_boxes *boxes, double *ret, double *ret_paused, struct err *err)
{
	double room;

	if (!vm.large && bench_memory_available(&room, err) < 0)
		return -1;
	if (!vm.large && room < DIRTY_NEEDS_MIB)
		return err_set(err, ERR_UNSUPPORTED, "needs %d MB of free memory, there are %.0f",
			DIRTY_NEEDS_MIB, room);
	if (need(boxes, &vm.large, LARGE, err) < 0 || write_memory(boxes, err) < 0)
		return -1;
	return bench_states_fork(boxes, vm.large, 1, ret, ret_paused, err);
}

/* ---- memory and CPU ------------------------------------------------------------------------- */

static int id_of(struct bench_boxes *boxes, const char *name, char **ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s", name);
	_cleanup_json_ json_t *box = NULL;

	if (client_get(bench_boxes_get_client(boxes), path, &box, err) < 0)
		return -1;
	*ret = xstrdup(json_string_value(json_object_get(box, "id")) ?: "");
	return **ret ? 0 : err_set(err, ERR_PROTOCOL, "the answer does not hold the box's id");
}

static bool is_in_group(const char *process, const char *end)
{
	_cleanup_free_ char *path = xasprintf("/proc/%s/cgroup", process), *text = NULL;

	return file_read(AT_FDCWD, path, 16 * 1024, &text, NULL, NULL) == 0 && strstr(text, end);
}

/* Sums up all processes in the cgroup of the box. */
static int private_of(const char *id, double *ret, struct err *err)
{
	_cleanup_free_ char *end = xasprintf("/%s\n", id);
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	size_t found = 0;

	*ret = 0;
	while (processes && (entry = readdir(processes))) {
		double own;

		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
			!is_in_group(entry->d_name, end) ||
			bench_memory_own((pid_t)strtol(entry->d_name, NULL, 10), &own, NULL) < 0)
			continue;
		*ret += own;
		found++;
	}
	if (processes)
		closedir(processes);
	return found ? 0 : err_set(err, ERR_NOT_FOUND, "no process of the box can be found");
}

int bench_vm_private(struct bench_boxes *boxes, double *ret, struct err *err)
{
	_cleanup_free_ char *box = NULL, *id = NULL;
	int done;

	if (check_driver(boxes, err) < 0 ||
		bench_boxes_make_with(boxes, SMALL, &box, NULL, err) < 0)
		return -1;
	done = id_of(boxes, box, &id, err) < 0 ? -1 : private_of(id, ret, err);
	return bench_boxes_remove(boxes, box, NULL, done < 0 ? NULL : err) < 0 ? -1 : done;
}

static int processor_of(struct bench_boxes *boxes, const char *box, double *ret, struct err *err)
{
	_cleanup_free_ char *path = client_path("/v1/boxes/%s/stats", box);
	_cleanup_json_ json_t *stats = NULL;

	if (client_get(bench_boxes_get_client(boxes), path, &stats, err) < 0)
		return -1;
	*ret = (double)json_integer_value(json_object_get(stats, "cpu_us")) / 1000.0;
	return 0;
}

int bench_vm_cpu_suspended(struct bench_boxes *boxes, double *ret, struct err *err)
{
	double before, after;

	if (need(boxes, &vm.small, SMALL, err) < 0 ||
		bench_states_post(boxes, vm.small, "suspend", NULL, err) < 0 ||
		processor_of(boxes, vm.small, &before, err) < 0)
		return -1;
	usleep(LOOK_US);
	if (processor_of(boxes, vm.small, &after, err) < 0)
		return -1;
	*ret = after - before;
	return bench_states_post(boxes, vm.small, "resume", NULL, err);
}

/* ---- cleaning up ---------------------------------------------------------------------------- */

void bench_vm_done(struct bench_boxes *boxes)
{
	char **const names[] = { &vm.small, &vm.sleeper, &vm.large };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (*names[i])
			bench_boxes_remove(boxes, *names[i], NULL, NULL);
		free(*names[i]);
		*names[i] = NULL;
	}
}
