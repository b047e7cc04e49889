"""test_limits.py - a box that is paused at a limit: in time, told to everybody, and gone on with"""
import os
import re
import signal
import subprocess
import time

import pytest

from boxtest import BOX_BIN, SLOWNESS, Box, eventually, instance_cgroups

EXIT_LIMIT, EXIT_TIMEOUT = 75, 124
EATER = """
import sys
kept = []
for i in range(int(sys.argv[1])):
    kept.append(bytearray(b"x" * 1000000))
print("done", len(kept), flush=True)
"""
FILLER = """
import os, time
block, file = bytes(100000), os.open("/dev/shm/x", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(file, block)
except OSError:
    time.sleep(30)
"""


def types(yard, box):
    return [event["type"] for event in yard.events(box=box.id)]


def shown_paused(ran, box, what, who="it reached its"):
    """The words of the promise, and the exit code."""
    assert ran.returncode == EXIT_LIMIT, (ran.returncode, ran.stderr)
    assert f"box '{box.name}' is paused: {who} {what} limit" in ran.stderr, ran.stderr
    assert f"box resume {box.name}" in ran.stderr


def is_paused(box):
    return box.show()["asleep_for"] == "limit"


def has_quota(yard):
    if yard.api("GET", "/v1/pool").json["quota"] == "none":
        pytest.skip("LOUD: no quotas here")


# ---- memory ----------------------------------------------------------------------------------


def test_memory_pauses_before_anything_is_killed(yard, make_box):
    box = make_box(memory="64M", on_limit="pause")
    began = time.monotonic()
    ran = box.python(EATER, "90", check=False, timeout=20 * SLOWNESS)
    assert time.monotonic() - began < 5 * SLOWNESS
    shown_paused(ran, box, "memory")
    assert f"box set {box.name} --memory" in ran.stderr
    exec_id = re.search(rf"box attach {box.name} (\w+)", ran.stderr).group(1)
    assert is_paused(box) and box.show()["limit_reached"] == "memory"
    yard.box("set", box.name, "--memory", "256M")
    yard.box("resume", box.name)
    over = box.wait_exec(exec_id, 20)
    assert over["exit_code"] == 0
    assert b"done 90" in box.logs(exec_id, raw="true")
    time.sleep(1.5)
    assert box.show()["state"] == "running", "the old event does not pause it again"
    assert types(yard, box).count("limit.memory") == 1
    assert yard.api("GET", f"{box.path}/stats").json["oom_kills"] == 0


def test_what_waits_for_memory_is_not_captured_until_it_has_some(yard, make_box):
    box = make_box(memory="64M", on_limit="pause")
    shown_paused(box.python(EATER, "90", check=False, timeout=20 * SLOWNESS), box, "memory")
    for verb in ("hibernate", "snapshot", "fork"):
        refused = yard.box(verb, box.name, check=False, timeout=20)
        assert refused.returncode == EXIT_LIMIT and "waits for memory" in refused.stderr, refused
    assert yard.box("snapshot", "--disk-only", box.name).returncode == 0
    assert is_paused(box)


def test_a_box_resumed_without_more_memory_gets_what_the_kernel_does(yard, make_box):
    box = make_box(memory="64M", on_limit="pause")
    ran = box.python(EATER, "90", check=False, timeout=20 * SLOWNESS)
    shown_paused(ran, box, "memory")
    exec_id = re.search(rf"box attach {box.name} (\w+)", ran.stderr).group(1)
    yard.box("resume", box.name)
    assert box.wait_exec(exec_id, 20)["exit_code"] == 137
    assert box.out("echo alive") == "alive"
    assert box.show()["state"] == "running"
    time.sleep(2.5)
    shown_paused(box.python(EATER, "90", check=False, timeout=20 * SLOWNESS), box, "memory")


def test_notify_kills_as_ever(yard, make_box):
    box = make_box(memory="64M")
    assert box.python(EATER, "90", check=False).returncode == 137
    yard.box("set", box.name, "--on-limit", "pause")
    shown_paused(box.python(EATER, "90", check=False, timeout=20 * SLOWNESS), box, "memory")
    yard.box("set", box.name, "--on-limit", "notify")
    yard.box("resume", box.name)
    assert box.python(EATER, "90", check=False).returncode == 137


def test_memory_that_fills_in_system_calls_pauses_too(yard, make_box):
    """A file in memory: the call fails, since the kernel cannot let it wait, and the box is paused
    right after.

    The program only sleeps then: whatever else it does, a line of output too, may fail for want of
    memory before the pause."""
    box = make_box(memory="64M", on_limit="pause")
    began = time.monotonic()
    ran = box.python(FILLER, check=False, timeout=25 * SLOWNESS)
    shown_paused(ran, box, "memory")
    assert time.monotonic() - began < 5 * SLOWNESS


def test_a_paused_box_survives_its_daemon_and_can_be_stopped(fresh_yard):
    yard = fresh_yard
    box = yard.new(memory="64M", on_limit="pause")
    ran = box.python(EATER, "90", check=False, timeout=20)
    exec_id = re.search(rf"box attach {box.name} (\w+)", ran.stderr).group(1)
    yard.kill_daemon()
    yard.start_daemon()
    assert is_paused(box)
    time.sleep(1.2)
    assert is_paused(box)
    yard.box("set", box.name, "--memory", "256M")
    yard.box("resume", box.name)
    assert box.wait_exec(exec_id, 20)["exit_code"] == 0
    yard.box("set", box.name, "--memory", "64M")
    shown_paused(box.python(EATER, "90", check=False, timeout=20), box, "memory")
    began = time.monotonic()
    yard.box("stop", "-t", "1", box.name)
    assert time.monotonic() - began < 8 * SLOWNESS
    assert box.show()["state"] == "stopped"


# ---- processes and disk ----------------------------------------------------------------------


# The kernel lets no fork wait; bash tries a refused one again, as programs that mean to last do.
FORKER = "exec bash -c 'for i in $(seq 40); do sleep 60 & done; echo forked; wait'"


def test_processes_pause_at_once(yard, make_box):
    box = make_box(pids=20, on_limit="pause")
    ran = box.sh(FORKER, check=False, timeout=20 * SLOWNESS)
    shown_paused(ran, box, "process")
    assert f"box set {box.name} --pids" in ran.stderr
    assert ran.stderr.count("fork: retry") == 1, "before the next try, which comes a second later"
    yard.box("set", box.name, "--pids", "100")
    yard.box("resume", box.name)
    time.sleep(1.5)
    assert box.show()["state"] == "running", "the old event does not pause it again"


def test_a_disk_pauses_before_a_write_fails(yard, make_box):
    has_quota(yard)
    box = make_box(disk="512M", on_limit="pause")
    # As fast as a download may be; who writes a gigabyte a second on a busy machine may be faster
    # than the look.
    ran = box.sh("for i in $(seq 150); do dd if=/dev/zero bs=64k count=64 2>&1 >>/x || echo failed; sleep 0.02; done; echo end",
                 check=False, timeout=60 * SLOWNESS)
    shown_paused(ran, box, "disk")
    assert f"box set {box.name} --disk" in ran.stderr
    exec_id = re.search(rf"box attach {box.name} (\w+)", ran.stderr).group(1)
    yard.box("set", box.name, "--disk", "1G")
    yard.box("resume", box.name)
    assert box.wait_exec(exec_id, 20)["exit_code"] == 0
    said = box.logs(exec_id, raw="true")
    assert b"end" in said and b"failed" not in said, "no write failed"
    time.sleep(1.5)
    assert box.show()["state"] == "running"
    assert types(yard, box).count("limit.disk") == 1


def test_a_disk_without_a_limit_of_its_own_pauses_by_its_trees(yard, make_box):
    has_quota(yard)
    parent = make_box(disk="512M", on_limit="pause")
    box = Box(yard, yard.api("GET", f"/v1/boxes/{parent.out('box fork')}", expect=200).json)
    try:
        yard.box("set", box.name, "--disk", "0")
        ran = box.sh("for i in $(seq 150); do dd if=/dev/zero bs=64k count=64 2>&1 >>/x || echo failed; sleep 0.02; done; echo end",
                     check=False, timeout=60 * SLOWNESS)
        assert "failed" not in ran.stdout and "end" not in ran.stdout, ran
        assert ran.returncode == EXIT_LIMIT and f"came out of '{parent.name}' together reached their disk limit" in ran.stderr, ran
        assert box.show()["state"] == "suspended"
    finally:
        box.remove()


def test_a_disk_that_was_full_for_a_moment_is_told(fresh_yard):
    """In a pool where nothing else is written: each commit of btrfs gives back what was removed."""
    yard = fresh_yard
    has_quota(yard)
    box = yard.new(disk="32M")
    box.sh("dd if=/dev/zero of=/x bs=1M count=60; rm /x", check=False)
    eventually(lambda: "limit.disk" in types(yard, box), 5, "it is told")


# ---- who hears of it -------------------------------------------------------------------------


@pytest.fixture
def paused(yard, make_box):
    box = make_box(pids=20, on_limit="pause", idle={"suspend": "off"})
    box.server = box.start("sh", "-c", "while :; do echo tick; sleep 0.2; done")["id"]
    follow = subprocess.Popen([BOX_BIN, "logs", "-f", box.name, box.server], env=yard.env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
    attach = subprocess.Popen([BOX_BIN, "attach", box.name, box.server], env=yard.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    box.start("sh", "-c", FORKER)
    eventually(lambda: is_paused(box), 5)
    box.watchers = [follow, attach]
    return box


def test_everybody_hears_of_a_pause(yard, paused):
    for one in paused.watchers:
        _, said = one.communicate(timeout=10)
        assert one.returncode == EXIT_LIMIT and "is paused: it reached its process limit" in said, said
    for words in (["exec", paused.name, "--", "true"], ["attach", paused.name, paused.server], ["ps", paused.name],
                  ["logs", "-f", paused.name, paused.server], ["cp", f"{paused.name}:/etc/hostname", "-"]):
        began = time.monotonic()
        ran = yard.box(*words, check=False, timeout=20)
        shown_paused(ran, paused, "process")
        assert time.monotonic() - began < 2 * SLOWNESS
    refused = yard.api("POST", f"{paused.path}/exec", {"argv": ["true"]})
    assert refused.status == 429 and refused.code == "limit"
    assert "--pids" in refused.json["error"]["hint"]


# ---- a box that somebody suspended -----------------------------------------------------------


def client(yard, *words):
    return subprocess.Popen([BOX_BIN, *words], env=yard.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_a_time_limit_ends_the_client_of_a_suspended_box(yard, box):
    one = client(yard, "exec", "--timeout", "1", box.name, "--", "sleep", "100")
    time.sleep(0.3)
    yard.box("suspend", box.name)
    began = time.monotonic()
    _, said = one.communicate(timeout=15)
    assert one.returncode == EXIT_TIMEOUT, said
    assert "suspended" in said
    assert time.monotonic() - began < 4 * SLOWNESS
    assert box.show()["state"] == "suspended", "a time limit wakes nobody"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_program_of_a_suspended_box(yard, box, number):
    one = client(yard, "exec", box.name, "--", "sleep", "100")
    time.sleep(0.3)
    yard.box("suspend", box.name)
    one.send_signal(number)
    one.communicate(timeout=10)
    assert one.returncode == 128 + number
    eventually(lambda: all(e["state"] == "exited" for e in box.execs()), 5)


def test_the_limit_of_a_tree_pauses_before_anything_is_killed(yard):
    """It sits on a group above the box's own."""
    name = f"tree-{time.monotonic_ns() % 10**8}"
    yard.box("new", name, "--memory", "64M", "--tree", "memory=64M", "--on-limit", "pause")
    box = Box(yard, yard.api("GET", f"/v1/boxes/{name}", expect=200).json)
    try:
        # The kernel tries the limit of the box first; without one there is that of the tree alone.
        group = [g for g in instance_cgroups(yard.name) if g.endswith(box.id) and os.path.exists(f"{g}/memory.limit_in_bytes")]
        if not group:
            pytest.skip("LOUD: no memory controller of cgroup v1 here")
        for file in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes"):
            with open(f"{group[0]}/{file}", "w") as limit:
                limit.write("-1")
        shown_paused(box.python(EATER, "90", check=False, timeout=20 * SLOWNESS), box, "memory",
                     f"all boxes that came out of '{name}' together reached their")
        assert yard.api("GET", f"{box.path}/stats").json["oom_kills"] == 0
    finally:
        yard.box("rm", "-f", name)
