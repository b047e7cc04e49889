"""Programs on a terminal: size, keys, job control, detaching; as with ssh."""
import signal
import time

import pytest

from boxtest import eventually
from terminal import Terminal

pytestmark = pytest.mark.asan

DETACH = b"\x10\x11"  # ctrl-p ctrl-q


def test_tty_gives_a_terminal_and_its_size(yard, box):
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", "tty; stty size", rows=33, cols=101) as term:
        term.expect("/dev/pts/[0-9]+")
        term.expect("33 101")
        assert term.wait() == 0
        assert term.is_restored()


def test_exit_code_comes_through_a_terminal(yard, box):
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", "exit 9") as term:
        assert term.wait() == 9


def test_resize_reaches_the_program(yard, box):
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", script) as term:
        term.expect("ready")
        term.resize(40, 120)
        term.expect("40 120")
        term.type(b"\x03")
        assert term.wait() == 130


def test_ctrl_c_interrupts_the_program_not_the_client(yard, box):
    script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done"
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", script) as term:
        term.expect("ready")
        term.type(b"\x03")
        term.expect("caught")
        assert term.wait() == 3
        assert term.is_restored()


def test_end_of_file_key_ends_cat(yard, box):
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", "echo ready; cat") as term:
        term.expect("ready")
        term.type("hello\n")
        term.expect("hello\r\nhello\r\n")
        term.type(b"\x04")
        assert term.wait() == 0


def test_shell_has_job_control(yard, box):
    with Terminal(yard, "shell", box.name) as term:
        term.expect("[#$] ")
        term.type("PS1='rea''dy> '\n")
        term.expect("ready> ")
        term.type("sleep 555\n")
        eventually(lambda: any("sleep 555" in c for c in box.commands()))
        term.type(b"\x1a")
        term.expect("Stopped")
        term.type("jobs; fg\n")
        term.expect("sleep 555")
        time.sleep(0.2)
        term.type(b"\x03")
        term.expect("ready> ")
        term.type("exit 7\n")
        assert term.wait() == 7
        assert term.is_restored()
    assert not any("sleep 555" in c for c in box.commands())


def test_typed_bytes_are_exact(yard, box):
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", "stty raw -echo; echo ready; head -c 7 | od -An -tx1") as term:
        term.expect("ready")
        term.type(b"\x00\x01\x1b\x7f\xc3\xbc\xff")
        term.expect("00 01 1b 7f c3 bc ff")
        assert term.wait() == 0


def test_detach_keys_leave_the_program_running_and_attach_comes_back(yard, box):
    script = "echo ready; read line; echo got $line; exit 4"
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", script) as term:
        term.expect("ready")
        term.type(DETACH)
        term.wait()
        assert term.is_restored()
    running = [e for e in box.execs() if e["state"] == "running"]
    assert len(running) == 1
    with Terminal(yard, "attach", box.name, running[0]["id"]) as term:
        term.expect("ready")
        term.type("ping\n")
        term.expect("got ping")
        assert term.wait() == 4


def test_detach_keys_work_without_a_terminal_in_the_box(yard, box):
    script = "echo ready; while read x; do echo got $x; done"
    with Terminal(yard, "exec", "-i", box.name, "--", "sh", "-c", script) as term:
        term.expect("ready")
        term.type("ping\n")
        term.expect("got ping")
        term.type(DETACH)
        term.expect("box attach")
        assert term.wait() == 0
        assert term.is_restored()
    assert [e["state"] for e in box.execs()] == ["running"]
    with Terminal(yard, "attach", box.name) as term:
        term.expect("got ping")
        term.type("pong\n")
        term.expect("got pong")
        term.type(DETACH)
        assert term.wait() == 0
        assert term.is_restored()
    assert [e["state"] for e in box.execs()] == ["running"]


def test_answers_to_replayed_questions_do_not_reach_the_program(yard, box):
    """A terminal answers what old output asks once more; the program must not take that for
    keys."""
    script = r"stty -echo; printf '\033[cready'; while read x; do echo got $x; done"
    started = box.start("sh", "-c", script, tty=True)
    eventually(lambda: b"ready" in box.logs(started["id"], raw="true"))
    with Terminal(yard, "attach", box.name, started["id"]) as term:
        term.expect("ready")
        term.type(b"\033[?1;2c\n")
        time.sleep(0.5)
        term.type("keys\n")
        term.expect("got")
        term.expect("^ keys")
        term.type(DETACH)
        assert term.wait() == 0


def test_lines_of_our_own_begin_at_the_left_in_a_raw_terminal(fresh_yard):
    box = fresh_yard.new()
    with Terminal(fresh_yard, "exec", "-it", box.name, "--", "sh", "-c", "printf 'no newline'; sleep 600") as term:
        term.expect("no newline")
        fresh_yard.kill_daemon()
        term.expect("\r\n.*box:.* connection to the daemon lost.*\r\n")
        fresh_yard.start_daemon()
        term.expect("\r\n.*box:.* connected again\r\n")


def test_a_tar_is_not_written_to_a_terminal(yard, box):
    with Terminal(yard, "cp", f"{box.name}:/etc", "-") as term:
        term.expect("tar archive")
        assert term.wait() == 64


def test_a_single_ctrl_p_is_passed_on(yard, box):
    script = "stty raw -echo; echo ready; head -c 2 | od -An -tx1"
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", script) as term:
        term.expect("ready")
        term.type(b"\x10a")
        term.expect("10 61")
        assert term.wait() == 0


def test_client_ended_by_a_signal_restores_the_terminal(yard, box):
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", "echo ready; sleep 600") as term:
        term.expect("ready")
        term.client.send_signal(signal.SIGTERM)
        term.wait()
        assert term.is_restored()


def test_hangup_of_a_terminal_program_is_not_the_end_of_the_box(yard, box):
    with Terminal(yard, "exec", "-it", box.name, "--", "sh", "-c", "echo ready; sleep 601") as term:
        term.expect("ready")
    assert box.show()["state"] == "running"
    assert box.out("echo hi") == "hi"


def test_t_without_a_terminal_on_our_side_still_gives_the_program_one(yard, box):
    assert box.exec("sh", "-c", "test -t 1 && echo terminal", flags=["-t"]).stdout.strip() == "terminal"
