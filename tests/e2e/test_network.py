"""The network of a box in an internet of the test's own: what is allowed works, all else is refused
and told."""
import json
import os
import signal
import time

import pytest

from boxtest import eventually
from internet import LAN_WORLD4, settle, world, world_box, world_yard  # noqa: F401

WEB4, WEB6, DB4, NTP4 = "203.0.113.10", "2001:db8:1::10", "203.0.113.20", "203.0.113.30"

CONNECT = """
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
try:
    with socket.create_connection((host, port), 3) as s:
        s.sendall(sys.argv[3].encode())
        s.settimeout(3)
        got = s.recv(100)
        print("got", got.decode() if got else "nothing")
except OSError as why:
    print(type(why).__name__, why)
"""

DATAGRAM = """
import socket, sys
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
try:
    s.connect((sys.argv[1], int(sys.argv[2])))
    s.send(b"tick")
    print("got", s.recv(100).decode())
except OSError as why:
    print(type(why).__name__, why)
"""

# Says a line each tenth of a second over one connection, until that breaks.
HOLD = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)
print("connected", flush=True)
try:
    while True:
        s.sendall(b"x")
        if not s.recv(1):
            break
        time.sleep(0.05)
except OSError as why:
    print(type(why).__name__, flush=True)
print("cut", flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def servers(world):
    world.dns("web.test", WEB4, WEB6)
    world.dns("db.test", DB4)
    world.dns("ntp.test", NTP4)
    world.dns("rebind.test", "10.0.0.5")
    world.dns("lan.test", "10.9.9.9")
    world.serve_http(WEB4, 80)
    world.serve_http(WEB6, 80)
    world.echo_tcp(DB4, 5432)
    world.echo_tcp("10.9.9.9", 5432)
    world.echo_tcp("10.0.0.5", 5432)
    world.echo_udp(NTP4, 123)


def connect(box, host, port, say="hello"):
    return box.python(CONNECT, host, str(port), say).stdout.strip()


def audit(box, **want):
    """Lines of the audit log about this box, newest last, that have all of these."""
    text = box.yard.box("audit", box.name, "--since", "0", "--json").stdout
    lines = [json.loads(line) for line in text.splitlines()]
    return [line for line in lines if all(line.get(key) == value for key, value in want.items())]


def told(box, **want):
    return eventually(lambda: audit(box, **want), 4, lambda: f"{want} in {audit(box)[-10:]}")


def set_policy(box, policy):
    return box.yard.api("PUT", f"{box.path}/policy", {"policy": policy}, expect=200).json


def net(box, **query):
    return box.yard.api("GET", f"{box.path}/net", query=query, expect=200).json


# ---- names -----------------------------------------------------------------------------------


def test_an_allowed_name_works_and_is_told(world, world_box):
    box = world_box(policy={"allow": ["db.test:5432"]})
    assert connect(box, "db.test", 5432) == "got hello"
    line = told(box, type="connect", verdict="allowed", name="db.test", port=5432)[-1]
    assert line["rule"] == "db.test:5432" and line["box_name"] == box.name and line["protocol"] == "tcp"
    end = told(box, type="close", name="db.test")[-1]
    assert end["bytes_out"] == end["bytes_in"] == 5 and end["duration_ms"] >= 0
    assert audit(box, type="dns", name="db.test", verdict="allowed")


def test_the_process_is_told(world_box):
    box = world_box(policy={"allow": ["db.test"]})
    box.exec("python3", "-c", HOLD.replace("while True", "for _ in range(8)"), "db.test", "5432")
    process = told(box, type="connect", name="db.test")[-1].get("process")
    assert process and process["command"].startswith("python3 -c") and process["pid"] > 1 and process["uid"] == 0


def test_other_names_do_not_exist(world, world_box):
    box = world_box(policy={"allow": ["web.test"]})
    world.forget()
    for name in ("evil.test", "notweb.test", "sub.web.test", "web.test.evil.test"):
        assert "gaierror" in connect(box, name, 80), name
        told(box, type="dns", name=name, verdict="refused")
    assert not [line for line in world.seen("dns") if "web.test" not in line.split()[-1:]], "nothing left the box"
    assert not world.seen("dns A evil.test")


def test_other_ports_of_an_allowed_name_are_refused(world, world_box):
    box = world_box(policy={"allow": ["db.test:5432"]})
    world.echo_tcp(DB4, 22)
    world.forget()
    assert connect(box, "db.test", 22) in ("ConnectionResetError [Errno 104] Connection reset by peer", "got nothing")
    told(box, type="connect", verdict="refused", name="db.test", port=22)
    assert not world.seen(f"tcp {DB4}:22")


def test_addresses_are_refused_at_once(world, world_box):
    box = world_box(policy={"allow": ["web.test"]})
    world.forget()
    for address in (WEB4, "10.0.0.5", "192.168.1.1", "169.254.169.254", LAN_WORLD4, WEB6, "fd00::1"):
        assert "ConnectionRefusedError" in connect(box, address, 80), address
    told(box, type="packet", verdict="refused", address="169.254.169.254")
    assert not world.seen("tcp")


def test_a_name_that_leads_into_private_ranges_is_refused(world, world_box):
    box = world_box(policy={"allow": ["rebind.test"]})
    world.forget()
    answer = connect(box, "rebind.test", 5432)
    assert "Reset" in answer or answer == "got nothing", answer
    assert not world.seen("tcp")
    # Unless the policy says so.
    set_policy(box, {"allow": ["rebind.test"], "dns": {"allow_private": ["rebind.test"]}})
    assert connect(box, "rebind.test", 5432) == "got hello"


def test_plain_http_is_checked_request_by_request(world, world_box):
    box = world_box(policy={"allow": [{"name": "web.test", "ports": 80, "methods": ["GET"], "paths": ["/ok/"]}]})
    request = "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
    assert "200" in connect(box, "web.test", 80, request.format("/ok/x", "web.test"))
    world.forget()
    for bad in (request.format("/other", "web.test"), request.format("/ok/x", "evil.test"),
                request.format("/ok/x", "web.test").replace("GET", "POST"), "garbage\r\n\r\n"):
        answer = connect(box, "web.test", 80, bad)
        assert "200" not in answer, bad
    assert not world.seen("http")
    told(box, type="http", verdict="refused")


def test_an_image_may_bring_its_own_resolver_and_lands_with_ours(world, world_box):
    box = world_box(policy={"allow": ["db.test"]})
    box.sh("echo nameserver 8.8.8.8 > /etc/resolv.conf")
    world.forget()
    assert connect(box, "db.test", 5432) == "got hello"
    assert not [line for line in world.seen() if "8.8.8.8" in line]


# ---- addresses and datagrams -----------------------------------------------------------------


def test_ranges_of_the_policy(world, world_box):
    box = world_box(policy={"allow": ["10.9.0.0/16:5432"]})
    assert connect(box, "10.9.9.9", 5432) == "got hello"
    assert "got" not in connect(box, "10.9.9.9", 22) or connect(box, "10.9.9.9", 22) == "got nothing"
    assert "ConnectionRefusedError" in connect(box, "10.0.0.5", 5432)


def test_datagrams(world, world_box):
    box = world_box(policy={"allow": ["ntp.test:123/udp", f"{NTP4}/32:123/udp"]})
    assert box.python(DATAGRAM, "ntp.test", "123").stdout == "got tick\n"
    assert box.python(DATAGRAM, NTP4, "123").stdout == "got tick\n"
    assert "got" not in box.python(DATAGRAM, DB4, "123").stdout
    told(box, type="packet", verdict="refused", address=DB4, protocol="udp")


# ---- changes ---------------------------------------------------------------------------------


def test_a_change_cuts_what_it_forbids(world_box):
    box = world_box(policy={"allow": ["db.test", "web.test"]})
    held = box.start("python3", "-c", HOLD, "db.test", "5432")
    eventually(lambda: net(box)["connections_now"] == 1, 4)
    assert set_policy(box, {"allow": ["db.test:5432"]})["version"] == 2
    time.sleep(0.3)
    assert box.get_exec(held["id"])["state"] == "running", "still allowed"
    set_policy(box, {"allow": ["web.test"]})
    assert box.wait_exec(held["id"])
    assert box.logs(held["id"], raw="true").strip().endswith(b"cut")
    assert told(box, type="policy", version=3)
    assert "got" not in connect(box, "db.test", 5432)


def test_policy_and_names_survive_stop_and_start(world, world_box):
    box = world_box(policy={"allow": ["db.test"]})
    address = box.out("getent ahostsv4 db.test | head -1 | cut -d' ' -f1")
    assert address.startswith("198.18.")
    set_policy(box, {"allow": ["db.test", "web.test"]})
    time.sleep(2.5)  # names are told every two seconds
    box.yard.box("stop", box.name)
    box.yard.box("start", box.name)
    assert box.yard.api("GET", f"{box.path}/policy", expect=200).json["version"] == 2
    assert connect(box, address, 5432) == "got hello", "an address from before still stands for its name"


def test_a_suspended_box_keeps_its_connections(world_box):
    box = world_box(policy={"allow": ["db.test"]})
    held = box.start("python3", "-c", HOLD, "db.test", "5432")
    eventually(lambda: net(box)["connections_now"] == 1, 4)
    box.yard.box("suspend", box.name)
    time.sleep(0.3)
    box.yard.box("resume", box.name)
    time.sleep(0.3)
    assert box.get_exec(held["id"])["state"] == "running"


# ---- learning, meters, limits ----------------------------------------------------------------


def test_watch_mode_proposes_what_was_used(world, world_box):
    box = world_box(policy={"preset": "none"})
    box.yard.box("policy", "record", box.name, "--", "python3", "-c", CONNECT, "db.test", "5432", "x")
    text = box.yard.box("policy", "record", box.name, "--", "python3", "-c", CONNECT, "db.test", "5432", "x").stdout
    assert "db.test:5432" in text and "web.test" not in text
    assert "got" not in connect(box, "db.test", 5432), "watching is over"


def test_meters_count_by_destination(world_box):
    box = world_box(policy={"allow": ["db.test", "web.test"]})
    for _ in range(3):
        connect(box, "db.test", 5432, "x" * 40)
    shown = eventually(lambda: net(box) if net(box)["connections"] >= 3 and not net(box)["connections_now"] else None, 4)
    one = next(d for d in shown["destinations"] if d.get("name") == "db.test")
    assert one["bytes_out"] == 120 and one["connections"] == 3 and one["port"] == 5432
    assert shown["bytes_out"] == 120 and shown["minutes"][-1]["bytes_out"] == 120
    stats = box.yard.api("GET", f"{box.path}/stats", expect=200).json
    assert stats["network"]["bytes_out"] == 120


def test_a_budget_ends_a_connection_and_pauses_the_box(world_box):
    box = world_box(policy={"allow": ["db.test"], "limits": {"bytes": "100K", "on_limit": "pause"}})
    box.start("sh", "-c", "sleep 0.3; python3 -c '" + """
import socket
s = socket.create_connection(("db.test", 5432), 3)
for _ in range(100):
    s.sendall(bytes(10000))
    s.recv(10000)
""" + "'")
    eventually(lambda: box.show()["state"] == "suspended", 8)
    told(box, type="limit", limit="bytes")
    # The budget is spent for good: a new connection gets nothing.
    box.yard.box("resume", box.name)
    assert "got hello" not in connect(box, "db.test", 5432)
    shown = net(box)
    assert shown["bytes_out"] + shown["bytes_in"] <= 100 * 1024 + 4096


def test_connections_are_limited(world_box):
    box = world_box(policy={"allow": [{"name": "db.test", "connections": 2}]})
    script = """
import socket
held, refused = [], 0
for _ in range(5):
    try:
        s = socket.create_connection(("db.test", 5432), 3)
        s.settimeout(3)
        s.sendall(b"x")
        held.append(s) if s.recv(1) else None
        refused += s not in held
    except OSError:
        refused += 1
print(len(held), refused)
"""
    assert box.python(script).stdout == "2 3\n"


def test_live_connections_are_listed(world_box):
    box = world_box(policy={"allow": ["db.test"]})
    box.start("python3", "-c", HOLD, "db.test", "5432")
    one = eventually(lambda: net(box, connections="true")["connections_list"], 4)[0]
    assert one["name"] == "db.test" and one["port"] == 5432 and one["rule"]
    assert "db.test" in box.yard.box("net", box.name, "--connections").stdout


# ---- between boxes ---------------------------------------------------------------------------


SERVER = """
import socket
s = socket.create_server(("0.0.0.0", 7000), backlog=8)
while True:
    c, _ = s.accept()
    c.sendall(b"from the other box")
    c.close()
"""


def test_boxes_reach_each_other_only_if_both_say_so(world_box):
    one, two = world_box(policy={"preset": "none"}), world_box(policy={"preset": "none"})
    two.start("python3", "-c", SERVER)
    time.sleep(0.2)
    assert "gaierror" in connect(one, f"{two.name}.box", 7000)
    set_policy(one, {"boxes": [two.name]})
    assert "from the other" not in connect(one, f"{two.name}.box", 7000), "the other has not agreed"
    set_policy(two, {"boxes": [one.name]})
    assert connect(one, f"{two.name}.box", 7000) == "got from the other box"
    set_policy(two, {"preset": "none"})
    assert "from the other" not in connect(one, f"{two.name}.box", 7000)


# ---- deaths ----------------------------------------------------------------------------------


def gate_pid(yard):
    return yard.info()["network"]["gate_pid"]


def test_a_dead_gate_closes_and_comes_back(world, world_box):
    box = world_box(policy={"allow": ["db.test"]})
    assert connect(box, "db.test", 5432) == "got hello"
    held = box.start("python3", "-c", HOLD, "db.test", "5432")
    eventually(lambda: any("connected" in line.get("data", "") for line in box.logs(held["id"])), 4)
    old = gate_pid(box.yard)
    os.kill(old, signal.SIGKILL)
    assert box.wait_exec(held["id"])
    eventually(lambda: gate_pid(box.yard) not in (None, old), 5)
    eventually(lambda: connect(box, "db.test", 5432) == "got hello", 5)
    assert "ConnectionRefusedError" in connect(box, WEB4, 80)


def test_a_dead_daemon_closes_and_the_next_opens(world):
    yard = world.yard()
    yard.start_daemon()
    box = yard.new(policy={"allow": ["db.test"]})
    assert connect(box, "db.test", 5432) == "got hello"
    gate = gate_pid(yard)
    loop = box.start("sh", "-c", "while :; do python3 -c '" + CONNECT + "' db.test 5432 hello; sleep 0.1; done")
    yard.kill_daemon()
    eventually(lambda: not os.path.exists(f"/proc/{gate}"), 5, "the gate ends with the daemon")
    world.forget()
    time.sleep(0.6)
    assert not world.seen("tcp"), "closed while there is no daemon"
    yard.start_daemon()
    eventually(lambda: world.seen(f"tcp {DB4}:5432"), 5, "open again")
    assert connect(box, "db.test", 5432) == "got hello"
    assert audit(box, type="connect", verdict="allowed")
    box.remove()


def test_the_gate_has_no_privileges(world_yard):
    status = open(f"/proc/{gate_pid(world_yard)}/status").read()
    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split()[0] != "0" and int(fields["CapEff"], 16) == 0 and int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"


# ---- the host --------------------------------------------------------------------------------


def test_resolver_settings_follow_the_host(world, world_box, world_yard):
    box = world_box(policy={"allow": ["db.test", "later.test"]})
    text = world.resolv_conf.read_text()
    world.dns("later.test", DB4)
    try:
        # A server that does not answer comes first, then the good one.
        world.resolv_conf.write_text("nameserver 203.0.113.99\n" + text)
        time.sleep(3.5)
        assert connect(box, "later.test", 5432) == "got hello"
    finally:
        world.resolv_conf.write_text(text)


def test_the_audit_log_is_whole(world_yard):
    verified = world_yard.json("audit", "--verify")
    assert verified["ok"] and verified["lines"] > 10
    assert world_yard.box("audit", "--verify").returncode == 0


def test_a_log_that_no_tree_has_is_not_found(world_yard):
    answer = world_yard.api("GET", "/v1/audit", query={"limit": 0}, expect=200).json
    assert answer["logs"] == []
    for log in ("nobody", "../../audit", "."):
        assert world_yard.api("GET", "/v1/audit", query={"log": log}).status == 404
        assert world_yard.api("GET", "/v1/audit/verify", query={"log": log}).status == 404
    refused = world_yard.box("audit", "--log", "nobody", check=False)
    assert refused.returncode and "no audit log of its own" in refused.stderr
    assert "whole" in world_yard.box("audit", "--verify").stdout
