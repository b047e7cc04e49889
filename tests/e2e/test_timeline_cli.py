"""What the command line says and does about a box in time, with a stand-in for the daemon's
answers.

The stand-in sits on a socket of its own before a real daemon: it answers snapshots, rollbacks,
forks and promotions itself, as it is
told to, and passes everything else on. So programs run in real boxes, and each answer can be had at
will."""
import http.server
import json
import re
import select
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from boxtest import BOX_BIN, UnixConnection, eventually

pytestmark = pytest.mark.asan

MINE = re.compile(r"^/v1/boxes/[^/]+/(snapshots|rollback|fork|promote|timeline|hibernate|wake)(/|$)")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        if body:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def tunnel(self):
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(self.server.behind)
            there.sendall((self.requestline + "\r\n" + str(self.headers).replace("\r", "").rstrip("\n").replace("\n", "\r\n")
                           + "\r\n\r\n").encode())
            here = self.connection
            while True:
                for one in select.select([here, there], [], [])[0]:
                    data = one.recv(65536)
                    if not data:
                        self.close_connection = True
                        return
                    (there if one is here else here).sendall(data)

    def any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        mine = MINE.match(self.path)
        if "upgrade" in (self.headers.get("Connection") or "").lower():
            return self.tunnel()
        if mine:
            self.server.asked.append((self.command, self.path, json.loads(body) if body else None))
            time.sleep(self.server.slow.get(mine[1], 0))
            status, value = self.server.answers[mine[1]]
            return self.answer(status, json.dumps(value).encode() if value is not None else b"")
        conn = UnixConnection(self.server.behind)
        conn.request(self.command, self.path, body or None, {"Content-Type": "application/json"})
        reply = conn.getresponse()
        data = reply.read()
        self.answer(reply.status, data, reply.headers.get("Content-Type") or "application/json")
        return conn.close()

    do_GET = do_POST = do_DELETE = do_PATCH = any


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class StandIn:
    def __init__(self, yard, folder):
        self.yard = yard
        self.server = Server(str(Path(folder) / "box.sock"), Handler)
        self.server.behind = str(Path(yard.env["BOX_RUN"]) / "box.sock")
        self.server.asked, self.server.answers, self.server.slow = [], {}, {}
        self.env = {**yard.env, "BOX_RUN": str(folder)}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def tell(self, verb, status, value):
        self.server.answers[verb] = (status, value)

    def asked(self, verb):
        return [body for _, path, body in self.server.asked if MINE.match(path)[1] == verb]

    def run(self, *words, **kw):
        return subprocess.run([str(BOX_BIN), *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False, **kw)

    def spawn(self, *words):
        return subprocess.Popen([str(BOX_BIN), *words], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)


def snapshot(box, id="k3v9", **more):
    return {"id": id, "box": box.id, "name": None, "cause": "try", "detail": None, "kind": "full", "parent": None,
            "created_at": "2026-01-02T03:04:05.678Z", "processes": 3, "state_bytes": 1 << 20, "stored_bytes": 0,
            "disk_bytes": 4096, "safe": True, "paused_us": 5000, "took_us": 9000, **more}


@pytest.fixture
def stand(yard, box):
    with tempfile.TemporaryDirectory() as folder:
        one = StandIn(yard, folder)
        one.tell("snapshots", 201, snapshot(box))
        one.tell("rollback", 200, {"box": box.show(), "to": snapshot(box), "from": None, "took_us": 1})
        yield one
        one.server.shutdown()
        one.server.server_close()


# ---- try -------------------------------------------------------------------------------------


def test_try_keeps_what_works(stand, box):
    done = stand.run("try", box.name, "--name", "before", "--", "sh", "-c", "echo out; echo err >&2; touch /root/done")
    assert done.returncode == 0 and done.stdout == "out\n"
    assert "err\n" in done.stderr and f"undo: box rollback {box.name} k3v9" in done.stderr
    assert stand.asked("snapshots") == [{"cause": "try", "disk_only": False, "name": "before"}]
    assert stand.asked("rollback") == []
    assert box.stat("/root/done").status == 200


def test_try_rolls_back_what_fails(stand, box):
    done = stand.run("try", box.name, "--", "sh", "-c", "exit 7")
    assert done.returncode == 7 and "rolled back to k3v9" in done.stderr
    assert stand.asked("rollback") == [{"snapshot": "k3v9", "forget": True, "disk_only": False}]


def test_try_keeps_the_failure_when_asked(stand, box):
    stand.tell("rollback", 200, {"box": box.show(), "to": snapshot(box), "from": snapshot(box, "zz9"), "took_us": 1})
    done = stand.run("try", box.name, "--keep-failed", "--", "false")
    assert done.returncode == 1 and f"box rollback {box.name} zz9" in done.stderr
    assert stand.asked("rollback")[0]["forget"] is False


@pytest.mark.parametrize("check,program,code,kept", [
    ("true", "true", 0, True), ("exit 3", "true", 3, False), ("true", "exit 5", 5, True), ("false", "exit 5", 5, False),
])
def test_try_lets_the_check_decide(stand, box, check, program, code, kept):
    done = stand.run("try", box.name, "--check", check, "--", "sh", "-c", program)
    assert done.returncode == code, done.stderr
    assert bool(stand.asked("rollback")) != kept


def test_try_rolls_back_what_cannot_even_start(stand, box):
    done = stand.run("try", box.name, "--check", "true", "--", "nosuchprogram")
    assert done.returncode == 66 and len(stand.asked("rollback")) == 1


@pytest.mark.parametrize("presses", [1, 2])
def test_try_rolls_back_after_ctrl_c(stand, box, presses):
    script = "trap '' INT; echo ready; sleep 30" if presses == 2 else "echo ready; exec sleep 30"
    run = stand.spawn("try", box.name, "--check", "true", "--", "sh", "-c", script)
    assert run.stdout.readline() == "ready\n"
    for _ in range(presses):
        run.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, said = run.communicate(timeout=20)
    assert run.returncode == 130 and "rolled back" in said, said
    assert len(stand.asked("rollback")) == 1


def test_ctrl_c_during_the_check_rolls_back(stand, box):
    run = stand.spawn("try", box.name, "--check", "echo checking; exec sleep 30", "--", "echo", "ran")
    assert run.stdout.readline() == "ran\n" and run.stdout.readline() == "checking\n"
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=20)
    assert run.returncode == 130 and len(stand.asked("rollback")) == 1


def test_try_runs_nothing_without_its_snapshot(stand, box):
    stand.tell("snapshots", 501, {"error": {"code": "unsupported", "message": "process 7 (nginx) uses io_uring", "hint": "--disk-only"}})
    done = stand.run("try", box.name, "--", "touch", "/root/ran")
    assert done.returncode == 69 and "nginx" in done.stderr and "--disk-only" in done.stderr
    assert box.stat("/root/ran").status == 404 and stand.asked("rollback") == []


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_while_try_takes_its_snapshot_runs_nothing(stand, box, presses):
    stand.server.slow["snapshots"] = 1.5
    run = stand.spawn("try", box.name, "--", "touch", "/root/ran")
    eventually(lambda: stand.asked("snapshots"), 10, "the snapshot is asked for")
    for _ in range(presses):
        run.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, said = run.communicate(timeout=20)
    assert "interrupted" in said and "Traceback" not in said, said
    if presses == 1:
        assert run.returncode == 130 and "nothing was run, and the snapshot is removed" in said, said
        assert stand.server.asked[-1][:2] == ("DELETE", f"/v1/boxes/{box.name}/snapshots/k3v9")
    else:
        assert run.returncode == -signal.SIGINT and f"box timeline {box.name}" in said, said
    assert box.stat("/root/ran").status == 404 and stand.asked("rollback") == []


def test_try_says_which_snapshot_is_left_when_it_cannot_be_removed(stand, box):
    stand.server.slow["snapshots"] = 1
    run = stand.spawn("try", box.name, "--", "true")
    eventually(lambda: stand.asked("snapshots"), 10, "the snapshot is asked for")
    run.send_signal(signal.SIGINT)
    time.sleep(0.2)
    eventually(lambda: len(stand.server.asked) == 2, 10, "its removal is asked for", every=0.001)
    stand.server.answers["snapshots"] = (409, {"error": {"code": "state", "message": "it is in use", "hint": ""}})
    _, said = run.communicate(timeout=20)
    assert run.returncode == 130 and "snapshot 'k3v9' was not removed: it is in use" in said, said


@pytest.mark.parametrize("check", ["", " "])
def test_try_with_an_empty_check_does_nothing(stand, box, check):
    done = stand.run("try", box.name, "--check", check, "--", "touch", "/root/ran")
    assert done.returncode == 64 and "--check is empty" in done.stderr, done.stderr
    assert stand.asked("snapshots") == [] and box.stat("/root/ran").status == 404


def test_try_says_how_to_go_back_when_it_could_not(stand, box):
    stand.tell("rollback", 409, {"error": {"code": "state", "message": "the box is busy", "hint": ""}})
    done = stand.run("try", box.name, "--", "false")
    assert done.returncode == 65 and f"box rollback {box.name} k3v9" in done.stderr


def test_try_tells_programs_what_happened(stand, box):
    done = stand.run("try", box.name, "--json", "--", "false")
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["type"] == "try" and last["kept"] is False and last["exit_code"] == 1 and last["snapshot"]["id"] == "k3v9"


# ---- the others ------------------------------------------------------------------------------


def test_snapshot_prints_its_name_or_id(stand, box):
    assert stand.run("snapshot", box.name).stdout == "k3v9\n"
    stand.tell("snapshots", 201, snapshot(box, name="base"))
    done = stand.run("snapshot", box.name, "base", "--disk-only")
    assert done.stdout == "base\n" and "paused for 5.0 ms" in done.stderr
    assert stand.asked("snapshots")[-1] == {"name": "base", "disk_only": True}


@pytest.mark.parametrize("count,said", [(1, "1 process, "), (2, "2 processes, ")])
def test_snapshot_counts_processes(stand, box, count, said):
    stand.tell("snapshots", 201, snapshot(box, processes=count))
    assert said in stand.run("snapshot", box.name).stderr


def test_rollback_says_where_it_went_and_how_to_undo(stand, box):
    stand.tell("rollback", 200, {"box": box.show(), "to": snapshot(box, name="base"), "from": snapshot(box, "zz9"), "took_us": 1})
    done = stand.run("rollback", box.name, "base", "--disk-only", "--forget")
    assert f"{box.name} is back at base" in done.stdout and f"undo: box rollback {box.name} zz9\n" in done.stdout
    assert "(try, its disk alone)" in done.stdout and "with its processes" not in done.stdout
    assert stand.asked("rollback") == [{"snapshot": "base", "disk_only": True, "forget": True}]


def test_what_holds_the_disk_alone_is_said_to(stand, box):
    there, left = snapshot(box, name="base"), snapshot(box, "zz9", kind="disk")
    stand.tell("rollback", 200, {"box": box.show(), "to": there, "from": left, "took_us": 1})
    done = stand.run("rollback", box.name, "base")
    assert "(try, with its processes)" in done.stdout
    assert f"undo: box rollback {box.name} zz9 (its disk alone)\n" in done.stdout
    assert f"box rollback {box.name} zz9 (its disk alone)" in stand.run("try", box.name, "--keep-failed", "--", "false").stderr
    stand.tell("promote", 200, {"box": box.show(), "was": left})
    assert f"box rollback {box.name} zz9 (its disk alone)" in stand.run("promote", box.name).stderr


def test_fork_prints_children_and_tells_of_each_failure(stand, box):
    child = {**box.show(), "name": "one"}
    failed = [{"name": "two", "error": {"code": "exists", "message": "there is a box 'two' already", "hint": ""}}]
    stand.tell("fork", 201, {"children": [child], "failed": failed, "paused_us": 1, "took_us": 2})
    done = stand.run("fork", box.name, "one", "two", "-n", "3", "--from", "base", "-e", "A=1", "-l", "k=v", "--rm", "--disk-only",
                     "--allow", "example.com:443")
    assert done.returncode == 73 and done.stdout == "one\n"
    assert "fork 'two'" in done.stderr and "already" in done.stderr
    asked = stand.asked("fork")[0]
    policy = asked.pop("policy")
    assert asked == {"names": ["one", "two"], "count": 3, "snapshot": "base", "env": {"A": "1"}, "labels": {"k": "v"},
                     "remove_on_exit": True, "disk_only": True}
    # On top of the parent's, which is the shipped one.
    assert policy["preset"] == "dev" and "example.com" in json.dumps(policy)
    stand.tell("fork", 201, {"children": [child], "failed": [], "paused_us": 1, "took_us": 2})
    assert stand.run("fork", box.name, "--policy", "none").returncode == 0
    assert stand.asked("fork")[-1]["policy"]["preset"] == "none"


def test_promote_says_what_it_was(stand, box):
    stand.tell("promote", 200, {"box": box.show(), "was": snapshot(box, "zz9")})
    done = stand.run("promote", box.name)
    assert done.stdout == f"{box.name}\n" and f"box rollback {box.name} zz9" in done.stderr


def test_forget_goes_on_after_a_failure(stand, box):
    stand.tell("snapshots", 404, {"error": {"code": "not_found", "message": "no snapshot", "hint": ""}})
    assert stand.run("forget", box.name, "a", "b").returncode == 66
    assert [(m, p.rsplit("/", 1)[1]) for m, p, _ in stand.server.asked] == [("DELETE", "a"), ("DELETE", "b")]
    stand.tell("snapshots", 204, None)
    assert stand.run("forget", box.name, "a").stdout == "a\n"


def test_timeline_is_drawn(stand, box):
    line = [snapshot(box, "a1", name="base", cause="request"), snapshot(box, "b2", parent="a1", detail="make\x1b[2J")]
    stand.tell("timeline", 200, {"box": box.id, "name": box.name, "position": "b2", "snapshots": line})
    out = stand.run("timeline", box.name).stdout
    assert re.search(r"^├─ base +2026-01-02 03:04:05Z  request  full +1M +4K", out, re.M), out
    assert "├─ b2" in out and "└─ ● now" in out and "\x1b" not in out


def test_interrupted_forks_are_made_and_it_is_said(fresh_yard):
    box = fresh_yard.new()
    run = fresh_yard.spawn("fork", box.name, "-n", "12", stderr=subprocess.PIPE)
    eventually(lambda: len(fresh_yard.boxes()) > 1, 20, "the first child is on its way", every=0.005)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=20)
    assert run.returncode == -signal.SIGINT and b"done all the same" in said, (run.returncode, said)
    eventually(lambda: [one["state"] for one in fresh_yard.boxes()] == ["running"] * 13, 30, "all are made")


# ---- forks on the tree, and what is counted --------------------------------------------------


@pytest.mark.slow
def test_a_fork_of_the_present_stands_where_it_was_made(yard, make_box):
    box = make_box()
    first, second = f"{box.name}-1", f"{box.name}-2"
    try:
        yard.box("snapshot", box.name, "one")
        yard.box("fork", box.name, first)
        yard.box("snapshot", box.name, "two")
        yard.box("fork", box.name, second)
        lines = yard.box("timeline", box.name).stdout.splitlines()
        assert "STORED" in lines[0] and "MEMORY" not in lines[0]
        assert [line.split("  2026")[0].split("  20")[0].rstrip() for line in lines[1:]] == [
            "├─ one", f"│  └─ ⑂ {first}", "├─ two", f"│  └─ ⑂ {second}", "└─ ● now"]
        origin = yard.json("show", first)["origin"]
        one = next(s["id"] for s in yard.json("timeline", box.name)["snapshots"] if s["name"] == "one")
        assert origin == {"box": box.id, "snapshot": None, "position": one}
        yard.box("forget", box.name, "one")
        assert yard.json("show", first)["origin"]["position"] is None
        yard.box("promote", second)
        assert yard.box("timeline", box.name).stdout.splitlines()[-1] == "└─ ● now"
    finally:
        for name in (first, second):
            yard.box("rm", "-f", name, check=False)
        yard.box("rm", "-f", box.name, check=False)


def figures(box):
    return box.yard.api("GET", f"/v1/boxes/{box.id}/stats").json


@pytest.mark.slow
def test_threads_are_not_called_processes(yard, make_box):
    box = make_box()
    box.start("python3", "-c", "import threading, time\n"
              "for _ in range(20): threading.Thread(target=time.sleep, args=(1000,)).start()")
    eventually(lambda: figures(box)["threads"] >= 21, 10, lambda: figures(box))
    # Whatever was run before in the box may still be on its way out.
    eventually(lambda: figures(box)["processes"] == 2, 5, lambda: figures(box))
    assert yard.json("snapshot", box.name)["processes"] == 2
