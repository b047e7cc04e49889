"""The TCP port with TLS: any address, a certificate of a real CA, and never without one
elsewhere."""
import http.client
import os
import signal
import socket
import ssl
import subprocess

import pytest

from boxtest import BOX_BIN, IMAGE, SLOWNESS, Yard, eventually, random_name
from fixtures import running_yard_with


def openssl(*words, **kw):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, **kw)


def make_ca(folder):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=Test CA",
            "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    return folder / "ca.pem"


def sign(folder, cert, key, serial):
    """A certificate for localhost, by the CA."""
    request, extra = folder / "request.pem", folder / "extra.cnf"
    extra.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost",
            "-keyout", f"{key}.new", "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-set_serial", serial,
            "-days", "2", "-extfile", extra, "-out", f"{cert}.new")
    os.rename(f"{key}.new", key)
    os.rename(f"{cert}.new", cert)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def far(image, tmp_path_factory):
    """A daemon on every address of this machine, and what a client of it needs."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    make_ca(folder)
    sign(folder, cert, key, 1)
    with running_yard_with(BOX_LISTEN=f"0.0.0.0:{free_port()}", BOX_LISTEN_CERTIFICATE=str(cert),
                           BOX_LISTEN_KEY=str(key)) as yard:
        made = yard.api("POST", "/v1/tokens", {"name": "far", "scopes": ["read", "exec", "create"]}, expect=201).json
        yard.tls = folder, cert, key
        yard.client = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_COLOR": "1", "BOX_TOKEN": made["token"],
                       "BOX_HOST": f"https://localhost:{yard.port()}", "BOX_CACERT": str(folder / "ca.pem")}
        yield yard


def box(*words, env, check=True, **kw):
    done = subprocess.run([BOX_BIN, *words], env=env, capture_output=True, text=True, timeout=60 * SLOWNESS, check=False,
                          **kw)
    assert not check or done.returncode == 0, done
    return done


def serial_now(yard):
    context = ssl.create_default_context(cafile=yard.client["BOX_CACERT"])
    with context.wrap_socket(socket.create_connection(("127.0.0.1", yard.port())), server_hostname="localhost") as sock:
        return int(sock.getpeercert()["serialNumber"], 16)


def test_plain_http_is_told_to_use_tls(far):
    client = http.client.HTTPConnection("127.0.0.1", far.port(), timeout=10)
    client.request("GET", "/v1/boxes", headers={"X-Long": "x" * 30000})
    answer = client.getresponse()
    assert answer.status == 400 and b"TLS" in answer.read()
    plain = {**far.client, "BOX_HOST": f"http://localhost:{far.port()}"}
    for words in (["ls"], ["exec", "nobody", "--", "true"]):
        done = box(*words, env=plain, check=False)
        assert done.returncode != 0 and "this port speaks TLS" in done.stderr and "https://" in done.stderr, done


def test_the_command_line_speaks_to_it(far):
    name = random_name()
    box("new", name, "--image", IMAGE, env=far.client)
    assert name in box("ls", env=far.client).stdout
    assert box("exec", name, "--", "echo", "from afar", env=far.client).stdout == "from afar\n"
    assert box("exec", "-i", name, "--", "cat", env=far.client, input="bytes\n").stdout == "bytes\n"
    big = box("exec", name, "--", "sh", "-c", "head -c 8000000 /dev/zero | tr '\\0' x", env=far.client).stdout
    assert len(big) == 8000000
    box("rm", "-f", name, env=far.client)


def test_without_the_ca_it_is_refused(far):
    env = {key: value for key, value in far.client.items() if key != "BOX_CACERT"}
    refused = box("ls", env=env, check=False)
    assert refused.returncode and "not trusted" in refused.stderr and "BOX_CACERT" in refused.stderr
    assert box("ls", env={**far.client, "BOX_TOKEN": "box_wrong"}, check=False).returncode


def test_there_is_no_way_around_tls(far):
    conn = http.client.HTTPConnection("127.0.0.1", far.port(), timeout=10)
    conn.request("GET", "/v1/health", headers={"Authorization": f"Bearer {far.client['BOX_TOKEN']}"})
    assert conn.getresponse().status == 400
    context = ssl.create_default_context(cafile=far.client["BOX_CACERT"])

    def ask(**headers):
        conn = http.client.HTTPSConnection("localhost", far.port(), timeout=10, context=context)
        conn.request("GET", "/v1/boxes", headers={"Authorization": f"Bearer {far.client['BOX_TOKEN']}", **headers})
        return conn.getresponse().status

    assert ask() == 200
    assert ask(Host="yard.example.com:30001") == 200, "any name a certificate may have"
    assert ask(Origin="https://evil.example") == 403
    assert ask(Authorization="Bearer nope") == 401


def test_info_and_up_tell_it(far):
    assert far.info()["listen_tls"] is True
    assert f"https://0.0.0.0:{far.port()}" in far.box("up").stdout
    one = far.new()
    assert far.box("url", one.name).stdout.startswith("https://")
    one.remove()


def test_a_new_certificate_is_served_without_a_restart(far):
    folder, cert, key = far.tls
    assert serial_now(far) == 1
    sign(folder, cert, key, 2)
    os.kill(far.daemon_pid(), signal.SIGHUP)
    eventually(lambda: serial_now(far) == 2, 5, "the new certificate")
    cert.write_text("no certificate")
    os.kill(far.daemon_pid(), signal.SIGHUP)
    eventually(lambda: "the old one stays" in far.log_tail(), 5, "its complaint")
    assert serial_now(far) == 2
    sign(folder, cert, key, 3)


@pytest.mark.parametrize("env, words", [
    ({}, ["needs TLS", "listen_certificate"]),
    ({"BOX_LISTEN_CERTIFICATE": "/nonexistent/cert.pem"}, ["belong together"]),
    ({"BOX_LISTEN_CERTIFICATE": "/nonexistent/cert.pem", "BOX_LISTEN_KEY": "/nonexistent/key.pem"}, ["/nonexistent/cert.pem"]),
])
def test_elsewhere_without_a_certificate_it_does_not_start(env, words):
    yard = Yard()
    try:
        yard.env.update(BOX_LISTEN=f"0.0.0.0:{free_port()}", **env)
        done = yard.box("serve", check=False, timeout=30)
        assert done.returncode
        for word in words:
            assert word in done.stderr, done.stderr
    finally:
        yard.env["BOX_LISTEN"] = "off"
        for key in env:
            del yard.env[key]
        assert not yard.destroy()
