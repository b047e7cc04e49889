"""Commands begun with `nohup`, or with & in a script: signals they were told to ignore do not end
them."""
import signal
import subprocess
import time

from boxtest import BOX_BIN

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def ignore():
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


def survives(yard, *words, after=1.0):
    """Runs a command that takes some seconds, sends it what it ignores, and gives its output."""
    child = subprocess.Popen([BOX_BIN, *words], env=yard.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             preexec_fn=ignore)
    time.sleep(after)
    assert child.poll() is None, child.communicate()[0]
    for number in IGNORED:
        child.send_signal(number)
    output = child.communicate(timeout=60)[0]
    assert child.returncode == 0, output
    return output


def test_a_program(yard, box):
    assert "done" in survives(yard, "exec", box.name, "--", "sh", "-c", "sleep 2; echo done")


def test_a_program_in_forks(yard, box):
    assert "done" in survives(yard, "fork", box.name, "--", "sh", "-c", "sleep 3; echo done")


def test_a_try(yard, box):
    assert "done" in survives(yard, "try", box.name, "--", "sh", "-c", "sleep 3; echo done")


def test_a_build(yard, tmp_path):
    (tmp_path / "Boxfile").write_text("from debian\nrun sleep 3\n")
    survives(yard, "image", "build", "-f", str(tmp_path / "Boxfile"), "-t", "nohup", str(tmp_path))


def test_a_copy(yard, tmp_path):
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    survives(yard, "new", "--rm", "--copy", str(tmp_path), "--", "sleep", "2")


def test_a_measurement(yard):
    assert "exec_cli" in survives(yard, "bench", "-n", "400", "--no-peers", "exec_cli", after=0.5)


def test_an_attack(yard):
    survives(yard, "attack", "--group", "change", after=0.5)


def test_programs_in_boxes_ignore_nothing(yard, box):
    """Whatever the daemon was started with."""
    line = yard.box("exec", box.name, "--", "grep", "SigIgn", "/proc/self/status").stdout
    assert int(line.split()[1], 16) == 0, line
