"""What a box finds when it wakes from disk: its time-outs over, its limits kept, its odd files
open."""
import time

import pytest

import states
from boxtest import SLOWNESS, eventually
from terminal import Terminal

SOON = {"suspend": "1s", "hibernate": "1s"}
NEVER = {"suspend": "off", "hibernate": "off"}

WAITS = {
    "time.sleep": "time.sleep(5)",
    "asyncio": "import asyncio; asyncio.run(asyncio.sleep(5))",
    "event": "import threading; threading.Event().wait(5)",
    "epoll": "import select\ne = select.epoll(); end = time.monotonic() + 5\nwhile end > time.monotonic(): e.poll(end - time.monotonic())",
}


def program(wait):
    return f"import time\nbegan = time.time()\n{wait}\nopen('/took', 'w').write(str(time.time() - began))\ntime.sleep(100000)"


def took(box):
    eventually(lambda: box.stat("/took").status == 200, 20 * SLOWNESS, "it ends", every=0.2)
    time.sleep(0.2)
    return float(box.get("/took").body)


# ---- time ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", WAITS)
def test_time_passes_while_a_box_is_hibernated(make_box, wait, quick):
    box = make_box(idle=NEVER)
    box.start("python3", "-c", program(WAITS[wait]))
    time.sleep(1)
    states.hibernate(box)
    time.sleep(2.5)
    states.wake(box)
    assert 4.9 < took(box) < 6.5


def test_clocks_go_on_through_hibernation_and_stand_still_for_a_rollback(make_box):
    box = make_box(idle=NEVER)
    clock = "import time; print(time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic())"

    def clocks():
        return [float(word) for word in box.python(clock).stdout.split()]

    states.snapshot(box, "then")
    before, began = clocks(), time.monotonic()
    states.hibernate(box)
    time.sleep(3)
    states.wake(box)
    passed = time.monotonic() - began
    for old, new in zip(before, clocks()):
        assert abs(new - old - passed) < 1.5 * SLOWNESS, (before, passed)
    states.rollback(box, "then")
    for old, new in zip(before, clocks()):
        assert new - old < 2 * SLOWNESS, "a snapshot's clocks go on from its own moment"


def test_a_timer_wakes_a_hibernated_box_in_time(make_box, quick):
    box = make_box(idle=SOON)
    box.start("python3", "-c", program("import asyncio; asyncio.run(asyncio.sleep(9))"))
    eventually(lambda: states.state(box) == "hibernated", 8, "it is hibernated before")
    eventually(lambda: states.state(box) == "running", 12, "it wakes", every=0.05)
    assert 8.9 < took(box) < 10


def test_one_that_sleeps_for_a_span_stays_in_memory_and_is_in_time(make_box, quick):
    """A sleep is begun anew after a restore by whoever asked for it, with all its time."""
    box = make_box(idle=SOON)
    box.start("sh", "-c", "date +%s.%N > /began; sleep 8; date +%s.%N > /ended; exec sleep infinity")
    eventually(lambda: states.state(box) == "suspended", 6)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        assert states.state(box) == "suspended"
        time.sleep(0.2)
    eventually(lambda: box.stat("/ended").status == 200, 10)
    began, ended = (float(box.out(f"cat /{name}")) for name in ("began", "ended"))
    assert 7.9 < ended - began < 9
    # Nothing is due any more: now it may go to disk.
    eventually(lambda: states.state(box) == "hibernated", 12 * SLOWNESS)


# ---- odd files -------------------------------------------------------------------------------


def alive(box, exec_id):
    return box.yard.api("GET", f"{box.path}/execs/{exec_id}", expect=200).json["state"] == "running"


@pytest.mark.parametrize("code", [
    "import os; d = os.open('/proc/self', os.O_RDONLY)\ndef check(): return os.readlink(f'/proc/self/fd/{d}').startswith('/proc/')",
    "import os; os.chdir('/proc/self')\ndef check(): return os.getcwd().startswith('/proc/')",
    "import ctypes, os; os.makedirs('/app/deep', exist_ok=True); os.makedirs('/zoo', exist_ok=True); c = ctypes.CDLL(None); n = c.inotify_init()\n"
    "for p in (b'/app/deep', b'/zoo'): assert c.inotify_add_watch(n, p, 0x100) >= 0\n"
    "def check():\n    open('/app/deep/x', 'w').close(); open('/zoo/x', 'w').close(); return len(os.read(n, 4096)) >= 64",
], ids=["folder of /proc open", "in a folder of /proc", "inotify anywhere"])
def test_odd_files_come_back(make_box, code):
    box = make_box(idle=NEVER)
    box.put("/check.py", f"{code}\nimport signal, time\nopen('/ready', 'w').close()\n"
            "signal.sigwait([signal.SIGUSR1])\nopen('/good', 'w').write(str(check()))\ntime.sleep(1000)".encode())
    exec_id = box.start("python3", "-c", "import signal; signal.pthread_sigmask(0, [signal.SIGUSR1]); exec(open('/check.py').read())")["id"]
    eventually(lambda: box.stat("/ready").status == 200, 10 * SLOWNESS)
    [child] = states.fork(box)
    states.hibernate(box)
    states.wake(box)
    for one in (box, child):
        one.yard.api("POST", f"{one.path}/execs/{exec_id}/signal", {"signal": "USR1"}, expect=204)
        eventually(lambda: one.get("/good").body == b"True", 10 * SLOWNESS, one.name)
    child.remove()


def test_poll_without_end_is_not_interrupted(make_box):
    box = make_box(idle=NEVER)
    code = ("import ctypes, os\nr, w = os.pipe()\nclass P(ctypes.Structure): _fields_ = [('fd', ctypes.c_int), ('e', ctypes.c_short), ('r', ctypes.c_short)]\n"
            "p = P(r, 1, 0); c = ctypes.CDLL(None, use_errno=True); open('/ready', 'w').close()\n"
            "n = c.poll(ctypes.byref(p), 1, -1); open('/ended', 'w').write(f'{n} {ctypes.get_errno()}')")
    exec_id = box.start("python3", "-c", code)["id"]
    eventually(lambda: box.stat("/ready").status == 200, 10 * SLOWNESS)
    [child] = states.fork(box)
    states.hibernate(box)
    states.wake(box)
    time.sleep(0.3)
    for one in (box, child):
        assert alive(one, exec_id) and one.stat("/ended").status == 404
    child.remove()


# ---- limits ----------------------------------------------------------------------------------


FILL = """import os, time
try:
    while os.fork(): pass
except OSError: pass
time.sleep(10000)
"""


def test_a_box_at_its_limit_of_processes_wakes_and_is_copied(make_box):
    box = make_box(idle=NEVER, pids=40)
    box.start("python3", "-c", FILL)
    eventually(lambda: states.count_inside(box) == 40, 10 * SLOWNESS, "it has as many as it may")
    states.hibernate(box)
    states.wake(box)
    [child] = states.fork(box)
    for one in (box, child):  # what CRIU and box-init did meanwhile takes a moment to go
        eventually(lambda: states.count_inside(one) == 40, 5 * SLOWNESS)
    # And the limit is what it was.
    refused = child.yard.api("POST", f"{child.path}/exec", {"argv": ["true"]})
    assert refused.status != 200 and states.count_inside(child) == 40, refused.body
    child.remove()


# ---- terminals -------------------------------------------------------------------------------


def job_control(box, exec_id):
    """In the innermost shell: a program in the foreground, stopped and ended by keys; the terminal
    by its name."""
    with Terminal(box.yard, "attach", box.name, exec_id, cols=100) as term:
        term.type("sh -c 'echo began-$((40+2)); exec sleep 5000'\r")
        term.expect("began-42", 20)
        term.type(b"\x03")
        term.expect("inner> ", 20)
        term.type("sh -c 'echo again-$((40+2)); exec sleep 5001'\r")
        term.expect("again-42", 20)
        term.type(b"\x1a")
        term.expect("Stopped", 20)
        term.expect("inner> ", 20)
        term.type("kill %1; (exec </dev/tty) && echo named-$((40+2))\r")
        term.expect("named-42", 20)
        term.expect("inner> ", 20)
        term.type(b"\x10\x11")
        term.wait(20)


def test_a_shell_in_a_shell_keeps_its_job_control(make_box):
    box = make_box(idle=NEVER)
    exec_id = box.start("bash", "--norc", "-i", tty=True, rows=24, cols=100, env={"PS1": "outer> "})["id"]
    with Terminal(box.yard, "attach", box.name, exec_id, cols=100) as term:
        term.type("PS1='in''ner> ' bash --norc -i\r")
        term.expect("inner> ", 20)
        term.type(b"\x10\x11")
        term.wait(20)
    job_control(box, exec_id)
    [child] = states.fork(box)
    job_control(child, exec_id)
    states.hibernate(box)
    states.wake(box)
    job_control(box, exec_id)
    states.snapshot(box, "then")
    states.rollback(box, "then")
    job_control(box, exec_id)
    child.remove()


def test_a_terminal_with_a_high_number_comes_back(make_box):
    box = make_box(idle=NEVER)
    code = ("import os, pty, time\nall = [pty.openpty() for _ in range(60)]\nfor a, b in all[:-1]: os.close(a); os.close(b)\n"
            "open('/ready', 'w').close(); time.sleep(0.5)\nwhile True:\n"
            "    os.write(all[-1][1], b'x\\n'); open('/said', 'w').write(os.read(all[-1][0], 9).decode()); time.sleep(0.1)")
    box.start("python3", "-c", code)
    eventually(lambda: box.stat("/ready").status == 200, 10 * SLOWNESS)
    states.hibernate(box)
    states.wake(box)
    box.exec("rm", "-f", "/said")
    eventually(lambda: box.stat("/said").status == 200, 5 * SLOWNESS)


# ---- the snapshot before a program -----------------------------------------------------------


@pytest.mark.parametrize("how", ["idle", "suspended", "hibernated"])
def test_a_program_of_a_sleeping_box_has_its_snapshot_first(yard, make_box, how):
    box = make_box(auto_snapshot="exec", idle={**NEVER, "suspend": "1s"} if how == "idle" else NEVER)
    if how == "idle":
        eventually(lambda: states.state(box) == "suspended", 15 * SLOWNESS, "the box is suspended")
    elif how == "suspended":
        yard.box("suspend", box.name)
    else:
        states.hibernate(box)
    assert yard.box("exec", box.name, "--", "echo", "one").stdout == "one\n"
    snapshots = yard.api("GET", f"{box.path}/timeline", expect=200).json["snapshots"]
    kept = [s for s in snapshots if s["cause"] == "exec"]
    assert kept and kept[0]["detail"] == "echo one" and kept[0]["kind"] == "full", snapshots
    events = yard.api("GET", "/v1/events", query={"box": box.id, "limit": 1000}, expect=200).json["events"]
    assert "snapshot.failed" not in [event["type"] for event in events]
