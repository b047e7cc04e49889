"""What a box asks for itself, and how it learns who it is: box-init between its programs and a
daemon played by the test."""

import os
import re
import socket
import stat
import struct
import subprocess
import time

import pytest

import initclient as ic
from initclient import InitError, text, texts
from test_box_init import BINARY, conn, init  # noqa: F401  (fixtures)


def ended(process, seconds=15):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out.decode(), err.decode()


def raw(init):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(init.self_path)
    sock.settimeout(10)
    return sock


@pytest.fixture
def rooted(tmp_path):
    """A box-init whose /etc is a folder of the test's."""
    if not os.path.exists(BINARY):
        pytest.skip(f"no box-init at {BINARY}; set BOX_INIT")
    init = ic.Init(BINARY, env={"BOX_INIT_ROOT": str(tmp_path)})
    init.root = tmp_path
    (tmp_path / "etc/boxyard").mkdir(parents=True)
    yield init
    assert init.alive()
    assert init.stop() == 0


def hook(init, folder, name, script):
    path = init.root / "etc/boxyard" / folder
    path.mkdir(exist_ok=True)
    (path / name).write_text(f"#!/bin/sh\n{script}\n")
    (path / name).chmod(0o755)


def told(channel):
    fields = channel.wait_reply(40)
    return (*fields.get("II"), fields.text())


# ---- asking ----------------------------------------------------------------------------------


def test_words_go_to_the_daemon_and_output_and_code_come_back(init, conn):
    asked = init.box("exec", "kid", "--", "ls", "-l")
    id, again, words = conn.request()
    assert (again, words) == (0, ["exec", "kid", "--", "ls", "-l"])
    conn.answer_all(id, out=b"a\0b\n", err=b"oops\n", code=42)
    assert ended(asked) == (42, "a\0b\n", "oops\n")


def test_help_needs_no_daemon(init):
    code, out, _ = ended(init.box("help"))
    assert code == 0 and "box fork" in out
    code, _, err = ended(init.box())
    assert code == 64 and "box fork" in err


def test_without_a_daemon_a_request_waits_for_one(init):
    asked = init.box("info")
    time.sleep(0.3)
    conn = init.conn()
    id, again, words = conn.request()
    assert (again, words) == (0, ["info"])
    conn.answer_all(id, out=b"{}\n")
    assert ended(asked) == (0, "{}\n", "")


def test_a_daemon_of_before_is_not_asked(init):
    old = init.conn(version=1)
    asked = init.box("info")
    assert old.run("a", "true").exit["code"] == 0
    assert not old.requests
    conn = init.conn()
    conn.answer_all(conn.request()[0], out=b"x")
    assert ended(asked)[1] == "x"


def test_a_request_survives_its_daemon_and_says_so(init):
    first = init.conn()
    asked = init.box("fork")
    id, again, _ = first.request()
    first.answer(id, 0, ic.OUT, b"one ").wait_closed()
    first.close()
    second = init.conn()
    assert second.request() == (id, 1, ["fork"])
    # What was given already is not given twice.
    second.answer(id, 0, ic.OUT, b"one ").wait_closed()
    second.answer(id, 1, ic.OUT, b"two").wait_closed()
    second.answer(id, 2, ic.DONE).wait_closed()
    assert ended(asked) == (0, "one two", "")


def test_an_answer_waits_until_it_is_taken(init, conn):
    sock = raw(init)
    sock.send(texts(["exec", "kid", "yes"]))
    id, _, _ = conn.request()
    sent, number = [], 0
    while True:
        channel = conn.answer(id, number, ic.OUT, b"y" * 32768)
        number += 1
        try:
            channel.wait(lambda c: c.closed, 0.5)
        except AssertionError:
            break
        assert number < 100, "nobody reads, and all of it was taken"
    for _ in range(number):
        assert len(sock.recv(65536)) == 32769
    channel.wait_closed()
    conn.answer(id, number, ic.DONE, code=7).wait_closed()
    assert sock.recv(100) == struct.pack("<BI", 3, 7)
    assert sock.recv(100) == b""


def test_the_daemon_hears_when_whoever_asked_is_gone(init, conn):
    asked = init.box("exec", "kid", "sleep", "100")
    id, _, _ = conn.request()
    asked.kill()
    ended(asked)
    assert conn.request() == (id, 0, [])
    with pytest.raises(InitError) as caught:
        conn.answer(id, 0, ic.OUT, b"x").wait_closed()
    assert caught.value.kind == "not_found"


def test_answers_out_of_order_are_refused(init, conn):
    asked = init.box("info")
    id, _, _ = conn.request()
    for bad in ((id, 1, ic.OUT), (id + 1, 0, ic.OUT)):
        with pytest.raises(InitError):
            conn.answer(*bad).wait_closed()
    conn.answer_all(id)
    assert ended(asked)[0] == 0


def test_only_root_may_ask(init, conn):
    os.chmod(init.dir.name, 0o755)
    os.chmod(init.self_path, 0o777)
    asked = init.box("info", user=65534)
    code, _, err = ended(asked)
    assert code == 77 and "only root" in err
    assert conn.run("a", "true").exit["code"] == 0 and not conn.requests


@pytest.mark.parametrize("packet", [
    b"x", b"\0" * 4, struct.pack("<I", 2**32 - 1), texts(["a"])[:-1], texts(["a"]) + b"x", texts(["a"] * 129),
    b"\xff" * 16384, b"\0" * 20000, struct.pack("<I", 1) + struct.pack("<I", 3) + b"a\0b\0",
])
def test_nonsense_is_refused_and_harms_nobody(init, conn, packet):
    sock = raw(init)
    sock.send(packet)
    assert sock.recv(1000)[0] == 2
    assert sock.recv(1000) == struct.pack("<BI", 3, 64)
    assert sock.recv(1000) == b""
    assert conn.run("a", "true").exit["code"] == 0 and not conn.requests


def test_many_who_say_nothing_do_not_keep_others_out_for_long(init, conn):
    silent = [raw(init) for _ in range(40)]
    code, _, err = ended(init.box("info"))
    assert code == 75 and "too many" in err
    time.sleep(5.5)
    asked = init.box("info")
    conn.answer_all(conn.request()[0])
    assert ended(asked)[0] == 0
    for sock in silent:
        sock.close()


def test_askers_leave_nothing_behind(init, conn):
    before = init.fds()
    for turn in range(30):
        sock = raw(init)
        if turn % 3:
            sock.send(texts(["info"]))
            id = conn.request()[0]
        if turn % 3 == 1:
            conn.answer_all(id)
        sock.close()
        if turn % 3 == 2:
            assert conn.request()[2] == []
    assert conn.run("a", "true").exit["code"] == 0
    assert init.fds() == before


# ---- who the box is --------------------------------------------------------------------------


def test_a_fork_answers_twice(rooted):
    """The daemon asks for the identity of the child in which the asker finds itself."""
    asked = [rooted.box("fork"), rooted.box("fork", "--json"),
             rooted.box("fork", "--", "sh", "-c", "echo $BOX_NAME $BOX_FORK_INDEX $BOX_PARENT"),
             rooted.box("snapshot")]
    conn = rooted.conn()
    for _ in asked:
        conn.request()
    conn.close()
    child = rooted.conn()
    assert told(child.identity("kid-2", "id2", "ada", 2)) == (0, 0, "")
    assert ended(asked[0]) == (0, "", "")
    assert ended(asked[1]) == (0, '{"child":true,"name":"kid-2","id":"id2","parent":"ada","index":2}\n', "")
    assert ended(asked[2]) == (0, "kid-2 2 ada\n", "")
    assert ended(asked[3]) == (0, "", "")


def test_after_a_rollback_a_snapshot_answers_again(rooted):
    asked = [rooted.box("snapshot"), rooted.box("snapshot", "--json"), rooted.box("rollback")]
    conn = rooted.conn()
    for _ in asked:
        conn.request()
    told(conn.restored(ic.ROLLED_BACK))
    assert ended(asked[0]) == (0, "", "")
    assert ended(asked[1]) == (0, '{"restored":true}\n', "")
    code, out, err = ended(asked[2])
    assert (code, out) == (3, "") and "came back" in err


def test_questions_are_asked_again_in_a_copy_and_after_a_sleep(rooted):
    asked = rooted.box("info")
    conn = rooted.conn()
    id, _, _ = conn.request()
    told(conn.restored(ic.WOKEN))
    assert conn.request() == (id, 1, ["info"])
    told(conn.identity())
    assert conn.request() == (id, 0, ["info"])
    conn.answer_all(id, out=b"new")
    assert ended(asked) == (0, "new", "")


def test_a_request_that_waits_through_a_sleep_is_answered(rooted):
    asked = rooted.box("fork")
    conn = rooted.conn()
    id, _, _ = conn.request()
    told(conn.restored(ic.WOKEN))
    assert conn.request() == (id, 1, ["fork"])
    conn.answer_all(id, out=b"kid\n")
    assert ended(asked) == (0, "kid\n", "")


def test_nothing_is_asked_while_the_box_is_told_who_it_is(rooted):
    hook(rooted, "fork.d", "slow", "sleep 1")
    conn = rooted.conn()
    telling = conn.identity()
    time.sleep(0.2)
    asked = rooted.box("info")
    with pytest.raises(AssertionError):
        conn.request(0.4)
    assert told(telling) == (1, 0, "")
    conn.answer_all(conn.request()[0])
    assert ended(asked)[0] == 0


def test_other_connections_go_and_programs_stay(rooted):
    old = rooted.conn()
    running = old.start("a", "sh", "-c", "echo before; sleep 1.5; echo after")
    running.wait(lambda c: c.out)
    child = rooted.conn()
    told(child.identity())
    with pytest.raises(ConnectionResetError):
        while True:
            old.step(5)
    again = child.attach("a", lossless=True).wait_closed()
    assert bytes(again.out) == b"before\nafter\n" and again.exit["code"] == 0


def test_machine_id_is_new_in_a_fork_and_stays_otherwise(rooted):
    path, dbus = rooted.root / "etc/machine-id", rooted.root / "var/lib/dbus/machine-id"
    path.write_text("0" * 32 + "\n")
    path.chmod(0o444)
    dbus.parent.mkdir(parents=True)
    dbus.symlink_to("/nonesuch")
    conn = rooted.conn()
    told(conn.restored(ic.WOKEN))
    assert path.read_text() == "0" * 32 + "\n"
    told(conn.identity())
    first = path.read_text()
    assert re.fullmatch(r"[0-9a-f]{32}\n", first) and first != "0" * 32 + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444 and dbus.is_symlink()
    told(conn.identity())
    assert path.read_text() != first
    path.write_text("")  # as most images bring it
    told(conn.identity())
    assert re.fullmatch(r"[0-9a-f]{32}\n", path.read_text())
    path.unlink()
    told(conn.identity())
    assert not path.exists()


def test_a_fork_that_gets_no_machine_id_is_refused(rooted):
    path = rooted.root / "etc/machine-id"
    path.write_text("0" * 32 + "\n")
    subprocess.run(["chattr", "+i", path], check=False)
    try:
        if not os.access(path, os.W_OK):
            asked, conn = rooted.box("fork"), rooted.conn()
            conn.request()
            with pytest.raises(InitError) as caught:
                conn.identity().wait_closed()
            assert "/etc/machine-id" in caught.value.message
            assert asked.poll() is None, "it must not believe it were served"
            asked.kill()
            ended(asked)
            return
    finally:
        subprocess.run(["chattr", "-i", path], check=False)
    pytest.skip("no file can be made immutable here")


def test_hooks_run_in_order_with_who_the_box_is(rooted):
    log = rooted.root / "log"
    for name in ("20-b", "10-a"):
        hook(rooted, "fork.d", name, f"echo {name} $BOX_EVENT $BOX_NAME $BOX_ID $BOX_PARENT $BOX_FORK_INDEX >> {log}")
    hook(rooted, "fork.d", "30-bad", "exit 3")
    hook(rooted, "fork.d", "40-killed", "kill -9 $$")
    hook(rooted, "fork.d", ".hidden", f"echo no >> {log}")
    hook(rooted, "fork.d", "50-plain", f"echo no >> {log}")
    (rooted.root / "etc/boxyard/fork.d/50-plain").chmod(0o644)
    hook(rooted, "restore.d", "r", f"echo $BOX_EVENT >> {log}")
    conn = rooted.conn()
    assert told(conn.identity("kid", "k1", "ada", 4)) == (4, 2, "30-bad: exit code 3")
    assert log.read_text() == "10-a fork kid k1 ada 4\n20-b fork kid k1 ada 4\n"
    assert told(conn.restored(ic.WOKEN)) == (1, 0, "")
    assert told(conn.restored(ic.ROLLED_BACK)) == (1, 0, "")
    assert log.read_text().endswith("wake\nrollback\n")


def test_a_hook_that_hangs_is_ended(rooted):
    hook(rooted, "fork.d", "hangs", "sleep 1000 & wait")
    hook(rooted, "fork.d", "later", f"touch {rooted.root}/later")
    conn = rooted.conn()
    begun = time.monotonic()
    assert told(conn.identity()) == (2, 1, "hangs: did not end in time")
    assert 4 < time.monotonic() - begun < 8
    assert (rooted.root / "later").exists()


def test_hooks_are_bounded_in_number(rooted):
    for number in range(40):
        hook(rooted, "fork.d", f"{number:02}", "true")
    ran, failed, failure = told(rooted.conn().identity())
    assert (ran, failed) == (32, 8) and failure.startswith("32: not run")


def test_a_second_telling_takes_the_place_of_the_first(rooted):
    hook(rooted, "fork.d", "slow", "sleep 2")
    first = rooted.conn()
    first.identity("a", "a1")
    time.sleep(0.2)
    assert told(rooted.conn().identity("b", "b1"))[:2] == (1, 0)


@pytest.mark.parametrize("op, request_", [
    (ic.IDENTITY, b""), (ic.IDENTITY, text("n" * 64) + text("") + text("") + b"\0" * 68),
    (ic.IDENTITY, text("n") + text("i") + text("p") + b"\0" * 67), (ic.RESTORED, b"\3" + b"\0" * 64),
    (ic.RESTORED, b"\1" + b"\0" * 63), (ic.ANSWER, b"\0" * 21), (ic.ANSWER, struct.pack("<QQBI", 0, 0, 3, 256)),
])
def test_malformed_requests_end_the_connection_alone(init, op, request_):
    conn = init.conn()
    conn.open(op, request_)
    with pytest.raises(ConnectionResetError):
        while True:
            conn.step(5)
    assert init.conn().run("a", "true").exit["code"] == 0
