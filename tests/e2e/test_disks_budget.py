"""--disk holds for all that a tree of boxes keeps: disks, those from before rollbacks, snapshots,
forks, captured memory."""
import pytest

from boxtest import Box, eventually, random_name
from fixtures import running_yard_with

MIB = 1 << 20
SUBVOLUMES = """
import errno, fcntl, os, struct, sys
name = struct.pack("q4088s", 0, b"inner")
fd = os.open(sys.argv[1], os.O_RDONLY)
def order(number, size, write=True):
    return (1 if write else 2) << 30 | size << 16 | 0x94 << 8 | number
def tried(request, data):
    try:
        fcntl.ioctl(fd, request, bytearray(data) if data else 0)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
print(*[tried(order(*one), data) for one, data in [
    ((14, 4096), name),                                               # SUBVOL_CREATE
    ((24, 4096), struct.pack("qqq32x4040s", 0, 0, 0, b"inner2")),     # SUBVOL_CREATE_V2
    ((1, 4096), struct.pack("q4088s", fd, b"inner3")),                # SNAP_CREATE
    ((23, 4096), struct.pack("qqq32x4040s", fd, 0, 0, b"inner4")),    # SNAP_CREATE_V2
    ((15, 4096), name), ((26, 8), bytes(8)), ((8, 0), 0)]])           # SNAP_DESTROY, SUBVOL_SETFLAGS, SYNC
"""


@pytest.fixture(scope="module")
def counted(image):
    with running_yard_with() as yard:
        if yard.api("GET", "/v1/pool").json["quota"] == "none":
            pytest.skip("LOUD: the pool of this machine has no quota")
        yield yard


def fill(box, name, mib):
    """Random data; true if it fitted."""
    return box.sh(f"head -c {mib}M /dev/urandom > /root/{name} && sync -f /root/{name}", check=False).returncode == 0


def find(yard, name):
    return Box(yard, yard.api("GET", f"/v1/boxes/{name}", expect=200).json)


def disk_of(box):
    return box.show()["disk"]


@pytest.mark.parametrize("profile", ["standard", "nested"])
def test_no_box_makes_subvolumes(counted, profile):
    volume = random_name("v")
    counted.box("volume", "create", volume, "--size", "64M")
    box = counted.new(profile=profile, volumes=[{"volume": volume, "path": "/v"}])
    places = ["/v"] + (["/var/lib/containers"] if profile == "nested" else [])
    for place in places:
        assert set(box.python(SUBVOLUMES, place).stdout.split()) == {"ENOTTY"}, place
    # What programs use every day still works: copies that share their data.
    box.sh("head -c 1M /dev/urandom > /v/a && cp --reflink=always /v/a /v/b && cmp /v/a /v/b")
    box.remove()
    counted.box("volume", "rm", volume)


def test_going_back_from_inside_does_not_multiply_the_disk(counted):
    box = counted.new(disk=60 * MIB)
    written = 0
    for i in range(6):
        if not fill(box, f"f{i}", 20):
            break
        written += 20
        box.sh("box snapshot --disk-only && setsid box rollback --disk-only >/dev/null 2>&1 </dev/null &")
        eventually(lambda n=i: len(counted.json("timeline", box.name)["snapshots"]) >= 2 * (n + 1), 20, "it went back")
        eventually(lambda: box.sh("test -e /root/f0", check=False).returncode == 0, 20)
    assert 20 <= written <= 60
    assert disk_of(box)["tree_bytes"] <= 62 * MIB
    [row] = [line for line in counted.box("df", box.name).stdout.splitlines() if line.startswith(box.name)]
    assert "60" in row
    box.remove()


def test_forks_from_inside_share_one_disk_limit(counted):
    box = counted.new(disk=60 * MIB)
    names = box.sh("box fork -n 2").stdout.split()
    children = [find(counted, name) for name in names]
    assert fill(box, "own", 25) and fill(children[0], "own", 25)
    assert not fill(children[1], "own", 25)
    # From outside, the tree's first box says how much all of them may have.
    counted.box("set", box.name, "--disk", "120M")
    counted.box("set", children[1].name, "--disk", "120M")
    assert fill(children[1], "own", 40)
    for one in (*children, box):
        one.remove()


def test_a_fork_from_outside_has_a_limit_of_its_own(counted):
    box = counted.new(disk=60 * MIB)
    assert fill(box, "own", 40)
    child = find(counted, counted.json("fork", box.name)["children"][0]["name"])
    assert fill(child, "more", 40) and not fill(child, "evenmore", 40)
    child.remove()
    box.remove()


def test_captured_memory_asked_for_from_inside_counts(counted):
    box = counted.new(disk=100 * MIB)
    box.start("python3", "-c", "import os, time; kept = os.urandom(30 << 20); print('up', flush=True); time.sleep(1000)")
    eventually(lambda: counted.api("GET", f"{box.path}/stats").json["memory_bytes"] > 30 * MIB, 10)
    refused = None
    for i in range(6):
        done = box.sh(f"box snapshot kept{i}", check=False, timeout=60)
        if done.returncode:
            refused = done.stderr
            break
        eventually(lambda: counted.json("timeline", box.name)["snapshots"][-1]["safe"], 30, "it is packed")
    assert refused and "captured memory" in refused and "--disk-only" in refused, refused
    shown = disk_of(box)
    assert 30 * MIB <= shown["inside_states_bytes"] <= 100 * MIB
    assert shown["tree_bytes"] + shown["inside_states_bytes"] <= 102 * MIB
    # What memory takes, the disk cannot.
    assert not fill(box, "rest", 95)
    box.sh("rm /root/rest")
    for snapshot in counted.json("timeline", box.name)["snapshots"]:
        counted.box("forget", box.name, snapshot["id"])
    assert fill(box, "rest", 80)
    box.remove()


def test_copies_of_files_in_memory_are_not_counted_for_a_snapshot(counted):
    box = counted.new(disk=300 * MIB)
    assert fill(box, "large", 200)
    assert counted.api("GET", f"{box.path}/stats").json["memory_bytes"] > 150 * MIB, "the file is in memory, too"
    assert box.sh("box snapshot kept", check=False, timeout=60).stderr == ""
    assert disk_of(box)["inside_states_bytes"] < 60 * MIB
    box.remove()


def test_the_oldest_without_a_name_make_room(counted):
    box = counted.new(disk=120 * MIB)
    box.start("python3", "-c", "import os, time; kept = os.urandom(30 << 20); time.sleep(1000)")
    eventually(lambda: counted.api("GET", f"{box.path}/stats").json["memory_bytes"] > 30 * MIB, 10)
    for _ in range(6):
        box.sh("box snapshot", timeout=60)
        eventually(lambda: counted.json("timeline", box.name)["snapshots"][-1]["safe"], 30, "it is packed")
    kept = counted.json("timeline", box.name)["snapshots"]
    assert 1 <= len(kept) < 6
    assert disk_of(box)["inside_states_bytes"] <= 120 * MIB
    box.remove()


def test_a_full_disk_can_be_given_more(counted):
    box = counted.new(disk=20 * MIB)
    assert not fill(box, "f", 40)
    counted.box("set", box.name, "--disk", "80M")
    assert fill(box, "g", 40)
    box.remove()
