"""What podman in a nested box finds of ours; podman itself runs in soak/test_nested.py."""
import json
import tomllib

import pytest

CONF = "/etc/containers/containers.conf.d/50-boxyard.conf"
RUNTIME = "/usr/local/lib/boxyard/oci-runtime"


@pytest.fixture
def nested(make_box):
    """One with a crun that says how it was called."""
    box = make_box(profile="nested")
    assert box.put("/usr/local/bin/crun", b'#!/bin/sh\necho "crun $*"\n', mode="755").status < 300
    box.sh("mkdir -p /tmp/b")
    return box


def create(box, resources, *words, env=()):
    config = {"process": {"env": list(env)}, "linux": {"resources": resources}}
    box.put("/tmp/b/config.json", json.dumps(config, separators=(",", ":")).encode())
    box.sh("rm -f /tmp/log")
    return box.exec(RUNTIME, "--log-format=json", "--log", "/tmp/log",
                    *(words or ("create", "--bundle", "/tmp/b", "c1")), check=False)


def test_podman_is_told_to_use_the_network_of_the_box_and_our_script(nested):
    conf = tomllib.loads(nested.out(f"cat {CONF}"))
    assert conf["containers"] == {"cgroups": "no-conmon", "netns": "host"}
    assert conf["engine"]["runtimes"] == {"crun": [RUNTIME]}
    assert nested.out(f"{RUNTIME} --version") == "crun --version"


def test_containers_without_limits_go_through(nested):
    """Also when words in them look like limits."""
    done = create(nested, {"devices": [{"allow": False}], "memory": {}}, env=['X="memory":{"limit":7}'])
    assert done.stdout.startswith("crun --log-format=json") and "c1" in done.stdout, done


@pytest.mark.parametrize("what, limit", [("memory", {"limit": 67108864}), ("pids", {"limit": 50}),
                                         ("cpu", {"quota": 50000, "period": 100000})])
def test_a_limit_that_cannot_be_kept_is_refused_in_plain_words(nested, what, limit):
    """cgroup v2 alone: the box divides its group, and crun keeps the limit."""
    done = create(nested, {"devices": [], what: limit})
    if "memory" in nested.out("cat /sys/fs/cgroup/cgroup.controllers || true").split():
        assert done.stdout.startswith("crun "), done
        return
    assert done.returncode == 1 and f"no limit of {what} for one container" in done.stderr, done
    assert json.loads(nested.out("cat /tmp/log"))["msg"] == done.stderr.strip()
    update = create(nested, {}, "update", "--resources=/tmp/r", "c1")
    assert update.returncode == 1 and "cgroup v1" in update.stderr


def test_a_box_may_change_the_settings(nested):
    nested.sh(f"echo > {CONF}; rm {RUNTIME}")
    assert nested.sh(f"cat {RUNTIME}", check=False).returncode
