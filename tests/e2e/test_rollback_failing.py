"""A rollback that fails costs nothing: the same processes go on, and so does everything connected
to them.

A state is made unrestorable in two places: its own files, and a file on the snapshot's disk
that a process of it has open.
"""
import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

import states
from boxtest import DRIVER, eventually
from test_states import trace_a_process

pytestmark = pytest.mark.asan
HOLDER = "exec 7>/root/open; echo something >&7; while :; do sleep 0.05; echo $((n=n+1)) > /root/count; done"


def processes(box):
    found = set()
    for pid in states.box_processes(box.yard, box):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat") as stat:
                found.add((pid, stat.read().rsplit(")", 1)[1].split()[19]))
    return found


def lasting(box):
    """Its processes without those that come and go."""
    first = processes(box)
    time.sleep(0.15)
    return first & processes(box)


def spoil_state(box, made):
    root = Path(f"/proc/{box.yard.daemon_pid()}/root")
    files = [path for place in (box.yard.home, box.yard.run_dir) for path in Path(f"{root}{place}/states").rglob("*")
             if path.is_file() and made["id"] in str(path)]
    assert files
    for path in files:
        os.truncate(path, path.stat().st_size // 2)


def spoil_disk(box, made):
    kept = box.yard.pool / "snapshots" / made["id"]
    [held] = kept.rglob("disk") if DRIVER == "vm" else kept.rglob("root/open")
    held.write_bytes(b"")


SPOILERS = [spoil_state, spoil_disk]
VERBS = {"suspended": "suspend", "hibernated": "hibernate", "stopped": "stop"}


@pytest.fixture
def holder(yard):
    box = yard.new(memory="1G", pids=128)
    box.start("sh", "-c", HOLDER)
    eventually(lambda: box.out("cat /root/count 2>/dev/null || echo 0") != "0", 10)
    yield box
    assert box.remove().status in (204, 404)


def lives(box):
    """Its program counts on."""
    before = int(box.out("cat /root/count") or 0)
    eventually(lambda: int(box.out("cat /root/count") or 0) > before, 10)


@pytest.mark.parametrize("spoil", SPOILERS)
@pytest.mark.parametrize("before", ["running", "suspended", "hibernated", "stopped"])
def test_the_present_goes_on_as_it_was(holder, spoil, before):
    box = holder
    made = states.snapshot(box)
    spoil(box, made)
    box.exec("sh", "-c", "echo now > /root/now")
    was = lasting(box)
    if before != "running":
        box.yard.box(VERBS[before], box.name)
    failed = box.yard.box("rollback", box.name, made["id"], check=False)
    assert failed.returncode, "it cannot be restored"
    assert box.name in failed.stderr and "as it was" in failed.stderr, failed.stderr
    assert states.state(box) == before, failed.stderr
    if before in ("running", "suspended"):
        assert was <= processes(box), "nothing was killed"
    assert [one["id"] for one in states.timeline(box)["snapshots"]] == [made["id"]], "nothing came of it"
    box.yard.box("start", box.name)
    assert box.out("cat /root/now") == "now"
    if before != "stopped":
        lives(box)
    again = states.snapshot(box)
    states.rollback(box, again["id"])
    assert box.out("cat /root/now") == "now"


def test_connected_programs_do_not_notice(holder):
    box = holder
    made = states.snapshot(box)
    spoil_disk(box, made)
    with box.yard.spawn("exec", "-i", box.name, "--", "sh", "-c", "read line; echo got $line", stdin=subprocess.PIPE, text=True) as session:
        eventually(lambda: any("read line" in command for command in box.commands()), 10)
        assert box.yard.box("rollback", box.name, made["id"], check=False).returncode
        out, _ = session.communicate("hello\n", timeout=20)
    assert "got hello" in out


def test_one_that_cannot_be_captured_goes_on_too(holder):
    """Its processes are nowhere but in memory: killing them before the target is there would be
    their end."""
    box = holder
    made = states.snapshot(box)
    traced = trace_a_process(box)
    spoil_disk(box, made)
    was = lasting(box)
    assert box.yard.box("rollback", box.name, made["id"], check=False).returncode
    assert was <= processes(box) and states.state(box) == "running"
    assert box.get_exec(traced["id"])["state"] == "running"
    lives(box)


def test_back_and_forth_many_times(holder):
    """The two names its groups and disks have change each time."""
    box = holder
    made = states.snapshot(box)
    for i in range(6):
        box.exec("sh", "-c", f"echo {i} > /root/turn")
        states.rollback(box, made["id"])
        assert box.exec("cat", "/root/turn", check=False).returncode
        lives(box)
    states.hibernate(box)
    states.wake(box)
    lives(box)


@pytest.mark.slow
def test_a_daemon_killed_on_the_way_leaves_one_whole_box(fresh_yard):
    box = fresh_yard.new(memory="1G", pids=128)
    box.start("sh", "-c", HOLDER)
    eventually(lambda: box.out("cat /root/count 2>/dev/null || echo 0") != "0", 10)
    made = states.snapshot(box)
    for i in range(10):
        box.exec("sh", "-c", f"echo {i} > /root/turn")
        asked = threading.Thread(target=lambda: fresh_yard.box("rollback", box.name, made["id"], check=False), daemon=True)
        asked.start()
        time.sleep(0.04 + 0.025 * i)
        fresh_yard.kill_daemon()
        asked.join(60)
        fresh_yard.start_daemon()
        eventually(lambda: states.state(box) == "running", 30, lambda: states.state(box))
        assert box.exec("cat", "/root/turn", check=False).stdout.strip() in ("", str(i))
        lives(box)
        eventually(lambda: len(states.groups(fresh_yard, box)) == 1, 20, lambda: states.groups(fresh_yard, box))


@pytest.mark.parametrize("locked", ["flock -n 9 || exit 1;", ""], ids=["locked", "free"])
def test_locks_on_a_volume_are_held_by_one_at_a_time(fresh_yard, locked):
    box = fresh_yard.new(volumes=[{"volume": "data", "path": "/data"}])
    held = box.start("sh", "-c", f"exec 9>/data/lock; {locked} while :; do sleep 0.1; done")
    time.sleep(0.3)
    made = states.snapshot(box)
    for _ in range(2):
        states.rollback(box, made["id"])
        assert box.get_exec(held["id"])["state"] == "running"
    spoil_state(box, made)
    assert fresh_yard.box("rollback", box.name, made["id"], check=False).returncode
    assert states.state(box) == "running" and box.get_exec(held["id"])["state"] == "running"
