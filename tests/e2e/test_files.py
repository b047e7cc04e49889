"""Files in and out: cp both ways, single calls, archives, tricks with paths."""
import contextlib
import hashlib
import io
import os
import socket
import stat
import tarfile
import time

import pytest

from boxtest import BOX_BIN, EXIT_NOT_FOUND, eventually

pytestmark = pytest.mark.asan


def tar_of(*members, data=b"x"):
    """A tar of (name, kind, extra) members, as hostile as wanted."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, extra in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.mode = 0o644
            if kind == tarfile.REGTYPE:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            else:
                info.linkname = extra or ""
                tar.addfile(info)
    return out.getvalue()


def tree(folder):
    """Everything below folder: path -> (kind, mode, content or target)."""
    found = {}
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        if path.is_symlink():
            entry = ("link", 0, os.readlink(path))
        elif path.is_dir():
            entry = ("dir", stat.S_IMODE(info.st_mode), "")
        else:
            entry = ("file", stat.S_IMODE(info.st_mode), path.read_bytes())
        found[str(path.relative_to(folder))] = entry
    return found


@pytest.fixture
def folder(tmp_path):
    """A folder with the usual oddities."""
    top = tmp_path / "stuff"
    (top / "sub" / "empty").mkdir(parents=True)
    (top / "a.txt").write_text("hello\n")
    (top / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (top / "run.sh").chmod(0o755)
    (top / "sub" / "bytes").write_bytes(bytes(range(256)) * 100)
    (top / "sub" / "private").write_text("p")
    (top / "sub" / "private").chmod(0o600)
    (top / "empty").write_bytes(b"")
    (top / "link").symlink_to("a.txt")
    (top / "dangling").symlink_to("/no/such/target")
    (top / "ünïcode 文 name").write_text("u")
    (top / ("long" * 50)).write_text("l")
    (top / "sub" / ("d" * 120)).mkdir()
    (top / "sub" / ("d" * 120) / ("f" * 140)).write_text("deep")
    return top


# ---- cp --------------------------------------------------------------------------------------


def test_cp_a_file_in_and_out(yard, box, tmp_path):
    data = os.urandom(300_000)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "in").chmod(0o640)
    yard.box("cp", tmp_path / "in", f"{box.name}:/root/f")
    assert box.out("sha256sum /root/f; stat -c %a /root/f").split() == [hashlib.sha256(data).hexdigest(), "/root/f", "640"]
    yard.box("cp", f"{box.name}:/root/f", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_cp_into_a_folder_keeps_the_name(yard, box, tmp_path):
    (tmp_path / "f.txt").write_text("x")
    yard.box("cp", tmp_path / "f.txt", f"{box.name}:/tmp")
    assert box.out("cat /tmp/f.txt") == "x"
    (tmp_path / "d").mkdir()
    yard.box("cp", f"{box.name}:/tmp/f.txt", tmp_path / "d")
    assert (tmp_path / "d" / "f.txt").read_text() == "x"


def test_cp_a_folder_both_ways_is_the_same_folder(yard, box, folder, tmp_path):
    yard.box("cp", folder, f"{box.name}:/root/copy")
    assert box.out("/root/copy/run.sh; readlink /root/copy/link; cat /root/copy/link") == "ran\na.txt\nhello"
    yard.box("cp", f"{box.name}:/root/copy", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(folder)


def test_cp_a_folder_onto_an_existing_folder_goes_into_it(yard, box, folder, tmp_path):
    box.sh("mkdir /root/there")
    yard.box("cp", folder, f"{box.name}:/root/there")
    assert box.out("cat /root/there/stuff/a.txt") == "hello"
    (tmp_path / "here").mkdir()
    yard.box("cp", f"{box.name}:/root/there/stuff", tmp_path / "here")
    assert (tmp_path / "here" / "stuff" / "a.txt").read_text() == "hello\n"


def test_cp_dash_is_stdin_and_stdout(yard, box):
    data = bytes(range(256)) * 1000
    yard.box("cp", "-", f"{box.name}:/root/f", input=data, binary=True)
    assert yard.box("cp", f"{box.name}:/root/f", "-", binary=True).stdout == data


def test_cp_replaces_a_file(yard, box, tmp_path):
    box.sh("echo old > /root/f; chmod 600 /root/f")
    (tmp_path / "new").write_text("new")
    yard.box("cp", tmp_path / "new", f"{box.name}:/root/f")
    assert box.out("cat /root/f") == "new"


@pytest.mark.slow
def test_cp_a_big_file_both_ways_exactly(yard, box, tmp_path):
    size = 16 << 20 if "asan" in str(BOX_BIN) else 128 << 20
    block = os.urandom(1 << 20)
    with open(tmp_path / "big", "wb") as out:
        for n in range(size >> 20):
            out.write(n.to_bytes(8, "little") + block[8:])
    want = hashlib.file_digest(open(tmp_path / "big", "rb"), "sha256").hexdigest()
    before = yard.rss_kb()
    yard.box("cp", tmp_path / "big", f"{box.name}:/root/big")
    assert box.out("sha256sum /root/big").split()[0] == want
    yard.box("cp", f"{box.name}:/root/big", tmp_path / "back")
    assert hashlib.file_digest(open(tmp_path / "back", "rb"), "sha256").hexdigest() == want
    if "asan" not in str(BOX_BIN):
        assert yard.rss_kb() - before < 16 * 1024


@pytest.mark.slow
def test_ten_thousand_files_both_ways(yard, box, tmp_path):
    top = tmp_path / "many"
    for d in range(10):
        (top / str(d)).mkdir(parents=True)
        for f in range(1000):
            (top / str(d) / f"file-{f}").write_text(f"{d}/{f}")
    yard.box("cp", top, f"{box.name}:/root/many")
    assert box.out("find /root/many -type f | wc -l; cat /root/many/7/file-777") == "10000\n7/777"
    yard.box("cp", f"{box.name}:/root/many", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(top)


def test_list_of_ten_thousand_files_is_whole(yard, box):
    box.sh("mkdir /tmp/n; cd /tmp/n; seq 1 10000 | xargs touch")
    entries = yard.api("GET", f"{box.path}/files/list", query={"path": "/tmp/n"}, expect=200).json["entries"]
    assert sorted(int(e["name"]) for e in entries) == list(range(1, 10001))


def test_cp_of_what_is_not_there_says_so(yard, box, tmp_path):
    done = yard.box("cp", f"{box.name}:/no/such", tmp_path / "x", check=False)
    assert done.returncode == EXIT_NOT_FOUND and "/no/such" in done.stderr and not (tmp_path / "x").exists()
    done = yard.box("cp", tmp_path / "nothing", f"{box.name}:/tmp/x", check=False)
    assert done.returncode == EXIT_NOT_FOUND and "nothing" in done.stderr


def test_cp_out_of_devices_is_refused(yard, box, tmp_path):
    done = yard.box("cp", f"{box.name}:/dev/zero", tmp_path / "x", check=False, timeout=10)
    assert done.returncode and not (tmp_path / "x").exists()


# ---- a hostile box: what it makes must not hurt our side -------------------------------------


def test_folder_with_evil_links_stays_where_it_is_put(yard, box, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    box.sh(f"mkdir -p /root/evil; cd /root/evil; ln -s {outside} dir; ln -s {outside}/file out; ln -s / root;"
           "echo x > plain; mkfifo pipe")
    yard.box("cp", f"{box.name}:/root/evil", tmp_path / "got", check=False)
    assert (tmp_path / "got" / "plain").read_text() == "x\n"
    assert list(outside.iterdir()) == []
    assert os.readlink(tmp_path / "got" / "root") == "/"


def test_setuid_and_devices_do_not_come_out(yard, box, tmp_path):
    box.sh("mkdir /root/s; cp /bin/true /root/s/suid; chmod 6755 /root/s/suid")
    yard.box("cp", f"{box.name}:/root/s", tmp_path / "s")
    yard.box("cp", f"{box.name}:/root/s/suid", tmp_path / "one")
    for path in (tmp_path / "s" / "suid", tmp_path / "one"):
        assert not path.stat().st_mode & 0o6000
        assert path.stat().st_uid == os.getuid()


def test_target_that_is_a_link_on_our_side_is_not_replaced_by_box_content(yard, box, tmp_path):
    """Copying a folder over one that holds a link must not write through the link."""
    (tmp_path / "victim").write_text("safe")
    (tmp_path / "into" / "d").mkdir(parents=True)
    (tmp_path / "into" / "d" / "f").symlink_to(tmp_path / "victim")
    box.sh("mkdir -p /root/d; echo evil > /root/d/f")
    yard.box("cp", f"{box.name}:/root/d", tmp_path / "into", check=False)
    assert (tmp_path / "victim").read_text() == "safe"


# ---- single calls ----------------------------------------------------------------------------


def test_put_get_stat_delete(yard, box):
    assert box.put("/root/f", b"\x00data\xff").status in (200, 201, 204)
    got = box.get("/root/f")
    assert got.status == 200 and got.body == b"\x00data\xff"
    info = box.stat("/root/f").json
    assert (info["type"], info["size"], info["mode"], info["uid"]) == ("file", 6, "0644", 0)
    assert yard.api("DELETE", f"{box.path}/files", query={"path": "/root/f"}).status == 204
    assert box.get("/root/f").code == "not_found"


def test_get_takes_a_part(box):
    box.put("/root/f", b"0123456789")
    assert box.get("/root/f", offset=3, length=4).body == b"3456"
    assert box.get("/root/f", offset=8).body == b"89"
    assert box.get("/root/f", offset=100).body == b""


def test_put_sets_mode_and_makes_parents(box):
    assert box.put("/root/x/y/f", b"1").code == "not_found"
    assert box.put("/root/x/y/f", b"1", parents="true", mode="0751").status < 300
    assert box.stat("/root/x/y/f").json["mode"] == "0751"


def test_put_keeps_owner_and_mode_of_what_was_there(box):
    box.sh("echo old > /tmp/f; chown nobody /tmp/f; chmod 604 /tmp/f")
    box.put("/tmp/f", b"new")
    assert box.out("stat -c '%U %a' /tmp/f; cat /tmp/f") == "nobody 604\nnew"


def test_put_through_a_link_writes_its_target(box):
    box.sh("echo old > /root/real; ln -s real /root/l")
    box.put("/root/l", b"new")
    assert box.out("readlink /root/l; cat /root/real") == "real\nnew"


def test_list_stat_mkdir_rename_chmod(yard, box):
    def post(verb, **body):
        return yard.api("POST", f"{box.path}/files/{verb}", body)

    assert post("mkdir", path="/root/a/b", parents=True, mode="0700").status < 300
    assert post("mkdir", path="/root/p/q", parents=False).code == "not_found"
    box.put("/root/a/f", b"12")
    box.sh("ln -s f /root/a/l")
    entries = yard.api("GET", f"{box.path}/files/list", query={"path": "/root/a"}, expect=200).json["entries"]
    assert {(e["name"], e["type"]) for e in entries} == {("b", "dir"), ("f", "file"), ("l", "symlink")}
    assert [e["target"] for e in entries if e["name"] == "l"] == ["f"]
    assert box.stat("/root/a/b").json["mode"] == "0700"
    assert post("chmod", path="/root/a/f", mode="0600").status < 300
    assert box.stat("/root/a/f").json["mode"] == "0600"
    assert post("rename", **{"from": "/root/a/f", "to": "/root/a/g"}).status < 300
    assert box.get("/root/a/g").body == b"12"
    assert yard.api("DELETE", f"{box.path}/files", query={"path": "/root/a"}).status in (400, 409)
    assert yard.api("DELETE", f"{box.path}/files", query={"path": "/root/a", "recursive": "true"}).status == 204
    assert box.stat("/root/a").code == "not_found"


def test_recursive_delete_does_not_follow_links(yard, box):
    box.sh("mkdir -p /root/keep /root/gone; echo x > /root/keep/f; ln -s /root/keep /root/gone/l")
    yard.api("DELETE", f"{box.path}/files", query={"path": "/root/gone", "recursive": "true"}, expect=204)
    assert box.out("cat /root/keep/f") == "x"


@pytest.mark.parametrize("path", ["", "relative", "/root/../etc/passwd", "/..", "/root/..", "/a/../../b",
                                  "/" + "x" * 5000])
def test_tricky_paths_are_refused(yard, box, path):
    for reply in (box.get(path), box.put(path, b"x"), box.stat(path),
                  yard.api("DELETE", f"{box.path}/files", query={"path": path}),
                  yard.api("POST", f"{box.path}/files/mkdir", {"path": path}),
                  yard.api("GET", f"{box.path}/archive", query={"path": path})):
        assert reply.status in (400, 413), (path, reply.status, reply.body)
        assert reply.code in ("invalid", "too_large")


def test_nul_in_a_path_is_refused(yard, box):
    assert yard.api("GET", f"{box.path}/files?path=/etc/passwd%00.txt").status == 400


@pytest.mark.parametrize("path", ["/proc/1/root/etc/passwd", "/proc/self/cwd/x", "/proc/1/exe", "/proc/self/fd/0"])
def test_magic_links_of_proc_are_refused(box, path):
    reply = box.get(path)
    assert reply.status in (400, 403, 404), reply.body
    assert box.put(path, b"x").status in (400, 403, 404)


def test_links_stay_inside_the_box(yard, box):
    """A link to an absolute path means the box's own file, never the host's."""
    secret = yard.base / "secret"
    secret.write_text("host")
    box.sh(f"ln -s {secret} /root/l; ln -s ../../../../../../../../..{secret} /root/m")
    for path in ("/root/l", "/root/m", str(secret)):
        assert box.get(path).code == "not_found"
    box.put("/root/l", b"overwritten", parents="true")
    assert secret.read_text() == "host"


def test_folders_pipes_and_devices_are_not_files(box):
    box.sh("mkfifo /root/pipe")
    for path in ("/root", "/root/pipe", "/dev/zero", "/dev/tty"):
        reply = box.get(path)
        assert reply.status in (400, 403), (path, reply.status)
    assert box.put("/root", b"x").status in (400, 409)


def test_name_that_is_not_text_does_not_break_the_list(yard, box):
    box.python("import os; os.mkdir('/tmp/n'); open(b'/tmp/n/\\xff\\xfe','w'); open('/tmp/n/a\\nb','w')")
    reply = yard.api("GET", f"{box.path}/files/list", query={"path": "/tmp/n"}, expect=200)
    assert len(reply.json["entries"]) == 2


def test_partial_upload_leaves_the_old_file_and_nothing_else(yard, box):
    box.put("/root/f", b"old")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(str(yard.sock))
        sock.sendall(b"PUT %s/files?path=/root/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
                     % box.path.encode() + b"x" * 200_000)
        time.sleep(0.2)
    eventually(lambda: box.out("ls -A /root | grep -c boxyard- || true") == "0", what="no temporary file is left")
    assert box.out("cat /root/f") == "old"
    assert not any("box-init" in c for c in box.commands()[1:]) or len(box.commands()) < 4


def test_download_that_is_dropped_leaves_nothing_running(yard, box):
    box.sh("head -c 50000000 /dev/zero > /root/f")
    with yard.stream("GET", f"{box.path}/files", query={"path": "/root/f"}) as answer:
        answer.read(1000)
    eventually(lambda: len(box.commands()) <= 1, what="the worker is gone")


def test_file_that_grows_while_read_ends(yard, box):
    started = box.start("sh", "-c", "while :; do head -c 100000 /dev/zero; done >> /tmp/grow")
    time.sleep(0.2)
    assert len(box.get("/tmp/grow").body) > 0
    yard.api("POST", f"{box.path}/execs/{started['id']}/signal", {"signal": "KILL"})


# ---- archives --------------------------------------------------------------------------------


def test_archive_out_is_a_tar_any_reader_takes(yard, box, folder, tmp_path):
    yard.box("cp", folder, f"{box.name}:/root/stuff")
    box.sh("ln /root/stuff/a.txt /root/stuff/hard; mkfifo /root/stuff/fifo")
    data = yard.api("GET", f"{box.path}/archive", query={"path": "/root/stuff"}, expect=200).body
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = {m.name: m for m in tar.getmembers()}
        assert "stuff/a.txt" in members and members["stuff/link"].issym()
        kinds = {members["stuff/a.txt"].islnk(), members["stuff/hard"].islnk()}
        assert kinds == {True, False}, "one name is a hard link to the other"
        assert f"stuff/sub/{'d' * 120}/{'f' * 140}" in members
        assert tar.extractfile("stuff/sub/bytes").read() == bytes(range(256)) * 100


def test_archive_in_unpacks(yard, box):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("d/f")
        info.size, info.mode, info.mtime = 3, 0o750, 1_000_000_000
        tar.addfile(info, io.BytesIO(b"abc"))
    box.sh("mkdir /root/t")
    reply = yard.api("PUT", f"{box.path}/archive", out.getvalue(), query={"path": "/root/t"}, expect=200)
    assert reply.json["files"] >= 1 and reply.json["bytes"] == 3
    assert box.out("cat /root/t/d/f; stat -c '%a %Y' /root/t/d/f") == "abc750 1000000000"


@pytest.mark.parametrize("fmt", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archive_in_takes_the_usual_formats(yard, box, fmt):
    name = "d/" * 40 + "n" * (50 if fmt == tarfile.USTAR_FORMAT else 150)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fmt) as tar:
        info = tarfile.TarInfo(name)
        info.size = 4
        tar.addfile(info, io.BytesIO(b"deep"))
    box.sh("mkdir /root/t")
    yard.api("PUT", f"{box.path}/archive", out.getvalue(), query={"path": "/root/t"}, expect=200)
    assert box.out(f"cat /root/t/{name}") == "deep"


@pytest.mark.parametrize("members", [
    [("/root/evil", tarfile.REGTYPE, None)],
    [("../evil", tarfile.REGTYPE, None)],
    [("a/../../evil", tarfile.REGTYPE, None)],
    [("l", tarfile.SYMTYPE, "/root"), ("l/evil", tarfile.REGTYPE, None)],
    [("l", tarfile.SYMTYPE, ".."), ("l/evil", tarfile.REGTYPE, None)],
    [("evil", tarfile.LNKTYPE, "../../etc/passwd")],
    [("evil", tarfile.LNKTYPE, "/etc/passwd")],
], ids=["absolute", "dotdot", "inner-dotdot", "through-link", "through-dotdot-link", "hard-link", "hard-link-abs"])
def test_archive_cannot_write_outside_its_folder(yard, box, members):
    box.sh("mkdir -p /root/in/t")
    reply = yard.api("PUT", f"{box.path}/archive", tar_of(*members), query={"path": "/root/in/t"})
    assert reply.status in (400, 403, 404), reply.body
    assert box.out("find /root /etc -name evil") == ""


def test_garbage_is_no_archive(yard, box):
    whole = tar_of(("f", tarfile.REGTYPE, None))
    for data in (b"x" * 1024, whole[:300], whole[:513], whole[:100] + b"\xff" * 8 + whole[108:]):
        assert yard.api("PUT", f"{box.path}/archive", data, query={"path": "/tmp"}).code == "invalid"


def test_archive_of_the_whole_box_leaves_out_proc_and_sys(yard, box):
    with contextlib.closing(yard.connection(60)) as conn:
        conn.request("GET", f"{box.path}/archive?path=/etc")
        with tarfile.open(fileobj=conn.getresponse(), mode="r|") as tar:
            names = [m.name for m in tar]
    assert any(n.endswith("etc/passwd") for n in names)
    assert not any(n.startswith(("proc/", "sys/")) for n in names)


# ---- a box that does not run -----------------------------------------------------------------


def test_files_come_out_of_a_stopped_box(yard, box, tmp_path):
    """The same answers as from the running box, from its disk, and it stays stopped."""
    box.sh("mkdir -p /srv/d/sub; cd /srv/d; echo one > f; chmod 640 f; chown 1000:1000 f; ln -s f l; ln -s /srv/d/sub abs; ln f hard;"
           "ln -s /srv/d /srv/link; mkfifo pipe; head -c 2000000 /dev/urandom > big; rm -f /etc/motd; sync; touch /srv/d/$(printf 'x\\377')")
    queries = [("files/stat", {"path": p, "follow": f}) for p in ("/srv/d/l", "/srv/d", "/srv/link/abs", "/etc/motd", "/srv/d/f/x", "/nope")
               for f in ("true", "false")]
    queries += [("files/list", {"path": "/srv/d"}), ("files/list", {"path": "/srv/d/sub"}), ("files/list", {"path": "/srv/d/f"}),
                ("files", {"path": "/srv/d/big", "offset": 1000, "length": 5000}), ("files", {"path": "/srv/link/f"}),
                ("files", {"path": "/srv/d/pipe"}), ("files", {"path": "/srv/d"}), ("files", {"path": "/dev/null"})]

    def ask():
        answers = []
        for what, query in queries:
            got = yard.api("GET", f"{box.path}/{what}", query=query)
            body = got.json if what != "files" or got.status != 200 else got.body
            if what == "files/list" and got.status == 200:
                body = sorted(body["entries"], key=lambda e: e["name"])
            answers.append((what, query, got.status, got.code if got.status != 200 else body))
        return answers

    def tars():
        found = {}
        for path in ("/srv/d", "/srv/d/", "/srv/link", "/srv/link/", "/srv/d/f", "/srv/d/l"):
            body = yard.api("GET", f"{box.path}/archive", query={"path": path}, expect=200).body
            with tarfile.open(fileobj=io.BytesIO(body)) as tar:
                names = {m.name.partition("/")[2] if path == "/srv/link/" else m.name: (m.type, m.mode, m.uid, m.size, m.mtime)
                         for m in tar if m.name.rpartition("/")[2] not in ("f", "hard")}
            found[path] = names
        return found

    before, packed = ask(), tars()
    yard.box("stop", "-t", "0", box.name)
    after, packed_after = ask(), tars()
    for one, other in zip(before, after):
        if one[1]["path"] != "/dev/null":  # the box's devices are not on its disk
            assert one == other
    assert packed == packed_after
    yard.box("cp", f"{box.name}:/srv/d", tmp_path)
    assert (tmp_path / "d" / "f").read_text() == "one\n" and (tmp_path / "d" / "f").stat().st_nlink == 2
    yard.box("cp", f"{box.name}:/srv/link/f", tmp_path / "one")
    assert (tmp_path / "one").read_text() == "one\n"
    yard.box("cp", f"{box.name}:/srv/d/.", tmp_path / "all")
    assert (tmp_path / "all" / "big").stat().st_size == 2000000
    assert box.show()["state"] == "stopped"
    refused = yard.box("cp", tmp_path / "one", f"{box.name}:/srv/", check=False)
    assert refused.returncode != 0 and "box start" in refused.stderr
    yard.box("start", box.name)


def test_links_in_a_stopped_box_lead_nowhere_else(yard, box, tmp_path):
    (tmp_path / "secret").write_text("host")
    box.sh(f"ln -s {tmp_path}/secret /l; ln -s ../../../../../..{tmp_path}/secret /m; ln -s /proc/1/root/etc/hostname /p;"
           f"mkdir /srv/x; ln -s {tmp_path} /srv/x/dir; ln -s /proc/self/fd/0 /f")
    yard.box("stop", "-t", "0", box.name)
    for path in ("/l", "/m", "/p", "/f", "/srv/x/dir/secret"):
        assert box.get(path).status == 404, path
    yard.box("cp", f"{box.name}:/srv/x", tmp_path / "out")
    assert os.readlink(tmp_path / "out" / "dir") == str(tmp_path)
    yard.box("start", box.name)


def test_a_hibernated_box_wakes_for_its_files(yard, box):
    """What it has in memory (/dev/shm) is nowhere else."""
    box.sh("echo here > /dev/shm/f")
    yard.box("hibernate", box.name)
    assert yard.box("cp", f"{box.name}:/dev/shm/f", "-").stdout == "here\n"
