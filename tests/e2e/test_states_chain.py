"""Forks of forks of rollbacks of hibernated boxes: at each level everything is as it must be.

BOX_TEST_DEPTH sets how deep (4; 20 in the soak), BOX_TEST_FORKS how many forks at once (10; 100 in
the soak).
"""
import os

import pytest

import states
from states import Checks, plus

DEPTH = int(os.environ.get("BOX_TEST_DEPTH", "4"))
FORKS = int(os.environ.get("BOX_TEST_FORKS", "10"))
# Kinds that are quick to ask; test_states.py has all.
KINDS = ("files", "deleted", "pipes", "pty", "unix", "tcp", "timers", "epoll", "inotify", "memfd", "shared", "sysv", "threads",
         "signals", "children", "context", "clock")


def level_up(box, checks, counts, number):
    """One level: hibernated and woken, a moment taken and gone back to, then a fork of it. Gives
    the fork."""
    states.hibernate(box)
    states.wake(box)
    assert checks.counts(box) == plus(counts, 1)
    box.sh(f"echo {number} >> /root/levels")
    made = states.snapshot(box)
    assert checks.counts(box) == plus(counts, 2)
    box.sh("echo wrong >> /root/levels")
    states.rollback(box, made["id"])
    [child] = states.fork(box)
    assert checks.counts(box) == plus(counts, 2), "the parent went on"
    return child


@pytest.mark.slow
def test_fork_of_a_fork_of_a_rollback_of_a_hibernated_box(yard, make_box):
    box = make_box(memory="1G")
    states.install(box)
    box.sh("echo 0123456789abcdef0123456789abcdef > /etc/machine-id")
    checks = Checks(box, *KINDS)
    counts = checks.counts()
    made, identities = [], set()
    try:
        for number in range(DEPTH):
            child = level_up(box, checks, counts, number)
            made.append(child)
            counts = plus(counts, 2)
            assert checks.counts(child) == counts, f"level {number}"
            assert child.out("cat /root/levels").split() == [str(n) for n in range(number + 1)]
            identities.add(child.out("cat /etc/machine-id"))
            if number > 1:
                made.pop(0).remove()  # grandparents need not be there
            box = child
        assert len(identities) == DEPTH
        line = states.timeline(box)
        assert line["box"] == box.id
    finally:
        for one in made:
            one.remove()


@pytest.mark.slow
def test_many_forks_at_once_are_all_whole(yard, make_box):
    box = make_box()
    states.install(box)
    checks = Checks(box, "memory", "pipes", "tcp", "threads", "children")
    counts = checks.counts()
    children = states.fork(box, "-n", str(FORKS), timeout=600)
    try:
        assert len({child.id for child in children}) == FORKS == len({child.name for child in children})
        # 64 MB each and a checksum over it: one after the other, each removed when it was right.
        dice = {children[0].out("head -c 8 /dev/urandom | od -An -tx1"), children[-1].out("head -c 8 /dev/urandom | od -An -tx1")}
        assert len(dice) == 2
        while children:
            child = children[-1]
            assert checks.counts(child) == plus(counts, 1), child.name
            children.pop().remove()
    finally:
        for one in children:
            one.remove()
    assert checks.counts() == plus(counts, 1)


@pytest.mark.slow
def test_fork_of_a_hibernated_box_and_of_its_snapshots(yard, make_box):
    """A copy of a sleeping box does not need it awake."""
    box = make_box()
    states.install(box)
    checks = Checks(box, "memory", "pipes", "children")
    counts = checks.counts()
    made = states.snapshot(box)
    assert checks.counts() == plus(counts, 1)
    states.hibernate(box)
    [now] = states.fork(box)
    [then] = states.fork(box, "--from", made["id"])
    with states.removed_afterwards(now, then):
        assert checks.counts(now) == plus(counts, 2)
        assert checks.counts(then) == plus(counts, 1)
    assert checks.counts() == plus(counts, 2)


@pytest.mark.slow
def test_back_and_forth_on_the_time_line(yard, make_box):
    """Three moments, visited in any order, each as it was."""
    box = make_box()
    states.install(box)
    checks = Checks(box, "files", "pipes", "signals", "sysv")
    moments = []
    for number in range(3):
        counts = checks.counts()
        box.sh(f"echo {number} > /root/moment")
        moments.append((states.snapshot(box, f"m{number}")["id"], counts))
    for number in (0, 2, 1, 1, 0, 2):
        snapshot, counts = moments[number]
        states.rollback(box, snapshot)
        assert box.out("cat /root/moment") == str(number)
        assert checks.counts() == plus(counts, 1)
