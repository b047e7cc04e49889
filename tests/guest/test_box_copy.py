"""box-init and the `box` command in a state that CRIU captured: the request is answered in both
copies."""

import os
import signal
import subprocess
import time

import pytest

import initclient as ic
from test_box_init import BINARY

CRIU = os.environ.get("BOX_TEST_CRIU") or os.path.join(os.path.dirname(BINARY), "criu/criu")


def criu(folder, *words):
    done = subprocess.run([CRIU, *words, "-D", folder, "-o", f"{words[0]}.log", "-v4", "--shell-job", "--ext-unix-sk"],
                          capture_output=True, text=True, check=False, timeout=60)
    log = (folder / f"{words[0]}.log").read_text(errors="replace")
    assert done.returncode == 0, [line for line in log.splitlines() if "Error" in line]


@pytest.mark.skipif(not os.path.exists(CRIU), reason=f"no CRIU at {CRIU}; set BOX_TEST_CRIU")
def test_fork_and_snapshot_answer_twice(tmp_path):
    images, root, sock = tmp_path / "images", tmp_path / "root", str(tmp_path / "sock")
    images.mkdir()
    (root / "etc").mkdir(parents=True)
    (root / "etc/machine-id").write_text("0" * 32 + "\n")
    (tmp_path / "box").symlink_to(os.path.abspath(BINARY))
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "BOX_INIT_SOCKET": sock + ".self"}
    pairs = [f"{key}={value}" for key, value in env.items()]
    null = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    init = subprocess.Popen([BINARY, "--listen", sock], env={**os.environ, "BOX_INIT_ROOT": str(root)},
                            start_new_session=True, **null)
    restored = 0

    def connect():
        for _ in range(200):
            try:
                return ic.Conn(sock)
            except OSError:
                time.sleep(0.02)
        raise AssertionError("box-init does not listen")

    def said(conn, id):
        return bytes(conn.attach(id).wait_closed().out)

    try:
        conn = connect()
        for verb in ("fork", "snapshot"):
            conn.start(verb, "sh", "-c", f'n=$(box {verb}); if [ "$n" ]; then echo got $n; else echo copy; fi',
                       env=pairs, attach=False).wait_closed()
        assert {words[0] for _, _, words in (conn.request(), conn.request())} == {"fork", "snapshot"}
        conn.close()  # as the daemon does before every capture
        time.sleep(0.1)
        criu(images, "dump", "-t", str(init.pid), "--leave-running")
        conn = connect()
        for _ in range(2):
            id, again, words = conn.request()
            assert again
            conn.answer_all(id, out=f"{words[0]}-1\n".encode())
        assert said(conn, "fork") == b"got fork-1\n" and said(conn, "snapshot") == b"got snapshot-1\n"
        conn.close()
        init.kill()
        init.wait(10)
        criu(images, "restore", "-d", "--pidfile", str(tmp_path / "pid"))
        restored = int((tmp_path / "pid").read_text())
        conn = connect()
        assert conn.identity("ada-1", "k1", "ada").wait_reply().get("II") == (0, 0)
        assert said(conn, "fork") == b"copy\n" and said(conn, "snapshot") == b"copy\n"
        assert (root / "etc/machine-id").read_text() != "0" * 32 + "\n"
    finally:
        if init.poll() is None:
            init.kill()
            init.wait(10)
        if restored:
            os.kill(restored, signal.SIGKILL)
