"""Real clients, as they come, through the network of a box: what is allowed just works.

Servers run in an internet of the test's own (internet.py, clienttools.py). Boxes are made from an
image that was saved
from another box, with the package hosts and the authority of that internet in its configuration, as
a company's base
image would have them; what the preset `packages` allows is found there.
"""
import hashlib
import os
import subprocess
from types import SimpleNamespace

import pytest

from clienttools import (connect_proxy, debian_archive, files_handler, git_handler, make_repository, npm_package,
                         packages_for_image, serve_mail, serve_websocket, start_git_daemon, start_nghttpd, start_postgres,
                         start_sshd)
from internet import World

WEB, H2, DEB, NPM, GIT, SSH, SQL, WS, MAIL = (f"203.0.113.{n}" for n in range(10, 19))
NAMES = {"web.test": WEB, "h2.test": H2, "deb.test": DEB, "sec.test": DEB, "npm.test": NPM, "git.test": GIT,
         "ssh.test": SSH, "sql.test": SQL, "ws.test": WS, "mail.test": MAIL}
PROXY = "203.0.113.80"
BIG = 100 * 1000 * 1000
TO_INSTALL = ("postgresql-client", "python3-websocket", "hello")


# ---- the internet, a daemon, images ----------------------------------------------------------


def all_of(problems):
    assert not problems, "\n".join(problems)


@pytest.fixture(scope="module")
def net(image):
    """An internet with a daemon in it; net.box(allow=[...]) makes boxes, removed at the end."""
    world = World()
    yard = world.yard()
    try:
        for name, address in NAMES.items():
            world.dns(name, address)
        yard.start_daemon()
        yield SimpleNamespace(world=world, yard=yard)
    finally:
        problems = world.close()
    all_of(problems)


@pytest.fixture(scope="module")
def big():
    block = os.urandom(1000 * 1000)
    return block * (BIG // len(block))


@pytest.fixture(scope="module")
def web(net, big):
    """web.test, plain and with TLS; the certificate would do for other.test too."""
    handler = files_handler(net.world, {"/big": big, "/small": b"small\n"})
    net.world.serve_http(WEB, 80, handler=handler)
    net.world.serve_https(WEB, names=["web.test", "other.test"], handler=handler)


def trust(box, world):
    """The authority of the world becomes one that programs of the box know."""
    assert box.put("/usr/local/share/ca-certificates/world.crt", world.ca_file.read_bytes(), parents="true").status == 200
    box.exec("update-ca-certificates")


@pytest.fixture(scope="module")
def company_image(net):
    """A saved box whose apt and npm use hosts of the world."""
    box = net.yard.new(policy={"preset": "none"})
    trust(box, net.world)
    box.sh("""set -e
        rm -f /etc/apt/sources.list.d/*
        echo 'deb [trusted=yes] http://deb.test/debian flat/' >/etc/apt/sources.list
        printf 'Types: deb\\nURIs: https://sec.test/debian\\nSuites: flat/\\nTrusted: yes\\n' >/etc/apt/sources.list.d/sec.sources
        printf 'registry=https://npm.test/\\ncafile=/etc/ssl/certs/ca-certificates.crt\\n' >/etc/npmrc""")
    net.yard.box("save", "--learn-hosts", box.name, "company")
    box.remove()
    return "company"


@pytest.fixture
def client(net, company_image):
    """client("web.test:80", ...) makes a box that may reach that alone."""
    made = []

    def make(*allow, image=company_image, **policy):
        made.append(net.yard.new(image=image, policy={"preset": "none", "allow": list(allow), **policy}))
        return made[-1]

    yield make
    for one in made:
        one.remove()


# ---- packages --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(net, company_image):
    """apt-get in a box of the company's image with the preset `packages`; the outcome, saved as an
    image."""
    debs = packages_for_image(*TO_INSTALL)
    archive = debian_archive(debs)
    handler = files_handler(net.world, archive)
    net.world.serve_http(DEB, 80, handler=handler)
    net.world.serve_https(DEB, names=["sec.test"], handler=handler)
    box = net.yard.new(image=company_image, policy={"preset": "packages"})
    net.world.forget()
    done = box.sh("apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
                  + " ".join(TO_INSTALL), check=False, timeout=120)
    seen = net.world.seen("http ")
    policy = net.yard.api("GET", f"{box.path}/policy", expect=200).json
    if not done.returncode:
        net.yard.box("save", box.name, "installed")
    yield SimpleNamespace(box=box, done=done, seen=seen, policy=policy, image="installed", debs=debs)
    box.remove()


def test_apt_installs_from_the_hosts_of_the_image(installed):
    assert installed.done.returncode == 0, installed.done.stdout + installed.done.stderr
    assert "Hello, world!" in installed.box.out("hello")
    for host in ("deb.test", "sec.test"):
        assert f"http {host} GET /debian/flat/Release" in installed.seen
    assert len([line for line in installed.seen if line.endswith(".deb")]) == len(installed.debs)


def test_the_preset_packages_is_what_the_image_says(net, web, installed):
    """Nothing but its hosts: not the git hosts of `dev`, not other names of the same internet."""
    pip = {"pypi.org:443", "files.pythonhosted.org:443"}  # nobody configured another, where the image has pip
    assert sorted(set(installed.policy["package_hosts"]) - pip) == ["deb.test:80", "npm.test:443", "sec.test:443"]
    net.world.forget()
    assert installed.box.sh("curl -sS -m 5 http://web.test/", check=False).returncode == 6  # does not resolve
    assert not net.world.seen("tcp") and not net.world.seen("dns A web.test")


def test_npm_installs_from_the_registry_of_the_image(net, company_image):
    files = npm_package("tiny-odd", "1.0.2", "https://npm.test", {"index.js": "module.exports = n => n % 2 === 1\n"})
    net.world.serve_https(NPM, names=["npm.test"], handler=files_handler(net.world, files))
    box = net.yard.new(image=company_image, policy={"preset": "packages"})
    try:
        assert box.out("npm view tiny-odd version") == "1.0.2"
        box.sh("mkdir /app && cd /app && npm init -y && npm install --no-audit --no-fund tiny-odd")
        assert box.out("""cd /app && node -p 'require("tiny-odd")(3)'""") == "true"
    finally:
        box.remove()


# ---- curl ------------------------------------------------------------------------------------


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.asan
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_curl_moves_100_megabytes_each_way(client, web, big, scheme):
    box = client("web.test")
    assert box.out(f"curl -sSf {scheme}://web.test/small") == "small"
    assert box.out(f"curl -sSf {scheme}://web.test/big | tee /tmp/big | sha256sum").split()[0] == digest(big)
    assert box.out(f"curl -sSf -T /tmp/big {scheme}://web.test/up", timeout=120) == f"{BIG} {digest(big)}"
    # One connection for several requests, of which one is not found.
    reused = box.out(f"curl -sS -o /dev/null -o /dev/null -o /dev/null -w '%{{http_code}}:%{{num_connects}} ' "
                     f"{scheme}://web.test/small {scheme}://web.test/no {scheme}://web.test/small")
    assert reused == "200:1 404:0 200:0"


def test_a_hundred_curls_at_once_over_both_families(client, web):
    box = client("web.test")
    for family in ("-4", "-6"):  # the world has the name in IPv4 alone; a box has both
        one = f"curl {family} -sS -m 20 -o /dev/null -w '%{{http_code}} ' https://web.test/small"
        done = box.out(f"for i in $(seq 50); do {one} & done; wait", timeout=90)
        assert done.split() == ["200"] * 50


def test_curl_speaks_http2(net, client, big, tmp_path):
    (tmp_path / "big").write_bytes(big)
    (tmp_path / "small").write_text("small\n")
    start_nghttpd(net.world, H2, ["h2.test"], tmp_path)
    box = client("h2.test:443")
    shown = "-w '%{http_version} %{ssl_verify_result}\\n'"
    assert box.out(f"curl -sSf {shown} https://h2.test/small").split() == ["small", "2", "0"]
    assert box.out(f"curl -sSf -o /tmp/big {shown} https://h2.test/big && sha256sum </tmp/big").split()[:3] == \
        ["2", "0", digest(big)]
    box.sh("head -c 10000000 /tmp/big >/tmp/part && curl -sSf -o /tmp/back --data-binary @/tmp/part https://h2.test/echo "
           "&& cmp /tmp/part /tmp/back")
    # Many streams in one connection.
    many = box.out("curl -sSf --parallel -o /dev/null 'https://h2.test/small?[1-50]' -w '%{http_version}:%{num_connects} '")
    assert many.split().count("2:0") >= 40 and len(many.split()) == 50, many


def test_a_server_of_another_name_is_not_reached(net, web, client):
    """The same address, another name in SNI or Host: refused before anything is dialled."""
    box = client("web.test")
    net.world.forget()
    for words in ("-H 'Host: other.test' http://web.test/", "--connect-to other.test:443:web.test:443 https://other.test/"):
        assert box.sh(f"curl -sS -m 5 {words}", check=False).returncode != 0, words
    assert not net.world.seen(f"tcp {WEB}")


# ---- WebSocket, mail -------------------------------------------------------------------------

WEBSOCKET_CLIENT = """
import os, sys, time, websocket
ws = websocket.create_connection(sys.argv[1], timeout=10)
assert ws.recv() == "hello"
time.sleep(0.3)
for data in ("text", os.urandom(1), os.urandom(1 << 20)):
    ws.send(data, websocket.ABNF.OPCODE_TEXT if isinstance(data, str) else websocket.ABNF.OPCODE_BINARY)
    assert ws.recv() == data
ws.close()
print("ok")
"""


@pytest.fixture(scope="module")
def websockets(net):
    context = net.world.tls_context(["ws.test"])
    net.world.serve_tcp(WS, 80, serve_websocket)
    net.world.serve_tcp(WS, 443, lambda conn, local: serve_websocket(context.wrap_socket(conn, server_side=True), local))


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_websocket(websockets, installed, client, scheme):
    box = client("ws.test:80,443", image=installed.image)
    assert box.python(WEBSOCKET_CLIENT, f"{scheme}://ws.test/chat").stdout == "ok\n"


def test_a_server_that_speaks_first(net, client):
    net.world.serve_tcp(MAIL, 25, serve_mail)
    box = client("mail.test:25")
    done = box.python("""import smtplib
with smtplib.SMTP("mail.test", 25, timeout=5) as server:
    print(server.sendmail("a@box.test", ["b@mail.test"], "Subject: hello\\n\\nhello\\n"))""")
    assert done.stdout == "{}\n"


# ---- git, ssh --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def repositories(net):
    """A folder with the repository thing.git, served in every way."""
    folder = net.world.folder / "git"
    make_repository(folder / "thing.git")
    handler = git_handler(net.world, folder)
    net.world.serve_http(GIT, 80, handler=handler)
    net.world.serve_https(GIT, names=["git.test"], handler=handler)
    start_git_daemon(net.world, GIT, folder)
    return folder


@pytest.mark.parametrize("scheme", ["git", "http", "https"])
def test_git_clones(client, repositories, scheme):
    port = {"git": 9418, "http": 80, "https": 443}[scheme]
    box = client(f"git.test:{port}")
    box.sh(f"git clone -q {scheme}://git.test/thing.git /thing && cd /thing && git fsck --strict && test -f file299")


def test_git_pushes_over_https(client, repositories):
    box = client("git.test:443")
    box.sh("""set -e; git clone -q https://git.test/thing.git /thing; cd /thing
        head -c 5000000 /dev/urandom >large; git add large
        git -c user.name=b -c user.email=b@b.test commit -q -m second; git push -q origin HEAD:second
        git ls-remote -q https://git.test/thing.git second | grep -q "$(git rev-parse HEAD)" """)


@pytest.fixture(scope="module")
def sshd(net, tmp_path_factory):
    key = tmp_path_factory.mktemp("ssh") / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return SimpleNamespace(key=key.read_bytes(), host=start_sshd(net.world, SSH, key.with_suffix(".pub").read_text()))


def test_ssh_scp_and_git_over_ssh(client, sshd, repositories):
    box = client("ssh.test:22")
    box.put("/root/.ssh/id_ed25519", sshd.key, parents="true", mode="0600")
    box.put("/root/.ssh/known_hosts", f"ssh.test {sshd.host}\n".encode())
    ssh = "-o BatchMode=yes -o StrictHostKeyChecking=yes"
    said = box.out(f"echo in | ssh {ssh} root@ssh.test 'cat; echo out; echo err >&2; exit 7' 2>/dev/null; echo $?")
    assert said == "in\nout\n7"
    box.sh(f"""set -e; head -c 20000000 /dev/urandom >/tmp/a; scp -q {ssh} /tmp/a root@ssh.test:copy
        scp -q {ssh} root@ssh.test:copy /tmp/b; cmp /tmp/a /tmp/b; ssh {ssh} root@ssh.test rm copy""")
    box.sh(f"git clone -q ssh://root@ssh.test{repositories}/thing.git /thing && test -f /thing/file299")


# ---- PostgreSQL ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres(net):
    return start_postgres(net.world, SQL, ["sql.test"])


@pytest.mark.parametrize("mode", ["disable", "verify-full"])
def test_postgresql(client, installed, postgres, mode):
    box = client("sql.test:5432", image=installed.image)
    url = f"postgresql://ada:secret@sql.test:5432/postgres?sslmode={mode}&sslrootcert=/etc/ssl/certs/ca-certificates.crt"
    script = """CREATE TABLE t AS SELECT n, repeat('x', 1000) AS text FROM generate_series(1, 20000) n;
        SELECT count(*), sum(n), sum(length(text)) FROM t;
        SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid();
        \\copy t TO '/tmp/t'
        DROP TABLE t;"""
    done = box.exec("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url, flags=["-i"], input=script)
    assert done.stdout.split() == ["20000|200010000|20000000", "t" if mode == "verify-full" else "f"]
    assert box.out("wc -l </tmp/t") == "20000"


# ---- where the host reaches the world only by a proxy ----------------------------------------


@pytest.fixture
def office(image):
    """An internet of which the site can resolve nothing but its proxy."""
    world = World()
    try:
        yield world
    finally:
        problems = world.close()
    all_of(problems)


@pytest.mark.asan
def test_a_proxy_is_the_only_way_out(office):
    """The site resolves the proxy and what NO_PROXY says, nothing else."""
    make_repository(office.folder / "git" / "thing.git")
    web = files_handler(office, {"/big": b"x" * 10_000_000, "/": b"hello\n"})
    office.serve_http(WEB, 80, handler=web)
    office.serve_https(WEB, names=["web.test", "near.test"], handler=web)
    office.serve_https(GIT, names=["git.test"], handler=git_handler(office, office.folder / "git"))
    office.serve_tcp(MAIL, 25, serve_mail)
    behind = {"web.test": WEB, "git.test": GIT, "mail.test": MAIL}
    office.serve_tcp(PROXY, 3128, connect_proxy(office, behind, "ada:pass word"))
    office.dns("proxy.test", PROXY)
    office.dns("near.test", WEB)
    yard = office.yard()
    yard.env.update(HTTPS_PROXY="http://ada:pass%20word@proxy.test:3128", NO_PROXY="localhost,near.test")
    yard.start_daemon()
    names = ["web.test", "git.test", "mail.test", "near.test", "gone.test"]
    box = yard.new(policy={"preset": "none", "allow": names})
    trust(box, office)
    office.forget()

    assert box.out("env | grep -ic proxy || true") == "0"  # the box knows of no proxy
    assert box.out("curl -sSf https://web.test/big | wc -c") == "10000000"
    assert box.out("curl -sSf http://web.test/") == "hello"
    box.sh("git clone -q https://git.test/thing.git /thing && git -C /thing fsck")
    box.python("import smtplib; smtplib.SMTP('mail.test', timeout=5).noop()")
    assert box.sh("curl -sS -m 5 https://gone.test/", check=False).returncode not in (0, 28)  # the proxy's 502, at once
    assert box.sh("curl -sS -m 5 https://other.test/", check=False).returncode == 6
    assert set(office.seen("connect ")) == {f"connect {where}" for where in (
        "web.test:443", "web.test:80", "git.test:443", "mail.test:25", "gone.test:443")}
    assert {line.split()[-1] for line in office.seen("dns ")} <= {"proxy.test"}

    assert box.out("curl -sSf https://near.test/") == "hello"
    assert not office.seen("connect near.test")
