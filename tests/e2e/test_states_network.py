"""The network of boxes that are made from states: closed from their first moment on, with nothing
of the old one in it."""
import time

import pytest

import states
from boxtest import eventually
from internet import world, world_box, world_yard  # noqa: F401
from test_network import HOLD, connect, set_policy
from test_network_hostile import NETLINK, output

OPEN4, SHUT4, PORT = "203.0.113.95", "203.0.113.96", 6500

# Tries what is forbidden as often as it can, from the first moment it runs.
TRY = r"""
import socket, sys, time
print("up", flush=True)
while True:
    for address in sys.argv[1:]:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            s = socket.socket(socket.AF_INET, kind)
            s.settimeout(0.02)
            try:
                s.connect((address, 6500)); s.send(b"x")
                if s.recv(1): print("reached", address, flush=True)
            except OSError:
                pass
            s.close()
"""

# A table of the name that the daemon uses itself, which nobody else may touch.
OWN_HOLD = NETLINK + r"""
own = change(0, 0x400, "boxyard-hold", attr(2, struct.pack(">I", 2)))
print("owned", flush=True)
time.sleep(1000)
"""

SPEND = r"""
import socket, sys
got = 0
try:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
    s.settimeout(3)
    while got < 200000:
        s.sendall(b"x" * 1000)
        more = len(s.recv(1000))
        if not more:
            break
        got += more
except OSError as why:
    pass
print(got)
"""


@pytest.fixture(scope="module", autouse=True)
def servers(world):
    world.dns("open.states.test", OPEN4)
    world.dns("shut.states.test", SHUT4)
    world.echo_tcp(OPEN4, PORT)
    world.echo_tcp(SHUT4, PORT)
    world.echo_udp(SHUT4, PORT)


def allowed():
    return {"preset": "none", "allow": [f"open.states.test:{PORT}"]}


def test_connections_stay_with_the_box_that_made_them(world_yard, world_box):
    box = world_box(policy=allowed())
    held = box.start("python3", "-c", HOLD, "open.states.test", str(PORT))["id"]
    eventually(lambda: "connected" in output(box, held))
    made = states.snapshot(box)
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        eventually(lambda: "cut" in output(child, held))
        assert connect(child, "open.states.test", PORT) == "got hello"
        assert "cut" not in output(box, held), "the original's goes on"
        set_policy(box, {"preset": "none"})
        eventually(lambda: "cut" in output(box, held))
        assert connect(child, "open.states.test", PORT) == "got hello", "a box of its own"
    states.rollback(box, made["id"])
    eventually(lambda: "cut" in output(box, held))
    assert "got" not in connect(box, "open.states.test", PORT), "what was forbidden since stays so"
    [old] = states.fork(box, "--from", made["id"])
    with states.removed_afterwards(old):
        assert "got" not in connect(old, "open.states.test", PORT)


@pytest.mark.parametrize("profile", ["standard", "nested"])
def test_nothing_forbidden_is_reached_in_the_first_moments(world_yard, world_box, profile):
    box = world_box(policy=allowed(), profile=profile)
    tries = box.start("python3", "-c", TRY, SHUT4, "198.18.0.9", "10.0.0.1", "169.254.169.254")["id"]
    eventually(lambda: "up" in output(box, tries))
    made = states.snapshot(box)
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        states.hibernate(box)
        states.wake(box)
        states.rollback(box, made["id"])
        time.sleep(0.2)
        assert output(box, tries) == output(child, tries) == "up\n"
        assert connect(child, "open.states.test", PORT) == "got hello"


def test_a_nested_box_shuts_only_itself(world_yard, world_box):
    box, other = world_box(policy=allowed(), profile="nested"), world_box(policy=allowed())
    held = box.start("python3", "-c", HOLD, "open.states.test", str(PORT))["id"]
    own = box.start("python3", "-c", OWN_HOLD)["id"]
    eventually(lambda: "connected" in output(box, held) and "owned" in output(box, own))
    for command in (["snapshot", box.name], ["fork", box.name, f"{box.name}-x"]):
        world_yard.box(*command, check=False)
    assert connect(other, "open.states.test", PORT) == "got hello"
    assert states.state(box) == "running" and box.out("echo on") == "on"
    [child] = states.fork(other)
    with states.removed_afterwards(child):
        assert connect(child, "open.states.test", PORT) == "got hello"
    world_yard.api("DELETE", f"/v1/boxes/{box.name}-x", query={"force": "true"})


@pytest.mark.parametrize("spent_first", [True, False])
def test_a_budget_is_not_filled_up_by_a_promotion(world_yard, world_box, spent_first):
    """What one fork spends is not there for those that another one, promoted meanwhile, makes."""
    box = world_box(policy={"preset": "none", "allow": [{"name": "open.states.test", "port": PORT, "bytes": "20K"}]})
    assert box.run("box", "fork", "a", "b").code == 0
    one, other = f"{box.name}-a", f"{box.name}-b"
    if not spent_first:
        world_yard.box("promote", other)
    spend = ("python3", "-c", SPEND, "open.states.test", str(PORT))
    assert 1000 < int(world_yard.run(one, *spend).stdout or b"0") <= 20480
    time.sleep(0.2)
    if spent_first:
        world_yard.box("promote", other)
    assert world_yard.run(box.name, "box", "fork", "x").code == 0
    assert int(world_yard.run(f"{box.name}-x", *spend).stdout or b"0") == 0
    for name in (box.name, one, f"{box.name}-x"):
        world_yard.box("rm", "-f", name)


def test_a_budget_is_not_filled_up_by_forks(world_yard, world_box):
    box = world_box(policy={"preset": "none", "allow": [{"name": "open.states.test", "port": PORT, "bytes": "20K"}]})
    spent = []
    for name in ("a", "b", "c"):
        assert box.run("box", "fork", name).code == 0
        done = box.run("box", "exec", name, "--", "python3", "-c", SPEND, "open.states.test", str(PORT))
        spent.append(int(done.stdout or b"0"))
        time.sleep(0.2)
        assert box.run("box", "rm", name).code == 0
    assert 1000 < spent[0] <= 20480 and spent[1:] == [0, 0], spent
