"""ssh_rig.py - the SSH front door of a test's daemon, used with the machine's own OpenSSH clients"""
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from boxtest import eventually


def need(*programs):
    """Skips aloud when a client is not installed."""
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


class Rig:
    """A daemon with a key that may come in, and a settings file for OpenSSH's clients."""

    def __init__(self, yard, folder):
        need("ssh", "ssh-keygen")
        self.yard = yard
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        info = yard.info()["ssh"]
        self.host, self.port = info["listen"].rsplit(":", 1)
        self.host = self.host.strip("[]")
        self.known = self.folder / "known_hosts"
        self.known.write_text(info["known_hosts"] + "\n")
        self.config = self.folder / "config"
        self.key = self.make_key("id")
        self.write_config(self.key)
        yard.box("key", "add", "tester", "--role", "admin", "-f", f"{self.key}.pub")

    def make_key(self, name, kind="ed25519", *options):
        path = self.folder / name
        subprocess.run(["ssh-keygen", "-q", "-t", kind, *options, "-N", "", "-C", name, "-f", path], check=True)
        return path

    def remove_keys(self):
        """All keys of the daemon, which other tests share."""
        for key in self.yard.api("GET", "/v1/keys", expect=200).json["keys"]:
            self.yard.box("key", "rm", key["id"])

    def write_config(self, key, path=None):
        (path or self.config).write_text(
            f"Host *\n  Hostname {self.host}\n  Port {self.port}\n  IdentityFile {key}\n"
            "  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n"
            f"  UserKnownHostsFile {self.known}\n  StrictHostKeyChecking yes\n  LogLevel ERROR\n"
        )

    def command(self, user, *words, options=(), config=None):
        return ["ssh", "-F", str(config or self.config), *options, f"{user}@boxyard", *words]

    def ssh(self, user, *words, options=(), config=None, input=b"", timeout=60, check=False, env=None):
        got = subprocess.run(
            self.command(user, *words, options=options, config=config),
            input=input, capture_output=True, timeout=timeout, env=env,
        )
        if check:
            assert got.returncode == 0, got
        return got

    def spawn(self, user, *words, options=(), **kw):
        kw.setdefault("stdin", subprocess.PIPE)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.command(user, *words, options=options), **kw)

    def out(self, user, *words, **kw):
        got = self.ssh(user, *words, **kw)
        assert got.returncode == 0, got
        return got.stdout.decode().strip()

    def master(self, user, options=()):
        """A ControlMaster; returns its socket and a function that ends it."""
        path = self.folder / f"cm-{user}-{time.monotonic_ns()}"
        process = self.spawn(user, options=["-M", "-N", "-S", str(path), *options])
        eventually(path.exists, 20, lambda: process.poll())

        def end():
            process.terminate()
            process.communicate(timeout=20)

        return str(path), end


def free_port():
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
