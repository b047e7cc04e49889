"""What a process has set for itself and the kernel tells nobody: it comes back, or the capture is
refused by name."""
import pytest

import states
from boxtest import eventually

# landlock_create_ruleset and landlock_restrict_self, where the first argument says: main, thread or
# user.
LANDLOCK = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def restrict():
    handled = ctypes.c_uint64(1 << 1)  # writing to files
    fd = libc.syscall(444, ctypes.byref(handled), 8, 0)
    if fd < 0:
        print("none", flush=True); sys.exit(0)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if libc.syscall(446, fd, 0):
        print("failed", ctypes.get_errno(), flush=True); sys.exit(1)
    os.close(fd)
    print("restricted", flush=True)
    time.sleep(1000)
if sys.argv[1] == "user":
    os.setgid(1234); os.setuid(1234)
if sys.argv[1] == "thread":
    threading.Thread(target=restrict).start()
    time.sleep(1000)
elif sys.argv[1] == "free":
    libc.prctl(38, 1, 0, 0, 0)
    print("restricted", flush=True)
    time.sleep(1000)
restrict()
"""


def start(box, kind):
    running = box.start("python3", "-c", LANDLOCK, kind)
    said = eventually(lambda: box.logs(running["id"], raw="true"), 10)
    if said == b"none\n":
        pytest.skip("LOUD: this kernel has no Landlock")
    assert said == b"restricted\n"
    return running


@pytest.mark.parametrize("profile", ["standard", "nested"])
@pytest.mark.parametrize("kind", ["main", "thread", "user"])
def test_a_process_with_landlock_is_not_captured_and_goes_on(yard, make_box, profile, kind):
    box = make_box(profile=profile)
    if kind == "user":
        states.hibernate(box)
        states.wake(box)
    running = start(box, kind)
    for verb in ("hibernate", "snapshot", "fork"):
        refused = yard.box(verb, box.name, check=False)
        assert refused.returncode and "(python3) has restricted itself with Landlock" in refused.stderr, refused
    assert states.state(box) == "running" and box.get_exec(running["id"])["state"] == "running"
    yard.api("POST", f"{box.path}/execs/{running['id']}/signal", {"signal": "KILL"})
    box.wait_exec(running["id"])
    states.hibernate(box)
    states.wake(box)


@pytest.mark.parametrize("profile", ["standard", "nested"])
def test_no_new_privileges_alone_are_no_reason_to_refuse(make_box, profile):
    box = make_box(profile=profile)
    running = start(box, "free")
    for _ in range(2):  # a box that was restored looks different from outside
        states.hibernate(box)
        states.wake(box)
    assert box.get_exec(running["id"])["state"] == "running"
    assert not box.out("ps -eo pid,ppid,args | awk '$2 == 0 && $1 != 1'"), "nobody from outside stays"
