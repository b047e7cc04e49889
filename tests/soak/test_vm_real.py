"""What root of a box with its own kernel may do: containers of Debian's podman, kernel modules; and a
coding agent, forked while it talks with its model.

Part of `make soak-real`: the packages are no part of make test.
"""
import contextlib

import pytest

import agents
import real
from boxtest import Box, Yard
from test_nested import PACKAGES, ROOT


@contextlib.contextmanager
def vm_yard():
    yard = Yard(images=real.IMAGES)
    yard.env["BOX_DRIVER"] = "vm"
    try:
        yard.start_daemon()
        about = yard.info()["drivers"]["vm"]
        if not about["available"]:
            pytest.skip(f"LOUD: no VM boxes on this machine: {about.get('reason')}")
        yield yard
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="module")
def box():
    real.ensure_real_image("debian-machine", ["python3", "procps", "kmod", "iproute2", *PACKAGES])
    with vm_yard() as yard:
        yard.box("new", "--name", "root", "--image", "debian-machine", "--memory", "1G", timeout=400)
        yield Box(yard, yard.json("show", "root"))


@pytest.mark.slow
def test_podman_runs_a_container(box):
    box.sh(ROOT, timeout=120)
    box.sh("tar -C /tmp/r -c . | podman import -q - localhost/tiny", timeout=400)
    ran = box.sh("podman run --rm localhost/tiny /bin/id -u", timeout=400)
    assert ran.stdout.strip() == "0", ran
    box.sh("podman run -d --name c1 localhost/tiny /bin/sleep 1000", timeout=400)
    child = box.yard.json("fork", box.name, timeout=120)["children"][0]
    running = box.yard.box("exec", child["name"], "--", "podman", "ps", "-q", timeout=120)
    assert running.stdout.strip(), "a running container goes along"


@pytest.mark.slow
def test_a_module_of_the_kernel_is_loaded_by_its_path(box):
    path = box.out("find /lib/modules/$(uname -r) -name 'dummy.ko*' | head -1")
    assert path, "the modules of the kernel are in the box"
    box.sh(f"insmod {path} && ip link add d0 type dummy && ip link del d0 && rmmod dummy")


@pytest.mark.slow
def test_claude_code_is_forked_in_the_middle_of_a_conversation():
    real.ensure_real_image("debian-agent", ["python3", "procps", "tmux", "git", "ca-certificates"])
    agent = agents.Claude()
    agent.patience = 5
    agent.folder = real.npm(agent.package)
    with vm_yard() as yard:
        yard.box("new", "--name", "agent", "--image", "debian-agent", "--memory", "2G", timeout=400)
        box = Box(yard, yard.json("show", "agent"))
        agent.start(box)
        agent.count_up(box)
        words = agent.ask(box)
        child = Box(yard, yard.json("fork", box.name, timeout=120)["children"][0])
        assert words not in agent.screen(child), "it was forked before the answer"
        for one in (box, child):
            agent.answered(one, words)
            assert one.out("cat /root/n") == "2"
        agent.count_up(child)
        assert (box.out("cat /root/n"), child.out("cat /root/n")) == ("2", "3")
        agent.count_up(box)
        assert box.out("cat /root/n") == "3"
