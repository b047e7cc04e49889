"""A box whose PID 1 belongs to an attacker sends what it likes to `box cp`: nothing of it may land
beside the name that was
asked for, through a link, over what is not its own, or as an escape sequence on the terminal.

The daemon passes a box's bytes on as they are, so a stand-in daemon on a socket of its own says
them to the real command."""
import contextlib
import io
import json
import os
import socketserver
import stat
import subprocess
import tarfile
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest

from boxtest import BOX_BIN, EXIT_NOT_FOUND, eventually

ESCAPES = "\x1b]0;owned\x07\x1b[2Jname\nsecond line\x9b"


def archive(*members):
    """(name, type, link or content[, mode]) as a tar; nothing is checked."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, rest, *mode in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = mode[0] if mode else 0o755
            info.uid = info.gid = 4242
            if kind == tarfile.REGTYPE:
                info.size = len(rest)
                tar.addfile(info, io.BytesIO(rest))
            else:
                info.linkname = rest
                info.devmajor, info.devminor = 1, 3
                tar.addfile(info)
    return out.getvalue()


FILE, DIR, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


class StandIn:
    """Answers `box cp` as a daemon whose box lies: stat says whatever `kind` is, archive and files
    are given."""

    def __init__(self, run):
        self.kind, self.tar, self.file = "dir", b"", b""
        self.run = run
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = urlsplit(self.path)
                if path.path.endswith("/files/stat"):
                    query = parse_qs(path.query)
                    body = json.dumps({"path": query["path"][0], "type": outer.kind, "size": len(outer.file),
                                       "mode": "4755", "uid": 0, "gid": 0}).encode()
                    kind = "application/json"
                elif path.path.endswith(("/archive", "/diff", "/export")):
                    body, kind = outer.tar, "application/x-tar"
                elif path.path.endswith("/files"):
                    body, kind = outer.file, "application/octet-stream"
                else:
                    body, kind = b"{}", "application/json"
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the command had enough of it
                    self.wfile.write(body)

            def address_string(self):
                return "stand-in"

            def log_message(self, *args):
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(str(run / "box.sock"), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def box(self, *args, cwd, check=True, **kw):
        env = dict(os.environ, BOX_RUN=str(self.run), BOX_HOME=str(self.run), HOME=str(cwd))
        done = subprocess.run([BOX_BIN, *map(str, args)], cwd=cwd, env=env, capture_output=True, timeout=30, **kw)
        if check:
            assert done.returncode == 0, done.stderr
        return done


@pytest.fixture
def liar(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    stand_in = StandIn(run)
    yield stand_in
    stand_in.server.shutdown()
    stand_in.server.server_close()


@pytest.fixture
def home(tmp_path):
    """The user's folder, with things that must stay as they are."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "authorized_keys").write_text("mine\n")
    (home / ".bashrc").write_text("mine\n")
    (home / "work").mkdir()
    return home


def snapshot(folder):
    return {str(p.relative_to(folder)): (stat.S_IFMT(p.lstat().st_mode), p.lstat().st_mode, p.lstat().st_uid,
                                         p.read_bytes() if p.is_file() and not p.is_symlink() else b"")
            for p in sorted(folder.rglob("*"))}


PLANTS = [
    (".bashrc", FILE, b"evil"), (".ssh/authorized_keys", FILE, b"evil"), ("../.bashrc", FILE, b"evil"),
    ("folder/../.bashrc", FILE, b"evil"), ("/tmp/planted-by-a-box", FILE, b"evil"), ("folder2/x", FILE, b"evil"),
    ("link", LINK, "/etc"), ("Folder/x", FILE, b"evil"), ("./.bashrc", FILE, b"evil"), (".", DIR, ""),
    ("folder/hard", HARD, ".bashrc"), ("folder/hard", HARD, "../.bashrc"), ("folder/hard", HARD, "/etc/passwd"),
    ("folder", LINK, ".ssh"),
]


@pytest.mark.parametrize("target", [".", "./", "named", "there", "../home"])
@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: f"{p[0]}-{p[1].decode()}")
def test_a_folder_brings_nothing_beside_itself(liar, home, plant, target):
    (home / "there").mkdir()
    before = snapshot(home)
    name = {"named": "named", "there": "there/folder"}.get(target, "folder")
    for members in ([("folder", DIR, ""), plant], [plant], [plant, ("folder", DIR, "")]):
        liar.tar = archive(*members)
        liar.box("cp", "b:/data/folder", target, cwd=home, check=False)
        after = snapshot(home)
        assert {k: v for k, v in after.items() if k != name and not k.startswith(name + "/")} == before, members
        assert not os.path.exists("/tmp/planted-by-a-box")
        assert not (home / name).is_symlink()


def test_contents_stay_in_their_folder_and_go_through_no_link(liar, home):
    (home / "work" / "out").symlink_to(home / ".ssh")
    for members in ([(".", DIR, ""), ("./out/authorized_keys", FILE, b"evil")],
                    [(".", DIR, ""), ("./a", LINK, "../.ssh"), ("./a/authorized_keys", FILE, b"evil")],
                    [("x", DIR, ""), ("x/out/authorized_keys", FILE, b"evil")]):
        liar.tar = archive(*members)
        assert liar.box("cp", "b:/.", "work", cwd=home, check=False).returncode != 0
        assert (home / ".ssh" / "authorized_keys").read_text() == "mine\n"


@pytest.mark.parametrize("kind", ["file", "dir", "contents"])
def test_a_link_an_earlier_copy_planted_is_not_written_through(liar, home, kind):
    liar.tar = archive(("p", DIR, ""), ("p/rc", LINK, str(home / ".bashrc")), ("p/keys", LINK, "../../.ssh"),
                       ("p/new", LINK, str(home / "made-by-the-box")))
    liar.box("cp", "b:/p", "work", cwd=home)
    assert os.readlink(home / "work" / "p" / "keys") == "../../.ssh"  # links themselves do come along
    before = snapshot(home)
    liar.file = b"evil"
    tries = {"file": [("b:/rc", "work/p/rc"), ("b:/rc", "work/p"), ("b:/authorized_keys", "work/p/keys"),
                      ("b:/authorized_keys", "work/p/keys/"), ("b:/authorized_keys", "work/p/keys/authorized_keys"),
                      ("b:/new", "work/p/new"), ("b:/new", "work/p/")],
             "dir": [("b:/x", "work/p/keys"), ("b:/x", "work/p/keys/"), ("b:/x", "work/p/keys/x"), ("b:/keys", "work/p")],
             "contents": [("b:/.", "work/p/keys"), ("b:/x/.", "work/p/keys/"), ("b:/.", "work/p/new")]}[kind]
    liar.kind = "file" if kind == "file" else "dir"
    liar.tar = archive(("x", DIR, ""), ("x/authorized_keys", FILE, b"evil"))
    for source, target in tries:
        done = liar.box("cp", source, target, cwd=home, check=False)
        assert done.returncode != 0 and b"link" in done.stderr, (source, target, done.stderr)
        assert snapshot(home) == before
    if kind == "file":
        assert b"give that path" in liar.box("cp", "b:/rc", "work/p/rc", cwd=home, check=False).stderr


def test_other_ways_out_follow_no_link_either(liar, home):
    """diff --tar, image export and workspace get -o write by the same rules."""
    (home / "work" / "x.tar").symlink_to(home / ".bashrc")
    (home / "work" / "ws").symlink_to(home / ".ssh")
    liar.tar = archive(("authorized_keys", FILE, b"evil"))
    before = snapshot(home)
    for words in (["diff", "b", "--tar", "work/x.tar"], ["image", "export", "i", "-o", "work/x.tar"],
                  ["workspace", "get", "w", "-o", "work/x.tar"], ["workspace", "get", "w", "work/ws"]):
        done = liar.box(*words, cwd=home, check=False)
        assert done.returncode != 0 and b"link" in done.stderr, (words, done.stderr)
        assert snapshot(home) == before
    (home / "work" / "y.tar.part").write_text("mine")
    liar.box("workspace", "get", "w", "-o", "work/y.tar", cwd=home)
    assert (home / "work" / "y.tar.part").read_text() == "mine"
    assert (home / "work" / "y.tar").read_bytes() == liar.tar


def test_modes_owners_and_nodes_are_ours(liar, home):
    liar.tar = archive(("f", DIR, "", 0o7777), ("f/tool", FILE, b"x", 0o6755), ("f/null", tarfile.CHRTYPE, ""),
                       ("f/disk", tarfile.BLKTYPE, ""), ("f/pipe", tarfile.FIFOTYPE, ""))
    liar.box("cp", "b:/f", ".", cwd=home)
    assert sorted(p.name for p in (home / "f").iterdir()) == ["tool"]
    for path in (home / "f", home / "f" / "tool"):
        assert not path.stat().st_mode & 0o7000 and path.stat().st_uid == os.getuid()
    liar.kind, liar.file = "file", b"x"
    for flag in ("-p", "-a"):
        liar.box("cp", flag, "b:/tool", "one", cwd=home)
        assert not (home / "one").stat().st_mode & 0o7000
        liar.kind = "dir"
        liar.box("cp", flag, "b:/f", "kept", cwd=home)
        assert not (home / "kept" / "tool").stat().st_mode & 0o7000
        liar.kind = "file"


def test_names_from_a_box_do_not_speak_to_the_terminal(liar, home):
    for members in ([("f", DIR, ""), ("f/" + ESCAPES, DIR, ""), ("f/" + ESCAPES, FILE, b"")],
                    [("f", DIR, ""), (ESCAPES, FILE, b"")], [(ESCAPES, FILE, b"")]):
        liar.tar = archive(*members)
        done = liar.box("cp", "b:/f", "got", cwd=home, check=False)
        assert done.returncode != 0 and done.stderr.count(b"\n") == 1
        assert not set(done.stderr[:-1]) & set(range(32)), done.stderr
    (home / "p").mkdir()
    (home / "p" / "l").symlink_to(ESCAPES)
    liar.kind, liar.file = "file", b"x"
    done = liar.box("cp", "b:/l", "p", cwd=home, check=False)
    assert done.returncode != 0 and not set(done.stderr[:-1]) & set(range(32)), done.stderr


def test_a_name_that_is_no_name_is_refused(liar, home):
    """`box cp b:/x/.. .` has no name for what it brings: what it holds comes, as with b:/x/../.
    ."""
    liar.tar = archive(("..", DIR, ""), ("../.bashrc", FILE, b"evil"))
    before = snapshot(home)
    liar.box("cp", "b:/x/..", "work", cwd=home, check=False)
    assert snapshot(home) == before


# ---- whole or not at all ---------------------------------------------------------------------


@pytest.fixture
def small(tmp_path):
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_the_old_file_and_no_half_one(liar, small):
    liar.kind, liar.file = "file", b"x" * (4 << 20)
    assert liar.box("cp", "b:/big", "new", cwd=small, check=False).returncode != 0
    assert list(small.iterdir()) == []
    (small / "big").write_text("old")
    done = liar.box("cp", "b:/big", ".", cwd=small, check=False)
    assert done.returncode != 0 and b"No space left" in done.stderr
    assert (small / "big").read_text() == "old" and [p.name for p in small.iterdir()] == ["big"]
    liar.kind = "dir"
    liar.tar = archive(("d", DIR, ""), ("d/a", FILE, b"whole"), ("d/big", FILE, liar.file))
    for words in (["b:/d", "."], ["b:/d", "e"], ["b:/d/.", "e"]):
        assert liar.box("cp", *words, cwd=small, check=False).returncode != 0
        assert [p.name for p in small.iterdir()] == ["big"], "a new folder is whole or not there"
    (small / "d").mkdir()
    done = liar.box("cp", "b:/d", ".", cwd=small, check=False)
    assert done.returncode != 0 and b"what was copied before the error is in it" in done.stderr
    assert [p.name for p in (small / "d").iterdir()] == ["a"]
    done = liar.box("workspace", "get", "w", "kept", cwd=small, check=False)
    assert done.returncode != 0 and not (small / "kept").exists()
    assert sorted(p.name for p in small.iterdir()) == ["big", "d"]
    for words in (["workspace", "get", "w", "-o", "ws.tar"], ["diff", "b", "--tar", "ws.tar"]):
        assert liar.box(*words, cwd=small, check=False).returncode != 0
        assert not (small / "ws.tar").exists()


@pytest.mark.parametrize("number", [2, 15, 1])
def test_ctrl_c_leaves_no_half_folder(yard, box, tmp_path, number):
    box.sh("mkdir -p /root/d && echo a >/root/d/a && truncate -s 8G /root/d/b")
    child = yard.spawn("cp", f"{box.name}:/root/d", tmp_path)
    eventually(lambda: list(tmp_path.glob(".box-*/*")), 10)
    child.send_signal(number)
    assert child.wait(10) == -number
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_leaves_no_half_file(yard, box, tmp_path):
    (tmp_path / "f").write_text("old")
    box.sh("truncate -s 8G /root/f")
    for number in (2, 15):
        child = yard.spawn("cp", f"{box.name}:/root/f", tmp_path / "f")
        eventually(lambda: len(list(tmp_path.iterdir())) > 1, what="it writes")
        child.send_signal(number)
        assert child.wait(10) == -number
        assert [p.name for p in tmp_path.iterdir()] == ["f"] and (tmp_path / "f").read_text() == "old"


# ---- from box to box -------------------------------------------------------------------------


@pytest.fixture
def other(yard):
    other = yard.new()
    yield other
    other.remove()


def test_cp_from_box_to_box(yard, box, other):
    a, b = box.name, other.name
    box.sh("mkdir -p /root/d/e; echo 1 > /root/d/f; echo 2 > '/root/d/e/g h'; ln -s f /root/d/l; ln /root/d/f /root/d/hard;"
           "chmod 750 /root/d/f; truncate -s 3M /root/d/sparse; mkfifo /root/d/pipe; head -c 3000000 /dev/urandom > /root/big")
    yard.box("cp", f"{a}:/root/d", f"{b}:/root/new")
    assert other.out("cd /root/new; find . | sort | tr '\\n' ' '; cat f 'e/g h'; readlink l; stat -c '%a %h %s' f sparse") == \
        ". ./e ./e/g h ./f ./hard ./l ./sparse 1\n2\nf\n750 2 2\n644 1 3145728"
    yard.box("cp", "-r", f"{a}:/root/d", f"{b}:/root/new")
    assert other.out("cat /root/new/d/f") == "1"
    yard.box("cp", f"{a}:/root/d/.", f"{b}:/srv")
    assert other.out("cat /srv/f") == "1"
    yard.box("cp", f"{a}:/root/big", f"{b}:/root/")
    assert other.out("md5sum < /root/big") == box.out("md5sum < /root/big")
    yard.box("cp", f"{a}:/root/big", f"{a}:/root/d/f", f"{b}:/tmp")
    assert other.out("ls /tmp | sort | tr '\\n' ' '").split() == ["big", "f"]
    assert yard.json("cp", f"{a}:/root/big", f"{b}:/root/big2", "--json")["bytes"] == 3000000


def test_cp_from_box_to_box_says_which_side_failed(yard, box, other):
    a, b = box.name, other.name
    done = yard.box("cp", f"{a}:/nothing", f"{b}:/root/", check=False)
    assert done.returncode == EXIT_NOT_FOUND and f"no '/nothing' in box '{a}'" in done.stderr
    done = yard.box("cp", f"{a}:/etc/hostname", f"{b}:/no/such/folder/x", check=False)
    assert done.returncode != 0 and "/no/such" in done.stderr
    done = yard.box("cp", f"{a}:/etc/hostname", "nobody:/x", check=False)
    assert done.returncode == EXIT_NOT_FOUND and "nobody" in done.stderr
