"""Faults of boxes with a kernel of their own: QEMU or the daemon killed in the middle of an
operation, damaged files, a full disk. What happened is told, and no other box is touched.

BOX_TEST_VM_KILLS sets how often each is killed in each operation, BOX_TEST_SEED repeats a run as
far as timing lets it.
"""
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import states
from boxtest import SLOWNESS, Box, Yard, eventually, instance_cgroups, instance_processes, processes, read_proc
from fixtures import running_yard_with

KILLS = int(os.environ.get("BOX_TEST_VM_KILLS", "1"))
SEED = int(os.environ.get("BOX_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
SETTLED = ("running", "suspended", "hibernated", "stopped")
SMALL = "128M"
COUNTER = "i=0; while :; do echo $i > /dev/shm/count; i=$((i+1)); sleep 0.1; done"


@pytest.fixture(scope="module")
def vms(image):
    with running_yard_with(BOX_DRIVER="vm") as yard:
        about = yard.info()["drivers"]["vm"]
        if not about["available"]:
            pytest.skip(f"LOUD: no VM boxes on this machine: {about.get('reason')}")
        yard.box("new", "--name", "first", "--memory", SMALL, timeout=240)  # makes the template
        yard.box("rm", "-f", "first")
        yield yard


@pytest.fixture
def make_vm(vms):
    made = []

    def make(**body):
        body.setdefault("memory", SMALL)
        made.append(vms.new(**body))
        return made[-1]

    yield make
    for one in made:
        assert one.remove().status in (204, 404)


# ---- what is there ---------------------------------------------------------------------------


def qemu_of(yard, box):
    """The process of a box, by its cgroup."""
    found = {int(pid) for pid in states.box_processes(yard, box)}
    return next((pid for pid in found if b"qemu" in read_proc(pid, "comm")), None)


def left(yard):
    """What no box of the yard needs; layers and folders that are in use are not told."""
    root = f"/proc/{yard.daemon_pid()}/root"
    folders = [name for name in os.listdir(f"{root}{yard.run_dir}/vm") if not name.startswith(("member-", "box-ram"))]
    templates = set()
    for manifest in (yard.home / "vm" / "templates").glob("*/vm.json"):
        templates |= set(json.loads(manifest.read_text())["memory"])
    layers = {name.split(".")[0] for name in os.listdir(yard.home / "memory")} - templates
    groups = [folder for folder in instance_cgroups(yard.name) if "/tree-" in folder]
    return {what: found for what, found in {
        "folders": folders, "layers": layers, "cgroups": groups, "disks": states.folder_names(yard.pool / "boxes"),
        "snapshots": states.folder_names(yard.pool / "snapshots"), "states": states.folder_names(yard.home / "states"),
        "processes": strangers(yard), "dead": dead_qemus(yard)}.items() if found}


def dead_qemus(yard):
    """That the daemon does not reap."""
    ours = f") Z {yard.daemon_pid()} ".encode()
    return [pid for pid in processes() if ours in read_proc(pid, "stat") and b"qemu" in read_proc(pid, "comm")]


def strangers(yard):
    """QEMUs that are neither a box's nor wait for one."""
    waiting = {int((folder / "mark").read_text().split()[0]) for folder in (yard.run_dir / "vm").glob("member-*")
               if (folder / "mark").exists()}
    return [pid for pid in instance_processes(yard.name, yard.base) if b"qemu" in read_proc(pid, "comm") and pid not in waiting]


def nothing_is_left(yard):
    assert yard.boxes() == []
    eventually(lambda: not left(yard), 30, lambda: left(yard), every=0.3)


class Bystander:
    """A box that nobody touches: its program goes on, its QEMU is the same one."""

    def __init__(self, yard):
        self.yard = yard
        self.box = yard.new(memory=SMALL)
        self.program = self.box.start("sh", "-c", COUNTER)["id"]
        eventually(lambda: self.box.out("cat /dev/shm/count || true"), 20)
        self.qemu, self.count = qemu_of(yard, self.box), -1

    def check(self):
        assert qemu_of(self.yard, self.box) == self.qemu
        count = int(self.box.out("cat /dev/shm/count; sleep 0.15", timeout=30).split()[0])
        assert count > self.count, "it stands still"
        self.count = count


# ---- killed ----------------------------------------------------------------------------------


def act(yard, name, verb, moment):
    words = {"create": ("new", "--name", f"{name}-new", "--memory", SMALL), "snapshot": ("snapshot", name),
             "fork": ("fork", name, "-n", "2"), "rollback": ("rollback", name, moment), "hibernate": ("hibernate", name),
             "wake": ("wake", name)}
    return yard.spawn(*words[verb])


def end(client, patience=90):
    try:
        out, err = client.communicate(timeout=patience * SLOWNESS)
    except subprocess.TimeoutExpired:
        client.kill()
        raise AssertionError("a request never came back") from None
    return out.decode(), err.decode()


def settle(yard, box):
    """Usable: as it was, or started from its disk with the cause on record."""
    def calm():
        with contextlib.suppress(OSError, http.client.HTTPException):
            now = states.state(box)
            return now in SETTLED and (now != "running" or qemu_of(yard, box))

    eventually(calm, 60, box.show, every=0.05)
    shown = box.show()
    if shown["state"] == "stopped":
        assert shown["end"]["detail"], shown
        yard.box("start", box.name, timeout=120)
    elif shown["state"] != "running":
        yard.box("wake", box.name, timeout=120)
    assert box.out("cat /root/kept", timeout=60) == "kept", shown
    return shown


def kill_qemu(yard, boxes, over):
    """One of a box of ours, as soon as there is one; gives it."""
    while time.monotonic() < over:
        for box in boxes():
            if pid := qemu_of(yard, box):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                eventually(lambda gone=pid: not os.path.exists(f"/proc/{gone}"), 20)
                return pid
        time.sleep(0.002)
    return None


def ours(yard, besides):
    return [states.of(yard, one) for one in yard.boxes() if one["id"] not in besides]


def killed_round(yard, box, moment, bystander, verb, whom, when):
    if verb == "wake":
        states.hibernate(box)
    client = act(yard, box.name, verb, moment)
    time.sleep(when)
    if whom == "daemon":
        yard.kill_daemon()
        yard.start_daemon()
    else:
        besides = {bystander.box.id} | ({box.id} if verb == "create" else set())
        kill_qemu(yard, lambda: ours(yard, besides), time.monotonic() + 1)
    out, err = end(client)
    assert client.returncode == 0 or err.strip(), f"a failure without a word: {out}"
    settle(yard, box)
    bystander.check()
    for child in ours(yard, {bystander.box.id, box.id}):
        eventually(lambda one=child: states.state(one) in SETTLED, 60, every=0.05)
        if states.state(child) == "running" and qemu_of(yard, child):
            child.exec("true", timeout=30)
        else:
            assert eventually(lambda one=child: one.show()["end"]["detail"], 20, child.show)
        child.remove()
    return err


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["QEMU", "daemon"])
def test_killed_in_the_middle(vms, whom):
    print(f"BOX_TEST_SEED={SEED}")
    chance = random.Random(f"{SEED}{whom}")
    bystander = Bystander(vms)
    box = vms.new(memory=SMALL)
    with states.removed_afterwards(bystander.box, box):
        box.sh("echo kept > /root/kept; sync")
        moment = states.snapshot(box, "moment")["id"]
        for verb in ("create", "fork", "snapshot", "rollback", "hibernate", "wake") * KILLS:
            when = chance.random() * 0.8
            said = killed_round(vms, box, moment, bystander, verb, whom, when)
            print(f"{whom} killed {when:.3f} s after the begin of {verb}: {said.strip()}")
    nothing_is_left(vms)


# ---- damaged ---------------------------------------------------------------------------------


def top_layer(yard, before):
    """The layer that was not there before."""
    [found] = {name for name in os.listdir(yard.home / "memory") if "." not in name} - before
    return yard.home / "memory" / found


def layers(yard):
    return {name for name in os.listdir(yard.home / "memory") if "." not in name}


def flip_a_byte(path):
    with open(path, "r+b") as file:
        at = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        byte = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), at)


DAMAGES = {
    "flipped": flip_a_byte,
    "cut": lambda path: os.truncate(path, 4096),
    "no map": lambda path: os.unlink(f"{path}.map"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_memory_of_a_sleeper_is_told_and_its_disk_starts(vms, make_vm, how):
    other, box = make_vm(), make_vm()
    box.sh("echo kept > /root/kept; sync")
    before = layers(vms)
    states.hibernate(box)
    damaged = top_layer(vms, before)
    time.sleep(10.5)  # what was written a moment ago is not read again
    DAMAGES[how](damaged)
    refused = vms.box("wake", box.name, check=False, timeout=90)
    assert refused.returncode and damaged.name in refused.stderr, refused.stderr
    hint = re.search(r"'box ([a-z]+(?: [^']*)?)'[^']*'box (start [^']*)'", refused.stderr)
    assert hint, f"no way on is told: {refused.stderr}"
    for words in hint.groups():
        vms.box(*words.split(), timeout=120)
    assert box.out("cat /root/kept", timeout=60) == "kept"
    assert other.out("echo on") == "on"


@pytest.mark.slow
def test_damaged_memory_of_a_snapshot_leaves_the_box_alone(vms, make_vm):
    """The box was started since: a layer that a running box maps is its own memory too."""
    box = make_vm()
    before = layers(vms)
    made = states.snapshot(box)
    damaged = top_layer(vms, before)
    vms.box("stop", box.name, timeout=60)
    vms.box("start", box.name, timeout=120)
    program = box.start("sleep", "1000")["id"]
    time.sleep(10.5)
    flip_a_byte(damaged)
    qemu = qemu_of(vms, box)
    refused = vms.box("rollback", box.name, made["id"], check=False, timeout=90)
    assert refused.returncode and damaged.name in refused.stderr, refused.stderr
    assert "as it was before" in refused.stderr
    assert states.state(box) == "running" and box.get_exec(program)["state"] == "running"
    assert qemu_of(vms, box) == qemu and box.out("echo on") == "on"


@pytest.mark.slow
def test_a_layer_cut_under_a_running_box_ends_that_box_alone(vms, make_vm):
    other, box = make_vm(), make_vm()
    before = layers(vms)
    states.snapshot(box)
    os.truncate(top_layer(vms, before), 4096)
    eventually(lambda: states.state(box) == "stopped", 60, box.show)
    assert "memory" in box.show()["end"]["detail"], box.show()
    assert other.out("echo on") == "on"
    vms.box("start", box.name, timeout=120)
    assert box.out("echo up") == "up"


def template_files(yard):
    [folder] = [path for path in (yard.home / "vm" / "templates").iterdir()
                if json.loads((path / "vm.json").read_text())["ram"] == 128 << 20]
    [layer] = json.loads((folder / "vm.json").read_text())["memory"]
    return {"devices": folder / "devices", "layer": yard.home / "memory" / layer, "disk": yard.pool / "vm" / folder.name}


@pytest.mark.slow
@pytest.mark.parametrize("part", ["devices", "layer", "disk"])
def test_a_template_without_a_part_is_made_again(vms, part):
    template_files(vms)[part].unlink()
    box = vms.new(memory=SMALL)
    assert box.out("echo up") == "up"
    box.remove()
    assert all(path.exists() for path in template_files(vms).values())


@pytest.mark.slow
@pytest.mark.parametrize("part", ["devices", "layer"])
def test_a_template_that_was_changed_is_found_by_the_next_daemon(vms, make_vm, part):
    flip_a_byte(template_files(vms)[part])
    vms.kill_daemon()
    vms.start_daemon()
    box = make_vm()
    assert box.out("echo up") == "up"
    assert "damaged" in vms.log_tail()


# ---- no writable way to what others share ----------------------------------------------------


def test_qemu_can_write_nothing_that_another_box_reads(vms, make_vm):
    """Layers of memory and the image are shared: read-only for each QEMU; its disk is its own."""
    disks = {}
    for box in (make_vm(), make_vm()):
        pid = qemu_of(vms, box)
        mapped = set()
        for line in read_proc(pid, "maps").decode().splitlines():
            words = line.split(None, 5)
            if len(words) == 6 and f"{vms.home}/memory/" in words[5]:
                mapped.add(words[5])
                assert words[1][3] == "p", f"a shared mapping of a layer: {line}"
        assert mapped
        disks[box.id] = set()
        for entry in os.scandir(f"/proc/{pid}/fd"):
            path = os.readlink(entry.path)
            flags = int(re.search(r"flags:\s*(\d+)", read_proc(pid, f"fdinfo/{entry.name}").decode()).group(1), 8)
            if flags & os.O_ACCMODE == os.O_RDONLY or not path.startswith("/") or path.startswith("/dev/"):
                continue
            assert "/memory/" not in path and "/image-files/" not in path, f"writable: {path}"
            disks[box.id].add((os.stat(entry.path).st_dev, os.stat(entry.path).st_ino))
        assert status_of(pid, "Uid") and 0 not in status_of(pid, "Uid"), "its own user"
        assert status_of(pid, "CapEff") == [0]
    one, two = disks.values()
    assert one and two and not one & two, disks


def status_of(pid, key):
    line = re.search(rf"^{key}:\s*(.*)$", read_proc(pid, "status").decode(), re.M).group(1)
    return [int(word, 16 if key.startswith("Cap") else 10) for word in line.split()]


# ---- forks of a box that works hard ----------------------------------------------------------

# Writes records of a number, noise and a checksum, each on the disk before the next one, and tells
# in its memory how many.
WRITER = """import hashlib, os, struct
fd = os.open('/root/records', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
n, noise = 0, os.urandom(4056)
while True:
    body = struct.pack('<Q', n) + noise
    os.write(fd, body + hashlib.sha256(body).digest())
    os.fsync(fd)
    n += 1
    with open('/dev/shm/n', 'w') as f: f.write(str(n))
"""
# Every record is whole and in its place; gives how many there are.
READER = """import hashlib, struct
data = open('/root/records', 'rb').read()
whole = len(data) // 4096
for n in range(whole):
    body, sum = data[n * 4096:n * 4096 + 4064], data[n * 4096 + 4064:n * 4096 + 4096]
    assert hashlib.sha256(body).digest() == sum and struct.unpack('<Q', body[:8])[0] == n, n
print(whole)
"""


def writing(box):
    program = box.start("python3", "-c", WRITER)["id"]
    eventually(lambda: int(box.out("cat /dev/shm/n 2>/dev/null || echo 0") or 0) > 5, 60, every=0.3)
    return program


def records(box):
    remembered = int(box.out("cat /dev/shm/n", timeout=60) or 0)
    found = int(box.python(READER, timeout=60).stdout)
    assert found >= remembered, "its memory knows of records that its disk has lost"
    return found


def file_system_is_clean(yard, box, tmp_path):
    """On a copy; the journal is played back first, as a kernel would."""
    copy = tmp_path / box.id
    subprocess.run(["cp", "--sparse=always", yard.pool / "boxes" / box.id / "disk", copy], check=True)
    played = subprocess.run(["e2fsck", "-p", copy], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert played.returncode in (0, 1), played.stdout
    checked = subprocess.run(["e2fsck", "-fn", copy], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert checked.returncode == 0, checked.stdout
    copy.unlink()


@pytest.mark.slow
def test_forks_of_a_box_that_writes_hard(vms, make_vm, tmp_path):
    box = make_vm()
    program = writing(box)
    children = states.fork(box, "-n", "4") + states.fork(box)
    with states.removed_afterwards(*children):
        for one in (box, *children):
            assert records(one) > 5
            assert one.get_exec(program)["state"] == "running", "it goes on in parent and child"
        for one in (box, children[0], children[-1]):
            os.kill(qemu_of(vms, one), signal.SIGKILL)  # nothing is written at the end
            eventually(lambda this=one: states.state(this) == "stopped", 20)
            file_system_is_clean(vms, one, tmp_path)


# Prints 16 random bytes again and again, through getrandom() and through the device.
RANDOM = """import os, time
device = open('/dev/urandom', 'rb', 0)
while True:
    print(os.getrandom(16).hex(), device.read(16).hex(), flush=True)
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_copies_never_draw_the_same(vms, make_vm):
    """Forked at one moment, from a program that draws all the time."""
    box = make_vm()
    program = box.start("python3", "-c", RANDOM)["id"]
    eventually(lambda: len(box.logs(program, raw="true")) > 2000, 60, every=0.2)
    children = states.fork(box, "-n", "8")
    with states.removed_afterwards(*children):
        everybody = [box, *children]
        key = "rm -f /tmp/k; ssh-keygen -q -t ed25519 -N '' -f /tmp/k; cut -d' ' -f2 /tmp/k.pub; cat /etc/machine-id"
        eventually(lambda: all(len(one.logs(program, raw="true")) > 3000 for one in everybody), 60, every=0.3)
        for one in everybody:
            vms.api("POST", f"{one.path}/execs/{program}/signal", {"signal": "KILL"})
        told = [one.out(key, timeout=180).split() for one in everybody]
        for what in zip(*told):
            assert len(set(what)) == len(everybody), what
        drawn = [one.logs(program, raw="true").decode().split() for one in everybody]
        common = set(drawn[0]).intersection(*drawn[1:])
        fresh = [word for words in drawn for word in set(words) - common if len(word) == 32]
        assert len(fresh) > 8 * len(everybody), "they went on"
        assert len(fresh) == len(set(fresh)), "two have drawn the same"


# ---- no room ---------------------------------------------------------------------------------


@pytest.fixture
def small_home(vms):
    """A yard on a file system of its own that can be filled; its pool has its room already."""
    yard = Yard()
    yard.env.update(BOX_DRIVER="vm", BOX_POOL_SIZE="1G", BOX_POOL_MAX="1G")
    images = os.readlink(yard.home / "images")
    with open(yard.base / "small.img", "wb") as file:
        file.truncate(4 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", yard.base / "small.img"], check=True)
    subprocess.run(["mount", "-o", "loop", yard.base / "small.img", yard.home], check=True)
    try:
        (yard.home / "images").symlink_to(images)
        shutil.copytree(vms.home / "image-files", yard.home / "image-files")
        yard.start_daemon()
        yield yard
    finally:
        with contextlib.suppress(AssertionError, OSError):
            yard.box("rm", "-f", "--all")
            yard.stop_daemon()
        subprocess.run(["umount", "-l", yard.home], check=True)
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["fork", "snapshot", "hibernate"])
def test_full_disk_refuses_the_capture_and_the_box_goes_on(small_home, verb):
    yard = small_home
    yard.box("new", "--name", "full", "--memory", "256M", timeout=240)
    box = states.of(yard, states.box_json(yard, "full"))
    program = box.start("sh", "-c", COUNTER)["id"]
    box.sh("head -c 50M /dev/urandom > /dev/shm/much")
    subprocess.run(["fallocate", "-l", "1G", yard.home / "pool.img"], check=True)
    fill = yard.home / "fill"
    free = os.statvfs(yard.home)
    subprocess.run(["fallocate", "-l", str(free.f_bavail * free.f_bsize - (8 << 20)), fill], check=True)
    refused = yard.box(verb, box.name, check=False, timeout=120)
    assert refused.returncode, f"50 MB in 8: {box.show()}"
    assert re.search("space|room|full", refused.stderr), refused.stderr
    assert states.state(box) == "running" and box.get_exec(program)["state"] == "running"
    assert box.out("md5sum /dev/shm/much | wc -l", timeout=60) == "1"
    assert [one["id"] for one in yard.boxes()] == [box.id], "no half a child"
    fill.unlink()  # the pool looks at its disk every few seconds
    eventually(lambda: yard.box(verb, box.name, check=False).returncode == 0, 60, every=1)


# ---- KVM that passes its trial and carries no kernel


def test_vms_are_emulated_when_no_kernel_boots_with_kvm(image):
    """A verdict as the trial would have written it, on a machine where KVM does not work."""
    yard = Yard()
    yard.env["BOX_DRIVER"] = "vm"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    yard.run_dir.mkdir(mode=0o755)
    (yard.run_dir / "kvm").write_text(f"{boot} usable a verdict of this test\n")
    try:
        yard.start_daemon()
        found = yard.info()["drivers"]["vm"]
        if not found["available"]:
            pytest.skip(f"LOUD: no VM boxes on this machine: {found.get('reason')}")
        assert found["accelerator"] == "kvm"
        yard.box("new", "--name", "first", "--memory", SMALL, timeout=240)
        box = Box(yard, yard.json("show", "first"))
        if yard.info()["drivers"]["vm"]["accelerator"] == "kvm":
            pytest.skip("KVM WORKS ON THIS MACHINE: there is nothing to fall back from")
        assert box.show()["accelerator"] == "tcg"
        assert box.out("echo runs") == "runs"
        assert "VMs are emulated until the machine is restarted" in yard.log.read_text()
        told = yard.box("doctor", check=False).stdout
        assert "no kernel boots with it" in told, told
        yard.kill_daemon()  # the next one knows it
        yard.start_daemon()
        found = yard.info()["drivers"]["vm"]
        assert found["accelerator"] == "tcg" and "no kernel boots with it" in found["accelerator_reason"]
        assert box.out("echo runs") == "runs"
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)
