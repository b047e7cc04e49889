"""Every box is a machine one can log in to: logins by SSH, with OpenSSH's own clients."""
import hashlib
import os
import pty
import re
import signal
import socket
import subprocess
import time

import pytest


from boxtest import BOX_BIN, eventually
from ssh_rig import Rig, free_port, need


@pytest.fixture(scope="module")
def rig(yard, tmp_path_factory):
    rig = Rig(yard, tmp_path_factory.mktemp("ssh"))
    yield rig
    rig.remove_keys()


@pytest.fixture
def box(make_box):
    return make_box()


# ---- programs --------------------------------------------------------------------------------


def test_command_has_exit_code_and_both_streams(rig, box):
    got = rig.ssh(box.name, "echo out; echo err >&2; exit 7")
    assert (got.returncode, got.stdout, got.stderr) == (7, b"out\n", b"err\n")


def test_input_reaches_the_program_whole(rig, box):
    data = os.urandom(3_000_000)
    got = rig.ssh(box.name, "sha256sum", input=data, check=True)
    assert got.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_output_arrives_whole(rig, box):
    got = rig.ssh(box.name, "head -c 20000000 /dev/zero | tr '\\0' x", check=True)
    assert got.stdout == b"x" * 20_000_000


def test_long_command_arrives_whole(rig, box):
    text = "x" * 100_000
    assert rig.ssh(box.name, f"echo {text} | wc -c").stdout == b"100001\n"


def test_signal_that_ended_the_program_is_told(rig, box):
    got = rig.ssh(box.name, "kill -TERM $$", options=["-v"])
    assert got.returncode == 255 and b"exit-signal" in got.stderr, got


def test_box_has_a_terminal_of_the_client_size(rig, box):
    master, slave = pty.openpty()
    import fcntl, struct, termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    process = subprocess.Popen(
        rig.command(box.name, "tty; stty size; echo TERM=$TERM; sleep 0.1", options=["-tt"]),
        stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm-256color"},
    )
    out, _ = process.communicate(timeout=30)
    os.close(master)
    os.close(slave)
    assert b"/dev/pts/" in out and b"33 111" in out and b"TERM=xterm-256color" in out, out


def test_shell_is_a_login_shell_of_the_user(rig, box):
    got = rig.ssh(box.name, input=b"shopt -q login_shell && echo login; echo $HOME; exit 3\n")
    assert got.returncode == 3 and got.stdout == b"login\n/root\n", got


def test_locale_and_variables_travel(rig, box):
    got = rig.ssh(box.name, "echo $LC_TIME $FOO", options=["-o", "SendEnv=LC_TIME", "-o", "SetEnv=FOO=bar"],
                  env={**os.environ, "LC_TIME": "de_DE.UTF-8"})
    assert got.stdout == b"de_DE.UTF-8 bar\n", got


def test_another_user_of_the_box(rig, box):
    box.sh("useradd -m -s /bin/bash agent")
    assert rig.out(f"{box.name}+agent", "id -un; pwd") == "agent\n/home/agent"
    assert rig.out(f"{box.name}+root", "id -u") == "0"
    got = rig.ssh(f"{box.name}+nobodyhere", "id")
    assert got.returncode and b"nobodyhere" in got.stderr, got


def test_many_programs_on_one_connection(rig, box):
    path, end = rig.master(box.name)
    try:
        running = [
            subprocess.Popen(["ssh", "-F", str(rig.config), "-S", path, f"{box.name}@boxyard", f"echo {i}; exit {i}"],
                             stdout=subprocess.PIPE)
            for i in range(50)
        ]
        for i, process in enumerate(running):
            out, _ = process.communicate(timeout=60)
            assert (out, process.returncode) == (f"{i}\n".encode(), i)
    finally:
        end()


def test_keys_are_exchanged_again_and_nothing_is_lost(rig, box):
    data = os.urandom(8_000_000)
    got = rig.ssh(box.name, "cat", input=data, options=["-o", "RekeyLimit=1M"], timeout=120, check=True)
    assert hashlib.sha256(got.stdout).digest() == hashlib.sha256(data).digest()


# ---- which box -------------------------------------------------------------------------------


def test_box_that_is_not_there_says_what_there_is(rig, box):
    got = rig.ssh("no-such-box", "true")
    assert got.returncode == 255
    assert b"no box 'no-such-box'" in got.stderr and box.name.encode() in got.stderr, got


def test_name_that_is_no_name_is_refused(rig):
    for user in ("a b", "../x", "x" * 200, "box+root", "ünï"):
        got = rig.ssh(user, "true")
        assert got.returncode == 255, (user, got)


def test_suspended_box_wakes(rig, box):
    rig.yard.box("suspend", box.name)
    assert rig.out(box.name, "echo on") == "on"


def test_hibernated_box_wakes(rig, box):
    rig.yard.box("hibernate", box.name)
    assert rig.out(box.name, "echo on") == "on"


def test_stopped_box_says_so(rig, box):
    rig.yard.box("stop", box.name)
    got = rig.ssh(box.name, "true")
    assert got.returncode == 255 and b"start" in got.stderr, got


# ---- who -------------------------------------------------------------------------------------


def other_key(rig, name, *options):
    key = rig.make_key(name)
    rig.yard.box("key", "add", name, "-f", f"{key}.pub", *options)
    config = rig.folder / f"{name}.config"
    rig.write_config(key, config)
    return key, config


def test_unknown_key_is_refused_and_recorded(rig, box):
    key = rig.make_key("stranger")
    config = rig.folder / "stranger.config"
    rig.write_config(key, config)
    since = rig.yard.next_offset()
    got = rig.ssh(box.name, "true", config=config)
    assert got.returncode == 255 and b"Permission denied (publickey)" in got.stderr, got
    eventually(lambda: [e for e in rig.yard.events(since=since) if e["type"] == "ssh.refused"], 5)


def test_login_and_program_are_events_of_the_key(rig, box):
    since = rig.yard.next_offset()
    rig.out(box.name, "true")
    events = rig.yard.events(since=since)
    login = next(e for e in events if e["type"] == "ssh.login")
    assert "key tester" in str(login), login
    assert any(e["type"] == "exec.started" and "tester" in str(e) for e in events), events


@pytest.mark.parametrize("kind", [("rsa", "-b", "2048"), ("ecdsa", "-b", "256"), ("ecdsa", "-b", "521")])
def test_kinds_of_keys(rig, box, kind):
    name = "-".join(kind).replace("--", "-").replace("-b-", "")
    key = rig.make_key(name, *kind)
    rig.yard.box("key", "add", name, "--role", "exec", "-f", f"{key}.pub")
    config = rig.folder / f"{name}.config"
    rig.write_config(key, config)
    assert rig.out(box.name, "echo in", config=config) == "in"


def test_key_of_one_box_reaches_that_box_alone(rig, box, make_box):
    other = make_box()
    _, config = other_key(rig, f"only-{box.name}", "--box", box.name)
    assert rig.out(box.name, "echo in", config=config) == "in"
    got = rig.ssh(other.name, "true", config=config)
    assert got.returncode == 255 and other.name.encode() not in got.stderr.split(b"there are")[-1], got
    assert rig.ssh("box", "new", config=config).returncode


def test_removed_key_ends_at_once(rig, box):
    key, config = other_key(rig, "leaver", "--role", "exec")
    path = rig.folder / "leaver.sock"
    master = subprocess.Popen(rig.command(box.name, options=["-M", "-N", "-S", str(path)], config=config))
    try:
        eventually(path.exists, 20)
        line = ["ssh", "-F", str(config), "-S", str(path), f"{box.name}@boxyard"]
        assert subprocess.run([*line, "true"], timeout=30).returncode == 0
        rig.yard.box("key", "rm", "leaver")
        assert subprocess.run([*line, "true"], timeout=30, capture_output=True).returncode == 255
    finally:
        master.terminate()
        master.wait(20)


def test_key_that_may_only_read_starts_nothing(rig, box):
    _, config = other_key(rig, "reader", "--role", "read")
    got = rig.ssh(box.name, "true", config=config)
    assert got.returncode == 255 and b"role" in got.stderr, got


# ---- lines that drop -------------------------------------------------------------------------


def test_dropped_line_can_be_joined_again(rig, box):
    process = rig.spawn(box.name, "echo begun; read line; echo got $line; exit 4", options=["-tt"])
    assert process.stdout.readline().strip() == b"begun"
    process.kill()
    process.communicate()
    time.sleep(0.5)
    got = rig.ssh(box.name, "attach", options=["-tt"], input=b"hello\n", timeout=30)
    assert b"got hello" in got.stdout and got.returncode == 4, got


def test_program_outlives_the_daemon(fresh_yard, tmp_path):
    rig = Rig(fresh_yard, tmp_path / "first")
    name = fresh_yard.new().name
    process = rig.spawn(name, "echo begun; sleep 3; echo done > /root/done")
    assert process.stdout.readline() == b"begun\n"
    fresh_yard.kill_daemon()
    process.communicate(timeout=20)
    assert process.returncode == 255
    fresh_yard.start_daemon()
    fresh_yard.box("key", "rm", "tester")
    again = Rig(fresh_yard, tmp_path / "second")
    eventually(lambda: again.ssh(name, "cat /root/done").stdout == b"done\n", 20)


# ---- files -----------------------------------------------------------------------------------


def test_scp_there_and_back(rig, box, tmp_path):
    need("scp")
    (tmp_path / "a").write_bytes(os.urandom(5_000_000))
    scp = ["scp", "-q", "-F", str(rig.config)]
    subprocess.run([*scp, tmp_path / "a", f"{box.name}@boxyard:/root/a"], check=True, timeout=60)
    subprocess.run([*scp, f"{box.name}@boxyard:/root/a", tmp_path / "b"], check=True, timeout=60)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_sftp_as_another_user(rig, box, tmp_path):
    need("sftp")
    box.sh("useradd -m agent")
    (tmp_path / "x").write_text("mine")
    subprocess.run(["sftp", "-q", "-F", str(rig.config), "-b", "-", f"{box.name}+agent@boxyard"],
                   input=f"put {tmp_path}/x x\nmkdir d\nrename x d/y\nchmod 600 d/y\nls -l d\n", text=True,
                   check=True, timeout=60, stdout=subprocess.PIPE)
    assert box.out("stat -c '%U %a' /home/agent/d/y") == "agent 600"


def test_git_push(rig, box, tmp_path):
    need("git")
    if box.sh("command -v git").returncode:
        pytest.skip("the image has no git")
    box.sh("git init -q --bare /root/r.git")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    git = ["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    env = {**os.environ, "GIT_SSH_COMMAND": f"ssh -F {rig.config}"}
    subprocess.run([*git, "push", "-q", f"ssh://{box.name}@boxyard/root/r.git", "HEAD:main"], check=True, env=env, timeout=60)
    assert box.out("git -C /root/r.git rev-parse main")


# ---- ports -----------------------------------------------------------------------------------

ECHO = "import socketserver\nclass H(socketserver.StreamRequestHandler):\n def handle(s):\n  s.wfile.write(b'echo '+s.rfile.readline())\nsocketserver.ThreadingTCPServer.allow_reuse_address=True\nsocketserver.ThreadingTCPServer(('127.0.0.1',7777),H).serve_forever()"


def talk(port, text=b"hello\n"):
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(text)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while piece := sock.recv(65536):
            got += piece
        return got


def may_talk(port):
    try:
        return talk(port)
    except OSError:
        return None


def forwarding(rig, box, *options):
    process = rig.spawn(box.name, options=["-N", "-o", "ExitOnForwardFailure=yes", *options])
    return process


def test_local_forwarding_reaches_a_port_of_the_box(rig, box):
    box.start("python3", "-c", ECHO)
    port = free_port()
    process = forwarding(rig, box, "-L", f"{port}:localhost:7777")
    try:
        eventually(lambda: may_talk(port) == b"echo hello\n", 15)
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_port_where_nothing_listens_is_refused(rig, box):
    got = rig.ssh(box.name, options=["-W", "localhost:4999"])
    assert got.returncode == 255 and (b"open failed" in got.stderr or b"forwarding failed" in got.stderr), got


def test_remote_forwarding_leads_out_of_the_box(rig, box):
    server = socket.create_server(("127.0.0.1", 0))
    process = forwarding(rig, box, "-R", f"6666:127.0.0.1:{server.getsockname()[1]}")
    try:
        script = ("import socket,time\nfor i in range(100):\n try:\n  s=socket.create_connection(('127.0.0.1',6666));break\n"
                  " except OSError: time.sleep(0.1)\ns.sendall(b'out');print(s.recv(9).decode())")
        started = box.start("python3", "-c", script)["id"]
        server.settimeout(20)
        conn, _ = server.accept()
        assert conn.recv(9) == b"out"
        conn.sendall(b"back")
        conn.close()
        assert box.wait_exec(started)["exit_code"] == 0
    finally:
        process.terminate()
        process.communicate(timeout=10)
        server.close()


# ---- hostile ---------------------------------------------------------------------------------


def test_passwords_are_not_offered(rig, box):
    got = rig.ssh(box.name, "true", options=["-o", "PubkeyAuthentication=no", "-v"])
    assert got.returncode == 255 and b"publickey" in got.stderr and b"password" not in got.stderr.split(b"continue:")[-1]


def test_garbage_and_silence_are_ended(rig):
    with socket.create_connection((rig.host, int(rig.port)), 10) as sock:
        sock.settimeout(10)
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        eventually_closed(sock)
    with socket.create_connection((rig.host, int(rig.port)), 10) as sock:
        sock.settimeout(30)
        assert sock.recv(8) == b"SSH-2.0-"
        eventually_closed(sock)


def eventually_closed(sock):
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass


def test_process_of_a_connection_has_nothing(rig, box):
    process = rig.spawn(box.name, "echo in; sleep 20")
    try:
        assert process.stdout.readline() == b"in\n"
        pid = connection_pid(rig)
        status = open(f"/proc/{pid}/status").read()
        assert re.search(r"^Uid:\s+(?!0\b)", status, re.M), status
        assert re.search(r"^CapEff:\s+0+$", status, re.M) and re.search(r"^Seccomp:\s+2$", status, re.M)
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
        assert os.listdir(f"/proc/{pid}/root/") == []
    finally:
        process.kill()
        process.communicate()


def connection_pid(rig):
    daemon = rig.yard.daemon_pid()
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                if open(f"/proc/{pid}/cmdline").read().split("\0")[1:2] == ["ssh-connection"] and \
                        int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]) == daemon:
                    return int(pid)
            except OSError:
                pass
    return None


# ---- what the box itself may reach ------------------------------------------------------------


def test_unix_socket_of_the_box(rig, box, tmp_path):
    box.start("python3", "-c", "import socket;s=socket.socket(socket.AF_UNIX);s.bind('/root/s');s.listen()\n"
              "while 1: c=s.accept()[0];c.sendall(b'unix '+c.recv(99));c.close()")
    port = free_port()
    process = forwarding(rig, box, "-L", f"{port}:/root/s")
    try:
        eventually(lambda: may_talk(port) == b"unix hello\n", 15)
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_name_that_the_policy_forbids_is_refused(rig, make_box):
    box = make_box(policy={"preset": "none"})
    got = rig.ssh(box.name, options=["-W", "forbidden.example:80"])
    assert got.returncode == 255, got
    assert b"open failed" in got.stderr or b"forwarding failed" in got.stderr, got


BANNER = "import socket,sys;s=socket.create_connection((sys.argv[1],22),10);print(s.recv(8).decode())"


def test_from_a_box_to_a_box_where_both_policies_agree(rig, make_box):
    one = make_box(name="ssh-one", policy={"preset": "none", "boxes": ["ssh-two"]})
    two = make_box(name="ssh-two", policy={"preset": "none", "boxes": ["ssh-one"]})
    assert one.python(BANNER, "ssh-two.box").stdout.strip() == "SSH-2.0-"
    rig.yard.api("PUT", f"/v1/boxes/{two.name}/policy", {"policy": {"preset": "none"}}, expect=200)
    assert one.python(BANNER, "ssh-two.box", check=False).returncode


def test_local_users_need_no_key(rig, box):
    got = subprocess.run([str(BOX_BIN), "ssh", box.name, "--", "echo", "local"], env={**os.environ, **rig.yard.env, "HOME": str(rig.folder)},
                         capture_output=True, timeout=60)
    assert got.stdout == b"local\n", got


@pytest.mark.slow
def test_more_logins_at_once_than_may_be_outside(rig, box):
    """128 may be there without a login; those beyond wait. By hand 200 came in."""
    running = [rig.spawn(box.name, "echo in; sleep 2") for _ in range(140)]
    out = [process.communicate(timeout=120)[0] for process in running]
    assert out == [b"in\n"] * 140, f"{out.count(b'in' + bytes([10]))} of 140"
