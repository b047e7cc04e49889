"""Authorities of the machine are trusted in boxes: behind a proxy that looks into TLS nothing works
without."""
import subprocess

import pytest

from boxtest import eventually
from fixtures import running_yard_with

SERVER = """
import http.server, ssl
server = http.server.HTTPServer(("127.0.0.1", 4443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv/leaf.crt", "/srv/leaf.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
CLIENTS = {
    "curl": "curl -sf https://localhost:4443/ >/dev/null",
    "python": "python3 -c 'import urllib.request; urllib.request.urlopen(\"https://localhost:4443/\")'",
    "node": "node -e 'require(\"https\").get({host: \"localhost\", port: 4443, family: 4}, r => process.exit(0)).on(\"error\", e => process.exit(1))'",
    "openssl": "openssl s_client -connect localhost:4443 -verify_return_error </dev/null",
    "git": "git ls-remote https://localhost:4443/x 2>&1 | grep -q 'not found'",
    "pip": "pip download -q --no-deps -d /tmp -i https://localhost:4443/ nothing 2>&1 | grep -qv SSLError",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A folder with ca.crt (and a key in the same file, which is nobody's business), leaf.crt and
    leaf.key."""
    folder = tmp_path_factory.mktemp("ca")

    def run(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.crt",
        "-subj", "/CN=Corporate", "-days", "3650", "-addext", "basicConstraints=critical,CA:TRUE")
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "leaf.key", "-out", "leaf.csr",
        "-subj", "/CN=localhost")
    (folder / "ext").write_text("subjectAltName=DNS:localhost\n")
    run("x509", "-req", "-in", "leaf.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "leaf.crt", "-days",
        "3650", "-extfile", "ext")
    (folder / "both.pem").write_text((folder / "ca.key").read_text() + (folder / "ca.crt").read_text())
    return folder


def serving(yard, authority):
    box = yard.new()
    for name in ("leaf.crt", "leaf.key"):
        assert box.put(f"/srv/{name}", (authority / name).read_bytes()).status == 200
    box.start("python3", "-c", SERVER)
    eventually(lambda: box.sh("curl -sfk https://localhost:4443/ >/dev/null", check=False).returncode == 0, 10)
    return box


def test_boxes_trust_what_the_machine_trusts(image, authority):
    with running_yard_with(BOX_CA_CERTIFICATES=str(authority / "both.pem")) as yard:
        box = serving(yard, authority)
        for name, command in CLIENTS.items():
            done = box.sh(command, check=False)
            assert done.returncode == 0, (name, done.stdout, done.stderr)
        assert "KEY" not in box.out("cat /usr/local/share/ca-certificates/boxyard-machine.crt")
        added = box.out("grep -c BEGIN /etc/ssl/certs/ca-certificates.crt")
        # Once, however often it starts; and an update in the box keeps it.
        yard.box("stop", box.name, "-t", "0")
        yard.box("start", box.name)
        assert box.out("grep -c BEGIN /etc/ssl/certs/ca-certificates.crt") == added
        box.sh("update-ca-certificates")
        box.start("python3", "-c", SERVER)
        eventually(lambda: box.sh(CLIENTS["curl"], check=False).returncode == 0, 10)
        # Who sets a variable himself is left alone.
        assert box.exec("sh", "-c", "echo $SSL_CERT_FILE", flags=["-e", "SSL_CERT_FILE=/mine"]).stdout == "/mine\n"


def test_none_adds_nothing(yard, authority):
    box = serving(yard, authority)
    assert box.sh(CLIENTS["curl"], check=False).returncode != 0
    assert box.out("echo $SSL_CERT_FILE$NODE_EXTRA_CA_CERTS$REQUESTS_CA_BUNDLE; ls /usr/local/share/ca-certificates") == ""
    box.remove()


def test_an_image_without_a_list_and_one_that_lies_about_it_start(image, authority):
    with running_yard_with(BOX_CA_CERTIFICATES=str(authority / "ca.crt")) as yard:
        box = yard.new()
        box.sh("rm /etc/ssl/certs/ca-certificates.crt")
        for trick in ("true", "mkfifo /etc/ssl/certs/ca-certificates.crt", "rm /etc/ssl/certs/ca-certificates.crt; "
                      "mkdir /etc/ssl/certs/ca-certificates.crt", "rmdir /etc/ssl/certs/ca-certificates.crt; "
                      "ln -s /dev/zero /etc/ssl/certs/ca-certificates.crt"):
            box.sh(trick)
            yard.box("stop", box.name, "-t", "0")
            yard.box("start", box.name)
            assert box.out("echo $SSL_CERT_FILE,$NODE_EXTRA_CA_CERTS").startswith(",/usr/local/share")
