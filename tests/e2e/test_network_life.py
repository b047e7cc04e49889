"""The network of a box over the deaths of daemon and gate: figures add up, budgets stay spent,
addresses keep their names."""
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time

import pytest

from boxtest import BOX_BIN, eventually
from internet import world  # noqa: F401

DB4, A4, B4 = "203.0.113.60", "203.0.113.61", "203.0.113.62"

# Sends that many bytes, waits for an answer, and says it with the address it spoke to.
SEND = """
import socket, sys
try:
    s = socket.create_connection((sys.argv[1], 5432), 3)
    left = int(sys.argv[2])
    while left:
        left -= s.send(bytes([1]) * min(65536, left))
    s.sendall(b"?")
    print(s.recv(10).decode() or "nothing", s.getpeername()[0])
except OSError as why:
    print(type(why).__name__)
"""


def sink(tag):
    def handler(conn, local):
        while data := conn.recv(65536):
            if data.endswith(b"?"):
                conn.sendall(tag)

    return handler


@pytest.fixture(scope="module")
def yard(world):
    for name, address in (("db.test", DB4), ("a.test", A4), ("b.test", B4)):
        world.dns(name, address)
        world.serve_tcp(address, 5432, sink(name.split(".")[0].encode()))
    one = world.yard()
    one.start_daemon()
    return one


@pytest.fixture
def make(yard):
    made = []

    def new(*allow, **policy):
        made.append(yard.new(policy={"allow": list(allow), **policy}))
        return made[-1]

    yield new
    for box in made:
        assert box.remove().status in (204, 404)


def send(box, name, size):
    return box.python(SEND, name, str(size)).stdout.strip()


def net(box):
    return box.yard.api("GET", f"{box.path}/net", expect=200).json


def stop_start(box):
    box.yard.api("POST", f"{box.path}/stop", {"timeout_ms": 0}, expect=200)
    box.yard.api("POST", f"{box.path}/start", expect=200)


def gate_pid(yard):
    return yard.api("GET", "/v1/info", expect=200).json["network"]["gate_pid"]


def kill_gate(yard):
    old = gate_pid(yard)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: gate_pid(yard) not in (None, old), 10, "another gate")


def restart(yard):
    yard.stop_daemon()
    yard.start_daemon()


def kill_daemon(yard):
    yard.kill_daemon()
    yard.start_daemon()


def test_figures_add_up_over_stop_and_start(make):
    box = make("db.test:5432")
    for _ in range(3):
        assert send(box, "db.test", 100000).startswith("db")
        eventually(lambda: net(box)["connections"] and not net(box)["connections_now"], 4, "figures")
        assert send(box, "db.test", 100000).startswith("db")
        stop_start(box)
    figures = eventually(lambda: net(box)["connections"] >= 6 and net(box), 4, lambda: net(box))
    assert figures["connections"] == 6 and figures["bytes_out"] == 6 * 100001
    assert sum(minute["bytes_out"] for minute in figures["minutes"]) == 6 * 100001
    assert [d["connections"] for d in figures["destinations"]] == [6]


@pytest.mark.parametrize("again", [stop_start, lambda box: restart(box.yard)], ids=["stop", "down"])
def test_a_budget_is_spent_once(make, again):
    """Whatever was spent to the last byte: nothing is told late when things end in order."""
    box = make({"name": "db.test", "ports": 5432, "bytes": 1000000})
    sent = 0
    for _ in range(4):
        sent += send(box, "db.test", 300000).startswith("db")
        again(box)
    assert sent == 3
    assert net(box)["bytes_out"] <= 1000000


@pytest.mark.parametrize("again", [kill_gate, kill_daemon])
@pytest.mark.parametrize("policy", [
    {"allow": [{"name": "db.test", "ports": 5432, "bytes": 200000}]},
    {"allow": ["db.test:5432"], "limits": {"bytes": 200000}},
], ids=["rule", "box"])
def test_a_budget_that_is_used_up_stays_so(yard, make, again, policy):
    """At once, and whoever is killed then."""
    box = make(*policy["allow"], limits=policy.get("limits", {}))
    assert not send(box, "db.test", 1000000).startswith("db")
    again(yard)
    assert not send(box, "db.test", 10).startswith("db")
    yard.api("PUT", f"{box.path}/policy", {"policy": {**policy, "deny": ["other.test"]}}, expect=200)
    assert not send(box, "db.test", 10).startswith("db")


@pytest.mark.parametrize("again", [kill_gate, kill_daemon])
def test_no_name_gets_the_address_of_another(yard, make, again):
    """A program that remembers an address must not meet somebody else there."""
    box = make("a.test:5432", "b.test:5432")
    tag, first = send(box, "a.test", 1).split()
    assert tag == "a"
    again(yard)
    tag, second = send(box, "b.test", 1).split()
    assert tag == "b" and second != first
    again(yard)
    assert send(box, "a.test", 1).split()[1] not in (second,)


def test_a_box_from_before_boxes_had_networks(yard, make):
    """It is closed, its policy can be changed, and its figures are kept."""
    box = make("db.test:5432")
    yard.api("POST", f"{box.path}/stop", {"timeout_ms": 0}, expect=200)
    yard.stop_daemon()
    with sqlite3.connect(next(yard.home.glob("*.db"))) as db:
        db.execute("delete from networks where box = ?", (box.id,))
    yard.start_daemon()
    yard.api("POST", f"{box.path}/start", expect=200)
    assert send(box, "db.test", 1) == "gaierror"
    yard.api("PUT", f"{box.path}/policy", {"policy": {"allow": ["db.test:5432"]}}, expect=200)
    assert send(box, "db.test", 1).startswith("db")
    restart(yard)
    assert net(box)["connections"] == 1 and net(box)["problem"] is None
    assert "cannot save the network meters" not in yard.log.read_text()


def test_a_namespace_without_furniture_is_told(yard, make):
    """As of a box that ran under a daemon from before boxes had networks."""
    box = make("db.test:5432", preset="none")
    with sqlite3.connect(next(yard.home.glob("*.db"))) as db:
        (pid,) = db.execute("select pid from boxes where id = ?", (box.id,)).fetchone()
    for words in ("route flush table local", "route flush table main", "route flush table all"):
        subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-4", *words.split()], check=False, capture_output=True)
    kill_daemon(yard)
    assert "without a network" in net(box)["problem"]
    assert "without a network" in yard.box("net", box.name).stdout
    assert not send(box, "db.test", 1).startswith("db")
    yard.api("PUT", f"{box.path}/policy", {"policy": {"allow": ["db.test"]}}, expect=200)
    stop_start(box)
    assert net(box)["problem"] is None and send(box, "db.test", 1).startswith("db")


def test_the_folder_of_the_audit_log_is_removed(yard, make):
    box = make("db.test:5432")
    shutil.rmtree(yard.home / "audit")
    assert send(box, "db.test", 1).startswith("db")
    eventually(lambda: '"connect"' in yard.box("audit", box.name, "--since", "0", "--json").stdout, 4, "a line")
    assert list((yard.home / "audit").glob("audit-*.jsonl")) and (yard.home / "audit" / "head").exists()
    assert yard.box("audit", "--verify", check=False).returncode == 1


def test_watch_mode_ends_with_its_client(yard, make):
    """A signal at any moment: everything public must not stay allowed."""
    box = make("db.test:5432")
    for round in range(12):
        words = ["--", "sleep", "1"] if round % 2 else []
        client = subprocess.Popen([str(BOX_BIN), "policy", "record", box.name, *words], env=yard.env,
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(round * 0.002)
        client.send_signal([signal.SIGINT, signal.SIGTERM, signal.SIGHUP][round % 3])
        client.wait(10)
        assert not yard.api("GET", f"{box.path}/policy", expect=200).json["recording"], round


def test_a_host_with_thousands_of_addresses(world, yard, make):
    """All of them stay closed, and boxes keep their network."""
    box = make("db.test:5432", "here.test:5432")
    world.dns("here.test", "100.100.2.9")
    many = [f"100.100.{i // 200}.{i % 200 + 1}/32" for i in range(1000)]
    listener = world.socket(socket.AF_INET, socket.SOCK_STREAM, net=world.site)
    with listener:
        listener.bind(("0.0.0.0", 5432))
        listener.listen(5)
        world._ip(world.site, "".join(f"address add {one} dev out0\n" for one in many))
        try:
            time.sleep(0.5)
            policy = {"allow": ["db.test:5432", "here.test:5432"], "dns": {"allow_private": ["here.test"]}}
            yard.api("PUT", f"{box.path}/policy", {"policy": policy}, expect=200)
            assert send(box, "db.test", 1).startswith("db")
            assert send(box, "here.test", 1) == "ConnectionResetError"
        finally:
            world._ip(world.site, "".join(f"address del {one} dev out0\n" for one in many))


def test_a_box_that_asked_for_no_name_loses_none_in_a_restart(yard, make_box):
    make_box()
    before = len(yard.log.read_text())
    restart(yard)
    assert "of names of a box start again" not in yard.log.read_text()[before:]
