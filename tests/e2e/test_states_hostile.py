"""Root in a box against what takes its state: a box made again is as closed as it was, and nothing
of it reaches the machine.

Walls are looked at from both sides, by what the kernel says of the box's processes, mounts and
groups, before and after each
operation; only what must differ (ids of users, numbers of mounts) is left out of the comparison.
"""
import contextlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest

import states
from boxtest import SLOWNESS, Yard, box_cgroups, eventually, read_proc
from test_isolation import SYSCALLS, TAKE_INIT
from test_network import set_policy

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls are those of x86-64")


# ---- the walls, as seen from inside and from outside -----------------------------------------

INSIDE = r"""
import ctypes, json, os, re, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(numbers):
    if os.fork() == 0:
        result = libc.syscall(*[ctypes.c_long(n) for n in numbers])
        os._exit(ctypes.get_errno() if result == -1 else 0)
    return os.waitstatus_to_exitcode(os.wait()[1])
def size(path):
    try:
        return len(open(path, "rb").read(4096)) if not os.path.isdir(path) else len(os.listdir(path))
    except OSError as why:
        return why.errno
def write(path):
    try:
        open(path, "w").write("1")
        return "written"
    except OSError as why:
        return why.errno
def status(pid):
    keys = "Uid Gid Groups CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters".split()
    lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines())
    return {key: lines.get(key, "").split() for key in keys}
def spared():
    if os.fork() == 0:
        try:
            open("/proc/self/oom_score_adj", "w").write("-400")
            os._exit(1)
        except OSError:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])
hidden = "kallsyms kcore keys timer_list sched_debug interrupts acpi scsi".split()
calls = json.loads(sys.argv[1])
mounts = sorted(re.sub(r"(uid|gid|subvolid|subvol)=[^ ,]+", r"\1", " ".join(line.split()[4:6] + line.split(" - ")[1].split()))
                for line in open("/proc/self/mountinfo") if line.strip())
print(json.dumps({
    "mounts": [re.sub(r"overlay none rw.*", "overlay", line) for line in mounts],
    "init": status(1), "self": status("self"),
    "calls": {name: call(numbers) for name, numbers in calls.items()},
    "hidden": {name: size("/proc/" + name) for name in hidden} | {"firmware": size("/sys/firmware")},
    "writes": {path: write(path) for path in (
        "/proc/sys/vm/drop_caches", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/run/boxyard/x", "/sys/x",
        "/sys/kernel/mm/ksm/run", "/proc/sys/kernel/ns_last_pid", "/.boxyard/x")},
    "spared": spared(),
    "namespaces": open("/proc/sys/user/max_user_namespaces").read().strip() == "0",
    "fds": sorted(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{n}")) for n in os.listdir("/proc/self/fd") if n != "3"),
    "limits": open("/proc/self/limits").read(),
}))
"""
# Asking these of a nested box would do them.
HARMLESS = {"io_uring_setup", "bpf", "userfaultfd", "perf_event_open", "keyctl", "add_key", "open_by_handle_at", "init_module",
            "kexec_load", "settimeofday", "reboot", "swapon"}
LIMITS = ["pids.max", "memory.limit_in_bytes", "memory.max", "memory.swap.max", "memory.memsw.limit_in_bytes",
          "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max", "cpu.shares", "cpu.weight", "devices.list", "freezer.state",
          "cgroup.freeze"]


def init_of(yard, box):
    [pid] = [pid for pid in states.box_processes(yard, box) if read_proc(pid, "cmdline") == b"box-init\0"
             and b"NSpid:\t%s\t1\n" % pid.encode() in read_proc(pid, "status")]
    return pid


def groups(yard, box):
    """Limits of the box's groups in every hierarchy, and who stands in which."""
    found = {}
    for folder in box_cgroups(yard.name, box.id):
        for name in LIMITS:
            with contextlib.suppress(OSError):
                found[f"{folder.parents[2]} {name}"] = (folder / name).read_text()
    members = {pid: sorted(re.sub(f"{box.id}b?", "ID", line) for line in read_proc(pid, "cgroup").decode().splitlines())
               for pid in states.box_processes(yard, box)}
    return found, sorted({tuple(lines) for lines in members.values()})


# Threads, another user, a dead child, and one that has given up more than it had to.
PEOPLE = """
import ctypes, os, threading, time
for _ in range(4):
    threading.Thread(target=time.sleep, args=(1000,)).start()
if os.fork() == 0:
    os.setgroups([7]); os.setresgid(9, 9, 9); os.setresuid(1234, 1234, 1234)
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
    time.sleep(1000)
if os.fork() == 0:
    os._exit(0)
print("ready", flush=True)
time.sleep(1000)
"""
KEYS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def people(yard, box):
    """Every thread that stays, with what it may do, and the files it has."""
    base = int(read_proc(init_of(yard, box), "uid_map").split()[1])
    found = []
    for pid in states.box_processes(yard, box):
        if b"python3" not in read_proc(pid, "cmdline") and read_proc(pid, "cmdline") != b"box-init\0":
            continue
        fds = sorted(re.sub(r"\d+", "N", os.readlink(f"/proc/{pid}/fd/{n}")) for n in os.listdir(f"/proc/{pid}/fd"))
        for thread in os.listdir(f"/proc/{pid}/task"):
            lines = dict(line.split(":", 1) for line in read_proc(pid, f"task/{thread}/status").decode().splitlines())
            ids = [[str(int(one) - base) for one in lines[key].split()] for key in KEYS[:3]]
            found.append((lines["Name"].strip(), ids, [lines.get(key, "").strip() for key in KEYS[3:]], fds))
    assert len(found) >= 7, found
    return sorted(found)


def outside(yard, box):
    pid = init_of(yard, box)
    fds = [re.sub(r"\d+", "N", os.readlink(f"/proc/{pid}/fd/{n}")) for n in os.listdir(f"/proc/{pid}/fd")]
    (_, base, count), shared = (tuple(map(int, line.split())) for line in read_proc(pid, "uid_map").splitlines())
    assert base >= 65536 and read_proc(pid, "gid_map").split() == read_proc(pid, "uid_map").split()
    limits, members = groups(yard, box)
    return {
        "fds of init": sorted(fds), "ids": (count, shared), "limits of init": read_proc(pid, "limits").decode(),
        "oom": read_proc(pid, "oom_score_adj"), "groups": limits, "members": members,
        "people": people(yard, box), "setgroups": read_proc(pid, "setgroups"), "root": os.readlink(f"/proc/{pid}/root"),
        "own namespaces": [os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
                           for kind in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time")],
    }


def walls(box, profile):
    calls = {name: numbers for name, (numbers, _) in SYSCALLS.items() if profile == "standard" or name in HARMLESS}
    seen = json.loads(box.python(INSIDE, json.dumps(calls)).stdout)
    if profile == "standard":
        seen["ways to init"] = box.python(TAKE_INIT).stdout
        for command in ("unshare -U true", "unshare -m true", "mount -t tmpfs x /mnt", "mknod /run/d c 1 1"):
            assert box.sh(command, check=False).returncode, command
    return seen | outside(box.yard, box)


def same(before, after, what):
    assert before.keys() == after.keys()
    for key in before:
        assert before[key] == after[key], f"{what}: {key}"


@pytest.fixture(scope="module")
def walled_yard(image):
    """A daemon that may give folders away, and has a place of its own in the eyes of the memory
    killer."""
    folder = Path(tempfile.mkdtemp(prefix="boxt-", dir="/var/tmp"))
    (folder / "f").write_text("theirs")
    yard = Yard()
    yard.env["BOX_MOUNT_ROOTS"] = str(folder)
    yard.wrapper = ["choom", "-n", "100", "--"]
    try:
        yard.start_daemon()
        yield yard, folder
    finally:
        problems = yard.destroy()
        shutil.rmtree(folder)
    assert not problems, problems


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["standard", "nested"])
def test_walls_are_the_same_after_every_operation(walled_yard, profile):
    yard, folder = walled_yard
    box = yard.new(profile=profile, pids=120, memory="512M", cpu=1.5,
                   mounts=[{"source": str(folder), "path": "/given", "read_only": True}])
    with states.removed_afterwards(box):
        some = box.start("python3", "-c", PEOPLE)["id"]
        eventually(lambda: b"ready" in box.logs(some, raw="true"), 10)
        box.sh("cp /bin/true /run/set; chmod 4755 /run/set; cp /bin/true /dev/shm/set; chmod 6755 /dev/shm/set")
        before = walls(box, profile)
        made = states.snapshot(box)
        same(before, walls(box, profile), "after a snapshot")
        [child] = states.fork(box)
        with states.removed_afterwards(child):
            same(before, walls(child, profile), "a fork")
            [grandchild] = states.fork(child)
            with states.removed_afterwards(grandchild):
                same(before, walls(grandchild, profile), "a fork of a fork")
                for one in (child, grandchild):
                    refused = one.sh("mount -o remount,rw,bind /given; mount -o remount,rw /given; touch /given/x", check=False)
                    assert refused.returncode and not (folder / "x").exists(), "a read-only folder of the machine"
        states.hibernate(box)
        states.wake(box)
        same(before, walls(box, profile), "woken")
        states.rollback(box, made["id"])
        same(before, walls(box, profile), "taken back")
        limits_hold(box)


def limits_hold(box):
    """They are not only written down."""
    many = box.python("import os, signal\nn = 0\ntry:\n    while n < 400:\n        if os.fork() == 0:\n            "
                      "signal.pause()\n        n += 1\nexcept OSError:\n    pass\nprint(n, flush=True)\n"
                      "os.kill(0, 9)", check=False)
    assert 20 < int(many.stdout) < 120, many
    eaten = box.python("x = bytearray(700 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('all')", check=False)
    assert eaten.returncode and "all" not in eaten.stdout


# ---- what the daemon and CRIU read and write for a box ---------------------------------------


def test_what_is_mounted_in_run_is_not_read_for_the_box(yard, make_box):
    """The daemon's eyes see more than the box's: files of /proc and /sys that only the machine's
    root may read."""
    box = make_box(profile="nested")
    box.sh("touch /run/a /dev/shm/b; mkdir /run/c /run/many; echo own > /run/own; mount --bind /proc/kcore /run/a; "
           "mount --bind /sys/kernel/btf/vmlinux /dev/shm/b; mount --bind /run/own /run/many; "
           "for i in 1 2 3; do mkdir /run/c/$i; mount --bind /usr/lib /run/c/$i; done", check=False)
    done = box.yard.box("fork", box.name, "--json", check=False, timeout=30)
    if done.returncode == 0:
        [child] = [states.of(yard, one) for one in json.loads(done.stdout)["children"]]
        with states.removed_afterwards(child):
            sizes = child.out("umount /run/a /dev/shm/b /run/c/*; stat -c %s /run/a /dev/shm/b; ls /run/c/*; cat /run/own")
            assert sizes.split() == ["0", "0", "/run/c/1:", "/run/c/2:", "/run/c/3:", "own"]
    assert box.out("cat /run/own") == "own"


@pytest.mark.parametrize("command", [
    "mount --bind /sys/kernel /run", "mount --bind /proc /dev/shm", "mount -t tmpfs x /run", "mount --bind /given /run"])
def test_what_is_mounted_on_run_is_not_read_for_the_box(walled_yard, command):
    """Root of the machine owns a file in the folder that was given: nobody's, and unreadable in the
    box."""
    yard, folder = walled_yard
    secret = folder / "secret"
    secret.write_text("of the machine")
    os.chown(secret, 4242, 4242)
    secret.chmod(0o400)
    box = yard.new(profile="nested", mounts=[{"source": str(folder), "path": "/given", "read_only": True}])
    with states.removed_afterwards(box):
        assert box.sh("cat /given/secret", check=False).returncode
        box.sh(command)
        done = yard.box("fork", box.name, "--json", check=False, timeout=30)
        if done.returncode == 0:
            [child] = [states.of(yard, one) for one in json.loads(done.stdout)["children"]]
            with states.removed_afterwards(child):
                assert child.sh("grep -r 'of the machine' /run /dev/shm", check=False).stdout == ""
                assert "tmpfs" in command
        assert box.out("echo on") == "on"
    secret.unlink()


LINKED = r"""
import os, sys, time
target = sys.argv[1]
os.makedirs("/srv/a/b/c")
kept = []
for name in ("removed", "passwd"):
    fd = os.open("/srv/a/b/" + name, os.O_RDWR | os.O_CREAT, 0o4777)
    os.write(fd, b"mine")
    os.unlink("/srv/a/b/" + name)
    kept.append(fd)
if sys.argv[2] == "linked":
  os.close(os.open("/srv/a/linked", os.O_RDWR | os.O_CREAT))
  os.link("/srv/a/linked", "/srv/a/b/c/other")
  kept.append(os.open("/srv/a/b/c/other", os.O_RDWR))
  os.unlink("/srv/a/b/c/other")
  kept.append(os.open("/srv/a/b/c", os.O_RDONLY))
os.rmdir("/srv/a/b/c")
os.rmdir("/srv/a/b")
os.symlink(target, "/srv/a/b")
print("ready", flush=True)
while True:
    time.sleep(0.2)
    with open("/tmp/read", "w") as out:
        out.write(repr([os.pread(fd, 100, 0) for fd in kept[:2]]))
"""


@pytest.mark.parametrize("kind", ["linked", "removed"])
@pytest.mark.parametrize("target", ["open", "etc"])
def test_links_where_folders_were_lead_nowhere(yard, make_box, target, kind):
    """A removed file that is open has a path, and the folder in it may be a link by now."""
    folder = Path(tempfile.mkdtemp(prefix="boxt-", dir="/var/tmp"))
    folder.chmod(0o777)
    place = folder if target == "open" else Path("/etc")
    before = place.stat().st_mtime_ns, sorted(os.listdir(place))
    box = make_box()
    try:
        running = box.start("python3", "-c", LINKED, str(place), kind)
        eventually(lambda: b"ready" in box.logs(running["id"], raw="true"), 10)
        for command in (["fork", box.name], ["snapshot", box.name, "one"], ["rollback", box.name, "one"], ["hibernate", box.name],
                        ["wake", box.name]):
            yard.box(*command, check=False)
        assert (place.stat().st_mtime_ns, sorted(os.listdir(place))) == before, "the machine's own folder was changed"
        for child in yard.boxes():
            if child["name"] == f"{box.name}-1":
                states.of(yard, child).remove()
    finally:
        shutil.rmtree(folder)


def test_odd_things_in_memory_file_systems(yard, make_box):
    box = make_box(memory="1G")
    box.python("""
import os, socket
os.chdir("/run")
with open("sparse", "wb") as f:
    f.truncate(2**62)
    f.seek(2**61); f.write(b"x")
os.mkfifo("fifo")
s = socket.socket(socket.AF_UNIX); s.bind("/run/socket")
os.symlink("/" + "x" * 4000, "long")
os.symlink("loop", "loop")
os.symlink("/etc/shadow", "shadow")
open(b"\\xff\\n\\x01", "w").close()
os.mkdir("many")
for i in range(5000):
    open(f"many/{i}", "w").close()
    os.link(f"many/{i}", f"many/l{i}")
deep = "d"
for i in range(60):
    os.mkdir(deep); deep += "/d"
open("/dev/shm/secret", "w").write("s"); os.chmod("/dev/shm/secret", 0)
os.chown("/dev/shm/secret", 1234, 4321)
""")
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        script = ("cd /run; stat -c %s sparse; stat -c %F fifo; readlink long | wc -c; readlink shadow; ls many | wc -l; "
                  "stat -c '%h' many/7; [ many/7 -ef many/l7 ] && echo same; stat -c '%u %g %a' /dev/shm/secret; "
                  "find d | wc -l; stat -c '%u %a' /run /dev/shm")
        assert child.out(script) == box.out(script)
        assert child.out("od -An -c -j 2305843009213693952 -N 1 /run/sparse").strip() == "x"


def test_a_tree_without_end_harms_nobody_else(yard, make_box):
    box, other = make_box(), make_box()
    box.python("import os\nos.chdir('/run')\nfor i in range(300):\n    os.mkdir('d'); os.chdir('d')")
    refused = yard.box("snapshot", box.name, check=False)
    assert refused.returncode and "deeper" in refused.stderr
    assert box.out("echo on") == "on" and other.out("echo on") == "on"


# ---- asking from inside ----------------------------------------------------------------------


@pytest.mark.slow
def test_many_who_ask_at_once_get_no_more_than_one(fresh_yard):
    box = fresh_yard.new(inside={"count": 3, "rate": 1000})
    # Those who ask when a snapshot has begun, and the box does not stand still yet, wait in line
    # behind it.
    box.sh("for i in 1 2 3 4; do box snapshot > /dev/null 2>&1 & done; "
           "for i in 1 2 3 4 5 6 7 8; do box fork -n 3 > /tmp/out$i 2>&1 & done; wait", timeout=120)
    below = [one for one in fresh_yard.boxes() if one["name"] != box.name]
    assert len(below) == 3, [one["name"] for one in below]


def test_a_fork_may_not_ask_when_its_origin_may_not(fresh_yard):
    box = fresh_yard.new()
    [child] = states.fork(box)
    assert child.run("box", "info").code == 0
    fresh_yard.box("set", box.name, "--inside", "off")
    assert child.run("box", "info").code == 77 and child.run("box", "fork").code == 77
    assert box.run("box", "info").code == 77


def slowest(yard, seconds):
    """Of the daemon's answers meanwhile."""
    worst, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        assert yard.api("GET", "/v1/health").status == 200
        worst = max(worst, time.monotonic() - began)
        time.sleep(0.005)
    return worst


def test_questions_without_end_do_not_keep_the_daemon_busy(yard, make_box, quick):
    box = make_box()
    running = box.start("sh", "-c", "for i in 1 2 3 4 5 6; do while :; do box info; box ls; box nonsense; done & done "
                                    "> /dev/null 2>&1; wait")
    time.sleep(0.3)
    assert slowest(yard, 2) < 0.5
    yard.api("POST", f"{box.path}/execs/{running['id']}/signal", {"signal": "KILL"})


# A child that never executes anything holds its parent in vfork; and calls that take long cannot be
# stopped in their middle.
STUBBORN = r"""
import ctypes, os, threading, mmap
libc = ctypes.CDLL(None)
size = 250 << 20
fd = os.memfd_create("large")
os.ftruncate(fd, size)
with mmap.mmap(fd, size) as m:
    for i in range(0, size, 4096):
        m[i] = 1
print("ready", flush=True)
if os.fork() == 0:
    while True:
        buffer = mmap.mmap(-1, size)
        os.lseek(fd, 0, 0)
        os.readv(fd, [buffer])
        buffer.close()
while True:
    pid = libc.syscall(58) if False else os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
"""


@pytest.mark.slow
def test_a_box_that_does_not_stand_still_delays_nobody(yard, make_box, quick):
    box = make_box(memory="2G")
    running = box.start("python3", "-c", STUBBORN)
    eventually(lambda: b"ready" in box.logs(running["id"], raw="true"), 20)
    worst = []
    watcher = threading.Thread(target=lambda: worst.append(slowest(yard, 4)))
    watcher.start()
    for _ in range(3):
        yard.box("snapshot", box.name, check=False, timeout=60)
    watcher.join()
    assert worst[0] < 0.6 * SLOWNESS, worst


# ---- policies --------------------------------------------------------------------------------


def policy_of(box):
    return box.yard.api("GET", f"{box.path}/policy", expect=200).json["policy"]


def test_a_policy_that_was_tightened_stays_so(yard, make_box):
    box = make_box(policy={"allow": ["example.com", "10.0.0.0/8"]})
    made = states.snapshot(box)
    set_policy(box, {"allow": ["example.org"]})
    tight = policy_of(box)
    [child] = states.fork(box, "--from", made["id"])
    with states.removed_afterwards(child):
        assert policy_of(child) == tight
    states.rollback(box, made["id"])
    assert policy_of(box) == tight
    states.hibernate(box)
    states.wake(box)
    assert policy_of(box) == tight
