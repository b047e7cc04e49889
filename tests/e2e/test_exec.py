"""Programs without a terminal: exit codes, streams, signals, time limits, users, parallel work."""
import concurrent.futures
import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
from websocket import ABNF

from boxtest import BOX_BIN, EXIT_NOT_FOUND, SLOWNESS, eventually, random_name

pytestmark = pytest.mark.asan

EVERY_BYTE = bytes(range(256)) * 37


# ---- exit codes ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 64, 66, 124, 127, 255])
def test_exec_returns_the_programs_exit_code(box, code):
    assert box.sh(f"exit {code}", check=False).returncode == code


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "HUP"])
def test_program_killed_by_a_signal_gives_128_plus_signal(box, name):
    number = getattr(signal, "SIG" + name)
    assert box.sh(f"kill -{name} $$", check=False).returncode == 128 + number
    over = box.run("sh", "-c", f"kill -{name} $$").exit
    assert over["exit_code"] == 128 + number and over["reason"] == "signaled"
    assert over["signal"] in (number, name, "SIG" + name)


def test_missing_program_folder_user_are_told_apart(yard, box):
    for body, word in (({"argv": ["nosuchprogram"]}, "nosuchprogram"), ({"argv": ["/no/such"]}, "/no/such"),
                       ({"argv": ["true"], "cwd": "/nosuchdir"}, "/nosuchdir"),
                       ({"argv": ["true"], "user": "nosuchuser"}, "nosuchuser")):
        reply = yard.api("POST", f"{box.path}/exec", body)
        error = reply.json["error"] if reply.status != 200 else reply.lines[-1]["error"]
        assert error["code"] == "not_found" and word in error["message"], error


def test_file_that_is_no_program_is_refused(box):
    done = box.exec("/etc/passwd", check=False)
    assert done.returncode in (77, 126) and "/etc/passwd" in done.stderr


def test_missing_user_has_an_exit_code_of_its_own(box):
    assert box.exec("true", flags=["-u", "nosuchuser"], check=False).returncode == EXIT_NOT_FOUND


# ---- streams ---------------------------------------------------------------------------------


def test_stdout_and_stderr_stay_apart(box):
    done = box.sh("echo out; echo err >&2; echo out2")
    assert done.stdout == "out\nout2\n" and done.stderr == "err\n"


def test_stdin_reaches_the_program_to_its_end(box):
    assert box.exec("cat", flags=["-i"], input="one\ntwo").stdout == "one\ntwo"
    assert box.exec("wc", "-c", flags=["-i"], input="").stdout.strip() == "0"


def test_without_i_stdin_is_empty(box):
    assert box.exec("cat", input="ignored").stdout == ""


def test_every_byte_survives_both_ways(box):
    done = box.exec("cat", flags=["-i"], input=EVERY_BYTE, binary=True)
    assert done.stdout == EVERY_BYTE
    assert box.exec("sh", "-c", "cat >&2", flags=["-i"], input=EVERY_BYTE, binary=True).stderr == EVERY_BYTE


def test_program_that_does_not_read_its_stdin_ends_anyway(box):
    assert box.exec("true", flags=["-i"], input=b"x" * 3_000_000, binary=True).returncode == 0


def test_end_of_file_comes_while_the_program_goes_on(box):
    assert box.exec("sh", "-c", "cat; sleep 0.1; echo after", flags=["-i"], input="in\n").stdout == "in\nafter\n"


def test_stdin_in_the_body_over_rest(box):
    assert box.run("cat", stdin="text ü\n").stdout == "text ü\n".encode()
    assert box.run("sha256sum", stdin_b64="AAEC/w==").stdout.split()[0].decode() == \
        hashlib.sha256(b"\x00\x01\x02\xff").hexdigest()


def test_bytes_that_are_no_text_come_as_base64(box):
    done = box.run("printf", r"\377\376ok\n")
    assert done.stdout == b"\xff\xfeok\n"
    assert any("data_b64" in line for line in done.lines)


def test_text_cut_in_the_middle_of_a_letter_is_still_whole(box):
    done = box.run("sh", "-c", r"printf '\303'; sleep 0.2; printf '\274'")
    assert done.stdout == "ü".encode()


def test_answer_says_when_it_starts_and_ends(box):
    done = box.run("echo", "hi")
    assert [line["type"] for line in done.lines] == ["start", "output", "exit"]
    assert done.lines[0]["exec"]["argv"] == ["echo", "hi"] and done.lines[0]["exec"]["state"] == "running"
    assert done.exit["newest_offset"] == 3 and done.exit["reason"] == "exited" and done.exit["signal"] is None
    assert done.exit["duration_ms"] > 0


def test_header_carries_the_exec_id(yard, box):
    reply = yard.api("POST", f"{box.path}/exec", {"argv": ["true"]}, expect=200)
    assert reply.headers["Box-Exec"] == reply.lines[0]["exec"]["id"]


@pytest.mark.slow
def test_64_megabytes_of_stdout_are_exact(yard, box):
    size = 16 << 20 if "asan" in str(BOX_BIN) else 64 << 20
    want = box.out(f"head -c {size} /dev/urandom > /tmp/big; sha256sum /tmp/big").split()[0]
    before = yard.rss_kb()
    client = yard.spawn("exec", box.name, "--", "cat", "/tmp/big")
    digest, got, peak = hashlib.sha256(), 0, 0
    while chunk := client.stdout.read(1 << 20):
        digest.update(chunk)
        got += len(chunk)
        peak = max(peak, yard.rss_kb() if got % (8 << 20) < len(chunk) else 0)
    assert client.wait(10) == 0
    assert (got, digest.hexdigest()) == (size, want)
    if "asan" not in str(BOX_BIN):
        assert peak - before < 16 * 1024, "the daemon's memory stays flat"


def test_megabytes_over_ndjson_are_exact(box):
    want = box.out("head -c 5000000 /dev/urandom > /tmp/mid; sha256sum /tmp/mid").split()[0]
    assert hashlib.sha256(box.run("cat", "/tmp/mid").stdout).hexdigest() == want


@pytest.mark.slow
def test_megabytes_of_stdin_are_exact(box):
    data = os.urandom(12 << 20)
    done = box.exec("sha256sum", flags=["-i"], input=data, binary=True)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_output_of_a_background_child_does_not_hold_the_exec(box):
    began = time.monotonic()
    assert box.run("sh", "-c", "sleep 30 & echo done").stdout == b"done\n"
    assert time.monotonic() - began < 5 * SLOWNESS


# ---- surroundings ----------------------------------------------------------------------------


def test_environment_working_folder_and_user(box):
    flags = ["-e", "A=1", "-e", "B=x y", "-w", "/usr", "-u", "nobody"]
    out = box.exec("sh", "-c", "echo $A,$B; pwd; id -un", flags=flags).stdout
    assert out == "1,x y\n/usr\nnobody\n"


def test_environment_variable_without_value_is_passed_through(yard, box):
    assert box.exec("sh", "-c", "echo $PASSED", flags=["-e", "PASSED"], env={"PASSED": "on"}).stdout == "on\n"


def test_user_may_be_numbers(box):
    assert box.exec("id", flags=["-u", "1234:2345"]).stdout.startswith("uid=1234 gid=2345")


def test_root_gets_a_usable_environment(box):
    assert box.out("echo $HOME $USER; command -v ls >/dev/null && pwd") == "/root root\n/workspace"


def test_programs_start_in_the_workspace(box, make_box):
    assert box.exec("pwd", flags=["-u", "nobody"]).stdout == "/workspace\n"
    assert box.exec("pwd", flags=["-w", "/tmp"]).stdout == "/tmp\n"
    made = make_box(command=["sh", "-c", "pwd > /started-in; sleep 1000"])
    eventually(lambda: made.out("cat /started-in 2>/dev/null || true") == "/workspace", 5)
    made.sh("cd / && rm -r /workspace")
    assert made.exec("pwd").stdout == "/root\n"


def test_host_environment_does_not_leak(yard, box):
    out = box.exec("env", env={"HOST_SECRET": "leak"}).stdout
    assert "HOST_SECRET" not in out and "BOX_HOME" not in out


def test_box_env_can_be_overridden_per_program(yard, make_box):
    made = make_box(env={"A": "box", "B": "box"})
    assert made.exec("sh", "-c", "echo $A $B", flags=["-e", "A=exec"]).stdout == "exec box\n"


# ---- time limits and signals -----------------------------------------------------------------


def test_timeout_ends_the_program_with_124(box):
    began = time.monotonic()
    assert box.exec("sleep", "100", flags=["--timeout", "300ms"], check=False).returncode == 124
    assert time.monotonic() - began < 4 * SLOWNESS


def test_timeout_over_rest_tells_its_reason(box):
    assert box.run("sleep", "100", timeout_ms=200).exit["reason"] == "timeout"


@pytest.mark.parametrize("stdin", [None, "input"])
def test_timeout_in_a_box_that_stands_still_is_told(yard, make_box, stdin):
    """No time passes in the box; the program is ended when it goes on."""
    box = make_box()
    threading.Timer(0.5, lambda: yard.box("suspend", box.name)).start()
    began = time.monotonic()
    reply = yard.api("POST", f"{box.path}/exec", {"argv": ["sleep", "1000"], "timeout_ms": 1500, **({"stdin": stdin} if stdin else {})})
    assert 1.4 < time.monotonic() - began < 1.5 + 0.6 * SLOWNESS
    last = json.loads(reply.body.splitlines()[-1])
    assert last["type"] == "error" and last["error"]["code"] == "timeout", last
    assert f"'{box.name}' is suspended" in last["error"]["message"] and "box resume" in last["error"]["hint"], last
    assert box.show()["state"] == "suspended", "being told of it is not use"
    yard.box("resume", box.name)
    eventually(lambda: "sleep 1000" not in box.commands(), 10)


def test_timeout_takes_the_children_too(box):
    box.run("sh", "-c", "sleep 4321 & sleep 4322", timeout_ms=200)
    eventually(lambda: not any("432" in c for c in box.commands()), 8, "no sleep is left")


@pytest.mark.slow
def test_timeout_kills_what_ignores_term(box):
    over = box.run("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", timeout_ms=300 * SLOWNESS).exit
    assert over["reason"] == "timeout" and over["exit_code"] == 137


@pytest.mark.parametrize("sent", ["TERM", "SIGTERM", 15, "15"])
def test_signal_is_sent_by_name_or_number(yard, box, sent):
    started = box.start("sleep", "100")
    reply = yard.api("POST", f"{box.path}/execs/{started['id']}/signal", {"signal": sent})
    assert reply.status in (200, 204), reply.body
    assert box.wait_exec(started["id"])["exit_code"] == 143


@pytest.mark.parametrize("sent", ["NOPE", 0, -1, 65, 1.5, None, ""])
def test_bad_signal_is_refused(yard, box, sent):
    started = box.start("sleep", "100")
    assert yard.api("POST", f"{box.path}/execs/{started['id']}/signal", {"signal": sent}).code == "invalid"


def test_signal_to_a_finished_exec_is_told(yard, box):
    started = box.start("true")
    box.wait_exec(started["id"])
    assert yard.api("POST", f"{box.path}/execs/{started['id']}/signal", {"signal": "TERM"}).status in (404, 409)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT"])
def test_signals_to_the_client_reach_the_program(yard, box, name):
    script = f"trap 'echo caught; exit 5' {name}; echo ready; while :; do sleep 0.02; done"
    client = yard.spawn("exec", box.name, "--", "sh", "-c", script)
    assert client.stdout.readline() == b"ready\n"
    client.send_signal(getattr(signal, "SIG" + name))
    out, _ = client.communicate(timeout=10)
    assert out == b"caught\n" and client.returncode == 5


def test_broken_pipe_ends_the_program(yard, box):
    began = time.monotonic()
    done = subprocess.run(["bash", "-c", '"$0" exec "$1" -- yes | head -1', str(BOX_BIN), box.name], env=yard.env,
                          capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "y\n" and done.stderr == ""
    assert time.monotonic() - began < 5 * SLOWNESS
    eventually(lambda: "yes" not in box.commands(), 4, "no yes is left running")


def test_client_killed_leaves_the_program_running(yard, box):
    client = yard.spawn("exec", box.name, "--", "sh", "-c", "echo ready; sleep 500")
    assert client.stdout.readline() == b"ready\n"
    client.kill()
    client.communicate()
    time.sleep(0.1)
    assert any("sleep 500" in c for c in box.commands())


# ---- many at once ----------------------------------------------------------------------------


@pytest.mark.slow
def test_hundred_programs_at_once(yard, box):
    def one(n):
        done = box.run("sh", "-c", f"echo begin {n}; sleep 0.3; echo end {n} >&2; exit {n}")
        return done.stdout, done.stderr, done.code

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        results = list(pool.map(one, range(100)))
    assert results == [(f"begin {n}\n".encode(), f"end {n}\n".encode(), n) for n in range(100)]


def test_slow_client_does_not_grow_the_daemon(yard, box):
    body = json.dumps({"argv": ["yes", "0123456789" * 10]}).encode()
    before = yard.rss_kb()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(yard.sock))
        sock.sendall(b"POST %s/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                     % (box.path.encode(), len(body), body))
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        time.sleep(0.7 * SLOWNESS)
        first = box.execs()[-1]["newest_offset"]
        time.sleep(0.3)
        assert box.execs()[-1]["newest_offset"] == first, "the program waits for its reader"
        assert yard.rss_kb() - before < 8 * 1024
    # The reader is gone: the program is no longer held back.
    eventually(lambda: box.execs()[-1]["newest_offset"] > first, what="the program runs on")


def test_other_work_goes_on_beside_a_flood(yard, box):
    flood = box.start("yes")
    began = time.monotonic()
    for _ in range(5):
        assert box.run("echo", "hi").stdout == b"hi\n"
    assert time.monotonic() - began < 4 * SLOWNESS
    yard.api("POST", f"{box.path}/execs/{flood['id']}/signal", {"signal": "KILL"})


@pytest.mark.parametrize("body", [
    {}, {"argv": []}, {"argv": "echo"}, {"argv": [1]}, {"argv": ["a\u0000b"]}, {"argv": ["x"], "tty": "yes"},
    {"argv": ["x"], "timeout_ms": -1}, {"argv": ["x"], "rows": 100000, "tty": True}, {"argv": ["x"], "nope": 1},
    {"argv": ["x"], "env": {"A-B": "x"}}, {"argv": ["x"], "env": ["A=1"]}, {"argv": ["x"], "cwd": "relative"},
    {"argv": ["x"], "stdin": "a", "stdin_b64": "YQ=="}, {"argv": ["x"], "stdin_b64": "!!"},
    {"argv": ["x"] * 5000}, {"argv": ["x" * 200_000]},
])
def test_bad_exec_bodies_are_refused(yard, box, body):
    reply = yard.api("POST", f"{box.path}/exec", body)
    assert reply.status in (400, 413), reply.body
    assert reply.code in ("invalid", "too_large")


def test_names_of_boxes_are_not_paths(yard):
    for name in ("..", "%2e%2e", "a%2fb", random_name() + "%00"):
        assert yard.api("POST", f"/v1/boxes/{name}/exec", {"argv": ["true"]}).status in (400, 404)


# ---- input of those who leave ----------------------------------------------------------------


@pytest.mark.parametrize("tty", [False, True])
def test_input_of_a_client_that_leaves_at_once_goes_in(yard, box, tty):
    spec = {"argv": ["sh", "-c", "read line; echo $line > /root/got; sleep 1000"], "tty": tty}
    ws = yard.ws(f"{box.path}/exec")
    frames = [(json.dumps(spec).encode(), ABNF.OPCODE_TEXT), (b"hello\n", ABNF.OPCODE_BINARY),
              (b"\x03\xe8", ABNF.OPCODE_CLOSE)]
    ws.sock.sendall(b"".join(ABNF.create_frame(*frame).format() for frame in frames))
    ws.shutdown()
    eventually(lambda: box.get("/root/got").body == b"hello\n", what="the program has its line")
    assert box.execs()[-1]["state"] == "running"
