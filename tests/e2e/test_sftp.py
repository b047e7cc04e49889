"""The SFTP server of a box: box-init's own, whatever the image has.

Front doors start it by core (EXEC_SFTP); here box-init is asked over its socket, as the daemon does."""
import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

import states
from boxtest import eventually

GUEST = Path(__file__).resolve().parent.parent / "guest"
sys.path.insert(0, str(GUEST))
import initclient as ic  # noqa: E402


def init_socket(box):
    """From outside: box-init listens to nobody else."""
    return f"/proc/{states.main_process(box)}/root/run/boxyard/init.sock"


def connect(box):
    """A connection that can be captured begins in the network of the box, as the daemon's."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as home, open(f"/proc/{states.main_process(box)}/ns/net") as inside:
        assert libc.setns(inside.fileno(), 0) == 0
        try:
            return ic.Conn(init_socket(box))
        finally:
            assert libc.setns(home.fileno(), 0) == 0


def sftp(box, user, *commands, check=True):
    server = f"{sys.executable} {GUEST}/sftpbridge.py {init_socket(box)} {user}"
    done = subprocess.run(["sftp", "-q", "-b", "-", "-D", server], input="\n".join(commands) + "\n", text=True, capture_output=True, timeout=60)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout if check else done


def packet(kind, number, *texts):
    body = bytes([kind]) + number.to_bytes(4, "big") + b"".join(len(t).to_bytes(4, "big") + t for t in texts)
    return len(body).to_bytes(4, "big") + body


def ask(channel, number):
    """The real path of '.' by request number."""
    channel.out.clear()
    channel.data(packet(16, number, b"."))
    channel.wait(lambda c: len(c.out) >= 4 and len(c.out) >= 4 + int.from_bytes(c.out[:4], "big"))
    assert channel.out[4] == 104 and int.from_bytes(channel.out[5:9], "big") == number


def open_session(box, user=""):
    channel = connect(box).start("sftp1", "/none/sftp-server", user=user, stdin=ic.SFTP)
    channel.wait_reply()
    channel.data(packet(1, 3))
    channel.wait(lambda c: b"users-groups-by-id" in c.out)
    ask(channel, 7)
    return channel


def test_any_user_has_sftp_without_a_program_in_the_image(box, tmp_path):
    assert box.sh("command -v sftp-server || ls /usr/lib/openssh/sftp-server", check=False).returncode
    box.sh("useradd -m ada; echo secret >/root/secret; chmod 600 /root/secret")
    here = tmp_path / "here"
    here.write_bytes(os.urandom(3_000_000))
    out = sftp(box, "ada", "pwd", f"put {here} there", f"get there {tmp_path}/back", "ls -l", "symlink there link")
    assert "/home/ada" in out and "ada" in out
    assert (tmp_path / "back").read_bytes() == here.read_bytes() == box.get("/home/ada/there").body
    assert box.out("stat -c %U:%G /home/ada/there; readlink /home/ada/link") == "ada:ada\nthere"
    assert sftp(box, "ada", "get /root/secret /dev/null", check=False).returncode == 1
    assert sftp(box, "ada", "put /etc/hosts /etc/hosts", check=False).returncode == 1
    assert "/root" in sftp(box, "root", "pwd", f"get secret {tmp_path}/secret")
    assert (tmp_path / "secret").read_text() == "secret\n"


def test_is_a_process_like_others(box):
    channel = open_session(box)
    found = [p for p in box.processes() if p["command"] == "sftp-server"]
    assert len(found) == 1
    channel.send(ic.END)
    channel.wait_closed()
    assert channel.exit["code"] == 0
    assert "sftp-server" not in box.commands()


@pytest.mark.slow
def test_a_session_goes_on_through_snapshot_and_fork_and_ends_in_the_copy(box):
    channel = open_session(box, "nobody")
    states.snapshot(box)
    ask(channel, 8)
    [child] = states.fork(box)
    with states.removed_afterwards(child):
        ask(channel, 9)
        eventually(lambda: "sftp-server" not in child.commands(), 5, "the copy's server has no client")
        assert "sftp-server" in box.commands()
        sftp(child, "root", "pwd")


@pytest.mark.slow
def test_a_box_with_a_session_hibernates_and_wakes(box):
    open_session(box)
    states.hibernate(box)
    states.wake(box)
    eventually(lambda: "sftp-server" not in box.commands(), 5, "its client is gone")
    sftp(box, "root", "pwd")
