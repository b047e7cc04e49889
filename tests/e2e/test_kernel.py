"""What a box can use of the kernel: its counters are its own, its memory is bounded, its figures are sane."""
import pytest

from boxtest import eventually

# Takes as much as it gets of one thing the kernel counts for a user, says how much, and holds it.
TAKE = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
what, most = sys.argv[1], int(sys.argv[2])
got = 0
if what == "inotify":
    while got < most and libc.inotify_init1(0) >= 0:
        got += 1
elif what == "signals":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])
    while got < most and libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, None) == 0:
        got += 1
elif what == "mqueue":
    while got < most and libc.mq_open(b"/q%d-%d" % (os.getpid(), got), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0:
        got += 1
print(got, flush=True)
time.sleep(float(sys.argv[3]))
if what == "mqueue":
    for i in range(got):
        libc.mq_unlink(b"/q%d-%d" % (os.getpid(), i))
"""


def take(box, what, most, hold=0):
    return int(box.python(TAKE, what, str(most), str(hold)).stdout)


# ---- counters of users ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what,most", [("inotify", 100000), ("signals", 200000), ("mqueue", 1000)])
def test_one_box_takes_nothing_from_another(make_box, what, most):
    greedy, other = make_box(), make_box()
    started = greedy.start("python3", "-c", TAKE, what, str(most), "60")
    eventually(lambda: greedy.logs(started["id"], raw=1), 20)
    assert take(greedy, what, 1) == 0, "all of its own is taken"
    assert take(other, what, 5) == 5
    assert take(make_box(), what, 5) == 5


def test_the_user_namespace_belongs_to_the_box(yard, make_box):
    """NS_GET_OWNER_UID, of a new box, of a fork and of a woken one."""
    script = "import fcntl, os, struct; b = bytearray(4); " \
        "fcntl.ioctl(os.open('/proc/self/ns/user', os.O_RDONLY), 0xb704, b); print(struct.unpack('I', b)[0])"
    box = make_box()
    assert box.python(script).stdout == "0\n"
    yard.box("fork", box.name, "owned")
    assert yard.box("exec", "owned", "--", "python3", "-c", script).stdout == "0\n"
    yard.box("rm", "-f", "owned")
    yard.box("hibernate", box.name)
    assert box.python(script).stdout == "0\n"
