/* items.c - the table of what `box bench` measures, and rows that follow from others */
#include "bench/bench_internal.h"
#include "base/alloc.h"
#include <string.h>

#define PEERS	    "bwrap crun runc podman runsc"
#define STREAMS	    "stdout_64m cp_in_64m cp_out_64m"
#define STATE_PEERS "podman_checkpoint runsc_checkpoint"

enum { STREAM_RUNS = 20, STATE_RUNS = 100, SMALL_RUNS = 60, WORK_RUNS = 20, FEW_RUNS = 8 };

const struct bench_item bench_items[] = {
	{ "create_first_byte", "ms", ROW_TIME, GROUP_COLD,
		"new box and `echo` in it to its first byte, API", .run = bench_create_first_byte,
		.needs = PEERS },
	{ "bwrap", "ms", ROW_TIME, GROUP_COLD, "the same with bubblewrap", .is_peer = true,
		.peer = PEER_BWRAP },
	{ "crun", "ms", ROW_TIME, GROUP_COLD, "the same with crun", .is_peer = true,
		.peer = PEER_CRUN },
	{ "runc", "ms", ROW_TIME, GROUP_COLD, "the same with runc", .is_peer = true,
		.peer = PEER_RUNC },
	{ "podman", "ms", ROW_TIME, GROUP_COLD, "the same with podman", .is_peer = true,
		.peer = PEER_PODMAN },
	{ "runsc", "ms", ROW_TIME, GROUP_COLD, "the same with gVisor", .is_peer = true,
		.peer = PEER_RUNSC },
	{ "daemon_round_trip", "ms", ROW_TIME, GROUP_COLD, "GET /v1/health",
		.run = bench_round_trip },
	{ "floor_exec", "ms", ROW_TIME, GROUP_COLD, "`echo` on the host to its first byte",
		.run = bench_floor_exec },
	{ "create_vs_bwrap", "ratio", ROW_RATIO, GROUP_DERIVED,
		"create_first_byte over bwrap + daemon_round_trip",
		.needs = "create_first_byte bwrap daemon_round_trip" },
	{ "create", "ms", ROW_TIME, GROUP_VERBS, "POST /v1/boxes alone", .run = bench_create },
	{ "exec_first_byte", "ms", ROW_TIME, GROUP_VERBS,
		"`echo` in a running box to its first byte, API", .run = bench_exec_first_byte },
	{ "exec_cli", "ms", ROW_TIME, GROUP_VERBS, "`box exec BOX -- echo hi` to its exit",
		.run = bench_exec_cli },
	{ "remove", "ms", ROW_TIME, GROUP_VERBS, "DELETE of a running box", .run = bench_remove },
	{ "stdout_64m", "MB/s", ROW_RATE, GROUP_STREAMS, "64 MB out of `box exec` into a pipe",
		.stream = bench_stdout_stream },
	{ "cp_in_64m", "MB/s", ROW_RATE, GROUP_STREAMS, "`box cp` of a 64 MB file into a box",
		.stream = bench_cp_in },
	{ "cp_out_64m", "MB/s", ROW_RATE, GROUP_STREAMS, "`box cp` of a 64 MB file out of a box",
		.stream = bench_cp_out },
	{ "daemon_rss", "MB", ROW_SIZE, GROUP_STREAMS, "memory of the daemon meanwhile",
		.needs = STREAMS },
	{ "image_save", "ms", ROW_TIME, GROUP_DISK, "image of a box with 512 MB on its disk",
		.run = bench_image_save },
	{ "remove_64m", "ms", ROW_TIME, GROUP_REMOVAL,
		"DELETE of a running box with 64 MB on its disk", .run = bench_remove_full },
	{ "image_import", "MB/s", ROW_RATE, GROUP_IMPORT, "import of a root file system as tar",
		.run = bench_image_import },
	{ "untar_10k", "ms", ROW_TIME, GROUP_FILES, "tar x of 10,000 files in a box",
		.run = bench_untar_box },
	{ "untar_10k_host", "ms", ROW_TIME, GROUP_FILES, "the same on the host's file system",
		.run = bench_untar_host },
	{ "untar_10k_ratio", "ratio", ROW_RATIO, GROUP_DERIVED, "box over host",
		.needs = "untar_10k untar_10k_host" },
	{ "npm_install", "ms", ROW_TIME, GROUP_FILES, "npm ci in a box, from a local cache",
		.run = bench_npm_box },
	{ "npm_install_host", "ms", ROW_TIME, GROUP_FILES, "the same on the host's file system",
		.run = bench_npm_host },
	{ "npm_install_ratio", "ratio", ROW_RATIO, GROUP_DERIVED, "box over host",
		.needs = "npm_install npm_install_host" },
	{ "page_cache_first", "ms", ROW_TIME, GROUP_CACHE,
		"200 MB of the image read in a box, nothing cached", .run = NULL },
	{ "page_cache_second", "ms", ROW_TIME, GROUP_CACHE, "the same in a second box",
		.run = NULL },
	{ "page_cache_first_grown", "MB", ROW_SIZE, GROUP_CACHE,
		"what the host's page cache grew by for the first", .run = NULL },
	{ "page_cache_second_grown", "MB", ROW_SIZE, GROUP_CACHE, "and for the second",
		.run = NULL },
	{ "list_500", "ms", ROW_TIME, GROUP_MANY, "GET /v1/boxes with 500 idle boxes",
		.run = bench_list_boxes },
	{ "idle_500_daemon_rss", "MB", ROW_SIZE, GROUP_MANY,
		"memory of the daemon with 500 idle boxes", .run = NULL },
	{ "idle_500_per_box", "MB", ROW_SIZE, GROUP_MANY, "memory of the host for each of them",
		.run = NULL },
	{ "suspend", "ms", ROW_TIME, GROUP_STATES, "POST suspend of the small box",
		.pair = bench_suspend, .most = STATE_RUNS, .second = "resume", .needs = "resume" },
	{ "resume", "ms", ROW_TIME, GROUP_STATES, "POST resume of it", .needs = "suspend" },
	{ "resume_first_byte", "ms", ROW_TIME, GROUP_STATES,
		"POST resume to the first byte of a program in the box", .pair = bench_resume,
		.most = STATE_RUNS, .second = "resume_answer", .needs = "resume_answer" },
	{ "resume_answer", "ms", ROW_TIME, GROUP_STATES, "the same to its answer",
		.needs = "resume_first_byte" },
	{ "wake_exec", "ms", ROW_TIME, GROUP_STATES,
		"exec of `echo` in a suspended box to its first byte", .run = bench_wake_exec,
		.most = STATE_RUNS },
	{ "wake_exec_hibernated", "ms", ROW_TIME, GROUP_STATES, "the same, hibernated",
		.run = bench_wake_exec_hibernated, .most = WORK_RUNS },
	{ "url_awake", "ms", ROW_TIME, GROUP_STATES,
		"a request to a box's URL, connected anew, to its first byte",
		.run = bench_url_awake, .most = STATE_RUNS },
	{ "wake_url", "ms", ROW_TIME, GROUP_STATES, "the same, suspended", .run = bench_wake_url,
		.most = STATE_RUNS, .needs = "url_awake" },
	{ "wake_url_hibernated", "ms", ROW_TIME, GROUP_STATES, "the same, hibernated",
		.run = bench_wake_url_hibernated, .most = WORK_RUNS, .needs = "url_awake" },
	{ "hibernate_small", "ms", ROW_TIME, GROUP_STATES, "POST hibernate of the small box",
		.pair = bench_hibernate_small, .most = SMALL_RUNS, .second = "wake_small",
		.needs = "wake_small " STATE_PEERS },
	{ "wake_small", "ms", ROW_TIME, GROUP_STATES, "POST wake of it",
		.needs = "hibernate_small" },
	{ "hibernate_work", "ms", ROW_TIME, GROUP_STATES, "POST hibernate of the working box",
		.pair = bench_hibernate_work, .most = FEW_RUNS, .second = "wake_work",
		.needs = "wake_work", .about = bench_states_parts },
	{ "wake_work", "ms", ROW_TIME, GROUP_STATES, "POST wake of it", .needs = "hibernate_work" },
	{ "podman_checkpoint", "ms", ROW_TIME, GROUP_STATES,
		"`podman container checkpoint` of a `sleep`", .is_peer = true,
		.peer = PEER_PODMAN_STATE, .most = FEW_RUNS, .versus = "hibernate_small",
		.second = "podman_restore", .needs = "podman_restore" },
	{ "podman_restore", "ms", ROW_TIME, GROUP_STATES, "`podman container restore` of it",
		.is_peer = true, .is_second = true, .versus = "wake_small",
		.needs = "podman_checkpoint" },
	{ "runsc_checkpoint", "ms", ROW_TIME, GROUP_STATES, "`runsc checkpoint` of a `sleep`",
		.is_peer = true, .peer = PEER_RUNSC_STATE, .most = FEW_RUNS,
		.versus = "hibernate_small", .second = "runsc_restore", .needs = "runsc_restore" },
	{ "runsc_restore", "ms", ROW_TIME, GROUP_STATES, "`runsc restore` of it", .is_peer = true,
		.is_second = true, .versus = "wake_small", .needs = "runsc_checkpoint" },
	{ "fork_small", "ms", ROW_TIME, GROUP_STATES, "POST fork of the small box, one child",
		.pair = bench_fork_small, .most = SMALL_RUNS, .second = "fork_small_paused",
		.needs = "fork_small_paused" },
	{ "fork_small_paused", "ms", ROW_TIME, GROUP_STATES, "the parent stands still",
		.needs = "fork_small" },
	{ "fork_work", "ms", ROW_TIME, GROUP_STATES, "POST fork of the working box, one child",
		.pair = bench_fork_work, .most = WORK_RUNS, .second = "fork_work_paused",
		.needs = "fork_work_paused", .about = bench_states_parts },
	{ "fork_work_paused", "ms", ROW_TIME, GROUP_STATES, "the parent stands still",
		.needs = "fork_work" },
	{ "fork_ten", "ms", ROW_TIME, GROUP_STATES, "ten children of one capture, small box",
		.pair = bench_fork_ten, .most = FEW_RUNS, .second = "fork_ten_paused",
		.needs = "fork_ten_paused" },
	{ "fork_ten_paused", "ms", ROW_TIME, GROUP_STATES, "the parent stands still",
		.needs = "fork_ten" },
	{ "fork_ten_work", "ms", ROW_TIME, GROUP_STATES, "ten children of one capture, working box",
		.pair = bench_fork_ten_work, .most = FEW_RUNS, .second = "fork_ten_work_paused",
		.needs = "fork_ten_work_paused" },
	{ "fork_ten_work_paused", "ms", ROW_TIME, GROUP_STATES, "the parent stands still",
		.needs = "fork_ten_work" },
	{ "snapshot_small", "ms", ROW_TIME, GROUP_STATES, "POST snapshots of the small box, safe",
		.pair = bench_snapshot_small, .most = SMALL_RUNS, .second = "snapshot_small_paused",
		.needs = "snapshot_small_paused" },
	{ "snapshot_small_paused", "ms", ROW_TIME, GROUP_STATES, "it stands still",
		.needs = "snapshot_small" },
	{ "snapshot_work", "ms", ROW_TIME, GROUP_STATES, "POST snapshots of the working box, safe",
		.pair = bench_snapshot_work, .most = WORK_RUNS, .second = "snapshot_work_paused",
		.needs = "snapshot_work_paused", .about = bench_states_parts },
	{ "snapshot_work_paused", "ms", ROW_TIME, GROUP_STATES, "it stands still",
		.needs = "snapshot_work" },
	{ "rollback_small", "ms", ROW_TIME, GROUP_STATES,
		"POST rollback of the small box, the present is kept", .pair = bench_rollback_small,
		.most = SMALL_RUNS, .second = "rollback_small_forget",
		.needs = "rollback_small_forget" },
	{ "rollback_small_forget", "ms", ROW_TIME, GROUP_STATES, "the same, it is not kept",
		.needs = "rollback_small" },
	{ "rollback_work", "ms", ROW_TIME, GROUP_STATES,
		"POST rollback of the working box, the present is kept",
		.pair = bench_rollback_work, .most = WORK_RUNS, .second = "rollback_work_forget",
		.needs = "rollback_work_forget", .about = bench_states_parts },
	{ "rollback_work_forget", "ms", ROW_TIME, GROUP_STATES, "the same, it is not kept",
		.needs = "rollback_work" },
	{ "new_golden", "ms", ROW_TIME, GROUP_STATES,
		"POST /v1/boxes from an image with the small box's processes",
		.run = bench_new_golden, .most = SMALL_RUNS },
	{ "new_golden_work", "ms", ROW_TIME, GROUP_STATES, "the same with the working box's",
		.run = bench_new_golden_work, .most = WORK_RUNS, .about = bench_states_parts },
	{ "fork_1g", "ms", ROW_TIME, GROUP_STATES_MANY,
		"POST fork of a box with a process of 1 GB of random bytes", .pair = bench_fork_big,
		.most = FEW_RUNS, .second = "fork_1g_paused", .needs = "fork_1g_paused" },
	{ "fork_1g_paused", "ms", ROW_TIME, GROUP_STATES_MANY, "the parent stands still",
		.needs = "fork_1g" },
	{ "suspended_200_cpu", "ms", ROW_SIZE, GROUP_STATES_MANY,
		"processor time of 200 suspended boxes in 2 s, all together",
		.pair = bench_suspended, .most = 1, .second = "suspended_200_daemon",
		.needs = "suspended_200_daemon" },
	{ "suspended_200_daemon", "kB", ROW_SIZE, GROUP_STATES_MANY,
		"memory of daemon and gate for each of them", .needs = "suspended_200_cpu" },
	{ "hibernated_daemon", "kB", ROW_SIZE, GROUP_STATES_MEMORY,
		"memory of daemon and gate for a hibernated box", .run = bench_hibernated,
		.about = bench_hibernated_about, .most = 1 },
	{ "net_netns", "ms", ROW_TIME, GROUP_NET, "a bare network namespace", .net = NET_NETNS },
	{ "net_setup", "ms", ROW_TIME, GROUP_NET,
		"furnishing it, our sockets in it, handing them on", .net = NET_SETUP,
		.needs = "net_netns" },
	{ "net_teardown", "ms", ROW_TIME, GROUP_NET, "letting go of all that",
		.net = NET_TEARDOWN },
	{ "net_create", "ms", ROW_TIME, GROUP_NET, "POST /v1/boxes, no spares, no other box",
		.net = NET_CREATE },
	{ "net_first", "ms", ROW_TIME, GROUP_NET,
		"a new name asked for, connected to, first byte back, in a box", .net = NET_FIRST,
		.needs = "net_first_direct" },
	{ "net_first_direct", "ms", ROW_TIME, GROUP_NET, "the same outside, straight",
		.net = NET_FIRST_DIRECT },
	{ "net_first_added", "ms", ROW_TIME, GROUP_DERIVED, "the difference",
		.needs = "net_first net_first_direct" },
	{ "net_connect", "ms", ROW_TIME, GROUP_NET,
		"connected to a known name, first byte back, in a box", .net = NET_CONNECT,
		.needs = "net_connect_direct" },
	{ "net_connect_direct", "ms", ROW_TIME, GROUP_NET, "the same outside, straight",
		.net = NET_CONNECT_DIRECT },
	{ "net_connect_added", "ms", ROW_TIME, GROUP_DERIVED, "the difference",
		.needs = "net_connect net_connect_direct" },
	{ "net_ping", "us", ROW_TIME, GROUP_NET, "64 bytes there and back out of a box",
		.net = NET_PING, .needs = "net_ping_direct" },
	{ "net_ping_direct", "us", ROW_TIME, GROUP_NET, "the same outside, straight",
		.net = NET_PING_DIRECT },
	{ "net_send", "Gbit/s", ROW_FLOW, GROUP_NET, "one connection out of a box", .net = NET_SEND,
		.most = STREAM_RUNS, .needs = "net_send_direct net_send_loopback" },
	{ "net_send_direct", "Gbit/s", ROW_FLOW, GROUP_NET, "the same outside, straight",
		.net = NET_SEND_DIRECT, .most = STREAM_RUNS },
	{ "net_send_loopback", "Gbit/s", ROW_FLOW, GROUP_NET, "the same by loopback",
		.net = NET_SEND_LOOPBACK, .most = STREAM_RUNS },
	{ "net_send_ratio", "ratio", ROW_RATIO, GROUP_DERIVED, "box over loopback",
		.needs = "net_send" },
	{ "net_receive", "Gbit/s", ROW_FLOW, GROUP_NET, "one connection into a box",
		.net = NET_RECEIVE, .most = STREAM_RUNS,
		.needs = "net_receive_direct net_receive_loopback" },
	{ "net_receive_direct", "Gbit/s", ROW_FLOW, GROUP_NET, "the same outside, straight",
		.net = NET_RECEIVE_DIRECT, .most = STREAM_RUNS },
	{ "net_receive_loopback", "Gbit/s", ROW_FLOW, GROUP_NET, "the same by loopback",
		.net = NET_RECEIVE_LOOPBACK, .most = STREAM_RUNS },
	{ "net_receive_ratio", "ratio", ROW_RATIO, GROUP_DERIVED, "box over loopback",
		.needs = "net_receive" },
	{ "net_flows_100", "Gbit/s", ROW_FLOW, GROUP_NET, "100 connections into a box, together",
		.net = NET_FLOWS, .most = STREAM_RUNS, .second = "net_flows_100_fair",
		.needs = "net_flows_100_fair net_flows_100_direct" },
	{ "net_flows_100_direct", "Gbit/s", ROW_FLOW, GROUP_NET, "the same outside, straight",
		.net = NET_FLOWS_DIRECT, .most = STREAM_RUNS },
	{ "net_flows_100_fair", "ratio", ROW_FLOW, GROUP_NET,
		"Jain's index of them: 1 is all alike", .needs = "net_flows_100" },
	{ "net_ingress", "req/s", ROW_RATE, GROUP_NET,
		"requests to a box's URL, 32 kept connections", .net = NET_INGRESS,
		.most = STREAM_RUNS, .second = "net_ingress_core",
		.needs = "net_ingress_core net_ingress_direct" },
	{ "net_ingress_direct", "req/s", ROW_RATE, GROUP_NET, "the same straight into the port",
		.net = NET_INGRESS_DIRECT, .most = STREAM_RUNS },
	{ "net_ingress_core", "req/s", ROW_RATE, GROUP_NET,
		"requests for each second of processor that the daemon used",
		.needs = "net_ingress" },
	{ "net_request", "us", ROW_TIME, GROUP_NET, "one request at a time to a box's URL",
		.net = NET_REQUEST, .most = STREAM_RUNS, .needs = "net_request_direct" },
	{ "net_request_direct", "us", ROW_TIME, GROUP_NET, "the same straight into the port",
		.net = NET_REQUEST_DIRECT, .most = STREAM_RUNS },
	{ "net_request_added", "us", ROW_TIME, GROUP_DERIVED, "the difference",
		.needs = "net_request net_request_direct" },
	{ "net_many_setup", "ms", ROW_TIME, GROUP_NET_MANY, "net_setup beside --boxes N boxes",
		.net = NET_SETUP },
	{ "net_many_create", "ms", ROW_TIME, GROUP_NET_MANY, "net_create beside them",
		.net = NET_CREATE },
	{ "net_many_connect", "ms", ROW_TIME, GROUP_NET_MANY, "net_connect beside them",
		.net = NET_CONNECT },
	{ "net_many_ping", "us", ROW_TIME, GROUP_NET_MANY, "net_ping beside them",
		.net = NET_PING },
	{ "net_setup_flat", "ratio", ROW_RATIO, GROUP_DERIVED, "net_many_setup over net_setup",
		.needs = "net_setup net_many_setup" },
	{ "net_ping_flat", "ratio", ROW_RATIO, GROUP_DERIVED, "net_many_ping over net_ping",
		.needs = "net_ping net_many_ping" },
	{ "net_answers", "ans/s", ROW_RATE, GROUP_NET_MANY,
		"names asked for by 100 of the boxes at once", .net = NET_ANSWERS,
		.most = STREAM_RUNS, .second = "net_answers_core", .needs = "net_answers_core" },
	{ "net_answers_core", "ans/s", ROW_RATE, GROUP_NET_MANY,
		"answers for each second of processor that the gate used", .needs = "net_answers" },
};

const char *const bench_group_titles[GROUP_COUNT] = {
	[GROUP_COLD] = "cold start",
	[GROUP_VERBS] = "verbs",
	[GROUP_STREAMS] = "streams",
	[GROUP_DISK] = "disks",
	[GROUP_REMOVAL] = "removal",
	[GROUP_FILES] = "files",
	[GROUP_CACHE] = "page cache",
	[GROUP_IMPORT] = "import", /* last of these: what it writes goes to the disk for a while */
	[GROUP_MANY] = "many boxes",
	[GROUP_STATES_MEMORY] = "hibernated boxes",
	[GROUP_STATES] = "states",
	[GROUP_STATES_MANY] = "large and many states",
	[GROUP_NET] = "network",
	[GROUP_NET_MANY] = "network, many boxes",
	[GROUP_DERIVED] = "",
};

const size_t bench_items_count = ARRAY_LEN(bench_items);
static_assert(ARRAY_LEN(bench_items) <= BENCH_ITEMS_MAX, "the rows of all items fit");

size_t bench_item_find(const char *name)
{
	for (size_t i = 0; i < bench_items_count; i++)
		if (strcmp(bench_items[i].name, name) == 0)
			return i;
	return bench_items_count;
}

/* --- rows that follow from others --- */

enum relation { OVER, MINUS };

static const struct {
	const char *name, *left;
	enum relation relation;
	const char *right, *and; /* both together; and may be NULL */
} derived[] = {
	{ "create_vs_bwrap", "create_first_byte", OVER, "bwrap", "daemon_round_trip" },
	{ "untar_10k_ratio", "untar_10k", OVER, "untar_10k_host", NULL },
	{ "npm_install_ratio", "npm_install", OVER, "npm_install_host", NULL },
	{ "net_first_added", "net_first", MINUS, "net_first_direct", NULL },
	{ "net_connect_added", "net_connect", MINUS, "net_connect_direct", NULL },
	{ "net_send_ratio", "net_send", OVER, "net_send_loopback", NULL },
	{ "net_receive_ratio", "net_receive", OVER, "net_receive_loopback", NULL },
	{ "net_request_added", "net_request", MINUS, "net_request_direct", NULL },
	{ "net_setup_flat", "net_many_setup", OVER, "net_setup", NULL },
	{ "net_ping_flat", "net_many_ping", OVER, "net_ping", NULL },
};

static double relate(enum relation relation, double left, double right)
{
	return relation == MINUS ? left - right : right > 0 ? left / right : 0;
}

void bench_items_derive(struct bench_row *rows)
{
	static const struct bench_row nothing = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(derived); i++) {
		struct bench_row *row = &rows[bench_item_find(derived[i].name)];
		const struct bench_row *left = &rows[bench_item_find(derived[i].left)];
		const struct bench_row *right = &rows[bench_item_find(derived[i].right)];
		const struct bench_row *and =
			derived[i].and ? &rows[bench_item_find(derived[i].and)] : &nothing;

		row->runs = MIN(left->runs, right->runs);
		if (derived[i].and)
			row->runs = MIN(row->runs, and->runs);
		if (!row->runs) {
			bench_row_note(row, "needs figures of %s%s%s and %s", derived[i].left,
				derived[i].and ? ", " : "", derived[i].and ?: "", derived[i].right);
			continue;
		}
		row->p50 = relate(derived[i].relation, left->p50, right->p50 + and->p50);
		row->p95 = relate(derived[i].relation, left->p95, right->p95 + and->p95);
		row->p99 = relate(derived[i].relation, left->p99, right->p99 + and->p99);
	}
}
