"""box ssh-config, ssh and ssh-proxy: what the machine's SSH client is told, and that it is undone."""
import os
import re
import shutil
import socket
import stat
import subprocess

import pytest

from boxtest import BOX_BIN

pytestmark = pytest.mark.asan


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def at_home(home, **more):
    return {"HOME": str(home), "XDG_CONFIG_HOME": "", **more}


def client_settings(config, host):
    """What ssh makes of a configuration, {option in lower case: value}."""
    done = subprocess.run(["ssh", "-F", config, "-G", host], capture_output=True, text=True, check=True)
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in done.stdout.splitlines()}


def snapshot(home):
    """Every file below home with its mode and bytes."""
    return {str(path.relative_to(home)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"", os.path.islink(path))
            for path in home.rglob("*") if ".config" not in path.parts}


def test_the_printed_block_is_what_ssh_reads(yard, home, tmp_path):
    block = yard.box("ssh-config", env=at_home(home)).stdout
    assert block == yard.box("ssh-config", "--print", env=at_home(home)).stdout
    (tmp_path / "config").write_text(block)
    got = client_settings(tmp_path / "config", "ada.box")
    assert got["user"] == "box" and got["hostkeyalias"] == yard.name and got["stricthostkeychecking"] == "true"
    assert got["hostname"] == "ada.box" and got["checkhostip"] == "no"
    words = got["proxycommand"]
    assert words == f"'{BOX_BIN}' ssh-proxy '%n' '{yard.run_dir}/ssh.sock'"
    known = home / ".config" / "boxyard" / "known_hosts"
    assert got["userknownhostsfile"] == str(known)
    assert known.read_text() == "".join(f"{yard.name} {key}\n" for key in yard.info()["ssh"]["keys"])
    found = subprocess.run(["ssh-keygen", "-F", yard.name, "-f", known], capture_output=True, text=True, check=True).stdout
    assert yard.info()["ssh"]["keys"][0] in found
    # Somebody else's hosts, and one's own user of the box.
    assert "proxycommand" not in client_settings(tmp_path / "config", "ada.example")
    done = subprocess.run(["ssh", "-F", tmp_path / "config", "-G", "web@ada.box"], capture_output=True, text=True, check=True)
    assert "user web\n" in done.stdout
    told = yard.json("ssh-config", env=at_home(home))
    assert told["config"] == block and told["known_hosts"] == known.read_text()


@pytest.mark.parametrize("before", [None, "", "Host x\n\tUser y\n", "# no end of line at the end\nHost *", "Include other\r\n\r\nHost z\n"])
def test_install_is_undone_exactly(yard, home, before):
    (home / ".ssh").mkdir(mode=0o700)
    config = home / ".ssh" / "config"
    if before is not None:
        config.write_bytes(before.encode())
        config.chmod(0o644)
    was = snapshot(home)
    for _ in range(2):  # twice is once
        yard.box("ssh-config", "--install", env=at_home(home))
        assert config.read_bytes().decode() == "Include boxyard.conf\n" + (before or "")
        assert (home / ".ssh" / "boxyard.conf").read_text() == yard.box("ssh-config", env=at_home(home)).stdout
        assert stat.S_IMODE(config.stat().st_mode) == (0o600 if before is None else 0o644)
    assert client_settings(home / ".ssh" / "boxyard.conf", "ada.box")["user"] == "box"
    for _ in range(2):
        yard.box("ssh-config", "--remove", env=at_home(home))
        if before == "":
            was.pop(".ssh/config", None)  # a config with nothing in it is none
        assert snapshot(home) == was
    assert not (home / ".config" / "boxyard" / "known_hosts").exists()


def test_what_others_wrote_stays(yard, home):
    """A link stays a link, a line of one's own in the file stays, host keys of other daemons stay."""
    (home / ".ssh").mkdir(mode=0o700)
    (home / "dotfiles").mkdir()
    real = home / "dotfiles" / "ssh"
    real.write_text("Host x\n")
    (home / ".ssh" / "config").symlink_to(real)
    known = home / ".config" / "boxyard" / "known_hosts"
    known.parent.mkdir(parents=True)
    known.write_text(f"other ssh-ed25519 AAAA\n{yard.name} ssh-ed25519 OLD\n{yard.name}x ssh-ed25519 AAAA\n")
    yard.box("ssh-config", "--install", env=at_home(home))
    assert (home / ".ssh" / "config").is_symlink() and real.read_text() == "Include boxyard.conf\nHost x\n"
    lines = known.read_text().splitlines()
    assert "other ssh-ed25519 AAAA" in lines and f"{yard.name}x ssh-ed25519 AAAA" in lines and "OLD" not in known.read_text()
    real.write_text("# mine\nInclude boxyard.conf\nHost x\n")
    yard.box("ssh-config", "--remove", env=at_home(home))
    assert (home / ".ssh" / "config").is_symlink() and real.read_text() == "# mine\nHost x\n"


def test_what_cannot_be_is_said(yard, home, tmp_path):
    assert yard.box("ssh-config", "--install", "--remove", env=at_home(home), check=False).returncode == 64
    assert "HOME" in yard.box("ssh-config", env={"HOME": "", "XDG_CONFIG_HOME": ""}, check=False).stderr
    odd = home / "it's"
    odd.mkdir()
    assert "take apart" in yard.box("ssh-config", env=at_home(odd), check=False).stderr
    (tmp_path / "empty").mkdir()
    done = yard.box("ssh", "ada", env=at_home(home, PATH=str(tmp_path / "empty")), check=False)
    assert done.returncode == 69 and "no SSH client" in done.stderr and "box shell ada" in done.stderr
    for name in ("Ada", "a/b", "", "-oProxyCommand=x", "@ada", "ada+", "a@b+c", "-x@ada"):
        assert yard.box("ssh", name, env=at_home(home), check=False).returncode == 64, name


def test_box_ssh_starts_the_client_with_all_it_needs(yard, home, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    (tools / "ssh").chmod(0o755)
    env = at_home(home, PATH=f"{tools}:{os.environ['PATH']}")
    done = yard.box("ssh", "ada", "-N", "-L", "8000:localhost:8000", env=env, check=False)
    words = done.stdout.splitlines()
    assert done.returncode == 7 and words[-4:] == ["ada.box", "-N", "-L", "8000:localhost:8000"]
    assert "-oUser box" in words and f"-oHostKeyAlias {yard.name}" in words
    for given in ("ada+root", "root@ada", "root@ada.box"):
        words = yard.box("ssh", given, "ls", "--json", env=env, check=False).stdout.splitlines()
        assert words[0] == "-oUser=root" and words[-3:] == ["ada.box", "ls", "--json"]
    words = yard.box("ssh", "ada", "-l", "web", env=env, check=False).stdout.splitlines()
    assert not [word for word in words if word.startswith("-oUser=") or word.startswith("-oUser ")]
    assert not (home / ".ssh").exists(), "nothing is installed"
    # The options are those the real client understands.
    real = shutil.which("ssh")
    options = [word for word in words if word.startswith("-o")]
    got = subprocess.run([real, "-F", "none", "-G", *options, "ada.box"], capture_output=True, text=True, check=True).stdout
    assert f"hostkeyalias {yard.name}\n" in got and "ssh-proxy '%n'" in got


def test_the_proxy_says_which_box_and_then_copies(yard, tmp_path):
    """By ssh itself: the first line, then its greeting; and what comes back reaches it."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(20)
        client = subprocess.Popen(["ssh", "-F", "none", "-oBatchMode=yes", f"-oProxyCommand='{BOX_BIN}' ssh-proxy '%n' '{path}'", "ada.box"],
                                  env=yard.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(20)
            got = b""
            while got.count(b"\n") < 2:
                got += peer.recv(4096)
            assert got.startswith(b"BOX ada\nSSH-2.0-")
            peer.sendall(b"SSH-1.0-old\r\n")
        assert client.wait(20) == 255
        assert re.search("major versions differ|1.0", client.stderr.read())
    done = yard.box("ssh-proxy", "a b", str(path), check=False)
    assert done.returncode == 64 and "no name" in done.stderr
    done = yard.box("ssh-proxy", "ada.box", str(tmp_path / "nosuch"), check=False)
    assert done.returncode and "nosuch" in done.stderr
    assert yard.box("ssh-proxy", "ada.box", "relative", check=False).returncode == 64


def test_another_machines_daemon_without_a_listener_is_said(yard, home):
    if yard.info()["ssh"]["listen"]:
        pytest.skip("LOUD: this daemon listens for SSH")
    token = yard.api("POST", "/v1/tokens", {"name": "sshconf", "scopes": ["read"]}, expect=201).json["token"]
    done = yard.box("ssh-config", env=at_home(home, BOX_HOST=f"http://127.0.0.1:{yard.port()}", BOX_TOKEN=token), check=False)
    assert done.returncode and "ssh_listen" in done.stderr
