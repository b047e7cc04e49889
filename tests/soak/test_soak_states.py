"""Suspend, hibernate and fork again and again: nothing is lost, nothing is left.

BOX_TEST_SUSPENDS (10; 1000 in the soak), BOX_TEST_HIBERNATES (5; 200), BOX_TEST_COPIES (5; 100).
"""
import os

import pytest

import states
from boxtest import SLOWNESS, eventually
from states import Checks, plus

SUSPENDS = int(os.environ.get("BOX_TEST_SUSPENDS", "10"))
HIBERNATES = int(os.environ.get("BOX_TEST_HIBERNATES", "5"))
COPIES = int(os.environ.get("BOX_TEST_COPIES", "5"))
KINDS = ("files", "deleted", "pipes", "pty", "unix", "tcp", "timers", "epoll", "eventfd", "memfd", "shared", "sysv", "locks",
         "threads", "blocked", "signals", "children", "memory", "clock")
RSS_KB = 3072  # the daemon may have learned something


@pytest.fixture
def checked(fresh_yard):
    box = fresh_yard.new(memory="1G", pids=256)
    states.install(box)
    return fresh_yard, box, Checks(box, *KINDS)


def soaked(yard, rounds, before, rss_before):
    states.nothing_grew(yard, before)
    if SLOWNESS == 1 and rounds >= 50:
        assert yard.rss_kb() - rss_before < RSS_KB, (rss_before, yard.rss_kb())


@pytest.mark.slow
def test_suspend_and_resume_lose_and_leave_nothing(checked):
    yard, box, checks = checked
    counter = box.start("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done")
    for _ in range(3):
        states.suspend(box)
        states.resume(box)
    counts, before, rss = checks.counts(), states.settled(yard), yard.rss_kb()
    for number in range(1, SUSPENDS + 1):
        yard.api("POST", f"{box.path}/suspend", expect=200)
        yard.api("POST", f"{box.path}/resume", expect=200)
        if number % 20 == 0 or number == SUSPENDS:
            counts = plus(counts, 1)
            assert checks.counts() == counts, f"after {number}"
    soaked(yard, SUSPENDS, before, rss)
    yard.api("POST", f"{box.path}/execs/{counter['id']}/signal", {"signal": "KILL"})
    box.wait_exec(counter["id"])
    counted = [int(n) for n in box.logs(counter["id"], raw="true").split()]
    assert counted == list(range(counted[0], counted[0] + len(counted)))


@pytest.mark.slow
def test_hibernate_and_wake_lose_and_leave_nothing(checked):
    yard, box, checks = checked
    states.hibernate(box)
    states.wake(box)
    counts, before, rss = checks.counts(), states.settled(yard), yard.rss_kb()
    for number in range(1, HIBERNATES + 1):
        states.hibernate(box)
        assert not states.box_processes(yard, box)
        states.wake(box)
        counts = plus(counts, 1)
        assert checks.counts() == counts, f"after {number}"
    soaked(yard, HIBERNATES, before, rss)


@pytest.mark.slow
def test_forks_lose_and_leave_nothing(checked):
    yard, box, checks = checked
    [first] = states.fork(box)
    first.remove()
    counts, before, rss = checks.counts(), states.settled(yard), yard.rss_kb()
    for number in range(1, COPIES + 1):
        [child] = states.fork(box)
        assert checks.counts(child) == plus(counts, 1), f"fork {number}"
        child.remove()
        if number % 10 == 0 or number == COPIES:
            counts = plus(counts, 1)
            assert checks.counts() == counts
    soaked(yard, COPIES, before, rss)


@pytest.mark.slow
def test_snapshots_and_rollbacks_leave_nothing_when_their_box_is_gone(fresh_yard):
    yard = fresh_yard
    yard.new().remove()
    before = states.settled(yard)
    for _ in range(2):
        box = yard.new()
        for number in range(3):
            states.snapshot(box, f"s{number}")
        states.rollback(box, "s0")
        states.hibernate(box)
        states.fork(box)[0].remove()
        assert box.remove().status == 204
    eventually(lambda: yard.boxes() == [], 10)
    states.nothing_grew(yard, before)
