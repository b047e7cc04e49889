"""Volumes that outlive boxes, and folders of the host."""
import os

import pytest

from boxtest import random_name

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
    from fixtures import running_yard_with
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
        os.chown(folder, 1234, 1234)
    os.chmod(tmp_path, 0o755)
    with running_yard_with(BOX_MOUNT_ROOTS=str(root)) as yard:
        yield yard, root, outside


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
    for source in (outside, root / "link", "/", "/etc", root / "missing"):
        refused = yard.api("POST", "/v1/boxes", {"mounts": [{"source": str(source), "path": "/x"}]})
        assert refused.status == 403, (source, refused.body)
        assert "mount_roots" in refused.json["error"]["hint"]


def test_roots_own_folder_is_read_only(rooted):
    yard, root, _ = rooted
    (root / "r").mkdir()
    assert yard.api("POST", "/v1/boxes", {"mounts": [{"source": str(root / "r"), "path": "/x"}]}).status == 403
    box = yard.new(mounts=[{"source": str(root / "r"), "path": "/x", "read_only": True}])
    assert box.sh("touch /x/y", check=False).returncode != 0


def test_nothing_is_given_without_roots(yard):
    refused = yard.api("POST", "/v1/boxes", {"mounts": [{"source": "/tmp", "path": "/x"}]})
    assert refused.status == 403 and "boxyard.conf" in refused.json["error"]["hint"]


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
