"""Two things at once: boxes that end, are removed, stopped or woken in the middle of what is done
to their state.

Whatever meets whatever: every request is answered, the daemon lives, nothing is left, and no disk
is lost.
"""
import contextlib
import http.client
import os
import signal
import threading
import time

import pytest

import states
from boxtest import SLOWNESS, eventually

pytestmark = pytest.mark.asan
FILE = "/root/kept"


class Request(threading.Thread):
    """One that must be answered; .reply is the answer."""

    def __init__(self, yard, method, path, body=None):
        super().__init__(daemon=True)
        self.what, self.reply = (yard, method, path, body), None
        self.start()

    def run(self):
        yard, method, path, body = self.what
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.reply = yard.api(method, path, body, timeout=60)

    def end(self):
        self.join(60)
        assert not self.is_alive() and self.reply, f"{self.what[1:3]} was never answered"
        return self.reply


def post(box, verb, body=None):
    return Request(box.yard, "POST", f"/v1/boxes/{box.id}/{verb}", body or {})


def in_state(box, *wanted):
    with contextlib.suppress(AssertionError):
        return states.state(box) in wanted
    return False


def when(box, state, timeout=10):
    """As soon as it is in that state, or has been."""
    end = time.monotonic() + timeout
    while time.monotonic() < end and not in_state(box, state):
        time.sleep(0.001)


def only(yard, *boxes):
    """Nothing else is there, and nothing is on its way out for ever."""
    assert sorted(one["id"] for one in yard.boxes()) == sorted(one.id for one in boxes)
    eventually(lambda: yard.info()["leaving"] == 0, 20, "what was removed goes")


@pytest.fixture
def box(yard):
    one = yard.new(memory="1G", pids=128)
    one.exec("sh", "-c", f"echo first > {FILE}")
    before = states.settled(yard)
    yield one
    with contextlib.suppress(AssertionError):
        one.remove()
    assert yard.answers(), yard.log_tail()
    only(yard)
    eventually(lambda: not {key: count for key, count in states.residue(yard).items()
                            if key in ("states", "quick states", "snapshots", "disks") and count > before[key]
                            or key == "disks" and count}, 20, lambda: states.residue(yard))


# ---- removed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0, 0.01, 0.05])
@pytest.mark.parametrize("verb", ["snapshots", "hibernate", "rollback", "fork", "stop"])
def test_removed_in_the_middle_of(box, verb, pause):
    states.snapshot(box)
    asked = post(box, verb)
    time.sleep(pause)
    box.yard.api("DELETE", f"/v1/boxes/{box.id}", query={"force": "true"})
    asked.end()
    for child in box.yard.boxes():
        if child["id"] != box.id:
            eventually(lambda one=child: states.state(states.of(box.yard, one)) == "running", 30)
            states.of(box.yard, child).remove()
    only(box.yard)


def test_removed_stopped_one_that_goes_back(box):
    states.snapshot(box, "--disk-only")
    box.yard.box("stop", box.name)
    asked = post(box, "rollback")
    box.yard.api("DELETE", f"/v1/boxes/{box.id}", query={"force": "true"})
    asked.end()
    only(box.yard)


def test_removed_while_its_snapshot_is_made_safe(box):
    box.exec("sh", "-c", "head -c 60m /dev/urandom > /dev/shm/much")
    asked = post(box, "snapshots")
    eventually(lambda: states.timeline(box)["snapshots"], 30, every=0.002)
    box.remove()
    asked.end()


def test_promoted_over_a_stopped_parent(box):
    [child] = states.fork(box)
    box.yard.box("stop", box.name)
    box.yard.box("promote", child.name)
    child = states.of(box.yard, states.box_json(box.yard, box.name))
    assert child.out(f"cat {FILE}").strip() == "first"
    only(box.yard, child)
    child.remove()


def test_promoted_over_a_hibernated_parent(box):
    """What slept is on the time line, and goes on when it is gone back to."""
    [child] = states.fork(box)
    box.start("sh", "-c", "echo parent > /dev/shm/who; exec sleep 4242")
    eventually(lambda: "sleep 4242" in box.commands(), 10)
    states.hibernate(box)
    box.yard.box("promote", child.name)
    child = states.of(box.yard, states.box_json(box.yard, box.name))
    assert "sleep 4242" not in child.commands()
    [was] = states.timeline(child)["snapshots"]
    assert (was["cause"], was["kind"], was["safe"]) == ("promote", "full", True)
    states.rollback(child, was["id"])
    assert "sleep 4242" in child.commands() and child.out("cat /dev/shm/who") == "parent"
    only(box.yard, child)
    child.remove()


@pytest.mark.parametrize("pause", [0, 0.001, 0.002])
def test_promotion_that_comes_to_nothing_leaves_the_hibernated_parent_asleep(box, pause):
    """Its fork is busy when the snapshot is there; or not yet, and all is well."""
    [child] = states.fork(box)
    child.start("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    box.start("sleep", "4242")
    eventually(lambda: "sleep 4242" in box.commands(), 10)
    states.hibernate(box)
    promotion = post(child, "promote")
    time.sleep(pause)
    stopping = post(child, "stop", {"timeout_ms": 300})
    assert promotion.end().status in (200, 409) and stopping.end().status in (200, 204)
    now = states.of(box.yard, states.box_json(box.yard, box.name))
    if now.id == box.id:
        assert states.state(box) == "hibernated" and states.timeline(box)["snapshots"] == []
        states.wake(box)
        child.remove()
    else:
        states.rollback(now, states.timeline(now)["snapshots"][-1]["id"])
    assert "sleep 4242" in now.commands()
    only(box.yard, now)
    now.remove()


# Much memory makes the time long in which something can happen.
MUCH = "head -c 100m /dev/urandom > /dev/shm/much"


@pytest.mark.parametrize("pause", [0.05, 0.15, 0.3])
@pytest.mark.parametrize("keep", ["false", "true"])
def test_removed_while_it_falls_asleep(box, pause, keep):
    """It does not sleep for ever as a box that nobody sees."""
    box.exec("sh", "-c", MUCH)
    asked = post(box, "hibernate")
    when(box, "hibernating")
    time.sleep(pause)
    box.yard.api("DELETE", f"/v1/boxes/{box.id}", query={"force": "true", "keep_workspace": keep}, expect=204)
    asked.end()
    only(box.yard)


# ---- it ends by itself -----------------------------------------------------------------------


@pytest.mark.parametrize("pause", [0.05, 0.15, 0.3])
def test_box_that_dies_while_it_falls_asleep(box, pause):
    box.exec("sh", "-c", MUCH)
    init = states.main_process(box)
    asked = post(box, "hibernate")
    when(box, "hibernating")
    time.sleep(pause)
    with contextlib.suppress(ProcessLookupError):
        os.kill(init, signal.SIGKILL)
    worked = asked.end().status == 200
    eventually(lambda: in_state(box, "hibernated" if worked else "stopped"), 30, lambda: states.state(box))
    box.yard.box("start", box.name)
    assert box.out(f"cat {FILE}").strip() == "first"


@pytest.mark.parametrize("pause", [0, 0.01, 0.04, 0.1])
@pytest.mark.parametrize("before", ["true", MUCH], ids=["small", "much"])
def test_box_that_dies_while_it_goes_back_keeps_a_disk(box, before, pause):
    states.snapshot(box)
    box.exec("sh", "-c", before)
    box.exec("sh", "-c", f"echo second > {FILE}; sync")
    init = states.main_process(box)
    asked = post(box, "rollback")
    time.sleep(pause)
    with contextlib.suppress(ProcessLookupError):
        os.kill(init, signal.SIGKILL)
    worked = asked.end().status == 200
    eventually(lambda: in_state(box, "running", "stopped"), 30)
    box.yard.box("start", box.name)
    assert box.out(f"cat {FILE}").strip() == ("first" if worked else "second")


@pytest.mark.parametrize("verb", ["snapshots", "hibernate", "fork"])
def test_box_that_dies_with_others_waiting(box, verb):
    """The next in line finds a box that has ended, not half of one."""
    init = states.main_process(box)
    asked = [post(box, verb), post(box, "hibernate"), post(box, "snapshots"), post(box, "hibernate")]
    time.sleep(0.03)
    with contextlib.suppress(ProcessLookupError):
        os.kill(init, signal.SIGKILL)
    for one in asked:
        one.end()
    eventually(lambda: in_state(box, "hibernated", "stopped"), 30)
    for child in box.yard.boxes():
        if child["id"] != box.id:
            states.of(box.yard, child).remove()
    box.yard.box("start", box.name)
    assert box.out(f"cat {FILE}").strip() == "first"
    states.snapshot(box)  # nobody has kept the turn


# ---- stopped, started, woken, suspended ------------------------------------------------------


def test_stop_waits_for_a_capture(box):
    """Programs are asked to end, and have the time for it; the snapshot is of before."""
    box.exec("sh", "-c", "head -c 40m /dev/urandom > /dev/shm/much")
    box.start("sh", "-c", f"trap 'echo asked > {FILE}; exit 0' TERM; while :; do sleep 0.05; done")
    made = post(box, "snapshots")
    time.sleep(0.02)
    stopped = post(box, "stop")
    assert made.end().status < 300 and stopped.end().status == 200
    assert states.state(box) == "stopped" and states.timeline(box)["snapshots"]
    box.yard.box("start", box.name)
    assert box.out(f"cat {FILE}").strip() == "asked"


def test_stop_of_one_that_falls_asleep(box):
    asleep, stopped = post(box, "hibernate"), post(box, "stop")
    asleep.end()
    assert stopped.end().status == 200 and states.state(box) == "stopped"
    box.yard.box("start", box.name)


def test_suspended_while_it_is_captured(box):
    made = post(box, "snapshots")
    time.sleep(0.03)
    suspended = post(box, "suspend")
    assert made.end().status < 300 and suspended.end().status == 200
    assert states.state(box) == "suspended"
    frozen = [states.read_proc(int(pid), "wchan") for pid in states.box_processes(box.yard, box)]
    assert frozen
    count = box.yard.api("GET", f"/v1/boxes/{box.id}/stats").json
    time.sleep(0.3)
    assert box.yard.api("GET", f"/v1/boxes/{box.id}/stats").json["cpu_us"] == count["cpu_us"], "it runs"
    states.resume(box)


@pytest.mark.parametrize("pause", [0, 0.02, 0.1])
def test_fork_of_a_hibernated_one_that_wakes(box, pause):
    box.start("sleep", "1234")
    states.hibernate(box)
    forked = post(box, "fork", {"count": 3})
    time.sleep(pause)
    woken = post(box, "wake")
    answer = forked.end()
    assert woken.end().status == 200
    assert answer.status < 300 and not answer.json["failed"], answer.body
    for child in answer.json["children"]:
        with states.removed_afterwards(states.of(box.yard, child)) as [one]:
            assert "1234" in one.out("cat /proc/*/cmdline | tr '\\0' ' '")
    assert "1234" in box.out("cat /proc/*/cmdline | tr '\\0' ' '")


@pytest.mark.parametrize("pause", [0, 0.02])
def test_forgotten_snapshot_still_serves_who_came_before(box, pause):
    made = states.snapshot(box)
    box.exec("sh", "-c", f"echo second > {FILE}")
    forked = post(box, "fork", {"count": 4, "snapshot": made["id"]})
    time.sleep(pause)
    eventually(lambda: len(box.yard.boxes()) > 1, 20, every=0.002)
    box.yard.box("forget", box.name, made["id"])
    assert not states.timeline(box)["snapshots"]
    answer = forked.end()
    assert answer.status < 300 and not answer.json["failed"], answer.body
    for child in answer.json["children"]:
        with states.removed_afterwards(states.of(box.yard, child)) as [one]:
            assert one.out(f"cat {FILE}").strip() == "first"


# ---- the daemon goes down --------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["fork", "hibernate", "rollback", "snapshots"])
def test_daemon_goes_down_and_the_box_goes_on(fresh_yard, verb):
    """Without a daemon too: what is given up is let go."""
    yard = fresh_yard
    box = yard.new(memory="1G", pids=128)
    box.start("sh", "-c", "while :; do date +%s%N > /root/now; sleep 0.02; done")
    states.snapshot(box)
    for pause in (0.0, 0.02, 0.06):
        client = yard.spawn({"snapshots": "snapshot"}.get(verb, verb), box.name)
        time.sleep(pause)
        yard.stop_daemon()
        time.sleep(0.5)  # CRIU has let go
        client.communicate(timeout=60)
        yard.start_daemon()
        eventually(lambda: in_state(box, "running", "hibernated"), 30)
        if in_state(box, "hibernated"):
            states.wake(box)
        for child in yard.boxes():
            if child["id"] != box.id:
                states.of(yard, child).remove()
        before = box.out("cat /root/now")
        eventually(lambda: box.out("cat /root/now") != before, 10, "it runs")
    box.remove()
    only(yard)


def test_programs_started_while_it_goes_back(box):
    """Each is run, in the box of before or of after, or told why not; never that nobody answers."""
    states.snapshot(box, "first")
    over, answers = threading.Event(), []

    def ask():
        while not over.is_set():
            answers.append(box.yard.api("POST", f"/v1/boxes/{box.id}/exec", {"argv": ["true"]}, timeout=60))

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    for asker in askers:
        asker.start()
    for _ in range(8):
        states.rollback(box, "first")
    over.set()
    for asker in askers:
        asker.join(60)
    assert not any(asker.is_alive() for asker in askers)
    refused = [(answer.status, answer.json["error"]["message"]) for answer in answers if answer.status != 200]
    assert len(answers) - len(refused) > 8, refused
    assert all(status == 409 and "went back in time" in message for status, message in refused), refused


# ---- the daemon ends -------------------------------------------------------------------------


def fill(box):
    """With memory that takes its time to write and to read."""
    code = "import os, time; kept = os.urandom(600 << 20); print('ready', flush=True); time.sleep(1000)"
    started = box.start("python3", "-c", code)
    eventually(lambda: b"ready" in box.logs(started["id"], raw="true"), 60, "its memory is filled")


@pytest.mark.slow
def test_who_sleeps_for_the_end_of_the_daemon_is_not_woken(fresh_yard):
    small, stopped, large = fresh_yard.new(), fresh_yard.new(), fresh_yard.new()
    fresh_yard.box("stop", stopped.name)
    fill(large)
    down = fresh_yard.spawn("down", "--hibernate")
    eventually(lambda: small.show()["state"] == "hibernated", 30, "the small one sleeps", every=0.005)
    assert large.show()["state"] == "hibernating", "this test needs a slower large one"
    for verb, body in (("wake", {}), ("start", {}), ("exec", {"argv": ["true"]}), ("fork", {}), ("rollback", {})):
        reply = fresh_yard.api("POST", f"{small.path}/{verb}", body)
        assert reply.code == "unavailable" and "shutting down" in reply.json["error"]["message"], (verb, reply)
    assert fresh_yard.api("POST", f"{stopped.path}/start", {}).code == "unavailable"
    assert fresh_yard.api("POST", "/v1/boxes", {}).code == "unavailable"
    assert large.show()["state"] == "hibernating", "this test needs a slower large one"
    assert down.wait(120) == 0, down.stderr.read()
    fresh_yard.start_daemon()
    assert [one.show()["state"] for one in (small, stopped, large)] == ["hibernated", "stopped", "hibernated"]
    assert small.out("echo awake") == "awake"


@pytest.mark.slow
def test_who_wakes_when_the_daemon_ends_is_put_to_sleep_again(fresh_yard):
    box = fresh_yard.new()
    fill(box)
    states.hibernate(box)
    waking = post(box, "wake")
    eventually(lambda: in_state(box, "starting"), 10, "it wakes", every=0.002)
    fresh_yard.box("down", "--hibernate", timeout=120)
    assert waking.end().status == 200
    fresh_yard.start_daemon()
    assert states.state(box) == "hibernated"
    assert box.out("echo awake") == "awake"


@pytest.mark.slow
def test_told_twice_the_daemon_waits_for_no_box(fresh_yard):
    box = fresh_yard.new()
    fill(box)
    down = fresh_yard.spawn("down", "--hibernate")
    eventually(lambda: in_state(box, "hibernating"), 10, "it is being written", every=0.002)
    began, pid = time.monotonic(), fresh_yard.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    _, said = down.communicate(timeout=60)
    assert down.returncode == 69 and b"before all boxes were hibernated" in said, said
    assert time.monotonic() - began < 10 * SLOWNESS
    fresh_yard.reap(pid)
    fresh_yard.start_daemon()
    assert states.state(box) == "running" and box.out("echo here") == "here"
