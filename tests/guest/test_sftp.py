"""The SFTP server of box-init with real clients: by itself, and started by box-init as a user."""

import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

import initclient as ic

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.abspath(os.environ.get("BOX_INIT") or os.path.join(HERE, "../../build/box-init"))
SERVER = f"{BINARY} sftp-server"
GB = 1 << 30
ODD_NAMES = [b"with space", "grüße 漢字".encode(), b"new\nline", b"\xff\xfe invalid", b"-dash", b"quo'te\"", b"star*?[x]", b"\\"]


@pytest.fixture
def init():
    init = ic.Init(BINARY)
    yield init
    assert init.alive(), f"box-init died: {init.process.returncode}"
    assert init.stop() == 0


@pytest.fixture(params=["alone", "by box-init"])
def server(request):
    """The command that a client starts as its server."""
    if request.param == "alone":
        return SERVER
    path = request.getfixturevalue("init").path
    return f"{sys.executable} {HERE}/sftpbridge.py {path}"


def sftp(server, *commands, check=True):
    done = subprocess.run(["sftp", "-q", "-b", "-", "-D", server], input="\n".join(commands) + "\n", text=True,
                          capture_output=True, timeout=120)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if not line.startswith("sftp> "))


def fill(path, size):
    path.write_bytes(os.urandom(1 << 16) * (size >> 16) + os.urandom(size & 0xFFFF))
    return path


# ---- OpenSSH's client ------------------------------------------------------------------------


def test_files_go_and_come_whole(server, tmp_path):
    here = fill(tmp_path / "here", 20_000_001)
    os.utime(here, (10**9, 10**9))
    here.chmod(0o751)
    sftp(server, f"put -p {here} {tmp_path}/there", f"get -p {tmp_path}/there {tmp_path}/back")
    for name in ("there", "back"):
        assert (tmp_path / name).read_bytes() == here.read_bytes()
        assert (tmp_path / name).stat().st_mtime == 10**9
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o751


def test_transfers_are_resumed(server, tmp_path):
    whole = fill(tmp_path / "whole", 3_000_000)
    for name, command in (("up", "reput {0}/whole {0}/up"), ("down", "reget {0}/whole {0}/down")):
        (tmp_path / name).write_bytes(whole.read_bytes()[:1_234_567])
        sftp(server, command.format(tmp_path))
        assert (tmp_path / name).read_bytes() == whole.read_bytes()


def test_offsets_beyond_four_gigabytes(server, tmp_path):
    with open(tmp_path / "large", "wb") as large:
        large.truncate(5 * GB)
        large.seek(5 * GB)
        large.write(b"the end")
    with open(tmp_path / "part", "wb") as part:
        part.truncate(5 * GB)
    sftp(server, f"reget {tmp_path}/large {tmp_path}/part")
    with open(tmp_path / "part", "rb") as part:
        part.seek(5 * GB)
        assert part.read() == b"the end"
    listed = sftp(server, f"ls -l {tmp_path}/large")
    assert str(5 * GB + 7) in listed


def test_the_verbs_of_a_session(server, tmp_path):
    (tmp_path / "a").write_text("a")
    out = sftp(server, f"cd {tmp_path}", "pwd", "mkdir d", "rename a d/b", "chmod 640 d/b", "symlink b d/link",
               "ln d/b d/hard", "cp d/b d/copy", "ls -la d", "df", "rm d/hard", "mkdir d/e", "rmdir d/e")
    assert f"Remote working directory: {tmp_path}" in out
    lines = {line.split()[-1]: line.split() for line in out.splitlines() if line[:1] in "-dl"}
    assert lines["d/b"][0] == "-rw-r-----" and lines["d/b"][2] == "root"
    assert lines["d/link"][0] == "lrwxrwxrwx" and lines["d/copy"][4] == "1"
    assert "%Capacity" in out
    assert sorted(os.listdir(tmp_path / "d")) == ["b", "copy", "link"]
    assert os.readlink(tmp_path / "d/link") == "b" and stat.S_IMODE((tmp_path / "d/b").stat().st_mode) == 0o640


def test_refusals_are_told(server, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("")
    for command in ("get {0}/none", "rmdir {0}/full", "rm {0}/none", "ls {0}/none", "mkdir {0}/full", "put /etc/hosts {0}/none/x"):
        done = subprocess.run(["sftp", "-q", "-b", "-", "-D", server], input=command.format(tmp_path), text=True, capture_output=True, timeout=20)
        assert done.returncode == 1 and done.stderr, command
    assert (tmp_path / "full/x").exists()


def test_trees_with_odd_names(server, tmp_path):
    tree = os.fsencode(tmp_path / "tree")
    os.makedirs(tree + b"/sub dir")
    for name in ODD_NAMES:
        for folder in (tree, tree + b"/sub dir"):
            with open(folder + b"/" + name, "wb") as file:
                file.write(name)
    sftp(server, f"put -r {tmp_path}/tree {tmp_path}/there", f"get -r {tmp_path}/there {tmp_path}/back")
    for name in ("there", "back"):
        subprocess.run(["diff", "-r", tmp_path / "tree", tmp_path / name], check=True)


def test_ten_thousand_small_files(tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(10_000):
        (tmp_path / f"many/file{number}").write_text(str(number))
    sftp(SERVER, f"put -r {tmp_path}/many {tmp_path}/there")
    subprocess.run(["diff", "-r", tmp_path / "many", tmp_path / "there"], check=True)
    assert len(sftp(SERVER, f"ls -1 {tmp_path}/there").splitlines()) == 10_000


def test_scp(tmp_path):
    (tmp_path / "sftp-server").symlink_to(BINARY)
    copy = ["scp", "-q", "-r", "-p", "-D", tmp_path / "sftp-server"]
    (tmp_path / "tree/sub").mkdir(parents=True)
    fill(tmp_path / "tree/sub/large", 1_000_001)
    (tmp_path / "tree/a b").write_text("x")
    subprocess.run([*copy, tmp_path / "tree", f"box:{tmp_path}/there"], check=True, timeout=20)
    subprocess.run([*copy, f"box:{tmp_path}/there", tmp_path / "back"], check=True, timeout=20)
    for name in ("there", "back"):
        subprocess.run(["diff", "-r", tmp_path / "tree", tmp_path / name], check=True)


# ---- started by box-init ---------------------------------------------------------------------


def greet(conn, **options):
    channel = conn.start("s1", "/none/sftp-server", stdin=ic.SFTP, **options)
    channel.wait_reply()
    channel.data(b"\0\0\0\5\1\0\0\0\3")
    return channel.wait(lambda c: b"limits@openssh.com" in c.out)


def test_runs_as_the_user_from_his_home(init, tmp_path):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o600)
    bridge = f"{sys.executable} {HERE}/sftpbridge.py {init.path}"
    assert "Remote working directory: /root" in sftp(bridge, "pwd")
    assert "Remote working directory: /usr/games" in sftp(bridge + " games", "pwd") or not os.path.isdir("/usr/games")
    out = subprocess.run(["sftp", "-q", "-b", "-", "-D", bridge + " nobody"], input=f"get {tmp_path}/secret /dev/null", text=True, capture_output=True, timeout=20)
    assert out.returncode == 1 and not os.path.exists("/dev/null/secret")


def test_is_listed_by_its_name_and_forgotten_after_its_end(init):
    conn = init.conn()
    channel = greet(conn)
    assert [e["argv"] for e in conn.list()] == [["sftp-server"]]
    pid = ic.Fields(channel.reply).info()["pid"]
    with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/cmdline") as line:
        assert (comm.read(), line.read()) == ("sftp-server\n", "sftp-server\0")
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]
    channel.send(ic.END)
    channel.wait_closed()
    assert channel.exit["code"] == 0
    assert conn.list() == []


def test_ends_when_its_client_is_gone(init):
    conn = init.conn()
    pid = ic.Fields(greet(conn).reply).info()["pid"]
    conn.close()
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, "it waits for nobody"
        time.sleep(0.01)
    assert init.conn().list() == []


def test_nothing_of_what_was_sent_is_kept(init):
    conn = init.conn()
    greet(conn)
    info = conn.list()[0]
    assert info["oldest"] == info["newest"] > 0


def test_bytes_that_are_not_sftp_end_it(init):
    channel = greet(init.conn())
    channel.data(b"GET / HTTP/1.1\r\n\r\n")
    channel.wait_closed()
    assert channel.exit["code"] == 1 and b"at most 262144" in channel.err


def test_unknown_servers_are_refused(init):
    with pytest.raises(ic.InitError) as caught:
        init.conn().run("a", "true", stdin=ic.CONNECT + 1)
    assert caught.value.kind == "unsupported"
    with pytest.raises(ic.InitError):
        init.conn().run("a", "true", stdin=ic.SFTP, tty=True)


# ---- other clients ---------------------------------------------------------------------------


class Line(socket.socket):
    """What paramiko takes for a channel, if it has these two."""

    def get_name(self):
        return "line"

    def recv_ready(self):
        return bool(select.select([self], [], [], 0)[0])


@pytest.fixture
def line():
    """A socket to a server."""
    ours, theirs = socket.socketpair()
    ours = Line(fileno=ours.detach())
    process = subprocess.Popen(SERVER.split(), stdin=theirs, stdout=theirs)
    theirs.close()
    yield ours
    ours.close()
    assert process.wait(20) == 0


def test_paramiko(line, tmp_path):
    paramiko = pytest.importorskip("paramiko")
    client = paramiko.SFTPClient(line)
    data = os.urandom(5_000_000)
    with client.open(f"{tmp_path}/f", "w") as file:
        file.set_pipelined(True)
        file.write(data)
    with client.open(f"{tmp_path}/f") as file:
        file.prefetch()
        assert file.read() == data
    with client.open(f"{tmp_path}/f", "a") as file:
        file.write(b"more")
    assert client.stat(f"{tmp_path}/f").st_size == 5_000_004
    client.truncate(f"{tmp_path}/f", 3)
    client.utime(f"{tmp_path}/f", (5, 6))
    client.symlink("f", f"{tmp_path}/l")
    assert client.readlink(f"{tmp_path}/l") == "f" and client.lstat(f"{tmp_path}/l").st_mode & 0o120000 == 0o120000
    client.posix_rename(f"{tmp_path}/f", f"{tmp_path}/g")
    entries = {entry.filename: entry for entry in client.listdir_attr(str(tmp_path))}
    assert sorted(entries) == ["g", "l"] and entries["g"].st_mtime == 6 and entries["g"].longname.startswith("-rw-")
    with pytest.raises(FileNotFoundError):
        client.stat(f"{tmp_path}/f")
    assert client.normalize(".") == os.getcwd()


def test_sshfs(tmp_path):
    if not shutil.which("sshfs") or not os.path.exists("/dev/fuse"):
        pytest.skip("no sshfs, or no /dev/fuse")
    there, mount = tmp_path / "there", tmp_path / "mount"
    there.mkdir()
    mount.mkdir()
    ours, theirs = socket.socketpair()
    server = subprocess.Popen(SERVER.split(), stdin=theirs, stdout=theirs)
    theirs.close()
    client = subprocess.Popen(["sshfs", "-f", "-o", "passive", f"host:{there}", mount], stdin=ours, stdout=ours, stderr=subprocess.PIPE)
    ours.close()
    try:
        deadline = time.monotonic() + 10
        while not os.path.ismount(mount):
            if client.poll() is not None:
                pytest.skip(f"sshfs cannot mount here: {client.stderr.read().decode()}")
            assert time.monotonic() < deadline
            time.sleep(0.02)
        data = os.urandom(3_000_000)
        (mount / "f").write_bytes(data)
        assert (there / "f").read_bytes() == data == (mount / "f").read_bytes()
        (mount / "d").mkdir()
        (mount / "f").rename(mount / "d/g")
        os.symlink("g", mount / "d/l")
        (mount / "d/g").chmod(0o600)
        subprocess.run("for i in $(seq 200); do echo $i >f$i; done; cat f* | wc -l >n; rm f*", shell=True, cwd=mount / "d", check=True)
        assert sorted(os.listdir(there / "d")) == ["g", "l", "n"] and (there / "d/n").read_text() == "200\n"
        assert os.statvfs(mount).f_blocks > 0
    finally:
        subprocess.run(["fusermount", "-u", mount], check=False)
        client.terminate()
        client.wait(10)
        server.wait(10)


def test_a_client_that_does_not_read_is_not_read_either(line):
    """Requests wait within a bound; when answers are taken, all of them come."""
    line.sendall(b"\0\0\0\5\1\0\0\0\3")
    request = b"\0\0\0\x15\x10\0\0\0\1\0\0\0\x0c/etc/../etc/"
    total, sent = 200_000, 0
    line.setblocking(False)
    try:
        while sent < total * len(request):
            sent += line.send(request * 1000)
    except BlockingIOError:
        pass
    assert sent < 8_000_000
    line.setblocking(True)
    whole = request * (sent // len(request)) + request[:sent % len(request)]
    rest = request[len(whole) % len(request):] if len(whole) % len(request) else b""
    count = sent // len(request) + bool(rest)
    threading.Thread(target=line.sendall, args=(rest,)).start()
    answers, got = b"", 0
    while got < count + 1:
        answers += line.recv(1 << 20)
        while len(answers) >= 4 and len(answers) >= 4 + int.from_bytes(answers[:4], "big"):
            answers = answers[4 + int.from_bytes(answers[:4], "big"):]
            got += 1
    assert answers == b""


def test_waits_when_its_input_does_not_block():
    """Who starts it may have made it so; it must not spin."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with subprocess.Popen(SERVER.split(), stdin=theirs, stdout=theirs) as server:
        theirs.close()
        ours.sendall(b"\0\0\0\5\1\0\0\0\3")
        assert b"copy-data" in ours.recv(4096)
        time.sleep(1)
        with open(f"/proc/{server.pid}/stat") as file:
            ticks = sum(map(int, file.read().split()[13:15]))
        ours.close()
        assert server.wait(10) == 0 and ticks < 20
