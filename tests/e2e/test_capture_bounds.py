"""What a box can make of its captures: how long it stands still, whose CPU time they take, and what
it is told to do instead."""
import contextlib
import os
import re
import threading
import time
from pathlib import Path

import pytest

import states
from boxtest import cgroup_mounts, eventually, read_proc

SPARSE = {
    "open": "f = os.memfd_create('big'); os.ftruncate(f, 8 << 40)",
    "mapped": "f = os.memfd_create('big'); os.ftruncate(f, 8 << 40); m = mmap.mmap(f, 4096); os.close(f)",
    "hidden": "f = os.memfd_create('big'); os.ftruncate(f, 8 << 40); k = [mmap.mmap(-1, 4096, prot=1 + 2 * (i & 1)) "
        "for i in range(30000)]; m = mmap.mmap(f, 4096); os.close(f)",
    "shared": "m = mmap.mmap(-1, 8 << 40, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x4000)",
    "many": "k = [os.memfd_create(f'm{i}') for i in range(40)]; [os.ftruncate(f, 10 << 30) for f in k]",
}


def start(box, code):
    made = box.start("python3", "-c", f"import mmap, os, time; {code}; open('/up', 'w').close(); time.sleep(1000)")
    eventually(lambda: box.stat("/up").status == 200, 10)
    return made


@pytest.mark.asan
@pytest.mark.parametrize("kind", SPARSE)
def test_holes_of_memory_files_do_not_stop_a_box(yard, make_box, kind, quick):
    box = make_box()
    start(box, SPARSE[kind])
    before = time.monotonic()
    for verb in ("snapshot", "fork", "hibernate"):
        refused = yard.box(verb, box.name, check=False)
        assert refused.returncode, verb
        assert re.search(r"\(python3\) has (a memory file \(memfd\)|shared memory) of", refused.stderr), refused.stderr
        assert "256G" in refused.stderr and "--disk-only" in refused.stderr
    assert time.monotonic() - before < 3, "it was not walked"
    assert states.state(box) == "running"


def test_pieces_of_shared_memory_are_counted(yard, make_box):
    """60,000 of them stopped a box for 15 s."""
    box = make_box()
    start(box, "k = [mmap.mmap(-1, 4096, prot=1 + 2 * (i & 1)) for i in range(20000)]")
    refused = yard.box("snapshot", box.name, check=False)
    assert refused.returncode and "(python3) has, with others, more than 8192 pieces of shared memory" in refused.stderr, refused.stderr
    assert states.state(box) == "running"


@pytest.mark.asan
def test_large_memory_files_that_are_used_come_back(yard, make_box):
    box = make_box(memory="512M")
    start(box, "f = os.memfd_create('some'); os.ftruncate(f, 64 << 30); os.pwrite(f, b'here', 63 << 30)")
    made = states.snapshot(box)
    states.rollback(box, made["id"])
    assert box.out("for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in /memfd:some*) "
                   "dd if=$f bs=4 skip=16911433728 count=1 2>/dev/null; break;; esac; done") == "here"


@pytest.mark.parametrize("program, hint", [
    ("chrome", "start it with --no-sandbox: the box is the sandbox"), ("bwrap", "the box is the sandbox"),
    ("conmon", "'podman stop -a' first"), ("podman pause", "'podman system migrate' first, as the user of podman"),
    ("other", "--disk-only")])
def test_a_sandbox_in_the_box_is_told_of(yard, make_box, program, hint):
    box = make_box(profile="nested")
    box.exec("cp", "/bin/sleep", f"/root/{program}")
    box.start("unshare", "-Urpf", f"/root/{program}", "1000")
    eventually(lambda: any(program.encode() in read_proc(pid, "comm") for pid in states.box_processes(yard, box)), 10)
    refused = yard.box("snapshot", box.name, check=False)
    assert refused.returncode and "namespace of its own" in refused.stderr and hint in refused.stderr, refused.stderr


def work_groups(yard):
    return [str(folder) for mount in cgroup_mounts() for folder in Path(mount, yard.name).glob("*-work")]


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [None, 0.2])
def test_captures_are_made_within_the_cpu_limit_of_the_box(fresh_yard, cpu):
    box = fresh_yard.new(memory="1G", **({"cpu": cpu} if cpu else {}))
    box.exec("sh", "-c", "head -c 200M /dev/urandom > /dev/shm/much")
    seen, end = set(), threading.Event()

    def watch():
        while not end.is_set():
            for folder in work_groups(fresh_yard):
                with contextlib.suppress(OSError):
                    for pid in Path(folder, "cgroup.procs").read_text().split():
                        seen.add((os.path.basename(folder), read_proc(pid, "comm").strip(),
                                  tuple((Path(folder) / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.max")
                                        if (Path(folder) / name).exists())))
            time.sleep(0.001)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    for _ in range(3):
        states.snapshot(box)
    end.set()
    thread.join()
    if cpu:
        assert any(group == f"{box.id}-work" and comm == b"criu" for group, comm, _ in seen), seen
        # Nothing: the group went while it was looked at.
        assert {limits for _, _, limits in seen if limits} <= {("50000",), ("50000 100000",)}, "half a CPU, or what the box has"
    else:
        assert not seen, "without a limit nothing is in its way"
    assert not work_groups(fresh_yard), "nothing is left"
    fresh_yard.box("set", box.name, "--cpu", "1.5")
    states.snapshot(box)
    assert not work_groups(fresh_yard)


@pytest.mark.asan
def test_shared_memory_is_no_longer_than_the_machine_has(yard, make_box):
    """A longer segment could be captured and never made again."""
    box = make_box()
    code = "import ctypes; print(ctypes.CDLL(None).shmget(0, ctypes.c_size_t({} << 30), 0o1600 | 0o10000))"
    if box.out("cat /proc/sys/kernel/shmmax") == Path("/proc/sys/kernel/shmmax").read_text().strip():
        pytest.skip("LOUD: this kernel lets nobody bound the shared memory of a namespace")
    assert box.exec("python3", "-c", code.format(4096)).stdout.strip() == "-1"
    assert int(box.exec("python3", "-c", code.format(1)).stdout) >= 0
    made = states.snapshot(box)
    states.rollback(box, made["id"])
    assert box.exec("python3", "-c", code.format(4096)).stdout.strip() == "-1"
