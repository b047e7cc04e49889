"""ocitools - images made by hand, and a registry on loopback to keep them in

A layer is a list of members (see `member`); an image is a list of layers and a configuration.
Everything can be
made wrong on purpose: `damage` changes a blob behind its digest's back.
"""
import base64
import gzip
import hashlib
import io
import json
import lzma
import os
import platform
import shutil
import socket
import subprocess
import tarfile
import time
import warnings
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}
HERE = ARCHITECTURES.get(platform.machine(), platform.machine())
OTHER = "arm64" if HERE != "arm64" else "amd64"

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def sha256(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


# ---- layers ----------------------------------------------------------------------------------


def member(name, content=b"", type=tarfile.REGTYPE, mode=None, uid=0, gid=0, link="", mtime=1_600_000_000,
           device=(0, 0), xattrs=None):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.uid, info.gid, info.mtime = type, link, uid, gid, mtime
    info.mode = mode if mode is not None else (0o755 if type == tarfile.DIRTYPE else 0o644)
    info.devmajor, info.devminor = device
    info.size = len(content)
    info.pax_headers = {f"SCHILY.xattr.{key}": value for key, value in (xattrs or {}).items()}
    return info, content


def folder(name, mode=0o755, **more):
    return member(name, type=tarfile.DIRTYPE, mode=mode, **more)


def symlink(name, to):
    return member(name, type=tarfile.SYMTYPE, link=to, mode=0o777)


def hardlink(name, to):
    return member(name, type=tarfile.LNKTYPE, link=to)


def tar(members):
    """Bytes of a tar; members as `member` makes them. Names are written as they stand, '..' too."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


COMPRESSIONS = {
    "gzip": (lambda data: gzip.compress(data, 1, mtime=0), LAYER + "+gzip"),
    "zstd": (zstd, LAYER + "+zstd"),
    "plain": (bytes, LAYER),
}
STREAMS = {"gzip": gzip.compress, "zstd": zstd, "xz": lzma.compress, "plain": bytes}


# ---- OCI layouts -----------------------------------------------------------------------------


class Layout:
    """A folder in the OCI image layout."""

    def __init__(self, path):
        self.path = Path(path)
        self.blobs = self.path / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (self.path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.entries = []
        self._write_index()

    def _write_index(self):
        (self.path / "index.json").write_text(
            json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": self.entries}))

    def add_blob(self, data, media_type):
        digest = sha256(data)
        (self.blobs / digest.split(":")[1]).write_bytes(data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def add_json(self, value, media_type):
        return self.add_blob(json.dumps(value).encode(), media_type)

    def make_image(self, layers, config=None, architecture=HERE, compression="gzip", diff_ids=None):
        """layers: lists of members, or bytes of a tar, lowest first. Gives the manifest's
        descriptor."""
        compress, media_type = COMPRESSIONS[compression]
        tars = [layer if isinstance(layer, bytes) else tar(layer) for layer in layers]
        configuration = {
            "architecture": architecture, "os": "linux", "config": config or {},
            "rootfs": {"type": "layers", "diff_ids": diff_ids or [sha256(layer) for layer in tars]},
        }
        manifest = {
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": self.add_json(configuration, CONFIG),
            "layers": [self.add_blob(compress(layer), media_type) for layer in tars],
        }
        return self.add_json(manifest, MANIFEST)

    def make_index(self, images):
        """images: {architecture: descriptor}. Gives the index's descriptor."""
        entries = [{**descriptor, "platform": {"os": "linux", "architecture": architecture}}
                   for architecture, descriptor in images.items()]
        return self.add_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}, INDEX)

    def name(self, descriptor, name):
        self.entries.append({**descriptor, "annotations": {"org.opencontainers.image.ref.name": name}})
        self._write_index()

    def add_image(self, name, layers, **more):
        descriptor = self.make_image(layers, **more)
        self.name(descriptor, name)
        return descriptor

    def read(self, descriptor):
        return json.loads(self.blob_path(descriptor).read_bytes())

    def blob_path(self, descriptor):
        return self.blobs / descriptor["digest"].split(":")[1]

    def damage(self, descriptor):
        damage(self.blob_path(descriptor))

    def archive(self, out):
        subprocess.run(["tar", "-C", self.path, "-cf", out, "."], check=True)
        return out


def damage(path):
    """Turns one bit in the middle of a file; its size stays."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)


def docker_archive(out, layers, config=None, tags=("made:by-hand",), architecture=HERE, links=False):
    """As older versions of `docker save` write it. links: layers that come twice are symbolic
    links."""
    tars = [tar(layer) for layer in layers]
    configuration = json.dumps({
        "architecture": architecture, "os": "linux", "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [sha256(layer) for layer in tars]}}).encode()
    config_name = sha256(configuration).split(":")[1] + ".json"
    members, names, seen = [], [], {}
    for number, layer in enumerate(tars):
        name = f"{hashlib.sha256(str(number).encode()).hexdigest()}/layer.tar"
        if links and layer in seen:
            members.append(symlink(name, "../" + seen[layer]))
        else:
            members.append(member(name, layer))
            seen[layer] = name
        names.append(name)
    manifest = json.dumps([{"Config": config_name, "RepoTags": list(tags), "Layers": names}]).encode()
    members += [member(config_name, configuration), member("manifest.json", manifest)]
    Path(out).write_bytes(tar(members))
    return out


# ---- a registry ------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bcrypt(password):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import crypt  # gone in Python 3.13; Debian's is older
    return crypt.crypt(password, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))


class Registry:
    """Debian's docker-registry on a free port of loopback, plain HTTP.

    users: {"name": "password"} makes it ask for credentials.
    """

    def __init__(self, path, users=None, port=None):
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.log = self.path / "log"
        self.users = users or {}
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        auth = ""
        if self.users:
            lines = [f"{user}:{bcrypt(password)}\n" for user, password in self.users.items()]
            (self.path / "htpasswd").write_text("".join(lines))
            auth = f"auth:\n  htpasswd:\n    realm: test\n    path: {self.path}/htpasswd\n"
        (self.path / "config.yml").write_text(
            "version: 0.1\nlog:\n  accesslog:\n    disabled: false\n  level: info\n"
            f"storage:\n  filesystem:\n    rootdirectory: {self.path}/data\n  cache:\n    blobdescriptor: ''\n"
            f"http:\n  addr: {self.host}\n{auth}")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([find_registry(), "serve", str(self.path / "config.yml")],
                                            stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError(f"docker-registry does not start: {self.log.read_text()[-2000:]}")
                time.sleep(0.02)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def push(self, layout, name, source=None):
        """The image called source (or name) of a layout becomes HOST/name."""
        credentials = []
        if self.users:
            user, password = next(iter(self.users.items()))
            credentials = [f"--dest-creds={user}:{password}"]
        subprocess.run(["skopeo", "--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests",
                        "--dest-tls-verify=false", *credentials,
                        f"oci:{layout.path}:{source or name}", f"docker://{self.host}/{name}"],
                       check=True, stdin=subprocess.DEVNULL)
        return f"{self.host}/{name}"

    def blob_path(self, descriptor):
        digest = descriptor["digest"].split(":")[1]
        return self.path / "data/docker/registry/v2/blobs/sha256" / digest[:2] / digest / "data"

    def damage(self, descriptor):
        damage(self.blob_path(descriptor))

    def fetched(self):
        """Digests of blobs that were read, one entry for each time."""
        digests = []
        for line in self.log.read_text(errors="replace").splitlines():
            if '"GET /v2/' in line and "/blobs/sha256:" in line and ('" 200 ' in line or '" 206 ' in line):
                digests.append(line.split("/blobs/")[1].split()[0])
        return digests

    def forget_log(self):
        os.truncate(self.log, 0)


def authfile(path, host, user, password):
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    Path(path).write_text(json.dumps({"auths": {host: {"auth": token}}}))
    return path


def find_registry():
    """Installed, or unpacked by scripts/test-registry; None: neither."""
    unpacked = Path(__file__).resolve().parents[2] / "build/tools/usr/bin/docker-registry"
    return shutil.which("docker-registry") or (str(unpacked) if unpacked.exists() else None)


def missing_programs():
    missing = [name for name in ("skopeo", "zstd") if not shutil.which(name)]
    return missing + ([] if find_registry() else ["docker-registry"])
