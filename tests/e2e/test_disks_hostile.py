"""Disks, volumes and folders under hostile boxes, hasty clients and a daemon that dies at the wrong
moment."""
import contextlib
import fcntl
import os
import signal
import socket
import time

import pytest

from boxtest import box_cgroups, eventually, random_name
from fixtures import running_yard_with

pytestmark = pytest.mark.asan

STREAMS_MAX = 16


def ask(yard, method, path):
    """Sends a request and reads no answer."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(60)
    sock.connect(str(yard.sock))
    sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
    return sock


def layers_of(yard, image):
    return yard.api("GET", f"/v1/images/{image}", expect=200).json["layers"]


def measured(yard, image):
    """Layers of an image, topmost first, when all have a size."""

    def known():
        layers = layers_of(yard, image)
        return layers if all(layer["size_bytes"] for layer in layers) else None

    return eventually(known, 15, f"the layers of {image} are measured")


def quota_or_skip(yard):
    if yard.api("GET", "/v1/pool").json["quota"] == "none":
        pytest.skip("LOUD: the pool of this machine has no quota")


# ---- folders of the host ---------------------------------------------------------------------


@pytest.fixture
def rooted(image, tmp_path):
    os.chmod(tmp_path, 0o755)
    with running_yard_with(BOX_MOUNT_ROOTS="/") as yard:
        yield yard, tmp_path


def give(yard, source, **more):
    return yard.api("POST", "/v1/boxes", {"mounts": [{"source": str(source), "path": "/x", **more}]})


def test_the_daemons_own_folders_are_never_given(rooted):
    yard, _ = rooted
    (yard.home / "inner").mkdir()
    for folder in ("/", yard.base, yard.home, yard.home / "inner", yard.run_dir, yard.base.parent):
        refused = give(yard, folder, read_only=True)
        assert refused.status == 403, (folder, refused.body)
    os.rmdir(yard.home / "inner")
    assert yard.boxes() == []


def test_a_folder_of_roots_group_is_read_only(rooted):
    """Root of the box could leave a program there that runs as group root on the host."""
    yard, tmp = rooted
    (tmp / "a").mkdir()
    os.chown(tmp / "a", 1234, 0)
    assert give(yard, tmp / "a").status == 403
    assert give(yard, tmp / "a", read_only=True).status == 201
    os.chown(tmp / "a", 1234, 1234)
    assert give(yard, tmp / "a").status == 201


def test_what_lies_in_another_one_is_seen(rooted):
    """Whatever the order: volumes and folders come in lists of their own."""
    yard, tmp = rooted
    (tmp / "data").mkdir()
    os.chown(tmp / "data", 1234, 1234)
    box = yard.new(mounts=[{"source": str(tmp / "data"), "path": "/data"}],
                   volumes=[{"volume": "deep", "path": "/data/cache/deep"}, {"volume": "cache", "path": "/data/cache"}])
    box.sh("echo 1 > /data/cache/deep/x; echo 2 > /data/cache/y; echo 3 > /data/z")
    box.remove()
    other = yard.new(volumes=[{"volume": "deep", "path": "/d"}, {"volume": "cache", "path": "/c"}])
    assert other.out("cat /d/x /c/y") == "1\n2"
    assert (tmp / "data" / "z").read_text() == "3\n"


def test_a_volume_whose_place_the_box_took_away_is_told(yard, make_box):
    """A link in place of the mount point leads nowhere, and the box can be helped."""
    volume = random_name("v")
    box = make_box(volumes=[{"volume": volume, "path": "/v/data"}])
    box.sh("echo mine > /v/data/x")
    yard.box("stop", box.name, "-t", "0")
    upper = yard.pool / "boxes" / box.id / "upper"
    (upper / "v" / "data").rmdir()
    (upper / "v").rmdir()
    (upper / "v").symlink_to("/etc")
    refused = yard.box("start", box.name, check=False)
    assert refused.returncode != 0 and "link" in refused.stderr
    (upper / "v").unlink()
    yard.box("start", box.name)
    assert box.out("cat /v/data/x") == "mine"
    box.remove()
    yard.box("volume", "rm", volume)


# ---- disks made from saved images ------------------------------------------------------------


def test_each_generation_has_its_own_size_and_nothing_else(yard, make_box):
    if yard.api("GET", "/v1/pool").json["kind"] == "folder":
        pytest.skip("LOUD: no snapshots on this machine")
    names = [random_name("g") for _ in range(3)]
    image = None
    for generation, name in enumerate(names):
        box = make_box(profile="nested", **({"image": image} if image else {}))
        assert box.sh("cat /var/lib/containers/secret", check=False).returncode != 0, "containers are no part of an image"
        box.sh(f"echo secret > /var/lib/containers/secret; head -c {4 - generation}000000 /dev/urandom > /srv/{name}; sync")
        yard.box("save", box.name, name)
        image = name
        sizes = [layer["size_bytes"] // 1000000 for layer in measured(yard, name)]
        assert sizes[:generation + 1] == [4 - i for i in reversed(range(generation + 1))], sizes
    for layer in layers_of(yard, names[-1])[:3]:
        assert sorted(os.listdir(yard.pool / "layers" / layer["id"])) == ["layer.json", "mark", "upper"]


def test_files_are_told_apart_after_a_layer_was_cleaned(yard, make_box):
    from test_disks import twins
    image = None
    for depth in range(4):
        box = make_box(**({"image": image} if image else {}))
        box.sh(f"for i in $(seq 200); do echo {depth} > /srv/{depth}-$i; done; rm -f /srv/{depth}-1*")
        assert twins(box) == []
        image = random_name("c")
        yard.box("save", box.name, image)
        measured(yard, image)
    box = make_box(image=image)
    box.sh("for i in $(seq 200); do echo last > /srv/last-$i; done")
    assert twins(box) == []


# ---- keeping a workspace ---------------------------------------------------------------------


def test_a_workspace_is_kept_of_a_box_that_is_just_starting(fresh_yard):
    """The daemon stands still while both requests come in, so that the removal meets the start."""
    yard = fresh_yard
    for _ in range(5):
        box = yard.new()
        box.sh("echo precious > /workspace/x")
        yard.box("stop", box.name, "-t", "0")
        pid = yard.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        start = ask(yard, "POST", f"{box.path}/start")
        time.sleep(0.02)
        remove = ask(yard, "DELETE", f"{box.path}?force=true&keep_workspace=true")
        os.kill(pid, signal.SIGCONT)
        assert b"204" in remove.recv(4096).splitlines()[0]
        start.close(), remove.close()
        kept = yard.api("GET", f"/v1/workspaces/{box.id}/archive")
        assert kept.status == 200 and b"precious" in kept.body


def test_a_workspace_that_cannot_be_kept_leaves_nothing(image):
    """The pool is full: the box stays, and no half archive."""
    with running_yard_with(BOX_POOL_SIZE="256M", BOX_POOL_MAX="256M", BOX_SPARE_DISKS="0") as yard:
        box = yard.new()
        box.sh("head -c 150M /dev/urandom > /workspace/x; sync")
        yard.box("stop", box.name, "-t", "0")
        refused = yard.box("rm", "--keep-workspace", box.name, check=False)
        assert refused.returncode != 0 and "space" in refused.stderr.lower()
        assert os.listdir(yard.pool / "workspaces") == []
        assert box.show()["state"] == "stopped"
        yard.box("rm", box.name)


def test_killed_while_keeping(fresh_yard):
    """The next daemon goes on; half an archive that nobody finishes is swept."""
    yard = fresh_yard
    box = yard.new()
    box.sh("head -c 300M /dev/urandom > /workspace/x; echo end > /workspace/y")
    yard.box("stop", box.name, "-t", "0")
    (yard.pool / "workspaces" / "zzzz.tar").write_bytes(b"x" * 1000)
    sock = ask(yard, "DELETE", f"{box.path}?force=true&keep_workspace=true")
    eventually(lambda: (yard.pool / "workspaces" / f"{box.id}.tar").exists(), 5)
    yard.kill_daemon()
    sock.close()
    yard.start_daemon()
    eventually(lambda: yard.api("GET", box.path).status == 404, 20)
    [kept] = yard.api("GET", "/v1/workspaces").json["workspaces"]
    assert kept["box"] == box.name and kept["size_bytes"] >= 300 << 20
    assert sorted(os.listdir(yard.pool / "workspaces")) == [f"{box.id}.json", f"{box.id}.tar"]


# ---- streams ---------------------------------------------------------------------------------


def test_a_stream_that_is_cut_off_holds_up_nobody(fresh_yard, quick):
    """Its helper may be in the middle of a snapshot, which waits for all that is dirty."""
    yard = fresh_yard
    box = yard.new()
    box.sh("dd if=/dev/zero of=/big bs=1M count=1500 2>/dev/null", timeout=120)
    sock = ask(yard, "GET", f"{box.path}/diff")
    time.sleep(0.05)
    sock.close()
    worst = 0
    for _ in range(20):
        began = time.monotonic()
        assert yard.answers()
        worst = max(worst, time.monotonic() - began)
        time.sleep(0.01)
    assert worst < 0.3, worst
    eventually(lambda: os.listdir(yard.pool / "views") == [], 20, "the snapshot is gone")


def test_streams_are_bounded(fresh_yard):
    yard = fresh_yard
    box = yard.new()
    box.sh("head -c 8M /dev/urandom > /workspace/x")
    path = f"{box.path}/diff?format=tar"
    with contextlib.ExitStack() as open_streams:
        for _ in range(STREAMS_MAX):
            sock = open_streams.enter_context(ask(yard, "GET", path))
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
        refused = yard.api("GET", path)
        assert refused.status == 429 and refused.json["error"]["hint"]
        assert len(os.listdir(yard.pool / "views")) == STREAMS_MAX
        assert box.sh("true").returncode == 0
    eventually(lambda: os.listdir(yard.pool / "views") == [], 20, "all snapshots are gone")
    assert yard.api("GET", path).status == 200


# ---- a daemon that dies ----------------------------------------------------------------------


def test_a_limit_that_was_told_is_not_told_again_by_the_next_daemon(fresh_yard):
    """Else each restart would pause or stop boxes that once hit their limit of processes."""
    yard = fresh_yard
    box = yard.new(pids=20)
    box.sh("for i in $(seq 40); do sleep 1 & done; wait", check=False)

    def told():
        return [e for e in yard.events(box=box.id) if e["type"] == "limit.pids"]

    eventually(told, 5)
    time.sleep(1.5)
    before = len(told())
    yard.api("PATCH", box.path, {"on_limit": "pause"}, expect=200)
    yard.kill_daemon()
    yard.start_daemon()
    time.sleep(2.5)
    assert box.show()["state"] == "running"
    assert len(told()) == before


FIFREEZE, FITHAW = 0xC0045877, 0xC0045878


def test_a_box_whose_programs_hang_in_the_kernel_is_paused_all_the_same(image):
    """The pool stands still, so that a program hangs in the kernel and cannot be frozen: it is when
    it comes out."""
    with running_yard_with(BOX_SPARE_DISKS="0") as yard:
        if yard.api("GET", "/v1/pool").json["kind"] != "loop":
            pytest.skip("LOUD: no file system here that a test may stop")
        box = yard.new(pids=30, on_limit="pause")
        box.sh("cat > /tmp/w.sh <<'X'\nwhile :; do date > /workspace/x; sync; done\nX\ntrue")
        box.start("sh", "/tmp/w.sh")
        box.start("sh", "-c", "sleep 1.5; while :; do sleep 1 & done")
        time.sleep(0.5)
        pool = os.open(yard.pool, os.O_RDONLY)
        fcntl.ioctl(pool, FIFREEZE, 0)
        try:
            eventually(lambda: box.show()["state"] == "suspended", 8, "the box is paused")
        finally:
            fcntl.ioctl(pool, FITHAW, 0)
            os.close(pool)
        before = eventually(lambda: yard.api("GET", f"{box.path}/stats").json["cpu_us"])
        time.sleep(1)
        assert yard.api("GET", f"{box.path}/stats").json["cpu_us"] - before < 300000
        yard.box("resume", box.name)
        box.remove()


@pytest.mark.parametrize("state", ["running", "suspended"])
def test_a_box_is_as_frozen_as_its_row_says(fresh_yard, state):
    """The daemon died between freezing a box, or thawing it, and writing that down."""
    yard = fresh_yard
    box = yard.new()
    if state == "suspended":
        yard.box("suspend", box.name)
    yard.kill_daemon()
    files = [f"{group}/cgroup.freeze" for group in box_cgroups(yard.name, box.id)]
    switches = [file for file in files if os.path.exists(file)]
    if not switches:
        pytest.skip("LOUD: no cgroup v2 here")
    for switch in switches:
        with open(switch, "w") as file:
            file.write("1" if state == "running" else "0")
    yard.start_daemon()
    if state == "running":
        assert box.out("echo hi", timeout=10) == "hi"
    else:
        assert [open(switch).read().strip() for switch in switches] == ["1"] * len(switches)
        yard.box("resume", box.name)
        assert box.out("echo hi", timeout=10) == "hi"
