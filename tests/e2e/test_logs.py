"""test_logs.py - which program's output 'box logs' shows, and how much of it"""
import time

from boxtest import eventually

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
