"""What a box may ask for from inside: the `box` command in every box."""
import contextlib
import json
import sqlite3
import time

import pytest

from boxtest import eventually, random_name


def ask(box, *words, **body):
    return box.run("box", *words, **body)


def kinds(yard, box, since=0):
    return [e["type"] for e in yard.events(since=since) if e["box"] == box.id]


@pytest.mark.asan
def test_box_is_there_and_tells_of_itself(yard, box):
    done = ask(box, "info")
    assert done.code == 0, done
    info = json.loads(done.stdout)
    assert (info["id"], info["name"], info["state"]) == (box.id, box.name, "running")
    assert info["inside"] == {"enabled": True, "depth": 3, "count": 10, "rate": 30}
    assert info["children"] == [] and info["parent"] is None and info["generation"] == 0
    assert box.run("sh", "-c", "command -v box; readlink -f /usr/local/bin/box").stdout == \
        b"/usr/local/bin/box\n/.boxyard/box\n"
    assert "inside.info" in kinds(yard, box)


def test_nothing_of_the_host_is_told(yard, box):
    told = ask(box, "info").stdout.decode()
    for secret in (str(yard.home), str(yard.base), "pid", "uid_slot"):
        assert f'"{secret}"' not in told and str(yard.home) not in told


def test_help_ls_and_timeline_of_a_new_box(box):
    assert b"box fork" in ask(box, "help").stdout
    assert ask(box, "ls").stdout == b"" and ask(box, "ls").code == 0
    assert json.loads(ask(box, "ls", "--json").stdout) == []
    assert ask(box, "timeline").code == 0


VERBS = {"info": ["--json"], "fork": ["-n N", "--from SNAPSHOT", "--json", "-- CMD"], "ls": ["-q", "--json"],
         "snapshot": ["--disk-only", "--json"], "timeline": ["--json"], "rollback": ["--disk-only"],
         "exec": ["FORK", "CMD"], "rm": ["FORK"]}


def test_every_command_tells_how_it_is_used(yard, box):
    whole = ask(box, "help").stdout.decode()
    assert ask(box, "--help").stdout.decode() == whole
    for verb, options in VERBS.items():
        for words in ([verb, "--help"], [verb, "-h"], ["help", verb]):
            done = ask(box, *words)
            assert (done.code, done.stderr) == (0, b"") and done.stdout.startswith(f"box {verb} ".encode()), done
        for option in options:
            assert option in done.stdout.decode(), (verb, option)
            assert option in next(line for line in whole.splitlines() if line.startswith(f"  box {verb} "))
    assert ask(box, "fork", "x", "--help").stdout == ask(box, "help", "fork").stdout
    assert yard.boxes() and not [e for e in yard.events(box=box.id) if e["type"] == "inside.fork"]
    done = ask(box, "help", "new")
    assert done.code == 64 and b"'new'" in done.stderr
    assert ask(box, "new", "--help").code == 64
    done = ask(box)
    assert done.code == 64 and done.stderr.decode() == whole
    done = ask(box, "fork", "-n")
    assert done.code == 64 and b"needs a value after '-n' (see 'box help fork')" in done.stderr, done
    assert max(map(len, whole.splitlines())) <= 100


def test_what_is_advised_can_be_done_inside(fresh_yard):
    box = fresh_yard.new()
    for words in (["fork", "--from", "none"], ["rollback", "none"]):
        done = ask(box, *words)
        assert done.code == 66 and b"('box timeline' lists them)" in done.stderr, done
    assert b"('box snapshot' makes one)" in ask(box, "rollback").stderr
    assert ask(box, "snapshot", "one").code == 0
    done = ask(box, "snapshot", "one")
    assert done.code == 73 and b"(choose another name)" in done.stderr and b"forget" not in done.stderr, done
    assert ask(box, "fork", "kid").code == 0
    fresh_yard.box("stop", f"{box.name}-kid")
    done = ask(box, "exec", "kid", "true")
    assert done.code == 65 and f"(from outside: 'box start {box.name}-kid'".encode() in done.stderr, done


def test_input_of_exec_that_goes_nowhere_is_told(fresh_yard):
    box = fresh_yard.new()
    assert ask(box, "fork", "kid").code == 0
    warning = b"'box exec' does not pass its input on"
    box.run("sh", "-c", "echo x > /tmp/in; : > /tmp/empty")
    # The input is there before the command looks: a writer that runs later is not always noticed.
    piped = "(echo x; : > /tmp/put) | (until [ -e /tmp/put ]; do sleep 0.01; done; box exec kid -- cat)"
    for script, told in ((piped, True), ("box exec kid -- cat < /tmp/in", True),
                         ("(sleep 0.3; echo x) | box exec kid -- sleep 1", True), ("box exec kid -- cat", False),
                         ("box exec kid -- cat < /dev/null", False), ("box exec kid -- cat < /tmp/empty", False),
                         (": | box exec kid -- cat", False), ("echo x | box ls > /dev/null", False)):
        done = box.run("sh", "-c", script)
        assert (done.code, done.stdout, done.stderr.count(warning)) == (0, b"", int(told)), (script, done)
    done = box.run("box", "exec", "kid", "ls", "--help")
    assert b"Usage: ls" in done.stdout


def test_what_cannot_be_asked_is_refused_with_its_reason(yard, box):
    for words, code, why in (
        (["new", "x"], 64, b"cannot be asked for from inside"), (["info", "--bad"], 64, b"does not take '--bad'"),
        (["rm"], 64, b"too few"), (["info", "x"], 64, b"too many"), (["fork", "-n", "0"], 64, b"-n"),
        (["fork", "-n", "1000"], 64, b"-n"), (["exec", "nobody", "--", "id"], 66, b"has no fork 'nobody'"),
        (["snapshot", "Not A Name"], 64, b"name"),
    ):
        done = ask(box, *words)
        assert done.code == code and why in done.stderr, (words, done)
    refused = [e for e in yard.events(box=box.id) if e["type"] == "inside.exec"]
    assert refused[0]["data"]["args"][0] == "nobody"


def test_other_boxes_cannot_be_touched_nor_found(make_box):
    one, other = make_box(), make_box()
    for name in (other.name, other.id, one.name, one.id):
        for words in (["exec", name, "--", "id"], ["rm", name]):
            done = ask(one, *words)
            assert done.code == 66 and b"has no fork" in done.stderr
    assert other.run("echo", "alive").stdout == b"alive\n"


def test_only_root_may_ask(yard, box):
    done = ask(box, "info", user="nobody")
    assert done.code == 77 and b"only root" in done.stderr
    assert "inside.info" not in kinds(yard, box)


def test_limits_are_set_from_outside(yard, make_box):
    name = random_name()
    yard.box("new", name, "--image", "debian", "--inside", "depth=2,count=4,rate=1")
    try:
        box = type(make_box())(yard, yard.api("GET", f"/v1/boxes/{name}", expect=200).json)
        assert box.show()["inside"] == {"enabled": True, "depth": 2, "count": 4, "rate": 1}
        done = ask(box, "fork", "-n", "5")
        assert done.code == 75 and b"may have 4" in done.stderr and b"--inside count=N" in done.stderr
        yard.box("set", name, "--inside", "depth=0")
        done = ask(box, "fork")
        assert done.code == 75 and b"depth" in done.stderr
        assert box.show()["inside"] == {"enabled": True, "depth": 0, "count": 10, "rate": 30}
        yard.box("set", name, "--inside", "off")
        done = ask(box, "info")
        assert done.code == 77 and b"may ask for nothing" in done.stderr
        assert "nothing" in yard.box("show", name).stdout
        yard.box("set", name, "--inside", "on")
        assert ask(box, "info").code == 0
        refused = [e["data"]["refused"] for e in yard.events(box=box.id)
                   if e["type"] == "inside.info" and "refused" in e["data"]]
        assert len(refused) == 1
    finally:
        yard.box("rm", "-f", name)


def test_the_rate_holds(yard, make_box):
    box = make_box(inside={"rate": 2})
    codes = [ask(box, "snapshot").code for _ in range(3)]
    done = ask(box, "snapshot")
    assert done.code == 75 and b"a minute" in done.stderr and b"--inside rate=N" in done.stderr, codes


@pytest.mark.parametrize("inside", [{"depth": -1}, {"depth": "2"}, {"size": 1}, "off", 3, [], {"rate": 10**9}])
def test_nonsense_limits_are_refused(yard, box, inside):
    body = {"name": random_name(), "image": "debian", "inside": inside}
    assert yard.api("POST", "/v1/boxes", body).status == 400
    assert yard.api("PATCH", box.path, {"inside": inside}).status == 400


def test_cli_refuses_nonsense_limits(yard, box):
    for given in ("depth", "depth=x", "deep=1", ""):
        assert yard.box("set", box.name, "--inside", given, check=False).returncode == 64


GARBAGE = """
import os, socket, struct
def text(w): return struct.pack("<I", len(w)) + w + b"\\0"
def words(*w): return struct.pack("<I", len(w)) + b"".join(map(text, w))
keep = []
for packet in [b"", b"x", b"\\xff" * 16000, b"\\0" * 60000, words(b"info", b"\\xff\\xfe"), words(*[b"a"] * 128),
               words(b"info")[:-1], words(b"x" * 15000), words(b"fork", b"-n", b"9" * 5000), words(b"")]:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect("\\0boxyard")
    s.send(packet)
    keep.append(s)
for i in range(100):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.setblocking(False)
    try:
        s.connect("\\0boxyard"); s.send(words(b"info")); 
        if i % 2: s.close()
    except OSError: pass
    keep.append(s)
print("done")
"""


@pytest.mark.asan
def test_garbage_harms_neither_the_box_nor_the_daemon(yard, box):
    assert box.run("python3", "-c", GARBAGE).stdout == b"done\n"
    eventually(lambda: ask(box, "info").code == 0, 15, "the box answers again")
    assert box.show()["reachable"] and yard.answers()


def test_a_flood_of_requests_is_answered_or_refused(box):
    done = box.run("sh", "-c", "for i in $(seq 1 60); do box info >/dev/null 2>&1 & done; wait; box info | head -1")
    assert done.stdout.startswith(b"{")


@pytest.mark.asan
def test_requests_survive_a_restart_of_the_daemon(fresh_yard):
    box = fresh_yard.new()
    fresh_yard.kill_daemon()
    fresh_yard.start_daemon()
    eventually(lambda: box.show()["reachable"], 10)
    assert ask(box, "info").code == 0
    started = fresh_yard.api("POST", f"{box.path}/exec",
                             {"argv": ["sh", "-c", "sleep 1; box info > /tmp/told; echo $? > /tmp/code"],
                              "detach": True})
    assert started.status in (200, 201, 202), started.body
    fresh_yard.kill_daemon()
    time.sleep(2)
    fresh_yard.start_daemon()
    eventually(lambda: box.get("/tmp/code").body == b"0\n", 15)
    assert json.loads(box.get("/tmp/told").body)["name"] == box.name


def test_an_image_with_its_own_box_command_gets_ours(yard, make_box):
    box = make_box()
    box.run("rm", "-f", "/usr/local/bin/box")
    assert box.run("sh", "-c", "command -v box").stdout == b""
    assert box.run("/.boxyard/box", "info").code == 0


# ---- a family, written into the books by hand: how its forks were made does not matter ----------


def make_family(yard, names=("a", "b", "c"), **body):
    """A box, a fork of it, a fork of that; and a stranger."""
    boxes = [yard.new(**body) for _ in names] + [yard.new()]
    yard.stop_daemon()
    with contextlib.closing(sqlite3.connect(yard.home / "state.db")) as books, books:
        for generation, (box, parent) in enumerate(zip(boxes[1:-1], boxes), 1):
            books.execute("UPDATE boxes SET origin_box = ?, generation = ? WHERE id = ?",
                          (parent.id, generation, box.id))
    yard.start_daemon()
    for box in boxes:
        eventually(lambda: box.show()["reachable"], 10)
    return boxes


@pytest.mark.asan
def test_a_box_uses_its_forks_and_nobody_elses(fresh_yard):
    top, child, grandchild, stranger = make_family(fresh_yard)
    info = json.loads(ask(child, "info").stdout)
    assert info["parent"] == top.name and info["generation"] == 1
    assert [c["name"] for c in info["children"]] == [grandchild.name]
    assert ask(top, "ls", "-q").stdout.decode().split() == [child.name, grandchild.name]
    done = ask(top, "exec", child.name, "--", "sh", "-c", "hostname; echo oops >&2; exit 9")
    assert (done.stdout.decode(), done.stderr, done.code) == (f"{child.name}\n", b"oops\n", 9)
    assert ask(top, "exec", grandchild.id, "hostname").stdout.decode() == f"{grandchild.name}\n"
    assert ask(top, "exec", child.name, "sh", "-c", "kill -9 $$").code == 137
    assert ask(top, "exec", child.name, "nonesuch").code == 66
    for other in (top, stranger):
        assert ask(child, "exec", other.name, "id").code == 66
        assert ask(child, "rm", other.name).code == 66
    assert ask(top, "rm", child.name, stranger.name).code == 66  # all of them or none
    assert child.show()["state"] == "running"
    # With what was forked from it.
    assert ask(top, "rm", child.name).code == 0
    assert {b["id"] for b in fresh_yard.boxes()} == {top.id, stranger.id}
    assert ask(top, "ls").stdout == b""


@pytest.mark.asan
def test_output_of_a_fork_is_whole_and_slows_it_when_nobody_reads(fresh_yard):
    top, child, _, _ = make_family(fresh_yard)
    big = "head -c 30000000 /dev/zero | tr '\\0' x"
    done = top.run("sh", "-c", f"box exec {child.name} -- sh -c \"{big}\" | md5sum")
    assert done.stdout == top.run("sh", "-c", f"{big} | md5sum").stdout
    before = fresh_yard.rss_kb()
    top.run("sh", "-c", f"box exec {child.name} -- sh -c 'touch /tmp/on; yes' | sleep 3")
    assert fresh_yard.rss_kb() - before < 20000
    # Who asked is gone: the program is ended.
    eventually(lambda: "yes" not in child.commands(), 10)


def test_a_suspended_fork_is_woken(fresh_yard):
    top, child, _, _ = make_family(fresh_yard)
    fresh_yard.box("suspend", child.name)
    assert ask(top, "exec", child.name, "hostname").stdout.decode() == f"{child.name}\n"


@pytest.mark.parametrize("depth", ["suspended", "hibernated"])
def test_a_fork_paused_at_a_limit_is_not_woken(fresh_yard, depth):
    top, child, _, _ = make_family(fresh_yard, pids=30, on_limit="pause")
    child.start("sh", "-c", "for i in $(seq 60); do sleep 100 & done; wait")
    eventually(lambda: child.show()["asleep_for"] == "limit", 12)
    if depth == "hibernated":
        fresh_yard.box("hibernate", child.name)
    done = ask(top, "exec", child.name, "hostname")
    assert done.code == 75 and b"reached its process limit" in done.stderr, done
    assert child.show()["state"] == depth


def test_limits_of_the_first_box_bind_its_whole_tree(fresh_yard):
    top, child, grandchild, _ = make_family(fresh_yard, inside={"depth": 3, "count": 3})
    done = ask(grandchild, "fork", "-n", "2")
    assert done.code == 75 and f"{top.name} may have 3".encode() in done.stderr, done
    fresh_yard.box("set", top.name, "--inside", "depth=2,count=3")
    done = ask(grandchild, "fork")
    assert done.code == 75 and b"forks of forks" in done.stderr and f"set {top.name} ".encode() in done.stderr, done
    fresh_yard.box("set", top.name, "--inside", "rate=0")
    done = ask(child, "snapshot")
    assert done.code == 75 and b"a minute" in done.stderr


def test_names_from_inside_begin_with_the_boxs_own(fresh_yard):
    top, child, _, stranger = make_family(fresh_yard)
    fresh_yard.box("rename", stranger.name, f"{top.name}-taken")
    done = ask(top, "fork", "taken")
    assert done.code == 73 and f"'{top.name}-taken'".encode() in done.stderr
    assert ask(top, "fork", "Bad_Name").code == 64
