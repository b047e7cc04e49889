"""terminal.py - a person at a terminal, for tests: a pty with the command line running in it"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from boxtest import BOX_BIN, SLOWNESS


class Terminal:
    def __init__(self, yard, *args, rows=24, cols=80, program=(str(BOX_BIN),), env=None, pass_fds=()):
        self.master, self.slave = pty.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.client = subprocess.Popen([*program, *args], env=env or {**yard.env, "TERM": "xterm"}, stdin=self.slave,
                                       stdout=self.slave, stderr=self.slave, start_new_session=True, pass_fds=pass_fds,
                                       preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.client.poll() is None:
            self.client.kill()
            self.client.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        if hasattr(self, "client"):
            os.kill(self.client.pid, signal.SIGWINCH)

    def type(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def expect(self, pattern, timeout=8):
        """Reads until pattern appears in what was not yet expected; gives the match."""
        deadline = time.monotonic() + timeout * SLOWNESS
        while True:
            found = re.search(pattern.encode(), self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.master], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} in {self.seen!r}")
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:
                raise AssertionError(f"closed without {pattern!r}: {self.seen!r}") from None

    def wait(self, timeout=8):
        """The exit code; drains the screen meanwhile, so that the client never waits for us."""
        deadline = time.monotonic() + timeout * SLOWNESS
        while self.client.poll() is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"still running; screen: {self.seen!r}")
            if select.select([self.master], [], [], 0.02)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.client.returncode

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before
