"""Addresses of names over forks, rollbacks, images with processes and deaths: each keeps its name,
or is nobody's."""
import os
import signal

import pytest

import states
from boxtest import eventually
from internet import world, world_box, world_yard  # noqa: F401
from test_network import gate_pid

POLICY = {"preset": "none", "allow": ["*.names.test:5432"]}

# Connects to an address that somebody remembers, and says who answers.
DIAL = """
import socket, sys
try:
    s = socket.create_connection((sys.argv[1], 5432), 3)
    s.sendall(b"?")
    print(s.recv(20).decode() or "nothing")
except OSError as why:
    print(type(why).__name__)
"""
NAMES = [f"n{i}.names.test" for i in range(12)]


def serve(tag):
    def handler(conn, local):
        if conn.recv(10):
            conn.sendall(tag)

    return handler


@pytest.fixture(scope="module", autouse=True)
def servers(world):
    for i, name in enumerate(NAMES):
        world.dns(name, f"203.0.113.{160 + i}")
        world.serve_tcp(f"203.0.113.{160 + i}", 5432, serve(name.encode()))


def ask(box, *names):
    """{name: address}, by one run of getent."""
    done = box.exec("getent", "ahostsv4", *names)
    found = {}
    for line in done.stdout.splitlines():
        address, kind, *name = line.split()
        if kind == "STREAM":
            found[name[0]] = address
    assert set(found) == set(names), (names, found)
    return found


def dial(box, address):
    return box.exec("python3", "-c", DIAL, address).stdout.strip()


def check(box, known, fresh, exact=True):
    """What was known stands for the same name or for nothing; what is new gets an address nobody
    has."""
    new = ask(box, *fresh)
    assert not set(new.values()) & set(known.values()), (known, new)
    for name, address in known.items():
        answer = dial(box, address)
        assert answer == name or (not exact and answer.startswith("Connection")), (name, address, answer)
    for name, address in new.items():
        assert dial(box, address) == name
    if exact:
        assert ask(box, *known) == known


@pytest.mark.parametrize("flags", [[], ["--disk-only"]])
def test_a_fork_knows_what_the_box_knew(world_yard, world_box, flags):
    box = world_box(policy=POLICY)
    known = ask(box, *NAMES[:3])
    children = states.fork(box, "--count", "2", *flags)
    with states.removed_afterwards(*children):
        for child in children:
            check(child, known, NAMES[3:5], exact=not flags)
        check(box, known, NAMES[5:7])
        known = ask(children[0], *NAMES[7:9])
        [grand] = states.fork(children[0], *flags)
        with states.removed_afterwards(grand):
            check(grand, known, NAMES[10:], exact=not flags)


def test_a_box_that_goes_back_knows_what_it_knew_then(world_yard, world_box):
    box = world_box(policy=POLICY)
    known = ask(box, *NAMES[:2])
    made = states.snapshot(box)
    later = ask(box, *NAMES[2:4])
    states.rollback(box, made["id"])
    fresh = ask(box, *NAMES[4:6])
    assert not set(fresh.values()) & (set(known.values()) | set(later.values()))
    check(box, known, NAMES[6:7])
    [child] = states.fork(box, "--from", made["id"])
    with states.removed_afterwards(child):
        check(child, known, NAMES[7:8])


def test_a_woken_box_knows_what_it_knew(world_yard, world_box):
    box = world_box(policy=POLICY)
    known = ask(box, *NAMES[:3])
    states.hibernate(box)
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        check(child, known, NAMES[3:5])
    states.wake(box)
    check(box, known, NAMES[5:7])


def test_boxes_of_an_image_with_processes_know_what_was_known(world_yard, world_box):
    box = world_box(policy=POLICY)
    known = ask(box, *NAMES[:3])
    world_yard.box("save", "--full", box.name, "names-golden", timeout=120)
    try:
        made = world_box(image="names-golden", policy=POLICY)
        check(made, known, NAMES[3:5])
    finally:
        world_yard.box("rm", "-f", made.name)
        world_yard.box("image", "rm", "names-golden")


def test_a_promoted_fork_and_its_way_back_know_their_own(world_yard, world_box):
    box = world_box(policy=POLICY)
    shared = ask(box, *NAMES[:2])
    [child] = states.fork(box)
    ours, theirs = ask(box, NAMES[2]), ask(child, NAMES[3])
    done = world_yard.json("promote", child.name)
    check(box, {**shared, **theirs}, NAMES[4:5])
    world_yard.box("rollback", box.name, done["was"]["id"])
    check(box, {**shared, **ours}, NAMES[5:6])


def kill_gate(yard):
    old = gate_pid(yard)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: gate_pid(yard) not in (None, old), 10)


def kill_daemon(yard):
    yard.kill_daemon()
    yard.start_daemon()


@pytest.mark.parametrize("kill", [kill_gate, kill_daemon])
def test_what_a_death_forgets_is_nobodys(world, kill):
    """More names than any small allowance, asked in the second before."""
    yard = world.yard()
    yard.start_daemon()
    try:
        box = yard.new(policy=POLICY)
        many = [f"m{i}.names.test" for i in range(300)]
        known = ask(box, *many)
        kill(yard)
        eventually(lambda: ask(box, "other0.names.test"), 10)
        fresh = ask(box, *(f"other{i}.names.test" for i in range(400)))
        assert not set(fresh.values()) & set(known.values())
        check(box, {name: ask(box, name)[name] for name in NAMES[:2]}, NAMES[2:4])
        [child] = states.fork(box)
        fresh = ask(child, *(f"third{i}.names.test" for i in range(50)))
        assert not set(fresh.values()) & set(known.values())
    finally:
        assert not yard.destroy()


def test_a_gate_that_does_not_answer_does_not_hold_up_a_fork(world):
    yard = world.yard()
    yard.start_daemon()
    try:
        box = yard.new(policy=POLICY)
        known = ask(box, *NAMES[:2])
        pid = gate_pid(yard)
        os.kill(pid, signal.SIGSTOP)
        try:
            done = yard.json("snapshot", box.name)
        finally:
            os.kill(pid, signal.SIGCONT)
        [child] = states.fork(box, "--from", done["id"])
        check(child, known, NAMES[3:6], exact=False)
    finally:
        assert not yard.destroy()
