"""What a box makes from inside shares the limits of the box that somebody made: memory, processes,
CPU, lines of the log."""
import json
import re
from pathlib import Path

import pytest

from boxtest import EXIT_LIMIT, Box, box_cgroups, cgroup_mounts, eventually
from fixtures import running_yard_with

MB = 1 << 20
# Holds so many megabytes until it is ended.
HOLD = "import sys, time; held = bytearray(int(sys.argv[1]) << 20); held[::4096] = b'x' * len(held[::4096]); print('held'); " \
       "sys.stdout.flush(); time.sleep(1000)"


def child_of(box, name):
    return Box(box.yard, box.yard.api("GET", f"/v1/boxes/{box.name}-{name}", expect=200).json)


def hold(box, megabytes):
    return box.start("python3", "-c", HOLD, str(megabytes))["id"]


def tree(box):
    return box.show()["tree"]


def stats(box):
    return box.yard.api("GET", f"{box.path}/stats", expect=200).json


def events(yard, kind, since=0):
    return [e for e in yard.events(since=since) if e["type"] == kind]


def lives(box, exec_id):
    return box.get_exec(exec_id)["state"] == "running"


def test_a_tree_has_the_memory_of_its_first_box(fresh_yard):
    """Three boxes of 128 MB made by one of 128 MB do not have 512."""
    yard = fresh_yard
    box = yard.new(memory=128 * MB)
    assert box.run("box", "fork", "-n", "3").code == 0
    kids = [child_of(box, str(n)) for n in (1, 2, 3)]
    since = yard.next_offset()
    running = [(kid, hold(kid, 60)) for kid in kids]
    eventually(lambda: sum(lives(*one) for one in running) < 3, 20, "one of them was killed for memory")
    assert stats(box)["tree"]["memory_bytes"] <= 128 * MB
    eventually(lambda: events(yard, "limit.memory", since), 5)
    event = events(yard, "limit.memory", since)[0]
    assert event["box"] in [kid.id for kid in kids] and event["data"]["scope"] == "tree", event
    assert event["data"]["limit_bytes"] == 128 * MB and box.name in event["data"]["detail"]


def test_a_tree_has_the_processes_of_its_first_box(fresh_yard):
    box = fresh_yard.new(pids=60)
    assert box.run("box", "fork", "-n", "3").code == 0
    kids = [child_of(box, str(n)) for n in (1, 2, 3)]
    since = fresh_yard.next_offset()
    for kid in kids:
        kid.start("sh", "-c", "for i in $(seq 50); do sleep 1000 & done; sleep 1000")
    eventually(lambda: events(fresh_yard, "limit.pids", since), 10)
    assert stats(box)["tree"]["processes"] <= 60 + 64  # what a restore may take on top
    event = events(fresh_yard, "limit.pids", since)[0]
    assert event["data"]["scope"] == "tree" and event["data"]["limit"] == 60, event


@pytest.mark.parametrize("what", ["memory", "pids"])
def test_a_pause_at_the_limit_of_a_tree_says_whose_it_is(fresh_yard, what):
    """More for the box alone would not help it."""
    yard = fresh_yard
    box = yard.new(pids=60, memory=128 * MB, on_limit="pause")
    assert box.run("box", "fork", "-n", "3").code == 0
    one, two, other = (child_of(box, str(n)) for n in (1, 2, 3))
    if what == "pids":
        for kid in (one, two):  # more than a restore may take on top
            kid.start("sh", "-c", "for i in $(seq 45); do sleep 1000 & done; sleep 1000")
            eventually(lambda: stats(kid)["processes"] > 45, 10)
        other.start("sh", "-c", "for i in $(seq 90); do sleep 1000 & done; sleep 1000")
    else:
        hold(one, 60)
        eventually(lambda: stats(one)["memory_bytes"] > 60 * MB, 10)
        hold(other, 70)
    eventually(lambda: other.show()["asleep_for"] == "limit", 12)
    assert other.show()["limit_reached"] == what
    for again in (False, True):
        done = yard.box("exec", other.name, "true", check=False)
        assert done.returncode == EXIT_LIMIT and f"came out of '{box.name}' together reached" in done.stderr, done
        more = "memory=SIZE" if what == "memory" else "pids=N"
        assert f"'box set {box.name} --tree {more}; box resume {other.name}'" in done.stderr, done
        if not again:  # it outlasts the daemon
            yard.stop_daemon()
            yard.start_daemon()
    yard.box("set", box.name, "--tree", "memory=1G,pids=500")
    yard.box("resume", other.name)
    assert yard.box("exec", other.name, "echo", "on").stdout == "on\n"


def test_a_tree_has_the_cpu_of_its_first_box(fresh_yard):
    box = fresh_yard.new(cpu=0.5)
    assert box.run("box", "fork", "-n", "2").code == 0
    kids = [child_of(box, str(n)) for n in (1, 2)]
    for kid in kids:
        kid.start("sh", "-c", "while :; do :; done")
    before = stats(box)["tree"]["cpu_us"]
    done = box.run("sleep", "2")
    assert done.code == 0
    used = stats(box)["tree"]["cpu_us"] - before
    assert 0.3e6 < used < 2e6, used  # two of half a CPU each would have had two seconds and more


def test_what_a_tree_is_shows(fresh_yard):
    box = fresh_yard.new(memory=256 * MB, pids=100, cpu=1)
    assert tree(box) == {"id": box.id, "head": box.name, "boxes": 1, "limits": {"cpu": 1, "memory": 256 * MB, "pids": 100}}
    assert "tree" not in stats(box)
    assert box.run("box", "fork", "kid").code == 0
    kid = child_of(box, "kid")
    assert tree(kid) == tree(box) == {"id": box.id, "head": box.name, "boxes": 2,
                                      "limits": {"cpu": 1, "memory": 256 * MB, "pids": 100}}
    both = stats(kid)["tree"]
    assert both["boxes"] == 2 and both["memory_limit_bytes"] == 256 * MB and both["processes"] >= 2
    assert "tree" in fresh_yard.box("show", kid.name).stdout
    assert json.loads(kid.run("box", "info").stdout)["tree"]["memory"] == 256 * MB
    table = fresh_yard.box("stats", "--once").stdout.splitlines()
    [line] = [line for line in table if line.startswith(f"tree of {box.name} (2)")]
    assert "256M" in line and len(line.split()) - 3 == len(table[0].replace("CPU TIME", "TIME").split()), table
    # One from outside is its own.
    fresh_yard.box("fork", box.name, "other")
    other = Box(fresh_yard, fresh_yard.api("GET", "/v1/boxes/other", expect=200).json)
    assert tree(other)["id"] == other.id and tree(other)["boxes"] == 1 and tree(box)["boxes"] == 2


def test_limits_of_the_first_box_are_those_of_its_tree(fresh_yard):
    yard = fresh_yard
    box = yard.new(memory=256 * MB, cpu=1, pids=100)
    assert box.run("box", "fork", "kid").code == 0
    kid = child_of(box, "kid")
    for memory, cpu, pids in ((512, 2, 200), (128, 0.5, 50), (256, 1, 100)):
        yard.box("set", box.name, "--memory", f"{memory}M", "--cpu", str(cpu), "--pids", str(pids))
        assert tree(kid)["limits"] == {"cpu": cpu, "memory": memory * MB, "pids": pids}
    # A fork alone may have less, and not more than all.
    yard.box("set", kid.name, "--memory", "64M", "--cpu", "0.5")
    assert tree(kid)["limits"]["memory"] == 256 * MB
    done = yard.box("set", kid.name, "--memory", "1G", check=False)
    assert done.returncode == 64 and "256M" in done.stderr and f"box set {box.name}" in done.stderr, done.stderr
    # What the operator gives a tree is its own, whatever the first box has.
    yard.box("set", kid.name, "--tree", "memory=1G,pids=400")
    assert tree(box)["limits"] == {"cpu": 1, "memory": 1024 * MB, "pids": 400}
    yard.box("set", box.name, "--memory", "300M", "--cpu", "2")
    assert tree(box)["limits"] == {"cpu": 2, "memory": 1024 * MB, "pids": 400}
    yard.box("set", kid.name, "--memory", "1G")
    yard.box("set", box.name, "--tree", "own")
    assert tree(box)["limits"] == {"cpu": 2, "memory": 300 * MB, "pids": 100}
    kills = yard.box("set", box.name, "--tree", "memory=lots", check=False)
    assert kills.returncode == 64 and "--tree" in kills.stderr


def test_a_new_box_may_be_given_more_for_its_tree(fresh_yard):
    yard = fresh_yard
    yard.box("new", "one", "--memory", "100M", "--tree", "memory=300M,pids=500")
    one = Box(yard, yard.api("GET", "/v1/boxes/one", expect=200).json)
    assert one.show()["limits"]["memory"] == 100 * MB and tree(one)["limits"]["memory"] == 300 * MB
    assert one.run("box", "fork", "kid").code == 0
    assert tree(child_of(one, "kid"))["limits"] == {"cpu": 0, "memory": 300 * MB, "pids": 500}
    assert child_of(one, "kid").show()["limits"]["memory"] == 100 * MB
    for bad in ("all", 7, {"disk": 5}, {"memory": "much"}, {"depth": 1}):
        reply = yard.api("POST", "/v1/boxes", {"name": "two", "tree": bad})
        assert reply.status == 400 and "tree" in reply.json["error"]["message"], (bad, reply.json)
        assert yard.api("PATCH", one.path, {"tree": bad}).status == 400


def group_limit(yard, box, *names):
    for group in box_cgroups(yard.name, box.id):
        for name in names:
            if (group.parent / name).exists():
                return (group.parent / name).read_text().strip()
    return None


def test_a_tree_outlives_its_first_box_and_the_daemon(fresh_yard):
    yard = fresh_yard
    box = yard.new(memory=128 * MB, pids=64)
    assert box.run("box", "fork", "a", "b").code == 0
    a, b = child_of(box, "a"), child_of(box, "b")
    yard.kill_daemon()
    yard.start_daemon()
    assert tree(a)["boxes"] == 3 and tree(a)["limits"]["memory"] == 128 * MB
    yard.box("rm", "-f", box.name)
    assert tree(a) == tree(b) and tree(a)["head"] is None and tree(a)["boxes"] == 2
    assert tree(a)["limits"]["memory"] == 128 * MB and tree(a)["limits"]["pids"] == 64
    yard.kill_daemon()
    yard.start_daemon()
    assert tree(a)["limits"]["memory"] == 128 * MB and tree(a)["boxes"] == 2
    # All stopped, its group is gone; started again, it has its limits as before.
    yard.box("stop", a.name, b.name)
    assert not box_cgroups(yard.name, a.id)
    yard.box("start", a.name)
    assert group_limit(yard, a, "memory.limit_in_bytes", "memory.max") == str(128 * MB)
    done = yard.box("set", a.name, "--memory", "1G", check=False)
    assert done.returncode == 64 and f"box set {a.name} --tree" in done.stderr, done.stderr
    yard.box("set", a.name, "--tree", "memory=200M")
    assert group_limit(yard, a, "memory.limit_in_bytes", "memory.max") == str(200 * MB)
    yard.box("rm", "-f", a.name, b.name)
    eventually(lambda: not [one for mount in cgroup_mounts() for one in Path(mount, yard.name).glob(f"tree-{box.id}*")], 5)


def test_a_promoted_fork_is_the_first_of_its_tree(fresh_yard):
    yard = fresh_yard
    box = yard.new(memory=128 * MB)
    assert box.run("box", "fork", "a", "b").code == 0
    a, b = child_of(box, "a"), child_of(box, "b")
    yard.box("set", a.name, "--memory", "64M")
    yard.box("promote", "--keep-limits", a.name)
    assert a.show()["limits"]["memory"] == 64 * MB
    assert tree(b)["head"] == box.name and tree(b)["boxes"] == 2 and tree(b)["limits"]["memory"] == 128 * MB
    yard.box("set", box.name, "--memory", "256M")
    assert tree(b)["limits"]["memory"] == 256 * MB


def test_members_sleep_and_go_back_alone(fresh_yard):
    """Freezing, hibernating and rolling back one leaves the others alone, and it comes back under
    the same limits."""
    yard = fresh_yard
    box = yard.new(memory=256 * MB, pids=100)
    assert box.run("box", "fork", "a", "b").code == 0
    a, b = child_of(box, "a"), child_of(box, "b")
    yard.box("suspend", a.name)
    assert b.run("true").code == 0 and box.run("true").code == 0
    yard.box("resume", a.name)
    yard.box("hibernate", a.name)
    assert tree(b)["boxes"] == 3 and b.run("true").code == 0
    yard.box("wake", a.name)
    assert group_limit(yard, a, "pids.max") == str(100 + 64)
    yard.box("snapshot", b.name, "then")
    yard.box("rollback", b.name, "then")
    assert b.run("true").code == 0 and group_limit(yard, b, "memory.limit_in_bytes", "memory.max") == str(256 * MB)
    yard.box("hibernate", a.name, b.name, box.name)
    assert not box_cgroups(yard.name, b.id)
    yard.box("wake", b.name)
    assert group_limit(yard, b, "memory.limit_in_bytes", "memory.max") == str(256 * MB)


def test_a_fork_that_would_not_fit_is_refused_before_anything_dies(fresh_yard):
    box = fresh_yard.new(memory=200 * MB, pids=100)
    held = hold(box, 120)
    eventually(lambda: b"held" in box.logs(held, raw="true"), 10)
    done = box.run("box", "fork")
    assert done.code == EXIT_LIMIT and b"memory" in done.stderr and b"200M" in done.stderr, done.stderr
    assert lives(box, held) and tree(box)["boxes"] == 1
    # From outside it is the operator's business.
    fresh_yard.box("fork", box.name, "other")
    fresh_yard.box("set", box.name, "--tree", "memory=600M")
    assert box.run("box", "fork", "kid").code == 0
    box.start("sh", "-c", "for i in $(seq 60); do sleep 1000 & done; sleep 1000")
    eventually(lambda: stats(box)["processes"] > 60, 10)
    done = box.run("box", "fork", "kid2")
    assert done.code == EXIT_LIMIT and b"processes" in done.stderr, done.stderr


def test_one_that_does_not_fit_is_not_woken(fresh_yard):
    """Nobody else is killed to make room for it, and it sleeps on."""
    yard = fresh_yard
    box = yard.new(memory=200 * MB)
    assert box.run("box", "fork", "a").code == 0
    a = child_of(box, "a")
    held = hold(a, 100)
    eventually(lambda: b"held" in a.logs(held, raw="true"), 10)
    yard.box("hibernate", a.name)
    other = hold(box, 120)
    eventually(lambda: b"held" in box.logs(other, raw="true"), 10)
    done = yard.box("wake", a.name, check=False)
    assert done.returncode == EXIT_LIMIT and "200M" in done.stderr and f"box set {box.name}" in done.stderr, done.stderr
    assert lives(box, other) and a.show()["state"] == "hibernated"
    yard.box("set", box.name, "--memory", "400M")
    yard.box("wake", a.name)
    assert lives(a, held)


# ---- all boxes together ----------------------------------------------------------------------


@pytest.fixture
def small_yard(image):
    """All boxes together may have 200 MB and 150 processes."""
    with running_yard_with(BOX_YARD_MEMORY="200M", BOX_YARD_PIDS="150", BOX_SPARES="0") as one:
        yield one


def test_all_boxes_together_leave_the_machine_something(fresh_yard):
    info = fresh_yard.info()["together"]
    total = int(re.search(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text()).group(1)) * 1024
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert 0 < info["memory_limit_bytes"] <= total - min(total // 8, 8 << 30)
    assert 0 < info["processes_limit"] <= pid_max - min(pid_max // 8, 32768)
    assert "all boxes together" in fresh_yard.box("doctor").stdout


def test_limits_of_the_yard_hold_and_say_so(small_yard):
    yard = small_yard
    assert yard.info()["together"]["memory_limit_bytes"] == 200 * MB
    assert yard.info()["together"]["processes_limit"] == 150
    boxes = [yard.new(), yard.new()]
    since = yard.next_offset()
    running = [(box, hold(box, 120)) for box in boxes]
    eventually(lambda: sum(lives(*one) for one in running) == 1, 20, "one of them was killed for memory")
    eventually(lambda: events(yard, "limit.memory", since), 5)
    event = events(yard, "limit.memory", since)[0]
    assert event["data"]["scope"] == "yard" and event["data"]["limit_bytes"] == 200 * MB, event
    for box in boxes:
        box.start("sh", "-c", "for i in $(seq 100); do sleep 1000 & done; sleep 1000")
    eventually(lambda: events(yard, "limit.pids", since), 10)
    assert events(yard, "limit.pids", since)[0]["data"]["scope"] == "yard"
    assert yard.info()["together"]["processes"] <= 150
