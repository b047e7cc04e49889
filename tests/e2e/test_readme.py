"""The README as people read it: its tour pasted from top to bottom, its requests, its links, and
where `make install` puts them."""
import os
import re
import shutil
import subprocess

import pytest

from boxtest import BOX_BIN, ROOT
from fixtures import running_yard_with

README = (ROOT / "README.md").read_text()


def blocks(heading):
    """The indented blocks of a section, as they would be pasted."""
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [block.strip("\n") + "\n" for block in re.findall(r"(?:^ {4}.*\n)+", section, re.M)]


TOUR, LATER, REST = blocks("A tour")


def shell(script, yard, cwd, timeout=300):
    """bash, as far as the first line that fails; each line is told before it runs."""
    binaries = cwd.parent / "bin"
    binaries.mkdir(exist_ok=True)
    if not (binaries / "box").exists():
        (binaries / "box").symlink_to(BOX_BIN)
    env = {**yard.env, "PATH": f"{binaries}:{os.environ['PATH']}"}
    return subprocess.run(["bash", "-evo", "pipefail"], input=script, env=env, cwd=cwd, capture_output=True, text=True,
                          timeout=timeout)


@pytest.fixture(scope="module")
def toured(image, tmp_path_factory):
    folder = tmp_path_factory.mktemp("readme") / "empty"
    folder.mkdir()
    with running_yard_with() as yard:
        yield yard, folder, shell(TOUR, yard, folder)


def test_the_tour_can_be_pasted_from_top_to_bottom(toured):
    yard, folder, done = toured
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n---\n{done.stderr[-3000:]}"
    for word in ("42\n", "in bounds", "nobody else does", "8080-ada.localhost", "ada-1"):
        assert word in done.stdout, word
    assert (folder / "workspace-ada").is_dir()


def test_no_line_of_the_tour_waits(toured):
    """What waits for somebody would eat the lines that follow when they are pasted."""
    for line in TOUR.splitlines():
        assert not re.search(r"box (shell|attach|attack)\b|--follow| -f(?! (--|Boxfile|ada|\$))", line.partition("#")[0]), line


def test_what_waits_is_there(toured):
    """Each line is the command of the program that it says, with its options."""
    yard, folder, done = toured
    for line in LATER.splitlines():
        words = line.partition("#")[0].split()
        helped = shell(f"box help {words[1]}\n", yard, folder)
        assert helped.returncode == 0, line
        for option in (w for w in words[2:] if w.startswith("-") and len(w) > 1 and words.index(w) < (words.index("--") if "--" in words else 99)):
            assert option in helped.stdout, (line, option)


def test_the_requests_work(toured):
    if not shutil.which("curl"):
        pytest.skip("LOUD: there is no curl here")
    yard, folder, done = toured
    script = REST.replace("/run/boxyard/box.sock", str(yard.sock))
    assert script != REST
    done = shell(script, yard, folder)
    assert done.returncode == 0, done.stderr
    assert '"name":"ada"' in done.stdout.replace('": "', '":"') and "Linux" in done.stdout


def links(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            yield target


def test_links_lead_somewhere(tmp_path):
    """In the repository, and in what `make install` copies."""
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
    for page in pages:
        for target in links(page):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
    steps = subprocess.run(["make", "-n", "install", f"DESTDIR={tmp_path}"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = [line for line in steps.splitlines() if line.startswith("mkdir -p") or (line.startswith("install ") and ".md" in line)]
    assert len(wanted) >= 2
    subprocess.run("\n".join(wanted), shell=True, cwd=ROOT, check=True)
    installed = next(tmp_path.glob("**/share/doc/boxyard"))
    for page in installed.glob("**/*.md"):
        for target in links(page):
            assert (page.parent / target).exists(), f"installed {page.name}: {target}"


def test_the_manual_is_that_of_the_program():
    """docs/cli.md is `box help --markdown`."""
    told = subprocess.run([BOX_BIN, "help", "--markdown"], capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "cli.md").read_text() == told, "run: build/box help --markdown > docs/cli.md"
