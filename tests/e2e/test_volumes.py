"""Volumes that outlive boxes, and folders of the host."""
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from boxtest import BOX_BIN, EXIT_NOT_FOUND, random_name
from fixtures import running_yard_with

pytestmark = pytest.mark.asan


@pytest.fixture
def volume(yard):
    name = random_name("v")
    yield name
    yard.box("volume", "rm", name, check=False)


def test_a_volume_outlives_its_boxes(yard, make_box, volume):
    yard.box("volume", "create", volume)
    one = make_box(volumes=[{"volume": volume, "path": "/data/cache"}])
    one.sh("echo kept > /data/cache/x; cp /bin/true /data/cache/run; useradd -m -u 4321 ann; chown ann /data/cache/x")
    assert one.sh("/data/cache/run").returncode == 0
    one.remove()
    two = make_box(volumes=[{"volume": volume, "path": "/elsewhere"}])
    assert two.out("cat /elsewhere/x; stat -c %u /elsewhere/x") == "kept\n4321"
    refused = yard.box("volume", "rm", volume, check=False)
    assert refused.returncode != 0 and two.name in refused.stderr
    two.remove()
    yard.box("volume", "rm", volume)
    assert volume not in yard.box("volume", "ls").stdout


def test_one_writer_many_readers(yard, make_box, volume):
    writer = make_box(volumes=[{"volume": volume, "path": "/v"}])
    writer.sh("echo 1 > /v/x")
    readers = [make_box(volumes=[{"volume": volume, "path": "/v", "read_only": True}]) for _ in range(3)]
    for reader in readers:
        assert reader.out("cat /v/x") == "1"
        assert "Read-only" in reader.sh("echo 2 > /v/x", check=False).stderr
        assert reader.sh("mount -o remount,rw /v", check=False).returncode != 0
    refused = yard.api("POST", "/v1/boxes", {"volumes": [{"volume": volume, "path": "/v"}]})
    assert refused.status == 409 and writer.name in refused.json["error"]["message"]
    yard.box("stop", writer.name, "-t", "0")
    other = make_box(volumes=[{"volume": volume, "path": "/v"}])
    other.sh("echo 3 > /v/x")
    assert readers[0].out("cat /v/x") == "3"
    refused = yard.box("start", writer.name, check=False)
    assert refused.returncode != 0 and other.name in refused.stderr


def test_a_volume_has_a_size(yard, make_box, volume):
    if yard.api("GET", "/v1/pool").json["quota"] == "none":
        pytest.skip("LOUD: the pool of this machine has no quota")
    yard.box("volume", "create", volume, "--size", "16M")
    box = make_box(volumes=[{"volume": volume, "path": "/v"}])
    assert "quota" in box.sh("dd if=/dev/zero of=/v/x bs=1M count=40", check=False).stderr.lower()
    yard.box("volume", "set", volume, "--size", "64M")
    box.sh("dd if=/dev/zero of=/v/x bs=1M count=40 conv=fsync")
    assert yard.json("volume", "show", volume)["limit_bytes"] == 64 << 20


@pytest.mark.parametrize("spec", [
    [{"volume": "../x", "path": "/v"}], [{"volume": "UP", "path": "/v"}], [{"volume": "a", "path": "v"}],
    [{"volume": "a", "path": "/"}], [{"volume": "a", "path": "/v"}, {"volume": "b", "path": "/v"}],
    [{"volume": "a"}], [{"path": "/v"}], "a", [{"volume": "a", "path": "/v", "x": 1}],
    [{"volume": "a", "path": "/proc/x"}], [{"volume": "a", "path": "/v/../etc"}]])
def test_bad_volumes_are_refused(yard, spec):
    refused = yard.api("POST", "/v1/boxes", {"volumes": spec})
    assert refused.status == 400, refused.body
    for name in ("a", "b"):
        yard.box("volume", "rm", name, check=False)


@pytest.fixture
def rooted(image, tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
        os.chown(folder, 1234, 1234)
    os.chmod(tmp_path, 0o755)
    with running_yard_with(BOX_MOUNT_ROOTS=str(root)) as yard:
        yield yard, root, outside


@pytest.mark.parametrize("profile", ["standard", "nested"])
def test_of_the_host_only_what_was_given_is_told(rooted, profile):
    """A folder's path stands in the line of its own mount, and nowhere else: see
    docs/isolation.md."""
    yard, root, _ = rooted
    yard.box("volume", "create", "v")
    box = yard.new(profile=profile, mounts=[{"source": str(root), "path": "/mnt/given"}],
                   volumes=[{"volume": "v", "path": "/mnt/volume"}])
    for when in ("new", "woken"):
        lines = box.out("cat /proc/self/mountinfo /proc/mounts /proc/self/cgroup").splitlines()
        words = (str(yard.base), root.parent.name, "/volumes/")
        telling = [line for line in lines if any(word in line for word in words)]
        given = {"/mnt/given", "/mnt/volume"}
        assert telling and all(given & set(line.split()) for line in telling), (when, telling)
        yard.box("hibernate", box.name)
    # A nested box cannot have it covered, for the sake of containers inside.
    assert (box.out("cat /proc/cmdline") == "") is (profile == "standard")


def test_a_folder_of_the_host(rooted):
    yard, root, _ = rooted
    (root / "in").write_text("hello\n")
    os.chown(root / "in", 1234, 1234)
    (root / "roots").write_text("secret")
    os.chmod(root / "roots", 0o600)
    box = yard.new(mounts=[{"source": str(root), "path": "/mnt/host"}])
    assert box.out("cat /mnt/host/in; stat -c %u /mnt/host/in") == "hello\n0"
    box.sh("echo back > /mnt/host/out")
    st = os.stat(root / "out")
    assert (st.st_uid, st.st_gid) == (1234, 1234) and (root / "out").read_text() == "back\n"
    assert box.sh("cat /mnt/host/roots", check=False).returncode != 0, "what is not the owner's stays closed"
    assert box.sh("chown 5:5 /mnt/host/in", check=False).returncode != 0
    done = yard.box("new", "--mount", f"{root}:/data:ro:uid=1000,gid=1000", "bob")
    assert done.returncode == 0
    assert yard.box("exec", "bob", "--", "stat", "-c", "%u:%g", "/data/in").stdout.strip() == "1000:1000"
    assert yard.box("exec", "bob", "--", "touch", "/data/x", check=False).returncode != 0


def test_only_below_the_roots(rooted):
    yard, root, outside = rooted
    (root / "link").symlink_to(outside)
    for source in (outside, root / "link", "/", "/etc"):
        refused = yard.api("POST", "/v1/boxes", {"mounts": [{"source": str(source), "path": "/x"}]})
        assert refused.status == 403, (source, refused.body)
        assert "mount_roots" in refused.json["error"]["hint"]
    missing = yard.api("POST", "/v1/boxes", {"mounts": [{"source": str(root / "missing"), "path": "/x"}]})
    assert missing.status == 404 and "does not exist on this machine" in missing.json["error"]["message"], "root may know what is there"


def test_roots_own_folder_is_read_only(rooted):
    yard, root, _ = rooted
    (root / "r").mkdir()
    assert yard.api("POST", "/v1/boxes", {"mounts": [{"source": str(root / "r"), "path": "/x"}]}).status == 403
    box = yard.new(mounts=[{"source": str(root / "r"), "path": "/x", "read_only": True}])
    assert box.sh("touch /x/y", check=False).returncode != 0


@pytest.fixture
def homes(image, tmp_path):
    """No mount_roots; the folders of uid 1234, of uid 4321 and of root."""
    os.chmod(tmp_path, 0o755)
    for name, uid in {"mine": 1234, "his": 4321, "roots": 0}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
        for path in (tmp_path / name, tmp_path / name / "f"):
            os.chown(path, uid, uid)
    with running_yard_with() as yard:
        os.chmod(yard.base, 0o755)
        os.chmod(yard.sock.parent, 0o755)
        os.chmod(yard.sock, 0o666)
        yield yard, tmp_path


def test_as_a_user_with_the_command_line(homes):
    yard, hidden = homes
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)  # all folders above it can be entered, unlike those of pytest
        os.chmod(top, 0o755)
        program = shutil.copy(BOX_BIN, top / "box")
        (top / "mine").mkdir()
        (top / "mine" / "f").write_text("mine")
        os.chown(top / "mine", 1234, 1234)

        def new(spec):
            return subprocess.run([program, "new", "--rm", "--mount", spec, "--", "sh", "-c", "cat /x/f; echo n > /x/n"], env=yard.env,
                                  user=1234, group=1234, extra_groups=[], capture_output=True, text=True, timeout=60)

        done = new(f"{top}/mine:/x")
        assert done.stdout == "mine" and os.stat(top / "mine" / "n").st_uid == 1234, done
        assert "belongs to you" in new(f"{hidden}/his:/x").stderr
        missing = new(f"{top}/missing:/x")
        assert missing.returncode == EXIT_NOT_FOUND and "does not exist" in missing.stderr and "mount_roots" not in missing.stderr


def ask_as(yard, uid, mount):
    """POST /v1/boxes through the socket as a user of the machine: status and answer."""
    script = f"""
import http.client, os, socket
os.setgroups([])
os.setgid({uid})
os.setuid({uid})
conn = http.client.HTTPConnection("box")
conn.sock = socket.socket(socket.AF_UNIX)
conn.sock.connect({str(yard.sock)!r})
conn.request("POST", "/v1/boxes", {json.dumps({"mounts": [mount]})!r})
answer = conn.getresponse()
print(answer.status, answer.read().decode())
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    return int(out[:3]), json.loads(out[4:])


def test_who_asks_through_the_socket_gives_what_is_his(homes):
    yard, top = homes
    mine = {"source": str(top / "mine"), "path": "/x"}
    status, box = ask_as(yard, 1234, mine)
    assert status == 201 and box["mounts"][0]["by"] == 1234
    yard.box("exec", box["name"], "--", "sh", "-c", "cat /x/f; echo new > /x/g")
    assert os.stat(top / "mine" / "g").st_uid == 1234
    # It holds when the box starts again, whoever starts it, and not when the folder is somebody
    # else's by then.
    yard.box("stop", "-t", "0", box["name"])
    yard.box("start", box["name"])
    yard.box("stop", "-t", "0", box["name"])
    os.chown(top / "mine", 4321, 4321)
    assert yard.box("start", box["name"], check=False).returncode != 0
    os.chown(top / "mine", 1234, 1234)
    (top / "mine" / "link").symlink_to(top / "his")
    for source in ("his", "roots", "missing", "mine/link", ".", "/etc", "/"):
        for more in ({}, {"read_only": True}, {"root": True}):
            status, error = ask_as(yard, 1234, {"source": str(top / source), "path": "/x", **more})
            assert status == 403, (source, more)
            assert "belongs to you" in error["error"]["hint"] and "mount_roots" in error["error"]["hint"]
    status, error = ask_as(yard, 1234, {**mine, "by": 0})
    assert status == 400, "who asks is not for the asker to say"


def test_root_gives_anybodys_folder_but_not_the_machine(homes):
    yard, top = homes

    def new(spec):
        return yard.box("new", "--rm", "--mount", spec, "--", "sh", "-c", "cat /x/f; echo n > /x/n", check=False)

    assert new(f"{top}/his:/x").stdout == "his" and os.stat(top / "his" / "n").st_uid == 4321
    assert new(f"{top}/roots:/x:ro,uid=0,gid=0").stdout == "roots"
    refused = new(f"{top}/roots:/x")
    assert refused.returncode != 0 and ":ro" in refused.stderr and "--copy" in refused.stderr
    assert new(f"{top}/roots:/x:rw,root").stdout == "roots" and (top / "roots" / "n").exists()
    for source in ("/", "/etc", "/etc/ssl", "/proc", "/dev", "/run", str(yard.home), str(yard.run_dir), str(yard.base)):
        refused = new(f"{source}:/x:ro")
        assert refused.returncode != 0 and "cannot be mounted" in refused.stderr, source


def test_over_tcp_nothing_is_given_without_roots(homes):
    yard, top = homes
    token = yard.json("token", "create", "t", "--json")["token"]
    conn = http.client.HTTPConnection("127.0.0.1", yard.port())
    for source in ("mine", "roots"):
        conn.request("POST", "/v1/boxes", json.dumps({"mounts": [{"source": str(top / source), "path": "/x", "read_only": True}]}),
                     {"Authorization": f"Bearer {token}"})
        answer = conn.getresponse()
        assert answer.status == 403 and b"over TCP" in answer.read()


def test_none_means_nothing(image):
    with running_yard_with(BOX_MOUNT_ROOTS="none") as yard:
        refused = yard.api("POST", "/v1/boxes", {"mounts": [{"source": "/tmp", "path": "/x"}]})
        assert refused.status == 403 and "boxyard.conf" in refused.json["error"]["hint"]


@pytest.mark.parametrize("options", ["ro,uid=1000,gid=1000", "uid=1000,gid=1000,ro", "ro:uid=1000,gid=1000", "uid=1000:gid=1000:ro"])
def test_options_of_a_mount_in_any_order(homes, options):
    yard, top = homes
    done = yard.box("new", "--rm", "--mount", f"{top}/mine:/x:{options}", "--", "sh", "-c", "stat -c %u:%g /x/f; touch /x/no || echo ro")
    assert done.stdout == "1000:1000\nro\n"


def test_a_hostile_box_cannot_move_its_mount_point(yard, make_box, volume):
    box = make_box(volumes=[{"volume": volume, "path": "/v/data"}])
    box.sh("echo x > /v/data/f")
    yard.box("stop", box.name, "-t", "0")
    other = make_box()
    assert other
    # The box that stopped had its chance to replace /v by a link before: do it from inside.
    yard.box("start", box.name)
    box.sh("mkdir /w; ln -s /etc /w/link")
    yard.box("stop", box.name, "-t", "0")
    yard.box("start", box.name)
    assert box.out("cat /v/data/f") == "x"
