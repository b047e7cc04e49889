"""test_logs.py - which program's output 'box logs' shows, and how much of it"""
import contextlib
import os
import signal
import time
from datetime import datetime, timedelta, timezone

from boxtest import eventually, instance_processes

SERVER = "echo server; while :; do sleep 1; done"


def logs(yard, *words, **kw):
    return yard.box("logs", *words, **kw).stdout


def test_logs_are_the_servers_not_the_last_execs(yard, make_box):
    box = make_box(command=["sh", "-c", "echo main; " + SERVER])
    box.sh("echo passing by")
    eventually(lambda: "main" in logs(yard, box.name), 5)
    assert "passing by" not in logs(yard, box.name)
    other = make_box()
    assert other.sh("echo first").stdout
    assert logs(yard, other.name) == "first\n"
    other.start("sh", "-c", SERVER)
    other.sh("echo passing by")
    eventually(lambda: logs(yard, other.name) == "server\n", 5)
    # somebody's shell is not what is meant either
    shell = other.start("sh", "-c", "echo shell; sleep 100", tty=True)
    eventually(lambda: "shell" in logs(yard, other.name, shell["id"]), 5)
    assert logs(yard, other.name) == "server\n"


def test_tail_is_the_last_lines(yard, box):
    one = box.start("sh", "-c", "for i in 1 2 3 4 5; do echo $i; done; sleep 0.2; echo err >&2; sleep 0.2; printf rest")["id"]
    box.wait_exec(one)
    ran = yard.box("logs", "--tail", "3", box.name, one)
    assert (ran.stdout, ran.stderr) == ("5\nrest", "err\n")
    assert logs(yard, "-n", "1", box.name, one) == "rest"
    assert logs(yard, "-n", "0", box.name, one) == ""
    assert logs(yard, "-n", "100", box.name, one) == "1\n2\n3\n4\n5\nrest"
    raw = yard.api("GET", f"{box.path}/execs/{one}/logs", query={"tail": 2, "raw": "true"}, expect=200)
    assert raw.body == b"err\nrest"
    lines = yard.api("GET", f"{box.path}/execs/{one}/logs", query={"tail": 1}, expect=200).lines
    assert [line["type"] for line in lines] == ["start", "output", "exit"] and lines[1]["offset"] == 14
    assert yard.api("GET", f"{box.path}/execs/{one}/logs", query={"tail": "x"}).status == 400
    empty = box.start("true")["id"]
    box.wait_exec(empty)
    assert logs(yard, "-n", "5", box.name, empty) == ""


def test_tail_goes_on_with_what_comes(yard, box):
    one = box.start("sh", "-c", "echo 1; echo 2; echo 3; sleep 1; echo 4")["id"]
    time.sleep(0.4)
    assert logs(yard, "-f", "--tail", "1", box.name, one) == "3\n4\n"
    big = box.start("sh", "-c", "seq 400000")["id"]
    box.wait_exec(big)
    assert logs(yard, "--tail", "2", box.name, big) == "399999\n400000\n"


# ---- of a box that has stopped ---------------------------------------------------------------

FAREWELL = "trap 'echo farewell; echo sorry >&2; exit 3' TERM; echo hello; while :; do sleep 0.05; done"


def test_a_stopped_box_shows_what_it_said(yard, make_box):
    box = make_box(command=["sh", "-c", FAREWELL])
    eventually(lambda: "hello" in logs(yard, box.name), 5)
    passing = box.start("sh", "-c", "echo passing; exit 7")["id"]
    box.wait_exec(passing)
    yard.box("stop", box.name)
    ran = yard.box("logs", box.name)
    # sh itself may say "Terminated" of its sleep
    assert ran.stdout == "hello\nfarewell\n" and ran.stderr.endswith("sorry\n"), ran
    assert logs(yard, "-f", box.name) == "hello\nfarewell\n"
    assert logs(yard, "-n", "1", box.name, passing) == "passing\n"
    execs = {e["id"]: e for e in yard.json("ps", "--execs", box.name)}
    assert (execs["main"]["state"], execs["main"]["exit_code"], execs["main"]["reason"]) == ("exited", 3, "exited")
    assert execs[passing]["exit_code"] == 7 and execs["main"]["ended_at"]
    lines = box.logs("main")
    assert [line["type"] for line in lines if line["type"] != "output"] == ["start", "exit"]
    rest = yard.api("GET", f"{box.path}/execs/main/logs", query={"raw": "true", "offset": 6}, expect=200).body
    assert b"farewell\n" in rest and b"sorry\n" in rest and b"hello" not in rest
    assert box.get_exec(passing)["exit_code"] == 7
    assert yard.api("GET", f"{box.path}/execs/nosuch").status == 404
    assert yard.api("GET", f"{box.path}/execs/nosuch/logs").status == 404
    # another life, other output
    yard.box("start", box.name)
    eventually(lambda: logs(yard, box.name) == "hello\n", 5)


def test_a_box_killed_on_request_keeps_its_output(yard, make_box):
    box = make_box(command=["sh", "-c", SERVER])
    eventually(lambda: "server" in logs(yard, box.name), 5)
    yard.box("stop", "-t", "0", box.name)
    ran = yard.box("logs", box.name)
    assert ran.stdout == "server\n" and "may be missing" in ran.stderr
    main = box.get_exec("main")
    assert (main["state"], main["exit_code"], main["reason"]) == ("exited", None, "unknown")


def test_much_output_of_a_stopped_box_is_bounded(yard, make_box):
    box = make_box(command=["sh", "-c", "seq 400000; " + SERVER])
    others = [box.start("sh", "-c", "seq 100000")["id"] for _ in range(6)]
    for one in others:
        box.wait_exec(one)
    eventually(lambda: "server" in logs(yard, "-n", "1", box.name), 10)
    yard.box("stop", box.name)
    ran = yard.box("logs", box.name)
    assert ran.stdout.endswith("399999\n400000\nserver\n") and 240_000 < len(ran.stdout) <= 256 * 1024
    assert "lost" in ran.stderr
    assert logs(yard, "-n", "1", box.name, others[-1]) == "100000\n"
    kept = yard.base / "home" / "output" / box.id
    assert kept.stat().st_size < 1200 * 1024
    box.remove()
    assert not kept.exists()


def test_a_box_that_died_has_no_output_and_says_why(fresh_yard):
    yard, box = fresh_yard, fresh_yard.new(command=["sh", "-c", SERVER])
    eventually(lambda: "server" in logs(yard, box.name), 5)
    daemon = yard.daemon_pid()
    for pid in instance_processes(yard.name, yard.base):
        if pid != daemon:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    eventually(lambda: box.show()["state"] == "stopped", 10)
    ran = yard.box("logs", box.name, check=False)
    assert ran.returncode and ran.stdout == "" and "was not kept" in ran.stderr
    assert yard.api("GET", f"{box.path}/execs").status == 409


def test_a_damaged_file_of_output_is_not_believed(yard, make_box):
    box = make_box(command=["sh", "-c", SERVER])
    eventually(lambda: "server" in logs(yard, box.name), 5)
    yard.box("stop", box.name)
    kept = yard.base / "home" / "output" / box.id
    whole = kept.read_bytes()
    for torn in (whole[:-5], b"", b"\xff" * 64):
        kept.write_bytes(torn)
        assert yard.api("GET", f"{box.path}/execs").status == 500
        assert "damaged" in yard.box("logs", box.name, check=False).stderr


# ---- times -----------------------------------------------------------------------------------


def at(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_logs_know_when_output_came(yard, box):
    began = time.time()
    one = box.start("sh", "-c", "echo first; sleep 1.2; echo second; echo oops >&2; printf 'third\nrest'")["id"]
    box.wait_exec(one)
    ran = yard.box("logs", "-t", box.name, one)
    stamps = [line.split(" ", 1) for line in ran.stdout.splitlines()]
    assert [text for _, text in stamps] == ["first", "second", "third", "rest"]
    assert began - 0.1 < at(stamps[0][0]) < at(stamps[1][0]) - 1 < time.time()
    assert ran.stderr.endswith(" oops\n") and at(ran.stderr.split(" ")[0]) >= at(stamps[1][0])
    assert logs(yard, "--since", "1h", box.name, one) == logs(yard, box.name, one)
    middle = datetime.fromtimestamp(at(stamps[0][0]) + 0.6, timezone.utc)
    for text in (middle.isoformat(), middle.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                 middle.astimezone(timezone(timedelta(hours=-3, minutes=-30))).isoformat()):
        assert logs(yard, "--since", text, box.name, one) == "second\nthird\nrest"
    assert logs(yard, "--since", middle.isoformat(), "-n", "1", box.name, one) == "rest"
    assert logs(yard, "--since", "0s", box.name, one) == ""
    assert logs(yard, "--since", "0s", "-n", "9", box.name, one) == ""
    for wrong in ("yesterday", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00+1:00", "-1m"):
        ran = yard.box("logs", f"--since={wrong}", box.name, one, check=False)
        assert ran.returncode == 64 and "10m" in ran.stderr, ran
    # the same after it has stopped
    yard.box("stop", box.name)
    assert logs(yard, "-t", box.name, one).splitlines()[0] == " ".join(stamps[0])
    assert logs(yard, "--since", middle.isoformat(), box.name, one) == "second\nthird\nrest"


def test_since_goes_on_with_what_comes(yard, box):
    one = box.start("sh", "-c", "echo old; sleep 2; echo new")["id"]
    time.sleep(1)
    assert logs(yard, "-f", "--since", "500ms", box.name, one) == "new\n"
