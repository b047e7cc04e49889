"""Boxes that do nothing sleep, stay awake when there is a reason, and wake when somebody wants
something of them."""
import concurrent.futures
import http.client
import socket
import subprocess
import time

import pytest

from boxtest import SLOWNESS, eventually
from terminal import Terminal

SOON = {"suspend": "1s", "hibernate": "off"}
NEVER = {"suspend": "off", "hibernate": "off"}

SERVER = r'''
import http.server, socketserver, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    def log_message(self, *args): pass
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", 2); self.end_headers(); self.wfile.write(b"hi")
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(4096): self.request.sendall(data.upper())
class Server(http.server.ThreadingHTTPServer): request_queue_size = 128
class Plain(socketserver.ThreadingTCPServer): allow_reuse_address = True
threading.Thread(target=Plain(("127.0.0.1", 9000), Echo).serve_forever, args=(3600,), daemon=True).start()
Server(("127.0.0.1", 8000), Handler).serve_forever(poll_interval=3600)
'''


def state(box):
    return box.show()["state"]


def asleep(box, timeout=12):
    eventually(lambda: state(box) == "suspended", timeout * SLOWNESS, "the box is suspended")


def stays_awake(box, seconds=4):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        shown = box.show()
        assert shown["state"] == "running", shown["idle"]
        time.sleep(0.2)
    return box.show()["idle"]["busy"]


def reasons(yard, box, kind):
    events = yard.api("GET", "/v1/events", query={"box": box.id}, expect=200).json["events"]
    return [event["data"].get("reason") for event in events if event["type"] == kind]


@pytest.fixture
def site(yard, make_box):
    """A box with a web server on 8000 and an echo on 9000, public, that sleeps soon."""
    box = make_box(idle=NEVER)
    box.put("/server.py", SERVER.encode())
    box.start("python3", "/server.py")
    yard.box("url", box.name, "8000", "--public")
    box.door = yard.port()
    eventually(lambda: ask(box)[0] == 200, 10 * SLOWNESS, "the server answers")
    yard.box("set", box.name, "--idle", "1s")
    return box


def ask(box, path="/"):
    conn = http.client.HTTPConnection("127.0.0.1", box.door, timeout=20 * SLOWNESS)
    try:
        conn.request("GET", path, headers={"Host": f"8000-{box.name}.localhost"})
        answer = conn.getresponse()
        return answer.status, answer.read()
    finally:
        conn.close()


# ---- falling asleep --------------------------------------------------------------------------


def test_an_idle_box_is_suspended_and_says_why(yard, make_box):
    box = make_box(idle=SOON)
    asleep(box)
    idle = box.show()["idle"]
    assert idle["asleep_for"] == "idle" and idle["suspend_ms"] == 1000 and idle["hibernate_ms"] == 0
    assert idle["next_timer"] is None
    assert reasons(yard, box, "box.suspended") == ["idle"]
    assert "asleep (idle)" in yard.box("show", box.name).stdout


def test_the_default_and_settings_of_a_box(yard, make_box):
    box = make_box()
    idle = box.show()["idle"]
    assert (idle["suspend_ms"], idle["hibernate_ms"]) == (30000, 900000)
    yard.box("set", box.name, "--idle", "off", "--hibernate-after", "2m")
    idle = box.show()["idle"]
    assert (idle["suspend_ms"], idle["hibernate_ms"]) == (0, 120000)
    yard.box("set", box.name, "--idle", "default")
    idle = box.show()["idle"]
    assert (idle["suspend_ms"], idle["hibernate_ms"]) == (30000, 120000)
    for wrong in ({"suspend": "10ms"}, {"suspend": "soon"}, {"suspend": 5}, {"sleep": "5s"}, "5s"):
        assert yard.api("PATCH", box.path, {"idle": wrong}).status == 400
    assert yard.box("set", box.name, "--idle", "never", check=False).returncode != 0


def test_a_box_that_is_never_to_sleep_does_not(make_box):
    box = make_box(idle=NEVER)
    stays_awake(box)


def test_a_busy_loop_stays_awake(yard, make_box):
    box = make_box(idle=SOON)
    box.start("sh", "-c", "while :; do :; done")
    assert "cpu" in stays_awake(box)
    assert "busy: uses" in yard.box("show", box.name).stdout


def test_output_keeps_awake(make_box):
    box = make_box(idle=SOON, command=["sh", "-c", "while :; do echo x; sleep 0.7; done"])
    stays_awake(box)


def test_a_timer_that_is_due_soon_keeps_awake(make_box):
    box = make_box(idle=SOON)
    box.start("sh", "-c", "while :; do sleep 0.9; done")
    assert "timer" in stays_awake(box)


def test_an_open_terminal_keeps_awake_until_it_is_closed(yard, make_box):
    box = make_box(idle=SOON)
    with Terminal(yard, "exec", "-it", box.name, "--", "sh") as terminal:
        terminal.type("echo re''ady\n")
        terminal.expect("ready")
        assert "attached" in stays_awake(box)
        terminal.type("exit\n")
    asleep(box)


def test_following_a_log_does_not_keep_awake(yard, make_box):
    box = make_box(idle=SOON)
    exec_id = box.start("sh", "-c", "echo one; sleep 1000")["id"]
    follower = yard.spawn("logs", "-f", box.name, exec_id)
    try:
        asleep(box)
        assert follower.poll() is None
    finally:
        follower.kill()
        follower.wait()


def test_looking_at_figures_neither_keeps_awake_nor_wakes(yard, make_box):
    box = make_box(idle=SOON)
    deadline = time.monotonic() + 12 * SLOWNESS
    while state(box) != "suspended":
        assert time.monotonic() < deadline
        yard.api("GET", f"{box.path}/stats", expect=200)
        time.sleep(0.1)
    yard.api("GET", f"{box.path}/stats", expect=200)
    yard.box("ls")
    assert state(box) == "suspended"


# ---- waking by a timer -----------------------------------------------------------------------


@pytest.mark.parametrize("sleep", [
    "import time; time.sleep(4)",
    "import select; select.epoll().poll(4)",
    "import select; select.select([], [], [], 4)",
    "import threading; threading.Event().wait(4)",
    "import asyncio; asyncio.run(asyncio.sleep(4))",
    "import subprocess; subprocess.run(['sleep', '4'])",
])
def test_a_timer_inside_wakes_the_box_in_time(yard, make_box, sleep, quick):
    box = make_box(idle=SOON)
    box.start("python3", "-c", f"import time; began = time.time(); {sleep}\n"
                               "open('/took', 'w').write(str(time.time() - began))")
    eventually(lambda: state(box) == "suspended", 4, "the box sleeps before its timer is due", every=0.05)
    timer = box.show()["idle"]["next_timer"]
    assert timer and timer["pid"] > 1
    eventually(lambda: state(box) == "running", 8, "its timer wakes it", every=0.05)
    eventually(lambda: box.sh("test -s /took", check=False).returncode == 0, 2)
    assert 3.9 < float(box.out("cat /took")) < 4.3
    assert "timer" in reasons(yard, box, "box.resumed")


def test_a_timer_outlives_the_daemon(fresh_yard):
    box = fresh_yard.new(idle=SOON)
    box.start("sh", "-c", "sleep 6; touch /f")
    asleep(box, 5)
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    assert state(box) == "suspended"
    eventually(lambda: state(box) == "running", 8 * SLOWNESS, "its timer wakes it")
    eventually(lambda: box.sh("test -e /f", check=False).returncode == 0, 2)


# ---- waking by touch -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["idle", "request"])
def test_work_on_a_suspended_box_just_works(yard, make_box, how):
    box = make_box(idle=SOON if how == "idle" else NEVER)
    box.put("/file", b"content")

    def sleep():
        if how == "request":
            yard.box("suspend", box.name)
        asleep(box)

    sleep()
    assert box.out("echo hi") == "hi"
    sleep()
    assert box.get("/file").body == b"content"
    sleep()
    box.put("/file", b"other")
    sleep()
    assert yard.run(box.id, "cat", "/file").stdout == b"other"
    sleep()
    box.wait_exec(box.start("sleep", "0.2")["id"])
    assert "touch" in reasons(yard, box, "box.resumed")


def test_requests_to_a_url_wake_and_none_is_lost(site):
    for _ in range(2):
        asleep(site)
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: ask(site), range(20)))
        assert answers == [(200, b"hi")] * 20
        assert state(site) == "running"


def test_a_request_by_a_connection_that_waited_wakes(site):
    conn = http.client.HTTPConnection("127.0.0.1", site.door, timeout=20)
    for _ in range(2):
        conn.request("GET", "/", headers={"Host": f"8000-{site.name}.localhost"})
        assert conn.getresponse().read() == b"hi"
        asleep(site)
    conn.close()


def test_a_port_of_the_host_wakes_and_its_open_connections_do(yard, site):
    host_port = int(yard.box("port", "add", site.name, "9000").stdout.rpartition(":")[2])
    asleep(site)
    with socket.create_connection(("127.0.0.1", host_port), timeout=10) as sock:
        for _ in range(2):
            sock.sendall(b"hello")
            assert sock.recv(16) == b"HELLO"
            asleep(site)


def test_a_connection_from_another_box_wakes(make_box):
    one, two = make_box(policy={"preset": "none"}), make_box(policy={"preset": "none"}, idle=SOON)
    for box, other in ((one, two), (two, one)):
        box.yard.api("PUT", f"{box.path}/policy", {"policy": {"boxes": [other.name]}}, expect=200)
    two.start("python3", "-c", "import socket\ns = socket.create_server(('0.0.0.0', 7000))\n"
                               "while True:\n c, _ = s.accept(); c.sendall(b'hello'); c.close()")
    asleep(two)
    got = one.python(f"import socket; print(socket.create_connection(('{two.name}.box', 7000), 10).recv(9))")
    assert "hello" in got.stdout
    assert state(two) == "running"


# Says each line that comes in capitals.
UPPER = """
import socket
s = socket.create_server(('0.0.0.0', 7000))
while True:
    c, _ = s.accept()
    while line := c.recv(100):
        c.sendall(line.upper())
"""
# Sends a line for each one it is given, and says how long the answer took, in milliseconds.
TALK = """
import socket, sys, time
s = socket.create_connection((sys.argv[1], 7000), 10)
s.settimeout(10)
print("up", flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    s.sendall(b"\\0" + line.encode())
    assert s.recv(100)
    print("took", (time.perf_counter() - began) * 1000, flush=True)
"""


def peers(make_box):
    one, two = make_box(policy={"preset": "none"}, idle=NEVER), make_box(policy={"preset": "none"}, idle=NEVER)
    for box, other in ((one, two), (two, one)):
        box.yard.api("PUT", f"{box.path}/policy", {"policy": {"boxes": [other.name]}}, expect=200)
    two.start("python3", "-c", UPPER)
    eventually(lambda: one.run("python3", "-c", f"import socket; socket.create_connection(('{two.name}.box', 7000), 3)").code == 0)
    return one, two


def talk_to_sleeping(one, two, put_to_sleep, times):
    """Milliseconds for each answer of two, which sleeps each time, on one connection."""
    talk = one.yard.spawn("exec", "-i", one.name, "--", "python3", "-c", TALK, f"{two.name}.box", stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True)
    with talk:
        assert talk.stdout.readline() == "up\n"
        took = []
        for i in range(times):
            put_to_sleep(two)
            talk.stdin.write(f"{i}\n")
            talk.stdin.flush()
            took.append(float(talk.stdout.readline().split()[1]))
            assert state(two) == "running"
        talk.stdin.close()
    return took


@pytest.mark.parametrize("how", ["suspend", "idle"])
def test_bytes_of_a_peer_on_an_open_connection_wake_at_once(yard, make_box, quick, how):
    one, two = peers(make_box)
    if how == "idle":
        yard.box("set", two.name, "--idle", "1s")
    took = talk_to_sleeping(one, two, asleep if how == "idle" else lambda box: yard.box("suspend", box.name), 5)
    print(f"answer of a sleeping peer: {sorted(took)[2]:.2f} ms")
    assert sorted(took)[2] < 50, took


def test_a_hibernated_box_wakes_for_everybody_at_once(yard, site):
    yard.box("set", site.name, "--idle", "1s", "--hibernate-after", "1s")
    host_port = int(yard.box("port", "add", site.name, "9000").stdout.rpartition(":")[2])
    asleep(site)
    try:
        eventually(lambda: state(site) == "hibernated", 8 * SLOWNESS)
    except AssertionError:
        pytest.skip("boxes cannot be hibernated here")

    def echo(_):
        with socket.create_connection(("127.0.0.1", host_port), timeout=20 * SLOWNESS) as sock:
            sock.sendall(b"hello")
            return sock.recv(16)

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        asked = [pool.submit(ask, site) for _ in range(8)]
        echoed = [pool.submit(echo, None) for _ in range(8)]
        read = [pool.submit(site.get, "/server.py") for _ in range(8)]
    assert [one.result() for one in asked] == [(200, b"hi")] * 8
    assert [one.result() for one in echoed] == [b"HELLO"] * 8
    assert [one.result().status for one in read] == [200] * 8


def test_a_stopped_box_is_not_woken(yard, site):
    yard.box("stop", site.name)
    assert ask(site)[0] == 503
    assert yard.api("POST", f"{site.path}/exec", {"argv": ["true"]}).status == 409
    assert state(site) == "stopped"


def test_a_box_paused_at_a_limit_is_not_woken(yard, make_box):
    box = make_box(pids=30, on_limit="pause", idle=SOON)
    yard.box("url", box.name, "8000", "--public")
    box.door = yard.port()
    box.start("sh", "-c", "for i in $(seq 60); do sleep 4 & done; wait")
    asleep(box)
    time.sleep(5)
    refused = yard.api("POST", f"{box.path}/exec", {"argv": ["true"]})
    assert refused.status == 429 and "limit" in refused.json["error"]["message"]
    assert "box resume" in refused.json["error"]["hint"]
    assert ask(box)[0] == 503
    assert box.get("/etc/hostname").status == 429
    assert state(box) == "suspended" and box.show()["idle"]["asleep_for"] == "limit"
    yard.box("resume", box.name)
    eventually(lambda: box.sh("true", check=False).returncode == 0, 8)


def paused_at_a_limit(box):
    """Its processes soon end, once it goes on."""
    box.start("sh", "-c", "for i in $(seq 60); do sleep 1 & done; wait")
    eventually(lambda: box.show()["asleep_for"] == "limit", 12 * SLOWNESS, "the box is paused")
    return box


def wakes_by_resume_alone(yard, box):
    depth = state(box)
    for verb in ("wake", "start"):
        refused = yard.box(verb, box.name, check=False)
        assert refused.returncode == 75 and "limit" in refused.stderr and f"box resume {box.name}" in refused.stderr
    assert yard.api("POST", f"{box.path}/exec", {"argv": ["true"]}).status == 429
    assert state(box) == depth and box.show()["asleep_for"] == "limit"
    yard.box("set", box.name, "--pids", "100")
    yard.box("resume", box.name)
    assert state(box) == "running" and box.show()["asleep_for"] is None
    eventually(lambda: box.sh("true", check=False).returncode == 0, 8 * SLOWNESS)


@pytest.mark.parametrize("depth", ["suspended", "hibernated"])
def test_a_pause_at_a_limit_is_ended_by_resume_alone(yard, make_box, depth):
    box = paused_at_a_limit(make_box(pids=30, on_limit="pause", idle=NEVER))
    if depth == "hibernated":
        yard.box("hibernate", box.name)
    assert state(box) == depth
    wakes_by_resume_alone(yard, box)


@pytest.mark.slow
def test_a_pause_at_a_limit_outlasts_the_daemons_end(fresh_yard):
    box = paused_at_a_limit(fresh_yard.new(pids=30, on_limit="pause", idle=NEVER))
    fresh_yard.box("down", "--hibernate")
    fresh_yard.start_daemon()
    assert state(box) == "hibernated"
    wakes_by_resume_alone(fresh_yard, box)


# ---- figures ---------------------------------------------------------------------------------


def median(samples):
    return sorted(samples)[len(samples) // 2]


def test_resuming_takes_no_time(yard, site, quick):
    yard.box("set", site.name, "--idle", "off")
    conn, files, requests = yard.connection(), [], []
    for _ in range(15):
        yard.api("POST", f"{site.path}/suspend", {}, expect=200, conn=conn)
        began = time.perf_counter()
        yard.api("GET", f"{site.path}/files/stat", query={"path": "/server.py"}, expect=200, conn=conn)
        files.append(time.perf_counter() - began)
        yard.api("POST", f"{site.path}/suspend", {}, expect=200, conn=conn)
        began = time.perf_counter()
        assert ask(site)[0] == 200
        requests.append(time.perf_counter() - began)
    print(f"file {median(files) * 1000:.2f} ms, URL {median(requests) * 1000:.2f} ms")
    assert median(requests) < 0.01 and median(files) < 0.01
