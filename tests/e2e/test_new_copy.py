"""`box new --copy`: files go along into a new box before anything runs in it."""
import os
import signal

import pytest

from boxtest import eventually, random_name


@pytest.fixture
def folder(tmp_path):
    top = tmp_path / "project"
    (top / "src").mkdir(parents=True)
    (top / ".git").mkdir()
    (top / "src" / "main.py").write_text("print(6 * 7)\n")
    (top / ".gitignore").write_text("ignored\n")
    (top / "ignored").write_text("comes along\n")
    (top / "run.sh").write_text("#!/bin/sh\ncat ignored\n")
    (top / "run.sh").chmod(0o755)
    (top / "link").symlink_to("src/main.py")
    return top


def has_begun(yard, name):
    """Some of the files are there, so whoever copies knows of the box."""
    return yard.box("exec", name, "--", "ls", "-A", "/workspace", check=False).stdout


def test_the_folder_is_in_workspace_when_the_program_starts(yard, folder):
    out = yard.box("new", "--rm", "--copy", ".", "--", "sh", "-c", "cd /workspace; python3 link; ./run.sh; ls -A | sort | tr '\\n' ' '",
                   cwd=folder).stdout
    assert out == "42\ncomes along\n.git .gitignore ignored link run.sh src "


def test_a_program_in_the_background_waits_for_its_files(yard, folder):
    name = random_name("c")
    (folder / "big").write_bytes(os.urandom(30_000_000))
    yard.box("new", "-d", "--copy", folder, "--copy", f"{folder}/src/main.py:/srv/app", name, "--",
             "sh", "-c", "stat -c %s /workspace/big; ls /srv/app; sleep 1000")
    try:
        eventually(lambda: "main.py" in yard.box("logs", name, "main").stdout)
        assert yard.box("logs", name, "main").stdout == "30000000\nmain.py\n"
    finally:
        yard.box("rm", "-f", name)


def test_without_a_program(yard, folder):
    name = random_name("c")
    yard.box("new", "--copy", folder, name)
    assert yard.box("exec", name, "--", "cat", "/workspace/ignored").stdout == "comes along\n"
    yard.box("rm", "-f", name)


def test_what_cannot_be_copied_leaves_no_box(yard, folder, tmp_path):
    name = random_name("c")
    for words in (["--copy", tmp_path / "missing"], ["--copy", ""], ["--copy", f"{folder}:/etc/passwd"]):
        done = yard.box("new", *words, name, check=False)
        assert done.returncode != 0 and done.stderr.count("\n") == 1, words
        assert name not in [b["name"] for b in yard.boxes()]
    (folder / "big").write_bytes(b"x" * 3_000_000)
    done = yard.box("new", "--disk", "1M", "--copy", folder, name, check=False)
    assert done.returncode != 0 and name not in [b["name"] for b in yard.boxes()]


def test_a_command_that_does_not_start_leaves_no_box(yard, folder):
    name = random_name("c")
    done = yard.box("new", "-d", "--copy", folder, name, "--", "/no/such/program", check=False)
    assert done.returncode != 0 and "/no/such/program" in done.stderr
    assert name not in [b["name"] for b in yard.boxes()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_ctrl_c_leaves_no_box(yard, folder, number):
    name = random_name("c")
    with open(folder / "endless", "wb") as sparse:
        sparse.truncate(1 << 40)
    child = yard.spawn("new", "--copy", folder, name)
    eventually(lambda: has_begun(yard, name), 15)
    child.send_signal(number)
    assert child.wait(15) == -number
    eventually(lambda: name not in [b["name"] for b in yard.boxes()])


def test_hold_is_let_go_by_start(yard):
    box = yard.new(command=["sh", "-c", "cat /root/f; sleep 1000"], hold=True)
    assert box.execs() == [] or all(e["id"] != "main" for e in box.execs())
    box.put("/root/f", b"there")
    yard.box("start", box.name)
    eventually(lambda: "there" in yard.box("logs", box.name, "main").stdout)
    box.remove()


def test_a_box_that_is_not_whole_can_be_seen_after_the_daemon_was_killed(fresh_yard, folder):
    yard, name = fresh_yard, random_name("c")
    with open(folder / "endless", "wb") as sparse:
        sparse.truncate(1 << 40)
    child = yard.spawn("new", "--copy", folder, name)
    eventually(lambda: has_begun(yard, name), 15)
    os.kill(child.pid, signal.SIGSTOP)  # it can clean up nothing
    yard.kill_daemon()
    yard.start_daemon()
    try:
        assert yard.json("show", name)["held"] is True
        assert "(held)" in yard.box("ls").stdout and "not be whole" in yard.box("show", name).stdout
    finally:
        os.kill(child.pid, signal.SIGCONT)
    assert child.wait(20) != 0
    eventually(lambda: name not in [b["name"] for b in yard.boxes()], 20, "and its client removes it")


def test_what_was_let_go_is_not_held(yard, folder):
    name = random_name("c")
    assert yard.json("new", "--copy", folder, name)["held"] is False
    assert yard.json("show", name)["held"] is False
    yard.box("rm", "-f", name)
    made = yard.new(hold=True)
    assert made.show()["held"] is True
    yard.box("stop", "-t", "0", made.name)
    yard.box("start", made.name)
    assert made.show()["held"] is False
