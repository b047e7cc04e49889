"""A BOX_HOME that lies on btrfs: the pool is a part of it, and so are the layers of images.

The btrfs is a sparse file, mounted in the daemon's own mount namespace alone: nobody else sees it,
and its loop device
lives as long as the daemon or a box does. A daemon that comes later finds the device by its file.
"""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from boxtest import IMAGE, IMAGES, Yard, eventually, random_name

MIB = 1 << 20
MOUNT = 'mount -o loop "$0" "$BOX_HOME" && exec "$@"'
# Two files are one when device and number are the same; hard links are rightly so.
TWINS = r"""find / -xdev \( -path /proc -o -path /sys \) -prune -o ! -type d -links 1 -printf '%D %i %p\n' |
sort | awk '{ if (($1 " " $2) == last) print name " is " $3; last = $1 " " $2; name = $3 }'"""

pytestmark = pytest.mark.skipif(not shutil.which("mkfs.btrfs") or not os.path.exists("/dev/loop-control"),
                                reason="LOUD: needs mkfs.btrfs and loop devices")


def loop_devices(yard):
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found += [backing.parts[3]] if backing.read_text().startswith(str(yard.base)) else []
        except OSError:
            pass
    return found


@pytest.fixture(scope="module")
def native(image):
    yard = Yard()
    disk = yard.base / "disk.img"
    with open(disk, "wb") as file:
        file.truncate(3 << 30)
    subprocess.run(["mkfs.btrfs", "-q", disk], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yard.wrapper = ["unshare", "-m", "sh", "-c", MOUNT, disk]
    try:
        yard.start_daemon()
        [rootfs] = IMAGES.glob("[a-z0-9]*/rootfs")
        with subprocess.Popen(["tar", "-C", rootfs, "-c", "."], stdout=subprocess.PIPE) as tar:
            yard.box("image", "import", "-", IMAGE, stdin=tar.stdout, timeout=300)
        yield yard
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.fixture
def make_native(native):
    made = []

    def make(**body):
        made.append(native.new(**body))
        return made[-1]

    yield make
    for one in made:
        assert one.remove().status in (204, 404)


def expect_no_twins(box):
    assert int(box.out("find / -xdev -type f | wc -l")) > 5000
    assert box.out(TWINS) == ""


def test_the_pool_is_native_and_tells_whose_quotas_it_uses(native):
    shown = native.json("pool", "show")
    assert shown["kind"] == "native" and shown["quota"] in ("simple", "full")
    [check] = [c for c in native.json("doctor")["checks"] if c["name"] == "pool quota"]
    assert check["ok"] and "whole btrfs that BOX_HOME lies on" in check["detail"]
    assert "quotas were turned on for the whole file system" in native.log.read_text()


def test_no_two_files_of_a_box_look_alike(native, make_native):
    box = make_native()
    box.sh("mkdir /new; for i in $(seq 3000); do echo $i > /new/$i; done")
    expect_no_twins(box)
    box.sh("for f in /etc/*.conf /usr/bin/[a-d]*; do touch $f; done; echo x >> /etc/passwd")
    expect_no_twins(box)
    box.sh("for i in $(seq 3000); do cp /new/$i /dev/null && cat /new/$i > /copy || exit 1; done")
    native.box("stop", box.name, "-t", "1")
    native.box("start", box.name)
    expect_no_twins(box)
    assert box.out("tail -1 /etc/passwd; cat /new/17") == "x\n17"


def test_boxes_from_images_saved_one_upon_another(native, make_native):
    names = [random_name("s") for _ in range(3)]
    box = make_native()
    for number, name in enumerate(names):
        box.sh(f"for i in $(seq 500); do echo $i > /l{number}-$i; done; rm -f /usr/bin/yes; echo {number} > /etc/step")
        native.box("save", box.name, name)
        box = make_native(image=name)
        assert box.out(f"cat /etc/step /l{number}-500 /l0-1") == f"{number}\n500\n1"
        assert box.sh("test -e /usr/bin/yes", check=False).returncode == 1
        box.sh(f"for i in $(seq 500); do cat /l0-$i > /o{number}-$i || exit 1; done")
        expect_no_twins(box)
    assert len(native.json("image", "show", names[-1])["layers"]) == 4
    assert box.out("tar -cf - /l0-1 /l1-1 /l2-1 /o2-1 2>/dev/null | tar -tvf - | grep -c 'link to'", check=False) == "0"
    changes = native.api("GET", f"/v1/boxes/{box.id}/diff", expect=200).lines[:-1]
    assert [c["path"] for c in changes if c["change"] == "added"] == sorted(f"/o2-{i}" for i in range(1, 501))


def test_a_saved_dev_does_not_come_back(native, make_native):
    box, name = make_native(), random_name("s")
    box.sh("rm /dev/null /dev/zero; echo x > /dev/null; echo x > /dev/odd")
    native.box("save", box.name, name)
    box = make_native(image=name)
    assert box.out("stat -c %t:%T /dev/null /dev/zero") == "1:3\n1:5"
    box.sh("echo x > /dev/null; head -c 10 /dev/zero > /x")


def test_a_disk_has_its_limit(native, make_native):
    box = make_native(disk="48M")
    done = box.sh("dd if=/dev/zero of=/big bs=1M count=100", check=False)
    assert done.returncode != 0 and "quota exceeded" in done.stderr.lower()
    assert 30 * MIB < int(box.out("stat -c %s /big")) <= 48 * MIB
    eventually(lambda: "limit.disk" in [e["type"] for e in native.events(box=box.id)], 5, "the event is raised")


def test_programs_of_the_image_run_as_they_should(native, make_native):
    box = make_native(profile="nested")
    assert box.out("stat -c %a:%u /usr/bin/passwd; stat -c %U /usr/bin/sh") == "4755:0\nroot"
    assert box.exec("id", "-u", flags=("-u", "nobody")).stdout.strip() == "65534"
    assert box.out("echo one > /etc/motd; mv /usr/share/doc /usr/share/doc2; ls /usr/share/doc2 | wc -l") != "0"
    box.sh("rm -rf /usr/share/doc2; test ! -e /usr/share/doc; mkdir /usr/share/doc; rmdir /usr/share/doc")
    shared = native.new()
    assert shared.out("ls /usr/share/doc | wc -l") != "0"
    shared.remove()


def test_boxes_outlive_the_daemon_and_keep_the_device(native, make_native):
    box, stopped = make_native(), make_native()
    box.sh("for i in $(seq 200); do echo $i > /f$i; done")
    stopped.sh("echo kept > /kept")
    native.box("stop", stopped.name, "-t", "1")
    [device] = loop_devices(native)
    native.kill_daemon()
    assert loop_devices(native) == [device]
    native.start_daemon()
    assert loop_devices(native) == [device]
    assert native.json("pool", "show")["kind"] == "native"
    assert box.out("cat /f200; echo new > /new; cat /new") == "200\nnew"
    native.box("start", stopped.name)
    assert stopped.out("cat /kept") == "kept"
    expect_no_twins(box)
    expect_no_twins(stopped)


def test_without_boxes_the_device_goes_with_the_daemon(native):
    assert native.boxes() == []
    native.kill_daemon()
    eventually(lambda: loop_devices(native) == [], 5, "the loop device is gone")
    native.start_daemon()
    assert [i["name"] for i in native.json("image", "ls") if i["name"] == IMAGE] == [IMAGE]
    box = native.new()
    assert box.out("echo hi") == "hi"
    box.remove()
