"""Programs that fork without an exec and share what they wait by, as servers do that save
themselves in a child; and the numbers of
processes, which decide what such a program looks like to a restore."""
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import states
from boxtest import BOX_BIN, CRIU, DRIVER, Yard, eventually


def count_from(box, last):
    """The next process of the box gets the number after this one, as if all numbers had been used
    once."""
    script = f"echo {last} > /proc/sys/kernel/ns_last_pid"
    if DRIVER == "vm":
        box.sh(script)
    else:  # root inside may not
        subprocess.run(["nsenter", "-t", str(states.main_process(box)), "-p", "sh", "-c", script], check=True)


def number(box):
    return int(box.out("echo $$"))


# ---- numbers ---------------------------------------------------------------------------------


def test_numbers_of_processes_go_on_after_a_wake_a_fork_and_a_rollback(make_box):
    box = make_box()
    count_from(box, 1000)
    last = number(box)
    assert last > 1000
    states.hibernate(box)
    states.wake(box)
    woken = number(box)
    assert woken > last
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        assert number(child) > woken
        assert number(box) > woken
    made = states.snapshot(box)
    at_snapshot = number(box)
    states.rollback(box, made["id"])
    assert woken < number(box) <= at_snapshot + 20, "counted on from the moment of the snapshot"


def test_numbers_that_have_wrapped_go_on_low(make_box):
    """The counter is what it was, not above the highest number in use."""
    box = make_box()
    most = int(box.out("cat /proc/sys/kernel/pid_max"))
    count_from(box, most - 20)
    high = box.start("sleep", "1000")
    pid = int(box.out("pgrep -x sleep || ps -C sleep -o pid="))
    assert pid > most - 20
    count_from(box, 400)
    states.hibernate(box)
    states.wake(box)
    assert 400 < number(box) < 1000
    assert box.get_exec(high["id"])["state"] == "running"


# ---- shared epolls ---------------------------------------------------------------------------


# The parent serves; on "fork" it forks a child that shares its epoll and sleeps; connections that
# come later are the parent's alone.
SERVER = """import asyncio, os, sys, time
async def serve(reader, writer):
    while line := await reader.readline():
        if line == b"fork\\n":
            pid = os.fork()
            if pid == 0:
                while True: time.sleep(1000)
            line = b"%d %d\\n" % (os.getpid(), pid)
        writer.write(line); await writer.drain()
async def main():
    await (await asyncio.start_server(serve, "127.0.0.1", 7010)).serve_forever()
asyncio.run(main())
"""
# Opens connections, and asks on each of them whenever it is told to.
CLIENT = """import socket, sys, os
links = [socket.create_connection(("127.0.0.1", 7010), 20)]
def ask(link, text):
    link.sendall(text.encode() + b"\\n")
    return link.makefile().readline().strip()
open("/tmp/forked.new", "w").write(ask(links[0], "fork")); os.rename("/tmp/forked.new", "/tmp/forked")
links += [socket.create_connection(("127.0.0.1", 7010), 20) for _ in range(10)]
assert all(ask(link, "first %d" % i) == "first %d" % i for i, link in enumerate(links))
os.mkfifo("/tmp/ask"); os.mkfifo("/tmp/answer")
while True:
    word = open("/tmp/ask").read().strip()
    good = [ask(link, "%s %d" % (word, i)) == "%s %d" % (word, i) for i, link in enumerate(links)]
    open("/tmp/answer", "w").write("%s %d" % (word, sum(good)))
"""


def ask_links(box, word):
    done = box.exec("timeout", "20", "sh", "-c", f"echo {word} > /tmp/ask; cat /tmp/answer", timeout=60)
    assert done.stdout == f"{word} 11", done


def start_server(box):
    for name, text in (("server", SERVER), ("client", CLIENT)):
        assert box.put(f"/root/{name}.py", text.encode()).status < 300
    box.start("python3", "/root/server.py")
    eventually(lambda: box.sh("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 7010))'", check=False).returncode == 0, 30)


@pytest.mark.parametrize("child_below", [True, False], ids=["child has the lower number", "child has the higher number"])
def test_server_that_forked_comes_back_from_everything(make_box, child_below):
    box = make_box()
    if child_below:
        count_from(box, 2000)
    start_server(box)
    if child_below:
        count_from(box, 100)
    box.start("python3", "/root/client.py")
    eventually(lambda: box.sh("test -p /tmp/answer", check=False).returncode == 0, 30)
    parent, child = map(int, box.out("cat /tmp/forked").split())
    assert (child < parent) == child_below
    ask_links(box, "before")
    states.hibernate(box)
    states.wake(box)
    ask_links(box, "woken")
    made = states.snapshot(box)
    [copy] = states.fork(box)
    with states.removed_afterwards(copy):
        ask_links(copy, "forked")
        ask_links(box, "parent")
    states.rollback(box, made["id"])
    ask_links(box, "back")
    assert json.loads(box.out(f"python3 -c 'import os; print(os.path.exists(\"/proc/{child}\"))'").lower()), "the child lives"


# ---- what is unusual is tried before anything ends -------------------------------------------


# Restores are done in the name of the box's root. Below the build folder: /tmp is another one for
# CRIU. No script: it is executed by a
# descriptor that is closed by that.
CRIU_THAT_FAILS = """#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	if (argc > 1 && atoi(getenv("BOX_OWNER") ? getenv("BOX_OWNER") : "0") && access(FLAG, F_OK) == 0)
		return 3;
	return execv(CRIU, argv);
}
"""


@pytest.fixture
def failing():
    """A yard whose CRIU can be made to fail at every restore, by touching a file."""
    # CRIU has a /tmp and a /run of its own, in which a checkout that lies there is not seen.
    folder = Path(tempfile.mkdtemp(prefix="boxt-", dir="/var/tmp"))
    program, flag, real = folder / "criu-that-fails", folder / "fails", folder / "criu"
    shutil.copy(CRIU, real)
    subprocess.run(["gcc", "-x", "c", f'-DFLAG="{flag}"', f'-DCRIU="{real}"', "-o", program, "-"], input=CRIU_THAT_FAILS, text=True, check=True)
    yard = Yard()
    yard.env["BOX_CRIU"] = str(program)
    try:
        yard.start_daemon()
        yield yard, flag
    finally:
        problems = yard.destroy()
        shutil.rmtree(folder)
    assert not problems, "\n".join(problems)


def test_unusual_state_that_cannot_be_restored_is_not_slept_in(failing):
    """The box goes on; one with nothing unusual is not tried."""
    yard, flag = failing
    box, plain = yard.new(), yard.new()
    states.install(box)
    checks = states.Checks(box, "lent_epoll", "shared_epoll")
    before = checks.counts()
    flag.touch()
    refused = yard.box("hibernate", box.name, check=False)
    assert refused.returncode and "could not be restored, so nothing was changed" in refused.stderr, refused.stderr
    assert states.state(box) == "running"
    assert checks.counts() == states.plus(before, 1)
    states.hibernate(plain)
    flag.unlink()
    residue = states.settled(yard)
    states.hibernate(box)
    states.wake(box)
    assert checks.counts() == states.plus(before, 2)
    states.nothing_grew(yard, residue)
    states.wake(plain)


def test_daemon_killed_during_a_trial_leaves_the_box_running(yard, make_box):
    box = make_box()
    states.install(box)
    checks = states.Checks(box, "lent_epoll")
    before = checks.counts()
    for pause in (0.05, 0.1, 0.15, 0.25):
        asking = subprocess.Popen([BOX_BIN, "hibernate", box.name], env=yard.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(pause)
        yard.kill_daemon()
        asking.wait()
        yard.start_daemon()
        if states.state(box) == "hibernated":
            states.wake(box)
        eventually(lambda: states.state(box) == "running", 20)
        now = checks.counts()
        assert now == states.plus(before, 1)
        before = now


# ---- what cannot come back is refused while the box runs, with its name ----------------------


ONE_THREAD = """import fcntl, os, struct, threading, time
r, w = os.pipe()
def run():
    fcntl.fcntl(r, 15, struct.pack("ii", 0, threading.get_native_id()))  # F_SETOWN_EX
    open("/tmp/ready", "w").close()
    time.sleep(1000)
threading.Thread(target=run).start()
"""
EPOLL_IN_FLIGHT = """import os, select, socket, time
a, b = socket.socketpair()
r, w = os.pipe()
epoll = select.epoll(); epoll.register(r, select.EPOLLIN)
socket.send_fds(a, [b"x"], [epoll.fileno()]); epoll.close()
open("/tmp/ready", "w").close()
time.sleep(1000)
"""
FILE_IN_FLIGHT = """import os, select, socket, time
a, b = socket.socketpair()
r, w = os.pipe()
epoll = select.epoll(); epoll.register(r, select.EPOLLIN)
socket.send_fds(a, [b"x"], [r]); os.close(r)
open("/tmp/ready", "w").close()
time.sleep(1000)
"""
PACKETS = """import os, time
r, w = os.pipe2(os.O_DIRECT)
os.write(w, b"one"); os.write(w, b"two")
open("/tmp/ready", "w").close()
time.sleep(1000)
"""


@pytest.mark.parametrize("script, reason", [
    (ONE_THREAD, "has the signals of a file sent to a single thread"),
    (EPOLL_IN_FLIGHT, "an epoll is on its way through a unix socket"),
    (FILE_IN_FLIGHT, "watches a file by epoll that is on its way through a unix socket"),
    (PACKETS, "has packets in a pipe that nobody has read yet"),
], ids=["signals of one thread", "epoll in flight", "file of an epoll in flight", "packets in a pipe"])
def test_what_cannot_come_back_is_refused_while_the_box_runs(yard, make_box, script, reason):
    box = make_box()
    assert box.put("/root/odd.py", script.encode()).status < 300
    odd = box.start("python3", "/root/odd.py")
    eventually(lambda: box.sh("test -e /tmp/ready", check=False).returncode == 0, 30)
    pid = box.out("pgrep -f /root/odd.py | head -1 || true") or "?"
    for words in (["hibernate", box.name], ["snapshot", box.name], ["fork", box.name]):
        refused = yard.box(*words, check=False)
        assert refused.returncode and reason in refused.stderr, refused.stderr
        assert f"process {pid} (python3)" in refused.stderr or "epoll is on its way" in reason, refused.stderr
        assert "criu" not in refused.stderr.lower() and "disk-only" in refused.stderr, refused.stderr
    assert states.state(box) == "running" and box.get_exec(odd["id"])["state"] == "running"
