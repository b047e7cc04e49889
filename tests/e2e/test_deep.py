"""Folders nested 20,000 deep, made in a box: whoever walks them neither crashes, nor runs out of
anything, nor takes for ever."""
import os
import subprocess
import time

import pytest

from boxtest import SLOWNESS, eventually
from fixtures import running_yard_with

DEPTH = 20_000
FOLDER_DEPTH = 6_000  # without btrfs each folder is copied and removed by itself
LONG = 30 * SLOWNESS  # each step takes about a second; the square of the depth takes minutes
MAKE = """
import os, sys
os.makedirs(sys.argv[1])
os.chdir(sys.argv[1])
for i in range(int(sys.argv[2])):
    os.mkdir("d")
    os.chdir("d")
open("bottom", "w").write("here")
"""


@pytest.fixture
def deep(fresh_yard):
    box = fresh_yard.new()
    box.python(MAKE, "/root/deep", str(DEPTH), timeout=120)
    return box


@pytest.fixture
def out(tmp_path):
    """A folder that is gone afterwards: Python cannot remove what is deeper than its stack."""
    yield tmp_path
    subprocess.run(["rm", "-rf", tmp_path], check=True)


def soon(yard, *words, code=0, limit=LONG):
    began = time.monotonic()
    done = yard.box(*words, check=False, timeout=300)
    took = time.monotonic() - began
    assert done.returncode == code, (words, done.stderr[-300:])
    assert took < limit, (words, took)
    assert len(done.stdout) < 20_000_000
    return done


def test_deep_folders_harm_nobody(fresh_yard, deep, out):
    yard, name, pid = fresh_yard, deep.name, fresh_yard.daemon_pid()
    too_large = 64
    for words in (["cp", f"{name}:/root/deep", out / "out"], ["cp", f"{name}:/root/.", out],
                  ["cp", f"{name}:/root/deep", f"{name}:/root/again"]):
        assert "nested" in soon(yard, *words, code=too_large).stderr
    listed = soon(yard, "diff", name)
    assert "nested deeper" in listed.stderr
    assert max(map(len, listed.stdout.splitlines())) < 4200
    soon(yard, "diff", name, "--tar", out / "x.tar", code=69)
    soon(yard, "save", name, "deep")
    soon(yard, "fork", name, "deep-fork")
    soon(yard, "snapshot", name, "one")
    soon(yard, "rollback", name, "one")
    soon(yard, "compare", name, "deep-fork")
    soon(yard, "image", "export", "deep", "--format", "docker", "-o", out / "deep.tar", code=too_large)
    assert not {"x.tar", "deep.tar"} & set(os.listdir(out))
    soon(yard, "hibernate", name)
    soon(yard, "wake", name)
    soon(yard, "exec", name, "--", "true")
    soon(yard, "rm", "-f", "deep-fork", name)
    soon(yard, "image", "rm", "deep")
    assert yard.daemon_pid() == pid


def test_a_deep_workspace_cannot_be_kept_and_says_so(fresh_yard):
    box = fresh_yard.new()
    box.python(MAKE, "/workspace/deep", str(DEPTH), timeout=120)
    assert "nested deeper" in soon(fresh_yard, "rm", "-f", "--keep-workspace", box.name, code=64).stderr
    soon(fresh_yard, "rm", "-f", box.name)


def test_deep_folders_are_copied_and_removed_without_btrfs(image):
    """Disks that are plain folders: a save copies file by file, a removal walks."""
    with running_yard_with(BOX_POOL="folder") as yard:
        box = yard.new()
        box.python(MAKE, "/root/deep", str(FOLDER_DEPTH), timeout=120)
        box.sh("cd /root/deep/d/d; echo x > f; ln f g; ln -s f l; chmod 700 .; touch -d 2001-02-03 .")
        soon(yard, "stop", "-t", "0", box.name)
        soon(yard, "save", box.name, "deep")
        soon(yard, "rm", "-f", box.name)
        copy = yard.new(image="deep")
        assert copy.out("cd /root/deep/d/d; stat -c '%a %y' . | cut -c1-14; stat -c %h g; readlink l") == "700 2001-02-03\n2\nf"
        script = "import os\nos.chdir('/root/deep')\nn = 0\nwhile os.path.isdir('d'): os.chdir('d'); n += 1\nprint(n)"
        assert copy.python(script).stdout.strip() == str(FOLDER_DEPTH)
        soon(yard, "rm", "-f", copy.name)
        soon(yard, "image", "rm", "deep")
        trash = yard.home / "pool" / "trash"
        assert trash.is_dir()
        eventually(lambda: not list(trash.iterdir()), 4 * LONG, what="the trash is empty")


def test_a_path_as_long_as_may_be_goes_both_ways(yard, box, out):
    levels = 1900  # "/root/long" and "d/" for each: just below 4096 bytes
    box.python(MAKE, "/root/long", str(levels), timeout=60)
    soon(yard, "cp", f"{box.name}:/root/long", out)
    soon(yard, "cp", out / "long", f"{box.name}:/root/back")
    assert box.out("find /root/back | wc -l") == str(levels + 2)
    soon(yard, "cp", f"{box.name}:/root/long", f"{box.name}:/root/twice")
    assert box.out("find /root/twice -name bottom -size 4c | wc -l") == "1"
