"""test_ssh_control.py - the commands of the command line over SSH: `ssh box@HOST WORDS`

Each test runs twice: with a stand-in for the SSH door, which starts `box control` as the door does and gives it
connections to the daemon's socket, and with a real ssh client, where the daemon has the door (skipped aloud else).
"""
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import threading
import time

import pytest

from boxtest import BOX_BIN, SLOWNESS, eventually, random_name
from terminal import Terminal

EXIT_USAGE, EXIT_NOT_FOUND, EXIT_UNSUPPORTED = 64, 66, 69


class StandIn:
    """Plays the door, with root as the principal."""

    def __init__(self, yard):
        self.yard = yard
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.env = {"BOX_API_FD": str(self.theirs.fileno()), "LANG": "C.UTF-8"}
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while self.ours.recv(1) == b"?":
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(self.yard.sock))
                socket.send_fds(self.ours, [b"+"], [one.fileno()])

    def close(self):
        self.theirs.close()
        self.ours.shutdown(socket.SHUT_RDWR)
        self.ours.close()

    def program(self):
        return ["unshare", "--pid", "--net", "--ipc", "--fork", "--kill-child", str(BOX_BIN), "control", "--uid", "1073610999", "--"]

    def popen(self, *words, **kw):
        return subprocess.Popen([*self.program(), *map(str, words)], env=self.env, pass_fds=[self.theirs.fileno()], **kw)

    def terminal(self, *words, **kw):
        return Terminal(self.yard, *map(str, words), program=self.program(), env={**self.env, "TERM": "xterm"},
                        pass_fds=[self.theirs.fileno()], **kw)


def listening_port(yard):
    """None: the daemon does not listen."""
    listen = (yard.info().get("ssh") or {}).get("listen")
    return listen.rpartition(":")[2] if listen else None


class Ssh:
    """A real client of a real door, with an admin's key."""

    def __init__(self, yard, folder, user="box"):
        self.yard, self.folder, self.user = yard, folder, user
        self.port = listening_port(yard)
        self.key = None  # only the first of a folder has one to remove
        key = folder / "id"
        if not key.exists():
            self.key = random_name("key")
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
            yard.box("key", "add", self.key, "-f", "-", "--role", "admin", input=key.with_suffix(".pub").read_text())

    def close(self):
        if self.key:
            self.yard.box("key", "rm", self.key)

    def program(self, *options):
        return ["ssh", "-F", "none", "-i", str(self.folder / "id"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o",
                "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-p", str(self.port), *options,
                f"{self.user}@127.0.0.1"]

    def popen(self, *words, **kw):
        # The command of other logins is one text for the box's shell.
        text = shlex.join(map(str, words)) if self.user == "box" else " ".join(words)
        return subprocess.Popen([*self.program("-T"), *([text] if words else [])], **kw)

    def terminal(self, *words, **kw):
        return Terminal(self.yard, *([shlex.join(map(str, words))] if words else []), program=self.program("-tt"),
                        env={**os.environ, "TERM": "xterm"}, **kw)


@pytest.fixture(params=["stand-in", "ssh"])
def door(request, yard, tmp_path):
    if request.param == "ssh" and not (listening_port(yard) and shutil.which("ssh")):
        pytest.skip("the daemon has no SSH door")
    one = Ssh(yard, tmp_path) if request.param == "ssh" else StandIn(yard)
    yield one
    one.close()


def run(door, *words, input=b"", code=0, timeout=60):
    client = door.popen(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = client.communicate(input, timeout=timeout * SLOWNESS)
    assert client.returncode == code, (words, client.returncode, out[-2000:], errors[-2000:])
    return out, errors


# ---- words and answers -----------------------------------------------------------------------


@pytest.mark.asan
def test_verbs_answer_as_the_command_line_does(door, yard, box):
    assert [one["name"] for one in json.loads(run(door, "ls", "--json")[0])] == [one["name"] for one in yard.boxes()]
    assert box.name.encode() in run(door, "ls")[0]
    assert run(door, "version")[0].decode() == yard.box("version").stdout
    assert b"did you mean 'fork'" in run(door, "frok", code=EXIT_USAGE)[1]
    assert b"no box" in run(door, "show", "no-such-box", code=EXIT_NOT_FOUND)[1]
    error = json.loads(run(door, "show", "no-such-box", "--json", code=EXIT_NOT_FOUND)[1])
    assert error["error"]["code"] == "not_found"


def test_without_words_and_terminal_there_is_help(door):
    out, _ = run(door)
    assert b"\n  snapshot " in out and b"\n  serve " not in out


@pytest.mark.asan
def test_programs_run_with_exit_codes_and_streams(door, box):
    out, errors = run(door, "exec", "-i", box.name, "--", "sh", "-c", "cat; echo bad >&2; exit 7", input=b"hello\n", code=7)
    assert (out, errors) == (b"hello\n", b"bad\n")
    data = os.urandom(8 << 20)
    out, _ = run(door, "exec", "-i", box.name, "--", "sha256sum", input=data)
    assert out.split()[0].decode() == hashlib.sha256(data).hexdigest()
    out, _ = run(door, "exec", box.name, "--", "head", "-c", "20000000", "/dev/zero")
    assert len(out) == 20000000


def test_a_new_box_is_made_and_removed(door, yard):
    name = random_name()
    assert run(door, "new", name)[0] == f"{name}\n".encode()
    assert run(door, "snapshot", name, "one")[0] == b"one\n"
    assert b"one" in run(door, "timeline", name)[0]
    assert run(door, "rm", "-f", name)[0] == f"{name}\n".encode()
    assert not [one for one in yard.boxes() if one["name"] == name]


# ---- files -----------------------------------------------------------------------------------


@pytest.mark.asan
def test_files_go_by_stdin_and_stdout(door, box, make_box):
    data = os.urandom(3 << 20)
    run(door, "cp", "-", f"{box.name}:/tmp/x", input=data)
    assert box.get("/tmp/x").body == data
    assert run(door, "cp", f"{box.name}:/tmp/x", "-")[0] == data
    other = make_box()
    run(door, "cp", f"{box.name}:/tmp/x", f"{other.name}:/tmp/y")
    assert other.get("/tmp/y").body == data
    run(door, "policy", "set", box.name, "-", input=b"preset: none\n")
    assert b"none" in run(door, "policy", "show", box.name)[0]


@pytest.mark.parametrize("words", [["cp", "/etc/passwd", "BOX:/x"], ["cp", "BOX:/etc/passwd", "."], ["new", "--copy", "."],
                                   ["new", "--mount", "/etc:/x"], ["image", "import", "/x"], ["up"], ["down", "--purge"], ["context", "ls"]])
def test_what_needs_files_of_ours_is_refused_with_a_hint(door, box, words):
    _, errors = run(door, *[word.replace("BOX", box.name) for word in words], code=EXIT_UNSUPPORTED)
    assert b"over ssh" in errors and b"(" in errors


# ---- terminals -------------------------------------------------------------------------------


def test_a_shell_at_a_terminal(door, box):
    with door.terminal("shell", box.name, rows=31, cols=97) as terminal:
        terminal.expect(r"[#$] ")
        terminal.type("stty size; tty; hostname\r")
        terminal.expect("31 97")
        terminal.expect("/dev/pts/")
        terminal.type("exit 9\r")
        assert terminal.wait() == 9


def test_the_menu_runs_commands_and_shells(door, box):
    with door.terminal() as terminal:
        terminal.expect("box> ")
        terminal.type("ls\r")
        terminal.expect(box.name)
        terminal.expect("box> ")
        terminal.type(f"shell {box.name}\r")
        terminal.expect(r"[#$] ")
        terminal.type("echo $((6*7)); exit\r")
        terminal.expect("42")
        terminal.expect("box> ")
        terminal.type(f"exec -it {box.name} -- sh -c 'read x; echo got $x'\r")
        terminal.type("this\r")
        terminal.expect("got this")
        terminal.expect("box> ")
        terminal.type(f"exec {box.name} -- sleep 100\r")
        time.sleep(0.5 * SLOWNESS)
        terminal.type("\x03")
        terminal.expect("box> ")
        terminal.type("show nobody\r")
        terminal.expect("no box")
        terminal.type("exit\r")
        assert terminal.wait() == EXIT_NOT_FOUND


def test_a_program_is_detached_from_and_attached_to(door, box):
    with door.terminal() as terminal:
        terminal.expect("box> ")
        terminal.type(f"exec -it {box.name} -- sh -c 'echo begun; read x; echo end $x'\r")
        terminal.expect("begun\r\n")
        terminal.type("\x10\x11")
        terminal.expect("detached")
        terminal.expect("box> ")
        terminal.type(f"attach {box.name}\r")
        terminal.expect("begun\r\n")
        time.sleep(0.5 * SLOWNESS)
        terminal.type("now\r")
        terminal.expect("end now")
        terminal.expect("box> ")
        terminal.type("\x04")
        assert terminal.wait() == 0


# ---- what needs processes of its own ---------------------------------------------------------


def test_forks_run_programs(door, box):
    out, _ = run(door, "fork", box.name, "-n", "3", "--rm", "--", "sh", "-c", "echo $BOX_FORK_INDEX")
    assert sorted(line.split()[-1] for line in out.decode().splitlines()) == ["0", "1", "2"]


def test_a_try_that_fails_leaves_nothing(door, box):
    run(door, "try", box.name, "--", "sh", "-c", "echo x > /root/tried; exit 3", code=3)
    assert box.sh("cat /root/tried", check=False).returncode != 0


def test_a_box_of_rm_is_removed_when_the_connection_ends(door, yard):
    name = random_name()
    client = door.popen("new", name, "--rm", "--", "sleep", "100", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: [one for one in yard.boxes() if one["name"] == name and one["state"] == "running"], 20 * SLOWNESS, what="it runs")
    if isinstance(door, StandIn):
        hang_up(client)
    else:
        client.kill()
    eventually(lambda: not [one for one in yard.boxes() if one["name"] == name], 20 * SLOWNESS, what="it is gone")
    client.communicate()


def hang_up(client):
    """What the door does when a connection ends: HUP to box-control, the child of unshare."""
    children = subprocess.run(["pgrep", "-P", str(client.pid)], capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["kill", "-HUP", *children], check=True)


def test_another_machine_uses_all_commands_through_it(door, yard, box, tmp_path):
    """BOX_HOST=ssh://box@HOST: its ssh runs 'box dial-stdio' here."""
    client = door.popen("box", "dial-stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client.stdin.write(b"GET /v1/boxes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    client.stdin.flush()
    answer = client.stdout.read()
    assert answer.startswith(b"HTTP/1.1 200") and box.name.encode() in answer
    client.stdin.close()
    assert client.wait(20 * SLOWNESS) == 0


# ---- logins with a meaning of their own ------------------------------------------------------


@pytest.fixture
def login(door, yard, tmp_path):
    """Words for the stand-in are what control_words makes of the login."""

    def as_user(user, command=None):
        if isinstance(door, Ssh):
            return Ssh(yard, tmp_path, user), ([command] if command else [])
        verb, _, name = user.partition("+")
        if verb == "try":
            return door, ["try", "-i", name, "--", "/bin/sh", "-c", command]
        return door, ["enter", verb, *([name] if name else []), *(["--", command] if command else [])]

    return as_user


def test_new_and_fork_make_a_box_and_enter_it(login, yard, box):
    before = {one["name"] for one in yard.boxes()}
    for user in ("new", f"fork+{box.name}"):
        one, words = login(user, "cat; hostname; exit 4")
        out, errors = run(one, *words, input=b"in\n", code=4)
        made = {one["name"] for one in yard.boxes()} - before
        assert len(made) == 1 and out == b"in\n" + made.copy().pop().encode() + b"\n"
        assert made.copy().pop().encode() in errors
        yard.box("rm", "-f", made.pop())


def test_try_undoes_what_failed(login, box):
    one, words = login(f"try+{box.name}", "echo $((1+1)) > /root/tried; exit 5")
    run(one, *words, code=5)
    assert box.sh("cat /root/tried", check=False).returncode != 0
    one, words = login(f"try+{box.name}", "echo $((1+1)) > /root/tried")
    run(one, *words)
    assert box.out("cat /root/tried") == "2"
