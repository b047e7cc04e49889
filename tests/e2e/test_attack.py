"""`box attack` itself: its rig, its report, what it leaves behind. The attacks are run whole by
`scripts/test attack`."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from boxtest import BOX_BIN, EXIT_USAGE, eventually, instance_cgroups, instance_name, leftovers


def attack(*args, timeout=100, **kw):
    return subprocess.run([str(BOX_BIN), "attack", *args], capture_output=True, text=True, timeout=timeout, check=False,
                          stdin=subprocess.DEVNULL, **kw)


@pytest.fixture
def place(tmp_path_factory):
    """Where the attacked daemon keeps its things: must be empty afterwards."""
    folder = tmp_path_factory.mktemp("a")
    yield folder
    assert not list(folder.iterdir())


def test_groups_are_listed():
    names = [line.split()[0] for line in attack("--list").stdout.splitlines()]
    assert {"addresses", "host", "boxes", "forging", "protocols", "dns", "names", "rebinding", "tls", "http", "quic", "change",
            "exhaustion", "closed", "cable", "disk", "files", "kernel", "forks", "shares"} <= set(names)


def test_wrong_words_are_refused():
    assert attack("--group", "nonsense").returncode == EXIT_USAGE
    assert attack("--profile", "nonsense").returncode == EXIT_USAGE
    assert attack("--driver", "nonsense").returncode == EXIT_USAGE
    assert attack("--driver", "vm", "--profile", "nested").returncode == EXIT_USAGE
    assert attack("stray").returncode == EXIT_USAGE
    assert attack("--rig").returncode == EXIT_USAGE


def test_a_group_runs_and_reports_as_json(place):
    done = attack("--group", "rebinding", "--profile", "standard", "--json", env={**os.environ, "TMPDIR": str(place)})
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] and report["bad"] == 0 and report["checks"] == len(report["results"]) > 20
    assert {result["profile"] for result in report["results"]} == {"standard", ""}  # the log's chain is of none
    assert {"neighbour", "chain", "metadata"} <= {result["check"] for result in report["results"]}


def test_the_rig_sees_everything_and_lets_nothing_out():
    script = """
import socket
for where in (("10.1.2.3", 8080), ("169.254.169.254", 80), ("fd00::7", 22)):
    socket.create_connection(where, 2).close()
socket.create_connection(("allowed.test", 80), 2).close()
socket.create_connection(("127.0.0.1", 7777), 2).close()
sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, 47)
sock.sendto(b"x" * 20, ("192.168.7.7", 0))
"""
    done = attack("--rig", "--", "/usr/bin/python3", "-c", script)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    for line in ("world: tcp 10.1.2.3:8080", "world: tcp 169.254.169.254:80", "world: tcp [fd00::7]:22", "world: dns A allowed.test",
                 "world: ip 47 192.168.7.7", "host: tcp 127.0.0.1:7777"):
        assert line in lines, done.stderr


def test_the_rig_gives_the_exit_code_of_its_command():
    assert attack("--rig", "--", "sh", "-c", "exit 7").returncode == 7


def test_an_interrupted_attack_cleans_up(place):
    child = subprocess.Popen([str(BOX_BIN), "attack", "--group", "http"], env={**os.environ, "TMPDIR": str(place)},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    [home] = eventually(lambda: [Path(p) for p in place.glob("*/home/audit")], 20, "the attacked daemon runs")
    time.sleep(0.5)
    base, name = home.parents[1], instance_name(home.parent)
    assert instance_cgroups(name)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode not in (0, 1) and "interrupted" in errors
    eventually(lambda: not leftovers(name, base), 5, lambda: leftovers(name, base))
