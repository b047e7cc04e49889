"""Boxes with their own kernel: the same verbs as every box, and what only they have.

One daemon for the file; its boxes have the driver vm. Under emulation a program takes ten times as
long as on the processor, so scripts here are small.
"""
import os
import re
import signal
import time
from pathlib import Path

import pytest

import states
from boxtest import box_cgroups, eventually
from fixtures import running_yard_with

NEVER = {"suspend": "off", "hibernate": "off"}
DEPTH = int(os.environ.get("BOX_TEST_DEPTH", "10"))


def require_vm(yard):
    found = yard.api("GET", "/v1/info", expect=200).json["drivers"]["vm"]
    if not found["available"]:
        pytest.skip(f"NO VM BOXES ON THIS MACHINE: {found}")
    return found


@pytest.fixture(scope="module")
def vms(image):
    with running_yard_with(BOX_DRIVER="vm") as one:
        require_vm(one)
        one.box("new", "first", timeout=300)  # builds the image's file, boots the template
        one.box("rm", "-f", "first")
        yield one


@pytest.fixture
def vm(vms):
    box = vms.new(idle=NEVER)
    yield box
    assert box.remove().status in (204, 404)


def pid_of(box):
    """Its QEMU, as the host sees it."""
    for group in box_cgroups(box.yard.name, box.id):
        pids = Path(group, "cgroup.procs").read_text().split()
        if pids:
            return int(pids[0])
    raise AssertionError(f"no process of {box.name}")


# ---- a machine of its own


def test_vm_has_a_kernel_of_its_own(vm):
    shown = vm.show()
    assert shown["driver"] == "vm" and shown["accelerator"] in ("kvm", "tcg")
    inside = vm.out("uname -r")
    assert inside != os.uname().release and "cloud" in inside
    assert vm.out("hostname") == vm.name
    assert vm.out("nproc") == "1" or shown["accelerator"] == "kvm"
    assert 400 < int(vm.out("free -m | awk '/Mem:/{print $2}'")) < 520
    assert float(vm.out("cut -d' ' -f1 /proc/uptime")) < 3600
    assert f"{vm.name} " in vm.yard.box("ls").stdout and "vm (" in vm.yard.box("ls").stdout


def test_vm_root_owns_the_machine(vm):
    vm.sh("mount -t tmpfs none /mnt && touch /mnt/x && umount /mnt")
    vm.sh("date -s '2001-01-01 00:00:00' && date +%Y | grep 2001")
    assert abs(time.time() - time.mktime(time.localtime())) < 2  # ours is as it was
    vm.sh("ip link add d0 type dummy && ip link del d0")  # its kernel loads a module for it
    assert "dummy" in vm.out("cat /proc/modules")
    assert not Path("/sys/module/dummy/refcnt").exists()  # ours has not


def test_vm_files_and_programs(vm):
    assert vm.put("/root/a", b"x" * 300000).status in (200, 201)
    assert vm.get("/root/a").body == b"x" * 300000
    assert vm.sh("exit 7", check=False).returncode == 7
    assert vm.sh("wc -c", input="hello", flags=("-i",)).stdout.strip() == "5"
    assert "one" in vm.out("echo one; sync; cat /etc/hostname")


def test_vm_disk_is_as_large_as_it_was_asked_for(vms):
    box = vms.new(disk="12G", idle=NEVER)
    try:
        size = int(box.out("df -B1 --output=size / | tail -1"))
        assert (12 << 30) * 0.9 < size <= 12 << 30
    finally:
        box.remove()


def test_vm_restarts_from_its_disk(vm):
    vm.sh("echo kept > /root/kept; mkdir /srv/x")
    vm.yard.box("stop", vm.name)
    vm.yard.box("start", vm.name, timeout=120)
    assert vm.out("cat /root/kept") == "kept"
    assert vm.out("hostname") == vm.name


# ---- state


COUNT = "i=0; while :; do i=$((i+1)); echo $i > /root/count.new; mv /root/count.new /root/count; sleep 0.05; done"


def counter(box):
    return int(box.out("cat /root/count"))


def start_counter(box):
    box.start("sh", "-c", COUNT)
    eventually(lambda: box.stat("/root/count").status == 200, 20, "it counts")


def test_vm_suspends_and_wakes(vm):
    start_counter(vm)
    vm.yard.box("suspend", vm.name)
    first = vm.show()
    assert first["state"] == "suspended"
    used = states_cpu(vm)
    time.sleep(1)
    assert states_cpu(vm) == used
    before = counter(vm)  # touching it wakes it
    time.sleep(0.5)
    assert counter(vm) > before


def states_cpu(box):
    with open(f"/proc/{pid_of(box)}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_vm_hibernates_and_goes_on(vm):
    start_counter(vm)
    pid = pid_of(vm)
    vm.yard.box("hibernate", vm.name)
    assert not os.path.exists(f"/proc/{pid}")
    before = counter(vm)
    time.sleep(0.5)
    assert counter(vm) > before >= 1
    assert abs(float(vm.out("date +%s.%N")) - time.time()) < 2


def test_vm_rolls_back_memory_and_disk(vm):
    start_counter(vm)
    vm.sh("echo then > /root/file; sync")
    states.snapshot(vm, "then")
    at = counter(vm)
    vm.sh("echo now > /root/file")
    time.sleep(1)
    states.rollback(vm, "then")
    assert vm.out("cat /root/file") == "then"
    back = counter(vm)
    time.sleep(0.5)
    assert counter(vm) > back and back < at + 60


def test_vm_forks_live_and_copies_differ(vm):
    start_counter(vm)
    names = [child.name for child in states.fork(vm, "-n", "3")]
    try:
        secrets = set()
        for name in [vm.name, *names]:
            def out(script, name=name):
                return vm.yard.box("exec", name, "--", "sh", "-c", script).stdout.strip()

            first = int(out("cat /root/count"))
            time.sleep(0.4)
            assert int(out("cat /root/count")) > first
            assert out("hostname") == name
            secrets.add(out("head -c 16 /dev/urandom | od -An -tx1"))
            secrets.add(out("cat /etc/machine-id"))
            out(f"echo {name} > /root/mine")
        assert len(secrets) == 2 * (len(names) + 1)
        for name in [vm.name, *names]:
            assert vm.yard.box("exec", name, "--", "cat", "/root/mine").stdout.strip() == name
    finally:
        for name in names:
            vm.yard.box("rm", "-f", name)


def test_vm_generations_keep_their_memory(vm):
    vm.sh("head -c 3000000 /dev/urandom > /dev/shm/data; sha256sum /dev/shm/data > /root/sum")
    box, made = vm.name, []
    try:
        for i in range(DEPTH):
            child = vm.yard.json("fork", box, timeout=120)["children"][0]["name"]
            made.append(child)
            assert vm.yard.box("exec", child, "--", "sh", "-c", "sha256sum -c --quiet /root/sum && echo ok").stdout == "ok\n"
            vm.yard.box("exec", child, "--", "sh", "-c", f"echo {i} >> /dev/shm/generations")
            box = child
            if len(made) > 2:
                vm.yard.box("rm", "-f", made.pop(0))
        assert vm.yard.box("exec", box, "--", "sh", "-c", "wc -l < /dev/shm/generations").stdout.strip() == str(DEPTH)
    finally:
        for name in made:
            vm.yard.box("rm", "-f", name)


# ---- the daemon and QEMU


def test_vm_outlives_its_daemon(vm):
    start_counter(vm)
    pid = pid_of(vm)
    vm.yard.kill_daemon()
    vm.yard.start_daemon()
    assert pid_of(vm) == pid
    before = counter(vm)
    time.sleep(0.4)
    assert counter(vm) > before
    child = states.fork(vm)[0].name
    assert int(vm.yard.box("exec", child, "--", "cat", "/root/count").stdout) > 0
    vm.yard.box("rm", "-f", child)


def test_vm_suspended_outlives_its_daemon(vm):
    start_counter(vm)
    vm.yard.box("suspend", vm.name)
    vm.yard.kill_daemon()
    vm.yard.start_daemon()
    assert vm.show()["state"] == "suspended"
    before = counter(vm)
    time.sleep(0.4)
    assert counter(vm) > before


def test_vm_whose_qemu_is_killed_says_so_and_starts_again(vm):
    vm.sh("echo kept > /root/kept; sync")
    os.kill(pid_of(vm), signal.SIGKILL)
    shown = eventually(lambda: (s := vm.show())["state"] == "stopped" and s, 20, "it is stopped")
    assert "QEMU" in shown["end"]["detail"]
    vm.yard.box("start", vm.name, timeout=120)
    assert vm.out("cat /root/kept") == "kept"


def test_vm_qemu_is_confined(vm):
    pid = pid_of(vm)
    with open(f"/proc/{pid}/status") as file:
        status = dict(re.findall(r"^(\w+):\s*(.*)$", file.read(), re.M))
    assert status["Uid"].split()[0] != "0" and int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    for left in Path(f"/proc/{pid}/root").rglob("*"):  # where its libraries were while it started
        assert left.is_symlink() or left.is_dir() or not left.stat().st_size, left
    for kind in ("mnt", "pid", "net", "ipc", "uts"):
        assert os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")


# ---- started ahead of need


def test_vm_spare_ran_a_program_that_nobody_sees(image):
    with running_yard_with(BOX_DRIVER="vm", BOX_SPARES="1") as yard:
        require_vm(yard)
        yard.box("new", "first", timeout=300)
        eventually(lambda: yard.info()["spares"] == 1, 60, "a spare waits")
        box = yard.new()
        assert yard.info()["spares"] == 0  # it was taken
        assert box.execs() == []
        assert box.out("hostname; cat /etc/hostname") == f"{box.name}\n{box.name}"
        assert box.out("grep -c '^127.0.1.1' /etc/hosts; grep 127.0.1.1 /etc/hosts") == f"1\n127.0.1.1\t{box.name}"
