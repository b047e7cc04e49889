"""box-init driven over its socket, as an ordinary process. BOX_INIT names the binary."""

import io
import os
import signal
import socket
import stat
import struct
import subprocess
import tarfile
import threading
import time

import pytest

import initclient as ic
from initclient import Fields, InitError, text

BINARY = os.environ.get("BOX_INIT") or os.path.join(os.path.dirname(__file__), "../../build/box-init")


@pytest.fixture
def init():
    if not os.path.exists(BINARY):
        pytest.skip(f"no box-init at {BINARY}; set BOX_INIT")
    init = ic.Init(BINARY)
    yield init
    assert init.alive(), f"box-init died: {init.process.returncode}"
    assert init.stop() == 0


@pytest.fixture
def conn(init):
    return init.conn()


def fails(kind, words, fn, *args, **options):
    with pytest.raises(InitError) as caught:
        fn(*args, **options)
    assert caught.value.kind == kind, caught.value
    assert words in caught.value.message, caught.value


# ---- programs --------------------------------------------------------------------------------


def test_echo_gives_output_and_exit(conn):
    done = conn.run("a1", "echo", "hi")
    assert bytes(done.out) == b"hi\n" and done.exit["reason"] == "exited" and done.exit["code"] == 0
    assert Fields(done.reply).info()["argv"] == ["echo", "hi"]
    assert [e[0] for e in conn.events] == [1, 2]
    assert conn.events[1][1]["reason"] == "exited"


def test_streams_code_and_signal_are_told_apart(conn):
    done = conn.run("a", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (bytes(done.out), bytes(done.err), done.exit["code"]) == (b"out\n", b"err\n", 7)
    done = conn.run("b", "sh", "-c", "kill -9 $$")
    assert (done.exit["reason"], done.exit["signal"]) == ("signaled", 9)


def test_failures_to_start_name_what_is_missing(conn, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    fails("not_found", "program 'nonesuch' not found in the box", conn.run, "a", "nonesuch")
    fails("not_found", "program '/no/such' not found", conn.run, "a", "/no/such")
    fails("not_found", "interpreter", conn.run, "a", str(script))
    fails("forbidden", "is not executable", conn.run, "a", str(plain))
    fails("not_found", "folder '/nowhere'", conn.run, "a", "true", cwd="/nowhere")
    fails("not_found", "no user 'zaphod'", conn.run, "a", "true", user="zaphod")
    fails("not_found", "no group 'zaphods'", conn.run, "a", "true", user="root:zaphods")
    fails("invalid", "KEY=VALUE", conn.run, "a", "true", env=["novalue"])
    fails("invalid", "exec id", conn.run, "A-b", "true")
    fails("invalid", "no program", conn.run, "a")
    assert conn.list() == []
    assert conn.run("a", "true").exit["code"] == 0


def test_second_start_with_the_same_id_is_refused(conn):
    conn.run("a", "true")
    fails("exists", "exec 'a' exists", conn.run, "a", "true")


def test_environment_and_folder(conn):
    done = conn.run("a", "env", env=["X=1", "HOME=/tmp"])
    lines = done.out.decode().split("\n")
    assert {"X=1", "HOME=/tmp", "USER=root", "LOGNAME=root"} <= set(lines)
    assert any(line.startswith("PATH=/usr/local/sbin:") for line in lines)
    assert not any(line.startswith("TERM=") for line in lines)
    assert conn.run("b", "pwd", cwd="/usr").out == b"/usr\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_user_and_groups(conn):
    assert conn.run("a", "id", "-u", user="nobody").out == b"65534\n"
    assert conn.run("b", "id", user="1234:4321").out.startswith(b"uid=1234 gid=4321")
    assert conn.run("c", "sh", "-c", "id -gn; echo $USER $HOME", user="daemon:tty").out == b"tty\ndaemon /usr/sbin\n"


def test_stdin_reaches_the_program_and_ends(conn):
    cat = conn.start("a", "cat", stdin=True)
    cat.data(b"early ")
    cat.wait_reply()
    cat.data(b"late")
    cat.send(ic.END)
    assert cat.wait_closed().out == b"early late"
    assert conn.run("b", "cat").out == b""


def test_large_stdin_flows_within_the_window(conn):
    data = os.urandom(8 << 20)
    cat = conn.start("a", "cat", stdin=True)
    cat.data(data)
    cat.send(ic.END)
    assert bytes(cat.wait_closed().out) == data


def test_input_for_a_program_that_left_is_dropped(conn):
    done = conn.start("a", "sh", "-c", "exec <&-; sleep 0.3", stdin=True)
    done.wait_reply()
    done.data(b"x" * (2 << 20))
    done.wait_closed()


def test_terminal(conn):
    done = conn.run("a", "sh", "-c", "tty; stty size; echo $TERM; ps -o tty= -p $$", tty=True, rows=40, cols=120)
    lines = done.out.decode().split("\r\n")
    assert lines[0].startswith("/dev/pts/") and lines[1] == "40 120" and lines[2] == "xterm-256color"
    assert lines[3].strip().startswith("pts/")


def test_terminal_input_resize_and_interrupt(conn):
    cat = conn.start("a", "sh", "-c", "trap 'stty size' WINCH; trap 'echo int; exit 3' INT; echo go; "
                     "while :; do sleep 0.05; done", tty=True)
    cat.wait(lambda c: b"go" in c.out)
    cat.send(ic.RESIZE, struct.pack("<HH", 50, 100))
    cat.wait(lambda c: b"50 100" in c.out)
    cat.data(b"\x03")
    assert cat.wait_closed().exit["code"] == 3
    cat = conn.start("b", "cat", tty=True)
    cat.data(b"line")
    cat.send(ic.END)
    assert cat.wait_closed().exit["code"] == 0


def test_signal_frame_and_op(conn):
    sleep = conn.start("a", "sleep", "100")
    sleep.wait_reply()
    sleep.send(ic.SIGNAL, struct.pack("<I", signal.SIGTERM))
    assert sleep.wait_closed().exit["signal"] == signal.SIGTERM
    conn.start("b", "sleep", "100", attach=False).wait_closed()
    conn.call(ic.EXEC_SIGNAL, text("b") + struct.pack("<I", 9))
    assert conn.attach("b").wait_closed().exit["signal"] == 9
    fails("state", "has ended", conn.call, ic.EXEC_SIGNAL, text("b") + struct.pack("<I", 9))
    fails("not_found", "no exec 'zz'", conn.call, ic.EXEC_SIGNAL, text("zz") + struct.pack("<I", 9))
    fails("invalid", "signal 99", conn.call, ic.EXEC_SIGNAL, text("b") + struct.pack("<I", 99))


def test_time_limit_ends_the_whole_session(conn):
    start = time.monotonic()
    done = conn.run("a", "sh", "-c", "sleep 100 & sleep 100", timeout_ms=200)
    assert done.exit["reason"] == "timeout" and time.monotonic() - start < 3
    fields = conn.call(ic.PROCESSES)
    _, count = fields.get("II")
    assert not [p for p in (fields.process() for _ in range(count)) if p["exec"] == "a"]


def test_time_limit_kills_what_ignores_it(conn):
    done = conn.start("a", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", timeout_ms=700)
    assert done.wait_closed(10).exit == dict(done.exit, reason="timeout", signal=9)


def test_background_child_does_not_hold_the_exec_open(conn):
    start = time.monotonic()
    done = conn.run("a", "sh", "-c", "sleep 5 & echo done")
    assert done.out == b"done\n" and 0.15 < time.monotonic() - start < 2
    start = time.monotonic()
    conn.run("b", "true")
    assert time.monotonic() - start < 0.15


def test_background_child_may_go_on_writing(conn, tmp_path):
    mark = tmp_path / "mark"
    conn.run("a", "sh", "-c", f"(sleep 0.5; echo late; echo late; touch {mark}) & true")
    time.sleep(1)
    assert mark.exists()


def test_orphans_are_reaped(init, conn):
    conn.run("a", "sh", "-c", "for i in 1 2 3 4 5; do (setsid sleep 0.1 &) ; done")
    time.sleep(0.6)
    children = subprocess.run(["ps", "--ppid", str(init.process.pid), "-o", "stat="], capture_output=True, text=True)
    assert "Z" not in children.stdout


def test_program_does_not_inherit_descriptors_or_signals(conn):
    done = conn.run("a", "sh", "-c", "ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status; ulimit -n")
    lines = done.out.decode().split()
    assert lines[:4] == ["0", "1", "2", "3"] and lines[4] == "SigBlk:"
    assert lines[5] == "0" * 16 and int(lines[7], 16) == 0 and lines[8] == "1024"


# ---- the journal -----------------------------------------------------------------------------


def test_output_is_kept_and_read_from_any_offset(init, conn):
    conn.run("a", "sh", "-c", "printf 0123456789; printf abc >&2")
    other = init.conn()
    again = other.attach("a", offset=4).wait_closed()
    assert (bytes(again.out), bytes(again.err)) == (b"456789", b"abc") and again.exit["newest"] == 13
    assert other.attach("a", offset=ic.OFFSET_END).wait_closed().out == b""
    info = other.list()[0]
    assert (info["oldest"], info["newest"], info["reason"]) == (0, 13, "exited")
    fails("not_found", "no exec 'b'", lambda: other.attach("b").wait_closed())


def test_exec_outlives_its_connection(init, conn):
    run = conn.start("a", "sh", "-c", "echo one; read x; echo $x", stdin=True)
    run.wait(lambda c: b"one" in c.out)
    conn.close()
    other = init.conn()
    again = other.attach("a", offset=4, lossless=True, input=True)
    again.data(b"two\n")
    assert again.wait_closed().out == b"two\n"


def test_lossy_reader_is_told_the_gap(conn):
    conn.run("a", "sh", "-c", "head -c 100000 /dev/zero", journal=4096, attach=False)
    while conn.list()[0]["reason"] == "running":
        time.sleep(0.02)
    late = conn.attach("a").wait_closed()
    assert late.gaps == [(0, 100000 - 4096)] and len(late.out) == 4096 and late.exit["newest"] == 100000


def test_slow_lossless_reader_makes_the_program_wait(init, conn):
    total = 8 << 20
    slow = conn.start("a", "sh", "-c", f"head -c {total} /dev/urandom | tee /dev/stderr 2>/dev/null", journal=8192)
    slow.give_back = False
    slow.wait_reply()
    time.sleep(0.5)
    other = init.conn()
    info = other.list()[0]
    assert info["reason"] == "running" and info["newest"] < ic.WINDOW_SIZE + 8192 + 1
    watcher = other.attach("a", offset=0, lossless=False)
    slow.return_window()
    assert len(slow.wait_closed().out) == total and not slow.gaps
    watcher.wait_closed()
    assert len(watcher.out) + sum(lost for _, lost in watcher.gaps) == total


def test_last_output_is_not_lost_to_a_slow_reader(conn):
    slow = conn.start("a", "sh", "-c", "head -c 700000 /dev/zero; sleep 3 &", journal=4096)
    slow.give_back = False
    slow.wait(lambda c: c.unreturned > 400000)
    time.sleep(1)
    slow.return_window()
    assert len(slow.wait_closed().out) == 700000


def test_slow_reader_that_leaves_frees_the_program(init, conn):
    slow = conn.start("a", "head", "-c", "4000000", "/dev/zero", journal=4096)
    slow.give_back = False
    slow.wait(lambda c: c.unreturned > 400000)
    other = init.conn()
    assert other.list()[0]["reason"] == "running"
    conn.close()
    assert other.attach("a", offset=ic.OFFSET_END).wait_closed().exit["newest"] == 4000000


def test_alternating_streams_keep_their_order(conn):
    done = conn.run("a", "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo o; echo e >&2; i=$((i+1)); done", journal=4096)
    assert (len(done.out), len(done.err)) == (6000, 6000) and not done.gaps


def test_read_without_following(conn):
    run = conn.start("a", "sh", "-c", "echo x; sleep 30")
    run.wait(lambda c: b"x" in c.out)
    now = conn.attach("a", follow=False).wait_closed()
    assert now.out == b"x\n" and now.exit is None
    run.send(ic.SIGNAL, struct.pack("<I", 9))
    run.wait_closed()


def test_finished_execs_are_bounded(conn):
    for i in range(80):
        conn.run(f"e{i}", "true")
    left = [e["id"] for e in conn.list()]
    assert len(left) == 64 and left[-1] == "e79" and "e0" not in left


def test_many_execs_leave_nothing_behind(init, conn):
    conn.run("warm", "true")
    before = init.fds()
    for i in range(300):
        assert conn.run(f"e{i}", "echo", str(i)).out.decode() == f"{i}\n"
    assert init.fds() == before


def test_many_execs_at_once(conn):
    running = [conn.start(f"e{i}", "sh", "-c", f"sleep 0.3; echo {i}") for i in range(150)]
    for i, run in enumerate(running):
        assert run.wait_closed(40).out == f"{i}\n".encode()


# ---- files -----------------------------------------------------------------------------------


def test_write_read_stat(conn, tmp_path):
    path = str(tmp_path / "f")
    data = os.urandom(3 << 20)
    made = conn.write(path, data)
    assert made["size"] == len(data) and stat.S_IMODE(made["mode"]) == 0o644
    assert conn.read(path) == data and conn.read(path, 100, 50) == data[100:150]
    assert conn.read(path, len(data) + 5) == b""
    os.chmod(path, 0o4711)
    assert stat.S_IMODE(conn.write(path, b"new")["mode"]) == 0o4711
    assert stat.S_IMODE(conn.write(path, b"", mode=0o600)["mode"]) == 0o600
    assert os.listdir(tmp_path) == ["f"]
    fails("not_found", "No such file", conn.write, str(tmp_path / "d/e/f"), b"x")
    conn.write(str(tmp_path / "d/e/f"), b"x", parents=True)
    assert (tmp_path / "d/e/f").read_bytes() == b"x"


def test_write_through_a_symlink(conn, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real/file")
    conn.write(str(tmp_path / "link"), b"a")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real/file").read_bytes() == b"a"
    (tmp_path / "loop").symlink_to("loop")
    fails("invalid", "symbolic links", conn.write, str(tmp_path / "loop"), b"a")
    (tmp_path / "magic").symlink_to("/proc/self/fd/0")
    fails("invalid", "magic link of /proc", conn.write, str(tmp_path / "magic"), b"a")


def test_paths_that_are_refused(conn, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    fails("invalid", "not absolute", conn.read, "etc/passwd")
    fails("invalid", "holds '..'", conn.read, "/tmp/../etc/passwd")
    fails("invalid", "magic link of /proc", conn.read, "/proc/self/exe")
    fails("invalid", "magic link of /proc", conn.read, "/proc/self/root/etc/passwd")
    fails("invalid", "is a directory", conn.read, "/tmp")
    fails("invalid", "is not a regular file", conn.read, str(tmp_path / "fifo"))
    fails("invalid", "is not a regular file", conn.read, "/dev/null")
    fails("invalid", "is not a regular file", conn.write, str(tmp_path / "fifo"), b"x")
    fails("not_found", "No such file", conn.stat, "/no/such")
    fails("invalid", "cannot be removed", conn.call, ic.REMOVE, text("/") + b"\1")
    assert conn.stat("/proc/self/exe")["target"]


def test_cancelled_write_leaves_the_old_file(init, conn, tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    channel = conn.open(ic.WRITE, text(str(path)) + struct.pack("<IB", 0, 0))
    channel.data(b"x" * 100000)
    deadline = time.monotonic() + 5
    while len(os.listdir(tmp_path)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    channel.close()
    channel.wait(lambda c: c.closed)
    while os.listdir(tmp_path) != ["f"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert path.read_bytes() == b"old"
    other = init.conn()
    other.open(ic.WRITE, text(str(path)) + struct.pack("<IB", 0, 0)).data(b"y" * 300000)
    other.close()
    while os.listdir(tmp_path) != ["f"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_cancelled_read_ends_its_worker(init, conn, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(bytes(20 << 20))
    channel = conn.open(ic.READ, text(str(big)) + struct.pack("<QQ", 0, 0))
    channel.give_back = False
    channel.wait(lambda c: c.unreturned > 400000)
    channel.close()
    channel.wait(lambda c: c.closed)
    time.sleep(0.3)
    assert not subprocess.run(["ps", "--ppid", str(init.process.pid), "-o", "pid="], capture_output=True).stdout


def test_mkdir_rename_chmod_remove(conn, tmp_path):
    top = str(tmp_path)
    conn.call(ic.MKDIR, text(top + "/a/b") + struct.pack("<IB", 0o700, 1))
    assert stat.S_IMODE(os.stat(top + "/a/b").st_mode) == 0o700
    conn.call(ic.MKDIR, text(top + "/a/b") + struct.pack("<IB", 0, 1))
    fails("exists", "File exists", conn.call, ic.MKDIR, text(top + "/a") + struct.pack("<IB", 0, 0))
    conn.call(ic.RENAME, text(top + "/a/b") + text(top + "/c"))
    conn.call(ic.CHMOD, text(top + "/c") + struct.pack("<I", 0o750))
    assert stat.S_IMODE(os.stat(top + "/c").st_mode) == 0o750
    (tmp_path / "c/x").write_text("")
    fails("invalid", "not empty", conn.call, ic.REMOVE, text(top + "/c") + b"\0")
    conn.call(ic.REMOVE, text(top + "/c") + b"\1")
    fails("not_found", "No such file", conn.call, ic.REMOVE, text(top + "/c") + b"\1")
    conn.call(ic.REMOVE, text(top + "/a") + b"\0")
    assert os.listdir(top) == []


def test_list_of_very_many_entries(conn, tmp_path):
    for i in range(12000):
        (tmp_path / f"file-{i}").touch()
    (tmp_path / "link").symlink_to("x" * 3000)
    entries = conn.listdir(str(tmp_path))
    assert len(entries) == 12001 and entries["link"]["target"] == "x" * 3000
    fails("invalid", "Not a directory", conn.listdir, str(tmp_path / "file-1"))


def make_tree(top):
    (top / "sub").mkdir(parents=True)
    (top / "sub/file").write_bytes(os.urandom(200000))
    (top / "sub/empty").touch(mode=0o600)
    os.link(top / "sub/file", top / "hard")
    (top / "soft").symlink_to("sub/file")
    os.mkfifo(top / "fifo")
    long = top / ("d" * 90) / ("e" * 200)
    long.mkdir(parents=True)
    (long / "grüße").write_text("x")
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(top / "sock"))
    os.chmod(top / "sub", 0o1750)
    os.utime(top / "sub", (1, 1000000000))


def test_tar_out_is_understood_by_others(conn, tmp_path):
    make_tree(tmp_path / "tree")
    with tarfile.open(fileobj=io.BytesIO(conn.tar_out(str(tmp_path / "tree")))) as tar:
        members = {m.name: m for m in tar.getmembers()}
        assert tar.extractfile("tree/sub/file" if members["tree/sub/file"].isreg() else "tree/hard").read() == \
            (tmp_path / "tree/sub/file").read_bytes()
    assert "tree/" + "d" * 90 + "/" + "e" * 200 + "/grüße" in members and "tree/sock" not in members
    assert {members["tree/hard"].type, members["tree/sub/file"].type} == {tarfile.REGTYPE, tarfile.LNKTYPE}
    assert members["tree/sub"].mode == 0o1750 and members["tree/sub"].mtime == 1000000000
    assert members["tree/soft"].linkname == "sub/file" and members["tree/fifo"].isfifo()


def test_tar_goes_out_and_in_again(conn, tmp_path):
    make_tree(tmp_path / "tree")
    (tmp_path / "to").mkdir()
    files, size = conn.tar_in(str(tmp_path / "to"), conn.tar_out(str(tmp_path / "tree")))
    assert size == 200001 and files == 6
    (tmp_path / "tree/sock").unlink()
    assert not subprocess.run(["diff", "-r", "--no-dereference", tmp_path / "tree/sub", tmp_path / "to/tree/sub"]).returncode
    again = tmp_path / "to/tree"
    assert os.stat(again / "hard").st_ino == os.stat(again / "sub/file").st_ino
    assert stat.S_IMODE(os.stat(again / "sub").st_mode) == 0o1750 and os.stat(again / "sub").st_mtime == 1000000000
    assert (again / ("d" * 90) / ("e" * 200) / "grüße").read_text() == "x"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_in_understands_others(conn, tmp_path, format):
    out = io.BytesIO()
    name = "d" * 60 + "/" + "f" * 80 if format == tarfile.USTAR_FORMAT else "d" * 150 + "/" + "f" * 150
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = 5, 0o4755, 1234567890
        tar.addfile(info, io.BytesIO(b"hello"))
    assert conn.tar_in(str(tmp_path), out.getvalue()) == (1, 5)
    made = tmp_path / name
    assert made.read_bytes() == b"hello" and stat.S_IMODE(made.stat().st_mode) == 0o4755
    assert made.stat().st_mtime == 1234567890


def archive(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, value in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
            else:
                info.linkname = value
                tar.addfile(info)
    return out.getvalue()


def test_tar_in_cannot_leave_the_folder(conn, tmp_path):
    to, outside = tmp_path / "to", tmp_path / "outside"
    to.mkdir()
    outside.mkdir()
    put = lambda *members: conn.tar_in(str(to), archive(*members))
    fails("invalid", "'/abs': absolute", put, ("/abs", tarfile.REGTYPE, b"x"))
    fails("invalid", "'a/../../x': names with '..'", put, ("a/../../x", tarfile.REGTYPE, b"x"))
    fails("invalid", "leads out", put, ("l", tarfile.SYMTYPE, str(outside)), ("l/x", tarfile.REGTYPE, b"x"))
    fails("invalid", "leads out", put, ("m", tarfile.SYMTYPE, "../outside"), ("m/x", tarfile.REGTYPE, b"x"))
    fails("invalid", "'..'", put, ("h", tarfile.LNKTYPE, "../outside/y"))
    fails("invalid", "leads out", put, ("n", tarfile.SYMTYPE, "../outside"), ("n", tarfile.DIRTYPE, ""))
    assert os.listdir(outside) == []
    put(("n", tarfile.REGTYPE, b"file over link"))
    assert (to / "n").read_bytes() == b"file over link" and os.listdir(outside) == []
    put(("in", tarfile.DIRTYPE, ""), ("ln", tarfile.SYMTYPE, "in"), ("ln/x", tarfile.REGTYPE, b"x"))
    assert (to / "in/x").read_bytes() == b"x"


def test_tar_in_is_strict(conn, tmp_path):
    good = archive(("a", tarfile.REGTYPE, b"x" * 3000))
    broken = bytearray(good)
    broken[0] ^= 1
    put = lambda data: conn.tar_in(str(tmp_path), bytes(data))
    fails("invalid", "checksum", put, broken)
    fails("invalid", "ends too early", put, good[:2000])
    fails("invalid", "ends too early", put, b"")
    fails("invalid", "checksum", put, b"\x1f\x8b" + bytes(2000))
    fails("invalid", "sparse file in the archive is malformed", put, archive(("s", tarfile.GNUTYPE_SPARSE, "")))
    fails("not_found", "No such file", conn.tar_in, str(tmp_path / "none"), good)


def test_tar_of_the_root_stays_on_its_file_system(conn):
    channel = conn.open(ic.TAR_OUT, text("/proc"))
    channel.wait(lambda c: len(c.main) > 10000 or c.closed)
    channel.close()
    channel.wait(lambda c: c.closed)


# ---- ports, processes, figures ---------------------------------------------------------------


def server(family, address, serve):
    sock = socket.socket(family)
    sock.bind((address, 0))
    sock.listen()
    thread = threading.Thread(target=lambda: serve(sock.accept()[0]), daemon=True)
    thread.start()
    return sock.getsockname()[1]


def echo_until_end(peer):
    data = bytearray()
    while part := peer.recv(65536):
        data += part
    peer.sendall(b"got " + bytes(data))
    peer.close()


@pytest.mark.parametrize("family,address", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_dial_both_ways_with_half_close(conn, family, address):
    port = server(family, address, echo_until_end)
    data = os.urandom(3 << 20)
    dial = conn.open(ic.DIAL, struct.pack("<H", port))
    dial.data(data)
    dial.send(ic.END)
    dial.wait_closed()
    assert dial.end and bytes(dial.main) == b"got " + data


def test_dial_to_nobody(conn):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.close()
    fails("unavailable", f"nothing listens on port {port} in the box",
          lambda: conn.open(ic.DIAL, struct.pack("<H", port)).wait_closed())


def test_processes_and_stats(conn):
    run = conn.start("a", "sh", "-c", "sleep 30; true")
    run.wait_reply()
    time.sleep(0.1)
    fields = conn.call(ic.PROCESSES)
    total, count = fields.get("II")
    mine = [p for p in (fields.process() for _ in range(count)) if p["exec"] == "a"]
    assert total >= count and {"sh -c sleep 30; true", "sleep 30"} == {p["command"] for p in mine}
    uptime, processes, running, _ = conn.call(ic.STATS).get("QIIQ")
    assert uptime < 10**9 and processes >= 3 and running == 1
    run.send(ic.SIGNAL, struct.pack("<I", 9))
    run.wait_closed()


def test_shutdown_ends_programs_and_init(init):
    conn = init.conn()
    run = conn.start("a", "sh", "-c", "trap '' TERM; echo go; while :; do sleep 0.1; done")
    run.wait(lambda c: b"go" in c.out)
    start = time.monotonic()
    conn.call(ic.SHUTDOWN, struct.pack("<I", 300))
    fails("state", "shutting down", conn.run, "b", "true")
    assert run.wait_closed().exit["signal"] == 9
    assert init.process.wait(5) == 0 and 0.25 < time.monotonic() - start < 4
    init.process = subprocess.Popen([BINARY, "--listen", init.path])
    init.conn()


# ---- hostile clients -------------------------------------------------------------------------


def frame(kind, channel, payload=b"", size=None):
    return struct.pack("<IBBHI", len(payload) if size is None else size, kind, 0, 0, channel) + payload


START_SLEEP = frame(ic.OPEN, 1, bytes([ic.EXEC_START]) + text("z") + ic.texts(["sleep", "9"]) + bytes(4) +
                    text("") * 2 + b"\0\1\1" + bytes(16))
GOOD_HELLO = frame(ic.HELLO, 0, struct.pack("<IHHQ", ic.MAGIC, 1, 1, 0))


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\n\r\n" + bytes(100),
    frame(ic.OPEN, 1, bytes([ic.EXEC_LIST])),
    frame(ic.HELLO, 0, b"short"),
    frame(ic.HELLO, 0, struct.pack("<IHHQ", 1, 1, 1, 0)),
    frame(ic.HELLO, 0, struct.pack("<IHHQ", ic.MAGIC, 9, 8, 0)),
    GOOD_HELLO + GOOD_HELLO,
    GOOD_HELLO + frame(77, 1),
    GOOD_HELLO + frame(ic.DATA, 0, bytes(9), size=1 << 30),
    GOOD_HELLO + frame(ic.OPEN, 0, b"\3"),
    GOOD_HELLO + frame(ic.OPEN, 1, b""),
    GOOD_HELLO + frame(ic.OPEN, 1, b"\xff"),
    GOOD_HELLO + frame(ic.OPEN, 1, b"\1" + os.urandom(50)),
    GOOD_HELLO + frame(ic.OPEN, 5, b"\3") + frame(ic.OPEN, 5, b"\3"),
    GOOD_HELLO + frame(ic.DATA, 7, bytes(20)),
    GOOD_HELLO + frame(ic.EXIT, 0),
    GOOD_HELLO + frame(ic.OPEN, 1, bytes([ic.READ]) + b"\xff\xff\xff\xff" + bytes(30)),
    GOOD_HELLO + START_SLEEP + frame(ic.DATA, 1, bytes(9 + 65536)) * 11,
    GOOD_HELLO + START_SLEEP + frame(ic.WINDOW, 1, struct.pack("<I", 1)),
], ids=range(18))
def test_malformed_frames_end_that_connection_only(init, conn, data):
    bad = socket.socket(socket.AF_UNIX)
    bad.connect(init.path)
    bad.settimeout(5)
    try:
        bad.sendall(data)
        while bad.recv(65536):
            pass
    except ConnectionError:
        pass
    assert conn.run("a", "echo", "ok").out == b"ok\n"


def test_channels_and_connections_are_bounded(init, conn):
    many = [conn.open(ic.EXEC_ATTACH, text("none") + bytes(11)) for _ in range(300)]
    conn.start("s", "sleep", "100", attach=False).wait_closed()
    readers = [conn.attach("s") for _ in range(257)]
    fails("limit", "channels", readers[-1].wait_closed)
    assert all(c.wait(lambda c: c.closed).error.kind == "not_found" for c in many)
    others = [init.conn() for _ in range(7)]
    with pytest.raises((ConnectionError, AssertionError)):
        init.conn()
    others[0].close()
    time.sleep(0.1)
    assert init.conn().list()[0]["id"] == "s"


def test_silent_connections_make_place(init):
    silent = [init.conn(hello=False) for _ in range(20)]
    assert init.conn().run("a", "echo", "hi").out == b"hi\n"
    del silent


def test_client_that_never_reads_is_cut_off_or_waits(init, conn):
    conn.run("a", "true")
    greedy = init.conn()
    greedy.sock.settimeout(2)
    try:
        for i in range(1, 200000):
            greedy.sock.sendall(frame(ic.OPEN, i, bytes([ic.EXEC_LIST])))
    except (OSError, TimeoutError):
        pass
    with open(f"/proc/{init.process.pid}/status") as status:
        rss = int(next(line for line in status if line.startswith("VmRSS")).split()[1])
    assert rss < 300_000 if "asan" in BINARY else rss < 32_000
    assert conn.run("b", "echo", "ok").out == b"ok\n"


def test_random_bytes_do_no_harm(init, conn):
    for i in range(300):
        bad = socket.socket(socket.AF_UNIX)
        bad.connect(init.path)
        try:
            bad.sendall(GOOD_HELLO)
            for n in range(1, 6):
                bad.sendall(frame(ic.OPEN, n, bytes([1 + (i + n) % 17]) + os.urandom(i % 60)))
                bad.sendall(frame(1 + (i * n) % 14, n, os.urandom(i % 40)))
        except OSError:
            pass
        bad.close()
    assert conn.run("a", "echo", "ok").out == b"ok\n"


# ---- times, and the last words ---------------------------------------------------------------


def test_readers_of_logs_hear_when_output_came(conn):
    began = time.time()
    ran = conn.run("a", "sh", "-c", "echo one; sleep 0.3; echo two")
    assert ran.out == b"one\ntwo\n" and not ran.times  # whoever started it hears none
    log = conn.attach("a").wait_closed()
    assert log.out == b"one\ntwo\n"
    assert [offset for offset, _ in log.times] == [0, 4]
    (_, first), (_, second) = log.times
    assert began - 0.1 < first < second - 0.2 < time.time()
    assert [offset for offset, _ in conn.attach("a", offset=5).wait_closed().times] == [0]


def test_a_daemon_of_before_hears_no_times(init):
    old = init.conn(version=2)
    old.run("a", "echo", "hello")
    log = old.attach("a").wait_closed()
    assert log.out == b"hello\n" and not log.times and log.exit["code"] == 0


def test_a_shutdown_lets_the_last_words_out(init):
    conn = init.conn()
    script = "trap 'seq 100000; exit 4' TERM; echo up; while :; do sleep 0.02; done"
    conn.start("a", "sh", "-c", script, attach=False).wait_closed()
    log = conn.attach("a")
    log.wait(lambda c: b"up" in c.out)
    conn.open(ic.SHUTDOWN, struct.pack("<I", 5000)).wait_closed()
    log.wait_closed()
    assert log.out.endswith(b"99999\n100000\n") and log.exit["code"] == 4
    assert init.process.wait(5) == 0
    init.process = subprocess.Popen([BINARY, "--listen", init.path])
    init.conn()
