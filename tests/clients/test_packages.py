"""Packages from the hosts this machine itself uses, from a box of the plain test image with the
preset `packages`.

The one test that leaves the machine, and therefore no part of `make test`: `make clients`. Hosts
are known from the
settings of the machine and of the image alone. The hermetic twin is tests/e2e/test_clients.py.
"""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from boxtest import Yard, random_name

AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


@pytest.fixture(scope="module")
def outside(image):
    """A daemon where the machine's own network is."""
    yard = Yard()
    try:
        yard.start_daemon()
        yield yard
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.fixture
def box(outside):
    made = outside.new(policy={"preset": "packages"})
    yield made
    made.remove()


def hosts(box):
    return box.yard.api("GET", f"{box.path}/policy", expect=200).json["package_hosts"]


def is_refused(box, url):
    """The policy says no; nothing is sent."""
    return box.yard.box("policy", "explain", box.name, url, check=False).returncode == 1


def test_apt_get(box):
    assert any(host.endswith((":80", ":443")) for host in hosts(box))
    assert is_refused(box, "http://web.test/")
    box.sh("apt-get update && apt-get install -y --no-install-recommends hello", timeout=300)
    assert box.out("hello") == "Hello, world!"


def npm_of_this_machine():
    """The registry npm uses here; none when npm is not here or says nothing."""
    if not shutil.which("npm"):
        return ""
    asked = subprocess.run(["npm", "config", "get", "registry"], cwd="/", capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def with_authorities(box):
    """The machine may trust more than the world does: a company's own authority."""
    bundle = Path(os.environ.get("SSL_CERT_FILE") or AUTHORITIES)
    if bundle.exists():
        assert box.put(AUTHORITIES, bundle.read_bytes()).status == 200
    return box


def test_npm_install(outside, box):
    registry = npm_of_this_machine()
    if registry and registry != box.out("npm config get registry"):
        box.put("/etc/npmrc", f"registry={registry}\n".encode())
        name = random_name("npm")
        outside.box("save", box.name, name)
        box = outside.new(image=name, policy={"preset": "packages"})
    with_authorities(box)
    flags = [f"--env={name}={AUTHORITIES}" for name in ("NODE_EXTRA_CA_CERTS", "npm_config_cafile")]
    assert box.exec("npm", "view", "is-odd", "version", flags=flags, timeout=120).stdout.strip()
    box.exec("sh", "-c", "mkdir /app && cd /app && npm init -y && npm install --no-audit --no-fund is-odd",
             flags=flags, timeout=120)
    assert box.out("""cd /app && node -p 'require("is-odd")(3)'""") == "true"
