"""Sandboxes in a nested box: podman with an image made there, and Chromium with its own sandbox,
both Debian's.

Part of `make soak-real`: their packages are no part of make test.
"""
import contextlib

import pytest

import real
import states
from boxtest import Yard, eventually

PACKAGES = ["podman", "crun", "uidmap"]
ROOT = """set -e; rm -rf /tmp/r; mkdir -p /tmp/r/proc /tmp/r/sys /tmp/r/dev /tmp/r/etc /tmp/r/tmp
for d in bin lib lib64; do mkdir -p /tmp/r/usr/$d; ln -s usr/$d /tmp/r/$d; done
for p in sh cat id sleep; do p=$(command -v $p); echo $p; ldd $p | grep -o '/[^ ]*'; done | sort -u |
	while read f; do mkdir -p /tmp/r$(dirname $f); cp -L $f /tmp/r$f; done
echo root:x:0:0::/:/bin/sh > /tmp/r/etc/passwd; chmod -R a+rX /tmp/r"""


@contextlib.contextmanager
def nested_box(image):
    yard = Yard(images=real.IMAGES)
    try:
        yard.start_daemon()
        yield yard.new(image=image, profile="nested", memory="2G", pids=1024)
    finally:
        problems = yard.destroy()
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="module")
def box():
    real.ensure_real_image("debian-podman", ["python3", "procps", *PACKAGES])
    with nested_box("debian-podman") as made:
        made.sh(ROOT)
        yield made


@pytest.fixture(params=["root", "user"])
def podman(request, box):
    """podman(words) as root of the box, or rootless as its user; gives what it did."""
    def run(words, check=True):
        home = "/root" if request.param == "root" else "/home/user"
        return box.yard.box("exec", "--user", request.param, "--env", f"HOME={home}", box.name, "--",
                            "sh", "-c", f"cd && {words}", check=check, timeout=180)

    if run("podman image exists localhost/tiny", check=False).returncode:
        run("tar -C /tmp/r -c . | podman import -q - localhost/tiny")
    yield run
    run("podman rm -a -f -t 0; podman system migrate")


@pytest.mark.slow
def test_containers_run_and_are_built(podman):
    ran = podman("podman run --rm localhost/tiny /bin/id -u")
    assert ran.stdout.strip() == "0"
    assert "cgroup" not in ran.stderr, ran.stderr
    podman("printf 'FROM localhost/tiny\\nRUN echo built > /etc/x\\n' > F && podman build -q -t t2 -f F .")
    assert podman("podman run --rm localhost/t2 /bin/cat /etc/x").stdout.strip() == "built"


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["--memory 64m", "--cpus 0.5", "--pids-limit 50"])
def test_a_limit_holds_or_is_refused_in_plain_words(box, podman, limit):
    ran = podman(f"podman run --rm {limit} localhost/tiny /bin/id -u", check=False)
    if "memory" in box.out("cat /sys/fs/cgroup/cgroup.controllers || true").split():
        assert ran.returncode == 0 and ran.stdout.strip() == "0", ran
    else:
        assert ran.returncode and "for one container" in ran.stderr and "cgroup v1" in ran.stderr, ran


@pytest.mark.slow
def test_a_running_container_refuses_a_capture_and_a_stopped_one_goes_along(box, podman):
    podman("podman run -d --name c1 localhost/tiny /bin/sleep 1000")
    rootless = "user" in podman("id -un").stdout
    refused = box.yard.box("snapshot", box.name, check=False)
    hint = "'podman system migrate' first, as the user" if rootless else "'podman stop -a' first"
    assert refused.returncode and "namespace of its own" in refused.stderr and hint in refused.stderr, refused
    podman("podman system migrate" if rootless else "podman stop -t 0 -a")
    eventually(lambda: "conmon" not in box.out("ps -eo comm"), 10, "podman cleans up in the background")
    made = states.snapshot(box)
    podman("podman rm c1")
    states.rollback(box, made["id"])
    assert "c1" in podman("podman ps -a --format '{{.Names}}'").stdout
    podman("podman start c1 && podman rm -f -t 0 c1")


@pytest.mark.slow
def test_a_browser_with_its_own_sandbox_is_told_to_do_without():
    real.Chromium().prepare()
    with nested_box("debian-chromium") as box:
        box.start("chromium", "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "about:blank", user="user",
                  env={"HOME": "/home/user"})
        eventually(lambda: "--type=renderer" in box.out("ps -eo args"), 60, "a page is there", every=0.5)
        for verb in ("snapshot", "hibernate", "fork"):
            refused = box.yard.box(verb, box.name, check=False)
            assert refused.returncode and "(chromium) has a user namespace of its own" in refused.stderr, refused
            assert "start it with --no-sandbox: the box is the sandbox" in refused.stderr, refused
        assert states.state(box) == "running"
