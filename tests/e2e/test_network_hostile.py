"""Root in a box against the gate and against its neighbours: what one does to its own network is
nobody else's loss."""
import os
import socket
import time

import pytest

import states
from boxtest import eventually
from internet import SITE6, world, world_box, world_yard  # noqa: F401
from test_network import DATAGRAM, HOLD, connect, net, set_policy

HOST4, PORT = "203.0.113.90", 6432

# Talks to nf_tables and sock_diag without tools that an image may lack.
NETLINK = r"""
import socket, struct, sys, time
def attr(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)
def message(kind, flags, body):
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body
def change(kind, flags, name, more=b""):
    own = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    own.bind((0, 0))
    mark = b"\0\0\0\x0a"
    own.send(message(16, 1, mark) + message(10 << 8 | kind, 5 | flags, b"\1\0\0\0" + attr(1, name.encode() + b"\0") + more)
             + message(17, 1, mark))
    error = struct.unpack("=i", own.recv(65536)[16:20])[0]
    assert error == 0, error
    return own
"""

DELETE_RULES = NETLINK + 'change(2, 0, "boxyard")'
OWN_RULES = NETLINK + r"""
change(2, 0, "boxyard")
own = change(0, 0x400, "boxyard", attr(2, struct.pack(">I", 2)))  # nobody else may touch it
print("owned", flush=True)
time.sleep(60)
"""
# As `ss -K` does: every socket of the namespace, whoever holds it.
DESTROY_SOCKETS = NETLINK + r"""
def ask(kind, flags, family, protocol, ident):
    own = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
    own.send(message(kind, flags, struct.pack("=BBBBI", family, protocol, 0, 0, 0xffffffff) + ident))
    return own.recv(65536)
done = 0
for family in (2, 10):
    for protocol in (6, 17):
        data = ask(20, 0x301, family, protocol, bytes(48))
        while len(data) >= 16:
            size, kind = struct.unpack("=IH", data[:6])
            if kind == 20:
                done += struct.unpack("=i", ask(21, 5, family, protocol, data[20:68])[16:20])[0] == 0
            data = data[size + 3 & ~3:]
print(done)
"""

WEBSOCKET = r"""
import socket
s = socket.create_connection(("web.hostile.test", 80), 3)
s.sendall(b"GET /ws HTTP/1.1\r\nHost: web.hostile.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
print(s.recv(1000).split()[1].decode(), flush=True)
s.settimeout(10)
try:
    print("got", s.recv(10))
except OSError as why:
    print(type(why).__name__)
"""

ECHO = """
import socket
listener = socket.create_server(("0.0.0.0", 7000))
print("up", flush=True)
conn, _ = listener.accept()
while data := conn.recv(100):
    conn.sendall(data)
"""

SLOW_NAMES = r"""
import socket, sys, time
kept, end, number = [], time.monotonic() + 6, 0
while time.monotonic() < end:
    number += 1
    try:
        address = socket.gethostbyname(f"{sys.argv[1]}-{number}.slow.test")
    except OSError:
        time.sleep(0.01)
        continue
    s = socket.socket()
    s.setblocking(False)
    try:
        s.connect((address, 7777))
    except BlockingIOError:
        pass
    kept = kept[-600:] + [s]
"""


@pytest.fixture(scope="module", autouse=True)
def servers(world):
    def switch(conn, local):
        conn.recv(4096)
        conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        conn.recv(100)

    world.dns("host.hostile.test", HOST4)
    world.dns("web.hostile.test", HOST4)
    world.echo_tcp(HOST4, PORT)
    world.serve_tcp(HOST4, 80, switch)


def gate_pid(yard):
    return yard.api("GET", "/v1/info", expect=200).json["network"]["gate_pid"]


def begin(box, script, *args):
    return box.start("python3", "-c", script, *args)["id"]


def output(box, exec_id):
    return "".join(line.get("data", "") for line in box.logs(exec_id) if line["type"] == "output")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_rule_of_any_length_ends_no_gate(world_yard, world_box):
    pid = gate_pid(world_yard)
    paths = ["/" + letter * 120 for letter in "abcdefghijklmnopqrstuvwxyz"]
    box = world_box(policy={"allow": [{"name": "web.hostile.test", "paths": paths, "bytes": "1M"}]})
    request = f"GET {paths[0]} HTTP/1.1\r\nHost: web.hostile.test\r\n\r\n"
    assert connect(box, "web.hostile.test", 80, request).startswith("got HTTP")
    eventually(lambda: net(box)["connections"] == 1 and net(box)["connections_now"] == 0)
    assert gate_pid(world_yard) == pid


@pytest.mark.parametrize("script", [DELETE_RULES, OWN_RULES], ids=["deleted", "owned"])
def test_root_of_a_nested_box_has_no_word_against_a_policy(world_yard, world_box, script):
    box = world_box(profile="nested", policy={"allow": [f"host.hostile.test:{PORT}"]})
    hold = begin(box, HOLD, "host.hostile.test", str(PORT))
    eventually(lambda: "connected" in output(box, hold))
    spoil = begin(box, script)
    if script == OWN_RULES:
        eventually(lambda: "owned" in output(box, spoil))
    else:
        assert box.wait_exec(spoil)["exit_code"] == 0
    assert set_policy(box, {"preset": "none", "allow": ["203.0.113.0/24:1234/udp"]})["version"] == 2
    eventually(lambda: "cut" in output(box, hold))
    assert "gaierror" in connect(box, "host.hostile.test", PORT)


def test_broken_sockets_keep_the_gate_no_busier(world_yard, world_box):
    box, other = world_box(profile="nested"), world_box(policy={"allow": [f"host.hostile.test:{PORT}"]})
    pid = gate_pid(world_yard)
    assert int(box.python(DESTROY_SOCKETS).stdout) >= 4
    before = cpu_seconds(pid)
    time.sleep(1)
    assert cpu_seconds(pid) - before < 0.3
    assert connect(other, "host.hostile.test", PORT) == "got hello" and gate_pid(world_yard) == pid


def test_a_box_that_names_another_no_more_is_left_by_it(world_yard, world_box):
    guest, host = world_box(policy={"preset": "none"}), world_box(policy={"preset": "none"})
    set_policy(guest, {"boxes": [host.name]})
    set_policy(host, {"boxes": [guest.name]})
    up = begin(host, ECHO)
    eventually(lambda: "up" in output(host, up))
    held = begin(guest, HOLD, host.name + ".box", "7000")
    eventually(lambda: "connected" in output(guest, held))
    eventually(lambda: net(guest)["connections_now"] == 1)
    set_policy(host, {"boxes": [guest.name, "somebody-else"]})
    time.sleep(0.3)
    assert "cut" not in output(guest, held), "still named"
    set_policy(host, {"boxes": ["somebody-else"]})
    eventually(lambda: "cut" in output(guest, held))
    eventually(lambda: net(guest)["connections_now"] == 0)


def test_who_is_called_otherwise_is_known_no_more(world_yard, world_box):
    guest, host = world_box(policy={"preset": "none"}), world_box(policy={"preset": "none"})
    set_policy(guest, {"boxes": [host.name]})
    set_policy(host, {"boxes": [guest.name]})
    up = begin(host, ECHO)
    eventually(lambda: "up" in output(host, up))
    held = begin(guest, HOLD, host.name + ".box", "7000")
    eventually(lambda: "connected" in output(guest, held))
    world_yard.api("PATCH", guest.path, {"name": guest.name + "-2"}, expect=200)
    eventually(lambda: "cut" in output(guest, held))


def test_a_request_that_became_something_else_is_cut_with_its_path(world_box):
    box = world_box(policy={"allow": [{"name": "web.hostile.test", "paths": ["/ws"]}]})
    talk = begin(box, WEBSOCKET)
    eventually(lambda: "101" in output(box, talk))
    set_policy(box, {"allow": [{"name": "web.hostile.test", "paths": ["/ws", "/more"]}]})
    time.sleep(0.3)
    assert box.get_exec(talk)["state"] == "running", output(box, talk)
    set_policy(box, {"allow": [{"name": "web.hostile.test", "paths": ["/more"]}]})
    eventually(lambda: "ConnectionResetError" in output(box, talk), 5, lambda: output(box, talk))


def test_names_that_nobody_answers_hold_up_no_other_box(world, world_box, monkeypatch):
    answer = world._dns_answer
    monkeypatch.setattr(world, "_dns_answer", lambda question: None if b"slow" in question.lower() else answer(question))
    for i in range(10):
        world.dns(f"f{i}.fresh.test", HOST4)
    bad = [world_box(policy={"allow": ["*.slow.test"]}) for _ in range(4)]
    good = world_box(policy={"allow": ["*.fresh.test"]})
    for i, box in enumerate(bad):
        begin(box, SLOW_NAMES, f"b{i}")
    time.sleep(3)
    for i in range(10):
        assert connect(good, f"f{i}.fresh.test", PORT) == "got hello"


def test_the_address_of_a_host_as_router_is_closed(world, world_box):
    router = SITE6.rsplit("2", 1)[0]  # 2001:db8:77::
    world.dns("router.hostile.test", router)
    forward = ["unshare", "--mount", "sysctl", "-qw"]
    world.run([*forward, "net.ipv6.conf.all.forwarding=1"], net=world.site)
    try:
        with world.socket(socket.AF_INET6, socket.SOCK_DGRAM, net=world.site) as own:
            own.bind(("::", 6001))
            own.settimeout(0.5)
            box = world_box(policy={"allow": ["router.hostile.test:6001/udp"],
                                    "dns": {"allow_private": ["router.hostile.test"]}})
            assert "OSError" in box.python(DATAGRAM, "router.hostile.test", "6001").stdout
            with pytest.raises(socket.timeout):
                own.recv(100)
    finally:
        world.run([*forward, "net.ipv6.conf.all.forwarding=0"], net=world.site)


MANY = r"""
import socket, sys, time
held = []
for _ in range(int(sys.argv[3])):
    try:
        s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
        s.settimeout(2); s.sendall(b"\0")
        if s.recv(1): held.append(s)
    except OSError:
        pass
print("held", len(held), flush=True)
time.sleep(1000)
"""


def held(box, exec_id):
    eventually(lambda: "held" in output(box, exec_id), 60)
    return int(output(box, exec_id).split()[1])


def test_forks_from_inside_get_no_share_of_their_own(world):
    """What the gate has is shared out by tree: its forks do not push a neighbour aside."""
    yard = world.yard()
    yard.wrapper = [*yard.wrapper, "prlimit", "--nofile=1100:1100"]  # some 200 connections
    yard.start_daemon()
    try:
        policy = {"allow": [f"host.hostile.test:{PORT}"]}
        box, neighbour = yard.new(policy=policy), yard.new(policy=policy)
        assert box.run("box", "fork", "a", "b", "c").code == 0
        many = ("host.hostile.test", str(PORT))
        tree = [box, *(states.of(yard, yard.api("GET", f"/v1/boxes/{box.name}-{x}", expect=200).json) for x in "abc")]
        taken = sum(held(one, begin(one, MANY, *many, "40")) for one in tree)
        assert 50 < taken < 150, taken
        assert held(neighbour, begin(neighbour, MANY, *many, "40")) == 40
    finally:
        assert not yard.destroy()


def test_connections_of_a_policy_are_those_of_the_tree(world_yard, world_box):
    box = world_box(policy={"allow": [f"host.hostile.test:{PORT}"], "limits": {"connections": 10}})
    assert box.run("box", "fork", "a").code == 0
    child = states.of(world_yard, world_yard.api("GET", f"/v1/boxes/{box.name}-a", expect=200).json)
    with states.removed_afterwards(child):
        many = ("host.hostile.test", str(PORT))
        assert held(child, begin(child, MANY, *many, "8")) == 8
        assert held(box, begin(box, MANY, *many, "8")) == 2


def test_a_fork_takes_no_name_that_a_policy_means_for_another(world_yard, world_box):
    box, other = world_box(policy={"preset": "none"}), world_box(policy={"preset": "none"})
    kept, free = f"{box.name}-db", f"{box.name}-own"
    set_policy(other, {"boxes": [kept, f"{box.name}-1", box.name]})
    set_policy(box, {"boxes": [other.name, free]})
    up = begin(other, ECHO)
    eventually(lambda: "up" in output(other, up))
    made = []
    try:
        for name in ("db", kept):
            refused = box.run("box", "fork", name)
            assert refused.code != 0 and b"reserved for another box" in refused.stderr, refused.stderr
        # Made-up names leave it out, from inside and outside; what its own tree names is its own
        # affair.
        for words in (["box", "fork"], ["box", "fork", "own"]):
            done = box.run(*words)
            assert done.code == 0, done.stderr
            made += done.stdout.decode().split()
        made += [child.name for child in states.fork(box)]
        assert kept not in made and f"{box.name}-1" not in made and free in made
        assert "got" not in connect(states.of(world_yard, world_yard.api("GET", f"/v1/boxes/{made[0]}", expect=200).json),
                                    f"{other.name}.box", 7000)
        # Somebody outside decides otherwise.
        [child] = states.fork(box, kept)
        made.append(kept)
        assert connect(child, f"{other.name}.box", 7000).startswith("got")
        world_yard.box("rm", "-f", kept)
        made.remove(kept)
        assert box.run("box", "fork", "db").code != 0, "also when one of that name was removed"
    finally:
        for name in made:
            world_yard.box("rm", "-f", name)
