"""A connection that box-init makes inside the box, over the stdin and stdout of a program."""
import os
import socket
import threading

import pytest

import initclient as ic


BINARY = os.environ["BOX_INIT"]


@pytest.fixture
def init():
    init = ic.Init(BINARY)
    yield init
    assert init.alive(), f"box-init died: {init.process.returncode}"
    assert init.stop() == 0


@pytest.fixture
def echo():
    """A server that answers one line and closes."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                conn, _ = server.accept()
            except OSError:
                return
            with conn:
                conn.sendall(b"got " + conn.recv(100))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.close()


def connect(init, *words):
    """Output, errors and exit code of a connection that was told hello."""
    channel = init.conn().start("c", "connect", *words, stdin=ic.CONNECT)
    channel.data(b"hello")
    channel.send(ic.END)
    channel.wait_closed()
    return bytes(channel.out), bytes(channel.err), channel.exit["code"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connection_stands_and_carries_both_ways(init, echo, host):
    assert connect(init, host, str(echo)) == (b"+got hello", b"", 0)


def answer(server):
    with server.accept()[0] as conn:
        conn.sendall(b"there" if conn.recv(100) == b"hello" else b"?")


def test_unix_socket(init, tmp_path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    server.listen()
    thread = threading.Thread(target=lambda: answer(server), daemon=True)
    thread.start()
    assert connect(init, str(tmp_path / "s"))[0] == b"+there"
    server.close()


def test_refusal_is_a_line_on_stderr(init):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    out, errors, code = connect(init, "127.0.0.1", str(port))
    assert (out, code) == (b"", 1) and b"refused" in errors


@pytest.mark.parametrize("words", [("127.0.0.1",), ("127.0.0.1", "0"), ("127.0.0.1", "x"), ("h" * 300, "1"), ("a..b", "1"), ("/no/such",)])
def test_nonsense_is_refused(init, words):
    out, errors, code = connect(init, *words)
    assert (out, code) == (b"", 1) and errors.count(b"\n") == 1, errors


def test_the_program_is_that_one_alone(init):
    with pytest.raises(ic.InitError) as caught:
        init.conn().run("c", "true", stdin=ic.CONNECT)
    assert caught.value.kind == "invalid"
