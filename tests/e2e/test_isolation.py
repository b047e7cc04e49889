"""What a box cannot see, reach or do; and what the nested profile gives back."""
import os
import socket
import subprocess
import threading

import pytest

from boxtest import eventually, instance_processes, read_proc

# Calls a system call by number and prints its errno (0: it worked).
SYSCALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall(*[ctypes.c_long(int(a, 0)) for a in sys.argv[1:]])
print(ctypes.get_errno() if result == -1 else 0)
"""
EPERM, ENOSPC, ENOSYS = 1, 28, 38


def errno_of(box, *numbers):
    return int(box.python(SYSCALL, *map(str, numbers)).stdout)


# ---- sight -----------------------------------------------------------------------------------


def test_host_files_are_not_there(yard, box):
    secret = yard.base / "secret"
    secret.write_text("x")
    for path in (secret, yard.home, yard.sock):
        assert box.exec("ls", path, check=False).returncode
    assert box.exec("ls", f"/proc/1/root{secret}", check=False).returncode


def test_host_processes_are_not_there(yard, box):
    pids = box.out("ls /proc | grep -c '^[0-9]'")
    assert int(pids) < 8
    assert box.exec("kill", "-0", os.getpid(), check=False).returncode


def test_box_root_is_nobody_on_the_host(yard, box):
    base, first, count = map(int, box.out("head -n 1 /proc/self/uid_map").split())
    assert base == 0 and first >= 65536 and count == 131072
    assert box.out("cat /proc/self/gid_map").split()[1] == str(first)


def test_each_box_has_its_own_range_of_users(make_box):
    ranges = [int(make_box().out("cat /proc/self/uid_map").split()[1]) for _ in range(4)]
    ranges.sort()
    assert all(b - a >= 131072 for a, b in zip(ranges, ranges[1:]))


def test_boxes_do_not_see_each_other(yard, make_box):
    one, two = make_box(), make_box()
    one.sh("echo secret > /root/f; echo secret > /dev/shm/f; echo secret > /run/f; echo secret > /tmp/f")
    one.start("sleep", "987")
    assert two.out("ls /root/f /dev/shm/f /run/f /tmp/f 2>/dev/null; true") == ""
    assert not any("sleep 987" in c for c in two.commands())
    one.start("python3", "-c", "import socket; s=socket.create_server(('127.0.0.1',7777)); s.accept()")
    eventually(lambda: any("7777" in c for c in one.commands()))
    refused = two.python("import socket; socket.create_connection(('127.0.0.1',7777), 2)", check=False)
    assert refused.returncode and "refused" in refused.stderr.lower()


def test_namespaces_are_its_own(yard, box):
    kinds = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"]
    inside = box.out("for k in " + " ".join(kinds) + "; do readlink /proc/self/ns/$k; done").split()
    assert len(inside) == len(kinds)
    for kind, link in zip(kinds, inside):
        assert link != os.readlink(f"/proc/self/ns/{kind}"), kind


def test_network_has_nothing_that_leads_out(box):
    assert [line.split(":")[0].strip() for line in box.out("tail -n +3 /proc/net/dev").splitlines()] == ["lo", "eth0"]
    script = """
import socket
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    server = socket.create_server((address, 0), family=family)
    client = socket.create_connection(server.getsockname()[:2], 2)
    client.sendall(b'x')
    assert server.accept()[0].recv(1) == b'x'
print('ok')
"""
    assert box.python(script).stdout == "ok\n"


def test_no_daemon_fds_or_environment_inside(yard, box):
    assert set(box.out("ls /proc/self/fd").split()) <= {"0", "1", "2", "3"}
    inits = [pid for pid in instance_processes(yard.name, yard.base) if read_proc(pid, "cmdline") == b"box-init\0"]
    assert inits
    assert all(b"BOX_" not in read_proc(pid, "environ") for pid in inits)


def test_devices_are_the_harmless_ones(box):
    names = set(box.out("ls /dev").split())
    assert {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"} <= names
    assert not names & {"kmsg", "mem", "kvm", "vda", "sda", "loop0", "fuse", "port", "kcore"} - {"kcore"}
    assert box.sh("echo x > /dev/null && head -c 4 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c").stdout == "4\n4\n"


# ---- standard profile ------------------------------------------------------------------------


def test_standard_box_has_the_fourteen_capabilities(box):
    bounding = [line for line in box.out("cat /proc/self/status").splitlines() if line.startswith("CapBnd")][0]
    assert bin(int(bounding.split()[1], 16)).count("1") == 14


@pytest.mark.parametrize("command", [
    "mknod /tmp/d b 8 0", "mknod /tmp/c c 1 1", "mount -t tmpfs none /mnt", "mount --bind /etc /mnt", "umount /proc",
    "mount -o remount,rw /sys", "unshare -U true", "unshare -m true", "unshare -n true", "unshare -p true",
    "nsenter -t 1 -m true", "chroot /proc/1/root/../.. ls /host", "dmesg", "ip link add d0 type dummy",
    "echo 1 > /proc/sys/vm/drop_caches", "echo x > /proc/sys/kernel/core_pattern", "echo h > /proc/sysrq-trigger",
    "echo 0 > /sys/kernel/mm/ksm/run", "hostname other", "date -s 2001-01-01", "cat /proc/kcore",
    "echo 1 > /proc/sys/kernel/ns_last_pid", "ln -s x /proc/x", "touch /sys/x", "reboot -f",
])
def test_standard_box_cannot(box, command):
    done = box.sh(command, check=False)
    assert done.returncode != 0, done.stdout
    assert box.show()["state"] == "running"


@pytest.mark.parametrize("path", ["/proc/kallsyms", "/proc/keys", "/proc/timer_list", "/proc/interrupts"])
def test_masked_files_are_empty(box, path):
    assert box.sh(f"test -e {path} && cat {path} || true").stdout.strip() == ""


SYSCALLS = {
    "io_uring_setup": ((425, 8, 0), {ENOSYS}),
    "bpf": ((321, 0, 0, 0), {EPERM, ENOSYS}),
    "userfaultfd": ((323, 0), {EPERM, ENOSYS}),
    "perf_event_open": ((298, 0, 0, -1, -1, 0), {EPERM, ENOSYS}),
    "keyctl": ((250, 0, 0), {EPERM, ENOSYS}),
    "add_key": ((248, 0, 0, 0, 0, 0), {EPERM, ENOSYS}),
    "open_by_handle_at": ((304, -1, 0, 0), {EPERM, ENOSYS}),
    "init_module": ((175, 0, 0, 0), {EPERM, ENOSYS}),
    "kexec_load": ((246, 0, 0, 0, 0), {EPERM, ENOSYS}),
    "unshare user": ((272, 0x10000000), {EPERM, ENOSYS, ENOSPC}),
    "unshare mount": ((272, 0x00020000), {EPERM, ENOSYS}),
    "clone new user": ((56, 0x10000011, 0, 0, 0, 0), {EPERM, ENOSYS, ENOSPC}),
    "clone3": ((435, 0, 0), {ENOSYS}),
    "fsopen": ((430, 0, 0), {EPERM, ENOSYS}),
    "pivot_root": ((155, 0, 0), {EPERM, ENOSYS}),
    "mount_setattr": ((442, -1, 0, 0, 0, 0), {EPERM, ENOSYS}),
    "setns": ((308, -1, 0), {EPERM, ENOSYS}),
    "settimeofday": ((164, 0, 0), {EPERM, ENOSYS}),
    "reboot": ((169, 0, 0, 0, 0), {EPERM, ENOSYS}),
    "swapon": ((167, 0, 0), {EPERM, ENOSYS}),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86-64")
@pytest.mark.parametrize("name", SYSCALLS)
def test_dangerous_system_calls_are_refused(box, name):
    numbers, allowed = SYSCALLS[name]
    assert errno_of(box, *numbers) in allowed


TAKE_INIT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*a): return libc.syscall(*[ctypes.c_long(x) for x in a])
def can_open(path, flags):
    try: return os.open(path, flags)
    except OSError: return -1
buffer = ctypes.create_string_buffer(8)
iov = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
tries = {
    "ptrace": libc.ptrace(0x4206, 1, None, None),
    "memory": can_open("/proc/1/mem", os.O_RDWR),
    "files": can_open("/proc/1/fd/3", os.O_PATH),
    "pidfd_getfd": call(438, os.pidfd_open(1), 3, 0),
    "process_vm_readv": call(310, 1, ctypes.addressof(iov), 1, ctypes.addressof(iov), 1, 0),
}
print(*[name for name, result in tries.items() if result >= 0])
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86-64")
def test_root_in_a_standard_box_cannot_take_over_its_init(box):
    """It would speak to the daemon in box-init's name."""
    assert box.python(TAKE_INIT).stdout == "\n"


def test_typing_into_a_terminal_by_ioctl_is_refused(box):
    script = "import fcntl, os, pty, termios\n_, slave = pty.openpty()\nfcntl.ioctl(slave, termios.TIOCSTI, b'x')"
    assert box.python(script, check=False).returncode


def test_32_bit_system_calls_do_not_pass_the_filter(box):
    """getpid by int 0x80, as machine code."""
    script = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex('b814000000cd80c3'))
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())
"""
    done = box.python(script, check=False)
    assert done.returncode or int(done.stdout) == -ENOSYS


def test_usual_work_is_possible(box):
    box.sh("useradd -m ada && su ada -c 'echo hi > ~/f' && chown root:root /home/ada/f && chmod 600 /home/ada/f")
    assert box.exec("sudo", "-n", "id", "-u").stdout == "0\n"
    assert box.exec("su", "nobody", "-s", "/bin/sh", "-c", "id -un").stdout == "nobody\n"
    assert box.sh("cd /tmp && echo 'int main(){return 42;}' > a.c && gcc a.c && ./a.out", check=False).returncode == 42
    assert box.exec("git", "init", "/tmp/repo").returncode == 0
    assert box.exec("node", "-e", "require('fs').readFileSync('/etc/passwd'); console.log(1+1)").stdout == "2\n"


# ---- nested profile --------------------------------------------------------------------------


def test_nested_profile_lets_sandboxes_work(make_box):
    box = make_box(profile="nested")
    assert box.out("unshare -Ur id -u") == "0"
    assert box.out("unshare -Urpfmn --mount-proc sh -c 'mount -t tmpfs x /mnt && echo mounted; echo $$'") == "mounted\n1"


def test_nested_profile_still_keeps_the_host_out(yard, make_box):
    box = make_box(profile="nested")
    for command in ("mknod /tmp/d b 8 0", "echo x > /proc/sys/kernel/core_pattern", "echo 1 > /proc/sys/vm/drop_caches",
                    "date -s 2001-01-01", "dmesg", f"ls {yard.home}"):
        assert box.sh(command, check=False).returncode, command
    assert errno_of(box, 425, 8, 0) == ENOSYS


# ---- the daemon talks to a hostile file system -----------------------------------------------


@pytest.mark.parametrize("profile", ["standard", "nested"])
def test_box_cannot_lead_the_daemon_to_a_host_socket(fresh_yard, profile):
    made = fresh_yard.new(profile=profile)
    other = fresh_yard.new()
    trap_path = fresh_yard.base / "trap.sock"
    reached = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trap:
        trap.bind(str(trap_path))
        trap.listen(8)
        trap.settimeout(0.1)

        def watch():
            while not stop.is_set():
                try:
                    reached.append(trap.accept())
                except TimeoutError:
                    pass

        stop = threading.Event()
        watcher = threading.Thread(target=watch)
        watcher.start()
        made.sh("umount -l /run/boxyard; rm -rf /run/boxyard/* ; mkdir -p /run/boxyard;"
                f"ln -sf {trap_path} /run/boxyard/init.sock; mkdir -p {trap_path.parent}; true", check=False)
        fresh_yard.kill_daemon()
        fresh_yard.start_daemon()
        fresh_yard.api("POST", f"{made.path}/exec", {"argv": ["true"]}, timeout=30)
        assert other.out("echo fine") == "fine"
        assert made.remove().status == 204
        stop.set()
        watcher.join()
    assert reached == []


def test_socket_of_the_agent_cannot_be_removed_in_a_standard_box(box):
    box.sh("rm -rf /run/boxyard; rm -f /run/boxyard/init.sock; mv /run/boxyard /run/other", check=False)
    assert box.out("echo hi") == "hi"


def test_setuid_files_of_a_box_are_out_of_reach_on_the_host(yard, box):
    box.sh("cp /bin/true /root/setuid-trap; chmod 6755 /root/setuid-trap")
    found = [p for p in yard.home.rglob("setuid-trap")]
    probe = "import os, sys; os.setgid(65534); os.setuid(65534); sys.exit(any(os.path.exists(p) for p in sys.argv[1:]))"
    yard.base.chmod(0o755)
    assert subprocess.run(["/usr/bin/python3", "-c", probe, *map(str, found)], check=False).returncode == 0
    for path in found:
        assert any(not folder.stat().st_mode & 0o001 for folder in path.parents if yard.home in folder.parents), path


def test_replacing_system_folders_by_links_does_not_hurt_the_host(yard, box):
    """Mount points are looked up safely when the box starts again."""
    target = yard.base / "target"
    target.mkdir(exist_ok=True)
    box.sh(f"mv /mnt /mnt.old; ln -s {target} /mnt; rm -rf /srv; ln -s / /srv; mv /var/tmp /var/t; ln -s /proc /var/tmp",
           check=False)
    yard.box("stop", box.name)
    done = yard.box("start", box.name, check=False)
    if done.returncode == 0:
        assert box.out("echo hi") == "hi"
    else:
        assert done.stderr.startswith("box: ")
    assert list(target.iterdir()) == []


def test_only_families_that_a_network_namespace_holds(box):
    """vsock, bluetooth, alg, xdp ... are the machine's, or load its modules."""
    out = box.python("""
import errno, socket
allowed = {1, 2, 10, 16, 17}
for family in range(46):
    try:
        socket.socket(family, socket.SOCK_DGRAM if family != 17 else socket.SOCK_RAW).close()
        assert family in allowed, family
    except OSError as why:
        assert family in allowed or why.errno == errno.EAFNOSUPPORT, (family, why)
print("fine")
""").stdout
    assert out.strip() in ("fine", b"fine")


def test_the_machines_console_is_not_there(box):
    assert box.out("ls /dev/console 2>/dev/null || echo none") == "none"
    assert box.out("echo x > /dev/null && head -c 1 /dev/zero | wc -c") == "1"


def test_one_box_cannot_take_all_terminals(yard, make_box):
    greedy, other = make_box(), make_box()
    out = greedy.python("""
import os
taken = []
try:
    while len(taken) < 2000:
        taken.append(os.openpty())
except OSError:
    pass
print(len(taken))
""").stdout
    assert int(out) <= 256
    assert other.out("script -qc 'echo hi' /dev/null | tr -d '\\r'") == "hi"
