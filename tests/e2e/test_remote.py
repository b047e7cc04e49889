"""test_remote.py - the command line and a daemon of another machine, or another daemon of this one"""
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from boxtest import BOX_BIN, SLOWNESS, Yard, eventually, random_name

EXIT_USAGE, EXIT_STATE, EXIT_UNAVAILABLE, EXIT_FORBIDDEN = 64, 65, 69, 77


def run(*words, env, input=None, check=True, timeout=60):
    done = subprocess.run([BOX_BIN, *map(str, words)], env=env, input=input, capture_output=True, text=True,
                          timeout=timeout * SLOWNESS, check=False, **({} if input is not None else {"stdin": subprocess.DEVNULL}))
    assert not check or done.returncode == 0, (words, done.returncode, done.stderr)
    return done


# ---- which daemon of this machine ------------------------------------------------------------


def test_a_home_that_is_not_the_daemons_is_refused(yard, box, tmp_path):
    other = {**yard.env, "BOX_HOME": str(tmp_path / "other")}
    for words in (["ls"], ["rm", "-f", box.name], ["exec", box.name, "--", "true"], ["logs", box.name]):
        refused = run(*words, env=other, check=False)
        assert refused.returncode == EXIT_STATE, refused
        assert str(yard.home) in refused.stderr and str(tmp_path / "other") in refused.stderr
    assert box.show()["state"] == "running"
    link = tmp_path / "link"
    link.symlink_to(yard.home)
    assert box.name in run("ls", env={**yard.env, "BOX_HOME": str(link)}).stdout
    no_home = {k: v for k, v in yard.env.items() if k != "BOX_HOME"}
    assert box.name in run("ls", env=no_home).stdout


def test_a_home_alone_says_which_daemon_is_meant(yard, tmp_path):
    env = {k: v for k, v in yard.env.items() if k != "BOX_RUN"}
    env["BOX_HOME"] = str(tmp_path / "home")
    refused = run("ls", env=env, check=False)
    assert refused.returncode == EXIT_UNAVAILABLE and "box up" in refused.stderr


@pytest.mark.slow
def test_up_and_down_with_a_home_alone(image, tmp_path):
    yard = Yard()
    try:
        yard.env.pop("BOX_RUN")
        yard.run_dir = yard.home / "run"
        yard.sock = yard.run_dir / "box.sock"
        run("up", env=yard.env)
        assert run("info", "--json", env=yard.env).stdout
        assert json.loads(run("info", "--json", env=yard.env).stdout)["socket"] == str(yard.sock)
    finally:
        problems = yard.destroy()
    assert not problems, problems


# ---- another machine -------------------------------------------------------------------------


FAKE_SSH = """#!/bin/sh
# Stands for the ssh client and the other machine: only the words of the command arrive there, and a
# clean environment.
while [ "$1" != -- ]; do echo "option $1" >> {log}; shift; done
echo "host $2 command $3" >> {log}
exec env -i PATH={bin}:/usr/bin:/bin BOX_HOME={home} BOX_RUN={run} BOX_CONF={conf} sh -c "$3"
"""


@pytest.fixture
def by_ssh(yard, tmp_path):
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    log = tmp_path / "ssh.log"
    ssh = bin_dir / "ssh"
    ssh.write_text(FAKE_SSH.format(log=log, bin=bin_dir, home=yard.home, run=yard.run_dir, conf=yard.env["BOX_CONF"]))
    ssh.chmod(0o755)
    (bin_dir / "box").symlink_to(BOX_BIN)
    env = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "HOME": str(tmp_path), "NO_COLOR": "1", "BOX_HOST": "ssh://ada@there:2222"}
    return env, log


class TlsProxy:
    """TLS in front of the daemon's loopback door, as people put one there; gives requests the name the door knows."""

    def __init__(self, port, certificate, key):
        self.port_inside = port
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        plain = socket.create_server(("127.0.0.1", 0))
        self.port = plain.getsockname()[1]
        self.listener = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self.acceptor = threading.Thread(target=self.accept, daemon=True)
        self.acceptor.start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            client.do_handshake()
        except (ssl.SSLError, OSError):
            client.close()
            return
        inside = socket.create_connection(("127.0.0.1", self.port_inside))
        client.setblocking(False)
        inside.setblocking(False)
        names = (f"Host: localhost:{self.port}".encode(), f"Host: 127.0.0.1:{self.port_inside}".encode())
        ways = [(client, inside, bytearray(), names), (inside, client, bytearray(), None)]
        try:
            while True:
                busy = False
                for source, sink, waiting, change in ways:
                    if not waiting:
                        try:
                            got = source.recv(65536)
                            if not got:
                                return
                            waiting += got.replace(*change) if change else got
                        except (ssl.SSLWantReadError, BlockingIOError):
                            pass
                    if waiting:
                        try:
                            del waiting[:sink.send(waiting)]
                            busy = True
                        except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
                            pass
                if not busy:
                    time.sleep(0.001)
        except OSError:
            pass
        finally:
            client.close()
            inside.close()

    def close(self):
        """A thread that still waited in accept() would take connections of whoever gets the number of the socket next."""
        plain = socket.socket(fileno=os.dup(self.listener.fileno()))
        plain.shutdown(socket.SHUT_RDWR)
        plain.close()
        self.acceptor.join(5)
        self.listener.close()


def make_certificate(folder, name="localhost"):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"],
                   check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def by_https(yard, tmp_path):
    certificate, key = make_certificate(tmp_path)
    proxy = TlsProxy(yard.port(), certificate, key)
    made = yard.api("POST", "/v1/tokens", {"name": random_name("tok"), "scopes": ["read", "exec", "create"]}, expect=201).json
    yield {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1", "BOX_HOST": f"https://localhost:{proxy.port}",
           "BOX_TOKEN": made["token"], "BOX_CACERT": str(certificate)}
    proxy.close()
    yard.api("DELETE", f"/v1/tokens/{made['id']}")


@pytest.fixture(params=["ssh", "https", "http", "unix"])
def far(request, yard, tmp_path):
    if request.param == "ssh":
        return request.getfixturevalue("by_ssh")[0]
    if request.param == "https":
        return request.getfixturevalue("by_https")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_COLOR": "1"}
    if request.param == "unix":
        return {**env, "BOX_HOST": f"unix://{yard.sock}"}
    made = yard.api("POST", "/v1/tokens", {"name": random_name("tok"), "scopes": ["read", "exec", "create"]}, expect=201).json
    request.addfinalizer(lambda: yard.api("DELETE", f"/v1/tokens/{made['id']}"))
    return {**env, "BOX_HOST": f"http://127.0.0.1:{yard.port()}", "BOX_TOKEN": made["token"]}


def test_everything_works_from_afar(yard, far, tmp_path):
    name = random_name("far")
    assert run("new", name, env=far).stdout.strip() == name
    try:
        assert name in run("ls", env=far).stdout
        done = run("exec", name, "--", "sh", "-c", "echo out; echo err >&2; exit 3", env=far, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
        big = "".join(f"line {i}\n" for i in range(200000))
        assert run("exec", "-i", name, "--", "cat", env=far, input=big).stdout == big
        (tmp_path / "big").write_text(big)
        run("cp", tmp_path / "big", f"{name}:/root/big", env=far)
        run("cp", f"{name}:/root/big", tmp_path / "back", env=far)
        assert (tmp_path / "back").read_text() == big
        exec_id = run("exec", "-d", name, "--", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done", env=far).stdout.strip()
        assert run("logs", "-f", name, exec_id, env=far).stdout == "1\n2\n3\n"
        assert "PID" in run("ps", name, env=far).stdout
        assert run("stats", name, env=far).stdout
    finally:
        run("rm", "-f", name, env=far)


def test_a_program_runs_in_several_forks_far_away(yard, box, far):
    """Each has a process of its own here, with a connection of its own."""
    kids = [f"{box.name}-{end}" for end in "ab"]
    try:
        done = run("fork", box.name, *kids, "--", "sh", "-c", "echo $BOX_NAME", env=far)
        assert sorted(done.stdout.splitlines()) == [f"{kid} | {kid}" for kid in kids]
    finally:
        yard.box("rm", "-f", *kids, check=False)


def test_what_is_removed_at_its_end_is_from_afar_too(yard, box, far, tmp_path):
    """A process beside the command sees that it ends: no connection may keep the pipe between them open."""
    folder, name = tmp_path / "folder", random_name("far")
    folder.mkdir()
    (folder / "file").write_text("x")
    before = {one["id"] for one in yard.boxes()}
    assert run("new", "--rm", "--copy", folder, "--", "ls", "/workspace", env=far, timeout=15).stdout == "file\n"
    run("fork", "--rm", box.name, "--", "true", env=far, timeout=15)
    eventually(lambda: {one["id"] for one in yard.boxes()} == before, 10)
    run("new", "--copy", folder, name, env=far, timeout=15)
    yard.box("rm", "-f", name)
    with open(folder / "endless", "wb") as sparse:
        sparse.truncate(1 << 40)
    one = subprocess.Popen([BOX_BIN, "new", "--copy", folder, name], env=far, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    # Some of the files are there: the command knows of the box.
    eventually(lambda: yard.box("exec", name, "--", "ls", "-A", "/workspace", check=False).stdout, 10)
    one.kill()
    one.wait(20)
    eventually(lambda: name not in {one["name"] for one in yard.boxes()}, 20, "the box of a killed command is removed")


def test_a_killed_build_far_away_leaves_no_box(yard, by_ssh, tmp_path):
    def builds():
        return [b for b in yard.boxes() if b["name"].startswith("build")]

    context = tmp_path / "context"
    context.mkdir()
    (context / "Boxfile").write_text("from debian\nrun while :; do sleep 0.05; done\n")
    one = subprocess.Popen([BOX_BIN, "image", "build", "-t", "never", "--no-cache", "-f", context / "Boxfile", context], env=by_ssh[0],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    eventually(builds, 10)
    one.kill()
    one.wait(20)
    eventually(lambda: not builds(), 15, "the box of the build is removed")


def test_a_signal_reaches_a_program_far_away(yard, box, far):
    """Ctrl-C goes to the whole group: it must not cut the connection."""
    one = subprocess.Popen([BOX_BIN, "exec", box.name, "--", "sh", "-c", "trap 'echo got; exit 5' INT; echo ready; while :; do sleep 0.1; done"],
                           env=far, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert one.stdout.readline() == "ready\n"
    os.killpg(one.pid, signal.SIGINT)
    assert one.communicate(timeout=15)[0] == "got\n"
    assert one.returncode == 5


def test_ssh_is_told_no_more_than_it_needs(by_ssh):
    env, log = by_ssh
    run("ls", env=env)
    assert log.read_text().splitlines()[-1] == "host ada@there command box dial-stdio"
    assert "option -p\noption 2222" in log.read_text()
    run("ls", env={**env, "BOX_HOST": "ssh://there/run/other/box.sock"}, check=False)
    assert log.read_text().splitlines()[-1] == "host there command box dial-stdio /run/other/box.sock"


def test_an_ssh_that_fails_is_told(by_ssh, tmp_path):
    env, _ = by_ssh
    (tmp_path / "bin" / "ssh").write_text("#!/bin/sh\necho 'no route to host' >&2\nexit 255\n")
    refused = run("ls", env=env, check=False)
    assert refused.returncode == EXIT_UNAVAILABLE
    assert "no route to host" in refused.stderr and "ssh ada@there box info" in refused.stderr
    refused = run("exec", "b", "--", "true", env=env, check=False)
    assert refused.returncode == EXIT_UNAVAILABLE


@pytest.mark.parametrize("host", ["ssh://-oProxyCommand=x", "ssh://a b", "ssh://h/run/x;id", "ssh://u;id@h", "ssh://h/$(id)", "ftp://h",
                                  "http://example.com:1", "http://10.0.0.1", "https://h/path", "https://u@h", "unix://relative", "h",
                                  "https://h:99999", "https://", "ssh://h:0"])
def test_bad_addresses_are_refused(host, tmp_path):
    refused = run("ls", env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "BOX_HOST": host}, check=False)
    assert refused.returncode == EXIT_USAGE, refused
    assert len(refused.stderr.splitlines()) == 1


def test_certificates_are_verified(by_https, tmp_path, yard):
    refused = run("ls", env={k: v for k, v in by_https.items() if k != "BOX_CACERT"}, check=False)
    assert refused.returncode == EXIT_FORBIDDEN and "not trusted" in refused.stderr and "BOX_CACERT" in refused.stderr
    other = tmp_path / "other"
    other.mkdir()
    certificate, key = make_certificate(other, "elsewhere.example")
    proxy = TlsProxy(yard.port(), certificate, key)
    refused = run("ls", env={**by_https, "BOX_HOST": f"https://localhost:{proxy.port}", "BOX_CACERT": str(certificate)}, check=False)
    proxy.close()
    assert refused.returncode == EXIT_FORBIDDEN and "not trusted" in refused.stderr
    refused = run("ls", env={**by_https, "BOX_TOKEN": "box_wrong"}, check=False)
    assert refused.returncode == EXIT_FORBIDDEN and "token" in refused.stderr


def test_what_is_about_this_machine_is_refused_elsewhere(by_ssh):
    env, _ = by_ssh
    for words in (["up"], ["down"], ["bench", "--list"]):
        refused = run(*words, env=env, check=False)
        assert refused.returncode == EXIT_USAGE and "this machine" in refused.stderr


def test_contexts_are_kept_for_their_owner_alone(by_https, yard, box, tmp_path):
    env = {k: v for k, v in by_https.items() if not k.startswith("BOX_")}
    run("context", "add", "lab", by_https["BOX_HOST"], "--token", "-", "--cacert", by_https["BOX_CACERT"], env=env,
        input=by_https["BOX_TOKEN"] + "\n")
    kept = tmp_path / ".config" / "boxyard" / "contexts.json"
    assert kept.stat().st_mode & 0o777 == 0o600 and kept.parent.stat().st_mode & 0o777 == 0o700
    assert by_https["BOX_TOKEN"] not in run("context", "ls", env=env).stdout + run("context", "ls", "--json", env=env).stdout
    assert box.name in run("ls", env={**env, "BOX_CONTEXT": "lab"}).stdout
    run("context", "use", "lab", env=env)
    assert box.name in run("ls", env=env).stdout
    refused = run("up", env=env, check=False)
    assert refused.returncode == EXIT_USAGE and "context lab" in refused.stderr
    assert box.name in run("ls", env={**yard.env, "HOME": env["HOME"]}).stdout, "BOX_RUN means a daemon of this machine"
    listed = {one["name"]: one for one in json.loads(run("context", "ls", "--json", env=env).stdout)}
    assert listed["lab"]["current"] and listed["lab"]["token"] is True
    assert run("context", "use", "nowhere", env=env, check=False).returncode == 66
    run("context", "rm", "lab", env=env)
    assert json.loads(kept.read_text()) == {"contexts": {}}
    assert run("context", "rm", "lab", env=env, check=False).returncode == 66


def test_reading_from_afar_hides_values(by_https, yard, make_box):
    box = make_box(env={"PASSWORD": "hunter2"})
    shown = run("show", box.name, env=by_https).stdout
    assert "PASSWORD" in shown and "hunter2" not in shown
