"""Daemons and CRIUs killed in the middle of snapshot, fork, rollback, hibernate and wake; full
disks; two at once.

Whatever happens, the box is there afterwards with its processes, either before or after the
operation, never in between,
and nothing is left behind. BOX_TEST_STATE_KILLS sets how often the daemon is killed in each
operation (2; more in the soak),
BOX_TEST_SEED repeats a run as far as timing lets it.
"""
import contextlib
import http.client
import os
import random
import signal
import subprocess
import threading
import time

import pytest

import states
from boxtest import SLOWNESS, Yard, eventually, instance_processes, read_proc
from states import Checks, plus

WAKE_KILLS = int(os.environ.get("BOX_TEST_WAKE_KILLS", "12"))
KILLS = int(os.environ.get("BOX_TEST_STATE_KILLS", "2"))
SEED = int(os.environ.get("BOX_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
# Those that no operation is known to trouble: what fails here is about the fault.
KINDS = ("files", "pipes", "unix", "tcp", "shared", "sysv", "threads", "signals", "children", "clock")
SETTLED = ("running", "suspended", "hibernated", "stopped")


class Scene:
    """A box that checks itself, with a snapshot to go back to."""

    def __init__(self, yard):
        self.yard = yard
        self.box = yard.new(name="witness", memory="1G", pids=256)
        states.install(self.box)
        self.checks = Checks(self.box, *KINDS)
        self.then = self.checks.counts()
        self.moment = states.snapshot(self.box, "moment")["id"]
        self.now = self.checks.counts()

    def settle(self):
        """Awake again; what it remembers is given. Its processes must not be lost, whatever
        happened."""
        def calm():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return states.state(self.box) in SETTLED

        eventually(calm, 60, lambda: states.state(self.box), every=0.05)
        assert states.state(self.box) != "stopped", f"processes are lost: {self.box.show()}"
        states.wake(self.box)
        self.box.exec("true", timeout=20)  # one that stands still is found soon
        return self.checks.counts()

    def children(self):
        return [states.of(self.yard, one) for one in self.yard.boxes() if one["id"] != self.box.id]

    def remove_children(self):
        """Each of them must be whole, or not be there."""
        for child in self.children():
            eventually(lambda one=child: states.state(one) in SETTLED, 60, every=0.05)
            if states.state(child) != "stopped":
                assert self.checks.counts(child), child.name
            child.remove()


def act(scene, verb):
    """The command line that does it."""
    words = {"snapshot": ("snapshot", scene.box.name), "fork": ("fork", scene.box.name, "-n", "2"),
             "rollback": ("rollback", scene.box.name, scene.moment), "hibernate": ("hibernate", scene.box.name),
             "wake": ("wake", scene.box.name)}
    return scene.yard.spawn(*words[verb])


def end(client, patience=60):
    try:
        return client.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        client.kill()
        client.communicate()
        raise AssertionError("a request never came back") from None


def prepare(scene, verb):
    if verb == "wake":
        states.hibernate(scene.box)


def duration(scene, verb):
    """How long it takes when nobody interferes; leaves the scene as it was."""
    prepare(scene, verb)
    before = time.monotonic()
    out, err = end(act(scene, verb))
    took = time.monotonic() - before
    assert scene.settle(), (out, err)
    scene.remove_children()
    return took


def allowed(scene, verb):
    """What it may remember after an operation that was cut off somewhere."""
    return [plus(scene.now, 1)] + ([plus(scene.then, 1)] if verb == "rollback" else [])


@pytest.fixture
def scene(fresh_yard):
    return Scene(fresh_yard)


# ---- the daemon is killed --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["snapshot", "fork", "rollback", "hibernate", "wake"])
def test_daemon_killed_in_the_middle_of(scene, verb):
    print(f"BOX_TEST_SEED={SEED}")
    yard, chance = scene.yard, random.Random(f"{SEED}{verb}")
    took = duration(scene, verb)
    scene.now = scene.checks.counts()
    for number in range(KILLS):
        prepare(scene, verb)
        when = took * 1.1 * (number + chance.random()) / KILLS  # all over it
        client = act(scene, verb)
        time.sleep(when)
        yard.kill_daemon()
        yard.start_daemon()
        end(client)
        remembers = scene.settle()
        assert remembers in allowed(scene, verb), f"killed after {when:.3f} of {took:.3f} s, seed {SEED}"
        scene.now = remembers
        scene.remove_children()
        # Everything still works, twice over: what was half done is in nobody's way.
        states.snapshot(scene.box)
        states.fork(scene.box)[0].remove()
        scene.now = scene.checks.counts()
    scene.box.remove()
    assert yard.boxes() == []
    only_the_daemon_is_left(yard)


@pytest.mark.slow
def test_daemon_killed_while_a_sleeper_goes_back(scene):
    """It sleeps on with its processes, or is where it was to go."""
    for when in (0.0, 0.003, 0.01, 0.03, 0.06, 0.1):
        states.hibernate(scene.box)
        client = act(scene, "rollback")
        time.sleep(when)
        scene.yard.kill_daemon()
        scene.yard.start_daemon()
        end(client)
        remembers = scene.settle()
        assert remembers in allowed(scene, "rollback"), when
        scene.now = remembers
    scene.box.remove()
    only_the_daemon_is_left(scene.yard)


def test_daemon_killed_while_a_suspended_box_falls_asleep(scene):
    """What was paused does not run because of that."""
    for when in (0.01, 0.04, 0.08):
        states.suspend(scene.box)
        client = act(scene, "hibernate")
        time.sleep(when)
        scene.yard.kill_daemon()
        scene.yard.start_daemon()
        end(client)
        eventually(lambda: states.state(scene.box) in SETTLED, 30, every=0.05)
        assert states.state(scene.box) in ("suspended", "hibernated")
        states.wake(scene.box)
    assert scene.checks.counts() == plus(scene.now, 1)


def only_the_daemon_is_left(yard):
    def left():
        now = states.residue(yard)
        return {key: now[key] for key in ("disks", "snapshots", "states", "quick states") if now[key]} | (
            {"strangers": strangers(yard)} if strangers(yard) else {})

    first = states.settled(yard)
    assert first
    eventually(lambda: not left(), 30, left, every=0.2)


def strangers(yard):
    daemon = yard.daemon_pid()
    return [(pid, read_proc(pid, "cmdline")) for pid in instance_processes(yard.name, yard.base)
            if pid != daemon and f" {daemon} ".encode() not in read_proc(pid, "stat")]


@pytest.mark.slow
def test_daemon_that_goes_down_in_the_middle_loses_nothing(scene):
    for verb in ("snapshot", "hibernate", "rollback"):
        client = act(scene, verb)
        time.sleep(0.02)
        scene.yard.stop_daemon()
        scene.yard.start_daemon()
        end(client)
        remembers = scene.settle()
        assert remembers in allowed(scene, verb), verb
        scene.now = remembers


# ---- CRIU is killed --------------------------------------------------------------------------


def kill_criu(yard, over):
    """Ends the first criu of this yard that is seen; gives whether one was."""
    daemon = yard.daemon_pid()
    while not over.is_set():
        for pid in states.criu_processes(yard, daemon):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        time.sleep(0.001)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["snapshot", "fork", "rollback", "hibernate", "wake"])
def test_criu_killed(scene, verb):
    """It says so, and the box is as before. (A process into which CRIU was just writing code may
    end with it: src/engine/ns/criu/criu.h.
    Then the box says what happened; it is not lost silently.)"""
    prepare(scene, verb)
    over, client, killed = threading.Event(), act(scene, verb), []
    killer = threading.Thread(target=lambda: killed.append(kill_criu(scene.yard, over)), daemon=True)
    killer.start()
    out, err = end(client)
    over.set()
    killer.join(10)
    if not killed[0]:
        pytest.skip("criu was too quick to be killed")
    assert client.returncode == 0 or err.strip(), "a failure without a word"
    eventually(lambda: states.state(scene.box) in SETTLED, 60, every=0.05)
    shown = scene.box.show()
    if shown["state"] == "stopped":
        assert shown["end"]["detail"], shown
        scene.yard.box("start", scene.box.name)
        assert scene.box.out("echo up") == "up"
        return
    assert scene.settle() in allowed(scene, verb), (out, err)
    # And the next time it works.
    scene.now = scene.checks.counts()
    states.snapshot(scene.box)
    assert scene.checks.counts() == plus(scene.now, 1)


WRITER = """import os, threading, time
def write(n):
    with open(f"/root/grows{n}", "ab", 0) as f:
        while True: f.write(b"x" * 100)
for n in range(20): threading.Thread(target=write, args=(n,), daemon=True).start()
time.sleep(10000)
"""


@pytest.mark.slow
def test_criu_killed_while_it_lets_the_processes_go(fresh_yard):
    """The kernel lets go of processes whose tracer ends: they wrote to the disk of a box that
    counted as asleep, and its
    memory could never be used again."""
    box, daemon = fresh_yard.new(memory="512M"), fresh_yard.daemon_pid()
    assert box.put("/root/w.py", WRITER.encode()).status < 300
    writer = box.start("python3", "/root/w.py")
    eventually(lambda: box.out("ls /root | grep -c grows || true") == "20", 10)
    states.hibernate(box)
    before = time.monotonic()
    states.wake(box)
    took = time.monotonic() - before
    for number in range(WAKE_KILLS):
        states.hibernate(box)
        client = fresh_yard.spawn("wake", box.name)
        time.sleep(took * (0.4 + 0.6 * number / WAKE_KILLS))
        for pid in states.criu_processes(fresh_yard)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        end(client)
        eventually(lambda: states.state(box) in ("running", "hibernated"), 30, lambda: box.show())
        if states.state(box) == "hibernated":
            states.wake(box)
        assert box.get_exec(writer["id"])["state"] == "running", number
    assert daemon == fresh_yard.daemon_pid()


# ---- no room ---------------------------------------------------------------------------------


def room_for_states(yard, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", yard.home / "states"], check=True)


@pytest.fixture
def small_disk(image):
    """A yard whose states lie on a file system of their own, as small as a test wants it. The pool
    is elsewhere: boxes whose disk
    breaks are another story."""
    yard = Yard()
    (yard.home / "states").mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g,mode=700", "boxt-small", yard.home / "states"], check=True)
    try:
        yard.start_daemon()
        yield yard
    finally:
        with contextlib.suppress(AssertionError, OSError):
            yard.box("rm", "-f", "--all")
            yard.stop_daemon()
        subprocess.run(["umount", "-l", yard.home / "states"], check=True)
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["snapshot", "hibernate"])
def test_full_disk_refuses_the_capture_and_the_box_goes_on(small_disk, verb):
    yard = small_disk
    box = yard.new(memory="1G")
    states.install(box)
    checks = Checks(box, "memory", "pipes", "threads", "children")
    counts = checks.counts()
    room_for_states(yard, "20m")
    refused = yard.box(verb, box.name, check=False, timeout=120)
    assert refused.returncode, f"64 MB in 20: {states.box_json(yard, box.name)}"
    assert any(word in refused.stderr for word in ("space", "room", "full", "MB", "MiB")), refused.stderr
    assert states.state(box) == "running"
    assert checks.counts() == plus(counts, 1)
    room_for_states(yard, "1g")
    states.hibernate(box)
    states.wake(box)
    assert checks.counts() == plus(counts, 2)


@pytest.mark.slow
def test_wake_on_a_full_disk_is_refused_or_works_but_loses_nothing(small_disk):
    yard = small_disk
    box = yard.new(memory="1G")
    states.install(box)
    checks = Checks(box, "memory", "pipes", "children")
    counts = checks.counts()
    states.hibernate(box)
    used = os.statvfs(yard.home / "states")
    room_for_states(yard, (used.f_blocks - used.f_bfree) * used.f_frsize + 4096)
    yard.box("wake", box.name, check=False, timeout=120)
    room_for_states(yard, "1g")
    states.wake(box)
    assert checks.counts() == plus(counts, 1)


@pytest.mark.slow
def test_damaged_state_is_refused_and_the_disk_is_offered(fresh_yard):
    yard = fresh_yard
    box = yard.new()
    box.sh("echo kept > /root/f; sync")
    states.hibernate(box)
    files = lambda: [path for path in (yard.home / "states").rglob("*") if path.is_file() and path.stat().st_size > 0]
    eventually(files, 10, "a state on disk")
    time.sleep(1)  # it may still be packed
    yard.stop_daemon()
    for path in files():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xff
        path.write_bytes(data)
    yard.start_daemon()
    refused = yard.box("wake", box.name, check=False)
    assert refused.returncode, "a damaged state was restored"
    assert "damaged" in refused.stderr or "checksum" in refused.stderr, refused.stderr
    assert states.state(box) == "hibernated"
    yard.box("stop", box.name)
    yard.box("start", box.name)
    assert box.out("cat /root/f") == "kept"


# ---- busy boxes, and two at once -------------------------------------------------------------

FORKER = """import os, time
n = 0
print("ready", flush=True)
while True:
    try:
        pid = os.fork()
    except OSError:
        time.sleep(0.001); pid = -1
    if pid == 0:
        time.sleep(0.01 * (n % 5)); os._exit(0)
    n += 1
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError:
        pass
"""


@pytest.mark.slow
def test_box_that_forks_all_the_time_is_captured_or_refused(yard):
    box = yard.new(pids=100, memory="1G")
    children = []
    try:
        forker = box.start("python3", "-c", FORKER)
        eventually(lambda: b"ready" in box.logs(forker["id"], raw="true"), 20)
        done = {}
        for verb in ("snapshot", "fork", "hibernate"):
            result = yard.box(verb, box.name, *(["--json"] if verb == "fork" else []), check=False, timeout=180)
            done[verb] = result.returncode
            assert result.returncode == 0 or result.stderr.strip()
            if verb == "fork" and result.returncode == 0:
                import json
                children = [states.of(yard, one) for one in json.loads(result.stdout)["children"]]
            eventually(lambda: states.state(box) in SETTLED, 60)
            states.wake(box)
            assert box.get_exec(forker["id"])["state"] == "running", f"{verb}: {result.stderr}"
        for child in children:
            assert child.get_exec(forker["id"])["state"] == "running"
        assert done["snapshot"] == 0 or done["fork"] == 0 or done["hibernate"] == 0, "none of three tries worked"
    finally:
        for one in (*children, box):
            one.remove()


PAIRS = [("snapshot", "snapshot"), ("snapshot", "fork"), ("fork", "fork"), ("hibernate", "snapshot"), ("hibernate", "fork"),
         ("hibernate", "wake"), ("rollback", "snapshot"), ("rollback", "rollback"), ("rollback", "hibernate"), ("rollback", "fork")]


@pytest.mark.slow
def test_two_operations_at_once_wait_or_say_conflict(scene):
    yard, box = scene.yard, scene.box
    paths = {"snapshot": (f"{box.path}/snapshots", {}), "fork": (f"{box.path}/fork", {}), "hibernate": (f"{box.path}/hibernate", {}),
             "wake": (f"{box.path}/wake", {}), "rollback": (f"{box.path}/rollback", {"snapshot": scene.moment})}
    for pair in PAIRS:
        answers = {}

        def ask(number, verb):
            path, body = paths[verb]
            answers[number] = yard.api("POST", path, body, timeout=120)

        threads = [threading.Thread(target=ask, args=(n, verb), daemon=True) for n, verb in enumerate(pair)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), f"{pair}: no answer"
        for reply in answers.values():
            assert reply.status in (200, 201, 202, 204, 409), (pair, reply.status, reply.body[:300])
            if reply.status == 409:
                assert reply.code and len(reply.json["error"]["message"]) > 10
        assert any(reply.status < 300 for reply in answers.values()), (pair, [r.body[:200] for r in answers.values()])
        assert scene.settle(), pair
        scene.remove_children()


@pytest.mark.slow
def test_removed_while_it_is_being_forked(fresh_yard):
    """Children that were promised are whole; the parent is gone."""
    yard = fresh_yard
    for delay in (0.0, 0.01, 0.03, 0.1):
        box = yard.new()
        box.sh("echo here > /root/f")
        client = yard.spawn("fork", box.name, "-n", "3", "--json")
        time.sleep(delay)
        removed = box.remove()
        end(client)
        assert removed.status in (204, 409), removed.body
        if removed.status == 409:
            assert box.remove().status == 204
        eventually(lambda one=box: all(b["id"] != one.id for b in yard.boxes()), 20)
        for one in yard.boxes():
            child = states.of(yard, one)
            assert child.out("cat /root/f") == "here"
            child.remove()
    assert yard.boxes() == []
    only_the_daemon_is_left(yard)


@pytest.mark.slow
def test_parent_and_its_snapshots_go_while_children_live(fresh_yard):
    yard = fresh_yard
    box = yard.new()
    box.sh("echo here > /root/f")
    made = states.snapshot(box)
    children = states.fork(box, "-n", "2") + states.fork(box, "--from", made["id"])
    grandchildren = states.fork(children[0])
    assert box.remove().status == 204
    assert children[0].remove().status == 204
    for one in (*children[1:], *grandchildren):
        assert one.out("cat /root/f") == "here"
        states.hibernate(one)
        states.wake(one)
        assert one.out("cat /root/f") == "here"
        one.remove()
    only_the_daemon_is_left(yard)


# ---- what was promised is there afterwards ---------------------------------------------------

HOLDS_MEMORY = "import os, time; b = bytearray(os.urandom(1 << 20)) * {}; open('/up', 'w').close()\nwhile True: time.sleep(0.1)"


def with_memory(yard, mib):
    box = yard.new(idle={"suspend": "off"})
    exec_id = box.start("python3", "-c", HOLDS_MEMORY.format(mib))["id"]
    eventually(lambda: box.stat("/up").status == 200, 30 * SLOWNESS)
    return box, exec_id


def runs(box, exec_id):
    return box.yard.api("GET", f"{box.path}/execs/{exec_id}").json.get("state") == "running"


@pytest.mark.parametrize("pause", [0, 0.1])
def test_daemon_killed_while_the_target_of_a_rollback_comes_up(fresh_yard, pause):
    """The present until the target runs, and the target from then on: one of the two, whole."""
    box, exec_id = with_memory(fresh_yard, 100)
    box.put("/file", b"then")
    states.snapshot(box, "then")
    box.put("/file", b"now")
    client = fresh_yard.spawn("rollback", box.name, "then")
    eventually(lambda: states.state(box) == "starting", 20 * SLOWNESS, "the target is being made", every=0.002)
    time.sleep(pause)
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    end(client)
    eventually(lambda: states.state(box) == "running", 30 * SLOWNESS, lambda: box.show())
    assert box.get("/file").body in (b"then", b"now") and runs(box, exec_id)
    eventually(lambda: len(states.groups(fresh_yard, box)) == 1, 20 * SLOWNESS, lambda: states.groups(fresh_yard, box))


def test_an_image_with_processes_is_whole_when_it_is_answered_for(fresh_yard):
    box, exec_id = with_memory(fresh_yard, 60)
    fresh_yard.box("save", "--full", box.name, "ready")
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    made = fresh_yard.new(image="ready")
    assert runs(made, exec_id)


def test_going_down_in_good_order_keeps_what_a_rollback_left(fresh_yard):
    box, exec_id = with_memory(fresh_yard, 150)
    states.snapshot(box, "then")
    done = states.rollback(box, "then")
    fresh_yard.box("down")
    fresh_yard.start_daemon()
    [kept] = [one for one in states.timeline(box)["snapshots"] if one["id"] == done["from"]["id"]]
    assert kept["kind"] == "full"
    states.rollback(box, kept["id"])
    assert runs(box, exec_id)


def test_a_box_of_an_image_that_was_not_told_who_it_is_goes(fresh_yard):
    box = fresh_yard.new()
    box.exec("mkdir", "-p", "/etc/boxyard/fork.d")
    box.put("/etc/boxyard/fork.d/slow", b"#!/bin/sh\nsleep 4\n", mode="755")
    box.exec("chmod", "755", "/etc/boxyard/fork.d/slow")
    fresh_yard.box("save", "--full", box.name, "ready")
    client = fresh_yard.spawn("new", "--image", "ready", "late")
    eventually(lambda: len(fresh_yard.boxes()) == 2, 10 * SLOWNESS, every=0.005)
    time.sleep(1)
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    end(client)
    eventually(lambda: [one["name"] for one in fresh_yard.boxes()] == [box.name], 10 * SLOWNESS)


def test_daemon_killed_while_a_box_that_woke_is_told(fresh_yard):
    """Its programs run on: memory from before must not come back upon what they have written."""
    box = fresh_yard.new(idle={"suspend": "off"})
    box.exec("mkdir", "-p", "/etc/boxyard/restore.d")
    box.put("/etc/boxyard/restore.d/slow", b"#!/bin/sh\nsleep 3\n", mode="755")
    box.exec("chmod", "755", "/etc/boxyard/restore.d/slow")
    exec_id = box.start("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /count.new; mv /count.new /count; sleep 0.05; done")["id"]
    eventually(lambda: box.stat("/count").status == 200, 5)
    states.hibernate(box)
    client = fresh_yard.spawn("wake", box.name)
    eventually(lambda: states.box_processes(fresh_yard, box), 10 * SLOWNESS, every=0.005)
    time.sleep(1)
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    end(client)
    eventually(lambda: states.state(box) == "running", 20 * SLOWNESS, lambda: box.show())
    first = int(box.out("cat /count"))
    assert first > 10 and runs(box, exec_id)
    eventually(lambda: int(box.out("cat /count")) > first, 5 * SLOWNESS)
